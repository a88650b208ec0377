"""A book of two pages with this book's settings, to try the house on."""

import json
import shutil
import subprocess
from pathlib import Path

import house


def make(root: Path, code: str) -> Path:
    """Make a book of two pages with this one's settings, whose notebook runs `code`."""
    for name in ("_config.yml", "pyproject.toml", "CITATION.cff"):
        shutil.copy(house.ROOT / name, root)
    (root / "tools").mkdir()
    for extension in ("live_pages.py", "formulas.py"):
        shutil.copy(house.ROOT / "tools" / extension, root / "tools")
    for folder in ("_static", "_extra"):
        shutil.copytree(house.ROOT / "book" / folder, root / "book" / folder)
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n- file: book/page\n"
    )
    (root / "book" / "intro.md").write_text("# Intro\n\nA first page.\n")
    texts = [("markdown", "# Page\n\nSome $x^2$.\n"), ("code", code)]
    cells = [
        {"cell_type": kind, "id": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        for kind, text in texts
    ]
    cells[1] |= {"execution_count": None, "outputs": []}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}}
    path = root / "book" / "page.ipynb"
    path.write_text(json.dumps(notebook | {"nbformat": 4, "nbformat_minor": 5}, indent=1))
    house.sync(root)
    return path


def build(root: Path) -> subprocess.CompletedProcess:
    """Build a copy from a clean `_build`, as `make book` does."""
    house.clean(root)
    return subprocess.run(house.build_command(root), capture_output=True, text=True)
