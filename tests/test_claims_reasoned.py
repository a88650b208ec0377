"""Claims that a closed form, a count or a few seconds decide, and no other test."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import clusterfl_core as cf
from clusterfl_core.populations.mixtures import pattern_shares
from clusterfl_core.randomness import generator

theory = cf.theory


def shares(clients, clusters, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(clusters), clients)


def by_share(u, power=1):
    v = (u**power).T
    return v / v.sum(1, keepdims=True)


def apart(rows, others):
    return np.linalg.norm(rows - others, axis=1)


# ---------------------------------------------------------------- FedSoft: shares and centres


def test_the_minima_of_clients_own_risks_hold_the_cluster_models():
    """No minimum of (3) is near a true model, and least squares on the shares finds them all."""
    dice = np.random.default_rng(0)
    theta, u = 4 * dice.normal(size=(3, 5)), 0.4 / 3 + 0.6 * shares(12, 3)
    own = u @ theta  # all clusters have one curvature
    assert min(apart(own, one).min() for one in theta) > 0.5
    assert np.allclose(np.linalg.lstsq(u, own, rcond=None)[0], theta)


def test_squared_shares_rest_nearer_to_the_truth_than_shares():
    """Theorem 2 ranks clients by share; other weights than v in proportion to u keep the rank."""
    for seed in range(20):
        theta = np.random.default_rng(seed).normal(size=(3, 10))
        u = shares(100, 3, seed)
        errors = [
            apart(theory.soft_centers(theta, u, by_share(u, power), 1.0), theta).mean()
            for power in (1, 2, 4)
        ]
        assert errors[0] > errors[1] > errors[2] > 0


def triangle(base, side):
    """Three models: two of them ``base`` apart, the third ``side`` from both."""
    return np.array([[-base / 2, 0.0], [base / 2, 0.0], [0.0, math.sqrt(side**2 - base**2 / 4)]])


def rest(theta, seed=0):
    u = shares(300, 3, seed)
    return apart(theory.soft_centers(theta, u, by_share(u), 1.0), theta)


def test_what_is_left_with_perfect_shares_grows_with_all_distances_and_never_falls():
    """The printed Delta^2 / delta^4 falls to a hundredth where all distances are ten times."""
    near, far = rest(triangle(1, 1)), rest(triangle(10, 10))
    assert np.allclose(far, 10 * near)
    assert near.min() > 0.1


def test_two_clusters_that_merge_leave_the_error_of_the_third_distance():
    one = rest(triangle(0, 1))
    assert np.allclose(rest(triangle(1e-9, 1)), one)
    assert np.allclose(rest(triangle(0, 3)), 3 * one)
    assert one.max() < 1


@pytest.mark.parametrize("seed", range(5))
def test_equal_distances_are_best_from_above_and_worst_from_below(seed):
    """Equal sides of 1; the others shrink one of them (a small delta) or stretch two (Delta)."""
    equal, small, large = (
        rest(triangle(*sides), seed).mean() for sides in ((1, 1), (0.3, 1), (1, 3))
    )
    assert small < equal < large


def votes(theta, points=200_000):
    """Row s: how often a point of cluster s chooses each true model, noise 1, normal inputs."""
    dice = np.random.default_rng(0)
    x, noise = dice.normal(size=(points, theta.shape[1])), dice.normal(size=points)
    chosen = [
        np.square((x * (one - theta[:, None])).sum(2) + noise).argmin(0) for one in theta
    ]  # squared errors [models, points]
    return np.array([np.bincount(c, minlength=len(theta)) / points for c in chosen])


def test_wrong_votes_prefer_the_near_cluster_and_pull_its_centre_less_than_the_far_one():
    """Pure clients: a centre is the mean of models by votes, and 1 / distance times distance."""
    theta = triangle(4, 16)
    wrong = votes(theta)
    assert wrong[0, 1] > 2 * wrong[0, 2]
    centres = by_share(wrong) @ theta
    pulled = apart(centres, theta)
    assert pulled[:2].max() < pulled[2]


def test_one_pair_pulls_by_its_distance_times_an_angle_that_never_exceeds_two_over_pi():
    for distance in (0.5, 2.0, 8.0, 32.0, 128.0):
        chance = theory.misclassification([0], [distance], [0], 1.0, 1)
        assert chance == pytest.approx(math.atan(2 / distance) / math.pi)
        assert distance * chance < 2 / math.pi
    near, far = (d * theory.misclassification([0], [d], [0], 1.0, 1) for d in (1.0, 16.0))
    assert near < far


def test_unequal_distances_do_not_make_the_remaining_error_of_pure_clients_larger():
    """All sides 12, or one of them 3: wrong votes alone."""
    equal, unequal = (apart(by_share(votes(t)) @ t, t) for t in (triangle(12, 12), triangle(3, 12)))
    assert unequal.mean() < equal.mean() - 0.05
    assert unequal[:2].max() < equal.min() - 0.1
    assert unequal.max() < 1.1 * equal.max()


# ---------------------------------------------------------------- FedSoft: Theorems 2 and 4


def bowl(dice, low, high, d=3):
    Q = np.linalg.qr(dice.normal(size=(d, d)))[0]
    return Q @ np.diag([low, *dice.uniform(low, high, d - 2), high]) @ Q.T


def a_client(seed):
    """Quadratic clusters, centres that Assumption 4 barely allows, shares: what Theorem 2 is about.

    Returns the slope of each sub-problem as a function, the slopes of the risks at their centres,
    the shares, sqrt(beta), L_lambda / mu_lambda, and the minimiser and Hessian of h_k.
    """
    dice = np.random.default_rng(seed)
    k, lam, high = (
        int(dice.integers(2, 5)),
        10 ** dice.uniform(-2, 2),
        dice.choice([1.0, 4.0, 20.0]),
    )
    theta = dice.normal(size=(k, 3))
    near = np.linalg.norm(theta[:, None] - theta, axis=2)[~np.eye(k, dtype=bool)].min()
    way = (theta.mean(0) - theta) if seed % 2 else dice.normal(size=(k, 3))
    radius = dice.uniform(0.9, 1) / 2 * math.sqrt(1 / high) * near
    centres = theta + radius * way / np.linalg.norm(way, axis=1, keepdims=True)
    bends, u = [bowl(dice, 1.0, high) for _ in range(k)], dice.dirichlet(np.ones(k))
    hessians = [A + lam * np.eye(3) for A in bends]
    pulled = [A @ t + lam * c for A, t, c in zip(bends, theta, centres, strict=True)]
    best = [np.linalg.solve(H, b) for H, b in zip(hessians, pulled, strict=True)]

    def slope(w, s):
        return np.linalg.norm(hessians[s] @ (w - best[s]))

    risks = [np.linalg.norm(A @ (c - t)) for A, t, c in zip(bends, theta, centres, strict=True)]
    off = [sum(u[j] * slope(best[s], j) ** 2 for j in range(k)) / risks[s] ** 2 for s in range(k)]
    whole = np.tensordot(u, hessians, 1)
    optimum = np.linalg.solve(whole, u @ pulled)
    return slope, risks, u, math.sqrt(max(off)), (high + lam) / (1 + lam), optimum, whole


def test_theorem_2_holds_with_the_inexactness_that_it_names():
    """With m = min ||grad F||, one chain over the sub-problems, each mu strongly convex, L smooth:

    sum u ||grad h_s(w)||^2 <= 2 L sum u (h_s(w) - h_s*)
                            <= 2 L (gamma_0^2 m^2 / (2 mu) + sum u (h_s(w_j*) - h_s*))
                            <= (L / mu) (gamma_0^2 + beta) ||grad F_j(c_j)||^2,

    by smoothness, by strong convexity of h_k = sum u h_s, and by strong convexity and
    Assumption 2. So no term u_s ||grad h_s(w)||^2 is larger.
    """
    tight = []
    for seed in range(600):
        slope, risks, u, root, ratio, optimum, whole = a_client(seed)
        dice = np.random.default_rng(seed)
        push, solver = dice.normal(size=3), dice.choice([0.0, 0.3])
        push *= solver * min(risks) / np.linalg.norm(push)
        w = optimum + np.linalg.solve(whole, push)
        gamma = theory.subproblem_inexactness(solver, root**2, 1.0, ratio)
        tight += [slope(w, s) * math.sqrt(u[s]) / (gamma * risks[s]) for s in range(len(u))]
    assert max(tight) <= 1
    assert max(tight) > 0.5  # half the bound would be broken


def test_assumptions_2_and_4_leave_no_lambda_to_theorem_4_where_a_client_is_mixed():
    """rho > 0 needs gamma < n_s / m_s <= 1. But gamma is at least sqrt 2, for known shares:

    The optimum of a sub-problem is lambda / (mu + lambda) times as far from the true model as the
    centre, so Assumption 4 keeps optima apart by delta (1 - r lambda / (mu + lambda)), where
    r^2 = mu / L, and the slope at a centre below L r delta / 2. With x = lambda / mu

    gamma^2 >= 4 (1 - u) (1 + r^2 x) / (1 + x) (1 + (1 - r) x)^2 >= 4 (1 - u)

    for every share u of the client, of which one is at most a half.
    """
    least = []
    for seed in range(600):
        _, _, u, root, ratio, *_ = a_client(seed)
        gamma = theory.subproblem_inexactness(0.0, root**2, 1.0, ratio)
        assert gamma >= 2 * math.sqrt(1 - u.min())
        least.append(gamma)
    assert math.sqrt(2) <= min(least) < 2


@pytest.mark.parametrize("pull", [0.3, 1.0, 30.0])
def test_for_pure_clients_of_one_curvature_theorem_4_is_an_equality(pull):
    """Everybody, right votes, exact solvers: gamma = 0, and a centre takes a proximal step."""
    off = 0.7
    after = pull * off / (2 + pull)
    rho = 1 / pull - 2 / ((2 + pull) * pull) - 2 / (2 * (2 + pull) ** 2)
    assert after**2 - off**2 == pytest.approx(-rho * (2 * off) ** 2)


# ---------------------------------------------------------------- FedSoft: the local problem


def test_a_sub_problem_is_more_curved_by_lambda_times_the_ratio_of_votes_to_shares():
    A = np.random.default_rng(0).normal(size=(6, 4))
    hessian = A.T @ A
    low, high = np.linalg.eigvalsh(hessian)[[0, -1]]
    for pull, ratio in ((0.5, 1.0), (2.0, 1.0), (2.0, 0.3)):
        found = np.linalg.eigvalsh(hessian + pull * ratio * np.eye(4))[[0, -1]]
        assert found == pytest.approx([low + pull * ratio, high + pull * ratio])


@pytest.mark.parametrize(("other", "grows"), [(1.0, False), (4.0, True)])
def test_a_larger_distance_is_harder_only_where_curvatures_differ(other, grows):
    """Ten steps from the mean of centres, all a tenth off; the slope left over that of a centre."""
    bends, u, off = np.array([1.0, other]), np.array([0.5, 0.5]), 0.1

    def left(distance):
        theta = np.array([0.0, distance])
        centres = theta + off
        w = u @ centres
        for _ in range(10):
            slope = u @ (2 * bends * (w - theta)) + (w - u @ centres)
            w -= 0.05 * slope
        return abs(u @ (2 * bends * (w - theta)) + (w - u @ centres)) / (2 * off)

    near, far = left(1.0), left(10.0)
    assert (far > 5 * near) == grows
    if not grows:
        assert far == pytest.approx(near)


@pytest.mark.parametrize(("distance", "together"), [(0.1, True), (2.0, False)])
def test_clusters_that_are_nearly_alike_are_better_combined(distance, together):
    """Least squares on 20 points of each of two clusters, apart and on all 40; 400 draws."""
    dice, d = np.random.default_rng(0), 5
    theta = np.array([np.zeros(d), np.eye(d)[0] * distance])
    alone = both = 0.0
    for _ in range(400):
        x = dice.normal(size=(2, 20, d))
        y = np.einsum("snd,sd->sn", x, theta) + dice.normal(size=(2, 20))
        own = [np.linalg.lstsq(*one, rcond=None)[0] for one in zip(x, y, strict=True)]
        one = np.linalg.lstsq(x.reshape(40, d), y.reshape(40), rcond=None)[0]
        alone += np.square(own - theta).sum()
        both += np.square(one - theta).sum()
    assert (both < 0.9 * alone) == together
    assert (both > 1.1 * alone) == (not together)


def cost_of_votes(clusters, interval, epochs, clients=100, chosen=60):
    """Passes forward that count, over those that train, where a step costs three."""
    return clusters * clients / interval / (3 * epochs * theory.workload(clients, chosen, clusters))


def test_counting_votes_costs_little_beside_ten_epochs_and_more_than_one():
    assert cost_of_votes(2, 2, 10) < 0.05
    assert 0.1 < cost_of_votes(8, 2, 10) < 0.2
    assert cost_of_votes(8, 1, 1) > 2


def test_a_vote_can_be_counted_while_centres_arrive():
    losses = np.random.default_rng(0).random((5, 40))
    best, vote = np.full(40, np.inf), np.zeros(40, int)
    for s, one in enumerate(losses):
        best, vote = np.where(one < best, one, best), np.where(one < best, s, vote)
    assert np.array_equal(vote, losses.argmin(0))


# ---------------------------------------------------------------- FedSoft: tables and patterns


def test_the_patterns_have_two_and_one_hundred_mixtures():
    for pattern, kinds in (("10:90", 2), ("30:70", 2), ("linear", 100), ("random", 100)):
        found = pattern_shares(pattern, 100, 2, generator(99, 0))
        assert len(found.unique(dim=0)) == kinds


def winners(rows):
    return set(np.argmin(rows, axis=1).tolist())


def test_in_table_3_some_centres_win_no_distribution():
    """The paper's table as printed, and the same size here."""
    printed = [
        [62.2, 62.7, 64.0, 63.2, 61.4, 57.6, 63.7, 61.9],
        [65.0, 67.8, 69.4, 65.8, 64.3, 67.1, 64.2, 64.5],
        [60.1, 59.9, 57.8, 58.6, 62.6, 63.2, 60.0, 59.9],
        [96.8, 95.4, 96.8, 98.8, 93.2, 93.8, 95.3, 96.8],
        [86.1, 89.8, 91.8, 87.3, 85.4, 86.6, 85.6, 84.9],
        [161.2, 160.3, 156.0, 160.0, 164.7, 167.3, 162.0, 163.6],
        [110.2, 106.7, 104.8, 109.0, 111.0, 107.8, 111.5, 110.1],
        [34.5, 33.8, 34.8, 33.9, 34.2, 34.1, 34.4, 35.0],
    ]
    assert winners(printed) == {1, 2, 4, 5, 6, 7}
    found = [r["values"]["table"] for r in cf.results.stored("11_rivals", k=8)]
    assert len(found) == 5
    assert all(len(winners(rows)) in (5, 6) for rows in found)


