"""FedSoft, pinned to its Algorithm 1 line by line."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

import clusterfl_core as cf
from clusterfl_core import evaluation, machine, simulation, theory
from clusterfl_core.algorithms import fedsoft
from clusterfl_core.banks import Bank
from clusterfl_core.contract import Replies
from clusterfl_core.randomness import generator


class Exact:
    """A local solver that finds argmin h_i of linear regression (line 17 as printed)."""

    step_size = 0.1

    def train(self, bank, clients, key, pull):
        strength, target = pull
        x = clients.inputs(bank.dtype) * clients.mask()[..., None]
        y = clients.y * clients.mask()
        n, d = clients.counts.to(bank.dtype), x.shape[2]
        left = 2 * x.mT @ x / n[:, None, None] + strength[:, None, None] * torch.eye(d).to(x)
        right = 2 * (x.mT @ y[..., None])[..., 0] / n[:, None] + target.tensors["theta"]
        return Bank(bank.model, {"theta": torch.linalg.solve(left, right)})


class Slow(cf.models.LinearRegression):
    """Linear regression whose models start apart: normal, not 0 or 1."""

    def reset_parameters(self):
        with torch.no_grad():
            self.theta.normal_()


def linear(clients=6, features=3, points=(5, 12), seed=0, clusters=2):
    """A small federation of mixed clients in float64."""
    source = generator(99, seed)
    theta = 3 * torch.randn(clusters, features, generator=source, dtype=torch.float64)
    xs, ys = [], []
    for i in range(clients):
        n = int(torch.randint(points[0], points[1] + 1, (1,), generator=source))
        x = torch.randn(n, features, generator=source, dtype=torch.float64)
        kinds = (torch.arange(n) < n * (i + 0.5) / clients).to(torch.int64) % clusters
        noise = torch.randn(n, generator=source, dtype=torch.float64)
        xs.append(x)
        ys.append((x * theta[kinds]).sum(1) + 0.1 * noise)
    train = cf.Clients.from_lists(xs, ys)
    return cf.Federation(train, train.take(range(2)))


def soft(federation, **settings):
    """FedSoft on linear regression in float64."""
    model = Slow(federation.train.x.shape[2]).double()
    return cf.FedSoft(model, settings.pop("clusters", 2), **settings)


def bank_of(rows):
    rows = torch.as_tensor(rows, dtype=torch.float64)
    return Bank(cf.models.LinearRegression(rows.shape[1]).double(), {"theta": rows})


def trips(algorithm, state, federation, rounds):
    """States after each of some round trips, with what travelled."""
    for _ in range(rounds):
        state, jobs, replies = simulation.round_trip(algorithm, state, federation.train)
        yield state, jobs, replies


def weighed(algorithm, federation, seed=0):
    """The state after the first weighing."""
    state = algorithm.init(federation, seed)
    return next(trips(algorithm, state, federation, 1))[0]


# Importance: lines 3 to 14


def test_importance_counts_the_points_that_each_center_explains_best():
    federation = linear(clusters=3)
    bank = bank_of(torch.randn(3, 3, generator=generator(99, 7)))
    found = fedsoft.estimate_importance(bank, federation.train, 0.05)
    assert found.dtype == torch.float64
    for i in range(6):
        x, y = federation.train.points(i)
        counts = [0, 0, 0]
        for point in range(len(y)):
            losses = [float((y[point] - c @ x[point].double()) ** 2) for c in bank.flatten()]
            counts[losses.index(min(losses))] += 1
        assert found[i].tolist() == [max(count / len(y), 0.05) for count in counts]


def test_importance_of_classifiers_reads_cross_entropy():
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [2.0, 1.0], [9.0, 9.0]]])
    clients = cf.Clients(x, torch.tensor([[0, 1, 0, 0]]), torch.tensor([3]))
    model = nn.Linear(2, 2, bias=False)
    weight = torch.stack([torch.eye(2), -torch.eye(2)])
    found = fedsoft.estimate_importance(Bank(model, {"weight": weight}), clients, 0.0)
    assert found.tolist() == [[1.0, 0.0]]


def test_equally_good_centers_leave_the_point_to_the_first():
    federation, bank = linear(), bank_of([[1.0, 2, 3]] * 3)
    found = fedsoft.estimate_importance(bank, federation.train, 0.01)
    assert found.tolist() == [[1.0, 0.01, 0.01]] * 6


def test_no_point_votes_for_a_center_whose_loss_is_not_a_number():
    federation = linear()
    rows = torch.randn(3, 3, generator=generator(99, 7))
    found = fedsoft.estimate_importance(bank_of(rows[1:]), federation.train, 0.0)
    rows[0, 0] = torch.nan
    sick = fedsoft.estimate_importance(bank_of(rows), federation.train, 0.0)
    assert torch.equal(sick, torch.nn.functional.pad(found, (1, 0)))


def test_smoother_lifts_only_what_lies_below_it():
    federation = linear()
    bank = bank_of(torch.randn(2, 3, generator=generator(99, 7)))
    plain = fedsoft.estimate_importance(bank, federation.train, 0.0)
    smooth = fedsoft.estimate_importance(bank, federation.train, 0.4)
    assert ((plain > 0) & (plain < 0.4)).any()
    assert torch.equal(smooth, torch.where(plain < 0.4, 0.4, plain))
    torch.testing.assert_close(plain.sum(1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_importance_is_estimated_only_where_the_interval_divides_the_round(interval):
    federation = linear()
    algorithm = soft(federation, local=cf.LocalSGD(step_size=0.05), interval=interval)
    found, before = [], algorithm.init(federation, 0)
    for after, jobs, replies in trips(algorithm, before, federation, 9):
        found.append("train" if replies.bank else "weigh")
        if replies.bank:
            assert torch.equal(after.assignments, before.assignments)
        else:
            assert torch.equal(jobs.clients, torch.arange(6))
            expected = fedsoft.estimate_importance(after.bank, federation.train, 1e-4)
            assert torch.equal(after.assignments, expected)
        before = after
    one = ["weigh"] + ["train"] * interval
    assert found == (one * 9)[:9]


def test_a_weighing_is_a_round_trip_that_trains_nobody_and_ends_no_round():
    federation = linear()
    algorithm = soft(federation)
    start = algorithm.init(federation, 0)
    state = weighed(algorithm, federation)
    assert state.round == 0
    assert state.weighed == 0
    assert torch.equal(state.bank.flatten(), start.bank.flatten())
    assert torch.equal(state.personal.flatten(), start.personal.flatten())
    assert (start.assignments == 0.5).all()


def test_bytes_of_both_trips_are_counted():
    federation = linear()
    algorithm = soft(federation, local=cf.LocalSGD(step_size=0.05), selected=2, interval=2)
    history = cf.run(algorithm, federation, 3).history
    for record in history:
        down = record["clients"] * 2 * 24 + (6 * 2 * 24 if record["round"] in (1, 3) else 0)
        assert record["bytes_down"] == down
        assert record["bytes_up"] == record["clients"] * 24


# Aggregation weights and selection: lines 15 and 16


def test_aggregation_weights_are_importance_times_points_over_all_clients():
    importance = torch.tensor([[0.5, 0.5], [1.0, 1e-4], [0.25, 0.75]], dtype=torch.float64)
    found = fedsoft.aggregation_weights(importance, torch.tensor([10, 20, 40]))
    by_hand = [[5 / 35, 20 / 35, 10 / 35], [5 / 35.002, 0.002 / 35.002, 30 / 35.002]]
    torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64))
    torch.testing.assert_close(found.sum(1), torch.ones(2, dtype=torch.float64))


def test_a_cluster_that_no_point_chose_treats_all_points_equally():
    importance = torch.tensor([[1.0, 1e-4]] * 3, dtype=torch.float64)
    found = fedsoft.aggregation_weights(importance, torch.tensor([10, 20, 10]))
    torch.testing.assert_close(found[1], torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64))
    without = fedsoft.aggregation_weights(importance.round(), torch.tensor([10, 20, 10]))
    assert without[1].tolist() == [0, 0, 0]


def test_selection_takes_each_client_at_most_once_for_a_cluster():
    weights = torch.rand(3, 10, generator=generator(99, 1), dtype=torch.float64)
    for t in range(50):
        chosen = fedsoft.select(weights, 4, (0, t))
        assert chosen.dtype == torch.bool
        assert chosen.sum(1).tolist() == [4, 4, 4]
        assert torch.equal(chosen, fedsoft.select(weights, 4, (0, t)))
    assert not torch.equal(chosen, fedsoft.select(weights, 4, (1, t)))
    assert not torch.equal(chosen[0], chosen[1])


def test_selection_frequencies_are_the_weights_and_clusters_are_independent():
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    draws = torch.stack([fedsoft.select(weights, 1, (5, t)) for t in range(4000)]).double()
    # four standard deviations of a frequency in 4,000 draws are at most 0.032
    torch.testing.assert_close(draws.mean(0), weights, atol=0.032, rtol=0)
    both = torch.einsum("ti,tj->ij", draws[:, 0], draws[:, 1]) / 4000
    torch.testing.assert_close(both, weights[0][:, None] * weights[1], atol=0.032, rtol=0)


def test_selecting_several_draws_in_turn_among_those_left():
    weights = torch.tensor([[0.5, 0.3, 0.2, 0.0]], dtype=torch.float64)
    draws = torch.stack([fedsoft.select(weights, 2, (5, t))[0] for t in range(4000)]).double()
    v = weights[0, :3].tolist()
    twice = [v[i] + sum(v[j] * v[i] / (1 - v[j]) for j in range(3) if j != i) for i in range(3)]
    torch.testing.assert_close(
        draws.mean(0), torch.tensor([*twice, 0.0]).double(), atol=0.032, rtol=0
    )


def test_selection_that_cannot_be_is_refused_in_one_sentence():
    weights = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^selected must be at most the 3 clients, got 4$"):
        fedsoft.select(weights, 4, (0, 0))
    with pytest.raises(
        ValueError, match="positive importance, got 2, but cluster 1 has 1; a positive smoother"
    ):
        fedsoft.select(weights, 2, (0, 0))


def test_workload_of_uniform_selection_is_the_papers_formula():
    # The formula assumes that every client is as likely as any other, for each cluster.
    for k in (2, 3):
        weights = torch.full((k, 50), 1 / 50, dtype=torch.float64)
        works = [int(fedsoft.select(weights, 20, (1, t)).any(0).sum()) for t in range(400)]
        expected = theory.workload(50, 20, k)
        assert abs(sum(works) / 400 - expected) < 0.6
    assert theory.workload(100, 60, 2) == pytest.approx(2 * 60 - 60**2 / 100)
    assert theory.workload(10, 10, 4) == 10


def test_workload_is_recorded_and_shared_interest_makes_it_smaller():
    federation = cf.populations.mixture_regression("10:90", clients=20)
    algorithm = cf.FedSoft(Slow(10), 2, cf.LocalAdam(1), selected=5)
    run = cf.run(algorithm, federation, 6)
    seen = list(_workers(algorithm, federation, 6))
    assert [record["clients"] for record in run.history] == seen
    assert all(5 <= workers <= 10 for workers in seen)
    assert len(set(seen)) > 1
    # Opposite interests share nobody: more work than the formula says.
    apart = torch.eye(2, dtype=torch.float64).repeat_interleave(10, 1) / 10
    assert int(fedsoft.select(apart, 5, (0, 0)).any(0).sum()) == 10
    assert theory.workload(20, 5, 2) == 8.75


def _workers(algorithm, federation, rounds):
    state = algorithm.init(federation, 0)
    while state.round < rounds:
        state, jobs, replies = simulation.round_trip(algorithm, state, federation.train)
        if replies.bank:
            yield len(jobs.clients)


# The proximal objective: line 17


@pytest.mark.parametrize("total", [1.0, 1.4])
@pytest.mark.parametrize("proximal", [0.0, 0.7])
def test_gradient_of_the_proximal_objective_is_autograds(total, proximal):
    federation = linear()
    clients = federation.train
    bank, w = bank_of(torch.randn(2, 3)), bank_of(torch.randn(6, 3))
    importance = torch.rand(6, 2, dtype=torch.float64)
    importance *= total / importance.sum(1, keepdim=True)

    leaf = w.tensors["theta"].clone().requires_grad_()
    value = fedsoft.objective(Bank(w.model, {"theta": leaf}), clients, bank, importance, proximal)
    by_hand = [
        ((y - x.double() @ leaf[i]) ** 2).mean()
        + proximal
        / 2
        * sum(importance[i, j] * ((leaf[i] - bank.flatten()[j]) ** 2).sum() for j in range(2))
        for i, (x, y) in enumerate(_double_points(clients))
    ]
    torch.testing.assert_close(value, torch.stack(by_hand))
    (slope,) = torch.autograd.grad(value.sum(), leaf)

    pull = fedsoft.proximal_pull(bank, importance, proximal)
    step = cf.LocalSGD(step_size=1.0).train(w, clients, (0, 0), pull)
    torch.testing.assert_close(w.flatten() - step.flatten(), slope)


def _double_points(clients):
    for i, n in enumerate(clients.counts.tolist()):
        yield clients.x[i, :n], clients.y[i, :n]


def test_equation_5_is_the_case_in_which_the_importance_sums_to_one():
    bank, importance = bank_of([[1.0, 2], [3, 5]]), torch.tensor([[0.25, 0.75]]).double()
    strength, target = fedsoft.proximal_pull(bank, importance, 2.0)
    assert strength.tolist() == [2.0]
    assert target.flatten().tolist() == [[2 * 2.5, 2 * 4.25]]
    strength, _target = fedsoft.proximal_pull(bank, importance + 0.1, 2.0)
    assert strength.item() == pytest.approx(2.4)


def test_one_problem_for_each_selected_client_whatever_the_number_of_clusters():
    federation = linear(clients=8, clusters=3)
    algorithm = soft(federation, clusters=3, local=cf.LocalSGD(step_size=0.05), selected=3)
    state = weighed(algorithm, federation)
    after, jobs, replies = next(trips(algorithm, state, federation, 1))
    chosen = algorithm.shares(state) > 0
    assert torch.equal(replies.clients, chosen.any(0).nonzero()[:, 0])
    assert len(replies.bank) == len(replies.clients) < 8
    others = [i for i in range(8) if i not in replies.clients.tolist()]
    assert torch.equal(after.personal.take(others).flatten(), state.personal.take(others).flatten())
    assert torch.equal(after.personal.take(replies.clients).flatten(), replies.bank.flatten())
    assert jobs.models.tolist() == [[0, 1, 2]] * len(replies.clients)


def test_without_pull_selected_clients_train_as_if_alone():
    federation = linear()
    solver = cf.LocalAdam(epochs=2, step_size=0.1, batch_size=4)
    algorithm = soft(federation, local=solver, proximal=0.0, selected=2)
    state = weighed(algorithm, federation)
    _after, jobs, replies = next(trips(algorithm, state, federation, 1))
    clients = federation.train.take(replies.clients)
    alone = solver.train(jobs.kept, clients, (0, 0))
    assert torch.equal(replies.bank.flatten(), alone.flatten())
    assert torch.equal(replies.values["loss"], cf.compute.mean_losses(jobs.kept, clients))


def test_a_strong_pull_makes_local_models_the_mean_of_the_centers_by_importance():
    federation = linear()
    algorithm = soft(federation, local=Exact(), proximal=1e9, smoother=0.6)
    state = weighed(algorithm, federation)
    after = next(trips(algorithm, state, federation, 1))[0]
    u = state.assignments
    expected = u @ state.bank.flatten() / u.sum(1, keepdim=True)
    torch.testing.assert_close(after.personal.flatten(), expected, atol=1e-5, rtol=0)
    assert (u.sum(1) > 1).any()


def test_warm_start_is_the_model_kept_and_cold_start_the_mean_of_the_centers():
    federation = linear()
    tiny = cf.LocalSGD(step_size=1e-12)
    for warm in (True, False):
        algorithm = soft(federation, local=tiny, warm_start=warm, smoother=0.6)
        kept = bank_of(torch.randn(6, 3, generator=generator(99, 4)))
        state = weighed(algorithm, federation)
        state = fedsoft.replace(state, personal=kept)
        jobs = algorithm.plan(state)
        assert (jobs.kept is not None) == warm
        replies = algorithm.client_step(jobs, federation.train)
        u = state.assignments
        assert (u.sum(1) > 1).any()
        mean = (u / u.sum(1, keepdim=True)) @ state.bank.flatten()
        start = kept.flatten() if warm else mean
        torch.testing.assert_close(replies.bank.flatten(), start)
        losses = cf.compute.mean_losses(bank_of(start), federation.train)
        torch.testing.assert_close(replies.values["loss"], losses)


def test_batches_and_step_sizes_are_those_of_the_seed_and_the_round():
    federation = linear()
    solver = cf.LocalAdam(epochs=2, step_size=0.1, batch_size=3, decay=0.5)
    algorithm = soft(federation, local=solver, interval=10, proximal=0.0)
    state = algorithm.init(federation, 7)
    for _after, jobs, replies in trips(algorithm, state, federation, 4):
        if replies.bank:
            wanted = solver.train(jobs.kept, federation.train, (7, jobs.round))
            assert torch.equal(replies.bank.flatten(), wanted.flatten())
    assert jobs.round == 2


def test_all_clients_begin_with_one_model_that_is_no_center():
    federation = linear()
    state = soft(federation).init(federation, 3)
    assert len(state.personal) == 6
    assert (state.personal.distances(state.personal) == 0).all()
    assert (state.personal.distances(state.bank) > 0).all()


# The server: line 18


def test_with_selection_a_center_is_the_plain_mean_of_the_clients_selected_for_it():
    federation = linear(clients=8)
    algorithm = soft(federation, local=Exact(), selected=3)
    state = weighed(algorithm, federation)
    after = next(trips(algorithm, state, federation, 1))[0]
    chosen = algorithm.shares(state)
    for j in range(2):
        members = chosen[j].nonzero()[:, 0]
        assert len(members) == 3
        mean = after.personal.take(members).flatten().mean(0)
        torch.testing.assert_close(after.bank.flatten()[j], mean)


def test_with_everyone_a_center_is_the_mean_by_aggregation_weights():
    federation = linear(clients=8)
    algorithm = soft(federation, local=Exact())
    state = weighed(algorithm, federation)
    after, jobs, _replies = next(trips(algorithm, state, federation, 1))
    assert len(jobs.clients) == 8
    v = fedsoft.aggregation_weights(state.assignments, federation.train.counts)
    torch.testing.assert_close(after.bank.flatten(), v @ after.personal.flatten())
    assert after.round == 1


def test_selecting_all_clients_makes_all_centers_equal():
    federation = linear()
    run = cf.run(soft(federation, local=Exact(), selected=6), federation, 1)
    torch.testing.assert_close(run.models.flatten()[0], run.models.flatten()[1])


def _far_center(state):
    far = torch.cat([state.bank.flatten()[:1], torch.full((1, 3), 1e6, dtype=torch.float64)])
    return fedsoft.replace(state, bank=bank_of(far))


def test_a_center_without_importance_keeps_its_model_where_nothing_smooths():
    federation = linear()
    algorithm = soft(federation, local=Exact(), smoother=0.0)
    state = _far_center(algorithm.init(federation, 0))
    for after, _jobs, _replies in trips(algorithm, state, federation, 5):
        assert after.bank.flatten()[1].tolist() == [1e6] * 3
        assert after.bank.flatten().isfinite().all()
    assert after.round == 3
    assert after.empty.tolist() == [0, 3]


def test_a_smoothed_center_without_importance_is_drawn_to_everyone():
    federation = linear()
    algorithm = soft(federation, local=Exact(), smoother=1e-4)
    state = _far_center(algorithm.init(federation, 0))
    state = list(trips(algorithm, state, federation, 2))[-1][0]
    counts = federation.train.counts.double()
    mean = counts @ state.personal.flatten() / counts.sum()
    torch.testing.assert_close(state.bank.flatten()[1], mean)
    assert state.empty.tolist() == [0, 1]


def test_empty_centers_reach_the_history():
    federation = linear()
    algorithm = soft(federation, clusters=6, local=cf.LocalSGD(step_size=0.01))
    assert all(0 <= record["empty"] <= 5 for record in cf.run(algorithm, federation, 3).history)


# Missing replies


def _without(replies, lost):
    rows = [i for i, c in enumerate(replies.clients.tolist()) if c not in lost]
    values = {name: value[rows] for name, value in replies.values.items()}
    bank = replies.bank.take(rows) if replies.bank else None
    return Replies(replies.clients[rows], bank, values)


def test_a_client_that_does_not_weigh_keeps_its_last_importance():
    federation = linear()
    algorithm = soft(federation, selected=2)
    state = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    after = algorithm.absorb(state, [_without(replies, {1, 4})])
    assert after.assignments[[1, 4]].tolist() == [[0.5, 0.5]] * 2
    rest = [0, 2, 3, 5]
    assert torch.equal(after.assignments[rest], replies.values["importance"][rest])
    assert after.weighed == 0
    assert algorithm.plan(after).values


@pytest.mark.parametrize("selected", [None, 3])
def test_a_client_that_does_not_train_is_left_out_of_the_means(selected):
    federation = linear()
    algorithm = soft(federation, local=Exact(), selected=selected)
    state = weighed(algorithm, federation)
    jobs = algorithm.plan(state)
    replies = algorithm.client_step(jobs, federation.train.take(jobs.clients))
    lost = {int(jobs.clients[0])}
    after = algorithm.absorb(state, [_without(replies, lost)])
    shares = algorithm.shares(state).clone()
    shares[:, list(lost)] = 0
    shares /= shares.sum(1, keepdim=True)
    torch.testing.assert_close(after.bank.flatten(), shares @ after.personal.flatten())
    assert torch.equal(after.personal.flatten()[list(lost)], state.personal.flatten()[list(lost)])


def test_a_center_whose_clients_all_failed_keeps_its_model():
    federation = linear()
    algorithm = soft(federation, local=Exact(), selected=1)
    state = weighed(algorithm, federation)
    seeds = (fedsoft.replace(state, seed=s) for s in range(100))
    state = next(s for s in seeds if len(algorithm.plan(s).clients) == 2)
    jobs = algorithm.plan(state)
    replies = algorithm.client_step(jobs, federation.train.take(jobs.clients))
    lost = int(algorithm.shares(state)[1].argmax())
    after = algorithm.absorb(state, [_without(replies, {lost})])
    assert torch.equal(after.bank.flatten()[1], state.bank.flatten()[1])
    kept = _without(replies, {lost}).bank.flatten()[0]
    torch.testing.assert_close(after.bank.flatten()[0], kept)


# Theorem 5: block coordinate descent


def joint(state, federation, proximal, weights=None):
    values = fedsoft.objective(
        state.personal, federation.train, state.bank, state.assignments, proximal
    )
    return float((values if weights is None else values * weights).sum())


@pytest.mark.parametrize("solver", [Exact(), cf.LocalSGD(100, 0.05)], ids=["exact", "many steps"])
def test_joint_objective_never_increases_for_fixed_importance(solver):
    federation = linear(points=(9, 9))
    algorithm = soft(federation, local=solver, interval=10**6, proximal=0.8)
    state = weighed(algorithm, federation)
    values = [joint(state, federation, 0.8)]
    for after, _jobs, _replies in trips(algorithm, state, federation, 40):
        values.append(joint(after, federation, 0.8))
    assert all(new <= old + 1e-12 for old, new in pairwise(values))
    assert values[-1] < values[0] / 2


def test_fixed_importance_leads_to_the_minimum_of_the_joint_objective():
    federation = linear(points=(9, 9))
    algorithm = soft(federation, local=Exact(), interval=10**6, proximal=0.8)
    state = weighed(algorithm, federation)
    state = list(trips(algorithm, state, federation, 300))[-1][0]
    leaves = [t.flatten().clone().requires_grad_() for t in (state.personal, state.bank)]
    value = fedsoft.objective(
        bank_of(leaves[0]), federation.train, bank_of(leaves[1]), state.assignments, 0.8
    ).sum()
    for slope in torch.autograd.grad(value, leaves):
        assert slope.abs().max() < 1e-8


def test_clients_of_different_size_need_the_objective_weighted_by_points():
    # Theorem 5 sums h_i over clients, but the weights v_ji of line 15 minimise over c the sum of
    # n_i h_i. The two agree for clients of equal size only.
    federation = linear(points=(4, 40), seed=3)
    counts = federation.train.counts.double()
    algorithm = soft(federation, local=Exact(), interval=10**6, proximal=0.8)
    state = weighed(algorithm, federation)
    plain, weighted = [], []
    for after, _jobs, _replies in trips(algorithm, state, federation, 60):
        plain.append(joint(after, federation, 0.8))
        weighted.append(joint(after, federation, 0.8, counts))
    assert all(new <= old + 1e-9 for old, new in pairwise(weighted))
    assert any(new > old + 1e-6 for old, new in pairwise(plain))


# Settings, runs, checkpoints


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"proximal": -0.1}, "proximal must not be negative, got -0.1"),
        ({"proximal": math.nan}, "proximal must not be negative, got nan"),
        ({"selected": 0}, "selected must be at least 1 or None, got 0"),
        ({"interval": 0}, "interval must be at least 1, got 0"),
        ({"smoother": -1e-9}, r"smoother must be in \[0, 1\), got -1e-09"),
        ({"smoother": 1.0}, r"smoother must be in \[0, 1\), got 1.0"),
        (
            {"smoother": 0.0, "selected": 3},
            "smoother must be positive where clients are selected, got 0: a cluster that no point "
            "has chosen would have nobody to select",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        soft(linear(), **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clusters": 7}, "clusters must be at most the 6 clients, got 7"),
        ({"selected": 7}, "selected must be at most the 6 clients, got 7"),
    ],
)
def test_more_than_there_are_clients_is_refused_before_the_first_round(settings, sentence):
    federation = linear()
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        cf.run(soft(federation, **settings), federation, 5)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("warm", [True, False])
def test_a_resumed_run_continues_bit_for_bit(tmp_path, at, warm):
    federation = cf.populations.mixture_regression("random", clients=9, seed=2)
    solver = cf.LocalAdam(epochs=1, step_size=0.05, batch_size=50)
    model = cf.models.LinearRegression(10)
    algorithm = cf.FedSoft(model, 2, solver, selected=3, interval=3, warm_start=warm)
    whole = cf.run(algorithm, federation, 5, seed=1)
    cf.run(algorithm, federation, at, seed=1, checkpoint=tmp_path / "run.pt")
    resumed = cf.run(algorithm, federation, 5, seed=1, checkpoint=tmp_path / "run.pt")
    for name in ("bank", "personal"):
        one, other = getattr(whole.state, name), getattr(resumed.state, name)
        assert torch.equal(one.flatten(), other.flatten())
    assert torch.equal(whole.assignments, resumed.assignments)
    assert whole.assignments.shape == (9, 2)
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_results_do_not_depend_on_chunks(monkeypatch):
    federation = cf.populations.mixture_regression("linear", clients=9)
    algorithm = cf.FedSoft(Slow(10), 2, cf.LocalAdam(5, 0.05, 10), selected=4)
    whole = cf.run(algorithm, federation, 3)
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 2)
    parts = cf.run(algorithm, federation, 3)
    torch.testing.assert_close(whole.models.flatten(), parts.models.flatten(), rtol=0, atol=1e-6)
    assert torch.equal(whole.assignments, parts.assignments)


def test_a_run_that_diverges_says_when_who_and_why():
    federation = cf.populations.mixture_regression("linear", clients=6)
    algorithm = cf.FedSoft(Slow(10), 2, cf.LocalSGD(50, 9.0), selected=2)
    sentence = r"round \d: the (loss|model) of client \d"
    with pytest.raises(simulation.Diverged, match=sentence) as caught:
        cf.run(algorithm, federation, 50)
    assert "the step size 9.0 is probably too large" in str(caught.value)
    done = caught.value.run
    assert len(done.history) == done.state.round


def test_classifiers_on_mixed_images():
    source = generator(99, 8)
    x = torch.randint(0, 256, (6, 20, 4, 4), generator=source, dtype=torch.uint8)
    bright = (x.flatten(2).double().mean(2) > 127.5).to(torch.int64)
    y = torch.where(torch.arange(20) < 3 * torch.arange(1, 7)[:, None], bright, 1 - bright)
    clients = cf.Clients(x, y, torch.tensor([20, 18, 20, 20, 15, 20]))
    federation = cf.Federation(clients, clients, classes=2)
    solver = cf.LocalAdam(epochs=10, step_size=0.02, batch_size=5)
    run = cf.run(cf.FedSoft(cf.models.MLP(16, 8, 2), 2, solver, proximal=0.1), federation, 15)
    first, last = run.history[0], run.history[-1]
    assert last["train_loss"] < 0.8 * first["train_loss"]
    assert evaluation.own_training_data(run.state, federation).mean() > 0.75


# Evaluation: pure hold-out sets, own training data, held-out data of the own mixture


def test_centers_are_judged_on_every_pure_distribution():
    federation = cf.populations.mixture_regression("10:90", clients=10)
    table = evaluation.center_table(_truth(federation), federation)
    theta = federation.truth["theta"]
    apart = float((theta[0] - theta[1]).square().sum())
    wanted = torch.tensor([[1.0, 1 + apart], [1 + apart, 1.0]])
    torch.testing.assert_close(table, wanted, rtol=0.2, atol=0)
    algorithm = cf.FedSoft(Slow(10), 2, cf.LocalAdam(20, 0.1))
    run = cf.run(algorithm, federation, 2)
    best = evaluation.center_table(run.models, federation).min(1).values
    assert run.history[-1]["error"] == pytest.approx(float(best.mean()))


def _truth(federation):
    return Bank(cf.models.LinearRegression(10), {"theta": federation.truth["theta"]})


def test_accuracy_of_every_center_on_every_test_client():
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [3.0, 0.0]]])
    clients = cf.Clients(x, torch.tensor([[0, 1], [0, 1]]), torch.tensor([2, 2]))
    federation = cf.Federation(clients, clients, classes=2)
    weight = torch.stack([torch.eye(2), -torch.eye(2)])
    bank = Bank(nn.Linear(2, 2, bias=False), {"weight": weight})
    assert evaluation.center_table(bank, federation).tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_personal_models_are_judged_on_their_own_training_data_and_on_held_out_data():
    federation = cf.populations.mixture_regression("30:70", clients=6)
    run = cf.run(cf.FedSoft(Slow(10), 2, cf.LocalAdam(50, 0.2), proximal=0.1), federation, 3)
    own = evaluation.own_training_data(run.state, federation)
    held = evaluation.own_distribution(run.state, federation)
    mix, test = federation.truth["mixture"], federation.test
    for i in range(6):
        w = run.state.personal.flatten()[i]
        x, y = federation.train.points(i)
        assert float(own[i]) == pytest.approx(float(((y - x @ w) ** 2).mean()), rel=1e-4)
        pure = [float(((test.y[j] - test.x[j] @ w) ** 2).mean()) for j in range(2)]
        expected = float(mix[i, 0]) * pure[0] + float(mix[i, 1]) * pure[1]
        assert float(held[i]) == pytest.approx(expected, rel=1e-4)
    assert own.mean() < held.mean()


def test_soft_assignments_count_as_identities_where_the_truth_is_one_cluster_a_client():
    theta = torch.tensor([[5.0, 0.0, 0.0], [0.0, -5.0, 0.0]])
    federation = cf.populations.regression(theta, 8, 40, 0.1)
    run = cf.run(cf.FedSoft(Slow(3), 2, cf.LocalAdam(40, 0.2), selected=2), federation, 10, seed=1)
    assert run.history[-1]["identity_accuracy"] == 1.0
    assert evaluation.hard(run.assignments).shape == (8,)
    assert torch.equal(evaluation.hard(torch.tensor([1, 0])), torch.tensor([1, 0]))


# The synthetic populations


@pytest.mark.parametrize(
    ("pattern", "first"),
    [
        ("10:90", [0.1] * 50 + [0.9] * 50),
        ("30:70", [0.3] * 50 + [0.7] * 50),
        ("linear", [(0.5 + i) / 100 for i in range(100)]),
    ],
)
def test_patterns_of_two_distributions(pattern, first):
    federation = cf.populations.mixture_regression(pattern, seed=4)
    mix, counts = federation.truth["mixture"], federation.train.counts
    assert len(federation) == 100
    assert 100 <= int(counts.min()) < int(counts.max()) <= 200
    assert (mix[:, 0] - torch.tensor(first)).abs().max() <= 0.5 / 100 + 1e-12
    torch.testing.assert_close(mix.sum(1), torch.ones(100, dtype=torch.float64))
    assert federation.test_clusters.tolist() == [0, 1]
    assert federation.test.counts.tolist() == [1000, 1000]
    assert federation.clusters is None


def test_random_pattern_cuts_the_unit_interval():
    mix = cf.populations.mixture_regression("random", clients=400, clusters=3).truth["mixture"]
    assert mix.shape == (400, 3)
    assert (mix >= 0).all()
    torch.testing.assert_close(mix.sum(1), torch.ones(400, dtype=torch.float64))
    # Spacings of 2 uniform points: each has mean 1/3 and variance 1/18.
    torch.testing.assert_close(mix.mean(0), torch.full((3,), 1 / 3).double(), atol=0.05, rtol=0)
    torch.testing.assert_close(mix.var(0), torch.full((3,), 1 / 18).double(), atol=0.015, rtol=0)
    edges = mix.cumsum(1)[:, 0]
    assert (edges == 0.5).sum() < 40


def test_points_follow_the_distribution_they_are_counted_for():
    federation = cf.populations.mixture_regression("random", clients=30, clusters=3, seed=5)
    theta, mix = federation.truth["theta"], federation.truth["mixture"]
    assert theta.shape == (3, 10)
    for i in range(30):
        x, y = federation.train.points(i)
        counts = (mix[i] * len(y)).round().long()
        kinds = torch.arange(3).repeat_interleave(counts)
        assert (y - (x * theta[kinds]).sum(1)).abs().max() < 5.5
    noise = federation.test.y - torch.einsum("jnd,jd->jn", federation.test.x, theta)
    torch.testing.assert_close(noise.std(1), torch.ones(3), atol=0.1, rtol=0)
    torch.testing.assert_close(federation.test.x.std(), torch.tensor(1.0), atol=0.03, rtol=0)


def test_theta_has_the_variance_asked_for():
    many = [cf.populations.mixture_regression("random", 8, 8, s).truth["theta"] for s in range(40)]
    assert float(torch.stack(many).var()) == pytest.approx(10, rel=0.1)
    wide = cf.populations.mixture_regression("random", 8, 8, 0, variance=100.0).truth["theta"]
    torch.testing.assert_close(wide, many[0] * 10**0.5)
    assert cf.populations.mixture_regression("linear", 4, features=2).train.x.shape[2] == 2


def test_a_population_is_fixed_by_its_seed():
    one, same, other = (cf.populations.mixture_regression("random", 5, seed=s) for s in (1, 1, 2))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("20:80", 10), "pattern must be '10:90', '30:70', 'linear' or 'random', got '20:80'"),
        (("10:90", 9), "clients must be even for pattern '10:90', got 9"),
        (("linear", 9, 3), "pattern 'linear' mixes 2 clusters, got 3; use 'random'"),
        (("random", 9, 1), "clusters must be at least 2 to be mixed, got 1"),
        (("random", 2, 3), "clusters must be at most the 2 clients, got 3"),
    ],
)
def test_populations_that_cannot_be_are_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        cf.populations.mixture_regression(*arguments)


@pytest.mark.parametrize(("name", "value"), [("features", 0), ("variance", 0.0)])
def test_numbers_that_cannot_be_are_refused_in_one_sentence(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be .*, got {value}$"):
        cf.populations.mixture_regression("linear", 4, **{name: value})


# The paper's synthetic experiment, shortened


def test_centers_learn_one_distribution_each_and_importance_the_mixture():
    federation = cf.populations.mixture_regression("10:90", clients=40, seed=0)
    solver = cf.LocalAdam(step_size=0.05, batch_size=50, epochs=5)
    run = cf.run(cf.FedSoft(Slow(10), 2, solver, selected=20), federation, 20, seed=0)
    table = evaluation.center_table(run.models, federation)
    order = table.argmin(1)
    assert sorted(order.tolist()) == [0, 1]
    assert (table.min(1).values < 0.6 * table.max(1).values).all()
    wrong = (run.assignments[:, order] - federation.truth["mixture"]).abs().mean()
    assert wrong < 0.06
