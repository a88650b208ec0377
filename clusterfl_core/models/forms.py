"""What a class of models may say of itself: its loss, and a form for many models at once.

Two attributes of the CLASS, both optional; nothing else of a model is read but its parameters and
what it computes:

* ``clusterfl_loss = staticmethod(f)``: the loss of each point, f(outputs, y) -> [...]. Without it
  the loss is :func:`cross_entropy`, so a classifier ends in logits, never in a softmax.
* ``clusterfl_form = Form()``: outputs and gradients of b models written as products of batches,
  which is faster than the general way (:mod:`clusterfl_core.compute`) and gives the same numbers.

A form is not believed for a subclass that changes ``forward`` or the loss, and a form that gives
other outputs than ``forward`` is refused by :func:`clusterfl_core.models.check`.

>>> from torch import nn
>>> from clusterfl_core import models
>>> class ShiftForm(models.Form):
...     def outputs(self, tensors, x):  # many models: [b, 1] and [b, n, 1] -> [b, n]
...         return x[..., 0] + tensors["theta"]
>>> class Shift(nn.Module):
...     clusterfl_loss, clusterfl_form = staticmethod(models.squared_error), ShiftForm()
...     def __init__(self):
...         super().__init__()
...         self.theta = nn.Parameter(torch.zeros(1))
...     def forward(self, x):  # one model: [n, 1] -> [n]
...         return x[..., 0] + self.theta
>>> models.check(Shift(), torch.ones(2, 1), classes=0)
"""

import torch
from torch.nn import functional

from clusterfl_core.models.products import affine, plus_product, product

__all__ = ["FirstLinear", "Form", "cross_entropy", "form", "point_loss", "pull", "squared_error"]


def cross_entropy(outputs, labels):
    """Cross-entropy of each point in nats: logits [..., classes], labels [...] -> [...]."""
    flat = functional.cross_entropy(
        outputs.flatten(0, -2), labels.to(torch.int64).flatten(), reduction="none"
    )
    return flat.view(labels.shape)


def squared_error(outputs, responses):
    """(y - <x, theta>)^2 of each point, without a factor 1/2 (IFCA, section 5.1).

    Its gradient in theta therefore carries the factor 2.
    """
    return (responses - outputs) ** 2


def point_loss(model):
    """The loss of each point that belongs to a model: its class's own, else cross-entropy."""
    return getattr(type(model), "clusterfl_loss", cross_entropy)


def form(model):
    """The form that belongs to a model, or None."""
    names = {"forward", "clusterfl_loss", "clusterfl_form"}
    kind = next((kind for kind in type(model).__mro__ if not names.isdisjoint(vars(kind))), object)
    return vars(kind).get("clusterfl_form")


class Form:
    """How to compute b models of one architecture at once; subclass it and write ``outputs``.

    ``tensors`` are the parameters by name, [b, ...], one row a client; data is [b, n, ...]. What is
    computed for a client must not depend on the others.
    """

    def outputs(self, tensors, x):
        """Outputs [b, n, ...] of each model on its own inputs x [b, n, ...]."""
        raise NotImplementedError

    def shared_outputs(self, tensors, x):
        """Outputs [k, b, n, ...] of EVERY one of k models at every point of every client."""
        found = []
        for j in range(len(next(iter(tensors.values())))):
            one = {name: t[j].expand(len(x), *t.shape[1:]) for name, t in tensors.items()}
            found.append(self.outputs(one, x))
        return torch.stack(found)

    def gradients(self, tensors, x, y, factors, loss):
        """Gradients by name of sum_l factors_il loss_il for each client i; see :func:`pull`."""
        return pull(lambda own: self.outputs(own, x), tensors, y, factors, loss)


