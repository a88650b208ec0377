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
