"""FedEM lets every client train every model (Marfoq et al., 2021, Algorithm 1).

Each point weighs as much in a model's training as the model explains it.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from clusterfl_core import compute, evaluation
from clusterfl_core.algorithms import fedavg
from clusterfl_core.banks import Bank, widest
from clusterfl_core.check import among, keep, kind, share, solver, whole
from clusterfl_core.contract import Replies
from clusterfl_core.randomness import participants
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["FedEM", "State", "mixed_outputs", "mixture", "responsibilities"]

INFERENCE = 20  # E steps with which a new client finds its mixture weights


@dataclass(frozen=True)
class State(fedavg.State):
    """The bank holds the k models; assignments are pi_ij [m, k], the clients' mixture weights."""

    def predict(self, rows, x, classes):
        """A client predicts with all models, averaged by its mixture weights."""
        return mixed_outputs(self.bank, self.assignments[rows], x, classes)


def responsibilities(table, weights):
    """How much each model explains each point: the E step of FedEM.

    From losses [k, b, n], taken as negative log-likelihoods f(theta_j; z) = -log p(z | theta_j) +
    constant, and mixture weights pi_ij [b, k].

    Returns
    -------
    q : Tensor [k, b, n]
        q_j(z) proportional to pi_ij exp(-f(theta_j; z)), summing to one over j.
    evidence : Tensor [b, n]
        log sum_j pi_ij exp(-f(theta_j; z)), the log-likelihood of each point up to the constant.
    """
    kind("table", table, torch.Tensor)
    if table.ndim != 3 or kind("weights", weights, torch.Tensor).shape != table.shape[1::-1]:
        given = f"{list(table.shape)} and {list(getattr(weights, 'shape', []))}"
        raise ValueError(f"table must be [k, b, n] and weights [b, k], got {given}")
    joint = weights.T[:, :, None].to(table).log() - table
    evidence = joint.logsumexp(0)
    return (joint - evidence).exp(), evidence


def mixture(state, federation):
    """Each test client predicts with all models, mixed by weights found on its OWN data (FedEM).

    Test clients are new: with the models fixed they repeat FedEM's E step from equal weights, and
    predict with the average of the models' predictions by the weights found. Their labels are used
    to find the weights, then again to score.
    """
    evaluation.refuse_unknown(state, federation)
    test = federation.test
    table, mask = compute.point_loss_table(state.bank, test), test.mask()
    k = len(state.bank)
    weights = torch.full((len(test), k), 1 / k, dtype=torch.float64)
    for _ in range(INFERENCE):
        q, _evidence = responsibilities(table, weights)
        weights = torch.stack([compute.masked_mean(one.to(torch.float64), mask) for one in q], 1)
    x = test.inputs(state.bank.dtype)
    found = mixed_outputs(state.bank, weights, x, federation.classes)
    return evaluation.quality(found, state, federation, test)


def mixed_outputs(bank, weights, x, classes):
    """Average of k models' predictions by mixture weights [b, k]: [b, n] or [b, n, classes].

    Where there are ``classes`` probabilities are averaged, else the outputs themselves.
    """
    if kind("weights", weights, torch.Tensor).shape != (len(x), len(kind("bank", bank, Bank))):
        form = [len(x), len(bank)]
        raise ValueError(f"weights must be {form}, got shape {list(weights.shape)}")
    total = 0
    for j in range(len(bank)):
        found = compute.outputs(bank.take([j] * len(x)), x)
        found = found.softmax(-1) if classes else found
        total = total + compute.column(weights[:, j].to(found), found) * found
    return total


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

    test_protocol = staticmethod(mixture)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(
            self,
            clusters=whole("clusters", self.clusters),
            participation=share("participation", self.participation),
        )

    def init(self, federation, seed):
        """Draw k fresh models; mixture weights are equal."""
        m, k = len(federation), self.clusters
        among("clusters", k, m)
        bank = Bank.fresh(self.model, k, seed)
        equal = torch.full((m, k), 1 / k, dtype=torch.float64)
        return State(seed, 0, bank, equal, federation.train.counts)

    def plan(self, state):
        """Server: all k models go to a random subset of the clients."""
        m = len(state.assignments)
        ids = participants((state.seed, state.round), m, self.participation)
        everything = torch.arange(self.clusters).expand(len(ids), -1)
        values = {"mixture": state.assignments[ids]}
        return state.jobs(ids, everything, values=values)

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
            self.local.train(jobs.bank.take([j] * b), clients, jobs.key, weights=q[j])
            for j in range(self.clusters)
        ]
        rows = torch.arange(self.clusters * b).view(self.clusters, b).T.flatten()
        values = {"loss": -compute.masked_mean(evidence, mask), "mixture": mixture}
        return Replies(clients.ids, Bank.concatenate(trained).take(rows), values)

    def passes(self, jobs):
        """Passes of a client over its data: a look at the loss of a model is a third of a step."""
        return self.clusters * self.local.passes + self.clusters / 3

    def absorb(self, state, parts):
        """Server: each model becomes the mean of its trained copies, with weights n_i."""
        replies, k = Replies.join(parts), self.clusters
        weights = state.counts[replies.clients]
        means = [replies.bank.take(range(j, len(replies.bank), k)).mean(weights) for j in range(k)]
        assignments = state.assignments.clone()
        assignments[replies.clients] = replies.values["mixture"]
        return state.next(bank=Bank.concatenate(means), assignments=assignments)
