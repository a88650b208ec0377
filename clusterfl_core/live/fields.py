"""The table of a laboratory's state: its entries, their limits and what they are called.

A laboratory's module has ``FIELDS``, a dict from the name of an entry to one of these. Python and
the page look at a state by the same table, and the page makes its controls from it.

>>> fields = {"noise": Number("noise", 0, 2, by=0.1), "clients": Whole("clients", 1, 12)}
>>> state(fields, noise=0.5, clients=3)
{'noise': 0.5, 'clients': 3}
>>> state(fields, noise=0.5, clients=13)
Traceback (most recent call last):
...
ValueError: clients must be at most 12, got 13
"""

from dataclasses import asdict, dataclass
from decimal import Decimal

from clusterfl_core import check

__all__ = ["Choice", "Flag", "Number", "Numbers", "Rows", "Whole", "some", "state"]


@dataclass(frozen=True)
class Whole:
    """A whole number from low to high; a slider.

    Parameters
    ----------
    words : str
        What it is called, seen and spoken; of every kind.
    low, high : int
    """

    words: str
    low: int
    high: int

    def checked(self, value):
        """The value, or ValueError."""
        return check.whole(self.words, value, self.low, self.high)

    def table(self):
        """For the page."""
        return {"kind": "whole", **asdict(self), "by": 1}


@dataclass(frozen=True)
class Number:
    """A number from low to high; a slider that moves by steps of ``by`` and shows its decimals."""

    words: str
    low: float
    high: float
    by: float

    def checked(self, value):
        """The value, or ValueError."""
        return check.number(self.words, value, f"[{self.low}, {self.high}]")

    def table(self):
        """For the page."""
        return {"kind": "number", **asdict(self), "count": _decimals(self.by)}


@dataclass(frozen=True)
class Choice:
    """One of several texts; options: (value, how it is shown) of each."""

    words: str
    options: tuple

    def checked(self, value):
        """The value, or ValueError."""
        check.one_of(self.words, value, *(name for name, _ in self.options))
        return value

    def table(self):
        """For the page."""
        return {"kind": "choice", **asdict(self)}


@dataclass(frozen=True)
class Flag:
    """True or false; a box to tick."""

    words: str

    def checked(self, value):
        """The value, or ValueError."""
        check.one_of(self.words, value, True, False)
        return bool(value)

    def table(self):
        """For the page."""
        return {"kind": "flag", **asdict(self)}


@dataclass(frozen=True)
class Numbers:
    """A list of ``least`` to ``most`` numbers from low to high, whole or not.

    With a step ``by``, a slider for the one of them that the laboratory names.
    """

    words: str
    least: int
    most: int
    low: float
    high: float
    whole: bool = False
    by: float = 1

    def checked(self, value):
        """The value as a list, or ValueError."""
        found = check.items(self.words, value, 0)
        if not self.least <= len(found) <= self.most:
            limits = f"{self.least} to {self.most} numbers"
            raise ValueError(f"{self.words} must be a list of {limits}, got {len(found)}")
        if self.whole:
            return [check.whole(self.words, one, self.low, self.high) for one in found]
        return [check.number(self.words, one, f"[{self.low}, {self.high}]") for one in found]

    def table(self):
        """For the page."""
        return {"kind": "list", **asdict(self), "count": _decimals(self.by)}


@dataclass(frozen=True)
class Rows:
    """``least`` to ``most`` rows of ``width`` numbers from low to high; no control."""

    words: str
    least: int
    most: int
    width: int
    low: float
    high: float

    def checked(self, value):
        """The value as a list of lists, or ValueError."""
        wanted = f"{self.words} must be {self.least} to {self.most} rows of {self.width} numbers"
        try:
            found = [list(row) for row in value]
        except TypeError:
            raise ValueError(f"{wanted}, got {check.shown(value)}") from None
        right = all(len(row) == self.width for row in found)
        if not (self.least <= len(found) <= self.most and right):
            raise ValueError(f"{wanted}, got {check.shown(found)}")
        limits = f"[{self.low}, {self.high}]"
        return [[check.number(self.words, one, limits) for one in row] for row in found]

    def table(self):
        """For the page."""
        return {"kind": "rows", **asdict(self)}


def _decimals(by):
    return max(0, -Decimal(str(by)).as_tuple().exponent)


def state(fields, **given):
    """What a laboratory begins with, looked at entry by entry."""
    if set(given) != set(fields):
        raise TypeError(f"a state needs {', '.join(fields)}, got {', '.join(given)}")
    return some(fields, **given)


def some(fields, **given):
    """Some entries of a state, looked at one by one."""
    return {name: fields[name].checked(value) for name, value in given.items()}
