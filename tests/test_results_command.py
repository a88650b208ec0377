"""`make results`: a real notebook in a small book, run, killed, interrupted, started again."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import house
import pytest
import run_experiment

from clusterfl_core import results

PARAMETERS = """\
preset = "quick"
seed = 0
device = "auto"
rounds = 3
"""
CODE = """\
import json, os, time
from pathlib import Path
import clusterfl_core as cf

Path("pid").write_text(str(os.getpid()))
store = cf.results.Store("90_small", preset)
print("90_smaller lines are", "left out")

def compute(checkpoint):
    done = json.loads(checkpoint.read_text()) if checkpoint and checkpoint.exists() else []
    while len(done) < rounds:
        while Path("hold").exists() and len(done) == 1:
            time.sleep(0.02)
        done.append(os.getpid())
        if checkpoint:
            checkpoint.write_text(json.dumps(done))
        if Path("fail").exists():
            raise ValueError("as asked")
        if Path("die").exists():
            os.kill(os.getpid(), 9)
    return {"processes": done, "device": device}
"""
SERIES = """\
for name in ("first", "second"):
    if name == "second" and Path("wait").exists():
        Path("wait").rename("hold")
    store.run(seed, {"name": name}, compute)
"""
FIRST, SECOND = (results._file_name({"name": name}) for name in ("first", "second"))


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """A book of one experiment with parameters, one without, and a chapter."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for name, tags in (
        ("experiments/90_small", ["parameters"]),
        ("experiments/91_bare", []),
        ("92_chapter", ["parameters"]),
    ):
        cells = [
            {"cell_type": "code", "id": f"c{i}", "metadata": {"tags": tag}, "source": source}
            for i, (tag, source) in enumerate([(tags, PARAMETERS), ([], CODE), ([], SERIES)])
        ]
        for cell in cells:
            cell |= {"execution_count": None, "outputs": []}
        notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        path = tmp_path / "book" / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(notebook))
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path / "kept"))
    return tmp_path


