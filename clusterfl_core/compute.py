"""Backends: how the outputs and gradients of many models are computed at once.

Every function takes a bank of b models and the data of b clients and gives what a plain loop over
clients would give. Which of four ways is taken depends on the model, the solver and the device,
never on the result: all agree up to rounding, and which one is fastest is measured in
``benchmarks/``.

* *written out*: :class:`~clusterfl_core.models.MLP` and
  :class:`~clusterfl_core.models.LinearRegression` have their gradient here as a few products of
  batches of matrices;
* *Gram form* (:func:`gram_descent`): full-batch gradient descent of a network whose first layer is
  linear, in n^2 instead of n d multiplications a step and unit;
* *vmap*: any other model, vectorised over clients by ``torch.func``;
* *loop*: one client after another, for convolutions on a CPU, where it is faster, and for models
  that vmap cannot take.

Examples
--------
Three clients, three models, one call; the second client holds one point only:

>>> import torch
>>> from clusterfl_core import compute, models
>>> from clusterfl_core.banks import Bank, widest
>>> bank = Bank(models.LinearRegression(2), {"theta": torch.eye(3, 2)})
>>> x, y = torch.ones(3, 2, 2), torch.ones(3, 2)
>>> factors = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
>>> compute.gradients(bank, x, y, factors).tensors["theta"].tolist()
[[0.0, 0.0], [0.0, 0.0], [-2.0, -2.0]]
"""

import copy
import threading
import warnings
import weakref

import torch
from torch import nn
from torch.func import functional_call, vmap

from clusterfl_core import models
from clusterfl_core.banks import Bank, widest

_COPIES = threading.local()
_REFUSED = set()  # classes of models that vmap could not take


def point_loss(model):
    """The loss of each point that belongs to a model: its ``loss``, else cross-entropy."""
    return getattr(model, "loss", models.cross_entropy)


def outputs(bank, x):
    """Outputs of b models, each on its own inputs.

    Parameters
    ----------
    bank : Bank
        b models.
    x : Tensor [b, n, ...]

    Returns
    -------
    Tensor [b, n, ...]
    """
    if _is_mlp(bank.model):
        hidden = _affine(x.flatten(2), bank.tensors["hidden.weight"], bank.tensors["hidden.bias"])
        return _affine(hidden.relu_(), bank.tensors["output.weight"], bank.tensors["output.bias"])
    if _is_linear_regression(bank.model):
        return _inner(x, bank.tensors["theta"])

    module = _own(bank.model)

    def together():
        return vmap(_call(module))(bank.tensors, x)

    def each():
        parts = zip(*_rows(bank), x, strict=True)
        return torch.stack([_call(module)(_named(bank, row), points) for *row, points in parts])

    return _vectorised(bank.model, x.device, together, each)


def shared_outputs(bank, x):
    """Outputs of EVERY model at every point of every client.

    Parameters
    ----------
    bank : Bank
        k models.
    x : Tensor [b, n, ...]

    Returns
    -------
    Tensor [k, b, n, ...]
    """
    if begins_linear(bank.model):
        return shared_outputs_after(bank, hidden_layer(bank, x))
    if _is_linear_regression(bank.model):
        return torch.stack([_inner(x, one.expand(len(x), -1)) for one in bank.tensors["theta"]])
    parts = x if loops(bank.model, x.device) else x.flatten(0, 1)[None]
    call = _call(_own(bank.model))
    found = [
        torch.cat([call(_named(bank, row), part) for part in parts])
        for row in zip(*_rows(bank), strict=True)
    ]
    return torch.stack(found).unflatten(1, x.shape[:2])


def gradients(bank, x, y, factors):
    """Gradient of sum_l factors_il f(theta_i; z_il) for each client i.

    Parameters
    ----------
    bank : Bank
        One model a client: b of them.
    x, y : Tensor [b, n, ...], Tensor [b, n]
    factors : Tensor [b, n]
        0 where a point does not count; such a point may hold anything finite.

    Returns
    -------
    Bank
        b gradients.
    """
    if _is_linear_regression(bank.model):
        theta = bank.tensors["theta"]
        slopes = 2 * factors * (_inner(x, theta) - y)
        return Bank(bank.model, {"theta": _inner(x.mT, slopes.to(theta))})
    if _is_mlp(bank.model):
        x = x.flatten(2)
        weight = bank.tensors["hidden.weight"]
        hidden = _affine(x, weight, bank.tensors["hidden.bias"])
        slope, rest = _mlp_after(bank.tensors, hidden, y, factors)
        first = {"hidden.weight": _product(slope.mT, x), "hidden.bias": slope.sum(1)}
        return Bank(bank.model, {name: (first | rest)[name] for name in bank.tensors})
    return Bank(bank.model, _slopes(bank.model, _own(bank.model), bank.tensors, x, y, factors))


