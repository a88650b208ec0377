"""What strangers bring to the door: computed rightly, or refused in one sentence, never in between.

Models with state, randomness or dependence between points; data of any type; settings of any type;
several threads at once.
"""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import clusterfl_core as cf
from clusterfl_core import compute, machine, models
from clusterfl_core.banks import Bank
from clusterfl_core.check import number, positive, share, whole
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.randomness import drawing_from, generator

torch.set_num_threads(1)

STEPS, FEATURES, CLASSES = 5, 6, 3
COUNTS = (4, 1, 3)


def sequences(counts=COUNTS, dtype=torch.float64, seed=0):
    """Clients whose points are short sequences, with padding that is no zero."""
    source = torch.Generator().manual_seed(seed)
    shape = (len(counts), max(counts))
    x = torch.randn(*shape, STEPS, FEATURES, generator=source, dtype=dtype)
    y = torch.randint(0, CLASSES, shape, generator=source)
    return Clients(x, y, counts)


class Reader(nn.Module):
    """A layer that reads sequences, then a linear one."""

    def __init__(self, layer, size=4):
        super().__init__()
        self.layer, self.leave = layer, nn.Linear(size, CLASSES)

    def forward(self, x):
        found = self.layer(x)
        found = found[0] if isinstance(found, tuple) else found
        return self.leave(found[:, -1])


class Attention(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, **settings):
        super().__init__()
        self.look = nn.MultiheadAttention(FEATURES, 2, **{"batch_first": True} | settings)
        self.leave = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.leave(self.look(x, x, x, need_weights=False)[0].mean(1))


