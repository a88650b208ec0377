"""FedAvg with fine-tuning, line by line."""

import pytest
import torch
from test_oneshot_fedem import THETA, Normal, ragged, without

import clusterfl_core as cf
from clusterfl_core.contract import traffic
from clusterfl_core.populations import regression

SGD, TUNE = cf.LocalSGD(3, 0.05), cf.LocalSGD(7, 0.02)
SIZE = 3 * 8


def tuned(after=3, **more):
    return cf.FineTuned(Normal(3).double(), SGD, after=after, tune=TUNE, **more)


def fedavg(**more):
    return cf.FedAvg(Normal(3).double(), SGD, **more)


@pytest.mark.parametrize("participation", [1, 0.5])
def test_the_first_rounds_are_federated_averaging(participation):
    federation = ragged()
    mine = cf.run(tuned(participation=participation), federation, 3)
    other = cf.run(fedavg(participation=participation), federation, 3)
    assert torch.equal(mine.models.flatten(), other.models.flatten())
    for key in ("bytes_down", "bytes_up", "train_loss", "clients"):
        assert [r[key] for r in mine.history] == [r[key] for r in other.history]


def test_then_every_client_takes_its_steps_from_the_one_model_and_keeps_the_result():
    federation = ragged()
    run = cf.run(tuned(participation=0.5), federation, 4)
    one = cf.run(fedavg(participation=0.5), federation, 3).models
    expected = TUNE.train(one.take([0] * 6), federation.train, (0, 3))
    assert torch.equal(run.models.flatten(), expected.flatten())
    assert run.assignments.tolist() == list(range(6))
    assert run.history[-1]["clients"] == 6


def test_later_rounds_go_on_from_where_each_client_stopped():
    federation = ragged()
    four, five = (cf.run(tuned(), federation, t) for t in (4, 5))
    expected = TUNE.train(four.models, federation.train, (0, 4))
    assert torch.equal(five.models.flatten(), expected.flatten())


def test_the_price_is_two_models_then_one_down_then_nothing():
    run = cf.run(tuned(), ragged(), 6)
    down, up = ([r[key] for r in run.history] for key in ("bytes_down", "bytes_up"))
    assert down == [6 * SIZE] * 4 + [0, 0]
    assert up == [6 * SIZE] * 3 + [0, 0, 0]


def test_passes_are_those_of_the_solver_at_work():
    algorithm, federation = tuned(), ragged()
    found = [algorithm.passes(one.jobs) for one in cf.rounds(algorithm, federation, 5)]
    assert found == [3, 3, 3, 7, 7]


def test_models_that_stay_do_not_count_as_sent():
    state = tuned(after=1).init(ragged(), 0)
    jobs = state.jobs(torch.arange(6))
    assert traffic(jobs, 6) == (6 * SIZE, 6 * SIZE)
    assert traffic(state.jobs(torch.arange(6), stays=True), 6) == (6 * SIZE, 0)


def test_who_does_not_answer_keeps_the_model_it_had():
    algorithm, federation = tuned(after=1), ragged()
    (first,) = cf.rounds(algorithm, federation, 1)
    jobs = algorithm.plan(first.state)
    replies = without(algorithm.client_step(jobs, federation.train), {2})
    state = algorithm.absorb(first.state, iter([replies]))
    one = first.state.bank.flatten()[0]
    same = (state.bank.flatten() == one).all(1)
    assert same.tolist() == [i == 2 for i in range(6)]


def test_it_repairs_a_contradiction_and_overfits_few_points():
    """Two groups that disagree gain; clients of one group with two points each lose, the longer."""
    errors = []
    for truth, n in ((THETA[:2], 40), (THETA[:1], 3)):
        federation = regression(truth, 12, n, 1.0)
        algorithm = cf.FineTuned(Normal(4).double(), SGD, after=60, tune=cf.LocalSGD(100, 0.05))
        run = cf.run(algorithm, federation, 62)
        errors.append([record["error"] for record in run.history[-3:]])
    (before, tuned_once, _), (good, worse, worst) = errors
    assert tuned_once < before / 2
    assert good < worse < worst


def test_bad_settings_are_one_sentence():
    with pytest.raises(ValueError, match="after must be at least 1, got 0"):
        tuned(after=0)
    with pytest.raises(TypeError, match="after"):
        cf.FineTuned(Normal(3))
