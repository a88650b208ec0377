"""The grader: what it runs, what it keeps away, what it keeps, what it reports."""

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import assignments
import grading
import house
import nbformat
import pytest
import sandbox
import small_assignment as small
from grader import book, intake, running
from grader.book import Course
from grader.results import PROVISIONAL, Student
from small_class import LIMITS, Class, make, plainly, points

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return make(tmp_path_factory.mktemp("made"), patch)


@pytest.fixture(autouse=True)
def source(tmp_path, monkeypatch) -> Path:
    """One small assignment instead of the book's."""
    folder = tmp_path / "assignments"
    small.write(folder)
    monkeypatch.setattr(assignments, "SOURCE", folder)
    return folder


@pytest.fixture(scope="module")
def working():
    """Skip where there can be no sandbox."""
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")


@pytest.fixture
def course(tmp_path, made) -> Class:
    return Class(tmp_path, made)


# ---------------------------------------------------------------- points


@pytest.mark.usefixtures("working")
def test_each_answer_gets_the_points_it_should_and_a_diagnosis(course):
    handed_out = nbformat.v4.new_notebook(cells=course.released)
    course.hand_in("solved")
    course.hand_in("stub", json.loads(nbformat.writes(handed_out)))
    course.hand_in("wrong", total="def total(values):\n    return max(values, default=0)")
    course.hand_in("forgot", mean="def mean(values):\n    return sum(values) / len(values)")
    course.hand_in("strange", mean="def mean(values):\n    return 2")
    course.hand_in("broken", mean="def mean(values:\n")
    course.hand_in("missing", total=f"import no_such_package\n{small.FIRST}")
    course.hand_in("magic", total=f"%precision 3\n{small.FIRST}")
    found = course.grade()
    assert {name: points(result) for name, result in found.items()} == {
        "solved": [3, 5, None],
        "stub": [0, 0, 0],  # the explanation too was left as it was handed out
        "wrong": [0, 5, None],
        "forgot": [3, 0, None],
        "strange": [3, 0, None],
        "broken": [3, 0, None],
        "missing": [0, 5, None],
        "magic": [3, 5, None],
    }
    told = {name: [test.message for test in result.tests] for name, result in found.items()}
    assert told["solved"] == ["", "", ""]
    assert told["wrong"][0] == "The total of 1 and 2 is 3, not 2."
    assert told["strange"][1] == f"{small.SECRET}: the mean stays 0, it is 2."
    assert told["forgot"][1] == "a hidden test of this task fails: it raises ZeroDivisionError"
    assert told["stub"] == ["nothing is written there yet"] * 2 + ["Nothing is written there."]
    assert "no_such_package" in found["missing"].errors[0]
    assert "SyntaxError" in found["broken"].errors[0]
    assert {result.status for result in found.values()} == {"graded"}

    rows = {row["student"]: row for row in course.table()}
    assert (rows["solved"]["points"], rows["solved"]["of"]) == ("8", "10")
    assert rows["solved"]["notes"] == ""
    assert rows["solved"]["to mark"] == "2"
    assert rows["stub"]["points"] == "0"
    assert "The total of 1 and 2 is 3, not 2." in course.page("wrong")
    hidden = assignments.secrets(small.NAME)["tests"]
    for name in found:
        assert not [
            line
            for line in assignments.lines(hidden)
            if line in assignments.bare(course.page(name))
        ]


@pytest.mark.usefixtures("working")
def test_a_number_at_the_end_of_a_test_is_worth_so_many_points(course, source):
    path = source / small.NAME / f"{small.NAME}.ipynb"
    nb = nbformat.read(path, 4)
    nb.cells[4].source = "min(total([1]), 9) + 0.5"
    nbformat.write(nb, path)
    course.hand_in("half")
    course.hand_in("more", total="def total(values):\n    return 8")
    found = course.grade()
    assert points(found["half"])[0] == 1.5
    assert points(found["more"])[0] == 3


