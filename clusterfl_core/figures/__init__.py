"""Figures that belong to the page: vectors in its colours and letters, with words for this field.

The same algorithm or cluster has the same colour and shape in every chapter, by its name.

>>> from clusterfl_core import figures
>>> figures.colour("IFCA"), figures.colour(1), figures.colour("an algorithm of yours")
('#0072B2', '#D55E00', '#27765e')
>>> panel = figures.panel("Accuracy rises to one half", x="round")
>>> panel.spread([1, 2, 3], [0.1, 0.4, 0.5], "IFCA").level(0.5, "one half").owner
<figure: Accuracy rises to one half>
"""

from clusterfl_core.figures.looks import (
    ALGORITHMS,
    CLUSTERS,
    DASHES,
    INK,
    MARKERS,
    PAPER,
    colour,
    dash,
    look,
    marker,
)
from clusterfl_core.figures.panels import Figure, Panel, panel, panels
from clusterfl_core.figures.players import player

__all__ = [
    "ALGORITHMS", "CLUSTERS", "DASHES", "INK", "MARKERS", "PAPER", "Figure", "Panel", "colour",
    "dash", "look", "marker", "panel", "panels", "player",
]  # fmt: skip