def start(root: Path, *, preset="paper", seeds=("0",), others=()) -> subprocess.Popen:
    """Start the command as a user would, but with this test's own book."""
    call = f"'90_small', {preset!r}, {list(seeds)}, 'cpu', {list(others)}, Path({str(root)!r})"
    call = f"house.results({call})"
    code = f"import house; from pathlib import Path; house.setup = lambda: None; {call}"
    # Who starts the tests in the background may have them ignore Ctrl-C, and they pass it on.
    code = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {code}"
    paths = os.pathsep.join([str(house.ROOT / "tools"), str(house.ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return re.sub(r"\d+\.\d s", "T s", out)


def until(true, what: str) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def records(root: Path) -> dict[tuple, dict]:
    """Read every record; a half one fails here."""
    assert os.environ["CLUSTERFL_RESULTS"] == str(root / "kept")
    return {(r["settings"]["name"], r["seed"]): r["values"] for r in results.stored("90_small")}


def stopped_by(number: int, root: Path) -> tuple[int, str, str]:
    """Start, wait until the second run has begun, and send a signal to the command."""
    here = root / "book" / "experiments"
    (here / "wait").touch()
    process = start(root)
    checkpoint = root / "kept" / "90_small" / ".unfinished" / f"{SECOND}-seed0.pt"
    out = ""
    while f"{SECOND}, seed 0: starts" not in out:  # seen while it runs
        line = process.stdout.readline()
        assert line, out
        out += line
    until(lambda: checkpoint.exists() or process.poll() is not None, "no checkpoint in a minute")
    process.send_signal(number)
    rest, err = process.communicate(timeout=60)
    out += rest
    kernel = Path("/proc") / (here / "pid").read_text()
    until(lambda: not kernel.exists(), "the notebook's process lives on")
    assert list(records(root)) == [("first", 0)]
    (here / "hold").unlink()
    return process.returncode, out, err


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_killed_and_started_again_it_goes_on_where_it_was(small):
    status, out, _ = stopped_by(signal.SIGKILL, small)
    assert status == -signal.SIGKILL
    assert f"{FIRST}, seed 0: stored after" in out
    before = records(small)

    assert finish(start(small, seeds=("1", "0"))).splitlines() == [
        "==> 90_small, preset paper, seed 1",
        f"    {FIRST}, seed 1: starts",
        f"    {FIRST}, seed 1: stored after T s",
        f"    {SECOND}, seed 1: starts",
        f"    {SECOND}, seed 1: stored after T s",
        "    T s: 90_small, preset paper, seed 1",
        "==> 90_small, preset paper, seed 0",
        f"    {FIRST}, seed 0: already stored",
        f"    {SECOND}, seed 0: goes on",
        f"    {SECOND}, seed 0: stored after T s",
        "    T s: 90_small, preset paper, seed 0",
    ]
    after = records(small)
    assert after["first", 0] == before["first", 0]
    assert len(set(after["second", 0]["processes"])) == 2
    assert len(set(after["second", 1]["processes"])) == 1
    assert {values["device"] for values in after.values()} == {"cpu"}
    assert sorted(path.name for path in (small / "_build" / "results").iterdir()) == [
        "90_small-paper-seed0.ipynb",
        "90_small-paper-seed1.ipynb",
    ]


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_interrupted_it_says_so_in_one_sentence(small):
    status, _, err = stopped_by(signal.SIGINT, small)
    assert status == 1
    said = "Stopped; what is stored is kept, and the same command goes on from there.\n"
    assert err == said


def test_a_small_run_with_another_parameter_stores_nothing(small):
    lines = finish(start(small, preset="quick", others=["rounds=5"])).splitlines()
    assert lines == [
        "==> 90_small, preset quick, seed 0",
        "    T s: 90_small, preset quick, seed 0",
    ]
    assert not (small / "kept").exists()
    page = (small / "_build" / "results" / "90_small-quick-seed0.ipynb").read_text()
    assert "rounds = 5" in page


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("fail", "ValueError: as asked"),
        ("die", "the notebook's process died, for want of memory perhaps"),
    ],
)
def test_a_failure_stops_it_and_says_where_to_look(small, how, why):
    (small / "book" / "experiments" / how).touch()
    process = start(small, seeds=("3", "4"))
    out, err = process.communicate(timeout=120)
    page = small / "_build" / "results" / "90_small-paper-seed3.ipynb"
    assert process.returncode == 1
    assert out.startswith("==> 90_small, preset paper, seed 3\n")
    assert "seed 4" not in out
    said = f"Failed with seed 3: {why}\nWhat is stored is kept; the notebook so far is {page}\n"
    assert err == said
    assert page.exists()
    assert records(small) == {}


# ---------------------------------------------------------------- refused before any work


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("92_chapter", "paper", ["0"]), "no experiment '92_chapter': choose one of 90_small, 91"),
        (("", "paper", ["0"]), "no experiment '': choose one of"),
        (("../experiments/90_small", "paper", ["0"]), "no experiment '../experiments/90_small'"),
        (("90_small", "fast", ["0"]), "must be quick or paper, not 'fast'"),
        (("90_small", "paper", []), "Seeds must be whole numbers, such as 0 1 2, not ''"),
        (("90_small", "paper", ["0", "-1"]), "Seeds must be whole numbers, .* not '0 -1'"),
        (("90_small", "paper", ["1,2"]), "Seeds must be whole numbers"),
        (("90_small", "paper", ["0"], "gpu"), "must be auto, cpu, cuda or mps, not 'gpu'"),
        (("90_small", "paper", ["0"], "cpu", ["rounds"]), "as in rounds=300, not 'rounds'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_installed(
    small, monkeypatch, asked, said
):
    monkeypatch.setattr(house, "setup", lambda: pytest.fail("something was done"))
    with pytest.raises(SystemExit, match=said):
        house.results(*asked, root=small)


@pytest.mark.parametrize(
    ("notebook", "word", "name"),
    [("91_bare", "preset=paper", "seed"), ("90_small", "round=3", "round")],
)
def test_a_missing_parameter_is_named(small, notebook, word, name):
    path = small / "book" / "experiments" / f"{notebook}.ipynb"
    with pytest.raises(SystemExit, match=f"{notebook} has no parameter '{name}' in its cell"):
        run_experiment.main(str(path), "0", word)


# ---------------------------------------------------------------- command line


@pytest.fixture
def called(monkeypatch) -> dict:
    calls = {}
    monkeypatch.setattr(house, "results", lambda **options: calls.update(options))
    monkeypatch.setattr(house.results, "__doc__", "Stored.", raising=False)
    return calls


def test_the_command_line_reaches_the_function(called, monkeypatch):
    line = "house.py results 06_x --preset quick --seeds 0 -1 --device cuda --set rounds=3"
    monkeypatch.setattr(sys, "argv", line.split())
    house.main()
    assert called == {
        "experiment": "06_x",
        "preset": "quick",
        "seeds": ["0", "-1"],  # refused by the function, in its own words
        "device": "cuda",
        "others": ["rounds=3"],
    }


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_calls_the_same_command(called, monkeypatch):
    words = ["make", "-n", "results", "EXPERIMENT=06_x", "SEEDS=0 1 2", "DEVICE=cpu", "SET=a=1 b=2"]
    said = subprocess.run(words, cwd=house.ROOT, capture_output=True, text=True).stdout
    words = re.sub(r"make\[\d\].*\n", "", said).replace('"', "").split()
    assert " ".join(words[1:]) == (
        "tools/house.py results 06_x --seeds 0 1 2 --preset paper --device cpu --set a=1 b=2"
    )
