"""The angle dial: digits in two groups, one of them turned; IFCA, FedAvg and training alone."""

from clusterfl_core.live.fields import Number, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "angle"]

FIELDS = {
    "angle": Number("angle", 0, 90, 5),
    "points": Whole("images a client", 10, 110),
    "k": Whole("models k", 1, 4),
    "seed": Whole("start", 0, 19),
    "rounds": Whole("rounds", 0, 30),
}


def angle(angle=90, *, points=40, k=2, seed=1, task=""):
    """Six clients see digits upright, six turned: IFCA, FedAvg and training alone.

    Parameters
    ----------
    angle : float
        By how much the second group's images are turned, 0 to 90.
    points : int
        Images of each client, 10 to 110.
    k : int
        IFCA's models, 1 to 4.
    seed : int
        Of the first models, 0 to 19.
    task : str
        What to try. The laboratory notices when, after eight rounds and with all else alike, IFCA
        is better than FedAvg at one angle and worse at another at most 30 degrees away.
    """
    words = "The angle dial: six clients see digits upright, six turned by {angle:g} degrees."
    own = {"angle": angle, "points": points, "k": k, "seed": seed, "rounds": 0}
    return laboratory("angle", FIELDS, words, _still, task=task, **own)


def _still(figures, now):
    from clusterfl_core.live import replay  # brings all of the library

    degrees = now["angle"]
    shown = replay.digits(clusters=2, clients=1, points=4, angle=degrees).train.x
    words = f"Digits upright, and turned by {degrees:g} degrees."
    panel = figures.panel(words, width=195)
    return panel.pictures(shown.flatten(0, 1), columns=4)
