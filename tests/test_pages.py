"""The built book in a browser, without a kernel and without a network: run `make book` first."""

import contextlib
import html
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import browser as browsing
import house
import nbformat
import pytest
from browser import PHONE, WIDE, visited

pytestmark = pytest.mark.pages

SITE = house.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.parts and path != SITE / "index.html"
)
SOURCES = {page: (SITE / page).read_text(encoding="utf-8") for page in PAGES}
PLAYED = [page for page in PAGES if "widget-view+json" in SOURCES[page]]


@pytest.fixture(scope="module")
def http():
    with browsing.served(SITE) as base:
        yield base


def test_every_source_has_its_page():
    missing = [path for path in house.contents() if f"{path}.html" not in PAGES]
    assert not missing, f"not built: {missing}"


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_over_http(browser, http, page, dark, size):
    with visited(browser, http, page, dark, size) as (tab, problems):
        problems += browsing.missing_alts(tab)
        problems += browsing.unreadable_math(tab, SOURCES[page])
        problems += browsing.overflowing(tab)
        problems += browsing.inaccessible(tab)
    assert problems == []


@pytest.mark.parametrize("page", PAGES)
def test_page_from_a_file(browser, page):
    with visited(browser, f"{SITE.as_uri()}/", page) as (tab, problems):
        problems += browsing.unreadable_math(tab, SOURCES[page])
    assert problems == []


@pytest.mark.parametrize("page", PLAYED)
def test_players_over_http_on_a_wide_screen(browser, http, page):
    with visited(browser, http, page) as (tab, problems):
        problems += browsing.stuck_players(tab, SOURCES[page])
    assert problems == []


@pytest.mark.parametrize("page", PLAYED)
def test_players_from_a_file_on_a_dark_phone(browser, page):
    with visited(browser, f"{SITE.as_uri()}/", page, dark=True, size=PHONE) as (tab, problems):
        problems += browsing.stuck_players(tab, SOURCES[page])
        problems += browsing.overflowing(tab)
    assert problems == []


def test_front_page_leads_into_the_book(browser, http):
    with visited(browser, http, "index.html") as (tab, problems):
        tab.wait_for_url(f"**/{house.contents()[0]}.html")
    assert problems == []


def test_search_finds_the_first_page(browser, http):
    title = re.search(r"<h1>(\w+)", SOURCES[f"{house.contents()[0]}.html"])[1]
    with visited(browser, http, f"search.html?q={title}") as (tab, problems):
        tab.locator("#search-results li a").first.wait_for()
    assert problems == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("book/")])
def test_buttons_lead_to_the_address_or_are_absent(page):
    url = house.address()
    found = "https://colab.research.google.com/github" in SOURCES[page]
    assert found == bool(url and (house.ROOT / page).with_suffix(".ipynb").exists())
    # a page may name an address, say of the authors' code, but no button may lead to none
    leading = re.findall(r"<(?:a|form)\b[^>]*github\.com[^>]*>", SOURCES[page])
    assert url or not [tag for tag in leading if "btn" in tag or tag.startswith("<form")]


# ---------------------------------------------------------------- JupyterLab


@contextlib.contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab in a folder, without the user's settings, and give the address of a file."""
    own = {f"JUPYTER_{k}_DIR": str(folder / f".{k}") for k in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{k}_DIR": str(folder / f".{k}") for k in ("SETTINGS", "WORKSPACES")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    options += ["--ServerApp.port_retries=0", "--IdentityProvider.token=a-token"]
    log = folder / "log"
    with log.open("w") as said:
        command = [house.PYTHON, "-m", "jupyterlab", *options]
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | own, stdout=said, stderr=said
        )
    try:
        end = time.monotonic() + 60
        while True:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=a-token").close()
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token=a-token"
    finally:
        server.terminate()  # ends its kernels first
        server.wait(30)


def test_jupyterlab_folds_what_the_page_hides(browser, tmp_path):
    path = house.ROOT / "book" / "03_clusters.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    expected = []
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            text = f"Output of cell {i}."
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
            tags = set(cell["metadata"].get("tags", []))
            whole = bool(tags & {"hide-cell", "remove-cell"})
            code = not (tags & {"hide-input", "remove-input"}) and not whole
            first = "" if code else "".join(cell["source"]).split("\n")[0]
            expected.append([code, first, not whole])
    assert sum(first.startswith("# @title Solution") for _, first, _ in expected) == 4
    (tmp_path / "chapter.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with jupyter_lab(tmp_path) as address:
        tab = browser.new_page(viewport=WIDE)
        tab.goto(address.format("chapter.ipynb"))
        cells = tab.locator(".jp-Notebook .jp-Cell")
        cells.nth(len(notebook["cells"]) - 1).wait_for(state="attached", timeout=60_000)
        found = tab.eval_on_selector_all(
            ".jp-Notebook .jp-CodeCell",
            """all => all.map(cell => {
              const seen = what => Boolean(cell.querySelector(what)?.checkVisibility());
              const first = cell.querySelector(".jp-InputPlaceholder")?.textContent ?? "";
              return [seen(".jp-InputArea"), first.trim(), seen(".jp-OutputArea-output")];
            })""",
        )
        tab.close()
    assert found == expected


# ---------------------------------------------------------------- assignments


def test_site_has_the_student_copies_and_no_line_of_what_students_may_not_see():
    import assignments  # with nbgrader, which the other tests of pages do not need

    with zipfile.ZipFile(SITE / "book" / "assignments" / "students.zip") as pack:
        names = [name for name in pack.namelist() if name.endswith(".ipynb")]
        copies = [pack.read(name).decode() for name in names]
    assert len(names) == len(assignments.names())
    public = [cell.source for copy in copies for cell in nbformat.reads(copy, 4).cells]
    for path in [path for path in house.notebooks() if path.parent == house.ROOT / "book"]:
        public += [cell.source for cell in nbformat.read(path, 4).cells]
    for folder in ("clusterfl_core", "book"):
        for path in (house.ROOT / folder).rglob("*.[mp][dy]"):
            if path.name != "instructor.md":
                public.append(path.read_text(encoding="utf-8"))
    shown = "\n".join(public)
    secret = set()
    for name in assignments.names():
        for blocks in assignments.secrets(name).values():
            secret |= assignments.lines(blocks, shown)
    assert len(secret) > 100
    for path in SITE.rglob("*"):
        if path.suffix in (".html", ".ipynb", ".md", ".txt", ".js", ".json", ".inv", ".csv"):
            text = path.read_text(encoding="utf-8", errors="replace")
            text += html.unescape(re.sub("<[^>]+>", "", text)) + text.replace('\\"', '"')
            text = assignments.bare(text)
            assert not [line for line in secret if line in text], path
