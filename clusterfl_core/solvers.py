"""Local training, of many clients at once as a loop over them would do it one after another.

Client i's loss is the MEAN over its own n_i points, F_i(theta) = (1 / n_i) sum_l f(theta; z_il), so
a client with more points does not count more inside its own loss.

Two clients, one point each, and the models (1, 0) and (0, 1) of linear regression:

>>> import torch
>>> from clusterfl_core.banks import Bank
>>> from clusterfl_core.clients import Clients
>>> from clusterfl_core.models import LinearRegression
>>> from clusterfl_core.solvers import LocalSGD
>>> bank = Bank(LinearRegression(2), {"theta": torch.eye(2)})
>>> clients = Clients(torch.eye(2)[:, None], [[1.0], [3.0]], counts=[1, 1])
>>> LocalSGD(steps=1, step_size=0.5).train(bank, clients, key=(0, 0)).tensors["theta"].tolist()
[[1.0, 0.0], [0.0, 3.0]]
"""

from dataclasses import dataclass
from functools import partial
from itertools import repeat

import torch

from clusterfl_core import compute
from clusterfl_core.check import keep, positive, share, whole
from clusterfl_core.compute import client_gradients, column, point_factors
from clusterfl_core.randomness import BATCHES, generator

__all__ = ["LocalAdam", "LocalSGD", "LocalSolver"]


