"""FedAvg, federated averaging: one model for everybody (McMahan et al., 2017, Algorithm 1).

The "global model" of the clustered papers.

One model for two groups that disagree ends between them, far from both:

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=20, noise=0.1)
>>> run = cf.run(cf.FedAvg(cf.models.LinearRegression(2), cf.LocalSGD(5, 0.1)), federation, 10)
>>> [round(value, 1) for value in run.models.tensors["theta"][0].tolist()]
[0.9, 1.2]
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from clusterfl_core import compute, contract, evaluation
from clusterfl_core.banks import Bank
from clusterfl_core.check import flag, keep, kind, share, solver
from clusterfl_core.contract import Replies, summed
from clusterfl_core.randomness import participants
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["FedAvg", "State", "train_from"]


@dataclass(frozen=True)
class State(contract.State):
    """The bank is the one model; ``counts`` [m] are n_i, which clients tell when they join."""

    counts: torch.Tensor


def train_from(start, solver, jobs, clients):
    """Each client trains one model, and says the loss it started from: Replies."""
    loss = compute.mean_losses(start, clients)
    return Replies(clients.ids, solver.train(start, clients, jobs.key), {"loss": loss})


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
    """

    model: nn.Module
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    weighted: bool = True

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(self, participation=share("participation", self.participation))
        keep(self, weighted=flag("weighted", self.weighted))

    def init(self, federation, seed):
        """One fresh model."""
        bank = Bank.fresh(self.model, 1, seed)
        everybody = torch.zeros(len(federation), dtype=torch.int64)
        return State(seed, 0, bank, everybody, federation.train.counts)

    def plan(self, state):
        """Server: the model goes to a random subset of the clients."""
        m = len(state.assignments)
        return state.jobs(participants((state.seed, state.round), m, self.participation))

    def client_step(self, jobs, clients):
        """Clients: train the model on their own data."""
        return train_from(jobs.start, self.local, jobs, clients)

    def shares(self, state, clients):
        """What the model of each of these clients counts for: n_i, or 1."""
        counts = state.counts[clients]
        return counts if self.weighted else torch.ones_like(counts)

    def absorb(self, state, parts):
        """Server: the mean of the local models is the next model; it stays if nobody answered."""
        sums, replies = summed(
            parts,
            1,
            lambda part: torch.zeros_like(part.clients),
            lambda part: self.shares(state, part.clients),
        )
        if not len(replies.clients):
            return state.next()
        whole = self.shares(state, replies.clients).sum()
        return state.next(bank=state.bank.map(lambda old, t: (t / whole).to(old.dtype), sums))
