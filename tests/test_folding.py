"""What the page hides is folded in JupyterLab and Colab: tools/folding.py, and every notebook."""

import copy
import json
import re
import subprocess
import sys

import folding
import house
import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPT = house.ROOT / "tools" / "folding.py"
NOTEBOOKS = house.notebooks()
HIDE_INPUT, HIDE_ALL = {"hide-input", "remove-input"}, {"hide-cell", "remove-cell"}
FOLD = {"cellView": "form", "jupyter": {"source_hidden": True}}


def code(source: str, *tags: str, **metadata) -> dict:
    return {"cell_type": "code", "metadata": {"tags": [*tags]} | metadata, "source": [source]}


def text(source: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": [source]}


def folded(*cells: dict) -> list[dict]:
    return folding.folded({"cells": [*cells]})["cells"]


def titles(*cells: dict) -> list[str]:
    return [found[1] for c in folded(*cells) if (found := titled("".join(c["source"])))]


def titled(source: str) -> re.Match | None:
    return re.match(r"# ?@title +(\S.*)", source)


# ---------------------------------------------------------------- every notebook


def relative(path) -> str:
    return path.relative_to(house.ROOT).as_posix()


def numbered(path) -> list[tuple[int, dict, str]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(i, cell, "".join(cell["source"])) for i, cell in enumerate(cells)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_what_the_page_hides_is_folded_and_nothing_else(path):
    for i, cell, source in numbered(path):
        if cell["cell_type"] != "code":
            continue
        metadata, where = cell["metadata"], f"cell {i}: run `python tools/folding.py` on it"
        tags, jupyter = set(metadata.get("tags", [])), metadata.get("jupyter", {})
        hidden = bool(tags & (HIDE_INPUT | HIDE_ALL))
        assert jupyter.get("source_hidden", False) == hidden, where
        assert jupyter.get("outputs_hidden", False) == bool(tags & HIDE_ALL), where
        assert (metadata.get("cellView") == "form") == hidden, where
        assert titled(source) or not hidden, where


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_a_solution_stands_folded_below_its_exercise(path):
    cells = numbered(path)
    for i, cell, source in cells:
        found = titled(source)
        if not found or not found[1].startswith("Solution"):
            continue
        assert set(cell["metadata"]["tags"]) & HIDE_ALL, f"cell {i}: a solution stands open"
        above = "".join(s for _, c, s in cells[:i] if c["cell_type"] == "markdown")
        asked = re.findall(r"\*\*(?:Exercise )?(\w+\.\d+)\b", above)
        assert asked, f"cell {i}: a solution before the first exercise"
        assert found[1] in ("Solution", f"Solution of exercise {asked[-1]}"), f"cell {i}"
        assert cells[i - 1][1]["cell_type"] == "markdown", f"cell {i}: not below its exercise"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_a_number_in_a_title_is_that_of_a_caption_close_by(path):
    cells = numbered(path)
    for i, _, source in cells:
        found = titled(source)
        near = "".join(s.removeprefix(found[0]) for _, _, s in cells[i : i + 5]) if found else ""
        for name in re.findall(r"(?:Figure|Table) \w+\.\d+", found[1] if found else ""):
            assert f"*{name}." in near, f"cell {i}: the title says {name}"


# ---------------------------------------------------------------- folding


@pytest.mark.parametrize("tag", sorted(HIDE_INPUT))
def test_hidden_input_is_folded_and_its_output_stays(tag):
    (cell,) = folded(code("x = 1", tag))
    assert cell["metadata"] == {"tags": [tag]} | FOLD
    assert cell["source"] == ["# @title Code used below\n", "x = 1"]


@pytest.mark.parametrize("tag", sorted(HIDE_ALL))
def test_of_a_hidden_cell_the_output_is_folded_too(tag):
    (cell,) = folded(code("x = 1", tag))
    assert cell["metadata"]["jupyter"] == {"source_hidden": True, "outputs_hidden": True}


@pytest.mark.parametrize("line", ["# @title A hand-made title", "#@title Mine"])
def test_a_handwritten_title_survives(line):
    (cell,) = folded(code(f"{line}\nx = 1", "hide-cell"))
    assert cell["source"] == [f"{line}\nx = 1"]
    assert cell["metadata"]["cellView"] == "form"


def test_a_cell_that_is_shown_again_loses_the_fold_and_keeps_its_code_and_other_marks():
    both = FOLD | {"jupyter": {"source_hidden": True, "outputs_hidden": True, "other": 1}}
    (cell,) = folded(code("# @title Mine\nx = 1", **both))
    assert cell == code("# @title Mine\nx = 1", jupyter={"other": 1})
    (cell,) = folded(code("x = 1", "parameters", **FOLD))
    assert cell == code("x = 1", "parameters")


def test_a_source_of_one_string_stays_one():
    (cell,) = folded(code("", "hide-input") | {"source": "x = 1"})
    assert cell["source"] == "# @title Code used below\nx = 1"


TAGS = st.lists(st.sampled_from([*HIDE_INPUT, *HIDE_ALL, "parameters", "setup"]), unique=True)
MARKS = st.fixed_dictionaries(
    {"tags": TAGS},
    optional={
        "cellView": st.sampled_from(["form", "code"]),
        "jupyter": st.dictionaries(
            st.sampled_from(["source_hidden", "outputs_hidden", "other"]), st.booleans(), min_size=1
        ),
        "mystnb": st.just({"image": {"alt": "A picture."}}),
    },
)
LINES = ["x = 1", "# @title Mine\nx", "Markdown('*Figure 1.2. A.*')", "", "**Exercise 1.1**", "# H"]
CELLS = st.fixed_dictionaries(
    {
        "cell_type": st.sampled_from(["code", "markdown"]),
        "metadata": MARKS,
        "source": st.sampled_from(LINES).map(lambda line: [line]),
    }
)


@given(st.lists(CELLS, max_size=6))
def test_hidden_is_folded_shown_is_not_and_folding_twice_is_folding_once(cells):
    notebook = {"cells": cells, "metadata": {"kept": 1}}
    before = copy.deepcopy(notebook)
    once = folding.folded(notebook)
    assert notebook == before
    assert folding.folded(once) == once
    assert {**once, "cells": cells} == notebook
    assert (folding.unlike(notebook) == []) == (once == notebook)
    for old, new in zip(cells, once["cells"], strict=True):
        if old["cell_type"] == "markdown":
            assert new == old
            continue
        tags, was, now = set(old["metadata"]["tags"]), old["metadata"], new["metadata"]
        hidden, whole = bool(tags & (HIDE_INPUT | HIDE_ALL)), bool(tags & HIDE_ALL)
        assert now.get("jupyter", {}).get("source_hidden", False) == hidden
        assert now.get("jupyter", {}).get("outputs_hidden", False) == whole
        assert (now.get("cellView") == "form") == hidden
        for key in ("tags", "mystnb"):
            assert now.get(key) == was.get(key)
        source, kept = "".join(new["source"]), "".join(old["source"])
        assert not hidden or titled(source)
        assert source == kept or (hidden and source.split("\n", 1)[1] == kept)


# ---------------------------------------------------------------- titles


def test_a_solution_has_the_number_of_the_exercise_above_it():
    cells = [
        text("# A chapter\n\n**Exercise 9.9.** Of another section."),
        code("y = 1", "hide-cell"),
        text("## Exercises\n\nHow.\n\n**Exercise 3.1 (one).** Do."),
        code("y = 1", "hide-cell"),
        text("That was it.\n\n**A.2 Two.** Do **7.5 times**."),
        code("y = 2", "hide-cell"),
        text("## Summary"),
        code("y = 2", "hide-cell"),
    ]
    assert titles(*cells) == [
        "Solution of exercise 9.9",
        "Solution of exercise 3.1",
        "Solution of exercise A.2",
        "Code used below",
    ]


PICTURE = {"mystnb": {"image": {"alt": "A."}, "code_prompt_show": "Show the code of this figure"}}


@pytest.mark.parametrize(
    "caption", [text("*Figure 1.2. A.* Of Figure 1.1."), code('Markdown("*Figure 1.2. A.*")')]
)
def test_a_picture_has_the_number_of_the_caption_below_it(caption):
    assert titles(code("plot()", "hide-input", **PICTURE), caption) == ["Figure 1.2"]
    played = code("cf.figures.player({})", "hide-input")
    assert titles(played, caption) == ["Figure 1.2"]
    assert titles(code("plot()", "hide-input", **PICTURE), text("No more.")) == ["Figure"]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ('Markdown("*Figure 1.2. A.*")', "Text of Figure 1.2"),
        ('Markdown("*Figure 1.2. A.* *Table 1.1. B.*")', "Text of Figure 1.2 and Table 1.1"),
        ('Markdown("*Table 1.1. B.* See Figure 1.9.")', "Table 1.1"),
        ('Markdown("Half of them.")', "Text with computed numbers"),
        ("assert a < b", "Checks of the text"),
    ],
)
def test_a_computed_text_is_named_after_its_captions(source, title):
    assert titles(code(source, "remove-input")) == [title]


