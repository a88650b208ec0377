"""Compare methods on equal terms: seven kinds of clients, one purse for each run, one judge.

A method of your own is compared the same way: give :func:`play` any algorithm, and a kind of
clients from :func:`build`.

>>> from clusterfl_core import comparison
>>> people = comparison.build("hard", seed=0)
>>> settings = {"gamma": 0.2, "tau": 10, "k": 4}
>>> algorithm = comparison.make("IFCA", settings, len(people))
>>> rows, state = comparison.play(algorithm, people, seed=0, models=20)
>>> rows[-1][:2], state.round  # five models a client and round: one that returns, four that come
((4, 20.0), 4)
"""

import torch

from clusterfl_core import check, data, door, evaluation
from clusterfl_core.algorithms import baselines
from clusterfl_core.algorithms.cfl import CFL
from clusterfl_core.algorithms.clove import CLoVE
from clusterfl_core.algorithms.fedsoft import FedSoft
from clusterfl_core.algorithms.fine_tuned import FineTuned
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.contract import State
from clusterfl_core.matching import best_matching
from clusterfl_core.models import MLP
from clusterfl_core.simulation import Diverged, rounds
from clusterfl_core.solvers import LocalSGD

__all__ = [
    "KINDS", "LATER", "METHODS", "accuracy", "build", "found", "honest", "make", "one_round",
    "play", "seen",
]  # fmt: skip

METHODS = ("LocalOnly", "FedAvg", "OneShot", "FedEM", "FedSoft", "CFL", "IFCA")
LATER = ("FineTuned", "CLoVE", "OneShot?")  # the last one is not told k
NEEDED = {  # of the settings, besides gamma and tau
    "OneShot": ("k", "alone"), "OneShot?": ("alone",), "FineTuned": ("own", "own_gamma"),
    "CLoVE": ("k",), "CFL": ("eps1", "ratio", "safe"), "FedSoft": ("k", "lam", "part"),
    "IFCA": ("k",), "FedEM": ("k",),
}  # fmt: skip
NET = MLP(64, 16, 10)
MODELS, PASSES = 200, 1000  # the purse of a run, a client
VALIDATION = 400  # training images that no client trains on
HELD_OUT = 360  # images on which a client is judged

# ---------------------------------------------------------------- clients

TURNS = [{"turn": t} for t in range(4)]
SYMMETRIES = [{"turn": t, "mirror": f} for f in (0, 1) for t in range(4)]
SWAPPED = [0, 1, 2, 8, 9, 5, 6, 7, 3, 4]  # what a client calls the digits 0 to 9
SHIFTED = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
NESTED = [{"turn": t, "labels": names} for t in (0, 1) for names in (None, SWAPPED)]
LIARS = [{}, {"turn": 1}, {"labels": SHIFTED}]


def _groups(*sizes):
    return torch.eye(len(sizes)).repeat_interleave(torch.tensor(sizes), 0)


_RISING = (torch.arange(24) + 0.5) / 24
# the views, the share of each view in the data of each client, its training images
KINDS = {
    "hard": (TURNS, _groups(6, 6, 6, 6), 40),
    "nested": (NESTED, _groups(6, 6, 6, 6), 40),
    "soft": (TURNS[:2], torch.stack([_RISING, 1 - _RISING], 1), 40),
    "skewed": (TURNS[:1], torch.ones(24, 1), 40),
    "liars": (LIARS, _groups(9, 9, 6), 40),
    "tiny": (TURNS, _groups(12, 12, 12, 12), 8),
    "many": (SYMMETRIES, _groups(*[3] * 8), 40),
}


def seen(view, x, y):
    """Images x [n, side, side] and labels y [n] as a view has them.

    A view is a dict of ``turn``, quarter turns; ``mirror``, whether left is right; and ``labels``,
    new names of the classes. What is absent stays as it is.
    """
    check.kind("view", view, dict)
    if len(check.kind("x", x, torch.Tensor)) != len(check.wholes("y", y)):
        raise ValueError(f"x and y must hold the same images, got {len(x)} and {len(y)} of them")
    x = torch.rot90(x, check.whole("turn", view.get("turn", 0), 0), dims=(-2, -1))
    x = x.flip(-1) if view.get("mirror") else x
    names = view.get("labels")
    return x, torch.tensor(names)[y] if names else y


