"""One-shot clustering and FedEM, each pinned to its algorithm."""

import re
from itertools import pairwise

import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn

import clusterfl_core as cf
from clusterfl_core import compute, evaluation, machine, simulation
from clusterfl_core.algorithms import baselines, fedavg
from clusterfl_core.algorithms import fedem as fedem_file
from clusterfl_core.banks import Bank
from clusterfl_core.contract import Replies
from clusterfl_core.populations import regression
from clusterfl_core.randomness import generator

THETA = torch.tensor([[3.0, 0, 0, 0], [0, 3, 0, 0], [0, 0, 3, 0]], dtype=torch.float64)


class Normal(cf.models.LinearRegression):
    """Linear regression whose models start apart: normal, not 0 or 1."""

    def reset_parameters(self):
        with torch.no_grad():
            self.theta.normal_()


class Exact:
    """A local solver that finds argmin of the weighted squared loss: the complete M step."""

    step_size = 0.1

    def train(self, bank, clients, key, weights):
        q = weights * clients.mask()
        left = torch.einsum("bn,bnd,bne->bde", q, clients.x, clients.x)
        right = torch.einsum("bn,bnd,bn->bd", q, clients.x, clients.y)
        return Bank(bank.model, {"theta": torch.linalg.solve(left, right)})


def ragged(clients=6, features=3, seed=0):
    """Clients of one linear model with 3 to 9 points each, in float64."""
    source = generator(99, seed)
    xs = [
        torch.randn(3 + i, features, generator=source, dtype=torch.float64) for i in range(clients)
    ]
    ys = [
        x.sum(1) * (1 - 2 * (i % 2))
        + 0.3 * torch.randn(len(x), generator=source, dtype=torch.float64)
        for i, x in enumerate(xs)
    ]
    train = cf.Clients.from_lists(xs, ys)
    return cf.Federation(train, train)


def bank_of(rows):
    rows = torch.as_tensor(rows, dtype=torch.float64)
    return Bank(Normal(rows.shape[1]).double(), {"theta": rows})


def without(replies, lost, each=1):
    """The replies that came although some clients failed."""
    rows = [i for i, c in enumerate(replies.clients.tolist()) if c not in lost]
    values = {name: value[rows] for name, value in replies.values.items()}
    bank = replies.bank.take([i * each + r for i in rows for r in range(each)])
    return Replies(replies.clients[rows], bank, values)


# One-shot clustering


def oneshot(clusters=3, features=4, **settings):
    settings = {"alone": cf.LocalSGD(300, 0.1), "local": cf.LocalSGD(2, 0.1), **settings}
    return cf.OneShot(Normal(features).double(), clusters, **settings)


@pytest.mark.parametrize("seed", range(3))
def test_planted_clusters_are_found_in_the_first_round(seed):
    federation = regression(THETA, 18, 30, 0.2, seed)
    run = cf.run(oneshot(), federation, 2, seed=seed)
    assert run.history[0]["identity_accuracy"] == 1.0
    assert adjusted_rand_score(run.assignments, federation.clusters) == 1.0
    assert run.history[-1]["error"] < 0.1
    nearest = run.models.distances(Bank(run.models.model, {"theta": THETA})).min(0).values
    assert nearest.max() < 0.2


