"""Who is who: two numberings of the same things brought together.

Estimated clusters have numbers of their own, so they are compared with the true ones under the best
one-to-one matching of the two. The measures are in :mod:`clusterfl_core.evaluation` as well.

>>> import numpy as np
>>> table = np.array([[0, 5], [4, 3], [1, 1]])  # a row an estimated cluster, a column a true one
>>> best_matching(table)
{0: 1, 1: 0}
"""

import numpy as np
import torch

from clusterfl_core import check
from clusterfl_core.check import array, items, shown, whole, wholes

__all__ = ["adjusted_rand_index", "best_matching", "blind_level", "identity_accuracy"]
__all__ += ["match_clusters", "torn"]

MOST = 10**5  # clusters may have any numbers below this


def best_matching(table):
    """The one-to-one matching of rows and columns with the largest sum (Hungarian method).

    ``table`` [rows, columns] says what a match is worth: a count, or the negative of a distance. A
    dict of the column of each row, in the order of the rows; of the longer side some stay alone.
    """
    from scipy.optimize import linear_sum_assignment

    matched = linear_sum_assignment(array("table", table, None, None), maximize=True)
    return dict(zip(*(axis.tolist() for axis in matched), strict=True))


def match_clusters(estimated, clusters):
    """Best one-to-one matching of estimated clusters to true ones (Hungarian method).

    ``estimated`` (-1: unknown, matches nothing) and ``clusters`` are LongTensor [m]. A dict of int
    to int: for each matched estimated cluster the one true cluster it stands for.
    """
    estimated, clusters = _partitions(estimated, clusters)
    known = estimated >= 0
    rows = int(estimated.max()) + 1 if known.any() else 0
    table = np.zeros((rows, int(clusters.max()) + 1))
    np.add.at(table, (estimated[known].numpy(), clusters[known].numpy()), 1)
    return best_matching(table)


def identity_accuracy(estimated, clusters):
    """Fraction of clients in the right cluster under the best matching of names.

    Two estimated clusters never count for one true cluster, so a model shared by two true
    clusters of equal size costs the clients of one of them.
    """
    estimated, clusters = _partitions(estimated, clusters)
    matching = match_clusters(estimated, clusters)
    right = [
        matching.get(e) == c for e, c in zip(estimated.tolist(), clusters.tolist(), strict=True)
    ]
    return sum(right) / len(right)


def blind_level(clusters, guesses=4000, seed=0):
    """:func:`identity_accuracy` of blind guesses, on average: what finding nothing scores.

    Each of so many ``guesses`` draws one of the k clusters for every client, all alike likely. The
    best matching is chosen afterwards, so the level lies above 1 / k. ``clusters`` is LongTensor
    [m].
    """
    clusters = _numbered("clusters", clusters)
    seed, size = whole("seed", seed, 0), (whole("guesses", guesses), len(clusters))
    dice = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(clusters.unique()), size, generator=dice)
    return float(np.mean([identity_accuracy(one, clusters) for one in drawn]))


def adjusted_rand_index(estimated, clusters):
    """Agreement of two partitions of the clients: 1 if equal, about 0 for random ones."""
    from sklearn.metrics import adjusted_rand_score  # slow to import

    estimated, clusters = _partitions(estimated, clusters)
    return float(adjusted_rand_score(clusters.tolist(), estimated.tolist()))


def torn(groups, clusters):
    """How many true clusters a partition tears: their clients lie in more than one group.

    ``groups`` holds the clients of each group, ``clusters`` [m] the true cluster of each client. A
    bipartition that tears none is *correct* (CFL, Definition 1); it need not find all clusters.
    """
    clusters = _numbered("clusters", clusters)
    parts = [check.rows("groups", ids, len(clusters)) for ids in items("groups", groups)]
    if any(len(part) and not 0 <= part.min() <= part.max() < len(clusters) for part in parts):
        raise ValueError(f"groups must name clients 0 to {len(clusters) - 1}, got {shown(groups)}")
    kinds = [clusters[part].unique() for part in parts]
    return int((torch.cat(kinds).bincount() > 1).sum())


def _numbered(name, given, least=0):
    """The cluster of each client, of one at least, as a LongTensor."""
    found = wholes(name, given)
    if not len(found) or int(found.min()) < least or int(found.max()) >= MOST:
        raise ValueError(f"{name} must be numbers from {least} to {MOST - 1}, got {shown(given)}")
    return found


def _partitions(estimated, clusters):
    """Two partitions of the same clients, as LongTensors."""
    estimated, clusters = _numbered("estimated", estimated, -1), _numbered("clusters", clusters)
    if len(estimated) != len(clusters):
        sizes = f"{len(estimated)} and {len(clusters)}"
        raise ValueError(f"estimated and clusters must name the same clients, got {sizes} of them")
    return estimated, clusters
