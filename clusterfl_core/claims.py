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
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from clusterfl_core import check, results

__all__ = [
    "SIZES", "VERDICTS", "Ledger", "filters", "folder", "ledger", "link", "parameter", "row",
    "runs", "shown", "signs", "unclaimed",
]  # fmt: skip

VERDICTS = {
    "holds": "holds",
    "smaller": "holds smaller",
    "in part": "holds in part",
    "not here": "does not hold here",
    "undecided": "not decided",
}
MARKS = dict(zip(VERDICTS, "●•◐○?", strict=True))
SIZES = {"exact": "exact", "paper": "paper's size", "smaller": "smaller", "none": "not run"}
SHIPPED = "clusterfl_core.ledger"


class Ledger(NamedTuple):
    """All claims by paper, and what surrounds them.

    ``papers`` maps a paper's key to its dict: ``name``, ``title``, ``authors``, ``address``,
    ``claim`` and ``erratum``, two lists of dicts, and for a second version ``same``, its places
    that say what a claim of the first says. ``programs`` has ``defect`` and ``right``; ``own``
    maps experiments that answer no claim to the question that they do answer; ``parameters`` lists
    what :func:`parameter` reads.
    """

    papers: dict
    programs: dict
    own: dict
    parameters: list


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

    FileNotFoundError if the package came without it, ValueError if a file, which it names, is not
    TOML.
    """
    read = {}
    for path in sorted(folder().glob("*.toml")):
        try:
            read[path.stem] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
    programs, own = read.pop("programs"), read.pop("own")
    return Ledger(read, programs, own["experiments"], own["parameter"])


def runs(number, stored=results.stored) -> list:
    """Give the stored records behind one number of a claim: a list of dict.

    ValueError if nothing is stored for it: a number without a record cannot be shown.

    Parameters
    ----------
    number : dict
        ``experiment``; ``where``, settings and their values, a list for any of several;
        optionally ``seeds``.
    stored : callable
        Gives the records of an experiment, as :func:`clusterfl_core.results.stored` does; one that
        remembers makes many calls fast.
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


def unclaimed(kept: Ledger, experiments, stored=results.stored) -> dict:
    """Count the records that no claim uses, of each of the ``experiments`` that has such records.

    ``kept`` is the Ledger, ``stored`` as in :func:`runs`.
    """
    check.kind("kept", kept, Ledger)
    experiments = [
        check.text("experiments", one) for one in check.items("experiments", experiments, 0)
    ]
    check.function("stored", stored)
    used = {}
    for paper in kept.papers.values():
        for claim in paper["claim"]:
            for number in claim.get("number", ()):
                for record in runs(number, stored):
                    used.setdefault(number["experiment"], set()).add(_name(record))
    left = {
        name: sum(_name(record) not in used.get(name, ()) for record in stored(name))
        for name in experiments
    }
    return {name: count for name, count in left.items() if count}


def parameter(kept: Ledger, record) -> str:
    """Say with which parameter an experiment was called to make a record.

    That is what follows ``SET=`` in the command that repeats it, such as "data=letters"; "" where
    it is the experiment's default. ``kept`` is the Ledger, ``record`` as
    :func:`clusterfl_core.results.stored` gives it.
    """
    for one in kept.parameters:
        found = record["settings"].get(one["setting"])
        fits = found is not None and found == one.get("value", found)
        if record["experiment"] == one["experiment"] and fits:
            return one["words"]
    return ""


def _name(record):
    return repr(sorted(record["settings"].items(), key=str)), record["seed"]


# ---------------------------------------------------------------- as a page shows it


def shown(values, unit) -> str:
    """Say what a quantity came to over its runs: mean, lowest and highest.

    Of True and False it is the number of runs in which it happened.

    Parameters
    ----------
    values : list
        One a run: a number; True or False for what happened or did not; None for never.
    unit : str
        "%", or "" for plain numbers.

    >>> shown([1.0, 2.0, 4.0], ""), shown([90.25], "%"), shown([True, True, False], "%")
    ('2.3 (1 to 4; runs: 3)', '90.2\u202f% (one run)', '2 of 3 runs')
    """
    if all(isinstance(v, bool) for v in values):
        return f"{sum(values)} of {len(values)} runs"
    never = sum(v is None for v in values)
    values = [float(v) for v in values if v is not None]
    if not values:
        return f"never (runs: {never})"
    whole = all(v == int(v) for v in values) and unit != "%"
    digits = 1 if whole or unit == "%" or max(map(abs, values)) >= 10 else 2
    low, high = (str(int(v)) if whole else f"{v:.{digits}f}" for v in (min(values), max(values)))
    sign = "\u202f%" if unit == "%" else ""
    if len(values) == 1:
        text = f"{low}{sign} (one run)"
    elif low == high:
        text = f"{low}{sign} (all {len(values)} runs)"
    else:
        mean = f"{sum(values) / len(values):.{digits}f}"
        text = f"{mean}{sign} ({low} to {high}; runs: {len(values)})"
    return text + (f", never in {never}" if never else "")


