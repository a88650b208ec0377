"""What a run was and what came of it: to be read, saved, loaded, and gone on with.

A saved run holds data and the names of classes. Loading executes no code of the file: of the names
in it, those of this package, PyTorch's layers and NumPy's numbers are known, and every other class
has to be named by who loads it. A run that is resumed names them itself, through the algorithm.

>>> import tempfile
>>> from pathlib import Path
>>> import torch
>>> import clusterfl_core as cf
>>> federation = cf.populations.regression(torch.eye(2), clients=4, points=20, noise=0.1)
>>> settings = cf.IFCA(cf.models.LinearRegression(2), clusters=2, local=cf.LocalSGD(5, 0.1))
>>> run = cf.run(settings, federation, rounds=5, seed=3)
>>> with tempfile.TemporaryDirectory() as folder:
...     run.save(Path(folder) / "mine.run")
...     again = cf.Run.load(Path(folder) / "mine.run")
>>> torch.equal(again.models.flatten(), run.models.flatten())
True
"""

import inspect
import io
import zipfile
from dataclasses import dataclass
from os import PathLike

import numpy as np
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from clusterfl_core.check import items, kind
from clusterfl_core.files import write_whole
from clusterfl_core.trust import known_to

__all__ = ["Run", "essence", "resumed"]


@dataclass(frozen=True)
class Run:
    """What a run was, and what came of it.

    Parameters
    ----------
    algorithm
        The settings.
    seed : int
        The seed that fixed everything.
    data : str
        Fingerprint of the federation's data.
    state : clusterfl_core.contract.State
        The state after the last round.
    history : list of dict
        One record a round: ``round`` (from 1), ``train_loss`` (mean over the clients that worked,
        of the loss they started the round from), ``clients`` (how many trained), ``accuracy`` (or
        ``error`` for regression: mean over the test clients, after the round),
        ``identity_accuracy`` (where the truth is known), ``bytes_down``, ``bytes_up``, ``seconds``,
        and what the algorithm notes, for example ``empty`` (clusters nobody chose).
    about : str
        The federation in words.
    """

    algorithm: object
    seed: int
    data: str
    state: object
    history: list
    about: str = ""

    @property
    def models(self):
        """The bank of models after the last round, as clients read them."""
        return self.state.models

    @property
    def assignments(self):
        """Which model of the bank is each client's, or the shares: as in the state."""
        return self.state.assignments

    def report(self):
        """The choices behind a run's numbers, in words: settings, data, seed, model and test."""
        protocol = self.algorithm.test_protocol
        says = (inspect.getdoc(protocol) or "not documented").split("\n\n")[0].replace("\n", " ")
        last = {k: round(v, 4) for k, v in (self.history or [{}])[-1].items() if k != "missing"}
        lines = {
            "algorithm": " ".join(repr(self.algorithm).split()),
            "clients": f"{self.about or len(self.assignments)} (fingerprint {self.data})",
            "seed": f"{self.seed}: first models, who takes part, batches",
            "rounds": self.state.round,
            "training loss": "of the model a client starts a round from, before its local steps",
            "test": f"after each round, before further local steps, {protocol.__name__}: {says}",
            "last round": ", ".join(f"{name} {value}" for name, value in last.items()) or "none",
        }
        return "\n".join(f"{name}: {value}" for name, value in lines.items())

    def save(self, path):
        """Write the run to a file, whole or not at all; OSError where it cannot be written."""
        whole = io.BytesIO()  # torch hides in a RuntimeError that a disk is full
        torch.save(self, whole)
        write_whole(path, lambda file: file.write(whole.getbuffer()))

    @classmethod
    def load(cls, path, trust=()):
        """Read a saved run; FileNotFoundError if there is no such file.

        ``trust`` is a sequence of classes of your own that the run holds, of an algorithm or a
        model; or of objects of them: ``trust=[algorithm]`` trusts all that the algorithm is made
        of. A state of a class of your own is no part of it: ``trust=[algorithm, MyState]``.
        ValueError if the file is not a saved run, is damaged, or holds classes that nobody trusts:
        all of them are named.
        """
        kind("path", path, str, PathLike)
        trust = items("trust", trust, 0)
        try:
            with zipfile.ZipFile(path) as parts:
                damaged = parts.testzip()  # torch.load does not look at the checksums
            if damaged:
                raise ValueError(f"the checksum of {damaged} is wrong")
            needed = get_unsafe_globals_in_checkpoint(path)
        except FileNotFoundError:
            raise
        except Exception as error:  # damaged bytes make the readers fail in a dozen ways
            raise _unreadable(path, error) from error
        known, foreign = known_to(trust, needed)
        if foreign:
            raise ValueError(
                f"{path} holds {', '.join(foreign)}, which is not of this package: load it with "
                f"trust=[{', '.join(name.rsplit('.', 1)[1] for name in foreign)}] if you trust it"
            )
        if any(name.startswith("numpy") for name in needed):  # NumPy's numbers name their types
            known += [type(np.dtype(code)) for code in np.typecodes["All"] if code not in "OV"]
        try:
            with safe_globals(known):
                found = torch.load(path, weights_only=True)
        except Exception as error:
            raise _unreadable(path, error) from error
        if not isinstance(found, cls):
            raise ValueError(f"{path} holds a {type(found).__name__}, not a saved run")
        return found


def _unreadable(path, error):
    reason = str(error).split("\n")[0][:200]
    return ValueError(f"{path} is not a run saved by this package, or it is damaged: {reason}")


def essence(run):
    """What must agree for one run to go on from another, each as one line of text."""
    kind("run", run, Run)
    parameters = run.state.bank.tensors.items()  # a printed model need not show shapes and types
    form = {name: (tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in parameters}
    found = {"algorithm": type(run.algorithm).__name__} | vars(run.algorithm)
    found |= {"parameters": form, "seed": run.seed, "data": run.data}
    return {name: " ".join(repr(value).split()) for name, value in found.items()}


def resumed(checkpoint, fresh, rounds):
    """The run that a checkpoint holds, or the fresh one, of no rounds, if there is none.

    The classes of the fresh one's algorithm and state are trusted. ValueError if the checkpoint is
    of another run or of more than ``rounds``, or if the fresh run could not be resumed later.
    """
    trust = [fresh.algorithm, fresh.state]
    if not checkpoint.exists():
        try:
            fresh.save(checkpoint)
            return Run.load(checkpoint, trust)
        except OSError:
            raise
        except Exception as error:  # what cannot be written or read again says so in many ways
            checkpoint.unlink(missing_ok=True)
            raise ValueError(
                f"with these settings no run can go on from a checkpoint: {str(error)[:300]}"
            ) from error
    found = Run.load(checkpoint, trust)
    was, now = essence(found), essence(fresh)
    for name, value in now.items():
        if was.get(name) != value:
            raise ValueError(
                f"{checkpoint} belongs to another run: its {name} is {was.get(name)}, not "
                f"{value}; name another file, or delete this one to start anew"
            )
    if found.state.round > rounds:
        raise ValueError(
            f"{checkpoint} is {found.state.round} rounds into its run, more than rounds={rounds}"
        )
    return found
