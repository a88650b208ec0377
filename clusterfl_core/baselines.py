"""What clustered methods are measured against: one model for all, and one model for each.

FedAvg is federated averaging (McMahan et al., 2017, Algorithm 1): the "global model" of the
clustered papers. LocalOnly is their "local model": no client ever hears of another.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

from clusterfl_core import local
from clusterfl_core.banks import Bank
from clusterfl_core.federation import INITIALIZATION, Jobs, Replies, generator, participants
from clusterfl_core.local import LocalSGD


@dataclass(frozen=True)
class State:
    """What the server knows between two rounds.

    Parameters
    ----------
    seed, round : int
        The seed of the run and the number of rounds done.
    bank : Bank
        FedAvg: the one model. LocalOnly: the model of each client.
    assignments : LongTensor [m]
        Which model of the bank is each client's.
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
    loss = local.mean_losses(start, clients)
    trained = algorithm.local.train(start, clients, (jobs.seed, jobs.round))
    return Replies(clients.ids, trained, {"loss": loss})


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging: one model for everybody.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    local : LocalSGD
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
    local: LocalSGD = field(default_factory=LocalSGD)
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

    def absorb(self, state, replies):
        """Server: the mean of the local models is the next model."""
        weights = state.counts[replies.clients] if self.weighted else None
        return replace(state, round=state.round + 1, bank=replies.bank.mean(weights))


@dataclass(frozen=True)
class LocalOnly:
    """Every client trains alone: nothing is shared, nothing is averaged.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture.
    local : LocalSGD
        What a client does in a round. Its model goes on from where it stopped.
    """

    model: nn.Module
    local: LocalSGD = field(default_factory=LocalSGD)

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
