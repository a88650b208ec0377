"""What comes of a submission. All of it is frozen: each stage returns a new value."""

import hashlib
import re
import unicodedata
from dataclasses import asdict, dataclass, field

TO_MARK, PROVISIONAL, UNPLACED = "to mark", "provisional", "unplaced"


def folded(name: str) -> str:
    """Return a name's letters and digits without case and accents, to compare names."""
    apart = unicodedata.normalize("NFKD", name.casefold())
    return "".join(c for c in apart if c.isalnum())


def safe(name: str) -> str:
    """Return an identifier for any name: ASCII letters, digits, dots, dashes, underscores.

    A name that is one already stays as it is; every other gets a piece of its hash, so that two
    names never share an identifier.
    """
    apart = unicodedata.normalize("NFKD", name)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", "".join(c for c in apart if c.isascii())).strip("-.")
    if plain == name != "" and len(name) <= 60 and name != "index":
        return name
    mark = hashlib.sha256(unicodedata.normalize("NFC", name).encode()).hexdigest()[:6]
    return f"{plain[:50]}-{mark}".lstrip("-.")


@dataclass(frozen=True)
class Student:
    """Who handed in.

    Attributes
    ----------
    name : str
        As the roster, the folder or the course system has it.
    id : str
        Of the roster, else "".
    email, group : str
        Of the roster, else "".
    """

    name: str
    id: str = ""
    email: str = ""
    group: str = ""

    @property
    def key(self) -> str:
        """Give the name that folders, pages and the gradebook use."""
        return safe(self.id or self.name)


@dataclass(frozen=True)
class Test:
    """What came of one cell that gives points.

    Attributes
    ----------
    points, auto : float or None
        What counts, and what was found without a person; None if one has to mark it first.
    state : str
        "", TO_MARK; PROVISIONAL, if the mark was given for another text; UNPLACED, if the answer
        may stand elsewhere in the notebook.
    text, marked : str
        Hashes: of the answer as it stands, and of the answer that the mark was given for.
    """

    __test__ = False  # for pytest

    id: str
    of: float
    message: str = ""  # what the student is told; of a test "" means passed
    private: str = ""  # what the instructor may read besides
    points: float | None = None
    by_hand: bool = False  # a person marks it, and the message is this person's comment
    task: str = ""  # the heading that it stands below
    state: str = ""
    text: str = ""
    marked: str = ""
    auto: float | None = None


@dataclass(frozen=True)
class Late:
    """How late a submission is, and what that costs by the course's rules."""

    days: int = 0  # begun after the time it was due
    free: int = 0  # of these, paid with the student's free days
    lost: float = 0.0  # share of the points


@dataclass(frozen=True)
class Result:
    """What came of one submission."""

    who: Student
    assignment: str
    key: str = ""
    refused: str = ""  # not graded, and why
    looks: tuple[str, ...] = ()  # what a person should look at
    notes: tuple[str, ...] = ()  # what is worth knowing and needs nobody
    errors: tuple[str, ...] = ()  # of the student's own cells
    tests: tuple[Test, ...] = ()
    partners: tuple[Student, ...] = ()  # who get the same points
    handed_in: str = ""  # ISO 8601
    number: str = ""  # that the course system gave the student, in this submission's name
    late: Late = field(default_factory=Late)
    seconds: float = 0.0

    @property
    def student(self) -> str:
        """Give the student's name."""
        return self.who.name

    @property
    def status(self) -> str:
        """Say in a few words whether a person has to look."""
        if self.refused:
            return "not graded"
        unsure = any(test.state in (PROVISIONAL, UNPLACED) for test in self.tests)
        return "graded, needs a look" if self.looks or unsure else "graded"

    @property
    def points(self) -> float:
        """Sum the points that are given, before anything is taken off for being late."""
        return sum(test.points or 0 for test in self.tests)

    @property
    def final(self) -> float:
        """Give the points that are left."""
        return self.points * (1 - self.late.lost)

    @property
    def of(self) -> float:
        """Sum what there can be."""
        return sum(test.of for test in self.tests)

    @property
    def open(self) -> float:
        """Sum what is still to be marked, or to be marked again."""
        return sum(test.of for test in self.tests if test.state)


def as_json(result: Result) -> dict:
    """Return a result as JSON can hold it."""
    return asdict(result)


def from_json(data: dict) -> Result:
    """Return the result that :func:`as_json` described; raises TypeError or KeyError if none."""
    given = dict(data)
    given["who"] = Student(**given["who"])
    given["partners"] = tuple(Student(**one) for one in given["partners"])
    given["tests"] = tuple(Test(**one) for one in given["tests"])
    given["late"] = Late(**given["late"])
    for name in ("looks", "notes", "errors"):
        given[name] = tuple(given[name])
    return Result(**given)
