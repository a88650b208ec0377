"""One submission in the grader's two processes: what a test sees, and what it is told."""

import shutil
import time

import pytest
import sandbox
from grader import running
from trial_assignment import LIMITS, run


@pytest.fixture(autouse=True, scope="module")
def working():
    """Skip where there can be no sandbox."""
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")


@pytest.fixture
def graded(monkeypatch, tmp_path):
    """Run an assignment of these cells with these answers."""

    def play(cells, answers=None, **options):
        return run(monkeypatch, tmp_path / "assignments", cells, answers or {}, **options)

    return play


SLOW = sandbox.Limits(cell=60.0, total=200.0)  # imports PyTorch
DOUBLE = ("solution", "double", "def double(x):\n    return 2 * x")


def test_a_test_gets_values_of_the_students_functions_and_says_what_is_wrong(graded):
    check = 'assert double(2) == 4, f"Twice 2 is 4, not {double(2)}"'
    cells = [DOUBLE, ("test", "t", check)]
    assert graded(cells)["t"].error == ""


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("def double(x):\n    return x", "Twice 2 is 4, not 2"),
        ("def double(x):\n    raise NotImplementedError", "nothing is written there yet"),
        ("def double(x):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def double(x):\n    raise AssertionError('mine')", "AssertionError: mine"),
        ("", "NameError: name 'double' is not defined"),
        ("double = 4", "TypeError: 'int' object is not callable"),
        ("def double():\n    return 4", "takes 0 positional arguments but 1 was given"),
        ("def double(x):\n    return object()", "it is an object of the type object"),
        ("import os\ndef double(x):\n    os._exit(0)", "it ended the process that it ran in"),
        ("def double(x):\n    raise SystemExit", "SystemExit"),
        ("def double(x):\n    while True: pass", "it ran longer than 5 s"),
    ],
    ids=lambda text: text[-20:],
)
def test_what_a_student_is_told(graded, answer, error):
    check = 'assert double(2) == 4, f"Twice 2 is 4, not {double(2)}"'
    found = graded([DOUBLE, ("test", "t", check)], {"double": answer})["t"]
    assert error in found.error
    assert "(line 1 of the test)" in found.private


HIDDEN = """\
assert double(2) == 4, "Twice 2 is 4"
### BEGIN HIDDEN TESTS
assert double(3) == 6, f"Twice 3 is 6, you say {double(3)}"
assert double(4) == 8
### END HIDDEN TESTS"""


@pytest.mark.parametrize(
    ("wrong", "told", "private"),
    [
        ("0 if x == 3 else 2 * x", "Twice 3 is 6, you say 0", "Twice 3"),
        ("0 if x == 4 else 2 * x", "a hidden test of this task fails", "line 4"),
        ("2 * x / (x - 3)", "Twice 2 is 4", "line 1"),
        ("2 * x if x == 2 else {}['secret']", "fails: it raises KeyError", "secret"),
        ("'a' if x == 3 else 2 * x", "Twice 3 is 6, you say a", "Twice 3"),
    ],
)
def test_a_hidden_test_tells_what_its_author_wrote_and_no_more(graded, wrong, told, private):
    cells = [DOUBLE, ("test", "t", HIDDEN)]
    found = graded(cells, {"double": f"def double(x):\n    return {wrong}"})["t"]
    assert told in found.error
    assert "secret" not in found.error
    assert private in found.private


def test_a_number_at_the_end_is_worth_points_and_nothing_else_is(graded):
    cells = [DOUBLE, ("test", "half", "double(1) / 4"), ("test", "yes", "double(1) == 2")]
    cells += [("test", "nan", "double(float('nan'))"), ("test", "text", "double('a')")]
    found = graded(cells)
    values = [found[name].value for name in ("half", "yes", "nan", "text")]
    assert values == [0.5, None, None, None]


