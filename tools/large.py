"""Run the papers' sizes on a large machine: the list of jobs beside this file, many at once.

A job is a notebook of book/experiments with some seeds and parameters, run by run_experiment.py in
a process of its own. Records go where `make results` puts them, as soon as they are made, so what
is stopped at the end keeps what it had; the same command later adds what is missing.

Usage, in a line:
.venv/bin/python tools/large.py [--minutes 9] [--cores 12] [--card 6] [--jobs tools/large.txt]
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JOBS = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True)
class Job:
    """A line of the list: where it runs, about how long, and which runs it is."""

    device: str
    seconds: float
    experiment: str
    seeds: tuple
    parameters: tuple

    def __str__(self):
        """Its words, without the time."""
        return " ".join([self.experiment, *self.seeds, *self.parameters])

    def command(self):
        """The command that runs it."""
        script = ROOT / "tools" / "run_experiment.py"
        notebook = ROOT / "book" / "experiments" / f"{self.experiment}.ipynb"
        words = ["preset=paper", f"device={self.device}", *self.parameters]
        return [sys.executable, str(script), str(notebook), *self.seeds, *words]


def read(text):
    """The jobs of a list, in its order: DEVICE SECONDS EXPERIMENT SEEDS NAME=VALUE ...

    Seeds are numbers and spans, such as 0-4,12. What stands behind # is no job.
    """
    jobs = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] not in ("cuda", "cpu"):
            raise ValueError(f"a job runs on cuda or cpu, not {words[0]!r}: {line}")
        try:
            device, seconds, experiment, spans, *parameters = words
            seeds = []
            for span in spans.split(","):
                first, _, last = span.partition("-")
                seeds += map(str, range(int(first), int(last or first) + 1))
            jobs.append(Job(device, float(seconds), experiment, tuple(seeds), tuple(parameters)))
        except ValueError:
            form = "DEVICE SECONDS EXPERIMENT SEEDS NAME=VALUE ..."
            raise ValueError(f"a job is {form}, this is none: {line}") from None
    return jobs


def play(jobs, minutes, slots, folder, command=Job.command):
    """Run the jobs, the first ones first, at most ``slots[device]`` at once; kill what is left.

    A job that by its estimate would not end in time is not started. What a job prints goes to
    ``folder``. Returns a line a job: its words, how it ended, seconds.
    """
    begin, waiting, running, ended = time.monotonic(), list(jobs), [], []
    folder.mkdir(parents=True, exist_ok=True)

    def leave(job, process, since, how):
        ended.append((job, how, time.monotonic() - since))
        print(f"{ended[-1][2]:6.0f} s  {job.device:4}  {how:7}  {job}", flush=True)

    while True:
        left = 60 * minutes - (time.monotonic() - begin)
        for one in [one for one in running if one[1].poll() is not None]:
            running.remove(one)
            leave(*one, "done" if one[1].returncode == 0 else "failed")
        for job in [job for job in waiting if job.seconds <= left]:
            if sum(job.device == other.device for other, *_ in running) < slots[job.device]:
                waiting.remove(job)
                log = folder / f"{len(jobs) - len(waiting):03d}-{job.experiment}.log"
                with log.open("w") as file:
                    process = subprocess.Popen(
                        command(job), stdout=file, stderr=file, env=surroundings(job)
                    )
                running.append((job, process, time.monotonic()))
        if left <= 0 or not running:
            break
        time.sleep(0.2)
    for one in running:
        one[1].kill()
        one[1].wait()
        leave(*one, "stopped")
    for job in waiting:
        print(f"     -    {job.device:4}  not run  {job}")
    return ended


def surroundings(job):
    """One thread a process; a job for the cores does not see the card."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if job.device == "cpu" else {}
    return os.environ | {"OMP_NUM_THREADS": "1"} | hidden


def main():
    """Read the list and run it; 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--cores", type=int, default=12, help="jobs at once on the cores")
    parser.add_argument("--card", type=int, default=6, help="jobs at once on the card")
    parser.add_argument("--jobs", type=Path, default=JOBS)
    given = parser.parse_args()
    for name in ("CLUSTERFL_DATA", "CLUSTERFL_RESULTS"):
        if os.environ.get(name):  # the notebooks run in another folder
            os.environ[name] = str(Path(os.environ[name]).expanduser().resolve())
    try:
        jobs = read(given.jobs.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{given.jobs}: {error}")
    slots = {"cuda": given.card, "cpu": given.cores}
    ended = play(jobs, given.minutes, slots, ROOT / "_build" / "large")
    return int(any(how == "failed" for _, how, _ in ended))


if __name__ == "__main__":
    sys.exit(main())
