"""What the ledger corrects in the papers, where no other test checks it."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chi2

import clusterfl_core as cf

theory = cf.theory


def cosines(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


# ---------------------------------------------------------------- IFCA


def test_a_random_start_is_nowhere_near_the_ball_of_assumption_1():
    """Coins in 1,000 coordinates against truths of norm 1, and of coordinates 0 and 1."""
    dice = np.random.default_rng(0)
    for size in (np.sqrt(2 / 1000), 1.0):
        truths, starts = size * dice.integers(0, 2, (2, 1000)), dice.integers(0, 2, (200, 1000))
        separation = np.linalg.norm(truths[0] - truths[1])
        nearest = min(np.linalg.norm(starts - t, axis=1).min() for t in truths)
        assert nearest > 0.9 * separation > 0.5 * separation


def test_lemma_2_of_ifca_holds_on_draws_of_many_shapes():
    dice = np.random.default_rng(0)
    for n, d in ((5, 200), (50, 50), (400, 10), (1000, 100)):
        for _ in range(20):
            X, noise = dice.normal(size=(n, d)), 0.7 * dice.normal(size=n)
            assert np.linalg.norm(X, 2) <= 2.5 * max(np.sqrt(n), np.sqrt(d))
            assert np.linalg.norm(X.T @ noise) <= 2 * 0.7 * np.sqrt(d * n)


def test_the_last_step_of_theorem_1_chooses_a_step_that_does_not_contract():
    """A quarter of the group gives c_1 = 1/2 at best, so gamma = 1 / (2 c_1 p) is 1 / p or more."""
    p = 0.5
    gamma = 1 / (2 * 0.5 * p)
    assert 1 - 2 * gamma * p == -1  # a group that all choose: the error only changes its sign
    assert abs(1 - 2 * p / (3 * p)) == pytest.approx(1 / 3)  # the repaired step


def test_the_gradient_of_the_squared_loss_has_a_minus_sign():
    dice = torch.Generator().manual_seed(0)
    X, Y = torch.randn(7, 3, generator=dice), torch.randn(7, generator=dice)
    theta = torch.randn(3, generator=dice, requires_grad=True)
    ((Y - X @ theta) ** 2).mean().backward()
    printed = 2 / 7 * X.T @ (Y - X @ theta.detach())
    assert torch.allclose(theta.grad, -printed, atol=1e-6)
    assert not torch.allclose(theta.grad, printed, atol=1e-2)


def test_one_minus_a_polynomial_says_nothing():
    for m in (2, 10, 1000):
        assert 1 - m < 0 < 1 - 1 / m


def test_inequality_15_does_not_follow_from_a_quarter():
    """With alpha = 0.4 a model at a quarter has the larger chance, which (15) denies."""
    points, alpha, noise = 20, 0.4, 0.5
    t = points * (0.25 + alpha**2 + noise**2)

    def tail(distance):
        return chi2.sf(t / (distance**2 + noise**2), points)

    assert tail(0.25) > tail(0.5 - alpha)


def test_the_last_contraction_of_corollary_1_counts_the_further_rounds():
    floor, before, further = 0.001, 2, 8
    error = 0.25
    for _ in range(further):
        error = error / 2 + floor
    assert error <= 0.25 * 0.5**further + 2 * floor
    assert 0.25 * 0.5**before + 2 * floor > 10 * error


def test_two_allowed_models_may_lie_close_together():
    alpha, truth = 0.1, np.array([0.0, 1.0])
    models = np.array([0.4, 0.6])
    assert np.all(np.abs(models - truth) <= 0.5 - alpha + 1e-12)
    assert abs(models[1] - models[0]) < 0.5 + alpha  # printed
    assert abs(models[1] - truth[0]) >= 0.5 + alpha - 1e-12  # right


@pytest.mark.parametrize(("start", "factor"), [(0.5, 2.0), (0.25, 0.5)])
def test_both_counts_of_rounds_of_theorem_2_are_right_for_their_starts(start, factor):
    """T = (8 L / (p lambda)) log(factor Delta / epsilon) shrinks the start below epsilon / 2."""
    rate, separation = 0.4 * 0.2 / (8 * 0.45), 1.0
    for epsilon in (0.1, 0.01, 0.001):
        rounds = np.log(factor * separation / epsilon) / rate
        assert start * separation * (1 - rate) ** rounds <= epsilon / 2 + 1e-12


# ---------------------------------------------------------------- CFL


def test_with_the_weights_of_eq_10_a_risk_is_a_mean():
    """Three points at 1 and one at -3: the best constant for all four is their mean, 0."""
    groups = [np.array([1.0, 1.0, 1.0]), np.array([-3.0])]
    grid = np.linspace(-4, 4, 801)

    def best(risk):
        total = sum(len(g) / 4 * risk((grid[:, None] - g) ** 2) for g in groups)
        return grid[total.argmin()]

    assert best(lambda losses: losses.mean(1)) == pytest.approx(0)
    assert best(lambda losses: losses.sum(1)) == pytest.approx(0.6)


def test_noisy_gradients_that_balance_can_break_theorem_1():
    beta = np.arcsin(0.3)
    tilt = np.r_[np.full(9, -beta), beta]
    apart = np.pi - 2 * np.arctan(0.8 * np.tan(beta))
    sides = np.repeat([0, 1], 10)

    def direction(angles):
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)

    true = direction(np.array([0, apart]))[sides]
    noisy = np.cos(beta) * np.r_[direction(tilt), direction(apart - tilt)]
    assert np.allclose(noisy.sum(0), 0)
    gammas = np.linalg.norm(noisy - true, axis=1)
    assert np.allclose(gammas, 0.3)
    first, second = cf.cfl.optimal_bipartition(cosines(noisy))
    across = cosines(noisy)[np.ix_(first, second)].max()
    bound, _ = theory.separation_bounds(gammas, sides)
    assert across > bound + 0.2


def test_the_intra_bound_is_reached_where_all_noise_is_alike():
    for gamma in (0.1, 0.5, 0.9):
        assert theory.alignment(gamma, gamma) == pytest.approx(1 - 2 * gamma**2)


def test_algorithm_4_as_printed_reads_the_edge_of_the_other_child():
    """Children v_0, v_1 with edges of their own: alpha_0 is read from (v -> v_1)."""
    kept = {"v0": np.array([1.0, 0.0]), "v1": np.array([0.0, 1.0])}
    new = np.array([0.9, 0.1])

    def walk(edges):
        similar = [cosines(np.array([new, kept[e]]))[0, 1] if e in kept else -1 for e in edges]
        return "v0" if similar[0] > similar[1] else "v1"

    assert walk(("v0", "v1")) == "v0"  # line 4's names
    assert "v2" not in kept  # the third child of line 7
    assert walk(("v1", "v2")) == "v0"  # by the second child's update, whatever the first's says
    kept["v1"] = -kept["v1"]
    kept["v0"], kept["v1"] = kept["v1"], kept["v0"]
    assert walk(("v0", "v1")) == "v1"
    assert walk(("v1", "v2")) == "v0"


def test_lemma_3_needs_the_length_of_w():
    """v is long, w short and nearly hidden by its noise: the printed bound is exceeded."""
    v, w, X, Y = np.array([10.0, 0.0]), np.array([0.0, 1.0]), np.zeros(2), np.array([0.8, 0.0])

    def h(length):
        a, b = np.linalg.norm(X) / np.linalg.norm(v), np.linalg.norm(Y) / length
        return -a * b + np.sqrt(1 - a**2) * np.sqrt(1 - b**2)

    alpha = cosines(np.array([v, w]))[0, 1]
    seen = cosines(np.array([v + X, w + Y]))[0, 1]

    def bound(some):
        return alpha * some + np.sqrt(1 - alpha**2) * np.sqrt(1 - some**2)

    assert alpha <= h(np.linalg.norm(v))
    assert seen > bound(h(np.linalg.norm(v))) + 0.3
    dice = np.random.default_rng(0)
    for _ in range(300):
        v, w, X, Y = dice.normal(size=(4, 3))
        X *= 0.6 * dice.random() * np.linalg.norm(v) / np.linalg.norm(X)
        Y *= 0.6 * dice.random() * np.linalg.norm(w) / np.linalg.norm(Y)
        alpha, some = cosines(np.array([v, w]))[0, 1], h(np.linalg.norm(w))
        if alpha <= some:
            assert cosines(np.array([v + X, w + Y]))[0, 1] <= bound(some) + 1e-9


def test_projection_on_a_plane_can_shrink_an_angle():
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], float)
    assert np.allclose(corners.sum(0), 0)
    A = corners[:2].T
    shadow = corners @ (A @ np.linalg.inv(A.T @ A) @ A.T)
    assert cosines(corners)[2, 3] == pytest.approx(-1 / 3)
    assert cosines(shadow)[2, 3] == pytest.approx(1)
    assert cosines(shadow)[0, 1] == pytest.approx(cosines(corners)[0, 1])


def test_clients_that_count_from_zero_leave_the_last_one_out():
    """Algorithm 1 with sets {1}, {2}, {3} and positions from s div m and s mod m, as printed."""
    alpha = np.array([[1, 0.1, 0.2], [0.1, 1, 0.9], [0.2, 0.9, 1]])  # clients 2 and 3 are alike

    def printed(first):
        sets = [{first + i} for i in range(3)]
        for s in np.argsort(-alpha, axis=None, kind="stable"):
            pair = {int(s) // 3, int(s) % 3}
            joined = set().union(*(c for c in sets if c & pair))
            sets = [c for c in sets if not c & pair] + [joined] * bool(joined)
            if len(sets) == 2:
                break
        return {frozenset(c) for c in sets}

    assert printed(0) == {frozenset({0}), frozenset({1, 2})}  # right: the second and the third
    assert printed(1) == {frozenset({1, 2}), frozenset({3})}


def test_the_bound_across_is_that_of_the_noisiest_pair():
    """Pair (0, 2) has no noise and the bound -1, but client 1 lies nearer to client 2."""
    lean = 0.8 * np.array([0.8, 0.6])  # (1, 0) and noise of length 0.6 at a right angle to it
    noisy = np.array([[1.0, 0.0], lean, [-1.0, 0.0]])
    gammas = np.linalg.norm(noisy - [[1, 0], [1, 0], [-1, 0]], axis=1)
    across = cosines(noisy)[:2, 2].max()
    assert gammas == pytest.approx([0, 0.6, 0])
    assert across == pytest.approx(-0.8)
    assert across > -theory.alignment(gammas[0], gammas[2]) + 0.1  # this pair's bound, as printed
    assert across <= theory.separation_bounds(gammas, [0, 0, 1])[0] + 1e-12


@pytest.mark.parametrize(("steps", "balance"), [(1, True), (10, False)])
def test_with_several_local_steps_updates_balance_at_rest_and_gradients_do_not(steps, balance):
    """Two bowls of curvature 1 and 4, minima 0 and 1, step size 0.2."""
    bends, minima, theta = np.array([1.0, 4.0]), np.array([0.0, 1.0]), 0.5

    def updates(start):
        model = np.full(2, start)
        for _ in range(steps):
            model -= 0.2 * bends * (model - minima)
        return model - start

    for _ in range(400):
        theta += updates(theta).mean()
    assert abs(updates(theta).sum()) < 1e-12
    assert (abs((bends * (theta - minima)).sum()) < 1e-9) == balance


def test_an_epoch_of_small_steps_is_minus_the_step_times_the_gradient():
    """Logistic regression, batches of 5, one epoch; (43) as printed has the other sign."""
    dice = np.random.default_rng(0)
    x, y = dice.normal(size=(40, 6)), dice.integers(0, 2, 40)
    begin = dice.normal(size=6)

    def gradient(theta, rows):
        return x[rows].T @ (1 / (1 + np.exp(-x[rows] @ theta)) - y[rows]) / len(rows)

    whole, found = gradient(begin, np.arange(40)), {}
    for step in (1e-3, 0.1, 3.0):
        theta = begin.copy()
        for rows in np.arange(40).reshape(8, 5):
            theta = theta - step * gradient(theta, rows)
        found[step] = cosines(np.array([theta - begin, whole]))[0, 1]
    assert found[1e-3] < -0.9999
    assert found[1e-3] < found[0.1] < found[3.0]


# ---------------------------------------------------------------- FedSoft


def test_weights_that_sum_to_one_are_not_the_chances_to_be_selected():
    v = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).double()
    draws = torch.stack([cf.fedsoft.select(v, 2, (0, t)) for t in range(2000)])
    often = draws.double().mean(0)[0]
    assert often.sum() == 2
    assert (often > v[0] + 0.05).all()
    assert often[0] / often[3] < v[0, 0] / v[0, 3]  # flatter


def test_a_cluster_without_votes_weighs_by_points():
    counts = torch.tensor([100, 200, 100])
    u = torch.full((3, 1), 1e-4).double()
    v = cf.fedsoft.aggregation_weights(u, counts)
    assert torch.allclose(v[0], torch.tensor([0.25, 0.5, 0.25]).double())
    v = cf.fedsoft.aggregation_weights(u, torch.tensor([150, 150, 150]))
    assert torch.allclose(v[0], torch.full((3,), 1 / 3).double())


def test_wrong_votes_fall_like_one_over_the_distance():
    chance = [theory.misclassification([0], [d], [0], 1.0, 1) for d in (16.0, 32.0, 64.0)]
    for near, far in pairwise(chance):
        assert near / far == pytest.approx(2, abs=0.02)  # delta^-4 would give 16


def test_the_radius_of_theorem_3_contains_beta():
    def radius(beta):
        gamma = theory.subproblem_inexactness(0.0, beta, 2.0, 2.0)
        return theory.divergence_radius(gamma, 2, 2.0, 2.0)

    assert radius(4.0) > radius(1.0) > radius(0.01)


def terms_of_rho(s, lam=1.0, gamma=0.0, P=0.5, Q=1.0, wrong=0.05, K=60):
    """Five of its six terms in 10:90, where all hold both groups; losses and lambda times s."""
    L, mu, lam = 2 * s, (2 + lam) * s, lam * s
    hat = (1 - wrong) * Q + wrong * Q * (0.5 / 0.1 + 0.5 / 0.9)
    root, more = np.sqrt(2 * K), (gamma + 1) ** 2
    fifth = 4 * L * more * hat / (mu * root)
    last = (more * hat + (1 - wrong) * P + wrong * Q) / (mu * root)
    fourth = L * more * hat / (2 * mu**2)
    return np.array([(P - gamma * Q) / lam, (gamma + 1) * L * Q / (mu * lam), fourth, fifth, last])


def test_one_term_of_rho_has_another_unit_than_the_rest():
    """The term with p' and the clients without the group is zero here."""
    ratio = terms_of_rho(3.0, gamma=0.2) / terms_of_rho(1.0, gamma=0.2)
    assert ratio == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1, 1 / 3])
    first, *others = terms_of_rho(1e-3, lam=10.0)  # a small unit: the fifth term hardly counts
    assert first > sum(others)
    first, *others = terms_of_rho(1.0, lam=10.0)
    assert first < sum(others)