class Then(nn.Module):
    """A linear layer, then any function of what it says."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(STEPS * FEATURES, CLASSES), function

    def forward(self, x):
        return self.function(self.layer(x.flatten(1)))


def flat(*layers):
    """Layers on flattened points."""
    return nn.Sequential(nn.Flatten(), *layers)


def linear():
    return nn.Linear(STEPS * FEATURES, CLASSES)


def encoder(**settings):
    """A layer of a transformer, which drops a tenth unless told otherwise."""
    return Reader(
        nn.TransformerEncoderLayer(FEATURES, 2, 8, **{"batch_first": True} | settings), FEATURES
    )


class Positions(nn.Module):
    """A constant that is no parameter, as positional encodings and masks are."""

    def __init__(self):
        super().__init__()
        self.register_buffer("place", torch.linspace(0, 1, STEPS)[:, None])
        self.layer = linear()

    def forward(self, x):
        return self.layer((x + self.place).flatten(1))


class Tied(nn.Module):
    """One matrix there and back."""

    def __init__(self):
        super().__init__()
        self.there, self.back = nn.Linear(CLASSES, FEATURES), nn.Linear(FEATURES, CLASSES)
        self.again = nn.Linear(FEATURES, CLASSES)
        self.again.weight = self.back.weight

    def forward(self, x):
        return self.again(torch.tanh(self.there(torch.tanh(self.back(x.mean(1))))))


LAYERS = {
    "LSTM": lambda: Reader(nn.LSTM(FEATURES, 4, batch_first=True)),
    "LSTM both ways": lambda: Reader(nn.LSTM(FEATURES, 4, batch_first=True, bidirectional=True), 8),
    "GRU": lambda: Reader(nn.GRU(FEATURES, 4, 2, batch_first=True)),
    "RNN": lambda: Reader(nn.RNN(FEATURES, 4, batch_first=True)),
    "attention": Attention,
    "transformer": lambda: encoder(dropout=0.0),
    "GroupNorm": lambda: flat(nn.GroupNorm(3, STEPS * FEATURES), linear()),
    "InstanceNorm": lambda: nn.Sequential(nn.InstanceNorm1d(STEPS), flat(linear())),
    "dropout of nothing": lambda: flat(linear(), nn.Dropout(0.0)),
    "dropout switched off": lambda: flat(linear(), nn.Dropout(0.5)).eval(),
    "BatchNorm switched off": lambda: flat(nn.BatchNorm1d(STEPS * FEATURES), linear()).eval(),
    "positions": Positions,
    "tied": Tied,
}


def plain_step(module, x, y, rate):
    """One step of gradient descent as a tutorial writes it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    functional.cross_entropy(module(x), y).backward()
    optimizer.step()
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def quietly(work):
    """Without the warnings that vmap is slow or impossible for a layer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind_learn_as_in_a_plain_loop(name):
    model, clients = LAYERS[name](), sequences()
    state = copy.deepcopy(model.state_dict())
    bank = Bank.initialize(model, len(COUNTS), generator(0)).to(torch.float64)
    solver = cf.LocalSGD(2, 0.1)
    found = quietly(lambda: solver.train(bank, clients, (0, 0)).flatten())
    losses = quietly(lambda: compute.loss_matrix(bank, clients))
    for i, n in enumerate(COUNTS):
        x, y = clients.x[i, :n], clients.y[i, :n]
        for j in range(len(COUNTS)):
            module = bank.module(j).double()
            assert abs(losses[i, j] - functional.cross_entropy(module(x), y)) < 1e-10
        module = bank.module(i).double()
        plain_step(module, x, y, 0.1)
        module.zero_grad()
        expected = plain_step(module, x, y, 0.1)
        assert (found[i] - expected).abs().max() < 1e-10
    assert machine.activations(model, torch.zeros(2, STEPS, FEATURES)) > 0
    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key])


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(["LSTM", "GRU", "attention", "transformer", "positions"]),
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    batch_size=st.sampled_from([None, 2]),
    data=st.data(),
)
def test_a_client_learns_the_same_alone_and_among_others(name, counts, batch_size, data):
    model, clients = LAYERS[name](), sequences(counts)
    bank = Bank.initialize(model, len(counts), generator(0)).to(torch.float64)
    solver = cf.LocalSGD(2, 0.1, batch_size)
    i = data.draw(st.sampled_from(range(len(counts))))
    whole_, alone = quietly(
        lambda: [
            solver.train(bank.take(r), clients.take(r), (0, 0)) for r in (range(len(counts)), [i])
        ]
    )
    assert (whole_.flatten()[i] - alone.flatten()[0]).abs().max() < 1e-12


# ---------------------------------------------------------------- models that are not fit


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        # batch statistics and state
        (flat(nn.BatchNorm1d(30), linear()), r"^1 \(BatchNorm1d\) normalises .* GroupNorm"),
        (
            flat(nn.BatchNorm1d(30, track_running_stats=False), linear()).eval(),
            r"^1 \(BatchNorm1d\) normalises",
        ),
        (
            nn.Sequential(nn.InstanceNorm1d(STEPS, track_running_stats=True), flat(linear())),
            r"^0 \(InstanceNorm1d\) changes its buffer 0\.running_mean .* LayerNorm work$",
        ),
        (Then(lambda found: found - found.mean(0)), "^what Then answers to a point depends on"),
        (Attention(batch_first=False), r"^what Attention answers .* batch_first=True"),
        (Reader(nn.LSTM(FEATURES, 4)), r"^what Reader answers .* batch_first=True"),
        (
            Then(lambda found: functional.batch_norm(found, None, None, training=True)),
            "^Then fails on inputs .* Expected more than 1 value per channel",
        ),
        # randomness
        (flat(linear(), nn.Dropout(0.1)), r"^2 \(Dropout\) draws random numbers .* eval\(\)"),
        (encoder(), r"^layer\.self_attn \(MultiheadAttention\) draws"),
        (Attention(dropout=0.1), r"^look \(MultiheadAttention\) draws"),
        (
            Reader(nn.LSTM(FEATURES, 4, 2, batch_first=True, dropout=0.3)),
            r"^layer \(LSTM\) draws",
        ),
        (Then(lambda found: functional.dropout(found, 0.5)), r"^the model \(Then\) draws"),
        (Then(lambda found: functional.rrelu(found, training=True)), r"^the model \(Then\) draws"),
        (Then(lambda found: found + torch.randn_like(found)), r"^the model \(Then\) draws"),
        (Then(functional.gumbel_softmax), r"^the model \(Then\) draws"),
        (Then(lambda found: found * np.random.rand()), "^Then answers the same points in two"),  # noqa: NPY002
        # parameters that would not be learned
        (Then(lambda found: found).requires_grad_(False), r"^layer\.weight of Then asks for no"),
        # data that would be changed
        (flat(nn.ReLU(inplace=True), linear()), "^Sequential changes its inputs in place"),
        # answers of another form
        (Then(lambda found: (found, found)), "^Then answers tuple for n = 2"),
        (Then(lambda found: found[:, 0].squeeze()), r"^Then answers shape \(\) for n = 1"),
        (nn.Linear(7, 3), r"^Linear fails on inputs of shape .* RuntimeError: mat1"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_models_that_would_be_silently_wrong_are_refused(model, sentence):
    clients = sequences(dtype=torch.float32)
    kept, numbers = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    bank = Bank(model, {n: torch.stack([p.detach()] * 3) for n, p in model.named_parameters()})
    for work in (compute.loss_matrix, cf.LocalSGD().train):
        with pytest.raises(ValueError, match=sentence) as caught:
            work(bank, clients, *([(0, 0)] if work is not compute.loss_matrix else []))
        assert "\n" not in str(caught.value)
    assert torch.equal(torch.get_rng_state(), numbers)
    for name, value in model.state_dict().items():
        assert torch.equal(value, kept[name])


def test_a_model_is_judged_in_the_mode_it_is_in():
    model, x = flat(linear(), nn.Dropout(0.5)), sequences(dtype=torch.float32).x
    bank = Bank.initialize(model, 3, generator(0))
    model.eval()
    found = compute.outputs(bank, x)
    assert torch.equal(found, compute.outputs(bank, x))
    model.train()
    with pytest.raises(ValueError, match="draws random numbers"):
        compute.outputs(bank, x)


@pytest.mark.parametrize(
    ("model", "classes", "sentence"),
    [
        (flat(linear()), 4, r"shape \(3,\), 4 classes need \(4,\)"),
        (Then(lambda found: found[:, 0]), 3, r"shape \(\), 3 classes need .* floating-point"),
        (flat(linear()), 0, r"shape \(3,\) and has the loss cross_entropy; regression needs"),
        (Then(lambda found: found[:, 0]), 0, r"loss cross_entropy; regression needs"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_models_that_do_not_fit_the_labels_are_refused(model, classes, sentence):
    with pytest.raises(ValueError, match=sentence):
        models.check(model, sequences(dtype=torch.float32).x[0], classes)
    models.check(flat(linear()), sequences(dtype=torch.float32).x[0], 3)


def test_one_number_a_point_is_not_a_column():
    class Column(models.LinearRegression):
        def forward(self, x):
            return super().forward(x)[:, None]

    class Mean(models.LinearRegression):
        clusterfl_loss = staticmethod(functional.mse_loss)

    with pytest.raises(ValueError, match=r"shape \(1,\) .* regression needs the shape \(\)"):
        models.check(Column(4), torch.rand(3, 4), 0)
    with pytest.raises(ValueError, match=r"one number a point.* shape \(1, 2\), got \(\)"):
        models.check(Mean(4), torch.rand(3, 4), 0)
    models.check(models.LinearRegression(4), torch.rand(3, 4), 0)


# ---------------------------------------------------------------- names that mean nothing


class Named(nn.Module):
    """Uses every name the library might have an opinion about."""

    def __init__(self):
        super().__init__()
        self.loss, self.criterion = nn.MSELoss(), nn.CrossEntropyLoss()
        self.first, self.hidden, self.output = nn.Linear(30, 8), nn.Linear(8, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.after(self.first(x.flatten(1)) ** 2)

    def after(self, hidden):
        return self.output(torch.tanh(self.hidden(hidden)))

    def point_loss(self, *_):
        raise AssertionError("not a name of the library")

    outputs = gradients = point_loss


def test_names_of_a_users_module_change_nothing():
    model, clients = Named(), sequences()
    bank = Bank.initialize(model, 3, generator(0)).to(torch.float64)
    assert models.form(model) is None
    found = cf.LocalSGD(1, 0.1).train(bank, clients, (0, 0)).flatten()
    for i, n in enumerate(COUNTS):
        module = bank.module(i).double()
        expected = plain_step(module, clients.x[i, :n], clients.y[i, :n], 0.1)
        assert (found[i] - expected).abs().max() < 1e-12


def test_an_attribute_of_one_module_declares_nothing():
    model = models.MLP(30, 4, 3)
    model.clusterfl_loss = lambda found, y: 0 * found[..., 0]
    assert models.point_loss(model) is models.cross_entropy


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.output.register_forward_hook(lambda _part, _x, found: 2 * found),
        lambda net: setattr(net, "hidden", nn.Sequential(nn.Linear(30, 4), nn.Tanh())),
        lambda net: setattr(net, "forward", lambda x: torch.ones(len(x), 3) * net.output.bias[0]),
        lambda net: nn.utils.parametrizations.weight_norm(net.hidden),
    ],
    ids=["hook", "exchanged layer", "another forward", "parametrised"],
)
def test_a_form_is_not_believed_where_the_model_was_changed(change):
    net, x = models.MLP(30, 4, 3), sequences(dtype=torch.float32).x
    change(net)
    bank = Bank(net, {n: torch.stack([p.detach()] * 3) for n, p in net.named_parameters()})
    with pytest.raises(ValueError, match="MLP computes something else than its form"):
        compute.outputs(bank, x)


def test_a_subclass_that_leaves_the_computation_keeps_the_form():
    class Wide(models.MLP):
        def __init__(self):
            super().__init__(30, 64, 3)

    class Tempered(models.MLP):
        clusterfl_loss = staticmethod(lambda found, y: models.cross_entropy(found / 2, y))

    assert models.form(Wide()) is models.MLP.clusterfl_form
    assert models.form(Tempered(30, 4, 3)) is None


# ---------------------------------------------------------------- where one stands


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("model", "steps"),
    [
        (models.CFLConvNet(1, 8, 10), 2),
        (models.MLP(64, 50, 10), 6),
        (flat(nn.Linear(64, 10)), 2),
    ],
    ids=["convolutions", "Gram form", "vmap"],
)
def test_learning_does_not_depend_on_whether_gradients_are_switched_on(guard, model, steps):
    federation = cf.populations.rotated("digits", clients=4, clusters=2, seed=0)
    algorithm = cf.IFCA(model, 2, cf.LocalSGD(steps, 0.1))
    expected = cf.run(algorithm, federation, 2, progress=False).models.flatten()
    with guard():
        found = cf.run(algorithm, federation, 2, progress=False).models.flatten()
        inside = cf.populations.rotated("digits", clients=4, clusters=2, seed=0)
        within = cf.run(algorithm, inside, 2, progress=False).models.flatten()
    assert torch.equal(found, expected)
    assert torch.equal(within, expected)


def test_one_model_that_vmap_refuses_does_not_slow_the_others_of_its_class():
    def looks(found):
        return found if found.sum().item() > 1e9 else 2 * found

    x, slow, fast = sequences(dtype=torch.float32).x, Then(looks), Then(torch.tanh)
    for model in (slow, fast):
        quietly(lambda model=model: compute.outputs(Bank.initialize(model, 3, generator(0)), x))
    assert compute.loops(slow, "cpu")
    assert not compute.loops(fast, "cpu")


# ---------------------------------------------------------------- random numbers


class Draws(nn.Module):
    """Draws in every way that reset_parameters may."""

    def __init__(self):
        super().__init__()
        self.own = nn.Parameter(torch.empty(6))
        self.layer, self.words = nn.Linear(4, 3), nn.Embedding(5, 4)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.trunc_normal_(self.own)
        with torch.no_grad():
            self.own += torch.rand(6) + torch.randn(6) + torch.randperm(6)
            self.own += torch.randint(3, (6,)) + torch.bernoulli(torch.full((6,), 0.5))
            self.own += torch.normal(torch.zeros(6), 1.0) + torch.multinomial(torch.ones(9), 6)
            self.own.add_(torch.empty(6).exponential_())

    def forward(self, x):
        return self.layer(self.words(x.long())).sum(1)


FRESH = {
    "MLP": lambda: models.MLP(64, 200, 10),
    "convolutions": lambda: models.FedSoftCifar(1, 8, 3),
    "own": Draws,
    "LSTM": LAYERS["LSTM"],
    "attention": LAYERS["attention"],
    "transformer": LAYERS["transformer"],
}


@pytest.mark.parametrize("name", FRESH)
def test_fresh_models_are_the_constructors_own_and_leave_the_global_numbers(name):
    seeds = torch.randint(2**62, (2,), generator=generator(0, 5)).tolist()
    before = torch.get_rng_state()
    bank = Bank.initialize(FRESH[name](), 2, generator(0, 5))
    state = torch.get_rng_state()
    bank_again = Bank.initialize(bank.model, 2, generator(0, 5))
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(before)
    assert torch.equal(bank.flatten(), bank_again.flatten())
    for j, seed in enumerate(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built = FRESH[name]()
        for parameter_name, parameter in built.named_parameters():
            assert torch.equal(bank.tensors[parameter_name][j], parameter)


@settings(max_examples=5, deadline=None)
@given(first=st.integers(0, 1000), name=st.sampled_from(["MLP", "own", "LSTM"]))
def test_eight_threads_draw_what_one_draws(first, name):
    model, seeds = FRESH[name](), range(first, first + 16)

    def draw(seed):
        return Bank.initialize(model, 2, generator(0, seed)).flatten()

    alone, before = [draw(seed) for seed in seeds], torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(draw, seeds))
    assert all(map(torch.equal, alone, together))
    assert torch.equal(torch.get_rng_state(), before)


def test_runs_in_eight_threads_are_the_runs_of_one():
    federation = cf.populations.rotated("digits", clients=8, clusters=4)
    algorithm = cf.IFCA(Reader(nn.Linear(8, 4)), 4, cf.LocalSGD(2, 0.1, 20))

    def end(seed):
        return cf.run(algorithm, federation, 2, seed=seed, progress=False).models.flatten()

    algorithm.model.leave = nn.Linear(4, 10)
    alone = [end(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert all(map(torch.equal, alone, pool.map(end, range(8))))


class Loose(nn.Linear):
    """Draws with another library's global generator."""

    def reset_parameters(self):
        with torch.no_grad():
            self.weight.copy_(torch.from_numpy(np.random.rand(*self.weight.shape)))  # noqa: NPY002
            self.bias.zero_()