def test_two_centres_part_by_themselves_from_random_starts():
    """Xavier's normal numbers, no training before: four patterns, five seeds."""
    found = [
        r["values"]["table"]
        for pattern in ("10:90", "30:70", "linear", "random")
        for r in cf.results.stored("11_rivals", pattern=pattern, method="FedSoft", k=2, rounds=60)
    ]
    assert len(found) == 20
    assert all(len(winners(rows)) == 2 for rows in found)


# ---------------------------------------------------------------- CFL


def test_conditionals_may_disagree_and_share_the_best_model():
    """Noise 1 and noise 3 around one line: both squared risks are least at its slope."""
    dice = np.random.default_rng(0)
    grid = np.linspace(0, 4, 401)
    x = dice.normal(size=20_000)
    risks = [
        np.square(grid[:, None] * x - (2 * x + noise * dice.normal(size=20_000))).mean(1)
        for noise in (1, 3)
    ]
    assert np.allclose([grid[r.argmin()] for r in risks], 2, atol=0.06)
    assert min(risks[1]) > 5 * min(risks[0])


def test_a_sum_does_not_tell_who_is_like_whom():
    """Two federations whose server hears the same sum: clients that agree, and that do not."""
    alike, unlike = np.array([[1.0, 0], [1, 0]]), np.array([[1.0, 2], [1, -2]])
    assert np.array_equal(alike.sum(0), unlike.sum(0))
    cosine = [rows[0] @ rows[1] / np.prod(np.linalg.norm(rows, axis=1)) for rows in (alike, unlike)]
    assert cosine == pytest.approx([1, -0.6])