def test_tests_see_the_notebook_as_it_was_at_their_place_and_leave_no_trace(graded):
    counts = "calls = []\ndef double(x):\n    calls.append(x)\n    return len(calls)"
    cells = [
        DOUBLE,
        ("test", "first", 'assert double(1) == 1, "one call"\nassert double(1) == 2, "two calls"'),
        ("free", "again", "double = lambda x: 'new'"),
        ("test", "second", 'assert double(1) == "new", "the cell above"'),
        ("free", "see", "print(calls)"),
    ]
    found = graded(cells, {"double": counts})
    assert (found["first"].error, found["second"].error) == ("", "")
    assert found["see"].output == "[]\n"


def test_later_cells_use_what_the_visible_part_of_a_test_names(graded):
    cells = [
        DOUBLE,
        ("test", "t", "kept = double(3)\n### BEGIN HIDDEN TESTS\nsecret = 1\n### END HIDDEN TESTS"),
        ("free", "see", "print(kept, 'secret' in globals())"),
    ]
    assert graded(cells)["see"].output == "6 False\n"


def test_what_a_student_names_like_the_test_costs_nothing(graded):
    cells = [
        ("locked", "given", "def near(a, b):\n    return abs(a - b) < 1e-6\nlimit = 1"),
        DOUBLE,
        ("free", "scratch", ""),
        ("test", "t", "found = double(2)\nassert near(found, 4) and sum([limit]) == 1"),
    ]
    scratch = "sum = 0\nlimit = 5\nfound = 7\ndef abs(x): return 0\ndef near(a, b): return False"
    assert graded(cells, {"scratch": scratch})["t"].error == ""


LEND = """\
seen = []
def slope(w):
    seen.append(w)
    if w > 100:
        raise ValueError("too far")
    return w - 8.0
found = walk(0.0, slope, SimpleNamespace(steps=3, size=0.5))
assert found == 7.0, f"{found} after {seen}"
assert seen == [0.0, 4.0, 6.0], f"{seen}"
"""
WALK = """\
def walk(start, slope, how):
    for _ in range(how.steps):
        start = start - how.size * slope(start)
    return start"""


def lent(graded, answer):
    cells = [("locked", "imports", "from types import SimpleNamespace")]
    cells += [("solution", "walk", WALK), ("test", "t", LEND)]
    return graded(cells, {"walk": answer}, limits=SLOW)["t"].error


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (WALK, ""),
        ("def walk(start, slope, how):\n    return slope(101)", "ValueError: too far"),
        ("def walk(start, slope, how):\n    return slope('a')", "TypeError: '>' not supported"),
        ("def walk(start, slope, how):\n    return slope(walk)", "an object of the type function"),
        ("def walk(start, slope, how):\n    return slope()", "TypeError: "),
        ("def walk(start, slope, how):\n    return slope", "an object of the type function"),
        (
            "def walk(start, slope, how):\n    while True:\n        slope(0.0)",
            "it called back more than 5000 times",
        ),
    ],
)
def test_students_functions_call_the_tests_functions(graded, answer, error):
    found = lent(graded, answer)
    assert found == error if not error else error in found


KEEPS = """\
import torch
start = torch.zeros(2)
found = move(start)
assert start.tolist() == [0.0, 0.0], f"it was changed to {start.tolist()}"
assert found.tolist() == [1.0, 1.0], "it did not move"
"""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return x + 1", ""),
        ("x += 1\n    return x", "it was changed to [1.0, 1.0]"),
        ("x.resize_(3)\n    return x", "move turned its first argument into something else"),
    ],
)
def test_a_test_sees_what_became_of_an_argument(graded, body, error):
    cells = [("solution", "move", "def move(x):\n    return x + 1"), ("test", "t", KEEPS)]
    found = graded(cells, {"move": f"def move(x):\n    {body}"}, keeps=["move"], limits=SLOW)
    assert found["t"].error == error


def test_elsewhere_a_test_keeps_its_own(graded):
    spoil = "def move(x):\n    x.fill_(7)\n    return x * 0 + 1"
    check = "import torch\nx = torch.ones(2)\nfound = move(x)\nassert torch.equal(found, x)"
    cells = [("solution", "move", spoil), ("test", "t", check)]
    assert graded(cells, limits=SLOW)["t"].error == ""


