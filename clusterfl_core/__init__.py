"""Clustered federated learning: three algorithms, faithful to their papers, one file each.

An algorithm is a frozen dataclass of settings with four functions, ``init``, ``plan``,
``client_step`` and ``absorb``; :func:`run` plays it on a :class:`Federation`.

A room of the library is loaded when it is first used, so that nobody waits for what they do not
need: ``cf.ifca`` is IFCA's module from then on.
"""

import importlib
import os

from clusterfl_core.version import __version__

# Intel's BLAS rounds a product by where its matrices lie in memory, unless told otherwise before
# its first use. A client must compute the same alone and among others.
os.environ.setdefault("MKL_CBWR", "AUTO")

_PLAIN = [
    "banks", "check", "claims", "clients", "comparison", "composing", "compute", "contest",
    "contract", "data", "diagnosis", "door", "evaluation", "figures", "files", "flower", "grouping",
    "live", "machine", "matching", "models", "populations", "randomness", "results", "runs",
    "similarity", "simulation", "solvers", "starts", "theory", "trials", "trust",
]  # fmt: skip
_ROOMS = {name: f"{__name__}.{name}" for name in _PLAIN} | {
    name: f"{__name__}.algorithms.{name}"
    for name in ("baselines", "cfl", "clove", "fedsoft", "ifca")
}
_FROM = {  # what is used most, and its room
    "CFL": "cfl", "CLoVE": "clove", "IFCA": "ifca", "FedSoft": "fedsoft",
    "FedAvg": "baselines", "FedEM": "baselines", "FineTuned": "baselines",
    "LocalOnly": "baselines", "OneShot": "baselines",
    "Clients": "clients", "Federation": "clients", "LocalAdam": "solvers", "LocalSGD": "solvers",
    "diagnose": "diagnosis",
    "Run": "runs", "rounds": "simulation", "run": "simulation",
}  # fmt: skip

__all__ = ["__version__", *_FROM, *_ROOMS]


def __getattr__(name):
    """Load a room, or what a room is most used for, at the first use of its name (PEP 562)."""
    if name in _ROOMS:
        found = importlib.import_module(_ROOMS[name])
    elif name in _FROM:
        found = getattr(__getattr__(_FROM[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, found)


def __dir__():
    return sorted({*globals(), *__all__})
