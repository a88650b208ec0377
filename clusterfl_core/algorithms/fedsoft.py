"""FedSoft, soft clustered federated learning (Ruan and Joe-Wong; 2022).

The data of each of m clients is a MIXTURE of k distributions. The server keeps one model for each
distribution, the centers c_1, ..., c_k; client i keeps a personal model w_i. The paper writes N for
m, S for k, k for the client and s for the cluster; here u_ij is the share of cluster j in the data
of client i, its *importance*. A round t (Algorithm 1):

* every tau rounds all clients weigh: each point counts for the center with the lowest loss on it,
  and the counts become the importance u_ij (lines 3 to 14). Weighing is a round trip of its own;
* the server turns importance into aggregation weights v_ji (line 15, eq. 6) and selects K clients
  for each cluster with these probabilities (line 16);
* a selected client solves ONE problem, whatever the number of clusters: its own loss plus a pull
  to the centers that matter to it, h_i(w) = F_i(w) + (lambda / 2) sum_j u_ij ‖w - c_j‖^2 (line 17,
  eq. 4);
* each center becomes the mean of the local models of the clients selected for it (line 18).

A mean of models of mixed clients is mixed itself, so the centers rest between the models of the
distributions. The paper has no remedy. With ``regress_after`` the server of this book regresses the
local models on the importance instead (:func:`regression_weights`).

Three of four points fit the first model, one the second:

>>> import torch
>>> import clusterfl_core as cf
>>> bank = cf.banks.Bank(cf.models.LinearRegression(2), {"theta": torch.eye(2)})
>>> x = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
>>> clients = cf.Clients(x, torch.tensor([[1.0, 2.0, 1.1, 1.0]]), torch.tensor([4]))
>>> cf.fedsoft.estimate_importance(bank, clients, smoother=0.01).tolist()
[[0.75, 0.25]]
"""

from dataclasses import dataclass, field, replace

import torch
from torch import nn

from clusterfl_core import compute, contract, evaluation
from clusterfl_core.banks import Bank, widest
from clusterfl_core.check import among, flag, keep, kind, number, shown, solver, whole
from clusterfl_core.clients import Clients
from clusterfl_core.contract import Replies
from clusterfl_core.randomness import SELECTION, generator
from clusterfl_core.solvers import LocalAdam, LocalSolver

__all__ = ["FedSoft", "State", "aggregation_weights", "blend", "estimate_importance"]
__all__ += ["objective", "proximal_pull", "regression_weights", "select"]


def _shares(name, given, bank=None):
    """Refuse what is no tensor of two axes, or has no column for each model of the bank."""
    if kind(name, given, torch.Tensor).ndim != 2 or not given.is_floating_point():
        raise ValueError(f"{name} must be a floating tensor [rows, columns], got {shown(given)}")
    if bank is not None and given.shape[1] != len(bank):
        raise ValueError(f"{name} must have {len(bank)} columns, got shape {list(given.shape)}")
    return given


def estimate_importance(bank, clients, smoother):
    """The share of each cluster in each client's data, as far as the k centers can tell.

    Tensor [b, k], float64: u_ij = max(n_ij / n_i, sigma), where n_ij counts the POINTS of client i
    on which center j has the lowest loss (Algorithm 1, lines 5 to 10), and sigma in [0, 1), the
    ``smoother``, is what a cluster gets that no point has chosen. Ties go to the lowest j, which
    the paper leaves open. A row sums to one plus at most (k - 1) sigma.
    """
    kind("clients", clients, Clients)
    smoother = number("smoother", smoother, "[0, 1)")
    table, votes = compute.point_loss_table(kind("bank", bank, Bank), clients), clients.mask()
    if (least := table.amin(0)).isnan().any():  # NaN is no loss
        table = torch.where(table.isnan(), torch.inf, table)
        least = table.amin(0)
    counts = []
    for losses in table:  # many times faster than argmin over so short an axis
        mine = votes & (losses == least)
        votes = votes & ~mine
        counts.append(mine.sum(1))
    counts = torch.stack(counts, 1)
    return (counts.to(widest(counts.device)) / clients.counts[:, None]).clamp(min=smoother)


