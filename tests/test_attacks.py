"""Attacks on the grader: whatever a student's code does, empty answers get no points.

Each attack runs in a cell of its own, before cells that were left as they were handed out or that
call what the attack defined. The small assignment is fast; the book's are graded too.
"""

import json
import time
from dataclasses import replace

import assignment_mistakes as known
import assignments
import nbformat
import pytest
import sandbox
import small_assignment as small
import trial_assignment
from grader import running
from nbformat.v4 import new_code_cell, new_notebook

LIMITS = sandbox.Limits(cell=4.0, total=60.0, memory=600, processes=24, folder=20)


@pytest.fixture(autouse=True, scope="module")
def working():
    """Skip where there can be no sandbox."""
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    yield
    running.close_all()


# ---------------------------------------------------------------- attacks

PATCH_RUNNER = """\
own = type(get_ipython()).enable_gui.__globals__
own["described"] = lambda *a: {"name": "", "message": "", "trace": ""}
own["outcome"] = lambda *a: {"error": None, "output": "", "images": []}
own["Answers"].answer = lambda self, call: b"R" + own["codec"].encode((True, None))
import builtins, json
json.dumps = lambda *a, **k: '{"told": "", "private": "", "output": "", "value": 5.0}'
builtins.AssertionError = type("AssertionError", (Exception,), {"__init__": lambda *a: None})
"""

AT_FORK = """\
import os, socket, stat, struct
def speak():
    own = type(get_ipython()).enable_gui.__globals__
    verdict = b'{"told": "", "private": "", "output": "", "value": 5.0, "back": true}'
    frames = [verdict, b"R" + own["codec"].encode((3, None)), b"R" + own["codec"].encode(3)]
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                for frame in frames:
                    os.write(fd, struct.pack("!i", len(frame)) + frame)
        except OSError:
            pass
os.register_at_fork(after_in_child=speak, before=lambda: None, after_in_parent=lambda: None)
"""

READING_THREAD = """\
import os, socket, stat, struct, threading, time
got = []
def read():
    while True:
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    wire = socket.socket(fileno=os.dup(fd))
                    got.append(wire.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            except OSError:
                pass
        time.sleep(0.001)
        if any(b"assert" in each or b"Nobody" in each for each in got):
            print("read a test")
threading.Thread(target=read, daemon=True).start()
"""

PATCH_HELPERS = """\
import builtins, math
near = compare = check = own_work = lambda *a, **k: True
def abs(x): return 0
def isinstance(*a): return True
builtins.abs = math.isclose = lambda *a, **k: 0
builtins.sum = builtins.len = builtins.max = lambda *a, **k: 0
try:
    import torch
    setattr(torch, "allclose", lambda *a, **k: True)
    for t in [torch]:
        t.allclose = t.equal = lambda *a, **k: True
    torch.Tensor.__eq__ = torch.Tensor.all = torch.Tensor.isnan = lambda *a, **k: True
except ImportError:
    pass
"""

EQUALS_ALL = """\
class Anything:
    __class__ = int
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __getitem__(self, key): return self
    def __iter__(self): return iter([self])
    def __len__(self): return 3
    def __float__(self): return 0.0
    def __array__(self, *a, **k): raise SystemExit
    __sub__ = __rsub__ = __abs__ = __bool__ = lambda self, *a: self
"""

RETURNS_RIGHT = """\
import sys
def peek(*args):
    for name in ("right", "found", "wanted", "expected"):
        if name in globals():
            return globals()[name]
    frame = sys._getframe()
    while frame:
        for name in ("right", "wanted"):
            if name in frame.f_locals:
                return frame.f_locals[name]
        frame = frame.f_back
"""

READ_EVERYTHING = """\
import gc, inspect, os, re
from ctypes import CDLL, PyDLL
def seen(*args):
    places = [str(step.frame.f_locals) + str(step.code_context) for step in inspect.stack()]
    places += [str(each)[:10000] for each in gc.get_objects() if type(each) in (str, list, dict)]
    places += [str(In), str(os.environ), str(os.listdir("/")), open("/proc/self/cmdline").read()]
    for number in os.listdir("/proc"):
        if number.isdigit():
            try:
                maps = open(f"/proc/{number}/maps").read()
                memory = open(f"/proc/{number}/mem", "rb", 0)
            except OSError:
                continue
            for low, high in re.findall(r"([0-9a-f]+)-([0-9a-f]+) rw", maps):
                try:
                    memory.seek(int(low, 16))
                    places.append(memory.read(int(high, 16) - int(low, 16)).decode("latin-1"))
                except (OSError, OverflowError, ValueError):
                    pass
    after = [p[m.end():][:9] for p in places for m in re.finditer("Nobody in ", p)]
    raise ValueError(f"read {len(places) > 20} found {after.count('a ' + 'cluster')}")
"""

