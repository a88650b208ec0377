"""Random numbers by name, alike in Python and in the page (JavaScript: engine/random.js).

Philox4x32-10 (Salmon, Moraes, Dror, Shaw; 2011) turns a counter of four 32-bit words and a key of
two into four random words. Nothing is remembered but how many numbers were drawn:

* key = (seed, number of the stream), that number being FNV-1a, 32 bits, of the name in UTF-8;
* counter = (how many numbers this stream has drawn, a, b, c), where a, b, c say what the numbers
  are for, for example round and client.

Each number takes one block (w0, w1, w2, w3) of its own:

* uniform: ((w0 >> 5) 2^26 + (w1 >> 6)) / 2^53, in [0, 1);
* normal: sqrt(-2 ln(1 - u)) cos(2 pi v), u from w0 and w1, v from w2 and w3 (Box-Muller);
* integer below n: w0 mod n, if w0 < 2^32 - (2^32 mod n); else the next block is tried;
* shuffle: for i from the end down to 1, change places with an integer below i + 1 (Fisher-Yates).

Integers and uniforms are equal bit for bit in both languages; normals up to the rounding of
logarithm and cosine.

>>> stream(7, "points", 2, 0).integers(10, 8).tolist()
[9, 2, 7, 0, 2, 0, 1, 6]
>>> stream(7, "points", 2, 0).shuffle(5)
[1, 3, 2, 0, 4]
"""

import numpy as np

from clusterfl_core.check import text, whole

__all__ = ["Stream", "philox", "stream", "stream_number"]

_WORD = 2**32


def philox(counter, key):
    """Ten rounds of Philox4x32 (figure 2 of the paper, constants as in Random123).

    Four random 32-bit words for each ``counter`` (array of uint32 [n, 4]), an ndarray of uint64
    [n, 4]; ``key`` are two 32-bit words.
    """
    c0, c1, c2, c3 = np.asarray(counter, np.uint64).T
    low, shift = np.uint64(_WORD - 1), np.uint64(32)
    k0, k1 = key
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (second >> shift) ^ c1 ^ np.uint64(k0),
            second & low,
            (first >> shift) ^ c3 ^ np.uint64(k1),
            first & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) % _WORD, (k1 + 0xBB67AE85) % _WORD
    return np.stack([c0, c1, c2, c3], 1)


def stream_number(name):
    """FNV-1a, 32 bits, of a stream's name."""
    found = 0x811C9DC5
    for byte in text("name", name).encode():
        found = (found ^ byte) * 0x01000193 % _WORD
    return found


class Stream:
    """Numbers of one stream, one after another; made by :func:`stream`."""

    def __init__(self, key, words):
        self.key, self.words, self.drawn = key, words, 0

    def _blocks(self, count):
        counter = np.empty((count, 4), np.uint64)
        counter[:, 0] = np.arange(self.drawn, self.drawn + count)
        counter[:, 1:] = self.words
        self.drawn += count
        return philox(counter, self.key)

    def uniform(self, count):
        """The next ``count`` uniforms in [0, 1): ndarray [count]."""
        return _fractions(self._blocks(count))

    def normal(self, count):
        """The next ``count`` standard normals: ndarray [count]."""
        blocks = self._blocks(count)
        u, v = _fractions(blocks[:, :2]), _fractions(blocks[:, 2:])
        return np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * np.pi * v)

    def integers(self, n, count):
        """The next ``count`` whole numbers below n, each as likely: ndarray [count]."""
        found, limit = [], _WORD - _WORD % n
        while len(found) < count:  # word for word, as the page takes them
            words = self._blocks(count - len(found))[:, 0]
            found += (words[words < limit] % np.uint64(n)).tolist()
        return np.array(found, np.int64)

    def shuffle(self, count):
        """The numbers 0, ..., count - 1 in random order: a list of int."""
        order = list(range(count))
        for i in range(count - 1, 0, -1):
            (j,) = self.integers(i + 1, 1).tolist()
            order[i], order[j] = order[j], order[i]
        return order


def _fractions(words):
    high, low = words[:, 0] >> np.uint64(5), words[:, 1] >> np.uint64(6)
    return (high * np.uint64(2**26) + low) / 2**53


def stream(seed, name, a=0, b=0, c=0):
    """The :class:`Stream` of a name, which says which use the numbers are for.

    The ``seed`` lies in [0, 2^32), and so do a, b and c: what the numbers are for, for example
    round and client.
    """
    words = [whole(word, n, 0, _WORD - 1) for word, n in (("a", a), ("b", b), ("c", c))]
    return Stream((whole("seed", seed, 0, _WORD - 1), stream_number(name)), tuple(words))
