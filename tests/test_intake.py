"""What is handed in: any name, layout, byte and size; one student's trouble stops nobody."""

import csv
import io
import json
import os
import random
import socket
import time
import tracemalloc
import unicodedata
import zipfile
from datetime import UTC, datetime

import grading
import nbformat
import pytest
import small_assignment as small
from grader import intake, late, placing, reports, running, similar
from grader.results import Result, Student, Test, safe
from hypothesis import given, settings
from hypothesis import strategies as st
from small_class import Class, make, plainly, points

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield make(tmp_path_factory.mktemp("made"), patch)


@pytest.fixture
def course(tmp_path, made, monkeypatch) -> Class:
    monkeypatch.setattr(running, "run", plainly)
    return Class(tmp_path, made)


def collect(course: Class, **options):
    known = {small.NAME: course.released}
    people = options.pop("people", intake.Class())
    return intake.collect(course.folder, known, [small.NAME], people, **options)


def zipped(files: dict[str, bytes], **options) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as pack:
        for name, content in files.items():
            pack.writestr(name, content)
    return out.getvalue()


# ---------------------------------------------------------------- names

NAMES = [
    "ana",
    "O'Brien",
    "García, Ana",
    "Anna Müller (late)",
    "王伟",
    "🙂",
    "=1+1",
    "a b.c-d_e@f",
    "x..",
    "'; DROP TABLE student;--",
    "<img src=x onerror=alert(1)>",
    "%2e%2e",
    "[abc]*",
    "-rf",
]


def test_each_name_is_graded_under_itself_and_safely_kept(course):
    for name in NAMES:
        course.hand_in(name)
    found = course.grade()
    wanted = {name.removesuffix(" (late)") for name in NAMES}
    assert set(found) == wanted
    assert all(points(result) == [3, 5, None] for result in found.values())
    keys = {result.who.key for result in found.values()}
    assert len(keys) == len(NAMES)
    for key in keys:
        assert key.isascii()
        assert not key.startswith((".", "-"))
        assert "Not graded" not in course.page(key)
    assert {row["student"].removeprefix("'") for row in course.table()} == {
        name.removeprefix("'") for name in wanted
    }


def test_composed_and_decomposed_letters_are_one_student(course):
    course.hand_in(unicodedata.normalize("NFC", "Müller"), total="def total(values):\n    return 0")
    os.utime(course.folder / "Müller" / f"{small.NAME}.ipynb", (1e9, 1e9))
    course.hand_in(unicodedata.normalize("NFD", "Müller"))
    (one,), wrong = collect(course)
    assert wrong == []
    assert "2 were handed in" in one.notes[0]
    assert points(course.grade()["Müller"])[0] == 3  # the later one


def test_names_of_a_windows_zip_are_read(course):
    folder = course.folder / os.fsdecode(b"M\xfcller")
    folder.mkdir()
    nb = json.dumps(course.solved())
    (folder / os.fsdecode(b"S1_small \xe9.ipynb")).write_text(nb)
    assert points(course.grade()["Müller"]) == [3, 5, None]


