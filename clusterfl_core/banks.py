"""Banks: many models of one architecture, stacked.

A bank holds the k cluster models of a server, or the b local models of the clients that work in a
round, so that one operation acts on all of them.

>>> import torch
>>> from clusterfl_core.banks import Bank
>>> from clusterfl_core.models import LinearRegression
>>> bank = Bank(LinearRegression(2), {"theta": torch.tensor([[3.0, 0.0], [0.0, 4.0]])})
>>> len(bank), bank.mean().tensors["theta"].tolist()
(2, [[1.5, 2.0]])
>>> bank.distances(bank).tolist()
[[0.0, 5.0], [5.0, 0.0]]
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from clusterfl_core import check
from clusterfl_core.check import array, items, kind, shown, whole
from clusterfl_core.machine import named_device
from clusterfl_core.models.fresh import drawn
from clusterfl_core.randomness import INITIALIZATION, generator

__all__ = ["Bank", "finite", "on_device", "widest"]


@dataclass(frozen=True)
class Bank:
    """k models of one architecture; ValueError if names or shapes are not its own.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture; its own parameters are not used.
    tensors : dict of Tensor [k, ...]
        The parameters by name, one row a model.
    """

    model: nn.Module
    tensors: dict

    def __post_init__(self):
        kind("model", self.model, nn.Module)
        for name, tensor in kind("tensors", self.tensors, dict).items():
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
        needed = {name: tuple(p.shape) for name, p in self.model.named_parameters()}
        got = {name: tuple(tensor.shape[1:]) for name, tensor in self.tensors.items()}
        if not needed:
            raise ValueError(f"{type(self.model).__name__} has no parameters to learn")
        if needed != got:
            raise ValueError(f"the model has parameters {needed}, the bank holds {got}")
        if len({len(tensor) for tensor in self.tensors.values()}) != 1:
            raise ValueError("every tensor of a bank needs the same number of rows")

    @classmethod
    def initialize(cls, model, count, generator):
        """Draw ``count`` (k) fresh models, each from a seed that ``generator`` gives.

        As :func:`clusterfl_core.models.fresh.drawn` does it; ``model`` stays as it is.
        """
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module (an object), got {shown(model)}")
        kind("generator", generator, torch.Generator)
        seeds = torch.randint(2**62, (whole("count", count),), generator=generator).tolist()
        rows = drawn(model, seeds)
        return cls(model, {name: torch.stack([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def fresh(cls, model, count, seed):
        """The ``count`` models with which a run of this seed begins."""
        return cls.initialize(model, count, generator(INITIALIZATION, whole("seed", seed, 0)))

    @classmethod
    def concatenate(cls, parts):
        """Several banks of one architecture as one, in order; at least one."""
        parts = [kind("parts", part, Bank) for part in items("parts", parts, 0)]
        if not parts:
            raise ValueError("parts must hold at least one bank, got none")
        names, model = parts[0].tensors, parts[0].model
        return cls(model, {name: torch.cat([one.tensors[name] for one in parts]) for name in names})

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    @property
    def dtype(self):
        """The floating type of the parameters."""
        return next(iter(self.tensors.values())).dtype

    def map(self, function, *others):
        """A bank whose tensors are ``function`` of this bank's and the others' tensors."""
        banks = (self, *others)
        made = {name: function(*(one.tensors[name] for one in banks)) for name in self.tensors}
        return self.holding(made)

    def holding(self, tensors):
        """A bank of this architecture with other tensors of the same names."""
        if any(tensors[name].shape[1:] != old.shape[1:] for name, old in self.tensors.items()):
            return Bank(self.model, tensors)  # which says what does not fit
        made = object.__new__(Bank)  # names and shapes are this bank's: nothing is to be checked
        vars(made).update(model=self.model, tensors=tensors)
        return made

    def take(self, rows):
        """The models in these rows, in this order; rows may repeat."""
        return check.taken(self.map, rows, len(self), "models")

    def to(self, where):
        """The same bank on another device or in another floating type."""
        if not (isinstance(where, torch.dtype) and where.is_floating_point):
            if not isinstance(where, str | torch.device):
                raise TypeError(f"where must be a device or a floating type, got {shown(where)}")
            where = named_device(where)
        return self.map(lambda tensor: tensor.to(where))

    def mean(self, weights=None):
        """Average of the models, as a bank of one.

        The weights (Tensor [k], not negative; default: equal ones) are normalised to sum to one;
        ValueError if they sum to zero or there is no model.
        """
        weights = torch.ones(len(self)) if weights is None else weights
        if (array("weights", weights, len(self)) < 0).any():
            raise ValueError(f"weights must not be negative, got {shown(weights)}")
        weights = torch.as_tensor(weights)
        if not weights.sum() > 0:
            raise ValueError(f"the weights of {len(self)} models must sum to more than zero")
        shares = weights.to(self.dtype) / weights.sum()
        return self.map(lambda tensor: torch.tensordot(shares.to(tensor), tensor, dims=1)[None])

    def sums(self, groups, count, weights=None, onto=None):
        """A bank of ``count`` sums, of the models of each group, in their device's widest type.

        ``groups`` (LongTensor [k]) names each model's group, ``weights`` (Tensor [k]) its factor;
        they are added in place to the sums ``onto``, if there are any. On a CPU the models are
        added one after another, so the sums do not depend on how the models were cut into parts.
        On a GPU a matrix product adds them, faster and in an order of its own.
        """
        if onto is None:
            wide = widest(next(iter(self.tensors.values())).device)
            onto = self.map(lambda t: t.new_zeros((count, *t.shape[1:]), dtype=wide))
        for name, tensor in self.tensors.items():
            total = onto.tensors[name]
            if tensor.device.type != "cpu":
                share = torch.nn.functional.one_hot(groups, count).T.to(tensor)
                share = share if weights is None else share * weights.to(share)
                total += torch.tensordot(share, tensor, dims=1)
                continue
            scales = [1] * len(tensor) if weights is None else weights.tolist()
            for row, group, scale in zip(tensor, groups.tolist(), scales, strict=True):
                total[group].add_(row, alpha=scale)
        return onto

    def flatten(self):
        """All parameters of each model as one row: Tensor [k, p], in the order of the names."""
        return torch.cat([tensor.flatten(1) for tensor in self.tensors.values()], 1)

    def unflatten(self, rows):
        """The inverse of :meth:`flatten`: a bank of this architecture from rows [k, p]."""
        sizes = [tensor[0].numel() for tensor in self.tensors.values()]
        parts = iter(check.tensor("rows", rows, "b", sum(sizes)).split(sizes, 1))
        return self.map(lambda tensor: next(parts).reshape(len(rows), *tensor.shape[1:]))

    def distances(self, other):
        """Euclidean distances between all models of two banks: Tensor [k, k']."""
        one, two = self.flatten(), kind("other", other, Bank).flatten()
        if one.shape[1] != two.shape[1]:
            raise ValueError(f"other must hold {one.shape[1]} numbers a model, got {two.shape[1]}")
        return (one[:, None] - two[None]).norm(dim=2)

    def module(self, index):
        """One model of the bank as a ``torch.nn.Module`` of its own."""
        index, filled = whole("index", index, -len(self), len(self) - 1), copy.deepcopy(self.model)
        with torch.no_grad():
            for name, parameter in filled.named_parameters():
                parameter.data = self.tensors[name][index].clone()
        return filled

    def bytes_of_one(self, names=None):
        """Bytes of the parameters of one model, or of those with these names only."""
        names = self.tensors if names is None else names
        return sum(self.tensors[name][0].nbytes for name in names)


def on_device(tensor, device):
    """A tensor on a device; float64 becomes float32 on Apple's MPS, which has no wider type."""
    narrow = tensor.dtype == torch.float64 and widest(device) != torch.float64
    return tensor.to(device, torch.float32) if narrow else tensor.to(device)


def widest(device):
    """The widest floating type of a device: float64, but float32 on Apple's MPS."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


def finite(bank):
    """Which models hold finite numbers only: BoolTensor [k]. Their sum tells, without a copy."""
    sums = [tensor.flatten(1).sum(1) for tensor in kind("bank", bank, Bank).tensors.values()]
    return torch.stack(sums).isfinite().all(0)