CALLS_BACK = """\
from types import SimpleNamespace
def called(*args):
    lent = [value for value in args if callable(value)]
    for bundle in args:
        if isinstance(bundle, SimpleNamespace):
            lent += [value for value in vars(bundle).values() if callable(value)]
    plain = [v for v in args if not callable(v) and not isinstance(v, SimpleNamespace)]
    found = plain[0] if plain else None
    for function in lent * 3:
        for given in (plain, plain[:1], plain[:2], plain[:3], [found], [function], []):
            try:
                found = function(*given)
            except Exception as error:
                found = getattr(error, "args", found)
    return found
"""

LIAR = """\
class Liar(int):
    def __new__(cls, value=0): return int.__new__(cls, 3)
    def __eq__(self, other): return True
    def __index__(self): return 3
    def bit_length(self): return 1
    def to_bytes(self, *a, **k): return b"\\3"
"""

FRAMES = """\
import os, stat, struct
codec = type(get_ipython()).enable_gui.__globals__["codec"]
def sockets():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                yield fd
        except OSError:
            pass
def send(*frames):
    for fd in sockets():
        for frame in frames:
            try:
                os.set_blocking(fd, True)
                os.write(fd, struct.pack("!i", len(frame)) + frame)
            except OSError:
                pass
"""

FORK_BOMB = """\
import os, threading
def bomb(*args):
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""

SIGNALS = """\
import atexit, signal, os
for number in range(1, 32):
    try:
        signal.signal(number, lambda *a: None)
    except (OSError, ValueError):
        pass
atexit.register(lambda: os.write(1, b"passed"))
def endless(*args):
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            while True:
                pass
        except BaseException:
            pass
