"""Laboratories: a cell's output in which an algorithm runs, in the reader's browser.

A laboratory needs no kernel and no network. Its output carries the script (what it needs of the
engine and of the parts that laboratories share, and the laboratory itself) and the settings, so it
lives wherever a page or a frame shows HTML; for print, and where no script runs, it carries a still
picture and a sentence. The same worlds and runs in Python are in :mod:`clusterfl_core.live.replay`.

Each function but :func:`script` gives a :class:`Laboratory`. A setting outside what it can show is
a ValueError that says so.

>>> laboratory = plane(noise=0.2)
>>> laboratory
IFCA in the plane: 18 clients in 3 groups choose among 3 models. It moves where HTML is shown.
>>> "<cfl-plane " in laboratory._repr_html_()
True
"""

from clusterfl_core.live.labs.angle import angle
from clusterfl_core.live.labs.attack import attack
from clusterfl_core.live.labs.balance import balance
from clusterfl_core.live.labs.compass import compass
from clusterfl_core.live.labs.deadline import deadline
from clusterfl_core.live.labs.desk import desk
from clusterfl_core.live.labs.drift import drift
from clusterfl_core.live.labs.gardens import gardens
from clusterfl_core.live.labs.phase import phase
from clusterfl_core.live.labs.plane import plane
from clusterfl_core.live.labs.playground import playground
from clusterfl_core.live.labs.race import race
from clusterfl_core.live.labs.server import server
from clusterfl_core.live.labs.springs import springs
from clusterfl_core.live.labs.threshold import threshold
from clusterfl_core.live.labs.wedges import wedges
from clusterfl_core.live.page import Laboratory, script

__all__ = [
    "Laboratory", "angle", "attack", "balance", "compass", "deadline", "desk", "drift",
    "gardens", "phase", "plane", "playground", "race", "script", "server", "springs",
    "threshold", "wedges",
]  # fmt: skip
