"""An assignment of two functions and one explanation, to try the grader on without PyTorch."""

import json
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

NAME = "S1_small"
SECRET = "Nobody in a cluster"  # stands in a hidden test only
FIRST = "def total(values):\n    return sum(values)"
SECOND = "def mean(values):\n    return sum(values) / len(values) if values else 0"


def marked(cell, name: str, **data):
    """Return a cell with nbgrader's metadata."""
    flags = {"grade": False, "locked": False, "solution": False, "task": False, "schema_version": 3}
    cell.metadata.nbgrader = flags | {"grade_id": name} | data
    cell.id = name
    return cell


def task(code: str) -> str:
    """Return code whose body is marked as the solution."""
    head, *body = code.split("\n")
    return "\n".join([head, "    ### BEGIN SOLUTION", *body, "    ### END SOLUTION"])


def write(folder: Path) -> None:
    """Write the source notebook and its notes to a folder of assignments."""
    tests = [
        'found = total([1, 2])\nassert found == 3, f"The total of 1 and 2 is 3, not {found}."\n'
        "### BEGIN HIDDEN TESTS\n"
        'assert total([]) == 0, f"The total of nothing is 0, not {total([])}."\n'
        "### END HIDDEN TESTS",
        'assert mean([1, 3]) == 2, f"The mean of 1 and 3 is 2, not {mean([1, 3])}."\n'
        "### BEGIN HIDDEN TESTS\n"
        f'assert mean([]) == 0, f"{SECRET}: the mean stays 0, it is {{mean([])}}."\n'
        "### END HIDDEN TESTS",
    ]
    cells = [
        new_markdown_cell(
            "# Small\n\nSee [chapter 1](../../01_fedavg.ipynb) and [a table](#small)."
        ),
        new_markdown_cell("Most forget the empty list.", metadata={"tags": ["instructor"]}),
        marked(new_code_cell("given = 2"), "given", locked=True),
        marked(new_code_cell(task(FIRST)), "total", solution=True),
        marked(new_code_cell(tests[0]), "test-total", grade=True, locked=True, points=3),
        marked(new_code_cell(task(SECOND)), "mean", solution=True),
        marked(new_code_cell(tests[1]), "test-mean", grade=True, locked=True, points=5),
        marked(
            new_markdown_cell(
                "Why 0?\n\n### BEGIN SOLUTION\nBecause a sum of nothing is 0.\n### END SOLUTION"
            ),
            "why",
            grade=True,
            solution=True,
            points=2,
        ),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    (folder / NAME).mkdir(parents=True)
    nbformat.write(notebook, folder / NAME / f"{NAME}.ipynb")
    (folder / NAME / "instructor.md").write_text("Expected time: 5 minutes, mostly for reading.\n")


def solved(
    released: list, total: str = FIRST, mean: str = SECOND, why: str = "As it must."
) -> dict:
    """Return the student copy with these answers in it, as a notebook's JSON."""
    cells = [cell.copy() for cell in released]
    for name, answer in (("total", total), ("mean", mean), ("why", why)):
        (cell,) = [c for c in cells if c.metadata.get("nbgrader", {}).get("grade_id") == name]
        cell.source = answer
    return json.loads(nbformat.writes(new_notebook(cells=cells)))