@pytest.mark.usefixtures("working")
def test_tests_see_the_names_as_they_were_at_their_place(course):
    course.hand_in("reuses", mean=f"total = found + 1\n{small.SECOND}")
    assert points(course.grade()["reuses"]) == [3, 5, None]


# ---------------------------------------------------------------- marks by hand


@pytest.fixture
def plain_run(monkeypatch):
    """Run submissions in this process: these tests are not about the sandbox."""
    monkeypatch.setattr(running, "run", plainly)


@pytest.mark.usefixtures("plain_run")
def test_marks_by_hand_reach_the_table(course):
    course.hand_in("solved")
    course.grade()
    assert course.waits("solved")
    course.mark("solved", 1.5, "Rather short.")
    found = course.grade()["solved"]
    assert points(found) == [3, 5, 1.5]
    assert found.tests[2].message == "Rather short."
    (row,) = course.table()
    assert (row["points"], row["to mark"], row["status"]) == ("9.5", "0", "graded")


@pytest.mark.usefixtures("plain_run")
def test_a_mark_for_another_text_is_provisional_until_it_is_given_again(course):
    course.hand_in("ana", why="A full and thoughtful answer.")
    course.grade()
    course.mark("ana", 2)
    course.hand_in("ana", why="bla")
    for _ in range(2):  # it does not wear off
        found = course.grade()["ana"]
        assert points(found) == [3, 5, 2]
        assert found.tests[2].state == PROVISIONAL
        assert found.status == "graded, needs a look"
        assert course.waits("ana")
        (row,) = course.table()
        assert row["to mark"] == "2"
        assert "provisional: the answer changed after it was marked" in row["notes"]
        assert "provisional" in course.page("ana")
    course.mark("ana", 0.5)
    found = course.grade()["ana"]
    assert points(found) == [3, 5, 0.5]
    assert found.status == "graded"


@pytest.mark.usefixtures("plain_run")
def test_a_text_that_is_back_has_its_mark_again(course):
    for why, state in (("One.", None), ("Two.", PROVISIONAL), ("One.", "")):
        course.hand_in("ana", why=why)
        found = course.grade()["ana"]
        if state is None:
            course.mark("ana", 2)
        else:
            assert found.tests[2].state == state


@pytest.mark.usefixtures("plain_run")
def test_a_change_elsewhere_leaves_a_mark_as_it_is(course):
    course.hand_in("ana")
    course.grade()
    course.mark("ana", 2)
    course.hand_in("ana", total="def total(values):\n    return 0")
    found = course.grade()["ana"]
    assert points(found) == [0, 5, 2]
    assert found.status == "graded"


@pytest.mark.usefixtures("plain_run")
def test_a_mark_whose_text_is_not_known_is_provisional(course):
    course.hand_in("ana")
    course.grade()
    course.mark("ana", 2)
    shutil.rmtree(course.out / "results")
    assert course.grade()["ana"].tests[2].state == PROVISIONAL


@pytest.mark.usefixtures("plain_run")
def test_a_mark_that_overrules_a_test_stays_while_the_test_says_the_same(course):
    course.hand_in("ana", total="def total(values):\n    return 0")
    course.grade()
    course.mark("ana", 2, item="test-total")
    assert points(course.grade()["ana"]) == [2, 5, None]
    course.hand_in("ana", total="def total(values):\n    return 1 / 0")
    found = course.grade()["ana"]
    assert (found.tests[0].points, found.tests[0].state) == (2, PROVISIONAL)


# ---------------------------------------------------------------- graded again, or not


@pytest.fixture
def runs(monkeypatch) -> list[str]:
    """List the submissions that run, by what their function does."""
    seen = []

    def run(assignment, nb, *limits, **options):
        (cell,) = [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == "total"]
        seen.append(cell.source.rsplit("# ", 1)[-1])
        return plainly(assignment, nb, *limits, **options)

    monkeypatch.setattr(running, "run", run)
    return seen


def two(course: Class) -> None:
    for name in ("one", "two"):
        course.hand_in(name, total=f"{small.FIRST}  # {name}")


