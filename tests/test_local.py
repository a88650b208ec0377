"""The client's side, against a plain loop over clients with ordinary PyTorch modules."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from clusterfl_core import compute
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.models import MLP, LinearRegression
from clusterfl_core.randomness import generator
from clusterfl_core.solvers import LocalSGD

torch.set_num_threads(1)  # threads cost more than they bring on clients as small as here

FEATURES, CLASSES = 5, 3
COUNTS = (4, 1, 7, 2, 7, 3)
KINDS = pytest.mark.parametrize("kind", ["classes", "regression"])
PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)]
)


def architecture(kind):
    """A small model of each kind of loss."""
    return MLP(FEATURES, 4, CLASSES) if kind == "classes" else LinearRegression(FEATURES)


def ragged(kind, counts=COUNTS, dtype=torch.float32, seed=0, features=FEATURES):
    """Clients that hold different numbers of random points."""
    source = torch.Generator().manual_seed(seed)
    xs = [torch.randn(n, features, generator=source, dtype=dtype) for n in counts]
    if kind == "classes":
        ys = [torch.randint(0, CLASSES, (n,), generator=source) for n in counts]
    else:
        ys = [torch.randn(n, generator=source, dtype=dtype) for n in counts]
    return Clients.from_lists(xs, ys)


def models_of(kind, count, dtype=torch.float32, seed=0):
    """Different models of one architecture, whatever its initialisation."""
    bank = Bank.initialize(architecture(kind), count, generator(0, seed)).to(dtype)
    source = torch.Generator().manual_seed(seed)
    return bank.map(lambda t: t + 0.5 * torch.randn(t.shape, generator=source).to(dtype))


def plain_points(clients, row):
    """One client's own x and y, cut from the padding by hand."""
    n = int(clients.counts[row])
    return clients.x[row, :n], clients.y[row, :n]


def plain_loss(module, x, y):
    """The mean loss of one ordinary module on one client."""
    if isinstance(module, LinearRegression):
        return ((y - module(x)) ** 2).mean()
    return functional.cross_entropy(module(x), y)


def plain_train(module, x, y, steps, step_size):
    """Gradient descent as a PyTorch tutorial writes it; returns a trained copy."""
    module = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=step_size)
    for _ in range(steps):
        optimizer.zero_grad()
        plain_loss(module, x, y).backward()
        optimizer.step()
    return module


def plain_rows(modules):
    """Parameters of ordinary modules, one row each, in the order of a bank."""
    rows = [torch.cat([p.detach().flatten() for p in one.parameters()]) for one in modules]
    return torch.stack(rows)


def close(found, expected, tolerance):
    """Whether two tensors agree relative to the largest number in them."""
    found, expected = found.to(torch.float64), expected.to(torch.float64)
    return (found - expected).abs().max() <= tolerance * expected.abs().max()


@KINDS
@PRECISIONS
def test_loss_matrix_is_the_mean_loss_of_every_client_under_every_model(kind, dtype, tolerance):
    clients, bank = ragged(kind, dtype=dtype), models_of(kind, 3, dtype)
    expected = [
        [plain_loss(bank.module(j), *plain_points(clients, i)).item() for j in range(3)]
        for i in range(len(clients))
    ]
    found = compute.loss_matrix(bank, clients)
    assert found.shape == (len(clients), 3)
    assert found.dtype == dtype
    assert close(found, torch.tensor(expected, dtype=torch.float64), tolerance)


@KINDS
@PRECISIONS
def test_mean_losses_are_the_losses_of_each_client_under_its_own_model(kind, dtype, tolerance):
    clients, bank = ragged(kind, dtype=dtype), models_of(kind, len(COUNTS), dtype)
    expected = [
        plain_loss(bank.module(i), *plain_points(clients, i)).item() for i in range(len(clients))
    ]
    found = compute.mean_losses(bank, clients)
    assert close(found, torch.tensor(expected, dtype=torch.float64), tolerance)
    matrix = compute.loss_matrix(bank, clients)
    assert close(found, matrix.diagonal(), tolerance)


@KINDS
@PRECISIONS
def test_gradients_are_those_of_autograd_client_by_client(kind, dtype, tolerance):
    clients, bank = ragged(kind, dtype=dtype), models_of(kind, len(COUNTS), dtype)
    expected = []
    for i in range(len(clients)):
        module = bank.module(i)
        found = torch.autograd.grad(
            plain_loss(module, *plain_points(clients, i)), list(module.parameters())
        )
        expected.append(torch.cat([g.flatten() for g in found]))
    found = compute.client_gradients(bank, clients.inputs(dtype), clients.y, clients.mask())
    assert close(found.flatten(), torch.stack(expected), tolerance)


def test_the_gradient_of_the_squared_loss_carries_the_factor_2():
    clients = ragged("regression", dtype=torch.float64)
    bank = models_of("regression", len(COUNTS), torch.float64)
    slopes = compute.client_gradients(bank, clients.x, clients.y, clients.mask())
    for i in range(len(clients)):
        x, y = plain_points(clients, i)
        residual = y - x @ bank.tensors["theta"][i]
        by_hand = -2 / len(y) * x.T @ residual
        assert close(slopes.tensors["theta"][i], by_hand, 1e-12)


