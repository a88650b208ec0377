"""Grade a folder of submissions; `house.py grade` calls this.

SUBMISSIONS is a folder with a folder a student, or a download of Canvas or Moodle, or a zip of one.
nbgrader keeps the gradebook; what students wrote runs in a sandbox (tools/sandbox.py), never in
this process. The results' folder is an nbgrader course, for marking by hand; its tables and pages
are for reading.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC
from pathlib import Path

import assignments
import house
from grader import clean, intake, late, pairs, placing, reports, running, similar
from grader.book import Course
from grader.results import Result, Student, Test, as_json, from_json
from sandbox import Limits, Sandbox, readable, unavailable

__all__ = ["Options", "Result", "Student", "Test", "grade", "main"]


@dataclass(frozen=True)
class Options:
    """What an instructor may choose besides the folders.

    Attributes
    ----------
    own_limits : dict
        Limits that were asked for; they go before those of an assignment.
    again : tuple of str
        STUDENT, STUDENT/ASSIGNMENT or STUDENT/ASSIGNMENT#ITEM to be graded again.
    """

    own_limits: dict = field(default_factory=dict)
    largest: int = intake.LARGEST
    people: tuple[Student, ...] = ()
    rules: late.Rules = field(default_factory=late.Rules)
    again: tuple[str, ...] = ()


# ---------------------------------------------------------------- one submission


def described(nb: placing.NotebookNode, here: int) -> str:
    """Return where a cell stands, in words that its writer understands."""
    heading = ""
    for cell in nb.cells[:here]:
        if cell.cell_type == "markdown" and cell.source.lstrip().startswith("#"):
            heading = clean.line(cell.source.lstrip("# \n").split("\n", 1)[0], 60)
    lines = [one for one in nb.cells[here].source.splitlines() if one.strip()]
    first = clean.line(lines[0], 60) if lines else ""
    return f"in the cell “{first}”" + (f", below “{heading}”" if heading else "")


def errors(placed: placing.Placed, ran: running.Ran) -> tuple[str, ...]:
    """Return what went wrong in cells of the student's own."""
    found = []
    for here, (cell, outcome) in enumerate(zip(placed.nb.cells, ran.outcomes, strict=True)):
        own = cell.cell_type == "code" and not placing.utils.is_locked(cell)
        if own and outcome.error and outcome.ran:
            told = clean.text(outcome.error, 500).strip()
            found.append(f"{described(placed.nb, here)}: {told}")
    return tuple(found)


def broken(error: BaseException) -> str:
    """Say that the grader itself failed, which ends one submission and no other."""
    said = clean.line(f"{type(error).__name__}: {error}")
    return f"the grader failed on it: {said}"


def in_order(results: Iterable[Result]) -> list[Result]:
    """Return results by student and assignment."""
    return sorted(results, key=lambda r: (r.who.key, r.assignment))