class Dropping(nn.Linear):
    """Draws with an operation that takes no generator."""

    def reset_parameters(self):
        super().reset_parameters()
        with torch.no_grad():
            self.weight.copy_(torch.native_dropout(self.weight, 0.5, True)[0])


class Half(nn.Linear):
    """Scales what is there already, and draws the rest."""

    def reset_parameters(self):
        with torch.no_grad():
            self.weight.mul_(0.5)
            self.bias.zero_()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Loose(2, 2), r"^weight of Loose is drawn from a generator that is not torch's"),
        (Dropping(2, 2), r"^aten\.native_dropout\.default cannot draw from a generator of its own"),
        (Half(2, 2), r"^the model \(Half\) has the parameters \['weight'\] but no method reset"),
        (nn.Flatten(), "^Flatten has no parameters to learn"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_would_draw_from_a_global_generator_or_not_at_all_is_refused(model, sentence):
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=sentence):
        Bank.initialize(model, 2, generator(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_draw_with_a_generator_of_its_own_keeps_it():
    with drawing_from(generator(1)):
        found = torch.rand(3, generator=generator(2)), torch.rand(3)
    assert torch.equal(found[0], torch.rand(3, generator=generator(2)))
    assert torch.equal(found[1], torch.rand(3, generator=generator(1)))


@given(word=st.text(max_size=8), other=st.text(max_size=8), seed=st.integers(0, 2**40))
@settings(max_examples=30, deadline=None)
def test_a_stream_of_ones_own_has_a_name(word, other, seed):
    def first(*key):
        return torch.rand(4, generator=generator(*key)).tolist()

    assert first(word, seed) == first(word, seed)
    assert (first(word, seed) == first(other, seed)) == (word == other)
    assert first(word, seed) not in [first(stream, seed) for stream in range(5)]


KEYS = {(0, 1): 742741, (1 << 16, 4): 312291, ("noise", 0, 3): 597815}


def test_streams_are_the_same_on_every_machine():
    found = [torch.randint(10**6, (1,), generator=generator(*key)).item() for key in KEYS]
    assert found == list(KEYS.values())


@pytest.mark.parametrize("part", [-1, 2.5, None, True])
def test_a_key_of_anything_but_words_and_whole_numbers_is_refused(part):
    with pytest.raises(ValueError, match=r"^key must be "):
        generator(0, part)


# ---------------------------------------------------------------- data


def labelled(y, classes=3, counts=(2, 1)):
    """A federation with these labels."""
    clients = Clients(torch.rand(2, 2, 4), y, counts)
    return Federation(clients, clients, classes=classes)


WHOLE = [[0, 1], [2, 0]]


@pytest.mark.parametrize(
    "kind",
    [
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        list,
        np.int64,
        np.uint8,
        np.float32,
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_whole_labels_of_any_type_are_the_same_labels(kind):
    if isinstance(kind, torch.dtype):
        y = torch.tensor(WHOLE, dtype=kind)
    else:
        y = WHOLE if kind is list else np.array(WHOLE, dtype=kind)
    x = torch.rand(2, 2, 4)
    federations = []
    for labels in (y, torch.tensor(WHOLE)):
        clients = Clients(x, labels, torch.tensor([2, 1]))
        federations.append(Federation(clients, clients, classes=3))
    found, plain = federations
    assert found.train.y.dtype == found.test.y.dtype == torch.int64
    assert found.fingerprint() == plain.fingerprint()
    for model in (models.MLP(4, 3, 3), nn.Linear(4, 3)):
        algorithm = cf.FedAvg(model, cf.LocalSGD(2, 0.1))
        runs = [cf.run(algorithm, one, 1, progress=False) for one in federations]
        assert torch.equal(runs[0].models.flatten(), runs[1].models.flatten())


def test_truths_and_falsehoods_are_two_classes():
    y = torch.tensor([[False, True], [True, False]])
    federation = labelled(y, None)
    assert federation.classes == 2
    assert federation.train.y.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("y", "classes", "sentence"),
    [
        ([[0, 1], [2.5, 0]], 3, "^train y must be whole numbers, .* client 1 has 2.5 in point 0$"),
        ([[0, np.nan], [2, 0]], 3, "^train y must be finite, client 0 has nan in point 1$"),
        ([[0.0, 1], [np.inf, 0]], 0, "^train y must be finite, client 1 has inf in point 0$"),
        ([[0.0, 1], [2, np.nan]], 3, r"client 1 has nan in point 1 \(padding\)$"),
        ([[0.0, 1], [3, 0]], 3, "^train labels go from 0 to 3, allowed are 0 to 2"),
        (
            [[[0], [1]], [[2], [0]]],
            3,
            r"^y must be \[m, n_max\], .* \(2, 2, 1\); .* y\[\.\.\., 0\]",
        ),
        (np.eye(3)[np.array(WHOLE)], 3, r"^y must be .* shape \(2, 2, 3\); .* y\.argmax\(-1\)"),
        ([["a", "b"], ["c", "a"]], 3, "^y must be an array of plain numbers, got list"),
        ([[0, 1], [2]], 3, "^y must be an array of plain numbers, got list; .*from_lists"),
        (np.array([[0, 1j], [0, 0]]), 3, "^y must be an array of plain numbers, got ndarray"),
        (3, 3, "^y must be an array of plain numbers, got int"),
        (WHOLE, 2.5, "^classes must be a whole number, got 2.5"),
        (WHOLE, -1, "^classes must be at least 0, got -1"),
    ],
)
def test_labels_that_are_none_are_refused_with_their_client(y, classes, sentence):
    with pytest.raises(ValueError, match=sentence):
        labelled(y, classes)


def test_whole_labels_without_classes_are_classes_and_never_an_error():
    federation = labelled(WHOLE, None)
    assert federation.classes == 3
    run = cf.run(cf.FedAvg(models.MLP(4, 3, 3)), federation, 1, progress=False)
    assert "accuracy" in run.history[0]
    assert "error" not in run.history[0]
    with pytest.raises(ValueError, match="for regression give y as floating-point numbers"):
        models.check(models.LinearRegression(4), federation.train.x[0], federation.classes)


def test_whole_numbers_said_to_be_responses_are_responses():
    federation = labelled(WHOLE, 0)
    assert federation.train.y.dtype == torch.float32
    with pytest.raises(ValueError, match="loss cross_entropy; regression needs"):
        models.check(models.MLP(4, 3, 3), federation.train.x[0], federation.classes)
    assert labelled(torch.tensor(WHOLE, dtype=torch.float64), None).classes == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["train", "test"])
def test_numbers_that_are_not_finite_are_named_as_data(part, bad):
    x = torch.rand(3, 4, 2, 2)
    x[1, 2, 1, 0] = bad
    fine, broken = (Clients(t, torch.zeros(3, 4), [4, 4, 4]) for t in (torch.rand(3, 4, 2, 2), x))
    both = {"train": fine, "test": fine} | {part: broken}
    with pytest.raises(
        ValueError, match=f"^{part} x must be finite, client 1 has {bad} in point 2$"
    ):
        Federation(**both)


def test_lists_and_arrays_are_data_too():
    x, y = np.arange(12.0).reshape(2, 3, 2).astype(np.float32), np.array([[0, 1, 0], [1, 0, 0]])
    plain = Clients(torch.tensor(x), torch.tensor(y), torch.tensor([3, 2]))
    x_frozen = x.copy()
    x_frozen.flags.writeable = False
    for parts in (
        (x, y, [3, 2]),
        (x.tolist(), y.tolist(), (3, 2)),
        (x_frozen, y.astype(np.int16), np.array([3.0, 2.0])),
    ):
        clients = Clients(*parts, ids=np.array([0, 1], dtype=np.uint8))
        federation = Federation(clients, clients, [0, 1], np.array([1.0, 0.0]))
        truth = torch.tensor([0, 1]), torch.tensor([1, 0])
        assert federation.fingerprint() == Federation(plain, plain, *truth).fingerprint()
    rows = Clients.from_lists([x[0], x[1, :2].tolist()], [y[0].tolist(), y[1, :2]])
    assert torch.equal(rows.x[0], plain.x[0])
    assert rows.counts.tolist() == [3, 2]
    kept = Clients(x, y, [3, 2])
    x[:] = -1
    assert kept.x.min() == 0  # what the caller does with the array later is none of the clients'


def test_tensors_that_autograd_watches_or_of_half_width_have_a_fingerprint():
    x = torch.rand(2, 2, 4).bfloat16().requires_grad_()
    clients = Clients(x, torch.tensor(WHOLE), [2, 1])
    assert not clients.x.requires_grad
    assert len(Federation(clients, clients).fingerprint()) == 32


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"counts": [2, 1.5]}, "^counts must be one whole number a client, got "),
        ({"counts": [[2], [1]]}, "^counts must be one whole number a client, got "),
        ({"counts": 2}, "^counts must be an array of plain numbers, got int"),
        ({"ids": ["a", "b"]}, "^ids must be an array of plain numbers, got list"),
        ({"ids": [0, np.nan]}, "^ids must be one whole number a client, got "),
        (
            {"x": [torch.rand(2, 4), torch.rand(1, 4)]},
            "^x must be an array of plain.*from_lists$",
        ),
        ({"x": torch.rand(2, 2, 4).to_sparse()}, "^x must be an array of plain numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_data_of_another_kind_is_refused(arguments, sentence):
    parts = {"x": torch.rand(2, 2, 4), "y": WHOLE, "counts": [2, 1]}
    with pytest.raises(ValueError, match=sentence):
        Clients(**parts | arguments)


@pytest.mark.parametrize(
    ("clusters", "sentence"),
    [
        ([0, 0.5], "^clusters must be one whole number a client"),
        ([0, -1], "^clusters must not be negative, got -1"),
        (["left", "right"], "^clusters must be an array of plain numbers"),
    ],
)
def test_true_clusters_of_another_kind_are_refused(clusters, sentence):
    clients = Clients(torch.rand(2, 2, 4), WHOLE, [2, 1])
    with pytest.raises(ValueError, match=sentence):
        Federation(clients, clients, clusters)


def test_true_clusters_may_have_any_numbers():
    clients = Clients(torch.rand(6, 2, 4), torch.zeros(6, 2), [2] * 6)
    federation = Federation(clients, clients, [1, 2, 1, 2, 7, 7])
    assert str(federation).splitlines()[1] == "3 hidden clusters of [2, 2, 2] clients"


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"steps": 2.5}, "steps must be a whole number or None, got 2.5"),
        ({"steps": True}, "steps must be a number, got True"),
        ({"steps": "3"}, "steps must be a number, got '3'"),
        ({"batch_size": 1.5}, "batch_size must be a whole number or None, got 1.5"),
        ({"batch_size": float("inf")}, "batch_size must be a whole number or None, got inf"),
        ({"epochs": 0.5}, "epochs must be a whole number or None, got 0.5"),
        ({"step_size": None}, "step_size must be a number, got None"),
        ({"step_size": [0.1]}, r"step_size must be a number, got \[0.1\]"),
        ({"decay": float("nan")}, r"decay must be in \(0, 1\], got nan"),
        ({"decay": 1j}, "decay must be a number, got 1j"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("solver", [cf.LocalSGD, cf.LocalAdam])
def test_settings_that_are_no_numbers_are_refused(solver, arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        solver(**arguments)


def test_numbers_of_numpy_and_torch_become_pythons_own():
    given_ = cf.LocalSGD(
        np.int64(3), np.geomspace(0.1, 1, 2)[0], torch.tensor(5), decay=np.float32(1)
    )
    plain = cf.LocalSGD(3, float(np.geomspace(0.1, 1, 2)[0]), 5)
    assert given_ == plain
    assert repr(given_) == repr(plain)
    assert {type(value) for value in vars(given_).values()} == {int, float, type(None)}
    assert cf.LocalSGD(2.0).steps == 2


@given(value=st.integers(-5, 5), least=st.integers(-5, 5))
def test_a_whole_number_is_taken_where_it_lies_in_its_bounds(value, least):
    for kind in (int, float, np.int8, np.float64, torch.tensor):
        if least <= value <= 3:
            found = whole("n", kind(value), least, most=3)
            assert found == value
            assert type(found) is int
        else:
            side = f"least {least}" if value < least else "most 3"
            with pytest.raises(ValueError, match=f"^n must be at {side}, got "):
                whole("n", kind(value), least, most=3)


def test_large_whole_numbers_lose_no_digit():
    assert whole("seed", 2**63 - 1, 0) == 2**63 - 1


@given(value=st.floats(allow_nan=True, allow_infinity=True))
def test_intervals_hold_what_they_say(value):
    for check, inside in (
        (positive, 0 < value < float("inf")),
        (share, 0 < value <= 1),
        (lambda name, v: number(name, v, "[0, 1)"), 0 <= value < 1),
        (lambda name, v: number(name, v, "(0, inf]"), value > 0),
    ):
        if inside:
            assert check("x", value) == value
        else:
            with pytest.raises(ValueError, match=r"^x must be "):
                check("x", value)
