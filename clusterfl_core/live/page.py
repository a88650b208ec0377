"""A laboratory's cell output: HTML that carries its script, its settings and a still picture."""

import html
import importlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clusterfl_core import check
from clusterfl_core.live import sources
from clusterfl_core.live.fields import state

__all__ = ["Laboratory", "laboratory", "looks", "modules", "script"]

# In this order they can stand one after another in one scope, after the engine's.
PARTS = (
    "dom", "latest", "style", "element", "marks", "controls", "fields", "handles", "square", "run",
    "keeping", "rounds", "player", "losses", "contour", "identities", "readings", "starts",
    "address", "sharing", "task", "sentences", "worker", "labels", "chart", "pad", "laboratory",
    "splitting",
)  # fmt: skip
HERE = Path(__file__).parent
NAMES = {  # of the marks, as they are spoken
    "o": "circle", "s": "square", "^": "triangle", "D": "diamond",
    "v": "triangle upside down", "P": "plus",
}  # fmt: skip
_IMPORT = re.compile(r"^import\s[^;]*?\bfrom\s+\"[^\"]+\";\n", re.MULTILINE)
_IMPORTED = re.compile(r'^import\s[^;]*?\bfrom\s+"([^"]+)\.js";$', re.MULTILINE)


@dataclass(frozen=True)
class Laboratory:
    """What a cell shows: HTML that carries all it needs.

    Parameters
    ----------
    name : str
        Of the custom element: ``cfl-`` and this.
    settings : dict
        What the element begins with, as JSON.
    sentence : str
        What it is, for readers who see no HTML, no script or paper.
    picture : str
        A still picture, as SVG.
    """

    name: str
    settings: dict
    sentence: str
    picture: str

    def __repr__(self):
        return f"{self.sentence} It moves where HTML is shown."

    def _repr_html_(self):
        settings = html.escape(json.dumps(self.settings))
        still = f"<figure>{self.picture}<figcaption>{self.sentence}</figcaption></figure>"
        return (
            f'<script data-cfl="{self.name}">{script(self.name)}</script>\n'
            f'<cfl-{self.name} settings="{settings}">{still}</cfl-{self.name}>'
        )


def laboratory(name, fields, sentence, still, *, task, **given):
    """A :class:`Laboratory` whose first state was looked at and is said in a sentence.

    Parameters
    ----------
    name : str
        Of the custom element.
    fields : dict
        The table of its state.
    sentence : str
        What it is; names in braces stand for entries of the state, as in ``str.format``.
    still : callable
        From :mod:`clusterfl_core.figures` and the state to the still picture, a panel.
    task : str
        What to try, or nothing.
    **given
        The state, entry by entry; ValueError if one is outside what the laboratory can show.
    """
    check.text("task", task)
    now = state(fields, **given)
    from clusterfl_core import figures  # slow to import

    picture = still(figures, now)._repr_html_()
    return Laboratory(name, {"state": now, "task": task}, sentence.format(**now), picture)


def script(name):
    """The script of a laboratory: engine, parts and laboratory, in one scope of its own.

    JavaScript without imports. A page may hold it many times; the first one counts. ``name`` is
    that of a file in ``labs/``; ValueError if there is none.
    """
    return _script(_known(name))


def _known(name):
    return check.one_of("name", name, *sorted(path.stem for path in (HERE / "labs").glob("*.js")))


@cache
def _script(name):
    module = importlib.import_module(f"clusterfl_core.live.labs.{name}")
    table = {entry: field.table() for entry, field in getattr(module, "FIELDS", {}).items()}
    needed = modules(name)
    text = f"const LOOKS = {json.dumps(looks())};\nconst TABLE = {json.dumps(table)};\n"
    if hasattr(module, "given"):  # data that the laboratory needs and the reader does not set
        text += f"const GIVEN = {json.dumps(module.given())};\n"
    if ("engine", "digits") in needed:
        text += f'const DIGITS = "{sources.packed_digits()}";\n'
    text += "\n".join(_bare(_read(*module)) for module in needed)
    guard = f'if (globalThis.customElements?.get("cfl-{name}")) return;'
    whole = f'(function cfl_script() {{\n"use strict";\n{guard}\n{text}\n}})();'
    if "</script" in whole or "<!--" in whole:
        raise ValueError("a script inside HTML must not contain its end")
    return whole


def modules(name):
    """What the script of a laboratory is made of, in order: (folder, module) of each."""
    needed, asked = {("labs", _known(name))}, [("labs", name)]
    while asked:
        folder, module = asked.pop()
        for path in _IMPORTED.findall(_read(folder, module)):
            *other, found = path.split("/")
            one = (other[-1] if other[-1] != "." else folder, found)
            if one not in needed:
                needed.add(one)
                asked.append(one)
    ordered = [("engine", one) for one in sources.ENGINE] + [("parts", one) for one in PARTS]
    return [one for one in ordered if one in needed] + [("labs", name)]


def _read(folder, name):
    return (HERE / folder / f"{name}.js").read_text(encoding="utf-8")


def _bare(module):
    """A module's text without the lines that tie it to others."""
    return re.sub(r"^export (?=\w)", "", _IMPORT.sub("", module), flags=re.MULTILINE)


@cache
def looks():
    """Colours and outlines of the book's figures, in a box from -1 to 1, y down."""
    from clusterfl_core import figures  # slow to import

    marks = [{"name": NAMES[m], "outline": _outline(m)} for m in figures.MARKERS]
    colours = [figures.colour(j) for j in range(len(figures.CLUSTERS))]
    named = {name: figures.colour(name) for name in figures.ALGORITHMS}
    return {
        "colours": colours,
        "algorithms": named,
        "markers": marks,
        "star": _outline("*"),
        "cross": _outline("X"),
    }


def _outline(marker):
    """A marker of matplotlib's as the path of an SVG."""
    from matplotlib.markers import MarkerStyle

    style, words = MarkerStyle(marker), []
    path = style.get_path().transformed(style.get_transform())
    for numbers, code in path.iter_segments(simplify=False):
        letter = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}[int(code)]
        points = (numbers.reshape(-1, 2) * [2, -2]).ravel()
        words.append(letter + ("" if letter == "Z" else " ".join(f"{v:.3g}" for v in points)))
    return "".join(words)
