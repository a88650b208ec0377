"""The models of the papers, as plain ``torch.nn.Module``.

A model maps inputs [n, ...] to outputs [n, classes] or [n]. Its attribute ``loss`` is the loss of
each point (a function of outputs and targets); a module without it is taken as a classifier with
cross-entropy. Fresh parameters come from ``reset_parameters`` of the parts.
"""

import torch
from torch import nn
from torch.nn import functional


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

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x):
        """Logits [n, classes] of images [n, ...]."""
        return self.output(torch.relu(self.hidden(x.flatten(1))))


class LinearRegression(nn.Module):
    """y = <x, theta> with squared loss (IFCA, section 5.1); no intercept.

    Fresh parameters are 0 or 1 with probability 1/2 each, as IFCA's section 6.1 draws them.

    Parameters
    ----------
    features : int
        d, the length of theta.
    """

    loss = staticmethod(squared_error)

    def __init__(self, features):
        super().__init__()
        self.theta = nn.Parameter(torch.empty(features))
        self.reset_parameters()

    def reset_parameters(self):
        """Draw each coordinate of theta from Bernoulli(1/2)."""
        with torch.no_grad():
            self.theta.bernoulli_(0.5)

    def forward(self, x):
        """Predictions [n] for x [n, d]."""
        return x @ self.theta
