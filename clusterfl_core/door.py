"""The check at the door: whatever breaks the contract is one sentence before any work is done.

>>> import clusterfl_core as cf
>>> federation = cf.populations.rotated("digits", clients=8, clusters=4)
>>> cf.run(cf.models.MLP(64, 8, 10), federation, rounds=100)
Traceback (most recent call last):
TypeError: MLP is no algorithm: it has no function init (see clusterfl_core.contract)
"""

import inspect
from dataclasses import is_dataclass

import torch

from clusterfl_core import models
from clusterfl_core.banks import Bank, widest
from clusterfl_core.clients import Federation
from clusterfl_core.contract import Jobs, Replies, State

__all__ = ["Known", "Parts", "admit", "check_jobs", "check_replies", "check_state", "never_ends"]

ASKED = {  # what an algorithm is asked for, and with what
    "init": "federation, seed",
    "plan": "state",
    "client_step": "jobs, clients",
    "absorb": "state, parts",
    "test_protocol": "state, federation",
}
TAKEN = {"round", "train_loss", "clients", "accuracy", "error", "identity_accuracy", "seconds"}
TAKEN |= {"bytes_down", "bytes_up", "missing"}  # what each record of a round says
TRIPS = 100  # round trips after which a round that has not ended is taken for one that never does


class Known:
    """What a server knows of a federation, and all that ``init`` is given of it: m and the n_i."""

    _kind = "an algorithm"

    def __init__(self, kind, counts):
        self._kind, self.counts, self.train = kind, counts, self

    def __len__(self):
        return len(self.counts)

    def __getattr__(self, name):
        raise (AttributeError if name.startswith("__") else TypeError)(
            f"{self._kind}.init asks for {name}, but the data is with the clients: a server knows "
            "len(federation) and federation.train.counts"
        )


class Parts:
    """What ``absorb`` is given: an iterator of Replies, no Replies itself."""

    def __init__(self, replies):
        self._replies = iter(replies)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._replies)

    def __getattr__(self, name):
        raise (AttributeError if name.startswith("__") else TypeError)(
            f"absorb asks parts for {name}, but they are an iterator of Replies: take "
            "Replies.join(parts), or a part at a time"
        )


def admit(algorithm, federation, seed, rounds, *, rehearse=True):
    """The state before the first round, or a TypeError or ValueError: what breaks the contract.

    Where the clients' data are at hand, one of them tries the first round, twice: what it answers,
    whether the round ends, whether the state before it stays and whether it is the same round with
    the same seed is seen before any work is done.

    Parameters
    ----------
    algorithm : Algorithm
    federation : Federation
        Or what a server knows of one: ``len`` and ``train.counts``.
    seed, rounds : int
    rehearse : bool
        False where a run goes on: it has answered before.
    """
    kind = type(algorithm).__name__
    if isinstance(algorithm, type):
        kind = algorithm.__name__
        raise TypeError(f"{kind} is no algorithm: it is a class, not an object with settings")
    for name, given in ASKED.items():
        function = getattr(algorithm, name, None)
        if not callable(function):
            what = "" if function is None else f", but a {type(function).__name__}"
            raise TypeError(
                f"{kind} is no algorithm: it has no function {name}{what} "
                "(see clusterfl_core.contract)"
            )
        try:
            inspect.signature(function).bind(*given.split(", "))
        except TypeError:
            raise TypeError(
                f"{kind}.{name} must take ({given}); a function that does not take self stands in "
                "staticmethod"
            ) from None
    if not isinstance(getattr(algorithm, "model", None), torch.nn.Module):
        raise TypeError(f"{kind}.model must be a torch.nn.Module, got {_kind(algorithm, 'model')}")
    if not (is_dataclass(algorithm) and type(algorithm).__dataclass_params__.frozen):
        raise TypeError(f"{kind} must be a frozen dataclass: its settings say what a run was")

    def begin():
        state = algorithm.init(Known(kind, federation.train.counts.clone()), seed)
        check_state(f"{kind}.init", state, len(federation))
        return state

    state = begin()
    if state.round != 0:
        raise ValueError(f"{kind}.init must give round 0, got {state.round}")
    if state.most is not None and rounds > state.most:
        raise ValueError(f"rounds must be at most {state.most} with these settings, got {rounds}")
    if rehearse and isinstance(federation, Federation):
        points = federation.train.take([0]).inputs(state.bank.dtype)[0]
        models.check(algorithm.model, points, federation.classes)
        drawn = _stands(begin()), _stands(state)
        played = (_rehearsed(algorithm, state, federation.train) for _ in range(2))
        if not all(torch.allclose(*two, rtol=1e-3, equal_nan=True) for two in (drawn, played)):
            raise ValueError(
                f"{kind} plays the same round in two ways with the same seed: what is random must "
                "come from clusterfl_core.randomness.generator, with the seed in the key"
            )
    return state


def _kind(thing, name):
    return type(getattr(thing, name, None)).__name__


