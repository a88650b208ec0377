"""The plain loops against which speed is measured: one client after another, one run after another.

These are the algorithms as programs usually have them, and the papers' released programs among
them: a client is a pass of a ``for`` loop, a model an ordinary ``torch.nn.Module``, a gradient a
call of ``backward``, a step a call of a ``torch.optim`` optimizer. Nothing here is slower than it
needs to be in that style: data is converted once, losses that need no gradient ask for none. Every
loop starts from the same models as the library, draws the same batches and selects the same
clients, and ``tests/test_loops.py`` asserts that it ends with the same models.
"""

import copy

import numpy as np
import torch
from scipy.cluster import hierarchy
from torch.nn import functional

from clusterfl_core.algorithms.fedsoft import aggregation_weights, select
from clusterfl_core.banks import Bank
from clusterfl_core.randomness import BATCHES, generator


def loss_of(module, x, y, reduction="mean"):
    """The loss of one model on the points of one client."""
    if hasattr(module, "clusterfl_loss"):
        losses = module.clusterfl_loss(module(x), y)
        return losses.mean() if reduction == "mean" else losses
    return functional.cross_entropy(module(x), y.to(torch.int64), reduction=reduction)


def points(clients, i, dtype):
    """The data of one client as its models take it."""
    n = int(clients.counts[i])
    x, y = clients.x[i, :n], clients.y[i, :n]
    return x.to(dtype) / 255 if x.dtype == torch.uint8 else x.to(dtype), y


def stacked(modules):
    """Ordinary modules as a bank, to compare with the library's."""
    rows = [{name: p.detach() for name, p in one.named_parameters()} for one in modules]
    tensors = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return Bank(modules[0], tensors)


def averaged(modules, weights):
    """The weighted mean of some models, as a new module."""
    mean = copy.deepcopy(modules[0])
    with torch.no_grad():
        for own, *parts in zip(mean.parameters(), *(m.parameters() for m in modules), strict=True):
            own.copy_(sum(w * part for w, part in zip(weights, parts, strict=True)))
    return mean


def flat(module):
    """All parameters of a model in one row."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def batches(solver, x, y, key, client):
    """The points of each step of a client's round, those the library would take."""
    if solver.batch_size is None:
        for _ in range(solver.steps or solver.epochs):
            yield x, y
        return
    for rows in solver.draw(len(y), generator(BATCHES, *key, client)):
        rows = rows[rows >= 0]
        yield x[rows], y[rows]


def trained(module, solver, optimizer, x, y, key, client, penalty=None):
    """A copy of a model after one client's local training."""
    own = copy.deepcopy(module)
    optimizer = optimizer(own.parameters(), lr=solver.rate(key[1]))
    for x_step, y_step in batches(solver, x, y, key, client):
        optimizer.zero_grad()
        loss = loss_of(own, x_step, y_step)
        if penalty is not None:
            loss = loss + penalty(own)
        loss.backward()
        optimizer.step()
    return own


# ---------------------------------------------------------------- IFCA


def ifca_round(algorithm, federation, bank, key):
    """One round of IFCA, option II, full participation (Algorithm 1).

    Parameters
    ----------
    algorithm : IFCA
        Its model may be any: an MLP or a convolutional network.
    federation : Federation
    bank : Bank
        The k models of the server.
    key : tuple of int
        (seed, round).

    Returns
    -------
    Bank, LongTensor [m]
        The k models after the round, and the identities.
    """
    servers = [bank.module(j) for j in range(len(bank))]
    identities, locals_ = [], []
    for i in range(len(federation)):
        x, y = points(federation.train, i, bank.dtype)
        with torch.no_grad():
            losses = [loss_of(server, x, y).item() for server in servers]
        j = losses.index(min(losses))
        identities.append(j)
        locals_.append(trained(servers[j], algorithm.local, torch.optim.SGD, x, y, key, i))
    for j in range(len(servers)):
        mine = [own for own, chosen in zip(locals_, identities, strict=True) if chosen == j]
        if mine:
            servers[j] = averaged(mine, [1 / len(mine)] * len(mine))
    return stacked(servers), torch.tensor(identities)


def regression_run(data, start, step, rounds, model, every=True):
    """One run of IFCA, option I, on linear regression: T rounds from one start.

    Parameters
    ----------
    data : list of tuple of Tensor
        x [n_i, d] and y [n_i] of each client.
    start : Tensor [k, d]
    step : float
        gamma.
    rounds : int
    model : LinearRegression
    every : bool
        True: a client computes loss and gradient of every model and uses those of the best one, as
        in the released program. False: the gradient of the best one only.

    Returns
    -------
    Tensor [k, d], list of int
        The models, and the identities of the last round.
    """
    servers = [Bank(model, {"theta": theta[None]}).module(0) for theta in start]
    for _ in range(rounds):
        identities, slopes = [], [torch.zeros_like(theta) for theta in start]
        for x, y in data:
            losses = []
            for server in servers:
                with torch.set_grad_enabled(every):
                    loss = loss_of(server, x, y)
                if every:
                    server.zero_grad()
                    loss.backward()
                losses.append(loss.item())
            j = losses.index(min(losses))
            if not every:
                servers[j].zero_grad()
                loss_of(servers[j], x, y).backward()
            identities.append(j)
            slopes[j] += servers[j].theta.grad
        with torch.no_grad():
            for server, slope in zip(servers, slopes, strict=True):
                server.theta -= step / len(data) * slope
    return torch.stack([server.theta.detach() for server in servers]), identities


