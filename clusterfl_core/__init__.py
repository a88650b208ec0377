"""Clustered federated learning: three algorithms, faithful to their papers, one file each.

An algorithm is a frozen dataclass of settings with four functions, ``init``, ``plan``,
``client_step`` and ``absorb``; :func:`run` plays it on a :class:`Federation`.
"""

import os

# Intel's BLAS rounds a product by where its matrices lie in memory, unless told otherwise before
# its first use. A client must compute the same alone and among others.
os.environ.setdefault("MKL_CBWR", "AUTO")

from clusterfl_core import (
    backends,
    banks,
    baselines,
    cfl,
    comparison,
    data,
    evaluation,
    federation,
    fedsoft,
    flower,
    ifca,
    interactive,
    local,
    models,
    plotting,
    populations,
    results,
    simulation,
    theory,
    trials,
)
from clusterfl_core.baselines import FedAvg, FedEM, LocalOnly, OneShot
from clusterfl_core.cfl import CFL
from clusterfl_core.federation import Clients, Federation
from clusterfl_core.fedsoft import FedSoft
from clusterfl_core.ifca import IFCA
from clusterfl_core.local import LocalAdam, LocalSGD
from clusterfl_core.simulation import Run, run
from clusterfl_core.version import __version__

__all__ = [
    "CFL",
    "IFCA",
    "Clients",
    "FedAvg",
    "FedEM",
    "FedSoft",
    "Federation",
    "LocalAdam",
    "LocalOnly",
    "LocalSGD",
    "OneShot",
    "Run",
    "__version__",
    "backends",
    "banks",
    "baselines",
    "cfl",
    "comparison",
    "data",
    "evaluation",
    "federation",
    "fedsoft",
    "flower",
    "ifca",
    "interactive",
    "local",
    "models",
    "plotting",
    "populations",
    "results",
    "run",
    "simulation",
    "theory",
    "trials",
]
