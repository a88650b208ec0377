"""What was handed in: files in folders, zips, Canvas's and Moodle's downloads; bounded, never run.

Each file becomes an `Entry`, whose parts tell the student; a notebook tells by its cells which
assignment it is. What cannot be read costs a line of its own student and nothing else.
"""

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import re
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

from grader.clean import line, text
from grader.results import Result, Student, folded

MB = 1 << 20
LARGEST = 100  # MB of one file as it is handed in
SOURCES = 2 * MB  # characters that all cells of a notebook may have, outputs not counted
CELLS = 2000  # of a notebook
VALUES = 3_000_000  # commas, brackets and braces in a notebook, which bound what reading it costs
FILES = 20_000  # looked at in all
MARKED_LATE = "the course system marked it as late"
DEPTH = 5  # folders and zips in each other
BESIDE = 50  # files of a student's own that a project takes along
UNPACKED = 10  # times the largest file: what one student's zips may unpack to
KNOWN_FORMAT = (nbformat.v4.nbformat, nbformat.v4.nbformat_minor)
JUNK = {"__macosx", "thumbs.db", "desktop.ini", "__pycache__"}
MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_(?P<kind>[a-z]+)_?(?P<file>.*)")
CANVAS = re.compile(
    r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<number>\d+)_(?P<file>.+)", re.DOTALL
)
AGAIN = re.compile(r"(?:[ _]*\(\d+\)|-\d+|[ _-]+(?:copy|kopie|copia|final|v\d+))+$", re.IGNORECASE)
NUMBERED = re.compile(r"-\d{1,4}(?=\.\w+$)")  # by Canvas, if it is handed in once more


class Refused(Exception):
    """A file that cannot be graded; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A file that was handed in.

    Attributes
    ----------
    parts : tuple of str
        Its path below the folder of submissions, names in readable form.
    size : int
        Bytes.
    time : datetime or None
        When it was last changed, as far as its folder or zip says.
    read : function
        Returns its bytes; raises Refused.
    wrong : str
        Why it cannot be read; "" if it may be.
    """

    parts: tuple[str, ...]
    size: int = 0
    time: datetime | None = None
    read: Callable[[], bytes] = lambda: b""
    wrong: str = ""


@dataclass(frozen=True)
class Submission:
    """A notebook that can be graded.

    Attributes
    ----------
    files : dict of str to bytes
        What was handed in beside it.
    digest : str
        Of the notebook's bytes and those of the files.
    bare : str
        The identifier of who handed in as it is without a roster.
    """

    who: Student
    assignment: str
    nb: NotebookNode
    digest: str
    time: datetime | None = None
    order: tuple = ()
    name: str = ""
    number: str = ""
    looks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    bare: str = ""


# ---------------------------------------------------------------- files


def readable_name(name: str) -> str:
    """Return a file's name as its writer saw it: UTF-8, else Windows' Latin letters."""
    raw = os.fsencode(name)
    try:
        given = raw.decode("utf-8")
    except UnicodeDecodeError:
        given = raw.decode("cp1252", "replace")
    return unicodedata.normalize("NFC", line(given)) or "?"


def junk(name: str) -> bool:
    """Return whether a name is one that computers leave behind."""
    return name.startswith(".") or name.casefold() in JUNK or name.endswith("~")


def entries(root: Path, largest: int) -> Iterator[Entry]:
    """Give every file below a folder, or in a zip; at most `FILES` of them."""
    spent: Counter[str] = Counter()
    start = inside if root.is_dir() else zipped
    found = start(root, (), largest, 0, spent)
    for count, entry in enumerate(found):
        if count == FILES:
            yield Entry(
                ("…",), wrong=f"there are more than {FILES} files: what follows is left out"
            )
            return
        yield entry


