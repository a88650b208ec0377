"""What clustered methods are measured against.

FedAvg is federated averaging (McMahan et al., 2017, Algorithm 1): the "global model" of the
clustered papers. LocalOnly is their "local model": no client ever hears of another. OneShot
clusters local models once, then averages within the clusters (Ghosh et al., 2020, extended version,
Algorithm 1). FedEM lets every client train every model, each point weighing as much as the model
explains it (Marfoq et al., 2021, Algorithm 1).

Examples
--------
One model for two groups that disagree ends between them, far from both:

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=20, noise=0.1)
>>> run = cf.run(cf.FedAvg(cf.models.LinearRegression(2), cf.LocalSGD(5, 0.1)), federation, 10)
>>> [round(value, 1) for value in run.models.tensors["theta"][0].tolist()]
[0.9, 1.2]
"""

from dataclasses import dataclass, field, replace

import torch
from sklearn.cluster import KMeans
from torch import nn

from clusterfl_core import compute
from clusterfl_core.banks import Bank, widest
from clusterfl_core.contract import Jobs, Replies
from clusterfl_core.randomness import INITIALIZATION, generator, participants
from clusterfl_core.solvers import LocalSGD, LocalSolver


@dataclass(frozen=True)
class State:
    """What the server knows between two rounds.

    Parameters
    ----------
    seed, round : int
        The seed of the run and the number of rounds done.
    bank : Bank
        FedAvg: the one model. LocalOnly: the model of each client. OneShot, FedEM: the k models.
    assignments : LongTensor [m], or Tensor [m, k]
        Which model of the bank is each client's; OneShot: -1 before the clustering, and for good
        where a client had no local model then. FedEM: pi_ij, the mixture weights of each client.
    counts : LongTensor [m]
        n_i, which clients tell the server when they join.
    """

    seed: int
    round: int
    bank: Bank
    assignments: torch.Tensor
    counts: torch.Tensor


