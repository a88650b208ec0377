"""A class hands in one assignment: every typical mistake, every editor, every name."""

import json
import re
import time
import unicodedata

import assignment_mistakes as known
import assignments
import grading
import nbformat
import pytest
import sandbox

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own
]
NAME, SIZE = "A2_ifca", 60
NAMES = ["O'Brien", "García, Ana", "Mu\u0308ller", "王伟", "🙂", "de la Cruz", "=1+1", "x"]


def plain(nb: dict) -> dict:
    """Jupyter."""
    return nb


def vscode(nb: dict) -> dict:
    """VS Code, which adds its own metadata and outputs."""
    for number, cell in enumerate(nb["cells"]):
        cell["metadata"]["vscode"] = {"languageId": "python"}
        if cell["cell_type"] == "code":
            cell["execution_count"] = number
            text = {"output_type": "stream", "name": "stderr", "text": ["warning\n"]}
            picture = {"image/png": "AAAA", "text/html": "<b>x</b>"}
            shown = {"output_type": "display_data", "data": picture, "metadata": {}}
            cell["outputs"] = [text, shown]
    return nb


def colab(nb: dict) -> dict:
    """Colab, which writes ids of its own and an older format."""
    for cell in nb["cells"]:
        cell["metadata"]["id"] = cell.pop("id") + "X"
        cell["source"] = cell["source"] if isinstance(cell["source"], list) else [cell["source"]]
    return nb | {
        "nbformat_minor": 0,
        "metadata": {"colab": {"provenance": []}, "accelerator": "GPU"},
    }


def bare(nb: dict) -> dict:
    """An editor that keeps texts alone."""
    for cell in nb["cells"]:
        cell["metadata"] = {}
        del cell["id"]
    return nb | {"nbformat_minor": 4}


def scratch(nb: dict) -> dict:
    """Somebody who tries things out at the end, and shadows names of Python and of the task."""
    code = "sum = 0\npoints = 5\nright = near = check_direction = None\n%matplotlib inline"
    own = {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "source": code}
    nb["cells"].append(own | {"execution_count": None})
    return nb


def tidy(nb: dict) -> dict:
    """Somebody who deletes the tests."""
    nb["cells"] = [c for c in nb["cells"] if not str(c.get("id")).startswith("test-")]
    return nb


EDITORS = [plain, vscode, colab, bare, scratch, tidy]


def answered(released: list, case: dict) -> dict:
    """Return the student copy with the answers of a typical case, and explanations."""
    solutions = {meta["grade_id"]: code for meta, code in known.cells(NAME) if meta.get("solution")}
    cells = [cell.copy() for cell in released]
    for cell in cells:
        own = cell.metadata.get("nbgrader", {}).get("grade_id")
        if own not in solutions:
            continue
        if cell.cell_type == "code":
            given = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", solutions[own], flags=re.M)
            cell.source = case.get(own, given)
        else:
            cell.source = f"My own words about {own}."
    return json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


def test_everybody_of_sixty_gets_the_declared_points_and_no_false_flag(tmp_path):
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    assignments.generate(tmp_path / "made", [NAME])
    released = assignments.released(tmp_path / "made", NAME)
    cases = list(known.MISTAKES[NAME].items())
    wanted = {}
    for number in range(SIZE):
        mistake, case = cases[number % len(cases)]
        who = f"{NAMES[number % len(NAMES)]} {number}"
        nb = EDITORS[number % len(EDITORS)](answered(released, case))
        path = tmp_path / "class" / who / f"{NAME}{' (1)' if number % 3 else ''}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(nb))
        how = (EDITORS[number % len(EDITORS)].__name__, mistake)
        wanted[unicodedata.normalize("NFC", who)] = (case["points"], *how)
    begun = time.monotonic()
    limits = sandbox.Limits(cell=200.0, total=900.0)
    results = grading.grade(
        tmp_path / "class",
        tmp_path / "graded",
        [NAME],
        limits,
        unsafe=False,
        jobs=2,
    )
    print(f"{len(results)} submissions in {time.monotonic() - begun:.0f} s")
    assert {r.student for r in results} == set(wanted)
    problems = []
    for r in results:
        points, *how = wanted[r.student]
        got = sum(test.points for test in r.tests if not test.by_hand)
        if r.refused or got != points or r.status != "graded":
            problems.append((r.student, how, points, got, r.refused, r.looks))
        by_hand = [test for test in r.tests if test.by_hand]
        if {test.state for test in by_hand} != {"to mark"}:
            problems.append((r.student, how, [(t.id, t.state) for t in by_hand]))
    assert problems == []
