"""Every bound against what it bounds: simulation, brute force, or a second formula."""

import doctest
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtr
from scipy.stats import chi2

import clusterfl_core as cf
from clusterfl_core import matching, theory

PROBLEM = theory.LinearProblem(100, 20, 10, 0.5, 1.0, 0.5)
PLANE = np.array([[-0.5, 0.0], [0.5, 0.0]])
CONVEX = theory.ConvexProblem(100, 50, 2, 0.5, 3.0, 1.0, 2.0, 0.4, 0.7)


def source(seed=0):
    return np.random.default_rng(seed)


def close(value, expected, errors=4.5, spread=None, draws=None):
    """Whether an average of draws lies within some standard errors of what it estimates."""
    return abs(value - expected) <= errors * spread / math.sqrt(draws)


# ---------------------------------------------------------------- Lemma 1: the wrong model wins


def losses(right, wrong, truth, noise, points, draws, seed=0):
    """Both mean losses of many clients, by drawing their data: arrays [draws]."""
    rng = source(seed)
    x = rng.standard_normal((draws, points, len(truth)))
    y = x @ truth + noise * rng.standard_normal((draws, points))
    return [((y - x @ np.asarray(model)) ** 2).mean(1) for model in (right, wrong)]


CASES = [
    ([0.2, 0.0], [0.8, 0.0], [0.0, 0.0], 1.0, 5),  # both pulled towards each other
    ([0.0, 0.3], [0.7, 0.1], [0.0, 0.0], 0.5, 3),
    ([-0.4, 0.0], [0.5, 0.2], [0.0, 0.0], 0.3, 2),  # errors on opposite sides
    ([1.0, 1.0, 0.0], [0.5, 0.0, 0.0], [1.0, 0.0, 0.0], 0.2, 4),  # the wrong one is nearer
    ([1.0], [1.3], [0.9], 0.0, 1),
]


@pytest.mark.parametrize("case", CASES)
def test_misclassification_is_the_frequency_in_simulated_clients(case):
    chance = theory.misclassification(*case)
    own, other = losses(*(np.asarray(v) for v in case[:3]), *case[3:], draws=100_000)
    spread = math.sqrt(chance * (1 - chance))
    assert close((other <= own).mean(), chance, spread=spread, draws=100_000)


@pytest.mark.parametrize("case", [case for case in CASES if case[3]])
def test_misclassification_is_the_mean_of_what_is_gaussian_given_x(case):
    """Given x the difference of the two losses is Gaussian: an average without simulated noise."""
    right, wrong, truth = (np.asarray(v) for v in case[:3])
    noise, points = case[3:]
    x = source(1).standard_normal((100_000, points, len(truth)))
    own, other = x @ (truth - right), x @ (truth - wrong)
    mean = (own**2 - other**2).sum(1)
    given = ndtr(mean / (2 * noise * np.linalg.norm(own - other, axis=1)))
    expected = theory.misclassification(*case)
    assert close(given.mean(), expected, spread=given.std(), draws=len(given))


def test_misclassification_is_what_ifcas_clients_do():
    theta = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    start = torch.tensor([[0.3, 0.2, 0.0], [0.7, -0.1, 0.1]], dtype=torch.float64)
    federation = cf.populations.regression(theta, clients=20_000, points=6, noise=1.0)
    bank = cf.banks.Bank(cf.models.LinearRegression(3), {"theta": start})
    wrong = cf.ifca.estimate_identities(bank, federation.train) != federation.clusters
    for j in range(2):
        chance = theory.misclassification(start[j], start[1 - j], theta[j], 1.0, 6)
        found = wrong[federation.clusters == j].double().mean()
        assert close(found, chance, spread=math.sqrt(chance * (1 - chance)), draws=10_000)


def test_misclassification_of_one_point_is_an_angle():
    for right, wrong, truth, noise, _ in CASES[:4]:
        a, b = (np.asarray(truth) - np.asarray(model) for model in (right, wrong))
        scale = np.linalg.norm(a - b) * math.sqrt((a + b) @ (a + b) + 4 * noise**2)
        angle = math.acos(
            (b @ b - a @ a) / scale
        )  # the Gaussian signs agree with chance angle / pi
        assert theory.misclassification(right, wrong, truth, noise, 1) == pytest.approx(
            angle / math.pi
        )


def test_misclassification_is_certain_where_nothing_is_left_to_chance():
    assert theory.misclassification([0.0], [1.0], [0.0], 0.0, 3) == 0  # no noise, no error
    assert theory.misclassification([1.0], [0.0], [0.0], 0.0, 3) == 1  # the names are swapped
    assert theory.misclassification([1.0], [-1.0], [0.0], 0.5, 3) == pytest.approx(0.5)