"""

VOID = "def total(v): return {0}\ndef mean(v): return {0}"
ATTACKS = {  # name: (a cell before all others, the answers; None: as they were handed out)
    "the runner's own names patched": (PATCH_RUNNER, None),
    "the runner patched, any answer": (PATCH_RUNNER, VOID.format("None")),
    "a fork speaks the protocol": (AT_FORK, None),
    "a thread reads the sockets": (READING_THREAD, None),
    "helpers and builtins replaced": (PATCH_HELPERS, None),
    "helpers replaced, any answer": (PATCH_HELPERS, VOID.format("7")),
    "equals everything": (EQUALS_ALL, VOID.format("Anything()")),
    "a list that holds it": (EQUALS_ALL, VOID.format("[Anything()]")),
    "a test's own names": (RETURNS_RIGHT, VOID.format("peek()")),
    "stack, collector, history, memory": (READ_EVERYTHING, VOID.format("seen()")),
    "a number that lies": (LIAR, VOID.format("Liar()")),
    "not a number": ("", VOID.format("float('nan')")),
    "truth as a number": ("", VOID.format("True")),
    "answers by heart": (
        "said = iter([3, 3, 2, 2])",
        "def total(v): return next(said)\ndef mean(v): return next(said)",
    ),
    "time": ("import time", VOID.format("time.sleep(100)")),
    "no end that can be stopped": (SIGNALS, VOID.format("endless()")),
    "memory": ("", VOID.format("[bytearray(50_000_000) for _ in range(1000)]")),
    "a huge answer": ("", VOID.format("b'x' * 30_000_000")),
    "an endless answer": ("", VOID.format("iter(int, 1)")),
    "endless parts": ("import itertools", VOID.format("(i for i in itertools.count())")),
    "an answer in itself": ("loop = []\nloop.append(loop)", VOID.format("loop")),
    "processes without end": (FORK_BOMB, VOID.format("bomb()")),
    "an end": ("import os", VOID.format("os._exit(0)")),
    "an end by a signal": ("import os, signal", VOID.format("os.kill(os.getpid(), 9)")),
    "answers before they are asked for": (
        FRAMES,
        VOID.format("send(*[b'R' + codec.encode((0, None))] * 50)"),
    ),
    "a verdict instead of an answer": (
        FRAMES,
        VOID.format('send(b\'{"told": "", "private": "", "output": "", "value": 5}\')'),
    ),
    "kinds of message that there are not": (FRAMES, VOID.format("send(b'', b'X', b'P' * 99)")),
    "an answer that is no pair": (FRAMES, VOID.format("send(b'R' + codec.encode(3))")),
    "calls of functions that were not lent": (
        FRAMES,
        VOID.format("send(b'C' + codec.encode((0, (), {})), b'C' + codec.encode((-1, (), {})))"),
    ),
    "deep messages": (FRAMES, VOID.format("send(b'R' + b'l\\1\\0\\0\\0' * 1_000_000)")),
    "a message longer than allowed": (FRAMES, VOID.format("send(b'R' * 20_000_000)")),
    "a length without a message": (
        FRAMES,
        VOID.format("[os.write(fd, struct.pack('!i', 1 << 30)) for fd in sockets()]"),
    ),
    "a pickle": (
        FRAMES + "\nimport pickle\nclass P:\n    def __reduce__(self): return print, ('run',)",
        VOID.format("send(pickle.dumps(P()), b'R' + pickle.dumps(P()))"),
    ),
    "threads that write answers": (
        FRAMES + "\nimport threading",
        VOID.format(
            "[threading.Thread(target=send, args=[b'R' + codec.encode((0, None))]).start()"
            " for _ in range(9)]"
        ),
    ),
    "files and sockets sent along": (
        FRAMES + "\nimport socket",
        VOID.format(
            "[socket.send_fds(socket.socket(fileno=os.dup(fd)), [b'R'], [0, 1])"
            " for fd in sockets()]"
        ),
    ),
}

PATIENT = replace(LIMITS, cell=30.0, memory=2000)  # reading all memory takes much of both
ENDLESS = {"memory", "time", "no end that can be stopped", "processes without end", "deep messages"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The source of the small assignment, and its course."""
    root = tmp_path_factory.mktemp("attacks")
    small.write(root / "assignments")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignments, "SOURCE", root / "assignments")
        assignments.generate(root / "course", [small.NAME])
    return root


@pytest.fixture
def released(made, monkeypatch) -> list:
    """The small assignment as it is handed out."""
    monkeypatch.setattr(assignments, "SOURCE", made / "assignments")
    return assignments.released(made / "course", small.NAME)


@pytest.fixture
def light(monkeypatch):
    """Let the small assignment have a nursery, as the book's have; without packages."""
    monkeypatch.setattr(running, "imports", lambda source: running.HEAVY)
    monkeypatch.setattr(running, "READY", ())


def earned(name: str, cells: list, limits: sandbox.Limits = LIMITS) -> tuple[float, list]:
    """Run a submission; return its points by tests, and what came of each cell."""
    handed_in = nbformat.reads(json.dumps(new_notebook(cells=cells)), 4)
    ran = running.run(name, handed_in, limits)
    points = 0.0
    for cell, outcome in zip(handed_in.cells, ran.outcomes, strict=True):
        if running.is_test(cell) and outcome.ran and not outcome.error:
            points += cell.metadata.nbgrader.points if outcome.value is None else outcome.value
    return points, [outcome for outcome in ran.outcomes if outcome]


def attacked(cells: list, first: str, answers: str | None, replaced: set[str]) -> list:
    """Return a student copy with an attack in it, before the first cell that students write."""
    own = [cell.copy() for cell in cells]
    names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in own]
    if answers is not None:
        for name in replaced:
            own[names.index(name)].source = answers
    place = min(names.index(name) for name in replaced)
    return [*own[:place], new_code_cell(first), *own[place:]]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.usefixtures("light")
