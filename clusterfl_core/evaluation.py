"""Test protocols of the papers, and how well hidden clusters were found.

Examples
--------
>>> import torch
>>> from clusterfl_core.evaluation import identity_accuracy, separation_gap
>>> identity_accuracy(torch.tensor([1, 1, 0, 0]), torch.tensor([0, 0, 1, 0]))  # 1 stands for 0
0.75
>>> similarity = torch.tensor([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]])
>>> round(separation_gap(similarity, torch.tensor([0, 0, 1])), 3)
1.6
"""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from clusterfl_core import local
from clusterfl_core.baselines import responsibilities
from clusterfl_core.cfl import cross_similarity, optimal_bipartition
from clusterfl_core.ifca import lowest

INFERENCE = 20  # E steps with which a new client of FedEM finds its mixture weights


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
    protocols = {
        "lowest_loss": lowest_loss,
        "own_distribution": own_distribution,
        "own_leaf": own_leaf,
        "mixture": mixture,
    }
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
    """Each client's own prediction on held-out data of its own distribution ("local", Table 1).

    Which models predict for a client says :func:`personal_quality`.

    Returns
    -------
    Tensor [m]
        One value a TRAINING client: the mean over the test clients of its true cluster; where the
        client is a mixture (``truth["mixture"]``, [m, k]), the mean over the test clients of each
        cluster, weighted by the cluster's share. Where neither is known, each client's value on
        held-out data of its own if the test clients are the training clients (equal ids), else the
        mean over all test clients.

    Raises
    ------
    ValueError
        If no test client is known to be of a cluster that training clients belong to.
    """
    test, kinds = federation.test, federation.test_clusters
    if "mixture" in federation.truth:
        shares = federation.truth["mixture"].to(torch.float64)
    elif federation.clusters is not None:
        shares = torch.nn.functional.one_hot(federation.clusters).to(torch.float64)
    elif same_people(federation):
        return personal_quality(state, federation, torch.arange(len(test)), test)
    else:
        shares, kinds = torch.ones(len(federation), 1), torch.zeros(len(test), dtype=torch.int64)
    needed = shares.sum(0).nonzero()[:, 0].tolist()
    absent = set(needed) - set(() if kinds is None else kinds.tolist())
    if absent:
        raise ValueError(
            "test_clusters must name a test client of each cluster of the training clients, "
            f"there is none of cluster {min(absent)}"
        )
    values = torch.zeros(len(federation), dtype=torch.float64)
    for i, share in enumerate(shares):
        for j in share.nonzero()[:, 0].tolist():
            same = test.take((kinds == j).nonzero()[:, 0])
            row = torch.full((len(same),), i)
            values[i] += share[j] * personal_quality(state, federation, row, same).mean()
    return values


def own_training_data(state, federation):
    """Each client's own prediction on its own TRAINING data: Tensor [m].

    FedSoft's protocol for local models. It rewards fitting the noise; :func:`own_distribution` is
    the same on data the client has not seen.
    """
    train = federation.train
    return personal_quality(state, federation, torch.arange(len(train)), train)


def personal_quality(state, federation, rows, clients):
    """How well training clients predict for other clients' data.

    Parameters
    ----------
    state
        FedSoft: a client predicts with its personal model. FedEM: with the average of all models'
        predictions (probabilities, for classes) by its mixture weights. Others: with the model
        assigned to it.
    federation : Federation
        Says whether there are classes.
    rows : LongTensor [b]
        Training clients; may repeat.
    clients : Clients
        b clients, the i-th to be predicted by training client ``rows[i]``.

    Returns
    -------
    Tensor [b], float64
        Accuracy or mean squared error; NaN where a client was never assigned a model.
    """
    x, chosen = clients.inputs(state.bank.dtype), state.assignments[rows]
    if hasattr(state, "personal"):
        found = local.outputs(state.personal.take(rows), x)
    elif chosen.ndim == 2:
        found = mixed_outputs(state.bank, chosen, x, federation.classes)
    else:
        values = _quality(local.outputs(state.bank.take(chosen), x), state, federation, clients)
        return torch.where(chosen >= 0, values, torch.nan)
    return _quality(found, state, federation, clients)


def _quality(found, state, federation, clients):
    if federation.classes:
        points = (found.argmax(-1) == clients.y).to(torch.float64)
    else:
        points = state.bank.model.loss(found, clients.y).to(torch.float64)
    return local.masked_mean(points, clients.mask())


