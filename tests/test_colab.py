"""Each notebook as Colab would run it: alone in an empty folder, from the wheel, ipywidgets 7.7.1.

The environment is a clean one of its own, filled from the wheel's own dependencies: nothing of
`.venv` is visible there. Of the two ways to get PyTorch into it, installing it anew took 70 seconds
and lending `.venv`'s copy would have hidden a missing dependency, so it is installed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import house
import pytest
from packaging.requirements import Requirement

from clusterfl_core.version import __version__

pytestmark = pytest.mark.colab

# What Colab runs notebooks with; these stay behind the newest by years.
KERNEL = ["ipywidgets==7.7.1", "ipykernel==6.17.1", "ipython==7.34.0", "nbconvert"]
OWN = {f"clusterfl_core=={__version__}"}
DEAD_PROXY = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")


def run(*command, **options) -> str:
    """Run a command and return what it printed; fail with it."""
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | options
    done = subprocess.run([str(word) for word in command], **merged)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what the package is built from, as a git repository."""
    root = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(house.ROOT / name, root)
    ignored = shutil.ignore_patterns("__pycache__", ".unfinished")
    for name in ("clusterfl_core", "book/results", "book/claims"):
        shutil.copytree(house.ROOT / name, root / name, ignore=ignored)
    run("git", "init", "-q", "-b", "main", cwd=root)
    run("git", "add", ".", cwd=root)
    author = ["-c", "user.name=A reader", "-c", "user.email=reader@example.org"]
    run("git", *author, "commit", "-q", "-m", "The package", cwd=root)
    return root


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Iterator[Path]:
    """Give the Python of a clean environment with Colab's kernel and the package's dependencies."""
    root = tmp_path_factory.mktemp("colab")
    run(sys.executable, "-m", "venv", root / "venv")
    python = root / "venv" / house.PYTHON.relative_to(house.VENV)
    pins = "".join((house.ROOT / n).read_text() for n in ("requirements.txt", "constraints.txt"))
    needed = [text for text in metadata.requires("clusterfl_core") if "extra ==" not in text]
    named = {Requirement(text).name for text in needed}
    library = [line for line in pins.splitlines() if line.split("==")[0] in named - {"ipywidgets"}]
    house.install(python, *library, *KERNEL)
    yield python
    shutil.rmtree(root)  # gigabytes


def versions(python: Path) -> set[str]:
    """Return what is installed."""
    return set(run(python, "-m", "pip", "list", "--format", "freeze").splitlines())


def test_setup_cell_fetches_the_package_and_moves_nothing(python, source, tmp_path):
    before = versions(python)
    template = (house.ROOT / "tools" / "setup_cell.py").read_text()
    colab = "import sys, types\n\nsys.modules['google.colab'] = types.ModuleType('colab')\n"
    cell = template.replace('REPOSITORY = ""', f'REPOSITORY = "{source.as_uri()}"')
    (tmp_path / "cell.py").write_text(colab + cell + "\nimport clusterfl_core\n")
    run(python, "cell.py", cwd=tmp_path)
    assert versions(python) == before | OWN


def test_wheel_brings_nothing_that_was_not_there(python, source, tmp_path):
    run(python, "-m", "pip", "uninstall", "-q", "-y", "clusterfl_core")
    before = versions(python)
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", wheel)
    assert versions(python) == before | OWN
    assert "No broken requirements" in run(python, "-m", "pip", "check")


STORED = """\
from clusterfl_core import results

here, folder = results.folders()
for path in sorted(folder.rglob("*.json")):
    print(path.relative_to(folder).as_posix())
    assert results.stored(path.parent.name)
"""


def test_stored_results_come_along(python, tmp_path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CLUSTERFL_"))}
    folder = house.ROOT / "book" / "results"
    here = sorted(folder.rglob("*.json"))
    assert run(python, "-c", STORED, cwd=tmp_path, env=kept).splitlines() == [
        path.relative_to(folder).as_posix() for path in here
    ]


MOVED = """\
from clusterfl_core import figures

widget = figures.player(lambda name: figures.panel(name), "name", ["first", "second"])
controls, shown = widget.children
controls.children[1].index = 1
assert 'aria-label="second"' in shown.value
"""


def test_player_moves_with_the_widgets_of_colab(python, tmp_path):
    run(python, "-c", MOVED, cwd=tmp_path)


def execute_alone(python, folder, path):
    """Run one notebook in an empty folder, without a network and without this repository."""
    folder.mkdir()
    shutil.copy(path, folder)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CLUSTERFL_"))}
    alone = kept | DEAD_PROXY | {"HOME": str(folder), "CLUSTERFL_DATA": str(folder / "data")}
    convert = ["-m", "nbconvert", "--to", "notebook", "--execute", "--output", "run"]
    run(python, *convert, path.name, cwd=folder, env=alone)
    return (folder / "run.ipynb").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def executed(python, tmp_path_factory):
    """All notebooks, two at a time."""
    root = tmp_path_factory.mktemp("alone")
    with ThreadPoolExecutor(2) as pool:
        yield {
            path: pool.submit(execute_alone, python, root / path.stem, path)
            for path in house.notebooks()
        }


@pytest.mark.parametrize("path", house.notebooks(), ids=lambda path: path.stem)
def test_notebook_runs_alone_and_offline(executed, path):
    assert "error" not in executed[path].result().split('"output_type": ')
