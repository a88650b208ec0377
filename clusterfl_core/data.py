"""Real data sets, as byte tensors and as text.

``digits`` and the text ``manuals`` ship inside packages that are installed anyway and need no
network; everything in the book runs on them by default. The others are downloaded once, checked,
and then lie in one file ``NAME.npz`` in the cache folder: ``$CLUSTERFL_DATA``, or
``~/.cache/clusterfl``. A file found there is used as it is, so a copy on a stick works too.

>>> images = load("digits")
>>> images.x_train.shape, images.x_train.dtype, images.classes
(torch.Size([1437, 8, 8]), torch.uint8, 10)
>>> load_text("manuals").kinds
('Python', 'NumPy', 'SciPy', 'PyTorch')
"""

import csv
import hashlib
import io
import os
import shutil
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

NAMES = ("digits", "mnist", "mnist_writers", "letters", "cifar10")
KEYS = ("x_train", "y_train", "x_test", "y_test")
FACTS = ("writer", "hsf", "upper")  # a file may hold each as FACT_train and FACT_test
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
ATTEMPTS = 3  # downloads tried before giving up
DIGITS_TEST = 360  # of 1,797 images


@dataclass(frozen=True)
class Images:
    """A data set of labelled images.

    Parameters
    ----------
    name : str
    x_train, x_test : uint8 Tensor [N, height, width] or [N, 3, height, width]
        Pixels, 0 to 255. Colour images are channel first, as PyTorch's convolutions want them.
    y_train, y_test : LongTensor [N]
        Labels, 0 to classes - 1.
    classes : int
    facts : dict of (LongTensor [N], LongTensor [N])
        What else is known of each training and test image, where it is: ``writer`` (NIST's number
        of the person who wrote it), ``hsf`` (NIST's series: 0 to 3 are employees of the Census
        Bureau, 4 are students), ``upper`` (1 for a capital letter, 0 for a small one).
    """

    name: str
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    classes: int
    facts: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Texts:
    """A collection of texts of several kinds.

    Parameters
    ----------
    name : str
    documents : list of str
    labels : LongTensor [N]
        Kind of each document, an index into ``kinds``.
    kinds : tuple of str
        What the kinds are called.
    """

    name: str
    documents: list
    labels: torch.Tensor
    kinds: tuple


class Unavailable(OSError):
    """A data set that is not in the cache could not be fetched."""


def load(name):
    """Load a data set by name.

    Parameters
    ----------
    name : {"digits", "mnist", "mnist_writers", "letters", "cifar10"}
        digits: 1,797 scans of 8 x 8 pixels from 13 writers (the test part of the UCI set),
        split once and for all into 1,437 training and 360 test images by a fixed permutation.
        mnist: 60,000 and 10,000 images of 28 x 28 pixels.
        mnist_writers: the same with the facts ``writer`` and ``hsf``, from QMNIST. A file that
        holds the facts alone, row by row, is completed with the images of mnist.
        letters: handwritten letters of 28 x 28 pixels, labels a = 0 to z = 25, with the fact
        ``upper``; from EMNIST "by class" (a download of 560 MB; about 360,000 and 60,000 images).
        cifar10: 50,000 and 10,000 colour images [3, 32, 32]. A file may hold them as [32, 32, 3].

    Returns
    -------
    Images

    Raises
    ------
    ValueError
        If the name is unknown or the file in the cache is damaged.
    Unavailable
        If the set is neither in the cache nor to be downloaded.
    """
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")
    if name == "digits":
        return _digits()
    path = cache_folder() / f"{name}.npz"
    if not path.exists():
        arrays = _attempt(name, "digits", path, _from_torchvision)
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))
        shutil.rmtree(_downloads(path))
    return _read(name, path)


