"""Banks: many models of one architecture, stacked.

A bank holds the k cluster models of a server, or the b local models of the clients that work in a
round: one dict from parameter name to a tensor [k, ...]. Stacking is what lets one operation
act on all of them.

Examples
--------
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

from clusterfl_core.randomness import INITIALIZATION, generator


@dataclass(frozen=True)
class Bank:
    """k models of one architecture.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture; its own parameters are not used.
    tensors : dict of Tensor [k, ...]
        The parameters by name, one row a model.

    Raises
    ------
    ValueError
        If the names or shapes are not those of the architecture.
    """

    model: nn.Module
    tensors: dict

    def __post_init__(self):
        needed = {name: tuple(p.shape) for name, p in self.model.named_parameters()}
        got = {name: tuple(tensor.shape[1:]) for name, tensor in self.tensors.items()}
        if needed != got:
            raise ValueError(f"the model has parameters {needed}, the bank holds {got}")
        if len({len(tensor) for tensor in self.tensors.values()}) != 1:
            raise ValueError("every tensor of a bank needs the same number of rows")

    @classmethod
    def initialize(cls, model, count, generator):
        """Draw fresh models.

        Each part of the model is drawn by its own ``reset_parameters``, which for PyTorch's
        layers is PyTorch's default initialisation. ``model`` itself is left unchanged.

        Parameters
        ----------
        model : torch.nn.Module
        count : int
            k, the number of models.
        generator : torch.Generator
            Source of one seed a model.

        Raises
        ------
        ValueError
            If a part of the model has parameters but no ``reset_parameters``: all models would
            then begin with the same ones.
        """
        for name, part in model.named_modules():
            own = [parameter for parameter, _ in part.named_parameters(recurse=False)]
            if own and not hasattr(part, "reset_parameters"):
                raise ValueError(
                    f"{name or 'the model'} ({type(part).__name__}) has the parameters {own} but "
                    "no method reset_parameters that draws them"
                )
        rows = []
        for seed in torch.randint(2**62, (count,), generator=generator).tolist():
            fresh = copy.deepcopy(model)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                for part in fresh.modules():
                    if hasattr(part, "reset_parameters"):
                        part.reset_parameters()
            rows.append({name: p.detach() for name, p in fresh.named_parameters()})
        return cls(model, {name: torch.stack([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def fresh(cls, model, count, seed):
        """The models with which a run of this seed begins."""
        return cls.initialize(model, count, generator(INITIALIZATION, seed))

    @classmethod
    def concatenate(cls, parts):
        """Several banks of one architecture as one, in order."""
        first = parts[0]
        joined = {name: torch.cat([part.tensors[name] for part in parts]) for name in first.tensors}
        return cls(first.model, joined)

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    @property
    def dtype(self):
        """The floating type of the parameters."""
        return next(iter(self.tensors.values())).dtype

    def map(self, function, *others):
        """A bank whose tensors are ``function`` of this bank's and the others' tensors."""
        new = {
            name: function(tensor, *(other.tensors[name] for other in others))
            for name, tensor in self.tensors.items()
        }
        if any(new[name].shape[1:] != tensor.shape[1:] for name, tensor in self.tensors.items()):
            return Bank(self.model, new)  # which says what does not fit
        made = object.__new__(Bank)  # names and shapes are this bank's: nothing is to be checked
        object.__setattr__(made, "model", self.model)
        object.__setattr__(made, "tensors", new)
        return made

    def take(self, rows):
        """The models in these rows, in this order; rows may repeat."""
        return self.map(lambda tensor: tensor[rows])

    def to(self, where):
        """The same bank on another device or in another floating type."""
        return self.map(lambda tensor: tensor.to(where))

    def mean(self, weights=None):
        """Average of the models, as a bank of one.

        Parameters
        ----------
        weights : Tensor [k], optional
            Non-negative, not all zero; they are normalised to sum to one. Default: equal weights.

        Raises
        ------
        ValueError
            If there is no model to average, or the weights sum to zero.
        """
        if weights is None:
            weights = torch.ones(len(self))
        if not weights.sum() > 0:
            raise ValueError(f"the weights of {len(self)} models must sum to more than zero")
        shares = weights.to(self.dtype) / weights.sum()
        return self.map(lambda tensor: torch.tensordot(shares.to(tensor), tensor, dims=1)[None])

    def sums(self, groups, count, weights=None, onto=None):
        """Sums of the models of each group, in the widest floating type of their device.

        On a CPU the models are added one after another in their order, so the sums do not depend
        on how the models were cut into parts. On a GPU a matrix product adds them, faster and in
        an order of its own.

        Parameters
        ----------
        groups : LongTensor [k]
            Group of each model, 0, ..., count - 1.
        count : int
            Number of groups.
        weights : Tensor [k], optional
            Factor of each model.
        onto : Bank, optional
            Sums to which these are added, in place.

        Returns
        -------
        Bank
            ``count`` sums.
        """
        if onto is None:

            def zeros(tensor):
                shape = (count, *tensor.shape[1:])
                return torch.zeros(shape, dtype=widest(tensor.device), device=tensor.device)

            onto = self.map(zeros)
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
        parts = rows.split([tensor[0].numel() for tensor in self.tensors.values()], 1)
        shaped = {
            name: part.reshape(len(rows), *tensor.shape[1:])
            for (name, tensor), part in zip(self.tensors.items(), parts, strict=True)
        }
        return Bank(self.model, shaped)

    def distances(self, other):
        """Euclidean distances between all models of two banks: Tensor [k, k']."""
        return (self.flatten()[:, None] - other.flatten()[None]).norm(dim=2)

    def module(self, index):
        """One model of the bank as a ``torch.nn.Module`` of its own."""
        filled = copy.deepcopy(self.model)
        with torch.no_grad():
            for name, parameter in filled.named_parameters():
                parameter.data = self.tensors[name][index].clone()
        return filled

    def bytes_of_one(self, names=None):
        """Bytes of the parameters of one model, or of those with these names only."""
        counted = self.tensors.values() if names is None else [self.tensors[n] for n in names]
        return sum(tensor[0].numel() * tensor.element_size() for tensor in counted)


def fitted(tensor, device):
    """A tensor on a device; float64 becomes float32 on Apple's MPS, which has no wider type."""
    narrow = tensor.dtype == torch.float64 and widest(device) != torch.float64
    return tensor.to(device, torch.float32) if narrow else tensor.to(device)


def widest(device):
    """The widest floating type of a device: float64, but float32 on Apple's MPS."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


def finite(bank):
    """Which models hold finite numbers only: BoolTensor [k]. Their sum tells, without a copy."""
    sums = [tensor.flatten(1).sum(1) for tensor in bank.tensors.values()]
    return torch.stack(sums).isfinite().all(0)
