"""One data set becomes a population of clients, with the truth kept for evaluation.

Each function returns a :class:`~clusterfl_core.federation.Federation`; printing it says in words
what was made.
"""

import torch

from clusterfl_core import data
from clusterfl_core.federation import POPULATION, Clients, Federation, generator


def _check_sizes(clients, clusters):
    if clusters < 1:
        raise ValueError(f"clusters must be at least 1, got {clusters}")
    if clusters > clients:
        raise ValueError(f"clusters must be at most the {clients} clients, got {clusters}")


def rotated(name, clients, clusters, seed=0):
    """Images turned by 0, 90, 180, 270 degrees: one rotation a hidden cluster (IFCA, section 6.2).

    Every training image is used once in each rotation: within a rotation the images are dealt at
    random to its clients, as evenly as they go. Test images are dealt the same way to test
    clients of about as many points.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m, a multiple of ``clusters``.
    clusters : int
        k in {1, 2, 4}: rotations by 0; by 0 and 180; by 0, 90, 180 and 270 degrees.
    seed : int
        Fixes which client holds which image.

    Returns
    -------
    Federation
        Clients of one rotation are neighbours: client i belongs to cluster i k // m.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_sizes(clients, clusters)
    if clusters not in (1, 2, 4):
        raise ValueError(f"clusters must be 1, 2 or 4 (quarter turns), got {clusters}")
    if clients % clusters:
        raise ValueError(f"clients must be a multiple of the {clusters} clusters, got {clients}")
    images = data.load(name)
    share = clients // clusters
    points = len(images.y_train) / share
    if points < 1:
        raise ValueError(
            f"clients must be at most {len(images.y_train) * clusters}, so that each holds an "
            f"image; got {clients}"
        )
    test_share = max(1, round(len(images.y_test) / points))
    source = generator(POPULATION, seed)
    train = _deal_rotations(images.x_train, images.y_train, share, clusters, source)
    test = _deal_rotations(images.x_test, images.y_test, test_share, clusters, source)
    return Federation(
        train,
        test,
        clusters=torch.arange(clusters).repeat_interleave(share),
        test_clusters=torch.arange(clusters).repeat_interleave(test_share),
        classes=images.classes,
        name=f"{name} in {clusters} rotations",
    )


def _deal_rotations(x, y, share, clusters, source):
    xs, ys = [], []
    for j in range(clusters):
        turned = torch.rot90(x, j * 4 // clusters, dims=(1, 2))
        for rows in torch.randperm(len(y), generator=source).tensor_split(share):
            xs.append(turned[rows])
            ys.append(y[rows])
    return Clients.from_lists(xs, ys)


def regression(theta, clients, points, noise, seed=0):
    """Linear regression in hidden clusters: y = <x, theta_j> + noise (IFCA, section 5.1).

    Parameters
    ----------
    theta : Tensor [k, d]
        True parameters, one row a cluster.
    clients : int
        m, a multiple of k.
    points : int
        n, points of each client. Test clients, k of them, hold as many.
    noise : float
        sigma, standard deviation of the Gaussian noise; x is standard normal in d dimensions.
    seed : int
        Fixes x and the noise.

    Returns
    -------
    Federation
        Client i belongs to cluster i k // m; ``truth["theta"]`` holds ``theta``.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    k, features = theta.shape
    _check_sizes(clients, k)
    if clients % k:
        raise ValueError(f"clients must be a multiple of the {k} clusters, got {clients}")
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    source = generator(POPULATION, seed)

    def sample(clusters):
        x = torch.randn(len(clusters), points, features, generator=source).to(theta)
        wobble = noise * torch.randn(len(clusters), points, generator=source).to(theta)
        y = torch.einsum("mnd,md->mn", x, theta[clusters]) + wobble
        return Clients(x, y, torch.full((len(clusters),), points))

    clusters = torch.arange(k).repeat_interleave(clients // k)
    return Federation(
        sample(clusters),
        sample(torch.arange(k)),
        clusters=clusters,
        test_clusters=torch.arange(k),
        name=f"linear regression in {features} dimensions",
        truth={"theta": theta},
    )


def mixture_regression(pattern, clients=100, clusters=2, seed=0, *, features=10, variance=10.0):
    """Linear regression in which every client is a mixture of clusters (FedSoft's synthetic data).

    y = <x, theta_j> + noise, with x and the noise standard normal and theta_j ~ N(0, variance I).
    The paper writes theta_j ~ N(0, sigma_0^2 I) with sigma_0 = 10, which would be a variance of 100
    in each coordinate; its released code takes 10 as the VARIANCE, and that gives errors of the
    size it prints. Each client holds between 100 and 200 points, uniformly at random.

    Parameters
    ----------
    pattern : {"10:90", "30:70", "linear", "random"}
        How the clusters share a client's points (section "Experiments"). "10:90": a tenth of
        cluster 0 in the first half of the clients, nine tenths in the second. "30:70": likewise.
        "linear": client i has the share (i + 1/2) / m of cluster 0, in percent 0.5 + i for m = 100.
        "random": [0, 1] cut at k - 1 uniform points.
    clients : int
        m; even for "10:90" and "30:70".
    clusters : int
        k, at least 2; more only for "random", as in the paper.
    seed : int
        Fixes theta, the sizes, the shares, x and the noise.
    features : int
        d.
    variance : float
        Of each coordinate of theta, positive.

    Returns
    -------
    Federation
        A client's points lie in the order of the clusters. ``truth["mixture"]`` [m, k] holds the
        shares of the points drawn, n_ij / n_i (the wanted shares, rounded to whole points), and
        ``truth["theta"]`` theta. One test client a cluster, of 1,000 points of that cluster alone.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_sizes(clients, clusters)
    source = generator(POPULATION, seed)
    shares = _mixture(pattern, clients, clusters, source)
    if features < 1:
        raise ValueError(f"features must be at least 1, got {features}")
    if not variance > 0:
        raise ValueError(f"variance must be positive, got {variance}")
    theta = variance**0.5 * torch.randn(clusters, features, generator=source)

    def sample(kinds):
        x = torch.randn(len(kinds), features, generator=source)
        return x, (x * theta[kinds]).sum(1) + torch.randn(len(kinds), generator=source)

    sizes = torch.randint(100, 201, (clients,), generator=source)
    cuts = (shares.cumsum(1) * sizes[:, None]).round().to(torch.int64)
    counts = cuts.diff(dim=1, prepend=torch.zeros(clients, 1, dtype=torch.int64))
    train = [sample(torch.arange(clusters).repeat_interleave(count)) for count in counts]
    test = [sample(torch.full((1000,), j)) for j in range(clusters)]
    return Federation(
        Clients.from_lists(*zip(*train, strict=True)),
        Clients.from_lists(*zip(*test, strict=True)),
        test_clusters=torch.arange(clusters),
        name=f"linear regression in {features} dimensions, mixed {pattern}",
        truth={"theta": theta, "mixture": counts / sizes[:, None].to(torch.float64)},
    )


def _mixture(pattern, clients, clusters, source):
    if clusters < 2:
        raise ValueError(f"clusters must be at least 2 to be mixed, got {clusters}")
    if pattern not in ("10:90", "30:70", "linear", "random"):
        raise ValueError(f"pattern must be '10:90', '30:70', 'linear' or 'random', got {pattern!r}")
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