def train_from(start, algorithm, jobs, clients):
    """Each client trains one model, and says the loss it started from."""
    loss = compute.mean_losses(start, clients)
    trained = algorithm.local.train(start, clients, (jobs.seed, jobs.round))
    return Replies(clients.ids, trained, {"loss": loss})


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging: one model for everybody.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    local : LocalSGD or LocalAdam
        What a client does in a round.
    participation : float
        Fraction of the clients that take part in a round, in (0, 1].
    weighted : bool
        True: local models are averaged with weights n_i / n (McMahan et al.). False: plain mean,
        the "global model" of IFCA's section 6.2.

    Raises
    ------
    ValueError
        If participation lies outside (0, 1].
    """

    model: nn.Module
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    weighted: bool = True

    test_protocol = "lowest_loss"

    def __post_init__(self):
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must be in (0, 1], got {self.participation}")

    def init(self, federation, seed):
        """One fresh model."""
        bank = Bank.initialize(self.model, 1, generator(INITIALIZATION, seed))
        everybody = torch.zeros(len(federation), dtype=torch.int64)
        return State(seed, 0, bank, everybody, federation.train.counts)

    def plan(self, state):
        """Server: the model goes to a random subset of the clients."""
        m = len(state.assignments)
        ids = participants((state.seed, state.round), m, self.participation)
        return Jobs(state.seed, state.round, ids, state.bank, state.assignments[ids][:, None])

    def client_step(self, jobs, clients):
        """Clients: train the model on their own data."""
        return train_from(jobs.bank.take(jobs.models[:, 0]), self, jobs, clients)

    def shares(self, state, clients):
        """What the model of each of these clients counts for: n_i, or 1."""
        counts = state.counts[clients]
        return counts if self.weighted else torch.ones_like(counts)

    def gather(self, state, replies, sums=None):
        """Server: add the models to their sum, in the order of the clients (see IFCA)."""
        one = torch.zeros_like(replies.clients)
        return replies.bank.sums(one, 1, self.shares(state, replies.clients), sums)

    def absorb(self, state, replies, sums=None):
        """Server: the mean of the local models is the next model; it stays if nobody answered."""
        if not len(replies.clients):
            return replace(state, round=state.round + 1)
        sums = self.gather(state, replies) if sums is None else sums
        whole = self.shares(state, replies.clients).sum()
        bank = state.bank.map(lambda old, total: (total / whole).to(old.dtype), sums)
        return replace(state, round=state.round + 1, bank=bank)


@dataclass(frozen=True)
class LocalOnly:
    """Every client trains alone: nothing is shared, nothing is averaged.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    local : LocalSGD or LocalAdam
        What a client does in a round. Its model goes on from where it stopped.
    """

    model: nn.Module
    local: LocalSolver = field(default_factory=LocalSGD)

    test_protocol = "own_distribution"

    def init(self, federation, seed):
        """One fresh model, the same for all, so that the clients differ by their data alone."""
        m = len(federation)
        bank = Bank.initialize(self.model, 1, generator(INITIALIZATION, seed)).take([0] * m)
        return State(seed, 0, bank, torch.arange(m), federation.train.counts)

    def plan(self, state):
        """Everybody works on the model it kept; the server sends nothing."""
        ids = torch.arange(len(state.assignments))
        nothing = torch.empty(len(ids), 0, dtype=torch.int64)
        return Jobs(state.seed, state.round, ids, state.bank.take([]), nothing, kept=state.bank)

    def client_step(self, jobs, clients):
        """Clients: train their own model on their own data."""
        return train_from(jobs.kept, self, jobs, clients)

    def absorb(self, state, replies):
        """Nothing is averaged: each model is replaced by its trained self."""

        def put(old, new):
            return old.index_copy(0, replies.clients, new)

        return replace(state, round=state.round + 1, bank=state.bank.map(put, replies.bank))


@dataclass(frozen=True)
class OneShot:
    """One-shot clustering: k-means on local models, then federated averaging in each cluster.

    Round 1 is lines 1 and 2 of Algorithm 1 in the extended version of the IFCA paper: every client
    trains alone from one fresh model and sends the result, its empirical risk minimiser, which the
    server clusters. Each cluster's model is then the mean of its clients' models. All later rounds
    are line 3, with FedAvg as the federated learning algorithm. A client stays in the cluster it
    was put in.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    clusters : int
        k, between 1 and the number of clients.
    alone : LocalSGD or LocalAdam
        What a client does in round 1; enough to come near the minimum of its own loss.
    local : LocalSGD or LocalAdam
        What a client does in every later round.
    participation : float
        Fraction of the clients that take part in a later round, in (0, 1].
    weighted : bool
        True: models are averaged with weights n_i (McMahan et al.). False: plain mean, as in IFCA.
    starts : int
        Random starts of k-means, the best of which counts.

    Raises
    ------
    ValueError
        If a setting lies outside these bounds; in round 1, if fewer than k clients answer.
    """

    model: nn.Module
    clusters: int
    alone: LocalSolver = field(default_factory=LocalSGD)
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    weighted: bool = True
    starts: int = 10

    test_protocol = "lowest_loss"

    def __post_init__(self):
        if self.clusters < 1:
            raise ValueError(f"clusters must be at least 1, got {self.clusters}")
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must be in (0, 1], got {self.participation}")
        if self.starts < 1:
            raise ValueError(f"starts must be at least 1, got {self.starts}")

    def init(self, federation, seed):
        """One fresh model, k times: local models that began apart would not be comparable."""
        m = len(federation)
        if self.clusters > m:
            raise ValueError(f"clusters must be at most the {m} clients, got {self.clusters}")
        bank = Bank.initialize(self.model, 1, generator(INITIALIZATION, seed))
        unknown = torch.full((m,), -1)
        return State(seed, 0, bank.take([0] * self.clusters), unknown, federation.train.counts)

    def plan(self, state):
        """Server: the fresh model goes to all; later its cluster's model to each participant."""
        m, models = len(state.assignments), state.assignments
        if state.round == 0:
            ids, models = torch.arange(m), torch.zeros(m, dtype=torch.int64)
        else:
            ids = participants((state.seed, state.round), m, self.participation)
            ids = ids[state.assignments[ids] >= 0]
        return Jobs(state.seed, state.round, ids, state.bank, models[ids][:, None])

    def client_step(self, jobs, clients):
        """Clients: train the model they got on their own data.

        The loss they report is the one they started from, but in round 1 the one they reached.
        """
        start = jobs.bank.take(jobs.models[:, 0])
        if jobs.round:
            return train_from(start, self, jobs, clients)
        minimisers = self.alone.train(start, clients, (jobs.seed, jobs.round))
        return Replies(clients.ids, minimisers, {"loss": compute.mean_losses(minimisers, clients)})

    def absorb(self, state, replies):
        """Server: cluster in round 1; average within the clusters in every round.

        A cluster of which nobody answered keeps its model.
        """
        assignments = state.assignments
        if state.round == 0:
            assignments = assignments.clone()
            assignments[replies.clients] = self.cluster(replies.bank, state.seed)
        groups, counts = assignments[replies.clients], state.counts[replies.clients]
        rows = (groups >= 0).nonzero()[:, 0]
        shares = counts[rows] if self.weighted else torch.ones_like(rows)
        sums = replies.bank.take(rows).sums(groups[rows], self.clusters, shares)
        whole = torch.zeros(self.clusters).double().index_add(0, groups[rows], shares.double())

        def mean(old, total):
            size = compute.column(whole, old)
            return torch.where(size > 0, (total / size).to(old.dtype), old)

        bank = state.bank.map(mean, sums)
        return replace(state, round=state.round + 1, bank=bank, assignments=assignments)

    def cluster(self, bank, seed):
        """Cluster of each local model: k-means on the parameters (line 2).

        Parameters
        ----------
        bank : Bank
            b local models.
        seed : int
            Fixes the random starts.

        Returns
        -------
        LongTensor [b]
            -1 for a model that is not finite; it belongs nowhere.
        """
        if len(bank) < self.clusters:
            raise ValueError(
                f"clusters must be at most the {len(bank)} clients that sent a local model, "
                f"got {self.clusters}"
            )
        rows, groups = bank.flatten(), torch.full((len(bank),), -1)
        sound = rows.isfinite().all(1)
        if int(sound.sum()) >= self.clusters:
            means = KMeans(self.clusters, n_init=self.starts, random_state=seed % 2**32)
            found = means.fit_predict(rows[sound].numpy())
            groups[sound] = torch.from_numpy(found).to(torch.int64)
        return groups