def aggregation_weights(importance, counts):
    """What each client counts for each center: v_ji = u_ij n_i / sum_i' u_i'j n_i', Tensor [k, m].

    u_ij is the ``importance`` [m, k], n_i the ``counts`` [m] (line 15, eq. 6). The sum is over ALL
    clients: eq. 6 prints the selected ones, who are drawn with these very probabilities afterwards.
    A row sums to one, or is zero where no client gives the cluster any importance.
    """
    _shares("importance", importance)
    if kind("counts", counts, torch.Tensor).shape != importance.shape[:1]:
        m = len(importance)
        raise ValueError(f"counts must be of {m} clients, got shape {list(counts.shape)}")
    weights = (importance * counts[:, None]).T
    total = weights.sum(1, keepdim=True)
    return torch.where(total > 0, weights / total, 0)


def regression_weights(weights, importance):
    """The weights of the regression of local models on importance: (V U)^-1 V, Tensor [k, m].

    If the best models of mixed clients are mixtures of the k models Theta that are sought, local
    models are W = U Theta, and their mean is V W = (V U) Theta: mixed by B = V U, [k, k]. The
    regression B^-1 V W takes that back. With V of eq. 6 it is the least-squares fit of W by U, in
    which a client counts by its points, (U' N U)^-1 U' N W. Not from the paper.

    Parameters
    ----------
    weights : Tensor [k, m]
        V, rows that sum to one; a row of zeros, of a cluster without importance, stays one.
    importance : Tensor [m, k]
        U, divided by the sum of its rows here, so that again the rows found sum to one. Some are
        negative.

    Notes
    -----
    B^-1 enlarges what is in W besides U Theta, the more the more alike the clients' mixtures are:
    the least eigenvalue of B is 0.64 for 10:90 mixtures, 0.16 for 30:70, and 0 for equal ones. A
    millionth of the identity added to B leaves the mean where the mixtures say nothing.
    """
    if _shares("weights", weights).shape != _shares("importance", importance).T.shape:
        given = f"{list(weights.shape)} and {list(importance.shape)}"
        raise ValueError(f"weights must be [k, m] and importance [m, k], got {given}")
    mixing = weights @ (importance / importance.sum(1, keepdim=True))
    one = torch.eye(len(mixing), dtype=mixing.dtype)
    return torch.linalg.solve(torch.lerp(mixing, one, 1e-6), weights)


def select(weights, size, key):
    """K clients for each cluster, without replacement, by their aggregation weights (line 16).

    One client after another is drawn with probability proportional to its weight among those not
    yet drawn, the clusters independently. (So the weight is the probability of being drawn first;
    for K > 1 a client is selected more often than that.)

    Parameters
    ----------
    weights : Tensor [k, m]
        v_ji.
    size : int
        K; ValueError if it exceeds the number of clients, or of those with a positive weight.
    key : tuple of int
        (seed, round).

    Returns
    -------
    BoolTensor [k, m]
        True where the client is selected for the cluster: K a row.
    """
    clusters, m = _shares("weights", weights).shape
    size = whole("size", size)
    if not isinstance(key, tuple | list) or len(key) != 2:
        raise TypeError(f"key must be (seed, round), got {shown(key)}")
    if size > m:
        raise ValueError(f"selected must be at most the {m} clients, got {size}")
    able = (weights > 0).sum(1)
    if int(able.min()) < size:
        raise ValueError(
            f"selected must be at most the number of clients with positive importance, got {size}, "
            f"but cluster {int(able.argmin())} has {int(able.min())}; a positive smoother gives "
            "every client some"
        )
    rows = torch.multinomial(weights, size, generator=generator(SELECTION, *key))
    return torch.zeros(clusters, m, dtype=torch.bool).scatter_(1, rows, True)


def blend(bank, weights):
    """sum_j weights_ij c_j for each client: a bank of b, from k centers and weights [b, k]."""
    _shares("weights", weights, kind("bank", bank, Bank))
    columns = weights.to(bank.dtype).unbind(1)

    # A sum in fixed order, not a matrix product: a product's rounding depends on b, and a client
    # must compute the same alone and among others.
    def mix(centers):
        return sum(
            compute.column(share, centers) * one
            for share, one in zip(columns, centers, strict=True)
        )

    return bank.map(mix)


def proximal_pull(bank, importance, proximal):
    """The proximal term as a pull (a [b], t: b models) of the local solver.

    With lambda = ``proximal`` and u_ij = ``importance`` [b, k], the gradient of
    (lambda / 2) sum_j u_ij ‖w - c_j‖^2 is a_i w - t_i, where a_i = lambda sum_j u_ij and
    t_i = lambda sum_j u_ij c_j. The paper's eq. 5 is the case sum_j u_ij = 1; smoothing makes the
    sum larger.
    """
    proximal = number("proximal", proximal, "[0, inf)", "not be negative")
    weights = proximal * _shares("importance", importance, kind("bank", bank, Bank))
    return sum(weights.unbind(1)), blend(bank, weights)


