"""Clients composed of parts, and the methods as the protocol of chapter 13 charges them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import clusterfl_core as cf
from clusterfl_core import comparison, composing

PLAIN = {"gamma": 0.2, "tau": 5, "k": 3, "alone": 5, "eps1": 0.04, "ratio": 6, "safe": 0.5}
PLAIN |= {"lam": 0.1, "own": 5, "own_gamma": 0.1}


def upright(part):
    """A number for each image, the same for all its turned and mirrored forms, client by client."""
    key = torch.randint(2**40, (64,), generator=torch.Generator().manual_seed(0))
    forms = [torch.rot90(x, t, (2, 3)) for t in range(4) for x in (part.x, part.x.flip(-1))]
    return torch.stack([(one.flatten(2).long() * key).sum(2) for one in forms]).amin(0).tolist()


def every(part):
    return {image for own in upright(part) for image in own}


@pytest.mark.parametrize("kind", composing.RECIPES)
def test_nobody_is_tested_on_what_is_trained_on_or_searched_with(kind):
    final, search = composing.build(kind, 3), composing.build(kind, 500, "own")
    n = 8 if kind == "tiny" else 40
    assert final.train.counts.unique().tolist() == [n]
    assert search.train.counts.unique().tolist() == [n - n // 4]
    assert search.test.counts.unique().tolist() == [n // 4]
    assert final.test.counts.unique().tolist() == [360]
    train, test = every(final.train), every(final.test)
    assert len(train & test) <= 3  # a few images of the set are equal
    assert len((every(search.train) | every(search.test)) & test) <= 3
    for own, back in zip(upright(search.train), upright(search.test), strict=True):
        assert len(set(own) & set(back)) <= 1
        assert len(set(own)) >= len(own) - 1


def test_each_seed_has_other_test_images():
    tests = [every(composing.build("soft", seed).test) for seed in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert len(tests[a] & tests[b]) < 200


def test_the_kinds_are_those_of_the_comparison():
    assert set(composing.RECIPES) == {*comparison.KINDS, "both"}
    x, y = cf.data.load("digits").x_train[:5], cf.data.load("digits").y_train[:5]
    for kind, (views, shares, points) in comparison.KINDS.items():
        recipe = composing.RECIPES[kind]
        assert torch.equal(recipe.shares, shares)
        assert recipe.points == points
        for old, new in zip(views, recipe.views, strict=True):
            for one, other in zip(
                comparison.seen(old, x, y), composing._seen(new, x, y), strict=True
            ):
                assert torch.equal(one, other)


def test_liars_are_not_judged():
    people = composing.build("liars", 0)
    assert people.truth["honest"].tolist() == [True] * 18 + [False] * 6
    _, state = comparison.play(composing.make("FedAvg", PLAIN, 24), people, 0, models=4)
    assert len(composing.judge(state, people)) == 18


def test_skewed_clients_have_classes_of_their_own_in_training_and_test():
    people = composing.build("both", 0)
    far = []
    for i in range(len(people)):
        shares = [
            part.y[i].bincount(minlength=10) / len(part.y[i])
            for part in (people.train, people.test)
        ]
        far.append([float((shares[0] - other).abs().sum()) for other in (shares[1], 0.1)])
    own, even = np.mean(far, 0)
    assert own < even / 2


@pytest.mark.parametrize(("n", "back"), [(1, [0]), (3, [2]), (4, [3]), (9, [3, 7])])
def test_each_fourth_image_is_held_back(n, back):
    x = torch.arange(10, dtype=torch.uint8)[:, None, None]
    everyone = cf.Clients.from_lists([x[:n], x], [torch.zeros(n).long(), torch.zeros(10).long()])
    if n == 1:
        with pytest.raises(ValueError, match="client 0 has one"):
            composing.held_back(cf.Federation(everyone, everyone, classes=2))
        return
    halves = composing.held_back(cf.Federation(everyone, everyone, classes=2))
    kept = [i for i in range(n) if i not in back]
    for part, rows in ((halves.train, kept), (halves.test, back)):
        assert part.x[0, : part.counts[0], 0, 0].tolist() == rows
    assert halves.test.x[1, :2, 0, 0].tolist() == [3, 7]


def test_a_number_is_a_recipe_and_all_parts_occur():
    recipes = [composing.compose(n) for n in (*range(32), *range(1000, 1048))]
    again = composing.compose(7)
    assert again.words == recipes[7].words
    assert torch.equal(again.shares, recipes[7].shares)
    for recipe in recipes:
        assert len(recipe.shares) in (12, 18, 24)
        assert torch.allclose(recipe.shares.sum(1), torch.ones(1))
        assert len(recipe.views) == recipe.shares.shape[1]
        assert len(recipe.shares) * recipe.points <= composing.SEARCHED
        for view in recipe.views:
            assert sorted(view.get("labels", range(10))) == list(range(10))
    for what, values in (
        ("points", {8, 16, 24, 40}),
        ("skew", {None, 1.0, 0.3}),
        ("answer", {1.0, 0.5}),
    ):
        assert {getattr(recipe, what) for recipe in recipes} == values
    assert {len(recipe.shares) // 6 for recipe in recipes if recipe.liars} == {2, 3, 4}


def test_lean_fedsoft_is_fedsoft_for_less():
    people = composing.build("hard", 0)
    lean = composing.make("FedSoft", PLAIN, 24)
    full = comparison.make("FedSoft", PLAIN | {"part": 1.0}, 24)
    assert isinstance(lean, composing.LeanFedSoft)
    states, moved = [], []
    for algorithm in (lean, full):
        state, spent = algorithm.init(people, 0), 0
        for _ in range(4):
            state, models, passes = comparison.one_round(algorithm, state, people)
            spent += models
        assert passes == 5
        states.append(state)
        moved.append(spent)
    assert moved == [4 * 2 + 2 * 3, 4 * 4 + 2 * 3]
    assert torch.equal(states[0].assignments, states[1].assignments)
    gap = (states[0].bank.flatten() - states[1].bank.flatten()).abs().max()
    assert gap < 1e-4


def test_what_the_protocol_makes_of_a_method():
    def made(method, **more):
        return composing.make(method, PLAIN | more, 24)

    assert (made("IFCA").patience, made("IFCA").shared) == (3, ())
    assert made("IFCA", shared=True).shared == ("hidden",)
    assert made("CLoVE").patience == 3
    assert (made("OneShot").starts, made("CLoVE").starts) == (1, 1)
    assert made("OneShot?", recursive=True).recursive
    assert made("FedSoft").regress_after is None
    assert made("FedSoft+").regress_after == 4
    for method in ("LocalOnly", "FedAvg", "CFL", "FedEM", "FineTuned"):
        assert made(method) == comparison.make(method, PLAIN, 24)


def test_a_settled_ifca_pays_for_one_model():
    people = composing.build("hard", 0)
    rows, state = comparison.play(composing.make("IFCA", PLAIN, 24), people, 0, passes=150)
    assert state.stable > 3
    assert rows[-1][1] < 4 * rows[-1][0]


@pytest.mark.parametrize("method", composing.METHODS)
def test_half_of_the_clients_answer_after_the_first_round(method):
    people = composing.build("hard", 0)
    algorithm = composing.make(method, PLAIN, 24, answer=0.5)
    state, counts = algorithm.init(people, 0), []
    for one in cf.rounds(algorithm, people, 3, start=state):
        counts.append({len(replies.clients) for _, replies in one.trips})
        state = one.state
    assert counts[0] == {24}
    assert counts[1] | counts[2] == {12}


def test_everybody_is_fine_tuned():
    people = composing.build("hard", 0)
    algorithm = replace(composing.make("FineTuned", PLAIN, 24, answer=0.5), after=2)
    counts = [len(one.trips[0][1].clients) for one in cf.rounds(algorithm, people, 3)]
    assert counts == [24, 12, 24]


@pytest.fixture
def writers(tmp_path, monkeypatch):
    """540 writers with 61 images each, who lean the more the higher their number."""
    random = np.random.default_rng(0)
    who, x = np.arange(540).repeat(61), np.zeros((540 * 61, 6, 6), np.uint8)
    for row in range(6):
        place = np.clip(np.round(2.5 + (row - 2.5) * (who / 540 - 0.5)), 0, 5).astype(int)
        x[np.arange(len(who)), row, place] = 200 + random.integers(0, 50, len(who))
    y = random.integers(0, 10, len(who)).astype(np.uint8)
    facts = {f"{a}_{b}": who.astype(np.int16) for a in ("writer", "hsf") for b in ("train", "test")}
    arrays = {f"{a}_{b}": {"x": x, "y": y}[a] for a in "xy" for b in ("train", "test")}
    np.savez(tmp_path / "mnist_writers.npz", **arrays, **facts)
    monkeypatch.setenv("CLUSTERFL_DATA", str(tmp_path))
    composing._writers.cache_clear()
    yield composing._writers()
    composing._writers.cache_clear()


@pytest.mark.parametrize("kind", composing.PEOPLE)
def test_no_writer_is_in_two_seeds(writers, kind):
    finals, rest = writers
    assert (len(finals), len(rest)) == (360, 180)
    seen = []
    for seed, held_out in [*((s, "test") for s in range(10)), (500, "own"), (501, "own")]:
        people = composing.build(kind, seed, held_out)
        assert len(people) == 24
        n = (30, 10) if held_out == "own" else (40, 21)
        assert people.train.counts.tolist() == [n[0]] * 24
        assert people.test.counts.tolist() == [n[1]] * 24
        seen += [own[: n[1]].numpy().tobytes() for own in people.test.x]
    assert len(set(seen)) == len(seen) == 12 * 24
    with pytest.raises(ValueError, match="seed must leave 24 writers"):
        composing.build(kind, 15)


def test_slant_sorts_by_how_much_a_writing_leans(writers):
    people = composing.build("slant", 4)
    leans = [composing._lean(x[:40]) for x in people.train.x]
    assert people.clusters.tolist() == [0] * 12 + [1] * 12
    assert min(leans[:12]) > max(leans[12:])
