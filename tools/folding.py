"""Fold in JupyterLab and Colab what the page hides.

Usage: folding.py [--check] NOTEBOOK...

Jupyter Book goes by a cell's tags. JupyterLab goes by `metadata.jupyter`, Colab by
`metadata.cellView` and a first line `# @title …`, and neither looks at the tags. Only the standard
library is used.
"""

import argparse
import json
import re
import sys
from pathlib import Path

WHOLE = {"hide-cell", "remove-cell"}  # the page hides input and output
HIDING = {"hide-input", "remove-input"} | WHOLE

NUMBER = r"(?:[A-Z]|\d+)\.\d+"
TITLE = re.compile(r"# ?@title +\S")
CAPTION = re.compile(rf"\*((?:Figure|Table) {NUMBER})\.")
EXERCISE = re.compile(rf"^\*\*(?:Exercise )?({NUMBER})\b", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.*)", re.MULTILINE)


# ---------------------------------------------------------------- what a cell is


def source(cell: dict) -> str:
    """Return a cell's text, which a notebook keeps as one string or as a list of lines."""
    return "".join(cell["source"])


def tags(cell: dict) -> set[str]:
    """Return a cell's tags."""
    return set(cell["metadata"].get("tags", []))


def hidden(cell: dict) -> bool:
    """Whether the page hides the code of this cell."""
    return cell["cell_type"] == "code" and bool(tags(cell) & HIDING)


def draws(cell: dict) -> bool:
    """Whether a cell's output is a figure, or a player of figures."""
    words = ("cf.figures.panel", "figures.player(")
    return "image" in cell["metadata"].get("mystnb", {}) or any(w in source(cell) for w in words)


def says(cell: dict) -> bool:
    """Whether a cell's output is text."""
    return "Markdown(" in source(cell)


def listed(words: list[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


# ---------------------------------------------------------------- titles


def exercise(above: list[dict]) -> str:
    """Return the number of the exercise that stands last in the section so far, "" if none does."""
    text = "\n\n".join(source(cell) for cell in above if cell["cell_type"] == "markdown")
    numbers = EXERCISE.findall(HEADING.split(text)[-1])
    return numbers[-1] if numbers else ""


def section(above: list[dict]) -> str:
    """Return the last heading so far, "" if there is none."""
    text = "\n\n".join(source(cell) for cell in above if cell["cell_type"] == "markdown")
    headings = HEADING.findall(text)
    return headings[-1] if headings else ""


def prepared(below: list[dict]) -> str:
    """Return the figure or table that the next hidden cells lead to, "" if there is none."""
    for cell in below:
        found = CAPTION.findall(source(cell))
        if found or not hidden(cell) or (says(cell) and not draws(cell)):
            return found[0] if found else ""
    return ""


def title(cells: list[dict], i: int) -> str:
    """Return a title for the hidden cell at position `i`, from what stands in it and around it.

    A solution has the number of the exercise above it. A picture or a table has the number of its
    caption, in the cell itself or in the next. Otherwise the prompt of the page speaks, unless it
    says no more than "this figure"; what is left gets a general title.
    """
    cell, above, below = cells[i], cells[:i], cells[i + 1 :]
    captions = CAPTION.findall(source(cell))
    prompt = cell["metadata"].get("mystnb", {}).get("code_prompt_show", "").removeprefix("Show ")
    if tags(cell) & WHOLE and exercise(above):
        return f"Solution of exercise {exercise(above)}"
    if draws(cell):
        captions += CAPTION.findall("".join(map(source, below[:1])))
        return captions[0] if captions else "Figure"
    if captions:
        return f"Text of {listed(captions)}" if captions[0][0] == "F" else listed(captions)
    if says(cell):
        ends = section(above).startswith("Run time")
        return "Run time" if ends else "Text with computed numbers"
    if prompt and not re.search(r"\bthis\b|solution", prompt):
        prompt = prompt.removeprefix("the ")
        return prompt[0].upper() + prompt[1:]
    if prepared(below):
        return f"Computation for {prepared(below)}"
    if source(cell).startswith("assert "):
        return "Checks of the text"
    return "Code used below"


# ---------------------------------------------------------------- folding


def folded_cell(cells: list[dict], i: int) -> dict:
    """Return the cell at position `i`, folded if and only if the page hides it."""
    cell = cells[i]
    if cell["cell_type"] != "code":
        return cell
    folds = {"source_hidden": hidden(cell), "outputs_hidden": bool(tags(cell) & WHOLE)}
    old = cell["metadata"]
    jupyter = {key: value for key, value in old.get("jupyter", {}).items() if key not in folds}
    jupyter |= {key: True for key, fold in folds.items() if fold}
    marks = [("jupyter", jupyter), ("cellView", "form" if hidden(cell) else "")]
    new = {key: value for key, value in old.items() if key not in dict(marks)}
    new |= {key: mark for key, mark in marks if mark}
    if new != old:
        cell = {**cell, "metadata": dict(sorted(new.items()))}
    if hidden(cell) and not TITLE.match(source(cell)):
        line, text = f"# @title {title(cells, i)}\n", cell["source"]
        cell = {**cell, "source": line + text if isinstance(text, str) else [line, *text]}
    return cell


def folded(notebook: dict) -> dict:
    """Return the notebook with each cell folded in JupyterLab and Colab as the page folds it.

    A code cell tagged hide-input, remove-input, hide-cell or remove-cell gets
    `metadata.jupyter.source_hidden`, `metadata.cellView = "form"` and, if it has none, a title; of
    the last two tags also `metadata.jupyter.outputs_hidden`. Every other code cell loses these
    marks, but not a title: that is a line of its code. Nothing else changes, and folding twice
    is folding once.
    """
    cells = notebook["cells"]
    return {**notebook, "cells": [folded_cell(cells, i) for i in range(len(cells))]}


def unlike(notebook: dict) -> list[str]:
    """Return a line for each cell that is not folded as the page folds it."""
    lines = []
    for i, (old, new) in enumerate(zip(notebook["cells"], folded(notebook)["cells"], strict=True)):
        if old != new:
            wrong = "hidden in the page, not folded" if hidden(old) else "folded, shown in the page"
            begin = source(old).partition("\n")[0]
            lines.append(f"cell {i} ({old.get('id', 'without id')}), {wrong}: {begin[:50]}")
    return lines


# ---------------------------------------------------------------- command line


def read(path: Path) -> dict:
    """Read a notebook, or stop with one sentence."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        folded(notebook)
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}.")
    except (AttributeError, KeyError, TypeError, ValueError):
        sys.exit(f"{path} is not a notebook of nbformat 4.")
    return notebook


def main() -> None:
    """Fold each notebook in place, or with `--check` list what is not folded and fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, list what is wrong")
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    options = parser.parse_args()
    old = {path: read(path) for path in options.notebooks}  # all of them before any is written
    wrong = {path: unlike(notebook) for path, notebook in old.items()}
    for path in filter(wrong.get, old):
        if options.check:
            print(*(f"{path}: {line}" for line in wrong[path]), sep="\n")
        else:
            text = json.dumps(folded(old[path]), indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {len(wrong[path])} cells")
    if options.check and any(wrong.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
