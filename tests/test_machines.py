"""Machines with something missing: room on the disk, a home, a language, a clock that can be read.

What is there is used, what is missing is said in one sentence, and nothing that was kept is lost.
"""

import ast
import contextlib
import multiprocessing
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import house
import pytest
import sandbox
import torch
from test_killed import same
from test_kills import forked, played, series

import clusterfl_core as cf
from clusterfl_core import data, files, results

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, /proc or bubblewrap")
PLAY = """
import clusterfl_core as cf
federation = cf.populations.rotated("digits", clients=8, clusters=4)
settings = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=4, local=cf.LocalSGD(5, 0.1))
run = cf.run(settings, federation, rounds=2)
print(run.report())
print(federation)
panel = cf.figures.panel("A line").spread([1, 2], [0.0, 1.0], "IFCA")
assert "IFCA" in panel._repr_html_()
assert "cfl-plane" in cf.live.plane()._repr_html_()
assert len(cf.claims.ledger().papers) > 2
assert cf.results.stored("06_table1")
"""


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if sys.platform != "linux" or not shutil.which("mount"):
        pytest.skip("cannot mount here")
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user cannot mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def filled(place):
    """Fill a disk to the last byte."""
    rest = place / "rest"
    with contextlib.suppress(OSError), rest.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return rest


def test_a_full_disk_is_said_and_costs_no_round(small_disk):
    federation = cf.populations.regression(torch.eye(2, 3), clients=6, points=8, noise=0.5)
    algorithm, file = cf.FedAvg(cf.models.LinearRegression(3)), small_disk / "run.pt"

    def play(rounds, checkpoint=None):
        return cf.run(algorithm, federation, rounds, checkpoint=checkpoint, progress=False)

    play(2, file)
    kept, rest = file.read_bytes(), filled(small_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*run\.pt'"):
        play(4, file)
    assert file.read_bytes() == kept
    assert sorted(path.name for path in small_disk.iterdir()) == ["rest", "run.pt"]
    with pytest.raises(OSError, match=r"No space left on device: '.*new\.pt'"):
        play(4, small_disk / "new.pt")
    rest.unlink()
    assert same(play(4, file), play(4))


def test_a_full_disk_costs_no_stored_run(small_disk, monkeypatch):
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(small_disk))
    store = results.Store("90_small", "paper")
    store.run(0, {"k": 2}, lambda checkpoint: {"a": 1})
    (path,) = (small_disk / "90_small").glob("*.json")
    kept, rest = path.read_bytes(), filled(small_disk)
    with pytest.raises(OSError, match="No space left on device"):
        store.run(1, {"k": 2}, lambda checkpoint: {"a": [0.5] * 5000})
    assert path.read_bytes() == kept
    rest.unlink()
    assert store.run(1, {"k": 2}, lambda checkpoint: {"a": 2}) == {"a": 2}
    assert [record["values"]["a"] for record in results.stored("90_small")] == [1, 2]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "file" / "run.pt", tmp_path / "file" / "more" / "run.pt"):
        with pytest.raises(OSError, match=r"'.*run\.pt'$"):
            files.write_whole(path, lambda file: file.write(b"x"))


# ---------------------------------------------------------------- the same command twice


@LINUX
def test_two_runs_with_one_checkpoint_both_end_right(tmp_path):
    def work(checkpoint, seed):
        assert same(played(seed, checkpoint), played(seed))

    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=work, args=(tmp_path / "run.pt", 0)) for _ in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert cf.Run.load(tmp_path / "run.pt").state.round == 12
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]


@LINUX
def test_one_experiment_started_twice_is_stored_once(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=series, args=(tmp_path,)) for _ in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path))
    found = {record["seed"]: record["values"] for record in results.stored("90_small")}
    assert sorted(found) == [0, 1, 2, 3]
    assert all(same(found[seed], played(seed)) for seed in found)
    assert forked(series, tmp_path)


# ---------------------------------------------------------------- what cannot be written