def load(path: Path) -> Result | None:
    """Return what an earlier run found for a submission, None if nothing that can be read."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def wants(again: tuple[str, ...], who: Student, assignment: str) -> tuple[bool, set[str]]:
    """Return whether a submission is to be graded again, and which items of it, none for all."""
    found, items = False, set()
    for asked in again:
        rest, _, item = asked.partition("#")
        student, _, name = rest.rpartition("/") if "/" in rest else (rest, "", "")
        if student in (who.key, who.name, who.id) and name in ("", assignment):
            found = True
            items |= {item} - {""}
    return found, items


# ---------------------------------------------------------------- all of them


class Grading:
    """One run over a folder of submissions."""

    def __init__(
        self, out: Path, chosen: list[str], limits: Limits, unsafe: bool, options: Options
    ):
        self.course, self.limits = Course(out, chosen), limits
        self.unsafe, self.options = unsafe, options
        self.out, self.kept = out, out / "results"
        self.kept.mkdir(exist_ok=True)
        self.results: list[Result] = []
        self.rows: list[similar.Rows] = []

    def limits_of(self, assignment: str) -> Limits:
        """Return the limits of one assignment."""
        own = self.course.settings[assignment].get("limits", {})
        return replace(self.limits, **(own | self.options.own_limits))

    def path_of(self, result: Result) -> Path:
        """Return where a result is kept."""
        return self.kept / f"{result.who.key}--{result.assignment}.json"

    def begin(self, one: intake.Submission, shared: pairs.Shared) -> Result:
        """Return the result of a submission before it ran."""
        key = house.digest(
            one.digest,
            self.course.keys[one.assignment],
            repr(self.limits_of(one.assignment)),
            str(self.unsafe),
            *one.looks,
        )
        return Result(
            one.who,
            one.assignment,
            key,
            looks=one.looks,
            notes=(*one.notes, *shared.notes),
            partners=shared.partners,
            handed_in=one.time.astimezone(UTC).isoformat() if one.time else "",
            number=one.number,
        )

    def before(self, result: Result, bare: str = "") -> tuple[Result | None, Result | None]:
        """Return what an earlier run found, and the same if it still holds.

        It may have been kept under the name `bare`, before there was a roster.
        """
        path = self.path_of(result)
        old = self.kept / f"{bare}--{result.assignment}.json"
        if bare not in ("", result.who.key) and old.exists() and not path.exists():
            self.course.move(bare, result.who, result.assignment)
            old.replace(path)
        earlier = load(path)
        asked, _ = wants(self.options.again, result.who, result.assignment)
        same = earlier is not None and earlier.key == result.key and not asked
        return earlier, earlier if same else None

    def finish(self, result: Result, how: str) -> None:
        """Take a result in, and say so."""
        self.results.append(result)
        what = clean.line(result.refused, 200)
        if not what:
            what = f"{reports.number(result.points)} of {reports.number(result.of)}"
            what += f", {reports.number(result.open)} to mark" if result.open else ""
        look = "; needs a look" if result.status.endswith("a look") else ""
        print(f"    {result.who.name} {result.assignment}: {what}{look} ({how})", flush=True)

    def settle(self, result: Result) -> None:
        """Keep a result for later runs."""
        reports.replace_file(self.path_of(result), json.dumps(as_json(result), indent=1))
        self.finish(result, f"{result.seconds:g} s")

    def judge(
        self,
        result: Result,
        placed: placing.Placed,
        ran: running.Ran,
        earlier: Result | None,
    ) -> Result:
        """Return the result of a submission that ran; keep its notebook, points and marks."""
        _, items = wants(self.options.again, result.who, result.assignment)
        tests = self.course.tests(placed, ran, result.assignment)
        if items and earlier is not None and not earlier.refused:
            old = {test.id: test for test in earlier.tests}
            tests = tuple(t if t.id in items else old.get(t.id, t) for t in tests)
        looks = (*result.looks, *(clean.line(look) for look in ran.looks))
        result = replace(
            result, looks=looks, errors=errors(placed, ran), tests=tests, seconds=ran.seconds
        )
        self.course.write(result, placed, ran)
        result = self.course.save(result, earlier)
        for item in items & {test.id for test in tests}:
            result = self.course.reopened(result, item)
        return result

    def write(self) -> list[Result]:
        """Write tables and pages, and return what they show."""
        done = late.applied(in_order(self.results), self.options.rules)
        missing = set(self.options.people) - {w for w, _ in reports.each(done)}
        none = [Result(who, "-", refused="nothing was handed in") for who in missing]
        done = in_order([*done, *none])
        reports.write_tables(self.out, done, similar.pairs(self.rows))
        reports.write_pages(self.out, done)
        return done


def grade(
    folder: Path,
    out: Path,
    chosen: list[str],
    limits: Limits,
    unsafe: bool,
    jobs: int,
    options: Options | None = None,
) -> list[Result]:
    """Grade every submission that an earlier run has not; write the tables and the reports."""
    options = options or Options()
    known = {name: assignments.sources(name) for name in assignments.names()}
    data = {name: assignments.settings(name).get("data", 0) for name in chosen}
    people = intake.Class(options.people)
    found, wrong = intake.collect(folder, known, chosen, people, options.largest, data)
    if not found and not wrong:
        sys.exit(f"There is no submission in {folder}: put STUDENT/ASSIGNMENT.ipynb there.")
    out.mkdir(parents=True, exist_ok=True)
    run = Grading(out, chosen, limits, unsafe, options)
    for asked in options.again:
        some = [one for one in found if wants((asked,), one.who, one.assignment)[0]]
        items = {item for one in some for item in run.course.titles[one.assignment]}
        item = asked.partition("#")[2]
        if not some or (item and item not in items):
            sys.exit(f"--again {asked}: there is no such submission or item.")
    allowed = {name for name in chosen if run.course.settings[name].get("pairs")}
    named = {one.who.key for one in found}
    shares = pairs.shared(found, people, allowed)
    found = pairs.with_looks(found, shares)
    for result in wrong:
        run.finish(result, "not run")
    slots: queue.Queue[int] = queue.Queue()
    for slot in range(jobs):
        slots.put(slot)

    def work(placed: placing.Placed, one: intake.Submission) -> running.Ran:
        slot = slots.get()
        try:
            return running.run(
                one.assignment,
                placed.nb,
                run.limits_of(one.assignment),
                unsafe=unsafe,
                slot=slot,
                files=one.files,
            )
        finally:
            slots.put(slot)

    waiting = {}
    pool = ThreadPoolExecutor(jobs)
    try:
        for one, share in zip(found, shares, strict=True):
            result = run.begin(one, share)
            try:  # whatever goes wrong with a submission concerns it alone
                earlier, same = run.before(result, "" if one.bare in named else one.bare)
                run.course.register(one.who, one.assignment)
                released = run.course.released[one.assignment]
                placed = placing.place(one.nb, released)
                run.rows.append(similar.rows(one.who.name, one.assignment, placed.nb, released))
                if same is not None:
                    told = replace(
                        run.course.marked(replace(same, who=result.who)),
                        looks=same.looks,
                        partners=result.partners,
                        notes=(*result.notes, *placed.notes),
                        handed_in=result.handed_in,
                        number=result.number,
                    )
                    reports.replace_file(run.path_of(told), json.dumps(as_json(told), indent=1))
                    run.finish(told, "as before")
                    continue
                result = replace(
                    result,
                    looks=(*result.looks, *placed.looks),
                    notes=(*result.notes, *placed.notes),
                )
                waiting[pool.submit(work, placed, one)] = (result, placed, earlier)
            except Exception as error:
                run.finish(replace(result, refused=broken(error)), "not run")
        for future in as_completed(waiting):
            result, placed, earlier = waiting[future]
            try:
                result = run.judge(result, placed, future.result(), earlier)
                run.settle(result)
            except running.Unready as why:
                sys.exit(str(why))
            except Exception as error:  # the earlier result, and the marks in it, stay
                run.finish(replace(result, refused=broken(error)), "not run")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        while any(future.running() for future in waiting):  # after Ctrl-C
            Sandbox.end_all()
            time.sleep(0.05)
        running.close_all()
        done = run.write()
    return done


# ---------------------------------------------------------------- command line


def parser() -> argparse.ArgumentParser:
    """Return what the command line may say."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("submissions", help="a folder with a folder a student, or a zip of one")
    made.add_argument("--out", default="", help="results' folder; SUBMISSIONS-graded unless given")
    made.add_argument("--only", nargs="*", default=[], help="assignments; all unless given")
    made.add_argument("--roster", default="", help="CSV file with columns name, id, email, group")
    made.add_argument("--course", default="", help="TOML file with due dates; see late.py")
    made.add_argument(
        "--again", nargs="*", default=[], help="STUDENT, STUDENT/ASSIGNMENT or …/ASSIGNMENT#ITEM"
    )
    made.add_argument(
        "--largest", type=int, default=intake.LARGEST, help="MB of a file that is handed in"
    )
    made.add_argument("--unsafe", action="store_true", help="grade without a sandbox")
    made.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    for name, meaning in (
        ("cell", "seconds a cell or test"),
        ("total", "seconds a submission"),
        ("memory", "MB"),
        ("processes", "at a time"),
        ("folder", "MB that may be written"),
    ):
        default = getattr(Limits, name)
        made.add_argument(
            f"--{name}", type=type(default), help=f"{meaning}; {default:g} or the assignment's own"
        )
    return made