def objective(personal, clients, bank, importance, proximal):
    """h_i(w_i; c, u) = F_i(w_i) + (lambda / 2) sum_j u_ij ‖w_i - c_j‖^2 (eq. 4): Tensor [b].

    ``personal`` holds w_i, the ``bank`` c_j; ``importance`` [b, k] and ``proximal`` are u and
    lambda.
    """
    proximal = number("proximal", proximal, "[0, inf)", "not be negative")
    _shares("importance", importance, kind("bank", bank, Bank))
    if len(kind("personal", personal, Bank)) != len(kind("clients", clients, Clients)):
        m = len(clients)
        raise ValueError(f"personal must hold a model for each of {m} clients, got {len(personal)}")
    pulls = (importance.to(bank.dtype) * personal.distances(bank) ** 2).sum(1)
    return compute.mean_losses(personal, clients) + proximal / 2 * pulls


@dataclass(frozen=True)
class State(contract.State):
    """What the server knows between two round trips.

    Parameters
    ----------
    seed, round, bank
        As in :class:`clusterfl_core.contract.State`; the bank holds the k centers c_j.
    assignments : Tensor [m, k]
        u_ij, the last importance each client reported; 1 / k before its first report.
    personal : Bank
        w_i, the last local model of each client, m in all. Before a client first takes part, the
        fresh model that all clients begin with.
    counts : LongTensor [m]
        n_i, which clients tell the server when they join.
    empty : LongTensor [k]
        For each cluster, how many rounds in a row no point of any client has chosen it.
    weighed : int
        The round in which importance was last estimated; -1 before.
    """

    personal: Bank
    counts: torch.Tensor
    empty: torch.Tensor
    weighed: int = -1

    def predict(self, rows, x, classes):
        """A client predicts with its personal model."""
        return compute.outputs(self.personal.take(rows), x)

    def note(self):
        """Clusters that no point has chosen."""
        return {"empty": int((self.empty > 0).sum())}


