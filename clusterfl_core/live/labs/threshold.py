"""Threshold: a tree of local models or loss vectors, and the height at which it is cut."""

from bisect import bisect_left, bisect_right

import numpy as np
import torch

from clusterfl_core import compute, evaluation
from clusterfl_core.banks import Bank
from clusterfl_core.live import replay
from clusterfl_core.live.fields import Choice, Number, Whole
from clusterfl_core.live.page import laboratory
from clusterfl_core.models import LinearRegression

__all__ = ["FIELDS", "compared", "cut", "threshold", "window", "world"]

EACH, APART = 3, 2.4
GIVEN = ("near", "noise", "points", "size", "draw")  # what makes a world
FIELDS = {
    "threshold": Whole("threshold, % of the height", 0, 100),
    "by": Choice(
        "compared by",
        (
            ("models", "lone models"),
            ("cross", "cross losses"),
            ("losses", "loss vectors"),
        ),
    ),
    "link": Choice(
        "distance of groups",
        (("single", "nearest pair"), ("complete", "farthest pair"), ("average", "mean of pairs")),
    ),
    "near": Number("distance within a pair", 0, 2, by=0.05),
    "noise": Number("noise σ", 0.1, 2, by=0.1),
    "points": Whole("points a client", 4, 200),
    "size": Whole("clients of the last group", 1, 6),
    "draw": Whole("draw", 0, 99),
}


def threshold(
    threshold=60, *, by="models", link="single", near=1.2, noise=1, points=40, size=3, draw=0,
    task="",
):  # fmt: skip
    """Four groups of clients in two pairs, and a threshold that is to find them.

    Parameters
    ----------
    threshold : int
        At which percentage of its height the tree is cut, 0 to 100.
    by : {"models", "cross", "losses"}
        How far apart two clients are: as their lone models; as the mean loss of each one's lone
        model on the other's points (SR-FCA, for images); or as their loss vectors, which have a
        client's losses under the lone models of all.
    link : {"single", "complete", "average"}
        How far apart two groups are: as their nearest clients, as their farthest, or as all pairs
        on average. The first gives the connected pieces of the graph of near clients.
    near : float
        Distance of the two true models within a pair, 0 to 2; the pairs are 2.4 apart.
    noise : float
        Standard deviation of a label's noise, 0.1 to 2.
    points : int
        Of each client, 4 to 200.
    size : int
        Clients of the last group, 1 to 6; the others have three each.
    draw : int
        Which points, 0 to 99.
    task : str
        What to try. The laboratory notices when every client stands right at a threshold whose
        window is narrower than 10 % of the tree's height.
    """
    words = (
        "Threshold: four groups of clients, {size} in the last of them, and a tree that is cut at "
        "{threshold} % of its height."
    )
    own = {"by": by, "link": link, "near": near, "noise": noise, "points": points, "size": size}
    own |= {"threshold": threshold, "draw": draw}
    return laboratory("threshold", FIELDS, words, _still, task=task, **own)


def world(near, noise, points, size, draw):
    """The clients: Federation; and their groups' true models, ndarray [4, 2]."""
    truth = [[side * APART / 2, up * near / 2] for side in (-1, 1) for up in (-1, 1)]
    sizes = [EACH, EACH, EACH, size]
    federation = replay.linear(truth, clients=sizes, points=[points] * 4, noise=noise, seed=draw)
    return federation, np.array(truth)


def compared(federation, by):
    """The lone models of the clients, ndarray [m, 2], and how far apart two are, [m, m]."""
    from scipy.spatial.distance import pdist, squareform  # slow to import

    x, y = federation.train.x, federation.train.y  # in float64; all hold equally many points
    alone = torch.linalg.lstsq(x, y[..., None]).solution[..., 0]
    bank = Bank(LinearRegression(2).double(), {"theta": alone})
    losses = compute.loss_matrix(bank, federation.train).numpy()
    if by == "cross":
        return alone.numpy(), (losses + losses.T) / 2 * (1 - np.eye(len(losses)))
    return alone.numpy(), squareform(pdist(alone.numpy() if by == "models" else losses))


def cut(threshold, *, by, link, near, noise, points, size, draw):
    """What a threshold finds.

    Parameters
    ----------
    threshold, by, link, near, noise, points, size, draw : see the laboratory

    Returns
    -------
    dict
        "threshold", the height; "groups", how many; "right", clients in the right group under the
        best matching, in percent; "pairs", within the threshold, and "inside", within the true
        groups, in percent of all pairs; "error", mean squared distance of a group's mean model
        from its clients' true ones, and "alone", that of the lone models; "moved", models that
        travel: to compare the clients and, by losses, each group's to every client, to sort the
        clients again.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import

    federation, truth = world(near, noise, points, size, draw)
    alone, far = compared(federation, by)
    clusters, m = federation.clusters.numpy(), len(federation)
    pairs = np.triu_indices(m, 1)
    merges, own = linkage(far[pairs], link), truth[clusters]
    height = threshold / 100 * merges[-1, 2]
    found = fcluster(merges, height, "distance") - 1
    means = np.stack([alone[found == j].mean(0) for j in range(found.max() + 1)])
    same = clusters[pairs[0]] == clusters[pairs[1]]
    return {
        "threshold": height,
        "groups": found.max() + 1,
        "right": 100 * evaluation.identity_accuracy(torch.from_numpy(found), federation.clusters),
        "pairs": 100 * (far[pairs] <= height).mean(),
        "inside": 100 * same.mean(),
        "error": ((means[found] - own) ** 2).sum(1).mean(),
        "alone": ((alone - own) ** 2).sum(1).mean(),
        "moved": m if by == "models" else m * (m + found.max() + 1),
    }


def window(*, by="models", link="single", near=1.2, noise=1, points=40, size=3, draw=0):
    """The window: the first and the last whole percent at which :func:`cut` has everybody right.

    None if no whole percent has.
    """
    settings = {"by": by, "link": link, "near": near, "noise": noise, "points": points}
    settings |= {"size": size, "draw": draw}
    groups, tries = len(world(near, noise, points, size, draw)[1]), range(101)

    def fewer(percent):
        return -cut(percent, **settings)["groups"]

    first = bisect_left(tries, -groups, key=fewer)
    last = bisect_right(tries, -groups, key=fewer) - 1
    right = first <= last and cut(first, **settings)["right"] == 100
    return (first, last) if right else None


def _still(figures, found):
    given = {name: found[name] for name in GIVEN}
    federation, truth = world(**given)
    alone, _ = compared(federation, "models")
    panel = figures.panel("Lone models of clients in four groups.", width=220, aspect="equal")
    for group in range(len(truth)):
        own = alone[federation.clusters.numpy() == group]
        panel.points(own[:, 0], own[:, 1], f"group {group}", group)
    return panel
