"""Every backend against a plain loop over clients with ordinary PyTorch modules."""

import copy
import warnings
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import clusterfl_core as cf
from clusterfl_core import compute, machine, models, simulation
from clusterfl_core.algorithms import ifca
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients
from clusterfl_core.randomness import generator

torch.set_num_threads(1)

PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)]
)


class DeepForm(models.FirstLinear):
    """A second hidden layer behind the first; its gradients are left to autograd."""

    def after(self, tensors, hidden):
        middle = torch.baddbmm(
            tensors["middle.bias"][:, None], hidden.relu(), tensors["middle.weight"].mT
        )
        return torch.baddbmm(
            tensors["leave.bias"][:, None], middle.tanh(), tensors["leave.weight"].mT
        )


class Deep(nn.Module):
    """Two hidden layers, the first of which is linear, as its form says."""

    clusterfl_form = DeepForm("enter")

    def __init__(self, features=12):
        super().__init__()
        self.enter, self.middle = nn.Linear(features, 7), nn.Linear(7, 5)
        self.leave = nn.Linear(5, 3)

    def forward(self, x):
        hidden = torch.relu(self.enter(x.flatten(1)))
        return self.leave(torch.tanh(self.middle(hidden)))


class Doubled(models.MLP):
    """Changes ``forward`` alone, so that what it inherits no longer describes it."""

    def forward(self, x):
        return 2 * super().forward(x)


class Unbatched(nn.Module):
    """Looks at a value, which vmap does not allow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x):
        found = self.layer(x)
        return found if found.sum().item() > 1e9 else 2 * found


class Broken(nn.Module):
    """Fails however it is called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x):
        raise ArithmeticError("no answer")


class HalfSquares(models.LinearRegression):
    """Another loss with the same predictions."""

    clusterfl_loss = staticmethod(lambda found, y: (found - y) ** 2 / 2)


FLAT = {
    "mlp": models.MLP(12, 6, 3),
    "deep": Deep(),
    "doubled": Doubled(12, 6, 3),
    "regression": models.LinearRegression(12),
    "softmax": models.SoftmaxRegression(12, 3),
    "half squares": HalfSquares(12),
}
IMAGES = {
    "ifca cifar": models.IFCACifar(1, 8, 3),
    "ifca femnist": models.IFCAFemnist(1, 8, 3, hidden=9),
    "cfl": models.CFLConvNet(1, 8, 3),
    "fedsoft letters": models.FedSoftLetters(1, 8, 3),
    "fedsoft cifar": models.FedSoftCifar(1, 8, 3),
}
WORDS = {"lstm": models.NextWordLSTM(11, 4, 5)}
MODELS = FLAT | IMAGES | WORDS
COUNTS = (5, 2, 7)


def clients_for(name, dtype, counts=COUNTS):
    source = torch.Generator().manual_seed(0)
    if name in WORDS:
        xs = [torch.randint(0, 11, (n, 4), generator=source) for n in counts]
        ys = [torch.randint(0, 11, (n,), generator=source) for n in counts]
        return Clients.from_lists(xs, ys)
    shape = (8, 8) if name in IMAGES else (12,)
    xs = [torch.randn(n, *shape, generator=source, dtype=dtype) for n in counts]
    ys = [torch.randint(0, 3, (n,), generator=source) for n in counts]
    if "regression" in name or "squares" in name:
        ys = [y.to(dtype) for y in ys]
    return Clients.from_lists(xs, ys)


def bank_for(name, count, dtype):
    return Bank.initialize(MODELS[name], count, generator(0, 1)).to(dtype)


def plain_loss(module, x, y):
    return models.point_loss(module)(module(x), y).mean()


def plain_descent(bank, clients, steps, rate):
    """One client after another, as a tutorial writes it."""
    rows = []
    for i in range(len(clients)):
        module, n = bank.module(i), int(clients.counts[i])
        optimizer = torch.optim.SGD(module.parameters(), lr=rate)
        x = clients.inputs(bank.dtype)[i, :n]
        for _ in range(steps):
            optimizer.zero_grad()
            plain_loss(module, x, clients.y[i, :n]).backward()
            optimizer.step()
        rows.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    return torch.stack(rows)


def close(found, expected, tolerance):
    return float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("looping", [True, False], ids=["loop", "batch"])
