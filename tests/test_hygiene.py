"""What holds for every file: notebooks, pages, links, licences, layers, versions."""

import ast
import importlib.util
import json
import re
import subprocess
import tomllib
from pathlib import Path

import house
import pytest
from packaging.requirements import Requirement

from clusterfl_core.version import __version__

ROOT = house.ROOT
NOTEBOOKS = house.notebooks()
EXPERIMENTS = house.experiments()
PAGES = [*NOTEBOOKS, *sorted((ROOT / "book").rglob("*.md"))]

# Each layer of clusterfl_core imports only from those before it; a folder is one room.
LAYERS = [
    {"version", "check", "trust"},
    {"files", "machine", "matching", "randomness"},
    {"figures", "results"},
    {"models"},
    {"banks"},
    {"clients", "similarity", "grouping"},
    {"compute"},
    {"contract", "solvers", "data"},
    {"evaluation", "populations", "theory"},
    {"algorithms"},
    {"door", "runs"},
    {"simulation"},
    {"starts", "trials", "flower", "comparison", "claims", "diagnosis"},
    {"composing"},
    {"contest"},
    {"live"},
]

# Versions on Colab, older than the newest: the package must be content with them.
COLAB = {
    "filelock": "3.18.0",
    "ipywidgets": "7.7.1",
    "matplotlib": "3.10.0",
    "numpy": "2.0.2",
    "pillow": "11.1.0",
    "scikit-learn": "1.6.1",
    "scipy": "1.14.1",
    "torch": "2.6.0",
    "torchvision": "0.21.0",
    "tqdm": "4.67.1",
}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked() -> list[Path]:
    """Return the files of the repository, and new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in map(ROOT.joinpath, listed.split("\0")) if path.is_file()]


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def prose(path: Path) -> str:
    """Return what a page says: a whole Markdown file, or the text cells of a notebook."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")


# ---------------------------------------------------------------- notebooks and pages


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_notebook_is_stripped(path):
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_notebook_begins_with_the_setup_cell(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    synced = house.with_setup_cell(notebook, house.setup_source())
    assert notebook == synced, "run `python tools/house.py sync`"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=relative)
def test_notebook_text_needs_no_myst(path):
    raw = re.search(r"```+ *\{|\{[a-z:]+\}`|^ *:::|^\([\w-]+\)=$", prose(path), re.MULTILINE)
    assert not raw, f"Colab would show this as it stands: {raw[0]}"


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_page_has_no_placeholder(path):
    words = r"\bTODO\b|\bFIXME\b|\bXXX\b|\bTBD\b|lorem ipsum|coming soon|(solution|answer)s? here"
    found = re.search(words, prose(path), re.IGNORECASE)
    assert not found, f"unfinished: {found[0]}"


def test_contents_list_every_page_and_nothing_else():
    pages = {relative(path.with_suffix("")) for path in PAGES if path.parent == ROOT / "book"}
    assert pages == {name for name in house.contents() if name.count("/") == 1}


def code(path: Path) -> str:
    return "\n\n".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "code")


def chapter_of(path: Path) -> Path:
    """Return the chapter that an experiment's first cell links to first."""
    text = "".join(cells(path)[0]["source"])
    return (path.parent / re.search(r"\]\((\.\./\w+\.ipynb)\)", text)[1]).resolve()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=relative)
def test_experiment_asks_a_question_has_the_parameters_and_compares(path):
    first, *rest = cells(path)
    assert re.match(r"# .+\n\n[^?]+\?", "".join(first["source"])), "a title, then a question"
    (parameters,) = [c for c in rest if "parameters" in c["metadata"].get("tags", [])]
    names = [line.split("  #")[0] for line in "".join(parameters["source"]).splitlines()]
    assert names[:3] == ['preset = "quick"', "seed = 0", 'device = "auto"']
    assert f'cf.results.Store("{path.stem}", preset)' in code(path)
    assert re.search(rf'stored\(\s*"{path.stem}"', code(path)), "beside what is stored"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=relative)
