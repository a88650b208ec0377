"""The results' folder as an nbgrader course: gradebook, marks by hand, notebooks to look at."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import assignments
import house
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader import utils
from nbgrader.api import Gradebook

from grader import clean, running
from grader.placing import Placed, by_hand, name_of
from grader.results import PROVISIONAL, TO_MARK, UNPLACED, Result, Student, Test
from grader.running import Outcome, Ran

TOOLS = Path(__file__).resolve().parents[1]
CONFIGURATION = """\
# Made by the grader, so that `nbgrader formgrader` and the like find the course.
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.db_url = {db!r}
# The button "autograde" would run what students wrote with all your rights: it does nothing here.
c.Autograde.sanitize_preprocessors = []
c.Autograde.autograde_preprocessors = []
"""
TOLD_MOST, OUTPUT_MOST = 2000, 20_000  # characters of a message and of an output that are shown


def hashed(*texts: str) -> str:
    """Return a short hash of texts."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:16]


def version() -> str:
    """Return a digest of all that decides what a submission gets, but for the assignment."""
    files = [house.ROOT / "clusterfl_core", TOOLS / "grader", house.ROOT / "constraints.txt"]
    files += [TOOLS / f"{name}.py" for name in ("grading", "sandbox", "sandbox_runner")]
    return house.digest(*files, *running.FILES)


def headings(cells: list[NotebookNode]) -> dict[str, tuple[str, str]]:
    """Return for each cell that gives points the heading above it and which of the task it is."""
    found, heading, count = {}, "", {}
    for cell in cells:
        if cell.cell_type == "markdown":
            for title in re.findall(r"^#{1,4} +(.+)$", cell.source, re.MULTILINE):
                heading = re.sub(r"\s*\([^()]*\d+ points[^()]*\)\s*$", "", title).strip(" #")
        if utils.is_grade(cell):
            kind = "answer" if by_hand(cell) else "test"
            count[heading, kind] = count.get((heading, kind), 0) + 1
            found[name_of(cell)] = (heading, f"{kind} {count[heading, kind]}")
    return {
        name: (heading, which.removesuffix(" 1") if count[heading, which[:-2]] == 1 else which)
        for name, (heading, which) in found.items()
    }