@settings(deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_safe_names_are_safe_and_differ(one, other):
    for name in (one, other):
        key = safe(name)
        assert key
        assert key.isascii()
        assert len(key) <= 60
        assert set(key) & set("/\\ *?[]{}'\"<>&%#:\n\0") == set()
        assert not key.startswith((".", "-"))
    if unicodedata.normalize("NFC", one) != unicodedata.normalize("NFC", other):
        assert safe(one) != safe(other)


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("ana/S1_small.ipynb", "ana"),
        ("ana/S1_small (1).ipynb", "ana"),
        ("ana/s1_small.ipynb", "ana"),
        ("ana/homework final.ipynb", "ana"),
        ("ana/S1_small/S1_small.ipynb", "ana"),
        ("garciaana_123_456_S1_small-1.ipynb", "garciaana"),
        ("garciaana_LATE_123_456_S1_small.ipynb", "garciaana"),
        ("Ana García_12345_assignsubmission_file_/S1_small.ipynb", "Ana García"),
        ("Ana García_12345_assignsubmission_file/S1_small.ipynb", "Ana García"),
        ("Ana García_12345_assignsubmission_file_S1_small.ipynb", "Ana García"),
        ("Participant_77_assignsubmission_file_/x.ipynb", "Participant 77"),
    ],
)
@pytest.mark.parametrize("as_zip", [False, True])
def test_layouts_of_course_systems(course, path, student, as_zip):
    content = json.dumps(course.solved()).encode()
    root = course.folder
    if as_zip:
        root = course.folder.with_suffix(".zip")
        junk = {f"__MACOSX/._{path}": b"x", "ana/.DS_Store": b"x", "Thumbs.db": b"x"}
        root.write_bytes(zipped({path: content} | junk))
    else:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    known = {small.NAME: course.released}
    (one,), wrong = intake.collect(root, known, [small.NAME], intake.Class())
    assert (one.who.name, one.assignment, wrong) == (student, small.NAME, [])
    assert (intake.MARKED_LATE in one.notes) == ("LATE" in path)


def test_of_several_the_latest_counts_and_is_named(course):
    content = json.dumps(course.solved()).encode()
    for name in ("garciaana_1_10_S1_small.ipynb", "garciaana_1_11_S1_small-1.ipynb"):
        (course.folder / name).write_bytes(content + b" " * len(name))
    (one,), _ = collect(course)
    assert one.name == "garciaana_1_11_S1_small-1.ipynb"
    assert "2 were handed in; garciaana_1_11_S1_small-1.ipynb is the latest" in one.notes[0]


def test_two_people_of_one_name_stay_two(course):
    content = json.dumps(course.solved()).encode()
    for name in ("smithjo_1_10_S1_small.ipynb", "smithjo_2_11_S1_small.ipynb"):
        (course.folder / name).write_bytes(content)
    for number in (5, 6):
        folder = course.folder / f"Jo Smith_{number}_assignsubmission_file_"
        folder.mkdir()
        (folder / "x.ipynb").write_bytes(content)
    found, wrong = collect(course)
    assert wrong == []
    assert [one.who.name for one in found] == [
        "Jo Smith (5)",
        "Jo Smith (6)",
        "smithjo (1)",
        "smithjo (2)",
    ]


def test_an_assignment_is_recognised_by_its_cells_before_its_name(course):
    other = [c.copy() for c in course.released]
    known = {small.NAME: course.released, "T2_other": []}
    nb = nbformat.v4.new_notebook(cells=other)
    assert intake.which(nb, "T2_other.ipynb", known) == small.NAME
    for cell in nb.cells:
        cell.metadata.pop("nbgrader", None)
    assert intake.which(nb, "T2_other (2).ipynb", known) == "T2_other"
    assert intake.which(nb, "work.ipynb", known) == small.NAME  # by its texts
    assert intake.which(nbformat.v4.new_notebook(), "work.ipynb", known) == ""


def test_data_that_canvas_renamed_has_its_own_name_too(course):
    content = json.dumps(course.solved()).encode()
    start = "garciaana_LATE_1"
    (course.folder / f"{start}_10_S1_small-1.ipynb").write_bytes(content)
    own = {"own-1.csv": b"1", "run-1.csv": b"2", "run-2.csv": b"3", "other.csv": b"4"}
    own["numbers.json"] = b"[1, 2]"
    for number, (name, data) in enumerate(own.items(), 11):
        (course.folder / f"{start}_{number}_{name}").write_bytes(data)
    (one,), wrong = collect(course, data={small.NAME: 1})
    assert wrong == []
    assert one.files == own | {"own.csv": b"1"}


def test_data_that_canvas_renamed_count_once(course):
    nb = json.dumps(course.solved()).encode()
    (course.folder / "garciaana_1_10_S1_small-1.ipynb").write_bytes(nb)
    (course.folder / "garciaana_1_11_own-1.csv").write_bytes(b"0" * (700 << 10))
    (one,), _ = collect(course, data={small.NAME: 1})
    assert set(one.files) == {"own-1.csv", "own.csv"}