def build(kind, seed, held_out="test"):
    """Clients of one kind, from scikit-learn's digits.

    Parameters
    ----------
    kind : str or tuple
        A name in ``KINDS``, or views, their shares [m, views] and training images a client, as
        there. On "skewed" each client draws its images from classes of its own (Dirichlet, 0.3).
    seed : int
        Deals the training images without repetition.
    held_out : {"test", "validation"}
        On which images clients are judged: 360 of the test images, which are the same for each
        seed, or of the training images that nobody trains on.

    Returns
    -------
    Federation
        ``truth["shares"]`` has the share of each view; clusters are known where each client has
        one view.
    """
    if isinstance(kind, str):
        check.one_of("kind", kind, *KINDS)
    elif not isinstance(kind, tuple) or len(kind) != 3:
        raise TypeError(f"kind must be a name or (views, shares, n), got {check.shown(kind)}")
    seed = check.whole("seed", seed, 0)
    check.one_of("held_out", held_out, "test", "validation")
    views, shares, n = KINDS[kind] if isinstance(kind, str) else kind
    images, m, skewed = data.load("digits"), len(shares), kind == "skewed"
    draw = torch.Generator().manual_seed(1000 + seed)
    order = torch.randperm(len(images.y_train), generator=draw)
    near, validation = order[:-VALIDATION], order[-VALIDATION:]
    x, y, far_x, far_y = images.x_train, images.y_train, images.x_test, images.y_test
    if held_out == "validation":
        far_x, far_y = x[validation], y[validation]
    if skewed:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2000 + seed)
            classes = torch.distributions.Dirichlet(torch.full((10,), 0.3)).sample((m,))

    def by_class(pool, labels, size):
        count = labels[pool].bincount(minlength=10).clamp(min=1)
        chances = [(p / count)[labels[pool]] + 1e-9 for p in classes]
        return [pool[torch.multinomial(c, size, True, generator=draw)] for c in chances]

    def collect(x, y, rows):
        found = []
        for own, share in zip(rows, shares, strict=True):
            cuts = (share.cumsum(0) * len(own)).round().long()[:-1]
            parts = zip(views, own.tensor_split(cuts), strict=True)
            both = zip(*[seen(view, x[part], y[part]) for view, part in parts], strict=True)
            found.append(map(torch.cat, both))
        return Clients.from_lists(*zip(*found, strict=True))

    if skewed:
        train = by_class(near, y, n)
        far = by_class(torch.arange(len(far_y)), far_y, HELD_OUT)
    else:
        train = near[: m * n].split(n)
        far = [torch.randperm(len(far_y), generator=draw)[:HELD_OUT] for _ in range(m)]
    own = shares.argmax(1) if bool((shares.max(1).values == 1).all()) else None
    parts = collect(x, y, train), collect(far_x, far_y, far)
    name = kind if isinstance(kind, str) else "clients with views of their own"
    return Federation(*parts, own, own, classes=10, name=name, truth={"shares": shares})


def honest(people):
    """Which clients are judged, bool [m]: all, but on "liars" not those who lie."""
    check.kind("people", people, Federation)
    everyone = torch.ones(len(people), dtype=torch.bool)
    return people.clusters != 2 if people.name == "liars" else everyone


# ---------------------------------------------------------------- methods


