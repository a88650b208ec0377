"""A folder of submissions to the small assignment, and what came of them."""

import contextlib
import csv
import io
import json
import shutil
from pathlib import Path

import assignments
import grading
import nbformat
import pytest
import sandbox
import small_assignment as small
from grader import running
from nbgrader import utils
from nbgrader.api import Gradebook

LIMITS = sandbox.Limits(cell=5.0, total=60.0, memory=500, processes=24, folder=20)


def make(root: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write an empty course with its gradebook, which nbgrader takes seconds to make."""
    small.write(root / "assignments")
    patch.setattr(assignments, "SOURCE", root / "assignments")
    assignments.generate(root / "course", [small.NAME])
    return root / "course"


def plainly(assignment, nb, limits, *, unsafe, slot, files) -> running.Ran:
    """Run a submission of our own in this process: for tests that are not about the sandbox."""
    tests = {
        c.metadata.nbgrader.grade_id: c.source
        for c in assignments.sources(assignment)
        if "nbgrader" in c.metadata
    }
    names, outcomes = {}, []
    for cell in nb.cells:
        if cell.cell_type != "code":
            outcomes.append(None)
            continue
        is_test = utils.is_grade(cell) and not utils.is_solution(cell)
        source = tests[cell.metadata.nbgrader.grade_id] if is_test else cell.source
        printed, error = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(printed):
                exec(source, names)
        except BaseException as raised:
            told = str(raised)
            error = told if isinstance(raised, AssertionError) else f"{type(raised)}: {told}"
        outcomes.append(running.Outcome(printed.getvalue(), error, error))
    return running.Ran(tuple(outcomes))


class Class:
    """A folder of submissions and what came of them."""

    def __init__(self, root: Path, made: Path):
        self.folder, self.out = root / "class", root / "graded"
        self.folder.mkdir()
        shutil.copytree(made, self.out)
        self.released = assignments.released(made, small.NAME)

    def solved(self, **answers) -> dict:
        return small.solved(self.released, **answers)

    def hand_in(self, student: str, notebook: object = None, name: str = small.NAME, **answers):
        path = self.folder / student / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True, parents=True)
        if not isinstance(notebook, str | bytes):
            notebook = json.dumps(notebook or self.solved(**answers))
        path.write_bytes(notebook if isinstance(notebook, bytes) else notebook.encode())
        return path

    def grade(self, **options) -> dict[str, grading.Result]:
        asked = {"chosen": [small.NAME], "limits": LIMITS, "unsafe": False, "jobs": 2} | options
        results = grading.grade(self.folder, self.out, **asked)
        return {result.student: result for result in results}

    def mark(self, student: str, points: float, comment: str = "", item: str = "why"):
        """Mark as formgrader does."""
        with Gradebook(f"sqlite:///{self.out / 'gradebook.db'}") as gradebook:
            grade = gradebook.find_grade(item, small.NAME, small.NAME, student)
            grade.manual_score, grade.needs_manual_grade = points, False
            if comment:
                said = gradebook.find_comment(item, small.NAME, small.NAME, student)
                said.manual_comment = comment
            gradebook.db.commit()

    def waits(self, student: str, item: str = "why") -> bool:
        """Return whether formgrader asks for a mark."""
        with Gradebook(f"sqlite:///{self.out / 'gradebook.db'}") as gradebook:
            return gradebook.find_grade(item, small.NAME, small.NAME, student).needs_manual_grade

    def table(self, name: str = "grades") -> list[dict]:
        with (self.out / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def page(self, student: str) -> str:
        return (self.out / "reports" / f"{student}.html").read_text(encoding="utf-8")

    def seen(self, student: str, folder: str = "autograded") -> nbformat.NotebookNode:
        """Return the notebook that a person opens."""
        path = self.out / folder / student / small.NAME / f"{small.NAME}.ipynb"
        return nbformat.read(path, 4)


def points(result: grading.Result) -> list[float | None]:
    """Give the points of both functions and of the explanation."""
    assert not result.refused, result.refused
    return [test.points for test in result.tests]
