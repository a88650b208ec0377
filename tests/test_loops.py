"""The plain loops of the benchmarks end with the library's models."""

import sys
from dataclasses import replace

import house
import pytest
import torch
from torch import nn

import clusterfl_core as cf
from clusterfl_core.simulation import round_trip

sys.path.insert(0, str(house.ROOT / "benchmarks"))

import loops

torch.set_num_threads(1)


class Slow(cf.models.LinearRegression):
    """Linear regression whose models start apart: normal, not 0 or 1."""

    def reset_parameters(self):
        with torch.no_grad():
            self.theta.normal_()


class SmallConvNet(nn.Module):
    """One convolution and one dense layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.output = nn.Linear(3 * 16, 10)

    def forward(self, x):
        planes = nn.functional.max_pool2d(torch.relu(self.conv(x[:, None])), 2)
        return self.output(planes.flatten(1))


def digits(clients=6):
    """Rotated digits, few points a client and not equally many."""
    made = cf.populations.rotated("digits", clients, 2)
    counts = torch.arange(9, 9 + clients)
    train = made.train
    return replace(made, train=cf.Clients(train.x[:, :20], train.y[:, :20], counts))


def same(ours, theirs):
    assert list(ours.tensors) == list(theirs.tensors)
    for name, tensor in theirs.tensors.items():
        torch.testing.assert_close(ours.tensors[name], tensor, rtol=1e-9, atol=1e-10)


def whole_round(algorithm, state, federation):
    """All round trips of one round of the library."""
    before = state.round
    while state.round == before:
        state, _, _ = round_trip(algorithm, state, federation.train)
    return state


@pytest.mark.parametrize(
    ("model", "solver"),
    [
        (cf.models.MLP(64, 20, 10), cf.LocalSGD(5, 0.1)),
        (SmallConvNet(), cf.LocalSGD(step_size=0.1, batch_size=4, epochs=2, decay=0.5)),
    ],
    ids=["mlp", "cnn"],
)
def test_rounds_of_ifca_on_images(model, solver):
    federation = digits()
    algorithm = cf.IFCA(model.double(), 2, solver)
    state = algorithm.init(federation, 1)
    for t in range(3):
        bank, identities = loops.ifca_round(algorithm, federation, state.bank, (1, t))
        state = whole_round(algorithm, state, federation)
        same(bank, state.bank)
        assert torch.equal(identities, state.assignments)
    assert len(state.assignments.unique()) == 2


def test_an_empty_cluster_keeps_its_model_in_the_loop_too():
    federation = digits(clients=2)
    algorithm = cf.IFCA(cf.models.MLP(64, 5, 10).double(), 2, cf.LocalSGD(2, 0.1))
    state = algorithm.init(federation, 0)
    equal = state.bank.take([0, 0])
    bank, identities = loops.ifca_round(algorithm, federation, equal, (0, 0))
    assert identities.tolist() == [0, 0]
    same(bank.take([1]), equal.take([1]))


@pytest.mark.parametrize("every", [True, False])
def test_a_trial_of_regressions(every):
    federation = cf.populations.bernoulli_regression(0.8, 8, 20, 10, 2, 0.1)
    starts = cf.trials.first_models(10, 2, range(3), torch.float64)
    model = cf.models.LinearRegression(10).double()
    theta, identities = loops.regression_trial(federation, starts, (0.2, 0.02), 15, model, every)
    trial = cf.trials.regression_trial(federation, starts, (0.2, 0.02), 15)
    torch.testing.assert_close(theta, trial.theta, rtol=1e-10, atol=1e-10)
    assert torch.equal(identities, trial.identities)


def test_rounds_of_cfl_before_and_at_a_split():
    theta = torch.tensor([[3.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    federation = cf.populations.regression(theta, clients=6, points=40, noise=0.1)
    model = cf.models.LinearRegression(2).double()
    solver = cf.LocalSGD(5, 0.05)
    algorithm = cf.CFL(model, eps1=0.02, eps2=0.2, gamma_max=0.1, local=solver)
    state, seen = algorithm.init(federation, 0), 0
    for _ in range(20):
        bank, splits = loops.cfl_round(algorithm, federation, state)
        before, state = state, whole_round(algorithm, state, federation)
        if splits == [None] * len(splits):
            same(bank, state.bank)
            assert len(state.bank) == len(before.bank)
            continue
        seen += 1
        (halves,) = splits
        assert halves == [node.clients.tolist() for node in state.tree[1:]]
        same(bank.take([0, 0]), state.bank)
    assert seen == 1


def test_rounds_of_fedsoft_on_regressions():
    federation = cf.populations.mixture_regression("10:90", clients=10, features=4)
    adam = cf.LocalAdam(step_size=0.05, batch_size=10, epochs=2)
    algorithm = cf.FedSoft(Slow(4).double(), 2, adam, selected=4, interval=2)
    soft_rounds(algorithm, federation)


def test_rounds_of_fedsoft_on_images():
    adam = cf.LocalAdam(step_size=0.01, batch_size=5, epochs=1)
    algorithm = cf.FedSoft(SmallConvNet().double(), 2, adam, proximal=0.1, selected=3)
    soft_rounds(algorithm, digits())


def soft_rounds(algorithm, federation):
    state = algorithm.init(federation, 2)
    for _ in range(3):
        centers, personal, importance = loops.fedsoft_round(algorithm, federation, state)
        state = whole_round(algorithm, state, federation)
        torch.testing.assert_close(importance, state.assignments)
        same(centers, state.bank)
        same(personal, state.personal)
    assert (state.assignments > algorithm.smoother).any(0).all()
