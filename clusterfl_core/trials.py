"""IFCA's regression experiments: all runs on one data set as one batch (section 6.1, figure 3).

A trial draws one data set and asks whether IFCA finds the true parameters from at least one of S
random starts with at least one of G step sizes: S G runs of T rounds of option I, everyone taking
part. The runs share nothing but the data, and reading the data is what a round costs. So a round
of all runs is one pass: a few clients at a time, X_i times the k S G models at once, then for each
run the gradient of the one model that the client chose. The numbers are those of
``run(IFCA(LinearRegression(d), k, LocalSGD(1, gamma), option="gradients"), ...)``, up to the order
in which sums are rounded.

>>> import torch
>>> import clusterfl_core as cf
>>> truth = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
>>> federation = cf.populations.regression(truth, clients=6, points=20, noise=0.1)
>>> starts = cf.trials.first_models(features=2, clusters=2, seeds=range(3))
>>> trial = cf.trials.regression_trial(federation, starts, steps=[0.5, 0.01], rounds=40)
>>> trial.success(noise=0.1).tolist()  # a row a step size, a column a start
[[True, True, True], [False, False, False]]
>>> trial.identities[0, 0].tolist()
[1, 1, 1, 0, 0, 0]
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import product

import torch

from clusterfl_core import check, evaluation, populations, theory
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Federation
from clusterfl_core.evaluation import loss_and_lowest
from clusterfl_core.machine import named_device
from clusterfl_core.models import LinearRegression

__all__ = [
    "Trial", "figure_3", "first_models", "regression_trial", "success_rates", "success_trial",
]  # fmt: skip

# Bytes of X handled at once. On a CPU they stay in its cache from the one product to the other;
# a GPU wants one large product.
CHUNK = {"cpu": 1 << 22}
LARGE = 1 << 28


@dataclass(frozen=True)
class Trial:
    """What came of G step sizes times S starts on one data set.

    Parameters
    ----------
    theta : Tensor [G, S, k, d]
        The models after the last round; of a run that diverged, the last finite ones.
    identities : LongTensor [G, S, m]
        The identity each client reported in that round; -1 if it was never asked.
    diverged : LongTensor [G, S]
        The round, from 1, in which a loss or a model was not finite any more; 0 for never. Where
        :func:`clusterfl_core.run` would stop the run with ``Diverged``.
    matched, nearest : Tensor [G, S], float64
        Distance to the truth, in both readings of
        :func:`clusterfl_core.theory.distance_to_truth`; infinite for a run that diverged.
    identity_accuracy : Tensor [G, S], float64
        Fraction of the clients with the right identity, under the best matching of names.
    """

    theta: torch.Tensor
    identities: torch.Tensor
    diverged: torch.Tensor
    matched: torch.Tensor
    nearest: torch.Tensor
    identity_accuracy: torch.Tensor

    def success(self, noise, reading="matched"):
        """Which runs found the truth: dist <= 0.6 sigma, or 0.001 where there is no noise: [G, S].

        ``noise`` is sigma of the data, ``reading`` "matched" or "nearest": which distance; the
        authors' code takes the nearest truth. A run that diverged has failed.
        """
        check.one_of("reading", reading, "matched", "nearest")
        return theory.succeeded(getattr(self, reading), noise)


def first_models(features, clusters, seeds, dtype=torch.float32):
    """The models with which IFCA begins, a set for each of S ``seeds`` of ``run``: [S, k, d].

    Each coordinate is 0 or 1 with probability 1/2 (section 6.1).
    """
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a floating type of torch, got {check.shown(dtype)}")
    model = LinearRegression(features).to(dtype)
    seeds = check.items("seeds", seeds)
    return torch.stack([Bank.fresh(model, clusters, s).tensors["theta"] for s in seeds])


def regression_trial(federation, starts, steps, rounds, *, device="auto"):
    """Run IFCA, option I, from every start with every step size: a :class:`Trial`.

    ValueError if an argument is out of bounds.

    Parameters
    ----------
    federation : Federation
        Linear regression whose truth is known, as :func:`clusterfl_core.populations.regression`
        makes it. Clients may hold different numbers of points.
    starts : Tensor [S, k, d]
        The models each start begins with, k as many as the true ones. Their floating type is that
        of the whole computation; float32 takes half the time of float64.
    steps : sequence of float
        G step sizes gamma.
    rounds : int
        T. A round costs 2 n_i d (k + 1) S G operations a client: k products of the data with a
        model to choose, one product back for the gradient.
    device : str
        As in :func:`clusterfl_core.run`.
    """
    steps, rounds = _check(federation, starts, steps, rounds)
    device, train = named_device(device), federation.train
    (s, k, d), g, m = starts.shape, len(steps), len(federation)
    x, y = train.inputs(starts.dtype), train.y.to(starts.dtype)
    if int(train.counts.min()) < x.shape[1]:
        # An empty point adds nothing to a loss or a gradient, so none needs to be left out.
        x = torch.where(train.mask()[:, :, None], x, 0)
        y = torch.where(train.mask(), y, 0)
    x, y, counts = (part.to(device) for part in (x, y, train.counts.to(starts.dtype)))
    # Runs lie in rows, step after step; the ones that have diverged leave the batch.
    theta = starts.detach().to(device).repeat(g, 1, 1)
    rates = torch.tensor([float(step) for step in steps], dtype=starts.dtype, device=device)
    rates = rates.repeat_interleave(s)
    final, identities = theta.clone(), torch.full((g * s, m), -1, device=device)
    diverged = torch.zeros(g * s, dtype=torch.int64, device=device)
    alive = torch.arange(g * s, device=device)
    for t in range(1, rounds + 1):
        losses, chosen, total = _round(theta, x, y, counts)
        moved = theta - (rates / m)[:, None, None] * total
        sound = losses.isfinite().all(1) & moved.flatten(1).isfinite().all(1)
        if not sound.all():
            diverged[alive[~sound]] = t
            alive, rates, moved, chosen = (a[sound] for a in (alive, rates, moved, chosen))
            if not len(alive):
                break
        theta = moved
        final[alive], identities[alive] = theta, chosen
    final, identities = final.cpu(), identities.cpu()
    truth = federation.truth["theta"]
    gaps = torch.full((g * s, 2), float("inf"), dtype=torch.float64)
    for run in alive.tolist():
        gaps[run] = torch.tensor(theory.distance_to_truth(final[run], truth), dtype=gaps.dtype)
    hits = [evaluation.identity_accuracy(one, federation.clusters) for one in identities]
    matched, nearest = gaps.view(g, s, 2).unbind(2)
    hits = torch.tensor(hits, dtype=torch.float64).view(g, s)
    theta, identities = final.view(g, s, k, d), identities.view(g, s, m)
    return Trial(theta, identities, diverged.cpu().view(g, s), matched, nearest, hits)


def _round(theta, x, y, counts):
    """One round of r runs: models [r, k, d] -> losses and identities [r, m], sums [r, k, d].

    The losses are those of the chosen models, the sums those of the clients' gradients by
    identity, which the server multiplies by gamma / m.
    """
    (r, k, d), (m, n) = theta.shape, y.shape
    losses, chosen = theta.new_empty(r, m), torch.empty(r, m, dtype=torch.int64, device=x.device)
    total, runs = torch.zeros_like(theta), torch.arange(r, device=x.device)[:, None]
    # Equal models must have equal losses to the last bit, which one product of all does not
    # promise: the first of them speaks for the others, and the tie goes to it.
    first = (theta[:, :, None] == theta[:, None]).all(3).to(torch.int8).argmax(2)
    size = max(1, CHUNK.get(x.device.type, LARGE) // (n * d * x.element_size()))
    for rows in range(0, m, size):
        part, some = slice(rows, rows + size), x[rows : rows + size]
        wrong = theta.view(r * k, d) @ some.flatten(0, 1).T
        wrong = wrong.view(r, k, len(some), n).sub_(y[part])
        table = (wrong.square().sum(3) / counts[part])[runs, first].transpose(1, 2)
        losses[:, part], picks = (
            found.view(r, -1) for found in loss_and_lowest(table.flatten(0, 1))
        )
        chosen[:, part] = picks
        clients = torch.arange(len(some), device=x.device)
        slopes = wrong[runs, picks, clients] * (2 / counts[part])[:, None]
        gradients = slopes.transpose(0, 1) @ some  # [clients, r, d]
        member = torch.nn.functional.one_hot(picks, k).to(theta)
        total += member.transpose(1, 2) @ gradients.transpose(0, 1)
    return losses, chosen, total


def _check(federation, starts, steps, rounds):
    truth = check.kind("federation", federation, Federation).truth.get("theta")
    check.kind("starts", starts, torch.Tensor)
    if federation.classes or truth is None or federation.clusters is None:
        raise ValueError(
            "federation must be a linear regression with truth['theta'] and clusters, "
            f"got {federation.name!r}"
        )
    if starts.ndim != 3 or not len(starts) or starts.shape[1:] != truth.shape:
        raise ValueError(
            f"starts must be [S, {truth.shape[0]}, {truth.shape[1]}], as many models as the truth "
            f"has, got shape {tuple(starts.shape)}"
        )
    if not starts.is_floating_point():
        raise ValueError(f"starts must be floating-point numbers, got {starts.dtype}")
    steps = [
        check.number("steps", step, "[-inf, inf]", "be positive and finite")
        for step in check.items("steps", steps, 0)
    ]
    if not len(steps) or not all(0 < step < float("inf") for step in steps):
        raise ValueError(f"steps must be positive and finite, at least one, got {list(steps)}")
    if not starts.isfinite().all():
        raise ValueError("starts must be finite")
    return steps, check.whole("rounds", rounds)


# ---------------------------------------------------------------- figure 3

_GRID = {"noise": [0.0, 0.1, 0.2, 0.4], "scale": [0.1, 0.25, 0.5, 0.75, 1.0]}
_LINES = {"points": [50, 100, 200], "noise": [0.1]}
PANELS = {
    "a": {"clusters": [2], "clients": [100], "points": [100], **_GRID},
    "b": {"clusters": [4], "clients": [400], "points": [100], **_GRID},
    "c": {"clusters": [2], "clients": [50, 70, 100, 150, 200, 300, 400], **_LINES, "scale": [0.1]},
    "d": {"clusters": [4], "clients": [100, 200, 300, 400, 800], **_LINES, "scale": [0.5]},
}
STEPS = {2: (1.0, 0.1, 0.01), 4: (2.0, 1.0, 0.5)}


def figure_3(panel):
    """The settings of a panel of figure 3: a list of arguments of :func:`success_trial`.

    The panels show success against R and sigma, k = 2 ("a") or 4 ("b"); against m and n, k = 2
    ("c") or 4 ("d"). The text gives (m, n, d, k) of (a) and (b) and (R, d) of (c) and (d); the rest
    is read off the figure. The paper has 40 trials a point, each with another seed.
    """
    if not isinstance(panel, str) or panel not in PANELS:
        raise ValueError(f"panel must be one of {sorted(PANELS)}, got {check.shown(panel)}")
    axes = PANELS[panel]
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [{**point, "features": 1000, "steps": STEPS[point["clusters"]]} for point in points]


def success_trial(
    scale,
    noise,
    clients,
    points,
    features,
    clusters,
    steps,
    seed=0,
    *,
    starts=10,
    rounds=300,
    reading="coordinate",
    device="auto",
):
    """One trial of figure 3: a fresh data set, some starts, every step size.

    ``scale``, ``noise``, ``clients``, ``points``, ``features``, ``clusters`` and ``reading`` are R,
    sigma, m, n, d, k and the reading of R, as in
    :func:`clusterfl_core.populations.bernoulli_regression`; ``steps``, ``rounds`` and ``device``
    are as in :func:`regression_trial`. ``seed`` is the number of the trial: it fixes the truth, the
    data, and the starts, which are those of ``run`` with the seeds ``seed * starts`` and following.

    Returns
    -------
    dict
        Plain numbers and lists, fit for JSON: all settings, and for each step and start (lists in
        lists) ``matched``, ``nearest`` (None if the run diverged), ``identity_accuracy`` and
        ``diverged``, as in :class:`Trial`; ``success`` and ``success_nearest``, whether any run
        found the truth by either distance; ``best_identity_accuracy``, that of the run with the
        smallest matched distance; and ``seconds``.
    """
    settings = {name: value for name, value in locals().items() if name != "device"}
    settings["steps"] = check.items("steps", steps)
    starts, seed = check.whole("starts", starts), check.whole("seed", seed, 0)
    began = time.perf_counter()
    federation = populations.bernoulli_regression(
        scale, clients, points, features, clusters, noise, seed, reading=reading
    )
    first = first_models(features, clusters, range(seed * starts, (seed + 1) * starts))
    trial = regression_trial(federation, first, steps, rounds, device=device)
    sound = trial.diverged == 0

    def finite(distances):  # JSON knows no infinity
        rows = zip(distances.tolist(), sound.tolist(), strict=True)
        return [[v if ok else None for v, ok in zip(*row, strict=True)] for row in rows]

    return settings | {
        "matched": finite(trial.matched),
        "nearest": finite(trial.nearest),
        "identity_accuracy": trial.identity_accuracy.tolist(),
        "diverged": trial.diverged.tolist(),
        "success": bool(trial.success(noise).any()),
        "success_nearest": bool(trial.success(noise, "nearest").any()),
        "best_identity_accuracy": float(trial.identity_accuracy.flatten()[trial.matched.argmin()]),
        "seconds": time.perf_counter() - began,
    }


def success_rates(records, *names, reading="matched"):
    """The share of trials that succeeded for each setting, and their number.

    ``records`` are what :func:`success_trial` returned; ``names`` the settings that tell the points
    of a figure apart, for example "noise" and "scale"; ``reading`` "matched" or "nearest". A dict
    of tuple to (float, int), in order of appearance.
    """
    check.one_of("reading", reading, "matched", "nearest")
    found, outcome = defaultdict(list), "success" if reading == "matched" else "success_nearest"
    for record in check.items("records", records, 0):
        if missing := [
            n for n in (*names, outcome) if n not in check.kind("records", record, dict)
        ]:
            raise ValueError(f"records must have {missing[0]!r}, got {check.shown(list(record))}")
        found[tuple(record[name] for name in names)].append(record[outcome])
    return {key: (sum(hits) / len(hits), len(hits)) for key, hits in found.items()}
