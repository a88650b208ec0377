"""Looks: the same colour and the same shape for the same name, in every figure of the book."""

import colorsys
import re
from typing import NamedTuple
from zlib import crc32

import numpy as np

from clusterfl_core.check import text, whole

__all__ = [
    "ALGORITHMS", "CLUSTERS", "DASHES", "GREY", "INK", "LINES", "MARKERS", "PAPER", "Look",
    "colour", "dash", "ink_on", "look", "luminance", "marker",
]  # fmt: skip

# Okabe and Ito's palette, told apart with any colour vision; its two light colours are darkened, so
# that each stands out from a white and from a black page (3 : 1, WCAG 2). Shapes and dashes tell
# them apart in grey.
CLUSTERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07D00", "#2E9CCB")
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":")
ALGORITHMS = {
    "IFCA": "#0072B2",
    "CFL": "#009E73",
    "FedSoft": "#CC79A7",
    "FedEM": "#B07D00",
    "OneShot": "#2E9CCB",
    "FedAvg": "#D55E00",
    "LocalOnly": "#767676",
    "CLoVE": "#874bc3",
    "SR-FCA": "#28a709",
    "StoCFL": "#b63d61",
    "FineTuned": "#9e5535",
}
DASHES = {
    "IFCA": "-",
    "CFL": "-",
    "FedSoft": "-",
    "FedEM": "-.",
    "OneShot": "-.",
    "FedAvg": "--",
    "LocalOnly": ":",
    "CLoVE": "-",
    "SR-FCA": "-",
    "StoCFL": ":",
    "FineTuned": "--",
}
INK, PAPER = "#000000", "#ffffff"  # become the colours of the page's text and ground
GREY = ALGORITHMS["LocalOnly"]


class Look(NamedTuple):
    """What tells one thing from another in a figure: colour, dashes of a line, marker."""

    colour: str
    dash: str
    marker: str


def colour(what) -> str:
    """The colour of an algorithm or of a cluster, whether or not the book knows it, as "#0072B2".

    Always the same for the same ``what``, the name of an algorithm or the number of a cluster; -1
    is a client that was never asked. The clusters 0 to 19 can be told apart, from each other and
    from the algorithms of the book. Each is at least three times as light or as dark as a white
    page and as a black one.
    """
    if isinstance(what, str):
        return ALGORITHMS.get(what) or _further(crc32(_bytes(what)) % 100)
    number = _number(what)
    if number < 0:
        return GREY
    return CLUSTERS[number] if number < len(CLUSTERS) else _further(number - len(CLUSTERS))


def dash(name: str) -> str:
    """The dashes of an algorithm's line, whether or not the book knows it."""
    return DASHES.get(text("name", name)) or LINES[crc32(_bytes(name)) // 100 % 4]


def marker(number) -> str:
    """The marker of a cluster; from the seventh on they begin again, in other colours."""
    return MARKERS[whole("number", number, -(2**31)) % len(MARKERS)]


def look(what) -> Look:
    """The look of an algorithm (by name), of a cluster (by number) or of plain ink (``None``)."""
    if what is None:
        return Look(INK, "-", "o")
    if isinstance(what, str):
        known = [*ALGORITHMS]
        place = known.index(what) if what in ALGORITHMS else crc32(_bytes(what))
        return Look(colour(what), dash(what), marker(place))
    number = max(_number(what), 0)
    return Look(colour(what), LINES[number % 4], marker(number))


def luminance(color: str) -> float:
    """From 0, black, to 1, white; below 0.18 white stands out more than black (WCAG 2)."""
    if not re.fullmatch("#[0-9a-fA-F]{6}", text("color", color)):
        raise ValueError(f'color must be written as "#0072B2", got {color!r}')
    parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def ink_on(color: str) -> str:
    """White or black, whichever is read better on a colour; the page does not change these two."""
    return "#fffffe" if luminance(color) < 0.18 else "#000001"


def _number(what):
    truth = isinstance(what, bool | np.bool_)
    return whole("what", int(what) if truth else what, -(2**31), 2**31)


def _bytes(name):
    return name.encode("utf-8", "surrogatepass")


def _further(number: int) -> str:
    # In turns light and dark, in steps of hue that come near each other late. Found by trying: the
    # first 14 and the 7 above differ by more than 20 in CIELAB.
    hue, vivid, goal = 0.15 * number, (0.9, 0.5)[number % 2], (0.28, 0.14)[number % 2]
    low, high = 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        parts = colorsys.hls_to_rgb(hue, middle, vivid)
        found = "#" + "".join(f"{round(255 * part):02x}" for part in parts)
        low, high = (middle, high) if luminance(found) < goal else (low, middle)
    return found