def responsibilities(table, weights):
    """How much each model explains each point: the E step of FedEM.

    Parameters
    ----------
    table : Tensor [k, b, n]
        Losses, taken as negative log-likelihoods: f(theta_j; z) = -log p(z | theta_j) + constant.
    weights : Tensor [b, k]
        pi_ij, the mixture weights of each client.

    Returns
    -------
    q : Tensor [k, b, n]
        q_j(z) proportional to pi_ij exp(-f(theta_j; z)), summing to one over j.
    evidence : Tensor [b, n]
        log sum_j pi_ij exp(-f(theta_j; z)), the log-likelihood of each point up to the constant.
    """
    joint = weights.T[:, :, None].to(table).log() - table
    evidence = joint.logsumexp(0)
    return (joint - evidence).exp(), evidence


@dataclass(frozen=True)
class FedEM:
    """Federated expectation maximisation (Marfoq et al., 2021, Algorithm 1).

    Each client's data is a mixture of k distributions with weights pi_i1, ..., pi_ik of its own.
    In a round a client finds how much each model explains each of its points (E step), sets pi_ij
    to the mean of that over its points, and trains ALL k models, each on losses weighted by it: k
    trainings, where FedSoft needs one. The server averages each model with weights n_i.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    clusters : int
        k, between 1 and the number of clients. With one model the method is FedAvg.
    local : LocalSGD or LocalAdam
        What a client does with each of the k models in a round. All see the same batches.
    participation : float
        Fraction of the clients that take part in a round, in (0, 1].

    Raises
    ------
    ValueError
        If a setting lies outside these bounds.

    Notes
    -----
    The loss is taken as the negative log-likelihood, up to a constant. For cross-entropy it is
    that. Squared loss (y - <x, theta>)^2 is so for Gaussian noise of variance 1/2; it is NOT
    rescaled to the variance of the data at hand.
    """

    model: nn.Module
    clusters: int
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0

    test_protocol = "mixture"

    def __post_init__(self):
        if self.clusters < 1:
            raise ValueError(f"clusters must be at least 1, got {self.clusters}")
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must be in (0, 1], got {self.participation}")

    def init(self, federation, seed):
        """Draw k fresh models; mixture weights are equal."""
        m, k = len(federation), self.clusters
        if k > m:
            raise ValueError(f"clusters must be at most the {m} clients, got {k}")
        bank = Bank.initialize(self.model, k, generator(INITIALIZATION, seed))
        equal = torch.full((m, k), 1 / k, dtype=torch.float64)
        return State(seed, 0, bank, equal, federation.train.counts)

    def plan(self, state):
        """Server: all k models go to a random subset of the clients."""
        m = len(state.assignments)
        ids = participants((state.seed, state.round), m, self.participation)
        everything = torch.arange(self.clusters).expand(len(ids), -1)
        values = {"mixture": state.assignments[ids]}
        return Jobs(state.seed, state.round, ids, state.bank, everything, values=values)

    def client_step(self, jobs, clients):
        """Clients: E step, mixture weights, then k trainings on weighted losses.

        The reply holds k models a client; its loss is minus the mean log-likelihood of the points
        before the round, up to the constant.
        """
        table = compute.point_loss_table(jobs.bank, clients)
        q, evidence = responsibilities(table, jobs.values["mixture"])
        mask, b = clients.mask(), len(clients)
        mixture = torch.stack(
            [compute.masked_mean(one.to(widest(one.device)), mask) for one in q], 1
        )
        trained = [
            self.local.train(
                jobs.bank.take([j] * b), clients, (jobs.seed, jobs.round), weights=q[j]
            )
            for j in range(self.clusters)
        ]
        rows = torch.arange(self.clusters * b).view(self.clusters, b).T.flatten()
        values = {"loss": -compute.masked_mean(evidence, mask), "mixture": mixture}
        return Replies(clients.ids, Bank.concatenate(trained).take(rows), values)

    def absorb(self, state, replies):
        """Server: each model becomes the mean of its trained copies, with weights n_i."""
        weights, k = state.counts[replies.clients], self.clusters
        means = [replies.bank.take(range(j, len(replies.bank), k)).mean(weights) for j in range(k)]
        assignments = state.assignments.clone()
        assignments[replies.clients] = replies.values["mixture"]
        bank = Bank.concatenate(means)
        return replace(state, round=state.round + 1, bank=bank, assignments=assignments)