# ---------------------------------------------------------------- the roster

ROSTER = """\ufeffID;Name;Email;Group
s1;García, Ana;ana@uni.org;g1
s2;O'Brien, Tim;tim@uni.org;g1
s3;Müller, Jo;jo@uni.org;
s4;Nobody, At All;no@uni.org;
"""


def test_a_roster_gives_names_ids_and_pairs(course, tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text(ROSTER, encoding="utf-8")
    people = tuple(intake.roster(path))
    flat = course.folder / "garciaana_5_7_S1_small.ipynb"
    flat.write_text(json.dumps(course.solved()))
    course.hand_in("Jo Mu\u0308ller_9_assignsubmission_file_")
    course.hand_in("stranger")
    found = course.grade(options=grading.Options(people=people))
    assert set(found) == {"García, Ana", "Müller, Jo", "stranger", "Nobody, At All"}
    assert found["García, Ana"].partners == (people[1],)
    rows = {row["student"]: row for row in course.table()}
    assert rows["O'Brien, Tim"]["points"] == rows["García, Ana"]["points"] == "8"
    assert "together with García, Ana" in rows["O'Brien, Tim"]["notes"]
    assert rows["stranger"]["notes"] == "stranger is not on the roster"
    assert rows["Nobody, At All"]["notes"] == "nothing was handed in"
    assert "8 of 10 points" in course.page("s2")
    canvas = {row["Student"]: row for row in course.table("canvas")}
    assert canvas["O'Brien, Tim"]["SIS User ID"] == "s2"
    assert canvas["O'Brien, Tim"][small.NAME] == ""  # a part is still to be marked
    course.mark("s1", 2)
    course.grade(options=grading.Options(people=people))
    canvas = {row["Student"]: row for row in course.table("canvas")}
    assert canvas["O'Brien, Tim"][small.NAME] == "10"
    assert canvas["    Points Possible"][small.NAME] == "10"
    moodle = {row["ID number"]: row for row in course.table(f"moodle-{small.NAME}")}
    assert moodle["s1"]["Grade"] == "10"
    assert moodle["s3"]["Identifier"] == "Participant 9"
    assert moodle["s3"]["Grade"] == ""


@pytest.mark.parametrize("folder", ["ana", "García, Ana", "s1"])
def test_a_roster_that_comes_later_loses_no_mark_and_nobody(course, tmp_path, monkeypatch, folder):
    path = tmp_path / "roster.csv"
    path.write_text(ROSTER.replace("tim@uni.org;g1", "tim@uni.org;"), encoding="utf-8")
    course.hand_in(folder)
    course.hand_in("Jo Müller", why="Another answer.")
    first = course.grade()[folder]
    course.mark(first.who.key, 2, "Well said.")
    course.mark(safe("Jo Müller"), 1)
    course.grade()
    monkeypatch.setattr(running, "run", None)  # nothing runs once more
    people = tuple(intake.roster(path))
    for _ in range(2):
        found = course.grade(options=grading.Options(people=people))
        assert points(found["García, Ana"]) == [3, 5, 2]
        assert points(found["Müller, Jo"]) == [3, 5, 1]
        assert found["García, Ana"].tests[2].message == "Well said."
        assert {found[name].status for name in ("García, Ana", "Müller, Jo")} == {"graded"}
    rows = {row["student"]: row for row in course.table()}
    assert (rows["García, Ana"]["id"], rows["García, Ana"]["points"]) == ("s1", "10")
    assert len(rows) == len(people)
    canvas = {row["Student"]: row for row in course.table("canvas")}
    assert canvas["García, Ana"][small.NAME] == "10"
    assert not course.waits("s1")
    assert course.seen("s1").cells
    for kind in ("autograded", "submitted"):
        assert {p.name for p in (course.out / kind).iterdir() if any(p.iterdir())} == {"s1", "s3"}
    pages = {p.stem for p in (course.out / "reports").glob("*.html")}
    assert pages == {"s1", "s2", "s3", "s4", "index"}


def test_partners_who_both_hand_in_get_their_own_points_once(course):
    people = (Student("Ana", "s1", group="g"), Student("Ben", "s2", group="g"))
    course.hand_in("s1")
    course.hand_in("s2", total="def total(values):\n    return 0")
    course.grade(options=grading.Options(people=people))
    assert {row["id"]: row["points"] for row in course.table()} == {"s1": "8", "s2": "5"}
    assert {row["id"]: row["notes"] for row in course.table()} == {
        "s1": "Ben of the same group handed in alone",
        "s2": "Ana of the same group handed in alone",
    }


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("s1", "García, Ana"),
        ("ana", "García, Ana"),
        ("ANA@uni.org", "García, Ana"),
        ("Ana Garcia", "García, Ana"),
        ("garciaana", "García, Ana"),
        ("tim obrien", "O'Brien, Tim"),
        ("Jo Müller (late)", "Müller, Jo"),
    ],
)
def test_labels_of_folders_find_their_student(tmp_path, label, name):
    path = tmp_path / "roster.csv"
    path.write_text(ROSTER, encoding="utf-8")
    who, looks = intake.Class(intake.roster(path)).find(label)
    assert (who.name, looks) == (name, ())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "names nobody"),
        (b"id,name\n1,\n", "Line 2 of the roster .* has no `name`"),
        (b"id,name\n1,a\n1,b\n", "Line 3 of the roster .* has 1 again"),
        (b"\xff\xfe\0", "has no `name`|names nobody|cannot be read"),
    ],
)
def test_a_bad_roster_is_said_in_one_sentence(tmp_path, content, said):
    path = tmp_path / "roster.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        intake.roster(path)


