"""A project from end to end: data of its own, plots, a pair, a marker, a table for the course."""

import base64
import csv
import io
import zipfile

import assignments
import grading
import house
import nbformat
import pytest
import sandbox
import sandbox_pictures
from grader import intake
from nbgrader.api import Gradebook
from PIL import Image

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own
NAME = "A5_project"
ROSTER = 'id,name,email\ns1,"García, Ana",ana@uni.org\ns2,"O\'Brien, Tim",tim@uni.org\n'
SHOWN = {  # code, and how many pictures a person finds below it
    "a figure left open": ("import matplotlib.pyplot as plt\nplt.plot([1, 3])\nplt.show()", 1),
    "a figure as the value": ("drawn, axes = plt.subplots()\naxes.plot([1])\ndrawn", 1),
    "a figure given to display": ("display(drawn)\nplt.close('all')", 1),
    "a figure of no window": (
        "from matplotlib.figure import Figure\nown = Figure()\nown.subplots().plot([1])\nown",
        1,
    ),
    "the magic of most notebooks": ("%matplotlib inline\nplt.plot([2, 1])", 1),
    "a later cell": ("plt.bar([1, 2], [3, 4])", 1),
    "vectors asked for": (
        "%config InlineBackend.figure_format = 'svg'\nplt.plot([1])\nplt.show()",
        1,
    ),
    "a plot before an error": ("plt.plot([1, 2])\nplt.show()\n1 / 0", 1),
    "panels of the library": (
        "import clusterfl_core as cf\nfrom clusterfl_core import figures\n"
        "both = figures.panels('Two curves', 'left', 'right')\n"
        "for one in both:\n    _ = one.spread([1, 2, 3], [1, 2, 4], 'IFCA')\nboth",
        2,
    ),
    "one panel": ("figures.panel('One curve').spread([1, 2], [1, 2], 'CFL')", 1),
    "a file": (
        "from IPython.display import Image\nplt.figure()\nplt.savefig('a.png')\nplt.close()\n"
        "Image('a.png')",
        1,
    ),
    "large and fine": ("plt.figure(figsize=(20, 20), dpi=300)\nplt.plot([1])", 1),
    "something far outside": ("plt.plot([1])\nplt.text(200, 0, 'far')\nplt.show()", 1),
    "nothing": ("1 + 1", 0),
    "a table in words": ("from IPython.display import Markdown\nMarkdown('| a | b |')", 0),
}


@pytest.fixture(autouse=True)
def working():
    """Skip where there can be no sandbox."""
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")


def size(picture: bytes) -> tuple[int, int]:
    """Return width and height of a picture that can be drawn."""
    with Image.open(io.BytesIO(picture)) as image:
        return image.convert("RGB").size


def test_figures_are_kept_however_they_are_shown():
    with sandbox.Sandbox(sandbox.Limits()) as box:
        found = {how: box.run(code) for how, (code, _) in SHOWN.items()}
        crowd = box.run("for i in range(30):\n    plt.figure()\n    plt.plot([i])\n    plt.show()")
        lost = box.run("plt.figure()\nplt.gcf().savefig = None\nplt.show()")
    counts = {how: len(done["images"]) for how, done in found.items()}
    assert counts == {how: count for how, (_, count) in SHOWN.items()}
    for done in found.values():
        for picture in done["images"]:
            width, height = size(picture)
            assert 100 < width * height <= 4_000_000
    assert "| a | b |" in found["a table in words"]["output"]
    assert found["nothing"]["output"] == "Out[14]: 2\n"
    assert len(crowd["images"]) == 12
    assert "more figures than are kept" in crowd["output"]
    assert lost["images"] == []
    assert "a figure that cannot be kept" in lost["output"]


def project(released: list) -> bytes:
    """Return the copy of a pair, with an experiment on data of its own and two plots."""
    own = {
        "pair": 'pair = "García, Ana", "Tim O\'Brien"',
        "experiment": "%matplotlib inline\nimport matplotlib.pyplot as plt\nimport numpy as np\n"
        "own = np.loadtxt('measured.csv', delimiter=',')\nprint('mean', own.mean())\n"
        "plt.plot(own)",
        "own-piece": "from clusterfl_core import figures\n"
        "figures.panel('Own numbers').spread([0, 1, 2], own, 'IFCA')",
        "failure": "raise ValueError('the failure, shown on purpose')",
    }
    cells = []
    for cell in released:
        name = cell.metadata.get("nbgrader", {}).get("grade_id") or cell.id
        cell = cell.copy()
        if name in own:
            cell.source = own[name]
        elif cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = f"Our words on {name}."
        cells.append(cell)
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells)).encode()