def inside(
    folder: Path, parts: tuple[str, ...], largest: int, depth: int, spent: Counter[str]
) -> Iterator[Entry]:
    """Give the files of a folder and of what lies in it."""
    try:
        with os.scandir(folder) as found:
            names = sorted((one.name for one in found), key=os.fsencode)
    except OSError as error:
        yield Entry((*parts, "-"), wrong=f"its folder cannot be read: {error.strerror}")
        return
    empty = True
    for name in names:
        if junk(name):
            continue
        empty = False
        path, here = folder / name, (*parts, readable_name(name))
        try:
            status = path.lstat()
        except OSError as error:
            yield Entry(here, wrong=f"it cannot be read: {error.strerror}")
            continue
        time = datetime.fromtimestamp(max(0, min(status.st_mtime, 4e9)), UTC)
        if stat.S_ISDIR(status.st_mode):
            if depth == DEPTH:
                yield Entry(here, wrong=f"it lies deeper than {DEPTH} folders")
            else:
                yield from inside(path, here, largest, depth + 1, spent)
        elif not stat.S_ISREG(status.st_mode):
            yield Entry(here, wrong="it is no file: a notebook is expected")
        elif name.lower().endswith(".zip"):
            yield from zipped(path, here, largest, depth + 1, spent)
        else:
            yield Entry(here, status.st_size, time, lambda p=path: content(p, largest))
    if empty and len(parts) == 1:
        yield Entry((*parts, "-"), wrong="nothing was handed in")


def content(path: Path, largest: int) -> bytes:
    """Return a regular file's bytes, at most `largest` MB; a link or a pipe is refused."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise Refused("it is no file: a notebook is expected")
            return bounded(file, largest)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise Refused(f"it cannot be read: {why}") from None


def bounded(file: io.BufferedIOBase, largest: int) -> bytes:
    """Return what is in a file, if it is not too much."""
    found = file.read(largest * MB + 1)
    if len(found) > largest * MB:
        raise Refused(f"it is larger than {largest} MB (--largest sets another limit)")
    return found


def zipped(
    source: Path | bytes,
    parts: tuple[str, ...],
    largest: int,
    depth: int,
    spent: Counter[str],
) -> Iterator[Entry]:
    """Give the files of a zip and of zips in it; nothing is unpacked before it is read.

    `spent` counts the bytes that the zips of each student unpack to. A zip says them beforehand,
    and no more than it says is ever unpacked.
    """
    if depth > DEPTH:
        yield Entry(parts, wrong=f"it lies in more than {DEPTH} folders and zips")
        return
    try:
        pack = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
        members = pack.infolist()
    except Exception:  # a zip can be wrong in many ways
        yield Entry(parts or ("-",), wrong="it is no zip that can be read")
        return
    if len(members) > FILES:
        yield Entry(parts or ("-",), wrong=f"it has more than {FILES} files")
        return
    for member in members:
        name = member.filename
        if not member.flag_bits & 0x800:  # not marked as UTF-8
            with contextlib.suppress(UnicodeError):
                name = os.fsdecode(name.encode("cp437"))
        below = [piece for piece in name.replace("\\", "/").split("/") if piece not in ("", ".")]
        if member.is_dir() or not below or any(junk(p) and p != ".." for p in below):
            continue
        here = (*parts, *(readable_name(piece) for piece in below))
        year = (*member.date_time[:5], min(member.date_time[5], 59))
        try:
            time = datetime(*year).astimezone()
        except (ValueError, OverflowError, OSError):
            time = None
        spent[here[0]] += member.file_size
        if spent[here[0]] > UNPACKED * largest * MB:
            yield Entry(here, wrong=f"its zips unpack to more than {UNPACKED * largest} MB")
            return
        read = lambda m=member: from_zip(pack, m, largest)  # noqa: E731
        if len(below) > DEPTH or ".." in below:
            yield Entry(here, wrong="its place in the zip is none that a student's file has")
        elif below[-1].lower().endswith(".zip"):
            try:
                inner = read()
            except Refused as why:
                yield Entry(here, wrong=str(why))
            else:
                yield from zipped(inner, here, largest, depth + 1, spent)
        else:
            yield Entry(here, member.file_size, time, read)


def from_zip(pack: zipfile.ZipFile, member: zipfile.ZipInfo, largest: int) -> bytes:
    """Return the bytes of a zip's file, no more than may be."""
    try:
        with pack.open(member) as file:
            return bounded(file, largest)
    except Refused:
        raise
    except Exception as error:  # damaged, encrypted, packed in an unknown way
        raise Refused(f"it cannot be taken out of its zip: {line(error, 100)}") from None


