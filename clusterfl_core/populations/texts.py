"""Texts become clients, each with text of one kind.

>>> federation = next_words("manuals", clients=4, clusters=2, window=3, points=20)
>>> x, y = federation.train.x[0, 0].tolist(), int(federation.train.y[0, 0])
>>> len([federation.truth["words"][number] for number in [*x, y]])  # three words and the next
4
"""

import re
from collections import Counter

import torch

from clusterfl_core import check, data
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.populations._sizes import check_equal, neighbours
from clusterfl_core.randomness import POPULATION, generator

__all__ = ["next_words"]


def next_words(name, clients, clusters, seed=0, *, window=10, vocabulary=1000, points=2000):
    """Text of which each client has one kind, to predict the next word (CFL, figure 9).

    Of the Federation x is [m, n, window], numbers of words; ``truth["words"]`` lists the
    vocabulary, ``truth["kinds"]`` the name of each cluster.

    The documents of a kind are shuffled, joined and cut into equal parts, one a client; the last
    fifth of a part is held out. A point is a window of words and the word that follows, so a run's
    loss is a mean over words and exp(loss) is the perplexity. Words are letters and apostrophes
    in lower case, and marks of punctuation; all words outside the vocabulary count as word 0.

    Parameters
    ----------
    name : str
        A collection of :func:`clusterfl_core.data.load_text`.
    clients, clusters : int
        m, a multiple of k, the number of kinds: the first k of the collection.
    seed : int
        Fixes the order of the documents.
    window : int
        Words a model sees, at least 1.
    vocabulary : int
        How many words are told apart, the most frequent ones in the training parts of all clients.
    points : int
        n, windows of each client, evenly spaced; a quarter as many for testing. With a few hundred,
        a model of one kind alone learns its few sentences by heart.
    """
    texts = data.load_text(name)
    (clients, clusters), seed = check_equal(clients, clusters), check.whole("seed", seed, 0)
    if clusters > len(texts.kinds):
        raise ValueError(f"clusters must be at most {len(texts.kinds)} kinds, got {clusters}")
    window, vocabulary = check.whole("window", window), check.whole("vocabulary", vocabulary, 2)
    points = check.whole("points", points, -(2**62))
    source, parts = generator(POPULATION, seed), []
    for kind in range(clusters):
        rows = (texts.labels == kind).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=source)]
        text = "\n".join(texts.documents[row] for row in rows.tolist())
        words = re.findall(r"[a-z']+|[.,;:?!]", text.lower())
        size = len(words) * clusters // clients
        parts += [words[i * size : (i + 1) * size] for i in range(clients // clusters)]
    cuts = [len(words) * 4 // 5 for words in parts]
    most = min(min(cut, 4 * (len(w) - cut)) for cut, w in zip(cuts, parts, strict=True))
    if not 1 <= points <= most - 4 * window:
        raise ValueError(
            f"points must be from 1 to {max(0, most - 4 * window)}, what the shortest part holds "
            f"with window {window}; got {points}"
        )
    seen = Counter(w for words, cut in zip(parts, cuts, strict=True) for w in words[:cut])
    known = ["(any other)", *(word for word, _ in seen.most_common(vocabulary - 1))]
    number = {word: i for i, word in enumerate(known)}

    def windows(words, count):
        tokens = torch.tensor([number.get(word, 0) for word in words])
        starts = torch.arange(count) * (len(tokens) - window) // count
        spans = tokens[starts[:, None] + torch.arange(window + 1)]
        return spans[:, :-1].to(torch.int32), spans[:, -1]

    both = list(zip(parts, cuts, strict=True))
    train = [windows(words[:cut], points) for words, cut in both]
    test = [windows(words[cut:], max(1, points // 4)) for words, cut in both]
    kinds = neighbours(clients, clusters)
    return Federation(
        Clients.from_lists(*zip(*train, strict=True)),
        Clients.from_lists(*zip(*test, strict=True)),
        clusters=kinds,
        test_clusters=kinds,
        classes=vocabulary,
        name=f"next word of {name}: {', '.join(texts.kinds[:clusters])}",
        truth={"words": known, "kinds": texts.kinds[:clusters]},
    )
