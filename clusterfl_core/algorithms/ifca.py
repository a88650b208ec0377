"""IFCA, the iterative federated clustering algorithm (Ghosh, Chung, Yin, Ramchandran; 2020).

m clients belong to k hidden clusters. The server keeps one model for each cluster, theta_1, ...,
theta_k. A round has two halves, which is why the method is an alternating minimisation:

* each client i takes the model with the lowest loss on its own data as the estimate of its
  cluster, ``identities[i] = argmin_j F_i(theta_j)`` (Algorithm 1, line 6);
* the server improves each model with the clients that chose it, by averaging their gradients
  (option I, lines 9 and 14) or their locally trained models (option II, lines 11 and 15).

Clients never learn of each other, and the server never clusters anything.

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=20, noise=0.1)
>>> settings = cf.IFCA(cf.models.LinearRegression(2), clusters=2, local=cf.LocalSGD(5, 0.1))
>>> run = cf.run(settings, federation, rounds=10, seed=0)
>>> run.assignments.tolist()  # the first model serves the second group: names are arbitrary
[1, 1, 1, 0, 0, 0]
>>> bad = cf.run(settings, federation, rounds=10, seed=1)
>>> bad.assignments.tolist()  # another start, and nobody ever chose the second model
[0, 0, 0, 0, 0, 0]
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from clusterfl_core import compute, contract, evaluation
from clusterfl_core.banks import Bank
from clusterfl_core.check import among, items, keep, kind, one_of, share, solver, text, whole
from clusterfl_core.clients import Clients
from clusterfl_core.contract import Replies, Unusable, summed
from clusterfl_core.evaluation import loss_and_lowest, lowest
from clusterfl_core.randomness import participants
from clusterfl_core.solvers import LocalSGD

__all__ = ["IFCA", "State", "estimate_identities"]


def estimate_identities(bank, clients):
    """The cluster identity of each client: argmin_j F_i(theta_j) (Algorithm 1, line 6).

    LongTensor [b], for k cluster models and b clients. Ties go to the lowest j, which the paper
    leaves open.
    """
    kind("clients", clients, Clients)
    return lowest(compute.loss_matrix(kind("bank", bank, Bank), clients))


@dataclass(frozen=True)
class State(contract.State):
    """What the server knows between two rounds.

    Parameters
    ----------
    seed, round, bank
        As in :class:`clusterfl_core.contract.State`; the bank holds the k cluster models.
    assignments : LongTensor [m]
        The last identity each client reported; -1 before its first round.
    empty : LongTensor [k]
        For each cluster, how many rounds in a row nobody has chosen it.
    stable : int
        How many rounds in a row no client has changed its identity.
    most : int or None
        How many rounds have fresh points, with ``resample``.
    """

    empty: torch.Tensor
    stable: int = 0
    most: int = None

    def note(self):
        """Clusters nobody chose."""
        return {"empty": int((self.empty > 0).sum())}


@dataclass(frozen=True)
class IFCA:
    """Settings of the algorithm; ValueError if one lies outside its bounds.

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
    shared : tuple of str
        Names of layers whose weights all clusters have in common (section 4.1 of the NeurIPS
        version, "weight sharing"). They are averaged over everybody who took part, the other
        layers within clusters.
    patience : int, optional
        Communication saving (same section): once every client has been asked and no identity has
        changed for so many rounds, the server sends each client the one model it chose last. The
        clients can then no longer choose, so this holds to the end of the run. None: never.
    resample : int, optional
        T of the re-sampling variant, which only the theory needs (section 5): each client's
        points are cut into 2T parts, and every round takes two fresh ones, the first to choose
        and the second for the gradient. None: all points in every round, as in practice.
    """

    model: nn.Module
    clusters: int
    local: LocalSGD = field(default_factory=LocalSGD)
    option: str = "models"
    participation: float = 1.0
    shared: tuple = ()
    patience: int = None
    resample: int = None

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(
            self,
            clusters=whole("clusters", self.clusters),
            participation=share("participation", self.participation),
            patience=whole("patience", self.patience, none=True),
            resample=whole("resample", self.resample, none=True),
        )
        one_of("option", self.option, "models", "gradients")
        if self.option == "gradients" and not isinstance(self.local, LocalSGD):
            raise ValueError(
                "option 'gradients' is plain gradient descent, so local must be LocalSGD, "
                f"got {type(self.local).__name__}"
            )
        if self.option == "gradients" and self.local.steps != 1:
            raise ValueError(
                "option 'gradients' sends one gradient a round, so local.steps must be 1, "
                f"got {self.local.steps}"
            )
        keep(self, shared=tuple(text("shared", name) for name in items("shared", self.shared, 0)))
        layers = [name for name, _layer in self.model.named_children()]
        unknown = [name for name in self.shared if name not in layers]
        if unknown:
            raise ValueError(f"shared names {unknown[0]!r}, the model's layers are {layers}")

    def common(self):
        """Names of the parameters of the shared layers."""
        names = (name for name, _parameter in self.model.named_parameters())
        return tuple(name for name in names if name.split(".")[0] in self.shared)

    def init(self, federation, seed):
        """Draw k models, alike in their shared layers; no identities (input of Algorithm 1)."""
        m = len(federation)
        among("clusters", self.clusters, m)
        parts, least = 2 * (self.resample or 0), int(federation.train.counts.min())
        if least < parts:
            raise ValueError(
                f"resample={self.resample} cuts each client's points into {parts} parts, but a "
                f"client has only {least}"
            )
        bank = Bank.fresh(self.model, self.clusters, seed)
        bank = self._share(bank, bank.take([0] * self.clusters))
        unknown, none = torch.full((m,), -1), torch.zeros(self.clusters, dtype=torch.int64)
        return State(seed, 0, bank, unknown, none, most=self.resample)

    def _share(self, own, common):
        """A bank with the shared layers of ``common`` and the others of ``own``."""
        names = self.common()
        parts = {n: (common if n in names else own).tensors[n] for n in own.tensors}
        return Bank(self.model, parts)

    def plan(self, state):
        """Server: the models go to a random subset of the clients (lines 3 and 4).

        All k models, or, once identities are stable (``patience``), the one each client chose.
        """
        m = len(state.assignments)
        ids = participants((state.seed, state.round), m, self.participation)
        models = torch.arange(self.clusters).expand(len(ids), -1)
        asked = bool((state.assignments >= 0).all())
        if self.patience is not None and asked and state.stable >= self.patience:
            models = state.assignments[ids][:, None]
        return state.jobs(ids, models, shared=self.common())

    def client_step(self, jobs, clients):
        """Clients: choose the best model, then train it or take its gradient (lines 6 to 11)."""
        choosing = training = clients
        if self.resample:
            choosing, training = (self._fresh(clients, 2 * jobs.round + half) for half in (0, 1))
        key, hidden = jobs.key, None
        if jobs.models.shape[1] == 1:
            identities = jobs.models[:, 0]
            loss = compute.mean_losses(jobs.bank.take(identities), choosing)
        elif self.resample or self.option == "gradients":
            loss, identities = loss_and_lowest(compute.loss_matrix(jobs.bank, choosing))
        else:  # the forward pass of the choice is the first of the training
            losses, hidden = compute.first_pass(jobs.bank, clients, self.local)
            loss, identities = loss_and_lowest(losses)
            if hidden is not None:
                hidden = hidden[torch.arange(len(clients)), :, identities]
        if self.option == "gradients":
            answer = self.local.gradient(jobs.bank.take(identities), training, key)
        else:
            answer = self.local.train(jobs.bank, training, key, rows=identities, hidden=hidden)
        return Replies(clients.ids, answer, {"identity": identities, "loss": loss})

    def _fresh(self, clients, part):
        """One of the 2T disjoint parts of each client's points, n' = n_i // 2T of them."""
        if part >= 2 * self.resample:
            raise ValueError(f"resample={self.resample} has fresh points for so many rounds only")
        sizes = clients.counts // (2 * self.resample)
        rows = sizes[:, None] * part + torch.arange(int(sizes.max()), device=sizes.device)
        rows = rows.clamp(max=clients.y.shape[1] - 1)
        who = torch.arange(len(clients), device=sizes.device)[:, None]
        return Clients(clients.x[who, rows], clients.y[who, rows], sizes, clients.ids)

    def passes(self, jobs):
        """Passes of a client over its data: a look at the loss of a model is a third of a step."""
        return self.local.passes + jobs.models.shape[1] / 3

    def absorb(self, state, parts):
        """Server: average within each estimated cluster (lines 13 to 15).

        Option I divides by m, the number of ALL clients, not by the clients that took part or
        chose the cluster. Option II is the plain mean of the chosen cluster's local models. A
        cluster that nobody chose keeps its model; the formula of option II would be 0/0.
        """
        m, k = len(state.assignments), self.clusters
        sums, replies = summed(parts, k, self._chosen)
        identities = replies.values["identity"]
        member = nn.functional.one_hot(identities, k).T

        def update(old, total, sizes):
            if self.option == "gradients":
                return (old - self.local.rate(state.round) / m * total).to(old.dtype)
            sizes = compute.column(sizes, old)
            return torch.where(sizes > 0, (total / sizes.clamp(min=1)).to(old.dtype), old)

        bank = state.bank.map(partial(update, sizes=member.sum(1)), sums)
        if self.shared:
            everybody = member.sum().expand(k)
            common = sums.map(lambda total: total.sum(0, keepdim=True).expand_as(total))
            bank = self._share(bank, state.bank.map(partial(update, sizes=everybody), common))
        assignments = state.assignments.clone()
        assignments[replies.clients] = identities
        changed = not torch.equal(assignments, state.assignments)
        return state.next(
            bank=bank,
            assignments=assignments,
            empty=torch.where(member.sum(1) > 0, 0, state.empty + 1),
            stable=0 if changed else state.stable + 1,
        )

    def _chosen(self, replies):
        """The identities in some replies, if they name models that there are."""
        identities = replies.values["identity"]
        wrong = (identities < 0) | (identities >= self.clusters)
        if wrong.any():
            client, said = replies.clients[wrong][0], int(identities[wrong][0])
            raise Unusable(client, f"sent identity {said}, there are 0 to {self.clusters - 1}")
        return identities
