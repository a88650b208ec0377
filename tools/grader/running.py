"""One submission is run: its cells in a student's sandbox, the tests in a sandbox of their own.

A test asks the student's process for what a function returns, by a socket that is made for this
test and goes to both sandboxes. What the student's process is told is the name of a function and
its arguments; what a test is told is values. The test's verdict comes by another socket.
"""

import ast
import json
import math
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection

import assignments
from nbformat import NotebookNode
from nbgrader import utils
from sandbox import BESIDE, NURSERY, TOOLS, Limits, Nursery, Sandbox, Stopped

from grader.parsing import tree

TESTER = TOOLS / "tester.py"
FILES = [NURSERY, TESTER, *sorted(BESIDE)]
TESTER_SLOT = 10_000  # apart from all students' slots
TESTER_MEMORY = 6000  # MB of all tests that run at a time
START = 120.0  # seconds that an assignment's locked cells may take
GRACE = 15.0  # seconds that a verdict may come late
ENDLESS = ("ran longer than", "called back more than")  # tests that are not run a second time
PICTURES = 16 << 20  # bytes of a submission's figures
HEAVY = {"clusterfl_core", "torch"}  # an assignment that imports one needs what is in READY
READY = ("torch", "torch._dynamo", "sklearn.datasets", "matplotlib.pyplot")  # seconds to import


class Unready(Exception):
    """An assignment's own cells fail; the message says which and how."""


@dataclass(frozen=True)
class Outcome:
    """What came of one code cell.

    Attributes
    ----------
    output : str
        What it printed, bounded.
    error : str
        What the student may be told; "" where nothing was wrong or the test passed.
    private : str
        What the instructor may read besides.
    value : float or None
        A number that a test ends in: it is worth so many points.
    images : tuple of bytes
        Figures, as PNG files of the student's process.
    ran : bool
        False where the submission had been ended before.
    """

    output: str = ""
    error: str = ""
    private: str = ""
    value: float | None = None
    images: tuple[bytes, ...] = ()
    ran: bool = True


@dataclass(frozen=True)
class Ran:
    """What came of one submission.

    Attributes
    ----------
    outcomes : tuple
        One a cell, None where the cell holds no code.
    looks : tuple of str
        What a person should look at.
    seconds : float
    """

    outcomes: tuple[Outcome | None, ...]
    looks: tuple[str, ...] = ()
    seconds: float = 0.0


# ---------------------------------------------------------------- the tests of an assignment


def is_test(cell: NotebookNode) -> bool:
    """Return whether a cell is a test."""
    return cell.cell_type == "code" and utils.is_grade(cell) and not utils.is_solution(cell)


def bound(source: str) -> set[str]:
    """Return the names that code gives to functions, classes and values at its top level."""
    names = set()
    for statement in tree(source).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.add(statement.name)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return names


def told(name: str) -> dict:
    """Return what the testers' sandbox is told of an assignment.

    Returns
    -------
    dict
        tests : dict of str; locked : list of str, the locked cells before the last test;
        students : list of str, the names that students write; keeps : list of str.
    """
    cells = [cell for cell in assignments.sources(name) if cell.cell_type == "code"]
    places = [i for i, cell in enumerate(cells) if is_test(cell)]
    before = cells[: places[-1]] if places else []
    return {
        "tests": {cells[i].metadata.nbgrader.grade_id: cells[i].source for i in places},
        "locked": [c.source for c in before if utils.is_locked(c) and not utils.is_grade(c)],
        "students": sorted(set().union(*(bound(c.source) for c in cells if utils.is_solution(c)))),
        "keeps": list(assignments.settings(name).get("keeps", [])),
    }


class Tester:
    """The tests of one assignment in a sandbox of their own, for any number of submissions.

    Parameters
    ----------
    name : str
        The assignment.
    limits : Limits
        ``cell`` bounds a test.
    unsafe : bool
        As for a sandbox.

    Raises
    ------
    Unready
        If the assignment's own cells fail.
    """

    def __init__(self, name: str, limits: Limits, unsafe: bool):
        self.limits, self.lock = limits, threading.Lock()
        own = Limits(START, math.inf, TESTER_MEMORY, limits.processes, limits.folder)
        self.box = Sandbox(own, unsafe, TESTER_SLOT, program=TESTER)
        try:
            wrong = self.box.ask({"assignment": told(name)}, 0.0).get("wrong")
        except Stopped as stopped:
            wrong = str(stopped)
        self.box.deadline = math.inf  # what bounds a test is its own limit
        if wrong:
            self.box.close()
            raise Unready(f"a locked cell of {name} fails: {wrong}")

    def run(self, test: str, box: Sandbox) -> Outcome | None:
        """Run a test on what a student's process has defined; None if there is no verdict."""
        ours, report = socket.socketpair()
        link, other = socket.socketpair()
        with ours, report, link, other:
            with self.lock:
                task = {"test": test, "limit": self.limits.cell}
                self.box.tell(task, [link.fileno(), report.fileno()])
            box.serve(other.fileno())
            for end in (report, link, other):
                end.close()
            verdict = Connection(ours.detach())
        with verdict:
            try:
                if not verdict.poll(self.limits.cell + GRACE):
                    raise EOFError
                found = json.loads(verdict.recv_bytes())
            except (EOFError, OSError):
                return None
        return Outcome(found["output"], found["told"], found["private"], found["value"])


testers: dict[tuple, Tester] = {}
making = threading.Lock()