def test_first_round_trains_every_client_alone_from_one_fresh_model():
    federation = regression(THETA, 6, 30, 0.2)
    algorithm = oneshot(participation=0.5)
    start = algorithm.init(federation, 0)
    assert start.assignments.tolist() == [-1] * 6
    jobs = algorithm.plan(start)
    assert jobs.clients.tolist() == list(range(6))
    first = start.bank.take(jobs.models[:, 0])
    assert (first.distances(first) == 0).all()
    replies = algorithm.client_step(jobs, federation.train)
    x, y = federation.train.x, federation.train.y
    best = torch.linalg.lstsq(x, y[..., None]).solution[..., 0]
    torch.testing.assert_close(replies.bank.flatten(), best, rtol=0, atol=1e-6)
    losses = ((y - torch.einsum("mnd,md->mn", x, best)) ** 2).mean(1)
    torch.testing.assert_close(replies.values["loss"], losses)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_clusters_model_is_the_mean_of_its_clients_in_every_round(weighted):
    federation = ragged()
    algorithm = oneshot(2, 3, weighted=weighted)
    state = algorithm.init(federation, 0)
    for t in range(3):
        jobs = algorithm.plan(state)
        replies = algorithm.client_step(jobs, federation.train)
        after = algorithm.absorb(state, [replies])
        if t:
            assert torch.equal(jobs.models[:, 0], state.assignments)
            start = state.bank.take(state.assignments)
            trained = algorithm.local.train(start, federation.train, (0, t))
            assert torch.equal(replies.bank.flatten(), trained.flatten())
            assert torch.equal(after.assignments, state.assignments)
            losses = compute.mean_losses(start, federation.train)
            assert torch.equal(replies.values["loss"], losses)
        for j in range(2):
            rows = (after.assignments == j).nonzero()[:, 0]
            share = federation.train.counts[rows].double() if weighted else torch.ones(len(rows))
            mean = share.double() @ replies.bank.flatten()[rows] / share.sum()
            torch.testing.assert_close(after.bank.flatten()[j], mean)
        assert after.round == t + 1
        state = after
    assert sorted(set(state.assignments.tolist())) == [0, 1]


def test_one_cluster_is_federated_averaging_after_the_first_round():
    federation = ragged()
    solver = cf.LocalSGD(3, 0.05, 2)
    mine = oneshot(1, 3, alone=solver, local=solver, participation=0.5)
    other = cf.FedAvg(mine.model, solver, participation=0.5)
    state = mine.init(federation, 0)
    assert torch.equal(state.bank.flatten(), other.init(federation, 0).bank.flatten())
    state, _jobs, _replies = simulation.round_trip(mine, state, federation.train)
    everybody = torch.zeros(6, dtype=torch.int64)
    same = fedavg.State(0, 1, state.bank, everybody, state.counts)
    for _ in range(3):
        state, jobs, _replies = simulation.round_trip(mine, state, federation.train)
        same, _jobs, _replies = simulation.round_trip(other, same, federation.train)
        assert len(jobs.clients) == 3
        assert torch.equal(state.bank.flatten(), same.bank.flatten())


def test_a_cluster_of_which_nobody_takes_part_keeps_its_model():
    federation = regression(THETA, 6, 30, 0.2)
    algorithm = oneshot(participation=0.2)
    state = simulation.round_trip(algorithm, algorithm.init(federation, 0), federation.train)[0]
    after, jobs, _replies = simulation.round_trip(algorithm, state, federation.train)
    assert len(jobs.clients) == 1
    worked = int(state.assignments[jobs.clients[0]])
    for j in range(3):
        same = torch.equal(after.bank.flatten()[j], state.bank.flatten()[j])
        assert same == (j != worked)


def test_bytes_of_one_shot_are_one_model_each_way():
    history = cf.run(oneshot(), regression(THETA, 6, 30, 0.2), 2).history
    assert [(r["bytes_down"], r["bytes_up"]) for r in history] == [(6 * 32, 6 * 32)] * 2


def test_a_client_without_a_local_model_stays_outside_for_good():
    federation = regression(THETA, 9, 30, 0.2)
    algorithm = oneshot()
    state = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    after = algorithm.absorb(state, [without(replies, {0, 5})])
    assert (after.assignments == -1).nonzero()[:, 0].tolist() == [0, 5]
    rest = [i for i in range(9) if i not in (0, 5)]
    assert adjusted_rand_score(after.assignments[rest], federation.clusters[rest]) == 1.0
    jobs = algorithm.plan(after)
    assert jobs.clients.tolist() == rest
    replies = algorithm.client_step(jobs, federation.train.take(jobs.clients))
    last = algorithm.absorb(after, [without(replies, {1})])
    for j in range(3):
        rows = [i for i in rest if i != 1 and int(after.assignments[i]) == j]
        where = [jobs.clients.tolist().index(i) for i in rows]
        mean = replies.bank.flatten()[where].mean(0)
        torch.testing.assert_close(last.bank.flatten()[j], mean)
    with pytest.raises(
        ValueError,
        match=r"^clusters must be at most the 2 clients that sent a local model, got 3$",
    ):
        algorithm.absorb(state, [Replies(replies.clients[:2], replies.bank.take([0, 1]))])


