"""Clients, the federation they form, and what travels between them and the server.

A *client* holds data that never leaves it. A *federation* is m clients, a second group of
clients kept for testing, and, where the data was made by us, the truth about the hidden
clusters. Algorithms read ``federation.train`` only; the truth is for evaluation.

A round is a conversation of one or more round trips: the server sends :class:`Jobs` (which clients
work, on which models), the clients answer with :class:`Replies` (trained models or gradients, and
a few numbers). Neither holds data of a client.

Clients may hold different numbers of points. Their data is padded to one length, so that many
clients are one tensor: ``x`` is [m, n_max, ...], ``counts`` says how many rows of each are real.

Examples
--------
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

from clusterfl_core.banks import fitted


@dataclass(frozen=True)
class Clients:
    """The data of m clients, padded to one length.

    Parameters
    ----------
    x : Tensor [m, n_max, ...]
        Inputs. uint8 images stay bytes until they are used; see :meth:`inputs`.
    y : Tensor [m, n_max]
        Labels (int64) or responses (floating).
    counts : LongTensor [m]
        Number of real points of each client, at least 1; rows beyond are padding.
    ids : LongTensor [m], optional
        Ids in the whole population. Default 0, ..., m - 1.

    Raises
    ------
    ValueError
        If shapes disagree, a client is empty, or a count exceeds the rows.
    """

    x: torch.Tensor
    y: torch.Tensor
    counts: torch.Tensor
    ids: torch.Tensor = None

    def __post_init__(self):
        if self.ids is None:
            object.__setattr__(self, "ids", torch.arange(len(self.counts)))
        m, rows = len(self.counts), self.y.shape[1] if self.y.ndim > 1 else 0
        if len(self.x) != m or len(self.y) != m or len(self.ids) != m:
            raise ValueError(
                f"x, y, counts and ids must describe the same clients, got {len(self.x)}, "
                f"{len(self.y)}, {m} and {len(self.ids)} of them"
            )
        if self.x.ndim < 2 or self.x.shape[1] != rows:
            raise ValueError(
                "x must be [m, n_max, ...] and y [m, n_max], got shapes "
                f"{tuple(self.x.shape)} and {tuple(self.y.shape)}"
            )
        if m and int(self.counts.min()) < 1:
            empty = self.ids[self.counts < 1].tolist()
            raise ValueError(f"every client needs at least one point; client {empty[0]} has none")
        if m and int(self.counts.max()) > rows:
            raise ValueError(f"counts go up to {int(self.counts.max())} but x has {rows} rows")

    @classmethod
    def from_lists(cls, xs, ys):
        """Pad one (x [n_i, ...], y [n_i]) pair a client, in the order of their ids."""
        counts = torch.tensor([len(y) for y in ys])
        if len(xs) != len(ys) or any(len(x) != len(y) for x, y in zip(xs, ys, strict=False)):
            raise ValueError("xs and ys must hold the same clients with the same numbers of points")
        if not len(counts) or int(counts.min()) < 1:
            where = int(counts.argmin()) if len(counts) else 0
            raise ValueError(f"every client needs at least one point; client {where} has none")
        for name, parts in (("xs", xs), ("ys", ys)):
            kinds = {(tuple(part.shape[1:]), str(part.dtype)) for part in parts}
            if len(kinds) > 1:
                raise ValueError(
                    f"all clients in {name} need points of one shape and type, got {sorted(kinds)}"
                )
        pad = torch.nn.utils.rnn.pad_sequence
        return cls(pad(list(xs), batch_first=True), pad(list(ys), batch_first=True), counts)

    def __len__(self):
        return len(self.counts)

    def take(self, rows):
        """The clients in these rows (not ids), in this order; the padded length stays."""
        return Clients(self.x[rows], self.y[rows], self.counts[rows], self.ids[rows])

    def to(self, device):
        """The same clients on another device."""
        return Clients(*(fitted(t, device) for t in (self.x, self.y, self.counts, self.ids)))

    def inputs(self, dtype=torch.float32):
        """X as numbers a model takes: bytes become fractions in [0, 1], floats change dtype."""
        return self.x.to(dtype) / 255 if self.x.dtype == torch.uint8 else self.x.to(dtype)

    def mask(self):
        """Boolean [m, n_max]: True where a point is real."""
        return torch.arange(self.y.shape[1], device=self.counts.device) < self.counts[:, None]

    def points(self, row):
        """(x, y) of one client, padding cut off; for teaching code and plots."""
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
    classes : int
        Number of classes, or 0 for regression.
    name : str
        What the data is, in words.

    Raises
    ------
    ValueError
        If there are no clients, labels lie outside the classes (those of the padding too, since
        losses are computed there before they are dropped), the training clients' ids are not
        0, ..., m - 1, or the truth does not fit the clients.
    """

    train: Clients
    test: Clients
    clusters: torch.Tensor = None
    test_clusters: torch.Tensor = None
    classes: int = 0
    name: str = "clients"
    truth: dict = field(default_factory=dict)

    def __post_init__(self):
        for part, clients in (("train", self.train), ("test", self.test)):
            if not len(clients):
                raise ValueError(f"{part} needs at least one client, got none")
            if self.classes:
                labels = clients.y
                if int(labels.min()) < 0 or int(labels.max()) >= self.classes:
                    raise ValueError(
                        f"{part} labels go from {int(labels.min())} to {int(labels.max())}, "
                        f"allowed are 0 to {self.classes - 1}"
                    )
        if not torch.equal(self.train.ids.cpu(), torch.arange(len(self.train))):
            raise ValueError(
                f"train needs the ids 0 to {len(self.train) - 1} in order, "
                f"got {self.train.ids.tolist()[:10]}"
            )
        for name, truth, clients in (
            ("clusters", self.clusters, self.train),
            ("test_clusters", self.test_clusters, self.test),
        ):
            if truth is not None and len(truth) != len(clients):
                raise ValueError(f"{name} names {len(truth)} clients, there are {len(clients)}")

    def __len__(self):
        return len(self.train)

    def __str__(self):
        counts, test = self.train.counts, self.test.counts
        lines = [
            f"{self.name}: {len(self.train)} training clients with "
            f"{_span(counts)} points each, {len(self.test)} test clients with {_span(test)}"
        ]
        if self.clusters is not None:
            sizes = torch.bincount(self.clusters).tolist()
            several = f"{len(sizes)} hidden clusters of {sizes} clients"
            lines.append(several if len(sizes) > 1 else "no hidden clusters: one for all clients")
        return "\n".join(lines)

    def fingerprint(self):
        """A short hash of all data: two federations agree in it only if their data is equal.

        The true clusters count as data, for records of a run depend on them.
        """
        digest = hashlib.blake2b(str(self.classes).encode(), digest_size=16)
        tensors = [self.clusters, self.test_clusters]
        for clients in (self.train, self.test):
            tensors += [clients.x, clients.y, clients.counts, clients.ids]
        for tensor in tensors:
            if tensor is None:
                digest.update(b"unknown")
                continue
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _span(counts):
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"
