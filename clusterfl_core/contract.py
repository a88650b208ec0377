"""What an algorithm is, and what travels between the server and its clients.

An algorithm is an object of settings with four functions and a test (:class:`Algorithm`). ``init``
makes the :class:`State` before the first round. ``plan`` is the server: which clients work now, on
which models (:class:`Jobs`). ``client_step`` is the client, for many clients at once or for one: it
answers with models or gradients and a few numbers (:class:`Replies`). ``absorb`` is the server
again, which makes the next state of what came back. ``test_protocol`` says how good a state is.
Neither jobs nor replies hold data.

A *round trip* is plan, client_step, absorb. A round has as many of them as the algorithm wants: it
is over when ``state.round`` has grown by one. The same five run in one process
(:func:`clusterfl_core.run`) and with clients that are programs of their own
(:mod:`clusterfl_core.flower`); no list has to name them.

A complete algorithm: federated averaging with the median of each parameter in place of the mean.

>>> from dataclasses import dataclass
>>> import torch
>>> import clusterfl_core as cf
>>> from clusterfl_core.contract import Replies, State
>>> @dataclass(frozen=True)
... class Median:
...     model: torch.nn.Module
...     local: cf.LocalSGD = cf.LocalSGD(steps=5, step_size=0.1)
...     test_protocol = staticmethod(cf.evaluation.lowest_loss)
...
...     def init(self, federation, seed):
...         one = cf.banks.Bank.fresh(self.model, 1, seed)
...         return State(seed, 0, one, torch.zeros(len(federation), dtype=torch.int64))
...
...     def plan(self, state):
...         return state.jobs(torch.arange(len(state.assignments)))
...
...     def client_step(self, jobs, clients):
...         loss = cf.compute.mean_losses(jobs.start, clients)
...         models = self.local.train(jobs.start, clients, jobs.key)
...         return Replies(clients.ids, models, {"loss": loss})
...
...     def absorb(self, state, parts):
...         sent = Replies.join(parts).bank
...         return state.next(bank=sent.map(lambda t: t.median(0, keepdim=True).values))
>>> theta = torch.tensor([[2.0, 1.0]])
>>> federation = cf.populations.regression(theta, clients=5, points=20, noise=0.1)
>>> run = cf.run(Median(cf.models.LinearRegression(2)), federation, rounds=10)
>>> [round(value, 1) for value in run.models.tensors["theta"][0].tolist()]
[2.0, 1.0]
"""

from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch

from clusterfl_core import compute
from clusterfl_core.banks import Bank, finite, on_device

__all__ = ["Algorithm", "Jobs", "Replies", "State", "Unusable", "summed", "traffic"]


class Unusable(ValueError):
    """What a client (its id) sent cannot be used, and why, in words; ``absorb`` may raise it.

    Where clients are elsewhere, the server then absorbs the answers of the others and notes why
    this one is missing.
    """

    def __init__(self, client, why):
        super().__init__(f"client {client} {why}")
        self.client, self.why = int(client), why


@dataclass(frozen=True)
class State:
    """What the server knows between two round trips; an algorithm may add fields of its own.

    It is never changed: the next state is made of new tensors.

    Parameters
    ----------
    seed, round : int
        The seed of the run and the number of rounds done.
    bank : Bank
        The models, as the server holds them; their number may change from round to round.
    assignments : LongTensor [m], or Tensor [m, k]
        Which model of the bank is each client's, -1 where it has none yet; or the share of each
        model in each client.
    """

    seed: int
    round: int
    bank: Bank
    assignments: torch.Tensor

    most = None  # after how many rounds no other can follow; None: never

    @property
    def models(self):
        """The models as clients read them: the bank, unless the server holds them veiled."""
        return self.bank

    def next(self, **changes):
        """The state one round later, with these fields changed."""
        return replace(self, round=self.round + 1, **changes)

    def jobs(self, clients, models=None, **more):
        """:class:`Jobs` of the coming round trip; default models: the one assigned to each.

        A client whose assignment is -1 has none: then name the ``models`` [b, q].
        """
        models = self.assignments[clients][:, None] if models is None else models
        return Jobs(self.seed, self.round, clients, self.bank, models, **more)

    def finite(self):
        """Whether all its models are finite, the bank's and those in fields of its own."""
        banks = [one for one in vars(self).values() if isinstance(one, Bank)]
        return all(bool(finite(bank).all()) for bank in banks)

    def predict(self, rows, x, classes):
        """What training clients ``rows`` [b] predict for x [b, n, ...]: [b, n] or [b, n, classes].

        A client may stand in several rows; ``classes`` is 0 for regression.
        """
        return compute.outputs(self.models.take(self.assignments[rows]), x)

    def note(self):
        """What the record of a round says besides: a dict of numbers, empty unless overridden."""
        return {}


