"""CFL's theory: when the best bipartition of the clients' updates tears no cluster.

Two clients of a cluster have updates of nearly one direction; clients of different clusters, at a
point where their gradients cancel, cannot all be alike. With noise below a limit the two statements
exclude each other, and the split is right:

>>> limit = guaranteed_noise(clusters=3)
>>> cross, intra = separation_bounds([0.9 * limit] * 6, clusters=[0, 0, 1, 1, 2, 2])
>>> cross < intra
True
"""

import math

import numpy as np
from scipy.spatial.distance import cdist

from clusterfl_core import check
from clusterfl_core.similarity import cross_similarity, optimal_bipartition

__all__ = ["alignment", "guaranteed_noise", "separation_bounds", "separation_probability"]


def alignment(noise_i, noise_j):
    """H_ij of CFL's Theorem 1 (eq. 20): the least cosine of two noisy copies of one gradient.

    The noise gamma_i (float or array in [0, 1]) is the distance of a client's gradient from its
    cluster's, over the norm of the cluster's. H_ij = -gamma_i gamma_j + sqrt(1 - gamma_i^2)
    sqrt(1 - gamma_j^2), the cosine of arcsin(gamma_i) + arcsin(gamma_j).
    """
    noise_i, noise_j = check.reals("noise", noise_i), check.reals("noise", noise_j)
    for noise in (noise_i, noise_j):
        if not noise.size or noise.min() < 0 or noise.max() > 1:
            raise ValueError(f"noise must be in [0, 1], got {check.shown(noise.tolist())}")
    try:
        np.broadcast_shapes(noise_i.shape, noise_j.shape)
    except ValueError:
        shapes = f"{noise_i.shape} and {noise_j.shape}"
        raise ValueError(f"noise_i and noise_j must go together, got shapes {shapes}") from None
    return -noise_i * noise_j + np.sqrt(1 - noise_i**2) * np.sqrt(1 - noise_j**2)


def separation_bounds(noise, clusters):
    """CFL's Theorem 1: similarity at most across the best split, and at least within a cluster.

    ``noise`` [m] is gamma_i of each client in [0, 1], at a stationary point, ``clusters`` [m] its
    true cluster, one of k >= 2. Where intra is greater than cross, the best bipartition is correct
    (Corollary 1).

    Returns
    -------
    cross : float
        Upper bound on the largest cosine between clients of different sides of the best
        bipartition (eq. 19). The theorem does not say which clusters lie on which side, so this is
        the largest over all pairs of different clusters.
    intra : float
        Lower bound on the smallest cosine within a cluster (eq. 21); 1 if none has two clients.
    """
    clusters = check.wholes("clusters", clusters).numpy()
    noise = check.array("noise", noise, len(clusters))
    k = len(np.unique(clusters))
    if k < 2:
        raise ValueError(f"clusters must name at least 2 clusters, got {k}")
    h = alignment(noise[:, None], noise[None])
    same = clusters[:, None] == clusters[None]
    angle = math.pi / (k - 1)
    lemma = math.cos(angle) * h + math.sin(angle) * np.sqrt(np.clip(1 - h**2, 0, None))
    # h may fall short of cos(pi) = -1 by rounding only
    cross = np.where(h >= math.cos(angle) - 1e-12, lemma, 1.0)[~same].max()
    pairs = same & ~np.eye(len(noise), dtype=bool)
    return float(cross), float(h[pairs].min()) if pairs.any() else 1.0


def guaranteed_noise(clusters):
    """The noise below which CFL's Theorem 1 guarantees a correct split (figure 3, green).

    With one gamma for all clients of k >= 2 clusters, angles within a cluster are at most 2
    arcsin(gamma) and across the split at least pi / (k - 1) - 2 arcsin(gamma), so the gap is
    positive if gamma < sin(pi / (4 (k - 1))).
    """
    clusters = check.whole("clusters", clusters, 2)
    return math.sin(math.pi / (4 * (clusters - 1)))


def separation_probability(clusters, noise, features=100, each=3, trials=200, seed=0):
    """CFL's figure 3: how often the separation gap is positive, when nothing is worst case.

    The k true gradients are standard normal vectors, less their mean so that they sum to zero as at
    a stationary point. A client's gradient is its cluster's plus a normal vector, scaled to exactly
    gamma times the length of the cluster's. gamma, the ``noise`` of every client, may exceed 1,
    where Theorem 1 is silent. ``clusters`` is k, at least 2, ``features`` d and ``each`` the
    clients a cluster, at least 2; the paper has d = 100 and 3 clients.

    Returns
    -------
    positive : float
        Share of the draws with g(alpha) = alpha_intra_min - alpha_cross_max > 0 (Definition 2).
    correct : float
        Share of the draws in which the best bipartition splits no cluster. At least as large: a
        positive gap suffices, but is not needed.
    """
    counts = {"clusters": (clusters, 2), "each": (each, 2), "features": (features,)}
    clusters, each, features, trials = (
        check.whole(name, *bounds) for name, bounds in (counts | {"trials": (trials,)}).items()
    )
    noise = check.number("noise", noise, "[0, inf)", "not be negative")
    source = np.random.default_rng(check.whole("seed", seed, 0))
    truth = np.repeat(np.arange(clusters), each)
    same = truth[:, None] == truth[None]
    positive = correct = 0
    for _ in range(trials):
        means = source.standard_normal((clusters, features))
        means -= means.mean(0)
        wobble = source.standard_normal((len(truth), features))
        lengths = noise * np.linalg.norm(means[truth], axis=1) / np.linalg.norm(wobble, axis=1)
        cosine = 1 - cdist(*[means[truth] + lengths[:, None] * wobble] * 2, "cosine")
        first, second = optimal_bipartition(cosine)
        positive += bool(cosine[same].min() > cross_similarity(cosine, first, second))
        correct += not same[np.ix_(first, second)].any()
    return positive / trials, correct / trials
