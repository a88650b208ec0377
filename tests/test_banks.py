"""Many models as one stack of tensors."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clusterfl_core import banks
from clusterfl_core.banks import Bank
from clusterfl_core.compute import outputs
from clusterfl_core.models import MLP, LinearRegression
from clusterfl_core.randomness import generator


def small(count, seed=0):
    """Different small models."""
    return Bank.initialize(MLP(3, 4, 2), count, generator(0, seed))


def as_numpy(bank):
    """All parameters of each model as one numpy row, without help from the bank."""
    rows = [
        np.concatenate([tensor[i].numpy().ravel() for tensor in bank.tensors.values()])
        for i in range(len(bank))
    ]
    return np.stack(rows).astype(np.float64)


@given(count=st.integers(1, 4), seed=st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_unflatten_is_the_inverse_of_flatten(count, seed):
    bank = small(count, seed)
    rows = bank.flatten()
    assert np.array_equal(rows.numpy(), as_numpy(bank).astype(np.float32))
    back = bank.unflatten(rows)
    assert list(back.tensors) == list(bank.tensors)
    for name, tensor in bank.tensors.items():
        assert torch.equal(back.tensors[name], tensor)
    other = torch.randn(5, rows.shape[1])
    assert torch.equal(bank.unflatten(other).flatten(), other)


@given(weights=st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any))
@settings(max_examples=20, deadline=None)
def test_the_weighted_mean_is_numpys(weights):
    bank = small(3)
    expected = np.average(as_numpy(bank), axis=0, weights=weights)
    for given_as in (torch.tensor(weights), torch.tensor(weights, dtype=torch.float64) / 7):
        mean = bank.mean(given_as)
        assert len(mean) == 1
        assert mean.dtype == torch.float32
        np.testing.assert_allclose(as_numpy(mean)[0], expected, rtol=1e-5, atol=1e-7)


def test_the_mean_without_weights_is_the_plain_mean():
    np.testing.assert_allclose(
        as_numpy(small(5).mean())[0], as_numpy(small(5)).mean(0), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("count", [0, 2])
def test_there_is_no_mean_without_weight(count):
    bank = small(2).take(range(count))
    with pytest.raises(ValueError, match=f"weights of {count} models must sum to more than zero"):
        bank.mean(torch.zeros(count))


def test_taken_models_come_in_the_asked_order_and_repeat():
    bank = small(3)
    rows = [2, 0, 0, 1, 2]
    assert np.array_equal(as_numpy(bank.take(rows)), as_numpy(bank)[rows])
    assert len(bank.take([])) == 0
    by_tensor = bank.take(torch.tensor(rows))
    assert torch.equal(by_tensor.flatten(), bank.take(rows).flatten())


def test_concatenated_banks_keep_their_order():
    first, second = small(2, 0), small(3, 1)
    joined = Bank.concatenate([first, second])
    assert torch.equal(joined.flatten(), torch.cat([first.flatten(), second.flatten()]))


def test_distances_are_the_euclidean_ones_of_all_pairs():
    first, second = small(2, 0), small(3, 1)
    expected = [[np.linalg.norm(a - b) for b in as_numpy(second)] for a in as_numpy(first)]
    np.testing.assert_allclose(first.distances(second).numpy(), expected, rtol=1e-5)
    assert first.distances(first).diagonal().tolist() == [0, 0]


def test_a_model_taken_out_computes_what_the_bank_computes():
    bank, x = small(3), torch.randn(3, 6, 3)
    found = outputs(bank, x)
    for j in range(3):
        assert torch.allclose(bank.module(j)(x[j]), found[j], rtol=1e-6, atol=1e-6)


def test_changing_a_model_taken_out_leaves_the_bank_alone():
    bank = small(2)
    before = bank.flatten().clone()
    module = bank.module(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert torch.equal(bank.flatten(), before)
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_map_meets_the_tensors_of_several_banks_by_name():
    first, second = small(2, 0), small(2, 1)
    difference = first.map(lambda a, b: a - b, second)
    assert torch.equal(difference.flatten(), first.flatten() - second.flatten())


def test_a_bank_in_another_floating_type_holds_the_same_numbers():
    bank = small(2)
    double = bank.to(torch.float64)
    assert (bank.dtype, double.dtype) == (torch.float32, torch.float64)
    assert torch.equal(double.flatten(), bank.flatten().to(torch.float64))
    assert double.module(0)(torch.ones(1, 3, dtype=torch.float64)).dtype == torch.float64


def test_the_bytes_of_one_model_are_its_numbers_times_their_size():
    parameters = 3 * 4 + 4 + 4 * 2 + 2
    assert small(3).bytes_of_one() == 4 * parameters
    assert small(3).to(torch.float64).bytes_of_one() == 8 * parameters


@pytest.mark.parametrize(
    "build",
    [
        lambda: MLP(5, 4, 3),
        lambda: LinearRegression(7),
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3, bias=False)
        ),
    ],
    ids=["MLP", "LinearRegression", "convolution"],
)
def test_fresh_models_are_pytorchs_own_for_the_drawn_seeds(build):
    bank = Bank.initialize(build(), 3, generator(0, 5))
    seeds = torch.randint(2**62, (3,), generator=generator(0, 5)).tolist()
    for j, seed in enumerate(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built = build()
        for name, parameter in built.named_parameters():
            assert torch.equal(bank.tensors[name][j], parameter)


def test_fresh_models_repeat_for_a_key_and_differ_from_each_other():
    assert torch.equal(small(3, 1).flatten(), small(3, 1).flatten())
    rows = torch.cat([small(3, 1).flatten(), small(3, 2).flatten()])
    assert len({tuple(row) for row in rows.tolist()}) == 6
    # The first models of a larger bank are those of a smaller one.
    assert torch.equal(small(5, 1).take(range(3)).flatten(), small(3, 1).flatten())


def test_drawing_models_touches_neither_the_global_numbers_nor_the_given_model():
    model = MLP(3, 4, 2)
    before, parameters = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    Bank.initialize(model, 3, generator(0))
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, parameters[name])


def test_fresh_models_do_not_depend_on_the_parameters_of_the_given_one():
    first, second = MLP(3, 4, 2), MLP(3, 4, 2)
    with torch.no_grad():
        first.hidden.weight.fill_(7)
    found = [Bank.initialize(model, 2, generator(0)).flatten() for model in (first, second)]
    assert torch.equal(*found)


class Undrawn(nn.Module):
    """A part with a parameter that no method draws."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))