# ---------------------------------------------------------------- notebooks


def parse(data: bytes) -> tuple[NotebookNode, tuple[str, ...]]:
    """Return a notebook's cells in a fresh one, and what a person should look at.

    Only the type, id, text and nbgrader's name of cells are taken over. What it costs is bounded
    before it is read.
    """
    values = sum(data.count(mark) for mark in (b",", b"[", b"{"))
    if values > VALUES or data.count(b"cell_type") > 2 * CELLS:
        raise Refused(f"it has more than {CELLS} cells, or too much in their outputs: clear them")
    try:
        raw = json.loads(data)
        version = (raw["nbformat"], raw.get("nbformat_minor", 0))
        if not all(type(number) is int and 0 <= number < 10_000 for number in version):
            raise TypeError
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, MemoryError):
        raise Refused("it is no notebook: it cannot be read as one") from None
    written, known = "{}.{}".format(*version), "{}.{}".format(*KNOWN_FORMAT)
    if version[0] > KNOWN_FORMAT[0]:
        raise Refused(
            f"it is a notebook of format {written}; this grader reads formats up to {known}:"
            " save it in such a format, or grade with newer packages"
        )
    newer = f"it is of format {written}, newer than {known}, and was read as {known}"
    looks = (newer,) if version > KNOWN_FORMAT else ()
    try:
        if version[0] < 4:
            raw = nbformat.convert(nbformat.from_dict(raw), 4)
        cells = [fresh(cell) for cell in raw["cells"]]
    except Exception:  # a notebook can be wrong in many ways
        raise Refused("it is no notebook: its cells cannot be read") from None
    if len(cells) > CELLS:
        raise Refused(f"it has {len(cells)} cells; {CELLS} may be there")
    if sum(len(cell.source) for cell in cells) > SOURCES:
        raise Refused(f"its cells have more than {SOURCES} characters")
    return new_notebook(cells=cells), looks


def fresh(cell: dict) -> NotebookNode:
    """Return a cell with only what grading needs."""
    make = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}
    source = cell["source"]
    new = make[cell["cell_type"]](source if isinstance(source, str) else "".join(source))
    new.source = text(new.source, SOURCES + 1)
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", str(cell.get("id", ""))):
        new.id = str(cell["id"])
    metadata = cell.get("metadata")
    data = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    if isinstance(data, dict) and isinstance(data.get("grade_id"), str):
        new.metadata.nbgrader = {"grade_id": line(data["grade_id"], 60)}
    return new


def names_in(nb: NotebookNode) -> set[str]:
    """Return the names that nbgrader gave to cells."""
    return {c.metadata.nbgrader.grade_id for c in nb.cells if "nbgrader" in c.metadata}


def which(nb: NotebookNode, name: str, known: dict[str, list[NotebookNode]]) -> str:
    """Return the assignment that a notebook is, "" if it cannot be told.

    The names of its cells tell; if they are lost, its file name; if that too, the texts of cells.

    Parameters
    ----------
    nb : NotebookNode
        The notebook.
    name : str
        Its file's name.
    known : dict
        For each assignment its cells.
    """
    own, texts = names_in(nb), {cell.source.strip() for cell in nb.cells}

    def marked(cells: list[NotebookNode]) -> int:
        return len(own & {c.metadata.nbgrader.grade_id for c in cells if "nbgrader" in c.metadata})

    def same(cells: list[NotebookNode]) -> int:
        return len(texts & {c.source.strip() for c in cells if len(c.source.strip()) > 20})

    for count in (marked, None, same):
        if count is None:
            found = named(name, list(known))
            if found:
                return found
            continue
        counts = sorted(((count(cells), one) for one, cells in known.items()), reverse=True)
        if counts[0][0] and (len(counts) == 1 or counts[0][0] > counts[1][0]):
            return counts[0][1]
    return ""