@dataclass(frozen=True)
class FedSoft:
    """Settings of the algorithm; ValueError if one lies outside its bounds.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture of every model.
    clusters : int
        k (the paper's S), the number of centers, between 1 and the number of clients.
    local : LocalSGD or LocalAdam
        How a client minimises h_i. The paper writes argmin and allows any solver.
    proximal : float
        lambda >= 0, the strength of the pull to the centers.
    selected : int, optional
        K, how many clients are selected for each cluster, fewer than all: with K = m every center
        is the mean of all local models. None: everyone takes part, and local models are averaged
        with the weights v_ji.
    interval : int
        tau, rounds from one estimate of the importance to the next.
    smoother : float
        sigma, in [0, 1); positive where clients are selected, since a cluster that no point has
        chosen would have nobody to select.
    warm_start : bool
        True: a client starts from the model it kept, w_i, as in the released code. False: it keeps
        nothing and starts from the mean of the centers by importance, where the pull is zero.
    regress_after : int, optional
        How many rounds the server averages before it regresses instead, C = (V U)^-1 V W in place
        of C = V W (:func:`regression_weights`). None: it averages always, as in the paper. Only
        where everyone takes part. Votes for random centers say little, and a regression on them can
        throw the centers far off: let 4 rounds pass.
    """

    model: nn.Module
    clusters: int
    local: LocalSolver = field(default_factory=LocalAdam)
    proximal: float = 1.0
    selected: int = None
    interval: int = 2
    smoother: float = 1e-4
    warm_start: bool = True
    regress_after: int = None

    test_protocol = staticmethod(evaluation.lowest_loss)

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        solver("local", self.local)
        keep(
            self,
            clusters=whole("clusters", self.clusters),
            proximal=number("proximal", self.proximal, "[0, inf)", "not be negative"),
            selected=whole("selected", self.selected, none=True),
            interval=whole("interval", self.interval),
            smoother=number("smoother", self.smoother, "[0, 1)"),
            regress_after=whole("regress_after", self.regress_after, 0, none=True),
            warm_start=flag("warm_start", self.warm_start),
        )
        if self.selected is not None and not self.smoother:
            raise ValueError(
                "smoother must be positive where clients are selected, got 0: a cluster that no "
                "point has chosen would have nobody to select"
            )
        if None not in (self.selected, self.regress_after):
            raise ValueError(
                f"regress_after must be None where clients are selected, got {self.regress_after}: "
                "the models of a draw are averaged plainly"
            )

    def init(self, federation, seed):
        """Draw k fresh centers, and one more fresh model with which every client begins."""
        m, k = len(federation), self.clusters
        among("clusters", k, m)
        among("selected", self.selected, m)
        fresh = Bank.fresh(self.model, k + 1, seed)
        equal = torch.full((m, k), 1 / k, dtype=torch.float64)
        none = torch.zeros(k, dtype=torch.int64)
        centers, one = fresh.take(range(k)), fresh.take([k] * m)
        return State(seed, 0, centers, equal, one, federation.train.counts, none)

    def plan(self, state):
        """Server: all clients weigh (line 4), or the selected ones train (lines 15 to 17).

        A client receives all k centers. In a round with a weighing those selected after it receive
        them a second time, as Algorithm 1 has it.
        """
        ids, kept, values = torch.arange(len(state.counts)), None, {}
        if not self.must_weigh(state):
            ids = self.shares(state).any(0).nonzero()[:, 0]
            kept = state.personal.take(ids) if self.warm_start else None
            values = {"importance": state.assignments[ids]}
        everything = torch.arange(self.clusters).expand(len(ids), -1)
        fresh = self.clusters if kept else None
        return state.jobs(ids, everything, kept=kept, values=values, fresh=fresh)

    def must_weigh(self, state):
        """Whether the next round trip weighs: once in each round with t mod tau = 0 (line 3)."""
        return state.round % self.interval == 0 and state.weighed != state.round

    def shares(self, state):
        """What each client's model counts for each center, before normalisation: Tensor [k, m].

        v_ji if everyone takes part, else 1 for the selected clients and 0 for the others (line 18).
        A client without any share does not work in the round.
        """
        weights = aggregation_weights(state.assignments, state.counts)
        if self.selected is None:
            return weights
        return select(weights, self.selected, (state.seed, state.round)).to(weights)

    def client_step(self, jobs, clients):
        """Clients: weigh (lines 5 to 10), or minimise h_i (line 17)."""
        if not jobs.values:
            importance = estimate_importance(jobs.bank, clients, self.smoother)
            return Replies(clients.ids, None, {"importance": importance})
        importance = jobs.values["importance"]
        start = jobs.kept
        if not self.warm_start:
            start = blend(jobs.bank, importance / importance.sum(1, keepdim=True))
        loss = compute.mean_losses(start, clients)
        pull = proximal_pull(jobs.bank, importance, self.proximal)
        trained = self.local.train(start, clients, jobs.key, pull)
        return Replies(clients.ids, trained, {"loss": loss})

    def passes(self, jobs):
        """Passes of a client over its data: a look at the loss of a model is a third of a step."""
        return self.local.passes if jobs.values else self.clusters / 3

    def absorb(self, state, parts):
        """Server: note the importance, or average the local models (line 18), or regress them.

        With selection a center is the plain mean over its selected clients, with everyone the mean
        with weights v_ji, or with those of the regression after ``regress_after`` rounds. Clients
        that failed are left out of each; a center without any share (nobody answered, or no
        importance and no smoother) keeps its model.
        """
        replies = Replies.join(parts)
        if replies.bank is None:
            importance = state.assignments.clone()
            importance[replies.clients] = replies.values["importance"]
            return replace(state, assignments=importance, weighed=state.round)

        shares = self.shares(state)[:, replies.clients]
        total = shares.sum(1, keepdim=True)
        weights = torch.where(total > 0, shares / total, 0)
        if self.regress_after is not None and state.round >= self.regress_after:
            weights = regression_weights(weights, state.assignments[replies.clients])

        def average(old, answers):
            new = torch.tensordot(weights.to(old), answers, dims=1)
            return torch.where(compute.column(total[:, 0] > 0, old), new, old)

        def put(old, new):
            return old.index_copy(0, replies.clients, new)

        chosen = (state.assignments > self.smoother).any(0)
        return state.next(
            bank=state.bank.map(average, replies.bank),
            personal=state.personal.map(put, replies.bank),
            empty=torch.where(chosen, 0, state.empty + 1),
        )