def test_misclassification_takes_many_sample_sizes_and_falls_with_them():
    points = np.array([1, 2, 5, 10, 50])
    chances = theory.misclassification([0.2, 0.1], [0.9, 0], [0, 0], 1.0, points)
    assert (np.diff(chances) < 0).all()
    assert chances[2] == theory.misclassification([0.2, 0.1], [0.9, 0], [0, 0], 1.0, 5)


def test_swapping_the_models_swaps_the_chances():
    for right, wrong, truth, noise, points in CASES[:4]:
        there = theory.misclassification(right, wrong, truth, noise, points)
        back = theory.misclassification(wrong, right, truth, noise, points)
        assert there + back == pytest.approx(1)


@pytest.mark.parametrize(
    ("right", "wrong", "noise"), [([1.0, 0.0], [1.0, 0.0], 1.0), ([1.0, 0.0], [-1.0, 0.0], 0.0)]
)
def test_models_of_equal_loss_are_refused(right, wrong, noise):
    with pytest.raises(ValueError, match="right and wrong must differ in loss"):
        theory.misclassification(right, wrong, [0.0, 0.0], noise, 5)


def admissible(rng, alpha, separation, features):
    """A right and a wrong model as far off as Assumption 1 allows, in random directions."""
    truth = np.zeros(features)
    other = np.zeros(features)
    other[0] = separation
    steps = rng.standard_normal((2, features))
    steps *= ((0.5 - alpha) * separation * rng.random(2) ** 0.2 / np.linalg.norm(steps, axis=1))[
        :, None
    ]
    return steps[0], other + steps[1], truth


def test_lemma_1_holds_with_the_constants_given():
    rng = source()
    for _ in range(2000):
        alpha, separation, noise = rng.uniform(0.01, 0.5), rng.uniform(0.1, 5), rng.uniform(0, 3)
        points, features = int(rng.integers(1, 60)), int(rng.integers(1, 6))
        problem = theory.LinearProblem(2, points, features, 0.5, separation, noise)
        right, wrong, truth = admissible(rng, alpha, separation, features)
        chance = theory.misclassification(right, wrong, truth, noise, points)
        assert chance <= theory.misclassification_bound(problem, alpha) + 1e-12


def test_threshold_split_bounds_the_chance_and_counts_two_tails():
    rng = source()
    for _ in range(500):
        right, wrong, truth = admissible(rng, rng.uniform(0.01, 0.5), 1.0, 3)
        noise, points = rng.uniform(0, 2), int(rng.integers(1, 40))
        near, far = np.linalg.norm(right), np.linalg.norm(wrong)
        bound = theory.threshold_split(near, far, noise, points)
        assert theory.misclassification(right, wrong, truth, noise, points) <= bound + 1e-12

    right, wrong = np.array([0.3, 0.0]), np.array([0.7, 0.0])
    own, other = losses(right, wrong, np.zeros(2), 1.0, 8, draws=100_000)
    alpha = 0.2  # distances 1/2 -+ alpha, Delta = 1: the proof's threshold, divided by n'
    threshold = 0.25 + alpha**2 + 1
    counted = (other <= threshold).mean() + (own > threshold).mean()
    assert close(counted, theory.threshold_split(0.3, 0.7, 1.0, 8), spread=1.0, draws=100_000)
    perfect = theory.threshold_split(0.0, 1.0, 0.0, 5)  # no noise: only the other tail is left
    assert perfect == pytest.approx(chi2.cdf(2.5, 5))


def test_threshold_split_wants_the_right_model_nearer():
    with pytest.raises(ValueError, match=r"right must be in \[0, wrong\)"):
        theory.threshold_split(1.0, 0.5, 1.0, 5)


# ---------------------------------------------------------------- Theorem 1 and Corollary 1


def test_three_terms_of_theorem_1():
    bound = theory.step_bound(PROBLEM, 0.2, c2=2.0, c3=3.0, c4=0.1)
    floor = 2 * 0.5 / 0.5 * math.sqrt(10 / (100 * 20))
    assert bound == pytest.approx((0.1, floor, 3 * math.exp(-0.1 * (0.3 * 4 / 5) ** 2 * 20)))
    older = theory.step_bound(PROBLEM, 0.2, c2=2.0, c3=3.0, c4=0.1, version="neurips")
    assert older == pytest.approx((0.1, floor, 3 * math.exp(-0.1 * (4 / 5) ** 2 * 20)))


@pytest.mark.parametrize(
    ("version", "distance"), [("extended", 0.5), ("extended", -0.1), ("neurips", 0.26)]
)
def test_a_start_too_far_away_is_refused(version, distance):
    with pytest.raises(ValueError, match=r"distance must be in \[0, Delta / [24][\])] for the"):
        theory.step_bound(PROBLEM, distance, c2=1, c3=1, c4=1, version=version)


