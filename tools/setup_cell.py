# Setup: on Colab this fetches the book's package; everywhere else it changes nothing.
import importlib.util
import subprocess
import sys

REPOSITORY = ""

if importlib.util.find_spec("clusterfl_core") is None:
    if "google.colab" not in sys.modules:
        raise ImportError("clusterfl_core is missing: run `pip install -e .` in the book's folder.")
    if not REPOSITORY:
        raise RuntimeError("No address to fetch from: run `make repository URL=...`, then push.")
    # --no-deps: Colab has all the package needs, and its own torch and numpy must not move.
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", f"git+{REPOSITORY}@main"]
    if subprocess.run(pip).returncode:
        raise RuntimeError(f"Could not fetch {REPOSITORY}: check the connection and run again.")
    importlib.invalidate_caches()