def chosen_options(asked: argparse.Namespace, known: list[str]) -> Options:
    """Return the options of a command line, or end with one sentence."""
    own = {name: getattr(asked, name) for name in asdict(Limits())}
    own = {name: value for name, value in own.items() if value is not None}
    for name, value in [*own.items(), ("jobs", asked.jobs), ("largest", asked.largest)]:
        if not value > 0:
            sys.exit(f"--{name} must be above 0, not {value}.")
    try:
        people = tuple(intake.roster(Path(asked.roster))) if asked.roster else ()
        rules = late.read(Path(asked.course), known) if asked.course else late.Rules()
    except ValueError as error:
        sys.exit(str(error))
    return Options(own, asked.largest, people, rules, tuple(asked.again))


def main(arguments: list[str] | None = None) -> None:
    """Check what was asked, then grade."""
    asked = parser().parse_args(arguments)
    folder = Path(asked.submissions)
    is_zip = folder.suffix.lower() == ".zip" and folder.is_file()
    if not asked.submissions or not (folder.is_dir() or is_zip):
        sys.exit(f"SUBMISSIONS must be a folder or a zip; {asked.submissions!r} is none.")
    folder = folder.resolve()
    known = assignments.names()
    unknown = [name for name in asked.only if name not in known]
    if unknown:
        sys.exit(f"There is no assignment {unknown[0]!r}: choose among {', '.join(known)}.")
    options = chosen_options(asked, known)
    out = Path(asked.out).resolve() if asked.out else folder.with_name(f"{folder.stem}-graded")
    if out == folder or folder in out.parents:
        sys.exit(f"The results cannot be kept in {folder}: choose another OUT.")
    if not asked.unsafe:
        for private in (assignments.SOURCE, folder, out):
            seen = [str(path) for path in readable() if path == private or path in private.parents]
            if seen:
                sys.exit(f"Submissions could read {private}, which lies in {seen[0]}: move it.")
        why = unavailable()
        if why:
            sys.exit(
                f"There is no sandbox: {why}. Submissions are programs of others: grade where"
                " bubblewrap works, or say --unsafe (UNSAFE=1) to run them with all your rights."
            )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warnings.filterwarnings("ignore", module="nbgrader")  # on its own database, to its own people
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # a name must not stop a terminal of few letters
    try:
        with house.step(f"Grading {folder}"):
            grade(folder, out, asked.only or known, Limits(), asked.unsafe, asked.jobs, options)
    except KeyboardInterrupt:
        sys.exit(f"Stopped; what is graded is kept in {out}, the same command goes on from there.")
    print(f"Wrote {out / 'grades.csv'} and a page a student in {out / 'reports'}")


if __name__ == "__main__":
    main()
