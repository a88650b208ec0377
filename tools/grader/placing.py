"""Lost marks: each cell of the student copy found again in what was handed in.

A cell is known by the name that nbgrader gave it, else by its id, its text, the function that it
defines, or its place: an answer stands below its question and above what follows the question in
the student copy. An answer that cannot be placed so is said to be unplaced; nobody gets 0 for it.
"""

import re
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader import utils

from grader.intake import fresh


@dataclass(frozen=True)
class Placed:
    """A submission with every marked cell of the student copy in it exactly once.

    Attributes
    ----------
    looks, notes : tuple of str
        What had to be restored: where a person should look, and where nothing was in doubt.
    answered : frozenset of str
        Marked cells with lines that were not handed out.
    unplaced : frozenset of str
        Answers by hand that are missing while other texts of the student's may be them.
    """

    nb: NotebookNode
    looks: tuple[str, ...]
    notes: tuple[str, ...]
    answered: frozenset[str]
    unplaced: frozenset[str]


def name_of(cell: NotebookNode) -> str:
    """Return the name that nbgrader gave a cell, else ""."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def plain(source: str) -> str:
    """Return a text without what editors change by themselves."""
    return " ".join(source.split())


def own_lines(source: str, given: str) -> set[str]:
    """Return the lines of a text that are not in what was handed out."""
    return (
        {plain(one) for one in source.splitlines()}
        - {plain(one) for one in given.splitlines()}
        - {""}
    )


def defines(cell: NotebookNode) -> str:
    """Return the name of the first function or class that a code cell defines, else ""."""
    found = re.search(r"^(?:async +)?(?:def|class) +(\w+)", cell.source, re.MULTILINE)
    return found[1] if found and cell.cell_type == "code" else ""


def by_hand(cell: NotebookNode) -> bool:
    """Return whether a person marks a cell."""
    return utils.is_grade(cell) and (utils.is_solution(cell) or cell.cell_type != "code")


def place(nb: NotebookNode, released: list[NotebookNode]) -> Placed:
    """Give each cell that the student copy marks its mark again, and say what had to be restored.

    Parameters
    ----------
    nb : NotebookNode
        The submission, with names alone as metadata; it is used up.
    released : list of NotebookNode
        The cells of the student copy.
    """
    cells, looks, notes = list(nb.cells), [], []
    at: dict[int, int] = {}  # place in the student copy -> place in the submission
    wanted = {name_of(c): i for i, c in enumerate(released) if name_of(c)}

    for here, cell in enumerate(cells):
        name = cell.metadata.pop("nbgrader", {}).get("grade_id")
        if name is None:
            continue
        if name not in wanted:
            looks.append(f"a cell is marked {name!r}, which this assignment does not have")
        elif wanted[name] in at:
            before, given = at[wanted[name]], released[wanted[name]].source
            if not own_lines(cells[before].source, given) and own_lines(cell.source, given):
                at[wanted[name]] = here
            first = "the first that was changed" if at[wanted[name]] == here else "the first"
            looks.append(f"cell {name} is there twice; {first} counts, both ran")
        else:
            at[wanted[name]] = here

    def free() -> list[int]:
        taken = set(at.values())
        return [here for here in range(len(cells)) if here not in taken]

    def give(there: int, here: int, how: str) -> None:
        at[there] = here
        if name_of(released[there]):
            name = name_of(released[there])
            sure = how != "place"
            say = f"cell {name} had lost its metadata and was recognised by its {how}"
            (notes if sure else looks).append(say)

    def search(how: str, wants: list[int], alike, anywhere: bool) -> None:
        for there in wants:
            if there in at:
                continue
            low, high = between(at, there, len(cells))
            found = [here for here in free() if alike(cells[here], released[there])]
            near = [here for here in found if low < here < high]
            if anywhere and not near:
                near = found
            if len(near) == 1:
                give(there, near[0], how)

    answers = [there for there, want in enumerate(released) if utils.is_solution(want)]
    ours = [there for there in range(len(released)) if there not in answers]
    marked = [there for there in range(len(released)) if name_of(released[there])]
    search("id", marked, lambda c, w: c.get("id") == w.get("id"), anywhere=True)
    search("text", ours, lambda c, w: plain(c.source) == plain(w.source) != "", anywhere=True)
    search("first line", answers, lambda c, w: "" != defines(c) == defines(w), anywhere=True)
    search("text", answers, lambda c, w: plain(c.source) == plain(w.source), anywhere=False)

    for there in answers:  # what is left: by place
        if there in at:
            continue
        want = released[there]
        low, high = between(at, there, len(cells))
        gap = [h for h in free() if low < h < high and cells[h].cell_type == want.cell_type]
        gap = [h for h in gap if cells[h].source.strip()]
        rivals = [
            other
            for other in wanted.values()
            if other not in at
            and other != there
            and between(at, other, len(cells)) == (low, high)
            and released[other].cell_type == want.cell_type
            and utils.is_solution(released[other])
        ]
        asked = there > 0 and released[there - 1].cell_type == "markdown"
        question = asked and at.get(there - 1) == low  # the answer follows it
        if gap and question and gap[0] == low + 1:
            give(there, gap[0], "question, which stands above it")
        elif not rivals and len(gap) == 1:
            give(there, gap[0], "place")

    written = own_texts(cells, released, at)
    for name, there in wanted.items():
        if there not in at:
            ours_alone = utils.is_locked(released[there])
            say = f"cell {name} is missing; it was put back as it was handed out"
            (notes if ours_alone else looks).append(say)
    nb.cells = filled(cells, released, at)

    answered, unplaced = set(), set()
    for name, there in wanted.items():
        cell = next(c for c in nb.cells if name_of(c) == name)
        if own_lines(cell.source, released[there].source):
            answered.add(name)
        elif by_hand(cell) and any(written[cell.cell_type == "code"]):
            unplaced.add(name)
            looks.append(f"the answer {name} is empty, but there is text that may be it")
    return Placed(nb, tuple(looks), tuple(notes), frozenset(answered), frozenset(unplaced))


def between(at: dict[int, int], there: int, count: int) -> tuple[int, int]:
    """Return the places in the submission that enclose where a cell of the student copy belongs."""
    low = max((here for one, here in at.items() if one < there), default=-1)
    high = min((here for one, here in at.items() if one > there and here > low), default=count)
    return low, high


def own_texts(
    cells: list[NotebookNode], released: list[NotebookNode], at: dict[int, int]
) -> dict[bool, list[int]]:
    """Return where a student wrote text, and where code, outside all cells that are known."""
    taken, given = set(at.values()), {plain(cell.source) for cell in released}
    found = {True: [], False: []}
    for here, cell in enumerate(cells):
        if here not in taken and plain(cell.source) and plain(cell.source) not in given:
            found[cell.cell_type == "code"].append(here)
    return found


def filled(
    cells: list[NotebookNode], released: list[NotebookNode], at: dict[int, int]
) -> list[NotebookNode]:
    """Return the cells with their marks, what is missing put back and what is locked restored."""
    put: dict[int, list[NotebookNode]] = {}
    for there, want in enumerate(released):
        if not name_of(want):
            continue
        if there in at:
            cell = cells[at[there]]
            if cell.cell_type != want.cell_type:
                turned = fresh(want)
                turned.source = cell.source
                cells[at[there]] = cell = turned
        else:
            low, _ = between(at, there, len(cells))
            cell = fresh(want)
            put.setdefault(low, []).append(cell)
        if utils.is_locked(want):
            cell.source = want.source
        cell.metadata.nbgrader = dict(want.metadata.nbgrader)
    ordered = put.get(-1, [])
    for here, cell in enumerate(cells):
        ordered += [cell, *put.get(here, [])]
    ids = set()
    for cell in ordered:
        if cell.id in ids:
            cell.id = new_code_cell().id
        ids.add(cell.id)
    return ordered
