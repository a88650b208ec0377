"""Several starts, and which of them to keep without knowing the truth.

>>> import clusterfl_core as cf
>>> federation = cf.populations.rotated("digits", clients=8, clusters=4)
>>> settings = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=4, local=cf.LocalSGD(5, 0.1))
>>> best, losses = restarts(settings, federation, rounds=3, seeds=range(3))
>>> best.seed == min(losses, key=losses.get)
True
"""

import math

import torch

from clusterfl_core import compute, machine
from clusterfl_core.check import items, kind, whole
from clusterfl_core.clients import Federation
from clusterfl_core.evaluation import loss_and_lowest
from clusterfl_core.runs import Run
from clusterfl_core.simulation import Diverged, run

__all__ = ["restarts", "training_loss"]


def restarts(algorithm, federation, rounds, *, seeds, progress=True):
    """Run from several initialisations and keep the one with the lowest final training loss.

    IFCA's remedy for a bad start: random initialisation with a few restarts (section 6). The
    paper's success test knows the truth; this choice looks at training losses only.

    Parameters
    ----------
    algorithm, federation, rounds, progress
        As in :func:`run`.
    seeds : iterable of int
        One run a seed, at least one.

    Returns
    -------
    best : Run
        The run whose final models have the lowest mean training loss over all clients.
    losses : dict of int to float
        That loss for each seed; infinity for a run that diverged. ``Diverged`` if every run did.
    """
    seeds = [whole("seeds", one, 0) for one in items("seeds", seeds, 0)]
    if not seeds:
        raise ValueError("seeds must name at least one seed")
    runs, losses = {}, {}
    for s in seeds:
        try:
            runs[s] = run(algorithm, federation, rounds, seed=s, progress=progress)
            losses[s] = training_loss(runs[s], federation)
        except Diverged:
            losses[s] = float("inf")
            if len(losses) == len(seeds) and not runs:
                raise
    return runs[min(runs, key=lambda s: (math.isnan(losses[s]), losses[s]))], losses


def training_loss(run, federation):
    """Mean over the clients of the lowest loss among the run's models on their training data."""
    kind("run", run, Run)
    rows = torch.arange(len(kind("federation", federation, Federation)))
    chunks = rows.split(machine.chunk_size(run.models, federation.train))
    matrices = [compute.loss_matrix(run.models, federation.train.take(some)) for some in chunks]
    return float(loss_and_lowest(torch.cat(matrices))[0].mean())
