"""The search and the final round of chapter 13, for every method alike.

What they are, and why, says ``book/protocol_choosing.md``; the experiments ``13_fair_search``,
``13_fair_final`` and ``13_fair_mended`` play them. Clients and methods are those of
:mod:`clusterfl_core.composing`.

Examples
--------
>>> found = search("IFCA", lambda settings, seed: settings["k"] / 10)
>>> found["settings"]["k"], len(found["tried"]), len(found["second"])
(8, 13, 3)
"""

from dataclasses import replace
from itertools import product

import numpy as np
import torch

from clusterfl_core import comparison, composing, compute, diagnosis, evaluation
from clusterfl_core.check import function, one_of
from clusterfl_core.models import MLP
from clusterfl_core.simulation import Diverged

__all__ = [
    "MIDDLE", "UNSAID", "behind", "diagnoses", "final", "runs", "search", "searches",
    "second_look", "stage_1", "stage_2", "taken", "validate",
]  # fmt: skip

MIDDLE = {"k": 3, "alone": 100, "own": 20, "own_gamma": 0.1}
MIDDLE |= {"eps1": 0.06, "ratio": 3, "safe": 0.4, "lam": 0.1}
UNSAID = {"IFCA": {"shared": False}, "CLoVE": {"first": "losses"}, "OneShot?": {"recursive": False}}
FOUR = [2, 3, 4, 8]
OWN = {
    "FineTuned": {"own": [5, 20, 50, 100], "own_gamma": [0.05, 0.2]},
    "OneShot": {"k": FOUR, "alone": [50, 200]},
    "OneShot?": {"alone": [25, 50, 150, 300], "recursive": [False, True]},
    "CLoVE": {"k": FOUR, "first": ["losses", "random"]},
    "IFCA": {"k": FOUR, "shared": [False, True]},
    "CFL": {"eps1": [0.03, 0.12], "ratio": [1.5, 6], "safe": [0, 0.5]},
    "FedSoft": {"k": FOUR, "lam": [0.05, 0.5]},
    "FedSoft+": {"k": FOUR, "lam": [0.05, 0.5]},
}
TWENTIETH = 1 / 20  # of the purse, for each of five starts


def _crossed(**values):
    return [dict(zip(values, one, strict=True)) for one in product(*values.values())]


# ---------------------------------------------------------------- the search


def stage_1(method):
    """Step sizes crossed with local steps: a list of settings, all else in the middle."""
    one_of("method", method, *composing.METHODS)
    if method == "LocalOnly":
        return _crossed(gamma=np.geomspace(0.01, 2, 6).round(4).tolist(), tau=[10])
    twice = 2 if method == "FedEM" else 1
    return _crossed(gamma=[twice * step for step in (0.2, 0.5, 1.25)], tau=[8, 25])


