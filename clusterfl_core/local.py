"""The client's side: losses, gradients and local training, for many clients at once.

Every function takes the data of b clients and a bank of models, and does for all of them what a
loop over clients would do one after another. Client i's loss is the MEAN over its own n_i points,

    F_i(theta) = (1 / n_i) sum_l f(theta; z_il),

so a client with more points does not count more inside its own loss.
"""

from dataclasses import dataclass

import torch
from torch.func import functional_call, vmap

from clusterfl_core import models
from clusterfl_core.banks import Bank
from clusterfl_core.federation import BATCHES, generator


def outputs(bank, x):
    """Outputs of b models, each on its own inputs: x [b, n, ...] -> Tensor [b, n, ...]."""

    def one(parameters, rows):
        return functional_call(bank.model, parameters, (rows,))

    return vmap(one)(bank.tensors, x)


def point_losses(bank, x, y):
    """Loss of every point, [b, n], under the model of its own client."""
    return getattr(bank.model, "loss", models.cross_entropy)(outputs(bank, x), y)


def mean_losses(bank, clients):
    """F_i(theta_i): each client's mean loss under its own model.

    Parameters
    ----------
    bank : Bank
        One model a client: b of them.
    clients : Clients
        b clients.

    Returns
    -------
    Tensor [b]
    """
    return masked_mean(point_losses(bank, clients.inputs(bank.dtype), clients.y), clients.mask())


def loss_matrix(bank, clients):
    """F_i(theta_j) for every client i and every model j.

    Parameters
    ----------
    bank : Bank
        k cluster models.
    clients : Clients
        b clients.

    Returns
    -------
    Tensor [b, k]
    """
    x, y, mask = clients.inputs(bank.dtype), clients.y, clients.mask()
    every_point, every_target = x.flatten(0, 1)[None], y.flatten()[None]
    columns = [
        masked_mean(point_losses(bank.take([j]), every_point, every_target).view(y.shape), mask)
        for j in range(len(bank))
    ]
    return torch.stack(columns, 1)


def accuracies(bank, clients):
    """Fraction of its points that each client's own model classifies right: Tensor [b]."""
    guesses = outputs(bank, clients.inputs(bank.dtype)).argmax(-1)
    return masked_mean((guesses == clients.y).to(torch.float64), clients.mask())


def gradients(bank, x, y, mask):
    """Gradient of each client's mean loss at its own model.

    Parameters
    ----------
    bank : Bank
        One model a client: b of them.
    x, y : Tensor [b, n, ...], Tensor [b, n]
    mask : BoolTensor [b, n]
        Points that count, at least one a client.

    Returns
    -------
    Bank
        b gradients.

    Notes
    -----
    The clients' losses share no parameter, so the gradient of their sum holds each client's own.
    """
    leaves = bank.map(lambda tensor: tensor.detach().requires_grad_())
    total = masked_mean(point_losses(leaves, x, y), mask).sum()
    found = torch.autograd.grad(total, list(leaves.tensors.values()))
    return Bank(bank.model, dict(zip(leaves.tensors, found, strict=True)))


def masked_mean(values, mask):
    """Mean of the rows of values [b, n] over the points that count."""
    return torch.where(mask, values, 0).sum(1) / mask.sum(1)


@dataclass(frozen=True)
class LocalSGD:
    """LocalUpdate: tau steps of gradient descent on the client's own loss (IFCA, lines 15-21).

    Parameters
    ----------
    steps : int
        tau, the number of steps in a round.
    step_size : float
        gamma.
    batch_size : int, optional
        Points a step. None takes all points of the client (no randomness). Otherwise a client
        goes through its points in a random order, B at a time, and shuffles anew when through.

    Raises
    ------
    ValueError
        If steps or batch_size is below 1 or step_size is not positive.
    """

    steps: int = 1
    step_size: float = 0.1
    batch_size: int = None

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not self.step_size > 0:
            raise ValueError(f"step_size must be positive, got {self.step_size}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 or None, got {self.batch_size}")

    def train(self, bank, clients, key):
        """Train one model a client.

        Parameters
        ----------
        bank : Bank
            Where each client starts: b models.
        clients : Clients
            b clients.
        key : tuple of int
            (seed, round): with a client's id it fixes that client's batches.

        Returns
        -------
        Bank
            Where each client ends.
        """
        for batch in self.batches(clients, key, bank.dtype):
            slopes = gradients(bank, *batch)
            bank = bank.map(lambda theta, slope: theta - self.step_size * slope, slopes)
        return bank

    def gradient(self, bank, clients, key):
        """The (stochastic) gradient of the first step (IFCA, Algorithm 1, option I)."""
        return gradients(bank, *next(self.batches(clients, key, bank.dtype)))

    def batches(self, clients, key, dtype):
        """The (x, y, mask) of each of the tau steps."""
        x, mask = clients.inputs(dtype), clients.mask()
        if self.batch_size is None:
            for _ in range(self.steps):
                yield x, clients.y, mask
            return
        rows = torch.stack(
            [
                self.draw(int(count), generator(BATCHES, *key, int(client)))
                for count, client in zip(clients.counts, clients.ids, strict=True)
            ]
        ).to(x.device)
        for step in range(self.steps):
            chosen = rows[:, step]
            index = chosen.clamp(min=0)
            client = torch.arange(len(clients), device=x.device)[:, None]
            yield x[client, index], clients.y[client, index], chosen >= 0

    def draw(self, count, source):
        """Rows of the points of each step, [tau, B]; -1 fills the last batch of a pass."""
        passes = -(-self.steps // -(-count // self.batch_size))
        size = -(-count // self.batch_size) * self.batch_size
        rows = torch.full((passes, size), -1)
        for one in rows:
            one[:count] = torch.randperm(count, generator=source)
        return rows.view(-1, self.batch_size)[: self.steps]
