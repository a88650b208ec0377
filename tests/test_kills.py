"""Killed at random moments, again and again: the same command goes on, and no file is half.

An experiment, a class and a book, all small, and three times the real commands. A kill is SIGKILL,
which leaves no chance to tidy up; the moments are drawn from a fixed seed.
"""

import csv
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import assignments
import house
import pytest
import sandbox
import small_assignment as small
import small_book
import torch
from grader import running
from small_class import Class, make, plainly
from test_grading import PATHS, command
from test_killed import same

import clusterfl_core as cf
from clusterfl_core import results

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork and SIGKILL"),
]
SEEDS = range(4)
KILLS = {"experiment": 120, "class": 60, "book": 20}  # two hundred


def forked(work, *given, dies_after=None):
    """Do some work in a process of its own; return whether it came to its end by itself."""
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    process = multiprocessing.get_context("fork").Process(target=work, args=given)
    process.start()
    process.join(dies_after)
    alive = process.is_alive()
    process.kill()
    process.join()
    assert alive or process.exitcode == 0
    return not alive


def killed(kills, moments, begin, work, look):
    """Kill some work so many times, beginning anew whenever it was done; return what was seen.

    ``begin`` gives what the work is given, ``look`` sees whether all that lies there is whole.
    """
    rounds, longest, given = 0, 0.0, begin()
    start = time.monotonic()
    forked(work, given)
    alone, given = time.monotonic() - start, begin()
    for _ in range(kills):
        while forked(work, given, dies_after=moments.uniform(0, alone)):
            look(given, True)  # it was done before it could be killed
            rounds, given = rounds + 1, begin()
        look(given, False)
    start = time.monotonic()
    assert forked(work, given)
    longest = time.monotonic() - start
    look(given, True)
    return f"{kills} kills, {rounds} ends before one; alone {alone:.1f} s, at last {longest:.1f} s"


# ---------------------------------------------------------------- a small experiment

LINE = cf.models.LinearRegression(3)
THETA = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])


def played(seed, checkpoint=None):
    """The values of one run of the experiment."""
    federation = cf.populations.regression(THETA, clients=6, points=8, noise=0.5)
    algorithm = cf.IFCA(LINE, 2, cf.LocalSGD(2, 0.02, batch_size=3), participation=0.5)
    run = cf.run(algorithm, federation, 12, seed=seed, checkpoint=checkpoint, progress=False)
    return {name: [r[name] for r in run.history] for name in ("error", "train_loss", "clients")}


def series(folder):
    os.environ["CLUSTERFL_RESULTS"] = str(folder)
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (the process ends soon)
    store = results.Store("90_small", "paper")
    for seed in SEEDS:
        store.run(seed, {"k": 2}, lambda checkpoint, seed=seed: played(seed, checkpoint))


def test_an_experiment_loses_nothing(tmp_path, monkeypatch):
    wanted, places = {seed: played(seed) for seed in SEEDS}, iter(range(10**6))

    def look(folder, done):
        monkeypatch.setenv("CLUSTERFL_RESULTS", str(folder))
        found = {record["seed"]: record["values"] for record in results.stored("90_small")}
        assert all(same(found[seed], wanted[seed]) for seed in found)
        unfinished = folder / "90_small" / ".unfinished"
        for checkpoint in unfinished.glob("*.pt"):
            assert cf.Run.load(checkpoint).state.round <= 12
        if done:
            assert sorted(found) == list(SEEDS)
            assert [p.name for p in unfinished.iterdir() if p.name != "lock"] == []

    def begin():
        return tmp_path / str(next(places))

    print(killed(KILLS["experiment"], random.Random(1), begin, series, look))


# ---------------------------------------------------------------- a small class

ANSWERS = {
    "right": {},
    "wrong": {"total": "def total(values):\n    return max(values, default=0)"},
    "forgot": {"mean": "def mean(values):\n    return sum(values) / len(values)"},
    "broken": {"mean": "def mean(values:\n"},
}


@pytest.fixture
def made(tmp_path, monkeypatch):
    """An empty course of the small assignment, whose submissions run in the process itself."""
    made = make(tmp_path, monkeypatch)
    monkeypatch.setattr(running, "run", plainly)
    return made


def handed_in(root, made):
    root.mkdir()
    course = Class(root, made)
    for name, answers in ANSWERS.items():
        course.hand_in(name, **answers)
    return course