# ---------------------------------------------------------------- nobody stops the class


def test_what_is_no_submission_costs_its_own_line_only(course, tmp_path):
    course.hand_in("good")
    (course.folder / "loose.ipynb").write_text("{}")
    (course.folder / "empty").mkdir()
    for name in ("linked", "piped", "foldered", "socketed"):
        (course.folder / name).mkdir()
    (course.folder / "linked" / "S1_small.ipynb").symlink_to("/etc/passwd")
    os.mkfifo(course.folder / "piped" / "S1_small.ipynb")
    (course.folder / "foldered" / "S1_small.ipynb").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(course.folder / "socketed" / "S1_small.ipynb"))
    deep = course.folder / "deep"
    for _ in range(40):
        deep /= "d"
    deep.mkdir(parents=True)
    bomb = zipped({"S1_small.ipynb": b"0" * (3 << 20)}, compression=zipfile.ZIP_DEFLATED)
    for _ in range(3):
        bomb = zipped({"x.zip": bomb})
    (course.folder / "bomb.zip").write_bytes(bomb)
    many = zipped({f"{i}/S1_small.ipynb": b"0" * (1 << 20) for i in range(30)})
    (course.folder / "many.zip").write_bytes(many)
    (course.folder / "broken.zip").write_bytes(b"PK\x03\x04 no")
    (course.folder / "climber.zip").write_bytes(zipped({"../../S1_small.ipynb": b"{}"}))
    course.hand_in("half", json.dumps(course.solved())[:500])
    course.hand_in("surrogate", why="\ud800", total="raise ValueError('\\ud800')")
    (course.folder / ".hidden").mkdir()
    found = course.grade(options=grading.Options(largest=2))
    assert points(found["good"]) == [3, 5, None]
    assert points(found["surrogate"]) == [0, 5, None]
    said = {(r.student, r.assignment): r.refused for r in found.values() if r.refused}
    assert said == {
        ("", "loose.ipynb"): "it lies loose in class: put it in a student's folder",
        ("empty", "-"): "nothing was handed in",
        ("linked", "S1_small.ipynb"): "it is no file: a notebook is expected",
        ("piped", "S1_small.ipynb"): "it is no file: a notebook is expected",
        ("socketed", "S1_small.ipynb"): "it is no file: a notebook is expected",
        ("deep", "d"): "it lies deeper than 5 folders",
        ("bomb", "S1_small.ipynb"): "it is larger than 2 MB (--largest sets another limit)",
        ("many", "S1_small.ipynb"): "its zips unpack to more than 20 MB",
        ("broken", "broken.zip"): "it is no zip that can be read",
        ("climber", "S1_small.ipynb"): "its place in the zip is none that a student's file has",
        ("half", "S1_small.ipynb"): "it is no notebook: it cannot be read as one",
    }