class FirstLinear(Form):
    """The form of a model whose first layer is an ``nn.Linear`` with a bias on flattened inputs.

    Write ``after``: what the other layers make of the first one's answer. Full-batch gradient
    descent then has a Gram form, see :meth:`descend`. ``layer`` is the first one's name.
    """

    def __init__(self, layer):
        self.weight, self.bias = f"{layer}.weight", f"{layer}.bias"

    def after(self, tensors, hidden):
        """Outputs [b, n, ...] from the first layer's answer [b, n, h], which stays as it is."""
        raise NotImplementedError

    def after_slopes(self, tensors, hidden, y, factors, loss):
        """Slope [b, n, h] at the first layer's answer, and the later layers' gradients by name."""
        later = {n: t for n, t in tensors.items() if n not in (self.weight, self.bias)}

        def outputs(own):
            return self.after(own, own[self.weight])  # a name that no later layer has

        found = pull(outputs, later | {self.weight: hidden}, y, factors, loss)
        return found.pop(self.weight), found

    def hidden(self, tensors, x):
        """What the first layer of EVERY one of k models says about every point: [b, n, k, h]."""
        weight, bias = tensors[self.weight], tensors[self.bias]
        x = x.flatten(2)
        found = affine(x, weight.flatten(0, 1).expand(len(x), -1, -1), bias.flatten())
        return found.unflatten(2, weight.shape[:2])

    def shared_after(self, tensors, hidden):
        """Outputs of every model from its first layer's answer: [b, n, k, h] -> [k, b, n, ...]."""
        b, found = len(hidden), []
        for j in range(hidden.shape[2]):
            one = {name: t[j].expand(b, *t.shape[1:]) for name, t in tensors.items()}
            found.append(self.after(one, hidden[:, :, j]))
        return torch.stack(found)

    def outputs(self, tensors, x):
        """As in :class:`Form`."""
        first = affine(x.flatten(2), tensors[self.weight], tensors[self.bias])
        return self.after(tensors, first)

    def shared_outputs(self, tensors, x):
        """As in :class:`Form`, with the first layers of all models in one product."""
        return self.shared_after(tensors, self.hidden(tensors, x))

    def gradients(self, tensors, x, y, factors, loss):
        """As in :class:`Form`."""
        x = x.flatten(2)
        hidden = affine(x, tensors[self.weight], tensors[self.bias])
        slope, found = self.after_slopes(tensors, hidden, y, factors, loss)
        return found | {self.weight: product(slope.mT, x), self.bias: slope.sum(1)}

    def pays(self, model, points, steps):
        """Whether the Gram form needs fewer multiplications than plain descent.

        Counted for the first layer with d inputs and h units: plain descent needs 2 n d h a step
        (there and back), the Gram form n^2 d once, n^2 h for each step but the last, and n d h for
        the first forward pass and once more at the end.
        """
        h, d = model.get_parameter(self.weight).shape
        return points**2 * (d + (steps - 1) * h) + 2 * points * d * h < steps * 2 * points * d * h

    def descend(self, tensors, x, y, factors, loss, rows, steps, rate, hidden=None):
        """Full-batch gradient descent in Gram form.

        With D_t the slope of the loss at what the first layer says, Z = X W' + 1 b', a step of
        gradient descent is W <- W - gamma D' X and b <- b - gamma D' 1. So Z moves by

            Z <- Z - gamma (X X' + 1 1') D,

        for which W is not needed: G = X X' + 1 1' is computed once, each step costs n^2 h, and W is
        formed once at the end from the sum of all D. The numbers are those of plain descent up to
        rounding.

        Parameters
        ----------
        tensors : dict of Tensor [k, ...]
            Parameters of k models, by name.
        x, y, factors, loss
            As in :meth:`gradients`.
        rows : LongTensor [b]
            Which of the models each client starts from.
        steps, rate : int, float
            tau, gamma.
        hidden : Tensor [b, n, h], optional
            What the first layer says at the start, where it is known already. It is overwritten.

        Returns
        -------
        dict of Tensor [b, ...]
            Where each client ends.
        """
        x, weight, bias = x.flatten(2), tensors[self.weight], tensors[self.bias]
        rest = {n: t[rows] for n, t in tensors.items() if n not in (self.weight, self.bias)}
        if hidden is None:
            hidden = affine(x, weight[rows], bias[rows])
        kernel, total = product(x, x.mT).add_(1), torch.zeros_like(hidden)
        for step in range(steps):
            slope, slopes = self.after_slopes(rest, hidden, y, factors, loss)
            rest = {name: tensor - rate * slopes[name] for name, tensor in rest.items()}
            total += slope
            if step < steps - 1:
                plus_product(hidden, kernel, slope, -rate)
        moved = product(total.mul_(-rate).mT, x)
        if moved.device.type == "cpu":
            for one, row in zip(moved, rows.tolist(), strict=True):
                one += weight[row]  # a copy of all starting weights would cost more
        else:  # one launch in place of one a client
            moved += weight[rows]
        return rest | {self.weight: moved, self.bias: bias[rows] + total.sum(1)}


def pull(outputs, tensors, y, factors, loss):
    """Gradients of sum_l factors_il loss_il for each client i, by name, each [b, ...].

    By autograd, also where the caller has switched it off. ``outputs`` goes from ``tensors`` (by
    name, each [b, ...]) to outputs [b, n, ...], where a client's depend on its own rows only, and
    ``loss`` from outputs and y [b, n] to the loss of each point [b, n].
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaves = {name: t.detach().requires_grad_() for name, t in tensors.items()}
        points = loss(outputs(leaves), y) * factors
        # The clients' losses share no parameter: the gradient of their sum holds each one's own.
        total = torch.where(factors != 0, points, 0).sum()
        found = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))
