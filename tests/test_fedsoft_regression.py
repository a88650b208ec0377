"""FedSoft's collapse and its cure: where the centers rest if the server averages or regresses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fedsoft import Exact, bank_of, trips

import clusterfl_core as cf
from clusterfl_core import theory
from clusterfl_core.algorithms import fedsoft
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.contract import Replies
from clusterfl_core.randomness import generator

TEN = torch.tensor([[9, 1], [9, 1], [1, 9], [1, 9]])  # copies of each group: 10:90
THIRTY = torch.tensor([[7, 3], [7, 3], [3, 7], [3, 7]])
THETA = torch.tensor([[4.0, 0.0, -2.0], [-1.0, 3.0, 1.0]], dtype=torch.float64)


def exact(copies, theta=THETA, scale=1.0, sizes=None):
    """Noise-free clients whose loss on a group is exactly a bowl with the Hessian 2 diag(scale^2).

    Client i holds copies_ij times the points scale_1 e_1, scale_2 e_2, ... (times the root of d) of
    group j; ``scale`` may have a row a group.
    """
    k, d = theta.shape
    scale = torch.as_tensor(scale, dtype=torch.float64).expand(k, d)
    xs, ys = [], []
    for row in copies:
        kinds = torch.arange(k).repeat_interleave(row)
        x = torch.cat([d**0.5 * torch.diag(scale[j]) for j in kinds])
        xs.append(x)
        ys.append((x * theta[kinds].repeat_interleave(d, 0)).sum(1))
    train = Clients.from_lists(xs, ys)
    return Federation(train, train.take(range(2)))


def told(federation, copies, **settings):
    """The algorithm, and a state in which the server knows the true shares for good."""
    model = cf.models.LinearRegression(federation.train.x.shape[2]).double()
    settings = {"local": Exact(), "interval": 10**6, "smoother": 0.0, **settings}
    algorithm = cf.FedSoft(model, copies.shape[1], **settings)
    state = algorithm.init(federation, 0)
    shares = copies / copies.sum(1, keepdim=True).double()
    return algorithm, fedsoft.replace(state, assignments=shares, weighed=0)


def ended(algorithm, state, federation, rounds):
    """The state after some rounds, in which nobody weighs."""
    return list(trips(algorithm, state, federation, rounds))[-1][0]


def play(algorithm, state, federation, rounds):
    return ended(algorithm, state, federation, rounds).bank.tensors["theta"]


def start_at(state, rows):
    return fedsoft.replace(state, bank=bank_of(rows))


def weights_of(copies):
    shares = copies / copies.sum(1, keepdim=True).double()
    return fedsoft.regression_weights(
        fedsoft.aggregation_weights(shares, copies.sum(1) * 3), shares
    )


@st.composite
def mixed(draw):
    """Copies [m, k] whose mixtures span all groups, and optima."""
    k = draw(st.integers(2, 4))
    source = generator(99, draw(st.integers(0, 10**6)))
    copies = torch.randint(0, 4, (k + 3, k), generator=source)
    copies[:k] += 6 * torch.eye(k, dtype=torch.int64)
    copies[:, 0] += copies.sum(1) == 0
    return copies, 3 * torch.randn(k, 3, generator=source, dtype=torch.float64)


STRENGTH = st.floats(0, 20)
FEW = settings(max_examples=25, deadline=None)


# ---------------------------------------------------------------- where the centers rest


@FEW
@given(mixed(), STRENGTH)
def test_means_rest_at_the_mixed_optima_of_the_theory(case, proximal):
    """C = M Theta, M = s (1 - (1 - s) B)^-1 B, s = 2 / (2 + lambda); rows of M sum to one."""
    copies, theta = case
    federation = exact(copies, theta)
    algorithm, state = told(federation, copies, proximal=proximal)
    u, counts = state.assignments, federation.train.counts
    v = fedsoft.aggregation_weights(u, counts)
    blend, s = v @ u, 2 / (2 + proximal)
    one = torch.eye(len(theta), dtype=torch.float64)
    pulled = s * torch.linalg.solve(one - (1 - s) * blend, blend)
    torch.testing.assert_close(pulled.sum(1), torch.ones(len(theta)).double())
    rest = torch.as_tensor(theory.soft_centers(theta, u, v, proximal))
    torch.testing.assert_close(rest, pulled @ theta)
    after = play(algorithm, start_at(state, rest), federation, 1)
    torch.testing.assert_close(after, rest, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("proximal", [0.0, 1.0, 5.0])
def test_means_come_to_rest_there_from_a_random_start(proximal):
    federation = exact(TEN)
    algorithm, state = told(federation, TEN, proximal=proximal)
    u = state.assignments
    v = fedsoft.aggregation_weights(u, federation.train.counts)
    rest = torch.as_tensor(theory.soft_centers(THETA, u, v, proximal))
    torch.testing.assert_close(play(algorithm, state, federation, 80), rest)
    assert (rest[0] - rest[1]).norm() < 0.65 * (THETA[0] - THETA[1]).norm()


@FEW
@given(mixed(), STRENGTH, st.lists(st.floats(0.3, 3), min_size=3, max_size=3))
def test_the_regression_brings_every_error_down_by_lambda_over_curvature_and_lambda(
    case, proximal, scale
):
    """C - Theta shrinks by lambda (A + lambda)^-1 a round: its only resting place is Theta."""
    copies, theta = case
    federation = exact(copies, theta, scale)
    algorithm, state = told(federation, copies, proximal=proximal, regress_after=0)
    begin = torch.randn(theta.shape, generator=generator(99, 2), dtype=torch.float64)
    after = play(algorithm, start_at(state, begin), federation, 1)
    curvature = 2 * torch.tensor(scale, dtype=torch.float64) ** 2
    wanted = theta + (begin - theta) * proximal / (curvature + proximal)
    torch.testing.assert_close(after, wanted, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("copies", [TEN, THIRTY], ids=["10:90", "30:70"])
@pytest.mark.parametrize("proximal", [0.0, 1.0, 5.0])
def test_the_regression_ends_at_the_optima_and_every_client_at_its_mixture(copies, proximal):
    federation = exact(copies, scale=[1.0, 0.8, 1.5])
    algorithm, state = told(federation, copies, proximal=proximal, regress_after=2)
    after = ended(algorithm, state, federation, 80)
    torch.testing.assert_close(after.bank.flatten(), THETA, atol=1e-4, rtol=0)
    best = state.assignments @ THETA
    torch.testing.assert_close(after.personal.flatten(), best, atol=1e-4, rtol=0)


def test_counted_votes_leave_the_optima_where_they_are():
    federation = exact(TEN)
    algorithm, state = told(federation, TEN, interval=1, regress_after=0)
    after = ended(algorithm, start_at(state, THETA), federation, 6)  # weighs three times
    torch.testing.assert_close(after.bank.flatten(), THETA, atol=1e-4, rtol=0)
    torch.testing.assert_close(after.assignments, state.assignments)


@FEW
@given(mixed())
def test_the_regression_is_least_squares_in_which_a_client_counts_by_its_points(case):
    copies, theta = case
    u, counts = copies / copies.sum(1, keepdim=True).double(), 3 * copies.sum(1)
    w = u @ theta + torch.randn(len(u), 3, generator=generator(99, 3), dtype=torch.float64)
    weights = fedsoft.regression_weights(fedsoft.aggregation_weights(u, counts), u)
    heavy = counts.double().sqrt()[:, None]
    fitted = torch.linalg.lstsq(heavy * u, heavy * w, driver="gelsd").solution
    torch.testing.assert_close(weights @ w, fitted, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(theta)).double())


@pytest.mark.parametrize("smoother", [1e-4, 0.2])
def test_rows_of_the_regression_sum_to_one_where_those_of_the_importance_do_not(smoother):
    shares = torch.tensor([[1.0, 0.0], [0.7, 0.3], [0.2, 0.8]]).double().clamp(min=smoother)
    assert (shares.sum(1) > 1).any()
    v = fedsoft.aggregation_weights(shares, torch.tensor([10, 20, 30]))
    found = fedsoft.regression_weights(v, shares)
    torch.testing.assert_close(found.sum(1), torch.ones(2).double())
    assert found.min() < 0


def test_until_the_round_named_the_server_averages_bit_for_bit():
    federation = exact(TEN)
    plain, state = told(federation, TEN)
    late, _ = told(federation, TEN, regress_after=3)
    for t, (one, other) in enumerate(
        zip(trips(plain, state, federation, 4), trips(late, state, federation, 4), strict=True)
    ):
        assert torch.equal(one[0].bank.flatten(), other[0].bank.flatten()) == (t < 3)


# ---------------------------------------------------------------- each assumption, broken once


def gap_of(rows):
    return float((rows[0] - rows[1]).norm() / (THETA[0] - THETA[1]).norm())


class Quartic(cf.models.LinearRegression):
    """The fourth power of the error in place of its square."""

    @staticmethod
    def clusterfl_loss(outputs, y):
        return (outputs - y) ** 4


def test_1_a_loss_that_is_not_quadratic():
    """A client's best model is no mixture by shares, but by their cube roots."""
    theta = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    federation = exact(TEN, theta)
    algorithm, state = told(federation, TEN, local=cf.LocalSGD(150, 0.1), proximal=0.0)
    algorithm = fedsoft.replace(algorithm, model=Quartic(1).double(), regress_after=0)
    state = fedsoft.replace(
        state, personal=cf.banks.Bank(algorithm.model, {"theta": theta[[0] * 4]})
    )
    found = play(algorithm, state, federation, 1)
    share = 9 ** (1 / 3) / (9 ** (1 / 3) + 1)
    torch.testing.assert_close(
        found, theta * (2 * share - 1) / 0.8, atol=1e-3, rtol=0
    )  # 0.44 of the way


