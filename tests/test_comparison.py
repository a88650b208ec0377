"""The comparison on equal terms: clients, prices, purses, the judge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clusterfl_core as cf
from clusterfl_core import comparison

PLAIN = {"gamma": 0.2, "tau": 5, "k": 3, "alone": 5, "eps1": 0.04, "ratio": 6, "safe": 0.5}
PLAIN |= {"lam": 0.1, "part": 1.0, "own": 5, "own_gamma": 0.1}
EVERY = comparison.METHODS + comparison.LATER
PRICES = {  # models and passes of one client in one round, k = 3 and tau = 5; FedSoft: in two
    "LocalOnly": (0, 5),
    "FedAvg": (2, 5),
    "OneShot": (2, 5),
    "FedEM": (6, 16),
    "FedSoft": (11, 11),
    "CFL": (2, 5),
    "IFCA": (4, 6),
    "FineTuned": (2, 5),
    "CLoVE": (5, 6),  # its own model comes twice
    "OneShot?": (2, 5),
}


@pytest.mark.parametrize("kind", comparison.KINDS)
def test_training_images_are_dealt_once_and_held_out_ones_to_nobody(kind):
    _, shares, n = comparison.KINDS[kind]
    people = comparison.build(kind, 3, "validation")
    assert len(people) == len(shares)
    assert people.train.counts.tolist() == [n] * len(shares)
    assert people.test.counts.tolist() == [360] * len(shares)
    if kind == "skewed":  # drawn with repetition, and turned images are others
        return

    def plain(part):
        """Each image in the turned or mirrored form that comes first, as bytes."""
        forms = []
        for x in part.x.flatten(0, 1).view(-1, 8, 8):
            turns = [torch.rot90(one, t) for t in range(4) for one in (x, x.flip(-1))]
            forms.append(min(one.contiguous().numpy().tobytes() for one in turns))
        return forms

    train, far = plain(people.train), plain(people.test)
    images = cf.data.load("digits").x_train
    assert len(set(train)) > 0.99 * len(train)  # a few images of the set are equal
    assert len(set(train) & set(far)) < 0.01 * len(images)


def test_every_seed_is_judged_on_the_same_test_images():
    one, other = (comparison.build("soft", seed) for seed in (0, 1))
    total = [int(people.test.x.long().sum()) for people in (one, other)]
    assert total[0] == total[1]
    assert not torch.equal(one.train.x, other.train.x)


@given(st.integers(0, 3), st.booleans(), st.permutations(range(10)))
@settings(max_examples=30, deadline=None)
def test_a_view_can_be_undone(turn, mirror, names):
    x, y = torch.arange(2 * 64).view(2, 8, 8), torch.tensor([3, 8])
    a, b = comparison.seen({"turn": turn, "mirror": mirror, "labels": names}, x, y)
    back = torch.rot90(a.flip(-1) if mirror else a, -turn, dims=(-2, -1))
    assert torch.equal(back, x)
    assert [names.index(int(name)) for name in b] == y.tolist()


@pytest.mark.parametrize("method", EVERY)
def test_a_round_costs_what_the_price_list_says(method):
    people = comparison.build("hard", 0)
    algorithm = comparison.make(method, PLAIN, len(people))
    state, spent = algorithm.init(people, 0), np.zeros(2)
    for _ in range(2):
        state, *cost = comparison.one_round(algorithm, state, people)
        spent += cost
    once = 1 if method == "FedSoft" else 2
    assert spent == pytest.approx(once * np.array(PRICES[method]))


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("purse", [(23, 1e6), (1e6, 61)])
def test_a_run_ends_before_the_round_that_breaks_the_purse(method, purse):
    people = comparison.build("tiny", 0)
    algorithm = comparison.make(method, PLAIN, len(people))
    if method == "LocalOnly" and purse[0] < 1e6:
        return  # moves nothing: only passes end it
    models, passes = purse
    rows, state = comparison.play(algorithm, people, 0, models=models, passes=passes)
    (rounds, moved, work, score) = rows[-1]
    assert rounds == state.round >= 1
    assert moved <= models
    assert work <= passes
    _, b, w = comparison.one_round(algorithm, state, people)
    assert moved + b > models or work + w > passes
    assert score == round(float(comparison.accuracy(state, people).mean()), 4)


def test_what_later_methods_are_made_of():
    made = {m: comparison.make(m, PLAIN, 24) for m in comparison.LATER}
    assert made["OneShot?"] == replace(comparison.make("OneShot", PLAIN, 24), clusters=None)
    net, sgd = comparison.NET, cf.LocalSGD(5, 0.2)
    assert made["CLoVE"] == cf.CLoVE(net, 3, sgd)
    other = comparison.make("CLoVE", PLAIN | {"starts": 10, "first": "random"}, 24)
    assert other == cf.CLoVE(net, 3, sgd, first="random", starts=10)
    tune = cf.LocalSGD(5, 0.1)
    assert made["FineTuned"] == cf.FineTuned(net, sgd, after=99, tune=tune)  # 2 x 99 + 1 models
    long = comparison.make("FineTuned", PLAIN | {"tau": 30, "own": 100}, 24)
    assert long.after == 30  # 30 x 30 + 100 passes
    assert comparison.make("FineTuned", PLAIN | {"after": 3}, 24).after == 3


def test_one_shot_without_k_forms_the_groups_of_hard_and_none_of_skewed():
    s = PLAIN | {"gamma": 0.4, "alone": 100}
    for kind, groups in (("hard", 4), ("skewed", 1)):
        people = comparison.build(kind, 0)
        _, state = comparison.play(comparison.make("OneShot?", s, 24), people, 0, models=4)
        assert len(state.bank) == groups


def test_fine_tuning_is_done_once_however_much_is_left():
    people = comparison.build("hard", 0)
    algorithm = comparison.make("FineTuned", PLAIN | {"after": 2, "own": 7}, 24)
    rows, state = comparison.play(algorithm, people, 0, most=3)
    assert rows[-1][:3] == (3, 5.0, 17.0)  # twice two models and 5 steps, then one and 7
    assert len(state.bank) == len(people)


def test_looking_on_the_way_changes_nothing():
    people = comparison.build("hard", 0)
    algorithm = comparison.make("FedAvg", PLAIN, len(people))
    (last,), one = comparison.play(algorithm, people, 0, models=30)
    rows, other = comparison.play(algorithm, people, 0, models=30, watch=True)
    assert rows[-1] == last
    assert [row[0] for row in rows] == [*range(1, 11), 12, 14, 15]
    assert torch.equal(one.bank.flatten(), other.bank.flatten())


def test_a_run_that_diverges_has_no_rows():
    people = comparison.build("hard", 0)
    algorithm = comparison.make("FedAvg", PLAIN | {"gamma": 1e30}, len(people))
    assert comparison.play(algorithm, people, 0) == ([], None)


def test_views_of_ones_own_can_be_compared():
    views, shares = [{}, {"labels": comparison.SWAPPED}], torch.eye(2).repeat(3, 1)
    people = comparison.build((views, shares, 20), 0)
    assert people.clusters.tolist() == [0, 1, 0, 1, 0, 1]
    rows, _ = comparison.play(comparison.make("IFCA", PLAIN, 6), people, 0, models=20)
    assert rows[-1][0] == 5


def test_liars_are_not_judged():
    assert comparison.honest(comparison.build("liars", 0)).tolist() == [True] * 18 + [False] * 6
    assert comparison.honest(comparison.build("soft", 0)).all()


class State:
    def __init__(self, assignments):
        self.assignments = torch.as_tensor(assignments)


@given(st.lists(st.integers(0, 5), min_size=24, max_size=24))
@settings(max_examples=50, deadline=None)
def test_with_one_view_a_client_found_is_identity_accuracy(rows):
    people = HARD
    same = cf.evaluation.identity_accuracy(torch.tensor(rows), people.clusters)
    assert comparison.found(State(rows), people) == pytest.approx(same)


HARD = comparison.build("hard", 0)


def test_half_and_half_finds_three_quarters_of_soft():
    people = comparison.build("soft", 0)
    assert comparison.found(State(torch.full((24, 2), 0.5)), people) == pytest.approx(0.75)
    assert comparison.found(State(people.truth["shares"].flip(1)), people) == pytest.approx(1)
