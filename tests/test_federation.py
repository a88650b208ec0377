"""Clients, their federation, random numbers by key, and what travels."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.contract import Jobs, Replies, traffic
from clusterfl_core.models import LinearRegression
from clusterfl_core.randomness import (
    BATCHES,
    INITIALIZATION,
    PARTICIPATION,
    POPULATION,
    generator,
    participants,
)

KEYS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4)


def numbers(*key):
    """The first numbers of the generator of a key."""
    return torch.randint(2**62, (4,), generator=generator(*key)).tolist()


@given(key=KEYS)
@settings(max_examples=50, deadline=None)
def test_equal_keys_give_equal_numbers(key):
    assert numbers(*key) == numbers(*key)
    assert numbers(*key) == numbers(*(np.int64(part) for part in key))
    assert numbers(*key) == numbers(*torch.tensor(key))


@given(key=KEYS, other=KEYS)
@settings(max_examples=50, deadline=None)
def test_different_keys_of_one_length_give_different_numbers(key, other):
    other = (other * 4)[: len(key)]
    assume(key != other)
    assert numbers(*key) != numbers(*other)


def test_the_streams_never_share_numbers():
    streams = (INITIALIZATION, PARTICIPATION, BATCHES, POPULATION)
    assert len({tuple(numbers(stream, 0, 0)) for stream in streams}) == len(streams)


def test_the_order_of_a_key_counts():
    assert numbers(BATCHES, 1, 2, 3) != numbers(BATCHES, 1, 3, 2)


def test_a_generator_leaves_the_global_random_numbers_alone():
    before = torch.get_rng_state()
    numbers(1, 2, 3)
    assert torch.equal(torch.get_rng_state(), before)


@given(m=st.integers(1, 60), participation=st.floats(0.001, 1), seed=st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_participants_are_an_ascending_subset_of_the_asked_size(m, participation, seed):
    ids = participants((seed, 0), m, participation).tolist()
    assert len(ids) == max(1, round(participation * m))
    assert ids == sorted(set(ids))
    assert set(ids) <= set(range(m))


@given(m=st.integers(1, 60), seed=st.integers(0, 99), t=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_everybody_takes_part_at_participation_1(m, seed, t):
    assert participants((seed, t), m, 1.0).tolist() == list(range(m))


def test_participants_differ_between_rounds_and_seeds_and_repeat_for_a_key():
    draws = {
        tuple(participants((seed, t), 30, 0.5).tolist()) for seed in range(3) for t in range(5)
    }
    assert len(draws) == 15
    assert torch.equal(participants((2, 4), 30, 0.5), participants((2, 4), 30, 0.5))


def test_every_client_takes_part_about_equally_often():
    counts = torch.zeros(10)
    for t in range(400):
        counts[participants((0, t), 10, 0.3)] += 1
    # Binomial(400, 0.3) has standard deviation 9.2; five of them either way.
    assert counts.sum() == 1200
    assert (counts - 120).abs().max() < 46


def some_clients():
    """Three clients with 2, 1 and 3 points of shape [2]."""
    xs = [torch.arange(2.0 * n).view(n, 2) + 10 * i for i, n in enumerate((2, 1, 3))]
    ys = [torch.arange(float(n)) + 100 * i for i, n in enumerate((2, 1, 3))]
    return xs, ys, Clients.from_lists(xs, ys)


def test_lists_of_points_become_one_padded_tensor():
    xs, ys, clients = some_clients()
    assert len(clients) == 3
    assert clients.x.shape == (3, 3, 2)
    assert clients.y.shape == (3, 3)
    assert clients.counts.tolist() == [2, 1, 3]
    assert clients.ids.tolist() == [0, 1, 2]
    for i in range(3):
        n = len(ys[i])
        assert torch.equal(clients.x[i, :n], xs[i])
        assert torch.equal(clients.y[i, :n], ys[i])
        assert not clients.x[i, n:].any()
        assert not clients.y[i, n:].any()


def test_the_mask_is_true_for_each_real_point():
    _, _, clients = some_clients()
    assert clients.mask().tolist() == [[True, True, False], [True, False, False], [True] * 3]
    assert clients.mask().sum(1).tolist() == clients.counts.tolist()


def test_taking_clients_keeps_their_ids_order_and_padding():
    xs, ys, clients = some_clients()
    part = clients.take([2, 0])
    assert part.ids.tolist() == [2, 0]
    assert part.counts.tolist() == [3, 2]
    assert part.x.shape == (2, 3, 2)
    for row, i in enumerate((2, 0)):
        x, y = part.points(row)
        assert torch.equal(x, xs[i])
        assert torch.equal(y, ys[i])


def test_bytes_become_fractions_and_floats_change_type():
    pixels = torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)
    clients = Clients(pixels, torch.zeros(1, 1), torch.tensor([1]))
    assert clients.inputs(torch.float64).tolist() == [[[0.0, 0.2, 1.0]]]
    assert clients.inputs().dtype == torch.float32
    assert clients.points(0)[0].tolist() == clients.inputs()[0].tolist()
    halves = Clients(pixels.to(torch.float64) / 2, torch.zeros(1, 1), torch.tensor([1]))
    assert halves.inputs(torch.float32).tolist() == [[[0.0, 25.5, 127.5]]]


ROWS = torch.ones(3, 4, 2)
LABELS = torch.zeros(3, 4)
COUNTS = torch.tensor([1, 4, 2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((ROWS[:2], LABELS, COUNTS), "x, y, counts and ids .* got 2, 3, 3 and 3 of them"),
        ((ROWS, LABELS[:2], COUNTS), "x, y, counts and ids .* got 3, 2, 3 and 3 of them"),
        ((ROWS, LABELS, COUNTS[:2]), "x, y, counts and ids .* got 3, 3, 2 and 2 of them"),
        (
            (ROWS, LABELS, COUNTS, torch.arange(4)),
            "x, y, counts and ids .* got 3, 3, 3 and 4 of them",
        ),
        ((ROWS, LABELS[:, :3], COUNTS), r"x must be .* got shapes \(3, 4, 2\) and \(3, 3\)"),
        ((ROWS, LABELS[:, 0], COUNTS), r"x must be .* got shapes \(3, 4, 2\) and \(3,\)"),
        ((ROWS[:, 0, 0], LABELS, COUNTS), r"x must be .* got shapes \(3,\) and \(3, 4\)"),
        ((ROWS, LABELS, torch.tensor([1, 0, 2])), "at least one point; client 1 has none"),
        (
            (ROWS, LABELS, torch.tensor([1, 0, 2]), torch.tensor([4, 7, 9])),
            "at least one point; client 7 has none",
        ),
        ((ROWS, LABELS, torch.tensor([1, 5, 2])), "counts go up to 5 but x has 4 rows"),
    ],
)
def test_clients_that_do_not_fit_together_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Clients(*arguments)


X = torch.ones(2, 3)
Y = torch.ones(2)


@pytest.mark.parametrize(
    ("xs", "ys", "sentence"),
    [
        ([X], [Y, Y], "xs and ys must hold the same clients"),
        ([X, X[:1]], [Y, Y], "xs and ys must hold the same clients with the same numbers"),
        ([X, X[:0]], [Y, Y[:0]], "at least one point; client 1 has none"),
        ([], [], "at least one point; client 0 has none"),
        ([X, X[:, :2]], [Y, Y], r"xs need points of one shape and type.*\(2,\).*\(3,\)"),
        ([X, X.to(torch.uint8)], [Y, Y], "xs need points of one shape and type.*float32.*uint8"),
        ([X, X], [Y, Y.to(torch.int64)], "ys need points of one shape and type.*float32.*int64"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(xs, ys, sentence):
    with pytest.raises(ValueError, match=sentence):
        Clients.from_lists(xs, ys)


def labelled(*labels):
    """One client a list of labels."""
    ys = [torch.tensor(one) for one in labels]
    return Clients.from_lists([torch.ones(len(y), 2) for y in ys], ys)


FINE = labelled([0, 1], [2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"classes": 2}, "train labels go from 0 to 2, allowed are 0 to 1"),
        ({"train": labelled([0], [-1])}, "train labels go from -1 to 0, allowed are 0 to 2"),
        ({"test": labelled([0, 3])}, "test labels go from 0 to 3, allowed are 0 to 2"),
        ({"clusters": torch.tensor([0])}, "^clusters names 1 clients, there are 2"),
        ({"test_clusters": torch.zeros(3)}, "test_clusters names 3 clients, there are 2"),
        ({"train": FINE.take([])}, "train needs at least one client, got none"),
        ({"test": FINE.take([])}, "test needs at least one client, got none"),
        ({"train": FINE.take([1, 0])}, r"train needs the ids 0 to 1 in order, got \[1, 0\]"),
        ({"train": FINE.take([1])}, r"train needs the ids 0 to 0 in order, got \[1\]"),
        (
            {"train": Clients(FINE.x, torch.tensor([[0, 1], [2, -1]]), FINE.counts)},
            "train labels go from -1 to 2",
        ),
    ],
)
def test_federations_that_do_not_fit_together_are_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        Federation(**({"train": FINE, "test": FINE, "classes": 3} | arguments))


def test_a_printed_federation_says_its_sizes():
    federation = Federation(
        FINE, FINE.take([1]), clusters=torch.tensor([0, 1]), classes=3, name="two readers"
    )
    assert str(federation) == (
        "two readers: 2 training clients with 1 to 2 points each, 1 test clients with 1\n"
        "2 hidden clusters of [1, 1] clients"
    )
    assert len(federation) == 2


def last_changed(tensor):
    """A copy that differs in its very last number."""
    tensor = tensor.clone()
    tensor[-1, -1] += 1
    return tensor


def test_the_fingerprint_tells_any_two_federations_apart():
    labels = torch.tensor([[0, 1], [2, 0]])
    truth = {"clusters": torch.tensor([0, 1]), "test_clusters": torch.tensor([0, 1])}
    base = {"train": FINE, "test": FINE, "classes": 3} | truth
    changes = [
        {},
        {"train": Clients(last_changed(FINE.x), FINE.y, FINE.counts)},
        {"test": Clients(FINE.x, last_changed(FINE.y), FINE.counts)},
        {"train": Clients(FINE.x, labels.flip(0), FINE.counts)},
        {"train": Clients(FINE.x, FINE.y, torch.tensor([1, 1]))},
        {"train": Clients(FINE.x.view(torch.int32), FINE.y, FINE.counts)},
        {"test": FINE.take([1, 0])},
        {"clusters": torch.tensor([1, 0])},
        {"clusters": None},
        {"test_clusters": None},
        {"classes": 4},
    ]
    prints = [Federation(**(base | change)).fingerprint() for change in changes]
    assert len(set(prints)) == len(changes)
    assert Federation(**base).fingerprint() == prints[0]


def rows_of(count, first=0):
    """A bank whose j-th model is the vector (first + j, ..., first + j)."""
    theta = torch.arange(first, first + count, dtype=torch.float32)[:, None].expand(-1, 2)
    return Bank(LinearRegression(2), {"theta": theta.clone()})


def test_jobs_of_some_clients_keep_the_bank_and_take_their_rows():
    jobs = Jobs(
        3, 8, torch.tensor([4, 6, 9]), rows_of(2), torch.tensor([[0, 1], [1, 0], [1, 1]]),
        kept=rows_of(3),
    )  # fmt: skip
    part = jobs.take(torch.tensor([2, 0]))
    assert (part.seed, part.round) == (3, 8)
    assert part.clients.tolist() == [9, 4]
    assert part.models.tolist() == [[1, 1], [0, 1]]
    assert part.kept.tensors["theta"][:, 0].tolist() == [2, 0]
    assert len(part.bank) == 2
    assert Jobs(0, 0, jobs.clients, rows_of(2), jobs.models).take([1]).kept is None


@given(order=st.permutations(range(6)), cut=st.integers(1, 5), each=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_joined_replies_are_sorted_by_client_whatever_order_they_came_in(order, cut, each):
    def part(ids):
        models = torch.tensor([10 * i + r for i in ids for r in range(each)])
        bank = Bank(LinearRegression(2), {"theta": models[:, None].expand(-1, 2).float()})
        return Replies(torch.tensor(ids), bank, {"loss": torch.tensor(ids) * 0.5})

    joined = Replies.join([part(list(order[:cut])), part(list(order[cut:]))])
    assert joined.clients.tolist() == list(range(6))
    assert joined.values["loss"].tolist() == [0.5 * i for i in range(6)]
    expected = [10 * i + r for i in range(6) for r in range(each)]
    assert joined.bank.tensors["theta"][:, 1].tolist() == expected


def test_replies_without_models_join_too():
    parts = [
        Replies(torch.tensor([i]), None, {"share": torch.tensor([[i, -i]])}) for i in (2, 0, 1)
    ]
    joined = Replies.join(parts)
    assert joined.bank is None
    assert joined.clients.tolist() == [0, 1, 2]
    assert joined.values["share"].tolist() == [[0, 0], [1, -1], [2, -2]]


def test_traffic_counts_parameters_in_both_directions():
    ids = torch.arange(3)
    models = torch.tensor([[0, 1], [0, 1], [0, 1]])
    jobs = Jobs(0, 0, ids, rows_of(2), models)
    one = 2 * 4  # two float32 numbers
    assert traffic(jobs, 3) == (3 * 2 * one, 3 * one)
    assert traffic(jobs, 0) == (3 * 2 * one, 0)
    assert traffic(jobs, 1) == (3 * 2 * one, one)


def test_a_client_that_was_sent_no_model_sends_none():
    ids = torch.arange(3)
    jobs = Jobs(0, 0, ids, rows_of(0), torch.empty(3, 0, dtype=torch.int64), kept=rows_of(3))
    assert traffic(jobs, 3) == (0, 0)
