"""Real data sets, as byte tensors.

``digits`` ships inside scikit-learn and needs no network; everything in the book runs on it by
default. ``mnist`` comes through torchvision once, is checked there, and then lies in one file
``NAME.npz`` in the cache folder: ``$CLUSTERFL_DATA``, or ``~/.cache/clusterfl``. A file found there
is used as it is, so a copy on a stick works too.
"""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

NAMES = ("digits", "mnist")
KEYS = ("x_train", "y_train", "x_test", "y_test")
ATTEMPTS = 3  # downloads tried before giving up
DIGITS_TEST = 360  # of 1,797 images


@dataclass(frozen=True)
class Images:
    """A data set of labelled images.

    Parameters
    ----------
    name : str
    x_train, x_test : uint8 Tensor [N, height, width]
        Pixels, 0 to 255.
    y_train, y_test : LongTensor [N]
        Labels, 0 to classes - 1.
    classes : int
    """

    name: str
    x_train: torch.Tensor
    y_train: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    classes: int


class Unavailable(OSError):
    """A data set that is not in the cache could not be fetched."""


def load(name):
    """Load a data set by name.

    Parameters
    ----------
    name : {"digits", "mnist"}
        digits: 1,797 scans of 8 x 8 pixels from 13 writers (the test part of the UCI set),
        split once and for all into 1,437 training and 360 test images by a fixed permutation.
        mnist: 60,000 and 10,000 images of 28 x 28 pixels.

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
        _fetch(name, path)
    return _read(name, path)


def cache_folder():
    """Where downloaded data sets lie: ``$CLUSTERFL_DATA`` or ``~/.cache/clusterfl``."""
    return Path(os.environ.get("CLUSTERFL_DATA") or Path.home() / ".cache" / "clusterfl")


def _digits():
    found = load_digits()
    pixels = torch.from_numpy(np.rint(found.images * (255 / 16)).astype(np.uint8))
    labels = torch.from_numpy(found.target).to(torch.int64)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    train, test = order[DIGITS_TEST:], order[:DIGITS_TEST]
    return Images("digits", pixels[train], labels[train], pixels[test], labels[test], 10)


def _read(name, path):
    try:
        with np.load(path) as file:
            arrays = [torch.from_numpy(file[key]) for key in KEYS]
        sizes = [len(array) for array in arrays]
        if sizes[0] != sizes[1] or sizes[2] != sizes[3] or not all(sizes):
            raise ValueError(f"{', '.join(KEYS)} have lengths {sizes}")
    except Exception as error:  # damaged bytes make the readers fail in a dozen ways
        raise ValueError(
            f"{path} cannot be read as a data set ({error}); delete it to fetch it again"
        ) from error
    x_train, y_train, x_test, y_test = arrays
    y_train, y_test = y_train.to(torch.int64), y_test.to(torch.int64)
    return Images(name, x_train, y_train, x_test, y_test, int(y_train.max()) + 1)


def _fetch(name, path):
    from torchvision.datasets import MNIST

    downloads = path.parent / f"{name}-download"
    for attempt in range(ATTEMPTS):
        try:
            train = MNIST(downloads, train=True, download=True)
            test = MNIST(downloads, train=False, download=True)
            break
        except (OSError, RuntimeError, HTTPException) as error:
            if attempt == ATTEMPTS - 1:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise Unavailable(
                    f"{name} could not be downloaded ({reason}); what works without it: the data "
                    f"set 'digits', or a file {path} copied from another machine"
                ) from error
            time.sleep(2**attempt)
    arrays = (train.data, train.targets, test.data, test.targets)
    small = {key: np.asarray(a, dtype=np.uint8) for key, a in zip(KEYS, arrays, strict=True)}
    write_whole(path, lambda file: np.savez_compressed(file, **small))
    shutil.rmtree(downloads)


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
