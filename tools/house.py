"""The book's house-keeping: set up, build, test, serve. `make` and the README both call this file.

Only the standard library is used, and any Python 3.11 or newer can run it: what needs the book's
own packages is run with the Python of `.venv`, which `setup` makes.
"""

import argparse
import ast
import contextlib
import difflib
import functools
import hashlib
import http.server
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 (an older Python must say so, not fail below)
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
EXE = ".exe" if os.name == "nt" else ""
PYTHON = BIN / f"python{EXE}"

UV = "uv==0.13.9"  # installs what pip would, in a fifth of the time
PLATFORMS = {"Linux": ["x86_64", "aarch64"], "Darwin": ["arm64"], "Windows": ["amd64"]}
PYTHONS = (3, 11, 5), (3, 15)  # from the first, below the second
GLIBC, MACOS = (2, 28), (14,)  # at least
PLATFORM_NAMES = (
    "Python 3.11.5 to 3.14 on Linux (x86_64 or aarch64, glibc 2.28 or newer), on macOS 14 or newer"
    " (Apple silicon only) or on Windows (x86_64)"
)

SETUP_TAGS = ["hide-input", "setup"]
COLAB = "https://colab.research.google.com"
BUILD_OPTIONS = ["-W", "--keep-going"]
TWO = ["-n", str(min(2, os.cpu_count() or 1)), "--dist", "loadfile"]  # each takes up to 1 GB
NBVAL_OPTIONS = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", "900", *TWO]
LATER = "not pages and not colab and not deployment and not grading and not long"
STRIP_OPTIONS = ["--verify", "--keep-id", "--extra-keys", "metadata.language_info"]
CHROMES = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
]


# ---------------------------------------------------------------- steps


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is being done, then how many seconds it took."""
    print(f"==> {what}", flush=True)
    start = time.perf_counter()
    yield
    print(f"    {time.perf_counter() - start:.1f} s: {what}", flush=True)


def run(*command: object, failed: str = "") -> None:
    """Run a command in the repository's root; stop with one sentence if it fails.

    The book's models are so small that a second thread gains little, and on a busy machine costs
    many times what it gains; one thread also adds up in the same order on every machine.
    """
    words = [str(word) for word in command]
    if subprocess.run(words, cwd=ROOT, env={"OMP_NUM_THREADS": "1", **os.environ}).returncode:
        sys.exit(failed or f"Failed: {' '.join(words)}")


def python(*arguments: object, failed: str = "") -> None:
    """Run the Python of `.venv` with these arguments."""
    run(PYTHON, *arguments, failed=failed)


def digest(*parts: str | Path) -> str:
    """Return a hash of strings and of files (name and bytes), folders taken whole."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            total.update(part.encode())
            continue
        files = part.rglob("*") if part.is_dir() else [part]
        for file in sorted(f for f in files if f.is_file() and f.suffix != ".pyc"):
            total.update(str(file.relative_to(part.parent)).encode() + file.read_bytes())
    return total.hexdigest()


def check_platform() -> None:
    """Stop with one sentence where the pinned packages have no builds."""
    system, machine = platform.system(), platform.machine()
    if system == "Linux":
        kind, version = platform.libc_ver()
        within, fits = f", {kind or 'no glibc'} {version}".rstrip(), kind == "glibc"
        least = GLIBC
    else:
        version = platform.mac_ver()[0] if system == "Darwin" else ""
        within, fits, least = f" {version}".rstrip(), True, MACOS
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if (
        machine.lower() not in PLATFORMS.get(system, [])
        or not PYTHONS[0] <= sys.version_info < PYTHONS[1]
        or not fits
        or (found and found < least)
    ):
        here = f"Python {platform.python_version()} on {system}{within} ({machine})"
        sys.exit(f"PyTorch and the book's other packages need {PLATFORM_NAMES}; this is {here}.")