def stage_2(method, best):
    """The method's own settings, crossed in full with the ``best`` of :func:`stage_1`."""
    one_of("method", method, *composing.METHODS)
    step, tau = best["gamma"], best["tau"]
    if method == "LocalOnly":  # between the neighbours of the best
        wide = 200**0.2
        near = np.geomspace(step / wide, step * wide, 9).round(4)
        return _crossed(gamma=near[near != step].tolist(), tau=[10])
    if method == "FedAvg":
        steps = [round(step * f, 4) for f in (2 / 3, 1, 3 / 2)]
        return _crossed(gamma=steps, tau=[tau // 2, tau, 2 * tau])
    if method == "FedEM":
        steps = [round(step * f, 4) for f in (2 / 3, 3 / 2)]
        return _crossed(gamma=steps, tau=[tau], k=FOUR)
    return [best | one for one in _crossed(**OWN[method])]


def second_look(first):
    """The places of the three best, which play once more; of equal ones the earlier."""
    return sorted(range(len(first)), key=lambda place: -first[place])[:3]


def taken(first, second):
    """The place with the highest sum of both looks; of equal ones the earlier.

    ``first`` [tried] are accuracies, and ``second`` a dict from a place, as text, to the other one.
    """
    return max(sorted(map(int, second)), key=lambda place: first[place] + second[str(place)])


def search(method, score, seed=500):
    """Search the settings of a method.

    Parameters
    ----------
    method : str
        In :data:`clusterfl_core.composing.METHODS`.
    score : callable
        ``score(settings, seed)`` plays them and returns an accuracy, 0 if they diverge.
    seed : int
        Of the first look; the second has the next one.

    Returns
    -------
    dict
        ``tried``, a list of settings, no two alike; ``first``, their accuracies; ``second``, those
        of the best three once more, by their place in the list as text; ``won``, the place of the
        one that is taken, and ``settings``, what it is.
    """
    one_of("method", method, *composing.METHODS)
    function("score", score)
    tried, first = [], []

    def play(some):
        for one in some:
            one = MIDDLE | UNSAID.get(method, {}) | one
            if one not in tried:
                tried.append(one)
                first.append(score(one, seed))
        return tried[int(np.argmax(first))]

    play(stage_2(method, play(stage_1(method))))
    second = {str(place): score(tried[place], seed + 1) for place in second_look(first)}
    won = taken(first, second)
    found = {"first": first, "second": second, "won": won}
    return found | {"tried": tried, "settings": tried[won]}


# ---------------------------------------------------------------- one run


def _play(method, settings, people, seed, hidden, device, starts=1, **purse):
    net = MLP(people.train.x[0, 0].numel(), hidden, 10)
    algorithm = composing.make(method, settings, len(people), net)
    if starts > 1 and method == "OneShot":
        algorithm = replace(algorithm, starts=starts)
    elif starts > 1:
        return _best_start(algorithm, people, seed, device, starts)
    most = getattr(algorithm, "after", None)
    most = None if most is None else most + 1  # tuned once
    rows, state = comparison.play(algorithm, people, seed, most=most, device=device, **purse)
    return state, rows and rows[-1][1:3]


def validate(kind, method, settings, seed, hidden=16, device="cpu", **purse):
    """Play settings on a kind: accuracy on the images that clients hold back, 0 if it diverged.

    ``hidden`` is the number of hidden units, ``purse`` as in
    :func:`clusterfl_core.comparison.play`. Nobody is left out, since nobody knows who lies.
    """
    people = composing.build(kind, seed, "own")
    state, _ = _play(method, settings, people, seed, hidden, device, **purse)
    if state is None:
        return 0.0
    return round(float(comparison.accuracy(state, people).nan_to_num().mean()), 4)


def final(kind, row, settings, seed, hidden=16, device="cpu"):
    """Play a run of the final round.

    Parameters
    ----------
    kind : str
        As in :func:`clusterfl_core.composing.build`.
    row : str
        A method; or "IFCA, five" and "OneShot, five", from five starts (the first pays for them);
        or as "IFCA, k = 2", with another number of models.
    settings : dict
        Those of the method, from the search.
    seed, hidden, device
        Of clients and run; hidden units; where it runs.

    Returns
    -------
    dict
        ``clients``, the accuracy of each honest client on test images, none if it diverged; else
        also ``right`` (:func:`clusterfl_core.comparison.found`), ``groups``, ``rounds``,
        ``models`` and ``passes``.
    """
    method, how = row.split(",")[0], row.split(", ")[-1]
    people = composing.build(kind, seed)
    if how.startswith("k = "):
        settings = settings | {"k": int(how[4:])}
    starts = 5 if how == "five" else 1
    try:
        state, spent = _play(method, settings, people, seed, hidden, device, starts)
    except Diverged:
        state = None
    if state is None:
        return {"clients": []}
    main = evaluation.hard(state.assignments)
    scores = composing.judge(state, people).nan_to_num()
    return {
        "clients": np.round(scores.tolist(), 3).tolist(),
        "right": round(float(comparison.found(state, people)), 4),
        "groups": len(torch.unique(main)),
        "rounds": state.round,
        "models": round(float(spent[0]), 2),
        "passes": round(float(spent[1]), 2),
    }


def _spend(algorithm, state, people, purse, device):
    """Play until the next round would break the purse: the state, and what is left."""
    models, passes = purse
    while True:
        new, b, w = comparison.one_round(algorithm, state, people, device)
        if b > models + 1e-6 or w > passes + 1e-6:
            return state, np.array([models, passes])
        state, models, passes = new, models - b, passes - w


def _best_start(algorithm, people, seed, device, starts):
    """Give each start a part of the purse, and the rest to that of the lowest training loss."""
    purse, runs = np.array([comparison.MODELS, comparison.PASSES], dtype=float), []
    left = (1 - starts * TWENTIETH) * purse
    for s in range(starts * seed, starts * (seed + 1)):
        state = algorithm.init(people, s)
        state, rest = _spend(algorithm, state, people, TWENTIETH * purse, device)
        left = left + rest  # what a part does not buy
        runs.append(state)

    def loss(state):
        losses = compute.loss_matrix(state.bank, people.train)
        return float(losses.min(1).values.mean())

    state, rest = _spend(algorithm, min(runs, key=loss), people, left, device)
    return state, purse - rest


# ---------------------------------------------------------------- what is stored


def searches(records):
    """The searches among records: values by (kind, method, hidden), of two the later record's.

    So the first search's records come first, then those that are mended.
    """
    kept = [one for one in records if one["settings"].get("part") != "final"]
    return {_key(one): one["values"] for one in kept if one["seed"] == 500}


def runs(*searched):
    """The final runs of seeds 0 to 9: a list of values by (kind, row, hidden).

    Each of ``searched`` holds the records that followed one search. Where a later one took another
    setting, the runs are those with it.
    """
    found = {}
    for records in searched:
        found |= _by_seed(one for one in records if one["settings"].get("part") != "search")
    return found


def _key(record):
    return tuple(record["settings"][name] for name in ("kind", "method", "hidden"))


def _by_seed(records):
    found = {}
    for one in records:
        if one["seed"] < 10:
            found.setdefault(_key(one), []).append(one["values"])
    return found


def behind(values):
    """Points behind the best of all methods on one population of ``13_unseen``.

    ``values`` are those of the record. The dict that is given has each method, "the advice" of
    :func:`clusterfl_core.diagnose`, "its two" (the better of both methods named, by the images
    held back) and "play all" (the best of all by them).
    """
    tried = values["tried"].items()
    played = {m: max(some, key=lambda one: one["own"]) for m, some in tried}
    top = max(one["test"] for one in played.values())
    lost = {m: 100 * (top - one["test"]) for m, one in played.items()}
    told = diagnosis.Diagnosis(**values["seen"]).advice
    lost["the advice"] = lost[told[0]]
    for way, some in (("its two", told), ("play all", played)):
        lost[way] = lost[max(some, key=lambda m: played[m]["own"])]
    return lost


def diagnoses(records):
    """What :func:`clusterfl_core.diagnose` saw of the kinds: by kind a list of dicts, by seed."""
    found = {}
    for one in records:
        found.setdefault(one["settings"]["kind"], []).append(one["values"]["seen"])
    return found
