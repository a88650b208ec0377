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
>>> from clusterfl_core.federation import Clients
>>> xs, ys = [torch.rand(3, 2), torch.rand(1, 2)], [torch.ones(3), torch.ones(1)]
>>> clients = Clients.from_lists(xs, ys)
>>> clients.x.shape, clients.counts.tolist()
(torch.Size([2, 3, 2]), [3, 1])
>>> clients.mask().tolist()
[[True, True, True], [True, False, False]]
"""

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from clusterfl_core.banks import Bank, finite, fitted

# Streams of random numbers: the first word of a key, so that two uses never share numbers.
INITIALIZATION, PARTICIPATION, BATCHES, POPULATION, SELECTION = range(5)


def generator(*key):
    """A random generator that depends on the whole key and on nothing else.

    Parameters
    ----------
    *key : int
        Non-negative integers: a stream (one of the constants above), the seed, then what the
        numbers are for, for example round and client.

    Returns
    -------
    torch.Generator
        On the CPU. Equal keys give equal numbers, whichever other clients take part and
        whichever machine a client runs on.
    """
    word = np.random.SeedSequence([int(part) for part in key]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word >> 1))


def participants(key, clients, participation):
    """M_t, the random subset of clients that takes part in a round (IFCA, Algorithm 1, line 4).

    Parameters
    ----------
    key : tuple of int
        (seed, round).
    clients : int
        m, the number of all clients.
    participation : float
        Fraction of the clients, in (0, 1]. At least one client takes part.

    Returns
    -------
    LongTensor [b]
        Client ids in ascending order.
    """
    chosen = max(1, round(participation * clients))
    if chosen == clients:
        return torch.arange(clients)
    order = torch.randperm(clients, generator=generator(PARTICIPATION, *key))
    return order[:chosen].sort().values


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


@dataclass(frozen=True)
class Jobs:
    """What the server asks in one round trip.

    Parameters
    ----------
    seed, round : int
        The key of everything drawn at random in the round.
    clients : LongTensor [b]
        Ids of the clients that work, ascending.
    bank : Bank
        The models that are sent.
    models : LongTensor [b, q]
        Which q models of the bank each client receives; q may be 0.
    kept : Bank, optional
        A model each client kept from before, b in all. It lies with the client already and does
        not travel.
    values : dict of Tensor [b, ...]
        Numbers each client found in an earlier round trip and told the server, for example its
        importance weights.
    shared : tuple of str
        Names of parameters that are equal in all models of the bank; a client is sent one copy.
    """

    seed: int
    round: int
    clients: torch.Tensor
    bank: Bank
    models: torch.Tensor
    kept: Bank = None
    values: dict = field(default_factory=dict)
    shared: tuple = ()

    def take(self, rows):
        """The jobs of some of the clients."""
        kept = self.kept.take(rows) if self.kept else None
        values = {name: value[rows] for name, value in self.values.items()}
        return replace(
            self, clients=self.clients[rows], models=self.models[rows], kept=kept, values=values
        )

    def to(self, device):
        """The same jobs with the models on another device."""
        kept = self.kept.to(device) if self.kept else None
        values = {name: fitted(value, device) for name, value in self.values.items()}
        bank, models = self.bank.to(device), self.models.to(device)
        return replace(self, bank=bank, models=models, kept=kept, values=values)


@dataclass(frozen=True)
class Replies:
    """What the clients answer in one round trip; a client that failed has no row.

    Parameters
    ----------
    clients : LongTensor [b]
        Ids of the clients that answered.
    bank : Bank or None
        r models, updates or gradients a client, client after client: b r in all.
    values : dict of Tensor [b, ...]
        Numbers beside them, for example ``loss`` and ``identity``.
    sent : int, optional
        How many models the clients sent: those of the bank, unless they are summed already.
    """

    clients: torch.Tensor
    bank: Bank
    values: dict
    sent: int = None

    def __post_init__(self):
        if self.sent is None:
            object.__setattr__(self, "sent", len(self.bank) if self.bank else 0)

    def to(self, device):
        """The same replies on another device."""
        values = {name: value.to(device) for name, value in self.values.items()}
        bank = self.bank.to(device) if self.bank else None
        return Replies(self.clients.to(device), bank, values, self.sent)

    def checked(self, keep):
        """The same replies with the value ``sound``, and their models only if they are kept.

        ``sound`` [b] says whether all that the client sent is finite.
        """
        sound = torch.ones(len(self.clients), dtype=torch.bool, device=self.clients.device)
        if self.bank:
            sound = finite(self.bank).view(len(self.clients), -1).all(1)
        bank = self.bank if keep else None
        return Replies(self.clients, bank, {**self.values, "sound": sound}, self.sent)

    @staticmethod
    def join(parts):
        """Replies of several groups of clients as one, sorted by client id."""
        clients = torch.cat([part.clients for part in parts])
        order = clients.argsort()
        values = {
            name: torch.cat([part.values[name] for part in parts])[order]
            for name in parts[0].values
        }
        if parts[0].bank is None:
            return Replies(clients[order], None, values, sum(part.sent for part in parts))
        bank = Bank.concatenate([part.bank for part in parts])
        if torch.equal(order, torch.arange(len(order))):
            return Replies(clients, bank, values)
        each = len(bank) // len(clients)
        rows = (order[:, None] * each + torch.arange(each)).flatten()
        return Replies(clients[order], bank.take(rows), values)


def traffic(jobs, replies):
    """Bytes of model parameters that travel in one round trip.

    Identities and losses, a few bytes a client, are not counted. A client that was sent no model
    trains for itself and sends none back.

    Returns
    -------
    tuple of int
        Down (server to clients) and up (clients to server).
    """
    if not jobs.models.numel():
        return 0, 0
    one, common = jobs.bank.bytes_of_one(), jobs.bank.bytes_of_one(jobs.shared)
    return jobs.models.numel() * (one - common) + len(jobs.clients) * common, replies.sent * one
