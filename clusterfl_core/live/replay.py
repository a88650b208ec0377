"""What ran in the page, again in Python: the world of a laboratory and its random choices.

"Copy as Python" in a laboratory prints calls of this module. The worlds are drawn from the page's
own generator (:mod:`clusterfl_core.live.random`), and so are first models, participants, selections
and starts of k-means. So the run is the one in the page, in float64, up to rounding.

>>> import clusterfl_core as cf
>>> from clusterfl_core.live import replay
>>> federation = replay.linear(truth=[[2, 0], [0, 2]], clients=3, points=20, noise=0.1, seed=1)
>>> settings = cf.IFCA(cf.models.LinearRegression(2), clusters=2, local=cf.LocalSGD(5, 0.1))
>>> run = replay.run(settings, federation, rounds=8, models=[[1, 0], [0, 1]])
>>> run.assignments.tolist()
[0, 0, 0, 1, 1, 1]
"""

import copy
import math
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch

from clusterfl_core import check, data, grouping, simulation
from clusterfl_core.algorithms.cfl import CFL
from clusterfl_core.algorithms.clove import CLoVE, chosen_number
from clusterfl_core.algorithms.fedavg import FedAvg
from clusterfl_core.algorithms.fedem import FedEM
from clusterfl_core.algorithms.fedsoft import FedSoft, aggregation_weights
from clusterfl_core.algorithms.fine_tuned import FineTuned
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.algorithms.local_only import LocalOnly
from clusterfl_core.algorithms.one_shot import OneShot
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.live.random import stream
from clusterfl_core.models import MLP, LinearRegression
from clusterfl_core.populations.twists import relabel, turn
from clusterfl_core.solvers import LocalSGD

__all__ = ["Replayed", "bowls", "digits", "em", "fresh", "linear", "participants"]
__all__ += ["patchwork", "points", "replayed", "resting_point", "run", "select"]

# ---------------------------------------------------------------- worlds


def linear(truth, clients=6, points=8, noise=0.5, seed=0, features="normal", shares=None):
    """Linear clients from the page's generator (engine/linear.js, ``make_linear``): a Federation.

    The test clients are the training clients.

    Parameters
    ----------
    truth : list [k, d]
        theta*_j.
    clients, points : int or list of int
        Clients of each group, and points of each of its clients: one number, or one a group.
    noise : float
        Standard deviation of the noise of y.
    seed : int
        In [0, 2^32). With the group and the place of a client in it, it fixes the client's points.
    features : {"normal", "line"}
        x ~ N(0, I), or x = (uniform in [-1.5, 1.5], 1): a slope and a height.
    shares : list [groups, k], optional
        The share of each truth in the points of a group's clients. Default: group j is cluster j.
    """
    truth = check.array("truth", truth, None, None)
    if not truth.size:
        raise ValueError(f"truth must have a row a group, got shape {list(truth.shape)}")
    shares = (
        np.eye(len(truth)) if shares is None else check.array("shares", shares, None, len(truth))
    )
    if not len(shares) or shares.min() < 0 or not np.allclose(shares.sum(1), 1, atol=1e-6):
        raise ValueError(f"rows of shares must sum to one, got {check.shown(shares.tolist())}")
    groups, d = len(shares), truth.shape[1]
    clients, points = _each("clients", clients, groups), _each("points", points, groups)
    noise = check.number("noise", noise, "[0, inf)", "not be negative")
    check.one_of("features", features, "normal", "line")
    if features == "line" and d != 2:
        raise ValueError(f"truth must be slopes and heights, [k, 2], got {list(truth.shape)}")
    xs, ys, clusters = [], [], []
    for group in range(groups):
        n = points[group]
        for place in range(clients[group]):
            at = stream(seed, "sources", group, place).uniform(n)
            reached = np.cumsum(shares[group])[:-1]
            sources = (at[:, None] >= reached).sum(1)
            draw, x, wobble = stream(seed, "points", group, place), [], []
            for _ in range(n):
                row = [3 * draw.uniform(1)[0] - 1.5, 1.0] if features == "line" else draw.normal(d)
                x.append(row)
                wobble.append(draw.normal(1)[0])
            x = np.array(x)
            xs.append(torch.from_numpy(x))
            ys.append(torch.from_numpy((x * truth[sources]).sum(1) + noise * np.array(wobble)))
            clusters.append(group)
    return _federation(Clients.from_lists(xs, ys), clusters)


