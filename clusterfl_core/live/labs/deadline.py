"""Deadline: what becomes of a group whose clients are slow (chapter 14)."""

import math

import numpy as np
import torch

from clusterfl_core.algorithms.fedavg import FedAvg
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.contract import Replies
from clusterfl_core.live import replay
from clusterfl_core.live.fields import Choice, Flag, Number, Whole
from clusterfl_core.live.page import laboratory
from clusterfl_core.live.random import stream
from clusterfl_core.models import LinearRegression
from clusterfl_core.solvers import LocalSGD

__all__ = ["FIELDS", "deadline", "needed", "played", "world"]

EACH, BUDGET = 5, 120  # clients of a group, and seconds
BEST = [[-1.4, 0.0], [1.4, 0.0]]
OWN = [[0.2, 0.1], [-0.25, 0.15], [0.1, -0.3], [-0.15, -0.1], [0.1, 0.15]]
PACE = [1, 0.85, 1.07, 0.93, 1.15]
STARTS = {"one": [[0.0, 1.5]], "each": [[-0.3, 1.5], [0.3, 1.5]]}
FIELDS = {
    "deadline": Number("deadline, seconds", 1, 12, by=0.25),
    "quick": Number("quick clients need", 1, 10, by=0.25),
    "slow": Number("slow clients need", 1, 10, by=0.25),
    "linked": Whole("slow ones in group 1", 0, EACH),
    "luck": Number("luck of a round", 0, 0.6, by=0.05),
    "models": Choice("models", (("one", "one for all"), ("each", "one a group"))),
    "late": Flag("late answers count when they come"),
}


def deadline(deadline=8, *, quick=2, slow=6, linked=2, luck=0.2, models="one", late=False, task=""):
    """Ten clients in two groups, five of them slow, and a server that waits so long and no longer.

    Parameters
    ----------
    deadline : float
        Seconds that the server waits in a round, 1 to 12; if all have answered it goes on before.
    quick, slow : float
        Seconds that a quick and a slow client need for a round, 1 to 10; each has a pace of its
        own, from 0.85 to 1.15 times that.
    linked : int
        How many of the five slow clients are in group 1, 0 to 5; the others are in group 0.
    luck : float
        A round's time is multiplied by exp(luck times a normal number), 0 to 0.6.
    models : {"one", "each"}
        FedAvg with one model for all, or IFCA with one a group.
    late : bool
        Whether a client works on beyond the end of a round and its answer counts in the round in
        which it comes. Else it is thrown away.
    task : str
        What to try. The laboratory notices when a deadline has lost group 1, and then both groups
        are within 0.4 of their best models with the same clients and a deadline as short.
    """
    words = (
        f"Deadline: two groups of {EACH} clients, {EACH} clients are slow, and the server waits "
        "{deadline:g} seconds for a round."
    )
    own = {"quick": quick, "slow": slow, "linked": linked, "luck": luck, "models": models}
    own |= {"deadline": deadline, "late": late}
    return laboratory("deadline", FIELDS, words, _still, task=task, **own)


def needed(quick, slow, linked, luck, round):
    """Seconds that each client needs in a round: list of 10."""
    first = [EACH - linked, linked]  # of each group, so many are slow
    seconds = []
    for i in range(2 * EACH):
        group, place = divmod(i, EACH)
        chance = float(stream(0, "luck", round, i).normal(1)[0])
        usual = slow if place < first[group] else quick
        seconds.append(usual * PACE[place] * math.exp(luck * chance))
    return seconds


def world():
    """The ten clients; each one's best model is its group's and a little of its own."""
    best = np.repeat(BEST, EACH, axis=0) + np.tile(OWN, (2, 1))
    return replay.bowls(best.tolist())


def played(deadline, *, quick, slow, linked, luck, models, late):
    """Two minutes of FedAvg or IFCA with a deadline, by the library's four functions.

    Parameters
    ----------
    deadline, quick, slow, linked, luck, models, late : see `deadline`

    Returns
    -------
    dict
        "distances": from the model that a group has at the end to its best one, for both groups;
        "rounds" and "seconds", how many and their mean length; "heard": what share of the answers
        that there could be were counted, for both groups, in percent.
    """
    federation, line, local = world(), LinearRegression(2), LocalSGD(steps=5, step_size=0.1)
    algorithm = FedAvg(line, local) if models == "one" else IFCA(line, 2, local)
    algorithm = replay.replayed(algorithm, models=STARTS[models])
    now = algorithm.init(federation, 0)
    clock, working, heard, rounds = 0.0, {}, np.zeros(2), 0
    while True:
        jobs, took = algorithm.plan(now), needed(quick, slow, linked, luck, rounds)
        free = [i for i in range(2 * EACH) if i not in working]
        for i in free:
            row = torch.tensor([i])
            answer = algorithm.client_step(jobs.take(row), federation.train.take(row))
            working[i] = clock + took[i], answer
        end = min(clock + deadline, max(at for at, _ in working.values()))
        if end > BUDGET:
            break
        there = sorted(i for i, (at, _) in working.items() if at <= end)
        answers = [working.pop(i)[1] for i in there]
        if not late:
            working = {}
        now = algorithm.absorb(now, iter([Replies.join(answers)])) if answers else now.next()
        heard += np.bincount([i // EACH for i in there], minlength=2)
        clock, rounds = end, rounds + 1
    bank = now.bank.flatten().to(torch.float64)
    apart = (bank[[0, -1]] - torch.tensor(BEST)).norm(dim=1)
    return {
        "distances": apart.tolist(),
        "rounds": rounds,
        "seconds": clock / rounds,
        "heard": (100 * heard / (rounds * EACH)).tolist(),
    }


def _still(figures, found):
    seconds = needed(found["quick"], found["slow"], found["linked"], 0, 0)
    panel = figures.panel("Seconds of ten clients, and the deadline.", width=260, height=200)
    for group in range(2):
        rows = range(EACH * group, EACH * (group + 1))
        panel.points([seconds[i] for i in rows], list(rows), f"group {group}", group)
    panel.axvline(found["deadline"], color="k")
    panel.set_xlim(0, 12)
    return panel.named("seconds", "client")
