"""The models of the papers, as plain ``torch.nn.Module``, and what a class of models may declare.

A model maps inputs [n, ...] to outputs [n, classes] or [n]. Fresh parameters come from
``reset_parameters`` of its parts. The class may declare its loss and a form for many models at once
(:mod:`clusterfl_core.models.forms`); :func:`check` says which models are not fit.

>>> import torch
>>> from clusterfl_core.models import CFLConvNet
>>> model = CFLConvNet(channels=1, side=8, classes=10)
>>> model(torch.zeros(5, 8, 8)).shape
torch.Size([5, 10])
>>> sum(parameter.numel() for parameter in model.parameters())
21386
"""

# Layers by name: a saved run may hold the classes that this module names, and no others.
from torch.nn import Conv2d, Embedding, Linear  # noqa: F401

from clusterfl_core.models.dense import MLP, LinearRegression, SoftmaxRegression
from clusterfl_core.models.door import check
from clusterfl_core.models.forms import (
    FirstLinear,
    Form,
    cross_entropy,
    form,
    point_loss,
    pull,
    squared_error,
)
from clusterfl_core.models.images import (
    CFLConvNet,
    FedSoftCifar,
    FedSoftLetters,
    IFCACifar,
    IFCAFemnist,
    XavierConv2d,
    XavierLinear,
)
from clusterfl_core.models.words import LSTMLayer, NextWordLSTM

__all__ = ["MLP", "CFLConvNet", "FedSoftCifar", "FedSoftLetters", "FirstLinear", "Form"]
__all__ += ["IFCACifar", "IFCAFemnist", "LSTMLayer", "LinearRegression", "NextWordLSTM"]
__all__ += [
    "SoftmaxRegression",
    "XavierConv2d",
    "XavierLinear",
    "check",
    "cross_entropy",
    "form",
    "point_loss",
    "pull",
]
__all__ += ["squared_error"]
