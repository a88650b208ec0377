"""OneShot clusters local models once, then averages within the clusters.

Ghosh et al., 2020, extended version, Algorithm 1. Without a number of clusters it asks how many
there are, and whether there is more than one at all.

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> alone, line = cf.LocalSGD(50, 0.1), cf.models.LinearRegression(2)
>>> for truth in (theta, theta[:1]):
...     federation = cf.populations.regression(truth, clients=12, points=20, noise=0.5)
...     print(cf.run(cf.OneShot(line, alone=alone), federation, rounds=1).assignments.tolist())
[0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from clusterfl_core import compute, evaluation, grouping
from clusterfl_core.algorithms.fedavg import State, train_from
from clusterfl_core.banks import Bank
from clusterfl_core.check import among, flag, keep, kind, number, share, solver, whole
from clusterfl_core.contract import Replies
from clusterfl_core.randomness import participants
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["OneShot"]


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
    clusters : int, optional
        k, between 1 and the number of clients, and of those that answer in round 1. None: as many
        as :func:`clusterfl_core.grouping.groups` finds among the local models, perhaps one. The
        paper has no such rule; it is ours, after Rousseeuw's silhouettes.
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
    excess : float
        Without ``clusters``: how much the silhouette of a cut must exceed that of clouds without
        groups. The default separates the kinds of clients of :mod:`clusterfl_core.comparison`.
    recursive : bool
        Without ``clusters``: whether each group is asked again.
    """

    model: nn.Module
    clusters: int = None
    alone: LocalSolver = field(default_factory=LocalSGD)
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    weighted: bool = True
    starts: int = 10
    excess: float = 0.07
    recursive: bool = False

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("alone", self.alone)
        solver("local", self.local)
        keep(
            self,
            clusters=whole("clusters", self.clusters, none=True),
            participation=share("participation", self.participation),
            starts=whole("starts", self.starts),
            excess=number("excess", self.excess, "[0, 2)"),
            weighted=flag("weighted", self.weighted),
            recursive=flag("recursive", self.recursive),
        )

    def init(self, federation, seed):
        """One fresh model, k times: local models that began apart would not be comparable."""
        m = len(federation)
        among("clusters", self.clusters, m)
        bank = Bank.fresh(self.model, 1, seed)
        unknown = torch.full((m,), -1)
        return State(
            seed, 0, bank.take([0] * (self.clusters or 1)), unknown, federation.train.counts
        )

    def plan(self, state):
        """Server: the fresh model goes to all; later its cluster's model to each participant."""
        m, models = len(state.assignments), state.assignments
        if state.round == 0:
            ids, models = torch.arange(m), torch.zeros(m, dtype=torch.int64)
        else:
            ids = participants((state.seed, state.round), m, self.participation)
            ids = ids[state.assignments[ids] >= 0]
        return state.jobs(ids, models[ids][:, None])

    def client_step(self, jobs, clients):
        """Clients: train the model they got on their own data.

        The loss they report is the one they started from, but in round 1 the one they reached.
        """
        if jobs.round:
            return train_from(jobs.start, self.local, jobs, clients)
        minimisers = self.alone.train(jobs.start, clients, jobs.key)
        return Replies(clients.ids, minimisers, {"loss": compute.mean_losses(minimisers, clients)})

    def passes(self, jobs):
        """Passes of a client over its data."""
        return (self.local if jobs.round else self.alone).passes

    def absorb(self, state, parts):
        """Server: cluster in round 1; average within the clusters in every round.

        A cluster of which nobody answered keeps its model.
        """
        replies, assignments, before = Replies.join(parts), state.assignments, state.bank
        if state.round == 0:
            assignments = assignments.clone()
            assignments[replies.clients] = self.cluster(replies.bank, state.seed)
            before = before.take([0] * (self.clusters or max(1, int(assignments.max()) + 1)))
        groups, counts = assignments[replies.clients], state.counts[replies.clients]
        rows = (groups >= 0).nonzero()[:, 0]
        shares = counts[rows] if self.weighted else torch.ones_like(rows)
        sums = replies.bank.take(rows).sums(groups[rows], len(before), shares)
        whole = torch.zeros(len(before)).double().index_add(0, groups[rows], shares.double())

        def mean(old, total):
            size = compute.column(whole, old)
            return torch.where(size > 0, (total / size).to(old.dtype), old)

        bank = before.map(mean, sums)
        return state.next(bank=bank, assignments=assignments)

    def cluster(self, bank, seed):
        """Cluster of each local model: k-means on the parameters (line 2), from starts of the seed.

        LongTensor [b]; -1 for a model that is not finite, which belongs nowhere.
        """
        if self.clusters and len(bank) < self.clusters:
            raise ValueError(
                f"clusters must be at most the {len(bank)} clients that sent a local model, "
                f"got {self.clusters}"
            )
        rows, groups = bank.flatten(), torch.full((len(bank),), -1)
        sound = rows.isfinite().all(1)
        if self.clusters is None:
            groups[sound] = grouping.groups(rows[sound], seed, self.excess, self.recursive)
        elif int(sound.sum()) >= self.clusters:
            from sklearn.cluster import KMeans  # slow to import

            means = KMeans(self.clusters, n_init=self.starts, random_state=seed % 2**32)
            found = means.fit_predict(rows[sound].numpy())
            groups[sound] = torch.from_numpy(found).to(torch.int64)
        return groups
