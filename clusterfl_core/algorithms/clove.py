"""CLoVE clusters the clients' VECTORS of losses, where IFCA takes each client's lowest loss.

Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty; ICML 2026 (arXiv:2506.22427). A round is IFCA's
with another rule at the server:

* each client i says its losses under all models, L_i = (F_i(theta_1), ..., F_i(theta_K)), and
  chooses nothing;
* the server clusters these vectors by k-means, gives each cluster one model, at the least total
  loss, and tells each client its own; the clients train it, and models are averaged within clusters
  with weights n_i.

So two clients need not prefer a model to be found alike: they need to find the same models hard.

We read the released program (Nokia-Bell-Labs, Loss-Vector-based-Clustered-Federated-Learning,
b602090: ``utils/algorithm_utils.py``) and retellings of the paper, not the paper's own pseudocode;
what follows from the latter only is marked *second-hand*. Five defects of the program are not
repeated: stability compares all of the last rounds, not two of them; a client that first comes
after it is served; it is given a model, not the number of a cluster; ablations run; test losses
choose nothing here but in the test protocol that it shares with IFCA.

The start from which :mod:`clusterfl_core.algorithms.ifca` puts everybody on one model:

>>> import torch
>>> import clusterfl_core as cf
>>> theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(theta, clients=6, points=20, noise=0.1)
>>> settings = cf.CLoVE(cf.models.LinearRegression(2), clusters=2, local=cf.LocalSGD(5, 0.1))
>>> cf.run(settings, federation, rounds=10, seed=1).assignments.tolist()
[0, 0, 0, 1, 1, 1]
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

from clusterfl_core import compute, contract, evaluation, grouping
from clusterfl_core.banks import Bank
from clusterfl_core.check import (
    among,
    flag,
    keep,
    kind,
    one_of,
    share,
    shown,
    solver,
    whole,
    wholes,
)
from clusterfl_core.contract import Replies, summed
from clusterfl_core.matching import best_matching
from clusterfl_core.randomness import SELECTION, generator, participants
from clusterfl_core.solvers import LocalSGD, LocalSolver

__all__ = ["CLoVE", "State", "chosen_number", "k_means", "matched"]


@dataclass(frozen=True)
class State(contract.State):
    """What the server knows between two round trips.

    Parameters
    ----------
    seed, round, bank
        As in :class:`clusterfl_core.contract.State`; the bank holds the K models.
    assignments : LongTensor [m]
        The model each client was last given; -1 before its first round.
    counts : LongTensor [m]
        n_i, which clients tell the server when they join.
    same : LongTensor [m]
        In how many rounds in a row, of those it took part in, each client was given this model.
    told : bool
        Whether the losses of this round are in, so that now the clients train.
    stable : bool
        Whether assignments are settled for good.
    found : int
        How many clusters the last vectors were cut into; 0 before.
    """

    counts: torch.Tensor
    same: torch.Tensor
    told: bool = False
    stable: bool = False
    found: int = 0

    def note(self):
        """Clusters found, and whether assignments are settled."""
        return {"clusters": self.found, "stable": int(self.stable)}


@dataclass(frozen=True)
class CLoVE:
    """Settings of the algorithm; ValueError if one lies outside its bounds.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture of every model.
    clusters : int
        K, the number of models, between 1 and the number of clients; with ``search`` an upper
        bound.
    local : LocalSGD or LocalAdam
        What a client does in a round. (The program: Adam made anew in each round, one epoch.)
    participation : float
        Fraction of the clients that take part in a round, in (0, 1].
    first : {"losses", "random"}
        How round 1 assigns clients: as any other round (second-hand, the paper's pseudocode), or
        by chance, each model at least once, as in the program's supervised experiments.
    starts : int
        Starts of k-means (k-means++), the best of which counts. The program has one.
    search : bool
        Whether the number of clusters is sought in every round, as in the program: Ward's tree of
        the vectors is cut into 2, 3, ..., K groups, and a larger number is taken where its
        silhouette is more than 1.1 times the best so far. One cluster cannot be found.
    square_root : bool
        Whether the vectors hold square roots of the losses, as in the theory (second-hand) and one
        ablation. With squared losses they are distances to the models, up to the noise.
    patience : int, optional
        Once every client that ever took part was given the same model in so many of its rounds in a
        row, assignments are settled: the server sends each client its one model. Then a client that
        comes for the first time is sent all, and given the one with the lowest loss on its data.
        None: never, as in most of the program's experiments.
    """

    model: nn.Module
    clusters: int
    local: LocalSolver = field(default_factory=LocalSGD)
    participation: float = 1.0
    first: str = "losses"
    starts: int = 1
    search: bool = False
    square_root: bool = False
    patience: int = None

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(
            self,
            clusters=whole("clusters", self.clusters),
            participation=share("participation", self.participation),
            starts=whole("starts", self.starts),
            patience=whole("patience", self.patience, none=True),
            search=flag("search", self.search),
            square_root=flag("square_root", self.square_root),
        )
        one_of("first", self.first, "losses", "random")

    def init(self, federation, seed):
        """Draw K models independently; nobody is assigned, unless there is one model only."""
        m, one = len(federation), self.clusters == 1
        among("clusters", self.clusters, m)
        bank = Bank.fresh(self.model, self.clusters, seed)
        nobody = torch.full((m,), 0 if one else -1)
        none = torch.zeros(m, dtype=torch.int64)
        return State(seed, 0, bank, nobody, federation.train.counts, none, stable=one)

    def plan(self, state):
        """Server: all K models to those who look, then to each client that takes part its own.

        The program's clients keep the models of the first round trip for the second. Ours are
        programs that keep only what they sent themselves, so a client's own model comes twice.
        """
        look = self.lookers(state)
        if len(look):
            return state.jobs(look, torch.arange(self.clusters).expand(len(look), -1))
        ids = self._taking_part(state)
        return state.jobs(ids[state.assignments[ids] >= 0])

    def lookers(self, state):
        """Who says its losses in the coming round trip; nobody once the losses are in.

        Once assignments are settled, only who has none.
        """
        ids = self._taking_part(state)
        if state.told:
            return ids[:0]
        return ids[state.assignments[ids] < 0] if state.stable else ids

    def _taking_part(self, state):
        return participants((state.seed, state.round), len(state.assignments), self.participation)

    def client_step(self, jobs, clients):
        """Clients: say the losses of all models, or train the one they were given."""
        if jobs.models.shape[1] > 1:
            losses = compute.loss_matrix(jobs.bank, clients)
            return Replies(clients.ids, None, {"losses": losses})
        loss = compute.mean_losses(jobs.start, clients)
        trained = self.local.train(jobs.start, clients, jobs.key)
        return Replies(clients.ids, trained, {"loss": loss})

    def passes(self, jobs):
        """Passes of a client over its data: a look at the loss of a model is a third of a step."""
        q = jobs.models.shape[1]
        return q / 3 if q > 1 else self.local.passes

    def absorb(self, state, parts):
        """Server: cluster the vectors and match the clusters, or average within the clusters.

        A model without clients keeps its parameters.
        """
        if len(self.lookers(state)):
            return self._assigned(state, Replies.join(parts))
        k, counts = self.clusters, state.counts

        def group(part):
            return state.assignments[part.clients]

        sums, replies = summed(parts, k, group, lambda part: counts[part.clients])
        shares = counts[replies.clients].double()
        total = torch.zeros(k).double().index_add(0, group(replies), shares)

        def mean(old, one):
            size = compute.column(total, old)
            return torch.where(size > 0, (one / size).to(old.dtype), old)

        return state.next(bank=state.bank.map(mean, sums), told=False)

    def _assigned(self, state, replies):
        """The state once each client that said its losses has a model."""
        vectors, found = replies.values["losses"].double(), state.found
        if state.stable or not vectors.isfinite().all():
            given = evaluation.lowest(vectors)
        elif state.round == 0 and self.first == "random":
            given = self._dealt(len(vectors), state.seed)
        else:
            labels = self.cluster(vectors, state.seed)
            given, found = matched(labels, vectors), int(labels.max()) + 1
        assignments, same = state.assignments.clone(), state.same.clone()
        who = replies.clients
        same[who] = torch.where(assignments[who] == given, same[who] + 1, 1)
        assignments[who] = given
        known = assignments >= 0
        settled = self.patience is not None and bool((same[known] >= self.patience).all())
        return replace(
            state,
            assignments=assignments,
            same=same,
            told=True,
            stable=state.stable or settled,
            found=found,
        )

    def _dealt(self, n, seed):
        """Models dealt to n clients at random, none left out where there are clients enough."""
        source = generator(SELECTION, seed, 0)
        given = torch.randint(self.clusters, (n,), generator=source)
        first = torch.randperm(n, generator=source)[: self.clusters]
        given[first] = torch.randperm(self.clusters, generator=source)[: len(first)]
        return given

    def cluster(self, vectors, seed):
        """Cluster of each loss vector [b, K]: LongTensor [b]."""
        rows = vectors.sqrt() if self.square_root else vectors
        count = chosen_number(rows, self.clusters) if self.search else self.clusters
        return k_means(rows, count, self.starts, seed)


def _vectors(name, given):
    """Refuse what is no finite tensor of rows."""
    if kind(name, given, torch.Tensor).ndim != 2 or not len(given) or not given.isfinite().all():
        raise ValueError(f"{name} must be finite rows [n, p], got {shown(given)}")
    return given


def k_means(rows, count, starts, seed):
    """Cluster of each of n rows by k-means, ``count`` clusters if there are as many different rows.

    LongTensor [n]: 0, 1, ... without gaps. Of ``starts`` (k-means++, drawn from the seed) the best
    counts.
    """
    from sklearn.cluster import KMeans  # slow to import

    _vectors("rows", rows)
    starts, seed = whole("starts", starts), whole("seed", seed, 0)
    count = min(whole("count", count), len(rows.unique(dim=0)))
    means = KMeans(count, n_init=starts, random_state=seed % 2**32)
    return torch.from_numpy(means.fit_predict(rows.numpy())).unique(return_inverse=True)[1]


def matched(labels, vectors):
    """The model of each client, once each cluster has one: LongTensor [b].

    A cluster's cost of a model is the SUM of its clients' losses, so that large clusters count
    more; the Hungarian method finds the least total cost. ``labels`` [b] are 0, 1, ..., at most K
    clusters, ``vectors`` [b, K] the losses.
    """
    labels, b = wholes("labels", labels), len(_vectors("vectors", vectors))
    most = vectors.shape[1] - 1
    if len(labels) != b or int(labels.min()) < 0 or int(labels.max()) > most:
        raise ValueError(f"labels must be {b} numbers, 0 to {most}, got {shown(labels.tolist())}")
    member = nn.functional.one_hot(labels).to(vectors)
    model = best_matching(-(member.T @ vectors).numpy())
    return torch.tensor([model[label] for label in labels.tolist()])


def chosen_number(rows, most):
    """The number of clusters, as the program seeks it: between 2 and ``most``, below n.

    Ward's tree is cut into 2, 3, ... groups; a number is taken if its silhouette exceeds 1.1 times
    that of the one taken before, which favours few groups.
    """
    _vectors("rows", rows)
    most = whole("most", most)
    best, score = 2, -1.0
    for k, now in enumerate(grouping.cuts(rows, min(most, len(rows) - 1))[1], 2):
        if now > 1.1 * score:
            best, score = k, now
    return best
