"""Clients whose data is a mixture of several hidden clusters (FedSoft).

>>> print(linear_mixture("digits", clients=4))  # doctest: +ELLIPSIS
digits, mixed linear of 0 degrees, 90 degrees: 4 training clients with ...
"""

import torch

from clusterfl_core import check, data
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.populations._sizes import check_sizes, whole_numbers
from clusterfl_core.populations.twists import turn
from clusterfl_core.randomness import POPULATION, generator

__all__ = ["linear_mixture", "mixed", "pattern_shares"]


def mixed(name, clients, clusters, pattern, seed=0, points=(100, 200)):
    """Images of which every client has a mixture of k kinds (FedSoft, section "Experiments").

    The kinds are images turned by 0, 90, 180, 270 degrees counterclockwise. Where capital and small
    letters are told apart, they are: small and capital letters for k = 2; small, small turned by
    90, capital, capital turned by 90 for k = 4 (Table 4): with "letters" it is the paper's. A
    client's points lie in the order of the kinds. ``truth["mixture"]`` [m, k] holds the shares of
    the points dealt, n_ij / n_i. One test client a kind, with all its test images.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients, clusters : int
        m, and k, 2 to 4 (2 or 4 with letters).
    pattern : {"10:90", "30:70", "linear", "random"}
        How the kinds share a client's images, as :func:`pattern_shares` says.
    points : (int, int)
        A client holds that many images, uniformly at random, both bounds included. One is used
        again only when all of its kind have been.
    """
    images = data.load(name)
    (clients, clusters), seed = check_sizes(clients, clusters), check.whole("seed", seed, 0)
    points = [check.whole("points", n, -(2**62), 2**62) for n in check.items("points", points)]
    if len(points) != 2 or not 1 <= points[0] <= points[1]:
        raise ValueError(f"points must be two numbers, 1 <= low <= high, got {tuple(points)}")
    source = generator(POPULATION, seed)
    shares = pattern_shares(pattern, clients, clusters, source)
    kinds = _kinds(images, clusters)
    sizes = torch.randint(points[0], points[1] + 1, (clients,), generator=source)
    counts = whole_numbers(shares, sizes)
    xs, ys = [[] for _ in range(clients)], [[] for _ in range(clients)]
    for (x, y, _, _), wanted in zip(kinds.values(), counts.T, strict=True):
        decks = -(-int(wanted.sum()) // len(y))
        order = torch.cat([torch.randperm(len(y), generator=source) for _ in range(max(1, decks))])
        for i, rows in enumerate(order[: wanted.sum()].split(wanted.tolist())):
            xs[i].append(x[rows])
            ys[i].append(y[rows])
    return Federation(
        Clients.from_lists([torch.cat(x) for x in xs], [torch.cat(y) for y in ys]),
        Clients.from_lists(*zip(*[kind[2:] for kind in kinds.values()], strict=True)),
        test_clusters=torch.arange(clusters),
        classes=images.classes,
        name=f"{name}, mixed {pattern} of {', '.join(kinds)}",
        truth={"mixture": counts / sizes[:, None].to(torch.float64)},
    )


def linear_mixture(name, clients, clusters=2, seed=0):
    """:func:`mixed` in FedSoft's pattern "linear"."""
    return mixed(name, clients, clusters, "linear", seed)


def _kinds(images, clusters):
    """Training images, their labels, test images and their labels of each kind, by its name."""

    def turned(quarters, train=slice(None), test=slice(None)):
        change = turn(90 * quarters)
        near = change(images.x_train[train], images.y_train[train])
        return *near, *change(images.x_test[test], images.y_test[test])

    if "upper" not in images.facts:
        if clusters > 4:
            raise ValueError(f"clusters must be at most 4 (quarter turns), got {clusters}")
        return {f"{90 * j} degrees": turned(j) for j in range(clusters)}
    if clusters not in (2, 4):
        raise ValueError(f"clusters must be 2 or 4 with two kinds of letters, got {clusters}")
    return {
        f"{case} letters" + (f" at {90 * quarters}" if clusters == 4 else ""): turned(
            quarters, *(one == upper for one in images.facts["upper"])
        )
        for upper, case in enumerate(("small", "capital"))
        for quarters in range(clusters // 2)
    }


def pattern_shares(pattern, clients, clusters, source):
    """The share of each cluster in each client's points, k >= 2 (FedSoft, "Experiments"): [m, k].

    "10:90": a tenth of cluster 0 in the first half of the clients, an even number, nine tenths in
    the second. "30:70": likewise. "linear": client i has the share (i + 1/2) / m of cluster 0, in
    percent 0.5 + i for m = 100. "random", the only one for k > 2: [0, 1] cut at k - 1 uniform
    points.
    """
    clients, clusters = check.whole("clients", clients), check.whole("clusters", clusters)
    check.kind("source", source, torch.Generator)
    if clusters < 2:
        raise ValueError(f"clusters must be at least 2 to be mixed, got {clusters}")
    check.one_of("pattern", pattern, "10:90", "30:70", "linear", "random")
    if pattern == "random":
        cuts = torch.rand(clients, clusters - 1, generator=source, dtype=torch.float64)
        edges = torch.nn.functional.pad(cuts.sort(1).values, (1, 0))
        return edges.diff(dim=1, append=torch.ones(clients, 1, dtype=torch.float64))
    if clusters > 2:
        raise ValueError(f"pattern {pattern!r} mixes 2 clusters, got {clusters}; use 'random'")
    if pattern == "linear":
        first = (torch.arange(clients, dtype=torch.float64) + 0.5) / clients
    else:
        if clients % 2:
            raise ValueError(f"clients must be even for pattern {pattern!r}, got {clients}")
        small = int(pattern[:2]) / 100
        halves = torch.tensor([small, 1 - small], dtype=torch.float64)
        first = halves.repeat_interleave(clients // 2)
    return torch.stack([first, 1 - first], 1)
