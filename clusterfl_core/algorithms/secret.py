"""What CFL's clients may do to all they send, so that the server cannot read it (section V-B).

>>> import torch
>>> from clusterfl_core.banks import Bank
>>> from clusterfl_core.models import LinearRegression
>>> update = Bank(LinearRegression(3), {"theta": torch.tensor([[1.0, 2.0, 3.0]])})
>>> secret = Secret("permutation", seed=1)
>>> sorted(secret.hide(update).flatten()[0].tolist())
[1.0, 2.0, 3.0]
>>> secret.reveal(secret.hide(update)).flatten()[0].tolist()
[1.0, 2.0, 3.0]
"""

from dataclasses import dataclass

import torch

from clusterfl_core.check import keep, one_of, shown, whole
from clusterfl_core.randomness import SECRET, generator

__all__ = ["Secret", "hartley"]


@dataclass(frozen=True)
class Secret:
    """The orthonormal map P that clients share and the server does not know (section V-B).

    P changes neither norms nor cosine similarities (45) and is linear, so the server can average
    and bipartition what it cannot read, and the clients undo P at the end (46).

    "permutation" reorders the p coordinates of an update, across all layers. The server still sees
    every single value, and how many are zero. "rotation" flips signs at random, takes the discrete
    Hartley transform (the Fourier transform in real numbers) and reorders the outcome: what the
    server sees mixes all values, and it cannot transform back, not knowing the order. This takes
    O(p log p) operations and O(p) numbers, where a random orthonormal matrix needs p^2. A few
    Householder reflections would be as cheap, but they change an update in a few of its p
    directions only and so hide next to nothing. Norms, similarities and clusters stay visible.

    Parameters
    ----------
    kind : {None, "permutation", "rotation"}
        None sends updates as they are: P is the identity.
    seed : int
        What the clients agree on (Algorithm 5, line 3). A simulation has one seed for all; in
        earnest clients exchange one of their own, apart from that in Jobs. The server, CFL's
        ``plan`` and ``absorb``, never uses P.
    """

    kind: str
    seed: int

    def __post_init__(self):
        one_of("kind", self.kind, None, "permutation", "rotation")
        keep(self, seed=whole("seed", self.seed, 0))

    def draw(self, size, device):
        """The order [p] and the signs [p] of P, from the clients' own stream."""
        source = generator(SECRET, self.seed)
        order = torch.randperm(size, generator=source)
        signs = torch.randint(2, (size,), generator=source) * 2 - 1
        return order.to(device), signs.to(device)

    def hide(self, bank):
        """P x for each update or model x of a bank."""
        if self.kind is None:
            return bank
        rows = bank.flatten()
        order, signs = self.draw(rows.shape[1], rows.device)
        rows = rows if self.kind == "permutation" else hartley(signs * rows)
        return bank.unflatten(rows[:, order])

    def reveal(self, bank):
        """P^-1 z for each z of a bank."""
        if self.kind is None:
            return bank
        rows = bank.flatten()
        order, signs = self.draw(rows.shape[1], rows.device)
        rows = rows[:, order.argsort()]
        return bank.unflatten(rows if self.kind == "permutation" else signs * hartley(rows))


def hartley(rows):
    """The discrete Hartley transform of each row [b, p]: orthonormal, and its own inverse."""
    if not isinstance(rows, torch.Tensor) or rows.is_complex() or not rows.numel():
        raise ValueError(f"rows must be a tensor of real numbers, got {shown(rows)}")
    waves = torch.fft.fft(rows, norm="ortho")
    return waves.real - waves.imag
