"""What the tests of a deployment run: three clients with points on two lines.

Each message to a client starts a process; this one is there in two thirds of the time that one of
`flower_cases` takes, which imports what the digits come with.
"""

import torch

import clusterfl_core as cf

TWO = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [3.0, 0.0]])  # of clients 0 and 2, and of client 1
LINES = cf.populations.regression(TWO, clients=3, points=40, noise=0.1)
LINE = cf.models.LinearRegression(2)
CASES = {
    "IFCA": (LINES, cf.IFCA(LINE, 2, cf.LocalSGD(5, 0.05))),
    "CFL": (LINES, cf.CFL(LINE, 0.2, 0.1, 0.5, local=cf.LocalSGD(5, 0.05))),
    "FedSoft": (LINES, cf.FedSoft(LINE, 2, cf.LocalAdam(5, 0.05, 20), proximal=0.1)),
}
