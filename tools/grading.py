"""Grade a folder of submissions; `house.py grade` calls this.

SUBMISSIONS/STUDENT/ASSIGNMENT.ipynb is what a student handed in. nbgrader keeps the gradebook, puts
the tests back and turns the outcome of each into points; the student's code and the tests run in a
sandbox (tools/sandbox.py), never in this process. The results' folder is an nbgrader course, with
gradebook.db, autograded/ and nbgrader_config.py, for marking by hand; grades.csv and reports/ are
for reading.
"""

import argparse
import ast
import csv
import difflib
import html
import json
import logging
import math
import os
import queue
import re
import signal
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path

import assignments
import house
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.preprocessors import CheckCellMetadata, OverwriteCells, SaveAutoGrades
from sandbox import Limits, Sandbox, Stopped, readable, unavailable

LARGEST = 20 << 20  # bytes of a submission
KNOWN_FORMAT = (nbformat.v4.nbformat, nbformat.v4.nbformat_minor)
NAME = re.compile(r"[\w][\w .@+-]*")  # of a student
QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)  # what it would say of a submission is in the report
WITHHELD = "[withheld: it repeats a hidden test]"
CONFIGURATION = """\
# Made by the grader, so that `nbgrader formgrader` and the like find the course.
c = get_config()
c.CourseDirectory.root = {root!r}
c.CourseDirectory.source_directory = {source!r}
c.CourseDirectory.db_url = {db!r}
"""


class Refused(Exception):
    """A submission that cannot be graded; the message says why."""


@dataclass
class Test:
    """What came of one cell that gives points."""

    id: str
    of: float
    message: str = ""  # empty: passed
    private: str = ""  # what the instructor may read besides
    points: float | None = None  # None: to be marked by hand
    by_hand: bool = False  # a person marks it, and the message is this person's comment


@dataclass
class Result:
    """What came of one submission."""

    student: str
    assignment: str
    key: str = ""
    refused: str = ""  # not graded, and why
    looks: list[str] = field(default_factory=list)  # what a person should look at
    errors: list[str] = field(default_factory=list)  # of the student's own cells
    tests: list[Test] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """Say in a few words whether a person has to look."""
        if self.refused:
            return "not graded"
        return "graded, needs a look" if self.looks else "graded"


# ---------------------------------------------------------------- finding and reading submissions


def submissions(
    folder: Path, chosen: list[str]
) -> tuple[list[tuple[str, str, Path]], list[Result]]:
    """Return (student, assignment, path) of each submission, and what cannot be one."""
    found, wrong = [], []

    def refuse(student: str, path: Path, why: str) -> None:
        wrong.append(Result(student, path.name, refused=why))

    for student in sorted(folder.iterdir()):
        if student.name.startswith("."):
            continue
        if student.is_symlink() or not student.is_dir():
            refuse("", student, f"it lies loose in {folder.name}: put it in a student's folder")
            continue
        if not NAME.fullmatch(student.name):
            refuse("", student, "the folder's name is not a student's: use letters, digits, . _ -")
            continue
        empty = True
        for path in sorted(student.iterdir()):
            if path.name.startswith("."):
                continue
            empty = False
            if path.is_symlink() or not path.is_file():
                refuse(student.name, path, "it is no file: a notebook is expected")
            elif path.suffix == ".ipynb" and path.stem in chosen:
                found.append((student.name, path.stem, path))
            elif path.stem not in assignments.names() or path.suffix != ".ipynb":
                close = difflib.get_close_matches(path.stem.lower(), [c.lower() for c in chosen], 1)
                names = [name for name in chosen if [name.lower()] == close]
                hint = f"if it is {names[0]}, name it {names[0]}.ipynb" if names else "left out"
                refuse(student.name, path, f"its name is no assignment's: {hint}")
        if empty:
            refuse(student.name, Path("-"), "nothing was handed in")
    return found, wrong