def test_assumptions_say_which_hold_and_which_hang_on_a_constant():
    found = theory.assumptions(PROBLEM, 0.3, 2.0, c=1.0)
    older, newer, *rest = found
    assert older.holds is False  # 0.3 lies between a quarter and a half of Delta
    assert older.ratio == pytest.approx(0.25 / 0.3)
    assert newer.holds is True
    assert [condition.holds for condition in rest] == [None] * 7
    ratios = [condition.ratio for condition in rest]
    log_m = math.log(100)
    assert ratios[:2] == [0.5, 2.0]
    assert ratios[2] == pytest.approx(20 / ((5 / 4 / 0.2) ** 2 * log_m))
    assert ratios[3:6] == pytest.approx([10 / log_m, 50 / log_m, 0.5 * 100 * 20 / 10])
    miss = math.exp(-((0.2 * 4 / 5) ** 2) * 20)
    assert ratios[6] == pytest.approx(1 / (math.sqrt(10 / 2000) + miss))
    assert theory.assumptions(PROBLEM, 0.6, 2.0, c=1.0)[1].holds is False
    at_truth = theory.assumptions(PROBLEM, 0.0, 2.0, c=1.0)
    assert at_truth[0].ratio == math.inf
    assert at_truth[0].holds


def test_corollary_1_counts_halvings():
    """The logarithm is to the base 2: with the natural one the error stays off its floor."""
    problem = theory.LinearProblem(10**6, 1000, 10, 0.5, 1.0, 0.1)
    promise = theory.convergence(problem, c6=1, c7=1, c8=1, version="neurips")
    assert promise.error == pytest.approx(problem.floor)
    assert promise.points == 2 * 1000 * promise.rounds

    def error_after(rounds):
        error = problem.separation / 4
        for _ in range(rounds):
            error = error / 2 + promise.error
        return error

    assert error_after(promise.rounds) <= 3 * promise.error
    natural = math.ceil(math.log(problem.separation / (4 * promise.error)))
    assert error_after(natural) > 10 * promise.error
    extended = theory.convergence(problem, c6=1, c7=1, c8=1)
    assert extended.rounds == promise.rounds + 2
    far = theory.convergence(PROBLEM, c6=10, c7=1, c8=1, version="neurips")
    assert far.rounds == 0  # the floor lies above the start


def test_exact_step_is_the_average_over_ifcas_rounds():
    """One round of option I with fresh data, the two models far apart: identities are right."""
    theta = torch.tensor([[0.0, 0.0, 0.0], [40.0, 0.0, 0.0]])
    start = theta + torch.tensor([[0.0, 1.0, 0.0], [0.6, 0.0, -0.8]])
    model = cf.models.LinearRegression(3)
    solver = cf.LocalSGD(steps=1, step_size=0.8)
    algorithm = cf.IFCA(model, 2, solver, option="gradients")
    problem = theory.LinearProblem(8, 4, 3, 0.5, 40.0, 0.5)
    squares = []
    for seed in range(60):
        federation = cf.populations.regression(theta, 8, 4, 0.5, seed)
        state = algorithm.init(federation, 0)
        state = replace(state, bank=cf.banks.Bank(model, {"theta": start}))
        after, _, replies = cf.simulation.round_trip(algorithm, state, federation.train)
        assert torch.equal(replies.values["identity"], federation.clusters)
        squares += ((after.bank.tensors["theta"] - theta) ** 2).sum(1).tolist()
    factor, floor = theory.exact_step(problem, 0.8, 0.5)
    assert close(np.mean(squares), factor + floor, spread=np.std(squares), draws=len(squares))


def test_rounds_with_fresh_points_follow_the_recursion_of_exact_step():
    """IFCA with re-sampling for three rounds: its mean square errors, round after round."""
    theta = torch.tensor([[0.0, 0.0], [30.0, 0.0]])
    start = theta + torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    model, solver = cf.models.LinearRegression(2), cf.LocalSGD(steps=1, step_size=0.7)
    algorithm = cf.IFCA(model, 2, solver, option="gradients", resample=3)
    factor, floor = theory.exact_step(theory.LinearProblem(4, 5, 2, 0.5, 30.0, 1.0), 0.7, 0.5)
    squares = []
    for seed in range(100):
        federation = cf.populations.regression(theta, 4, 2 * 3 * 5, 1.0, seed)
        state = algorithm.init(federation, 0)
        state = replace(state, bank=cf.banks.Bank(model, {"theta": start}))
        path = []
        for _ in range(3):
            state, _, _ = cf.simulation.round_trip(algorithm, state, federation.train)
            path.append(((state.bank.tensors["theta"] - theta) ** 2).sum(1).tolist())
        squares.append(path)
    squares, expected = np.array(squares), 1.0  # [seed, round, cluster]
    for t in range(3):
        expected = factor * expected + floor
        found = squares[:, t]
        assert close(found.mean(), expected, spread=found.std(), draws=found.size)