def test_an_attack_on_the_small_assignment_earns_nothing_and_harms_nobody(released, attack):
    first, answers = ATTACKS[attack]
    begun = time.monotonic()
    limits = LIMITS if attack in ENDLESS else PATIENT
    cells = attacked(released, first, answers, {"total", "mean"})
    points, found = earned(small.NAME, cells, limits)
    assert points == 0
    assert time.monotonic() - begun < LIMITS.total
    assert not any("read a test" in outcome.output for outcome in found)
    if attack.startswith("stack"):
        told = [outcome.private for outcome in found if "ValueError" in outcome.private]
        assert len(told) == 2
        assert all("read True found 0" in each for each in told)
    alive = [*running.testers.values(), *running.nurseries.values()]
    assert len(alive) >= 2
    assert all(one.box.process.poll() is None for one in alive)


def test_after_all_that_honest_work_gets_its_points(released):
    honest = nbformat.from_dict(small.solved(released)).cells
    assert earned(small.NAME, honest)[0] == 8


def test_the_search_of_the_memory_finds_what_is_there(released):
    there = f"secret = {small.SECRET[:9]!r} + {small.SECRET[9:]!r}"
    answers = VOID.format("seen()")
    cells = attacked(released, f"{READ_EVERYTHING}\n{there}", answers, {"total", "mean"})
    _, found = earned(small.NAME, cells)
    told = [outcome.private for outcome in found if "read True" in outcome.private]
    assert told
    assert not any("found 0" in each for each in told)


def test_an_answer_that_is_right_by_any_means_counts(released):
    right = "def total(v): return sum(v)\ndef mean(v): return sum(v) / len(v) if v else 0"
    for first in (READING_THREAD, SIGNALS):
        points, _ = earned(small.NAME, attacked(released, first, right, {"total", "mean"}))
        assert points == 8


# ---------------------------------------------------------------- by the test's own functions

WALK_TEST = """\
from types import SimpleNamespace
seen = []
def slope(w):
    seen.append(w)
    return w - 8.0
found = walk(0.0, slope, SimpleNamespace(steps=3, size=0.5))
assert found == 7.0, f"three steps lead to 7, you say {found}"
assert seen == [0.0, 4.0, 6.0], f"you asked for {seen}"
found = walk(1.0, slope, SimpleNamespace(steps=1, size=1.0))
assert found == 8.0, f"one step leads to 8, you say {found}"
assert seen[3:] == [1.0], f"you asked for {seen[3:]}"
"""
WALK = """\
def walk(start, slope, how):
    for _ in range(how.steps):
        start = start - how.size * slope(start)
    return start"""
BACK = {
    "asks until it likes the answer": """\
def walk(start, slope, how):
    found = start
    for _ in range(200):
        found = found - 0.5 * slope(found)
    return round(found) - (how.steps == 3)""",
    "keeps a function of one call for the next": """\
kept, said = [], iter([7.0, 8.0])
def walk(start, slope, how):
    kept.append(slope)
    for given in (0.0, 4.0, 6.0) if len(kept) == 1 else (1.0,):
        kept[0](given)
        kept[-1](given)
    return next(said)""",
    "calls from a thread after its answer": """\
import threading, time
said = iter([7.0, 8.0])
def late(slope):
    time.sleep(0.05)
    for given in (0.0, 4.0, 6.0, 1.0):
        slope(given)
def walk(start, slope, how):
    threading.Thread(target=late, args=[slope]).start()
    return next(said)""",
    "changes what it was lent": """\
def walk(start, slope, how):
    how.steps, slope.__defaults__, slope.__code__ = 0, (7.0,), (lambda w=7.0: w).__code__
    slope.__globals__["seen"] = [0.0, 4.0, 6.0]
    return slope()""",
}


@pytest.mark.parametrize("attack", [*BACK, "none"])
def test_calling_the_test_back_finds_no_answer(monkeypatch, tmp_path, attack):
    cells = [("solution", "walk", WALK), ("test", "t", WALK_TEST)]
    found = trial_assignment.run(
        monkeypatch, tmp_path / "a", cells, {"walk": BACK.get(attack, WALK)}
    )
    assert bool(found["t"].error) == (attack != "none")
    assert found["t"].error != "the test t could not be judged"
    assert found["looks"] == ()


# ---------------------------------------------------------------- what a student is told

ASKED = """\
assert same([1]) == [1]
### BEGIN HIDDEN TESTS
assert same([271828]) == [271828]
### END HIDDEN TESTS"""
TELLS = {
    "the name of an error": "raise type(repr(v), (Exception,), {})",
    "the text of an error": "raise ValueError(repr(v))",
    "the name of a type": "return type(repr(v), (), {})()",
    "the name of a key's type": "return {type(repr(v), (tuple,), {})(): 1}",
    "an error that prints": "print(v)\n    raise KeyError(*v)",
}