def row(kept: Ledger, paper, claim, compute, stored=results.stored) -> str:
    """Write a claim as Markdown: a fold whose head is the place and the verdict.

    ValueError if a number has no record.

    Parameters
    ----------
    kept : Ledger
    paper : str
        The key of a paper.
    claim : dict
        One of its claims.
    compute : dict
        Functions by name: a quantity takes the values of one record.
    stored : callable
        As in :func:`runs`.
    """
    verdict = VERDICTS[claim["verdict"]]
    kind = f"claim {_classes(claim, paper)}"
    places = ", ".join([claim["place"], *claim.get("also", [])])
    parts = [
        f'<details class="{kind}" id="claim-{claim["id"]}"><summary>{places}: {verdict}</summary>',
        f"**Claimed.** {claim['says']} *Size: {claim['size']}.*",
        f"**Done** ({SIZES[claim['ours']]}). {claim['did']}",
    ]
    if claim.get("number"):
        lines = ["| | paper | ours |", "|---|---|---|"]
        for number in claim["number"]:
            values = [
                compute[number["quantity"]](record["values"]) for record in runs(number, stored)
            ]
            ours = shown(values, number["unit"])
            lines.append(f"| {number['what']} | {number.get('paper', '–')} | {ours} |")
        parts.append("\n".join(lines))
    if claim["cause"]:
        ground = f" *({claim['ground']})*" if claim["ground"] else ""
        parts.append(f"**Why.** {claim['cause']}{ground}")
    proofs = [*map(_evidence, claim["evidence"]), *_commands(kept, claim, stored)]
    if proofs:
        parts.append("**Evidence.** " + "; ".join(proofs) + ".")
    chapter = claim["chapter"]
    parts.append(f"**Explained in** [chapter {chapter[:2].lstrip('0')}]({chapter}).")
    return "\n\n".join([*parts, "</details>"])


def link(kept: Ledger, name, words="") -> str:
    """Link to the row of a claim on the same page: HTML, and its verdict in brackets.

    ``name`` is the claim's id, ValueError if none in the Ledger ``kept`` has it; ``words`` are what
    to call it, its place if empty.
    """
    for paper in kept.papers.values():
        for claim in paper["claim"]:
            if claim["id"] == name:
                to = f'<a href="#claim-{name}">{words or claim["place"]}</a>'
                return f"{to} ({VERDICTS[claim['verdict']]})"
    raise ValueError(f"no claim is called {name!r}")


def signs(kept: Ledger, paper) -> str:
    """Give a sign for each claim of a paper (its key), sorted by verdict: how it stands, as HTML.

    It is for the eye; what is read aloud is how many there are of each.
    """
    count = Counter(claim["verdict"] for claim in kept.papers[paper]["claim"])
    line = " ".join(MARKS[v] * count[v] for v in VERDICTS if count[v])
    words = ", ".join(f"{count[v]} {VERDICTS[v]}" for v in VERDICTS if count[v])
    return f'<span role="img" aria-label="{words}" style="overflow-wrap: anywhere">{line}</span>'


def filters(kept: Ledger) -> str:
    """Write the choice of paper, verdict and size, which hides the rows that do not fit, as HTML.

    It needs no script, a style and a form: each choice is a style. A row carries the sign of its
    verdict.
    """
    claims = [(key, claim) for key, paper in kept.papers.items() for claim in paper["claim"]]
    counts = Counter(name for key, claim in claims for name in _classes(claim, key).split())
    groups = {
        "paper": {f"p-{key}": paper["name"] for key, paper in kept.papers.items()},
        "verdict": {f"v-{_slug(v)}": f"{MARKS[v]} {words}" for v, words in VERDICTS.items()},
        "size": {f"s-{size}": words for size, words in SIZES.items()},
    }
    looks = [
        "#claims label {display: inline-block; margin-right: 1em; min-height: 1.6em}",
        ".claim > summary::before {display: inline-block; width: 1.3em; text-align: center}",
        *(
            f'.v-{_slug(v)} > summary::before {{content: "{mark}"; content: "{mark}" / ""}}'
            for v, mark in MARKS.items()
        ),
    ]
    forms = []
    for name, options in groups.items():
        boxes = [f'<label><input type="radio" name="{name}" checked> all</label>']
        for key, words in options.items():
            box = f'<input type="radio" name="{name}" id="f-{key}">'
            boxes.append(f"<label>{box} {words} ({counts[key]})</label>")
            looks.append(f"body:has(#f-{key}:checked) .claim:not(.{key}) {{display: none}}")
        forms.append(f"<fieldset><legend>{name}</legend>{' '.join(boxes)}</fieldset>")
    # no blank line inside: one block of HTML
    return f'<style>{" ".join(looks)}</style>\n\n<form id="claims">{"".join(forms)}</form>'


def _slug(verdict):
    return verdict.replace(" ", "-")


def _classes(claim, paper):
    return f"p-{paper} v-{_slug(claim['verdict'])} s-{claim['ours']}"


def _evidence(text):
    """A page of the book as a link; a test as its name."""
    where, _, rest = text.partition("/")
    if where == "tests":
        return f"`{text}`"
    page, _, cell = rest.partition("#")
    told = f", cell {cell}" if cell else ""
    if page.startswith("experiments/"):  # no page of the book
        return f"`{page}`{told}, in the [list](experiments.ipynb)"
    return f"[{page.removesuffix('.ipynb')}]({page}){told}"


def _commands(kept, claim, stored):
    """A command for each experiment of a claim, with the time and the machine of its runs."""
    wanted = {}
    for number in claim.get("number", ()):
        for record in runs(number, stored):
            some = wanted.setdefault((number["experiment"], parameter(kept, record)), {})
            some[_name(record)] = record
    lines = []
    for (experiment, called), several in wanted.items():
        seeds = " ".join(map(str, sorted({record["seed"] for record in several.values()})))
        seconds = sum(record["seconds"] for record in several.values())
        took = f"{seconds / 3600:.1f} hours"
        if seconds <= 3600:
            minutes = max(1, round(seconds / 60))
            took = f"{minutes} minute{'s' * (minutes > 1)}"
        machines = " and ".join(sorted({record["device"] for record in several.values()}))
        words = f' SET="{called}"' if called else ""
        command = f'`make results EXPERIMENT={experiment} SEEDS="{seeds}"{words}`'
        lines.append(f"{command} ({took}; {machines})")
    return lines