def test_graded_once_they_are_not_graded_again_until_something_changes(course, runs, monkeypatch):
    two(course)
    before = course.grade()
    assert sorted(runs) == ["one", "two"]
    assert points(course.grade()["one"]) == points(before["one"])
    assert len(runs) == 2
    course.hand_in("two", total="def total(values):\n    return 0  # changed")
    assert points(course.grade()["two"]) == [0, 5, None]
    assert runs[2:] == ["changed"]
    monkeypatch.setattr(book, "version", lambda: "another version of the library")
    course.grade()
    assert len(runs) == 5
    course.grade(limits=sandbox.Limits(cell=6.0))
    assert len(runs) == 7


def test_the_version_changes_with_library_grader_and_packages(tmp_path, monkeypatch):
    before = book.version()
    copy = tmp_path / "copy"
    for name in ("clusterfl_core", "tools", "constraints.txt"):
        path = house.ROOT / name
        if path.is_dir():
            shutil.copytree(path, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, copy / name)
    monkeypatch.setattr(house, "ROOT", copy)
    monkeypatch.setattr(book, "TOOLS", copy / "tools")
    monkeypatch.setattr(running, "FILES", [])
    seen = {before, book.version()}
    for name in (
        "clusterfl_core/__init__.py",
        "tools/grader/placing.py",
        "tools/grading.py",
        "tools/sandbox.py",
        "constraints.txt",
    ):
        path = copy / name
        path.write_text(path.read_text() + "# changed\n")
        assert book.version() not in seen
        seen.add(book.version())


@pytest.mark.parametrize(
    ("again", "ran"),
    [
        ("two", ["two"]),
        (f"two/{small.NAME}", ["two"]),
        (f"two/{small.NAME}#test-mean", ["two"]),
    ],
)
def test_one_student_or_item_can_be_graded_again(course, runs, again, ran):
    two(course)
    course.grade()
    runs.clear()
    course.grade(options=grading.Options(again=(again,)))
    assert runs == ran


@pytest.mark.parametrize("again", ["nobody", "two/T9", f"two/{small.NAME}#no-such-item"])
def test_what_cannot_be_graded_again_is_said(course, runs, again):
    two(course)
    with pytest.raises(SystemExit, match=f"--again {again}: there is no such submission or item"):
        course.grade(options=grading.Options(again=(again,)))
    assert runs == []


def test_only_the_item_that_was_asked_for_changes(course, source, monkeypatch):
    monkeypatch.setattr(running, "run", plainly)
    course.hand_in("ana")
    course.grade()
    course.mark("ana", 2)
    course.grade()

    def failing(assignment, nb, *limits, **options):
        done = plainly(assignment, nb, *limits, **options)
        bad = running.Outcome(error="no")
        return running.Ran(tuple(o and bad for o in done.outcomes))

    monkeypatch.setattr(running, "run", failing)
    item = f"ana/{small.NAME}#test-mean"
    found = course.grade(options=grading.Options(again=(item,)))["ana"]
    assert points(found) == [3, 0, 2]
    assert found.tests[2].state == ""
    item = f"ana/{small.NAME}#why"
    found = course.grade(options=grading.Options(again=(item,)))["ana"]
    assert points(found) == [3, 0, 2]
    assert found.tests[2].state == PROVISIONAL
    assert course.waits("ana")


# ---------------------------------------------------------------- hostile and broken ones