def test_many_cells_and_values_are_refused_before_they_cost(course):
    cell = '{"cell_type":"raw","source":""}'
    many = f'{{"nbformat":4,"nbformat_minor":0,"cells":[{",".join([cell] * 400_000)}]}}'.encode()
    assert len(many) > 12 << 20
    nest = b'{"nbformat":4,"cells":[' + b"[]," * 4_000_000 + b"[]]}"
    for data in (many, nest):
        tracemalloc.start()
        begun = time.process_time()
        with pytest.raises(intake.Refused, match="more than 2000 cells"):
            intake.parse(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()
        assert time.process_time() - begun < 60  # a guard against minutes, not a measurement


def test_outputs_do_not_count(course):
    nb = course.solved()
    picture = {"image/png": "A" * (30 << 20)}
    shown = {"output_type": "display_data", "data": picture, "metadata": {}}
    nb["cells"][2]["outputs"] = [shown]
    course.hand_in("painter", nb)
    (one,), wrong = collect(course)
    assert wrong == []
    assert len(nbformat.writes(one.nb)) < 100_000


def damaged(nb: dict, draw: random.Random) -> bytes:
    """Return a notebook with something wrong, in its text or in its tree."""
    kind = draw.randrange(7)
    text = json.dumps(nb).encode()
    if kind == 0:
        return text[: draw.randrange(len(text))]
    if kind == 1:
        changed = bytearray(text)
        for _ in range(draw.randrange(1, 30)):
            changed[draw.randrange(len(text))] = draw.randrange(256)
        return bytes(changed)
    odd = [
        None,
        True,
        -1,
        1e308,
        float("nan"),
        10**400,
        "",
        "\ud800",
        "\0",
        [],
        {},
        [[]],
        "x" * 9999,
    ]
    odd += [{"grade_id": []}, {"nbgrader": {"grade_id": "why"}}, "é" * 50, {"": {"": None}}]
    places = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(nb)
    for _ in range(draw.randrange(1, 6)):
        node, key = draw.choice(places)
        if kind == 2 and isinstance(node, dict):
            node.pop(key, None)
        elif kind == 3 and isinstance(node, list):
            node.insert(0, draw.choice(odd))
        else:
            try:
                node[key] = draw.choice(odd)
            except (IndexError, KeyError):
                continue
    if kind == 4:
        deep = "[" * draw.randrange(2000) + "]" * draw.randrange(2000)
        return json.dumps(nb).replace('""', deep, 1).encode()
    if kind == 5:
        nb["metadata"] = draw.choice(odd)
        nb["nbformat"] = draw.choice([4, 3, 2, 1, 0, 5, "4", 4.0, [], True, 10**30])
    return json.dumps(nb).encode(*draw.choice([("utf-8",), ("utf-16",), ("latin-1",)]))


def damaged_class(course: Class, count: int) -> tuple[list, list]:
    """Hand in so many damaged notebooks and the good one of Zoe; take them in."""
    draw = random.Random(0)
    for number in range(count):
        answers = {
            "total": draw.choice([small.FIRST, "total = 3", "def total(values):\n  return '"])
        }
        course.hand_in(f"s{number:04d}", damaged(course.solved(**answers), draw))
    course.hand_in("zoe")
    return collect(course)


def test_damaged_notebooks_are_graded_or_refused_each_alone(course):
    found, wrong = damaged_class(course, 100)
    assert len(found) + len(wrong) == 101
    assert 20 <= len(wrong) <= 80
    assert all(result.refused for result in wrong)
    done = course.grade()
    assert len(done) == 101
    assert points(done["zoe"]) == [3, 5, None]
    assert not [r.refused for r in done.values() if "the grader failed" in r.refused]
    assert len(course.table()) == 101


@pytest.mark.long
def test_two_thousand_damaged_notebooks(course, monkeypatch, working_sandbox):
    found, wrong = damaged_class(course, 2000)
    assert len(found) + len(wrong) == 2001
    chosen = {one.who.name for one in found[:: len(found) // 50]} | {"zoe"}
    assert len(chosen) >= 50
    print(f"{len(found)} of 2001 taken in, {len(wrong)} refused, {len(chosen)} run")
    for folder in course.folder.iterdir():
        if folder.name not in chosen:
            (folder / f"{small.NAME}.ipynb").unlink()
    monkeypatch.setattr(running, "run", working_sandbox)
    done = course.grade()
    assert points(done["zoe"]) == [3, 5, None]
    assert not [r.refused for r in done.values() if "the grader failed" in r.refused]
    assert {name for name, r in done.items() if not r.refused} == chosen


@pytest.fixture
def working_sandbox():
    """The real way to run submissions; skip where there can be no sandbox."""
    import sandbox

    real = running.run if running.run is not plainly else REAL
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    return real


REAL = running.run


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_notebook_or_refused(data):
    try:
        nb, _ = intake.parse(data)
    except intake.Refused:
        return
    assert nb.nbformat == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"cell_type": st.sampled_from(["code", "markdown", "raw"]) | JSON},
            optional={"source": st.text() | JSON, "metadata": JSON, "id": JSON, "outputs": JSON},
        ),
        max_size=4,
    ),
    st.sampled_from([2, 3, 4]) | JSON,
)
def test_any_tree_is_a_notebook_or_refused(cells, version):
    try:
        nb, _ = intake.parse(json.dumps({"nbformat": version, "cells": cells}).encode())
    except intake.Refused:
        return
    nbformat.validate(nb)
    nbformat.writes(nb).encode("utf-8")


