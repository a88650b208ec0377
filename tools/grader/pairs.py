"""Who shares a submission: groups of the roster, and pairs that a notebook names.

Where an assignment allows pairs, a cell of the notebook says `pair = "Ada Lovelace", "Alan Ko"`.
Nobody gets points by a name that is in doubt: one sentence says what is, and a person decides.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from grader.clean import line
from grader.intake import Class, Submission
from grader.parsing import tree
from grader.results import Student, folded


@dataclass(frozen=True)
class Shared:
    """Who gets a submission's points besides who handed it in, and what is to be said of it."""

    partners: tuple[Student, ...] = ()
    looks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def named(nb: NotebookNode) -> tuple[str, ...]:
    """Return the names that the last cell with a plain `pair = …` gives; () if there are none."""
    found: tuple[str, ...] = ()
    for cell in nb.cells:
        if cell.cell_type != "code" or "pair" not in cell.source or len(cell.source) > 2000:
            continue
        try:
            body = tree(cell.source).body
            values = [
                ast.literal_eval(s.value)
                for s in body
                if isinstance(s, ast.Assign)
                and [t.id for t in s.targets if isinstance(t, ast.Name)] == ["pair"]
            ]
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            continue
        for value in values:
            some = [value] if isinstance(value, str) else value
            if isinstance(some, tuple | list | set):
                found = tuple(line(one, 80) for one in some if isinstance(one, str) and one.strip())
    return found


def meant(label: str, people: Class, known: Iterable[Student]) -> Student | None:
    """Return whom a name means: somebody of the roster, or if there is none, of the submissions.

    None if the roster does not know it, or knows it twice.
    """
    if people.students:
        who, doubts = people.find(label)
        return None if doubts else who
    found = {who for who in known if folded(label) in Class.labels(who)}
    return next(iter(found)) if len(found) == 1 else Student(label)


def declared(one: Submission, people: Class, known: Iterable[Student]) -> Shared:
    """Return what a notebook says of its pair, by itself."""
    names = named(one.nb)
    own = Class.labels(one.who)
    others = [name for name in names if folded(name) not in own]
    told = " and ".join(names)
    if not others:
        return Shared()
    if len(others) == len(names):
        return Shared(looks=(f"its pair is {told}, and neither is {one.who.name}: nobody shares",))
    if len(others) > 1:
        return Shared(looks=(f"its pair is {told}, and a pair is two: nobody shares",))
    who = meant(others[0], people, known)
    if who is None:
        return Shared(looks=(f"{others[0]} of its pair is not clear on the roster: nobody shares",))
    return Shared((who,) if who != one.who else ())


def shared(found: list[Submission], people: Class, allowed: set[str]) -> list[Shared]:
    """Return for each submission who shares it.

    Parameters
    ----------
    found : list of Submission
        All that are to be graded.
    people : Class
        The roster; its groups go before what notebooks say.
    allowed : set of str
        Assignments that take pairs by name.
    """
    handed_in = {(one.who, one.assignment) for one in found}
    known = {one.who for one in found}
    said = [
        declared(one, people, known) if one.assignment in allowed else Shared() for one in found
    ]
    claims: dict[tuple[Student, str], list[Student]] = {}
    for one, own in zip(found, said, strict=True):
        for who in own.partners:
            claims.setdefault((who, one.assignment), []).append(one.who)
    done = []
    for one, own in zip(found, said, strict=True):
        group = people.partners(one.who)
        looks = list(own.looks)
        if group and set(own.partners) - set(group):
            both = ", ".join(who.name for who in group), own.partners[0].name
            looks.append(
                "the roster pairs it with {}, the notebook with {}: the roster counts".format(*both)
            )
        partners, notes = [], []
        for who in group or own.partners:
            rivals = claims.get((who, one.assignment), [])
            if (who, one.assignment) in handed_in:
                how = "of the same group" if group else "of the same pair"
                notes.append(f"{who.name} {how} handed in alone")
            elif not group and len(rivals) > 1:
                all_ = " and ".join(sorted(rival.name for rival in rivals))
                looks.append(f"{who.name} is named as partner by {all_}: nobody shares")
            else:
                partners.append(who)
        done.append(Shared(tuple(partners), tuple(looks), tuple(notes)))
    return done


def with_looks(found: list[Submission], some: list[Shared]) -> list[Submission]:
    """Return the submissions with what a person should look at."""
    return [
        replace(one, looks=(*one.looks, *own.looks)) for one, own in zip(found, some, strict=True)
    ]
