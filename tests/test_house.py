"""The house itself: the address, the setup cell, the cache, the built page's buttons."""

import runpy
import subprocess
import sys
import types

import house
import pytest
import small_book

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


# ---------------------------------------------------------------- the command line


def test_an_old_python_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 2))
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        runpy.run_path(house.__file__)


def test_serving_before_building_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="make book"):
        house.serve(0)


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