def pip_settings(python: Path) -> dict[str, str]:
    """Return how pip is configured on this machine: the options of `pip install`, by name."""
    command = [python, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for section in ("global.", "install.", ":env:."):  # a later one counts more
        for line in lines:
            name, _, value = line.partition("=")
            if name.startswith(section):
                found[name.removeprefix(section)] = ast.literal_eval(value)
    return found


def uv_install(python: Path, *what: object) -> bool:
    """Install with uv, from where pip would have taken it; return whether that was possible.

    uv lies in a folder of its own inside the environment, so that the environment holds the same
    packages as with pip.
    """
    folder = python.parents[1] / UV.replace("==", "-")
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not folder.exists() and subprocess.run([*pip, "--target", folder, UV]).returncode:
        return False
    settings = pip_settings(python)
    options = ["--python", python, "--compile-bytecode"]
    options += ["--index-strategy", "unsafe-best-match"]  # all indexes are equal, as for pip
    for name in ("index-url", "extra-index-url", "find-links", "constraint"):
        for value in settings.get(name, "").split():
            options += [f"--{name}", value]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    variables = {"PYTHONPATH": str(folder)}
    if "cert" in settings:
        variables["SSL_CERT_FILE"] = settings["cert"]
    command = [python, "-m", "uv", "pip", "install", *options, *what]
    return not subprocess.run(command, cwd=ROOT, env=os.environ | variables).returncode


def install(python: Path, *what: object, failed: str = "") -> None:
    """Install into an environment, with uv, or with pip where uv cannot."""
    if not uv_install(python, *what):
        print("uv could not install that, pip tries.", flush=True)
        run(python, "-m", "pip", "install", "--disable-pip-version-check", *what, failed=failed)


def installed_key() -> str:
    """Return what `.venv` depends on; a changed key means: install again."""
    files = [ROOT / name for name in ("requirements.txt", "constraints.txt", "pyproject.toml")]
    return digest(*files, sys.version.split()[0])


def setup() -> None:
    """Make `.venv` with the pinned packages and this repository's own, unless it is up to date."""
    stamp = VENV / "installed"
    if stamp.exists() and stamp.read_text() == installed_key():
        return
    check_platform()
    with step("Installing the pinned packages in .venv"):
        if not PYTHON.exists():
            venv.create(VENV, with_pip=True)
        kept = "Installing failed, the reason is above; what was fetched is kept: run it again."
        install(PYTHON, "-r", "requirements.txt", "-c", "constraints.txt", failed=kept)
        own = ["--no-deps", "--no-build-isolation", "--editable", "."]
        python("-m", "pip", "install", "-q", "--disable-pip-version-check", *own, failed=kept)
        stamp.write_text(installed_key())


# ---------------------------------------------------------------- book


def notebooks(root: Path = ROOT) -> list[Path]:
    """Return every notebook under book/, without editors' checkpoints."""
    found = (root / "book").rglob("*.ipynb")
    return sorted(path for path in found if ".ipynb_checkpoints" not in path.parts)


def contents(root: Path = ROOT) -> list[str]:
    """Return the pages that _toc.yml lists, as paths without suffix, the front page first."""
    text = (root / "_toc.yml").read_text(encoding="utf-8")
    return re.findall(r"^[ -]*(?:root|file): *(\S+)", text, re.MULTILINE)


def clean(root: Path = ROOT) -> None:
    """Empty `_build`, but keep executed notebooks while nothing they depend on has changed.

    The pages of long runs stay too: one may be running.

    The execution cache compares only the cells of a notebook. Its key here adds the library, the
    stored results, the installed versions and the environment variables the library reads.
    """
    build = root / "_build"
    variables = str(sorted(kv for kv in os.environ.items() if kv[0].startswith("CLUSTERFL_")))
    stored = Path(os.environ.get("CLUSTERFL_RESULTS") or ROOT / "book" / "results")
    records = sorted(stored.rglob("*.json"))
    key = digest(ROOT / "clusterfl_core", *records, installed_key(), variables)
    stamp = build / ".jupyter_cache" / "key"
    keep = stamp.exists() and stamp.read_text() == key
    for path in build.iterdir() if build.exists() else []:
        if path.name == "results" or (path.name == ".jupyter_cache" and keep):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(key)


def execute(paths: list[Path], *options: str, root: Path = ROOT) -> None:
    """Run notebooks with nbval, two at a time, and keep those that passed for the build.

    What the build finds in its cache it does not run again.
    """
    settings = ["-c", ROOT / "pyproject.toml", "-p", "executed"]
    kept = ["--keep-executed", root / "_build" / ".jupyter_cache"]
    words = [*settings, *NBVAL_OPTIONS, *kept, *options, *paths]
    python("-m", "pytest", *words, failed="A notebook fails: its traceback is above.")


def unexecuted(root: Path = ROOT) -> list[Path]:
    """Return the notebooks of the book's pages that the build would have to run."""
    pages = [
        path for path in map(root.joinpath, (f"{n}.ipynb" for n in contents(root))) if path.exists()
    ]
    command = [PYTHON, ROOT / "tools" / "executed.py", root / "_build" / ".jupyter_cache", *pages]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines()]


