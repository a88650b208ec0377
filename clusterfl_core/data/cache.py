"""One file a data set: fetched once, kept in the cache folder, read from there ever after."""

import os
import shutil
import time
from http.client import HTTPException
from pathlib import Path

import numpy as np

from clusterfl_core.files import write_whole

__all__ = ["Unavailable", "cache_folder", "cached"]

ATTEMPTS = 3  # downloads tried before giving up


class Unavailable(OSError):
    """A data set that is not in the cache could not be fetched."""


def cache_folder():
    """Where downloaded data sets lie: ``$CLUSTERFL_DATA`` or ``~/.cache/clusterfl``.

    Unavailable if there is neither.
    """
    if os.environ.get("CLUSTERFL_DATA"):
        return Path(os.environ["CLUSTERFL_DATA"])
    try:
        return Path.home() / ".cache" / "clusterfl"
    except RuntimeError:
        why = "this user has no home folder: set CLUSTERFL_DATA to a folder for data sets"
        raise Unavailable(why) from None


def cached(name, fetch, read, instead):
    """What the file of a data set says, fetched from the network if it is not in the cache.

    ``fetch(name, folder)`` returns the arrays of ``NAME.npz``; what it downloads stays in the
    folder until it has succeeded. ``read(name, file)`` returns what this function returns;
    ``instead`` is a set that needs no network. ValueError if the file is damaged, and it is kept;
    Unavailable if the set is neither in the cache nor to be downloaded.
    """
    path = cache_folder() / f"{name}.npz"
    if not path.exists():
        downloads = path.parent / f"{name}-download"
        arrays = _attempt(name, instead, path, lambda: fetch(name, downloads))
        write_whole(path, lambda file: np.savez_compressed(file, **arrays))
        if downloads.exists():
            shutil.rmtree(downloads)
    try:
        with np.load(path) as file:
            return read(name, file)
    except Exception as error:  # damaged bytes make the readers fail in a dozen ways
        raise ValueError(
            f"{path} cannot be read as a data set ({error}); delete it to fetch it again"
        ) from error


def _attempt(name, instead, path, fetch):
    """Fetch from the network, trying again after a while, or say what works without it."""
    for attempt in range(ATTEMPTS):
        try:
            return fetch()
        except (OSError, RuntimeError, HTTPException) as error:
            if attempt == ATTEMPTS - 1:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise Unavailable(
                    f"{name} could not be downloaded ({reason}); what works without it: the data "
                    f"set {instead!r}, or a file {path} copied from another machine"
                ) from error
            time.sleep(2**attempt)
