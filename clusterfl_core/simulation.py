"""Run an algorithm on a federation, round after round, on one machine.

The loop is the contract of every algorithm (:mod:`clusterfl_core.contract`). Clients are handled in
chunks as large as fit the cache, on several cores several at once. On a CPU nothing depends on the
chunk: a client computes the same alone and among others, and answers are read in the order of the
clients, as they come. So an algorithm that only sums them needs memory for a few chunks.

A GPU is not held to that: its libraries choose the order of sums by the size of a batch, and some
backward passes add as threads finish. Two runs there agree to rounding, which training amplifies.

>>> import clusterfl_core as cf
>>> federation = cf.populations.rotated("digits", clients=8, clusters=4)
>>> settings = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=4, local=cf.LocalSGD(5, 0.1))
>>> run = cf.run(settings, federation, rounds=2)
>>> [(record["round"], record["bytes_up"]) for record in run.history]
[(1, 19520), (2, 19520)]

To look inside, and to stop when one has seen enough, here a model that nobody chooses any more:

>>> for one in cf.rounds(settings, federation, rounds=50):
...     if len(one.replies.values["identity"].unique()) < 4:
...         break
>>> one.state.round
9
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from threading import RLock

import torch

from clusterfl_core import door, evaluation, machine
from clusterfl_core.check import flag, kind, whole
from clusterfl_core.clients import Federation
from clusterfl_core.contract import Replies, traffic
from clusterfl_core.runs import Run, resumed

__all__ = ["Diverged", "Round", "begin", "extended", "play", "round_trip", "rounds", "run"]


class Diverged(FloatingPointError):
    """A loss or a model became infinite or NaN; ``run`` holds all up to the round before."""

    def __init__(self, message, run=None):
        super().__init__(message)
        self.run = run


@dataclass(frozen=True)
class Round:
    """One round, as it went.

    Parameters
    ----------
    before, state : clusterfl_core.contract.State
        From where it started and to where it came.
    trips : tuple of (Jobs, Replies)
        What each round trip asked, and what came back, with the clients' models if they were kept;
        ``jobs`` and ``replies`` are the last one's.
    bytes_down, bytes_up : int
        Bytes of models that travelled, in all its round trips.
    seconds : float
    """

    before: object
    state: object
    trips: tuple
    bytes_down: int
    bytes_up: int
    seconds: float

    @property
    def jobs(self):
        """What the last round trip asked."""
        return self.trips[-1][0]

    @property
    def replies(self):
        """What came back from the last round trip."""
        return self.trips[-1][1]

    def record(self, **scores):
        """The round as an entry of ``Run.history``, with these scores."""
        losses = self.replies.values["loss"]
        said = {"round": self.state.round, "train_loss": float(losses.mean())}
        said |= {"clients": len(losses), **scores, **self.state.note()}
        said |= {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        return said | {"seconds": self.seconds}


def run(algorithm, federation, rounds, *, seed=0, device="auto", progress=True, checkpoint=None):
    """Run an algorithm on a federation: a :class:`clusterfl_core.runs.Run`.

    ValueError or TypeError if an argument is out of bounds, the algorithm breaks the contract, the
    checkpoint is of another run (it stays as it is), or the run could not go on from one;
    :class:`Diverged` if a loss or a model became infinite or NaN.

    Parameters
    ----------
    algorithm
        Settings: IFCA, CFL, or anything else that keeps :class:`clusterfl_core.contract.Algorithm`.
    federation : Federation
        Clients, test clients, and the truth for evaluation.
    rounds : int
        T, the number of rounds in all, at least 1.
    seed : int
        Fixes initialisation, client sampling and batches.
    device : str
        "auto" (CUDA where there is one, else Apple's MPS, else CPU) or a name that torch knows.
    progress : bool
        Show a progress bar where somebody watches (a terminal or a live notebook), never in an
        executed page or a log. It is removed at the end.
    checkpoint : path, optional
        File to which the run is written after each round. If it exists, the run goes on from it;
        it must be of the same algorithm, data and seed.
    """
    device, progress = machine.named_device(device), flag("progress", progress)
    rounds = whole("rounds", rounds)
    so_far = begin(algorithm, kind("federation", federation, Federation), rounds, seed, checkpoint)
    from tqdm import tqdm  # here, since importing it takes time

    look = {"desc": type(algorithm).__name__, "unit": "round", "leave": False, "delay": 1}
    mute = not (progress and machine.watched())
    own = {"_lock": RLock(), "monitor_interval": 0}  # tqdm's lock may be held by a killed process
    bar = type("Bar", (tqdm,), own)(total=rounds, initial=so_far.state.round, disable=mute, **look)
    clients = machine.placed(federation.train, device)
    trip = partial(_trip, algorithm, clients=clients, device=device, keep=False)
    with bar:
        while so_far.state.round < rounds:
            so_far = extended(so_far, federation, trip)
            if checkpoint is not None:
                so_far.save(checkpoint)
            bar.update()
    return so_far


def rounds(algorithm, federation, rounds, *, seed=0, device="auto", start=None, keep=True):
    """Yield each :class:`Round` of a run, to look into it; :func:`run` scores and keeps them.

    Parameters
    ----------
    algorithm, federation, seed, device
        As in :func:`run`, with its errors; ``Diverged.run`` is None.
    rounds : int
        How many rounds at most.
    start : clusterfl_core.contract.State, optional
        The state to go on from; then the seed is that state's. Default: ``init``'s.
    keep : bool
        Whether ``replies`` hold the models that the clients sent.
    """
    device, rounds, state = machine.named_device(device), whole("rounds", rounds), start
    m, keep = len(kind("federation", federation, Federation)), flag("keep", keep)
    if start is None:
        state = door.admit(algorithm, federation, whole("seed", seed, 0), rounds)
    else:
        door.check_state("start", start, m)
    clients = machine.placed(federation.train, device)
    trip = partial(_trip, algorithm, clients=clients, device=device, keep=keep)
    for _ in range(rounds):
        one = play(algorithm, state, trip)
        yield one
        state = one.state


def begin(algorithm, federation, rounds, seed=0, checkpoint=None):
    """A run of no rounds, or the one that a checkpoint holds; arguments as in :func:`run`."""
    rounds, seed = whole("rounds", rounds), whole("seed", seed, 0)
    kind("checkpoint", checkpoint, str, PathLike, none=True)
    fresh = checkpoint is None or not Path(checkpoint).exists()
    state = door.admit(algorithm, federation, seed, rounds, rehearse=fresh)
    so_far = Run(algorithm, seed, federation.fingerprint(), state, [], str(federation))
    return so_far if checkpoint is None else resumed(Path(checkpoint), so_far, rounds)


def extended(so_far, federation, trip):
    """A run and one round more, scored.

    ``federation`` is None where nobody has all data: then there are no scores. ``trip`` is as in
    :func:`play`, whose :class:`Diverged` is raised with the run so far.
    """
    started = time.perf_counter()
    try:
        one = play(so_far.algorithm, so_far.state, trip)
    except Diverged as error:
        why = f"{error}. Everything up to round {so_far.state.round} is in this error's .run"
        raise Diverged(why, so_far) from None
    scores = {}
    if federation is not None:
        quality = evaluation.score(so_far.algorithm, one.state, federation)
        scores["accuracy" if federation.classes else "error"] = float(quality.mean())
        if federation.clusters is not None:
            found = evaluation.hard(one.state.assignments)
            scores["identity_accuracy"] = evaluation.identity_accuracy(found, federation.clusters)
    one = replace(one, seconds=time.perf_counter() - started)
    return replace(so_far, state=one.state, history=[*so_far.history, one.record(**scores)])


def play(algorithm, state, trip):
    """One :class:`Round` from a state: round trips until the state says that it is over.

    ``trip`` goes from a state to the next one, jobs, replies, whether the models of each client
    that answered are finite [b], and how many models came back.
    """
    started, before, trips, down, up = time.perf_counter(), state, [], 0, 0
    kind = type(algorithm).__name__
    for _ in range(door.TRIPS):
        state, jobs, replies, sound, sent = trip(state)
        trips.append((jobs, replies))
        less, more = traffic(jobs, sent)
        down, up = down + less, up + more
        if state.round != before.round:
            break
    else:
        raise door.never_ends(kind, before.round)
    fine, what = replies.values["loss"].isfinite(), "loss"
    if fine.all():
        if state.finite():
            return Round(before, state, tuple(trips), down, up, time.perf_counter() - started)
        fine, what = sound, "model"
    whose = "a model that the server made"
    if not fine.all():
        whose = f"the {what} of client {int(replies.clients[~fine][0])}"
    sizes = [getattr(one, "step_size", None) for one in vars(algorithm).values()]
    words = " or ".join(str(size) for size in dict.fromkeys(sizes) if size is not None)
    raise Diverged(
        f"round {before.round + 1}: {whose} is not finite; the step size {words} is probably too "
        "large"
    )


def round_trip(algorithm, state, clients, device="cpu"):
    """One round trip of any algorithm: plan, client step in chunks, absorb.

    Row i of ``clients`` is the client with id i. The next state, and the jobs and replies that
    travelled; the round is over when the state's ``round`` has grown.
    """
    return _trip(algorithm, state, clients, device, keep=True)[:3]


def _trip(algorithm, state, clients, device, keep):
    kind = type(algorithm).__name__
    jobs = door.check_jobs(kind, algorithm.plan(state), len(clients))
    sent = jobs.to(device)
    chunks = torch.arange(len(jobs.clients)).split(machine.chunk_size(jobs.bank, clients, device))
    said, sound, models = [], [], []

    def work(rows):
        part = sent.take(rows)
        answer = algorithm.client_step(part, clients.take(part.clients).to(device))
        return door.check_replies(kind, answer, part)

    def answers():
        for part in machine.in_order(work, chunks, device):
            sound.append(part.sound().to("cpu"))
            models.append(len(part.bank) if part.bank else 0)
            said.append(part if keep else replace(part, bank=None))
            yield part

    parts = door.Parts(answers())
    after = algorithm.absorb(state, parts)
    for _ in parts:  # what absorb has not read counts as well
        pass
    return after, jobs, Replies.join(said), torch.cat(sound), sum(models)