def load_text(name):
    """Load a collection of texts by name.

    Parameters
    ----------
    name : {"manuals", "ag_news", "shakespeare"}
        manuals: a stand-in that needs no network. Four kinds of English prose with code in it: the
        reference of the Python language, and the docstrings of NumPy, of SciPy's statistics and of
        PyTorch. They differ a little between versions of these packages.
        ag_news: 120,000 news articles on four topics, the training part of CFL's corpus.
        shakespeare: speeches out of Shakespeare's plays; a kind is a speaker, those with the most
        text first.

    Returns
    -------
    Texts

    Raises
    ------
    ValueError
        If the name is unknown or the file in the cache is damaged.
    Unavailable
        If the texts are neither in the cache nor to be downloaded.

    Notes
    -----
    A cache file holds ``text`` (the documents, joined by the character 0), ``y`` and ``classes``
    (ag_news), or ``raw``, the text as it was downloaded (shakespeare).
    """
    if name not in TEXTS:
        raise ValueError(f"unknown text {name!r}; known are {', '.join(TEXTS)}")
    if name == "manuals":
        return _manuals()
    path = cache_folder() / f"{name}.npz"
    if not path.exists():
        arrays = _attempt(name, "manuals", path, _from_address)
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))
    return _read_text(name, path)


def cache_folder():
    """Where downloaded data sets lie: ``$CLUSTERFL_DATA`` or ``~/.cache/clusterfl``."""
    return Path(os.environ.get("CLUSTERFL_DATA") or Path.home() / ".cache" / "clusterfl")


# Unpacking the digits takes longer than most things that are done with them.
_bundled_digits = cache(load_digits)


def _digits():
    found = _bundled_digits()  # rounding and indexing copy it, so nobody can change it
    pixels = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))
    labels = torch.from_numpy(found.target).to(torch.int64)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    train, test = order[DIGITS_TEST:], order[:DIGITS_TEST]
    return Images("digits", pixels[train], labels[train], pixels[test], labels[test], 10)


def _manuals():
    from pydoc_data.topics import topics

    import scipy.stats

    kinds = {
        "Python": sorted(topics.values()),
        "NumPy": _docstrings(np),
        "SciPy": _docstrings(scipy.stats),
        "PyTorch": _docstrings(torch),
    }
    documents = [text for texts in kinds.values() for text in texts]
    sizes = torch.tensor([len(texts) for texts in kinds.values()])
    labels = torch.arange(len(kinds)).repeat_interleave(sizes)
    return Texts("manuals", documents, labels, tuple(kinds))


def _docstrings(module):
    found = {getattr(getattr(module, name), "__doc__", None) for name in module.__all__}
    return sorted(text for text in found if isinstance(text, str) and len(text) > 200)


def _read(name, path):
    try:
        with np.load(path) as file:
            facts = {
                fact: tuple(torch.from_numpy(file[f"{fact}_{part}"]) for part in ("train", "test"))
                for fact in FACTS
                if f"{fact}_train" in file
            }
            alone = name == "mnist_writers" and facts and KEYS[0] not in file
            arrays = [] if alone else [torch.from_numpy(file[key]) for key in KEYS]
        sizes = [len(array) for array in arrays]
        if arrays and (sizes[0] != sizes[1] or sizes[2] != sizes[3] or not all(sizes)):
            raise ValueError(f"{', '.join(KEYS)} have lengths {sizes}")
    except Exception as error:  # damaged bytes make the readers fail in a dozen ways
        raise _damaged(path, error) from error
    if alone:
        mnist = load("mnist")
        arrays = [getattr(mnist, key) for key in KEYS]
    for fact, both in facts.items():
        told, rows = [len(one) for one in both], [len(arrays[1]), len(arrays[3])]
        if told != rows:
            raise ValueError(f"{path} tells {fact} of {told} images, but there are {rows}")
    x_train, y_train, x_test, y_test = arrays
    y_train, y_test = y_train.to(torch.int64), y_test.to(torch.int64)
    return Images(
        name,
        _channel_first(x_train),
        y_train,
        _channel_first(x_test),
        y_test,
        int(y_train.max()) + 1,
        {fact: tuple(one.to(torch.int64) for one in both) for fact, both in facts.items()},
    )