def test_exact_step_in_the_large():
    rng, samples, d = source(), 60, 7
    problem = theory.LinearProblem(12, 10, d, 0.25, 1.0, 0.7)
    x = rng.standard_normal((20_000, samples, d))
    error = rng.standard_normal(d)
    residual = x @ error - 0.7 * rng.standard_normal((20_000, samples))
    after = error - 2 * 0.6 / 120 * np.einsum("rnd,rn->rd", x, residual)
    squares = (after**2).sum(1)
    factor, floor = theory.exact_step(problem, 0.6, 0.5)
    expected = factor * (error @ error) + floor
    assert close(squares.mean(), expected, spread=squares.std(), draws=len(squares))


def test_step_size_c1_over_p_contracts_the_smallest_and_may_blow_up_the_largest():
    problem = theory.LinearProblem(1000, 100, 5, 0.2, 1.0, 0.1)
    factor, floor = theory.exact_step(problem, 0.5 / 0.2, 0.2)
    assert factor == pytest.approx((5 + 1) / (0.2 * 1000 * 100))
    assert math.sqrt(floor) == pytest.approx(0.1 * math.sqrt(5 / 20_000))
    assert theory.exact_step(problem, 0.5 / 0.2, 0.8)[0] > 1


def test_distance_to_truth_against_all_matchings():
    rng = source()
    for _ in range(20):
        truth, found = rng.standard_normal((2, 4, 3))
        matched, nearest = theory.distance_to_truth(found, truth)
        every = [
            np.linalg.norm(found[list(order)] - truth, axis=1).mean()
            for order in itertools.permutations(range(4))
        ]
        assert matched == pytest.approx(min(every))
        assert nearest <= matched


def test_nearest_truth_hides_a_lost_cluster():
    truth, found = [[0.0], [9.0]], [[0.0], [0.1]]  # both models learnt the first cluster
    matched, nearest = theory.distance_to_truth(found, truth)
    assert nearest == pytest.approx(0.05)
    assert matched == pytest.approx(8.9 / 2)
    assert theory.succeeded(nearest, 0.1)
    assert not theory.succeeded(matched, 0.1)
    assert theory.succeeded(0.001, 0.0)
    assert not theory.succeeded(0.002, 0.0)
    with pytest.raises(ValueError, match="as many as truth"):
        theory.distance_to_truth([[0.0]], truth)


# ---------------------------------------------------------------- the basin of IFCA


@pytest.mark.parametrize("fresh", [True, False])
def test_basin_is_where_plain_rounds_end(fresh):
    """Rounds walked client by client, on residuals instead of moments, in three dimensions."""
    truth, (m, n, rounds) = np.array([[-0.5, 0, 0], [0.5, 0, 0.2]]), (6, 8, 9)
    starts = np.random.default_rng(1).normal(size=(60, 2, 3))
    own, found = truth[[0, 0, 0, 1, 1, 1]], np.zeros((2, 60))
    for seed in (0, 1):
        rng, parts = source(seed), []
        for _ in range(2 * rounds + 1):
            x = rng.normal(size=(m, n, 3))
            parts.append((x, np.einsum("mnd,md->mn", x, own) + 0.3 * rng.normal(size=(m, n))))
        for number, start in enumerate(starts):
            theta = start.copy()
            for t in range(rounds):
                choosing, training = parts[2 * t + 1 : 2 * t + 3] if fresh else (parts[0],) * 2
                pulls = np.zeros((2, 3))
                for i in range(m):
                    j = int(
                        np.argmin(
                            [((choosing[1][i] - choosing[0][i] @ a) ** 2).mean() for a in theta]
                        )
                    )
                    x, y = training[0][i], training[1][i]
                    pulls[j] += 2 * x.T @ (x @ theta[j] - y) / n
                theta = theta - 0.5 / m * pulls
            for order, goal in enumerate((truth, truth[::-1])):
                gap = np.linalg.norm(theta - goal, axis=1).max()
                found[order, number] += (gap < np.linalg.norm(truth[0] - truth[1]) / 4) / 2
    told = theory.basin(
        starts, truth, 0.3, clients=m, points=n, rounds=rounds, seeds=2, fresh=fresh
    )
    assert np.array_equal(told, found)
    assert found.mean(axis=1).min() > 0
    assert found.sum(axis=0).min() == 0