def named(name: str, known: list[str]) -> str:
    """Return the assignment that a file's name says, in whatever writing; "" if none or several."""
    stem = AGAIN.sub("", re.sub(r"\.ipynb$", "", name, flags=re.IGNORECASE))
    given = folded(stem)
    found = [one for one in known if folded(one) == given] or [
        one for one in known if folded(one) in given or folded(one.split("_")[0]) == given
    ]
    return found[0] if len(found) == 1 else ""


# ---------------------------------------------------------------- students


def roster(path: Path) -> list[Student]:
    """Return the students of a CSV file with a column `name`, and `id`, `email`, `group` if known.

    Raises
    ------
    ValueError
        If the file cannot be read as one, or names somebody twice; the message says where.
    """
    try:
        content = path.read_bytes()
        try:
            decoded = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            decoded = content.decode("cp1252")
        dialect = csv.excel
        dialect = (
            type("dialect", (dialect,), {"delimiter": ";"}) if semicolons(decoded) else dialect
        )
        rows = list(csv.DictReader(io.StringIO(decoded), dialect=dialect))
    except (OSError, UnicodeError, csv.Error) as error:
        raise ValueError(f"The roster {path} cannot be read: {line(error)}") from None
    found, seen = [], set()
    for number, row in enumerate(rows, 2):
        given = {
            str(column).strip().lower(): unicodedata.normalize("NFC", line(value))
            for column, value in row.items()
            if isinstance(value, str)
        }
        if not given.get("name"):
            raise ValueError(f"Line {number} of the roster {path} has no `name`.")
        student = Student(*(given.get(field, "") for field in ("name", "id", "email", "group")))
        if student.key in seen:
            raise ValueError(f"Line {number} of the roster {path} has {student.key} again.")
        seen.add(student.key)
        found.append(student)
    if not found:
        raise ValueError(f"The roster {path} names nobody.")
    return found


def semicolons(decoded: str) -> bool:
    """Return whether a table is one of a spreadsheet that writes semicolons for commas."""
    head = decoded.split("\n", 1)[0]
    return head.count(";") > head.count(",")


class Class:
    """Who is who: labels of folders and files, looked up on the roster if there is one."""

    def __init__(self, students: Iterable[Student] = ()):
        self.students = list(students)
        self.by_label: dict[str, set[Student]] = {}
        for student in self.students:
            for label in self.labels(student):
                self.by_label.setdefault(label, set()).add(student)

    @staticmethod
    def labels(student: Student) -> set[str]:
        """Return the ways in which a folder may name a student."""
        words = re.split(r"[\s,]+", student.name)
        last, comma, first = student.name.partition(",")
        ways = {student.name, student.id, student.email, student.email.split("@")[0]}
        ways |= {first + last} if comma else {"".join(words[-1:] + words[:-1])}
        return {folded(way) for way in ways} - {""}

    def find(self, label: str, number: str = "") -> tuple[Student, tuple[str, ...]]:
        """Return the student whom a label names, and what a person should look at."""
        label = re.sub(r"[\s_-]*\(?late\)?$", "", label, flags=re.IGNORECASE) or label
        if not self.students:
            return Student(label), ()
        for given in (number, label):
            found = self.by_label.get(folded(given), set()) if given else set()
            if len(found) == 1:
                return next(iter(found)), ()
            if len(found) > 1:
                return Student(label), (f"{label} may be {len(found)} people of the roster",)
        return Student(label), (f"{label} is not on the roster",)

    def partners(self, student: Student) -> tuple[Student, ...]:
        """Return who shares a group, and so a submission, with a student."""
        if not student.group:
            return ()
        return tuple(s for s in self.students if s.group == student.group and s != student)


