"""How many clients, in how many hidden clusters; clients of one cluster are neighbours."""

import torch

from clusterfl_core import check


def check_sizes(clients, clusters):
    """Both as ints."""
    clients, clusters = check.whole("clients", clients), check.whole("clusters", clusters)
    check.among("clusters", clusters, clients)
    return clients, clusters


def check_equal(clients, clusters):
    """Both as ints; each cluster has as many clients."""
    clients, clusters = check_sizes(clients, clusters)
    if clients % clusters:
        raise ValueError(f"clients must be a multiple of the {clusters} clusters, got {clients}")
    return clients, clusters


def neighbours(clients, clusters):
    """The cluster of each client, i k // m: LongTensor [m]."""
    return torch.arange(clusters).repeat_interleave(clients // clusters)


def whole_numbers(shares, sizes):
    """Whole numbers [m, k] that follow the shares [m, k] and sum to the sizes [m]."""
    cuts = (shares.cumsum(1) * sizes[:, None]).round().to(torch.int64)
    return cuts.diff(dim=1, prepend=torch.zeros(len(cuts), 1, dtype=torch.int64))
