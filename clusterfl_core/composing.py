"""Clients composed of parts, dealt so that a search and its judge share no image.

A :class:`Recipe` says how clients differ: in what they see, what they call it, how much they hold,
which classes, whether they lie, how many answer. ``RECIPES`` are the kinds of chapter 13; a number
draws a recipe of its own (:func:`compose`). :func:`deal` makes clients of it, and :func:`make` the
methods as ``book/protocol_choosing.md`` charges them.

>>> recipe = compose(1000)
>>> people = deal(recipe, seed=0)
>>> len(people), people.train.counts.unique().tolist(), people.test.counts.unique().tolist()
(18, [40], [360])
>>> compose(1000).words == recipe.words
True
"""

from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import torch

from clusterfl_core import comparison, compute, data, diagnosis
from clusterfl_core.algorithms import fedsoft
from clusterfl_core.check import one_of
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.contract import Replies
from clusterfl_core.populations import twists
from clusterfl_core.randomness import participants

__all__ = [
    "METHODS", "PEOPLE", "RECIPES", "LeanFedSoft", "Recipe", "answering", "build", "compose",
    "deal", "held_back", "judge", "make", "persons",
]  # fmt: skip

METHODS = (
    "LocalOnly", "FedAvg", "FineTuned", "OneShot", "OneShot?", "CLoVE", "IFCA", "CFL", "FedSoft",
    "FedSoft+", "FedEM",
)  # fmt: skip
SEARCHED = 960  # digits that a search may see; of the other 837 a final round draws its test
HELD_OUT = 360
PEOPLE = ("writers", "slant")
SEATS = 24  # clients that are persons
STABLE = 3  # rounds without a change after which IFCA and CLoVE send a client one model


@dataclass(frozen=True)
class Recipe:
    """How the clients of a population differ.

    Parameters
    ----------
    views : tuple of dict
        ``turn`` in degrees, ``mirror`` and ``labels`` (new names of the classes), as far as a view
        has them.
    shares : Tensor [m, views]
        The share of each view in the data of each client; rows sum to one.
    points : int
        Training images a client.
    skew : float, optional
        Each client has classes of its own, by Dirichlet shares with this parameter. None: all.
    liars : int
        So many of the last clients lie: they have the last view, and are not judged.
    answer : float
        Share of the clients that answer in a round, in (0, 1]; in the first one all do.
    words : str
        The same for readers.
    """

    views: tuple
    shares: torch.Tensor
    points: int = 40
    skew: float = None
    liars: int = 0
    answer: float = 1.0
    words: str = ""


def _groups(*sizes):
    return torch.eye(len(sizes)).repeat_interleave(torch.tensor(sizes), 0)


def _recipes():
    found = {}
    for kind, (views, shares, points) in comparison.KINDS.items():
        views = tuple(view | {"turn": 90 * view.get("turn", 0)} for view in views)
        skew, liars = (0.3 if kind == "skewed" else None), (6 if kind == "liars" else 0)
        found[kind] = Recipe(views, shares, points, skew, liars, words=kind)
    found["both"] = replace(found["hard"], skew=0.3, words="both")  # turned AND skewed
    return found


RECIPES = _recipes()


