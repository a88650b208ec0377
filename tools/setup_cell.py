# @title Setup (on Colab it fetches the book's package)
import importlib.util
import subprocess
import sys

REPOSITORY = ""

if importlib.util.find_spec("clusterfl_core") is None:
    if "google.colab" not in sys.modules:
        raise ImportError(
            "clusterfl_core is missing: run `pip install -e .` in the book's folder."
        )
    if not REPOSITORY:
        raise RuntimeError(
            "No address to fetch from: run `make repository URL=...`, then push."
        )
    # --no-deps: Colab has all it needs, its torch and numpy must not move.
    get = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    if subprocess.run([*get, f"git+{REPOSITORY}@main"]).returncode:
        raise RuntimeError(
            f"Could not fetch {REPOSITORY}: check the connection, run again."
        )
    importlib.invalidate_caches()
