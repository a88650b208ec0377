"""Test protocols of the papers, and how well hidden clusters were found."""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from clusterfl_core import local
from clusterfl_core.ifca import lowest


def score(algorithm, state, federation):
    """Quality of each test client's predictions, by the algorithm's own test protocol.

    Parameters
    ----------
    algorithm
        Settings of an algorithm; its ``test_protocol`` names the protocol.
    state
        The state to judge.
    federation : Federation

    Returns
    -------
    Tensor [m_test]
        Accuracy in [0, 1] of each test client, or mean squared error for regression
        (``federation.classes == 0``).
    """
    protocols = {"lowest_loss": lowest_loss, "own_distribution": own_distribution}
    return protocols[algorithm.test_protocol](state, federation)


def lowest_loss(state, federation):
    """Each test client takes the model with the lowest loss on its OWN data (IFCA, section 6.2).

    The labels of the test clients are used to choose among the k models, then again to score the
    choice. That is the protocol of IFCA's Table 1; with one model there is nothing to choose.
    """
    losses = local.loss_matrix(state.bank, federation.test)
    chosen = lowest(losses)
    if not federation.classes:
        return losses.gather(1, chosen[:, None])[:, 0]
    return local.accuracies(state.bank.take(chosen), federation.test)


def own_distribution(state, federation):
    """Each client's own model on the test data of its own distribution ("local", Table 1).

    Returns
    -------
    Tensor [m]
        One value a TRAINING client: the mean over the test clients of its true cluster.
    """
    test = federation.test
    kinds, test_kinds = federation.clusters, federation.test_clusters
    if kinds is None:
        kinds, test_kinds = torch.zeros(len(federation)), torch.zeros(len(test))
    values = torch.empty(len(federation), dtype=torch.float64)
    for i in range(len(federation)):
        same = test.take((test_kinds == kinds[i]).nonzero()[:, 0])
        models = state.bank.take([i] * len(same))
        judge = local.accuracies if federation.classes else local.mean_losses
        values[i] = judge(models, same).to(torch.float64).mean()
    return values


def match_clusters(estimated, clusters):
    """Best one-to-one matching of estimated clusters to true ones (Hungarian method).

    Parameters
    ----------
    estimated, clusters : LongTensor [m]
        Estimated identity (-1: unknown, matches nothing) and true cluster of each client.

    Returns
    -------
    dict of int to int
        For each matched estimated cluster the true cluster it stands for. At most one estimated
        cluster stands for a true one.
    """
    known = estimated >= 0
    rows = int(estimated.max()) + 1 if known.any() else 0
    table = np.zeros((rows, int(clusters.max()) + 1))
    np.add.at(table, (estimated[known].numpy(), clusters[known].numpy()), 1)
    return dict(zip(*(axis.tolist() for axis in linear_sum_assignment(-table)), strict=True))


def identity_accuracy(estimated, clusters):
    """Fraction of clients in the right cluster under the best matching of names.

    Two estimated clusters never count for one true cluster, so a model shared by two true
    clusters of equal size costs the clients of one of them.
    """
    matching = match_clusters(estimated, clusters)
    right = [
        matching.get(e) == c for e, c in zip(estimated.tolist(), clusters.tolist(), strict=True)
    ]
    return sum(right) / len(right)


def adjusted_rand_index(estimated, clusters):
    """Agreement of two partitions of the clients: 1 if equal, about 0 for random ones."""
    return float(adjusted_rand_score(clusters.tolist(), estimated.tolist()))