class Course:
    """An nbgrader course in the results' folder.

    Parameters
    ----------
    folder : Path
        Where it is or is to be.
    chosen : list of str
        The assignments.
    """

    def __init__(self, folder: Path, chosen: list[str]):
        self.folder, self.url = folder, f"sqlite:///{folder / 'gradebook.db'}"
        assignments.generate(folder, chosen)
        text = CONFIGURATION.format(root=str(folder), db=self.url)
        (folder / "nbgrader_config.py").write_text(text, encoding="utf-8")
        self.released = {name: assignments.released(folder, name) for name in chosen}
        self.titles = {name: headings(cells) for name, cells in self.released.items()}
        self.settings = {name: assignments.settings(name) for name in chosen}
        own = {name: assignments.SOURCE / name / f"{name}.ipynb" for name in chosen}
        everything = version()
        self.keys = {name: house.digest(path, everything) for name, path in own.items()}

    def register(self, who: Student, assignment: str) -> None:
        """Tell the gradebook of a submission."""
        last, comma, first = who.name.partition(",")
        if not comma:
            first, _, last = who.name.rpartition(" ")
        told = {"first_name": first.strip(), "last_name": last.strip(), "email": who.email}
        told = {name: re.sub(r"[<>&\"]", "\u00b7", value) for name, value in told.items() if value}
        with Gradebook(self.url) as gradebook:
            gradebook.update_or_create_student(who.key, **told)
            gradebook.update_or_create_submission(assignment, who.key)

    def move(self, old: str, who: Student, assignment: str) -> None:
        """Give a student what was graded and marked under another identifier of theirs."""
        self.register(who, assignment)
        with Gradebook(self.url) as gradebook:
            before = gradebook.find_submission_notebook(assignment, assignment, old)
            now = gradebook.find_submission_notebook(assignment, assignment, who.key)
            grades = {grade.name: grade for grade in now.grades}
            comments = {comment.name: comment for comment in now.comments}
            for grade in before.grades:
                for part in ("auto_score", "manual_score", "extra_credit", "needs_manual_grade"):
                    setattr(grades[grade.name], part, getattr(grade, part))
            for comment in before.comments:
                for part in ("auto_comment", "manual_comment"):
                    setattr(comments[comment.name], part, getattr(comment, part))
            gradebook.db.commit()
            gradebook.remove_submission(assignment, old)
            if not gradebook.find_student(old).submissions:
                gradebook.remove_student(old)
        for name in ("autograded", "submitted"):
            here = self.folder / name / old / assignment
            if here.is_dir():
                there = self.folder / name / who.key / assignment
                there.parent.mkdir(exist_ok=True)
                here.replace(there)
        (self.folder / "reports" / f"{old}.html").unlink(missing_ok=True)

    # ------------------------------------------------------------ what came of it

    def tests(self, placed: Placed, ran: Ran, assignment: str) -> tuple[Test, ...]:
        """Return what each cell that gives points got before any person has looked."""
        found, titles = {}, self.titles[assignment]
        for cell, outcome in zip(placed.nb.cells, ran.outcomes, strict=True):
            name = name_of(cell)
            if not utils.is_grade(cell):
                continue
            of = float(cell.metadata.nbgrader.points)
            task = ", ".join(part for part in titles[name] if part)
            if by_hand(cell):
                text = hashed(clean.text(cell.source).strip())
                test = Test(name, of, by_hand=True, task=task, state=TO_MARK, text=text)
                if name in placed.unplaced:
                    test = replace(test, state=UNPLACED)
                elif name not in placed.answered:
                    told = "Nothing is written there."
                    test = replace(test, state="", message=told, points=0.0, auto=0.0)
                found[name] = test
                continue
            told = clean.text(outcome.error, TOLD_MOST)
            points = 0.0 if told else of if outcome.value is None else outcome.value
            points = min(max(points, 0.0), of) if points == points else 0.0  # nan is not itself
            private = clean.text(outcome.private, TOLD_MOST)
            mark = hashed(told, str(points))
            found[name] = Test(name, of, told, private, points, task=task, text=mark, auto=points)
        return tuple(found[name] for name in titles)

    def save(self, result: Result, earlier: Result | None) -> Result:
        """Put automatic points into the gradebook, and return the result with the marks in it.

        A mark that a person gave stays. It is provisional, and waits to be confirmed, if the text
        that it was given for is another one now, or is not known.
        """
        before = {test.id: test for test in self.marked(earlier).tests} if earlier else {}
        name, tests = result.assignment, []
        with Gradebook(self.url) as gradebook:
            own = gradebook.find_submission_notebook(name, name, result.who.key)
            grades = {grade.name: grade for grade in own.grades}
            comments = {comment.name: comment for comment in own.comments}
            for test in result.tests:
                grade = grades[test.id]
                grade.auto_score = test.auto
                if grade.manual_score is None:
                    grade.needs_manual_grade = test.auto is None
                else:
                    marked = before[test.id].marked if test.id in before else ""
                    grade.needs_manual_grade = marked != test.text
                    test = replace(test, marked=marked)
                if test.id in comments:
                    comments[test.id].auto_comment = test.message if test.by_hand else None
                tests.append(test)
            gradebook.db.commit()
        return self.marked(replace(result, tests=tuple(tests)))

    def marked(self, result: Result) -> Result:
        """Return a result with the gradebook's points in it, those that people gave too."""
        if result.refused or not result.tests:
            return result
        name, tests = result.assignment, []
        with Gradebook(self.url) as gradebook:
            own = gradebook.find_submission_notebook(name, name, result.who.key)
            grades = {grade.name: grade for grade in own.grades}
            comments = {comment.name: comment.comment for comment in own.comments}
            for test in result.tests:
                grade = grades[test.id]
                if grade.manual_score is not None:
                    waits = grade.needs_manual_grade
                    state = PROVISIONAL if waits else ""
                    marked = test.marked if waits else test.text
                    test = replace(test, points=grade.score, state=state, marked=marked)
                elif grade.auto_score is None:
                    state = UNPLACED if test.state == UNPLACED else TO_MARK
                    test = replace(test, points=None, state=state, marked="")
                else:
                    state = "" if test.state == PROVISIONAL else test.state
                    test = replace(test, points=grade.score, state=state, marked="")
                if test.by_hand:
                    said = comments.get(test.id) or ""
                    test = replace(test, message=clean.text(said, TOLD_MOST))
                tests.append(test)
        return replace(result, tests=tuple(tests))

    def reopened(self, result: Result, item: str) -> Result:
        """Ask for a mark again that a person gave."""
        name = result.assignment
        with Gradebook(self.url) as gradebook:
            grade = gradebook.find_grade(item, name, name, result.who.key)
            if grade.manual_score is not None:
                grade.needs_manual_grade = True
                gradebook.db.commit()
        return self.marked(result)

    # ------------------------------------------------------------ notebooks to look at

    def write(self, result: Result, placed: Placed, ran: Ran) -> None:
        """Write the notebook that formgrader and JupyterLab open: harmless, no hidden test in it.

        It also lies in `submitted`, where nbgrader looks for what was handed in.
        """
        cells = [
            clean.cell(cell, [] if outcome is None else shown(cell, outcome))
            for cell, outcome in zip(placed.nb.cells, ran.outcomes, strict=True)
        ]
        nb = clean.notebook(cells)
        for folder in ("autograded", "submitted"):
            path = self.folder / folder / result.who.key / result.assignment
            path.mkdir(parents=True, exist_ok=True)
            new = path / f".{result.assignment}.new"
            nbformat.write(nb, new)
            new.replace(path / f"{result.assignment}.ipynb")


def shown(cell: NotebookNode, outcome: Outcome) -> list[NotebookNode]:
    """Return a cell's outputs as a person sees them."""
    error = clean.unlinked(clean.text(outcome.error, TOLD_MOST))
    printed = clean.unlinked(clean.text(outcome.output, OUTPUT_MOST))
    if utils.is_grade(cell) and not by_hand(cell):
        printed = error or "passed"
        error = ""
    made = []
    if printed:
        made.append(new_output("stream", name="stdout", text=printed))
    made += [clean.picture_output(image) for image in outcome.images]
    if error:
        made.append(new_output("stream", name="stdout", text=error))
    return made
