"""Outputs, losses and gradients of many models at once, each on the data of its own client.

Every function gives what a plain loop over clients would give. Which of four ways is taken depends
on the model, the solver and the device, never on the result: all agree up to rounding, and which
one is fastest is measured in ``benchmarks/``.

* *written out*: a class of models may bring a form of its own, a few products of batches of
  matrices (:mod:`clusterfl_core.models.forms`);
* *Gram form* (:func:`gram_descent`): full-batch descent of a model whose form begins with a linear
  layer, in n^2 instead of n d multiplications a step and unit;
* *vmap*, or a *loop* over clients (:mod:`clusterfl_core.models.general`): any other model.

Three clients, three models, one call; the second client holds one point only:

>>> import torch
>>> from clusterfl_core import compute, models
>>> from clusterfl_core.banks import Bank
>>> bank = Bank(models.LinearRegression(2), {"theta": torch.eye(3, 2)})
>>> x, y = torch.ones(3, 2, 2), torch.ones(3, 2)
>>> factors = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
>>> compute.gradients(bank, x, y, factors).tensors["theta"].tolist()
[[0.0, 0.0], [0.0, 0.0], [-2.0, -2.0]]
"""

import torch

from clusterfl_core import models
from clusterfl_core.banks import widest
from clusterfl_core.models.general import batched, loops

__all__ = ["accuracies", "client_gradients", "column", "first_pass", "gradients", "gram_descent"]
__all__ += ["gram_pays", "loops", "loss_matrix", "masked_mean", "mean_losses", "outputs"]
__all__ += ["point_factors", "point_loss_table", "shared_outputs"]


def outputs(bank, x):
    """Outputs [b, n, ...] of b models, each on its own inputs x [b, n, ...]."""
    return batched(bank.model, x).outputs(bank.tensors, x)


def shared_outputs(bank, x):
    """Outputs [k, b, n, ...] of EVERY one of k models at every point x [b, n, ...] of b clients."""
    return batched(bank.model, x).shared_outputs(bank.tensors, x)


def gradients(bank, x, y, factors):
    """Gradient of sum_l factors_il f(theta_i; z_il) for each client i: a bank of b gradients.

    The bank holds one model a client, x is [b, n, ...], y and factors are [b, n]. Where a factor is
    0 a point does not count and may hold anything finite.
    """
    return _recorded(lambda form, *given: form.gradients(*given), bank, x, y, factors)


def gram_pays(model, points, steps):
    """Whether a model has a Gram form that needs fewer multiplications than plain descent."""
    form = models.form(model)
    return isinstance(form, models.FirstLinear) and form.pays(model, points, steps)


def gram_descent(bank, rows, x, y, factors, steps, rate, hidden=None):
    """Full-batch gradient descent of models whose form begins with a linear layer, in Gram form.

    ``rows`` [b] says which models of the bank the clients start from, ``x``, ``y`` and ``factors``
    are as in :func:`gradients`; see :meth:`clusterfl_core.models.FirstLinear.descend`.
    """

    def descend(form, *given):
        start = hidden if hidden is None else _recordable(hidden)
        return form.descend(*given, rows, steps, rate, start)

    return _recorded(descend, bank, x, y, factors)


def _recorded(work, bank, x, y, factors):
    """A bank of what a form works out by autograd, also where that was switched off."""
    with torch.inference_mode(False):
        tensors = {name: _recordable(tensor) for name, tensor in bank.tensors.items()}
        x, y, factors = _recordable(x), _recordable(y), _recordable(factors)
        loss = models.point_loss(bank.model)
        found = work(batched(bank.model, x), tensors, x, y, factors, loss)
    return bank.holding({name: found[name] for name in tensors})


def _recordable(tensor):
    """The tensor, or a copy where it was made in inference mode, of which autograd takes none."""
    return tensor.clone() if tensor.is_inference() else tensor


# ---------------------------------------------------------------- losses of clients


def mean_losses(bank, clients):
    """F_i(theta_i) [b]: the mean loss of each of b clients under its own of b models."""
    found = outputs(bank, clients.inputs(bank.dtype))
    return masked_mean(models.point_loss(bank.model)(found, clients.y), clients.mask())


def loss_matrix(bank, clients):
    """F_i(theta_j) [b, k] for every client i and every model j of the bank."""
    return _means(point_loss_table(bank, clients), clients)


def first_pass(bank, clients, solver):
    """The loss matrix [b, k], and what of it ``solver`` need not compute again on the same points.

    That is what the first layer of each model says, [b, n, k, h], where the solver can begin from
    it (:meth:`LocalSolver.train`, with the model that each client chooses), else None.
    """
    if not solver.in_gram_form(bank.model, clients):
        return loss_matrix(bank, clients), None
    x = clients.inputs(bank.dtype)
    form = batched(bank.model, x)
    hidden = form.hidden(bank.tensors, x)
    table = _point_losses(bank, form.shared_after(bank.tensors, hidden), clients.y)
    return _means(table, clients), hidden


def point_loss_table(bank, clients):
    """f(theta_j; z_il) [k, b, n_max] of every model j at every point l of every client i.

    What stands in the rows of padding means nothing.
    """
    return _point_losses(bank, shared_outputs(bank, clients.inputs(bank.dtype)), clients.y)


def _point_losses(bank, found, y):
    loss = models.point_loss(bank.model)
    return torch.stack([loss(one, y) for one in found])


def _means(table, clients):
    mask = clients.mask()
    return torch.stack([masked_mean(one, mask) for one in table], 1)


def accuracies(bank, clients):
    """Fraction of its points that each client's own model classifies right: Tensor [b]."""
    guesses = outputs(bank, clients.inputs(bank.dtype)).argmax(-1)
    return masked_mean((guesses == clients.y).to(widest(guesses.device)), clients.mask())


def client_gradients(bank, x, y, mask, weights=None):
    """Gradient of each client's mean loss at its own model: a bank of b gradients.

    ``bank``, ``x`` and ``y`` as in :func:`gradients`; ``mask`` (BoolTensor [b, n]) says which
    points count, at least one a client. ``weights`` (Tensor [b, n]) are factors of the points'
    losses. The mean is still over the number of points: it is (1 / n) sum_l weights_l
    f(theta; z_l), not divided by the sum of the weights.
    """
    return gradients(bank, x, y, point_factors(mask, bank.dtype, weights))


def point_factors(mask, dtype, weights=None):
    """What each point counts for in its client's mean: 1 / n, times its weight; 0 for padding."""
    factors = mask / mask.sum(1, keepdim=True).clamp(min=1).to(dtype)
    return factors if weights is None else factors * weights.to(factors)


def masked_mean(values, mask):
    """Mean of the rows of values [b, n] over the points that count."""
    return torch.where(mask, values, 0).sum(1) / mask.sum(1)


def column(values, tensor):
    """Values [b] with as many axes as tensor [b, ...] has, to meet it row by row."""
    return values.view(-1, *[1] * (tensor.ndim - 1))
