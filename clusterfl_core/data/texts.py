"""Texts of several kinds: the manuals of installed packages, news and plays from the cache.

>>> texts = load_text("manuals")
>>> len(texts.documents) == len(texts.labels), texts.kinds[:2]
(True, ('Python', 'NumPy'))
"""

import csv
import hashlib
import io
import re
import urllib.request
from dataclasses import dataclass

import numpy as np
import torch

from clusterfl_core.check import shown
from clusterfl_core.data.cache import cached

__all__ = ["TEXTS", "Texts", "load_text"]

TEXTS = ("manuals", "ag_news", "shakespeare")
TEXT_SOURCES = {  # address, and SHA-256 of what lies there
    "ag_news": (
        "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/train.csv",
        "76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e",
    ),
    "shakespeare": (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
}
# SciPy writes some docstrings when it is imported, with a sample that each process draws anew.
SAMPLE = re.compile(r"(\.sample\(shape=\(4,\)\)\narray\()[^)]*")


@dataclass(frozen=True)
class Texts:
    """A collection of texts of several kinds.

    ``documents`` is a list of str, ``labels`` (LongTensor [N]) the kind of each, an index into the
    names ``kinds``.
    """

    name: str
    documents: list
    labels: torch.Tensor
    kinds: tuple


def load_text(name):
    """Load a collection of :class:`Texts` by name; raises as :func:`clusterfl_core.data.load`.

    Parameters
    ----------
    name : {"manuals", "ag_news", "shakespeare"}
        manuals: a stand-in that needs no network. Four kinds of English prose with code in it: the
        reference of the Python language, and the docstrings of NumPy, of SciPy's statistics and of
        PyTorch. They differ a little between versions of these packages.
        ag_news: 120,000 news articles on four topics, the training part of CFL's corpus.
        shakespeare: speeches out of Shakespeare's plays; a kind is a speaker, those with the most
        text first.

    Notes
    -----
    A cache file holds ``text`` (the documents, joined by the character 0), ``y`` and ``classes``
    (ag_news), or ``raw``, the text as it was downloaded (shakespeare).
    """
    if not isinstance(name, str) or name not in TEXTS:
        raise ValueError(f"unknown text {shown(name)}; known are {', '.join(TEXTS)}")
    if name == "manuals":
        return _manuals()
    return Texts(name, *cached(name, _from_address, _parts, instead="manuals"))


def _manuals():
    from pydoc_data.topics import topics

    import scipy.stats

    kinds = {"Python": sorted(topics.values()), "NumPy": _docstrings(np)}
    kinds |= {"SciPy": _docstrings(scipy.stats), "PyTorch": _docstrings(torch)}
    return Texts("manuals", *_sorted(kinds))


def _sorted(kinds):
    """Documents, labels and kinds, from the list of documents of each kind."""
    documents = [text for texts in kinds.values() for text in texts]
    sizes = torch.tensor([len(texts) for texts in kinds.values()])
    return documents, torch.arange(len(kinds)).repeat_interleave(sizes), tuple(kinds)


def _docstrings(module):
    found = {getattr(getattr(module, name), "__doc__", None) for name in module.__all__}
    found = (text for text in found if isinstance(text, str) and len(text) > 200)
    return sorted(SAMPLE.sub(r"\1[0., 0., 0., 0.]", text) for text in found)


def _parts(name, file):
    """Documents, labels and kinds of a file."""
    if name == "shakespeare":
        return _speeches(str(file["raw"]))
    documents, labels = str(file["text"]).split("\0"), torch.from_numpy(file["y"])
    if len(labels) != len(documents):
        raise ValueError(f"{len(documents)} documents have {len(labels)} labels")
    return documents, labels.to(torch.int64), tuple(file["classes"].tolist())


def _speeches(raw):
    """Documents, labels and kinds of a play: one document a speech, one kind a speaker."""
    speeches = {}
    for block in raw.split("\n\n"):
        speaker, colon, words = block.strip().partition(":\n")
        if colon:
            speeches.setdefault(speaker, []).append(words)
    speakers = sorted(speeches, key=lambda who: (-sum(map(len, speeches[who])), who))
    return _sorted({who: speeches[who] for who in speakers})


def _from_address(name, folder):
    """The arrays of a cache file, from a text whose checksum is known."""
    address, checksum = TEXT_SOURCES[name]
    with urllib.request.urlopen(address, timeout=60) as answer:
        body = answer.read()
    if hashlib.sha256(body).hexdigest() != checksum:
        raise OSError(f"what lies at {address} is not the known file")
    text = body.decode()
    if name == "shakespeare":
        return {"raw": np.array(text)}
    rows = list(csv.reader(io.StringIO(text)))
    return {
        "text": np.array("\0".join(f"{title} {body}" for _, title, body in rows)),
        "y": np.array([int(topic) - 1 for topic, _, _ in rows], np.uint8),
        "classes": np.array(["World", "Sports", "Business", "Sci/Tech"]),
    }