def test_kmeans_starts_are_fixed_by_the_seed_of_the_run():
    bank = bank_of(torch.randn(40, 4, generator=generator(99, 6)))
    one, same = (oneshot(starts=1).cluster(bank, 7) for _ in range(2))
    assert torch.equal(one, same)
    others = [oneshot(starts=1).cluster(bank, s) for s in range(8)]
    assert any(adjusted_rand_score(one, other) < 1 for other in others)

    def inertia(groups):
        rows = bank.flatten()
        means = torch.stack([rows[groups == j].mean(0) for j in range(3)])
        return float((rows - means[groups]).square().sum())

    best = inertia(oneshot(starts=50).cluster(bank, 7))
    assert best <= min(inertia(other) for other in others) + 1e-9


def test_one_shot_that_diverges_alone_says_so():
    federation = cf.populations.mixture_regression("linear", clients=6)
    algorithm = cf.OneShot(Normal(10), 2, cf.LocalSGD(200, 9.0), cf.LocalSGD(1, 0.1))
    with pytest.raises(simulation.Diverged, match=r"round 1: the loss of client 0") as caught:
        cf.run(algorithm, federation, 3)
    assert "the step size 9.0 or 0.1 is probably too large" in str(caught.value)
    assert caught.value.run.history == []


def test_a_model_that_is_not_finite_belongs_to_no_cluster():
    bank = bank_of([[0.0, 0], [9.0, 9], [float("nan"), 0], [0.1, 0], [9.1, 9]])
    groups = oneshot(2, 2).cluster(bank, 0)
    assert groups[2] == -1
    assert groups[0] == groups[3] != groups[1] == groups[4]
    assert oneshot(2, 2).cluster(bank.take([0, 2]), 0).tolist() == [-1, -1]


@pytest.mark.parametrize("at", [1, 2])
def test_a_resumed_one_shot_run_continues_bit_for_bit(tmp_path, at):
    federation = cf.populations.mixture_regression("random", clients=8, seed=2)
    model = cf.models.LinearRegression(10)
    algorithm = cf.OneShot(model, 2, cf.LocalAdam(20, 0.1, 30), cf.LocalSGD(3, 0.05, 20), 0.5)
    whole = cf.run(algorithm, federation, 4, seed=1)
    cf.run(algorithm, federation, at, seed=1, checkpoint=tmp_path / "run.pt")
    resumed = cf.run(algorithm, federation, 4, seed=1, checkpoint=tmp_path / "run.pt")
    assert torch.equal(whole.models.flatten(), resumed.models.flatten())
    assert torch.equal(whole.assignments, resumed.assignments)