def test_2_groups_of_different_curvature():
    """Inputs of group 1 are three times as large: the client with 10% of it stands half way."""
    federation = exact(TEN, scale=[[1.0] * 3, [3.0] * 3])
    algorithm, state = told(federation, TEN, proximal=0.0, regress_after=0)
    found = play(algorithm, state, federation, 1)
    places = torch.tensor([0.9 / 1.8, 0.9 / 1.8, 0.1 / 8.2, 0.1 / 8.2], dtype=torch.float64)
    w = places[:, None] * THETA[0] + (1 - places[:, None]) * THETA[1]
    torch.testing.assert_close(found, weights_of(TEN) @ w, atol=1e-5, rtol=0)
    assert (found[0] - THETA[0]).norm() > 0.3 * (THETA[0] - THETA[1]).norm()


def test_3_a_best_model_of_the_sample_is_the_mixture_up_to_noise_that_points_reduce():
    """And the regression enlarges the noise by one over the least eigenvalue of B."""

    def off(copies, points):
        weights, misses = weights_of(copies), []
        for draw in range(60):
            source = generator(98, draw)
            w = []
            for share in copies[:, 0] / 10:
                x = torch.randn(points, 3, generator=source, dtype=torch.float64)
                kinds = (torch.arange(points) >= share * points).long()
                noise = torch.randn(points, generator=source, dtype=torch.float64)
                y = (x * THETA[kinds]).sum(1) + noise
                w.append(torch.linalg.lstsq(x, y[:, None]).solution[:, 0])
            misses.append((weights @ torch.stack(w) - THETA).norm())
        return float(torch.stack(misses).mean())

    ten, thirty = off(TEN, 100), off(THIRTY, 100)
    assert ten > 2 * off(TEN, 1600)
    assert thirty > 1.5 * ten


