"""FedAvg with fine-tuning: one model for everybody, which each client then makes its own.

The baseline of nearly all work on personal models, without a paper of its own. L. Collins,
H. Hassani, A. Mokhtari, S. Shakkottai (NeurIPS 2022, arXiv:2205.13692) explain why it does well:
local steps make FedAvg learn what the clients have in common, and a few more steps do the rest.

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=20, noise=0.1)
>>> line, few = cf.models.LinearRegression(2), cf.LocalSGD(5, 0.1)
>>> run = cf.run(cf.FineTuned(line, few, after=10, tune=cf.LocalSGD(20, 0.1)), federation, 11)
>>> [round(record["error"], 1) for record in run.history[-2:]]
[1.9, 0.0]
"""

from dataclasses import dataclass, field

import torch

from clusterfl_core import evaluation
from clusterfl_core.algorithms.fedavg import FedAvg, train_from
from clusterfl_core.check import keep, solver, whole
from clusterfl_core.contract import Jobs, Replies
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["FineTuned"]


@dataclass(frozen=True)
class FineTuned(FedAvg):
    """Federated averaging for some rounds, then every client trains the model alone.

    In the round after the last one of federated averaging, every client receives the model once
    more and takes the steps of ``tune``. In each later round it goes on from where it stopped, and
    nothing travels.

    Parameters
    ----------
    model, local, participation, weighted
        As of :class:`clusterfl_core.algorithms.fedavg.FedAvg`; everybody is fine-tuned, whoever
        took part before.
    after : int
        Rounds of federated averaging.
    tune : LocalSGD or LocalAdam
        What a client does in a round of fine-tuning.
    """

    after: int = field(kw_only=True)
    tune: LocalSolver = field(default_factory=LocalSGD, kw_only=True)

    test_protocol = staticmethod(evaluation.own_distribution)

    def __post_init__(self):
        super().__post_init__()
        keep(self, after=whole("after", self.after))
        solver("tune", self.tune)

    def plan(self, state):
        """Server: the model to some, then to all; after that nothing is sent."""
        if state.round < self.after:
            return super().plan(state)
        ids = torch.arange(len(state.assignments))
        if state.round == self.after:
            return state.jobs(ids, stays=True)
        nothing = torch.empty(len(ids), 0, dtype=torch.int64)
        none = state.bank.take([])
        return Jobs(state.seed, state.round, ids, none, nothing, kept=state.bank)

    def client_step(self, jobs, clients):
        """Clients: train the model they got, or the one they kept, on their own data."""
        start = jobs.start if jobs.kept is None else jobs.kept
        return train_from(start, self.solver(jobs), jobs, clients)

    def solver(self, jobs):
        """What clients do in a round."""
        return self.local if jobs.round < self.after else self.tune

    def passes(self, jobs):
        """Passes of a client over its data."""
        return self.solver(jobs).passes

    def absorb(self, state, parts):
        """Server: the mean; once the clients fine-tune, there are m models, which stay with them.

        Who does not answer keeps the model it had.
        """
        if state.round < self.after:
            return super().absorb(state, parts)
        replies, m = Replies.join(parts), len(state.assignments)
        own = state.bank.take([0] * m) if state.round == self.after else state.bank
        bank = own.map(lambda old, new: old.index_copy(0, replies.clients, new), replies.bank)
        return state.next(bank=bank, assignments=torch.arange(m))
