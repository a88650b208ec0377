"""How notebooks draw: with the words of `clusterfl_core.figures`, shortly, and no own colours."""

import ast
import json
import re

import house
import pytest

BOOK = house.ROOT / "book"
CHAPTERS = sorted(path for path in BOOK.glob("*.ipynb") if path.stem != "experiments")
LINES, DRAWN = 500, 8  # of code a chapter, of drawing a figure
LONG = {  # chapters that have more lines of code
    "13_choosing",
}  # fmt: skip


def sources(path):
    """Return the code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def drawing(source: str) -> list[str]:
    """Return the lines of a cell that draw, if any does.

    Not counted are the alt text, the frame of a player (its function's head, a bare return, its
    call) and the bare name at the end that shows a figure.
    """
    if "cf.figures." not in source:
        return []
    kept, inside = [], 0
    for line in source.split("\n"):
        if inside or line.startswith("cf.figures.player("):
            inside += line.count("(") - line.count(")")
            continue
        frame = r"(#.*|def .*:|alt\b.* = .*|(return )?\w+|)"
        if not re.fullmatch(frame, line.strip()):
            kept.append(line)
    return kept


def lines(path) -> int:
    """Return how many lines of code a notebook has, blank ones apart."""
    return sum(1 for source in sources(path) for line in source.split("\n") if line.strip())


def test_what_counts_as_drawing():
    figure = """# @title Figure
alt = 'a'
figure = cf.figures.panels(alt)

for p in figure:
    p.a()
figure"""
    assert len(drawing(figure)) == 3
    frames = """def look(t):
    alt = f'{t}'
    return cf.figures.panel(alt)


cf.figures.player(
    look, 't', [1]
)"""
    assert len(drawing(frames)) == 1
    assert drawing("a = 1\nb = 2") == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_figures_are_drawn_by_words_in_few_lines_and_no_typed_colour(path):
    problems = []
    for source in sources(path):
        typed = re.findall(r"['\"]#[0-9a-fA-F]{3,8}['\"]|\btab:\w+|\bplt\.|\bmatplotlib\b", source)
        problems += [f"typed: {found}" for found in typed]
        if len(drawing(source)) > DRAWN:
            first = source.partition("\n")[0]
            problems.append(f"{first}: {len(drawing(source))} lines draw, at most {DRAWN}")
    assert problems == []


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_figure_begins_with_its_alt_text(path):
    for source in sources(path):
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in (
                "cf.figures.panel", "cf.figures.panels"
            ):  # fmt: skip
                assert call.args, ast.unparse(call)
                assert not isinstance(call.args[0], ast.Starred), ast.unparse(call)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_few_lines_of_code(path):
    if path.stem in LONG:
        assert lines(path) > LINES, f"{path.stem} is short enough: take it from the list"
    else:
        assert lines(path) <= LINES


if __name__ == "__main__":
    for path in CHAPTERS:
        cells = [(len(drawing(s)), s.partition("\n")[0]) for s in sources(path) if drawing(s)]
        print(path.stem, lines(path), cells)


@pytest.mark.parametrize(
    "path", [p for p in CHAPTERS if re.match(r"(0|1[0-4])", p.stem)], ids=lambda path: path.stem
)
def test_a_chapter_has_a_control_that_moves_without_a_kernel(path):
    """Chapter 15 has its filters, which are a page's own."""
    assert any("cf.figures.player(" in source for source in sources(path))