def _slopes(model, module, tensors, x, y, factors, by_inputs=False):
    """Gradients of sum_l factors_il loss_il for each client, by autograd.

    Parameters
    ----------
    model : torch.nn.Module
        Whose loss it is.
    module : torch.nn.Module
        What makes outputs of x: the model, or what of it comes after its first layer.
    tensors : dict of Tensor [b, ...]
        Parameters of the module, one row a client.
    x, y, factors
        As in :func:`gradients`.
    by_inputs : bool
        Whether the gradient by x is wanted as well.

    Returns
    -------
    dict of Tensor [b, ...]
        By the names of the parameters, and by "x" if it is wanted.
    """
    loss, call, counted = point_loss(model), _call(module), factors != 0
    named = {**tensors, "x": x} if by_inputs else tensors

    def pull(total, leaves):
        return torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)

    def together():
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in named.items()}
        inputs = leaves.get("x", x)
        found = vmap(call)({name: leaves[name] for name in tensors}, inputs)
        # The clients' losses share no parameter: the gradient of their sum holds each one's own.
        return pull(torch.where(counted, loss(found, y) * factors, 0).sum(), leaves)

    def each():
        answers = []
        for i, real in enumerate(counted.sum(1).tolist()):
            leaves = {name: tensor[i].detach().requires_grad_() for name, tensor in named.items()}
            own = slice(None) if real == counted.shape[1] else counted[i]  # padding costs nothing
            if not real:
                answers.append([torch.zeros_like(leaf) for leaf in leaves.values()])
                continue
            inputs = leaves.get("x", x[i])[own]
            found = call({name: leaves[name] for name in tensors}, inputs)
            answers.append(pull((loss(found, y[i][own]) * factors[i][own]).sum(), leaves))
        return [torch.stack(one) for one in zip(*answers, strict=True)]

    return dict(zip(named, _vectorised(model, x.device, together, each), strict=True))


def hidden_layer(bank, x):
    """What the first layer of EVERY model says about every point, before its non-linearity.

    Parameters
    ----------
    bank : Bank
        k models with a first layer that is linear, see :func:`begins_linear`.
    x : Tensor [b, n, ...]

    Returns
    -------
    Tensor [b, n, k, h]
    """
    weight, bias = (bank.tensors[f"{bank.model.first}.{part}"] for part in ("weight", "bias"))
    x = x.flatten(2)
    found = _affine(x, weight.flatten(0, 1).expand(len(x), -1, -1), bias.flatten())
    return found.unflatten(2, weight.shape[:2])


def shared_outputs_after(bank, hidden):
    """Outputs of every model from what its first layer says: [b, n, k, h] -> [k, b, n, ...]."""
    after, found = _After(_own(bank.model)), []
    for j, row in enumerate(zip(*_rows(bank), strict=True)):
        if _is_mlp(bank.model):
            weight, bias = bank.tensors["output.weight"][j], bank.tensors["output.bias"][j]
            wide = weight.expand(len(hidden), -1, -1)
            found.append(_affine(hidden[:, :, j].relu(), wide, bias))
        else:
            flat = hidden[:, :, j].flatten(0, 1)
            answer = _call(after)(_named(bank, row, "model."), flat)
            found.append(answer.unflatten(0, hidden.shape[:2]))
    return torch.stack(found)


def begins_linear(model):
    """Whether a model says that its first layer is linear.

    Such a model has an attribute ``first``, the name of an ``nn.Linear`` with a bias that is
    applied to the flattened inputs, and a method ``after`` that makes the outputs of what that
    layer says: forward(x) = after(first(x)). A subclass that changes ``forward`` alone is not
    believed.
    """
    kinds = [kind for kind in type(model).__mro__ if {"forward", "after"} & set(vars(kind))]
    return hasattr(model, "first") and {"forward", "after"} <= set(vars(kinds[0]))


def gram_pays(model, points, steps):
    """Whether the Gram form needs fewer multiplications than plain descent.

    Counted for the first layer with d inputs and h units: plain descent needs 2 n d h a step (there
    and back), the Gram form n^2 d once, n^2 h for each step but the last, and n d h for the first
    forward pass and once more at the end.
    """
    if not begins_linear(model):
        return False
    h, d = getattr(model, model.first).weight.shape
    return points**2 * (d + (steps - 1) * h) + 2 * points * d * h < steps * 2 * points * d * h


