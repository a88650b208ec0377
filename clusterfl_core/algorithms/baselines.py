"""What clustered methods are measured against, under one name: one file each beside this one."""

from clusterfl_core.algorithms.fedavg import FedAvg
from clusterfl_core.algorithms.fedem import FedEM, mixed_outputs, mixture, responsibilities
from clusterfl_core.algorithms.fine_tuned import FineTuned
from clusterfl_core.algorithms.local_only import LocalOnly
from clusterfl_core.algorithms.one_shot import OneShot

__all__ = ["FedAvg", "FedEM", "FineTuned", "LocalOnly", "OneShot", "mixed_outputs"]
__all__ += ["mixture", "responsibilities"]