def graded(course):
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 (the process ends soon)
    course.grade(jobs=1)


def points_of(course):
    return {row["student"]: (row["points"], row["to mark"]) for row in course.table()}


def whole(course):
    """Every table and result that lies there can be read to its end."""
    for path in course.out.rglob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
    for path in course.out.glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        assert all(len(row) == len(head) for row in rows)
    for path in course.out.rglob("*.html"):
        assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), path


def test_a_class_loses_nothing(tmp_path, made):
    places = iter(range(10**6))
    wanted = {"right": ("8", "2"), "wrong": ("5", "2"), "forgot": ("3", "2"), "broken": ("3", "2")}

    def look(course, done):
        whole(course)
        if done:
            assert points_of(course) == wanted

    def begin():
        return handed_in(tmp_path / str(next(places)), made)

    print(killed(KILLS["class"], random.Random(2), begin, graded, look))


# ---------------------------------------------------------------- a small book

BUILD = """
import sys
from pathlib import Path
import house

root = Path(sys.argv[1])
house.clean(root)
if paths := house.unexecuted(root):
    house.execute(paths, "--exitfirst", root=root)
house.run(*house.build_command(root))
"""


def started(*words, **more):
    """A command in a session of its own, so that a kill takes all its processes."""
    env = os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        **more,
    )


def cut(process, after):
    """Kill a command and all its processes after some seconds; return whether it was done."""
    try:
        said, _ = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False
    assert process.returncode == 0, said[-2000:]
    return True


def test_a_book_is_built_in_the_end(tmp_path):
    small_book.make(tmp_path, "print(6 * 7)")
    moments, start = random.Random(3), time.monotonic()
    assert cut(started("-c", BUILD, tmp_path), 600)
    alone, kills, html = time.monotonic() - start, 0, tmp_path / "_build" / "html"
    parts = {p: p.read_bytes() for p in (html / "_static").rglob("*") if p.is_file()}
    for _ in range(KILLS["book"]):
        if moments.random() < 0.5:  # so that the notebook is run as well
            (tmp_path / "_build" / ".jupyter_cache" / "key").write_text("another")
        kills += not cut(started("-c", BUILD, tmp_path), moments.uniform(0, alone))
    assert cut(started("-c", BUILD, tmp_path), 600)
    assert "42" in (html / "book" / "page.html").read_text(encoding="utf-8")
    pages = [path for path in html.rglob("*.html") if path not in parts]
    assert len(pages) > 2
    for path in pages:
        assert path.read_text(encoding="utf-8").rstrip().endswith("</html>"), path
    assert {path: path.read_bytes() for path in parts} == parts
    print(f"{kills} kills of a book that takes {alone:.0f} s")


# ---------------------------------------------------------------- the real commands


def test_the_command_that_grades_goes_on_and_leaves_no_process(tmp_path, monkeypatch):
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    course = handed_in(tmp_path / "class", make(tmp_path, monkeypatch))
    monkeypatch.setattr(assignments, "SOURCE", tmp_path / "assignments")
    words, moments = command(course, "--jobs", "1")[1:], random.Random(4)
    for _ in range(3):
        process = started(*words)
        time.sleep(moments.uniform(2, 8))
        inside = sandbox.family(process.pid)[1:]
        process.kill()  # the command alone: the sandbox must notice
        process.wait()
        end = time.monotonic() + 20
        while any(Path(f"/proc/{pid}/exe").exists() for pid in inside):
            assert time.monotonic() < end, "a process lives on"
            time.sleep(0.1)
        whole(course)
    assert cut(started(*words), 300)
    assert points_of(course)["right"] == ("8", "2")
    assert small.NAME in (course.out / "grades.csv").read_text(encoding="utf-8")


def test_the_command_of_an_experiment_goes_on(tmp_path, monkeypatch):
    """The real notebook of figure 3, with fewer rounds, in a folder of its own."""
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path))
    code = (
        "import house; house.setup = lambda: None;"
        "house.results('07_figure3', 'paper', ['0'], 'cpu')"
    )
    moments, stored = random.Random(5), set()
    for _ in range(3):
        assert not cut(started("-c", code), moments.uniform(10, 25))
        found = {json.dumps(r["settings"]) for r in results.stored("07_figure3")}
        assert stored <= found  # nothing is lost
        stored = found
    print(f"{len(stored)} runs stored after 3 kills")
    assert house.experiments()
