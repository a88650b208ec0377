"""Trials of IFCA's figure 3 against one run after another."""

import json
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clusterfl_core as cf
from clusterfl_core import theory, trials
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients
from clusterfl_core.randomness import generator
from clusterfl_core.simulation import Diverged, round_trip

HUGE = 1e15  # blows up within 25 rounds, in float64 too


def one_run(federation, k, seed, step, rounds, dtype=torch.float64):
    """The same run by the general loop: its end, and the round in which it diverged (or 0)."""
    model = cf.models.LinearRegression(federation.train.x.shape[2]).to(dtype)
    algorithm = cf.IFCA(model, k, cf.LocalSGD(1, step), option="gradients")
    try:
        return cf.run(algorithm, federation, rounds, seed=seed, device="cpu", progress=False), 0
    except Diverged as stopped:
        return stopped.run, stopped.run.state.round + 1


def ragged(counts, k, d, seed):
    """A regression whose clients hold different numbers of points, garbage in the padding."""
    source = generator(99, seed)
    theta = torch.randn(k, d, generator=source, dtype=torch.float64)
    whole = cf.populations.regression(theta, k * len(counts), max(counts), 0.3, seed)
    sizes = torch.tensor(counts).repeat(k)
    train = Clients(whole.train.x, whole.train.y, sizes)
    nowhere = ~train.mask()
    train.x[nowhere], train.y[nowhere] = 7.0, -7.0
    return replace(whole, train=train)


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=str
)
def test_a_trial_is_what_runs_one_after_another_are(dtype, close):
    federation = cf.populations.bernoulli_regression(0.7, 12, 30, 20, 2, 0.2, seed=3)
    starts = trials.first_models(20, 2, range(4), dtype)
    steps, rounds = (0.3, HUGE, 0.02), 25
    trial = trials.regression_trial(federation, starts, steps, rounds)
    assert trial.theta.dtype == dtype
    for g, step in enumerate(steps):
        for s in range(4):
            run, stopped = one_run(federation, 2, s, step, rounds, dtype)
            assert int(trial.diverged[g, s]) == stopped
            assert torch.equal(trial.identities[g, s], run.assignments)
            expected = run.models.tensors["theta"]
            gap = (trial.theta[g, s] - expected).abs().max() / expected.abs().max()
            assert gap < close
            accuracy = cf.evaluation.identity_accuracy(run.assignments, federation.clusters)
            assert float(trial.identity_accuracy[g, s]) == accuracy
            if stopped:
                assert trial.matched[g, s] == trial.nearest[g, s] == float("inf")
                continue
            matched, nearest = theory.distance_to_truth(expected, federation.truth["theta"])
            assert float(trial.matched[g, s]) == pytest.approx(matched, rel=close, abs=close)
            assert float(trial.nearest[g, s]) == pytest.approx(nearest, rel=close, abs=close)
    assert (trial.diverged[1] > 0).all()
    assert (trial.diverged[[0, 2]] == 0).all()


@given(
    seed=st.integers(0, 500),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    k=st.integers(1, 3),
    d=st.integers(1, 6),
    steps=st.lists(st.sampled_from([1e-3, 0.05, 0.2, 0.6]), min_size=1, max_size=3),
    rounds=st.integers(1, 6),
    chunk=st.sampled_from([1, 200, 1 << 22]),
)
@settings(max_examples=60, deadline=None)
def test_any_small_trial_is_what_single_runs_are(seed, counts, k, d, steps, rounds, chunk):
    federation = ragged(counts, k, d, seed)
    # Starts of 0 and 1 in so few dimensions are often equal: every client then has a tie.
    starts = trials.first_models(d, k, range(seed, seed + 2), torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(trials.CHUNK, "cpu", chunk)
        trial = trials.regression_trial(federation, starts, steps, rounds, device="cpu")
    model = cf.models.LinearRegression(d).double()
    for g, step in enumerate(steps):
        algorithm = cf.IFCA(model, k, cf.LocalSGD(1, step), option="gradients")
        for s, start in enumerate(starts):
            state = algorithm.init(federation, 0)
            state = replace(state, bank=Bank(model, {"theta": start}))
            for _ in range(rounds):
                state, _, _ = round_trip(algorithm, state, federation.train)
            torch.testing.assert_close(
                trial.theta[g, s], state.bank.tensors["theta"], rtol=1e-10, atol=1e-10
            )
            assert torch.equal(trial.identities[g, s], state.assignments)


def test_a_run_that_diverges_fails_alone_and_silently():
    federation = cf.populations.bernoulli_regression(1.0, 8, 40, 5, 2, 0.1)
    starts = trials.first_models(5, 2, range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed = trials.regression_trial(federation, starts, (0.3, 50.0), 60)
        alone = trials.regression_trial(federation, starts, (0.3,), 60)
        lost = trials.regression_trial(federation, starts, (50.0,), 60)
    assert torch.equal(mixed.success(0.1)[0], alone.success(0.1)[0])
    assert mixed.success(0.1)[0].any()
    torch.testing.assert_close(mixed.theta[0], alone.theta[0])
    assert (mixed.diverged[1] > 1).all()
    assert not mixed.success(1e40)[1].any()
    assert mixed.success(1e40)[0].all()
    assert mixed.theta.isfinite().all()
    assert torch.equal(lost.diverged[0], mixed.diverged[1])


def test_a_run_that_never_begins_has_no_identities():
    federation = cf.populations.bernoulli_regression(1.0, 4, 10, 3, 2, 0.1)
    trial = trials.regression_trial(federation, torch.full((1, 2, 3), 1e30), (0.1,), 5)
    assert trial.diverged.tolist() == [[1]]
    assert trial.identities.tolist() == [[[-1] * 4]]
    assert (trial.theta == 1e30).all()
    assert trial.matched.tolist() == [[float("inf")]]


def test_two_models_on_one_truth_succeed_only_by_the_nearest():
    federation = cf.populations.regression(torch.eye(2) * 5, 4, 50, 0.0)
    both_first = (torch.eye(2) * 5)[[0, 0]][None]
    trial = trials.regression_trial(federation, both_first, (1e-12,), 1)
    assert not trial.success(0.0).any()
    assert trial.success(0.0, "nearest").all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"starts": torch.zeros(1, 3, 2)}, "starts must be [S, 2, 2], as many models as the truth"),
        ({"starts": torch.zeros(0, 2, 2)}, "got shape (0, 2, 2)"),
        ({"starts": torch.zeros(1, 2, 2, dtype=torch.int64)}, "starts must be floating-point"),
        ({"steps": []}, "steps must be positive and finite, at least one, got []"),
        ({"steps": [0.1, -1.0]}, "got [0.1, -1.0]"),
        ({"steps": [float("inf")]}, "steps must be positive and finite"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"device": "abacus"}, "device must be 'auto' or a name torch knows"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(change, words):
    given = {
        "federation": cf.populations.regression(torch.eye(2), 4, 5, 0.1),
        "starts": torch.zeros(1, 2, 2),
        "steps": [0.1],
        "rounds": 1,
    }
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are checked below
        trials.regression_trial(**given | change)
    assert words in str(error.value)