def compose(number):
    """The recipe with this number, a whole number from 0: every part is drawn independently.

    m in 12, 18, 24 clients; none (twice as likely) or 2, 3, 4 groups, which differ by turns of 30,
    60 or 90 degrees each, by 1, 2 or 4 swapped pairs of names, or by both; even or halving sizes;
    one time in four clients mix their group's view with the next one's (up to half); no skew, or
    Dirichlet 1.0 or 0.3; 8, 16, 24 or 40 images a client; one time in four a sixth of the clients
    call every digit by the next one's name; one time in four only half answer in a round.
    """
    draw = np.random.default_rng([13, number])

    def one(*values):
        return values[draw.integers(len(values))]

    m, k = one(12, 18, 24), one(1, 1, 2, 3, 4)
    differ, degrees, pairs = one("turn", "names", "both"), one(30, 60, 90), one(1, 2, 4)
    sizes, mixed = one("even", "halving"), one(False, False, False, True)
    skew, points = one(None, None, 1.0, 0.3), one(8, 16, 24, 40)
    lying, answer = one(0, 0, 0, m // 6), one(1.0, 1.0, 1.0, 0.5)
    views = []
    for j in range(k):
        view, names = {}, np.arange(10)
        swapped = draw.permutation(10)[: 2 * pairs].reshape(pairs, 2)
        names[swapped] = swapped[:, ::-1]
        if differ != "names":
            view["turn"] = j * degrees
        if differ != "turn" and j:
            view["labels"] = names.tolist()
        views.append(view)
    weights = np.ones(k) if sizes == "even" else 0.5 ** np.arange(k)
    cuts = np.round((m - lying) * weights.cumsum() / weights.sum()).astype(int)
    shares = _groups(*np.diff(cuts, prepend=0).tolist())
    if mixed and k > 1:
        own = torch.from_numpy(draw.uniform(0.5, 1, m - lying)).float()[:, None]
        shares = own * shares + (1 - own) * shares.roll(1, 1)
    if lying:
        views.append({"labels": comparison.SHIFTED})
        shares = torch.block_diag(shares, torch.ones(lying, 1))
    groups = (
        f"{k} groups by {differ} ({degrees} degrees, {pairs} pairs), {sizes}" if k > 1 else "one"
    )
    words = f"{m} clients, {groups}, mixed {mixed and k > 1}, skew {skew}, {points} images, "
    words += f"{lying} liars, {answer:.0%} answer"
    return Recipe(tuple(views), shares, points, skew, lying, answer, words)


# ---------------------------------------------------------------- clients


def deal(recipe, seed, held_out="test"):
    """Clients of a recipe, from scikit-learn's 1,797 digits.

    Parameters
    ----------
    recipe : Recipe
    seed : int
        Deals the images, the classes of a skewed client and the test images.
    held_out : {"test", "own"}
        "test": the final round. 360 test images, drawn from 837 that no search ever sees; training
        images from all others. "own": the search. Training images from the 960 others alone, and of
        each client's own images each fourth is held back to judge it.

    Returns
    -------
    Federation
        No client holds an image twice. With skew two clients may hold the same one, and test images
        are drawn anew by each client's own classes. ``truth`` has ``shares``, and ``honest``, bool
        [m].
    """
    one_of("held_out", held_out, "test", "own")
    images = data.load("digits")
    x, y = (torch.cat([getattr(images, f"{a}_{part}") for part in ("train", "test")]) for a in "xy")
    source, m = torch.Generator().manual_seed(3000 + seed), len(recipe.shares)
    near, far = torch.arange(SEARCHED), torch.arange(SEARCHED, len(y))
    far = far[torch.randperm(len(far), generator=source)]
    near = near if held_out == "own" else torch.cat([near, far[HELD_OUT:]])
    near, far = near[torch.randperm(len(near), generator=source)], far[:HELD_OUT]
    if recipe.skew is None:
        train, test = near[: m * recipe.points].split(recipe.points), [far] * m
    else:
        dice = np.random.default_rng([3000, seed])
        classes = torch.from_numpy(dice.dirichlet([recipe.skew] * 10, m)).float()

        def own(pool, size, repeated):
            share = (classes / y[pool].bincount(minlength=10))[:, y[pool]] + 1e-9
            return [pool[torch.multinomial(p, size, repeated, generator=source)] for p in share]

        train, test = own(near, recipe.points, False), own(far, HELD_OUT, True)

    def collect(rows):
        found = []
        for own, share in zip(rows, recipe.shares, strict=True):
            cuts = (share.cumsum(0) * len(own)).round().long()[:-1]
            own = own[torch.randperm(len(own), generator=source)]
            parts = zip(recipe.views, own.tensor_split(cuts), strict=True)
            seen = zip(*[_seen(view, x[part], y[part]) for view, part in parts], strict=True)
            found.append(map(torch.cat, seen))
        return Clients.from_lists(*zip(*found, strict=True))

    pure = bool((recipe.shares.max(1).values == 1).all())
    groups = recipe.shares.argmax(1) if pure else None
    honest = torch.arange(m) < m - recipe.liars
    truth = {"shares": recipe.shares, "honest": honest}
    people = Federation(
        collect(train), collect(test), groups, groups, classes=10, name=recipe.words, truth=truth
    )
    return held_back(people) if held_out == "own" else people


def _seen(view, x, y):
    if not len(y):  # a client without any image of this view
        return x, y
    x, y = twists.turn(view.get("turn", 0))(x, y)
    x = x.flip(-1) if view.get("mirror") else x
    names = view.get("labels")
    return x, torch.tensor(names)[y] if names else y


@cache
def _writers():
    """Rows of MNIST's training images a writer, in one random order: the final 360, and the others.

    Each writer has 60 images or more, and comes with how much the writing leans.
    """
    images = data.load("mnist_writers")
    writer = images.facts["writer"][0]
    names, counts = writer.unique(return_counts=True)
    names = names[counts >= 60]
    names = names[torch.from_numpy(np.random.default_rng(13).permutation(len(names)))]
    rows = [(writer == name).nonzero()[:, 0] for name in names]
    hands = [(own, _lean(images.x_train[own])) for own in rows]
    return hands[:360], hands[360:]


def _lean(x):
    """How far strokes move to the right for a step down: the median over images, by moments."""
    x = x.double() / 255
    grid = torch.arange(x.shape[-1], dtype=torch.float64)
    mass = x.sum((1, 2))[:, None]
    across = grid - x.sum(1) @ grid[:, None] / mass
    down = grid - x.sum(2) @ grid[:, None] / mass
    both = (x * down[:, :, None] * across[:, None]).sum((1, 2))
    return float((both / (x.sum(2) * down**2).sum(1)).median())


def persons(kind, seed, held_out="test"):
    """Writers of MNIST as clients: 24 persons, 40 training images each, judged on their others.

    Parameters
    ----------
    kind : {"writers", "slant"}
        As they come; or 12 of the third that leans least, and 12 of the third that leans most.
    seed : int
        Which writers: of final seeds 0 to 9 no two share one, nor of the search's, 500 and 501.
    held_out : {"test", "own"}
        As in :func:`deal`; the search has writers of its own.
    """
    one_of("kind", kind, *PEOPLE)
    one_of("held_out", held_out, "test", "own")
    block, hands = seed % 500, _writers()[held_out == "own"]
    shares = torch.ones(SEATS, 1)
    if kind == "slant":
        order, third = np.argsort([lean for _, lean in hands]), len(hands) // 3
        dice, shares = np.random.default_rng(13), _groups(SEATS // 2, SEATS // 2)
        ends = dice.permutation(order[-third:]), dice.permutation(order[:third])
        some = slice(block * SEATS // 2, (block + 1) * SEATS // 2)
        chosen = [i for end in ends for i in end[some]]
    else:
        chosen = range(block * SEATS, (block + 1) * SEATS)
    if len(chosen) < SEATS or max(chosen) >= len(hands):
        raise ValueError(f"seed must leave {SEATS} writers of {len(hands)}, got {seed}")
    images, source = data.load("mnist_writers"), torch.Generator().manual_seed(seed)
    halves = [], []
    for i in chosen:
        rows = hands[i][0]
        rows = rows[torch.randperm(len(rows), generator=source)]
        for half, part in zip(halves, (rows[:40], rows[40:]), strict=True):
            half.append((images.x_train[part], images.y_train[part]))
    parts = [Clients.from_lists(*zip(*half, strict=True)) for half in halves]
    groups = shares.argmax(1)
    people = Federation(
        *parts, groups, groups, classes=10, name=f"MNIST, {kind}", truth={"shares": shares}
    )
    return held_back(people) if held_out == "own" else people


def build(kind, seed, held_out="test"):
    """Clients of a kind of the protocol: one of ``RECIPES`` or of ``PEOPLE``."""
    if kind in PEOPLE:
        return persons(kind, seed, held_out)
    return deal(RECIPES[kind], seed, held_out)


def held_back(people):
    """The same people, known as before, judged on what each client holds back of its own images.

    What that is says :func:`clusterfl_core.diagnosis.held_back`; they do not train on it.
    """
    parts = diagnosis.held_back(people)
    return replace(people, train=parts.train, test=parts.test, test_clusters=people.clusters)


def judge(state, people):
    """Accuracy of each honest client on its held-out images, with the model it really holds."""
    honest = people.truth.get("honest", torch.ones(len(people), dtype=torch.bool))
    return comparison.accuracy(state, people)[honest]


# ---------------------------------------------------------------- methods


@dataclass(frozen=True)
class LeanFedSoft(fedsoft.FedSoft):
    """FedSoft that sends a training client one model, where Algorithm 1 sends all k centers.

    The pull (lambda / 2) sum_j u_ij ‖w - c_j‖^2 depends on w by the mean of the centers alone, so
    the server, which knows u_ij, sends that mean. Where clients weigh they receive all k.
    """

    def plan(self, state):
        """The jobs of FedSoft; who trains is sent the mean of the centers by importance."""
        jobs = super().plan(state)
        if not jobs.values:
            return jobs
        u = jobs.values["importance"]
        bank = fedsoft.blend(state.bank, u / u.sum(1, keepdim=True))
        return replace(jobs, bank=bank, models=torch.arange(len(u))[:, None])

    def client_step(self, jobs, clients):
        """Weigh, or minimise the loss and the pull to the mean."""
        if not jobs.values:
            return super().client_step(jobs, clients)
        weight = self.proximal * jobs.values["importance"].sum(1)
        start = jobs.kept if self.warm_start else jobs.start
        pull = weight, jobs.start.map(lambda one: compute.column(weight.to(one), one) * one)
        loss = compute.mean_losses(start, clients)
        trained = self.local.train(start, clients, jobs.key, pull)
        return Replies(clients.ids, trained, {"loss": loss})


def answering(algorithm, share):
    """The same algorithm where a random share of the clients answers in a round.

    In the first round all answer, and wherever FedAvg is fine-tuned. Nothing travels to the others.
    """
    if share == 1:
        return algorithm
    kind = type(algorithm)

    class Some(kind):
        def plan(self, state):
            jobs, last = super().plan(state), getattr(self, "after", float("inf"))
            if state.round == 0 or state.round >= last:
                return jobs
            there = participants((state.seed, state.round), len(state.assignments), share)
            rows = torch.isin(jobs.clients, there).nonzero()[:, 0]
            return jobs.take(rows if len(rows) else [0])

    Some.__name__ = kind.__name__
    return Some(**{one.name: getattr(algorithm, one.name) for one in fields(algorithm)})


def make(method, settings, m, model=comparison.NET, answer=1.0):
    """The algorithm, charged as the protocol says; ``method`` is in ``METHODS``.

    ``settings`` are those of :func:`clusterfl_core.comparison.make`, with FedSoft's ``part`` 1 by
    default; ``shared`` (IFCA: whether all models have the first layer in common), ``recursive``
    (OneShot?), and ``after`` (FedSoft+: rounds of means before the regression, by default 4).
    ``answer`` is as in :class:`Recipe`.
    """
    s = {"part": 1.0} | settings
    name = "FedSoft" if method == "FedSoft+" else method
    if method == "FineTuned":
        affords = min((comparison.MODELS - 1) / 2, (comparison.PASSES - s["own"]) / s["tau"])
        s["after"] = max(1, int(affords / answer) - 1 if answer < 1 else int(affords))
    algorithm = comparison.make(name, s, m, model)
    if name == "FedSoft":
        settings = {one.name: getattr(algorithm, one.name) for one in fields(algorithm)}
        after = s.get("after", 4) if method == "FedSoft+" else None
        algorithm = LeanFedSoft(**settings | {"regress_after": after})
    if method == "IFCA":
        shared = tuple(n for n, _ in model.named_children())[: bool(s.get("shared"))]
        algorithm = replace(algorithm, patience=STABLE, shared=shared)
    if method == "CLoVE":
        algorithm = replace(algorithm, patience=STABLE)
    if method == "OneShot":
        algorithm = replace(algorithm, starts=1)
    if method == "OneShot?":
        algorithm = replace(algorithm, recursive=s.get("recursive", False))
    return answering(algorithm, answer)
