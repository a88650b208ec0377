"""Mixing desk: eight clients, zeros and ones, three kinds of difference at once (chapter 2)."""

from functools import cache

import numpy as np

from clusterfl_core import data
from clusterfl_core.live.fields import Flag, Number
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "desk", "given"]

FIELDS = {
    "label": Number("label skew", 0, 1, by=0.05),
    "feature": Number("feature skew", 0, 1, by=0.05),
    "conflict": Number("conflict", 0, 1, by=0.05),
    "cameras": Flag("a border for each camera"),
}
CLIENTS, POINTS = 8, 40


@cache
def given():
    """The images of the eight clients, as chapter 2 deals them, for the script.

    Returns
    -------
    dict
        zero, one: the ink in the middle of a 0 and of a 1, standardised, for each image [8][40];
        chance: below the conflict, an odd client gives the image the other name, [8][40].
    """
    images = data.load("digits")
    two = (images.y_train < 2).numpy()
    ink, y = images.x_train.numpy()[two] / 255, images.y_train.numpy()[two]
    ink = ink[:, 2:6, 3:5].mean((1, 2), dtype=np.float64)
    ink = (ink - ink.mean()) / ink.std(ddof=1)
    random = np.random.default_rng(0)
    pools = [np.flatnonzero(y == c) for c in (0, 1)]
    zero, one = [ink[random.choice(pool, (CLIENTS, POINTS))] for pool in pools]
    chance = random.random((CLIENTS, POINTS))
    shown = {"zero": zero, "one": one, "chance": chance}
    return {name: table.round(5).tolist() for name, table in shown.items()}


def desk(label=0.0, feature=0.0, conflict=0.0, *, cameras=False, task=""):
    """Eight clients that read 0 and 1 by one number, mixed from three kinds of difference.

    Parameters
    ----------
    label, feature, conflict : float
        How much the odd clients differ from the even ones, 0 to 1: in how often they hold a 1, in
        their cameras, in the names that they give.
    cameras : bool
        Whether the model has a weight for the camera, and so a border for each.
    task : str
        What to try. The laboratory notices when one border has failed, once where a border for
        each camera mends it and once where that fails as well.
    """
    words = (
        "Mixing desk: eight clients with label skew {label:g}, feature skew {feature:g} and "
        "conflict {conflict:g}, and the arrows of their updates."
    )
    own = {"label": label, "feature": feature, "conflict": conflict, "cameras": cameras}
    return laboratory("desk", FIELDS, words, _still, task=task, **own)


def _still(figures, _):
    table = given()
    alt = "The ink of the eight clients' images: zeros have little, ones much."
    panel = figures.panel(alt, width=200, height=90, ylim=(-0.6, 1.6), yticks=[0, 1])
    for j, name in enumerate(("zero", "one")):
        panel.points(np.concatenate(table[name])[::8], np.full(CLIENTS * POINTS // 8, j), like=j)
    return panel.named("ink in the middle")
