"""The assignments: student copies from the source notebooks, and the two packs.

`book/assignments/NAME/NAME.ipynb` is a source notebook in nbgrader's format, with solutions and
hidden tests; what else lies in its folder is for instructors. nbgrader makes the student copy.
"""

import io
import logging
import os
import posixpath
import re
import shutil
import sys
import zipfile
from pathlib import Path

import house
import nbformat
from nbgrader import utils
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

SOURCE = house.ROOT / "book" / "assignments"
PACKS = house.ROOT / "_build" / "assignments"
STUDENTS, INSTRUCTORS = "students.zip", "instructors.zip"
REGION = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)")

# nbgrader calls `alembic`, which lies beside the Python that runs this.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

SENTENCE = re.compile(r"\n|(?<=[.:;]) ")
LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)]*)\)")

HAND_IN = """\
# Assignments

Open a notebook in Jupyter or VS Code where `clusterfl_core` is installed, or upload it to Colab:
its first cell fetches the package. Write where it says so; run everything from the top before you
hand in (Restart and run all).

Keep the notebook's name, and every cell: the graders' marks are in cells you did not write, also
when you copy text between notebooks. Tests that you see tell you what is wrong; further tests
run when your work is graded.
"""


class ForStudents(NbGraderPreprocessor):
    """Leave out the cells tagged `instructor`, and links to files that students do not get."""

    def preprocess(self, nb, resources):
        """Return the notebook as a student may read it, solutions still in it."""
        nb.cells = [c for c in nb.cells if "instructor" not in c.metadata.get("tags", [])]
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = LINK.sub(linked, cell.source)
        return nb, resources


def linked(found: re.Match) -> str:
    """Return a link into the book as one to the repository, or as its text alone."""
    inside = posixpath.normpath(f"book/assignments/NAME/{found[2]}")
    url = house.address()
    return f"[{found[1]}]({url}/blob/main/{inside})" if url else found[1]


def names() -> list[str]:
    """Return the assignments that there are."""
    return sorted(path.stem for path in SOURCE.glob("*/*.ipynb") if path.stem == path.parent.name)


def configuration(course: Path) -> Config:
    """Return nbgrader's settings of a course in this folder."""
    config = Config()
    config.CourseDirectory.root = str(course)
    config.CourseDirectory.source_directory = str(course / "source")
    config.CourseDirectory.db_url = f"sqlite:///{course / 'gradebook.db'}"
    return config


def generate(course: Path, chosen: list[str]) -> None:
    """Let nbgrader write the student copies to `course`/release and fill `course`/gradebook.db.

    What an earlier call made of the same source notebook stays as it is.
    """
    config = configuration(course)
    course.mkdir(parents=True, exist_ok=True)
    log, said = logging.getLogger("assignments"), io.StringIO()
    log.handlers, log.propagate = [logging.StreamHandler(said)], False
    log.setLevel(logging.ERROR)
    for name in chosen:
        stamp = course / "source" / f"{name}.made"
        made = house.digest(SOURCE / name / f"{name}.ipynb", Path(__file__))
        if stamp.exists() and stamp.read_text() == made:
            continue
        folder = course / "source" / name  # the notebook alone: nbgrader hands out what lies beside
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name / f"{name}.ipynb", folder / f"{name}.ipynb")
        config.CourseDirectory.assignment_id = name
        directory = CourseDirectory(config=config, log=log)
        maker = GenerateAssignment(coursedir=directory, config=config, log=log)
        maker.force = True
        maker.preprocessors = [ForStudents, *maker.preprocessors]
        try:
            maker.start()
        except NbGraderException:
            (why,) = re.findall(r"^\w+(?:Error|Exception): .*", said.getvalue(), re.M)[-1:] or ["?"]
            if "there are submissions" in why:
                sys.exit(f"{course} was begun with other cells in {name}: choose another OUT.")
            sys.exit(f"nbgrader cannot make the student copy of {name}: {why}")
        hidden = [cell.source for cell in released(course, name) if REGION.search(cell.source)]
        if hidden:
            sys.exit(f"The student copy of {name} still has a marked region:\n{hidden[0]}")
        stamp.write_text(made)