def test_accuracies_count_the_right_guesses_of_each_client():
    clients, bank = ragged("classes"), models_of("classes", len(COUNTS))
    for i, found in enumerate(compute.accuracies(bank, clients).tolist()):
        x, y = plain_points(clients, i)
        guesses = [int(bank.module(i)(one[None]).argmax()) for one in x]
        right = sum(guess == label for guess, label in zip(guesses, y.tolist(), strict=True))
        assert found == pytest.approx(right / len(y), abs=1e-15)


def test_bytes_enter_a_model_as_fractions_of_255():
    source = torch.Generator().manual_seed(0)
    pixels = [torch.randint(0, 256, (n, 2, 2), generator=source, dtype=torch.uint8) for n in (3, 2)]
    labels = [torch.randint(0, 3, (n,), generator=source) for n in (3, 2)]
    bank = Bank.initialize(MLP(4, 3, 3), 2, generator(0))
    as_bytes = Clients.from_lists(pixels, labels)
    as_fractions = Clients.from_lists([p.to(torch.float32) / 255 for p in pixels], labels)
    assert torch.equal(compute.loss_matrix(bank, as_bytes), compute.loss_matrix(bank, as_fractions))


@KINDS
@pytest.mark.parametrize("batch_size", [None, 2])
def test_what_the_padding_holds_never_matters(kind, batch_size):
    clean = ragged(kind)
    padding = ~clean.mask()
    x, y = clean.x.clone(), clean.y.clone()
    x[padding] = 1e30
    y[padding] = CLASSES - 1 if kind == "classes" else 1e30
    dirty = Clients(x, y, clean.counts, clean.ids)
    bank, shared = models_of(kind, len(COUNTS)), models_of(kind, 3)
    solver = LocalSGD(3, 0.1, batch_size)
    assert torch.equal(compute.loss_matrix(shared, clean), compute.loss_matrix(shared, dirty))
    assert torch.equal(compute.mean_losses(bank, clean), compute.mean_losses(bank, dirty))
    assert torch.equal(
        solver.train(bank, clean, (0, 0)).flatten(), solver.train(bank, dirty, (0, 0)).flatten()
    )
    assert torch.equal(
        solver.gradient(bank, clean, (0, 0)).flatten(),
        solver.gradient(bank, dirty, (0, 0)).flatten(),
    )
    if kind == "classes":
        assert torch.equal(compute.accuracies(bank, clean), compute.accuracies(bank, dirty))


@KINDS
def test_how_long_the_padding_is_never_matters(kind):
    short = ragged(kind, dtype=torch.float64)
    more = (len(COUNTS), 6)
    long = Clients(
        torch.cat([short.x, torch.ones(*more, FEATURES, dtype=torch.float64)], 1),
        torch.cat([short.y, torch.ones(more).to(short.y)], 1),
        short.counts,
    )
    bank = models_of(kind, len(COUNTS), torch.float64)
    assert close(compute.loss_matrix(bank, long), compute.loss_matrix(bank, short), 1e-14)
    for batch_size in (None, 2):
        solver = LocalSGD(3, 0.1, batch_size)
        found, expected = (solver.train(bank, c, (0, 0)).flatten() for c in (long, short))
        assert close(found, expected, 1e-14)


@KINDS
@PRECISIONS
def test_full_batch_training_is_gradient_descent_client_by_client(kind, dtype, tolerance):
    clients, bank = ragged(kind, dtype=dtype), models_of(kind, len(COUNTS), dtype)
    expected = [
        plain_train(bank.module(i), *plain_points(clients, i), steps=5, step_size=0.05)
        for i in range(len(clients))
    ]
    found = LocalSGD(5, 0.05).train(bank, clients, (0, 0))
    assert close(found.flatten(), plain_rows(expected), tolerance)


@KINDS
def test_minibatch_training_is_gradient_descent_on_the_drawn_batches(kind):
    clients = ragged(kind, dtype=torch.float64)
    bank = models_of(kind, len(COUNTS), torch.float64)
    solver, key = LocalSGD(5, 0.05, 2), (3, 8)
    modules = [bank.module(i) for i in range(len(clients))]
    for x, y, mask, *_ in solver.batches(clients, key, torch.float64):
        for i, module in enumerate(modules):
            modules[i] = plain_train(module, x[i][mask[i]], y[i][mask[i]], 1, 0.05)
    found = solver.train(bank, clients, key)
    assert close(found.flatten(), plain_rows(modules), 1e-10)


def numbered(counts):
    """Clients whose point l of client i is the number 1000 i + l, in x and in y."""
    ys = [torch.arange(n, dtype=torch.float64) + 1000 * i for i, n in enumerate(counts)]
    return Clients.from_lists([y[:, None] for y in ys], ys)


