"""OneShot clusters local models once, then averages within the clusters.

Ghosh et al., 2020, extended version, Algorithm 1.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from clusterfl_core import compute, evaluation
from clusterfl_core.algorithms.fedavg import State, train_from
from clusterfl_core.banks import Bank
from clusterfl_core.check import among, keep, share, whole
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
    clusters : int
        k, between 1 and the number of clients, and of those that answer in round 1.
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
    """

    model: nn.Module
    clusters: int
    alone: LocalSolver = field(default_factory=LocalSGD)
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    weighted: bool = True
    starts: int = 10

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        keep(
            self,
            clusters=whole("clusters", self.clusters),
            participation=share("participation", self.participation),
            starts=whole("starts", self.starts),
        )

    def init(self, federation, seed):
        """One fresh model, k times: local models that began apart would not be comparable."""
        m = len(federation)
        among("clusters", self.clusters, m)
        bank = Bank.fresh(self.model, 1, seed)
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
        replies, assignments = Replies.join(parts), state.assignments
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
        return state.next(bank=bank, assignments=assignments)

    def cluster(self, bank, seed):
        """Cluster of each local model: k-means on the parameters (line 2), from starts of the seed.

        LongTensor [b]; -1 for a model that is not finite, which belongs nowhere.
        """
        if len(bank) < self.clusters:
            raise ValueError(
                f"clusters must be at most the {len(bank)} clients that sent a local model, "
                f"got {self.clusters}"
            )
        rows, groups = bank.flatten(), torch.full((len(bank),), -1)
        sound = rows.isfinite().all(1)
        if int(sound.sum()) >= self.clusters:
            from sklearn.cluster import KMeans  # slow to import

            means = KMeans(self.clusters, n_init=self.starts, random_state=seed % 2**32)
            found = means.fit_predict(rows[sound].numpy())
            groups[sound] = torch.from_numpy(found).to(torch.int64)
        return groups
