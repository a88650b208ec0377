"""Random numbers by name: each use draws from a stream of its own.

A stream is named by a key: which use it is, the seed of the run, then what the numbers are for,
for example round and client. Equal keys give equal numbers on any machine, whoever else takes part.

Examples
--------
>>> import torch
>>> from clusterfl_core.randomness import generator
>>> one, again = (torch.rand(1, generator=generator(7, 0, 3)) for _ in range(2))
>>> bool(one == again)
True
"""

import numpy as np
import torch

# Streams of random numbers: the first word of a key, so that two uses never share numbers.
INITIALIZATION, PARTICIPATION, BATCHES, POPULATION, SELECTION = range(5)
SECRET = 1 << 16  # which only clients draw from


def generator(*key):
    """A random generator that depends on the whole key and on nothing else.

    Parameters
    ----------
    *key : int
        Non-negative integers: a stream (one of the constants above), the seed, then what the
        numbers are for, for example round and client.

    Returns
    -------
    torch.Generator
        On the CPU. Equal keys give equal numbers, whichever other clients take part and
        whichever machine a client runs on.
    """
    word = np.random.SeedSequence([int(part) for part in key]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word >> 1))


def participants(key, clients, participation):
    """M_t, the random subset of clients that takes part in a round (IFCA, Algorithm 1, line 4).

    Parameters
    ----------
    key : tuple of int
        (seed, round).
    clients : int
        m, the number of all clients.
    participation : float
        Fraction of the clients, in (0, 1]. At least one client takes part.

    Returns
    -------
    LongTensor [b]
        Client ids in ascending order.
    """
    chosen = max(1, round(participation * clients))
    if chosen == clients:
        return torch.arange(clients)
    order = torch.randperm(clients, generator=generator(PARTICIPATION, *key))
    return order[:chosen].sort().values