def cost_of_comparing(clients, points, epochs):
    """Products for all cosines, m^2 d / 2, over those that train, 3 d a point and epoch."""
    return clients**2 / 2 / (3 * clients * points * epochs)


def test_comparing_updates_costs_little_beside_training_unless_clients_are_very_many():
    """20 clients of 20 points (MNIST) or 2,500 (CIFAR), three epochs; a million phones."""
    assert cost_of_comparing(20, 20, 3) < 0.06
    assert cost_of_comparing(20, 2500, 3) < 0.001
    assert cost_of_comparing(1_000_000, 2500, 3) > 20


def classes(population):
    train = population.train
    labels = [train.y[i, : train.counts[i]] for i in range(len(train.counts))]
    return torch.stack([torch.bincount(one, minlength=10) / len(one) for one in labels])


def test_swapped_labels_leave_the_shares_of_labels_alike():
    """Classes of digits differ by about 1 %; 359 images of a group by chance up to 6 %."""
    y = cf.data.load("digits").y_train
    shares_of_all = torch.bincount(y) / len(y)
    assert shares_of_all.max() - shares_of_all.min() < 0.012
    people = cf.populations.label_swapped("digits", 20, 4, 0)
    every = classes(people)
    groups = torch.stack([every[people.clusters == c].mean(0) for c in range(4)])
    assert (groups - shares_of_all).abs().max() < 4 * math.sqrt(0.1 * 0.9 / 359)


