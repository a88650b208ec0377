"""IFCA as it is used: shared layers, saved messages, and the re-sampling of the theory."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import clusterfl_core as cf

MODEL = cf.models.MLP(64, 8, 10)
LOCAL = cf.LocalSGD(steps=2, step_size=0.1)


@pytest.fixture(scope="module")
def digits():
    return cf.populations.rotated("digits", 8, 4, seed=0)


def play(algorithm, federation, rounds, seed=0):
    state, trips = algorithm.init(federation, seed), []
    for _ in range(rounds):
        state, jobs, replies = cf.simulation.round_trip(algorithm, state, federation.train)
        trips.append((state, jobs, replies))
    return trips


def test_shared_layers_are_the_mean_over_everybody_who_took_part(digits):
    algorithm = cf.IFCA(MODEL, 4, LOCAL, participation=0.5, shared=("hidden",))
    for state, _jobs, replies in play(algorithm, digits, 3):
        for name in ("hidden.weight", "hidden.bias"):
            mean = replies.bank.tensors[name].mean(0)
            for j in range(4):
                torch.testing.assert_close(state.bank.tensors[name][j], mean)


def test_layers_that_are_not_shared_are_averaged_within_clusters(digits):
    algorithm = cf.IFCA(MODEL, 4, LOCAL, shared=("hidden",))
    for state, _jobs, replies in play(algorithm, digits, 3):
        for j in replies.values["identity"].unique():
            members = replies.values["identity"] == j
            mean = replies.bank.tensors["output.weight"][members].mean(0)
            torch.testing.assert_close(state.bank.tensors["output.weight"][j], mean)


def test_shared_gradients_are_summed_over_everybody_and_divided_by_all_clients(digits):
    local = cf.LocalSGD(1, 0.3)
    algorithm = cf.IFCA(MODEL, 2, local, "gradients", participation=0.5, shared=("output",))
    before = algorithm.init(digits, 0)
    after, _jobs, replies = cf.simulation.round_trip(algorithm, before, digits.train)
    step = 0.3 / len(digits) * replies.bank.tensors["output.bias"].sum(0)
    for j in range(2):
        expected = before.bank.tensors["output.bias"][j] - step
        torch.testing.assert_close(after.bank.tensors["output.bias"][j], expected)


def test_models_start_alike_in_shared_layers_and_only_there(digits):
    bank = cf.IFCA(MODEL, 3, LOCAL, shared=("hidden",)).init(digits, 0).bank.tensors
    assert torch.equal(bank["hidden.weight"][0], bank["hidden.weight"][2])
    assert not torch.equal(bank["output.weight"][0], bank["output.weight"][2])


def test_one_copy_of_a_shared_layer_is_sent(digits):
    algorithm = cf.IFCA(MODEL, 4, LOCAL, shared=("hidden",))
    record = cf.run(algorithm, digits, 1, progress=False).history[0]
    hidden, output = 4 * (64 * 8 + 8), 4 * (8 * 10 + 10)
    assert record["bytes_down"] == 8 * (hidden + 4 * output)
    assert record["bytes_up"] == 8 * (hidden + output)


def test_sharing_every_layer_is_federated_averaging(digits):
    shared = cf.IFCA(MODEL, 4, LOCAL, shared=("hidden", "output"))
    one = cf.FedAvg(MODEL, LOCAL, weighted=False)
    some, other = (cf.run(a, digits, 3, progress=False).models.flatten() for a in (shared, one))
    torch.testing.assert_close(some[2], other[0])


def test_an_unknown_layer_is_refused_by_name():
    with pytest.raises(ValueError, match=r"shared names 'last', .*\['hidden', 'output'\]"):
        cf.IFCA(MODEL, 4, LOCAL, shared=("hidden", "last"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_model_is_sent_once_identities_were_stable_for_patience_rounds(digits, seed):
    algorithm = cf.IFCA(MODEL, 4, LOCAL, patience=3)
    run = cf.run(algorithm, digits, 25, seed=seed, progress=False)
    all_models, one_model = (q * 8 * run.models.bytes_of_one() for q in (4, 1))
    sent = [record["bytes_down"] for record in run.history]
    first = sent.index(one_model)
    assert sent == [all_models] * first + [one_model] * (25 - first)

    trips = play(replace(algorithm, patience=None), digits, 25, seed)
    chosen = [replies.values["identity"] for _state, _jobs, replies in trips]
    same = [torch.equal(*pair) for pair in pairwise(chosen)]
    assert first == 1 + next(t for t in range(3, 25) if all(same[t - 3 : t]))


def test_saving_messages_changes_no_model_while_identities_stay(digits):
    full = play(cf.IFCA(MODEL, 4, LOCAL), digits, 10)
    assert all(torch.equal(full[0][0].assignments, state.assignments) for state, *_ in full)
    saving = cf.run(cf.IFCA(MODEL, 4, LOCAL, patience=3), digits, 10, progress=False)
    assert saving.history[-1]["bytes_down"] < saving.history[0]["bytes_down"]
    torch.testing.assert_close(saving.models.flatten(), full[-1][0].bank.flatten())


def test_an_identity_that_was_saved_can_no_longer_be_mended(digits):
    saving = cf.run(cf.IFCA(MODEL, 4, LOCAL, patience=3), digits, 25, progress=False)
    full = cf.run(cf.IFCA(MODEL, 4, LOCAL), digits, 25, progress=False)
    early = cf.run(cf.IFCA(MODEL, 4, LOCAL), digits, 10, progress=False)
    assert torch.equal(saving.assignments, early.assignments)
    assert not torch.equal(saving.assignments, full.assignments)


def test_saving_waits_until_every_client_has_been_asked(digits):
    algorithm = cf.IFCA(MODEL, 1, LOCAL, participation=0.125, patience=1)
    for state, jobs, _replies in play(algorithm, digits, 6):
        assert state.assignments.min() == -1
        assert jobs.models.tolist() == [[0]]  # with one model there is nothing to save
    algorithm = cf.IFCA(MODEL, 4, LOCAL, participation=0.125, patience=1)
    known = False
    for state, jobs, _replies in play(algorithm, digits, 40):
        assert known or jobs.models.shape[1] == 4
        known = bool((state.assignments >= 0).all())
    assert known


def test_resampling_takes_two_fresh_disjoint_parts_every_round():
    theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    federation = cf.populations.regression(theta, clients=4, points=26, noise=0.1, seed=0)
    algorithm = cf.IFCA(
        cf.models.LinearRegression(2), 2, cf.LocalSGD(1, 0.1), "gradients", resample=3
    )
    parts = [algorithm._fresh(federation.train, part) for part in range(6)]
    assert all(part.counts.tolist() == [4] * 4 for part in parts)  # n' = 26 // 6
    seen = torch.cat([part.x for part in parts], 1)
    assert torch.equal(seen, federation.train.x[:, :24])


def test_resampling_chooses_with_one_part_and_moves_with_the_next():
    theta = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    federation = cf.populations.regression(theta, clients=4, points=12, noise=0.1, seed=0)
    model, local = cf.models.LinearRegression(2), cf.LocalSGD(1, 0.1)
    algorithm = cf.IFCA(model, 2, local, "gradients", resample=3)
    state = algorithm.init(federation, 1)
    for t in range(3):
        x, y = federation.train.x, federation.train.y
        choose, move = slice(4 * t, 4 * t + 2), slice(4 * t + 2, 4 * t + 4)
        bank = state.bank.tensors["theta"]
        loss = ((y[:, choose, None] - x[:, choose] @ bank.T) ** 2).mean(1)
        state, _jobs, replies = cf.simulation.round_trip(algorithm, state, federation.train)
        assert torch.equal(replies.values["identity"], loss.argmin(1))
        mine = bank[loss.argmin(1)]
        rest = y[:, move] - (x[:, move] * mine[:, None]).sum(2)
        gradient = -2 * (rest[..., None] * x[:, move]).mean(1)
        torch.testing.assert_close(replies.bank.tensors["theta"], gradient)


@pytest.mark.parametrize(("rounds", "points"), [(4, 7), (1, 1)])
def test_resampling_needs_two_points_a_round(rounds, points):
    theta = torch.eye(2)
    federation = cf.populations.regression(theta, clients=4, points=points, noise=0.1)
    algorithm = cf.IFCA(cf.models.LinearRegression(2), 2, cf.LocalSGD(1, 0.1), resample=rounds)
    with pytest.raises(ValueError, match=f"{2 * rounds} parts, but a client has only {points}"):
        cf.run(algorithm, federation, rounds, progress=False)


def test_resampling_ends_with_its_points():
    federation = cf.populations.regression(torch.eye(2), clients=4, points=8, noise=0.1)
    algorithm = cf.IFCA(cf.models.LinearRegression(2), 2, cf.LocalSGD(1, 0.1), resample=2)
    words = "rounds must be at most 2 with these settings, got 3"
    with pytest.raises(ValueError, match=words):
        cf.run(algorithm, federation, 3, progress=False)
    (_first, (state, _jobs, _replies)) = play(algorithm, federation, 2)
    with pytest.raises(ValueError, match="resample=2 has fresh points for so many rounds only"):
        cf.simulation.round_trip(algorithm, state, federation.train)


@pytest.mark.parametrize("name", ["patience", "resample"])
def test_counts_of_rounds_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1 or None, got 0"):
        cf.IFCA(MODEL, 4, LOCAL, **{name: 0})
