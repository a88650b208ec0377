"""Race on your machine: plain descent against the Gram form (appendix on many clients)."""

import numpy as np
import torch

from clusterfl_core import compute
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients
from clusterfl_core.live.fields import Choice, Number, Whole
from clusterfl_core.live.page import laboratory
from clusterfl_core.models import MLP
from clusterfl_core.solvers import LocalSGD

__all__ = ["FIELDS", "counted", "loss_after", "race"]

CLASSES = 10
FIELDS = {
    "clients": Whole("clients", 1, 24),
    "images": Number("images a client", 10, 160, by=10),
    "inputs": Choice("inputs", (("64", "8 × 8"), ("256", "16 × 16"), ("784", "28 × 28"))),
    "hidden": Whole("hidden units", 4, 32),
    "steps": Whole("local steps τ", 1, 20),
    "workers": Whole("workers", 1, 8),
    "rounds": Whole("tries", 0, 5),
}


def race(*, clients=4, images=80, inputs=784, hidden=16, steps=5, workers=2, task=""):
    """A round of clients by plain descent and by the Gram form, timed in the reader's browser.

    Parameters
    ----------
    clients, images : int
        Clients, 1 to 24, and images of each, 10 to 160 in steps of 10.
    inputs, hidden : int
        64, 256 or 784 pixels, and hidden units, 4 to 32.
    steps : int
        Full-batch steps of a client in a round, 1 to 20.
    workers : int
        To which the clients are dealt in the third lane, 1 to 8.
    task : str
        What to try. The laboratory notices when the Gram form was twice as fast on the reader's
        clock, and then is twice as slow after one slider was moved.
    """
    words = "Race: a round of {clients} clients on your machine, by plain descent and Gram form."
    own = {"clients": clients, "images": images, "inputs": str(inputs), "hidden": hidden}
    own |= {"steps": steps, "workers": workers, "rounds": 0}
    return laboratory("race", FIELDS, words, _still, task=task, **own)


def counted(clients, *, images, inputs, hidden, steps):
    """Multiplications of a round: plain, Gram form, and the images below which the latter pays.

    (A.3), (A.7) and (A.8) of the appendix, for ten classes.
    """
    n, d, h = int(images), inputs, hidden
    outputs = 3 * steps * n * h * CLASSES
    plain = steps * 2 * n * d * h + outputs
    gram = n**2 * d + (steps - 1) * n**2 * h + 2 * n * d * h + outputs
    limit = 2 * d * (steps - 1) * h / (d + (steps - 1) * h)
    return clients * plain, clients * gram, limit


def loss_after(clients, *, images, inputs, hidden, steps):
    """Mean training loss of the clients after the round, trained by the library in float64."""
    n, d = int(images), inputs
    x = _bytes(np.arange(clients * n * d)).reshape(clients, n, 1, d)
    y = _bytes(10**9 + np.arange(clients * n)).reshape(clients, n) % CLASSES
    counts = torch.full((clients,), n)
    people = Clients(
        torch.from_numpy(x.astype(np.uint8)), torch.from_numpy(y.astype(np.int64)), counts
    )
    model = MLP(d, hidden, CLASSES)
    starts = {"W": (2 * 10**9, hidden, d), "b": (21 * 10**8, hidden)}
    starts |= {"V": (22 * 10**8, CLASSES, hidden), "v": (23 * 10**8, CLASSES)}
    numbers = [
        (_bytes(first + np.arange(np.prod(shape))).reshape(shape) / 255 - 0.5) / 5
        for first, *shape in starts.values()
    ]
    fresh = Bank.fresh(model, 1, 0).to(torch.float64)
    tensors = zip(fresh.tensors, numbers, strict=True)
    start = Bank(model, {name: torch.from_numpy(one)[None] for name, one in tensors})
    rows = torch.zeros(clients, dtype=torch.int64)
    ended = LocalSGD(steps, 0.1).train(start, people, key=(0, 0), rows=rows)
    return float(compute.mean_losses(ended, people).mean())


def _bytes(numbers):
    """A byte from each number below 2^32, as in race.js."""
    t = numbers.astype(np.uint32)
    t = (t ^ (t >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    t = (t ^ (t >> np.uint32(15))) * np.uint32(0x735A2D97)
    return ((t ^ (t >> np.uint32(15))) & np.uint32(255)).astype(np.int64)


def _still(figures, found):
    sizes = {"hidden": found["hidden"], "steps": found["steps"], "inputs": int(found["inputs"])}
    held = np.arange(10, 161, 10)
    work = np.array([counted(1, images=n, **sizes)[:2] for n in held]) / 1e6
    panel = figures.panel("Multiplications of plain descent and of the Gram form.", width=260)
    panel.spread(held, work[:, 0], "plain", 0).spread(held, work[:, 1], "Gram", 1)
    return panel.named("images", "million multiplications")
