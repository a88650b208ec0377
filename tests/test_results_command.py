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
import run_chapter

PARAMETERS = """\
preset = "quick"
seed = 0
only = ""
"""
CODE = """\
import json, os, time
from pathlib import Path
import clusterfl_core as cf

Path("pid").write_text(str(os.getpid()))
store = cf.results.Store("90_small", preset, only)
print("90_smaller lines are", "left out")

def compute(checkpoint):
    done = json.loads(checkpoint.read_text()) if checkpoint and checkpoint.exists() else []
    while len(done) < 3:
        while Path("hold").exists() and len(done) == 1:
            time.sleep(0.02)
        done.append(os.getpid())
        if checkpoint:
            checkpoint.write_text(json.dumps(done))
        if Path("fail").exists():
            raise ValueError("as asked")
        if Path("die").exists():
            os.kill(os.getpid(), 9)
    return {"processes": done}
"""
FIGURE = """\
if Path("before").exists():
    [][0]
"""
SERIES = """\
for name in ("first", "second"):
    if name == "second" and Path("wait").exists():
        Path("wait").rename("hold")
    store.run(name, seed, {"m": 8}, compute)
if Path("after").exists():
    [][0]
"""
CLAIM = """\
if Path("claim").exists():
    assert seed == 0
"""


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """A book of one chapter with parameters and one without."""
    (tmp_path / "book").mkdir()
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for name, tags in (("90_small", ["parameters"]), ("91_bare", [])):
        cells = [
            {"cell_type": "code", "id": f"c{i}", "metadata": {"tags": tag}, "source": source}
            for i, (tag, source) in enumerate(
                [(tags, PARAMETERS), ([], CODE), ([], FIGURE), ([], SERIES), ([], CLAIM)]
            )
        ]
        for cell in cells:
            cell |= {"execution_count": None, "outputs": []}
        notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (tmp_path / "book" / f"{name}.ipynb").write_text(json.dumps(notebook))
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path / "kept"))
    return tmp_path


def start(root: Path, *, preset="paper", seeds=("0",), only="") -> subprocess.Popen:
    """Start the command as a user would, but with this test's own book."""
    call = f"house.results('90_small', {preset!r}, {list(seeds)}, {only!r}, Path({str(root)!r}))"
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


def records(root: Path) -> dict[str, dict]:
    """Read every record; a half one fails here."""
    found = sorted((root / "kept" / "90_small").glob("*.json"))
    return {path.stem: json.loads(path.read_text())["values"] for path in found}


def stopped_by(number: int, root: Path) -> tuple[int, str, str]:
    """Start, wait until the second experiment has begun, and send a signal to the command."""
    (root / "book" / "wait").touch()
    process = start(root)
    checkpoint = root / "kept" / "90_small" / ".unfinished" / "second-m8-seed0.pt"
    until(lambda: checkpoint.exists() or process.poll() is not None, "no checkpoint in a minute")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    kernel = Path("/proc") / (root / "book" / "pid").read_text()
    until(lambda: not kernel.exists(), "the notebook's process lives on")
    assert list(records(root)) == ["first-m8-seed0"]
    (root / "book" / "hold").unlink()
    return process.returncode, out, err


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_killed_and_started_again_it_goes_on_where_it_was(small):
    status, out, _ = stopped_by(signal.SIGKILL, small)
    assert status == -signal.SIGKILL
    assert "first-m8-seed0: stored after" in out  # seen while it ran
    assert "second-m8-seed0: starts" in out
    before = records(small)

    (small / "book" / "claim").touch()
    pages = small / "_build" / "results"
    page = pages / "90_small-paper-seed1.ipynb"
    assert finish(start(small, seeds=("1", "0"))).splitlines() == [
        "==> 90_small, preset paper, seed 1",
        "    first-m8-seed1: starts",
        "    first-m8-seed1: stored after T s",
        "    second-m8-seed1: starts",
        "    second-m8-seed1: stored after T s",
        f"    a claim of the page fails with this seed, see {page}",
        "    T s: 90_small, preset paper, seed 1",
        "==> 90_small, preset paper, seed 0",
        "    first-m8-seed0: already stored",
        "    second-m8-seed0: goes on",
        "    second-m8-seed0: stored after T s",
        "    T s: 90_small, preset paper, seed 0",
    ]
    after = records(small)
    assert after["first-m8-seed0"] == before["first-m8-seed0"]
    assert len(set(after["second-m8-seed0"]["processes"])) == 2
    assert len(set(after["second-m8-seed1"]["processes"])) == 1
    assert not (small / "kept" / "90_small" / ".unfinished").exists()
    assert sorted(path.name for path in pages.iterdir()) == [
        "90_small-paper-seed0.ipynb",
        "90_small-paper-seed1.ipynb",
    ]


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks processes up in /proc")
def test_interrupted_it_says_so_in_one_sentence(small):
    status, _, err = stopped_by(signal.SIGINT, small)
    assert status == 1
    said = "Stopped; what is stored is kept, and the same command goes on from there.\n"
    assert err == said


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("fail", "ValueError: as asked"),
        ("die", "the notebook's process died, for want of memory perhaps"),
    ],
)
def test_a_failure_stops_it_and_says_where_to_look(small, how, why):
    (small / "book" / how).touch()
    for other in ("before", "claim"):  # cells that fail too, and are not what matters
        (small / "book" / other).touch()
    process = start(small, seeds=("3", "4"), only="second")
    out, err = process.communicate(timeout=60)
    page = small / "_build" / "results" / "90_small-second-paper-seed3.ipynb"
    assert process.returncode == 1
    assert out.startswith("==> 90_small, preset paper, seed 3\n")
    assert "first" not in out
    said = f"Failed with seed 3: {why}\nWhat is stored is kept; the page so far is {page}\n"
    assert err == said
    assert page.exists()
    assert records(small) == {}


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_page_that_lacks_other_runs_does_not_stop_the_seeds_of_one_experiment(small, where):
    (small / "book" / where).touch()
    pages = small / "_build" / "results"
    why = "stored, but the rest of the page fails (IndexError: list index out of range)"
    lines = finish(start(small, seeds=("0", "1"), only="first")).splitlines()
    assert lines[2:5] == [
        "    first-m8-seed0: stored after T s",
        f"    {why}, see {pages / '90_small-first-paper-seed0.ipynb'}",
        "    T s: 90_small, preset paper, seed 0",
    ]
    assert list(records(small)) == ["first-m8-seed0", "first-m8-seed1"]

    process = start(small)  # asked for all of the page, it has to come to its end
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.startswith("Failed with seed 0: IndexError: list index out of range\n")