def test_a_part_whose_parameters_cannot_be_drawn_is_named():
    with pytest.raises(ValueError, match=r"1 \(Undrawn\) has the parameters \['scale'\] but no"):
        Bank.initialize(nn.Sequential(nn.Linear(2, 2), Undrawn()), 2, generator(0))
    with pytest.raises(ValueError, match=r"^the model \(Undrawn\) has the parameters"):
        Bank.initialize(Undrawn(), 2, generator(0))


def test_tensors_that_are_not_the_models_are_refused():
    model = LinearRegression(2)
    with pytest.raises(ValueError, match=r"model has parameters .*\(2,\).* bank holds .*\(3,\)"):
        Bank(model, {"theta": torch.ones(4, 3)})
    with pytest.raises(ValueError, match=r"the bank holds .*weight"):
        Bank(model, {"weight": torch.ones(4, 2)})
    with pytest.raises(ValueError, match="same number of rows"):
        Bank(nn.Linear(2, 1), {"weight": torch.ones(4, 1, 2), "bias": torch.ones(3, 1)})


def test_numbers_take_the_widest_type_of_a_device():
    assert banks.widest("cpu") == banks.widest("cuda") == torch.float64
    assert banks.widest("mps") == torch.float32
    numbers = torch.ones(2, dtype=torch.float64)
    assert banks.on_device(numbers, "cpu").dtype == torch.float64
    assert banks.on_device(torch.ones(2).to(torch.uint8), "cpu").dtype == torch.uint8


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: Bank.fresh(LinearRegression(2), 0, 1), "count must be at least 1, got 0"),
        (lambda: Bank.fresh(LinearRegression(2), 1.5, 1), "count must be a whole number, got 1.5"),
        (lambda: Bank.fresh(LinearRegression, 1, 1), r"model must be .* \(an object\), got <class"),
        (lambda: Bank.fresh(LinearRegression(2), 1, -1), "seed must be at least 0, got -1"),
        (lambda: Bank.concatenate([]), "parts must hold at least one bank, got none"),
        (lambda: Bank(LinearRegression(2), {"theta": [[1.0, 2.0]]}), "theta must be a tensor, got"),
    ],
)
def test_what_makes_no_bank_is_refused_in_a_sentence(made, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        made()
    assert "\n" not in str(error.value)
