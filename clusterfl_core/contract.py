"""What an algorithm is, and what travels between server and clients."""

from dataclasses import dataclass, field, replace

import torch

from clusterfl_core.banks import Bank, finite, fitted


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
