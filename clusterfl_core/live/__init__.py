"""Laboratories: a cell's output in which an algorithm runs, in the reader's browser.

A laboratory needs no kernel and no network. Its output carries the script (the engine, the parts
that laboratories share, the laboratory itself) and the settings, so it lives wherever a page or a
frame shows HTML; for print, and where no script runs, it carries a still picture and a sentence.
The same worlds and runs in Python are in :mod:`clusterfl_core.live.replay`.

>>> laboratory = plane(noise=0.2)
>>> laboratory
IFCA in the plane: 18 clients in 3 groups choose among 3 models. It moves where HTML is shown.
>>> "<cfl-plane " in laboratory._repr_html_()
True
"""

import html
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from clusterfl_core import check
from clusterfl_core.live import sources

__all__ = ["Laboratory", "plane", "script"]

PARTS = (
    "dom", "style", "marks", "controls", "handles", "run", "player", "losses", "identities",
    "starts", "address", "sharing", "task", "sentences",
)  # fmt: skip
_HERE = Path(__file__).parent
_NAMES = {  # of the marks, as they are spoken
    "o": "circle", "s": "square", "^": "triangle", "D": "diamond",
    "v": "triangle upside down", "P": "plus",
}  # fmt: skip
_IMPORT = re.compile(r"^import\s[^;]*?\bfrom\s+\"[^\"]+\";\n", re.MULTILINE)
_EDGE, _SIZE = 2.5, 340  # the still picture: models from -2.5 to 2.5, in so many pixels


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


@cache
def script(name):
    """The script of a laboratory: engine, parts and laboratory, in one scope of its own.

    Parameters
    ----------
    name : str
        Of a file in ``labs/``.

    Returns
    -------
    str
        JavaScript without imports. A page may hold it many times; the first one counts.
    """
    modules = [sources.source(module) for module in sources.ENGINE]
    modules += [_read("parts", part) for part in PARTS] + [_read("labs", name)]
    text = f"const LOOKS = {json.dumps(_looks())};\n" + "\n".join(map(_bare, modules))
    guard = f'if (customElements.get("cfl-{name}")) return;'
    whole = f'(() => {{\n"use strict";\n{guard}\n{text}\n}})();'
    if "</script" in whole or "<!--" in whole:
        raise ValueError("a script inside HTML must not contain its end")
    return whole


def _read(folder, name):
    return (_HERE / folder / f"{name}.js").read_text(encoding="utf-8")


def _bare(module):
    """A module's text without the lines that tie it to others."""
    return re.sub(r"^export (?=\w)", "", _IMPORT.sub("", module), flags=re.MULTILINE)


@cache
def _looks():
    """Colours and outlines of the book's figures, in a box from -1 to 1, y down."""
    from clusterfl_core import figures  # slow to import

    marks = [{"name": _NAMES[m], "outline": _outline(m)} for m in figures.MARKERS]
    colours = [figures.colour(j) for j in range(len(figures.CLUSTERS))]
    return {"colours": colours, "markers": marks, "star": _outline("*"), "cross": _outline("X")}


def _outline(marker):
    """A marker of matplotlib's as the path of an SVG."""
    from matplotlib.markers import MarkerStyle

    style, words = MarkerStyle(marker), []
    path = style.get_path().transformed(style.get_transform())
    for numbers, code in path.iter_segments(simplify=False):
        letter = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}[int(code)]
        points = "" if letter == "Z" else " ".join(f"{2 * v:.3g}" for v in numbers * _flip(numbers))
        words.append(letter + points)
    return "".join(words)