def test_the_first_step_of_the_last_bias_is_the_shares_of_labels():
    """Equal scores at the start: the bias moves by the step times share minus one tenth."""
    people = cf.populations.label_skew("digits", 10, 0.5, 0)
    told = classes(people)
    for i in range(10):
        n = int(people.train.counts[i])
        layer = torch.nn.Linear(64, 10)
        torch.nn.init.zeros_(layer.weight), torch.nn.init.zeros_(layer.bias)
        x, y = people.train.x[i, :n].reshape(n, -1) / 255, people.train.y[i, :n]
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        assert torch.allclose(0.1 - layer.bias.grad, told[i], atol=1e-5)


def test_means_of_transformed_models_can_be_transformed_back_whoever_clusters():
    """IFCA's average within each cluster, too: it needs no encryption of its own."""
    dice = np.random.default_rng(0)
    models, cluster = dice.normal(size=(6, 5)), np.array([0, 0, 1, 1, 1, 0])
    P = np.linalg.qr(dice.normal(size=(5, 5)))[0]
    for c in (0, 1):
        some = models[cluster == c]
        assert np.allclose((some @ P).mean(0) @ P.T, some.mean(0))


def test_separated_congruent_clients_lose_what_they_cannot_see():
    """Strong label skew, cut needlessly: on a client's own labels even, on all digits worse."""
    whole, cut = (
        cf.results.stored("08_three_tests", population="label_skew_0.1", gamma_max=g)
        for g in (0.65, 0.0)
    )
    pairs = [
        (a["values"], b["values"])
        for a, b in zip(whole, cut, strict=True)
        if len(b["values"]["sizes"]) > len(a["values"]["sizes"])
    ]
    assert len(pairs) >= 3
    assert all(b["all_digits"] < a["all_digits"] - 0.02 for a, b in pairs)
    own = np.mean([b["accuracy"] - a["accuracy"] for a, b in pairs])
    assert abs(own) < 0.02