LOOP = "while True:\n    pass"
STUBBORN = """\
while True:
    try:
        while True:
            pass
    except BaseException:
        continue
"""
FORK = """\
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
"""
HOG = "hog = [bytearray(50_000_000) for _ in range(1000)]"
SHARED = """\
import mmap
hog = mmap.mmap(-1, 5_000_000_000)
block = b"x" * 50_000_000
while True:
    hog.write(block)
"""
READ = """\
import gc, inspect, os, sys
said = []
for folder, below, files in os.walk("/"):
    skipped = ("/proc", "/usr", "/dev", sys.base_prefix)
    if folder.startswith(skipped) or "site-packages" in folder:
        below.clear()
        continue
    for name in files:
        try:
            text = open(os.path.join(folder, name), errors="replace").read(1_000_000)
        except OSError:
            continue
        if "Nobody in " + "a cluster" in text:
            said.append(folder + name)
print("found", said, [cell for cell in In if "Nobody in " + "a cluster" in cell])
def mean(values):
    frame = sys._getframe(1)
    while frame:
        for value in frame.f_locals.values():
            if "Nobody in " + "a cluster" in str(value):
                print(value)
                raise ValueError(str(value))
        frame = frame.f_back
    return sum(values) / len(values)
"""
FORGE = """\
import json, os, sys
from multiprocessing.connection import Connection
def mean(values):
    channel = Connection(int(sys.argv[1]))
    reply = {"error": None, "output": "", "value": None, "nonce": "0"}
    channel.send_bytes(json.dumps(reply).encode())
    os._exit(0)
"""


@pytest.mark.usefixtures("working")
def test_hostile_ones_get_what_they_earn_and_stop_nobody(course, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    port = listener.getsockname()[1]
    write = f"import os\nos.makedirs({str(own)!r})\nopen({str(own / 'x')!r}, 'w').write('x')\n"
    call = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)\n"
    given_up = {
        "loop": LOOP,
        "fork": FORK,
        "hog": HOG,
        "write": write,
        "call": call,
        "fill": "open('big', 'wb').write(b'0' * 50_000_000)",
        "flood": "print('x' * 10_000_000)",
        "exit": "raise SystemExit",
    }
    for name, code in given_up.items():  # the function is defined before: only the cell fails
        course.hand_in(name, total=f"{small.FIRST}\n\n{code}")
    course.hand_in(
        "slow", total=f"def total(values):\n    {LOOP}".replace("\n    pass", "\n        pass")
    )
    course.hand_in("stubborn", mean=f"{small.SECOND}\n\n{STUBBORN}")
    course.hand_in("shared", mean=f"{small.SECOND}\n\n{SHARED}")
    course.hand_in("ended", mean="import os\nos._exit(0)")
    course.hand_in("quits", mean="import os\ndef mean(values):\n    os._exit(0)")
    course.hand_in("reader", mean=READ)
    course.hand_in("forger", mean=FORGE)
    course.hand_in("patcher", total=f"import math\nmath.isclose = bool\n{small.FIRST}")
    course.hand_in("last")
    course.hand_in("text", "no notebook at all")
    course.hand_in("binary", "\0\1\2")
    course.hand_in("deep", "[" * 100_000)
    course.hand_in("list", "[]")
    course.hand_in("newer", small.solved(course.released) | {"nbformat": 5, "nbformat_minor": 0})
    course.hand_in("minor", small.solved(course.released) | {"nbformat_minor": 99})
    begun = time.monotonic()
    found = course.grade()
    print(f"{len(found)} submissions in {time.monotonic() - begun:.1f} s")

    for name in given_up:
        assert points(found[name]) == [3, 5, None], name
        if name not in ("flood", "write"):  # the second wrote to a /tmp of its own
            assert found[name].errors, name
    assert points(found["slow"]) == [0, 5, None]
    assert found["slow"].tests[0].message == "it ran longer than 5 s"
    for name in ("stubborn", "shared", "ended"):
        assert points(found[name]) == [3, 0, None], name
        assert found[name].status == "graded, needs a look"
    assert "did not let itself be stopped" in found["stubborn"].looks[0]
    assert "more than 500 MB of memory" in found["shared"].looks[0]
    assert any("ended by itself" in look for look in found["ended"].looks)
    for name in ("quits", "reader", "forger"):
        assert points(found[name])[:2] == [3, 0], name
    assert points(found["patcher"]) == [3, 5, None]
    assert points(found["last"]) == [3, 5, None]

    assert not (own / "x").exists()
    with pytest.raises(TimeoutError):
        listener.accept()
    listener.close()
    executed = course.out / "autograded" / "reader" / small.NAME / f"{small.NAME}.ipynb"
    (cell,) = [c for c in nbformat.read(executed, 4).cells if c.source == READ]
    assert cell.outputs[0].text == "found [] []\n"
    assert small.SECRET not in course.page("reader")

    for name in ("text", "binary", "deep", "list"):
        assert found[name].refused.startswith("it is no notebook"), name
    assert "of format 5.0; this grader reads formats up to 4." in found["newer"].refused
    assert points(found["minor"]) == [3, 5, None]
    assert "newer than 4." in found["minor"].looks[0]
    rows = {row["student"]: row for row in course.table()}
    assert rows["text"]["points"] == ""
    assert rows["text"]["status"] == "not graded"
    assert "Not graded" in course.page("newer")