@pytest.mark.parametrize("kind", [cf.OneShot, cf.FedEM])
@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clusters": 0}, r"clusters must be at least 1(?: or None)?, got 0"),
        ({"participation": 0.0}, r"participation must be in \(0, 1\], got 0.0"),
        ({"participation": 1.5}, r"participation must be in \(0, 1\], got 1.5"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(kind, settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        kind(nn.Linear(2, 2), **{"clusters": 2, **settings})


def test_fewer_starts_than_one_are_refused():
    with pytest.raises(ValueError, match=r"^starts must be at least 1, got 0$"):
        oneshot(starts=0)


@pytest.mark.parametrize("kind", [cf.OneShot, cf.FedEM])
def test_more_clusters_than_clients_are_refused_before_the_first_round(kind):
    with pytest.raises(ValueError, match=r"^clusters must be at most the 6 clients, got 7$"):
        cf.run(kind(Normal(3).double(), 7), ragged(), 2)


# FedEM


def fedem(clusters=2, features=3, **settings):
    settings = {"local": cf.LocalSGD(step_size=0.05), **settings}
    return cf.FedEM(Normal(features).double(), clusters, **settings)


def test_responsibilities_are_bayes_rule_at_every_point():
    federation, bank = ragged(), bank_of(torch.randn(3, 3, generator=generator(99, 3)))
    weights = torch.rand(6, 3, generator=generator(99, 4), dtype=torch.float64)
    weights /= weights.sum(1, keepdim=True)
    table = compute.point_loss_table(bank, federation.train)
    q, evidence = baselines.responsibilities(table, weights)
    for i in range(6):
        for point in range(int(federation.train.counts[i])):
            x, y = federation.train.x[i, point], federation.train.y[i, point]
            # Gaussian noise of variance 1/2: squared loss is its negative log-likelihood.
            normals = [
                float(torch.distributions.Normal(theta @ x, 0.5**0.5).log_prob(y).exp())
                for theta in bank.flatten()
            ]
            joint = [float(weights[i, j]) * normals[j] for j in range(3)]
            for j in range(3):
                assert float(q[j, i, point]) == pytest.approx(joint[j] / sum(joint))
            density = float(evidence[i, point].exp()) / torch.pi**0.5
            assert density == pytest.approx(sum(joint))


def test_responsibilities_of_classifiers_are_bayes_rule_with_their_probabilities():
    x, y = torch.randn(1, 4, 2, generator=generator(99, 5)), torch.tensor([[0, 1, 1, 0]])
    clients = cf.Clients(x, y, torch.tensor([4]))
    bank = Bank.initialize(nn.Linear(2, 2), 2, generator(99, 6))
    weights = torch.tensor([[0.3, 0.7]])
    q, evidence = baselines.responsibilities(compute.point_loss_table(bank, clients), weights)
    each = torch.stack([bank.module(j)(x[0]).softmax(1)[range(4), y[0]] for j in range(2)])
    joint = weights[0][:, None] * each
    torch.testing.assert_close(q[:, 0], (joint / joint.sum(0)).detach())
    torch.testing.assert_close(evidence[0], joint.sum(0).log().detach())


def test_no_likelihood_is_too_small_to_compare():
    table = torch.tensor([[[1e4]], [[1e4 + 1]]])
    q, evidence = baselines.responsibilities(table, torch.tensor([[0.5, 0.5]]))
    e = torch.e
    torch.testing.assert_close(
        q.flatten(), torch.tensor([e / (1 + e), 1 / (1 + e)]), rtol=1e-3, atol=0
    )
    assert evidence.isfinite().all()
    q, _evidence = baselines.responsibilities(table, torch.tensor([[0.0, 1.0]]))
    assert q.flatten().tolist() == [0, 1]


def test_a_client_finds_its_mixture_and_trains_every_model_on_weighted_losses():
    federation = ragged()
    algorithm = fedem(local=cf.LocalSGD(4, 0.05, 2))
    state = algorithm.init(federation, 0)
    assert state.assignments.tolist() == [[0.5, 0.5]] * 6
    jobs = algorithm.plan(state)
    assert jobs.models.tolist() == [[0, 1]] * 6
    replies = algorithm.client_step(jobs, federation.train)
    table = compute.point_loss_table(state.bank, federation.train)
    q, evidence = baselines.responsibilities(table, state.assignments)
    assert len(replies.bank) == 12
    for i, n in enumerate(federation.train.counts.tolist()):
        mean = q[:, i, :n].mean(1)
        torch.testing.assert_close(replies.values["mixture"][i], mean)
        assert float(replies.values["loss"][i]) == pytest.approx(-float(evidence[i, :n].mean()))
        for j in range(2):
            one = federation.train.take([i])
            start = state.bank.take([j])
            trained = algorithm.local.train(start, one, (0, 0), weights=q[j, [i]])
            found = replies.bank.flatten()[2 * i + j]
            torch.testing.assert_close(found, trained.flatten()[0], rtol=0, atol=1e-14)


def test_the_server_averages_each_model_with_weights_n_i():
    federation = ragged()
    algorithm = fedem()
    state = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    after = algorithm.absorb(state, [replies])
    share = federation.train.counts.double() / federation.train.counts.sum()
    wanted = torch.einsum("i,ijp->jp", share, replies.bank.flatten().view(6, 2, 3))
    torch.testing.assert_close(after.bank.flatten(), wanted)
    assert torch.equal(after.assignments, replies.values["mixture"])
    assert after.round == 1


def test_missing_replies_leave_the_mixture_and_the_mean_alone():
    federation = ragged()
    algorithm = fedem()
    state = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    after = algorithm.absorb(state, [without(replies, {0, 3}, each=2)])
    rest = [1, 2, 4, 5]
    assert after.assignments[[0, 3]].tolist() == [[0.5, 0.5]] * 2
    assert torch.equal(after.assignments[rest], replies.values["mixture"][rest])
    share = federation.train.counts[rest].double()
    each = replies.bank.flatten().view(6, 2, 3)[rest]
    wanted = torch.einsum("i,ijp->jp", share / share.sum(), each)
    torch.testing.assert_close(after.bank.flatten(), wanted)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_one_component_is_federated_averaging(participation):
    federation = cf.populations.mixture_regression("random", clients=8)
    solver = cf.LocalAdam(epochs=2, step_size=0.05, batch_size=30)
    model = cf.models.LinearRegression(10)
    one = cf.run(cf.FedEM(model, 1, solver, participation), federation, 3)
    other = cf.run(cf.FedAvg(model, solver, participation), federation, 3)
    torch.testing.assert_close(one.models.flatten(), other.models.flatten())
    for mine, theirs in zip(one.history, other.history, strict=True):
        assert mine["bytes_up"] == theirs["bytes_up"]
        assert mine["train_loss"] == pytest.approx(theirs["train_loss"])
        assert mine["error"] == pytest.approx(theirs["error"])


def likelihood(bank, mixture, federation):
    """Mean over all points of log sum_j pi_ij exp(-loss)."""
    table = compute.point_loss_table(bank, federation.train)
    _q, evidence = baselines.responsibilities(table, mixture)
    return float(evidence[federation.train.mask()].mean())


@pytest.mark.parametrize(
    ("clients", "solver"),
    [(1, Exact()), (6, cf.LocalSGD(1, 0.05))],
    ids=["full M step of one client", "one gradient step of all"],
)
def test_likelihood_never_decreases(clients, solver):
    # With one client the M step is complete. With several, one step a round averages to a
    # gradient step on the whole objective, which also is enough (generalised EM).
    whole = ragged(6)
    if clients == 1:
        x, y, mask = whole.train.x, whole.train.y, whole.train.mask()
        only = cf.Clients.from_lists([x[mask]], [y[mask]])
        whole = cf.Federation(only, only)
        start = Bank.initialize(Normal(3).double(), 2, generator(99, 7))
        state = fedavg.State(0, 0, start, torch.full((1, 2), 0.5, dtype=torch.float64), only.counts)
    else:
        state = fedem().init(whole, 1)
    algorithm = fedem(local=solver)
    values = [likelihood(state.bank, state.assignments, whole)]
    for _ in range(25):
        state = simulation.round_trip(algorithm, state, whole.train)[0]
        values.append(likelihood(state.bank, state.assignments, whole))
    assert all(new >= old - 1e-10 for old, new in pairwise(values))
    assert values[-1] > values[0] + 0.1


def test_two_lines_in_one_cloud_are_told_apart():
    federation = cf.populations.mixture_regression("random", clients=20, seed=1)
    algorithm = cf.FedEM(Normal(10), 2, cf.LocalSGD(10, 0.1))
    run = cf.run(algorithm, federation, 60, seed=0)
    table = evaluation.center_table(run.models, federation)
    order = table.argmin(1)
    assert sorted(order.tolist()) == [0, 1]
    assert table.min(1).values.max() < 2
    wrong = (run.assignments[:, order] - federation.truth["mixture"]).abs().mean()
    assert wrong < 0.06
    torch.testing.assert_close(run.assignments.sum(1), torch.ones(20).double(), rtol=0, atol=1e-5)
    assert run.history[-1]["error"] < 2


def test_bytes_of_fedem_are_all_models_both_ways():
    record = cf.run(fedem(), ragged(), 1).history[0]
    assert record["bytes_down"] == record["bytes_up"] == 6 * 2 * 24


def test_chunks_join_several_models_a_client_in_order(monkeypatch):
    federation = ragged()
    algorithm = fedem(local=cf.LocalSGD(4, 0.05, 2))
    whole = cf.run(algorithm, federation, 2)
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 4)
    parts = cf.run(algorithm, federation, 2)
    torch.testing.assert_close(whole.models.flatten(), parts.models.flatten(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("at", [1, 3])
def test_a_resumed_fedem_run_continues_bit_for_bit(tmp_path, at):
    federation = cf.populations.mixture_regression("random", clients=8, seed=2)
    solver = cf.LocalAdam(epochs=1, step_size=0.05, batch_size=50)
    algorithm = cf.FedEM(cf.models.LinearRegression(10), 2, solver, participation=0.5)
    whole = cf.run(algorithm, federation, 4, seed=1)
    cf.run(algorithm, federation, at, seed=1, checkpoint=tmp_path / "run.pt")
    resumed = cf.run(algorithm, federation, 4, seed=1, checkpoint=tmp_path / "run.pt")
    assert torch.equal(whole.models.flatten(), resumed.models.flatten())
    assert torch.equal(whole.assignments, resumed.assignments)


def test_fedem_that_diverges_says_so():
    federation = cf.populations.mixture_regression("linear", clients=6)
    with pytest.raises(simulation.Diverged, match=re.escape("the step size 9.0 is probably")):
        cf.run(cf.FedEM(Normal(10), 2, cf.LocalSGD(200, 9.0)), federation, 5)


class Noting:
    """A local solver that only notes its keys."""

    step_size = 0.1

    def __init__(self):
        self.keys = []

    def train(self, bank, clients, key, pull=None, weights=None):
        self.keys.append(key)
        return bank.map(lambda theta: theta + clients.ids[:, None])


def test_batches_are_those_of_the_seed_and_the_round():
    first, later, always = Noting(), Noting(), Noting()
    cf.run(oneshot(2, 3, alone=first, local=later), ragged(), 3, seed=7)
    assert list(dict.fromkeys(first.keys + later.keys)) == [(7, 0), (7, 1), (7, 2)]
    cf.run(fedem(local=always), ragged(), 3, seed=7)
    drawn = [(7, t) for t in range(3) for _component in range(2)]
    assert always.keys == 2 * drawn[:2] + drawn  # a client tried the first round twice before


# Evaluation of mixtures


def test_prediction_is_the_average_of_all_models_by_the_mixture_weights():
    bank, x = bank_of([[1.0, 0], [0.0, 2]]), torch.tensor([[[1.0, 1], [2, 0]], [[1, 1], [0, 3]]])
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]])
    found = fedem_file.mixed_outputs(bank, weights, x.double(), 0)
    assert found.tolist() == [[1.75, 0.5], [1.0, 0.0]]


