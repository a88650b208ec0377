"""What README and pages tell a reader to type and where to read on, held against what there is."""

import argparse
import importlib
import json
import re
import shlex
import shutil
import subprocess

import house
import pytest

ROOT = house.ROOT
BOOK = ROOT / "book"
NOTEBOOKS = house.notebooks()
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted(path for path in BOOK.rglob("*.md") if "_static" not in path.parts),
    *NOTEBOOKS,
]
PROGRAMS = r"make|python3?|pytest|ruff|jupyter|nbgrader|\S*bin/\w+"
START = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{PROGRAMS}) \S")
BOX = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SAME = "book/deployment.md"  # `make test-deployment` runs its boxes


def text(path) -> str:
    """A page as Markdown; of a notebook all cells, for some print commands."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells)


def printed(path):
    """The commands of a page: lines of its boxes, and what stands between backticks."""
    page = text(path)
    for kind, body in BOX.findall(page):
        if kind in ("", "bash", "sh"):
            yield from (line.strip() for line in body.splitlines())
    yield from re.findall(r"`([^`\n]+)`", BOX.sub("", page))


COMMANDS = sorted(
    {
        (path.relative_to(ROOT).as_posix(), command)
        for path in PAGES
        for command in printed(path)
        if START.match(command) and "{" not in command and "..." not in command
    }
)
each = pytest.mark.parametrize(("page", "command"), COMMANDS)


def words(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables before a command, and its words."""
    split = shlex.split(command)
    first = next(i for i, word in enumerate(split) if "=" not in word)
    return dict(word.split("=", 1) for word in split[:first]), split[first:]


def test_the_commands_are_found():
    commands = {command for _, command in COMMANDS}
    assert {"make book", "make serve PORT=9000", "python tools/house.py sync"} <= commands
    assert ".venv/bin/pip install pandas" in commands
    assert len(commands) > 60


@each
def test_a_program_is_named_by_where_it_lies(page, command):
    """After `make book` the packages' programs are in `.venv/bin`, and in no other place."""
    if page == SAME:
        return
    program, *rest = words(command)[1]
    assert re.match(r"make|python|(?:\.\./)?\.venv(?:-flower)?/bin/", program), command
    if program == "python":  # any Python; what it runs needs the standard library alone
        assert rest[0] in ("tools/house.py", "tools/folding.py")
    for word in rest:
        if re.match(r"(tools|tests|benchmarks|book)/", word):
            assert list(ROOT.glob(word)), word


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@each
def test_make_knows_its_targets_and_house_the_words(page, command, monkeypatch):
    """What each command hands to house.py is understood there, and nothing is done."""
    program, *rest = words(command)[1]
    if program == "make":
        said = subprocess.run(["make", "-n", *rest], cwd=ROOT, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        if rest[0] in ("help", "clean"):
            return
        line = next(one for one in said.stdout.splitlines() if "tools/house.py" in one)
        for given in rest[1:]:
            assert given.split("=", 1)[1] in line, f"{command} does not hand on {given}"
        rest = shlex.split(line)[1:]
    if rest[0] != "tools/house.py":
        return
    rest = rest[1:]
    if rest[0] == "grade":
        grading = importlib.import_module("grading")
        grading.parser().parse_args([word for word in rest[1:] if word != "--help"] or ["x"])
        return
    seen = []

    def note(parser, given=None):
        seen.append(parser.parse_known_args(rest))
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", note)
    monkeypatch.setattr("sys.argv", ["house.py", *rest])
    with pytest.raises(SystemExit) as ended:
        house.main()
    assert ended.value.code == 0
    assert seen[0][1] == [], f"{command}: not understood"


def parameters(experiment: str) -> list[str]:
    path = BOOK / "experiments" / f"{experiment}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    (cell,) = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    return re.findall(r"^(\w+) = ", "".join(cell["source"]), re.MULTILINE)


RUNS = sorted(
    {
        (page, command)
        for page, command in COMMANDS
        if re.search(r"make results \w|house.py results \w", command)
    }
    | {
        (f"book/experiments/{path.name}", f"make results EXPERIMENT={path.stem} {word}")
        for path in house.experiments()
        for word in re.findall(r'`(SET="?[^`]+)`', text(path))
    }
)


@pytest.mark.parametrize(("page", "command"), RUNS)
def test_an_experiment_that_is_asked_for_has_the_parameters(page, command):
    given = dict(re.findall(r'(\w+)=("[^"]*"|\S+)', command))
    name = given.get("EXPERIMENT") or words(command)[1][3]
    known = parameters(name)
    assert all(seed.isdecimal() for seed in given.get("SEEDS", "0").strip('"').split())
    for pair in given.get("SET", "").strip('"').split():
        assert pair.split("=")[0] in known, f"{page}: {name} has no {pair}"


def test_flower_is_told_which_server_is_meant():
    """The page's config.toml names no default, without which Flower asks for a name."""
    page = text(ROOT / SAME)
    assert "default =" not in page
    asked = re.findall(r"flwr (?:run|list|stop|log|supernode) [^`\n]+", page)
    assert len(asked) > 6
    assert all("clinics" in one.split() for one in asked), asked


def test_a_copy_of_the_site_lies_outside_the_repository():
    """A site holds copies of the notebooks, whose style `make test` would check by other rules."""
    copies = [
        line.split()
        for path in PAGES
        for _, body in BOX.findall(text(path))
        for line in body.splitlines()
        if line.startswith("cp -r ")
    ]
    assert copies
    assert all(target.startswith("../") for *_, target in copies)


# ---------------------------------------------------------------- where to read on


def test_every_paper_of_a_chapter_stands_in_the_references_once():
    references = (BOOK / "references.md").read_text(encoding="utf-8")
    link = r"(?:arxiv\.org/abs/|doi\.org/)([^\s)\"']+)"
    for path in NOTEBOOKS:
        for paper in re.findall(link, text(path)):
            assert paper in references, f"{path.name}: {paper}"
    titles = re.findall(r"^- [^*\n]+\*([^*]+)\*", references, re.MULTILINE)
    assert sorted(set(titles)) == sorted(titles)


def test_the_glossary_is_in_order():
    entries = re.findall(r"^\*\*(.+?)\.\*\*", text(BOOK / "glossary.md"), re.MULTILINE)
    assert entries == sorted(entries, key=str.lower)


def test_the_long_plan_of_the_instructors_has_every_chapter():
    page = text(BOOK / "instructors.md")
    plan = page.split("**Twelve weeks")[1].split("\n\nTo lecture")[0]
    cells = [line.split("|")[2] for line in plan.splitlines() if line.startswith("| ")]
    named = {int(number) for cell in cells for number in re.findall(r"\b\d+\b", cell)}
    chapters = {int(path.name[:2]) for path in BOOK.glob("[0-9][0-9]_*.ipynb")}
    assert named == chapters
    assert "appendix" in plan


def test_every_public_name_is_on_the_page_of_the_library():
    cf = importlib.import_module("clusterfl_core")
    page = text(BOOK / "api.md")
    shown = re.findall(r"automodule:: (\S+)", page)
    for name in cf.__all__:
        home = getattr(getattr(cf, name), "__module__", None)
        if home is None:  # a room, or the version
            assert (
                name in ("__version__", "baselines")
                or f"clusterfl_core.{name}" in page
                or f"clusterfl_core.algorithms.{name}" in page
            ), name
        else:
            assert home in shown, name
    for room in shown:
        importlib.import_module(room)