@pytest.mark.usefixtures("working")
def test_what_the_sandbox_sees(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "1")
    with sandbox.Sandbox(LIMITS) as box:

        def value(code: str) -> float:
            before, _, last = code.rpartition("; ")
            done = box.run(f"{before}\nprint({last})")
            assert done["error"] is None, done["error"]
            return float(done["output"])

        assert value("import os; len(os.listdir('.'))") <= 4  # IPython's own folders
        assert value(f"int(os.path.exists({str(house.ROOT / 'README.md')!r}))") == 0
        assert value(f"int(os.path.exists({str(house.ROOT / 'book' / 'intro.md')!r}))") == 0
        assert value("int('MY_TOKEN' in os.environ)") == 0
        assert value("int(os.getuid() == 0)") == 0
        assert value("sum(name.isdigit() for name in os.listdir('/proc'))") <= 3
        assert value("len(os.listdir('/sys')) if os.path.exists('/sys') else 0") == 0
        for path in ("/", "/usr", "/etc", "/sandbox", str(house.ROOT / "clusterfl_core"), "/dev"):
            done = box.run(f"open({path + '/new'!r}, 'w')")
            assert done["error"]["name"] in ("OSError", "PermissionError"), path


@pytest.mark.usefixtures("working")
def test_too_many_processes_in_spite_of_the_kernel_are_ended_from_outside(monkeypatch):
    monkeypatch.setattr(sandbox, "kernel_counts_processes", lambda: False)
    with sandbox.Sandbox(LIMITS) as box, pytest.raises(sandbox.Stopped, match="more than 24 proc"):
        box.run(FORK + "time.sleep(2)")


@pytest.mark.parametrize(
    "reply",
    ["b''", "b'{'", "b'[1]'", "b'null'", "b'[' * 100_000", f"b'x' * {sandbox.MESSAGE + 1}"],
)
@pytest.mark.usefixtures("working")
def test_nonsense_from_inside_ends_the_sandbox(reply):
    lie = (
        "import os, sys, time\nfrom multiprocessing.connection import Connection\n"
        f"Connection(os.dup(int(sys.argv[1]))).send_bytes({reply})\ntime.sleep(2)"
    )
    with sandbox.Sandbox(LIMITS) as box, pytest.raises(sandbox.Stopped, match="no answer"):
        box.run(lie)


# ---------------------------------------------------------------- lost metadata


def bare(notebook: dict, ids: bool = True) -> dict:
    """Take the metadata away, and the ids too."""
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if not ids:
            del cell["id"]
    return notebook if ids else notebook | {"nbformat_minor": 4}