def contained(*words, env=None, show=(), **more):
    """A command that sees all files and can write none, but in an empty /tmp."""
    bound = [word for path in show for word in ("--bind", str(path), str(path))]
    box = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    box += ["--ro-bind", str(house.ROOT), str(house.ROOT)] if house.ROOT.parts[1] == "tmp" else []
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(house.ROOT)} | (env or {})
    return subprocess.run(
        [*box, *bound, "--chdir", "/", *map(str, words)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        **more,
    )


@pytest.fixture(scope="module")
def boxes():
    if why := sandbox.unavailable():
        pytest.skip(f"no sandbox: {why}")


@LINUX
@pytest.mark.usefixtures("boxes")
@pytest.mark.parametrize("home", ["/root", "/nobody/at/home", None])
def test_a_read_only_install_and_home_are_enough_to_play(home):
    done = contained(sys.executable, "-c", PLAY, env={"HOME": home} if home else None)
    assert done.returncode == 0, done.stderr[-1500:]
    assert "IFCA" in done.stdout


@LINUX
@pytest.mark.usefixtures("boxes")
def test_a_home_that_cannot_be_written_is_said_where_it_is_needed():
    code = "import clusterfl_core as cf, time; time.sleep = lambda s: None; cf.data.load('mnist')"
    done = contained(sys.executable, "-c", code, env={"HOME": "/nobody/at/home"})
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert "Unavailable: mnist could not be downloaded" in said
    assert "'digits'" in said
    code = "import clusterfl_core as cf; cf.results.Store('90_x', 'paper').run(0, {}, lambda c: {})"
    done = contained(sys.executable, "-c", code)
    assert "set CLUSTERFL_RESULTS to a folder for new records" in done.stderr.splitlines()[-1]


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("CLUSTERFL_DATA", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert data.load("digits").classes == 10
    with pytest.raises(data.Unavailable, match="no home folder: set CLUSTERFL_DATA"):
        data.load("mnist")


# ---------------------------------------------------------------- a language of 128 letters


@LINUX
def test_a_terminal_of_plain_letters_is_enough():
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    env |= {"PYTHONPATH": str(house.ROOT), "HOME": str(Path.home())}
    done = subprocess.run([sys.executable, "-c", PLAY], env=env, capture_output=True)
    assert done.returncode == 0, done.stderr[-1500:]
    for words in (["--help"], ["results", "no_such"], ["serve", "99999"], ["results", "--help"]):
        command = [sys.executable, str(house.ROOT / "tools" / "house.py"), *words]
        done = subprocess.run(command, env=env, capture_output=True)
        assert done.returncode in (0, 1)
        assert b"Traceback" not in done.stderr


def test_every_text_is_read_and_written_as_utf_8():
    for path in sorted((house.ROOT / "clusterfl_core").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = getattr(call, "func", None)
            if getattr(function, "attr", "") in ("read_text", "write_text"):
                assert "encoding" in {word.arg for word in call.keywords}, (path, call.lineno)


# ---------------------------------------------------------------- a clock that jumps


@pytest.mark.parametrize("folder", ["clusterfl_core", "tools"])
def test_nothing_is_measured_by_a_clock_that_can_be_set(folder):
    """``time.time`` jumps when a clock is set; perf_counter and monotonic never go back."""
    for path in sorted((house.ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                clock = (node.value.id, node.attr)
                assert clock not in (("time", "time"), ("time", "time_ns")), (path, node.lineno)


def test_a_clock_that_goes_back_changes_no_run(monkeypatch, tmp_path):
    import time

    ticks = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(ticks)))
    first = played(0, tmp_path / "run.pt")
    assert same(first, played(0, tmp_path / "run.pt"))
    federation = cf.populations.regression(torch.eye(2, 3), clients=6, points=8, noise=0.5)
    run = cf.run(cf.FedAvg(cf.models.LinearRegression(3)), federation, 2, progress=False)
    assert all(record["seconds"] >= 0 for record in run.history)