@dataclass(frozen=True)
class Place:
    """What the path of a file says.

    Attributes
    ----------
    label, number : str
        Who handed it in: a name, and the number that the course system put beside it.
    fixed : bool
        Whether the number is this person's in every assignment (Canvas; Moodle gives new ones).
    file : str
        Its own name.
    """

    label: str
    file: str
    number: str = ""
    fixed: bool = False
    late: bool = False
    order: tuple[int, ...] = ()


def place(parts: tuple[str, ...]) -> Place | None:
    """Return what a path says, None if it names no student."""
    first, last = parts[0], parts[-1]
    moodle = MOODLE.fullmatch(first)
    if moodle:
        file = last if len(parts) > 1 else moodle["file"]
        label = moodle["name"].strip()
        if folded(label) == "participant":  # marked blind
            return Place(f"{label} {moodle['id']}", file, moodle["id"], order=again(file))
        return Place(label, file, moodle["id"], order=again(file))
    canvas = CANVAS.fullmatch(first)
    if canvas and "." in canvas["file"]:
        file = last if len(parts) > 1 else canvas["file"]
        order = (int(canvas["number"][:18]), *again(canvas["file"]))
        return Place(canvas["name"], file, canvas["id"], True, bool(canvas["late"]), order)
    if len(parts) > 1 or first.lower().endswith(".zip"):
        label = re.sub(r"\.zip$", "", first, flags=re.IGNORECASE) or first
        return Place(label, last, order=again(last))
    return None


def again(name: str) -> tuple[int, ...]:
    """Return the number that a second upload or download of a file gets."""
    found = re.search(r"(?:-| \()(\d{1,6})\)?\.\w+$", name)
    return (int(found[1]),) if found else (0,)


# ---------------------------------------------------------------- all of it


def collect(
    root: Path,
    known: dict[str, list[NotebookNode]],
    chosen: list[str],
    people: Class,
    largest: int = LARGEST,
    data: dict[str, int] | None = None,
) -> tuple[list[Submission], list[Result]]:
    """Return the submissions of a folder or zip, and for everything else why it is none.

    Parameters
    ----------
    root : Path
        The folder or zip.
    known : dict
        The cells of each assignment there is.
    chosen : list of str
        The assignments that are to be graded; notebooks of others are passed over.
    people : Class
        The roster.
    largest : int
        MB that one file may have.
    data : dict of str to int
        For assignments that take files beside the notebook, how many MB.
    """
    found: dict[tuple[str, str], list[Submission]] = {}
    wrong, beside, renamed = [], {}, {}
    spots = [(entry, place(entry.parts)) for entry in entries(root, largest)]
    numbers: dict[str, set[str]] = {}
    for _, spot in spots:
        if spot is not None and spot.fixed:
            numbers.setdefault(spot.label, set()).add(spot.number)
    for entry, spot in spots:
        if spot is None:
            where = readable_name(root.name)
            why = entry.wrong or f"it lies loose in {where}: put it in a student's folder"
            wrong.append(Result(Student(""), entry.parts[-1], refused=why))
            continue
        who, looks = people.find(spot.label, spot.number)
        if who.name == spot.label and len(numbers.get(spot.label, ())) > 1:
            who = numbered(who, spot.number)
        try:
            if entry.wrong:
                raise Refused(entry.wrong)
            if not spot.file.lower().endswith((".ipynb", ".json")):
                beside.setdefault(who, {})[spot.file] = entry
                if spot.fixed and NUMBERED.search(spot.file):
                    own = NUMBERED.sub("", spot.file)
                    renamed.setdefault((who, own), []).append(entry)
                continue
            content = entry.read()
            nb, seen = parse(content)
            name = which(nb, spot.file, known)
            if not name:
                raise Refused(f"it is none of {', '.join(known)}: neither cells nor name say so")
            if name not in chosen:
                continue
        except Refused as why:
            if spot.file.lower().endswith(".json") and not entry.wrong:
                beside.setdefault(who, {})[spot.file] = entry  # data of the student's own
            else:
                wrong.append(Result(who, spot.file, refused=str(why)))
            continue
        said = named(spot.file, list(known))
        if said and said != name:
            looks = (*looks, f"its file is called {spot.file}, its cells are those of {name}")
        one = Submission(
            who,
            name,
            nb,
            hashlib.sha256(content).hexdigest(),
            entry.time,
            spot.order,
            "/".join(entry.parts),
            spot.number,
            looks + seen,
            (MARKED_LATE,) if spot.late else (),
            bare=Class().find(spot.label)[0].key,
        )
        found.setdefault((who.key, name), []).append(one)
    for (who, own), some in renamed.items():  # the student's code asks for its own name
        if len(some) == 1:
            beside[who].setdefault(own, some[0])
    apart = [group for same in found.values() for group in people_apart(same)]
    return with_files([latest(same) for same in apart], wrong, beside, data or {})