def regression_trial(federation, starts, steps, rounds, model, every=True):
    """A trial of figure 3: every start with every step size, run after run.

    Returns
    -------
    Tensor [G, S, k, d], LongTensor [G, S, m]
        As ``theta`` and ``identities`` of :func:`clusterfl_core.trials.regression_trial`.
    """
    data = [points(federation.train, i, starts.dtype) for i in range(len(federation))]
    runs = [
        [regression_run(data, start, step, rounds, model, every) for start in starts]
        for step in steps
    ]
    theta = torch.stack([torch.stack([end for end, _ in row]) for row in runs])
    return theta, torch.tensor([[identities for _, identities in row] for row in runs])


# ---------------------------------------------------------------- CFL


def cfl_round(algorithm, federation, state):
    """One round of CFL, leaf after leaf (Algorithm 5), everyone taking part.

    Returns
    -------
    Bank, list
        For each leaf its model after the round, and None or the ids of the clients of both halves.
    """
    bank, models, splits = state.bank, [], []
    for leaf in range(len(bank)):
        server = bank.module(leaf)
        ids = (state.assignments == leaf).nonzero()[:, 0].tolist()
        updates, sizes = [], []
        for i in ids:
            x, y = points(federation.train, i, bank.dtype)
            key = (state.seed, state.round)
            own = trained(server, algorithm.local, torch.optim.SGD, x, y, key, i)
            updates.append(flat(own) - flat(server))
            sizes.append(len(y))
        mean = sum(n / sum(sizes) * update for n, update in zip(sizes, updates, strict=True))
        largest = max(float(update.norm()) for update in updates)
        halves = None
        if len(ids) > 1 and float(mean.norm()) < algorithm.eps1 and largest > algorithm.eps2:
            alpha = similarities(updates)
            first, second = two_clusters(alpha)
            if algorithm.gamma_max < ((1 - alpha[np.ix_(first, second)].max()) / 2) ** 0.5:
                halves = [[ids[i] for i in first], [ids[i] for i in second]]
        if halves is None:
            rows = flat(server) + mean
            models.append(bank.unflatten(rows[None]).module(0))
        else:
            models.append(server)
        splits.append(halves)
    return stacked(models), splits


def similarities(updates):
    """The cosine similarity of every pair of updates, pair after pair, float64."""
    rows = [update.to(torch.float64) / update.to(torch.float64).norm() for update in updates]
    alpha = np.eye(len(rows))
    for i, one in enumerate(rows):
        for j in range(i):
            alpha[i, j] = alpha[j, i] = float(one @ rows[j])
    return alpha


def two_clusters(alpha):
    """The optimal bipartition by single linkage; the half of the first client comes first."""
    distances = 1 - alpha[np.triu_indices(len(alpha), 1)]
    names = hierarchy.fcluster(hierarchy.linkage(distances, "single"), 2, "maxclust")
    return np.flatnonzero(names == names[0]), np.flatnonzero(names != names[0])


# ---------------------------------------------------------------- FedSoft


def fedsoft_round(algorithm, federation, state):
    """One round of FedSoft with selection and warm start (Algorithm 1), for any model.

    Parameters
    ----------
    algorithm : FedSoft
        With LocalAdam.
    federation : Federation
    state : fedsoft.State
        The library's state before the round.

    Returns
    -------
    Bank, Bank, Tensor [m, k]
        The centers and the clients' models after the round, and the importance.
    """
    k, m = algorithm.clusters, len(federation)
    centers = [state.bank.module(j) for j in range(k)]
    personal = [state.personal.module(i) for i in range(m)]
    importance = state.assignments.clone()
    if state.round % algorithm.interval == 0:
        for i in range(m):
            x, y = points(federation.train, i, state.bank.dtype)
            with torch.no_grad():
                table = torch.stack([loss_of(center, x, y, "none") for center in centers])
            best = table.argmin(0)
            for j in range(k):
                share = float((best == j).sum()) / len(y)
                importance[i, j] = max(share, algorithm.smoother)
    key = (state.seed, state.round)
    weights = aggregation_weights(importance, federation.train.counts)
    chosen = select(weights, algorithm.selected, key)
    for i in chosen.any(0).nonzero()[:, 0].tolist():
        x, y = points(federation.train, i, state.bank.dtype)
        shares = importance[i].tolist()

        def pull(own, shares=shares):
            total = 0
            for share, center in zip(shares, centers, strict=True):
                for mine, theirs in zip(own.parameters(), center.parameters(), strict=True):
                    total = total + share * ((mine - theirs.detach()) ** 2).sum()
            return algorithm.proximal / 2 * total

        personal[i] = trained(personal[i], algorithm.local, torch.optim.Adam, x, y, key, i, pull)
    for j in range(k):
        mine = [personal[i] for i in chosen[j].nonzero()[:, 0].tolist()]
        centers[j] = averaged(mine, [1 / len(mine)] * len(mine))
    return stacked(centers), stacked(personal), importance
