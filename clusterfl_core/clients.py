"""Clients and the federation they form.

A *client* holds data that never leaves it. A *federation* is m clients, a second group of
clients kept for testing, and, where we made the data, the truth about the hidden clusters.
Algorithms never see test clients or truth; both are for evaluation.

Clients may hold different numbers of points. Their data is padded to one length, so that many
clients are one tensor: ``x`` is [m, n_max, ...], ``counts`` says how many rows of each are real.

>>> import torch
>>> from clusterfl_core.clients import Clients
>>> xs, ys = [torch.rand(3, 2), torch.rand(1, 2)], [torch.ones(3), torch.ones(1)]
>>> clients = Clients.from_lists(xs, ys)
>>> clients.x.shape, clients.counts.tolist()
(torch.Size([2, 3, 2]), [3, 1])
>>> clients.mask().tolist()
[[True, True, True], [True, False, False]]
"""

import hashlib
from dataclasses import dataclass, field

import torch

from clusterfl_core import check
from clusterfl_core.banks import on_device
from clusterfl_core.check import items, kind, numbers, shown, text, whole, wholes
from clusterfl_core.machine import named_device

__all__ = ["Clients", "Federation"]


@dataclass(frozen=True)
class Clients:
    """The data of m clients, padded to one length; tensors, arrays or lists.

    Parameters
    ----------
    x : Tensor [m, n_max, ...]
        Inputs. uint8 images stay bytes until they are used; see :meth:`inputs`.
    y : Tensor [m, n_max]
        Labels (whole numbers of any type, kept as int64) or responses (floating).
    counts : LongTensor [m]
        Number of real points of each client, at least 1; rows beyond are padding.
    ids : LongTensor [m], optional
        Ids in the whole population. Default 0, ..., m - 1.

    ValueError if something is no array of numbers, shapes disagree, or a client has no points.
    """

    x: torch.Tensor
    y: torch.Tensor
    counts: torch.Tensor
    ids: torch.Tensor = None

    def __post_init__(self):
        counts = wholes("counts", self.counts)
        ids = torch.arange(len(counts)) if self.ids is None else wholes("ids", self.ids)
        x, y = numbers("x", self.x), numbers("y", self.y)
        m, rows = len(counts), y.shape[1] if y.ndim > 1 else 0
        if len(x) != m or len(y) != m or len(ids) != m:
            got = f"{len(x)}, {len(y)}, {m} and {len(ids)} of them"
            raise ValueError(f"x, y, counts and ids must describe the same clients, got {got}")
        if y.ndim > 2:
            raise ValueError(
                f"y must be [m, n_max], one number a point, got shape {tuple(y.shape)}; if its "
                "last axis is one-hot take y.argmax(-1), if it has length 1 take y[..., 0]"
            )
        if x.ndim < 2 or x.shape[1] != rows:
            shapes = f"{tuple(x.shape)} and {tuple(y.shape)}"
            raise ValueError(f"x must be [m, n_max, ...] and y [m, n_max], got shapes {shapes}")
        if (counts < 1).any():
            none = int(ids[counts < 1][0])
            raise ValueError(f"every client needs at least one point; client {none} has none")
        if (counts > rows).any():
            raise ValueError(f"counts go up to {int(counts.max())} but x has {rows} rows")
        y = y if y.is_floating_point() else y.to(torch.int64)
        vars(self).update(x=x, y=y, counts=counts, ids=ids)

    @classmethod
    def from_lists(cls, xs, ys):
        """Pad one (x [n_i, ...], y [n_i]) pair a client, in the order of their ids."""
        xs = [numbers("xs", one) for one in items("xs", xs, 0)]
        ys = [numbers("ys", one) for one in items("ys", ys, 0)]
        counts = [len(y) for y in ys]
        if [len(x) for x in xs] != counts:
            raise ValueError("xs and ys must hold the same clients with the same numbers of points")
        if not all(counts) or not counts:
            where = counts.index(0) if counts else 0
            raise ValueError(f"every client needs at least one point; client {where} has none")
        for name, parts in (("xs", xs), ("ys", ys)):
            kinds = {(tuple(part.shape[1:]), str(part.dtype)) for part in parts}
            if len(kinds) > 1:
                raise ValueError(
                    f"all clients in {name} need points of one shape and type, got {sorted(kinds)}"
                )
        x, y = (torch.nn.utils.rnn.pad_sequence(parts, batch_first=True) for parts in (xs, ys))
        return cls(x, y, counts)

    def __len__(self):
        return len(self.counts)

    def take(self, rows):
        """The clients in these rows (not ids), in this order; the padded length stays."""
        return check.taken(self._map, rows, len(self), "clients")

    def to(self, device):
        """The same clients on another device."""
        device = named_device(device)
        return self._map(lambda tensor: on_device(tensor, device))

    def _map(self, function):
        made = object.__new__(Clients)  # of what was checked: nothing is to be checked again
        vars(made).update({name: function(tensor) for name, tensor in vars(self).items()})
        return made

    def inputs(self, dtype=torch.float32):
        """X as numbers a model takes: bytes become fractions in [0, 1], floats change dtype."""
        if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"dtype must be a floating type of torch, got {shown(dtype)}")
        return self.x.to(dtype) / 255 if self.x.dtype == torch.uint8 else self.x.to(dtype)

    def mask(self):
        """Boolean [m, n_max]: True where a point is real."""
        return torch.arange(self.y.shape[1], device=self.counts.device) < self.counts[:, None]

    def points(self, row):
        """(x, y) of one client, padding cut off; for teaching code and plots."""
        row = whole("row", row, -len(self), len(self) - 1)
        one, n = self.take([row]), int(self.counts[row])
        return one.inputs()[0, :n], one.y[0, :n]


