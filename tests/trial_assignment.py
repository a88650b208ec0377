"""An assignment of one's own making, run by both of the grader's processes, for tests of them."""

import json
from pathlib import Path

import assignments
import nbformat
import sandbox
from grader import running
from nbformat.v4 import new_code_cell, new_notebook
from small_assignment import marked

NAME = "T1_trial"
LIMITS = sandbox.Limits(cell=5.0, total=60.0, memory=700, processes=24, folder=20)


def write(folder: Path, cells: list, **settings) -> None:
    """Write a source notebook.

    Parameters
    ----------
    folder : Path
        Of assignments.
    cells : list of (str, str, str)
        Kind (locked, solution, test, or free), name and source of each cell.
    **settings
        What its metadata say of grading it.
    """
    kinds = {
        "locked": {"locked": True},
        "solution": {"solution": True},
        "test": {"grade": True, "locked": True, "points": 2},
    }
    made = [
        marked(new_code_cell(source), name, **kinds[kind])
        if kind in kinds
        else new_code_cell(source, id=name)
        for kind, name, source in cells
    ]
    (folder / NAME).mkdir(parents=True)
    path = folder / NAME / f"{NAME}.ipynb"
    nbformat.write(new_notebook(cells=made, metadata={"clusterfl": settings}), path)


def run(monkeypatch, folder: Path, cells: list, answers: dict, **options) -> dict:
    """Write an assignment, run a submission with these answers; return what came of each cell."""
    settings = {key: options.pop(key) for key in ("keeps", "withheld") if key in options}
    write(folder, cells, **settings)
    monkeypatch.setattr(assignments, "SOURCE", folder)
    handed_in = new_notebook(cells=assignments.sources(NAME))
    for cell in handed_in.cells:
        cell.source = answers.get(cell.id, without_hidden(cell.source))
    handed_in = nbformat.reads(json.dumps(handed_in), 4)
    try:
        ran = running.run(NAME, handed_in, options.pop("limits", LIMITS), **options)
    finally:
        running.close_all()
    found = zip(handed_in.cells, ran.outcomes, strict=True)
    return {cell.id: outcome for cell, outcome in found} | {"looks": ran.looks}


def without_hidden(source: str) -> str:
    """Return a test as students have it."""
    return source.split("### BEGIN HIDDEN TESTS")[0]
