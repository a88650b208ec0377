"""Gardens: EM on eighteen clients of three hidden groups, from soft to hard (chapter 3)."""

from clusterfl_core.live.fields import Number, Rows, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "gardens", "given"]

FIELDS = {
    "points": Whole("points a client", 1, 6),
    "heat": Number("first temperature", 0, 16, by=0.5),
    "kept": Number("kept each step", 0.5, 1, by=0.05),
    "seed": Whole("deal of the gardens", 0, 20),
    "lines": Rows("lines", 3, 3, 2, -20, 20),
    "rounds": Whole("steps", 0, 100),
}
TRUTH = ((1.2, 0.0), (-1.2, 0.3), (0.0, -1.6))  # slope and height, as in chapter 3
GOOD = ((0.6, 0.5), (-0.6, 0.5), (0.0, -0.5))
CROWDED = ((1.2, 1.0), (1.2, -0.6), (-1.0, 0.0))


def given():
    """The true lines, the noise, the clients of a group and two starts, for the script: dict."""
    return {"truth": TRUTH, "noise": 0.3, "clients": 6, "good": GOOD, "crowded": CROWDED}


def gardens(lines=CROWDED, *, points=3, heat=0.0, kept=1.0, seed=5, rounds=0, task=""):
    """EM for three lines and eighteen clients, at a temperature that the reader chooses.

    Parameters
    ----------
    lines : sequence [3][2]
        Slope and height of the first lines, -20 to 20.
    points : int
        Points of each client, 1 to 6.
    heat : float
        Temperature T of the first step, 0 to 16: the E-step of (3.6) with T sigma^2 in place of
        sigma^2. 1 is soft EM, 0 hard EM (3.5).
    kept : float
        The share of the temperature that each step keeps, 0.5 to 1.
    seed : int
        Of the points, 0 to 20.
    rounds : int
        Steps to play at once, 0 to 100.
    task : str
        What to try. The laboratory notices when EM from the crowded start ends with at least 17 of
        18 identities right.
    """
    words = "Gardens: EM fits three lines to eighteen clients with {points} points each."
    own = {"points": points, "heat": heat, "kept": kept, "seed": seed, "lines": lines}
    return laboratory("gardens", FIELDS, words, _still, task=task, **own, rounds=rounds)


def _still(figures, now):
    alt = "Three lines over warmth and growth."
    panel = figures.panel(alt, width=200, xlim=(-1.5, 1.5), ylim=(-3, 3), x="warmth", y="growth")
    for j, (slope, height) in enumerate(now["lines"]):
        panel.spread([-1.5, 1.5], [height - 1.5 * slope, height + 1.5 * slope], like=j)
    return panel