@pytest.mark.grading
def test_a_project_reaches_its_marker_whole_and_its_marks_the_course(tmp_path):
    assignments.generate(tmp_path / "made", [NAME])
    released = assignments.released(tmp_path / "made", NAME)
    with zipfile.ZipFile(tmp_path / "canvas.zip", "w") as pack:  # as Canvas gives it
        pack.writestr("garciaana_11_70_A5_project-1.ipynb", project(released))
        pack.writestr("garciaana_11_71_measured-1.csv", "1\n2\n6\n")
        pack.writestr("garciaana_11_72_notes.txt", "ours")
    (tmp_path / "roster.csv").write_text(ROSTER, encoding="utf-8")
    options = grading.Options(people=tuple(intake.roster(tmp_path / "roster.csv")))
    out = tmp_path / "graded"

    def graded() -> grading.Result:
        asked = {"chosen": [NAME], "limits": sandbox.Limits(), "unsafe": False, "jobs": 1}
        (done,) = grading.grade(tmp_path / "canvas.zip", out, options=options, **asked)
        return done

    limits = grading.Grading(tmp_path / "none", [NAME], sandbox.Limits(), False, options)
    assert limits.limits_of(NAME) == sandbox.Limits(cell=600, total=3600)
    done = graded()
    assert (done.refused, done.student, done.partners[0].name) == (
        "",
        "García, Ana",
        "O'Brien, Tim",
    )
    assert {test.state for test in done.tests} == {"to mark"}
    assert (done.of, done.open, done.status) == (100, 100, "graded")
    (error,) = done.errors
    assert "shown on purpose" in error

    seen = nbformat.read(out / "autograded" / "s1" / NAME / f"{NAME}.ipynb", 4)
    cells = {c.metadata.get("nbgrader", {}).get("grade_id") or c.id: c for c in seen.cells}
    text = {
        name: "".join(one.get("text", "") for one in cell.get("outputs", []))
        for name, cell in cells.items()
    }
    drawn = {
        name: [size(base64.b64decode(one.data["image/png"])) for one in cell.get("outputs", [])
               if "data" in one]
        for name, cell in cells.items()
    }  # fmt: skip
    assert "accuracy" in text["starter"]
    assert "mean 3.0" in text["experiment"]
    assert "shown on purpose" in text["failure"]
    assert {name: len(some) for name, some in drawn.items() if some} == {
        "experiment": 1,
        "own-piece": 1,
    }
    assert "Our words on reading." in cells["reading"].source

    with Gradebook(f"sqlite:///{out / 'gradebook.db'}") as gradebook:
        for grade in gradebook.find_submission_notebook(NAME, NAME, "s1").grades:
            grade.manual_score, grade.needs_manual_grade = grade.max_score - 1, False
        gradebook.db.commit()
    points = 100 - len(done.tests)
    assert (graded().points, graded().open) == (points, 0)
    with (out / "canvas.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["Student"]: row for row in csv.DictReader(file)}
    assert rows["García, Ana"][NAME] == rows["O'Brien, Tim"][NAME] == str(points)
    assert rows["García, Ana"]["ID"] == "11"
    with (out / "grades.csv").open(newline="", encoding="utf-8") as file:
        notes = {row["student"]: row["notes"] for row in csv.DictReader(file)}
    assert "together with García, Ana" in notes["O'Brien, Tim"]


def test_what_students_are_told_of_data_time_and_plots_is_so():
    settings = assignments.settings(NAME)
    assert settings["data"] == 20
    assert settings["limits"] == {"cell": 10 * 60, "total": 3600}
    (told,) = [c.source for c in assignments.sources(NAME) if "**Your own data.**" in c.source]
    page = (house.ROOT / "book" / "assignments" / "index.md").read_text(encoding="utf-8")
    for text in (told, page):
        assert f"at most 20 MB and {intake.BESIDE} files" in text
        assert "an hour" in text
    readme = (house.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"at most {sandbox_pictures.MOST} a cell" in readme
