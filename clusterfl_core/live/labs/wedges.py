"""Wedges: which points vote for the wrong model, and how their share falls (FedSoft, Theorem 1)."""

import math

from clusterfl_core.live.fields import Number, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "wedges"]

FIELDS = {
    "distance": Number("distance Δ", 0.25, 32, by=0.25),
    "least": Number("leave out |z| below", 0, 1.5, by=0.05),
    "draw": Whole("draw of the points", 0, 99),
}


def wedges(distance=2, *, least=0, draw=0, task=""):
    """2,000 points of one group, each with a noise and a place along the models' difference.

    Parameters
    ----------
    distance : float
        Between the two true models, 0.25 to 32; the noise has variance 1.
    least : float
        Points with a smaller ``|z|`` are left out, 0 to 1.5; z is the input along the
        direction from one true model to the other.
    draw : int
        Which 2,000 points, 0 to 99.
    task : str
        What to try. The laboratory notices when at most one percent of at least 1,000 points vote
        wrongly, at a distance of at most 8.
    """
    words = "Wedges: the points that vote for the wrong one of two models, {distance:g} apart."
    own = {"distance": distance, "least": least, "draw": draw}
    return laboratory("wedges", FIELDS, words, _still, task=task, **own)


def _still(figures, now):
    angle = math.atan(2 / now["distance"])
    tip = 3 * math.sin(angle), 3 * math.cos(angle)
    panel = figures.panel(
        "Two opposite wedges in the plane of noise and input, where votes are wrong.", width=200
    )
    edges = [(0, 3), tip, (0, -3), (-tip[0], -tip[1])]
    return panel.arrows(edges).named("input z", "noise")