def released(course: Path, name: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a student copy."""
    return nbformat.read(course / "release" / name / f"{name}.ipynb", 4).cells


def sources(name: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a source notebook."""
    return nbformat.read(SOURCE / name / f"{name}.ipynb", 4).cells


def settings(name: str) -> dict:
    """Return what a source notebook's metadata say about grading it: limits, withheld, data."""
    nb = nbformat.read(SOURCE / name / f"{name}.ipynb", 4)
    return dict(nb.metadata.get("clusterfl", {}))


def write_zip(path: Path, files: dict[str, bytes]) -> None:
    """Write a zip whose bytes depend on its files alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in sorted(files.items()):
            pack.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def points(name: str) -> str:
    """Return a table of what gives points in an assignment."""
    rows = [f"# Points of {name}", "", "| cell | graded | points |", "|---|---|---|"]
    cells = [c for c in sources(name) if utils.is_grade(c) or utils.is_task(c)]
    for cell in cells:
        by_hand = utils.is_solution(cell) or utils.is_task(cell) or cell.cell_type != "code"
        data = cell.metadata.nbgrader
        how = "by hand" if by_hand else "by tests"
        rows.append(f"| {data['grade_id']} | {how} | {data['points']:g} |")
    total = sum(cell.metadata.nbgrader["points"] for cell in cells)
    return "\n".join([*rows, f"| all | | {total:g} |", ""])


def pack(target: Path = PACKS) -> list[Path]:
    """Write the student zip and the instructor pack, and return their paths."""
    known = names()
    if not known:
        sys.exit(f"There is no assignment in {SOURCE}.")
    course = target / "course"
    shutil.rmtree(course, ignore_errors=True)
    generate(course, known)
    students, instructors = {"README.md": HAND_IN.encode()}, {}
    for name in known:
        copy = (course / "release" / name / f"{name}.ipynb").read_bytes()
        students[f"{name}/{name}.ipynb"] = copy
        instructors[f"{name}/student_copy.ipynb"] = copy
        instructors[f"{name}/points.md"] = points(name).encode()
        for path in (SOURCE / name).rglob("*"):
            if path.is_file() and not {".ipynb_checkpoints", "__pycache__"} & set(path.parts):
                instructors[path.relative_to(SOURCE).as_posix()] = path.read_bytes()
    shutil.rmtree(course)
    paths = [target / STUDENTS, target / INSTRUCTORS]
    for path, files in zip(paths, (students, instructors), strict=True):
        write_zip(path, files)
    return paths


# ---------------------------------------------------------------- what must not get out


def regions(text: str, kinds: str) -> list[str]:
    """Return what stands between the marks of the named kinds of region."""
    marked = rf"^[^\n]*BEGIN (?:{kinds})[^\n]*\n(.*?)^[^\n]*END (?:{kinds})"
    return re.findall(marked, text, re.DOTALL | re.MULTILINE)


def secrets(name: str) -> dict[str, list[str]]:
    """Return the blocks of text that no student may see, by kind.

    Returns
    -------
    dict
        tests, solutions and instructors: of the last also whole files beside the notebook.
    """
    found = {"tests": [], "solutions": [], "instructors": []}
    for cell in sources(name):
        found["tests"] += regions(cell.source, "HIDDEN TESTS")
        marked = regions(cell.source, "SOLUTION")
        if utils.is_solution(cell) and not marked:
            marked = [cell.source]
        found["solutions"] += marked
        found["instructors"] += regions(cell.source, "MARK SCHEME")
        if "instructor" in cell.metadata.get("tags", []):
            found["instructors"].append(cell.source)
    for path in (SOURCE / name).rglob("*"):
        if path.suffix in (".md", ".txt", ".csv", ".py"):
            found["instructors"].append(path.read_text(encoding="utf-8"))
    return found


def bare(text: str) -> str:
    """Return a text without the characters that Markdown turns into something else."""
    return re.sub(r"[`*_$\\|]", "", text)


def lines(blocks: list[str], public: str = "") -> set[str]:
    """Return the lines and sentences of some blocks that say something and that nothing public has.

    They are bare, as :func:`bare` makes them; look for them in a bare text.
    """
    pieces = {piece.strip() for block in blocks for piece in SENTENCE.split(bare(block))}
    told = {piece for piece in pieces if len(piece) >= 12 and re.search("[a-z]{3}", piece)}
    public = bare(public)
    return {piece for piece in told if piece not in public}


def main() -> None:
    """Write both packs and say where they are."""
    with house.step("Making the student copies"):
        paths = pack()
    print("\n".join(f"Wrote {path}" for path in paths))


if __name__ == "__main__":
    main()
