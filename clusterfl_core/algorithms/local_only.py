"""LocalOnly: no client ever hears of another. The "local model" of the clustered papers."""

from dataclasses import dataclass, field

import torch
from torch import nn

from clusterfl_core import evaluation
from clusterfl_core.algorithms.fedavg import train_from
from clusterfl_core.banks import Bank
from clusterfl_core.check import kind, solver
from clusterfl_core.contract import Jobs, Replies, State
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["LocalOnly"]


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

    test_protocol = staticmethod(evaluation.own_distribution)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)

    def init(self, federation, seed):
        """One fresh model, the same for all, so that the clients differ by their data alone."""
        m = len(federation)
        bank = Bank.fresh(self.model, 1, seed).take([0] * m)
        return State(seed, 0, bank, torch.arange(m))

    def plan(self, state):
        """Everybody works on the model it kept; the server sends nothing."""
        ids = torch.arange(len(state.assignments))
        nothing = torch.empty(len(ids), 0, dtype=torch.int64)
        none = state.bank.take([])
        return Jobs(state.seed, state.round, ids, none, nothing, kept=state.bank, fresh=0)

    def client_step(self, jobs, clients):
        """Clients: train their own model on their own data."""
        return train_from(jobs.kept, self.local, jobs, clients)

    def absorb(self, state, parts):
        """Nothing is averaged: each model is replaced by its trained self."""
        replies = Replies.join(parts)

        def put(old, new):
            return old.index_copy(0, replies.clients, new)

        return state.next(bank=state.bank.map(put, replies.bank))