def test_experiment_is_shown_by_its_chapter(path):
    chapter = chapter_of(path)  # what repeats a paper alone is shown by the claims chapter
    assert chapter.stem.startswith((path.stem.split("_")[0], "simulating", "15_claims"))
    assert "(experiments.ipynb)" in prose(chapter) + code(chapter), "a link to the list"
    assert re.search(rf'stored\(\s*"{path.stem}"', code(chapter)), "and its records"


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p not in EXPERIMENTS], ids=relative)
def test_only_experiments_store(path):
    assert not re.search(r"\bresults\.Store\b|\bpreset\b", code(path))


def test_every_record_is_of_an_experiment():
    kept = {path.parent.name for path in (ROOT / "book" / "results").glob("*/*.json")}
    flower = (ROOT / "tools" / "record_deployment.py").read_text(encoding="utf-8")
    others = {f"14_{name}" for name in re.findall(r'record\("(\w+)"', flower)}
    assert kept == {path.stem for path in EXPERIMENTS} | others


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_links_of_a_page_lead_to_pages_also_in_computed_text(path):
    listed = relative(path.with_suffix("")) in house.contents()
    text = prose(path) + (code(path) if path.suffix == ".ipynb" else "")
    for target in re.findall(r"\]\(([\w/.]+\.(?:ipynb|md))\b", text):
        found = (path.parent / target).resolve()
        assert found.exists(), f"{target} is not there"
        if listed:  # the built book has no other pages
            assert relative(found.with_suffix("")) in house.contents(), f"{target} is no page"


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=relative)
def test_local_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"```.*?```", "", prose(path), flags=re.S)):
        if not re.match("[a-z]+:", target):
            assert (path.parent / target).exists(), f"{target} is not there"


# ---------------------------------------------------------------- repository


def test_no_picture_lies_about():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    homes = ("book/_static/", "tests/looks/")
    pictures = [p for p in listed.stdout.split() if p.endswith((".png", ".jpg", ".svg"))]
    assert [p for p in pictures if not p.startswith(homes)] == []


def test_code_of_others_carries_its_licence():
    folders = [path for path in (ROOT / "book/_static/vendor").iterdir() if path.is_dir()]
    assert folders
    listed = (ROOT / "book/_static/vendor/VENDORED.md").read_text(encoding="utf-8")
    for folder in [*folders, ROOT / "tests/vendor"]:
        assert (folder / "LICENSE").stat().st_size > 500
        assert folder.name in listed


def test_no_file_names_the_host_of_a_package_registry():
    names = ["py" + "pi.org", "npm" + "js.org", "npm" + "js.com", "deb.deb" + "ian.org"]
    for path in tracked():
        if "vendor" not in path.parts:
            text = path.read_bytes().decode("utf-8", "ignore").lower()
            assert not [name for name in names if name in text], relative(path)


def test_no_page_or_style_loads_from_elsewhere():
    texts = [p for p in (ROOT / "book/_static").glob("*.*") if p.suffix != ".png"]
    for path in [ROOT / "_config.yml", *texts]:
        urls = re.findall(r"https?://[^\s\"')]+", path.read_text(encoding="utf-8"))
        licence = "https://creativecommons.org/licenses/by/4.0/"  # a link, in the footer
        allowed = {house.COLAB, house.address(), "http://www.w3.org/2000/svg", licence}
        assert set(urls) <= allowed, relative(path)


# ---------------------------------------------------------------- package


