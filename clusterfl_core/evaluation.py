"""Test protocols of the papers, and how well hidden clusters were found.

>>> import torch
>>> from clusterfl_core.evaluation import identity_accuracy, separation_gap
>>> identity_accuracy(torch.tensor([1, 1, 0, 0]), torch.tensor([0, 0, 1, 0]))  # 1 stands for 0
0.75
>>> similarity = torch.tensor([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]])
>>> round(separation_gap(similarity, torch.tensor([0, 0, 1])), 3)
1.6
"""

from functools import reduce

import torch

from clusterfl_core import compute, models
from clusterfl_core.banks import Bank
from clusterfl_core.check import kind, shown, wholes
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.contract import State
from clusterfl_core.matching import (
    adjusted_rand_index,
    blind_level,
    identity_accuracy,
    match_clusters,
    torn,
)
from clusterfl_core.similarity import separation_gap

__all__ = ["adjusted_rand_index", "blind_level", "center_table", "hard", "identity_accuracy"]
__all__ += ["loss_and_lowest", "lowest", "lowest_loss", "match_clusters", "mixture_ratio"]
__all__ += ["own_distribution", "own_training_data", "personal_quality", "quality"]
__all__ += ["refuse_unknown", "same_people", "score", "separation_gap", "torn"]


def refuse_unknown(state, federation, own=False):
    """Refuse what is no state or no federation; or, if ``own``, is not of as many clients."""
    m = len(kind("federation", federation, Federation))
    if own or not isinstance(getattr(state, "models", None), Bank):
        kind("state", state, State)
    if own and len(state.assignments) != m:
        raise ValueError(f"state must be one of {m} clients, got {len(state.assignments)}")


def score(algorithm, state, federation):
    """Quality of each client's predictions, by the algorithm's own test protocol.

    Tensor [m_test], or [m] where the protocol judges the training clients: accuracies in [0, 1], or
    mean squared errors (``federation.classes == 0``). TypeError if it gives something else.
    """
    refuse_unknown(state, federation)
    own = getattr(algorithm, "test_protocol", None)
    if isinstance(algorithm, type) or not callable(own):
        raise TypeError(f"algorithm must have a test_protocol, got {shown(algorithm)}")
    found, word = own(state, federation), type(algorithm).__name__
    sizes = len(federation.test), len(federation.train)
    tensor = isinstance(found, torch.Tensor)
    if not (tensor and found.is_floating_point() and found.ndim == 1 and len(found) in sizes):
        got = f"{list(found.shape)} of {found.dtype}" if tensor else type(found).__name__
        raise TypeError(
            f"{word}.test_protocol must give a floating tensor [{sizes[0]}], one number a test "
            f"client, or [{sizes[1]}], one a training client, got {got}"
        )
    return found


def lowest(losses):
    """Index of the lowest loss in each row [b, k], as :func:`loss_and_lowest` has it."""
    return loss_and_lowest(losses)[1]


def loss_and_lowest(losses):
    """The lowest loss in each row [b, k] and its index, the first one where several are equal.

    NaN is no loss: a row has NaN and index 0 only where nothing else is in it.
    """
    if kind("losses", losses, torch.Tensor).ndim != 2 or not losses.shape[1]:
        raise ValueError(f"losses must be [b, k], got shape {list(losses.shape)}")
    least = reduce(torch.fmin, losses.unbind(1))
    return least, (losses == least[:, None]).to(torch.int8).argmax(1)


def lowest_loss(state, federation):
    """Each test client takes the model with the lowest loss on its OWN data (IFCA, section 6.2).

    Its labels are used to choose among the k models, then again to score the choice. That is the
    protocol of IFCA's Table 1; with one model there is nothing to choose.
    """
    refuse_unknown(state, federation)
    least, chosen = loss_and_lowest(compute.loss_matrix(state.models, federation.test))
    if not federation.classes:
        return least
    return compute.accuracies(state.models.take(chosen), federation.test)


def own_distribution(state, federation):
    """Each client's own prediction on held-out data of its own distribution ("local", Table 1).

    One value a TRAINING client, Tensor [m]: the mean over the test clients of its true cluster;
    where the client is a mixture (``truth["mixture"]``, [m, k]), the mean over the test clients of
    each cluster, weighted by the cluster's share. Where neither is known, each client's value on
    held-out data of its own if the test clients are the training clients (:func:`same_people`),
    else the mean over all test clients. ValueError if a cluster has no test client.
    """
    refuse_unknown(state, federation, own=True)
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
    refuse_unknown(state, federation, own=True)
    return personal_quality(state, federation, torch.arange(len(federation)), federation.train)


