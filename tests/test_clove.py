"""CLoVE, each line of what it does and each defect of the released program that is not repeated."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from test_oneshot_fedem import THETA, Normal, bank_of, ragged, without

import clusterfl_core as cf
from clusterfl_core import compute, simulation
from clusterfl_core.algorithms.clove import chosen_number, k_means, matched
from clusterfl_core.contract import Replies, traffic
from clusterfl_core.populations import regression

SGD = cf.LocalSGD(5, 0.1)


def clove(clusters=3, features=4, local=SGD, **more):
    return cf.CLoVE(Normal(features).double(), clusters, local, **more)


def lines(seed=0, clients=18):
    return regression(THETA, clients, 30, 0.2, seed)


def told(algorithm, state, vectors, clients=None):
    """The state after clients have said these loss vectors."""
    clients = torch.arange(len(vectors)) if clients is None else clients
    losses = torch.as_tensor(vectors, dtype=torch.float64)
    return algorithm.absorb(state, iter([Replies(clients, None, {"losses": losses})]))


def trained(algorithm, state, federation):
    """The state after the second round trip."""
    return simulation.round_trip(algorithm, state, federation.train)[0]


# ---------------------------------------------------------------- a round


def test_models_are_drawn_independently():
    start = clove().init(lines(), 0)
    assert len(start.bank) == 3
    assert (start.bank.distances(start.bank) + torch.eye(3) > 0).all()
    assert start.assignments.tolist() == [-1] * 18


def test_a_client_answers_with_its_mean_training_loss_under_every_model():
    federation, algorithm = ragged(), clove(2, 3)
    jobs = algorithm.plan(algorithm.init(federation, 0))
    assert jobs.models.tolist() == [[0, 1]] * 6
    replies = algorithm.client_step(jobs, federation.train)
    assert replies.bank is None
    for i, row in enumerate(replies.values["losses"]):
        n = int(federation.train.counts[i])
        x, y = federation.train.x[i, :n], federation.train.y[i, :n]
        for j, theta in enumerate(jobs.bank.tensors["theta"]):
            torch.testing.assert_close(row[j], ((y - x @ theta) ** 2).mean())


def test_the_server_clusters_vectors_not_preferences():
    """All prefer model 0; two patterns of losses are two clusters all the same. IFCA sees one."""
    vectors = [[0.1, 5.0]] * 3 + [[0.2, 0.3]] * 3
    algorithm = clove(2, 3)
    start = algorithm.init(ragged(), 0)
    assert told(algorithm, start, vectors).assignments.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.tensor(vectors).argmin(1).tolist() == [0] * 6


def test_the_first_round_by_chance_ignores_the_losses_and_leaves_no_model_without_a_client():
    federation, vectors = lines(), torch.rand(18, 3, dtype=torch.float64)
    for seed in range(20):
        algorithm = clove(first="random")
        start = algorithm.init(federation, seed)
        one = told(algorithm, start, vectors).assignments
        assert torch.equal(one, told(algorithm, start, vectors * 100).assignments)
        assert one.unique().tolist() == [0, 1, 2]
        few = told(algorithm, start, vectors[:2], torch.tensor([3, 7])).assignments
        assert few[few >= 0].unique().numel() == 2
    later = replace(start, round=1)
    assert torch.equal(
        told(algorithm, later, vectors).assignments, told(clove(), later, vectors).assignments
    )


def test_k_means_has_one_start_unless_told():
    assert clove().starts == 1
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double()

    def spread(labels):
        return sum(
            float((rows[labels == j] - rows[labels == j].mean(0)).square().sum())
            for j in labels.unique()
        )

    one, ten = ([spread(k_means(rows, 8, n, seed)) for seed in range(12)] for n in (1, 10))
    assert sum(ten) < sum(one)
    assert max(ten) < max(one)
    assert torch.equal(k_means(rows, 8, 1, 3), k_means(rows, 8, 1, 3))


def test_k_means_always_fills_its_clusters():
    """Equal clients, noise apart, are cut into K groups: CLoVE fails where there are none."""
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(1)).double()
    assert k_means(rows, 4, 1, 0).unique().tolist() == [0, 1, 2, 3]
    assert k_means(torch.ones(5, 3).double(), 3, 1, 0).tolist() == [0] * 5  # no warning either


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 10**6))
def test_clusters_are_matched_to_models_at_the_least_sum_of_losses(clusters, more, seed):
    source = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.arange(clusters), torch.randint(clusters, (6,), generator=source)])
    vectors = torch.rand(len(labels), clusters + more, generator=source).double()
    given_ = matched(labels, vectors)
    cost = torch.stack([vectors[labels == c].sum(0) for c in range(clusters)]).numpy()
    rows, columns = linear_sum_assignment(cost)
    total = float(vectors[torch.arange(len(labels)), given_].sum())
    assert total == pytest.approx(cost[rows, columns].sum())
    assert len(set(given_.tolist())) == clusters


def test_a_large_cluster_counts_more_in_the_matching():
    """Sums, not means: five clients that lose 1 weigh more than one that loses 4."""
    labels = torch.tensor([0] * 5 + [1])
    vectors = torch.tensor([[1.0, 2.0]] * 5 + [[1.0, 5.0]]).double()
    assert matched(labels, vectors).tolist() == [0] * 5 + [1]  # by means cluster 1 had model 0


def test_each_client_trains_the_model_of_its_cluster_and_means_have_weights_n():
    federation, algorithm = ragged(), clove(2, 3)
    start = algorithm.init(federation, 0)
    state = told(algorithm, start, [[0, 5.0], [5, 0]] * 3)
    jobs = algorithm.plan(state)
    assert jobs.models[:, 0].tolist() == state.assignments.tolist() == [0, 1] * 3
    replies = algorithm.client_step(jobs, federation.train)
    walked = SGD.train(start.bank.take([0, 1] * 3), federation.train, (0, 0))
    assert torch.equal(replies.bank.flatten(), walked.flatten())
    after = algorithm.absorb(state, iter([replies]))
    n = federation.train.counts.double()
    for j in range(2):
        rows = torch.arange(j, 6, 2)
        mean = n[rows] @ walked.flatten()[rows] / n[rows].sum()
        torch.testing.assert_close(after.bank.flatten()[j], mean)
    assert (after.round, after.told) == (1, False)


def test_a_model_without_clients_keeps_its_parameters():
    federation, algorithm = ragged(), clove(3, 3)
    start = algorithm.init(federation, 0)
    state = told(algorithm, start, [[0.0, 5, 9], [5, 0, 9]] * 3)
    after = trained(algorithm, state, federation)
    assert torch.equal(after.bank.flatten()[2], start.bank.flatten()[2])
    assert not torch.equal(after.bank.flatten()[0], start.bank.flatten()[0])


def test_one_cluster_is_federated_averaging():
    federation = ragged()
    mine = cf.run(clove(1, 3, participation=0.5), federation, 3)
    other = cf.run(cf.FedAvg(Normal(3).double(), SGD, 0.5), federation, 3)
    assert torch.equal(mine.models.flatten(), other.models.flatten())
    assert mine.history[0]["bytes_down"] == other.history[0]["bytes_down"]


def test_square_roots_are_taken_for_clustering_only():
    squares = torch.tensor([[0.0, 4.0], [1.0, 9.0], [16.0, 36.0], [25.0, 49.0]]).double()
    roots = clove(2, 3, square_root=True).cluster(squares, 0)
    assert torch.equal(roots, k_means(squares.sqrt(), 2, 1, 0))


# ---------------------------------------------------------------- the price


def test_a_round_costs_all_models_and_one_down_one_up_and_a_look_at_each():
    """The program's clients keep what they were sent; here the one model comes again."""
    federation, algorithm = lines(), clove()
    size = 4 * 8
    run = cf.run(algorithm, federation, 2)
    assert [r["bytes_down"] for r in run.history] == [18 * (3 + 1) * size] * 2
    assert [r["bytes_up"] for r in run.history] == [18 * size] * 2
    start = algorithm.init(federation, 0)
    _, _, work = cf.comparison.one_round(algorithm, start, federation)
    assert work == pytest.approx(5 + 3 / 3)


