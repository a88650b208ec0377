"""The papers' sizes on a large machine: the list fits the notebooks, and the runner keeps time."""

import json
import re
import sys
import time

import house
import large
import pytest

LISTED = large.read(large.JOBS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("job", LISTED, ids=str)
def test_every_job_names_an_experiment_and_parameters_that_it_has(job):
    assert job.experiment in {path.stem for path in house.experiments()}
    path = house.ROOT / "book" / "experiments" / f"{job.experiment}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    (parameters,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    names = re.findall(r"^(\w+) = ", "".join(parameters["source"]), re.M)
    assert {one.split("=")[0] for one in job.parameters} <= set(names)
    assert 0 < job.seconds <= 9 * 60


def test_no_run_is_listed_twice():
    runs = [(j.experiment, s, j.parameters) for j in LISTED for s in j.seeds]
    assert len(set(runs)) == len(runs)


def test_a_line_is_read():
    text = '# none\n\ncuda 9.5 06_x 0-2,7 rounds=300 points="10 20"  # why\n'
    (job,) = large.read(text)
    assert (job.device, job.seconds, job.experiment) == ("cuda", 9.5, "06_x")
    assert (job.seeds, job.parameters) == (("0", "1", "2", "7"), ("rounds=300", "points=10 20"))
    command = job.command()
    assert command[1].endswith("run_experiment.py")
    assert command[2].endswith("06_x.ipynb")
    words = ["0", "1", "2", "7", "preset=paper", "device=cuda", "rounds=300", "points=10 20"]
    assert command[3:] == words
    with pytest.raises(ValueError, match="cuda or cpu, not 'tpu'"):
        large.read("tpu 1 06_x 0")
    for wrong in ("cuda 9 06_x", "cpu soon 06_x 0", "cpu 9 06_x a-b"):
        with pytest.raises(ValueError, match=f"this is none: {wrong}$"):
            large.read(wrong)


def test_a_few_at_once_in_order_and_what_is_left_is_stopped(tmp_path, capsys):
    """Two short jobs, one that fails, one too long for the time, one that is stopped in it."""
    jobs = large.read("cpu 0 first 0\ncpu 0 fails 0\ncpu 0 long 0\ncpu 600 late 0\ncuda 0 card 0\n")
    codes = {
        "first": "print('here')",
        "fails": "raise SystemExit(3)",
        "long": "import time; time.sleep(60)",
        "card": "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))",
    }

    def command(job):
        return [sys.executable, "-c", codes[job.experiment]]

    begin = time.monotonic()
    ended = large.play(jobs, 0.25, {"cpu": 1, "cuda": 1}, tmp_path, command)
    assert time.monotonic() - begin < 50
    how = {job.experiment: word for job, word, _ in ended}
    assert how == {"first": "done", "fails": "failed", "long": "stopped", "card": "done"}
    on_cores = [job.experiment for job, *_ in ended if job.device == "cpu"]
    assert on_cores == ["first", "fails", "long"]
    said = capsys.readouterr().out
    assert re.search(r"stopped +long 0$", said, re.M)
    assert re.search(r"not run +late 0$", said, re.M)
    (log,) = tmp_path.glob("*-first.log")
    assert log.read_text() == "here\n"


def test_a_job_for_the_cores_does_not_see_the_card():
    on_cores, on_card = large.read("cpu 1 a 0\ncuda 1 a 0")
    assert large.surroundings(on_cores)["CUDA_VISIBLE_DEVICES"] == ""
    assert large.surroundings(on_cores)["OMP_NUM_THREADS"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in {
        k for k, v in large.surroundings(on_card).items() if v == ""
    }