def read(path: Path) -> tuple[nbformat.NotebookNode, list[str]]:
    """Return a submission's cells in a fresh notebook, and what a person should look at.

    Only the type, id, text and nbgrader metadata of cells are taken over.
    """
    if path.stat().st_size > LARGEST:
        raise Refused(f"it is larger than {LARGEST >> 20} MB")
    looks = []
    try:
        raw = json.loads(path.read_bytes())
        version = (raw["nbformat"], raw.get("nbformat_minor", 0))
        if not all(isinstance(number, int) for number in version):
            raise TypeError
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise Refused("it is no notebook: it cannot be read as one") from None
    written = "{}.{}".format(*version)
    known = "{}.{}".format(*KNOWN_FORMAT)
    if version[0] > KNOWN_FORMAT[0]:
        raise Refused(
            f"it is a notebook of format {written}; this grader reads formats up to {known}:"
            " save it in such a format, or grade with newer packages"
        )
    if version > KNOWN_FORMAT:
        looks.append(f"it is of format {written}, newer than {known}, and was read as {known}")
    try:
        if version[0] < 4:
            raw = nbformat.reads(path.read_text(encoding="utf-8"), 4)
        cells = [fresh(cell) for cell in raw["cells"]]
    except Exception:  # a file can be wrong in many ways
        raise Refused("it is no notebook: its cells cannot be read") from None
    return new_notebook(cells=cells), looks


def fresh(cell: dict) -> nbformat.NotebookNode:
    """Return a cell with only what grading needs."""
    make = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
    source = cell["source"]
    source = source if isinstance(source, str) else "".join(source)
    new = make[cell["cell_type"]](source)
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(cell.get("id", ""))):
        new.id = cell["id"]
    data = cell.get("metadata", {}).get("nbgrader")
    if isinstance(data, dict) and isinstance(data.get("grade_id"), str):
        new.metadata.nbgrader = {"grade_id": data["grade_id"]}
    return new


# ---------------------------------------------------------------- lost metadata


def restore(nb: nbformat.NotebookNode, released: list[nbformat.NotebookNode]) -> list[str]:
    """Give each cell that the student copy marks its mark again, and say what had to be restored.

    Afterwards the notebook has every marked cell of the student copy exactly once.
    """
    looks = []
    wanted = {c.metadata.nbgrader.grade_id: c for c in released if "nbgrader" in c.metadata}
    place = {}  # grade id -> cell of the submission
    for cell in nb.cells:
        name = cell.metadata.pop("nbgrader", {}).get("grade_id")
        if name is None:
            continue
        if name not in wanted:
            looks.append(f"a cell is marked {name[:60]!r}, which this assignment does not have")
        elif name in place:
            looks.append(f"cell {name} is there twice; the first counts, both ran")
        else:
            place[name] = cell

    free = [cell for cell in nb.cells if not any(cell is taken for taken in place.values())]

    def give(name: str, cell: nbformat.NotebookNode, how: str) -> None:
        place[name] = cell
        free[:] = [other for other in free if other is not cell]
        looks.append(f"cell {name} had lost its metadata and was recognised by its {how}")

    lost = [name for name in wanted if name not in place]
    for name in lost:
        for how, same in (
            ("id", lambda c, w: c.get("id") == w.get("id")),
            ("text", lambda c, w: c.source.strip() == w.source.strip() != ""),
            ("first line", lambda c, w: bool(defines(w)) and defines(c) == defines(w)),
        ):
            found = [cell for cell in free if same(cell, wanted[name])]
            if name not in place and len(found) == 1:
                give(name, found[0], how)
    names = list(wanted)
    for name in [name for name in lost if name not in place]:
        at = names.index(name)
        before = [index(nb, place[n]) for n in names[:at] if n in place]
        after = [index(nb, place[n]) for n in names[at + 1 :] if n in place]
        low, high = max(before, default=-1), min(after, default=len(nb.cells))
        between = [
            cell
            for cell in nb.cells[low + 1 : high]
            if cell.cell_type == wanted[name].cell_type and any(cell is f for f in free)
        ]
        if utils.is_solution(wanted[name]) and len(between) == 1:
            give(name, between[0], "place")
            continue
        cell = fresh(wanted[name])
        del cell["id"]
        cell.id = nbformat.v4.new_code_cell().id
        nb.cells.insert(high if after else len(nb.cells), cell)
        place[name] = cell
        looks.append(f"cell {name} is missing; it was put back as it was handed out")
    for name, cell in place.items():
        if cell.cell_type != wanted[name].cell_type:
            looks.append(f"cell {name} was turned into {cell.cell_type}")
        cell.metadata.nbgrader = dict(wanted[name].metadata.nbgrader)
    ids = set()
    for cell in nb.cells:
        if cell.id in ids:
            cell.id = new_code_cell().id
        ids.add(cell.id)
    return looks


