"""The papers' models: their sizes, their parts, and many of them at once against one at a time."""

import doctest

import pytest
import torch
from torch.nn import functional

import clusterfl_core as cf
from clusterfl_core import models
from clusterfl_core.banks import Bank

IMAGE_MODELS = {
    "IFCACifar": models.IFCACifar(3, 8, 10),
    "IFCAFemnist": models.IFCAFemnist(1, 8, 10, hidden=32),
    "CFLConvNet": models.CFLConvNet(3, 8, 10),
    "FedSoftLetters": models.FedSoftLetters(1, 8, 10),
    "FedSoftCifar": models.FedSoftCifar(1, 8, 10),
}
ALL_MODELS = IMAGE_MODELS | {"NextWordLSTM": models.NextWordLSTM(11, 4, 6)}


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small make threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ragged(model, counts=(3, 1, 4)):
    """Clients of different sizes whose padding is full of other points, and the points alone."""
    source = generator(1)
    xs, ys = [], []
    for count in counts:
        if isinstance(model, models.NextWordLSTM):
            xs.append(torch.randint(11, (count, 5), generator=source, dtype=torch.int32))
            ys.append(torch.randint(11, (count,), generator=source))
        else:
            planes = model.conv1.in_channels
            shape = (count, 8, 8) if planes == 1 else (count, planes, 8, 8)
            xs.append(torch.randint(256, shape, generator=source, dtype=torch.uint8))
            ys.append(torch.randint(10, (count,), generator=source))
    clients = cf.Clients.from_lists(xs, ys)
    empty = ~clients.mask()
    clients.x[empty], clients.y[empty] = xs[0][0], ys[0][0]
    return clients, xs, ys


def bank_of(model, count):
    return Bank.initialize(model, count, generator()).to(torch.float64)


def plain_step(module, x, y, step_size):
    """One step of gradient descent as a text book has it: one model, no bank, no padding."""
    x = x.to(torch.float64) / 255 if x.dtype == torch.uint8 else x
    functional.cross_entropy(module(x), y).backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter -= step_size * parameter.grad
            parameter.grad = None


@pytest.mark.parametrize("name", ALL_MODELS)
def test_training_many_clients_at_once_equals_a_loop_over_them(name):
    model = ALL_MODELS[name]
    clients, xs, ys = ragged(model)
    start = bank_of(model, len(clients))
    trained = cf.LocalSGD(steps=2, step_size=0.05).train(start, clients, (0, 0))
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        module = start.module(i).to(torch.float64)
        plain_step(module, x, y, 0.05)
        plain_step(module, x, y, 0.05)
        for parameter_name, parameter in module.named_parameters():
            assert (trained.tensors[parameter_name][i] - parameter).abs().max() < 1e-10


@pytest.mark.parametrize("name", ["CFLConvNet", "NextWordLSTM"])
def test_a_client_trains_on_its_batches_the_same_alone_and_in_company(name):
    model = ALL_MODELS[name]
    clients, _, _ = ragged(model)
    start, solver = bank_of(model, len(clients)), cf.LocalSGD(3, 0.1, batch_size=2)
    together = solver.train(start, clients, (0, 0)).flatten()
    for i in range(len(clients)):
        alone = solver.train(start.take([i]), clients.take([i]), (0, 0)).flatten()
        assert (together[i] - alone[0]).abs().max() < 1e-10


@pytest.mark.parametrize("name", ALL_MODELS)
def test_losses_of_all_models_on_all_clients_are_those_of_the_modules(name):
    model = ALL_MODELS[name]
    clients, xs, ys = ragged(model)
    bank = bank_of(model, 2)
    table = cf.compute.loss_matrix(bank, clients)
    for j in range(2):
        module = bank.module(j).to(torch.float64)
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            x = x.to(torch.float64) / 255 if x.dtype == torch.uint8 else x
            assert abs(table[i, j] - functional.cross_entropy(module(x), y)) < 1e-10


@pytest.mark.parametrize("name", ALL_MODELS)
def test_a_saved_run_of_the_model_can_be_loaded(name, tmp_path):
    algorithm = cf.IFCA(ALL_MODELS[name], clusters=1)
    clients, _, _ = ragged(ALL_MODELS[name])
    state = algorithm.init(cf.Federation(clients, clients, classes=11), 0)
    cf.Run(algorithm, 0, "", state, []).save(tmp_path / "run.pt")
    found = cf.Run.load(tmp_path / "run.pt")
    assert torch.equal(found.models.flatten(), state.bank.flatten())
    assert repr(found.algorithm) == repr(algorithm)


