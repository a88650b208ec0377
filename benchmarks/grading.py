"""Measure how long a class's submissions take to grade: ``python benchmarks/grading.py``.

A hundred submissions, typical answers from every editor in equal parts of the four assignments,
are graded in their sandboxes with the limits that `make grade` has, as many at a time as asked for.
One line an assignment says what a submission took, the last what all took together; where that is
more than ten minutes, the command fails.
"""

import argparse
import statistics
import sys
import tempfile
import time
import unicodedata
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import assignment_mistakes as known  # noqa: E402
import assignments  # noqa: E402
import grading  # noqa: E402
import sandbox  # noqa: E402
import typical_class  # noqa: E402

MOST = 600  # seconds for a hundred submissions


def measured(size: int, jobs: int) -> float:
    """Grade a class and print what it took; return the seconds."""
    names, wanted = [name for name in assignments.names() if known.tests(name)], {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        assignments.generate(root / "made", names)
        for name in names:
            released = assignments.released(root / "made", name)
            some = typical_class.hand_in(root / "class", name, released, size // len(names))
            for who, (points, *_) in some.items():
                wanted[unicodedata.normalize("NFC", who), name] = points
        begun = time.monotonic()
        limits = sandbox.Limits()
        done = grading.grade(root / "class", root / "graded", names, limits, False, jobs)
        taken = time.monotonic() - begun
    print("\n| assignment | submissions | median, s | slowest, s | declared points |")
    print("|---|---|---|---|---|")
    for name in names:
        own = [result for result in done if result.assignment == name]
        right = sum(
            sum(test.points for test in r.tests if not test.by_hand) == wanted[r.student, name]
            for r in own
        )
        seconds = [result.seconds for result in own]
        middle, most = statistics.median(seconds), max(seconds)
        print(f"| {name} | {len(own)} | {middle:.1f} | {most:.1f} | {right} of {len(own)} |")
    print(f"\n{len(done)} submissions, {jobs} at a time: {taken:.0f} s")
    return taken


def main() -> None:
    """Measure, and fail if it took too long."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--size", type=int, default=100, help="submissions in all")
    asked.add_argument("--jobs", type=int, default=2, help="at a time")
    said = asked.parse_args()
    if why := sandbox.unavailable():
        sys.exit(f"There is no sandbox: {why}.")
    warnings.filterwarnings("ignore", module="nbgrader")
    if measured(said.size, said.jobs) > MOST * said.size / 100:
        sys.exit("That is too slow for a class.")


if __name__ == "__main__":
    main()
