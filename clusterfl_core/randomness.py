"""Random numbers by name: each use draws from a stream of its own, never from torch's global one.

A stream is named by a key: which use it is, the seed of the run, then what the numbers are for, for
example round and client. Equal keys give equal numbers on any machine, whoever else takes part. An
algorithm of your own names its streams in words:

>>> import torch
>>> from clusterfl_core.randomness import generator
>>> seed, round, client = 0, 3, 7
>>> one, again = (torch.rand(1, generator=generator("noise", seed, round, client)) for _ in "ab")
>>> bool(one == again)
True
"""

import hashlib
from math import inf

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clusterfl_core.check import items, kind, share, whole

__all__ = ["BATCHES", "INITIALIZATION", "PARTICIPATION", "POPULATION", "SECRET", "SELECTION"]
__all__ += ["drawing_from", "generator", "participants"]

# The streams of this package, so that two uses never share numbers.
INITIALIZATION, PARTICIPATION, BATCHES, POPULATION, SELECTION = range(5)
SECRET = 1 << 16  # what CFL's clients know and the server does not


def generator(*key):
    """A generator (``torch.Generator``, on the CPU) that depends on the whole key and nothing else.

    The key is a stream (a constant above, or words of your own, hashed alike everywhere), the seed,
    then whole numbers, not negative, that say what the numbers are for.
    """
    parts = [part if type(part) is int and part >= 0 else _number(part) for part in key]
    word = np.random.SeedSequence(parts).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word >> 1))


def _number(part):
    if not isinstance(part, str):
        return whole("key", part, 0, inf)
    return int.from_bytes(hashlib.blake2b(part.encode(), digest_size=16).digest(), "little")


def participants(key, clients, participation):
    """M_t, the random subset of clients that takes part in a round (IFCA, Algorithm 1, line 4).

    ``key`` is (seed, round). The fraction ``participation`` in (0, 1] of the m ``clients`` is
    drawn, at least one: LongTensor [b] of ids, ascending.
    """
    key, clients = items("key", key), whole("clients", clients)
    chosen = max(1, round(share("participation", participation) * clients))
    if chosen == clients:
        return torch.arange(clients)
    order = torch.randperm(clients, generator=generator(PARTICIPATION, *key))
    return order[:chosen].sort().values


class drawing_from(TorchDispatchMode):
    """Inside it, whatever this thread draws with torch comes from one generator, not the global."""

    _should_skip_dynamo = classmethod(lambda _: False)  # True, the default, loads torch's compiler

    def __init__(self, source):
        super().__init__()
        self.source = kind("source", source, torch.Generator)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in function.tags or given.get("generator"):
            return function(*args, **given)
        try:
            return function.overloadpacket(*args, **given | {"generator": self.source})
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"{function} cannot draw from a generator of its own") from error