def test_basin_holds_the_ball_of_assumption_1_and_knows_the_other_order():
    ball = PLANE + 0.4 * np.array([[[1, 0], [0, 1]], [[0, -1], [-1, 0]], [[-1, 0], [1, 0]]])
    many = {"clients": 20, "points": 20, "rounds": 30, "seeds": 3}
    assert (theory.basin(ball, PLANE, 0.1, **many) == [[1] * 3, [0] * 3]).all()
    assert (theory.basin(ball[:, ::-1], PLANE, 0.1, **many) == [[0] * 3, [1] * 3]).all()
    both_far = np.array([[[0.0, 9.0], [0.0, 99.0]]])  # nobody chooses the second one
    assert (theory.basin(both_far, PLANE, 0.1, **many) == 0).all()


# ---------------------------------------------------------------- Theorem 2 and Corollary 2


def test_lemma_3_bounds_the_exact_chance_in_the_linear_model():
    rng = source()
    for _ in range(300):
        alpha, noise = rng.uniform(0.05, 0.5), rng.uniform(0.05, 1)
        points = int(rng.integers(1, 200))
        right, wrong, truth = admissible(rng, alpha, 1.0, 3)
        far = np.linalg.norm(wrong)
        eta = math.sqrt(2) * (far**2 + noise**2)  # the larger of the two losses' deviations
        problem = theory.ConvexProblem(10, points, 2, 0.5, 1.0, 2.0, 2.0, eta, 1.0)
        chance = theory.misclassification(right, wrong, truth, noise, points)
        assert chance <= theory.convex_misclassification(problem, alpha)


def test_parts_of_theorem_2():
    bound = theory.convex_step_bound(CONVEX, 0.5, 0.1, c0=1, c1=1, c2=1)
    alpha = 0.5 - 0.5 / (math.sqrt(0.5) * 3)
    assert bound.contraction == pytest.approx((1 - 0.5 / 16) * 0.5)
    assert bound.gradient == pytest.approx(0.7 / (0.1 * 2 * math.sqrt(0.5 * 100 * 50)))
    assert bound.misclassification == pytest.approx(0.4**2 / (0.1 * alpha**2 * 81 * 50))
    assert bound.cross == pytest.approx(
        0.7 * 0.4 * 2**1.5 / (0.1**1.5 * alpha * 2 * 9 * math.sqrt(100) * 50)
    )
    with pytest.raises(ValueError, match="distance must be in"):
        theory.convex_step_bound(CONVEX, 1.1, 0.1, c0=1, c1=1, c2=1)


def test_corollary_2_follows_from_theorem_2_round_by_round():
    problem = theory.ConvexProblem(10**6, 10**6, 2, 0.5, 3.0, 1.0, 2.0, 0.4, 0.7)
    promise = theory.convex_convergence(problem, 0.1, c0=1, c1=1, c2=1)
    each = 0.5 * 1 * 0.1 / (2 * 2 * math.log(10**12))
    error = problem.reach / 4  # alpha = 1/4
    floor = sum(theory.convex_step_bound(problem, error, each, c0=1, c1=1, c2=1)[1:])
    assert promise.error == pytest.approx(2 * floor / problem.rate)
    for _ in range(promise.rounds):
        error = (1 - problem.rate) * error + floor
    assert error <= promise.error
    assert promise.points == 2 * 10**6 * promise.rounds
    # the printed first and second part
    log = math.log(10**12)
    first = 0.7 * 2 * 2 * log / (0.5**2.5 * 0.1 * math.sqrt(10**12))
    assert theory.convex_convergence(problem, 0.1, c0=1, c1=1e-12, c2=1e-12).error == (
        pytest.approx(16 * first)
    )
    second = 0.4**2 * 4 * 2 * log / (0.5**2 * 0.1 * 81 * 10**6)
    assert theory.convex_convergence(problem, 0.1, c0=1e-12, c1=1, c2=1e-12).error == (
        pytest.approx(16 * second * 16)  # alpha = 1/4 squared, which the paper merges into c
    )


def test_perfect_losses_have_no_floor_to_state():
    problem = theory.ConvexProblem(10, 10, 2, 0.5, 3.0, 1.0, 2.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="must not both be 0"):
        theory.convex_convergence(problem, 0.1, c0=1, c1=1, c2=1)


# ---------------------------------------------------------------- CFL


