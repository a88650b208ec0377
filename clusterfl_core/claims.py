"""The ledger: what papers claim, what was done about it, and the stored runs that speak to it.

A ledger is a folder of TOML files, one a paper. It travels with the package as the stored runs do.
Numbers of one's own never stand in it: it names an experiment, a filter and a quantity, and
:func:`runs` finds the records.

>>> records = [{"settings": {"k": 2}, "seed": seed} for seed in range(3)]
>>> number = {"experiment": "06_table1", "where": {"k": [2, 4]}, "seeds": [0, 2]}
>>> [record["seed"] for record in runs(number, stored=lambda experiment: records)]
[0, 2]
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from clusterfl_core import check, results

__all__ = ["VERDICTS", "Ledger", "folder", "ledger", "runs", "unclaimed"]

VERDICTS = ("holds", "smaller", "in part", "not here", "undecided")
SHIPPED = "clusterfl_core.ledger"


class Ledger(NamedTuple):
    """All claims by paper, and what surrounds them.

    ``papers`` maps a paper's key to its dict: ``name``, ``title``, ``authors``, ``address``,
    ``claim`` and ``erratum``, two lists of dicts, and for a second version ``same``, its places
    that say what a claim of the first says. ``programs`` has ``defect`` and ``right``; ``own``
    maps experiments that answer no claim to the question that they do answer.
    """

    papers: dict
    programs: dict
    own: dict


def folder() -> Path:
    """Where the ledger lies: in the checkout of the book if there is one, else in the package."""
    copy = results.PACKAGE / SHIPPED.split(".")[1]
    own = copy if copy.is_dir() else results._checkout(results.PACKAGE, SHIPPED)
    found = results._checkout(Path.cwd(), SHIPPED) or own
    if found is None or not found.is_dir():
        raise FileNotFoundError("the ledger of claims is not there: install the package anew")
    return found


def ledger() -> Ledger:
    """Read the ledger.

    Returns
    -------
    Ledger

    Raises
    ------
    FileNotFoundError
        If the package came without it.
    ValueError
        If a file is not TOML; the sentence names it.
    """
    read = {}
    for path in sorted(folder().glob("*.toml")):
        try:
            read[path.stem] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
    programs, own = read.pop("programs"), read.pop("own")["experiments"]
    return Ledger(read, programs, own)


def runs(number, stored=results.stored) -> list:
    """Give the stored records behind one number of a claim.

    Parameters
    ----------
    number : dict
        ``experiment``; ``where``, settings and their values, a list for any of several;
        optionally ``seeds``.
    stored : callable
        Reads the records of an experiment; one that remembers makes many calls fast.

    Returns
    -------
    list of dict
        Records as :func:`clusterfl_core.results.stored` gives them.

    Raises
    ------
    ValueError
        If nothing is stored for it: a number without a record cannot be shown.
    """
    check.function("stored", stored)
    if not {"experiment", "where"} <= set(check.kind("number", number, dict)):
        raise ValueError(f"number must have experiment and where, got {check.shown(number)}")
    where, seeds = check.kind("where", number["where"], dict), number.get("seeds")
    several = {k: v if isinstance(v, list) else [v] for k, v in where.items()}
    found = [
        record
        for record in stored(number["experiment"])
        if all(record["settings"].get(k) in values for k, values in several.items())
        and (seeds is None or record["seed"] in seeds)
    ]
    if not found:
        raise ValueError(f"no record of {number['experiment']} has {where}, seeds {seeds}")
    return found


def unclaimed(book: Ledger, experiments, stored=results.stored) -> dict:
    """Count the records of each experiment that no claim uses.

    Parameters
    ----------
    book : Ledger
    experiments : iterable of str
        Names of all experiments with records.
    stored : callable
        As in :func:`runs`.

    Returns
    -------
    dict of str to int
        Only experiments with such records.
    """
    check.kind("book", book, Ledger)
    experiments = [
        check.text("experiments", one) for one in check.items("experiments", experiments, 0)
    ]
    check.function("stored", stored)
    used = {}
    for paper in book.papers.values():
        for claim in paper["claim"]:
            for number in claim.get("number", ()):
                for record in runs(number, stored):
                    used.setdefault(number["experiment"], set()).add(_name(record))
    left = {
        name: sum(_name(record) not in used.get(name, ()) for record in stored(name))
        for name in experiments
    }
    return {name: count for name, count in left.items() if count}


def _name(record):
    return repr(sorted(record["settings"].items(), key=str)), record["seed"]
