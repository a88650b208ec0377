"""Images with labels: scikit-learn's digits, and torchvision's sets from the cache.

>>> digits = load("digits")
>>> digits.y_test[:5]
tensor([6, 6, 6, 2, 5])
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from clusterfl_core.check import shown
from clusterfl_core.data.cache import cache_folder, cached

__all__ = ["NAMES", "Images", "load"]

NAMES = ("digits", "mnist", "mnist_writers", "letters", "cifar10")
KEYS = ("x_train", "y_train", "x_test", "y_test")
FACTS = ("writer", "hsf", "upper")  # a file may hold each as FACT_train and FACT_test
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


def load(name):
    """Load a data set of :class:`Images` by name.

    ValueError if the name is unknown or the file in the cache is damaged, :class:`Unavailable` if
    the set is neither in the cache nor to be downloaded.

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
    """
    if not isinstance(name, str) or name not in NAMES:
        raise ValueError(f"unknown data set {shown(name)}; known are {', '.join(NAMES)}")
    if name == "digits":
        return _digits()
    arrays, facts = cached(name, _from_torchvision, _parts, instead="digits")
    if not arrays:
        mnist = load("mnist")
        arrays = [getattr(mnist, key) for key in KEYS]
    x_train, y_train, x_test, y_test = arrays
    for fact, both in facts.items():
        told, rows = [len(one) for one in both], [len(y_train), len(y_test)]
        if told != rows:
            path = cache_folder() / f"{name}.npz"
            raise ValueError(f"{path} tells {fact} of {told} images, but there are {rows}")
    facts = {fact: tuple(one.to(torch.int64) for one in both) for fact, both in facts.items()}
    x_train, x_test = _channel_first(x_train), _channel_first(x_test)
    y_train, y_test = y_train.to(torch.int64), y_test.to(torch.int64)
    return Images(name, x_train, y_train, x_test, y_test, int(y_train.max()) + 1, facts)


@cache  # unpacking the digits takes longer than most things that are done with them
def _bundled_digits():
    from sklearn.datasets import load_digits

    return load_digits()


def _digits():
    found = _bundled_digits()  # rounding and indexing copy it, so nobody can change it
    pixels = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))
    labels = torch.from_numpy(found.target).to(torch.int64)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    train, test = order[DIGITS_TEST:], order[:DIGITS_TEST]
    return Images("digits", pixels[train], labels[train], pixels[test], labels[test], 10)


def _parts(name, file):
    """The four arrays of a file and its facts; no arrays where it may hold the facts alone."""
    facts = {
        fact: tuple(torch.from_numpy(file[f"{fact}_{part}"]) for part in ("train", "test"))
        for fact in FACTS
        if f"{fact}_train" in file
    }
    if name == "mnist_writers" and facts and KEYS[0] not in file:
        return [], facts
    arrays = [torch.from_numpy(file[key]) for key in KEYS]
    sizes = [len(array) for array in arrays]
    if sizes[0] != sizes[1] or sizes[2] != sizes[3] or not all(sizes):
        raise ValueError(f"{', '.join(KEYS)} have lengths {sizes}")
    return arrays, facts


def _channel_first(x):
    last = x.ndim == 4 and x.shape[1] != 3 and x.shape[3] == 3
    return x.permute(0, 3, 1, 2).contiguous() if last else x


def _from_torchvision(name, folder):
    """The arrays of a cache file; torchvision checks what it downloads."""
    from torchvision import datasets

    arrays = {}
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