def test_what_is_withheld_is_not_there_and_says_so(graded):
    call = "import clusterfl_core as cf\ndef cut(x):\n    return cf.cfl.optimal_bipartition(x)"
    look = """\
import marshal, pathlib
import clusterfl_core as cf
folder = pathlib.Path(cf.__file__).parent
files = [p for p in folder.rglob("*") if p.suffix in (".py", ".pyc")]
names = [p.name for p in files if b"def optimal_bi" + b"partition" in p.read_bytes()]
codes = [p.name for p in files if b"MSTCluster" in p.read_bytes()]
print(names, len(files) > 20, cf.IFCA.__name__)
print(cf.populations.label_swapped("digits", 4, 2, seed=0))"""
    check = "import torch\ncut(torch.eye(2))"
    cells = [("solution", "cut", call), ("free", "look", look), ("test", "t", check)]
    found = graded(cells, withheld=["algorithms", "similarity"], limits=SLOW)
    assert found["t"].error == (
        "RuntimeError: cfl.optimal_bipartition is not there while this assignment is graded:"
        " it is yours to write"
    )
    assert found["look"].output.startswith("[] True IFCA\ndigits")


def test_an_unknown_module_cannot_be_withheld():
    with pytest.raises(ValueError, match="clusterfl_core has no module 'nothing'"):
        sandbox.library(("nothing",))


def test_a_locked_cell_that_fails_is_said_at_once(graded):
    cells = [("locked", "given", "double(2)"), DOUBLE, ("test", "t", "double(1)")]
    with pytest.raises(running.Unready, match="a locked cell of T1_trial fails: LookupError"):
        graded(cells)


def test_figures_and_files(graded):
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\nprint('drawn')"
    read = "print(open('own.csv').read())"
    write = "open('own.csv', 'w')"
    cells = [("free", "draw", draw), ("free", "read", read), ("free", "write", write)]
    found = graded(cells, files={"own.csv": b"a,b"}, limits=SLOW)
    assert [image[:4] for image in found["draw"].images] == [b"\x89PNG"] * 2
    assert found["draw"].output.endswith("drawn\n")
    assert found["read"].output == "a,b\n"
    assert "Read-only" in found["write"].error or "Permission" in found["write"].error


def test_a_tester_that_died_is_made_again(graded, monkeypatch):
    killed, first = [], running.Tester.run

    def kill_first(self, *args):
        if not killed:
            killed.append(self)
            self.box.stop("killed")
            self.box.process.wait()
        return first(self, *args)

    monkeypatch.setattr(running.Tester, "run", kill_first)
    cells = [DOUBLE, ("test", "t", "double(1)"), ("test", "u", "double(1)")]
    found = graded(cells)
    assert found["t"].error == "the test t could not be judged"
    assert found["t"].private.endswith("its own process ended")
    assert found["looks"] == ("the test t could not be judged",)
    assert found["u"].error == ""


def test_without_bubblewrap_it_is_the_same(graded, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    cells = [
        DOUBLE,
        ("test", "t", "assert double(2) == 4"),
        ("free", "see", "print(open('a').read())"),
    ]
    found = graded(cells, unsafe=True, files={"a": b"own"})
    assert found["t"].error == ""
    assert found["see"].output == "own\n"


def test_a_stopped_submission_keeps_what_it_earned(graded):
    cells = [DOUBLE, ("test", "t", "double(1)"), ("free", "end", ""), ("test", "u", "double(1)")]
    found = graded(cells, {"end": "import os\nos._exit(1)"})
    assert found["t"].error == ""
    assert found["u"].error.startswith(
        "not run: the submission was stopped in code cell 3: its pro"
    )
    assert not found["u"].ran
    assert found["looks"] == ("stopped in code cell 3: its process ended by itself",)


def test_a_slow_test_is_ended_and_the_next_one_runs(graded):
    cells = [DOUBLE, ("test", "t", "while True:\n    double(1)"), ("test", "u", "double(1)")]
    begun = time.monotonic()
    found = graded(cells)
    assert found["t"].error == "it ran longer than 5 s"
    assert found["u"].error == ""
    assert time.monotonic() - begun < LIMITS.total
