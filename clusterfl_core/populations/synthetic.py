"""Populations drawn from a formula: points in the plane, and linear regressions.

>>> theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
>>> federation = regression(theta, clients=4, points=3, noise=0.0)
>>> x, y = federation.train.points(2)  # a client of cluster 1
>>> torch.equal(y, x[:, 1])
True
"""

from dataclasses import replace

import torch

from clusterfl_core import check
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.populations._sizes import check_equal, check_sizes, neighbours, whole_numbers
from clusterfl_core.populations.mixtures import pattern_shares
from clusterfl_core.randomness import POPULATION, generator

__all__ = [
    "bernoulli_regression", "conflicting_labels", "federated_xor", "mixture_regression",
    "regression",
]  # fmt: skip


def federated_xor(clients, points, seed=0):
    """Points in the plane that no line separates, though each client's could be (CFL, figure 1).

    Four clouds lie at the corners of a square, opposite corners of one class. Clients of cluster 0
    see the two corners on the left, clients of cluster 1 those on the right: a linear model fits
    either cluster, and no linear model fits both. An even number of ``clients`` holds n ``points``
    each, and as many for testing.
    """
    points = check.whole("points", points)

    def draw(cluster, source):
        side = torch.randint(2, (points,), generator=source)
        corner = torch.stack([torch.full((points,), 2.0 * cluster - 1), 2.0 * side - 1], 1)
        return corner + 0.3 * torch.randn(points, 2, generator=source), side ^ cluster

    return _plane(clients, points, seed, draw, "points in the plane, XOR of two clusters")


def conflicting_labels(clients, points, seed=0):
    """Points in the plane that two clusters label the opposite way (CFL, figure 1, right).

    x is standard normal; cluster 0 calls the right half class 1, cluster 1 the left half. Whatever
    a model says is right for exactly one of the clusters. ``clients`` and ``points`` are as in
    :func:`federated_xor`.
    """
    points = check.whole("points", points)

    def draw(cluster, source):
        x = torch.randn(points, 2, generator=source)
        return x, (x[:, 0] > 0).to(torch.int64) ^ cluster

    return _plane(clients, points, seed, draw, "points in the plane with conflicting labels")


def _plane(clients, points, seed, draw, words):
    clients, _ = check_equal(clients, 2)
    source = generator(POPULATION, check.whole("seed", seed, 0))
    clusters = neighbours(clients, 2)
    train, test = (
        Clients.from_lists(*zip(*[draw(c, source) for c in clusters.tolist()], strict=True))
        for _ in range(2)
    )
    return Federation(train, test, clusters, clusters, classes=2, name=words)


def regression(theta, clients, points, noise, seed=0):
    """Linear regression in hidden clusters: y = <x, theta_j> + noise (IFCA, section 5.1).

    ``theta`` [k, d] are the true parameters, one row a cluster, kept as ``truth["theta"]``. m
    ``clients``, a multiple of k, hold n ``points`` each; k test clients hold as many. x is standard
    normal in d dimensions; ``noise`` is sigma, the standard deviation of the Gaussian noise.
    """
    theta = theta if isinstance(theta, torch.Tensor) else torch.tensor(_rows(theta)).float()
    _rows(theta)
    if not theta.is_floating_point():
        raise ValueError(f"theta must be floating-point numbers, got {theta.dtype}")
    k, features = theta.shape
    clients, _ = check_equal(clients, k)
    points = check.whole("points", points)
    noise = check.number("noise", noise, "[0, inf)", "not be negative")
    source = generator(POPULATION, check.whole("seed", seed, 0))

    def sample(clusters):
        x = torch.randn(len(clusters), points, features, generator=source).to(theta)
        wobble = noise * torch.randn(len(clusters), points, generator=source).to(theta)
        y = torch.einsum("mnd,md->mn", x, theta[clusters]) + wobble
        return Clients(x, y, torch.full((len(clusters),), points))

    clusters = neighbours(clients, k)
    return Federation(
        sample(clusters),
        sample(torch.arange(k)),
        clusters=clusters,
        test_clusters=torch.arange(k),
        name=f"linear regression in {features} dimensions",
        truth={"theta": theta},
    )