# ---------------------------------------------------------------- lost marks


def question(text: str):
    return nbformat.v4.new_markdown_cell(text)


def explained() -> list:
    """Return a student copy with three explanations below their questions."""
    cells = [question("# Title of it")]
    for name in ("first", "second", "third"):
        cells.append(question(f"**Explain.** What about the {name}?"))
        answer = nbformat.v4.new_markdown_cell("YOUR ANSWER HERE")
        data = {"grade": True, "solution": True, "locked": False, "task": False, "points": 8}
        cells.append(small.marked(answer, name, **data))
    return cells


def handed(cells: list) -> nbformat.NotebookNode:
    """Return cells as they come back from an editor that keeps texts alone."""
    raw = [{"cell_type": c.cell_type, "source": c.source} for c in cells]
    return intake.parse(json.dumps({"nbformat": 4, "cells": raw}).encode())[0]


def answers(placed: placing.Placed) -> dict[str, str]:
    return {placing.name_of(c): c.source for c in placed.nb.cells if placing.name_of(c)}


def test_answers_without_marks_are_placed_below_their_questions():
    released, cells = explained(), explained()
    for cell in cells[2::2]:
        cell.source = f"My words on {cell.id}."
    placed = placing.place(handed(cells), released)
    assert answers(placed) == {n: f"My words on {n}." for n in ("first", "second", "third")}
    assert placed.answered == {"first", "second", "third"}
    assert placed.unplaced == frozenset()
    assert placed.looks == ()
    assert sum("question, which stands above it" in note for note in placed.notes) == 3


def test_one_answer_left_out_does_not_move_the_others():
    released, cells = explained(), explained()
    for cell in cells[2::2]:
        cell.source = f"My words on {cell.id}."
    cells[4].source = "YOUR ANSWER HERE"
    placed = placing.place(handed(cells), released)
    assert placed.answered == {"first", "third"}
    assert answers(placed)["third"] == "My words on third."
    del cells[4]
    placed = placing.place(handed(cells), released)
    assert answers(placed)["first"] == "My words on first."
    assert answers(placed)["third"] == "My words on third."
    assert "second" not in placed.answered


