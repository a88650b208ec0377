"""Clustered federated learning: three algorithms, faithful to their papers, one file each.

An algorithm is a frozen dataclass of settings with four functions, ``init``, ``plan``,
``client_step`` and ``absorb``; :func:`run` plays it on a :class:`Federation`.
"""

import os

# Intel's BLAS rounds a product by where its matrices lie in memory, unless told otherwise before
# its first use. A client must compute the same alone and among others.
os.environ.setdefault("MKL_CBWR", "AUTO")

from clusterfl_core import (
    banks,
    clients,
    compute,
    contract,
    data,
    evaluation,
    flower,
    interactive,
    machine,
    models,
    plotting,
    populations,
    randomness,
    results,
    simulation,
    solvers,
    starts,
    theory,
    trials,
)
from clusterfl_core.algorithms import baselines, cfl, fedsoft, ifca
from clusterfl_core.algorithms.baselines import FedAvg, FedEM, LocalOnly, OneShot
from clusterfl_core.algorithms.cfl import CFL
from clusterfl_core.algorithms.fedsoft import FedSoft
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.runs import Run
from clusterfl_core.simulation import rounds, run
from clusterfl_core.solvers import LocalAdam, LocalSGD

__version__ = "0.1.0"

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
    "banks",
    "baselines",
    "cfl",
    "clients",
    "compute",
    "contract",
    "data",
    "evaluation",
    "fedsoft",
    "flower",
    "ifca",
    "interactive",
    "machine",
    "models",
    "plotting",
    "populations",
    "randomness",
    "results",
    "rounds",
    "run",
    "simulation",
    "solvers",
    "starts",
    "theory",
    "trials",
]
