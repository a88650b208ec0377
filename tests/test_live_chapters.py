"""Where a laboratory computes what its chapter computes, both say the same."""

import json
from pathlib import Path

import numpy as np
import pytest
from browser import visited
from test_live_pages import FRAME

from clusterfl_core import data, live

BOOK = Path(__file__).parents[1] / "book"


def cells(chapter, *ids, **names):
    """What some cells of a chapter define, by name."""
    notebook = json.loads((BOOK / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    sources = {cell["id"]: "".join(cell["source"]) for cell in notebook["cells"]}
    for one in ids:
        exec(sources[one], names)
    return names


def readings(browser, folder, laboratory):
    """The numbers that a laboratory shows, as computed."""
    (folder / "lab.html").write_text(FRAME.format(laboratory._repr_html_()), encoding="utf-8")
    with visited(browser, f"{folder.as_uri()}/", "lab.html") as (tab, wrong):
        found = tab.locator(f"cfl-{laboratory.name} data").evaluate_all(
            "all => all.map(e => Number(e.value))"
        )
    assert wrong == []
    return found


@pytest.mark.parametrize(("kind", "s"), [("label", 0.75), ("feature", 1.0), ("conflict", 0.5)])
def test_the_mixing_desk_shows_the_arrows_of_figure_2_4(browser, tmp_path, kind, s):
    ids = ("43724410", "90bebf3f", "fig-2-4-data")
    chapter = cells("02_heterogeneity", *ids, seed=0, images=data.load("digits"))
    (first, rest), right = chapter["two_moments"](kind, s, 0)
    wanted = [
        chapter["mean_cosine"](first),
        float(first.norm(dim=1).mean()),
        float(rest.norm(dim=1).mean()),
        100 * right,
    ]
    shown = readings(browser, tmp_path, live.desk(**{kind: s}))[:4]
    np.testing.assert_allclose(shown, wanted, rtol=2e-3, atol=2e-3)
