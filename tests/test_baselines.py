"""One model for all, and one model for each."""

from dataclasses import replace

import pytest
import torch
from test_local import (
    architecture,
    close,
    models_of,
    plain_loss,
    plain_points,
    plain_rows,
    plain_train,
    ragged,
)

from clusterfl_core.algorithms.baselines import FedAvg, LocalOnly
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.clients import Federation
from clusterfl_core.contract import Replies, traffic
from clusterfl_core.models import LinearRegression
from clusterfl_core.randomness import participants
from clusterfl_core.simulation import round_trip, run
from clusterfl_core.solvers import LocalSGD

COUNTS = (4, 1, 7, 2, 6)
KINDS = pytest.mark.parametrize("kind", ["classes", "regression"])


def a_federation(kind="classes", dtype=torch.float64):
    """Ragged random clients, who are their own test clients."""
    clients = ragged(kind, COUNTS, dtype)
    return Federation(clients, clients, classes=3 if kind == "classes" else 0)


@KINDS
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_fedavg_is_the_mean_of_local_models_by_their_numbers_of_points(
    kind, weighted, participation
):
    federation = a_federation(kind)
    algorithm = FedAvg(architecture(kind), LocalSGD(3, 0.1), participation, weighted)
    state = algorithm.init(federation, seed=4)
    state = replace(state, bank=models_of(kind, 1, torch.float64))
    for t in range(3):
        ids = participants((4, t), len(federation), participation).tolist()
        start = state.bank.module(0)
        points = [plain_points(federation.train, i) for i in ids]
        trained = plain_rows([plain_train(start, x, y, 3, 0.1) for x, y in points])
        counts = torch.tensor([float(COUNTS[i]) if weighted else 1.0 for i in ids])
        expected = (counts[:, None] * trained).sum(0) / counts.sum()
        state, jobs, replies = round_trip(algorithm, state, federation.train)
        assert jobs.clients.tolist() == ids
        assert close(state.bank.flatten()[0], expected, 1e-10)
        losses = torch.stack([plain_loss(start, x, y).detach() for x, y in points])
        assert close(replies.values["loss"], losses, 1e-10)
    assert state.assignments.tolist() == [0] * len(federation)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_client_that_does_not_answer_is_left_out_of_fedavg(weighted):
    federation = a_federation()
    algorithm = FedAvg(architecture("classes"), LocalSGD(1, 0.1), weighted=weighted)
    state = algorithm.init(federation, seed=0)
    state = replace(state, bank=state.bank.to(torch.float64))
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    rows = torch.tensor([0, 2, 4])
    some = Replies(rows, replies.bank.take(rows), {"loss": replies.values["loss"][rows]})
    counts = torch.tensor([4.0, 7.0, 6.0]) if weighted else torch.ones(3)
    expected = (counts[:, None] * replies.bank.flatten()[rows]).sum(0) / counts.sum()
    assert close(algorithm.absorb(state, [some]).bank.flatten()[0], expected, 1e-12)


@KINDS
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_local_model_is_the_one_the_client_would_train_alone(kind, batch_size):
    federation = a_federation(kind)
    solver = LocalSGD(3, 0.05, batch_size)
    algorithm = LocalOnly(architecture(kind), solver)
    state = algorithm.init(federation, seed=3)
    assert len(state.bank.flatten().unique(dim=0)) == 1  # all start from one model
    state = replace(state, bank=state.bank.to(torch.float64))
    alone = [state.bank.module(i) for i in range(len(federation))]
    for t in range(3):
        for i, module in enumerate(alone):
            if batch_size is None:
                x, y = plain_points(federation.train, i)
                alone[i] = plain_train(module, x, y, 3, 0.05)
                continue
            own = federation.train.take([i])
            for x, y, mask, *_ in solver.batches(own, (3, t), torch.float64):
                alone[i] = plain_train(alone[i], x[mask], y[mask], 1, 0.05)
        state, _, _ = round_trip(algorithm, state, federation.train)
        assert close(state.bank.flatten(), plain_rows(alone), 1e-10)
    assert state.assignments.tolist() == list(range(len(federation)))
    assert len(state.bank.flatten().unique(dim=0)) == len(federation)


def test_a_local_model_does_not_depend_on_the_data_of_others():
    federation = a_federation()
    others = ragged("classes", COUNTS, torch.float64, seed=99)
    x, y = others.x.clone(), others.y.clone()
    x[2], y[2] = federation.train.x[2], federation.train.y[2]
    changed = replace(federation, train=replace(others, x=x, y=y))
    algorithm = LocalOnly(architecture("classes"), LocalSGD(3, 0.1, 2))
    first, second = (run(algorithm, one, 3, seed=1).models for one in (federation, changed))
    assert close(first.flatten()[2], second.flatten()[2], 1e-6)
    assert not close(first.flatten()[1], second.flatten()[1], 1e-3)


def test_a_client_that_does_not_answer_keeps_its_local_model():
    federation = a_federation()
    algorithm = LocalOnly(architecture("classes"), LocalSGD(1, 0.1))
    state = algorithm.init(federation, seed=0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    rows = torch.tensor([1, 3])
    some = Replies(rows, replies.bank.take(rows), {"loss": replies.values["loss"][rows]})
    after = algorithm.absorb(state, [some]).bank.flatten()
    for i in range(len(federation)):
        source = replies.bank if i in (1, 3) else state.bank
        assert torch.equal(after[i], source.flatten()[i])


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_bytes_are_models_times_parameters_times_four(participation):
    federation = a_federation(dtype=torch.float32)
    parameters = 5 * 4 + 4 + 4 * 3 + 3
    working = 5 if participation == 1 else 2
    expected = {
        IFCA(architecture("classes"), 3, participation=participation): (3 * working, working),
        IFCA(
            architecture("classes"), 3, option="gradients", participation=participation
        ): (3 * working, working),
        FedAvg(architecture("classes"), participation=participation): (working, working),
        LocalOnly(architecture("classes")): (0, 0),
    }  # fmt: skip
    for algorithm, (down, up) in expected.items():
        for record in run(algorithm, federation, 2).history:
            assert record["bytes_down"] == down * parameters * 4
            assert record["bytes_up"] == up * parameters * 4


def test_nothing_travels_when_everybody_trains_alone():
    federation = a_federation()
    algorithm = LocalOnly(architecture("classes"))
    jobs = algorithm.plan(algorithm.init(federation, seed=0))
    replies = algorithm.client_step(jobs, federation.train)
    assert len(jobs.bank) == 0
    assert jobs.models.numel() == 0
    assert traffic(jobs, replies) == (0, 0)


@pytest.mark.parametrize("participation", [0, -1, 1.5, float("nan")])
def test_fedavg_names_a_bad_participation(participation):
    sentence = rf"^participation must be in \(0, 1\], got {participation}$"
    with pytest.raises(ValueError, match=sentence):
        FedAvg(architecture("classes"), participation=participation)


def test_a_round_in_which_nobody_answers_leaves_the_global_model_as_it_is():
    federation = Federation(ragged("regression", (4, 3)), ragged("regression", (4, 3)))
    algorithm = FedAvg(LinearRegression(5))
    before = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(before), federation.train)
    nobody = Replies(replies.clients[:0], replies.bank.take([]), {})
    after = algorithm.absorb(before, [nobody])
    assert after.round == 1
    assert torch.equal(after.bank.flatten(), before.bank.flatten())
