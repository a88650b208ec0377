"""What a practitioner can see without the truth, and which methods that speaks for.

Who has clients knows neither their kind nor a number of groups. But one model for all can be
trained for some rounds, every client can train alone, and both can be judged on points that the
clients hold back. :func:`diagnose` does this, looks at the models that come of it, and advises.

The rule of the advice was found on composed populations (:func:`clusterfl_core.composing.compose`)
of scikit-learn's digits, then tried on others: ``RECORD`` says how often it was right. About other
data, networks and purses it is a guess, and so the report says what it rests on.

>>> import clusterfl_core as cf
>>> found = diagnose(cf.comparison.build("hard", seed=0))
>>> found.clients, found.points, found.classes, found.groups
(24, 40.0, 10.0, 4)
>>> found.sort, found.advice[0], found.models, found.passes
('groups', 'CLoVE', 44.0, 450.0)
"""

from dataclasses import dataclass

import numpy as np
import torch

from clusterfl_core import evaluation, grouping, models, simulation
from clusterfl_core.algorithms.fine_tuned import FineTuned
from clusterfl_core.algorithms.local_only import LocalOnly
from clusterfl_core.check import share, solver, whole
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.randomness import generator
from clusterfl_core.similarity import cosine_similarity
from clusterfl_core.solvers import LocalSGD

__all__ = ["Diagnosis", "best_cut", "diagnose", "held_back"]

OWN = 5  # rounds in which each client goes on alone from the one model
HERE = {"device": "cpu", "keep": False}

