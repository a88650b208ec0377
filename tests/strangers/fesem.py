"""FeSEM: clients go to the nearest center in parameter space (Xie et al., 2021; K-means in rounds).

Each round a client trains the model it kept; the server then alternates one step of k-means: every
local model goes to the nearest center, every center becomes the mean of its local models. Clients
go on from their center.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

import clusterfl_core as cf
from clusterfl_core.contract import Replies, State


@dataclass(frozen=True)
class FeSEM:
    """Settings: the model, k, and what a client does in a round."""

    model: nn.Module
    clusters: int
    local: cf.LocalSGD = field(default_factory=cf.LocalSGD)

    test_protocol = staticmethod(cf.evaluation.lowest_loss)

    def init(self, federation, seed):
        """Draw k centers; client i begins at center i mod k."""
        bank = cf.banks.Bank.fresh(self.model, self.clusters, seed)
        return State(seed, 0, bank, torch.arange(len(federation)) % self.clusters)

    def plan(self, state):
        """Everybody is sent the center it belongs to."""
        return state.jobs(torch.arange(len(state.assignments)))

    def client_step(self, jobs, clients):
        """Train it."""
        loss = cf.compute.mean_losses(jobs.start, clients)
        return Replies(clients.ids, self.local.train(jobs.start, clients, jobs.key), {"loss": loss})

    def absorb(self, state, parts):
        """Nearest center, then means; a center that nobody chose stays."""
        replies = Replies.join(parts)
        nearest = replies.bank.distances(state.bank).argmin(1)
        sums = replies.bank.sums(nearest, self.clusters)
        sizes = torch.bincount(nearest, minlength=self.clusters)

        def mean(old, total):
            size = cf.compute.column(sizes, old)
            return torch.where(size > 0, (total / size.clamp(min=1)).to(old.dtype), old)

        chosen = state.assignments.clone()
        chosen[replies.clients] = nearest
        return state.next(bank=state.bank.map(mean, sums), assignments=chosen)