def test_an_answer_that_cannot_be_placed_is_never_0(course):
    released, cells = explained(), explained()
    cells = [cells[0], question("All my answers in one: yes, no, perhaps.")]
    placed = placing.place(handed(cells), released)
    assert placed.unplaced == {"first", "second", "third"}
    empty = placing.place(handed(explained()), released)
    assert empty.answered == empty.unplaced == frozenset()

    nb = course.solved()
    nb["cells"] = [c for c in nb["cells"] if c["id"] != "why"]
    extra = {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": "It stays 0."}
    nb["cells"].insert(1, extra)
    course.hand_in("moved", nb)
    for name, why in (("nothing", "YOUR ANSWER HERE"), ("blank", " \n"), ("cut", "Why 0?")):
        course.hand_in(name, why=why)
    found = course.grade()
    assert points(found["moved"]) == [3, 5, None]
    assert points(found["blank"]) == points(found["cut"]) == [3, 5, 0]
    assert points(found["nothing"]) == [3, 5, 0]
    assert found["moved"].status == "graded, needs a look"
    assert found["moved"].tests[2].state == "unplaced"
    assert course.waits("moved")
    assert not course.waits("nothing")
    assert "unplaced: a person will look" in course.page("moved")
    assert "It stays 0." in "".join(c.source for c in course.seen("moved").cells)


def test_an_answer_below_its_untouched_cell_is_seen(course):
    nb = course.solved(why="YOUR ANSWER HERE")
    nb["cells"].append({"cell_type": "markdown", "id": "x", "metadata": {}, "source": "Since 0."})
    course.hand_in("below", nb)
    assert course.grade()["below"].tests[2].state == "unplaced"


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(7)), st.sets(st.integers(0, 6)), st.booleans())
def test_placing_never_loses_a_text_and_marks_each_cell_once(order, left_out, marks):
    released, cells = explained(), explained()
    for cell in cells[2::2]:
        cell.source = f"My words on {cell.id}."
    some = [cells[i] for i in order if i not in left_out]
    nb = nbformat.v4.new_notebook(cells=[c.copy() for c in some]) if marks else handed(some)
    placed = placing.place(nb, released)
    names = [placing.name_of(c) for c in placed.nb.cells if placing.name_of(c)]
    assert sorted(names) == ["first", "second", "third"]
    texts = [c.source for c in placed.nb.cells]
    assert all(cell.source in texts for cell in some)
    assert len({cell.id for cell in placed.nb.cells}) == len(placed.nb.cells)


# ---------------------------------------------------------------- due dates

RULES = """\
free_days = 1
[S1_small]
due = 2027-01-10T12:00:00Z
penalty = 10
until = 2027-01-15T12:00:00Z
[S1_small.extensions]
ill = 3
"""


def result(name: str, time: str, points_: float = 8.0) -> Result:
    test = Test("t", 10, points=points_)
    return Result(Student(name), "S1_small", tests=(test,), handed_in=time)