@pytest.mark.usefixtures("working")
def test_lost_metadata_is_said_and_costs_nothing_that_can_be_recognised(course):
    good = lambda **answers: small.solved(course.released, **answers)  # noqa: E731
    course.hand_in("bare", bare(good()))
    course.hand_in("no-ids", bare(good(), ids=False))
    course.hand_in("wrong", bare(good(total="def total(values):\n    return 0"), ids=False))
    cut = good()
    cut["cells"] = [c for c in cut["cells"] if not c["id"].startswith("test-")]
    course.hand_in("cut", cut)
    only = good()
    only["cells"] = [c for c in bare(only, ids=False)["cells"] if "def " in "".join(c["source"])]
    course.hand_in("only", only)
    twice = good()
    twice["cells"] += [twice["cells"][2] | {"id": "again"}]
    course.hand_in("twice", twice)
    edited = good(total="def total(values):\n    return 0")
    edited["cells"][3]["source"] = "pass"
    edited["cells"][3]["metadata"]["nbgrader"]["points"] = 100
    course.hand_in("edited", edited)
    text = good()
    text["cells"][5] = {k: v for k, v in text["cells"][5].items() if k != "outputs"}
    text["cells"][5] |= {"cell_type": "markdown"}
    course.hand_in("text", text)
    foreign = good()
    foreign["cells"][1]["metadata"]["nbgrader"]["grade_id"] = "from-elsewhere"
    course.hand_in("foreign", foreign)
    found = course.grade()
    assert {name: points(result)[:2] for name, result in found.items()} == {
        "bare": [3, 5],
        "no-ids": [3, 5],
        "wrong": [0, 5],
        "cut": [3, 5],
        "only": [3, 5],
        "twice": [3, 5],
        "edited": [0, 5],
        "text": [3, 5],
        "foreign": [3, 5],
    }
    looks = {name: "\n".join(result.looks) for name, result in found.items()}
    notes = {name: "\n".join(result.notes) for name, result in found.items()}
    assert "cell test-mean had lost its metadata and was recognised by its id" in notes["bare"]
    assert "cell test-mean had lost its metadata and was recognised by its text" in notes["no-ids"]
    assert "cell mean had lost its metadata and was recognised by its first line" in notes["no-ids"]
    assert "cell why had lost its metadata and was recognised by its place" in looks["no-ids"]
    assert "cell test-mean is missing; it was put back" in notes["cut"]
    assert "cell total is there twice" in looks["twice"]
    assert "'from-elsewhere', which this assignment does not have" in looks["foreign"]
    sure = {"bare", "cut", "edited", "text"}  # a locked cell is put back, whatever it was
    assert {name for name in looks if not looks[name]} == sure
    status = {row["student"]: row["status"] for row in course.table()}
    assert {name for name in status if status[name] == "graded"} == sure


# ---------------------------------------------------------------- several at a time


def test_code_is_read_by_one_thread_at_a_time():
    """Python 3.11.7 fails on sound code where a collection lets another thread in between."""
    nested = "x = " + "[" * 20 + "f(1)" + "]" * 20
    before = gc.get_threshold()
    callback = lambda *told: time.sleep(0)  # noqa: E731

    def read(number: int) -> list[set[str]]:
        return [running.bound(f"{nested}\nname_{number} = 1\n" * 5) for _ in range(40)]

    gc.callbacks.append(callback)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(read, range(4)))
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*before)
    assert found == [[{"x", f"name_{number}"}] * 40 for number in range(4)]


# ---------------------------------------------------------------- the command


@pytest.mark.usefixtures("plain_run")
def test_a_failing_grader_is_said_and_stops_nobody(course, monkeypatch):
    course.hand_in("one")
    course.hand_in("two")
    save = Course.save

    def fail(self, result, earlier):
        if result.student == "one":
            raise OSError("the disk is full \ud800")
        return save(self, result, earlier)

    monkeypatch.setattr(Course, "save", fail)
    found = course.grade()
    assert found["one"].refused == "the grader failed on it: OSError: the disk is full \ufffd"
    assert points(found["two"]) == [3, 5, None]


def command(course: Class, *options: str) -> list[str]:
    """Return the grader's command for the small assignment."""
    code = (
        "import sys, assignments, grading; from pathlib import Path;"
        "assignments.SOURCE = Path(sys.argv.pop(1)); grading.main()"
    )
    words = [str(assignments.SOURCE), str(course.folder), "--out", str(course.out), *options]
    return [sys.executable, "-c", code, *words]


PATHS = os.pathsep.join([str(house.ROOT / "tools"), str(house.ROOT)])