def test_only_a_regression_with_a_known_truth_has_trials():
    digits = cf.populations.rotated("digits", clients=4, clusters=2)
    with pytest.raises(ValueError, match=r"must be a linear regression with truth\['theta'\]"):
        trials.regression_trial(digits, torch.zeros(1, 2, 64), [0.1], 1)


# ---- figure 3


def test_the_panels_are_the_papers():
    sizes = {panel: len(trials.figure_3(panel)) for panel in "abcd"}
    assert sizes == {"a": 20, "b": 20, "c": 21, "d": 15}
    for panel, k, steps in (("a", 2, {0.01, 0.1, 1}), ("b", 4, {0.5, 1, 2})):
        for point in trials.figure_3(panel):
            assert point["clusters"] == k
            assert set(point["steps"]) == steps
            assert (point["points"], point["features"]) == (100, 1000)
            assert point["clients"] == (100 if k == 2 else 400)
    with pytest.raises(ValueError, match="panel must be one of"):
        trials.figure_3("e")


def test_a_success_trial_is_one_trial_with_its_own_seeds():
    point = trials.figure_3("a")[9] | {"clients": 8, "points": 40, "features": 12}
    steps = point["steps"] = (0.4, 1e20)
    record = trials.success_trial(**point, seed=2, starts=3, rounds=40, device="cpu")
    federation = cf.populations.bernoulli_regression(1.0, 8, 40, 12, 2, 0.1, seed=2)
    starts = torch.stack(
        [
            cf.IFCA(cf.models.LinearRegression(12), 2).init(federation, s).bank.tensors["theta"]
            for s in (6, 7, 8)
        ]
    )
    trial = trials.regression_trial(federation, starts, steps, 40)
    assert record["matched"] == [trial.matched[0].tolist(), [None] * 3]
    assert record["nearest"] == [trial.nearest[0].tolist(), [None] * 3]
    assert record["diverged"] == trial.diverged.tolist()
    assert record["success"] == bool(trial.success(0.1).any())
    assert record["success_nearest"] == bool(trial.success(0.1, "nearest").any())
    where = int(trial.matched[0].argmin())
    assert record["best_identity_accuracy"] == float(trial.identity_accuracy[0, where])
    assert record["seed"] == 2
    assert record["scale"] == 1.0
    assert json.loads(json.dumps(record)) == record | {"steps": [0.4, 1e20]}
    again = trials.success_trial(**point, seed=2, starts=3, rounds=40, device="cpu")
    assert again | {"seconds": 0} == record | {"seconds": 0}
    other = trials.success_trial(**point, seed=3, starts=3, rounds=40, device="cpu")
    assert other["matched"] != record["matched"]
    with pytest.raises(ValueError, match="starts must be at least 1, got 0"):
        trials.success_trial(**point, starts=0)


def test_success_rates_count_trials_by_setting():
    records = [
        {"noise": 0.1, "scale": 1.0, "success": True, "success_nearest": True},
        {"noise": 0.1, "scale": 1.0, "success": False, "success_nearest": True},
        {"noise": 0.2, "scale": 1.0, "success": False, "success_nearest": False},
    ]
    rates = trials.success_rates(records, "noise", "scale")
    assert rates == {(0.1, 1.0): (0.5, 2), (0.2, 1.0): (0.0, 1)}
    rates = trials.success_rates(records, "noise", reading="nearest")
    assert rates == {(0.1,): (1.0, 2), (0.2,): (0.0, 1)}