def drawn(clients, solver, key=(0, 0)):
    """For each client and step the numbers of the points drawn."""
    steps = []
    for x, y, mask, *_ in solver.batches(clients, key, torch.float64):
        assert torch.equal(x[..., 0][mask], y[mask])
        steps.append([row[real].tolist() for row, real in zip(y, mask, strict=True)])
    return [[step[i] for step in steps] for i in range(len(clients))]


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    batch_size=st.integers(1, 11),
    passes=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_each_pass_visits_each_point_exactly_once(counts, batch_size, passes, seed):
    clients = numbered(counts)
    steps = passes * -(-max(counts) // batch_size)
    for i, batches in enumerate(drawn(clients, LocalSGD(steps, 0.1, batch_size), (seed, 0))):
        each = -(-counts[i] // batch_size)
        whole = [1000 * i + point for point in range(counts[i])]
        assert len(batches) == steps
        assert all(1 <= len(batch) <= batch_size for batch in batches)
        for start in range(0, steps - each + 1, each):
            visited = [point for batch in batches[start : start + each] for point in batch]
            assert sorted(visited) == whole


def test_batches_depend_on_seed_round_and_client_and_on_the_pass():
    clients, solver = numbered([20, 20]), LocalSGD(2, 0.1, 20)
    first, second = ([int(p) % 1000 for p in b[0]] for b in drawn(clients, solver, (0, 0)))
    again = [int(p) % 1000 for p in drawn(clients, solver, (0, 0))[0][1]]
    seed = [int(p) % 1000 for p in drawn(clients, solver, (1, 0))[0][0]]
    later = [int(p) % 1000 for p in drawn(clients, solver, (0, 1))[0][0]]
    orders = {tuple(order) for order in (first, second, again, seed, later)}
    assert len(orders) == 5


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    batch_size=st.integers(1, 7),
    data=st.data(),
)
def test_a_clients_batches_do_not_depend_on_which_other_clients_work(counts, batch_size, data):
    clients, solver = numbered(counts), LocalSGD(4, 0.1, batch_size)
    rows = data.draw(st.lists(st.sampled_from(range(len(counts))), min_size=1, unique=True))
    everybody = drawn(clients, solver, (5, 2))
    assert drawn(clients.take(rows), solver, (5, 2)) == [everybody[row] for row in rows]


def test_the_same_key_draws_the_same_batches_again():
    clients, solver = numbered([6, 9]), LocalSGD(5, 0.1, 4)
    assert drawn(clients, solver, (7, 3)) == drawn(clients, solver, (7, 3))


@KINDS
def test_a_batch_larger_than_the_client_is_all_its_points(kind):
    clients = ragged(kind, dtype=torch.float64)
    bank = models_of(kind, len(COUNTS), torch.float64)
    found = LocalSGD(3, 0.05, 100).train(bank, clients, (0, 0))
    expected = LocalSGD(3, 0.05).train(bank, clients, (0, 0))
    assert close(found.flatten(), expected.flatten(), 1e-12)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_the_gradient_sent_is_that_of_the_first_step(batch_size):
    clients = ragged("classes", dtype=torch.float64)
    bank = models_of("classes", len(COUNTS), torch.float64)
    solver = LocalSGD(1, 0.25, batch_size)
    after = solver.train(bank, clients, (0, 4)).flatten()
    slope = solver.gradient(bank, clients, (0, 4)).flatten()
    assert close(bank.flatten() - 0.25 * slope, after, 1e-14)


@KINDS
@pytest.mark.parametrize("option", ["models", "gradients"])
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_client_answers_the_same_alone_and_among_many(kind, option, batch_size, size):
    """Equal but for rounding: a batch of one takes another matrix product of the BLAS.

    Measured: at most 2e-7 in float32 for a batch of one; larger batches gave equal bits.
    """
    clients = ragged(kind, counts=[3, 8, 5, 8, 1, 6, 8])
    algorithm = IFCA(architecture(kind), 3, LocalSGD(1, 0.1, batch_size), option)
    jobs = algorithm.plan(algorithm.init(Federation(clients, clients), seed=1))
    whole = algorithm.client_step(jobs, clients)
    for rows in torch.arange(len(clients)).split(size):
        part = algorithm.client_step(jobs.take(rows), clients.take(rows))
        assert torch.equal(part.clients, clients.ids[rows])
        assert torch.equal(part.values["identity"], whole.values["identity"][rows])
        assert close(part.values["loss"], whole.values["loss"][rows], 1e-6)
        assert close(part.bank.flatten(), whole.bank.take(rows).flatten(), 1e-6)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"steps": 0}, r"steps must be at least 1 or None, got 0"),
        ({"steps": -3}, r"steps must be at least 1 or None, got -3"),
        ({"step_size": 0}, r"step_size must be positive and finite, got 0"),
        ({"step_size": -0.1}, r"step_size must be positive and finite, got -0\.1"),
        ({"step_size": float("inf")}, r"step_size must be positive and finite, got inf"),
        ({"step_size": float("nan")}, r"step_size must be positive and finite, got nan"),
        ({"batch_size": 0}, r"batch_size must be at least 1 or None, got 0"),
    ],
)
def test_bad_settings_of_the_local_steps_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        LocalSGD(**arguments)
