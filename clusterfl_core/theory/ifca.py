"""IFCA's theory: when each client finds its model, how near the models come, and how fast.

One number stands behind the theorems, the chance that a client takes the wrong one of two models.
In the linear model it is a regularised beta function, and Lemma 1 bounds it with c_1 = 1 and
c_2 = 1/2:

>>> problem = LinearProblem(
...     clients=100, points=20, features=2, smallest=0.5, separation=1.0, noise=1.0
... )
>>> right, wrong, truth = [0.2, 0.0], [0.8, 0.0], [0.0, 0.0]  # the other truth is [1, 0]
>>> round(float(misclassification(right, wrong, truth, noise=1.0, points=20)), 4)
0.0185
>>> round(misclassification_bound(problem, closeness=0.3), 4)
0.7985

In all functions ``distance`` is max_j ‖theta_j - theta*_j‖, ``closeness`` alpha, and c0 to c8 are
the unknown constants of the paper with these numbers, in the order of the parts they stand before.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import betainc, chdtr, chdtrc

from clusterfl_core import check
from clusterfl_core.matching import best_matching

__all__ = [
    "Condition", "Convergence", "ConvexBound", "ConvexProblem", "LinearProblem", "assumptions",
    "basin", "closeness", "convergence", "convex_convergence", "convex_misclassification",
    "convex_step_bound", "distance_to_truth", "exact_step", "misclassification",
    "misclassification_bound", "step_bound", "succeeded", "threshold_split",
]  # fmt: skip

VERSIONS = ("extended", "neurips")  # of the paper; they differ in how near a start must be

# ---------------------------------------------------------------- the linear model


@dataclass(frozen=True)
class LinearProblem:
    """The numbers in IFCA's theory of the linear model (section 5.1).

    ``clients`` is m, ``features`` d, ``smallest`` p, the share of the clients in the smallest
    cluster, in (0, 1]; ``separation`` Delta, the smallest distance between two true parameters,
    positive; ``noise`` sigma, not negative. ``points`` is n', the points a client uses for its
    identity in a round, and as many for its gradient: with re-sampling over T rounds it needs n = 2
    n' T in all.
    """

    clients: int
    points: int
    features: int
    smallest: float
    separation: float
    noise: float

    def __post_init__(self):
        _check(self, ("clients", "points", "features"), ("separation",), ("noise",))

    @property
    def signal(self):
        """The fraction rho / (rho + 1), rho = Delta^2 / sigma^2: from 0, all noise, to 1, none."""
        return self.separation**2 / (self.separation**2 + self.noise**2)

    @property
    def floor(self):
        """(sigma / p) sqrt(d / (m n')), the error floor of Theorem 1 without its constant."""
        spread = math.sqrt(self.features / (self.clients * self.points))
        return self.noise / self.smallest * spread


def _check(problem, counts, sizes, deviations):
    found = {name: check.whole(name, getattr(problem, name)) for name in counts}
    found["smallest"] = check.share("smallest", problem.smallest)
    found |= {name: check.positive(name, getattr(problem, name)) for name in sizes}
    for name in deviations:
        value = getattr(problem, name)
        found[name] = check.number(name, value, "[0, inf)", "not be negative")
    check.keep(problem, **found)


def _check_constants(**constants):
    for name, value in constants.items():
        check.positive(name, value)


class Condition(NamedTuple):
    """One condition of a theorem, and whether it holds.

    ``ratio`` is what is there over what is asked, without unknown constants. ``holds`` is None
    where an unknown constant decides: then the ratio must exceed that constant.
    """

    statement: str
    ratio: float
    holds: bool | None


class Convergence(NamedTuple):
    """What a corollary promises: an error, after so many rounds, with so many points a client."""

    error: float
    rounds: int
    points: int


def closeness(distance, separation):
    """How much better than half way a start is: alpha = 1/2 - distance / Delta, at most 1/2.

    For strongly convex losses sqrt(lambda / L) Delta stands in Delta's place (Assumption 6). The
    extended paper needs alpha > 0 (Assumption 1), the NeurIPS paper distance <= Delta / 4, that is
    alpha >= 1/4.
    """
    distance = check.number("distance", distance, "[0, inf)", "not be negative")
    return 0.5 - distance / check.positive("separation", separation)


def assumptions(problem, distance, largest, *, c):
    """Assumptions 1 and 2 of IFCA's Theorem 1, one by one: a list of :class:`Condition`.

    ``problem`` is a LinearProblem, ``distance`` that at the start, ``largest`` max_j ‖theta*_j‖,
    positive, and ``c`` the unknown constant in the exponent of the last condition. The NeurIPS
    paper leaves alpha out of the conditions, for there it is at least 1/4.
    """
    check.kind("problem", problem, LinearProblem)
    _check_constants(largest=largest, c=c)
    m, n, d, p = problem.clients, problem.points, problem.features, problem.smallest
    alpha = max(0.0, closeness(distance, problem.separation))
    log_m, delta = math.log(m), problem.separation
    half_way = "|theta_j - theta*_j| <= (1/2 - alpha) Delta with alpha > 0 (extended, Assumption 1)"
    last = "Delta >~ (sigma / p) sqrt(d / (m n')) + exp(-c (alpha rho / (rho + 1))^2 n')"
    seen = n * (alpha * problem.signal) ** 2
    miss = math.exp(-c * (alpha * problem.signal) ** 2 * n)
    rows = [
        ("|theta_j - theta*_j| <= Delta / 4 (NeurIPS, Assumption 1)", delta / 4, distance),
        (half_way, delta / 2, distance),
        ("max |theta*_j| <~ 1", 1, largest),
        ("sigma <~ 1", 1, problem.noise),
        ("n' >~ ((rho + 1) / (alpha rho))^2 log m", seen, log_m),
        ("d >~ log m", d, log_m),
        ("p >~ log(m) / m", p * m, log_m),
        ("p m n' >~ d", p * m * n, d),
        (last, delta, problem.floor + miss),
    ]
    known = [alpha >= 0.25, alpha > 0, *[None] * (len(rows) - 2)]
    return [
        Condition(statement, have / need if need > 0 else math.inf, holds)
        for (statement, have, need), holds in zip(rows, known, strict=True)
    ]


def step_bound(problem, distance, *, c2, c3, c4, version="extended"):
    """IFCA's Theorem 1: a bound on ‖theta_j - theta*_j‖ after one round, with step size c_1 / p.

    Of a LinearProblem, three numbers whose sum is the bound: contraction (1/2) distance, floor c_2
    (sigma / p) sqrt(d / (m n')) and misclassification c_3 exp(-c_4 (alpha rho / (rho + 1))^2 n').
    The ``version`` "extended" has alpha in the exponent and needs a distance before the round below
    Delta / 2; "neurips" has it in the constant and needs distance <= Delta / 4, else ValueError.
    """
    check.kind("problem", problem, LinearProblem)
    check.one_of("version", version, *VERSIONS)
    _check_constants(c2=c2, c3=c3, c4=c4)
    distance = check.number("distance", distance, "(-inf, inf)", "be a finite number")
    alpha = 0.5 - distance / problem.separation
    if distance < 0 or alpha <= 0 or (version == "neurips" and alpha < 0.25):
        span = "[0, Delta / 2)" if version == "extended" else "[0, Delta / 4]"
        raise ValueError(
            f"distance must be in {span} for the {version} version, "
            f"got {distance} with Delta = {problem.separation}"
        )
    exponent = c4 * (alpha * problem.signal if version == "extended" else problem.signal) ** 2
    return distance / 2, c2 * problem.floor, c3 * math.exp(-exponent * problem.points)


def convergence(problem, *, c6, c7, c8, version="extended"):
    """IFCA's Corollary 1: the error reached, and after how many rounds.

    The :class:`Convergence` of a LinearProblem: epsilon = c_6 (sigma / p) sqrt(d / (m n'))
    + c_7 exp(-c_8 (rho / (rho + 1))^2 n'), T rounded up, and n = 2 n' T. The papers write
    T = log(Delta / (4 epsilon)), the extended one 2 more. The error is halved in a round, so this
    logarithm is to the base 2. ``version`` is "extended" or "neurips".
    """
    check.kind("problem", problem, LinearProblem)
    check.one_of("version", version, *VERSIONS)
    _check_constants(c6=c6, c7=c7, c8=c8)
    error = c6 * problem.floor + c7 * math.exp(-c8 * problem.signal**2 * problem.points)
    rounds = max(0, math.ceil(math.log2(problem.separation / (4 * error)))) if error else math.inf
    rounds += 2 if version == "extended" else 0
    return Convergence(error, rounds, 2 * problem.points * rounds)


def exact_step(problem, step_size, share):
    """What a round of option I does on average to a cluster whose clients all know their identity.

    With N = share m n' fresh points and s = 2 gamma share, the new error is
    (I - (s / N) X'X)(theta - theta*) + (s / N) X' epsilon, and for standard normal X

        E ‖theta+ - theta*‖^2 = (1 - 2 s + s^2 (N + d + 1) / N) ‖theta - theta*‖^2
                                + s^2 sigma^2 d / N.

    This says what "step size c_1 / p" means: s = 1, gamma = 1 / (2 p), takes the first factor to
    (d + 1) / N in the smallest cluster. A cluster more than twice as large then sees s > 2 and
    diverges, so Theorem 1 needs clusters of about one size, which it does not say.

    Returns the factor before ‖theta - theta*‖^2 and the floor that is added. ``problem`` is a
    LinearProblem, ``step_size`` gamma, positive, and ``share`` the cluster's of the clients, p_j.
    """
    check.kind("problem", problem, LinearProblem)
    step_size, share = check.positive("step_size", step_size), check.share("share", share)
    samples = share * problem.clients * problem.points
    s, d = 2 * step_size * share, problem.features
    return 1 - 2 * s + s**2 * (samples + d + 1) / samples, s**2 * problem.noise**2 * d / samples


def misclassification(right, wrong, truth, noise, points):
    """The chance that a client prefers the wrong one of two models, exactly (IFCA, Lemma 1).

    The two losses share the data. With the residuals r = y - <x, right> and r' = y - <x, wrong>,
    the wrong model wins if sum (r - r')(r + r') >= 0. The factors are Gaussian, with correlation

        kappa = (‖a‖^2 - ‖b‖^2) / (‖a - b‖ sqrt(‖a + b‖^2 + 4 sigma^2)),

    a = truth - right, b = truth - wrong. A sum of n' such products is a difference of two scaled
    chi-squares that ARE independent, its sign that of an F variable against a number, and

        P = I_{(1 + kappa) / 2}(n' / 2, n' / 2),

    I the regularised incomplete beta function.

    ``right``, ``wrong`` and ``truth`` [d] are the model of the client's own cluster, another one,
    and the true parameters of the cluster; ``noise`` is sigma, ``points`` (int or array) n', from
    which the client computes both losses. ValueError if the two models have the same loss on every
    point.
    """
    truth = check.array("truth", truth, None)
    a = truth - check.array("right", right, len(truth))
    b = truth - check.array("wrong", wrong, len(truth))
    noise, points = check.number("noise", noise, "[0, inf)", "not be negative"), _points(points)
    scale = np.linalg.norm(a - b) * math.sqrt((a + b) @ (a + b) + 4 * noise**2)
    if not scale > 0:
        raise ValueError("right and wrong must differ in loss, got two that never do")
    correlation = np.clip((a @ a - b @ b) / scale, -1, 1)
    half = np.asarray(points) / 2
    return betainc(half, half, (1 + correlation) / 2)


def threshold_split(right, wrong, noise, points):
    """How IFCA's proof of Lemma 1 bounds that chance (eq. 13), in exact chi-squares.

    If the wrong model wins, its loss lies below a threshold or that of the right model above it:
    P <= P((wrong^2 + sigma^2) u <= t) + P((right^2 + sigma^2) u > t), u chi-square with n' degrees
    of freedom. The threshold t is n' times the mean of the two expected losses, which for distances
    (1/2 -+ alpha) Delta is the proof's n' ((1/4 + alpha^2) Delta^2 + sigma^2).

    ``right`` < ``wrong`` are the distances of the two models from the client's true parameters,
    ``noise`` is sigma, ``points`` (int or array) n'. The sum of the two chances is a bound whatever
    the directions of the two errors.
    """
    right = check.number("right", right, "(-inf, inf)", "be finite")
    wrong = check.number("wrong", wrong, "(-inf, inf)", "be finite")
    noise, points = check.number("noise", noise, "[0, inf)", "not be negative"), _points(points)
    if not 0 <= right < wrong:
        raise ValueError(f"right must be in [0, wrong), got right = {right}, wrong = {wrong}")
    low, high = right**2 + noise**2, wrong**2 + noise**2
    threshold = np.asarray(points) * (low + high) / 2
    above = chdtrc(points, threshold / low) if low > 0 else 0.0  # a perfect model, no noise
    return chdtr(points, threshold / high) + above


def misclassification_bound(problem, closeness, c1=1.0, c2=0.5):
    """IFCA's Lemma 1, P <= c_1 exp(-c_2 n' (alpha rho / (rho + 1))^2), with constants that hold.

    The paper does not give them. With kappa as in :func:`misclassification`, Chernoff's bound is
    P <= (1 - kappa^2)^(n' / 2) <= exp(-n' kappa^2 / 2), and the assumed distances give
    abs(kappa) >= 4 alpha rho / ((1 + 4 alpha^2) rho + 4) >= alpha rho / (rho + 1). Hence 1 and 1/2
    do; ``c1`` and ``c2`` are others, to compare. Right and wrong model of the LinearProblem lie
    within (1/2 - alpha) Delta of their truths, alpha in (0, 1/2].
    """
    check.kind("problem", problem, LinearProblem)
    closeness = check.number("closeness", closeness, "(0, 0.5]", "be in (0, 1/2]")
    _check_constants(c1=c1, c2=c2)
    return c1 * math.exp(-c2 * problem.points * (closeness * problem.signal) ** 2)


def distance_to_truth(estimates, truth):
    """IFCA's dist = (1/k) sum_j ‖theta_hat_j - theta*_j‖, by two ways to say who is who.

    Of two arrays [k, d], estimates and truth, two floats:

    matched
        Under the best one-to-one matching (Hungarian method). Section 6.1 leaves open which.
    nearest
        With the nearest truth of each estimate, as the authors' code has it. Never larger: two
        estimates may then claim one truth, which hides that a cluster was lost.
    """
    truth = check.array("truth", np.atleast_2d(check.reals("truth", truth)), None, None)
    estimates = np.atleast_2d(check.reals("estimates", estimates))
    check.array("estimates", estimates, None, truth.shape[1])
    if not truth.size:
        raise ValueError(f"truth must have a row a cluster, got shape {list(truth.shape)}")
    table = cdist(estimates, truth)
    if table.shape[0] != table.shape[1]:
        raise ValueError(
            f"estimates must be as many as truth, got {table.shape[0]} and {table.shape[1]}"
        )
    truths = list(best_matching(-table).values())
    return float(table[range(len(table)), truths].mean()), float(table.min(1).mean())


def succeeded(distance, noise):
    """IFCA's test of success in figure 3: dist <= 0.6 sigma, or 0.001 where there is no noise."""
    noise = check.number("noise", noise, "[0, inf)", "not be negative")
    if np.isnan(check.reals("distance", distance, finite=False)).any():
        raise ValueError("distance must be a number, got nan")
    return distance <= (0.6 * noise if noise > 0 else 0.001)


def basin(starts, truth, noise, *, clients, points, rounds, seeds, fresh=True):
    """From which starts IFCA finds two groups: a share of the seeds for each start, in both orders.

    An array [2, starts]: of the seeds that end with model j at truth j, and with the names swapped.
    The rounds that Theorem 1 is about (option I, all clients take part), with step size 1 / (4 p),
    p = 1/2. A start has passed if in the end both models lie within Delta / 4 of their truths.

    Parameters
    ----------
    starts : array [starts, 2, d]
        Pairs of first models. All starts of a seed meet the same data.
    truth : array [2, d]
        The first half of the clients belongs to the first row, the others to the second.
    noise : float
        sigma.
    clients, points, rounds, seeds : int
        m, n', T, and how many runs, with seeds from 0, a start gets.
    fresh : bool
        Whether each round brings new points, n' to choose with and n' for the gradient, or all
        rounds use the same n' points for both.
    """
    starts = check.array("starts", starts, None, None, None)
    truth = check.array("truth", truth, None, None)
    counts = {"clients": clients, "points": points, "rounds": rounds, "seeds": seeds}
    clients, points, rounds, seeds = (check.whole(name, value) for name, value in counts.items())
    noise = check.number("noise", noise, "[0, inf)", "not be negative")
    fresh = check.flag("fresh", fresh)
    if starts.shape[1:] != truth.shape or len(truth) != 2:
        given = f"{starts.shape} and {truth.shape}"
        raise ValueError(f"starts and truth must be two models a start and two truths, got {given}")
    data = truth[np.arange(clients) * 2 // clients], noise, points
    near = np.linalg.norm(truth[0] - truth[1]) / 4
    passed = np.zeros((2, len(starts)))
    for seed in range(seeds):
        random, thetas = np.random.default_rng(seed), starts.copy()
        kept = _moments(random, *data)
        for _ in range(rounds):
            choosing, training = [_moments(random, *data) if fresh else kept for _ in "ab"]
            squares = (thetas[..., :, None] * thetas[..., None, :]).reshape(*starts.shape[:2], -1)
            losses = squares @ choosing[0].reshape(clients, -1).T - 2 * thetas @ choosing[1].T
            second = losses[:, 1] < losses[:, 0]
            votes = np.stack([~second, second], axis=1).astype(float)  # [starts, 2, clients]
            curves = np.tensordot(votes, training[0], axes=1)
            slopes = (curves @ thetas[..., None])[..., 0] - votes @ training[1]
            thetas -= 2 * 0.5 / clients * slopes
        for order, goal in enumerate((truth, truth[::-1])):
            passed[order] += (np.linalg.norm(thetas - goal, axis=2) < near).all(axis=1)
    return passed / seeds


def _moments(random, own, noise, points):
    """All that the squared loss of a client knows of its data: X'X / n' and X'y / n'."""
    x = random.normal(size=(len(own), points, own.shape[1]))
    y = np.einsum("mnd,md->mn", x, own) + noise * random.normal(size=x.shape[:2])
    return np.einsum("mnd,mne->mde", x, x) / points, np.einsum("mnd,mn->md", x, y) / points


# ---------------------------------------------------------------- strongly convex losses


@dataclass(frozen=True)
class ConvexProblem:
    """The numbers in IFCA's theory of strongly convex losses (section 5.2).

    ``clients`` is m, ``points`` n', ``clusters`` k, ``smallest`` p and ``separation`` Delta, as in
    :class:`LinearProblem`; ``convexity`` lambda and ``smoothness`` L (Assumption 3), 0 < lambda <=
    L: the squared loss on standard normal x has 2 and 2. ``loss_deviation`` eta and
    ``gradient_deviation`` v are standard deviations of loss and gradient at one point. Assumptions
    4 and 5 bound their squares at EVERY theta. The linear model has no such bound; take then the
    largest value between the start and the truth.
    """

    clients: int
    points: int
    clusters: int
    smallest: float
    separation: float
    convexity: float
    smoothness: float
    loss_deviation: float
    gradient_deviation: float

    def __post_init__(self):
        sizes = ("separation", "convexity", "smoothness")
        deviations = ("loss_deviation", "gradient_deviation")
        _check(self, ("clients", "points", "clusters"), sizes, deviations)
        if self.smoothness < self.convexity:
            raise ValueError(
                f"smoothness must be at least convexity = {self.convexity:g}, "
                f"got {self.smoothness:g}"
            )

    @property
    def rate(self):
        """What a round takes off the error, p lambda / (8 L) of it (Theorem 2)."""
        return self.smallest * self.convexity / (8 * self.smoothness)

    @property
    def reach(self):
        """sqrt(lambda / L) Delta, what Delta is in the linear model (Assumption 6)."""
        return math.sqrt(self.convexity / self.smoothness) * self.separation


class ConvexBound(NamedTuple):
    """IFCA's Theorem 2: what is left of the error, and three parts of its floor; add them up."""

    contraction: float
    gradient: float
    misclassification: float
    cross: float


def convex_misclassification(problem, closeness):
    """IFCA's Lemma 3: P(one wrong model wins) <= 8 eta^2 / (alpha^2 lambda^2 Delta^4 n').

    The paper writes c_1; its proof, Chebyshev's inequality on both losses, gives 4 + 4. With
    n' = 1 this is the p_epsilon of FedSoft's Lemma 1, whose points choose one by one.

    It may exceed 1. ``problem`` is a ConvexProblem, ``closeness`` in (0, 1/2].
    """
    check.kind("problem", problem, ConvexProblem)
    closeness = check.number("closeness", closeness, "(0, 0.5]", "be in (0, 1/2]")
    gap = closeness * problem.convexity * problem.separation**2
    return 8 * problem.loss_deviation**2 / (gap**2 * problem.points)


def convex_step_bound(problem, distance, failure, *, c0, c1, c2):
    """IFCA's Theorem 2 (extended paper): the error after one round with step size 1 / L.

    The :class:`ConvexBound` of a ConvexProblem: (1 - p lambda / (8 L)) distance, c_0 v / (delta L
    sqrt(p m n')), c_1 eta^2 / (delta alpha^2 lambda^2 Delta^4 n') and c_2 v eta k^(3/2) /
    (delta^(3/2) alpha lambda L Delta^2 sqrt(m) n'). It holds with probability 1 - delta for each
    cluster; ``failure`` is delta, in (0, 1]. ValueError unless the distance before the round lies
    below sqrt(lambda / L) Delta / 2.
    """
    check.kind("problem", problem, ConvexProblem)
    _check_constants(c0=c0, c1=c1, c2=c2)
    failure = check.share("failure", failure)
    distance = check.number("distance", distance, "(-inf, inf)", "be finite")
    alpha = 0.5 - distance / problem.reach
    if distance < 0 or alpha <= 0:
        raise ValueError(
            f"distance must be in [0, sqrt(lambda / L) Delta / 2) = [0, {problem.reach / 2}), "
            f"got {distance}"
        )
    floor = _convex_floor(problem, alpha, failure, (c0, c1, c2))
    return ConvexBound((1 - problem.rate) * distance, *floor)


def convex_convergence(problem, failure, *, c0, c1, c2):
    """IFCA's Corollary 2 (extended paper): the error reached, and after how many rounds.

    The :class:`Convergence` of a ConvexProblem. Its error epsilon is (16 L / (p lambda)) times the
    floor of Theorem 2 at alpha = 1/4, with ``failure``, delta in (0, 1], shared among all clusters
    and rounds: delta_0 = p lambda delta / (k L log(m n')) (eq. 40; its constant goes into c_0, c_1,
    c_2). The statement hides the third part in O~(1 / (n' sqrt(m))). T = (8 L / (p lambda)) log(2
    Delta / epsilon), rounded up, and n = 2 n' T.
    """
    check.kind("problem", problem, ConvexProblem)
    _check_constants(c0=c0, c1=c1, c2=c2)
    failure = check.share("failure", failure)
    if problem.clients * problem.points < 2:
        raise ValueError("problem must have two points at least, all clients together, got 1")
    rate = 8 * problem.rate  # p lambda / L
    each = rate * failure / (problem.clusters * math.log(problem.clients * problem.points))
    error = 16 / rate * sum(_convex_floor(problem, 0.25, each, (c0, c1, c2)))
    if not error:
        raise ValueError("gradient_deviation and loss_deviation must not both be 0")
    rounds = max(0, math.ceil(math.log(2 * problem.separation / error) / problem.rate))
    return Convergence(error, rounds, 2 * problem.points * rounds)


def _convex_floor(problem, alpha, failure, constants):
    c0, c1, c2 = constants
    m, n = problem.clients, problem.points
    v, eta = problem.gradient_deviation, problem.loss_deviation
    gap = alpha * problem.convexity * problem.separation**2
    misled = failure**1.5 * gap * problem.smoothness * math.sqrt(m) * n
    return (
        c0 * v / (failure * problem.smoothness * math.sqrt(problem.smallest * m * n)),
        c1 * eta**2 / (failure * gap**2 * n),
        c2 * v * eta * problem.clusters**1.5 / misled,
    )


def _points(given):
    """n', one whole number or an array of them."""
    found = check.reals("points", given)
    if not found.size or (found != found.round()).any() or found.min() < 1:
        raise ValueError(f"points must be whole numbers, at least 1, got {check.shown(given)}")
    return found