@pytest.mark.parametrize("unit", [1e-6, 1.0])
def test_rho_is_negative_at_lambda_one_even_for_perfect_clients(unit):
    first, second, *_ = terms_of_rho(unit)
    assert first < second
    first, second, *_ = terms_of_rho(unit, lam=10.0)
    assert first > second


def test_corollary_1_of_fedsoft_bounds_the_mean_and_not_the_sum():
    """Gradient descent on a square, perfect votes: a round falls by rho times slope squared."""
    c, step, rounds, rho, total = 1.0, 0.1, 200, None, 0.0
    start = c**2
    for _ in range(rounds):
        slope, before = 2 * c, c**2
        c -= step * slope
        rho = (before - c**2) / slope**2 if rho is None else rho
        assert c**2 - before <= -rho * slope**2 + 1e-12  # (17) without wrong votes
        total += rho * slope**2
    assert total <= start + 1e-9
    assert total / rounds <= start / rounds + 1e-9  # right
    assert total > 100 * start / rounds  # as printed it would be below


def test_table_1_of_fedsoft_implies_a_variance_of_ten():
    """Where both centres stand midway their errors are 1 + a quarter of the squared distance."""
    square = 4 * (np.mean([44.2, 49.6, 41.3, 36.3]) - 1)  # the 30:70 block
    drawn = [
        float((t[0] - t[1]).norm() ** 2)
        for s in range(30)
        for t in [cf.populations.mixture_regression("30:70", 4, seed=s).truth["theta"]]
    ]
    assert min(drawn) < square < max(drawn)  # variance 10
    assert square < np.quantile([10 * d for d in drawn], 0.05)  # variance 100: ten times as far