def test_after_stability_a_round_costs_one_model_each_way_and_no_look():
    federation, algorithm = lines(), clove(patience=2)
    seen = [*cf.rounds(algorithm, federation, 8)]
    first = next(t for t, one in enumerate(seen) if one.state.stable)
    assert len(seen[first].trips) == 2
    for one in seen[first + 1 :]:
        assert len(one.trips) == 1
        assert traffic(one.jobs, 18) == (18 * 32, 18 * 32)
        assert algorithm.passes(one.jobs) == 5
        assert torch.equal(one.state.assignments, seen[first].state.assignments)


# ---------------------------------------------------------------- stability


def settle(patterns, patience=3, clients=4):
    """Whether assignments were settled after each of some rounds with these given assignments."""
    algorithm = clove(2, 3, patience=patience)
    federation, found = ragged(clients), []
    state = algorithm.init(federation, 0)
    for pattern in patterns:
        if state.stable:  # nobody who is known looks any more
            found.append(True)
            continue
        there = torch.tensor([i for i, j in enumerate(pattern) if j is not None])
        losses = [[float(j == 1), float(j == 0)] for j in pattern if j is not None]
        state = told(algorithm, state, losses, there)
        assert [state.assignments[i] for i in there] == [j for j in pattern if j is not None]
        found.append(state.stable)
        state = replace(state, told=False, round=state.round + 1)
    return found


