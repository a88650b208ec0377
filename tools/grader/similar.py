"""Which submissions are alike. It names pairs and numbers, and no culprit.

Names of variables, comments, spaces and texts in quotes do not count: a renamed copy is as alike
as a plain one. Code and text that was handed out, or that a third of the class has, says nothing.
"""

import io
import keyword
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from itertools import combinations

from nbformat import NotebookNode
from nbgrader import utils

CODE, WORDS = 8, 5  # tokens and words in a row
FEW = 20  # rows that one must have to be compared
ALIKE = 0.6  # share of rows in common that is named


@dataclass(frozen=True)
class Rows:
    """What is compared of one submission: rows of tokens, rows of words."""

    who: str
    assignment: str
    code: frozenset[int]
    text: frozenset[int]


@dataclass(frozen=True)
class Pair:
    """Two submissions of an assignment and the share of rows they have in common."""

    assignment: str
    one: str
    other: str
    code: float
    text: float


def tokens(source: str) -> list[str]:
    """Return the tokens of code without names, comments and texts; never fails."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.NAME:
                found.append(token.string if keyword.iskeyword(token.string) else "name")
            elif token.type == tokenize.STRING:
                found.append("text")
            elif token.type in (tokenize.OP, tokenize.NUMBER):
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        found += re.findall(r"\d+|[^\w\s]", source)
    return found


def in_a_row(items: list[str], length: int) -> frozenset[int]:
    """Return a hash of every `length` neighbours."""
    return frozenset(hash(tuple(items[i : i + length])) for i in range(len(items) - length + 1))


def rows(who: str, assignment: str, nb: NotebookNode, released: list[NotebookNode]) -> Rows:
    """Return what is compared of a submission with its marks in place."""
    given = {" ".join(cell.source.split()) for cell in released}
    code, text = set(), set()
    for cell in nb.cells:
        if utils.is_locked(cell) or " ".join(cell.source.split()) in given:
            continue
        if cell.cell_type == "code":
            code |= in_a_row(tokens(cell.source), CODE)
        else:
            text |= in_a_row(re.findall(r"\w+", cell.source.casefold()), WORDS)
    return Rows(who, assignment, frozenset(code), frozenset(text))


def shared(one: frozenset[int], other: frozenset[int], common: set[int]) -> float:
    """Return the share of rows in common; 0 if there are too few to say."""
    one, other = one - common, other - common
    if min(len(one), len(other)) < FEW:
        return 0.0
    return len(one & other) / len(one | other)


def pairs(everything: list[Rows]) -> list[Pair]:
    """Return the pairs that are much alike, the most alike first."""
    found = []
    for name in {r.assignment for r in everything}:
        own = [r for r in everything if r.assignment == name]
        common = []
        for kind in ("code", "text"):
            counts = Counter(row for r in own for row in getattr(r, kind))
            common.append({row for row, n in counts.items() if n > max(2, len(own) / 3)})
        for a, b in combinations(own, 2):
            code, text = shared(a.code, b.code, common[0]), shared(a.text, b.text, common[1])
            if max(code, text) >= ALIKE:
                found.append(Pair(name, a.who, b.who, code, text))
    return sorted(found, key=lambda p: (-max(p.code, p.text), p.assignment, p.one, p.other))
