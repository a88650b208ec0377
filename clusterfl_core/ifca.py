"""IFCA, the iterative federated clustering algorithm (Ghosh, Chung, Yin, Ramchandran; 2020).

m clients belong to k hidden clusters. The server keeps one model for each cluster, theta_1, ...,
theta_k. A round has two halves, which is why the method is an alternating minimisation:

* each client i takes the model with the lowest loss on its own data as the estimate of its
  cluster, ``identities[i] = argmin_j F_i(theta_j)`` (Algorithm 1, line 6);
* the server improves each model with the clients that chose it, by averaging their gradients
  (option I, lines 10 and 16) or their locally trained models (option II, lines 13 and 18).

Clients never learn of each other, and the server never clusters anything.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

from clusterfl_core import local
from clusterfl_core.banks import Bank
from clusterfl_core.federation import INITIALIZATION, Jobs, Replies, generator, participants
from clusterfl_core.local import LocalSGD


def estimate_identities(bank, clients):
    """The cluster identity of each client: the model with the lowest mean loss on its data.

    Parameters
    ----------
    bank : Bank
        The k cluster models.
    clients : Clients
        b clients.

    Returns
    -------
    LongTensor [b]
        argmin_j F_i(theta_j) (Algorithm 1, line 6). Ties go to the lowest j, which the paper
        leaves open.
    """
    return lowest(local.loss_matrix(bank, clients))


def lowest(losses):
    """Index of the lowest loss in each row [b, k]; the first one where several are equal."""
    return (losses == losses.min(1, keepdim=True).values).to(torch.int8).argmax(1)


@dataclass(frozen=True)
class State:
    """What the server knows between two rounds.

    Parameters
    ----------
    seed, round : int
        The seed of the run and the number of rounds done.
    bank : Bank
        The k cluster models.
    assignments : LongTensor [m]
        The last identity each client reported; -1 before its first round.
    empty : LongTensor [k]
        For each cluster, how many rounds in a row nobody has chosen it.
    """

    seed: int
    round: int
    bank: Bank
    assignments: torch.Tensor
    empty: torch.Tensor


@dataclass(frozen=True)
class IFCA:
    """Settings of the algorithm.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture of every model.
    clusters : int
        k, the number of cluster models, between 1 and the number of clients.
    local : LocalSGD
        What a client does in a round: tau steps of step size gamma (option II), or the one
        gradient that the server multiplies by gamma (option I; then tau must be 1).
    option : {"models", "gradients"}
        "gradients" is option I of Algorithm 1, "models" option II.
    participation : float
        Fraction of the clients that take part in a round, in (0, 1].

    Raises
    ------
    ValueError
        If a setting lies outside these bounds.
    """

    model: nn.Module
    clusters: int
    local: LocalSGD = field(default_factory=LocalSGD)
    option: str = "models"
    participation: float = 1.0

    test_protocol = "lowest_loss"

    def __post_init__(self):
        if self.clusters < 1:
            raise ValueError(f"clusters must be at least 1, got {self.clusters}")
        if self.option not in ("models", "gradients"):
            raise ValueError(f"option must be 'models' or 'gradients', got {self.option!r}")
        if self.option == "gradients" and self.local.steps != 1:
            raise ValueError(
                "option 'gradients' sends one gradient a round, so local.steps must be 1, "
                f"got {self.local.steps}"
            )
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation must be in (0, 1], got {self.participation}")

    def init(self, federation, seed):
        """K fresh models, no identities (the input of Algorithm 1)."""
        m = len(federation)
        if self.clusters > m:
            raise ValueError(f"clusters must be at most the {m} clients, got {self.clusters}")
        bank = Bank.initialize(self.model, self.clusters, generator(INITIALIZATION, seed))
        unknown = torch.full((m,), -1)
        return State(seed, 0, bank, unknown, torch.zeros(self.clusters, dtype=torch.int64))

    def plan(self, state):
        """Server: all k models go to a random subset of the clients (lines 3 and 4)."""
        m = len(state.assignments)
        ids = participants((state.seed, state.round), m, self.participation)
        everything = torch.arange(self.clusters).expand(len(ids), -1)
        return Jobs(state.seed, state.round, ids, state.bank, everything)

    def client_step(self, jobs, clients):
        """Clients: choose the best model, then train it or take its gradient (lines 6 to 14)."""
        losses = local.loss_matrix(jobs.bank, clients)
        identities = lowest(losses)
        start = jobs.bank.take(identities)
        work = self.local.train if self.option == "models" else self.local.gradient
        answer = work(start, clients, (jobs.seed, jobs.round))
        chosen = losses.gather(1, identities[:, None])[:, 0]
        return Replies(clients.ids, answer, {"identity": identities, "loss": chosen})

    def absorb(self, state, replies):
        """Server: average within each estimated cluster (lines 15 to 19).

        Option I divides by m, the number of ALL clients, not by the clients that took part or
        chose the cluster. Option II is the plain mean of the chosen cluster's local models. A
        cluster that nobody chose keeps its model; the formula of option II would be 0/0.
        """
        identities = replies.values["identity"]
        m, k = len(state.assignments), self.clusters
        member = nn.functional.one_hot(identities, k).T
        sizes = member.sum(1)

        def average(old, answers):
            total = torch.tensordot(member.to(old), answers, dims=1)
            if self.option == "gradients":
                return old - self.local.step_size / m * total
            column = sizes.view(k, *[1] * (old.ndim - 1))
            return torch.where(column > 0, total / column.clamp(min=1), old)

        bank = state.bank.map(average, replies.bank)
        assignments = state.assignments.clone()
        assignments[replies.clients] = identities
        empty = torch.where(sizes > 0, 0, state.empty + 1)
        return replace(
            state, round=state.round + 1, bank=bank, assignments=assignments, empty=empty
        )
