"""Springs and collapse: where FedSoft's centres rest, and how to un-mix them (chapter 10)."""

from clusterfl_core.live.fields import Choice, Flag, Number, Rows, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "springs"]

FIELDS = {
    "share": Number("main share q", 0.5, 1, by=0.05),
    "pattern": Choice(
        "mixtures of the clients", (("two", "q or 1 − q"), ("even", "from 1 − q to q"))
    ),
    "proximal": Number("springs λ", 0, 10, by=0.5),
    "after": Whole("rounds of averaging", 0, 100),
    "inverse": Flag("un-mix what the server holds"),
    "truths": Rows("truths", 2, 2, 2, -2.5, 2.5),
    "centers": Rows("centres", 2, 2, 2, -2.5, 2.5),
    "rounds": Whole("rounds", 0, 100),
}


def springs(
    truths=((-1.4, 1.0), (1.4, -0.6)),
    centers=((-0.4, -1.8), (1.6, 1.8)),
    *,
    share=0.7,
    pattern="two",
    proximal=1.0,
    after=100,
    inverse=False,
    rounds=0,
    task="",
):
    """Ten clients with mixtures of two truths, held by springs to two centres of the server.

    Losses are exact, ``F_i(w) = |w - sum_j u_ij theta_j|^2``, shares are known, everyone answers.

    Parameters
    ----------
    truths, centers : sequence [2][2]
        theta*_j, and the centres of round 0; from -2.5 to 2.5.
    share : float
        q, the main share of a client, 0.5 to 1.
    pattern : {"two", "even"}
        Shares of truth 0: q for five clients and 1 - q for five, or evenly from q to 1 - q.
    proximal : float
        lambda, 0 to 10.
    after : int
        The rounds, 0 to 100, in which the server takes the mean; then it regresses.
    inverse : bool
        Whether the centres are shown un-mixed by the inverse of V U as well.
    rounds : int
        Rounds to play at once, 0 to 100.
    task : str
        What to try. The laboratory notices when centres have collapsed to 0.4 of the gap or less
        under the mean and end within 0.05 of the truths.
    """
    words = (
        "Springs and collapse: ten clients with {share:.0%} of one truth or the other, and two "
        "centres of FedSoft's server."
    )
    own = {"share": share, "pattern": pattern, "proximal": proximal, "after": after}
    own |= {"inverse": inverse, "truths": truths, "centers": centers, "rounds": rounds}
    return laboratory("springs", FIELDS, words, _still, task=task, **own)


def _still(figures, now):
    limits = {"xlim": (-2.5, 2.5), "ylim": (-2.5, 2.5)}
    panel = figures.panel("Two true models and two centres in the plane.", width=200, **limits)
    return panel.plane(now["truths"], now["centers"]).bare()