def test_classifiers_are_mixed_by_probabilities_not_by_logits():
    weight = torch.tensor([[[9.0], [0.0]], [[-9.0], [0.0]]])
    bank = Bank(nn.Linear(1, 2, bias=False), {"weight": weight})
    x, weights = torch.tensor([[[1.0], [3.0]]]), torch.tensor([[0.4, 0.6]])
    found = fedem_file.mixed_outputs(bank, weights, x, 2)
    torch.testing.assert_close(found[0, :, 0], torch.tensor([0.4, 0.4]), rtol=0, atol=1e-3)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, 2))
    clients = cf.Clients(x, torch.tensor([[1, 0]]), torch.tensor([2]))
    federation = cf.Federation(clients, clients, classes=2)
    state = fedem_file.State(0, 1, bank, weights, clients.counts)
    assert evaluation.own_training_data(state, federation).tolist() == [0.5]


def test_a_new_client_finds_its_weights_on_its_own_data():
    federation = cf.populations.mixture_regression("random", clients=4, seed=3)
    bank = Bank(Normal(10), {"theta": federation.truth["theta"]})
    state = fedem_file.State(0, 1, bank, torch.full((4, 2), 0.5), federation.train.counts)
    found = fedem_file.mixture(state, federation)
    torch.testing.assert_close(found, torch.ones(2).double(), rtol=0, atol=0.15)
    algorithm = cf.FedEM(Normal(10), 2)
    assert torch.equal(evaluation.score(algorithm, state, federation), found)