def mixture(state, federation):
    """Each test client predicts with all models, mixed by weights found on its OWN data (FedEM).

    Test clients are new: with the models fixed they repeat FedEM's E step from equal weights, and
    predict with the average of the models' predictions by the weights found. As in
    :func:`lowest_loss`, their labels are used to find the weights, then again to score.
    """
    test = federation.test
    table, mask = local.point_loss_table(state.bank, test), test.mask()
    k = len(state.bank)
    weights = torch.full((len(test), k), 1 / k, dtype=torch.float64)
    for _ in range(INFERENCE):
        q, _evidence = responsibilities(table, weights)
        weights = torch.stack([local.masked_mean(one.to(torch.float64), mask) for one in q], 1)
    x = test.inputs(state.bank.dtype)
    found = mixed_outputs(state.bank, weights, x, federation.classes)
    return _quality(found, state, federation, test)


def mixed_outputs(bank, weights, x, classes):
    """Average of all models' predictions by the clients' mixture weights (FedEM).

    Parameters
    ----------
    bank : Bank
        k models.
    weights : Tensor [b, k]
    x : Tensor [b, n, ...]
    classes : int
        0: the outputs themselves are averaged; otherwise the probabilities.

    Returns
    -------
    Tensor [b, n] or [b, n, classes]
    """
    total = 0
    for j in range(len(bank)):
        found = local.outputs(bank.take([j] * len(x)), x)
        found = found.softmax(-1) if classes else found
        total = total + local.column(weights[:, j].to(found), found) * found
    return total


def center_table(bank, federation):
    """Quality of every center on the data of every test client (FedSoft, Tables 1, 3 and 4).

    Returns
    -------
    Tensor [m_test, k]
        Accuracy, or mean squared error for regression. With one test client for each pure
        distribution a row is a distribution, as in the paper.
    """
    test = federation.test
    if not federation.classes:
        return local.loss_matrix(bank, test)
    columns = [local.accuracies(bank.take([j] * len(test)), test) for j in range(len(bank))]
    return torch.stack(columns, 1)


def hard(assignments):
    """One cluster a client: of soft assignments [m, k] the largest, the first where several are."""
    return assignments.argmax(1) if assignments.ndim == 2 else assignments


def own_leaf(state, federation):
    """Each client's accuracy with the model of its own leaf, on test data of its own (CFL, Fig. 8).

    That needs test data of the training clients, see :func:`same_people`. Test clients who are
    other people have no leaf; each takes the model with the lowest loss on its own data, as in
    :func:`lowest_loss`.
    """
    if not same_people(federation):
        return lowest_loss(state, federation)
    judge = local.accuracies if federation.classes else local.mean_losses
    return judge(state.bank.take(state.assignments), federation.test)


def same_people(federation):
    """Whether the test clients are the training clients, with held-out data of each.

    They are taken for that if their ids are equal and, where the truth is known, their clusters.
    """
    if not torch.equal(federation.train.ids, federation.test.ids):
        return False
    known = federation.clusters is not None and federation.test_clusters is not None
    return not known or torch.equal(federation.clusters, federation.test_clusters)


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


def torn(groups, clusters):
    """How many true clusters a partition tears: their clients lie in more than one group.

    A bipartition that tears none is *correct* (CFL, Definition 1); it need not find all clusters.

    Parameters
    ----------
    groups : sequence of LongTensor or array
        The clients of each group.
    clusters : LongTensor [m]
        True cluster of each client.

    Returns
    -------
    int
    """
    clusters = torch.as_tensor(clusters)
    kinds = [clusters[torch.as_tensor(ids)].unique() for ids in groups]
    return int((torch.cat(kinds).bincount() > 1).sum())


def separation_gap(similarity, clusters):
    """How clearly similarities show the clusters: g = alpha_intra^min - alpha_cross^max (CFL, 29).

    Parameters
    ----------
    similarity : Tensor or ndarray [m, m]
        Cosine similarities of the clients, m at least 2.
    clusters : LongTensor [m]
        True cluster of each client, I(i).

    Returns
    -------
    float
        The least similarity within a true cluster, less the largest across the OPTIMAL
        bipartition. Where it is positive the bipartition is correct: no true cluster is torn
        (Corollary 1). Remark 2 of the paper adds "only if", which is not so: the bipartition is
        also correct where the clients of a cluster are similar along a chain, not all in pairs.

    Raises
    ------
    ValueError
        If the clusters are not those of the similarity's clients, or the similarity is not one
        that :func:`clusterfl_core.cfl.optimal_bipartition` takes.
    """
    similarity, clusters = torch.as_tensor(similarity), torch.as_tensor(clusters)
    halves = optimal_bipartition(similarity)
    if clusters.shape != (len(similarity),):
        raise ValueError(
            f"clusters must name the cluster of each of the {len(similarity)} clients, "
            f"got shape {tuple(clusters.shape)}"
        )
    within = similarity[clusters[:, None] == clusters]
    return float(within.min()) - cross_similarity(similarity, *halves)