@given(st.floats(0, 0.4), st.floats(0, 0.4))
def test_4_shares_that_are_confused_alike_everywhere_overshoot(p, q):
    """With U Q in place of U the regression ends at Q^-1 Theta, beyond the optima."""
    confusion = torch.tensor([[1 - p, p], [q, 1 - q]], dtype=torch.float64)
    u = TEN / 10.0
    wrong = u.double() @ confusion
    v = fedsoft.aggregation_weights(wrong, torch.full((4,), 30))
    found = fedsoft.regression_weights(v, wrong) @ (u.double() @ THETA)
    torch.testing.assert_close(found, torch.linalg.solve(confusion, THETA), atol=1e-2, rtol=1e-3)
    assert gap_of(found) >= 1 - 1e-6


@pytest.mark.parametrize("warm", [True, False])
def test_5_clients_that_take_one_step_a_round_arrive_later_and_nowhere_else(warm):
    federation = exact(TEN)
    few = {"local": cf.LocalSGD(1, 0.1), "proximal": 1.0, "regress_after": 0}
    algorithm, state = told(federation, TEN, warm_start=warm, **few)
    early, late = (play(algorithm, state, federation, rounds) for rounds in (3, 150))
    assert (early - THETA).norm() > 1
    torch.testing.assert_close(late, THETA, atol=1e-4, rtol=0)