@pytest.mark.parametrize("name", ALL_MODELS)
def test_fresh_models_differ_and_one_seed_gives_the_same(name):
    one, other = (Bank.initialize(ALL_MODELS[name], 2, generator()).flatten() for _ in range(2))
    assert torch.equal(one, other)
    assert (one[0] != one[1]).float().mean() > 0.99


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_outputs_are_logits_and_not_probabilities(name):
    model = bank_of(IMAGE_MODELS[name], 1).module(0)
    clients, _, _ = ragged(model)
    x = clients.inputs(torch.float64)[2]
    before = model.to(torch.float64)(x)
    assert before.min() < 0  # neither ReLU nor softmax stands behind the last layer
    model.output.bias.data += 3
    assert torch.allclose(model(x), before + 3)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (models.IFCACifar(), 1_068_298),  # the TensorFlow tutorial's model
        (models.IFCAFemnist(), 6_603_710),  # LEAF's model
        (models.CFLConvNet(1, 28, 10), 107_786),
        (models.FedSoftLetters(), 1_671_578),
        (models.FedSoftCifar(), 5_851_338),
        (models.NextWordLSTM(1000, 32, 64), 32_000 + 24_832 + 33_024 + 65_000),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_numbers_of_parameters_at_the_papers_sizes(model, parameters):
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_weight_sharing_can_name_the_last_layer():
    names = [name for name, _ in IMAGE_MODELS["IFCAFemnist"].named_parameters()]
    assert [n for n in names if n.startswith("output")] == ["output.weight", "output.bias"]


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        (models.IFCACifar, 26),
        (models.IFCAFemnist, 0),
        (models.CFLConvNet, 6),
        (models.FedSoftLetters, 7),
        (models.FedSoftCifar, 28),
    ],
)
def test_a_side_that_cannot_be_halved_is_refused(kind, side):
    with pytest.raises(ValueError, match=f"side must be a multiple of [48] pixels, got {side}"):
        kind(side=side)


def test_response_norm_divides_by_nine_neighbouring_channels():
    x = torch.rand(2, 12, 3, 3, generator=generator(), dtype=torch.float64)
    expected = torch.empty_like(x)
    for c in range(12):
        near = x[:, max(0, c - 4) : c + 5]
        expected[:, c] = x[:, c] / (1 + 0.001 / 9 * (near**2).sum(1)) ** 0.75
    assert torch.allclose(models.IFCACifar._norm(x), expected)


def test_pooling_of_three_by_three_starts_at_the_first_pixel():
    x = torch.rand(1, 1, 8, 8, generator=generator())
    expected = torch.tensor(
        [[x[0, 0, r : r + 3, c : c + 3].max() for c in range(0, 8, 2)] for r in range(0, 8, 2)]
    )
    assert torch.equal(models.IFCACifar._pool(x)[0, 0], expected)


def test_lstm_computes_what_pytorch_computes():
    mine = torch.nn.Sequential(models.LSTMLayer(3, 5), models.LSTMLayer(5, 5)).double()
    fused = torch.nn.LSTM(3, 5, num_layers=2, batch_first=True).double()
    for level, layer in enumerate(mine):
        getattr(fused, f"weight_ih_l{level}").data = layer.weight_ih.data
        getattr(fused, f"weight_hh_l{level}").data = layer.weight_hh.data
        getattr(fused, f"bias_ih_l{level}").data = layer.bias.data
        getattr(fused, f"bias_hh_l{level}").data.zero_()
    x = torch.rand(4, 7, 3, dtype=torch.float64)
    assert torch.allclose(mine(x), fused(x)[0], rtol=0, atol=1e-12)


def test_lstm_begins_as_pytorchs_does():
    drawn = models.LSTMLayer(3, 16)
    for parameter in drawn.parameters():
        assert parameter.abs().max() <= 16**-0.5
        assert parameter.abs().max() > 0.8 * 16**-0.5


def test_next_word_reads_words_in_their_order_and_any_number_type():
    model = models.NextWordLSTM(11, 4, 6)
    words = torch.tensor([[1, 2, 3], [3, 2, 1]])
    assert not torch.allclose(model(words)[0], model(words)[1])
    assert torch.equal(model(words.float()), model(words))


def test_xavier_layers_have_xaviers_spread_and_pytorchs_biases():
    dense, conv = models.XavierLinear(400, 200), models.XavierConv2d(32, 64, 5)
    assert abs(dense.weight.std() / (2 / 600) ** 0.5 - 1) < 0.02
    assert abs(conv.weight.std() / (2 / (96 * 25)) ** 0.5 - 1) < 0.02
    assert 0 < dense.bias.abs().max() <= 400**-0.5


@pytest.mark.parametrize("room", [models, models.forms], ids=lambda room: room.__name__)
def test_examples_in_the_docstrings(room):
    failed, attempted = doctest.testmod(room)
    assert attempted
    assert not failed