def test_a_mixture_of_one_is_the_protocol_of_the_single_model():
    federation = cf.populations.mixture_regression("random", clients=4, seed=3)
    bank = Bank.initialize(Normal(10), 1, generator(99, 1))
    state = fedem_file.State(0, 1, bank, torch.ones(4, 1), federation.train.counts)
    found = fedem_file.mixture(state, federation)
    torch.testing.assert_close(found.float(), evaluation.lowest_loss(state, federation))


def test_fedem_clients_predict_with_their_own_mixture_on_held_out_data():
    federation = cf.populations.mixture_regression("30:70", clients=4, seed=3)
    theta, mix = federation.truth["theta"], federation.truth["mixture"]
    state = fedem_file.State(0, 1, Bank(Normal(10), {"theta": theta}), mix, federation.train.counts)
    held, test = evaluation.own_distribution(state, federation), federation.test
    own = evaluation.own_training_data(state, federation)
    for i in range(4):
        w = mix[i].float() @ theta
        pure = [float(((test.y[j] - test.x[j] @ w) ** 2).mean()) for j in range(2)]
        expected = float(mix[i, 0]) * pure[0] + float(mix[i, 1]) * pure[1]
        assert float(held[i]) == pytest.approx(expected, rel=1e-4)
        x, y = federation.train.points(i)
        assert float(own[i]) == pytest.approx(float(((y - x @ w) ** 2).mean()), rel=1e-4)


def test_own_distribution_of_clients_in_one_cluster_is_as_before():
    federation = regression(THETA, 6, 20, 0.5)
    run = cf.run(cf.LocalOnly(Normal(4).double(), cf.LocalSGD(20, 0.1)), federation, 1)
    found = evaluation.own_distribution(run.state, federation)
    for i in range(6):
        j = int(federation.clusters[i])
        alone = compute.mean_losses(run.models.take([i]), federation.test.take([j]))
        torch.testing.assert_close(found[i], alone[0])
    assert run.history[-1]["error"] == pytest.approx(float(found.mean()))
    bare = cf.Federation(federation.train, federation.test)
    everywhere = evaluation.own_distribution(run.state, bare)
    table = evaluation.center_table(run.models, federation).T
    torch.testing.assert_close(everywhere, table.mean(1))


def test_a_client_never_assigned_a_model_has_no_quality():
    federation = regression(THETA, 6, 20, 0.5)
    groups = torch.tensor([0, -1, 1, 2, 0, 1])
    bank = Bank(Normal(4).double(), {"theta": THETA})
    state = fedavg.State(0, 1, bank, groups, federation.train.counts)
    found = evaluation.own_training_data(state, federation)
    assert found.isnan().tolist() == [False, True] + [False] * 4