def cosines(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def brute_force(similarity):
    """The least possible largest similarity across a bipartition, over all of them."""
    m, best = len(similarity), math.inf
    for bits in range(1, 2 ** (m - 1)):
        side = np.array([bits >> i & 1 for i in range(m)], bool)
        best = min(best, similarity[side][:, ~side].max())
    return best


def best_cross(similarity):
    """The largest similarity across the bipartition that CFL's server makes."""
    return cf.cfl.cross_similarity(similarity, *cf.cfl.optimal_bipartition(similarity))


def noisy_gradients(rng, k, each, features, gamma):
    means = rng.standard_normal((k, features)) * rng.uniform(0.2, 2, (k, 1))
    means -= means.mean(0)
    clusters = np.repeat(np.arange(k), each)
    noise = gamma * rng.random(len(clusters))
    wobble = rng.standard_normal((len(clusters), features))
    wobble *= (noise * np.linalg.norm(means[clusters], axis=1) / np.linalg.norm(wobble, axis=1))[
        :, None
    ]
    return means[clusters] + wobble, noise, clusters


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("features", [2, 5])
def test_cfls_theorem_1_holds_on_random_gradients(k, features):
    rng = source(k)
    for _ in range(60):
        vectors, noise, clusters = noisy_gradients(rng, k, 2, features, rng.uniform(0, 0.9))
        cross, intra = theory.separation_bounds(noise, clusters)
        similarity = cosines(vectors)
        assert brute_force(similarity) <= cross + 1e-9
        assert similarity[clusters[:, None] == clusters[None]].min() >= intra - 1e-9


def test_cfls_bounds_for_two_clusters_are_plus_and_minus_h():
    noise = [0.1, 0.3, 0.2, 0.4]
    cross, intra = theory.separation_bounds(noise, [0, 0, 1, 1])
    assert cross == pytest.approx(-theory.alignment(0.3, 0.4))
    assert intra == pytest.approx(theory.alignment(0.2, 0.4))
    exact = theory.separation_bounds(np.zeros(4), [0, 0, 1, 1])
    assert exact == pytest.approx((-1, 1))
    assert theory.separation_bounds([1.0, 1.0], [0, 1]) == pytest.approx((1, 1))


def test_cfls_bound_is_void_where_the_noise_is_too_large():
    assert theory.separation_bounds([0.9] * 6, [0, 0, 1, 1, 2, 2])[0] == 1.0


def test_alignment_is_the_worst_case_of_two_noisy_copies():
    """Lemma 2: no pair does worse, and a search finds one that is as bad."""
    v, gammas = np.array([1.0, 0.0, 0.0]), (0.3, 0.6)

    def cosine(parameters):
        parts = [
            v + gamma * part / np.linalg.norm(part)
            for gamma, part in zip(gammas, parameters.reshape(2, 3), strict=True)
        ]
        return parts[0] @ parts[1] / np.prod([np.linalg.norm(part) for part in parts])

    rng = source()
    worst = min(minimize(cosine, rng.standard_normal(6)).fun for _ in range(5))
    assert worst == pytest.approx(theory.alignment(*gammas), abs=1e-6)
    assert min(cosine(rng.standard_normal(6)) for _ in range(2000)) >= worst - 1e-6


@pytest.mark.parametrize("k", [2, 3, 6])
def test_guaranteed_noise_is_where_the_bounds_meet(k):
    limit = theory.guaranteed_noise(k)
    clusters = np.repeat(np.arange(k), 2)
    for factor, apart in ((0.999, True), (1.001, False)):
        cross, intra = theory.separation_bounds(np.full(2 * k, factor * limit), clusters)
        assert (intra > cross) == apart


def test_lemma_4_holds_for_vectors_that_sum_to_zero_in_any_dimension():
    rng = source()
    for k, features in itertools.product((2, 3, 4, 5, 7), (2, 3, 10)):
        for _ in range(30):
            vectors = rng.standard_normal((k, features)) * rng.exponential(1, (k, 1))
            vectors -= vectors.mean(0)
            cross = best_cross(cosines(vectors))
            assert cross <= math.cos(math.pi / (k - 1)) + 1e-9


def test_lemma_4_is_tight_in_the_plane():
    """Half a turn in equal steps, the weights chosen so that the sum vanishes in the limit."""
    for k in (3, 4, 6):
        angles = np.linspace(0, math.pi, k)
        cross = best_cross(cosines(np.stack([np.cos(angles), np.sin(angles)], 1)))
        assert cross == pytest.approx(math.cos(math.pi / (k - 1)))


def test_figure_3_is_far_better_than_the_worst_case():
    assert theory.separation_probability(5, 0.9 * theory.guaranteed_noise(5), trials=20) == (1, 1)
    positive, correct = theory.separation_probability(12, 1.1, trials=20)
    assert theory.guaranteed_noise(12) < 0.08
    assert positive > 0.9  # "even for large values of k > 10 and gamma_max > 1"
    assert correct >= positive
    assert theory.separation_probability(12, 4.0, trials=20)[0] < 0.1


def test_figure_3_depends_on_its_seed_alone_and_correct_is_at_least_positive():
    runs = [theory.separation_probability(6, 1.3, 30, trials=60, seed=s) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    for positive, correct in runs:
        assert 0 < positive <= correct <= 1


# ---------------------------------------------------------------- FedSoft


@pytest.mark.parametrize("clusters", [1, 2, 3])
def test_workload_is_the_mean_size_of_a_union(clusters):
    rng, sizes = source(), []
    for _ in range(4000):
        sizes.append(len({i for _ in range(clusters) for i in rng.choice(10, 4, replace=False)}))
    expected = theory.workload(10, 4, clusters)
    assert close(np.mean(sizes), expected, spread=np.std(sizes) + 1e-9, draws=4000)
    assert theory.workload(100, 60, 2) == pytest.approx(2 * 60 - 60**2 / 100)


def test_expected_importance_is_the_mean_of_fedsofts_estimate():
    theta = torch.tensor([[0.0, 0.0], [1.0, 0.5]], dtype=torch.float64)
    centers = torch.tensor([[0.2, 0.1], [0.9, 0.0]], dtype=torch.float64)
    counts, draws = [6, 2], 20_000
    kinds = torch.tensor([0] * 6 + [1] * 2)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(draws, 8, 2, generator=draw, dtype=torch.float64)
    y = (x * theta[kinds]).sum(2) + torch.randn(draws, 8, generator=draw, dtype=torch.float64)
    clients = cf.Clients(x, y, torch.full((draws,), 8))
    bank = cf.banks.Bank(cf.models.LinearRegression(2), {"theta": centers})
    found = cf.fedsoft.estimate_importance(bank, clients, 0.05)
    wrong = [theory.misclassification(centers[j], centers[1 - j], theta[j], 1, 1) for j in (0, 1)]
    confusion = [[1 - wrong[0], wrong[0]], [wrong[1], 1 - wrong[1]]]
    expected = theory.expected_importance(counts, confusion, 0.05)
    for j in range(2):
        assert close(found[:, j].mean(), expected[j], spread=found[:, j].std(), draws=draws)
        bound = theory.importance_bound(counts[j] / 8, max(wrong), 0.05)
        assert expected[j] <= bound


def test_importance_of_perfect_centers_is_the_truth_but_for_the_smoother():
    assert theory.expected_importance([5, 0], np.eye(2), 0.01) == pytest.approx([1, 0.01])
    assert theory.importance_bound(0.3, 0.0, 0.01) == pytest.approx(0.31)


def test_theorem_3_bounds_how_far_local_models_lie_from_the_centers():
    """Exact solvers in the linear model, where beta of Assumption 2 can be worked out."""
    rng, mu, lam = source(), 2.0, 1.0
    for _ in range(200):
        s = int(rng.integers(2, 5))
        theta = rng.standard_normal((s, 3))
        gaps = np.linalg.norm(theta[:, None] - theta[None], axis=2)[~np.eye(s, dtype=bool)]
        steps = rng.standard_normal((s, 3))
        steps *= (rng.random((s, 1)) * 0.4 * gaps.min()) / np.linalg.norm(steps, axis=1)[:, None]
        centers, u = theta + steps, rng.dirichlet(np.ones(s))
        local = u @ (mu * theta + lam * centers) / (mu + lam)
        own = (mu * theta + lam * centers) / (mu + lam)  # minimisers of the sub-problems

        def slope(w, j, theta=theta, centers=centers):
            return np.linalg.norm(mu * (w - theta[j]) + lam * (w - centers[j])) ** 2

        beta = max(
            sum(u[i] * slope(own[j], i) for i in range(s)) / slope(centers[j], j) for j in range(s)
        )
        gamma = theory.subproblem_inexactness(0.0, beta, mu + lam, mu + lam)
        radius = theory.divergence_radius(gamma, s, mu, mu) * gaps.max()
        assert np.linalg.norm(local - centers, axis=1).max() <= radius


def test_soft_centers_are_where_the_rounds_end():
    rng = source()
    theta, u, n = rng.standard_normal((3, 4)), rng.dirichlet(np.ones(3), 9), rng.integers(5, 9, 9)
    v = (u * n[:, None]).T
    v /= v.sum(1, keepdims=True)
    centers = rng.standard_normal((3, 4))
    for _ in range(60):
        centers = v @ (u @ (2 * theta + 0.7 * centers) / 2.7)
    assert np.allclose(centers, theory.soft_centers(theta, u, v, 0.7))


def test_soft_centers_are_the_truth_only_if_clients_are_pure():
    theta = np.array([[0.0], [10.0]])
    pure = np.eye(2)
    assert np.allclose(theory.soft_centers(theta, pure, pure, 1.0), theta)
    mixed = np.array([[0.9, 0.1], [0.1, 0.9]])
    centers = theory.soft_centers(theta, mixed, mixed.T / mixed.T.sum(1, keepdims=True), 1.0)
    assert 1 < centers[0, 0] < 5 < centers[1, 0] < 9


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.LinearProblem(0, 1, 1, 0.5, 1, 1), "clients must be at least 1, got 0"),
        (lambda: theory.LinearProblem(1, 1, 1, 0, 1, 1), r"smallest must be in \(0, 1\], got 0"),
        (
            lambda: theory.LinearProblem(1, 1, 1, 1, 0, 1),
            "separation must be positive and fin",
        ),
        (lambda: theory.LinearProblem(1, 1, 1, 1, 1, -1), "noise must not be negative, got -1"),
        (
            lambda: theory.ConvexProblem(1, 1, 1, 1, 1, 2, 1, 1, 1),
            "smoothness must be at least convexity = 2, got 1",
        ),
        (
            lambda: theory.ConvexProblem(1, 1, 1, 1, 1, 1, 1, 1, -2),
            "gradient_deviation must not be negative, got -2",
        ),
        (
            lambda: theory.misclassification_bound(PROBLEM, 0.0),
            r"closeness must be in \(0, 1/2\], got 0.0",
        ),
        (
            lambda: theory.basin([PLANE], PLANE[:1], 0, clients=2, points=1, rounds=1, seeds=1),
            r"two models a start and two truths, got \(1, 2, 2\) and \(1, 2\)",
        ),
        (
            lambda: theory.basin([PLANE], PLANE, 0, clients=2, points=0.5, rounds=1, seeds=1),
            "points must be a whole number, got 0.5",
        ),
        (
            lambda: theory.convergence(PROBLEM, c6=1, c7=1, c8=1, version="first"),
            "version must be 'extended' or 'neurips', got 'first'",
        ),
        (
            lambda: theory.step_bound(PROBLEM, 0.1, c2=0, c3=1, c4=1),
            "c2 must be positive and fin",
        ),
        (lambda: theory.alignment(0.5, 1.5), r"noise must be in \[0, 1\], got 1.5"),
        (lambda: theory.separation_bounds([0.1], [0]), "clusters must name at least 2 clusters"),
        (lambda: theory.guaranteed_noise(1), "clusters must be at least 2, got 1"),
        (lambda: theory.separation_probability(2, 1.0, each=1), "each must be at least 2, got 1"),
        (lambda: theory.separation_probability(2, -1.0), "noise must not be negative, got -1.0"),
        (lambda: theory.workload(5, 6, 2), "chosen must be at most the 5 clients, got 6"),
        (
            lambda: theory.importance_bound(0.5, 2.0, 0.0),
            r"misclassified must be in \[0, 1\], got 2.0",
        ),
        (
            lambda: theory.expected_importance([1, 1], [[1, 1], [0, 1]], 0.0),
            "rows of confusion must sum to one",
        ),
        (
            lambda: theory.expected_importance([5, 5], np.eye(2), 0.2),
            "smoother must be at most 1 / 10 points, got 0.2",
        ),
        (
            lambda: theory.soft_centers(np.eye(2), np.eye(2), np.eye(2), -1),
            "proximal must not be negative, got -1",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("room", [theory, theory.ifca, theory.cfl, theory.fedsoft, matching])
def test_examples_in_the_docstrings(room):
    failed, attempted = doctest.testmod(room)
    assert (failed, attempted > 0) == (0, True)


def test_each_name_of_a_paper_is_a_name_of_the_theory():
    papers = (theory.ifca, theory.cfl, theory.fedsoft)
    assert sorted(theory.__all__) == sorted(name for paper in papers for name in paper.__all__)
    for paper in papers:
        assert all(getattr(theory, name) is getattr(paper, name) for name in paper.__all__)


# ---------------------------------------------------------------- who is who


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_best_matching_is_the_best_of_all_matchings(seed, rows, columns):
    table = source(seed).integers(-9, 10, (rows, columns))
    found = matching.best_matching(table)
    assert len(found) == len(set(found.values())) == min(rows, columns)
    assert list(found) == sorted(found)
    wide = table if rows <= columns else table.T
    every = [
        sum(wide[i, j] for i, j in enumerate(chosen))
        for chosen in itertools.permutations(range(wide.shape[1]), len(wide))
    ]
    assert sum(table[i, j] for i, j in found.items()) == max(every)


def test_nothing_is_matched_with_nothing():
    assert matching.best_matching(np.zeros((0, 3))) == {}