def build_command(root: Path = ROOT) -> list[str]:
    """Return the command that builds the book: warnings and raising cells make it fail."""
    return [str(BIN / f"jupyter-book{EXE}"), "build", str(root), *BUILD_OPTIONS]


def build() -> None:
    """Build every page, and the assignments' two packs."""
    with step("Building the pages"):
        run(*build_command())
    assignments()
    copies = ROOT / "_build" / "assignments" / "students.zip"
    shutil.copy(copies, ROOT / "_build" / "html" / "book" / "assignments")


def book() -> None:
    """Build the book and print the path to open."""
    setup()
    clean()
    if paths := unexecuted():
        with step("Running the notebooks"):
            execute(paths, "--exitfirst")
    build()
    print(f"Open {ROOT / '_build' / 'html' / 'index.html'}")


def pdf() -> None:
    """Bind the built book to one PDF, through the browser."""
    if not (ROOT / "_build" / "html" / "index.html").exists():
        sys.exit("There is no built book yet: run `make book` (python tools/house.py book) first.")
    setup()
    find_browser()
    with step("Printing the pages"):
        run(PYTHON, "tools/book_pdf.py")


def serve(port: int) -> None:
    """Serve the built book on this machine only."""
    site = ROOT / "_build" / "html"
    if not (site / "index.html").exists():
        sys.exit("There is no built book yet: run `make book` (python tools/house.py book) first.")
    if not 0 <= port <= 65535:
        sys.exit(f"There is no port {port}: choose one up to 65535, such as PORT=8000.")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        sys.exit(f"Port {port} cannot be used ({error.strerror}): choose another, PORT={port + 1}.")
    print(f"Open http://127.0.0.1:{server.server_port}/ (Ctrl-C stops it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


# ---------------------------------------------------------------- stored results


def experiments(root: Path = ROOT) -> list[Path]:
    """Return the notebooks of the long experiments."""
    return [path for path in notebooks(root) if path.parent == root / "book" / "experiments"]


def results(
    experiment: str,
    preset: str,
    seeds: list[str],
    device: str = "auto",
    others: list[str] = (),
    root: Path = ROOT,
) -> None:
    """Run a long experiment, seed after seed, and store what is not stored yet.

    Its notebook runs with the parameters `preset`, `seed`, `device` and those of `others`, such as
    "rounds=300". What was stored stays, so the same command goes on after a kill. Set
    OMP_NUM_THREADS for more threads than one.
    """
    known = [path.stem for path in experiments(root)]
    if experiment not in known:
        near = sorted(difflib.get_close_matches(experiment, known, 8, 0))
        more = " or another notebook of book/experiments" if len(known) > len(near) else ""
        sys.exit(f"There is no experiment {experiment!r}: choose one of {', '.join(near)}{more}.")
    if preset not in ("quick", "paper"):
        sys.exit(f"The preset must be quick or paper, not {preset!r}.")
    if not re.fullmatch("auto|cpu|mps|cuda(:[0-9]+)?", device):
        sys.exit(f"The device must be auto, cpu, cuda or mps, not {device!r}.")
    if not seeds or not all(re.fullmatch("[0-9]+", seed) for seed in seeds):
        sys.exit(f"Seeds must be whole numbers, such as 0 1 2, not {' '.join(seeds)!r}.")
    if wrong := [pair for pair in others if not re.fullmatch("[a-z_]+=.*", pair)]:
        sys.exit(f"Other parameters are set as in rounds=300, not {wrong[0]!r}.")
    setup()
    for name in ("CLUSTERFL_DATA", "CLUSTERFL_RESULTS"):
        if os.environ.get(name):  # the notebook runs in another folder
            os.environ[name] = str(Path(os.environ[name]).expanduser().resolve())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    script = ROOT / "tools" / "run_experiment.py"
    notebook = root / "book" / "experiments" / f"{experiment}.ipynb"
    others = [f"preset={preset}", f"device={device}", *others]
    command = [str(word) for word in (PYTHON, script, notebook, *seeds, *others)]
    if os.name == "nt":
        sys.exit(subprocess.run(command).returncode)
    os.execv(PYTHON, command)  # one process, so that whoever stops it stops the work


def bench(threads: int) -> None:
    """Measure the library against plain loops on this machine, and print one table."""
    setup()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    python("benchmarks/run.py", "--threads", threads)


# ---------------------------------------------------------------- assignments


def assignments() -> None:
    """Make the student zip and the instructor pack in _build/assignments."""
    setup()
    python("tools/assignments.py")


def grade(options: list[str]) -> None:
    """Grade a folder of submissions; `--help` after it says with which options."""
    setup()
    command = [str(word) for word in (PYTHON, ROOT / "tools" / "grading.py", *options)]
    if os.name == "nt":
        sys.exit("Grading needs Linux, where bubblewrap keeps submissions apart.")
    os.execv(PYTHON, command)  # one process, so that whoever stops it stops the work


# ---------------------------------------------------------------- tests


def chromium() -> str | None:
    """Return the Chromium or Chrome of this machine: $CHROMIUM, or the first of the usual ones."""
    names = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else CHROMES
    return next((path for path in map(shutil.which, names) if path), None)


def find_browser() -> None:
    """Make sure that the page tests have a browser, or say in one sentence what is missing."""
    if chromium():
        return
    with step("No Chromium or Chrome here: playwright fetches its own"):
        if subprocess.run([PYTHON, "-m", "playwright", "install", "chromium"]).returncode:
            sys.exit(
                "The page tests need Chromium or Chrome, found none, and playwright could not fetch"
                " its own: install Chromium, or set CHROMIUM to its path."
            )


def test() -> None:
    """Run every check: style, workflows, units, notebooks, a clean build, then its pages."""
    setup()
    find_browser()
    with step("Style of code and notebooks"):
        python("-m", "ruff", "check", ".")
        python("-m", "ruff", "format", "--check", ".")
    with step("Outputs stripped"):
        run(BIN / f"nbstripout{EXE}", *STRIP_OPTIONS, *notebooks())
    with step("Workflows and citation are well formed"):
        check = [BIN / f"check-jsonschema{EXE}", "--builtin-schema"]
        workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
        run(*check, "vendor.github-workflows", *workflows)
        run(*check, "vendor.citation-file-format", "CITATION.cff")
    with step("Library and house"):
        python("-m", "pytest", "tests", "-m", LATER, *TWO)
    clean()
    with step("Every notebook runs"):
        execute(notebooks())
    build()
    with step("Built pages in the browser"):
        python("-m", "pytest", "tests", "-m", "pages", *TWO[:2])  # test by test: few files


def test_colab() -> None:
    """Run each notebook as Colab would: alone, from the built wheel, with Colab's ipywidgets."""
    setup()
    with step("Notebooks alone, from the wheel"):
        python("-m", "pytest", "tests/test_colab.py")


def test_grading() -> None:
    """Hand in every typical answer to the assignments, and grade them all in the sandbox."""
    setup()
    with step("Grading"):
        python("-m", "pytest", "tests", "-m", "grading and not long", "-rP", *TWO)


def test_long() -> None:
    """Run the tests that are too long for every change."""
    setup()
    with step("Long tests"):
        python("-m", "pytest", "tests", "-m", "long", "-rP", *TWO)


def test_deployment() -> None:
    """Run the tests that need Flower, in an environment of its own on top of `.venv`.

    Flower wants some of the book's packages in other versions, so it cannot live in `.venv`.
    """
    setup()
    folder = ROOT / ".venv-flower"
    own = folder / PYTHON.relative_to(VENV)
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != installed_key():
        with step("Installing Flower in .venv-flower"):
            venv.create(folder, with_pip=True, clear=True)
            site = "import sysconfig; print(sysconfig.get_path('purelib'))"
            below, above = (
                subprocess.run([p, "-c", site], capture_output=True, text=True, check=True).stdout
                for p in (PYTHON, own)
            )
            line = f"import site; site.addsitedir({below.strip()!r})\n"
            (Path(above.strip()) / "book.pth").write_text(line)
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            (needed,) = project["project"]["optional-dependencies"]["flower"]
            needed = needed.replace("flwr", "flwr[simulation]")
            # uv does not see what book.pth adds, and would install all of it anew
            run(own, "-m", "pip", "install", "-q", "--disable-pip-version-check", needed)
            stamp.write_text(installed_key())
    with step("Flower"):
        # Two files at a time, the longest first: they wait for clients that died, and waiting costs
        # nothing.
        names = ("deployment_page", "flower_deployment", "flower", "flower_simulation")
        files = [f"tests/test_{name}.py" for name in names]
        run(own, "-m", "pytest", *TWO, "--no-loadscope-reorder", *files)


# ---------------------------------------------------------------- the repository's address


def address(root: Path = ROOT) -> str:
    """Return the repository's address from _config.yml, "" while it is unset."""
    text = (root / "_config.yml").read_text(encoding="utf-8")
    return re.search(r'^  url: "(.*)"', text, re.MULTILINE)[1]


def setup_source(root: Path = ROOT) -> str:
    """Return the setup cell of every notebook: the template with the address filled in."""
    text = (ROOT / "tools" / "setup_cell.py").read_text(encoding="utf-8").rstrip("\n")
    return text.replace('REPOSITORY = ""', f'REPOSITORY = "{address(root)}"')


def with_setup_cell(notebook: dict, source: str) -> dict:
    """Return the notebook with `source` as its first code cell, whatever setup cell it had."""
    cell = {
        "cell_type": "code",
        "execution_count": None,
        "id": "setup",
        "metadata": {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": SETUP_TAGS},
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }
    cells = [c for c in notebook["cells"] if "setup" not in c["metadata"].get("tags", [])]
    codes = [i for i, c in enumerate(cells) if c["cell_type"] == "code"]
    first = codes[0] if codes else len(cells)
    return {**notebook, "cells": [*cells[:first], cell, *cells[first:]]}


def write_block(path: Path, lines: list[str]) -> None:
    """Replace what stands between the two address markers of a file."""
    text = path.read_text(encoding="utf-8")
    marked = re.compile(r"(# address: .*\n)(?:.*\n)*?(# end of address\n)")
    block = "".join(f"{line}\n" for line in lines)
    path.write_text(marked.sub(lambda m: m[1] + block + m[2], text), encoding="utf-8")


def sync(root: Path = ROOT) -> None:
    """Write the address of _config.yml into every notebook, pyproject.toml and CITATION.cff."""
    url = address(root)
    for path in notebooks(root):
        old = json.loads(path.read_text(encoding="utf-8"))
        new = with_setup_cell(old, setup_source(root))
        if new != old:
            text = json.dumps(new, indent=1, ensure_ascii=False) + "\n"
            path.write_text(text, encoding="utf-8")
            print(f"Wrote the setup cell of {path.relative_to(root)}")
    urls = ["[project.urls]", f'Repository = "{url}"'] if url else []
    write_block(root / "pyproject.toml", urls)
    write_block(root / "CITATION.cff", [f'repository-code: "{url}"'] if url else [])


def repository(url: str, root: Path = ROOT) -> None:
    """Set the repository's address, everywhere it stands."""
    url = url.strip().removesuffix("/").removesuffix(".git")
    example = "https://github.com/OWNER/NAME"
    if (
        not re.fullmatch(r"https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9._-]+", url)
        or url == example
    ):
        sys.exit(f"{url!r} is not a repository's address: give URL={example} with yours in it.")
    path = root / "_config.yml"
    text = path.read_text(encoding="utf-8")
    for line, value in [
        ("url", f'"{url}"'),
        ("colab_url", f'"{COLAB}"'),
        (r"use_\w+_button", "true"),
    ]:
        text = re.sub(rf"^(  {line}:) .*", rf"\1 {value}", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")
    sync(root)
    print(f"The repository's address is now {url}")


# ---------------------------------------------------------------- command line


TESTS = [test, test_colab, test_grading, test_long, test_deployment]
ACTIONS = [setup, book, pdf, assignments, *TESTS, sync]


def main() -> None:
    """Run the subcommand named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for action in ACTIONS:
        name = action.__name__.replace("_", "-")
        commands.add_parser(name, help=action.__doc__.splitlines()[0]).set_defaults(action=action)
    served = commands.add_parser("serve", help=serve.__doc__)
    served.add_argument("port", type=int, nargs="?", default=8000)
    served.set_defaults(action=serve)
    stored = commands.add_parser("results", help=results.__doc__.splitlines()[0])
    stored.add_argument("experiment")
    stored.add_argument("--seeds", nargs="*", default=["0"], help="0 unless given")
    stored.add_argument("--preset", default="paper", help="paper (default) or quick")
    stored.add_argument("--device", default="auto", help="auto (default), cpu, cuda, mps")
    stored.add_argument("--set", nargs="*", default=[], dest="others", help="others: rounds=300")
    stored.set_defaults(action=results)
    measured = commands.add_parser("bench", help=bench.__doc__)
    measured.add_argument("--threads", type=int, default=os.cpu_count())
    measured.set_defaults(action=bench)
    commands.add_parser("grade", help=grade.__doc__)
    named = commands.add_parser("repository", help=repository.__doc__)
    named.add_argument("url")
    named.set_defaults(action=repository)
    if sys.argv[1:2] == ["grade"]:  # argparse would keep options such as --help to itself
        return grade(sys.argv[2:])
    options = vars(parser.parse_args())
    del options["command"]
    options.pop("action")(**options)


if __name__ == "__main__":
    main()
