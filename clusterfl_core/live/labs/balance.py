"""Balance the arrows: Lemma 4 of the separation theorem in the plane (CFL, appendix A)."""

import math

from clusterfl_core.live.fields import Numbers, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "balance"]

FIELDS = {
    "k": Whole("arrows k", 3, 6),
    "angles": Numbers("angles", 6, 6, -180, 180),
}


def balance(angles=(90, 162, -126, -54, 18, 126), *, k=5, task=""):
    """Directions on a circle, the weights that balance them and the best cut between them.

    Parameters
    ----------
    angles : sequence [6]
        Of the arrows, in degrees, -180 to 180; the first k are shown.
    k : int
        Arrows, 3 to 6.
    task : str
        What to try. The laboratory notices when at least four arrows balance and their best cut
        is at most 2 degrees wider than the lemma's pi / (k - 1).
    """
    words = "Balance the arrows: {k} directions on a circle, and the best cut between them."
    return laboratory("balance", FIELDS, words, _still, task=task, k=k, angles=angles)


def _still(figures, now):
    angles = now["angles"][: now["k"]]
    tips = [(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in angles]
    panel = figures.panel(f"A circle with {len(angles)} arrows.", width=200)
    return panel.circles([(0, 0)], 1, "ink").arrows(tips).bare()
