"""What is written for people: tables for the instructor, pages for students."""

import csv
import html
import io
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from grader.clean import line
from grader.results import PROVISIONAL, TO_MARK, UNPLACED, Result, Student, Test
from grader.similar import Pair

STATES = {
    TO_MARK: "to be marked",
    PROVISIONAL: "provisional: the answer changed after it was marked",
    UNPLACED: "unplaced: a person will look for the answer",
}
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: auto; padding: 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem; border-bottom: 1px solid #8888 }}
td, li {{ overflow-wrap: anywhere; white-space: pre-line }}
td:nth-child(-n+2) {{ min-width: 4.8rem }}
tr.task td {{ font-weight: 600; padding-top: 1rem }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def number(value: float) -> str:
    """Return points without needless zeros."""
    return f"{round(value, 3):g}"


def plain(given: str) -> str:
    """Return a text in one line that no spreadsheet takes for a formula."""
    given = line(given, 3000)
    return f"'{given}" if given.startswith(tuple("=+-@")) and given != "-" else given


def replace_file(path: Path, content: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(content, encoding="utf-8", errors="replace", newline="")
    new.replace(path)


def table(path: Path, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(head)
    writer.writerows(rows)
    replace_file(path, out.getvalue())


def each(results: Iterable[Result]) -> list[tuple[Student, Result]]:
    """Return everybody who gets a result's points: who handed in, and partners."""
    return [(who, r) for r in results for who in (r.who, *r.partners)]


def notes(who: Student, r: Result) -> list[str]:
    """Return what a person should know of a submission."""
    others = [one.name for one in (r.who, *r.partners) if one != who]
    waits = [
        f"{t.task or t.id}: {STATES[t.state]}" for t in r.tests if t.state not in ("", TO_MARK)
    ]
    together = [f"together with {', '.join(others)}"] if others else []
    return [*([r.refused] if r.refused else []), *r.looks, *waits, *r.notes, *together]


def by_task(r: Result) -> list[tuple[str, list[tuple[str, Test]]]]:
    """Return a result's tests below the headings of their tasks, each with its short name."""
    parts = [(*(t.task or t.id).rpartition(", ")[::2], t) for t in r.tests]
    grouped = groupby(parts, key=lambda part: part[0])
    return [(task, [(short, test) for _, short, test in some]) for task, some in grouped]


def write_tables(folder: Path, results: list[Result], alike: list[Pair]) -> None:
    """Write the tables.

    grades.csv has a row a submission, tests.csv a row a test, similar.csv a row for each pair of
    submissions that are much alike.
    """
    head = ["student", "id", "assignment", "points", "of", "to mark", "late days", "taken off"]
    rows = []
    for who, r in each(results):
        marks = [number(r.final), number(r.of), number(r.open)] if not r.refused else ["", "", ""]
        late = [str(r.late.days), number(r.points - r.final)] if r.tests else ["", ""]
        names = [plain(who.name), plain(who.id), plain(r.assignment)]
        rows.append([*names, *marks, *late, r.status, plain("; ".join(notes(who, r)))])
    table(folder / "grades.csv", [*head, "status", "notes"], rows)

    head = ["student", "id", "assignment", "test", "task", "points", "of", "state", "told", "error"]
    rows = []
    for who, r in each(results):
        for t in r.tests:
            names = [plain(who.name), plain(who.id), plain(r.assignment), t.id, plain(t.task)]
            got = "" if t.points is None else number(t.points)
            rows.append([*names, got, number(t.of), t.state, plain(t.message), plain(t.private)])
    table(folder / "tests.csv", head, rows)
    write_systems(folder, results)
    head = ["assignment", "one", "other", "code alike", "text alike"]
    rows = [
        [p.assignment, plain(p.one), plain(p.other), f"{p.code:.2f}", f"{p.text:.2f}"]
        for p in alike
    ]
    table(folder / "similar.csv", head, rows)


def write_systems(folder: Path, results: list[Result]) -> None:
    """Write the grades as Canvas and Moodle take them: points that are final, else no number.

    canvas.csv is for Canvas's gradebook, moodle-ASSIGNMENT.csv a grading worksheet of Moodle's.
    """
    names = sorted({r.assignment for r in results if r.tests})
    of = {r.assignment: r.of for r in results if r.tests}
    grades: dict[Student, dict[str, str]] = {}
    numbers: dict[tuple[Student, str], str] = {}
    for who, r in each(results):
        own = grades.setdefault(who, {}) if who.name else {}
        if r.tests:
            own[r.assignment] = "" if r.open else number(r.final)
        if who == r.who:
            numbers[who, r.assignment] = r.number
    people = sorted(grades, key=lambda who: who.key)

    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *names]
    rows = [["    Points Possible", "", "", "", "", *(number(of[name]) for name in names)]]
    for who in people:
        canvas = next((numbers[who, n] for n in names if numbers.get((who, n))), "")
        first = [plain(who.name), canvas, plain(who.id), plain(who.email), ""]
        rows.append([*first, *(grades[who].get(name, "") for name in names)])
    table(folder / "canvas.csv", head, rows)

    head = ["Identifier", "Full name", "ID number", "Email address", "Grade", "Maximum Grade"]
    for name in names:
        rows = []
        for who in people:
            participant = numbers.get((who, name), "")
            first = f"Participant {participant}" if participant else ""
            told = [plain(who.name), plain(who.id), plain(who.email)]
            rows.append([first, *told, grades[who].get(name, ""), number(of[name])])
        table(folder / f"moodle-{name}.csv", head, rows)


def got(t: Test) -> tuple[str, str]:
    """Return the points of a test, and what there is to say of them."""
    points = f"{'–' if t.points is None else number(t.points)} of {number(t.of)}"
    told = [STATES[t.state]] if t.state else []
    passed = "" if t.by_hand else "passed"
    return points, "\n".join([*told, *([t.message] if t.message else [])]) or passed


def page(who: Student, results: list[Result]) -> str:
    """Return the page of one student: points of each task, and what was wrong."""
    safe = lambda given: html.escape(str(given))  # noqa: E731
    parts = []
    for r in results:
        parts.append(f"<h2>{safe(r.assignment)}</h2>")
        if r.refused:
            parts.append(f"<p><strong>Not graded</strong>: {safe(r.refused)}.</p>")
            continue
        waits = f"; {number(r.open)} of these are still to be marked by hand" if r.open else ""
        parts.append(f"<p><strong>{number(r.final)} of {number(r.of)} points</strong>{waits}.</p>")
        for words, some in (
            ("A person will look at this:", r.looks),
            ("Please note:", [n for n in notes(who, r) if n not in r.looks]),
        ):
            if some:
                rows = "".join(f"<li>{safe(one)}</li>" for one in some)
                parts.append(f"<p>{words}</p><ul>{rows}</ul>")
        rows = []
        for task, tests in by_task(r):
            points, of = sum(t.points or 0 for _, t in tests), sum(t.of for _, t in tests)
            if task:
                total = f"{safe(task)}: {number(points)} of {number(of)}"
                rows.append(f'<tr class="task"><td colspan="3">{total}</td></tr>')
            for short, t in tests:
                cells = "".join(f"<td>{safe(one)}</td>" for one in (short, *got(t)))
                rows.append(f"<tr>{cells}</tr>")
        head = "<tr><th>Task</th><th>Points</th><th>What was found</th></tr>"
        parts.append(f"<table>{head}{''.join(rows)}</table>")
        if r.errors:
            rows = "".join(f"<li>{safe(error)}</li>" for error in r.errors)
            parts.append(f"<p>Errors in your own cells:</p><ul>{rows}</ul>")
    return PAGE.format(title=safe(who.name), body="\n".join(parts))


def write_pages(folder: Path, results: list[Result]) -> None:
    """Write the page of each student, and one that leads to them, where they changed."""
    (folder / "reports").mkdir(exist_ok=True)
    own: dict[Student, list[Result]] = {}
    for who, r in each(results):
        if who.name:
            own.setdefault(who, []).append(r)
    pages = {who.key: page(who, some) for who, some in own.items()}
    pages["index"] = overview(own)
    for name, content in pages.items():
        path = folder / "reports" / f"{name}.html"
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != content:
            replace_file(path, content)


def overview(own: dict[Student, list[Result]]) -> str:
    """Return the instructor's page that leads to all others."""
    rows = []
    for who in sorted(own, key=lambda who: (who.name, who.key)):
        for r in own[who]:
            points = f"{number(r.final)} of {number(r.of)}" if r.tests else ""
            points += f", {number(r.open)} to mark" if r.open else ""
            cells = [html.escape(one) for one in (r.assignment, points, r.status)]
            link = f'<a href="{who.key}.html">{html.escape(who.name)}</a>'
            rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in (link, *cells))}</tr>")
    head = "<tr><th>Student</th><th>Assignment</th><th>Points</th><th>Status</th></tr>"
    return PAGE.format(title="All submissions", body=f"<table>{head}{''.join(rows)}</table>")
