"""How many groups, if any: Ward's tree of some rows, silhouettes, and clouds without groups.

A row is what a client has shown of itself: its local model, or its losses under the server's
models. Ward's tree (J. H. Ward, 1963) joins rows to groups so that the squared distances to the
groups' means grow least; it has a cut into any number of groups. The silhouette of a cut
(P. J. Rousseeuw, 1987) is the mean over the rows of (b - a) / max(a, b), where a is the mean
distance of a row to its own group and b that to the nearest other group.

A silhouette means nothing by itself. The best cut of 24 points drawn from ONE normal cloud in the
plane scores about 0.45, in twenty dimensions about 0.1. So :func:`groups` holds each cut against
clouds of the same spread that have no groups.

>>> import torch
>>> two = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1], [8, 8], [8, 9], [9, 8], [9, 9]])
>>> groups(two, seed=0).tolist()
[0, 0, 0, 0, 1, 1, 1, 1]
>>> groups(two[:4], seed=0).tolist()
[0, 0, 0, 0]
"""

import numpy as np
import torch

from clusterfl_core.check import array, flag, function, number, shown, whole, wholes
from clusterfl_core.randomness import generator

__all__ = ["against_clouds", "cuts", "groups", "silhouette", "spread_alike"]

LEAST = 0.07  # by how much a silhouette must exceed clouds without groups

CLOUDS = 99  # clouds without groups that a cut is held against
PASSED = 4  # so many of them may look as much like groups as the rows do: about one in twenty


def silhouette(distances, labels):
    """The mean silhouette of a partition, in [-1, 1]; a row alone in its group counts 0.

    ``distances`` [n, n] are symmetric with a zero diagonal, ``labels`` [n] name each row's group,
    two groups at least.
    """
    labels = wholes("labels", labels)
    distances = array("distances", distances, len(labels), len(labels))
    own = np.unique(labels.numpy(), return_inverse=True)[1]
    if not len(own) or own.max() < 1:
        raise ValueError(f"labels must name at least two groups, got {shown(labels.tolist())}")
    slack = 1e-6 * max(1, distances.max())  # of rounding
    uneven = max(np.abs(distances - distances.T).max(), np.abs(distances.diagonal()).max())
    if uneven > slack or distances.min() < -slack:
        raise ValueError("distances must be symmetric and not negative, with a zero diagonal")
    member = np.eye(own.max() + 1)[own]
    return _silhouette(distances @ member, member.sum(0), own)


def _silhouette(sums, sizes, own):
    """The same from each row's distances to each group, summed [n, k], the sizes, and its own."""
    rows, means = np.arange(len(own)), sums / sizes
    within = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means[rows, own] = np.inf
    across = means.min(1)
    longer = np.maximum(within, across)
    values = (across - within) / np.where(longer > 0, longer, 1)
    return float(np.where(sizes[own] > 1, values, 0).mean())


def cuts(rows, most=None):
    """Ward's tree of rows [n, p], cut into k = 2, ..., ``most`` groups, and what each cut scores.

    ``most`` is below n; by default n // 2: with more groups they have less than two rows on
    average, and there is little to share.

    Returns
    -------
    labels : ndarray of int [most - 1, n]
        Row k - 2 is the cut into k groups, 0 to k - 1 in the order of their first rows.
    scores : ndarray [most - 1]
        The silhouette of each cut.
    """
    rows = array("rows", rows, None, None)
    n = len(rows)
    most = n // 2 if most is None else whole("most", most, 0, max(1, n - 1))
    if most < 2:
        return np.empty((0, n), dtype=int), np.empty(0)
    from scipy.cluster.hierarchy import linkage  # slow to import
    from scipy.spatial.distance import pdist, squareform

    apart = pdist(rows)
    sums, sizes, own = squareform(apart), np.ones(n), np.arange(n)
    place = list(range(n))  # the column of the sums that each node of the tree has
    labels, scores = [], []
    for left, (one, other) in enumerate(linkage(rows, "ward")[:-1, :2].astype(int)):
        a, b = place[one], place[other]
        sums[:, a] += sums[:, b]
        sizes[a], sizes[b] = sizes[a] + sizes[b], 0
        own[own == b] = a
        place.append(a)
        if n - 1 - left <= most:
            there = np.flatnonzero(sizes)
            now = np.searchsorted(there, own)
            scores.append(_silhouette(sums[:, there], sizes[there], now))
            labels.append(_in_order(now))
    return np.array(labels[::-1]), np.array(scores[::-1])