@pytest.mark.parametrize(
    ("name", "time", "late_", "final"),
    [
        ("a", "2027-01-10T12:00:00+00:00", late.Late(0, 0, 0.0), 8),
        ("a", "2027-01-10T12:00:01+00:00", late.Late(1, 1, 0.0), 8),
        ("a", "2027-01-12T11:00:00+00:00", late.Late(2, 1, 0.1), 7.2),
        ("a", "2027-01-15T12:00:01+00:00", late.Late(6, 1, 1.0), 0),
        ("ill", "2027-01-13T12:00:00+00:00", late.Late(0, 0, 0.0), 8),
        ("ill", "2027-01-15T13:00:00+01:00", late.Late(2, 1, 0.1), 7.2),
    ],
)
def test_late_days_cost_what_the_rules_say_and_are_noted(tmp_path, name, time, late_, final):
    (tmp_path / "course.toml").write_text(RULES)
    rules = late.read(tmp_path / "course.toml", ["S1_small"])
    (done,) = late.applied([result(name, time)], rules)
    assert done.late == late_
    assert done.final == pytest.approx(final)
    assert bool(done.notes) == bool(late_.days or name == "ill")
    reports.write_tables(tmp_path, [done], [])
    with (tmp_path / "grades.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["points"] == f"{final:g}"
    assert row["late days"] == str(late_.days)


def test_free_days_are_spent_once(tmp_path):
    (tmp_path / "c.toml").write_text(RULES + "[T2]\ndue = 2027-01-11T12:00:00Z\npenalty = 50\n")
    rules = late.read(tmp_path / "c.toml", ["S1_small", "T2"])
    both = [result("a", "2027-01-11T12:00:00+00:00"), result("a", "2027-01-12T12:00:00+00:00")]
    both[1] = Result(**{**vars(both[1]), "assignment": "T2"})
    first, second = late.applied(both, rules)
    assert (first.late, second.late) == (late.Late(1, 1, 0.0), late.Late(1, 0, 0.5))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "cannot be read"),
        ("free_days = -1", "free_days"),
        ("[T9]\ndue = 2027-01-10T12:00:00Z", "speaks of 'T9'"),
        ("[S1_small]\npenalty = 5", "has no `due`"),
        ("[S1_small]\ndue = '2027'", "must be a date with a time"),
        ("[S1_small]\ndue = 2027-01-10T12:00:00Z\npenalty = 200", "must be 0 to 100"),
        ("[S1_small]\ndue = 2027-01-10T12:00:00Z\nfee = 2", "'fee' of S1_small"),
    ],
)
def test_bad_rules_are_said_in_one_sentence(tmp_path, text, said):
    (tmp_path / "course.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        late.read(tmp_path / "course.toml", ["S1_small"])


def test_times_of_files_reach_the_rules(course):
    path = course.hand_in("a")
    moment = datetime(2027, 1, 11, 11, tzinfo=UTC).timestamp()
    os.utime(path, (moment, moment))
    rules = late.Rules(0, {small.NAME: late.Due(datetime(2027, 1, 10, 12, tzinfo=UTC), 25)})
    course.grade(options=grading.Options(rules=rules))
    (row,) = course.table()
    assert (row["points"], row["late days"], row["taken off"]) == ("6", "1", "2")
    assert "1 days late (2027-01-11 11:00), 0 of them free; 25 % of the points" in row["notes"]


# ---------------------------------------------------------------- what is alike

LONG = """\
def total(values):
    # a loop
    found, seen = 0, []
    for value in values:
        if value not in seen or len(seen) >= 0:
            found = found + value * (2 - 1)
            seen.append(value)
    return found if seen else 0
"""
RENAMED = LONG.replace("found", "s").replace("seen", "old").replace("# a loop", "# mine")
OTHER = """\
def total(values):
    while len(values) > 1:
        head, *tail = values
        values = [head + tail[0], *tail[1:]]
    return values[0] if len(values) == 1 else 0
"""


def test_identical_and_renamed_work_is_named_and_others_are_not(course):
    course.hand_in("copy-1", total=LONG)
    course.hand_in("copy-2", total=RENAMED)
    course.hand_in("own", total=OTHER)
    course.hand_in("plain")
    found = course.grade()
    (row,) = course.table("similar")
    assert {row["one"], row["other"]} == {"copy-1", "copy-2"}
    assert float(row["code alike"]) == 1
    assert {r.status for r in found.values()} == {"graded"}  # no verdict


def test_what_the_class_shares_says_nothing():
    same = frozenset(range(100))
    everything = [
        similar.Rows(f"s{i}", "A", same | frozenset(range(1000 * i, 1000 * i + 30)), frozenset())
        for i in range(1, 9)
    ]
    assert similar.pairs(everything) == []


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_code_has_tokens(source):
    similar.in_a_row(similar.tokens(source), similar.CODE)