def _flip(numbers):
    return [1, -1] * (len(numbers) // 2)


# ---------------------------------------------------------------- IFCA in the plane


def plane(
    truth=((-1.2, -0.6), (1.2, -0.6), (0.0, 1.2)),
    models=((-0.6, 0.3), (0.6, -0.2), (0.3, 0.9)),
    *,
    clients=6,
    points=8,
    noise=0.6,
    seed=0,
    task="",
    small=False,
):
    """IFCA on models of two numbers, all of it to be seen and moved (Ghosh et al., 2020).

    Parameters
    ----------
    truth : sequence [groups, 2]
        The true models, theta*_j; at most 4.
    models : sequence [k, 2]
        The first models of the server; at most 6.
    clients : int
        Clients of each group, 1 to 12.
    points : int
        Points of each client, 1 to 50.
    noise : float
        Standard deviation of the noise of y, 0 to 2.
    seed : int
        Of the clients' points and of the 200 starts; in [0, 2^32).
    task : str
        What to try. The laboratory notices when it is done: a group is lost without any noise.
    small : bool
        The plane and its buttons only; it plays by itself where motion is welcome.

    Returns
    -------
    Laboratory

    Raises
    ------
    ValueError
        If a setting is outside what the laboratory can show.
    """
    truth, models = _rows("truth", truth, 4), _rows("models", models, 6)
    world = {
        "kind": "linear",
        "truth": truth,
        "clients": check.whole("clients", clients, 1, 12),
        "points": check.whole("points", points, 1, 50),
        "noise": check.number("noise", noise, "[0, 2]"),
        "seed": check.whole("seed", seed, 0, 2**32 - 1),
    }
    check.among("models", len(models), len(truth) * clients)
    algorithm = {
        "name": "IFCA",
        "clusters": len(models),
        "option": "gradients",
        "participation": 1,
        "local": {"steps": 1, "step_size": 0.9},
    }
    description = {"world": world, "algorithm": algorithm, "models": models}
    description |= {"seed": world["seed"], "rounds": 0}
    groups = f"{len(truth)} groups" if len(truth) > 1 else "1 group"
    sentence = (
        f"IFCA in the plane: {len(truth) * clients} clients in {groups} choose among "
        f"{len(models)} models."
    )
    settings = {"description": description, "task": task, "small": bool(small)}
    return Laboratory("plane", settings, sentence, _still(world, models))


def _rows(name, rows, most):
    """Rows of two finite numbers inside the picture, as lists."""
    try:
        found = [list(row) for row in rows]
    except TypeError:
        raise ValueError(f"{name} must be rows of two numbers, got {rows!r}") from None
    if not 1 <= len(found) <= most or any(len(row) != 2 for row in found):
        raise ValueError(f"{name} must be 1 to {most} rows of two numbers, got {found}")
    return [[check.number(name, v, f"[-{_EDGE}, {_EDGE}]") for v in row] for row in found]


def _still(world, models):
    """The first round as SVG: stars, crosses and clients, as in the laboratory."""
    import torch

    from clusterfl_core.live import replay  # brings all of the library

    federation = replay.linear(**{k: v for k, v in world.items() if k != "kind"})
    x, y = federation.train.x, federation.train.y
    alone = torch.linalg.lstsq(x, y[..., None], driver="gelsd").solution[..., 0]
    bank = torch.tensor(models, dtype=torch.float64)
    chosen = ((y[..., None] - x @ bank.T) ** 2).mean(1).argmin(1).tolist()
    style = _looks()
    marks, colours = style["markers"], style["colours"]
    drawn = [
        _mark(marks[group % len(marks)]["outline"], at, 6, f'fill="{colours[j]}"')
        for at, group, j in zip(alone.tolist(), federation.clusters.tolist(), chosen, strict=True)
    ]
    drawn += [
        _mark(style["star"], at, 15, 'fill="none" stroke-width="1.5"') for at in world["truth"]
    ]
    for j, at in enumerate(models):
        x, y = _place(at)
        drawn.append(_mark(style["cross"], at, 11, f'fill="{colours[j]}"'))
        drawn.append(f'<text x="{x + 13:.0f}" y="{y - 4:.0f}" fill="currentColor">{j}</text>')
    frame = f'<path d="M0 0H{_SIZE}V{_SIZE}H0Z" fill="none" stroke="currentColor" opacity=".3"/>'
    return (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" height="{_SIZE}" role="img" '
        'style="max-width:100%;height:auto;background:transparent" aria-label="Plane of models: '
        f"{len(world['truth'])} stars, the true models; {len(models)} numbered crosses, the "
        f"server's models; {len(drawn) - len(world['truth']) - 2 * len(models)} small marks, the "
        f'clients">{frame}{"".join(drawn)}</svg>'
    )


def _place(at):
    inside = [min(max(v, -_EDGE), _EDGE) for v in at]
    return _SIZE * (inside[0] + _EDGE) / (2 * _EDGE), _SIZE * (_EDGE - inside[1]) / (2 * _EDGE)


def _mark(outline, at, radius, look):
    x, y = _place(at)
    return (
        f'<path d="{outline}" transform="translate({x:.1f} {y:.1f}) scale({radius})" '
        f'vector-effect="non-scaling-stroke" stroke="currentColor" {look}/>'
    )
