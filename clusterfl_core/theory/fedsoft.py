"""FedSoft's theory: what a round costs, what the estimated shares are, where the models rest.

>>> workload(clients=100, chosen=60, clusters=2)  # for two clusters not 120
84.0
"""

import math

import numpy as np

from clusterfl_core import check

__all__ = [
    "divergence_radius", "expected_importance", "importance_bound", "soft_centers",
    "subproblem_inexactness", "workload",
]  # fmt: skip


def workload(clients, chosen, clusters):
    """How many clients train in a round of FedSoft on average: N (1 - (1 - K / N)^S).

    Holds if each of N ``clients`` is as likely as any other to be among the K <= N ``chosen`` for
    each of S ``clusters``, which is the paper's example; unequal aggregation weights make the same
    clients be chosen more often. At most S K, what training one cluster after another would take.
    """
    clients, clusters = check.whole("clients", clients), check.whole("clusters", clusters)
    chosen = check.whole("chosen", chosen)
    check.among("chosen", chosen, clients)
    return clients * (1 - (1 - chosen / clients) ** clusters)


def importance_bound(importance, misclassified, smoother):
    """FedSoft's Theorem 1: E u_ks^t <= (1 - p_epsilon) u_ks + p_epsilon + sigma.

    ``importance`` (float or array) is u_ks, the true share of the cluster in the client's data;
    ``misclassified`` p_epsilon, a bound on the chance that a point chooses a given wrong center,
    for example :func:`convex_misclassification` for one point; ``smoother`` sigma.
    """
    misclassified = check.number("misclassified", misclassified, "[0, 1]")
    smoother, shares = (
        check.number("smoother", smoother, "[0, 1)"),
        check.reals("importance", importance),
    )
    if not shares.size or shares.min() < 0 or shares.max() > 1:
        raise ValueError(f"importance must be in [0, 1], got {check.shown(importance)}")
    return (1 - misclassified) * shares + misclassified + smoother


def expected_importance(counts, confusion, smoother):
    """The mean of FedSoft's estimate u_ks^t = max(n_ks^t / n_k, sigma), exactly: array [S].

    Points choose independently, so the mean count is that of the right choices plus that of the
    wrong ones, and sigma counts only if no point at all chooses the cluster.

    Parameters
    ----------
    counts : array [S] of int
        n_ks, how many of the client's points come from each cluster.
    confusion : array [S, S]
        Row s: the chances that a point of cluster s chooses each center; rows sum to one. For two
        centers of the linear model :func:`misclassification` with one point gives them.
    smoother : float
        sigma, at most 1 / n_k.
    """
    counts, smoother = (
        check.wholes("counts", counts).numpy(),
        check.number("smoother", smoother, "[0, 1]"),
    )
    if not len(counts) or counts.min() < 0 or not counts.any():
        raise ValueError(f"counts must not be negative and not all zero, got {counts.tolist()}")
    confusion = check.array("confusion", confusion, len(counts), len(counts))
    if confusion.min() < 0:
        raise ValueError(f"confusion must not be negative, got {check.shown(confusion.tolist())}")
    if not np.allclose(confusion.sum(1), 1):
        raise ValueError(f"rows of confusion must sum to one, got {confusion.sum(1).tolist()}")
    if smoother * counts.sum() > 1:
        raise ValueError(f"smoother must be at most 1 / {counts.sum()} points, got {smoother}")
    nobody = np.prod((1 - confusion) ** counts[:, None], axis=0)
    return counts @ confusion / counts.sum() + smoother * nobody


def subproblem_inexactness(solver, similarity, convexity, smoothness):
    """The gamma of FedSoft's Theorem 2, sqrt((gamma_0^2 + beta) L_lambda / mu_lambda).

    The gradient of h_ks at the local model is at most gamma / sqrt(u_ks) times that of F_s at the
    center. ``solver`` is gamma_0 of Assumption 1, 0 if local problems are solved exactly;
    ``similarity`` beta of Assumption 2; ``convexity`` and ``smoothness`` are mu_lambda and L_lambda
    of the sub-problems h_ks, mu_F + lambda and L_F + lambda where the importance is known.
    """
    convexity, smoothness = _positive(convexity, smoothness)
    solver = check.number("solver", solver, "[0, inf)", "not be negative")
    similarity = check.number("similarity", similarity, "[0, inf)", "not be negative")
    return math.sqrt((solver**2 + similarity) * smoothness / convexity)


def _positive(convexity, smoothness):
    return check.positive("convexity", convexity), check.positive("smoothness", smoothness)


def divergence_radius(inexactness, clusters, convexity, smoothness):
    """The r of FedSoft's Theorem 3: a local model lies within r Delta of every center.

    r = (gamma S + 1) / 4 sqrt(L_F / mu_F) + 1/2 sqrt(mu_F / L_F) + 1, and Delta is the largest
    distance between two optimal centers. ``inexactness`` is gamma of
    :func:`subproblem_inexactness`, ``clusters`` S, ``convexity`` and ``smoothness`` are mu_F and
    L_F of the cluster risks.
    """
    convexity, smoothness = _positive(convexity, smoothness)
    clusters = check.whole("clusters", clusters)
    inexactness = check.number("inexactness", inexactness, "[0, inf)", "not be negative")
    root = math.sqrt(smoothness / convexity)
    return (inexactness * clusters + 1) / 4 * root + 0.5 / root + 1


def soft_centers(theta, mixture, weights, proximal):
    """Where FedSoft's centers rest in linear regression, with endless data and known shares.

    A client with shares u_k solves its proximal problem (eq. 4) at
    w_k = sum_s u_ks (2 theta_s + lambda c_s) / (2 + lambda), and c_s is the mean of the w_k with
    the aggregation weights v_sk. So C, [S, d], is V U (2 Theta + lambda C) / (2 + lambda). Unless
    every client holds one cluster only, the centers are means of mixtures and not the theta_s: no
    theorem of the paper says so, its tables of errors show it.

    Parameters
    ----------
    theta : array [S, d]
        True parameters.
    mixture, weights : array [N, S], array [S, N]
        U and V, rows sum to one. With everybody taking part v_sk = u_ks n_k / sum_k' u_k's n_k'
        (eq. 6); choosing K clients without replacement flattens it.
    proximal : float
        lambda, not negative.
    """
    proximal = check.number("proximal", proximal, "[0, inf)", "not be negative")
    theta, share = check.array("theta", theta, None, None), proximal / (2 + proximal)
    mixture = check.array("mixture", mixture, None, len(theta))
    weights = check.array("weights", weights, len(theta), len(mixture))
    for name, rows in (("mixture", mixture), ("weights", weights)):
        if not rows.size or rows.min() < 0 or not np.allclose(rows.sum(1), 1, atol=1e-6):
            raise ValueError(
                f"rows of {name} must be shares that sum to one, got {check.shown(rows)}"
            )
    blend = weights @ mixture
    return np.linalg.solve(np.eye(len(theta)) - share * blend, (1 - share) * blend @ theta)
