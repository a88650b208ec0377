"""Formula and line: the terms that notebooks name, and what the built page makes of them."""

import json
import re

import browser as browsing
import formulas
import house
import pytest
from browser import visited

SITE = house.ROOT / "_build" / "html"
CELLS = {path: json.loads(path.read_text(encoding="utf-8"))["cells"] for path in house.notebooks()}
TOLD = {path: formulas.told(cells) for path, cells in CELLS.items()}
PAGES = [path for path, told in TOLD.items() if told]
FORMULA = {
    "cell_type": "markdown",
    "source": ["$$a + \\frac{b}{c}$$"],
    "metadata": {"terms": [{"tex": "\\frac{b}{c}", "code": ["b / c"], "words": "a ratio"}]},
}
CODE = {"cell_type": "code", "source": ["x = a + b / c"], "metadata": {}}


def test_a_term_leads_to_the_next_cell_that_holds_its_code():
    other = {
        "cell_type": "code",
        "source": ["b / c + b / c"],
        "metadata": {},
    }  # twice: not this one
    terms = FORMULA["metadata"]["terms"]
    assert formulas.told([CODE, FORMULA, other, CODE]) == [(1, 3, terms)]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([{**FORMULA, "source": ["$a$"]}, CODE], "stands 0 times"),
        ([{**FORMULA, "source": ["$\\frac{b}{c}\\frac{b}{c}$"]}, CODE], "stands 2 times"),
        ([CODE, FORMULA], "no code cell holds"),
    ],
)
def test_a_piece_that_is_not_there_is_named(cells, why):
    with pytest.raises(ValueError, match=why):
        formulas.told(cells)


def test_the_notebooks_stay_plain():
    for path in house.notebooks():
        assert not re.search(r"\\\\class\b", path.read_text(encoding="utf-8")), path.name


@pytest.fixture(scope="module")
def http():
    with browsing.served(SITE) as base:
        yield base


LIT = """() => [...document.querySelectorAll(".lit")].map((part) =>
  part.closest("pre") ? "code" : "formula")"""
LIT_CODE = """() => [...document.querySelectorAll("pre .lit")].map((part) => part.textContent)"""


@pytest.mark.pages
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_each_term_lights_its_code_and_back(browser, http, path):
    page = path.relative_to(house.ROOT).with_suffix(".html").as_posix()
    with visited(browser, http, page) as (tab, problems):
        assert tab.locator(".terms-fold").count() == len(TOLD[path])
        assert tab.locator("mjx-merror").count() == 0
        for place, (number, _, terms) in enumerate(TOLD[path]):
            for n, term in enumerate(terms):
                formula = tab.locator(f"mjx-math .term-{number}-{n}").first
                formula.hover()
                assert {"code", "formula"} <= set(tab.evaluate(LIT)), term["tex"]
                assert "".join(tab.evaluate(LIT_CODE)) == "".join(term["code"])
                tab.locator("pre .lit").first.hover()
                assert {"code", "formula"} <= set(tab.evaluate(LIT))
                tab.mouse.move(0, 0)
                assert tab.evaluate(LIT) == []
            fold = tab.locator(".terms-fold").nth(place)
            fold.locator("summary").focus()
            tab.keyboard.press("Enter")
            for term in terms:
                tab.keyboard.press("Tab")
                assert {"code", "formula"} <= set(tab.evaluate(LIT))
                said = tab.evaluate("document.activeElement.textContent")
                assert said == f"{term['words']}: {' … '.join(term['code'])}"
        problems += browsing.inaccessible(tab, contrast=True)
        problems += browsing.overflowing(tab)
    assert problems == []
