"""The checks can fail: each is shown something broken and must say so."""

import subprocess

import browser as browsing
import house
import pytest
import small_book
from browser import PHONE, visited

STUCK = """\
from clusterfl_core import figures

figures.player(lambda step: figures.panel("The same picture"), "step", range(3))
"""


@pytest.mark.parametrize("attempt", ["first", "second"])
def test_a_raising_cell_fails_the_build_every_time(broken, attempt):
    done = small_book.build(broken)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stdout + done.stderr


def test_a_raising_cell_fails_the_notebook_test(broken):
    command = [house.PYTHON, "-m", "pytest", *house.NBVAL_OPTIONS, *house.notebooks(broken)]
    done = subprocess.run(command, cwd=broken, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    root = tmp_path_factory.mktemp("broken")
    small_book.make(root, "1 / 0")
    return root


def test_a_warning_fails_the_build(tmp_path):
    small_book.make(tmp_path, "1 / 1")
    (tmp_path / "book" / "intro.md").write_text("# Intro\n\n[nowhere](nowhere.md)\n")
    done = small_book.build(tmp_path)
    assert done.returncode != 0
    assert "nowhere" in done.stdout + done.stderr


def test_a_player_that_shows_the_same_picture_is_found(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(browsing, "PATIENCE", 0.3)
    small_book.make(tmp_path, STUCK)
    done = small_book.build(tmp_path)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "_build" / "html"
    source = (site / "book" / "page.html").read_text()
    with visited(browser, f"{site.as_uri()}/", "book/page.html") as (tab, problems):
        stuck = browsing.stuck_players(tab, source)
    assert problems == []
    assert [text.split(" does")[0] for text in stuck] == [
        "an arrow key",
        "a click",
        "dragging",
        "Play",
    ]


def visit(browser, folder, body: str, ask) -> list[str]:
    """Return what `ask` finds in a page with this body, on a phone."""
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>'
    (folder / "page.html").write_text(f"{head}<body><main><article>{body}</article></main>")
    with visited(browser, f"{folder.as_uri()}/", "page.html", size=PHONE) as (tab, problems):
        return ask(tab, problems)


@pytest.mark.parametrize(
    ("body", "ask", "found"),
    [
        (
            '<img alt="a" src="https://example.org/a.png">',
            lambda tab, problems: problems,
            "request leaves: https://example.org/a.png",
        ),
        ("<script>nothing()</script>", lambda tab, problems: problems, "nothing is not defined"),
        ("<script>console.error('no')</script>", lambda tab, problems: problems, "console: no"),
        ('<img src="data:,">', lambda tab, problems: browsing.missing_alts(tab), "no alt text"),
        (
            r'<span class="math">\(x\)</span>',
            lambda tab, problems: browsing.unreadable_math(tab, '<span class="math'),
            "not rendered",
        ),
        (
            "<mjx-container><mjx-merror>oops</mjx-merror></mjx-container>",
            lambda tab, problems: browsing.unreadable_math(tab, '<span class="math'),
            "oops",
        ),
        (
            "<p>the least sum $$ of all</p>",
            lambda tab, problems: browsing.raw_markup(tab),
            "still source: the least sum $$ of all",
        ),
        (
            "<p>from {window[0]} to 3</p>",
            lambda tab, problems: browsing.raw_markup(tab),
            "still source: from {window[0]} to 3",
        ),
        (
            '<div style="width: 500px">wide</div>',
            lambda tab, problems: browsing.overflowing(tab),
            "the page scrolls sideways",
        ),
        (
            '<div style="overflow: hidden"><div style="width: 500px">wide</div></div>',
            lambda tab, problems: browsing.overflowing(tab),
            "cut off",
        ),
        (
            '<div style="overflow: auto"><div style="margin-left: -50px">left</div></div>',
            lambda tab, problems: browsing.overflowing(tab),
            "cut off",
        ),
        (
            '<p style="color: #aaa; background: #fff">pale</p>',
            lambda tab, problems: browsing.inaccessible(tab),
            "color-contrast",
        ),
        ("<button></button>", lambda tab, problems: browsing.inaccessible(tab), "button-name"),
    ],
)
def test_a_broken_page_is_found(browser, tmp_path, body, ask, found):
    assert found in " ".join(visit(browser, tmp_path, body, ask))


def test_a_sound_page_is_not_blamed(browser, tmp_path):
    body = '<h1>A</h1><div style="overflow: auto" tabindex="0"><p style="width: 500px">b</p></div>'

    def ask(tab, problems):
        found = browsing.missing_alts(tab) + browsing.overflowing(tab) + browsing.inaccessible(tab)
        return problems + found

    assert visit(browser, tmp_path, body, ask) == []