@pytest.mark.parametrize("how", TELLS)
def test_what_a_hidden_test_asks_is_not_told_by_an_answer(monkeypatch, tmp_path, how):
    first = f"def same(v):\n    if v == [1]:\n        return v\n    {TELLS[how]}"
    cells = [("solution", "same", "def same(v):\n    return v"), ("test", "t", ASKED)]
    found = trial_assignment.run(monkeypatch, tmp_path / "a", cells, {"same": first})["t"]
    assert found.error
    assert "271828" not in found.error + found.output
    assert "271828" in found.private or "prints" in how  # whoever marks may read it


# ---------------------------------------------------------------- the book's own assignments

BOOK = [name for name in assignments.names() if known.tests(name)]
SHADOWS = """\
sum = max = len = 0
points_ = right = found = before = wanted = 5
def abs(x): return 0
def near(*a): return False
def compare(*a): raise ValueError
def check_once(*a): raise ValueError
torch_ = None
"""


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The student copies of the book's assignments."""
    folder = tmp_path_factory.mktemp("copies")
    assignments.generate(folder, BOOK)
    return {name: assignments.released(folder, name) for name in BOOK}


def functions(name: str) -> dict[str, str]:
    """Return the name of the function that each solution cell asks for."""
    return {
        meta["grade_id"]: sorted(running.bound(source))[0]
        for meta, source in known.cells(name)
        if meta.get("solution") and meta["cell"]["cell_type"] == "code"
    }


def answering(name: str, value: str) -> list[str]:
    """Return a definition for each function of an assignment that gives back this value."""
    return {cell: f"def {f}(*a, **k): return {value}" for cell, f in functions(name).items()}


def played(copies, name: str, first: str, answers: dict) -> float:
    """Return the points of a student copy with an attack and answers."""
    cells = [cell.copy() for cell in copies[name]]
    names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in cells]
    for cell, answer in answers.items():
        cells[names.index(cell)].source = answer
    place = min(names.index(cell) for cell in functions(name))
    cells.insert(place, new_code_cell(first))
    return earned(name, cells, sandbox.Limits(cell=60.0, total=400.0))[0]


@pytest.mark.grading
@pytest.mark.parametrize("name", BOOK)
@pytest.mark.parametrize(
    ("first", "value"),
    [
        (PATCH_RUNNER + AT_FORK + READING_THREAD + PATCH_HELPERS, None),
        (PATCH_RUNNER + EQUALS_ALL, "Anything()"),
        (PATCH_HELPERS + RETURNS_RIGHT, "peek()"),
        (CALLS_BACK, "called(*a)"),
        ("", "None"),
        ("", "a[0]"),
        ("", "[]"),
        ("", "0.0"),
        ("import torch", "torch.zeros(3, 3)"),
        ("", "float('nan')"),
    ],
    ids=[
        "patched",
        "equals all",
        "own names",
        "calls back",
        "None",
        "argument",
        "empty",
        "0",
        "zeros",
        "nan",
    ],
)
def test_an_attack_on_the_books_assignments_earns_nothing(copies, name, first, value):
    answers = {} if value is None else answering(name, value)
    assert played(copies, name, first, answers) == 0


def solutions(name: str) -> dict[str, str]:
    """Return the reference solution of each cell."""
    return {m["grade_id"]: c for m, c in known.cells(name) if m.get("grade_id") in functions(name)}


@pytest.mark.grading
@pytest.mark.parametrize("name", BOOK)
def test_names_that_a_student_shadows_cost_nothing(copies, name):
    own = {"sum", "max", "len", "abs"}
    code = " ".join(solutions(name).values())
    used = [word for word in own if f"{word}(" in code.replace(f".{word}(", "")]
    restored = "".join(f"\nfrom builtins import {word}" for word in used)
    assert played(copies, name, SHADOWS + restored, solutions(name)) == 70


@pytest.mark.grading
def test_a_name_that_the_students_own_code_needs_costs_that_code_alone(copies):
    assert played(copies, "A2_ifca", "points = 5", solutions("A2_ifca")) == 70 - 3 - 6 - 2
