"""Local solvers: Adam and gradient descent by steps or epochs, decay, the pull, weighted losses."""

import pytest
import torch
from torch import nn

import clusterfl_core as cf
from clusterfl_core import compute
from clusterfl_core.banks import Bank
from clusterfl_core.randomness import BATCHES, generator

KEY = (3, 0)
REFERENCE = {cf.LocalAdam: torch.optim.Adam, cf.LocalSGD: torch.optim.SGD}


@pytest.fixture
def clients():
    """Three clients of a classification task with 9, 4 and 7 points."""
    source = generator(99, 1)
    xs = [torch.randn(n, 5, generator=source, dtype=torch.float64) for n in (9, 4, 7)]
    ys = [torch.randint(0, 3, (len(x),), generator=source) for x in xs]
    return cf.Clients.from_lists(xs, ys)


@pytest.fixture
def bank():
    return Bank.initialize(cf.models.MLP(5, 6, 3).double(), 3, generator(99, 2))


def one_at_a_time(solver, bank, clients, key, pull=None, weights=None):
    """What a client does alone with PyTorch's optimiser and its own batches."""
    rows = []
    for i in range(len(clients)):
        module, (x, y) = bank.module(i), clients.points(i)
        x, n = clients.inputs(torch.float64)[i, : len(y)], len(y)
        optimizer = REFERENCE[type(solver)](module.parameters(), lr=solver.rate(key[1]))
        if solver.batch_size is None:
            order = [torch.arange(n)] * (solver.steps or solver.epochs)
        else:
            source = generator(BATCHES, *key, int(clients.ids[i]))
            passes = [torch.randperm(n, generator=source) for _ in range(50)]
            order = [batch for one in passes for batch in one.split(solver.batch_size)]
            each = -(-n // solver.batch_size)
            order = order[: solver.steps or solver.epochs * each]
        for batch in order:
            losses = nn.functional.cross_entropy(module(x[batch]), y[batch], reduction="none")
            if weights is not None:
                losses = losses * weights[i, batch]
            loss = losses.sum() / len(batch)
            if pull is not None:
                strength, target = pull
                for name, theta in module.named_parameters():
                    loss = loss + strength[i] / 2 * (theta**2).sum()
                    loss = loss - (target.tensors[name][i] * theta).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rows.append({name: theta.detach() for name, theta in module.named_parameters()})
    return Bank(bank.model, {name: torch.stack([r[name] for r in rows]) for name in rows[0]})


def assert_close(one, other, atol=1e-10):
    torch.testing.assert_close(one.flatten(), other.flatten(), rtol=0, atol=atol)


SETTINGS = [
    {"steps": 7},
    {"steps": 7, "batch_size": 4},
    {"epochs": 3},
    {"epochs": 3, "batch_size": 4},
    {"epochs": 2, "batch_size": 100},
]


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_solver_is_pytorchs_run_one_client_at_a_time(solver, settings, bank, clients):
    mine = solver(step_size=0.03, **settings)
    assert_close(mine.train(bank, clients, KEY), one_at_a_time(mine, bank, clients, KEY))


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
def test_pull_is_the_gradient_of_its_quadratic(solver, bank, clients):
    pull = torch.tensor([0.5, 0.0, 2.0]), Bank.initialize(bank.model, 3, generator(99, 3))
    mine = solver(step_size=0.03, epochs=2, batch_size=4)
    found = mine.train(bank, clients, KEY, pull)
    assert_close(found, one_at_a_time(mine, bank, clients, KEY, pull))
    assert (found.flatten() - mine.train(bank, clients, KEY).flatten()).abs().max() > 1e-3


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
@pytest.mark.parametrize("size", [None, 4])
def test_weights_multiply_each_points_loss(solver, size, bank, clients):
    weights = torch.rand(3, 9, generator=generator(99, 4), dtype=torch.float64)
    mine = solver(step_size=0.03, epochs=2, batch_size=size)
    found = mine.train(bank, clients, KEY, weights=weights)
    assert_close(found, one_at_a_time(mine, bank, clients, KEY, weights=weights))


def test_weights_of_one_change_nothing_and_of_zero_stop_gradient_descent(bank, clients):
    mine = cf.LocalSGD(5, 0.1, 3)
    free = mine.train(bank, clients, KEY)
    assert_close(mine.train(bank, clients, KEY, weights=torch.ones(3, 9)), free, atol=0)
    assert_close(mine.train(bank, clients, KEY, weights=torch.zeros(3, 9)), bank, atol=0)


def test_adam_forgets_its_moments_between_rounds(bank, clients):
    mine = cf.LocalAdam(steps=2, step_size=0.03)
    again = mine.train(mine.train(bank, clients, (3, 0)), clients, (3, 1))
    four = cf.LocalAdam(steps=4, step_size=0.03).train(bank, clients, (3, 0))
    assert_close(again, one_at_a_time(mine, mine.train(bank, clients, (3, 0)), clients, (3, 1)))
    assert (again.flatten() - four.flatten()).abs().max() > 1e-4


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
def test_a_client_that_is_through_stays_put_while_others_go_on(solver, bank, clients):
    mine = solver(step_size=0.03, epochs=3, batch_size=4)
    together = mine.train(bank, clients, KEY)
    for i in range(3):
        alone = mine.train(bank.take([i]), clients.take([i]), KEY)
        assert_close(together.take([i]), alone, atol=1e-14)


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
def test_what_a_client_computes_does_not_depend_on_the_others_or_their_order(solver, bank, clients):
    mine, order = solver(step_size=0.03, steps=5, batch_size=4), [2, 0, 1]
    together = mine.train(bank, clients, KEY)
    assert_close(
        mine.train(bank.take(order), clients.take(order), KEY), together.take(order), 1e-14
    )


def test_an_epoch_is_one_pass_over_the_clients_own_points(clients):
    mine = cf.LocalSGD(epochs=3, batch_size=4)
    for count, steps in ((9, 3), (4, 1), (7, 2)):
        rows = mine.draw(count, generator(BATCHES, 0))
        assert rows.shape == (3 * steps, 4)
        for one in rows.view(3, -1):
            assert sorted(one[one >= 0].tolist()) == list(range(count))
    masks = torch.stack([mask for _x, _y, mask in mine.batches(clients, KEY, torch.float64)])
    assert masks.any(2).sum(0).tolist() == [9, 3, 6]
    assert masks.sum((0, 2)).tolist() == [27, 12, 21]


def test_steps_go_through_the_points_and_shuffle_anew(clients):
    rows = cf.LocalSGD(5, 0.1, 4).draw(9, generator(BATCHES, 0))
    assert rows.shape == (5, 4)
    assert sorted(rows[:3][rows[:3] >= 0].tolist()) == list(range(9))
    assert len(set(rows[3:].flatten().tolist())) == 8


def test_batches_differ_between_rounds_and_clients(bank, clients):
    same = clients.take([0, 0])
    mine = cf.LocalSGD(1, 0.1, 3)
    twins = cf.Clients(same.x, same.y, same.counts, torch.tensor([0, 5]))
    first, other = mine.train(bank.take([0, 0]), twins, (3, 0)).flatten()
    assert not torch.equal(first, other)
    assert not torch.equal(first, mine.train(bank.take([0, 0]), twins, (3, 1)).flatten()[0])
    assert torch.equal(first, mine.train(bank.take([0, 0]), twins, (3, 0)).flatten()[0])


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
def test_decay_shortens_the_steps_of_later_rounds(solver, bank, clients):
    mine = solver(step_size=0.2, decay=0.5)
    assert [mine.rate(t) for t in range(3)] == [0.2, 0.1, 0.05]
    first = mine.train(bank, clients, (3, 0)).flatten() - bank.flatten()
    third = mine.train(bank, clients, (3, 2)).flatten() - bank.flatten()
    torch.testing.assert_close(third, first / 4)


def test_old_ways_of_naming_the_settings_still_mean_the_same():
    assert cf.LocalSGD() == cf.LocalSGD(1, 0.1, None)
    assert cf.LocalSGD(10, 0.5, 20) == cf.LocalSGD(steps=10, step_size=0.5, batch_size=20)
    assert cf.LocalAdam() == cf.LocalAdam(1, 0.001, None)
    assert cf.LocalSGD(epochs=2).steps is None


@pytest.mark.parametrize("solver", [cf.LocalAdam, cf.LocalSGD])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 2, "epochs": 3}, "give steps or epochs, not both, got steps=2, epochs=3"),
        ({"steps": 1, "epochs": 3}, "give steps or epochs, not both, got steps=1, epochs=3"),
        ({"steps": 0}, "steps must be at least 1 or None, got 0"),
        ({"epochs": 0}, "epochs must be at least 1 or None, got 0"),
        ({"step_size": 0.0}, "step_size must be positive and finite, got 0.0"),
        ({"step_size": float("nan")}, "step_size must be positive and finite, got nan"),
        ({"batch_size": 0}, "batch_size must be at least 1 or None, got 0"),
        ({"decay": 0.0}, r"decay must be in \(0, 1\], got 0.0"),
        ({"decay": 1.01}, r"decay must be in \(0, 1\], got 1.01"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(solver, settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        solver(**settings)


def test_losses_of_all_points_under_all_models(bank, clients):
    table = compute.point_loss_table(bank, clients)
    assert table.shape == (3, 3, 9)
    for j in range(3):
        for i in range(3):
            x, y = clients.inputs(torch.float64)[i], clients.y[i]
            for point in range(int(clients.counts[i])):
                logits = bank.module(j)(x[point][None])
                alone = nn.functional.cross_entropy(logits, y[point][None])
                torch.testing.assert_close(table[j, i, point], alone.detach())
    means = torch.stack([compute.masked_mean(one, clients.mask()) for one in table], 1)
    assert torch.equal(compute.loss_matrix(bank, clients), means)


class Halved(cf.models.LinearRegression):
    """Linear regression with half the squared loss: the gradient written out is not its own."""

    clusterfl_loss = staticmethod(lambda outputs, responses: (responses - outputs) ** 2 / 2)


class Through(cf.models.LinearRegression):
    """Linear regression that takes a detour, so that autograd finds its gradient."""

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_of_linear_regression_written_out_is_autograds(weighted, dtype):
    source = generator(99, 6)
    x, y = torch.randn(4, 7, 3, generator=source), torch.randn(4, 7, generator=source)
    mask = torch.arange(7) < torch.tensor([7, 1, 4, 6])[:, None]
    x[~mask], y = 0, torch.where(mask, y, 5.0).to(torch.float64)
    weights = torch.rand(4, 7, generator=source) if weighted else None
    theta = {"theta": torch.randn(4, 3, generator=source).to(dtype)}
    found = compute.client_gradients(
        Bank(cf.models.LinearRegression(3), theta), x.to(dtype), y, mask, weights
    )
    wanted = compute.client_gradients(Bank(Through(3), theta), x.to(dtype), y, mask, weights)
    assert found.dtype == dtype
    digits = {torch.float32: 1e-6, torch.float64: 1e-14}[dtype]
    torch.testing.assert_close(found.flatten(), wanted.flatten(), rtol=digits, atol=digits)
    half = compute.client_gradients(Bank(Halved(3), theta), x.to(dtype), y, mask, weights)
    torch.testing.assert_close(half.flatten(), wanted.flatten() / 2)


def test_images_stay_bytes_until_a_batch_is_used(bank):
    pixels = torch.randint(0, 256, (2, 6, 5), generator=generator(99, 5), dtype=torch.uint8)
    labels = torch.tensor([[0, 1, 2, 0, 1, 2]] * 2)
    whole = cf.Clients(pixels, labels, torch.tensor([6, 4]))
    fractions = cf.Clients(pixels.double() / 255, labels, torch.tensor([6, 4]))
    mine = cf.LocalAdam(epochs=2, step_size=0.03, batch_size=4)
    start = bank.take([0, 1])
    assert_close(mine.train(start, whole, KEY), mine.train(start, fractions, KEY), atol=1e-15)


def test_a_run_with_adam_and_decay_resumes_bit_for_bit(tmp_path):
    federation = cf.populations.mixture_regression("random", clients=8, seed=2)
    solver = cf.LocalAdam(epochs=1, step_size=0.05, batch_size=50, decay=0.9)
    algorithm = cf.IFCA(cf.models.LinearRegression(10), 2, solver, participation=0.5)
    whole = cf.run(algorithm, federation, 4, seed=1)
    cf.run(algorithm, federation, 2, seed=1, checkpoint=tmp_path / "run.pt")
    resumed = cf.run(algorithm, federation, 4, seed=1, checkpoint=tmp_path / "run.pt")
    assert torch.equal(whole.models.flatten(), resumed.models.flatten())
    assert torch.equal(whole.assignments, resumed.assignments)


@pytest.mark.parametrize("size", [None, 4])
def test_the_gradient_alone_is_that_of_the_first_step(size, bank, clients):
    mine = cf.LocalSGD(3, 0.1, size)
    moved = cf.LocalSGD(1, 1.0, size).train(bank, clients, KEY)
    found = mine.gradient(bank, clients, KEY)
    assert_close(found, bank.map(torch.sub, moved), atol=1e-14)