def make(method, settings, m, model=NET):
    """The algorithm with these settings for m clients; ``method`` is in ``METHODS`` or ``LATER``.

    ``settings`` is a dict of ``gamma`` (step size), ``tau`` (local steps) and what else the method
    has: ``k`` (models), ``alone`` (OneShot, told k or not: steps before it clusters), ``eps1``
    (CFL: as a share of gamma tau, with which updates grow), ``ratio`` (eps2 over eps1), ``safe``
    (gamma_max), ``lam`` (FedSoft: the pull), ``part`` (share of the clients selected for a centre),
    ``own`` and ``own_gamma`` (FineTuned: steps of a client on its own, and their size; it averages
    for ``after`` rounds, by default as many as leave it these steps of the purse), ``starts`` and
    ``first`` (CLoVE: as there, by default 1 and "losses").
    """
    check.one_of("method", method, *METHODS, *LATER)
    check.kind("model", model, torch.nn.Module)
    m, needed = check.whole("m", m), {"gamma", "tau", *NEEDED.get(method, ())}
    if missing := sorted(needed - set(check.kind("settings", settings, dict))):
        raise ValueError(f"settings must have {', '.join(missing)} for {method}, got {settings}")
    s, sgd = settings, LocalSGD(settings["tau"], settings["gamma"])
    if method in ("LocalOnly", "FedAvg"):
        return getattr(baselines, method)(model, sgd)
    if method in ("OneShot", "OneShot?"):
        k = s["k"] if method == "OneShot" else None
        return baselines.OneShot(model, k, LocalSGD(s["alone"], s["gamma"]), sgd)
    if method == "FineTuned":
        affords = int(min((MODELS - 1) // 2, (PASSES - s["own"]) // s["tau"]))
        tune = LocalSGD(s["own"], s["own_gamma"])
        return FineTuned(model, sgd, after=s.get("after", affords), tune=tune)
    if method == "CLoVE":
        starts, first = s.get("starts", 1), s.get("first", "losses")
        return CLoVE(model, s["k"], sgd, first=first, starts=starts)
    if method == "CFL":
        eps1 = s["eps1"] * s["gamma"] * s["tau"]
        return CFL(model, eps1, s["ratio"] * eps1, s["safe"], sgd)
    if method == "FedSoft":
        part = check.share("part", s["part"])
        some = None if part == 1 else round(part * m)
        return FedSoft(model, s["k"], sgd, s["lam"], selected=some)
    return {"IFCA": IFCA, "FedEM": baselines.FedEM}[method](model, s["k"], sgd)


# ---------------------------------------------------------------- runs on a purse


def one_round(algorithm, state, people, device="cpu"):
    """Play one round, which may take several round trips: the next state, models and passes.

    Models that a client received and sent, and passes over its data, both on average over the
    clients. A gradient step goes forward and back and is one pass; a look at the loss of a model is
    a third.
    """
    check.kind("state", state, State)
    size = sum(p.numel() * state.bank.dtype.itemsize for p in algorithm.model.parameters())
    (one,) = rounds(algorithm, people, 1, start=state, device=device)
    models = (one.bytes_down + one.bytes_up) / size
    passes = getattr(algorithm, "passes", lambda jobs: algorithm.local.passes)
    work = sum(len(jobs.clients) * passes(jobs) for jobs, _replies in one.trips)
    return one.state, models / len(people), work / len(people)


def play(
    algorithm, people, seed, *, models=MODELS, passes=PASSES, most=None, watch=False, device="cpu"
):
    """Play rounds until the next one would break the purse, or until there are enough.

    Parameters
    ----------
    algorithm, people, seed
        As in :func:`clusterfl_core.run`.
    models, passes : float
        The purse, in the units of :func:`one_round`.
    most : int, optional
        How many rounds are enough: FineTuned's ``after`` and one, where it is fine-tuned once.
    watch : bool
        Whether to look on the way: in each of ten rounds, then more and more rarely.
    device : torch.device or str

    Returns
    -------
    rows, state
        Tuples (round, models, passes, mean accuracy of the honest clients), the last one at the
        end, and the last state within the purse; nothing and None if the run diverged.
    """
    seed, watch = check.whole("seed", seed, 0), check.flag("watch", watch)
    most = check.whole("most", most, none=True)
    models = check.number("models", models, "[0, inf]", "not be negative")
    passes = check.number("passes", passes, "[0, inf]", "not be negative")
    check.kind("people", people, Federation)
    state, moved, work, rows = door.admit(algorithm, people, seed, 1), 0.0, 0.0, []

    def look():
        score = float(accuracy(state, people)[honest(people)].mean())
        rows.append((state.round, round(moved, 2), round(work, 2), round(score, 4)))

    while state.round != most:
        try:
            new, b, w = one_round(algorithm, state, people, device)
        except Diverged:
            return [], None
        if moved + b > models + 1e-6 or work + w > passes + 1e-6:
            break
        state, moved, work = new, moved + b, work + w
        t = state.round
        if watch and (t <= 10 or (t <= 30 and t % 2 == 0) or t % 5 == 0):
            look()
    if not rows or rows[-1][0] < state.round:
        look()
    return rows, state


# ---------------------------------------------------------------- the judge


def accuracy(state, people):
    """Accuracy of each client on its held-out images, with the model it really holds: [m]."""
    everyone = torch.arange(len(check.kind("people", people, Federation)))
    return evaluation.personal_quality(state, people, everyone, people.test)


def found(state, people):
    """How well the shares of the views were found: 1 less the mixture error, in [0, 1].

    The error is half the absolute difference between what the method thinks and ``shares``, summed
    over the views, mean over the clients, under the matching of names that is best for the method
    (a view or a model without partner counts as a column of zeros). With one view a client this is
    :func:`clusterfl_core.evaluation.identity_accuracy`.
    """
    if "shares" not in check.kind("people", people, Federation).truth:
        raise ValueError(f"people must know the shares of their views, got {people.name!r}")
    u, true = getattr(state, "assignments", None), people.truth["shares"].double()
    if not isinstance(u, torch.Tensor):
        raise TypeError(f"state must be a State, with assignments, got {check.shown(state)}")
    if len(u) != len(true):
        raise ValueError(f"state must be one of {len(true)} people, got {len(u)}")
    if u.ndim == 1:  # one group a client
        u = torch.nn.functional.one_hot(u.clamp(min=0))
    u = u.double() / u.sum(1, keepdim=True)
    size = max(u.shape[1], true.shape[1])
    u, true = (torch.nn.functional.pad(a, (0, size - a.shape[1])) for a in (u, true))
    cost = (u[:, :, None] - true[:, None]).abs().sum(0).numpy()
    matched = best_matching(-cost)
    return 1 - cost[list(matched), list(matched.values())].sum() / 2 / len(people)