def tester(name: str, limits: Limits, unsafe: bool) -> Tester:
    """Return the living tester of an assignment, made where there is none."""
    key = (name, str(assignments.SOURCE), limits, unsafe)
    with making:
        if key in testers and testers[key].box.process.poll() is not None:
            testers.pop(key).box.close()
        if key not in testers:
            testers[key] = Tester(name, limits, unsafe)
        return testers[key]


nurseries: dict[tuple[str, ...], Nursery | None] = {}


def imports(source: str) -> set[str]:
    """Return the packages that code imports at its top level."""
    names = set()
    for statement in tree(source).body:
        if isinstance(statement, ast.Import):
            names |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add((statement.module or "").split(".")[0])
    return names


def nursery(name: str, withheld: tuple[str, ...]) -> Nursery | None:
    """Return the living nursery for an assignment, None if it needs none or can have none."""
    cells = [cell for cell in assignments.sources(name) if cell.cell_type == "code"]
    locked = [cell.source for cell in cells if utils.is_locked(cell) and not utils.is_grade(cell)]
    if not HEAVY & set().union(*map(imports, locked)):
        return None
    with making:
        old = nurseries.get(withheld)
        if old is not None and old.box.process.poll() is not None:
            nurseries.pop(withheld).close()
        if withheld not in nurseries:
            try:
                nurseries[withheld] = Nursery(READY, withheld)
            except Stopped:
                nurseries[withheld] = None
        return nurseries[withheld]


def close_all() -> None:
    """End every sandbox, of students and of tests."""
    Sandbox.end_all()
    with making:
        while nurseries:
            made = nurseries.popitem()[1]
            if made is not None:
                made.close()
        while testers:
            testers.popitem()[1].box.close()


# ---------------------------------------------------------------- one submission


def said(error: dict) -> str:
    """Return an error in one line or a few."""
    name, message = error["name"], error["message"].strip()
    if name == "AssertionError":
        return message or "an assertion failed"
    if name == "NotImplementedError" and not message:
        return "nothing is written there yet"
    return f"{name}: {message}" if message else name


def binds(source: str) -> bool:
    """Return whether code gives names to things, which later cells could use."""
    try:
        body = tree(source).body
    except SyntaxError:
        return True
    plain = (ast.Assert, ast.Expr, ast.Pass, ast.Raise)
    return not all(isinstance(statement, plain) for statement in body)


def run(
    assignment: str,
    nb: NotebookNode,
    limits: Limits,
    *,
    unsafe: bool = False,
    slot: int = 0,
    files: Mapping[str, bytes] | None = None,
) -> Ran:
    """Run a submission.

    Parameters
    ----------
    assignment : str
        Its assignment's name.
    nb : NotebookNode
        The submission, with every marked cell of the student copy, locked ones as handed out.
    limits : Limits
        What the student's process may use.
    unsafe : bool
        Run without bubblewrap.
    slot : int
        A number that no submission has that runs at the same time.
    files : dict of bytes
        The student's own data, in the folder in which the notebook runs.
    """
    begun, gone, box, looks, left = time.monotonic(), "", None, [], PICTURES
    outcomes: list[Outcome | None] = []
    if any(map(is_test, nb.cells)):
        tester(assignment, limits, unsafe)  # if it cannot be made nothing is begun
    withheld = tuple(assignments.settings(assignment).get("withheld", []))
    try:
        try:
            made = None if unsafe else nursery(assignment, withheld)
            box = Sandbox(limits, unsafe, slot, withheld=withheld, files=files, nursery=made)
        except Stopped as stopped:
            gone = str(stopped)
            looks.append(gone)
        count = 0
        for cell in nb.cells:
            if cell.cell_type != "code":
                outcomes.append(None)
                continue
            count += 1
            if gone:
                outcomes.append(Outcome(error=f"not run: the submission was {gone}", ran=False))
                continue
            test = is_test(cell)
            name = cell.metadata.nbgrader.grade_id if test else ""
            outcome = None
            try:
                if test:
                    outcome = tester(assignment, limits, unsafe).run(name, box)
                    if outcome is None:
                        why = f"the test {name} could not be judged"
                        looks.append(why)
                        outcome = Outcome(error=why, private=f"{why}: its own process ended")
                    box.served()
                    endless = any(words in outcome.error for words in ENDLESS)
                    if binds(cell.source) and not endless:
                        box.run(cell.source)  # what students see of the test, as in their notebook
                else:
                    outcome = of_cell(box.run(cell.source), left)
                    left -= sum(map(len, outcome.images))
            except Stopped as stopped:
                where = f"the test {name}" if test else f"code cell {count}"
                gone = f"stopped in {where}: {stopped}"
                looks.append(gone)
                if outcome is None or not outcome.error:
                    outcome = Outcome(error=f"not run: the submission was {gone}", ran=False)
            outcomes.append(outcome)
    finally:
        if box:
            box.close()
    return Ran(tuple(outcomes), tuple(looks), round(time.monotonic() - begun, 1))


def of_cell(reply: dict, most: int) -> Outcome:
    """Return what came of a cell of the student's, with figures of so many bytes at most."""
    error, images = reply["error"], []
    for image in reply["images"]:
        if len(image) <= most:
            images.append(image)
            most -= len(image)
    told = said(error) if error else ""
    private = f"{told}\n{error['trace']}" if error and error["trace"] else told
    return Outcome(reply["output"], told, private, images=tuple(images))