# What was seen: which methods that speaks for, the first one first.
ADVICE = {
    "groups": ("CLoVE", "OneShot"),
    "contradiction": ("CFL", "FineTuned"),
    "neither": ("FineTuned", "FedAvg"),
}
WORDS = {
    "groups": "the models trained alone form groups",
    "contradiction": "no groups are seen, but one model for all is worse than training alone",
    "neither": "no groups are seen, and one model for all is better than training alone",
}
# Populations never seen before: how many there were, on how many the first method was right, within
# two points of the best of eleven, and how many points it was behind, on average and at worst.
RECORD = {
    "groups": (9, 5, 2.8, 9.0),
    "contradiction": (8, 5, 1.3, 4.1),
    "neither": (31, 25, 1.6, 11.4),
}


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` saw.

    Parameters
    ----------
    clients : int
        m.
    points, classes : float
        Points and different labels of the client in the middle (median), before any are held back.
    of_classes : int
        Classes of the federation.
    answers : float
        Share of the clients that answered in a round of federated averaging, mean over the rounds.
    alone, shared, tuned : float
        Accuracy on the points held back, in [0, 1], mean over the clients: of training alone, of
        one model for all, and of that model after a few rounds of each client's own.
    gap, gain : tuple of float
        ``shared`` less ``alone``, and ``tuned`` less ``shared``: the mean over the clients, and its
        standard error.
    groups : int
        Groups that :func:`clusterfl_core.grouping.groups` finds among the models trained alone.
    excess : float
        By how much the silhouette of their best cut exceeds clouds without groups
        (:func:`best_cut`), whether or not that is enough to be called groups.
    within, across : float
        Mean cosine of the first updates of two clients on one side of this cut, and on two.
    lengths : float
        The longest first update over the median one, at least 1.
    rest : float
        After federated averaging: the length of the mean update over the longest, in [0, 1]. Where
        clients disagree their updates stay long and cancel.
    models, passes : float
        The price of it all: models moved, and passes over its data, a client (NaN if ``local`` does
        not say how many it makes).
    """

    clients: int
    points: float
    classes: float
    of_classes: int
    answers: float
    alone: float
    shared: float
    tuned: float
    gap: tuple
    gain: tuple
    groups: int
    excess: float
    within: float
    across: float
    lengths: float
    rest: float
    models: float
    passes: float

    @property
    def sort(self):
        """A key of ``ADVICE``.

        "groups" where there is more than one; else "contradiction" where the gap is negative; else
        "neither".
        """
        return "groups" if self.groups > 1 else "contradiction" if self.gap[0] < 0 else "neither"

    @property
    def advice(self):
        """The methods that this speaks for, the first one first: names in ``composing.METHODS``."""
        return ADVICE[self.sort]

    def __str__(self):
        (gap, gap_error), (gain, gain_error) = self.gap, self.gain
        some = "none" if self.groups == 1 else f"{self.groups} of them"
        asked, right, behind, worst = RECORD[self.sort]
        return (
            f"{self.clients} clients with {self.points:g} points and {self.classes:g} of "
            f"{self.of_classes} classes (median); {self.answers:.0%} answer\n"
            f"points held back: alone {self.alone:.1%}, one model for all {self.shared:.1%}, "
            f"after own steps {self.tuned:.1%}\n"
            f"gap {100 * gap:+.1f} ± {100 * gap_error:.1f}, gain {100 * gain:+.1f} ± "
            f"{100 * gain_error:.1f} points (one standard error)\n"
            f"groups among the models trained alone: {some}; best cut {self.excess:+.2f} above "
            f"clouds without groups ({grouping.LEAST} is asked)\n"
            f"first updates: cosine {self.within:.2f} within the cut, {self.across:.2f} across; "
            f"longest over median {self.lengths:.1f}; at rest mean over longest {self.rest:.2f}\n"
            f"advice: {', then '.join(self.advice)}; {WORDS[self.sort]}\n"
            f"of {asked} such populations never seen before it was right on {right}; {behind} "
            f"points behind the best method on average, {worst} at worst\n"
            f"price: {self.models:.0f} models moved and {self.passes:.0f} passes a client"
        )


def diagnose(federation, model=None, *, local=None, rounds=20, participation=1.0, seed=0):
    """Measure what can be seen without the truth: a :class:`Diagnosis`.

    Every client holds back a fourth of its points (:func:`held_back`). On the rest all train alone,
    from one start, and one model is trained by federated averaging for as many rounds, which then
    each client trains alone for five more. Test clients and true clusters are not looked at.

    Parameters
    ----------
    federation : Federation
        At least four clients, each with two points at least; y are labels.
    model : torch.nn.Module, optional
        The network. Default: one hidden layer of 16 units, as in chapter 13's comparison.
    local : LocalSGD or LocalAdam, optional
        What a client does in a round. Default: 10 full-batch steps of 0.4.
    rounds : int
        Rounds of federated averaging, and of training alone.
    participation : float
        Share of the clients that answer in a round of federated averaging, in (0, 1].
    seed : int
        Of the first model, of who answers, and of the clouds.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of bounds, before anything is trained.
    clusterfl_core.simulation.Diverged
        If a model did not stay finite: the step size is too large.
    """
    rounds, participation = whole("rounds", rounds), share("participation", participation)
    seed, local = whole("seed", seed, 0), LocalSGD(10, 0.4) if local is None else local
    solver("local", local)
    people = held_back(federation)
    everyone = torch.arange(len(people))
    if not people.classes:
        raise ValueError("y must be labels, for accuracies are compared; got responses")
    if len(people) < 4:
        raise ValueError(f"federation needs 4 clients at least, got {len(people)}")
    if model is None:
        with torch.random.fork_rng(devices=[]):  # a layer draws from the global generator
            model = models.MLP(people.train.x[0, 0].numel(), 16, people.classes)
    averaging = FineTuned(model, local, participation, after=rounds, tune=local)
    lone = list(simulation.rounds(LocalOnly(model, local), people, rounds, seed=seed, **HERE))
    both = list(simulation.rounds(averaging, people, rounds + OWN, seed=seed, **HERE))

    def judged(one):
        return evaluation.personal_quality(one.state, people, everyone, people.test)

    def updates(one, start):
        return (one.state.bank.flatten() - start.flatten()).double()

    alone, shared, tuned = map(judged, (lone[-1], both[rounds - 1], both[-1]))
    start, own = lone[0].before.bank, federation.train
    first, last = updates(lone[0], start), updates(lone[-1], start)
    resting, length = updates(both[rounds], both[rounds].before.bank), first.norm(dim=1)
    excess, cut = best_cut(last, seed)
    alpha, same = cosine_similarity(first), cut[:, None] == cut
    moved = sum(one.bytes_down + one.bytes_up for one in both) / start.bytes_of_one()
    asked = sum(len(one.jobs.clients) for one in both)
    return Diagnosis(
        clients=len(people),
        points=float(np.median(own.counts)),
        classes=float(np.median([len(own.points(i)[1].unique()) for i in everyone.tolist()])),
        of_classes=people.classes,
        answers=float(np.mean([len(one.replies.clients) for one in both[:rounds]])) / len(people),
        alone=float(alone.mean()),
        shared=float(shared.mean()),
        tuned=float(tuned.mean()),
        gap=_mean(shared - alone),
        gain=_mean(tuned - shared),
        groups=int(grouping.groups(last, seed).max()) + 1,
        excess=excess,
        within=float(alpha[same & ~torch.eye(len(people), dtype=torch.bool)].mean()),
        across=float(alpha[~same].mean()) if not same.all() else float("nan"),
        lengths=float(length.max() / max(np.median(length), 1e-30)),
        rest=float(resting.mean(0).norm() / max(resting.norm(dim=1).max(), 1e-30)),
        # and three that are not sent otherwise: the first, the last, and the one at rest
        models=moved / len(people) + 3,
        passes=getattr(local, "passes", float("nan")) * (asked / len(people) + rounds),
    )


def held_back(federation):
    """The same clients with each fourth point of their own held back, and nothing else known.

    Of a client's points 0, 1, 2, ... those numbered 3, 7, 11, ... are held back, of fewer than four
    points the last one. No dice are thrown: whoever holds the points, under whatever name, the same
    ones are held back. They are the test part of the Federation returned, the rest its training
    part. TypeError or ValueError if that cannot be: each client needs two points at least.
    """
    if not isinstance(federation, Federation):
        raise TypeError(f"federation must be a Federation, got {type(federation).__name__}")
    own = federation.train
    if int(own.counts.min()) < 2:
        poor = int(own.counts.argmin())
        raise ValueError(f"each client needs two points, one to hold back; client {poor} has one")
    parts = [], []
    for i, n in enumerate(own.counts.tolist()):
        back = torch.arange(n) % 4 == 3
        back[-1] |= n < 4
        for part, rows in zip(parts, (~back, back), strict=True):
            part.append((own.x[i, :n][rows], own.y[i, :n][rows]))
    near, far = (Clients.from_lists(*zip(*part, strict=True)) for part in parts)
    return Federation(near, far, classes=federation.classes, name=federation.name)


def best_cut(rows, seed):
    """The cut of rows [m, p] that stands out most, and by how much.

    As :func:`clusterfl_core.grouping.groups` looks for it, which asks for ``LEAST``: of the cuts of
    Ward's tree into 2, 3, ..., m // 2 groups the one whose silhouette exceeds most the mean of 99
    clouds that spread alike.

    Returns
    -------
    excess : float
        0 where all rows are equal.
    cut : LongTensor [m]
        The group of each row; one only where all rows are equal.
    """
    rows = np.asarray(rows, dtype=float)
    if (rows == rows[0]).all():
        return 0.0, torch.zeros(len(rows), dtype=torch.int64)
    source = generator("clouds without groups", seed, 0, len(rows))
    scores, clouds = grouping.against_clouds(rows, source)
    excess = scores - clouds.mean(0)
    return float(excess.max()), torch.from_numpy(grouping.cuts(rows)[0][excess.argmax()])


def _mean(values):
    """The mean over the clients, and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)
