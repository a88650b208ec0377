"""Wrong-choice compass: how often a client of IFCA prefers the wrong model (chapter 5, (5.3))."""

from clusterfl_core.live.fields import Choice, Number, Rows, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "compass"]

FIELDS = {
    "noise": Number("noise σ", 0.05, 2, by=0.05),
    "points": Whole("points n′", 1, 60),
    "moved": Choice("map: where to put", (("0", "the right model"), ("1", "the wrong model"))),
    "models": Rows("models", 2, 2, 2, -1.5, 1.5),
}


def compass(models=((0.0, 0.4), (0.6, 0.0)), *, noise=1.0, points=20, moved="0", task=""):
    """Two models around one truth, and the chance that a client prefers the wrong one.

    The client's truth is the origin, the other group's (1, 0).

    Parameters
    ----------
    models : sequence [2][2]
        The right model and the wrong one, -1.5 to 1.5.
    noise : float
        sigma, 0.05 to 2, in units of the distance of the truths.
    points : int
        n', 1 to 60.
    moved : {"0", "1"}
        Whether the map shows the chance for other places of the right or the wrong model.
    task : str
        What to try. The laboratory notices when the models lie within 0.2 of each other and the
        chance is no higher than for models at the two truths.
    """
    words = "Wrong-choice compass: a client with {points} points chooses between two models."
    own = {"noise": noise, "points": points, "moved": moved, "models": models}
    return laboratory("compass", FIELDS, words, _still, task=task, **own)


def _still(figures, now):
    alt = "Two true models, one at the origin, and two guessed models near them."
    panel = figures.panel(alt, width=200, xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
    return panel.plane([(0, 0), (1, 0)], now["models"]).bare()