def test_equation_7_loses_the_pull_of_clusters_that_a_client_lacks():
    """u = (1, 0), and a fifth of the votes, or the smoother, goes to the second centre."""
    u, centres, w, lam = np.array([1.0, 0.0]), np.array([0.5, 3.0]), 0.2, 1.0
    for votes in (np.array([0.8, 0.2]), np.array([1.0, 1e-4])):
        risk = u @ np.array([w**2, (w - 4) ** 2])
        fourth = risk + lam / 2 * votes @ (w - centres) ** 2
        seventh = u[0] * (w**2 + lam / 2 * votes[0] / u[0] * (w - centres[0]) ** 2)
        assert fourth - seventh == pytest.approx(lam / 2 * votes[1] * (w - centres[1]) ** 2)
        assert fourth > seventh


def test_theorem_2_speaks_of_the_model_after_the_round():
    """One cluster: Assumption 2 holds with every beta, and w^t is the centre itself."""
    centre, lam, beta = 1.0, 1.0, 1e-4
    gamma = theory.subproblem_inexactness(0.0, beta, 3.0, 3.0)

    def slope(w):
        return abs(2 * w + lam * (w - centre))

    bound = gamma * 2 * centre
    assert slope(centre) > 50 * bound  # w^t, as printed
    assert slope(lam * centre / (2 + lam)) <= bound  # w^{t + 1}


@pytest.mark.parametrize("seed", range(5))
def test_the_error_of_17_has_a_negative_divisor_at_the_size_of_table_3(seed):
    """Even where every centre is the truth; a cluster has an eighth of all points."""
    theta = cf.populations.mixture_regression("random", 8, 8, seed).truth["theta"].numpy()
    wrong = max(
        theory.misclassification(one, other, one, 1.0, 1)
        for s, one in enumerate(theta)
        for other in theta[:s]
    )
    assert (1 - wrong) / 8 - (8 - 2) * (wrong + 1e-4) < 0
    assert (1 - wrong) / 2 - (2 - 2) * (wrong + 1e-4) > 0


@pytest.mark.parametrize(("gamma", "possible"), [(0.0, True), (0.3, False), (0.5, False)])
def test_rho_can_be_positive_only_for_good_local_solutions(gamma, possible):
    """10:90, six powers of ten of lambda, losses in a small unit: gamma must stay below 1/2."""
    found = [
        first > sum(others)
        for power in range(-3, 4)
        for first, *others in [terms_of_rho(1e-3, lam=10.0**power, gamma=gamma)]
    ]
    assert any(found) == possible