def _in_order(labels):
    """Names 0, 1, ... for the groups, in the order of their first rows."""
    _, first, names = np.unique(labels, return_index=True, return_inverse=True)
    return first.argsort().argsort()[names]


def spread_alike(rows, source, count=1):
    """Clouds of n points that spread as the rows do, in the same directions, without groups.

    The singular values of the centered rows stay, and with them mean and covariance; the left
    singular vectors are exchanged for a random orthonormal system, so that who lies where is left
    to chance, to a ``torch.Generator`` or whatever gives ``source.normal(count)``. Yields ``count``
    ndarrays [n, r], r the rank, in the coordinates of the right singular vectors.
    """
    rows, count = array("rows", rows, None, None), whole("count", count)
    if not (isinstance(source, torch.Generator) or callable(getattr(source, "normal", None))):
        raise TypeError(
            f"source must be a torch.Generator or give normal(count), got {shown(source)}"
        )
    if not rows.size:
        raise ValueError(f"rows must be one at least, got shape {list(rows.shape)}")
    centered = rows - rows.mean(0)
    values = np.linalg.eigvalsh(centered @ centered.T)[::-1]
    values = values[values > 1e-12 * values[0]]
    for _ in range(count):
        drawn = _normals(source, len(rows) * len(values)).reshape(len(rows), -1)
        yield np.linalg.qr(drawn - drawn.mean(0))[0] * np.sqrt(values)


def against_clouds(rows, source, count=CLOUDS):
    """What the cuts of the rows score, [c], and those of clouds that spread alike, [count, c].

    Row j of :func:`cuts` is held against column j of the clouds; ``source`` as there
    (:func:`spread_alike`).
    """
    count = whole("count", count)
    clouds = [cuts(cloud)[1] for cloud in spread_alike(rows, source, count)]
    return cuts(rows)[1], np.array(clouds)


def _normals(source, count):
    if isinstance(source, torch.Generator):
        return torch.randn(count, generator=source, dtype=torch.float64).numpy()
    return source.normal(count)


def groups(rows, seed, least=LEAST, recursive=False, clouds=None):
    """The groups of rows [n, p], perhaps one only: LongTensor [n], in the order of first rows.

    Of the cuts of Ward's tree the one is taken whose silhouette exceeds most that of the same cut
    of 99 clouds that spread alike (:func:`spread_alike`), on average over them. The rows stay
    together if this excess is below ``least``, or if more than 4 of the clouds show as much.

    Parameters
    ----------
    rows : Tensor [n, p]
        Finite; with fewer than four rows there is one group.
    seed : int
        Of the clouds.
    least : float
        How much a silhouette must exceed that of a cloud without groups.
    recursive : bool
        Whether each group found is asked again, so that groups within groups are found as well.
        The more often it is asked, the likelier that a cut is due to chance: of a few rows in many
        dimensions it may make more groups than there are.
    clouds : function, optional
        clouds(first, n) is the source of the clouds for a group of n rows, the first of which has
        the number ``first`` (see :func:`spread_alike`). Default: a generator of the seed.
    """
    rows, seed = array("rows", rows, None, None), whole("seed", seed, 0)
    least, recursive = number("least", least, "[-2, 2]"), flag("recursive", recursive)
    function("clouds", clouds, none=True)
    label, waiting = np.zeros(len(rows), dtype=int), [np.arange(len(rows))] if len(rows) else []
    while waiting:
        who = waiting.pop()
        key = int(who[0]), len(who)
        source = clouds(*key) if clouds else generator("clouds without groups", seed, *key)
        cut = _standing_out(rows[who], source, least)
        if cut is not None:
            label[who] = label.max() + 1 + cut
            waiting += [who[cut == j] for j in range(cut.max() + 1)] if recursive else []
    return torch.from_numpy(_in_order(label))


def _standing_out(rows, source, least):
    """The cut of some rows that stands out from the clouds, or None."""
    labels, scores = cuts(rows)
    if not len(scores) or (rows == rows[0]).all():
        return None
    _, clouds = against_clouds(rows, source)
    excess, usual = scores - clouds.mean(0), clouds - clouds.mean(0)
    as_much = (usual.max(1) >= excess.max()).sum()
    return labels[excess.argmax()] if excess.max() >= least and as_much <= PASSED else None