PACKAGE = ROOT / "clusterfl_core"
ROOMS = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    """Return the room that a file of the package belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST, where: str) -> set[str]:
    """Return the rooms that code imports, at its top, in a function, or by name, in any form.

    `where` is the package of the file, for what begins with a dot. "" is the package itself. The
    text of a room's name counts, whatever is done with it.
    """
    found, loaders = set(), {"import_module", "resolve_name", "__import__"}
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.ImportFrom):
            parents = where.split(".")[: len(where.split(".")) - node.level + 1]
            base = ".".join([*parents, node.module] if node.module else parents)
            base = base if node.level else node.module
            modules = [f"{base}.{alias.name}" for alias in node.names]
            loaders |= {alias.asname for alias in node.names if alias.name in loaders}
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = [*node.args, *(one.value for one in node.keywords)] if name in loaders else []
            texts = [one.value for one in given if isinstance(one, ast.Constant)]
            modules = texts[:1]
            if modules and modules[0].startswith("."):
                modules = [importlib.util.resolve_name(*[*texts, where][:2])]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(clusterfl_core\.(\w+))[\w.:]*", node.value)
            modules = [named[1]] if named and named[2] in set().union(*LAYERS) else []
        for module in modules:
            first, *rest = re.split("[.:]", str(module))
            if first == "clusterfl_core":
                found.add(rest[0] if rest else "")
    return found


@pytest.mark.parametrize("path", ROOMS, ids=relative)
def test_a_room_imports_only_from_the_layers_before_it(path):
    (level,) = [i for i, layer in enumerate(LAYERS) if room(path) in layer]
    where = ".".join(["clusterfl_core", *path.relative_to(PACKAGE).parts[:-1]])
    found = imported(ast.parse(path.read_text(encoding="utf-8")), where)
    assert found - {room(path)} <= set().union(*LAYERS[:level])


@pytest.mark.parametrize(
    "text",
    [
        "from clusterfl_core import flower",
        "from clusterfl_core.flower import serve",
        "import clusterfl_core.flower",
        "import clusterfl_core.flower as wire",
        "def f():\n    from . import flower",
        "from .flower import serve",
        "from ..flower import serve",
        "import importlib\nimportlib.import_module('clusterfl_core.flower')",
        "from importlib import import_module as load\nload(name='clusterfl_core.flower')",
        "load = __import__\nload('clusterfl_core.flower')",
        "from importlib import import_module\nimport_module('.flower', 'clusterfl_core')",
        "from importlib import import_module as load\nload('..flower', package=__package__)",
        "import pkgutil\npkgutil.resolve_name('clusterfl_core.flower:serve')",
        "import sys\nsys.modules['clusterfl_core.flower']",
        "def f(part):\n    return load(f'clusterfl_core.flower.{part}')",
    ],
)
def test_every_form_of_import_is_seen(text):
    inside = "clusterfl_core.data" if ".." in text else "clusterfl_core"
    assert imported(ast.parse(text), inside) == {"flower"}
    for whole in ("import clusterfl_core as cf", "__import__('clusterfl_core').flower"):
        assert imported(ast.parse(whole), inside) == {""}


@pytest.mark.parametrize("path", ROOMS, ids=relative)
def test_a_room_names_what_is_public(path):
    if path.name.startswith("_") and path.name != "__init__.py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    targets = [ast.unparse(n.targets[0]) for n in tree.body if isinstance(n, ast.Assign)]
    names = [name for name in targets if name == "__all__"]
    assert len(names) == 1
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(module)
    for name in getattr(module, "__all__", ()):
        assert hasattr(module, name), name


SHARED = ("contract", "clients", "randomness", "banks", "compute", "solvers", "evaluation")


def test_one_algorithm_can_be_followed_from_end_to_end_in_2100_lines():
    """The rooms that every algorithm goes through, and the longest of the papers' three."""

    def lines(name):
        return len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines())

    longest = max(lines(f"algorithms/{name}") for name in ("ifca", "cfl", "fedsoft"))
    assert sum(map(lines, (*SHARED, "simulation"))) + longest <= 2100


def test_no_tool_imports_a_test():
    tests = {path.stem for path in (ROOT / "tests").glob("*.py")}
    for path in (ROOT / "tools").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        found = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
        found |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not {str(name).split(".")[0] for name in found} & tests, relative(path)


def test_no_room_knows_the_book():
    for path in ROOMS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""["']book["'/]""", text), relative(path)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_package_is_content_with_what_colab_has():
    needed = [Requirement(text) for text in PROJECT["dependencies"]]
    assert {r.name for r in needed} == set(COLAB)
    for requirement in needed:
        assert requirement.specifier.contains(COLAB[requirement.name]), str(requirement)
        assert {s.operator for s in requirement.specifier} == {">="}, "no upper bound"


def test_every_direct_requirement_is_pinned_exactly():
    for name in ("requirements.txt", "constraints.txt"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for line in lines:
            assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.+]+", line), line


def test_versions_agree():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {__version__}\n" in cited
    assert f"\n## {__version__}" in (ROOT / "book/changes.md").read_text(encoding="utf-8")
    wheel = f"clusterfl_core-{__version__}-py3"
    assert wheel in (ROOT / "book/instructors.md").read_text(encoding="utf-8")