def test_assignments_are_settled_after_three_equal_rounds():
    assert settle([[0, 0, 1, 1]] * 4) == [False, False, True, True]


def test_a_b_a_is_not_stable():
    """The program compares the last assignment with the one three rounds ago and nothing else."""
    a, b = [0, 0, 1, 1], [0, 1, 1, 0]
    assert settle([a, b, a]) == [False] * 3
    assert settle([a, a, b, a, a, a])[-2:] == [False, True]


def test_stability_looks_at_each_clients_own_last_rounds():
    """Client 3 comes every other time: its last three participations count, not its last rounds."""
    often, seldom = [0, 0, 1, 1], [0, 0, 1, None]
    assert settle([often, seldom] * 3) == [False] * 4 + [True] * 2
    changed = [0, 0, 1, 0]
    assert settle([often, seldom, seldom, changed, seldom]) == [False] * 5


def test_without_patience_nothing_is_settled():
    assert settle([[0, 0, 1, 1]] * 9, patience=None) == [False] * 9


def late(patience=1):
    """Settled assignments of four clients, and two that have not come yet."""
    federation = regression(THETA[:2], 6, 30, 0.1)
    algorithm = cf.CLoVE(Normal(4).double(), 2, SGD, patience=patience)
    start = replace(algorithm.init(federation, 0), bank=bank_of(THETA[[0, 1]]))
    there = torch.tensor([0, 1, 3, 4])
    jobs = algorithm.plan(start).take(there)
    said = algorithm.client_step(jobs, federation.train.take(there))
    state = trained(algorithm, algorithm.absorb(start, iter([said])), federation)
    assert state.stable
    assert state.assignments.tolist() == [0, 0, -1, 1, 1, -1]
    return algorithm, state, federation


def test_who_comes_after_stability_is_served():
    """In the program such a client raises a KeyError."""
    algorithm, state, federation = late()
    jobs = algorithm.plan(state)
    assert jobs.clients.tolist() == [2, 5]
    assert jobs.models.tolist() == [[0, 1]] * 2
    (one,) = cf.rounds(algorithm, federation, 1, start=state)
    assert [len(jobs.clients) for jobs, _ in one.trips] == [2, 6]
    assert (one.state.assignments >= 0).all()
    assert torch.equal(one.state.assignments[[0, 1, 3, 4]], state.assignments[[0, 1, 3, 4]])
    assert len(next(cf.rounds(algorithm, federation, 1, start=one.state)).trips) == 1


def test_who_comes_after_stability_is_given_a_model_not_the_number_of_a_cluster():
    """k-means numbers its clusters as it likes; here the other way round than the models."""
    algorithm, state, federation = late()
    vectors = compute.loss_matrix(state.bank, federation.train)
    assert k_means(vectors, 2, 1, 0)[[2, 5]].tolist() == [1, 0]
    (one,) = cf.rounds(algorithm, federation, 1, start=state)
    assert one.state.assignments[[2, 5]].tolist() == vectors[[2, 5]].argmin(1).tolist() == [0, 1]


def test_test_data_choose_nothing_in_training():
    federation = lines()
    worse = replace(federation, test=replace(federation.test, y=federation.test.y * 1e3))
    one, other = (cf.run(clove(patience=1), data, 4) for data in (federation, worse))
    assert torch.equal(one.models.flatten(), other.models.flatten())
    assert one.history[-1]["error"] != other.history[-1]["error"]