# ---------------------------------------------------------------- IFCA


def test_with_one_point_a_client_a_round_is_alternating_minimisation():
    """Option I on a mixture of two lines whose points lie in one place."""
    dice = torch.Generator().manual_seed(0)
    x, theta = torch.randn(40, 3, generator=dice), torch.randn(2, 3, generator=dice)
    y = (x * theta[torch.arange(40) % 2]).sum(1)
    points = cf.Clients.from_lists(list(x[:, None]), list(y[:, None]))
    people = cf.Federation(points, points)
    line = cf.models.LinearRegression(3)
    algorithm = cf.IFCA(line, 2, cf.LocalSGD(1, 0.4), option="gradients")
    state = algorithm.init(people, 0)
    first = state.bank.tensors["theta"].clone()
    (trip,) = cf.rounds(algorithm, people, 1, start=state)
    miss = x @ first.T - y[:, None]
    best = miss.square().argmin(1)
    wanted = first.clone()
    for j in range(2):
        slope = (2 * miss[best == j, j, None] * x[best == j]).sum(0)
        wanted[j] -= 0.4 / 40 * slope
    assert torch.allclose(trip.state.bank.tensors["theta"], wanted, atol=1e-6)


def test_closeness_grows_and_wrong_choices_become_rarer_round_by_round():
    problem = theory.LinearProblem(200, 400, 10, 0.5, 1.0, 0.5)
    distance, seen = 0.45, []
    for _ in range(6):
        wrong = theory.misclassification_bound(problem, theory.closeness(distance, 1.0))
        seen.append((distance, wrong))
        distance = sum(theory.step_bound(problem, distance, c2=0.1, c3=0.1, c4=0.5))
    for (far, often), (near, seldom) in pairwise(seen):
        assert far > near
        assert often > seldom


