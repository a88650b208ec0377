"""The house itself: installing, the address, the setup cell, the cache, the page's buttons."""

import copy
import functools
import http.server
import itertools
import json
import platform
import re
import runpy
import subprocess
import sys
import types
import venv
import zipfile
from pathlib import Path

import house
import nbformat
import pytest
import small_book
from jupyter_cache import get_cache
from jupyter_cache.executors.utils import single_nb_execution

URL = "https://github.com/some-one/a-book"


# ---------------------------------------------------------------- the repository's address


def test_address_is_written_everywhere_and_the_page_leads_there(tmp_path):
    notebook = small_book.make(tmp_path, "1 / 1")
    house.repository(f"{URL}.git/", tmp_path)
    assert house.address(tmp_path) == URL
    assert f'REPOSITORY = \\"{URL}\\"' in notebook.read_text()
    assert f'Repository = "{URL}"' in (tmp_path / "pyproject.toml").read_text()
    assert f'repository-code: "{URL}"' in (tmp_path / "CITATION.cff").read_text()

    done = small_book.build(tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "_build" / "html" / "book" / "page.html").read_text()
    colab = "https://colab.research.google.com/github/some-one/a-book/blob/main/book/page.ipynb"
    assert f'href="{colab}"' in page
    assert f'href="{URL}"' in page


def test_writing_the_address_twice_changes_nothing_more(tmp_path):
    notebook = small_book.make(tmp_path, "1 / 1")
    paths = [notebook, *(tmp_path / n for n in ("_config.yml", "pyproject.toml", "CITATION.cff"))]
    house.repository(URL, tmp_path)
    once = [path.read_text() for path in paths]
    house.repository(URL, tmp_path)
    assert [path.read_text() for path in paths] == once