def points(clients, clusters=None):
    """Linear clients of points that are given, one pair (x [n, d], y [n]) a client: Federation."""
    pairs = []
    for pair in check.items("clients", clients):
        if len(both := check.items("clients", pair, 0)) != 2:
            raise ValueError(f"clients must be pairs (x, y), got {check.shown(pair)}")
        x, y = check.array("clients", both[0], None, None), check.array("clients", both[1], None)
        pairs.append([torch.from_numpy(x), torch.from_numpy(y)])
    return _federation(Clients.from_lists(*zip(*pairs, strict=True)), clusters)


def bowls(centers, stretch=1, turn=0, pairs=1):
    """Clients whose losses are given bowls (engine/bowls.js, ``make_bowls``): a Federation.

    Client i has the loss (theta - c)'A(theta - c) / 2 with the bottom c = centers[i]; A has the
    curvatures s and 1/s. The test clients are the training clients; nobody is in a cluster.

    Parameters
    ----------
    centers : list [m, 2]
        The bottoms.
    stretch, turn : float or list [m]
        s, at least 1, and the direction of the steep curvature s in degrees.
    pairs : int or list [m]
        How often a client holds the two points that make its loss; they have no noise.
    """
    made, centers = [], check.array("centers", centers, None, 2).tolist()
    bends = _each("stretch", stretch, len(centers), "[1, inf)")
    turns = _each("turn", turn, len(centers), "(-inf, inf)")
    pairs = _each("pairs", pairs, len(centers))
    for c, s, t, n in zip(centers, bends, turns, pairs, strict=True):
        cos, sin = math.cos(math.radians(t)), math.sin(math.radians(t))
        x = np.sqrt([[s], [1 / s]]) * np.array([[cos, sin], [-sin, cos]])
        made.append((np.tile(x, (n, 1)).tolist(), np.tile(x @ np.array(c), n).tolist()))
    return points(made)


def _each(name, given, count, interval=None):
    """One number or so many, as a list of so many; whole ones without an interval."""
    many = hasattr(given, "__iter__") and not isinstance(given, str | bytes)
    found = check.items(name, given, 0) if many else [given] * count
    if len(found) != count:
        raise ValueError(f"{name} must be one number or {count}, got {len(found)}")
    if interval is None:
        return [check.whole(name, one) for one in found]
    return [check.number(name, one, interval) for one in found]


def resting_point(federation, local):
    """Where FedAvg with full participation comes to rest on linear clients: Tensor [d].

    There the updates -(1 - (1 - eta A_i)^tau)(theta - c_i) sum to zero, each weighted by the
    client's points; A_i is the curvature of its loss and c_i its own best model. With one local
    step it is the minimum of the mean loss.

    Parameters
    ----------
    federation : Federation
        Linear clients, each with at least as many independent points as features.
    local : LocalSGD
    """
    if check.kind("federation", federation, Federation).classes or federation.train.x.ndim != 3:
        raise ValueError(f"federation must be of linear clients, got {federation.name!r}")
    if check.kind("local", local, LocalSGD).steps is None:
        raise ValueError("local must have steps, got epochs")
    left, side = 0, 0
    for x, y, held in zip(
        federation.train.x, federation.train.y, federation.train.mask(), strict=True
    ):
        x, y = x[held], y[held]
        bend = 2 * x.T @ x / len(x)
        eye = torch.eye(len(bend), dtype=x.dtype)
        kept = torch.linalg.matrix_power(eye - local.step_size * bend, local.steps)
        pull = len(x) * (eye - kept)
        left, side = left + pull, side + pull @ torch.linalg.lstsq(x, y).solution
    return torch.linalg.solve(left, side)