# ---------------------------------------------------------------- refused before any work


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("92_none", "paper", ["0"]), "no chapter '92_none': choose one of 90_small, 91_bare"),
        (("", "paper", ["0"]), "no chapter '': choose one of"),
        (("../book/90_small", "paper", ["0"]), "no chapter '../book/90_small'"),
        (("90_small", "fast", ["0"]), "must be quick or paper, not 'fast'"),
        (("90_small", "paper", []), "Seeds must be whole numbers, such as 0 1 2, not ''"),
        (("90_small", "paper", ["0", "-1"]), "Seeds must be whole numbers, .* not '0 -1'"),
        (("90_small", "paper", ["1,2"]), "Seeds must be whole numbers"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_installed(
    small, monkeypatch, asked, said
):
    monkeypatch.setattr(house, "setup", lambda: pytest.fail("something was done"))
    with pytest.raises(SystemExit, match=said):
        house.results(*asked, root=small)


def test_a_chapter_without_parameters_is_refused(small):
    with pytest.raises(SystemExit, match="91_bare has no parameter 'preset'"):
        run_chapter.main(str(small / "book" / "91_bare.ipynb"), "paper", "", "0")


@pytest.mark.parametrize(("missing", "only"), [("seed", ""), ("only", "first")])
def test_a_missing_parameter_is_named(small, missing, only):
    path = small / "book" / "90_small.ipynb"
    path.write_text(path.read_text().replace(f"{missing} = ", f"{missing}_ = "))
    with pytest.raises(SystemExit, match=f"90_small has no parameter '{missing}'"):
        run_chapter.main(str(path), "paper", only, "0")


def test_an_experiment_that_no_cell_names_is_refused(small):
    path = str(small / "book" / "90_small.ipynb")
    with pytest.raises(SystemExit, match="90_small has no experiment 'firs': no cell names it"):
        run_chapter.main(path, "paper", "firs", "0")


# ---------------------------------------------------------------- command line


@pytest.fixture
def called(monkeypatch) -> dict:
    calls = {}
    monkeypatch.setattr(house, "results", lambda **options: calls.update(options))
    monkeypatch.setattr(house.results, "__doc__", "Stored.", raising=False)
    return calls


def test_the_command_line_reaches_the_function(called, monkeypatch):
    line = "house.py results 06_x --preset quick --seeds 0 -1 --only table1"
    monkeypatch.setattr(sys, "argv", line.split())
    house.main()
    seeds = ["0", "-1"]  # refused by the function, in its own words
    assert called == {"chapter": "06_x", "preset": "quick", "seeds": seeds, "only": "table1"}


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_calls_the_same_command(called, monkeypatch):
    words = ["make", "-n", "results", "CHAPTER=06_x", "PRESET=paper", "SEEDS=0 1 2"]
    said = subprocess.run(words, cwd=house.ROOT, capture_output=True, text=True).stdout
    words = re.sub(r"make\[\d\].*\n", "", said).replace('"', "").split()
    assert " ".join(words[1:]) == (
        "tools/house.py results 06_x --preset paper --seeds 0 1 2 --only"
    )