@pytest.mark.usefixtures("working")
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_stopped_it_keeps_what_is_graded_leaves_no_process_and_goes_on(course):
    course.hand_in("a-quick")
    course.hand_in("b-slow", total=f"{small.FIRST}\nimport time\ntime.sleep(50)")
    words = command(course, "--cell", "60", "--jobs", "1")
    env = os.environ | {"PYTHONPATH": PATHS}
    with subprocess.Popen(
        words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        lines = iter(run.stdout.readline, "")
        assert any("a-quick" in line for line in lines)
        time.sleep(1)
        inside = sandbox.family(run.pid)[1:]
        assert inside
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=30)
    assert run.returncode == 1
    assert err.startswith("Stopped; what is graded is kept in ")
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/exe").exists() for pid in inside):
        assert time.monotonic() < end, "a process lives on"
        time.sleep(0.1)
    assert [row["student"] for row in course.table()] == ["a-quick"]
    course.hand_in("b-slow")
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert f"a-quick {small.NAME}: 8 of 10, 2 to mark (as before)" in done.stdout
    assert f"b-slow {small.NAME}: 8 of 10, 2 to mark" in done.stdout


def test_without_a_sandbox_it_grades_only_if_told(course, monkeypatch):
    course.hand_in("solved")
    course.hand_in("hog", total=f"{small.FIRST}\n{SHARED}")
    arguments = [str(course.folder), "--out", str(course.out)]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"There is no sandbox: bubblewrap .* say --unsafe"):
        grading.main(arguments)
    assert not (course.out / "grades.csv").exists()
    before = signal.getsignal(signal.SIGTERM)
    try:
        grading.main([*arguments, "--unsafe", "--memory", "500"])
    finally:
        signal.signal(signal.SIGTERM, before)
    rows = {row["student"]: row for row in course.table()}
    assert rows["solved"]["points"] == "8"
    assert rows["hog"]["points"] == "0"
    assert "more than 500 MB" in rows["hog"]["notes"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["{root}/none"], "SUBMISSIONS must be a folder or a zip; '.*none' is none"),
        ([""], "SUBMISSIONS must be a folder or a zip; '' is none"),
        (["{root}/class", "--only", "A9"], "There is no assignment 'A9': choose among S1_small"),
        (["{root}/class", "--cell", "0"], "--cell must be above 0, not 0"),
        (["{root}/class", "--jobs", "-1"], "--jobs must be above 0, not -1"),
        (["{root}/class", "--largest", "0"], "--largest must be above 0, not 0"),
        (["{root}/class", "--cell", "nan"], "--cell must be above 0, not nan"),
        (["{root}/class", "--roster", "{root}/none"], "The roster .*none cannot be read"),
        (["{root}/class", "--course", "{root}/none"], "The course's file .*none cannot be read"),
        (["{root}/class", "--out", "{root}/class/x"], "The results cannot be kept in"),
        (["{root}/class", "--unsafe"], "There is no submission in .*class: put STUDENT/ASSIGN"),
    ],
)
def test_bad_input_is_said_in_one_sentence(tmp_path, options, said):
    (tmp_path / "class").mkdir()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match=said):
            grading.main([option.format(root=tmp_path) for option in options])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [path.name for path in tmp_path.iterdir() if "graded" in path.name] == []


@pytest.mark.parametrize("which", ["assignments", "class", "class-graded"])
def test_what_submissions_may_read_holds_nothing_private(course, tmp_path, monkeypatch, which):
    course.hand_in("solved")
    monkeypatch.setattr(grading, "readable", lambda: [tmp_path / which])
    with pytest.raises(SystemExit, match=rf"could read .*{which}, which lies in"):
        grading.main([str(course.folder)])
    assert not (tmp_path / "class-graded").exists()


def test_a_changed_assignment_wants_another_folder(course, source):
    made = Course(course.out, [small.NAME])
    made.register(Student("solved"), small.NAME)
    path = source / small.NAME / f"{small.NAME}.ipynb"
    nb = nbformat.read(path, 4)
    del nb.cells[-1]
    nbformat.write(nb, path)
    with pytest.raises(SystemExit, match="choose another OUT"):
        Course(course.out, [small.NAME])


