"""What a class hands in: typical answers, from every editor, under every name."""

import json
import re
from pathlib import Path

import assignment_mistakes as known
import nbformat

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


def answered(released: list, name: str, case: dict) -> dict:
    """Return the student copy with the answers of a typical case, and explanations.

    Who has no answer at all has no explanation either.
    """
    solutions = {meta["grade_id"]: code for meta, code in known.cells(name) if meta.get("solution")}
    cells = [cell.copy() for cell in released]
    for cell in cells:
        own = cell.metadata.get("nbgrader", {}).get("grade_id")
        if own not in solutions:
            continue
        if cell.cell_type == "code":
            given = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", solutions[own], flags=re.M)
            cell.source = case.get(own, given)
        elif case["points"]:
            cell.source = f"My own words about {own}."
    return json.loads(nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


def hand_in(folder: Path, name: str, released: list, size: int) -> dict[str, tuple]:
    """Write a class's submissions; return points, editor and mistake of each student."""
    cases, wanted = list(known.MISTAKES[name].items()), {}
    for number in range(size):
        mistake, case = cases[number % len(cases)]
        edit = EDITORS[number % len(EDITORS)]
        who = f"{NAMES[number % len(NAMES)]} {number}"
        path = folder / who / f"{name}{' (1)' if number % 3 else ''}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(edit(answered(released, name, case))))
        wanted[who] = (case["points"], edit.__name__, mistake)
    return wanted
