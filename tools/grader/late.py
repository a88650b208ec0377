"""Due dates and late days, by rules that an instructor writes into a file.

free_days = 2                 # that each student may be late in all, at no cost

[A2_ifca]
due = 2027-01-15T23:59:00+01:00
penalty = 10                  # percent of the points for each further day begun
until = 2027-01-25T23:59:00+01:00   # nothing counts that comes later

[A2_ifca.extensions]          # days, for single students
"O'Brien" = 7
"""

import math
import tomllib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from grader.intake import MARKED_LATE
from grader.results import Late, Result, folded

FIELDS = {"due", "penalty", "until", "extensions"}


@dataclass(frozen=True)
class Due:
    """The rules of one assignment."""

    due: datetime
    penalty: float = 0.0
    until: datetime | None = None
    extensions: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """The rules of a course."""

    free_days: int = 0
    due: dict[str, Due] = field(default_factory=dict)


def read(path: Path, known: list[str]) -> Rules:
    """Return the rules of a file; raises ValueError, in one sentence, if there are none in it."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"The course's file {path} cannot be read: {error}") from None
    free = given.pop("free_days", 0)
    if type(free) is not int or free < 0:
        raise ValueError(f"free_days in {path} must be a number of days, not {free!r}.")
    found = {}
    for name, rules in given.items():
        if name not in known or not isinstance(rules, dict):
            raise ValueError(f"{path} speaks of {name!r}: choose among {', '.join(known)}.")
        unknown = set(rules) - FIELDS
        if unknown:
            raise ValueError(
                f"{min(unknown)!r} of {name} in {path} is unknown: choose among"
                f" {', '.join(sorted(FIELDS))}."
            )
        for moment in ("due", "until"):
            if moment in rules and not isinstance(rules[moment], datetime):
                raise ValueError(f"{moment} of {name} in {path} must be a date with a time.")
            if moment in rules and rules[moment].tzinfo is None:
                rules[moment] = rules[moment].astimezone()  # of this machine
        if "due" not in rules:
            raise ValueError(f"{name} in {path} has no `due`.")
        penalty = rules.get("penalty", 0)
        if not isinstance(penalty, int | float) or not 0 <= penalty <= 100:
            raise ValueError(f"penalty of {name} in {path} must be 0 to 100, not {penalty!r}.")
        found[name] = Due(**rules)
    return Rules(free, found)


def applied(results: list[Result], rules: Rules) -> list[Result]:
    """Return the results with what being late costs; nothing is taken off without a note.

    A student's free days are spent on what was due first.
    """
    left: dict[str, int] = {}
    order = sorted(
        (i for i, r in enumerate(results) if r.assignment in rules.due and not r.refused),
        key=lambda i: rules.due[results[i].assignment].due,
    )
    done = list(results)
    for i in order:
        r, rule = results[i], rules.due[results[i].assignment]
        if not r.handed_in:
            note = "when it was handed in is unknown: taken as in time"
            done[i] = replace(r, looks=(*r.looks, note))
            continue
        time = datetime.fromisoformat(r.handed_in)
        extra = {folded(name): days for name, days in rule.extensions.items()}
        own = (folded(label) for label in (r.who.name, r.who.id, r.who.email) if label)
        more = timedelta(days=next((extra[label] for label in own if label in extra), 0))
        days = max(0, math.ceil((time - rule.due - more) / timedelta(days=1)))
        free = min(days, left.setdefault(r.who.key, rules.free_days))
        left[r.who.key] -= free
        lost = min(1.0, (days - free) * rule.penalty / 100)
        notes = r.notes
        if more:
            notes = (*notes, f"extension of {more / timedelta(days=1):g} days")
        if rule.until is not None and time > rule.until + more:
            lost, notes = 1.0, (*notes, "handed in after the last day that counts")
        if days:
            notes = (*notes, f"{days} days late ({time:%Y-%m-%d %H:%M}), {free} of them free")
        elif MARKED_LATE in notes:
            notes = (*notes, f"by the time of its file it is not ({time:%Y-%m-%d %H:%M})")
        if lost:
            notes = (*notes, f"{100 * lost:g} % of the points taken off")
        done[i] = replace(r, late=Late(days, free, lost), notes=notes)
    return done