def _rows(theta):
    """True parameters as an array with a row and a column at least."""
    found = check.array("theta", theta, None, None)
    if found.ndim == 2 and not len(found):
        raise ValueError("clusters must be at least 1, got 0: theta has no row")
    if not found.size:
        raise ValueError(f"theta must have a row a cluster, got shape {list(found.shape)}")
    return found


def bernoulli_regression(
    scale, clients, points, features, clusters, noise, seed=0, *, reading="coordinate"
):
    """The regressions of IFCA's figure 3: each theta_j is a random vector of 0 and 1, scaled by R.

    The paper says that the vector is rescaled to the NORM R. Its released code multiplies it by R
    instead, so that each COORDINATE is 0 or R and the norm about R sqrt(d / 2); only that reading
    gives the published figure. ``reading`` is "coordinate", that of the code, or "norm", that of
    the text; ``scale`` is R, positive; ``clients``, ``points``, ``features`` and ``clusters`` are
    m, a multiple of k; n; d; k. The rest is as in :func:`regression`. No theta is zero and no two
    are equal; others are drawn anew.
    """
    clients, clusters = check_sizes(clients, clusters)
    scale, seed = check.positive("scale", scale), check.whole("seed", seed, 0)
    check.one_of("reading", reading, "coordinate", "norm")
    features = check.whole("features", features)
    if features < 1 or (features < 32 and 2**features <= clusters):
        raise ValueError(f"features must allow {clusters} different vectors, got {features}")
    source, theta = generator(POPULATION, seed, 1), torch.zeros(1, features)
    while len(theta.unique(dim=0)) < clusters or not theta.any(1).all():
        theta = torch.randint(2, (clusters, features), generator=source).to(torch.float32)
    theta *= scale if reading == "coordinate" else scale / theta.norm(dim=1, keepdim=True)
    made = regression(theta, clients, points, noise, seed)
    return replace(made, name=f"{made.name}, R = {scale} by {reading}")


def mixture_regression(pattern, clients=100, clusters=2, seed=0, *, features=10, variance=10.0):
    """Linear regression in which every client is a mixture of clusters (FedSoft's synthetic data).

    y = <x, theta_j> + noise, with x and the noise standard normal and theta_j ~ N(0, variance I).
    The paper writes theta_j ~ N(0, sigma_0^2 I) with sigma_0 = 10, which would be a variance of 100
    in each coordinate; its released code takes 10 as the VARIANCE, and that gives errors of the
    size it prints. Each of m ``clients`` holds between 100 and 200 points in d dimensions
    (``features``), uniformly at random, of k ``clusters`` in a ``pattern`` of
    :func:`pattern_shares`; they lie in the order of the clusters. ``truth["mixture"]`` [m, k] holds
    the shares of the points drawn, n_ij / n_i (the wanted shares, rounded to whole points), and
    ``truth["theta"]`` theta. One test client a cluster, of 1,000 points of that cluster alone.
    """
    (clients, clusters), seed = check_sizes(clients, clusters), check.whole("seed", seed, 0)
    source = generator(POPULATION, seed)
    shares = pattern_shares(pattern, clients, clusters, source)
    features = check.whole("features", features)
    variance = check.positive("variance", variance)
    theta = variance**0.5 * torch.randn(clusters, features, generator=source)

    def sample(kinds):
        x = torch.randn(len(kinds), features, generator=source)
        return x, (x * theta[kinds]).sum(1) + torch.randn(len(kinds), generator=source)

    sizes = torch.randint(100, 201, (clients,), generator=source)
    counts = whole_numbers(shares, sizes)
    train = [sample(torch.arange(clusters).repeat_interleave(count)) for count in counts]
    test = [sample(torch.full((1000,), j)) for j in range(clusters)]
    return Federation(
        Clients.from_lists(*zip(*train, strict=True)),
        Clients.from_lists(*zip(*test, strict=True)),
        test_clusters=torch.arange(clusters),
        name=f"linear regression in {features} dimensions, mixed {pattern}",
        truth={"theta": theta, "mixture": counts / sizes[:, None].to(torch.float64)},
    )