def test_the_run_time_is_named_after_its_heading():
    cell = code('Markdown("4 s")', "remove-input")
    assert titles(text("## Summary\n\n## Run time and references"), cell) == ["Run time"]


def test_the_prompt_of_the_page_names_what_nothing_else_names():
    prompt = {"mystnb": {"code_prompt_show": "Show the code of the long runs"}}
    assert titles(code("run()", "hide-input", **prompt)) == ["Code of the long runs"]


def test_code_before_a_figure_is_named_after_it_unless_a_text_stands_between():
    prompt = {"mystnb": {"code_prompt_show": "Show the code of this figure"}}
    first, figure = code("a = 1", "hide-input", **prompt), code("plot()", "hide-input", **PICTURE)
    caption = code('Markdown("*Figure 6.2. A.*")', "remove-input")
    assert titles(first, figure, caption)[0] == "Computation for Figure 6.2"
    assert titles(first, text("A text."), figure, caption)[0] == "Code used below"


# ---------------------------------------------------------------- the command


def call(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def test_check_lists_what_is_wrong_and_the_command_mends_it(tmp_path):
    path = tmp_path / "a.ipynb"
    cells = [code("x = 'é'", "hide-cell") | {"id": "one"}, code("y = 1", **FOLD) | {"id": "two"}]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    before = path.read_bytes()
    found = call("--check", path)
    assert (found.returncode, path.read_bytes()) == (1, before)
    assert found.stdout.splitlines() == [
        f"{path}: cell 0 (one), hidden in the page, not folded: x = 'é'",
        f"{path}: cell 1 (two), folded, shown in the page: y = 1",
    ]
    assert call(path).stdout == f"{path}: 2 cells\n"
    after = path.read_text(encoding="utf-8")
    assert json.dumps(json.loads(after), indent=1, ensure_ascii=False) + "\n" == after
    for arguments in ([path], ["--check", path]):
        again = call(*arguments)
        assert (again.returncode, again.stdout) == (0, "")
    assert path.read_text(encoding="utf-8") == after


@pytest.mark.parametrize("bad", ["", "[]", "{}", '{"cells": [{"cell_type": "code"}]}', None])
def test_what_is_no_notebook_is_refused_before_anything_is_written(tmp_path, bad):
    good, path = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    good.write_text(json.dumps({"cells": [code("x = 1", "hide-cell")]}), encoding="utf-8")
    before = good.read_bytes()
    if bad is not None:
        path.write_text(bad, encoding="utf-8")
    found = call(good, path)
    assert found.returncode == 1
    assert re.fullmatch(rf"{path} (is not a notebook|cannot be read).*\.\n", found.stderr)
    assert good.read_bytes() == before


def test_stripping_outputs_keeps_the_folds(tmp_path):
    cell = {"id": "one", "execution_count": 3, "outputs": []}
    notebook = {"cells": folded(code("x = 1", "hide-cell") | cell), "metadata": {}}
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(notebook | {"nbformat": 4, "nbformat_minor": 5}), encoding="utf-8")
    options = [word for word in house.STRIP_OPTIONS if word != "--verify"]
    subprocess.run([house.BIN / "nbstripout", *options, path], check=True)
    (stripped,) = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert stripped["execution_count"] is None
    assert stripped["metadata"] == notebook["cells"][0]["metadata"]