@dataclass(frozen=True)
class Federation:
    """m training clients, the clients kept for testing, and the truth behind both.

    Parameters
    ----------
    train, test : Clients
        Test clients need not be the training clients: IFCA's Table 1 tests on new ones.
    clusters, test_clusters : LongTensor [m], [m_test], optional
        True cluster of each client, where it is known. Only evaluation reads them.
    classes : int, optional
        Number of classes, or 0 for regression. Default: 0 where y is floating; where it is whole
        numbers, one more than the largest label.
    name : str
        What the data is, in words.
    truth : dict
        What else is known of how the data was made, for example ``mixture`` [m, k].

    ValueError if there are no clients, numbers are not finite or labels none of the classes (in the
    padding too: losses are computed there before they are dropped), the training clients' ids are
    not 0, ..., m - 1, or the truth does not fit the clients.
    """

    train: Clients
    test: Clients
    clusters: torch.Tensor = None
    test_clusters: torch.Tensor = None
    classes: int = None
    name: str = "clients"
    truth: dict = field(default_factory=dict)

    def __post_init__(self):
        parts = {part: kind(part, getattr(self, part), Clients) for part in ("train", "test")}
        text("name", self.name)
        kind("truth", self.truth, dict)
        for part, clients in parts.items():
            if not len(clients):
                raise ValueError(f"{part} needs at least one client, got none")
            for name in ("x", "y"):
                values = getattr(clients, name)
                if values.is_floating_point() and not (sound := values.isfinite()).all():
                    check.blame(f"{part} {name} must be finite", clients, values, ~sound)
        if self.classes is None:
            labels = not any(one.y.is_floating_point() for one in parts.values())
            vars(self)["classes"] = int(1 + max(c.y.max() for c in parts.values())) if labels else 0
        vars(self)["classes"] = whole("classes", self.classes, 0)
        vars(self).update({p: check.labelled(p, one, self.classes) for p, one in parts.items()})
        ids, m = self.train.ids.tolist(), len(self.train)
        if ids != list(range(m)):
            raise ValueError(f"train needs the ids 0 to {m - 1} in order, got {ids[:10]}")
        for name, clients in (("clusters", self.train), ("test_clusters", self.test)):
            if getattr(self, name) is not None:
                truth = vars(self)[name] = wholes(name, getattr(self, name))
                if len(truth) != len(clients):
                    raise ValueError(f"{name} names {len(truth)} clients, there are {len(clients)}")
                if int(truth.min()) < 0:
                    raise ValueError(f"{name} must not be negative, got {int(truth.min())}")

    def __len__(self):
        return len(self.train)

    def __str__(self):
        counts = [one.counts.tolist() for one in (self.train, self.test)]
        train, test = (" to ".join(map(str, sorted({min(n), max(n)}))) for n in counts)
        words = (
            f"{self.name}: {len(self.train)} training clients with {train} points each, "
            f"{len(self.test)} test clients with {test}"
        )
        if self.clusters is None:
            return words
        sizes = self.clusters.unique(return_counts=True)[1].tolist()
        several = f"{len(sizes)} hidden clusters of {sizes} clients"
        return f"{words}\n{several if sizes[1:] else 'no hidden clusters: one for all clients'}"

    def fingerprint(self):
        """A short hash of all data, true clusters too: only equal federations agree in it."""
        digest = hashlib.blake2b(str(self.classes).encode(), digest_size=16)
        data = [*vars(self.train).values(), *vars(self.test).values()]
        for tensor in [self.clusters, self.test_clusters, *data]:
            if tensor is None:
                digest.update(b"unknown")
                continue
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()