@pytest.mark.usefixtures("plain_run")
def test_pages_speak_of_tasks_and_sum_them_up(course, source):
    path = source / small.NAME / f"{small.NAME}.ipynb"
    nb = nbformat.read(path, 4)
    for place, title in ((3, "Task 1. The total (3 points, 5 minutes)"), (6, "## Task 2. Means")):
        nb.cells.insert(place, nbformat.v4.new_markdown_cell(f"## {title}".replace("## ##", "##")))
    nbformat.write(nb, path)
    shutil.rmtree(course.out)
    assignments.generate(course.out, [small.NAME])
    course.released = assignments.released(course.out, small.NAME)
    broken = "import no_such_package"
    course.hand_in("ana", mean="def mean(values):\n    return 5", total=broken)
    found = course.grade()["ana"]
    assert [test.task for test in found.tests] == [
        "Task 1. The total, test",
        "Task 2. Means, test",
        "Task 2. Means, answer",
    ]
    page = course.page("ana")
    assert ">Task 1. The total: 0 of 3</td>" in page
    assert ">Task 2. Means: 0 of 7</td>" in page
    assert "test-total" not in page
    (error,) = found.errors
    assert error.startswith("in the cell “import no_such_package”, below “Task 1. The total")
    assert found.tests[1].message == "The mean of 1 and 3 is 2, not 5."


@pytest.mark.usefixtures("plain_run")
def test_files_beside_a_project_are_handed_on_and_others_are_named(course, source, monkeypatch):
    given = {}

    def run(assignment, nb, limits, **options):
        given.update(files=options["files"], limits=limits)
        return plainly(assignment, nb, limits, **options)

    monkeypatch.setattr(running, "run", run)
    beside = course.hand_in("ana").parent
    (beside / "own.csv").write_text("1,2")
    (beside / "big.csv").write_bytes(b"0" * (2 << 20))
    found = course.grade()["ana"]
    assert given == {"files": {}, "limits": LIMITS}
    assert found.notes == ("left out: big.csv, own.csv",)

    path = source / small.NAME / f"{small.NAME}.ipynb"
    nb = nbformat.read(path, 4)
    nb.metadata.clusterfl = {"data": 1, "limits": {"cell": 600}}
    nbformat.write(nb, path)
    found = course.grade(limits=sandbox.Limits())["ana"]
    assert given == {"files": {"own.csv": b"1,2"}, "limits": sandbox.Limits(cell=600)}
    assert found.notes == ("left out: big.csv",)
    for number in range(intake.BESIDE):
        (beside / f"n{number:02d}.csv").write_text("1")
    found = course.grade(limits=sandbox.Limits())["ana"]
    assert len(given["files"]) == intake.BESIDE
    assert found.notes == ("left out: big.csv, own.csv",)
    asked = grading.Options(own_limits={"cell": 7.0})
    course.grade(options=asked)
    assert given["limits"].cell == 7


# ---------------------------------------------------------------- command line


def test_the_command_line_passes_every_option_on(monkeypatch):
    called = []
    monkeypatch.setattr(house, "setup", lambda: None)
    monkeypatch.setattr(os, "execv", lambda python, words: called.append(words))
    monkeypatch.setattr(sys, "argv", ["house.py", "grade", "--unsafe", "my class", "--help"])
    house.main()
    script = str(house.ROOT / "tools" / "grading.py")
    assert called == [[str(house.PYTHON), script, "--unsafe", "my class", "--help"]]


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["SUBMISSIONS=my class"], 'grade "my class"'),
        ([], 'grade ""'),
        (["SUBMISSIONS=a", "OUT=b", "UNSAFE=1"], 'grade "a" --out "b" --unsafe'),
    ],
)
def test_make_calls_the_same_command(given, wanted):
    words = ["make", "-n", "--no-print-directory", "grade", *given]
    said = subprocess.run(words, cwd=house.ROOT, capture_output=True, text=True).stdout
    assert said.split("tools/house.py ")[1].strip() == wanted