def test_6_who_does_not_answer_does_not_matter_as_long_as_the_others_are_mixed_differently():
    federation = exact(TEN)
    algorithm, state = told(federation, TEN, proximal=0.0, regress_after=0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    rows = torch.tensor([1, 2, 3])
    some = Replies(rows, replies.bank.take(rows), {"loss": replies.values["loss"][rows]})
    after = algorithm.absorb(state, [some])
    torch.testing.assert_close(after.bank.flatten(), THETA, atol=1e-4, rtol=0)
    same = Replies(rows[:0], replies.bank.take([]), {"loss": replies.values["loss"][:0]})
    assert torch.equal(algorithm.absorb(state, [same]).bank.flatten(), state.bank.flatten())


def test_7_equal_mixtures_leave_the_mean_and_nearly_equal_ones_its_noise_enlarged():
    equal = torch.tensor([[5, 5]] * 4)
    federation = exact(equal)
    plain, state = told(federation, equal, proximal=0.0)
    unmixed, _ = told(federation, equal, proximal=0.0, regress_after=0)
    twins = play(plain, state, federation, 1)
    torch.testing.assert_close(play(unmixed, state, federation, 1), twins)
    assert gap_of(twins) < 1e-9
    near = torch.tensor([[52, 48], [52, 48], [48, 52], [48, 52]])
    assert weights_of(near).norm() > 10 * weights_of(TEN).norm()


def test_a_center_without_votes_becomes_a_twin_or_stays_as_for_means():
    counts = torch.tensor([10, 20, 10])
    nobody = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    for smoother, row in ((0.0, [0, 0, 0]), (1e-4, [0.25, 0.5, 0.25])):
        u = nobody.clamp(min=smoother)
        found = fedsoft.regression_weights(fedsoft.aggregation_weights(u, counts), u)
        torch.testing.assert_close(found[0], torch.tensor([0.25, 0.5, 0.25]).double())
        torch.testing.assert_close(found[1], torch.tensor(row).double())


# ---------------------------------------------------------------- the guard, and what is refused


def test_votes_for_random_centers_can_throw_the_regression_off_and_four_means_prevent_it():
    """10:90 without springs: one of the first centers gets most votes, and B is nearly singular."""
    line = cf.models.LinearRegression(10)
    world = cf.populations.mixture_regression("10:90", seed=4)
    errors = {}
    for after in (None, 0, 4):
        algorithm = cf.FedSoft(line, 2, cf.LocalSGD(30, 0.1), 0.0, regress_after=after)
        run = cf.run(algorithm, world, 6, seed=4)
        errors[after] = float(cf.evaluation.center_table(run.models, world).min(1).values.mean())
    assert errors[4] < 2 < 8 < errors[None] < 50 < errors[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"regress_after": -1}, "regress_after must be at least 0 or None, got -1"),
        ({"regress_after": 2.5}, "regress_after must be a whole number or None, got 2.5"),
        (
            {"regress_after": 4, "selected": 3},
            "regress_after must be None where clients are selected, got 4: the models of a draw "
            "are averaged plainly",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        cf.FedSoft(cf.models.LinearRegression(3), 2, **settings)