def gram_descent(bank, rows, x, y, factors, steps, rate, hidden=None):
    """Full-batch gradient descent of b networks whose first layer is linear, in Gram form.

    With D_t the slope of the loss at what the first layer says, Z = X W' + 1 b', a step of gradient
    descent is W <- W - gamma D' X and b <- b - gamma D' 1. So Z moves by

        Z <- Z - gamma (X X' + 1 1') D,

    for which W is not needed: G = X X' + 1 1' is computed once, each step costs n^2 h, and W is
    formed once at the end from the sum of all D. The numbers are those of plain descent up to
    rounding.

    Parameters
    ----------
    bank : Bank
        Models that :func:`begins_linear`.
    rows : LongTensor [b]
        Which of them each client starts from.
    x, y, factors
        As in :func:`gradients`.
    steps : int
        tau.
    rate : float
        gamma.
    hidden : Tensor [b, n, h], optional
        Z at the start, where it is known already. It is overwritten.

    Returns
    -------
    Bank
        Where each client ends.
    """
    x, names = x.flatten(2), [f"{bank.model.first}.{part}" for part in ("weight", "bias")]
    weight, bias = (bank.tensors[name] for name in names)
    rest = {name: tensor[rows] for name, tensor in bank.tensors.items() if name not in names}
    if hidden is None:
        hidden = _affine(x, weight[rows], bias[rows])
    kernel, total = _product(x, x.mT).add_(1), torch.zeros_like(hidden)
    for step in range(steps):
        slope, slopes = _after_slopes(bank.model, rest, hidden, y, factors)
        rest = {name: tensor - rate * slopes[name] for name, tensor in rest.items()}
        total += slope
        if step < steps - 1:
            _plus_product(hidden, kernel, slope, -rate)
    moved = _product(total.mul_(-rate).mT, x)
    for one, row in zip(moved, rows.tolist(), strict=True):
        one += weight[row]  # one after another: a copy of all starting weights would cost more
    first = {names[0]: moved, names[1]: bias[rows] + total.sum(1)}
    return Bank(bank.model, {name: (first | rest)[name] for name in bank.tensors})


def _after_slopes(model, rest, hidden, y, factors):
    """Slope at the first layer's answer, and the gradients of all other layers by name."""
    if _is_mlp(model):
        return _mlp_after(rest, hidden, y, factors)
    tensors = {f"model.{name}": tensor for name, tensor in rest.items()}
    slopes = _slopes(model, _After(_own(model)), tensors, hidden, y, factors, by_inputs=True)
    return slopes["x"], {name: slopes[f"model.{name}"] for name in rest}


class _After(nn.Module):
    """A model without its first layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, hidden):
        return self.model.after(hidden)


def _mlp_after(tensors, hidden, y, factors):
    """The same for the MLP, written out: ReLU, a linear layer, cross-entropy."""
    weight, active = tensors["output.weight"], hidden.relu()
    # Classes before points: the softmax is then vectorised over points, many times faster.
    guess = _product(weight, active.mT).add_(tensors["output.bias"][..., None]).softmax(1)
    guess.scatter_add_(1, y[:, None], guess.new_full((), -1).expand(len(y), 1, y.shape[1]))
    guess.mul_(factors.to(guess)[:, None])
    slope = torch.ops.aten.threshold_backward(_product(guess.mT, weight), hidden, 0)
    return slope, {"output.weight": _product(guess, active), "output.bias": guess.sum(2)}


def activations(model, x):
    """How many numbers the layers of a model say for the points x [n, ...]: an int."""
    said, model = [], copy.deepcopy(model).to(x)
    for part in model.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda _part, _x, found: said.append(found.numel()))
    with torch.no_grad():
        model(x)
    return sum(said)


# ---------------------------------------------------------------- products of batches


def _pair(one, *tensors):
    """Apply a product of batches to at least two clients.

    The BLAS takes another path for a batch of one, which rounds otherwise; a client must compute
    the same alone and among others.
    """
    if len(tensors[0]) != 1:
        return one(*tensors)
    return one(*(tensor.expand(2, *tensor.shape[1:]) for tensor in tensors))[:1]


def _product(a, b):
    """Products of b pairs of matrices."""
    return _pair(torch.bmm, a, b)


def _inner(a, b):
    """Products of b matrices with a vector each: a [b, n, d], b [b, d]."""
    return _product(a, b[:, :, None])[..., 0]


def _plus_product(base, a, b, factor):
    """Add factor * a b to base in place, for b triples of matrices."""
    if len(base) != 1:
        base.baddbmm_(a, b, alpha=factor)
    else:
        base.copy_(_pair(lambda *parts: torch.baddbmm(*parts, alpha=factor), base, a, b))


def _affine(x, weight, bias):
    """X W' + b for b clients: x [b, n, d], weight [b, h, d], bias [b, h] or [h]."""
    return _product(x, weight.mT).add_(bias[..., None, :])


# ---------------------------------------------------------------- which way