def mixture_ratio(personal, federation):
    """Expected error of linear models on fresh data of their clients' mixtures, best possible = 1.

    From the known truth, for groups of the linear model with standard normal inputs and noise of
    variance 1: ``personal`` [m, d] are the parameters with which the clients predict, the best ones
    are the mixtures of the groups' own (FedSoft, (3)). The mean over the clients, over that of the
    best linear models: at least 1.
    """
    truth = kind("federation", federation, Federation).truth
    if not {"theta", "mixture"} <= set(truth):
        raise ValueError(f"federation must know theta and mixture in its truth, got {list(truth)}")
    theta, u = (truth[key].to(torch.float64) for key in ("theta", "mixture"))
    best = u @ theta
    if kind("personal", personal, torch.Tensor).shape != best.shape:
        form = f"{list(best.shape)}, a model of each client"
        raise ValueError(f"personal must be {form}, got shape {list(personal.shape)}")
    floor = 1 + u @ theta.square().sum(1) - best.square().sum(1)
    extra = (personal.to(torch.float64) - best).square().sum(1)
    return 1 + float(extra.mean() / floor.mean())


def personal_quality(state, federation, rows, clients):
    """How well training client ``rows[i]`` predicts for the i-th of b clients: Tensor [b], float64.

    Accuracy or mean squared error; NaN where a client was never assigned a model. Which models
    predict for a client says ``state.predict``; ``rows`` [b] may repeat.
    """
    refuse_unknown(state, federation, own=True)
    rows, b = wholes("rows", rows), len(kind("clients", clients, Clients))
    if len(rows) != b:
        raise ValueError(f"rows must name a row for each of {b} clients, got {len(rows)}")
    if not -1 < int(rows.min()) <= int(rows.max()) < len(state.assignments):
        raise ValueError(f"rows must name {len(state.assignments)} clients, got {shown(rows)}")
    found = state.predict(rows, clients.inputs(state.bank.dtype), federation.classes)
    values = quality(found, state, federation, clients)
    return torch.where(hard(state.assignments)[rows] >= 0, values, torch.nan)


def quality(found, state, federation, clients):
    """Accuracy of outputs for the clients' data, or mean squared error: Tensor [b], float64.

    ``found`` is [b, n, classes] or, in a regression, [b, n], as ``state.predict`` gives it or
    :func:`clusterfl_core.compute.outputs` of a bank of b models and ``clients.inputs()``.
    """
    refuse_unknown(state, federation)
    shape = kind("clients", clients, Clients).y.shape
    if kind("found", found, torch.Tensor).shape[:2] != shape:
        raise ValueError(f"found must be {list(shape)} or longer, got shape {list(found.shape)}")
    if federation.classes:
        points = (found.argmax(-1) == clients.y).to(torch.float64)
    else:
        points = models.point_loss(state.bank.model)(found, clients.y).to(torch.float64)
    return compute.masked_mean(points, clients.mask())


def center_table(bank, federation):
    """Quality of every center on the data of every test client (FedSoft, Tables 1, 3 and 4).

    Tensor [m_test, k] of accuracies, or of mean squared errors for regression. With one test client
    for each pure distribution a row is a distribution, as in the paper.
    """
    kind("bank", bank, Bank)
    test = kind("federation", federation, Federation).test
    if not federation.classes:
        return compute.loss_matrix(bank, test)
    columns = [compute.accuracies(bank.take([j] * len(test)), test) for j in range(len(bank))]
    return torch.stack(columns, 1)


def hard(assignments):
    """One cluster a client: of soft assignments [m, k] the largest, the first where several are."""
    if kind("assignments", assignments, torch.Tensor).ndim not in (1, 2):
        raise ValueError(f"assignments must be [m] or [m, k], got {list(assignments.shape)}")
    return assignments.argmax(1) if assignments.ndim == 2 else assignments


def same_people(federation):
    """Whether the test clients are the training clients, with held-out data of each.

    They are taken for that if their ids are equal and, where the truth is known, their clusters.
    """
    kind("federation", federation, Federation)
    if not torch.equal(federation.train.ids, federation.test.ids):
        return False
    known = federation.clusters is not None and federation.test_clusters is not None
    return not known or torch.equal(federation.clusters, federation.test_clusters)
