"""What the deployed programs run: four clients, three algorithms."""

import clusterfl_core as cf

DIGITS = cf.populations.rotated("digits", clients=4, clusters=2)
NET = cf.models.MLP(64, 200, 10)
CASES = {
    "IFCA": (DIGITS, cf.IFCA(NET, 2, cf.LocalSGD(10, 0.1))),
    "CFL": (DIGITS, cf.CFL(NET, 0.9, 0.2, 0.5, local=cf.LocalSGD(10, 0.1))),
    "FedSoft": (DIGITS, cf.FedSoft(NET, 2, cf.LocalAdam(5, 0.005, 20), proximal=0.1)),
}