def index(nb: nbformat.NotebookNode, cell: nbformat.NotebookNode) -> int:
    """Return where a cell stands."""
    return next(i for i, other in enumerate(nb.cells) if other is cell)


def defines(cell: nbformat.NotebookNode) -> str:
    """Return the name of the first function or class that a code cell defines, else ""."""
    found = re.search(r"^(?:def|class) +\w+", cell.source, re.MULTILINE)
    return found[0] if found and cell.cell_type == "code" else ""


# ---------------------------------------------------------------- what a person should look at


def suspicious(nb: nbformat.NotebookNode) -> list[str]:
    """Return what in the student's code reaches for the grader, as no honest solution does."""
    reaching = {"_getframe", "currentframe", "f_back", "settrace", "setprofile", "get_objects"}
    reaching |= {"_exit", "ctypes", "_ih", "ast_transformers", "set_custom_exc", "getsource"}
    found = set()
    for cell in nb.cells:
        if cell.cell_type != "code" or utils.is_locked(cell):
            continue
        try:
            tree = ast.parse(re.sub(r"^([ \t]*)[%!?].*", r"\1pass", cell.source, flags=re.M))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        modules = {"builtins", "__builtins__"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        for node in ast.walk(tree):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if isinstance(node, ast.alias):
                name = node.name
            if name in reaching:
                found.add(f"its code uses {name}")
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                root = node.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id in modules:
                    found.add(f"its code replaces {ast.unparse(node)}")
    return sorted(found)


# ---------------------------------------------------------------- running


def binds(source: str) -> bool:
    """Return whether code gives names to things, which later cells could use."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return True
    plain = (ast.Assert, ast.Expr, ast.Pass, ast.Raise)
    return not all(isinstance(statement, plain) for statement in body)


def said(error: dict) -> str:
    """Return an error in one line or a few."""
    name, message = error["name"], error["message"].strip()
    if name == "AssertionError":
        return message or "an assertion failed"
    if name == "NotImplementedError" and not message:
        return "nothing is written there yet"
    return f"{name}: {message}" if message else name


def judge(sandbox: Sandbox, full: str, visible: str) -> tuple[dict, str]:
    """Run a test, and return the answer and what the student may be told.

    If the whole test fails, the part that the student has is run alone: its error may be told. An
    error of the hidden part is told if it is a message that the test's author wrote.
    """
    reply = sandbox.test(full)
    if reply["error"] is None:
        return reply, ""
    if visible == full:
        return reply, said(reply["error"])
    if visible.strip() and reply["error"]["name"] != "TimeoutError":
        shown = sandbox.test(visible)
        if shown["error"]:
            return reply, said(shown["error"])
    message = reply["error"]["message"]
    if any(pattern.fullmatch(message) for pattern in assignments.messages(full)):
        return reply, message
    late = reply["error"]["name"] == "TimeoutError"
    what = f"it {message}" if late else f"it raises {reply['error']['name'][:40]}"
    return reply, f"a hidden test of this task fails: {what}"


def execute(
    nb: nbformat.NotebookNode, visible: dict[str, str], result: Result, **sandbox: object
) -> None:
    """Run the notebook in a sandbox; put outputs in its cells and what came of it in `result`."""
    start, gone, box = time.monotonic(), "", None
    try:
        try:
            box = Sandbox(**sandbox)
        except Stopped as stopped:
            gone = str(stopped)
        count = 0
        for cell in nb.cells:
            if cell.cell_type != "code":
                continue
            count += 1
            is_test = utils.is_grade(cell) and not utils.is_solution(cell)
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            told, reply = "", None
            if not gone:
                try:
                    if is_test:
                        reply, told = judge(box, cell.source, visible[name])
                        late = reply["error"] and reply["error"]["name"] == "TimeoutError"
                        if visible[name].strip() and binds(visible[name]) and not late:
                            box.run(visible[name])
                    else:
                        reply = box.run(cell.source)
                except Stopped as stopped:
                    where = f"the test {name}" if is_test else f"code cell {count}"
                    gone = f"stopped in {where}: {stopped}"
                    result.looks.append(gone)
                    result.errors += [] if is_test else [gone]
            if reply is None:
                told = f"not run: the submission was {gone}"
                reply = {"output": "", "value": None}
                reply["error"] = {"name": "Stopped", "message": told, "trace": ""}
            if is_test:
                of = float(cell.metadata.nbgrader.points)
                private = "" if reply["error"] is None else said(reply["error"])
                result.tests.append(Test(name, of, told, private))
            elif reply["error"] and reply["error"]["name"] != "Stopped":
                result.errors.append(f"code cell {count}: {said(reply['error'])}")
            cell.outputs = outputs(reply, float(cell.metadata.nbgrader.points) if is_test else None)
    finally:
        if box:
            box.close()
        result.seconds = round(time.monotonic() - start, 1)


def outputs(reply: dict, points: float | None) -> list[nbformat.NotebookNode]:
    """Return a cell's outputs as nbgrader reads them: an error, a number of points, or neither."""
    made = []
    if reply["output"]:
        made.append(new_output("stream", name="stdout", text=reply["output"]))
    error, value = reply["error"], reply["value"]
    if error:
        trace = [error["trace"]] if error["trace"] else []
        made.append(
            new_output("error", ename=error["name"], evalue=error["message"], traceback=trace)
        )
    elif points is not None and value is not None and not math.isnan(value):
        text = repr(min(max(value, 0.0), points))
        made.append(new_output("execute_result", data={"text/plain": text}))
    return made


# ---------------------------------------------------------------- the gradebook


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
        source = str(assignments.SOURCE)
        text = CONFIGURATION.format(root=str(folder), source=source, db=self.url)
        (folder / "nbgrader_config.py").write_text(text, encoding="utf-8")
        self.released = {name: assignments.released(folder, name) for name in chosen}
        self.visible = {
            name: {c.metadata.nbgrader.grade_id: c.source for c in cells if utils.is_grade(c)}
            for name, cells in self.released.items()
        }
        parts = {name: [assignments.SOURCE / name / f"{name}.ipynb"] for name in chosen}
        self.keys = {name: house.digest(*files) for name, files in parts.items()}
        hidden = {name: assignments.secrets(name)["tests"] for name in chosen}
        public = {name: "\n".join(c.source for c in self.released[name]) for name in chosen}
        self.hidden = {n: assignments.lines(hidden[n], public[n]) for n in chosen}

    def resources(self, result: Result) -> dict:
        """Return what nbgrader's preprocessors want to know."""
        name = result.assignment
        own = {"student": result.student, "assignment": name, "notebook": name, "db_url": self.url}
        return {"unique_key": name, "nbgrader": own}

    def prepare(self, path: Path, result: Result) -> nbformat.NotebookNode:
        """Return a submission with every mark and test in its place, and tell the gradebook."""
        nb, looks = read(path)
        result.looks += looks + restore(nb, self.released[result.assignment])
        with Gradebook(self.url) as gradebook:
            gradebook.update_or_create_student(result.student)
            gradebook.update_or_create_submission(result.assignment, result.student)
        nb, _ = OverwriteCells(log=QUIET).preprocess(nb, self.resources(result))
        result.looks += suspicious(nb)
        return nb

    def save(self, nb: nbformat.NotebookNode, result: Result) -> None:
        """Turn the outputs into points in the gradebook, and keep the notebook and the result."""
        resources = self.resources(result)
        CheckCellMetadata().preprocess(nb, resources)
        SaveAutoGrades().preprocess(nb, resources)
        folder = self.folder / "autograded" / result.student / result.assignment
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(nb, folder / f"{result.assignment}.ipynb")
        for test in result.tests:
            test.message = self.withheld(test.message, result)
        result.errors = [self.withheld(error, result) for error in result.errors]

    def withheld(self, text: str, result: Result) -> str:
        """Return a text for a student, unless it repeats a line of a hidden test."""
        if not any(line in assignments.bare(text) for line in self.hidden[result.assignment]):
            return text
        if WITHHELD not in result.looks:
            result.looks.append("its output repeats a hidden test")
        return WITHHELD

    def fill(self, result: Result) -> None:
        """Put the gradebook's points into a result, those marked by hand too."""
        messages = {test.id: test for test in result.tests}
        result.tests = []
        with Gradebook(self.url) as gradebook:
            name = result.assignment
            own = gradebook.find_submission_notebook(name, name, result.student)
            grades = {grade.name: grade for grade in own.grades}
            comments = {comment.name: comment.comment for comment in own.comments}
            for name in self.visible[result.assignment]:
                grade = grades[name]
                test = messages.get(name)
                if test is None or test.by_hand:
                    test = Test(name, grade.max_score, comments.get(name) or "", by_hand=True)
                by_hand = grade.auto_score is None and grade.manual_score is None
                test.points = None if by_hand else grade.score
                result.tests.append(test)


# ---------------------------------------------------------------- tables and reports


def number(value: float) -> str:
    """Return points without needless zeros."""
    return f"{round(value, 3):g}"


def plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    text = " ".join(text.split())
    return f"'{text}" if text.startswith(tuple("=+-@")) and text != "-" else text


def totals(result: Result) -> tuple[str, str, str]:
    """Return points, the most there can be, and what is still to be marked by hand, for a table."""
    if result.refused:
        return "", "", ""
    got = sum(test.points or 0 for test in result.tests)
    open_ = sum(test.of for test in result.tests if test.points is None)
    return number(got), number(sum(test.of for test in result.tests)), number(open_)


def write_tables(folder: Path, results: list[Result]) -> None:
    """Write grades.csv, a row a submission, and tests.csv, a row a test, for instructors."""
    with (folder / "grades.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["student", "assignment", "points", "of", "to mark", "status", "notes"])
        for r in results:
            notes = "; ".join([*([r.refused] if r.refused else []), *r.looks])
            who = [plain(r.student), plain(r.assignment)]
            rows.writerow([*who, *totals(r), r.status, plain(notes)])
    with (folder / "tests.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["student", "assignment", "test", "points", "of", "told", "error"])
        for r in results:
            for t in r.tests:
                got = "" if t.points is None else number(t.points)
                who = [plain(r.student), plain(r.assignment), t.id]
                rows.writerow([*who, got, number(t.of), plain(t.message), plain(t.private)])


PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: auto; padding: 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem; border-bottom: 1px solid #8888 }}
td, li {{ overflow-wrap: anywhere; white-space: pre-line }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def report(student: str, results: list[Result]) -> str:
    """Return the page of one student: points, and for each test what was wrong."""
    safe = html.escape
    parts = []
    for r in results:
        parts.append(f"<h2>{safe(r.assignment)}</h2>")
        if r.refused:
            parts.append(f"<p><strong>Not graded</strong>: {safe(r.refused)}.</p>")
            continue
        got, of, open_ = totals(r)
        by_hand = f"; {open_} of these are still to be marked by hand" if open_ != "0" else ""
        parts.append(f"<p><strong>{got} of {of} points</strong>{by_hand}.</p>")
        if r.looks:
            rows = "".join(f"<li>{safe(look)}</li>" for look in r.looks)
            parts.append(f"<p>A person will look at this:</p><ul>{rows}</ul>")
        rows = []
        for t in r.tests:
            points = "to be marked" if t.points is None else f"{number(t.points)} of {number(t.of)}"
            what = t.message or ("" if t.by_hand else "passed")
            rows.append(f"<tr><td>{safe(t.id)}</td><td>{points}</td><td>{safe(what)}</td></tr>")
        head = "<tr><th>Cell</th><th>Points</th><th>What was found</th></tr>"
        parts.append(f"<table>{head}{''.join(rows)}</table>")
        if r.errors:
            rows = "".join(f"<li>{safe(error)}</li>" for error in r.errors)
            parts.append(f"<p>Errors in your own cells:</p><ul>{rows}</ul>")
    return PAGE.format(title=safe(student), body="\n".join(parts))


def write(folder: Path, results: list[Result]) -> None:
    """Write tables and reports."""
    write_tables(folder, results)
    (folder / "reports").mkdir(exist_ok=True)
    for student in sorted({r.student for r in results if r.student}):
        page = report(student, [r for r in results if r.student == student])
        (folder / "reports" / f"{student}.html").write_text(page, encoding="utf-8")


# ---------------------------------------------------------------- all of them


def load(path: Path, key: str) -> Result | None:
    """Return what an earlier run found for the same submission, assignment and limits."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data["tests"] = [Test(**test) for test in data["tests"]]
        result = Result(**data)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if result.key == key else None


def grade(
    folder: Path, out: Path, chosen: list[str], limits: Limits, unsafe: bool, jobs: int
) -> list[Result]:
    """Grade every submission that an earlier run has not; write the tables and the reports."""
    found, results = submissions(folder, chosen)
    if not found and not results:
        sys.exit(f"There is no submission in {folder}: put STUDENT/ASSIGNMENT.ipynb there.")
    out.mkdir(parents=True, exist_ok=True)
    course = Course(out, chosen)
    kept = out / "results"
    kept.mkdir(exist_ok=True)
    slots: queue.Queue[int] = queue.Queue()
    for slot in range(jobs):
        slots.put(slot)

    def work(nb: nbformat.NotebookNode, result: Result) -> nbformat.NotebookNode:
        slot = slots.get()
        try:
            visible = course.visible[result.assignment]
            execute(nb, visible, result, limits=limits, unsafe=unsafe, slot=slot)
        finally:
            slots.put(slot)
        return nb

    def finish(result: Result, how: str) -> None:
        results.append(result)
        got, of, open_ = totals(result)
        what = result.refused or f"{got} of {of}" + (f", {open_} to mark" if open_ != "0" else "")
        look = "; needs a look" if result.looks else ""
        print(f"    {result.student} {result.assignment}: {what}{look} ({how})", flush=True)

    def path_of(result: Result) -> Path:
        return kept / f"{result.student}--{result.assignment}.json"

    def settle(result: Result, nb: nbformat.NotebookNode | None) -> None:
        """Keep a result; whatever goes wrong concerns this submission alone."""
        if nb is not None:
            try:
                course.save(nb, result)
                course.fill(result)
            except Exception as error:
                result.refused = broken(error)
        path_of(result).write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
        finish(result, f"{result.seconds:g} s")

    running = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        for student, name, path in found:
            key = house.digest(path, course.keys[name], repr(limits), str(unsafe))
            result = load(kept / f"{student}--{name}.json", key)
            if result is not None:
                if not result.refused:
                    course.fill(result)
                finish(result, "as before")
                continue
            result = Result(student, name, key)
            try:
                nb = course.prepare(path, result)
            except Refused as why:
                result.refused = str(why)
                settle(result, None)
            except Exception as error:
                result.refused = broken(error)
                settle(result, None)
            else:
                running[pool.submit(work, nb, result)] = result
        for future in as_completed(running):
            result = running[future]
            nb = None
            try:
                nb = future.result()
            except Exception as error:
                result.refused = broken(error)
            settle(result, nb)
            write(out, in_order(results))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        while any(future.running() for future in running):  # after Ctrl-C
            Sandbox.end_all()
            time.sleep(0.05)
        write(out, in_order(results))
    return in_order(results)


def broken(error: Exception) -> str:
    """Say that the grader itself failed, which ends one submission and no other."""
    return f"the grader failed on it: {type(error).__name__}: {error}"[:300]


def in_order(results: list[Result]) -> list[Result]:
    """Return results by student and assignment."""
    return sorted(results, key=lambda r: (r.student, r.assignment))


def main(arguments: list[str] | None = None) -> None:
    """Check what was asked, then grade."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("submissions", help="a folder with a folder a student")
    parser.add_argument(
        "--out", default="", help="results' folder; SUBMISSIONS-graded unless given"
    )
    parser.add_argument("--only", nargs="*", default=[], help="assignments; all unless given")
    parser.add_argument("--unsafe", action="store_true", help="grade without a sandbox")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    for name, meaning in (
        ("cell", "seconds a cell or test"),
        ("total", "seconds a submission"),
        ("memory", "MB"),
        ("processes", "at a time"),
        ("folder", "MB that may be written"),
    ):
        default = getattr(Limits, name)
        parser.add_argument(f"--{name}", type=type(default), default=default, help=meaning)
    asked = parser.parse_args(arguments)
    if not asked.submissions or not Path(asked.submissions).is_dir():
        sys.exit(f"SUBMISSIONS must be a folder; {asked.submissions!r} is none.")
    folder = Path(asked.submissions).resolve()
    known = assignments.names()
    unknown = [name for name in asked.only if name not in known]
    if unknown:
        sys.exit(f"There is no assignment {unknown[0]!r}: choose among {', '.join(known)}.")
    limits = Limits(
        *(getattr(asked, n) for n in ("cell", "total", "memory", "processes", "folder"))
    )
    for name, value in [*asdict(limits).items(), ("jobs", asked.jobs)]:
        if value <= 0:
            sys.exit(f"--{name} must be above 0, not {value}.")
    out = Path(asked.out).resolve() if asked.out else folder.with_name(f"{folder.name}-graded")
    if out == folder or folder in out.parents:
        sys.exit(f"The results cannot be kept in {folder}: choose another OUT.")
    if not asked.unsafe:
        for private in (assignments.SOURCE, folder, out):
            seen = [str(path) for path in readable() if path == private or path in private.parents]
            if seen:
                sys.exit(f"Submissions could read {private}, which lies in {seen[0]}: move it.")
        why = unavailable()
        if why:
            sys.exit(
                f"There is no sandbox: {why}. Submissions are programs of others: grade where"
                " bubblewrap works, or say --unsafe (UNSAFE=1) to run them with all your rights."
            )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.filterwarnings("ignore", module="nbgrader")  # on its own database, to its own people
    try:
        with house.step(f"Grading {folder}"):
            grade(folder, out, asked.only or known, limits, asked.unsafe, asked.jobs)
    except KeyboardInterrupt:
        sys.exit(f"Stopped; what is graded is kept in {out}, the same command goes on from there.")
    print(f"Wrote {out / 'grades.csv'} and a page a student in {out / 'reports'}")


if __name__ == "__main__":
    main()