# ---------------------------------------------------------------- an unknown number


def test_the_number_is_taken_that_is_a_tenth_better():
    def blobs(k, gap, seed=0):
        source = torch.Generator().manual_seed(seed)
        centers = torch.eye(8)[:k].repeat_interleave(6, 0) * gap
        return (centers + torch.randn(6 * k, 8, generator=source)).double()

    assert chosen_number(blobs(4, 30), 8) == 4
    assert chosen_number(blobs(4, 30), 3) == 3  # an upper bound
    scores = cf.grouping.cuts(blobs(4, 2.5), 8)[1]
    best, taken = int(scores.argmax()) + 2, chosen_number(blobs(4, 2.5), 8)
    assert taken < best  # small numbers are favoured
    assert scores[best - 2] <= 1.1 * scores[taken - 2]


def test_one_cluster_cannot_be_found():
    cloud = torch.randn(24, 5, generator=torch.Generator().manual_seed(2)).double()
    assert chosen_number(cloud, 8) >= 2
    federation = regression(THETA[:1], 12, 30, 0.2)
    run = cf.run(clove(4, search=True), federation, 3)
    assert run.history[-1]["clusters"] >= 2
    assert run.assignments.unique().numel() >= 2


def test_as_many_models_as_clients_need_no_copies():
    """The program repeats its points five times there, so that each client scores as a cluster."""
    near = torch.tensor([[0.0, 0], [0, 1], [9, 9], [9, 8]]).double()
    assert chosen_number(near, 4) == 2
    assert chosen_number(near[:3], 3) == 2
    assert chosen_number(near[:1], 3) == 2
    assert k_means(near[:1], 2, 1, 0).tolist() == [0]


def test_fewer_clusters_than_models_are_matched_to_the_best_of_them():
    vectors = torch.tensor([[5, 1, 9.0]] * 3 + [[1, 5, 9.0]] * 3)
    algorithm = clove(3, 3, search=True)
    state = told(algorithm, algorithm.init(ragged(), 0), vectors)
    assert state.assignments.tolist() == [1, 1, 1, 0, 0, 0]
    assert state.note()["clusters"] == 2


# ---------------------------------------------------------------- the whole


def test_planted_clusters_are_found_from_starts_that_lose_ifca():
    one, ten, ifca = clove(), clove(starts=10), cf.IFCA(Normal(4).double(), 3, SGD)
    found = [0, 0, 0]
    for seed in range(8):
        for place, algorithm in enumerate((one, ten, ifca)):
            run = cf.run(algorithm, lines(seed), 12, seed=seed)
            found[place] += run.history[-1]["identity_accuracy"] == 1
    assert min(found[:2]) > found[2]


def test_a_missing_client_is_left_out_of_the_mean_and_keeps_its_model():
    """Who did not answer keeps its model, and the mean is over those who did."""
    federation, algorithm = ragged(), clove(2, 3)
    state = told(algorithm, algorithm.init(federation, 0), [[0, 5.0], [5, 0]] * 3)
    jobs = algorithm.plan(state)
    replies = without(algorithm.client_step(jobs, federation.train), {0, 3})
    after = algorithm.absorb(state, iter([replies]))
    assert after.assignments.tolist() == [0, 1] * 3
    n = federation.train.counts.double()[[2, 4]]
    mean = n @ replies.bank.flatten()[[1, 2]] / n.sum()
    torch.testing.assert_close(after.bank.flatten()[0], mean)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"clusters": 0}, "clusters must be at least 1, got 0"),
        ({"participation": 0}, r"participation must be in \(0, 1\], got 0"),
        ({"first": "best"}, "first must be 'losses' or 'random', got 'best'"),
        ({"starts": 0}, "starts must be at least 1, got 0"),
        ({"patience": 0}, "patience must be at least 1 or None, got 0"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        clove(**wrong)


def test_more_clusters_than_clients_are_refused_before_the_first_round():
    with pytest.raises(ValueError, match="clusters must be at most the 6 clients, got 7"):
        cf.run(clove(7, 3), ragged(), 1)


def test_a_run_that_diverges_says_so():
    with pytest.raises(cf.simulation.Diverged):
        cf.run(clove(local=cf.LocalSGD(200, 9.0)), lines(), 5)