def test_the_loss_of_a_point_need_not_be_convex():
    """z sin(5 theta) with z = ±1 on top of a parabola: the mean is the parabola."""
    grid = np.linspace(-3, 3, 601)
    losses = np.array([grid**2 / 2 + z * np.sin(5 * grid) for z in (-1, 1)])
    bends = np.diff(losses, 2, axis=1)
    assert bends.min() < 0 < np.diff(losses.mean(0), 2).min()
    assert losses.var(0).max() <= 1 + 1e-12


def test_the_variance_of_the_squared_loss_has_no_bound():
    """2 (|theta - theta*|^2 + sigma^2)^2: section 5.1 is no case of section 5.2."""
    dice, sigma = np.random.default_rng(0), 1.0
    x, noise = dice.normal(size=400_000), sigma * dice.normal(size=400_000)
    found = [np.square(far * x + noise).var() for far in (0.0, 1.0, 4.0, 16.0)]
    wanted = [2 * (far**2 + sigma**2) ** 2 for far in (0.0, 1.0, 4.0, 16.0)]
    assert found == pytest.approx(wanted, rel=0.05)
    assert found[-1] > 10_000 * found[0]


def test_the_separation_of_figure_3_is_the_scale_itself():
    dice = np.random.default_rng(0)
    coins = dice.integers(0, 2, (200, 2, 1000)).astype(float)
    for scale in (0.1, 1.0):
        truths = scale * coins / np.linalg.norm(coins, axis=2, keepdims=True)
        separation = np.linalg.norm(truths[:, 0] - truths[:, 1], axis=1)
        assert separation.mean() == pytest.approx(scale, rel=0.01)


def test_the_floor_of_known_groups_does_not_know_the_separation():
    """Success is measured in sigma; with identities right its floor is the same for every R."""
    floors = []
    for scale in (0.1, 1.0, 10.0):
        dice = np.random.default_rng(0)
        truth = scale * np.ones(20) / math.sqrt(20)
        x, noise = dice.normal(size=(200, 20)), dice.normal(size=200)
        found = np.linalg.lstsq(x, x @ truth + noise, rcond=None)[0]
        floors.append(np.linalg.norm(found - truth))
    assert np.ptp(floors) < 1e-9