@dataclass(frozen=True)
class LocalSolver:
    """What the local solvers share: how many steps, how large, and on which points.

    :class:`LocalSGD` and :class:`LocalAdam` add ``begin`` (what they remember before the first
    step) and ``move`` (one step). ValueError if a number lies outside its bounds.

    Parameters
    ----------
    steps : int, optional
        tau, the number of steps in a round. Give ``steps`` or ``epochs``, not both; with neither
        there is one step.
    step_size : float
        gamma, positive.
    batch_size : int, optional
        B, points a step. None takes all points of the client (no randomness). Otherwise a client
        goes through its points in a random order, B at a time, and shuffles anew when through; the
        last batch of a pass holds what is left.
    epochs : int, optional
        Passes over the client's own points in a round: epochs * ceil(n_i / B) steps of client i.
        One that is through stays where it is while the others go on.
    decay : float
        The step size of round t = 0, 1, ... is gamma decay^t (IFCA's CIFAR setting: 0.99); in
        (0, 1].
    """

    steps: int = None
    step_size: float = 0.1
    batch_size: int = None
    epochs: int = None
    decay: float = 1.0

    def __post_init__(self):
        if self.steps is not None and self.epochs is not None:
            both = f"steps={self.steps}, epochs={self.epochs}"
            raise ValueError(f"give steps or epochs, not both, got {both}")
        given = vars(self)
        if self.steps is None and self.epochs is None:
            given["steps"] = 1
        for name in ("steps", "batch_size", "epochs"):
            given[name] = whole(name, given[name], none=True)
        step_size, decay = positive("step_size", self.step_size), share("decay", self.decay)
        keep(self, step_size=step_size, decay=decay)

    def train(self, bank, clients, key, pull=None, weights=None, rows=None, hidden=None):
        """Where each of b clients ends, from one model each: a bank of b.

        Plain full-batch descent without a pull is done in Gram form where that is less work; the
        numbers agree up to rounding.

        Parameters
        ----------
        bank : Bank
            Where each client starts: b models, or those that ``rows`` names.
        clients : Clients
            b clients.
        key : tuple of int
            (seed, round): with a client's id it fixes that client's batches.
        pull : tuple of Tensor [b] and Bank, optional
            (strength a_i, target t_i), b of each: the client minimises
            F_i(theta) + a_i / 2 ‖theta‖^2 - <t_i, theta>, so each step's gradient carries
            a_i theta - t_i beside the gradient of the loss. A proximal term
            (lambda / 2) ‖theta - c‖^2 is the pull (lambda, lambda c).
        weights : Tensor [b, n_max], optional
            Factor of each point's loss; see :func:`clusterfl_core.compute.client_gradients`.
        rows : LongTensor [b], optional
            Which model of the bank each client starts from. Default: client i from model i.
        hidden : Tensor [b, n_max, h], optional
            What the first layer of these models says, from :func:`first_pass`. Overwritten.
        """
        rate = self.rate(key[1])
        if pull is None and self.in_gram_form(bank.model, clients):
            x, y, steps = clients.inputs(bank.dtype), clients.y, self.steps or self.epochs
            factors = point_factors(clients.mask(), bank.dtype, weights)
            rows = torch.arange(len(clients)) if rows is None else rows
            return compute.gram_descent(bank, rows, x, y, factors, steps, rate, hidden)
        bank = bank if rows is None else bank.take(rows)
        memory = self.begin(bank)

        def pulled(slope, theta, target):
            return slope + column(pull[0].to(theta), theta) * theta - target

        def settled(new, old, going):
            return torch.where(column(going, new), new, old)

        for count, batch in enumerate(self.batches(clients, key, bank.dtype, weights), 1):
            slopes = client_gradients(bank, *batch)
            if pull is not None:
                slopes = slopes.map(pulled, bank, pull[1])
            moved, memory = self.move(bank, slopes, memory, rate, count)
            if self.epochs is not None:
                moved = moved.map(partial(settled, going=batch[2].any(1)), bank)
            bank = moved
        return bank

    def in_gram_form(self, model, clients):
        """Whether descent is full-batch and plain, and cheaper in Gram form."""
        plain = self.batch_size is None and type(self) is LocalSGD  # a subclass may step otherwise
        return plain and compute.gram_pays(model, clients.y.shape[1], self.steps or self.epochs)

    @property
    def passes(self):
        """Passes over a client's data in a round, as methods are compared; a full step is one."""
        return self.steps or self.epochs

    def rate(self, round):
        """The step size of a round: gamma decay^t, t = 0 in the first round."""
        return self.step_size * self.decay**round

    def gradient(self, bank, clients, key):
        """The (stochastic) gradient of the first step (IFCA, Algorithm 1, option I)."""
        return client_gradients(bank, *next(self.batches(clients, key, bank.dtype)))

    def batches(self, clients, key, dtype, weights=None):
        """The (x, y, mask) of each step, and the weights of its points where there are any.

        With ``epochs``, a client that is through has no point in the mask any more.
        """
        x, extra = clients.inputs(dtype), () if weights is None else (weights,)
        if self.batch_size is None:
            everything = (x, clients.y, clients.mask(), *extra)
            yield from repeat(everything, self.steps or self.epochs)
            return
        pairs = zip(clients.counts.tolist(), clients.ids.tolist(), strict=True)
        drawn = [self.draw(count, generator(BATCHES, *key, client)) for count, client in pairs]
        rows = torch.nn.utils.rnn.pad_sequence(drawn, batch_first=True, padding_value=-1)
        rows = rows.to(x.device)
        first = (torch.arange(len(clients), device=x.device) * x.shape[1])[:, None, None]
        flat = [part.flatten(0, 1) for part in (x, clients.y, *extra)]
        # Points are gathered for about one pass at a time: few large copies, never more than the
        # data itself.
        for some in rows.split(max(1, x.shape[1] // self.batch_size), dim=1):
            index, real = (first + some.clamp(min=0)).transpose(0, 1), (some >= 0).transpose(0, 1)
            xs, ys, *more = (part[index] for part in flat)
            yield from zip(xs, ys, real, *more, strict=True)

    def draw(self, count, source):
        """Rows of the points of each step, [steps, B]; -1 fills the last batch of a pass."""
        each = -(-count // self.batch_size)
        passes = self.epochs or -(-self.steps // each)
        rows = torch.stack([torch.randperm(count, generator=source) for _ in range(passes)])
        rows = torch.nn.functional.pad(rows, (0, each * self.batch_size - count), value=-1)
        return rows.view(-1, self.batch_size)[: self.steps]


@dataclass(frozen=True)
class LocalSGD(LocalSolver):
    """LocalUpdate: tau steps of gradient descent on the client's own loss (IFCA, lines 18-21)."""

    def begin(self, bank):
        """Nothing: a step depends on no step before it."""

    def move(self, bank, slopes, memory, rate, count):
        """One step: theta - gamma g."""
        return bank.map(lambda theta, slope: theta - rate * slope, slopes), None


@dataclass(frozen=True)
class LocalAdam(LocalSolver):
    """Adam (Kingma and Ba, 2015) on the client's own loss, with PyTorch's constants.

    beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8, and the step size is 0.001 unless given. The
    moments start at zero in every round: a client remembers nothing between rounds but, where the
    algorithm says so, its model. (FedSoft's released code keeps each client's moments.)

    Every operation is elementwise, so a bank of b models takes the steps that
    ``torch.optim.Adam`` would take one client at a time.
    """

    step_size: float = 0.001

    def begin(self, bank):
        """Both moments of the gradient, zero."""
        return bank.map(torch.zeros_like), bank.map(torch.zeros_like)

    def move(self, bank, slopes, memory, rate, count):
        """One step: theta - gamma m / (sqrt(v) + epsilon), m and v corrected for starting at 0."""
        moments = (part.tensors.values() for part in (*memory, slopes))
        for m, v, g in zip(*moments, strict=True):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).addcmul_(g, g, value=0.001)

        def step(theta, m, v):
            spread = (v / (1 - 0.999**count)).sqrt_().add_(1e-8)
            return theta - (m / spread).mul_(rate / (1 - 0.9**count))

        return bank.map(step, *memory), memory