@runtime_checkable
class Algorithm(Protocol):
    """The contract; nothing has to inherit from it.

    Attributes
    ----------
    model : torch.nn.Module
        The architecture of every model.
    test_protocol : callable
        ``test_protocol(state, federation)`` gives the quality of each test client: Tensor [m_test],
        or [m] where it judges the training clients; accuracies in [0, 1], or errors where
        ``federation.classes`` is 0. The papers' protocols are in
        :mod:`clusterfl_core.evaluation`; in a class they stand in ``staticmethod``.
    """

    model: torch.nn.Module
    test_protocol: object

    def init(self, federation, seed):
        """The state before the first round.

        The federation has ``len(federation)``, m, and ``federation.train.counts``, n_i, and no
        more: what a server knows of clients that are elsewhere. Random numbers come from
        :func:`clusterfl_core.randomness.generator`, with the seed in the key.
        """

    def plan(self, state):
        """Which clients work in the coming round trip, and with what: :class:`Jobs`."""

    def client_step(self, jobs, clients):
        """What b clients answer: :class:`Replies`.

        Row i of the jobs belongs to row i of the clients. A client must compute the same alone and
        among others; its random numbers have ``jobs.key`` and its id in the key. A client that
        trains says its ``loss`` before that.
        """

    def absorb(self, state, parts):
        """The next state.

        ``parts`` is an iterator of :class:`Replies`, of some clients each, in the order of their
        ids, to be read once; replies may be missing, even all but one (an engine tries that before
        the first round), and a ValueError says that so few do not do. Who needs all at once takes
        ``Replies.join(parts)``, who needs only sums :func:`summed`, which keeps the models of one
        part at a time. ``state.next(…)`` ends the round; a state with the same ``round`` asks for
        another round trip. A client that did not answer keeps its assignment:
        ``state.assignments.clone()``, then the rows ``replies.clients``.
        """


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
        A model each client kept, b in all: one that it sent in its last answer, so that it lies
        with the client already and does not travel. Or, with ``fresh``, that it can draw.
    values : dict of Tensor [b, ...]
        Numbers each client found in an earlier round trip and told the server.
    shared : tuple of str
        Names of parameters that are equal in all models of the bank; a client is sent one copy.
    stays : bool
        Whether the models that the clients train stay with them, and so do not count as sent; an
        engine carries them only to judge them. Clients do not see this.
    fresh : int, optional
        The model that clients keep before their first answer: this row of ``Bank.fresh(model, ...,
        seed)``. They draw it from the seed themselves, so it does not travel either.
    """

    seed: int
    round: int
    clients: torch.Tensor
    bank: Bank
    models: torch.Tensor
    kept: Bank = None
    values: dict = field(default_factory=dict)
    shared: tuple = ()
    stays: bool = False
    fresh: int = None

    @property
    def key(self):
        """(seed, round), for what is drawn at random."""
        return self.seed, self.round

    @property
    def start(self):
        """The first model sent to each client: a bank of b."""
        return self.bank.take(self.models[:, 0])

    def take(self, rows):
        """The jobs of some of the clients."""
        kept = self.kept.take(rows) if self.kept else None
        values = {name: value[rows] for name, value in self.values.items()}
        clients, models = self.clients[rows], self.models[rows]
        return replace(self, clients=clients, models=models, kept=kept, values=values)

    def to(self, device):
        """The same jobs with the models on another device."""
        kept = self.kept.to(device) if self.kept else None
        values = {name: on_device(value, device) for name, value in self.values.items()}
        bank, models = self.bank.to(device), self.models.to(device)
        return replace(self, bank=bank, models=models, kept=kept, values=values)


@dataclass(frozen=True)
class Replies:
    """What the clients answer in one round trip; a client that failed has no row.

    Parameters
    ----------
    clients : LongTensor [b]
        Ids of the clients that answered.
    bank : Bank, optional
        r models, updates or gradients a client, client after client: b r in all.
    values : dict of Tensor [b, ...]
        Numbers beside them, for example ``loss`` and ``identity``.
    """

    clients: torch.Tensor
    bank: Bank = None
    values: dict = field(default_factory=dict)

    def to(self, device):
        """The same replies on another device."""
        values = {name: value.to(device) for name, value in self.values.items()}
        return Replies(self.clients.to(device), self.bank and self.bank.to(device), values)

    def sound(self):
        """Whether all models of each client are finite: BoolTensor [b]."""
        if not self.bank:
            return torch.ones_like(self.clients, dtype=torch.bool)
        return finite(self.bank).view(len(self.clients), -1).all(1)

    @staticmethod
    def join(parts):
        """Replies of several groups of clients as one on the CPU, sorted by client id."""
        parts = [part.to("cpu") for part in parts]
        if not parts:
            raise TypeError("there are no replies to join: parts can be read once only")
        clients = torch.cat([part.clients for part in parts])
        order, names = clients.argsort(), parts[0].values
        values = {name: torch.cat([part.values[name] for part in parts])[order] for name in names}
        bank = parts[0].bank and Bank.concatenate([part.bank for part in parts])
        if bank and not torch.equal(order, torch.arange(len(order))):
            rows = torch.arange(len(bank)).view(len(clients), -1)
            bank = bank.take(rows[order].flatten())
        return Replies(clients[order], bank, values)


def summed(parts, count, group, weight=None):
    """Sums of the clients' models (one a client) by group, in the order of the clients.

    The server needs room for the models of one part at a time, not of all clients. ``group`` and
    ``weight`` are functions of Replies without models, on the CPU: the group of each client, one of
    ``count``, LongTensor [b], and the factor of its model, Tensor [b] (default: 1). A Bank of
    ``count`` sums, in the widest floating type, and Replies of all that was said besides models.
    """
    sums, said = None, []
    for part in parts:
        said.append(replace(part, bank=None).to("cpu"))  # where the server's state lies
        sums = part.bank.sums(group(said[-1]), count, weight and weight(said[-1]), sums)
    replies = Replies.join(said)
    return sums.to("cpu"), replies


def traffic(jobs, sent):
    """Bytes of model parameters that travel in one round trip: down (to the clients) and up.

    ``sent`` models came back. Identities and losses, a few bytes a client, are not counted, nor
    are models that stay with the clients. Who was sent none trains alone and sends none back.
    """
    if not jobs.models.numel():
        return 0, 0
    one, common = jobs.bank.bytes_of_one(), jobs.bank.bytes_of_one(jobs.shared)
    down = jobs.models.numel() * (one - common) + len(jobs.clients) * common
    return down, 0 if jobs.stays else sent * one