def check_state(whose, state, m):
    """Refuse what is no state of m clients; ``whose`` says who gave it."""
    if not isinstance(state, State):
        raise TypeError(f"{whose} must give a contract.State, got {type(state).__name__}")
    if not isinstance(state.bank, Bank):
        got = _kind(state, "bank")
        raise TypeError(f"{whose} must give a state with a Bank, got {got} as its bank")
    found = state.assignments
    if not isinstance(found, torch.Tensor) or (found.dim() == 1 and found.is_floating_point()):
        got = found.dtype if isinstance(found, torch.Tensor) else type(found).__name__
        raise TypeError(
            f"{whose} must give assignments as a LongTensor [m] or shares [m, k], got {got}"
        )
    if found.shape[:1] != (m,):
        raise TypeError(
            f"{whose} must give a state with one assignment for each of the {m} clients, whoever "
            f"answered, got shape {list(found.shape)}"
        )
    note = state.note()
    if not isinstance(note, dict) or TAKEN & set(note):
        got = sorted(TAKEN & set(note)) if isinstance(note, dict) else type(note).__name__
        raise TypeError(
            f"{whose} must give a state whose note() is a dict with names of its own, got {got}"
        )


def _rehearsed(algorithm, state, clients):
    """Where one round comes to if the last client of each round trip answers alone.

    That client's id is not its row in the batch.
    """
    kind, first, before, stood = type(algorithm).__name__, state.round, state, _stands(state)
    for _ in range(TRIPS):
        jobs = check_jobs(kind, algorithm.plan(state), len(clients))
        one = jobs.take([len(jobs.clients) - 1])
        replies = check_replies(kind, algorithm.client_step(one, clients.take(one.clients)), one)
        try:
            state = algorithm.absorb(state, Parts([replies]))
        except ValueError:  # it cannot do with one answer, and says so
            return _stands(state)
        except Exception as error:
            error.add_note(
                f"This was a rehearsal before the first round, in which one client answers alone: "
                f"{kind}.absorb must cope with that, or raise a ValueError."
            )
            raise
        check_state(f"{kind}.absorb", state, len(clients))
        if state.round != first:
            break
    else:
        raise never_ends(kind, first)
    if state.round != first + 1:
        raise ValueError(
            f"{kind}.absorb must end one round at a time: state.round went from {first} to "
            f"{state.round}"
        )
    if not torch.equal(_stands(before).nan_to_num(), stood.nan_to_num()):
        raise ValueError(
            f"{kind} changes the state it is given: make new tensors, with bank.map(…) and "
            "assignments.clone(), and state.next(…) of them"
        )
    return _stands(state)


def _stands(state):
    """The assignments, and of each tensor of the bank its sum, which tells without a copy."""
    sums = [t.sum(dtype=widest(t.device)).view(1) for t in state.bank.tensors.values()]
    return torch.cat([state.assignments.flatten().to(sums[0]), *sums])


def never_ends(kind, number):
    """The error of a round that does not end."""
    return ValueError(
        f"{kind}.absorb does not end round {number + 1}: after {TRIPS} round trips state.round is "
        f"still {number}; let it return state.next(…)"
    )


def check_jobs(kind, jobs, m):
    """The jobs that an algorithm has planned for m clients, if they keep the contract."""
    if not isinstance(jobs, Jobs):
        raise TypeError(f"{kind}.plan must give contract.Jobs, got {type(jobs).__name__}")
    ids = jobs.clients
    for name, value in (("clients", ids), ("models", jobs.models)):
        if not isinstance(value, torch.Tensor) or value.is_floating_point():
            got = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(f"{kind}.plan must name {name} in a LongTensor, got {got}")
    if not len(ids):
        raise ValueError(f"{kind}.plan asks no client in round {jobs.round + 1}")
    if (ids[1:] <= ids[:-1]).any() or int(ids[0]) < 0 or int(ids[-1]) >= m:
        raise ValueError(f"{kind}.plan must name clients of 0 to {m - 1} in ascending order")
    rows = {"models": jobs.models, **jobs.values} | ({"kept": jobs.kept} if jobs.kept else {})
    for name, value in rows.items():
        if len(value) != len(ids):
            raise ValueError(f"{kind}.plan: {name} must have {len(ids)} rows, got {len(value)}")
    sent = jobs.models
    if sent.numel() and (int(sent.min()) < 0 or int(sent.max()) >= len(jobs.bank)):
        raise ValueError(
            f"{kind}.plan must send models 0 to {len(jobs.bank) - 1} of the bank, got "
            f"{int(sent.min())} to {int(sent.max())} (an assignment of -1 is no model yet)"
        )
    return jobs


def check_replies(kind, replies, jobs):
    """What clients have answered to jobs, if it keeps the contract."""
    if not isinstance(replies, Replies):
        got = type(replies).__name__
        raise TypeError(f"{kind}.client_step must give contract.Replies, got {got}")
    b, models = len(jobs.clients), 0 if replies.bank is None else len(replies.bank)
    if replies.clients.tolist() != jobs.clients.tolist():
        raise ValueError(f"{kind}.client_step must answer for the clients asked, in their order")
    if models % b:
        raise ValueError(f"{kind}.client_step must send as many models for each client")
    for name, value in replies.values.items():
        if not isinstance(value, torch.Tensor) or value.shape[:1] != (b,):
            got = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ValueError(
                f"{kind}.client_step: {name} must be a tensor with {b} rows, one a client, got "
                f"{got}"
            )
    if models and replies.values.get("loss", torch.empty(0)).shape != (b,):
        raise ValueError(
            f"{kind}.client_step must say the loss of each client that sends a model: a value "
            f"'loss' of shape [{b}] beside {sorted(replies.values) or 'nothing'}"
        )
    return replies
