"""What no algorithm of the library does: many kinds of numbers beside two models a client.

Each client keeps a model of its own and sends it with its mirror image, and says numbers of every
type and shape under names with spaces; the server keeps the mirror image and asks twice a round.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

import clusterfl_core as cf
from clusterfl_core.contract import Replies, State


@dataclass(frozen=True)
class Memory(State):
    """What the server knows: each client's kept model and what it said."""

    own: cf.banks.Bank = None
    said: dict = None
    asked: int = 0


def kept(state, federation):
    """Each test client's loss is judged with the lowest of all kept models: Tensor [m_test]."""
    return cf.compute.loss_matrix(state.own, federation.test).min(1).values


@dataclass(frozen=True)
class Odd:
    """Settings: a model, and a name for what clients say."""

    model: nn.Module
    local: cf.LocalSGD = field(default_factory=cf.LocalSGD)

    test_protocol = staticmethod(kept)

    def init(self, federation, seed):
        """One fresh model, kept by everybody."""
        m = len(federation)
        one = cf.banks.Bank.fresh(self.model, 1, seed)
        return Memory(seed, 0, one, torch.zeros(m, dtype=torch.int64), one.take([0] * m), None)

    def plan(self, state):
        """Even clients first, then the odd ones; each is sent one model and has one."""
        m = len(state.assignments)
        ids = torch.arange(m)[state.asked :: 2]
        half = torch.arange(m, dtype=torch.float16)[ids, None].expand(-1, 3) / 2
        values = {"a half": half, "sign": ids % 3 == 0, "über": ids.to(torch.int16)}
        return state.jobs(ids, kept=state.own.take(ids), values=values)

    def client_step(self, jobs, clients):
        """Train the kept model; answer with it and its mirror image, and with much else."""
        loss = cf.compute.mean_losses(jobs.kept, clients)
        trained = self.local.train(jobs.kept, clients, jobs.key)
        mirror = trained.map(torch.neg)
        pairs = torch.arange(2 * len(clients)).view(2, -1).T.flatten()
        both = cf.banks.Bank.concatenate([trained, mirror]).take(pairs)
        count = clients.counts[:, None] * torch.tensor([1, 20, 300])
        said = {
            "loss": loss,
            "how many": count,
            "a grid": jobs.values["a half"][:, :, None] * torch.ones(2, dtype=torch.float16),
            "turned": torch.complex(loss.double(), -loss.double()),
            "brain": loss.to(torch.bfloat16),
            "sign": ~jobs.values["sign"],
            "over": jobs.values["über"].to(torch.uint8),
        }
        return Replies(clients.ids, both, said)

    def absorb(self, state, parts):
        """Keep the mirror images; the model sent is their mean. The round ends after two trips."""
        replies = Replies.join(parts)
        mirror = replies.bank.take(range(1, len(replies.bank), 2))
        own = state.own.map(lambda old, new: old.index_copy(0, replies.clients, new), mirror)
        after = replace(state, own=own, said=replies.values, asked=1 - state.asked)
        return after if state.asked == 0 else after.next(bank=own.mean())