def numbered(who: Student, number: str) -> Student:
    """Return a student who shares the name with somebody, told apart by the number."""
    return replace(who, name=f"{who.name} ({number})")


def people_apart(same: list[Submission]) -> list[list[Submission]]:
    """Return the submissions of an assignment under one name, those of different people apart."""
    numbers = {one.number for one in same if one.number}
    if len(numbers) < 2 or any(one.who.id for one in same):
        return [same]
    groups: dict[str, list[Submission]] = {}
    for one in same:
        who = numbered(one.who, one.number) if one.number else one.who
        groups.setdefault(one.number, []).append(replace(one, who=who))
    return list(groups.values())


def latest(same: list[Submission]) -> Submission:
    """Return the last of one student's submissions of an assignment, and say what there was."""
    first = datetime.min.replace(tzinfo=UTC)
    same = sorted(same, key=lambda s: (s.order, s.time or first, s.name))
    last = same[-1]
    if len(same) == 1 or all(one.digest == last.digest for one in same):
        return last
    others = ", ".join(one.name for one in same[:-1])
    say = f"{len(same)} were handed in; {last.name} is the latest and counts, not {line(others)}"
    return replace(last, notes=(*last.notes, say))


def with_files(
    chosen: list[Submission], wrong: list[Result], beside: dict, data: dict[str, int]
) -> tuple[list[Submission], list[Result]]:
    """Give submissions the files that lie beside them, or say that these are left out."""
    done, owners = [], set()
    for one in chosen:
        entries = beside.get(one.who, {})
        owners.add(one.who)
        files, most, taken = {}, data.get(one.assignment, 0) * MB, []
        left = dict(entries)
        for name, entry in sorted(entries.items()):
            twice = entry in taken
            fits = (twice or entry.size <= most) and len(files) < BESIDE
            if fits and re.fullmatch(r"[\w][\w .()+-]{0,80}", name):
                with contextlib.suppress(Refused):
                    files[name] = entry.read()
                    most -= 0 if twice else len(files[name])
                    taken.append(entry)
                    del left[name]
        digest = hashlib.sha256(one.digest.encode())
        for name, content in files.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        notes = one.notes + ((f"left out: {line(', '.join(left))}",) if left else ())
        done.append(replace(one, files=files, digest=digest.hexdigest(), notes=notes))
    for who, entries in beside.items():
        if who not in owners:
            wrong += [Result(who, name, refused="it is no notebook: left out") for name in entries]
    return sorted(done, key=lambda s: (s.who.key, s.assignment)), wrong
