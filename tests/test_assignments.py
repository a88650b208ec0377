"""The book's assignments: what is handed out, what stays in, and what each typical answer gets."""

import ast
import re
import time
import zipfile
from pathlib import Path

import assignment_mistakes as known
import assignments
import grading
import house
import nbformat
import pytest
import sandbox
from nbgrader import utils

NAMES = assignments.names()
HIDDEN = ("tests", "solutions", "instructors")


@pytest.fixture(scope="module")
def packs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packs")
    assignments.pack(folder)
    return folder


def read(path: Path) -> dict[str, bytes]:
    """Give the files of a zip."""
    with zipfile.ZipFile(path) as pack:
        return {name: pack.read(name) for name in pack.namelist()}


@pytest.fixture(scope="module")
def students(packs) -> dict[str, bytes]:
    return read(packs / assignments.STUDENTS)


def copy(students: dict[str, bytes], name: str) -> list:
    """Give the cells of a student copy."""
    return nbformat.reads(students[f"{name}/{name}.ipynb"].decode(), 4).cells


def test_students_get_a_notebook_an_assignment_and_nothing_else(students):
    assert set(students) == {"README.md", *(f"{name}/{name}.ipynb" for name in NAMES)}


@pytest.mark.parametrize("name", NAMES)
def test_no_hidden_line_is_in_the_student_zip(students, name):
    everything = (
        "\n".join(cell.source for other in NAMES for cell in copy(students, other))
        + students["README.md"].decode()
    )
    own = "\n".join(cell.source for cell in copy(students, name))
    shown = "\n".join(
        re.sub(r"### BEGIN (SOLUTION|HIDDEN TESTS).*?### END \1", "", cell.source, flags=re.S)
        for other in NAMES
        for cell in assignments.sources(other)
        if not utils.is_solution(cell) or cell.cell_type == "code"
    )
    secrets = assignments.secrets(name)
    assert secrets["solutions"]
    if known.tests(name):  # a project has none
        assert secrets["tests"]
    for kind in HIDDEN:
        for line in assignments.lines(secrets[kind], shown):
            assert line not in assignments.bare(everything), kind
        for block in secrets[kind]:
            assert block.strip() not in own, kind
    assert not assignments.REGION.search(own)


@pytest.mark.parametrize("name", NAMES)
def test_student_copy_has_the_setup_cell_and_no_link_to_what_students_lack(students, name):
    cells = copy(students, name)
    (setup,) = [c for c in cells if "setup" in c.metadata.get("tags", [])]
    assert setup.source == house.setup_source()
    assert not [c.source for c in cells if "](../" in c.source]


@pytest.mark.parametrize("name", NAMES)
def test_each_assertion_that_students_see_says_what_is_wrong(students, name):
    tests = [c for c in copy(students, name) if utils.is_grade(c) and c.cell_type == "code"]
    for cell in tests:
        for node in ast.walk(ast.parse(cell.source)):
            assert not isinstance(node, ast.Assert) or node.msg, ast.unparse(node)


def test_instructors_get_solutions_points_rubric_time_and_mistakes(packs):
    pack = read(packs / assignments.INSTRUCTORS)
    for name in NAMES:
        source = assignments.SOURCE / name / f"{name}.ipynb"
        assert pack[f"{name}/{name}.ipynb"] == source.read_bytes()
        assert f"{name}/student_copy.ipynb" in pack
        total = sum(
            c.metadata.nbgrader.points for c in assignments.sources(name) if utils.is_grade(c)
        )
        assert f"| all | | {total:g} |" in pack[f"{name}/points.md"].decode()
        notes = pack[f"{name}/instructor.md"].decode().lower()
        for word in ("minutes", "mistake", "rubric", "points"):
            assert word in notes, f"{name}: {word}"


def test_packs_depend_on_their_content_alone(packs, tmp_path):
    assignments.pack(tmp_path)
    for name in (assignments.STUDENTS, assignments.INSTRUCTORS):
        assert (tmp_path / name).read_bytes() == (packs / name).read_bytes()


# ---------------------------------------------------------------- typical answers, end to end


def answered(students: dict[str, bytes], name: str, case: dict) -> str:
    """Return a student copy with one of the typical answers in it."""
    nb = nbformat.reads(students[f"{name}/{name}.ipynb"].decode(), 4)
    solutions = {meta["grade_id"]: code for meta, code in known.cells(name) if meta.get("solution")}
    if case["points"] < 70:  # demonstrations take most of the time, and one answer has them
        nb.cells = [c for c in nb.cells if "demonstration" not in c.metadata.get("tags", [])]
    for cell in nb.cells:
        own = cell.metadata.get("nbgrader", {}).get("grade_id")
        if own in solutions and cell.cell_type == "code":
            given = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", solutions[own], flags=re.M)
            cell.source = case.get(own, given)
    return nbformat.writes(nb)


@pytest.mark.grading
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_each_typical_answer_gets_exactly_its_points(students, tmp_path):
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    wanted, folder = {}, tmp_path / "class"
    for name in known.MISTAKES:
        for number, (mistake, case) in enumerate(known.MISTAKES[name].items()):
            who = f"{number:02d} {re.sub('[^A-Za-z0-9]+', ' ', mistake).strip()}"
            path = folder / who / f"{name}.ipynb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(answered(students, name, case))
            wanted[who, name] = (case["points"], known.FAILS[name][mistake])
    begun = time.monotonic()
    limits = sandbox.Limits(cell=200.0, total=900.0)
    results = grading.grade(folder, tmp_path / "graded", NAMES, limits, unsafe=False, jobs=2)
    print(f"{len(results)} submissions in {time.monotonic() - begun:.0f} s")
    found = {}
    for r in results:
        assert not r.refused, r
        tests = [test for test in r.tests if not test.by_hand]
        failed = {test.id for test in tests if test.message}
        found[r.student, r.assignment] = (sum(test.points for test in tests), failed)
        for test in tests:
            assert not test.message or "hidden test of this task fails" not in test.message
    assert found == wanted