@pytest.mark.parametrize(
    "url",
    [
        "",
        "github.com/some-one/a-book",
        "https://github.com/some-one",
        "https://github.com/OWNER/NAME",
        "https://github.com/some-one/a-book/tree/main",
        'https://github.com/some-one/a"book',
        "https://example.org/some-one/a-book",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_written(tmp_path, url):
    small_book.make(tmp_path, "1 / 1")
    before = (tmp_path / "_config.yml").read_text()
    with pytest.raises(SystemExit, match="is not a repository's address"):
        house.repository(url, tmp_path)
    assert (tmp_path / "_config.yml").read_text() == before


# ---------------------------------------------------------------- the setup cell


@pytest.fixture
def lone(monkeypatch):
    """A machine without the package, and the commands that the cell runs there."""
    commands, status = [], [0]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    def run(command):
        commands.append(command)
        return subprocess.CompletedProcess(command, status[0])

    monkeypatch.setattr(subprocess, "run", run)
    return commands, status


def cell(url: str = "") -> str:
    template = (house.ROOT / "tools" / "setup_cell.py").read_text()
    return template.replace('REPOSITORY = ""', f'REPOSITORY = "{url}"')


def test_setup_cell_does_nothing_where_the_package_is():
    before = set(sys.modules)
    exec(cell(), {})
    assert "clusterfl_core.ifca" not in set(sys.modules) - before


def test_setup_cell_says_what_to_run_where_the_package_is_missing(lone):
    with pytest.raises(ImportError, match="pip install -e"):
        exec(cell(URL), {})
    assert lone[0] == []


def test_setup_cell_on_colab_without_an_address_installs_nothing(lone, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
    with pytest.raises(RuntimeError, match="make repository"):
        exec(cell(), {})
    assert lone[0] == []


def test_setup_cell_on_colab_installs_the_package_alone(lone, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
    exec(cell(URL), {})
    (command,) = lone[0]
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--no-deps" in command
    assert command[-1] == f"git+{URL}@main"


def test_setup_cell_on_colab_says_that_a_download_failed(lone, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
    lone[1][0] = 1
    with pytest.raises(RuntimeError, match=f"Could not fetch {URL}"):
        exec(cell(URL), {})


def test_setup_cell_is_put_first_and_replaces_an_older_one():
    old = {"cell_type": "code", "metadata": {"tags": ["setup"]}, "source": ["old"]}
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# A"]}
    code = {"cell_type": "code", "metadata": {}, "source": ["x = 1"]}
    new = house.with_setup_cell({"cells": [text, code, old]}, "a\nb")
    assert [c["source"] for c in new["cells"]] == [["# A"], ["a\n", "b"], ["x = 1"]]
    assert house.with_setup_cell(new, "a\nb") == new


# ---------------------------------------------------------------- the execution cache


def test_executed_notebooks_are_kept_until_what_they_depend_on_changes(tmp_path, monkeypatch):
    cached = tmp_path / "_build" / ".jupyter_cache" / "executed"
    page = tmp_path / "_build" / "html" / "page.html"

    def kept() -> bool:
        for path in (cached, page):
            path.parent.mkdir(exist_ok=True, parents=True)
            path.touch()
        house.clean(tmp_path)
        assert not page.exists()
        return cached.exists()

    assert not kept()
    assert kept()
    monkeypatch.setenv("CLUSTERFL_DATA", "elsewhere")
    assert not kept()
    assert kept()
    monkeypatch.setattr(house, "installed_key", lambda: "other versions")
    assert not kept()

    monkeypatch.setattr(house, "ROOT", tmp_path)
    assert not kept()
    chapter = tmp_path / "book" / "results" / "06_x"
    (chapter / ".unfinished").mkdir(parents=True)
    (chapter / ".unfinished" / "e-seed0.pt").touch()
    assert kept()
    (chapter / "e-seed0.json").write_text("{}")
    assert not kept()
    (chapter / "e-seed0.json").write_text("{ }")
    assert not kept()
    assert kept()

    mine = tmp_path / "mine"
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(mine))
    mine.mkdir()
    assert not kept()
    (mine / "e-seed0.json").write_text("{}")
    assert not kept()
    assert kept()


def test_a_build_leaves_the_pages_of_long_runs_alone(tmp_path):
    page = tmp_path / "_build" / "results" / "06_x-paper-seed0.ipynb"
    page.parent.mkdir(parents=True)
    page.touch()
    house.clean(tmp_path)
    assert page.exists()


# ---------------------------------------------------------------- one run of a notebook

SHOWN = """\
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import clear_output, display

from clusterfl_core import figures

with Path("runs.txt").open("a") as runs:
    runs.write("once ")
print("first", end="")
print("a warning", file=sys.stderr)
print("second")
shown = display("before", display_id="it")
shown.update("after")
figures.player(lambda size: figures.panel(f"A panel of {size}"), "size", [1, 2])
---
print("cleared")
clear_output()
1 + 1;
---
2 + 2
---
print(_, Out)
plt.plot([1, 2])
---

---
1 / 0
---
from ipywidgets import FloatSlider

FloatSlider(value=3)
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Path:
    """A notebook with every kind of output, in a book of its own, run as `make test` does."""
    path = small_book.make(tmp_path_factory.mktemp("shown"), "")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    pattern = notebook["cells"].pop()
    for number, source in enumerate(SHOWN.split("---\n")):
        tags = ["raises-exception"] if "1 / 0" in source else []
        cell = {"id": f"c{number}", "source": source, "metadata": {"tags": tags}}
        notebook["cells"].append(pattern | cell)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    root = path.parents[1]
    house.clean(root)
    assert house.unexecuted(root) == [path]
    house.execute([path], root=root)
    return path


def test_a_notebook_runs_once_for_the_check_and_the_build(shown):
    root = shown.parents[1]
    assert house.unexecuted(root) == []

    done = small_book.build(root)
    assert done.returncode == 0, done.stderr
    assert (shown.parent / "runs.txt").read_text() == "once "
    page = (root / "_build" / "html" / "book" / "page.html").read_text()
    assert page.count("application/vnd.jupyter.widget-view+json") == 2
    assert "A panel of 2" in page
    assert "firstsecond" in page
    assert "ZeroDivisionError" in page

    text = shown.read_text(encoding="utf-8")
    shown.write_text(text.replace("2 + 2", "2 + 3"), encoding="utf-8")
    assert house.unexecuted(root) == [shown]
    shown.write_text(text, encoding="utf-8")


def test_what_is_kept_is_what_the_build_itself_would_have_made(shown):
    cache = get_cache(shown.parents[1] / "_build" / ".jupyter_cache")
    made = nbformat.read(shown, 4)
    _, kept = cache.merge_match_into_notebook(copy.deepcopy(made))
    assert single_nb_execution(made, str(shown.parent), 100, False).err is None
    assert plain(kept) == plain(made)


def plain(notebook) -> list:
    """Take away what chance draws: the names and the order of widgets, addresses in memory."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and not cell.source.strip():
            cell.execution_count = None  # nbclient does not run an empty cell
    text = re.sub(r"0x[0-9a-f]+|[0-9a-f]{32}", "drawn", nbformat.writes(notebook))
    return json.loads(text, object_pairs_hook=lambda pairs: sorted(pairs, key=repr))


def test_a_notebook_that_fails_is_not_kept_and_says_where(tmp_path, capfd):
    path = small_book.make(tmp_path, "1 / 0")
    house.clean(tmp_path)
    with pytest.raises(SystemExit, match="A notebook fails"):
        house.execute([path], root=tmp_path)
    assert "ZeroDivisionError" in capfd.readouterr().out
    assert house.unexecuted(tmp_path) == [path]


# ---------------------------------------------------------------- installing


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """The Python of an environment with pip alone."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=True)
    return folder / house.PYTHON.relative_to(house.VENV)


def fake_uv(python: Path, code: str) -> None:
    """Put a uv that runs `code` where the real one would be fetched to."""
    package = python.parents[1] / house.UV.replace("==", "-") / "uv"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__main__.py").write_text(code)


def test_where_uv_fails_pip_installs_the_same(bare, tmp_path, capfd):
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as pack:
        info = "tiny-1.0.dist-info"
        pack.writestr("tiny.py", "")
        pack.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        pack.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        pack.writestr(f"{info}/RECORD", "")
    fake_uv(bare, "import sys\nsys.exit('no such platform')")
    house.install(bare, "--no-index", wheel)
    printed = capfd.readouterr()
    assert "no such platform" in printed.err
    assert "pip tries" in printed.out
    listed = subprocess.run([bare, "-m", "pip", "freeze"], capture_output=True, text=True).stdout
    assert listed.startswith("tiny @")


def test_uv_takes_packages_from_where_pip_is_told_to(bare, tmp_path, monkeypatch):
    settings = tmp_path / "pip.conf"
    settings.write_text(
        "[global]\nindex-url = https://a.example/simple\n"
        "extra-index-url =\n  https://b.example/simple\n  https://c.example/simple\n"
        "find-links = /overridden\ncert = /a.pem\n"
        "[install]\nconstraint = /a.txt\n"
    )
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    heard = tmp_path / "heard.json"
    fake_uv(
        bare,
        "import json, os, pathlib, sys\n"
        f"pathlib.Path({str(heard)!r}).write_text("
        "json.dumps([*sys.argv[1:], os.environ['SSL_CERT_FILE']]))",
    )
    house.install(bare, "-r", "requirements.txt")
    words = json.loads(heard.read_text())
    assert words[:2] == ["pip", "install"]
    assert words[-3:] == ["-r", "requirements.txt", "/a.pem"]
    pairs = list(itertools.pairwise(words))
    for option, value in [
        ("--python", str(bare)),
        ("--index-url", "https://a.example/simple"),
        ("--extra-index-url", "https://b.example/simple"),
        ("--extra-index-url", "https://c.example/simple"),
        ("--find-links", "/wheels"),
        ("--constraint", "/a.txt"),
    ]:
        assert (option, value) in pairs
    assert "/overridden" not in words
    assert "--no-index" not in words


@pytest.mark.parametrize(
    ("system", "machine", "version", "fits"),
    [
        ("Linux", "x86_64", (3, 11, 5), True),
        ("Linux", "aarch64", (3, 14, 9), True),
        ("Darwin", "arm64", (3, 12, 0), True),
        ("Windows", "AMD64", (3, 13, 0), True),
        ("Darwin", "x86_64", (3, 12, 0), False),
        ("Windows", "ARM64", (3, 12, 0), False),
        ("FreeBSD", "amd64", (3, 12, 0), False),
        ("Linux", "x86_64", (3, 11, 4), False),
        ("Linux", "x86_64", (3, 15, 0), False),
    ],
)
def test_where_the_packages_have_no_builds_one_sentence_says_so(
    monkeypatch, tmp_path, system, machine, version, fits
):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.28"))
    monkeypatch.setattr(platform, "mac_ver", lambda: ("14.0", ("", "", ""), machine))
    monkeypatch.setattr(sys, "version_info", version)
    if fits:
        house.check_platform()
        return
    monkeypatch.setattr(house, "VENV", tmp_path / "venv")
    with pytest.raises(SystemExit, match=rf"Apple silicon only.*on {system}.* \({machine}\)\.$"):
        house.setup()
    assert not house.VENV.exists()


@pytest.mark.parametrize(
    ("system", "libc", "macos", "said"),
    [
        ("Linux", ("glibc", "2.28"), "", ""),
        ("Linux", ("glibc", "2.41"), "", ""),
        ("Linux", ("glibc", "2.27"), "", r"on Linux, glibc 2\.27 \(arm64\)"),
        ("Linux", ("", ""), "", r"on Linux, no glibc \(arm64\)"),  # Alpine's musl
        ("Darwin", ("", ""), "14.0", ""),
        ("Darwin", ("", ""), "26.1", ""),
        ("Darwin", ("", ""), "13.7.1", r"on Darwin 13\.7\.1 \(arm64\)"),
    ],
)
def test_a_system_too_old_for_the_builds_is_told_so_and_not_to_run_it_again(
    monkeypatch, system, libc, macos, said
):
    monkeypatch.setattr(house, "PLATFORMS", {"Linux": ["arm64"], "Darwin": ["arm64"]})
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), "arm64"))
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    if not said:
        house.check_platform()
        return
    with pytest.raises(SystemExit, match=rf"glibc 2\.28 or newer.*macOS 14 or newer.*{said}\.$"):
        house.check_platform()


# ---------------------------------------------------------------- the command line


def test_an_old_python_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        runpy.run_path(house.__file__)


def test_serving_before_building_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="make book"):
        house.serve(0)


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_is_none_is_refused_in_one_sentence(tmp_path, monkeypatch, port):
    site = tmp_path / "_build" / "html"
    site.mkdir(parents=True)
    (site / "index.html").touch()
    monkeypatch.setattr(house, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=f"There is no port {port}: choose one"):
        house.serve(port)


def test_a_port_in_use_is_refused_in_one_sentence(tmp_path, monkeypatch):
    site = tmp_path / "_build" / "html"
    site.mkdir(parents=True)
    (site / "index.html").touch()
    monkeypatch.setattr(house, "ROOT", tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(object)) as taken:
        port = taken.server_port
        with pytest.raises(SystemExit, match=f"Port {port} cannot be used .*choose another"):
            house.serve(port)


def test_a_missing_browser_is_named_in_one_sentence(monkeypatch):
    monkeypatch.setattr(house, "chromium", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda c: subprocess.CompletedProcess(c, 1))
    with pytest.raises(SystemExit, match="CHROMIUM"):
        house.find_browser()


def test_the_browser_of_the_environment_goes_first(monkeypatch):
    monkeypatch.setenv("CHROMIUM", sys.executable)
    assert house.chromium() == sys.executable
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    assert house.chromium() is None