def digits(twist="rotated", clusters=4, clients=6, points=40, seed=0, angle=None):
    """Clients with digits, dealt by the page's generator (engine/digits.js, ``make_digits``).

    A Federation with one test client a cluster, who has all test images.

    Parameters
    ----------
    twist : {"rotated", "swapped", "none"}
        What a hidden cluster does to its images: turns of 360 / k degrees, or two labels that
        change places.
    clusters : int
        k.
    clients : int
        Clients of each cluster.
    points : int
        Images of each client.
    seed : int
        In [0, 2^32).
    angle : float, optional
        Turns of so many degrees more each, instead of 360 / k.
    """
    check.one_of("twist", twist, "rotated", "swapped", "none")
    clusters, clients = check.whole("clusters", clusters, 1, 5), check.whole("clients", clients)
    points = check.whole("points", points)
    angle = angle if angle is None else check.number("angle", angle, "(-inf, inf)", "be finite")
    images, m = data.load("digits"), clusters * clients
    if m * points > len(images.y_train):
        most = len(images.y_train) // m
        raise ValueError(f"points must be at most {most} for {m} clients, got {points}")
    order = stream(seed, "deal").shuffle(len(images.y_train))
    swaps = stream(seed, "labels").shuffle(10)
    changes = []
    for cluster in range(clusters):
        names, (one, other) = list(range(10)), swaps[2 * cluster : 2 * cluster + 2]
        names[one], names[other] = other, one
        degrees = (360 / clusters if angle is None else angle) * cluster
        rotated = _tilt(degrees) if degrees % 90 else turn(degrees)
        kinds = {"rotated": rotated, "swapped": relabel(names)}
        changes.append(kinds.get(twist, turn(0)))
    held = [order[i * points : (i + 1) * points] for i in range(m)]
    train = [
        changes[i // clients](images.x_train[r], images.y_train[r]) for i, r in enumerate(held)
    ]
    test = [change(images.x_test, images.y_test) for change in changes]
    truth = torch.arange(m) // clients
    parts = (Clients.from_lists(*zip(*part, strict=True)) for part in (train, test))
    return Federation(*parts, truth, torch.arange(clusters), classes=10, name="digits")


def patchwork(groups=3, angle=90, swaps=0, skew=0.0, points=40, clients=4, last=4, liars=0, seed=0):
    """A world of digits that is put together (engine/patchwork.js, ``make_patchwork``).

    Parameters
    ----------
    groups : int
        Honest groups of clients.
    angle : float
        By how much the images of a group are turned against those of the group before.
    swaps : int
        Pairs of labels that change places in each group but the first; others in each.
    skew : float
        The share of a client's images that is drawn from its two favourite digits alone.
    points : int
        Images of each client.
    clients, last : int
        Clients of each group, and of the last one.
    liars : int
        Further clients, which see images as the first group does and call each digit one more.
    seed : int
        In [0, 2^32).

    Returns
    -------
    Federation
        One test client a group, with all test images; the liars are the cluster ``groups``.
        ``truth["mix"]``, [m, 10], is the share of each digit in a client's own mix, and
        ``truth["digits"]``, [360], what the test images show.
    """
    groups, points = check.whole("groups", groups), check.whole("points", points)
    angle = check.number("angle", angle, "(-inf, inf)", "be finite")
    swaps, skew = check.whole("swaps", swaps, 0, 5), check.number("skew", skew, "[0, 1]")
    clients, last = check.whole("clients", clients), check.whole("last", last)
    liars = check.whole("liars", liars, 0)
    images, m = data.load("digits"), (groups - 1) * clients + last + liars
    if m * points > len(images.y_train):
        most = len(images.y_train) // m
        raise ValueError(f"points must be at most {most} for {m} clients, got {points}")
    sizes = [*[clients] * (groups - 1), last, liars]
    clusters = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
    favourites = stream(seed, "favourites").shuffle(10)
    views = []
    for group in range(groups):
        names, pairs = list(range(10)), stream(seed, "labels", group).shuffle(10)
        for pair in range(swaps if group else 0):
            one, other = pairs[2 * pair : 2 * pair + 2]
            names[one], names[other] = other, one
        degrees = angle * group % 360
        views.append((_tilt(degrees) if degrees % 90 else turn(degrees), relabel(names)))
    views.append((turn(0), relabel([*range(1, 10), 0])))

    def seen(x, y, cluster):
        turned, named = views[cluster]
        return named(*turned(x, y))

    order, dealt = stream(seed, "deal").shuffle(len(images.y_train)), set()
    left = [[row for row in order if images.y_train[row] == name] for name in range(10)]
    train, mix = [], []
    for i, cluster in enumerate(clusters):
        liked, held = [favourites[(2 * i + a) % 10] for a in (0, 1)], []
        for at, u in enumerate(stream(seed, "picks", i).uniform(points)):
            pool = left[liked[at % 2]] if u < skew else order
            row = next((one for one in pool if one not in dealt), None)
            held.append(next(one for one in order if one not in dealt) if row is None else row)
            dealt.add(held[-1])
        train.append(seen(images.x_train[held], images.y_train[held], cluster))
        mix.append([(1 - skew) / 10 + skew / 2 * (name in liked) for name in range(10)])
    test = [seen(images.x_test, images.y_test, group) for group in range(groups)]
    parts = (Clients.from_lists(*zip(*part, strict=True)) for part in (train, test))
    truth = {"mix": torch.tensor(mix, dtype=torch.float64), "digits": images.y_test}
    kinds = torch.tensor(clusters), torch.arange(groups)
    return Federation(*parts, *kinds, classes=10, name="digits", truth=truth)


def _tilt(degrees):
    """``turn`` in float64, as the page has it: a grey level in 256 may differ by one."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))

    def change(images, labels):
        y, x = np.mgrid[:8, :8] - 3.5
        column, row = c * x - s * y + 3.5, s * x + c * y + 3.5
        left, top = np.floor(column).astype(int), np.floor(row).astype(int)
        right, down = column - left, row - top
        wide = np.pad(images.view(-1, 8, 8).numpy().astype(float), ((0, 0), (2, 3), (2, 3)))
        near = {(a, b): wide[:, (top + 2 + a).clip(0), (left + 2 + b).clip(0)] for a, b in _CORNERS}
        above = (1 - right) * near[0, 0] + right * near[0, 1]
        below = (1 - right) * near[1, 0] + right * near[1, 1]
        found = np.floor((1 - down) * above + down * below + 0.5)
        return torch.from_numpy(found.astype(np.uint8)).view_as(images), labels

    return change


_CORNERS = (0, 0), (0, 1), (1, 0), (1, 1)


def _federation(clients, clusters):
    truth = None if clusters is None else check.wholes("clusters", clusters)
    return Federation(clients, clients, truth, truth, classes=0, name="linear clients")


# ---------------------------------------------------------------- random choices


def fresh(model, count, seed):
    """The ``count`` first models that the page draws, in float64: a Bank.

    LinearRegression: each coordinate 0 or 1. MLP: uniform within 1 / sqrt(inputs of the layer).
    """
    check.kind("model", model, LinearRegression, MLP)
    model, count = copy.deepcopy(model).double(), check.whole("count", count)
    rows = []
    for j in range(count):
        source = stream(seed, "initialization", j)
        if isinstance(model, LinearRegression):
            rows.append(source.integers(2, model.theta.numel()))
            continue
        widths = [math.sqrt(layer.in_features) for layer in (model.hidden, model.output)]
        sizes = [sum(p.numel() for p in layer.parameters()) for layer in model.children()]
        rows.append((2 * source.uniform(sum(sizes)) - 1) * np.repeat(1 / np.array(widths), sizes))
    return _bank(model, np.array(rows))


def _bank(model, rows):
    """The models of some rows of numbers, in float64."""
    skeleton = Bank(model, {n: p.detach()[None] for n, p in model.named_parameters()})
    return skeleton.unflatten(torch.tensor(rows, dtype=torch.float64))


def participants(key, clients, participation):
    """Who takes part in the round (seed, round) in the page: ids, ascending."""
    clients, key = check.whole("clients", clients), check.items("key", key, 2)
    chosen = max(1, round(check.share("participation", participation) * clients))
    if chosen == clients:
        return list(range(clients))
    order = stream(key[0], "participation", key[1]).shuffle(clients)
    return sorted(order[:chosen])


def select(weights, size, key):
    """K clients for each center in the round (seed, round) in the page: BoolTensor [k, m]."""
    if (check.array("weights", weights, None, None) < 0).any():
        raise ValueError(f"weights must not be negative, got {check.shown(weights)}")
    able = int((weights > 0).sum(1).min()) if weights.numel() else 0
    size, key = check.whole("size", size, 1, max(able, 1)), check.items("key", key, 2)
    chosen = torch.zeros(weights.shape, dtype=torch.bool)
    for j, row in enumerate(weights.tolist()):
        for at in stream(key[0], "selection", key[1], j).uniform(size).tolist():
            reached = np.cumsum(row)
            i = int(np.searchsorted(reached, at * reached[-1], side="right"))
            i = min(i, max(np.flatnonzero(row)))
            chosen[j, i], row[i] = True, 0.0
    return chosen


@dataclass(frozen=True)
class _Selecting(FedSoft):
    """FedSoft with the page's selections."""

    def shares(self, state):
        weights = aggregation_weights(state.assignments, state.counts)
        if self.selected is None:
            return weights
        return select(weights, self.selected, (state.seed, state.round)).to(weights)


@dataclass(frozen=True)
class _Starting(OneShot):
    """OneShot with the page's starts of k-means: which local models are the first centers.

    Without a number of clusters: with the page's clouds.
    """

    told: list = None

    def cluster(self, bank, seed):
        rows, groups = bank.flatten(), torch.full((len(bank),), -1)
        sound = rows.isfinite().all(1)
        if self.clusters is None:
            groups[sound] = grouping.groups(
                rows[sound],
                seed,
                self.excess,
                self.recursive,
                clouds=lambda first, n: stream(seed, "clouds", first, n),
            )
            return groups
        sent, k = rows[sound].numpy(), self.clusters
        if len(bank) < k:
            return super().cluster(bank, seed)  # which says so
        if len(sent) < k:
            return groups
        starts = self.told
        if starts is None:
            starts = [stream(seed, "starts", s).shuffle(len(sent))[:k] for s in range(self.starts)]
        for start in starts:
            if len(set(start)) != k or not set(start) <= set(range(len(sent))):
                raise ValueError(f"starts must each name {k} of the {len(sent)} local models")
        groups[sound] = _best_means(sent, starts)
        return groups


def _best_means(rows, starts):
    """Cluster of each row by k-means, the best of some starts: the rows that are first centers."""
    from sklearn.cluster import KMeans  # slow to import

    best = None
    for start in starts:
        means = KMeans(len(start), init=rows[start], n_init=1, tol=0).fit(rows)
        # By more than rounding, or two starts that end alike would be told apart by it.
        if best is None or means.inertia_ < best.inertia_ * (1 - 1e-9):
            best = means
    return torch.from_numpy(best.labels_).to(torch.int64)


@dataclass(frozen=True)
class _Clustering(CLoVE):
    """CLoVE with the page's choices: who takes part, starts of k-means, models dealt by chance."""

    def _taking_part(self, state):
        key = state.seed, state.round
        return torch.tensor(participants(key, len(state.assignments), self.participation))

    def _dealt(self, n, seed):
        source = stream(seed, "dealt")
        given = torch.from_numpy(source.integers(self.clusters, n))
        who = source.shuffle(n)[: self.clusters]
        given[who] = torch.tensor(source.shuffle(self.clusters))[: len(who)]
        return given

    def cluster(self, vectors, seed):
        rows = vectors.sqrt() if self.square_root else vectors
        different = np.sort(np.unique(rows.numpy(), axis=0, return_index=True)[1])
        count = chosen_number(rows, self.clusters) if self.search else self.clusters
        orders = [stream(seed, "starts", s).shuffle(len(different)) for s in range(self.starts)]
        labels = _best_means(rows.numpy(), [different[order[:count]] for order in orders])
        return labels.unique(return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class Replayed:
    """An algorithm whose random choices are the page's; made by :func:`replayed`.

    Parameters
    ----------
    algorithm
        The settings, with everybody taking part.
    first : Bank
        The first models.
    participation : float
        Fraction of the clients that take part in a round.
    absent : dict of int to list of int
        Clients that do not answer in a round, counted from 0.
    """

    algorithm: object
    first: Bank
    participation: float = 1.0
    absent: dict = field(default_factory=dict)

    @property
    def model(self):
        """The architecture."""
        return self.algorithm.model

    def test_protocol(self, state, federation):
        """The algorithm's own."""
        return self.algorithm.test_protocol(state, federation)

    def init(self, federation, seed):
        """The algorithm's own first state, with the first models of the page."""
        state, first, m = self.algorithm.init(federation, seed), self.first, len(federation)
        if isinstance(self.algorithm, FedSoft):
            k = self.algorithm.clusters
            return replace(state, bank=first.take(range(k)), personal=first.take([k] * m))
        return replace(state, bank=first if len(first) > 1 else first.take([0] * len(state.bank)))

    def plan(self, state):
        """The algorithm's own jobs, of those who take part and answer."""
        jobs, asked = self.algorithm.plan(state), range(len(state.assignments))
        everybody = (isinstance(self.algorithm, OneShot) and state.round == 0) or (
            isinstance(self.algorithm, FineTuned) and state.round >= self.algorithm.after
        )
        if not everybody:
            asked = participants((state.seed, state.round), len(asked), self.participation)
        there = set(asked) - set(self.absent.get(state.round, ()))
        return jobs.take([row for row, i in enumerate(jobs.clients.tolist()) if i in there])

    def client_step(self, jobs, clients):
        """The algorithm's own."""
        return self.algorithm.client_step(jobs, clients)

    def absorb(self, state, parts):
        """The algorithm's own."""
        return self.algorithm.absorb(state, parts)


def run(algorithm, federation, rounds, *, seed=0, models=None, absent=None, starts=None):
    """The Run of a laboratory: :func:`clusterfl_core.run` in float64, with the page's choices.

    Parameters
    ----------
    algorithm, models, absent, starts
        As in :func:`replayed`.
    federation : Federation
        A world of this module.
    rounds : int
    seed : int
        In [0, 2^32).
    """
    seed = check.whole("seed", seed, 0, 2**32 - 1)
    settings = replayed(algorithm, seed, models, absent, starts)
    return simulation.run(settings, federation, rounds, seed=seed, device="cpu", progress=False)


def replayed(algorithm, seed=0, models=None, absent=None, starts=None):
    """An algorithm with the page's choices, in float64: :class:`Replayed`.

    Parameters
    ----------
    algorithm
        FedAvg, FineTuned, LocalOnly, OneShot, IFCA, CLoVE, CFL, FedSoft or FedEM.
    seed : int
        In [0, 2^32); for first models that are not told.
    models : list of list of float, optional
        The first models, a row each: k for IFCA, CLoVE and FedEM; k for FedSoft, whose clients
        begin with the first, or k + 1, whose last they begin with; else 1. Default: drawn as the
        page draws them.
    absent : dict of int to list of int, optional
        Clients that do not answer in a round, counted from 0.
    starts : list of list of int, optional
        For OneShot: the local models that are k-means' first centers, for each start.
    """
    check.kind("algorithm", algorithm, FedAvg, LocalOnly, OneShot, IFCA, CLoVE, CFL, FedSoft, FedEM)
    check.kind("absent", absent, dict, none=True)
    told = {one.name: getattr(algorithm, one.name) for one in fields(algorithm)}
    told["model"] = model = copy.deepcopy(algorithm.model).double()
    participation, kind, count = told.get("participation", 1.0), type(algorithm), 1
    told |= {"participation": 1.0} if "participation" in told else {}
    if kind is OneShot:
        kind, told = _Starting, told | {"told": starts}
    elif kind is FedSoft:
        kind, count = _Selecting, algorithm.clusters + 1
    elif kind is CLoVE:  # which has no other participants, and so needs no others here
        kind, count = _Clustering, algorithm.clusters
        told |= {"participation": participation}
        participation = 1.0
    elif kind in (IFCA, FedEM):
        count = algorithm.clusters
    if models is None:
        first = fresh(model, count, seed)
    else:
        size = sum(parameter.numel() for parameter in model.parameters())
        models = check.array("models", models, None, size).tolist()
        again = kind is _Selecting and len(models) == algorithm.clusters
        first = _bank(model, [*models, models[0]] if again else models)
    if len(first) != count:
        raise ValueError(f"models must be {count}, got {len(first)}")
    return Replayed(kind(**told), first, participation, dict(absent or {}))


def em(federation, clusters, rounds, *, soft=False, noise=0.3, seed=0, models=None):
    """EM on linear clients, hard or soft, as in the page (engine/em.js; chapter 3 of the book).

    Parameters
    ----------
    federation : Federation
        A linear world of this module.
    clusters, rounds : int
    soft : bool
        True: responsibilities. False: each client takes the model with the lowest loss.
    noise : float or list of float
        sigma, for soft EM: one number, or one a round.
    seed : int
        Fixes the first models where none are given.
    models : list [k, d], optional

    Returns
    -------
    models, shares, q : Tensor [k, d], [k], [m, k]
        After the last M-step; q is the last E-step's answer.
    """
    if check.kind("federation", federation, Federation).classes or federation.train.x.ndim != 3:
        raise ValueError(f"federation must be of linear clients, got {federation.name!r}")
    clusters, rounds = check.whole("clusters", clusters), check.whole("rounds", rounds, 0)
    soft, seed = check.flag("soft", soft), check.whole("seed", seed, 0, 2**32 - 1)
    noise = [check.positive("noise", one) for one in noise] if isinstance(noise, list) else noise
    noise = noise if isinstance(noise, list) else check.positive("noise", noise)
    if models is not None:
        models = check.array("models", models, clusters, federation.train.x.shape[2])
    clients, mask = federation.train, federation.train.mask()
    if models is None:
        models = fresh(LinearRegression(clients.x.shape[2]), clusters, seed).tensors["theta"]
    models = torch.as_tensor(models, dtype=torch.float64)
    shares = torch.full((clusters,), 1 / clusters, dtype=torch.float64)
    q = shares.expand(len(clients), clusters)
    sigmas = noise if isinstance(noise, list) else [noise] * rounds
    for sigma in sigmas:
        missed = torch.where(mask[..., None], clients.y[..., None] - clients.x @ models.T, 0)
        losses = (missed**2).sum(1)
        if soft:
            q = (shares.log() - losses / (2 * sigma**2)).softmax(1)
        else:
            q = torch.nn.functional.one_hot((losses).argmin(1), clusters).double()
        left = torch.einsum("mj,mn,mna,mnb->jab", q, mask.double(), clients.x, clients.x)
        side = torch.einsum("mj,mn,mna,mn->ja", q, mask.double(), clients.x, clients.y)
        fitted = torch.linalg.lstsq(left, side[..., None], driver="gelsd").solution[..., 0]
        models = torch.where(q.sum(0)[:, None] > 1e-9, fitted, models)
        shares = q.mean(0)
    return models, shares, q