@PRECISIONS
@pytest.mark.parametrize("name", MODELS)
def test_every_backend_is_the_plain_loop(monkeypatch, name, dtype, tolerance, looping):
    if name not in ("mlp", "regression"):  # these two are written out
        monkeypatch.setattr(compute, "loops", lambda model, device: looping)
    clients, bank = clients_for(name, dtype), bank_for(name, len(COUNTS), dtype)
    found = cf.LocalSGD(3, 0.1).train(bank, clients, (0, 0)).flatten()
    assert close(found, plain_descent(bank, clients, 3, 0.1), tolerance)
    x = clients.inputs(dtype)
    own = torch.stack([bank.module(i)(x[i]) for i in range(len(COUNTS))]).detach()
    assert close(compute.outputs(bank, x).detach(), own, tolerance)
    every = torch.stack([bank.module(j)(x.flatten(0, 1)) for j in range(len(COUNTS))])
    shared = compute.shared_outputs(bank, x).detach()
    assert close(shared.flatten(1, 2), every.detach(), tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_weights_multiply_the_loss_of_each_point(name):
    clients, bank = clients_for(name, torch.float64), bank_for(name, 3, torch.float64)
    weights = torch.rand(clients.y.shape, generator=torch.Generator().manual_seed(3)).double()
    x, mask = clients.inputs(torch.float64), clients.mask()
    found = cf.compute.client_gradients(bank, x, clients.y, mask, weights).flatten()
    for i, n in enumerate(COUNTS):
        module = bank.module(i)
        points = models.point_loss(module)(module(x[i, :n]), clients.y[i, :n])
        slopes = torch.autograd.grad((weights[i, :n] * points).mean(), list(module.parameters()))
        assert close(found[i], torch.cat([s.flatten() for s in slopes]), 1e-12)


# ---------------------------------------------------------------- the Gram form


@pytest.mark.parametrize("given_first", [True, False])
@PRECISIONS
@pytest.mark.parametrize("name", ["mlp", "deep"])
def test_gram_form_is_plain_descent(name, dtype, tolerance, given_first):
    clients, bank = clients_for(name, dtype), bank_for(name, 2, dtype)
    rows = torch.tensor([1, 0, 1])
    x, y = clients.inputs(dtype), clients.y
    factors = clients.mask() / clients.counts[:, None].to(dtype)
    hidden = None
    if given_first:
        hidden = bank.model.clusterfl_form.hidden(bank.tensors, x)[torch.arange(3), :, rows]
    found = compute.gram_descent(bank, rows, x, y, factors, 6, 0.2, hidden).flatten()
    assert close(found, plain_descent(bank.take(rows), clients, 6, 0.2), tolerance)


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    steps=st.integers(1, 5),
    name=st.sampled_from(["mlp", "deep"]),
)
def test_gram_form_is_plain_descent_whatever_the_sizes(counts, steps, name):
    clients = clients_for(name, torch.float64, counts)
    bank = bank_for(name, len(counts), torch.float64)
    rows, factors = torch.arange(len(counts)), clients.mask() / clients.counts[:, None].double()
    x, y = clients.x, clients.y
    found = compute.gram_descent(bank, rows, x, y, factors, steps, 0.1).flatten()
    assert close(found, plain_descent(bank, clients, steps, 0.1), 1e-10)


def test_gram_form_is_taken_only_where_it_is_less_work():
    wide, flat = models.MLP(784, 200, 10), models.MLP(64, 32, 10)
    assert compute.gram_pays(wide, points=100, steps=10)
    assert not compute.gram_pays(wide, points=3000, steps=10)
    assert not compute.gram_pays(wide, points=100, steps=1)
    assert not compute.gram_pays(flat, points=600, steps=10)
    assert not compute.gram_pays(models.CFLConvNet(1, 28), points=10, steps=10)
    assert not compute.gram_pays(Doubled(784, 200, 10), points=100, steps=10)


class Halved(cf.LocalSGD):
    """Steps in its own way."""

    def move(self, bank, slopes, memory, rate, count):
        return super().move(bank, slopes, memory, rate / 2, count)


@pytest.mark.parametrize(
    ("solver", "taken"),
    [
        (Halved(4, 0.1), False),
        (cf.LocalSGD(4, 0.1), True),
        (cf.LocalSGD(epochs=4, step_size=0.1), True),
        (cf.LocalSGD(4, 0.1, batch_size=2), False),
        (cf.LocalAdam(4, 0.1), False),
    ],
)
def test_only_plain_full_batch_descent_has_a_gram_form(monkeypatch, solver, taken):
    called = []
    whole = compute.gram_descent
    monkeypatch.setattr(compute, "gram_descent", lambda *a, **k: called.append(1) or whole(*a, **k))
    clients, bank = clients_for("mlp", torch.float64), bank_for("mlp", 3, torch.float64)
    solver.train(bank, clients, (0, 0))
    assert bool(called) == taken


