"""The dense models of IFCA, with their gradients written out as products of batches."""

import torch
from torch import nn

from clusterfl_core.check import whole
from clusterfl_core.models.forms import FirstLinear, Form, squared_error
from clusterfl_core.models.products import affine, inner, product

__all__ = ["MLP", "LinearRegression", "SoftmaxRegression"]


class _MLPForm(FirstLinear):
    """ReLU, a linear layer and cross-entropy behind the first layer."""

    def after(self, tensors, hidden):
        """Logits."""
        return affine(hidden.relu(), tensors["output.weight"], tensors["output.bias"])

    def after_slopes(self, tensors, hidden, y, factors, loss):
        """Softmax minus label, back through the linear layer and ReLU."""
        weight, active = tensors["output.weight"], hidden.relu()
        logits = product(weight, active.mT).add_(tensors["output.bias"][..., None])
        guess = _misses(logits, y, factors)
        slope = torch.ops.aten.threshold_backward(product(guess.mT, weight), hidden, 0)
        return slope, {"output.weight": product(guess, active), "output.bias": guess.sum(2)}


class _SoftmaxForm(Form):
    """A linear layer and cross-entropy."""

    def outputs(self, tensors, x):
        """Logits."""
        return affine(x.flatten(2), tensors["output.weight"], tensors["output.bias"])

    def gradients(self, tensors, x, y, factors, loss):
        """Softmax minus label, each times its factor, times the inputs."""
        x = x.flatten(2)
        guess = product(tensors["output.weight"], x.mT).add_(tensors["output.bias"][..., None])
        guess = _misses(guess, y, factors)
        return {"output.weight": product(guess, x), "output.bias": guess.sum(2)}


def _misses(logits, y, factors):
    """Softmax minus label of each point times its factor, [b, classes, n]; logits are used up.

    Classes before points: the softmax is then vectorised over points, many times faster.
    """
    guess = logits.softmax(1)
    guess.scatter_add_(1, y[:, None], guess.new_full((), -1).expand(len(y), 1, y.shape[1]))
    return guess.mul_(factors.to(guess)[:, None])


class _LinearForm(Form):
    """Squared error of a linear prediction."""

    def outputs(self, tensors, x):
        """Predictions."""
        return inner(x, tensors["theta"])

    def gradients(self, tensors, x, y, factors, loss):
        """2 X' of the residuals, each times its factor."""
        theta = tensors["theta"]
        slopes = 2 * factors * (inner(x, theta) - y)
        return {"theta": inner(x.mT, slopes.to(theta))}


class MLP(nn.Module):
    """One hidden layer with ReLU, as in IFCA's experiments on MNIST (hidden = 200).

    Parameters
    ----------
    inputs : int
        Number of pixels; images are flattened.
    hidden : int
        Number of hidden units.
    classes : int
        Number of classes; the outputs are logits.
    """

    clusterfl_form = _MLPForm("hidden")

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        inputs, hidden = whole("inputs", inputs), whole("hidden", hidden)
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, whole("classes", classes))

    def forward(self, x):
        """Logits [n, classes] of images [n, ...]."""
        return self.output(torch.relu(self.hidden(x.flatten(1))))


class SoftmaxRegression(nn.Module):
    """Softmax regression: logits that are linear in the pixels.

    Parameters
    ----------
    inputs : int
        Number of pixels; images are flattened.
    classes : int
        Number of classes.
    """

    clusterfl_form = _SoftmaxForm()

    def __init__(self, inputs, classes):
        super().__init__()
        self.output = nn.Linear(whole("inputs", inputs), whole("classes", classes))

    def forward(self, x):
        """Logits [n, classes] of images [n, ...]."""
        return self.output(x.flatten(1))


class LinearRegression(nn.Module):
    """y = <x, theta> with squared loss (IFCA, section 5.1); no intercept.

    Fresh parameters are 0 or 1 with probability 1/2 each, as IFCA's section 6.1 draws them.

    Parameters
    ----------
    features : int
        d, the length of theta.
    """

    clusterfl_loss = staticmethod(squared_error)
    clusterfl_form = _LinearForm()

    def __init__(self, features):
        super().__init__()
        self.theta = nn.Parameter(torch.empty(whole("features", features)))
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each coordinate of theta from Bernoulli(1/2)."""
        with torch.no_grad():
            self.theta.bernoulli_(0.5)

    def forward(self, x):
        """Predictions [n] for x [n, d]."""
        return x @ self.theta