def _is_mlp(model):
    return type(model) is models.MLP and point_loss(model) is models.cross_entropy


def _is_linear_regression(model):
    """Whether a subclass has left prediction and loss as they are."""
    plain = models.LinearRegression
    return getattr(type(model), "forward", None) is plain.forward and model.loss is plain.loss


def loops(model, device):
    """Whether the models of a bank are taken one after another.

    So it is on a CPU for convolutions: a bank of them becomes one grouped convolution, which is
    slow there. On a GPU the bank is faster.
    """
    if type(model) in _REFUSED:
        return True
    convolves = any(isinstance(part, nn.Conv2d) for part in model.modules())
    return convolves and torch.device(device).type == "cpu"


def _vectorised(model, device, together, each):
    """What ``together`` gives for all clients at once, or ``each`` one after another."""
    if loops(model, device):
        return each()
    try:
        return together()
    except Exception as error:  # vmap refuses in many ways; a fault of the model itself shows below
        found, kind = each(), type(model)
        _REFUSED.add(kind)
        warnings.warn(
            f"{kind.__name__} cannot be vectorised over clients, so one client is computed after "
            f"another, which is slower: {str(error).splitlines()[0][:150]}",
            stacklevel=2,
        )
        return found


def _call(module):
    """The module as a function of its parameters and its inputs."""
    return lambda parameters, x: functional_call(module, parameters, (x,))


def _own(model):
    """The model, or in a thread that is not the first a copy of the thread's own.

    ``functional_call`` puts the parameters into the module while it runs, so two threads must not
    share one.
    """
    if threading.current_thread() is threading.main_thread():
        return model
    if not hasattr(_COPIES, "of"):
        _COPIES.of = weakref.WeakKeyDictionary()
    if model not in _COPIES.of:
        _COPIES.of[model] = copy.deepcopy(model)
    return _COPIES.of[model]


def _rows(bank):
    return [tensor.unbind(0) for tensor in bank.tensors.values()]


def _named(bank, row, prefix=""):
    return {f"{prefix}{name}": tensor for name, tensor in zip(bank.tensors, row, strict=True)}


# ---------------------------------------------------------------- losses of clients


def point_losses(bank, x, y):
    """Loss of every point, [b, n], under the model of its own client."""
    return point_loss(bank.model)(outputs(bank, x), y)


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
    return _means(point_loss_table(bank, clients), clients)


def first_pass(bank, clients, solver):
    """The loss matrix, and what of it the training that follows need not compute again.

    Parameters
    ----------
    bank, clients
        As in :func:`loss_matrix`.
    solver : LocalSolver
        What will train on the same points.

    Returns
    -------
    losses : Tensor [b, k]
    hidden : Tensor [b, n, k, h] or None
        What the first layer of each model says, if the solver can begin from that: for
        :meth:`LocalSolver.train`, with the model that each client chooses.
    """
    if not solver.in_gram_form(bank.model, clients):
        return loss_matrix(bank, clients), None
    hidden = hidden_layer(bank, clients.inputs(bank.dtype))
    table = _point_losses(bank.model, shared_outputs_after(bank, hidden), clients.y)
    return _means(table, clients), hidden


def point_loss_table(bank, clients):
    """f(theta_j; z_il) of every model j at every point l of every client i.

    Parameters
    ----------
    bank : Bank
        k models.
    clients : Clients
        b clients.

    Returns
    -------
    Tensor [k, b, n_max]
        What stands in the rows of padding means nothing.
    """
    found = shared_outputs(bank, clients.inputs(bank.dtype))
    return _point_losses(bank.model, found, clients.y)


def _point_losses(model, found, y):
    loss = point_loss(model)
    return torch.stack([loss(one, y) for one in found])


def _means(table, clients):
    mask = clients.mask()
    return torch.stack([masked_mean(one, mask) for one in table], 1)


def accuracies(bank, clients):
    """Fraction of its points that each client's own model classifies right: Tensor [b]."""
    guesses = outputs(bank, clients.inputs(bank.dtype)).argmax(-1)
    return masked_mean((guesses == clients.y).to(widest(guesses.device)), clients.mask())


def client_gradients(bank, x, y, mask, weights=None):
    """Gradient of each client's mean loss at its own model.

    Parameters
    ----------
    bank : Bank
        One model a client: b of them.
    x, y : Tensor [b, n, ...], Tensor [b, n]
    mask : BoolTensor [b, n]
        Points that count, at least one a client.
    weights : Tensor [b, n], optional
        Factor of each point's loss. The mean is still over the number of points: it is
        (1 / n) sum_l weights_l f(theta; z_l), not divided by the sum of the weights.

    Returns
    -------
    Bank
        b gradients.
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


def check_model(model):
    """Placeholder of another room."""