def test_the_forward_pass_of_the_choice_is_the_first_of_the_training(monkeypatch):
    clients = clients_for("mlp", torch.float64)
    bank = bank_for("mlp", 4, torch.float64)
    algorithm = cf.IFCA(MODELS["mlp"], 4, cf.LocalSGD(5, 0.1))
    models_sent = torch.arange(4).expand(3, -1)
    jobs = cf.contract.Jobs(0, 0, clients.ids, bank, models_sent)
    chosen = ifca.estimate_identities(bank, clients)
    expected = plain_descent(bank.take(chosen), clients, 5, 0.1)
    layers, affine = [], models.forms.affine

    def counted(x, weight, bias):
        layers.append(tuple(weight.shape[1:]))
        return affine(x, weight, bias)

    monkeypatch.setattr(models.forms, "affine", counted)
    found = algorithm.client_step(jobs, clients)
    assert close(found.bank.flatten(), expected, 1e-10)
    assert [shape for shape in layers if shape[1] == 12] == [(4 * 6, 12)]  # all models, once


# ---------------------------------------------------------------- falling back


def test_a_model_vmap_refuses_is_looped_and_said_so_once():
    clients = clients_for("mlp", torch.float64)
    bank = Bank.initialize(Unbatched(), 3, generator(0)).to(torch.float64)
    with pytest.warns(UserWarning, match="Unbatched cannot be vectorised over clients") as heard:
        found = cf.LocalSGD(3, 0.1).train(bank, clients, (0, 0))
    assert len(heard) == 1
    assert close(found.flatten(), plain_descent(bank, clients, 3, 0.1), 1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cf.LocalSGD(3, 0.1).train(bank, clients, (0, 0))


def test_a_fault_of_the_model_itself_is_not_hidden():
    clients = clients_for("mlp", torch.float32)
    bank = Bank.initialize(Broken(), 3, generator(0))
    with pytest.raises(ValueError, match=r"Broken fails on inputs .* ArithmeticError: no answer"):
        compute.outputs(bank, clients.x)


def test_convolutions_loop_on_a_cpu_and_are_vectorised_on_a_gpu():
    for model in IMAGES.values():
        assert compute.loops(model, "cpu")
        assert not compute.loops(model, "cuda")
    for name in ("mlp", "deep", "lstm"):
        assert not compute.loops(MODELS[name], "cpu")


# ---------------------------------------------------------------- chunks, threads, memory


ALGORITHMS = {
    "IFCA": lambda model, solver: cf.IFCA(model, 2, solver),
    "FedAvg": cf.FedAvg,
    "FedEM": lambda model, solver: cf.FedEM(model, 2, solver),
    "CFL": lambda model, solver: cf.CFL(model, local=solver, eps1=10.0, eps2=1e-3),
    "FedSoft": lambda model, solver: cf.FedSoft(model, 2, solver, proximal=0.1, selected=4),
    "OneShot": lambda model, solver: cf.OneShot(model, 2, solver, solver),
}
SOLVERS = {
    "full": cf.LocalSGD(4, 0.1),
    "batches": cf.LocalSGD(3, 0.1, 5),
    "adam": cf.LocalAdam(epochs=1, step_size=0.01, batch_size=7),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_client_computes_the_same_bits_alone_and_among_others(monkeypatch, name, solver):
    digits = cf.populations.label_skew("digits", 7, 0.5)
    linear = cf.populations.mixture_regression("linear", clients=7)
    for federation, model in (
        (digits, models.MLP(64, 5, 10)),
        (digits, models.SoftmaxRegression(64, 10)),
        (linear, models.LinearRegression(10)),
    ):
        algorithm = ALGORITHMS[name](model, SOLVERS[solver])
        whole = cf.run(algorithm, federation, 2)
        for most in (1, 2, 3):
            with monkeypatch.context() as patch:
                patch.setattr(machine, "LARGEST_CHUNK", most)
                parts = cf.run(algorithm, federation, 2)
            assert torch.equal(parts.models.flatten(), whole.models.flatten()), most
            assert torch.equal(parts.assignments, whole.assignments)


class Tanh(nn.Module):
    """A network that only vmap serves."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(64, 6), nn.Linear(6, 10)

    def forward(self, x):
        return self.two(torch.tanh(self.one(x.flatten(1))))


@pytest.mark.parametrize("model", [models.MLP(64, 5, 10), Tanh(), models.CFLConvNet(1, 8, 10)])
@pytest.mark.parametrize("name", ["IFCA", "CFL"])
def test_cores_compute_the_same_bits_as_one(monkeypatch, name, model):
    federation = cf.populations.rotated("digits", clients=8, clusters=4)
    algorithm = ALGORITHMS[name](model, SOLVERS["batches"])
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 1)
    one = cf.run(algorithm, federation, 3)
    try:
        torch.set_num_threads(3)
        three = cf.run(algorithm, federation, 3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one.models.flatten(), three.models.flatten())


def test_an_error_on_another_core_reaches_the_caller(monkeypatch):
    federation = cf.populations.rotated("digits", clients=8, clusters=4)
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 1)
    monkeypatch.setattr(models.FirstLinear, "hidden", lambda *_: 1 / 0)
    try:
        torch.set_num_threads(2)
        with pytest.raises(ZeroDivisionError):
            cf.run(ALGORITHMS["IFCA"](models.MLP(64, 5, 10), SOLVERS["full"]), federation, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("most", [1, 8])
def test_who_adds_the_answers_takes_one_thread(monkeypatch, most):
    federation = cf.populations.rotated("digits", clients=8, clusters=4)
    algorithm = ALGORITHMS["IFCA"](models.MLP(64, 5, 10), SOLVERS["full"])
    seen, sums = [], Bank.sums

    def watched(*parts):
        seen.append(torch.get_num_threads())
        return sums(*parts)

    monkeypatch.setattr(machine, "LARGEST_CHUNK", most)
    monkeypatch.setattr(Bank, "sums", watched)
    try:
        torch.set_num_threads(3)
        simulation.round_trip(algorithm, algorithm.init(federation, 0), federation.train)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert seen == [1] * (8 // most)


def test_answers_are_summed_as_they_come_and_the_sum_does_not_depend_on_the_parts():
    federation = cf.populations.rotated("digits", clients=8, clusters=4)
    for algorithm in (
        ALGORITHMS["IFCA"](models.MLP(64, 5, 10), SOLVERS["full"]),
        cf.FedAvg(models.MLP(64, 5, 10), SOLVERS["full"]),
    ):
        state = algorithm.init(federation, 0)
        after, jobs, replies = simulation.round_trip(algorithm, state, federation.train)
        held, most = weakref.WeakSet(), []

        def parts(jobs=jobs, held=held, most=most, algorithm=algorithm):
            for i in range(8):
                part = algorithm.client_step(jobs.take([i]), federation.train.take([i]))
                held.add(next(iter(part.bank.tensors.values())))
                most.append(len(held))
                yield part
                del part

        summed = algorithm.absorb(state, parts())
        assert max(most) <= 2  # the models of one part, and of the one that is being made
        assert torch.equal(summed.bank.flatten(), after.bank.flatten())
        (kept,) = cf.rounds(algorithm, federation, 1, start=state)
        (dropped,) = cf.rounds(algorithm, federation, 1, start=state, keep=False)
        assert dropped.replies.bank is None
        assert torch.equal(kept.replies.bank.flatten(), replies.bank.flatten())
        assert (dropped.bytes_down, dropped.bytes_up) == cf.contract.traffic(jobs, 8)


def test_a_chunk_fits_the_cache_and_never_exceeds_a_share_of_free_memory(monkeypatch):
    x, y = torch.zeros(600, 100, 784, dtype=torch.uint8), torch.zeros(600, 100).long()
    clients = Clients(x, y, torch.full((600,), 100))
    bank = Bank.initialize(models.MLP(784, 200, 10), 4, generator(0))
    usual = machine.chunk_size(bank, clients)
    needed = 100 * (784 + 6 * 210) * 4 + 3 * bank.bytes_of_one()
    assert usual == machine.CACHE // needed
    monkeypatch.setattr(machine, "free_memory", lambda device: 16 * 3 * needed)
    assert machine.chunk_size(bank, clients) == 3
    monkeypatch.setattr(machine, "free_memory", lambda device: 0)
    assert machine.chunk_size(bank, clients) == 1
    small = Bank.initialize(models.LinearRegression(784), 1, generator(0))
    monkeypatch.setattr(machine, "free_memory", lambda device: 2**40)
    few = Clients(x[:, :1], y[:, :1], torch.ones(600).long())
    assert machine.chunk_size(small, few) == machine.LARGEST_CHUNK


def test_free_memory_is_read_or_guessed(monkeypatch):
    assert machine.free_memory() > 2**20
    with monkeypatch.context() as patch:
        patch.setattr(machine, "Path", _no_file)
        assert machine.free_memory() == 4 * 2**30


def _no_file(name):
    raise FileNotFoundError(name)


def test_the_model_given_stays_as_it_is():
    model = models.MLP(12, 6, 3)
    before = copy.deepcopy(model.state_dict())
    machine.activations(model, torch.zeros(1, 12))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model.hidden._forward_hooks