def _channel_first(x):
    last = x.ndim == 4 and x.shape[1] != 3 and x.shape[3] == 3
    return x.permute(0, 3, 1, 2).contiguous() if last else x


def _read_text(name, path):
    try:
        with np.load(path) as file:
            if name == "shakespeare":
                return _speeches(str(file["raw"]))
            documents = str(file["text"]).split("\0")
            labels, kinds = torch.from_numpy(file["y"]), tuple(file["classes"].tolist())
        if len(labels) != len(documents):
            raise ValueError(f"{len(documents)} documents have {len(labels)} labels")
        return Texts(name, documents, labels.to(torch.int64), kinds)
    except Exception as error:  # damaged bytes make the readers fail in a dozen ways
        raise _damaged(path, error) from error


def _speeches(raw):
    speeches = {}
    for block in raw.split("\n\n"):
        speaker, colon, words = block.strip().partition(":\n")
        if colon:
            speeches.setdefault(speaker, []).append(words)
    speakers = sorted(speeches, key=lambda who: (-sum(map(len, speeches[who])), who))
    documents = [words for who in speakers for words in speeches[who]]
    sizes = torch.tensor([len(speeches[who]) for who in speakers])
    labels = torch.arange(len(speakers)).repeat_interleave(sizes)
    return Texts("shakespeare", documents, labels, tuple(speakers))


def _damaged(path, error):
    return ValueError(f"{path} cannot be read as a data set ({error}); delete it to fetch it again")


def _attempt(name, instead, path, fetch):
    """Fetch from the network, trying again after a while, or say what works without it."""
    for attempt in range(ATTEMPTS):
        try:
            return fetch(name, path)
        except (OSError, RuntimeError, HTTPException) as error:
            if attempt == ATTEMPTS - 1:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise Unavailable(
                    f"{name} could not be downloaded ({reason}); what works without it: the data "
                    f"set {instead!r}, or a file {path} copied from another machine"
                ) from error
            time.sleep(2**attempt)


def _downloads(path):
    return path.parent / f"{path.stem}-download"


def _from_torchvision(name, path):
    """The arrays of a cache file; torchvision checks what it downloads."""
    from torchvision import datasets

    folder, arrays = _downloads(path), {}
    for part, first in (("train", True), ("test", False)):
        facts = {}
        if name == "mnist":
            found = datasets.MNIST(folder, train=first, download=True)
            x, y = found.data, found.targets
        elif name == "mnist_writers":
            what = "train" if first else "test10k"  # row by row the images of MNIST
            found = datasets.QMNIST(folder, what=what, compat=False, download=True)
            x, y = found.data, found.targets[:, 0]
            facts = {"hsf": found.targets[:, 1], "writer": found.targets[:, 2]}
        elif name == "letters":
            found = datasets.EMNIST(folder, split="byclass", train=first, download=True)
            letters = found.targets >= 10  # 0 to 9, then A to Z, then a to z
            x = found.data[letters].transpose(1, 2)  # EMNIST's pixels lie column by column
            y, facts = found.targets[letters] - 10, {"upper": found.targets[letters] < 36}
            y = y % 26
        else:
            found = datasets.CIFAR10(folder, train=first, download=True)
            x, y = found.data.transpose(0, 3, 1, 2), found.targets
        arrays |= {f"x_{part}": np.asarray(x, np.uint8), f"y_{part}": np.asarray(y, np.uint8)}
        arrays |= {f"{fact}_{part}": np.asarray(a, np.int16) for fact, a in facts.items()}
    return arrays


def _from_address(name, path):
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


def write_whole(path, write):
    """Write a file whole or not at all: ``write(file)`` fills a temporary one, then it moves.

    Parameters
    ----------
    path : path
        Where the file goes; folders are made.
    write : callable
        Takes an open binary file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
