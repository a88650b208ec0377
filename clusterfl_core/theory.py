"""The bounds of the papers as functions, and beside a bound what holds exactly, if known.

The papers state bounds up to "universal constants" c, c_1, c_2, ... that they do not give. Such a
bound has a shape and no value; the constants are therefore arguments without a default. Where a
constant can be found, or an exact value stands behind the bound, there is a function for it.

One such case is the chance that a client of IFCA takes the wrong one of two models. It is a
regularised beta function, and Lemma 1 bounds it with c_1 = 1 and c_2 = 1/2:

>>> problem = LinearProblem(
...     clients=100, points=20, features=2, smallest=0.5, separation=1.0, noise=1.0
... )
>>> right, wrong, truth = [0.2, 0.0], [0.8, 0.0], [0.0, 0.0]  # the other truth is [1, 0]
>>> round(float(misclassification(right, wrong, truth, noise=1.0, points=20)), 4)
0.0185
>>> round(misclassification_bound(problem, closeness=0.3), 4)
0.7985

Errors are Euclidean distances between parameters, sigma is the standard deviation of the noise, and
the squared loss has no factor 1/2, so that its gradient has a factor 2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, squareform
from scipy.special import betainc
from scipy.stats import chi2

VERSIONS = ("extended", "neurips")  # of IFCA's paper; they differ in how near a start must be

# ---------------------------------------------------------------- IFCA: linear model


@dataclass(frozen=True)
class LinearProblem:
    """The numbers in IFCA's theory of the linear model (section 5.1).

    Parameters
    ----------
    clients : int
        m.
    points : int
        n', the points a client uses for its identity in a round, and as many for its gradient. With
        re-sampling over T rounds a client needs n = 2 n' T points in all.
    features : int
        d.
    smallest : float
        p, the share of the clients in the smallest cluster, in (0, 1].
    separation : float
        Delta, the smallest distance between two true parameters, positive.
    noise : float
        sigma, not negative.

    Raises
    ------
    ValueError
        If a number is out of bounds.
    """

    clients: int
    points: int
    features: int
    smallest: float
    separation: float
    noise: float

    def __post_init__(self):
        _check_counts(clients=self.clients, points=self.points, features=self.features)
        _check_share("smallest", self.smallest)
        _check_positive(separation=self.separation)
        if self.noise < 0:
            raise ValueError(f"noise must not be negative, got {self.noise}")

    @property
    def signal(self):
        """The fraction rho / (rho + 1), rho = Delta^2 / sigma^2: from 0, all noise, to 1, none."""
        return self.separation**2 / (self.separation**2 + self.noise**2)

    @property
    def floor(self):
        """(sigma / p) sqrt(d / (m n')), the error floor of Theorem 1 without its constant."""
        spread = math.sqrt(self.features / (self.clients * self.points))
        return self.noise / self.smallest * spread


class Condition(NamedTuple):
    """One condition of a theorem, and whether it holds.

    ``ratio`` is what is there over what is asked, without unknown constants. ``holds`` is None
    where an unknown constant decides: then the ratio must exceed that constant.
    """

    statement: str
    ratio: float
    holds: bool | None


class StepBound(NamedTuple):
    """The three terms whose sum bounds the error after one round of IFCA."""

    contraction: float
    floor: float
    misclassification: float

    @property
    def total(self):
        """The bound itself."""
        return self.contraction + self.floor + self.misclassification


class Convergence(NamedTuple):
    """What a corollary promises: an error, after so many rounds, with so many points a client."""

    error: float
    rounds: int
    points: int


def closeness(distance, separation):
    """How much better than half way a start is: alpha = 1/2 - distance / Delta.

    Parameters
    ----------
    distance : float
        max_j ‖theta_j - theta*_j‖.
    separation : float
        Delta for the linear model. For strongly convex losses sqrt(lambda / L) Delta stands in its
        place (Assumption 6).

    Returns
    -------
    float
        At most 1/2. The extended paper needs alpha > 0 (Assumption 1), the NeurIPS paper
        ‖theta_j - theta*_j‖ <= Delta / 4, that is alpha >= 1/4.
    """
    _check_positive(separation=separation)
    return 0.5 - distance / separation


def assumptions(problem, distance, largest, *, c):
    """Assumptions 1 and 2 of IFCA's Theorem 1, one by one.

    Parameters
    ----------
    problem : LinearProblem
    distance : float
        max_j ‖theta_j - theta*_j‖ at the start.
    largest : float
        max_j ‖theta*_j‖, positive.
    c : float
        The unknown constant in the exponent of the last condition.

    Returns
    -------
    list of Condition
        The NeurIPS paper leaves alpha out of the conditions, for there it is at least 1/4.
    """
    _check_positive(largest=largest, c=c)
    m, n, d, p = problem.clients, problem.points, problem.features, problem.smallest
    alpha = max(0.0, closeness(distance, problem.separation))
    log_m = math.log(m)
    miss = math.exp(-c * (alpha * problem.signal) ** 2 * n)

    def ratio(have, need):
        return have / need if need > 0 else math.inf

    return [
        Condition(
            "|theta_j - theta*_j| <= Delta / 4 (NeurIPS, Assumption 1)",
            ratio(problem.separation / 4, distance),
            alpha >= 0.25,
        ),
        Condition(
            "|theta_j - theta*_j| <= (1/2 - alpha) Delta with alpha > 0 (extended, Assumption 1)",
            ratio(problem.separation / 2, distance),
            alpha > 0,
        ),
        Condition("max |theta*_j| <~ 1", 1 / largest, None),
        Condition("sigma <~ 1", ratio(1, problem.noise), None),
        Condition(
            "n' >~ ((rho + 1) / (alpha rho))^2 log m",
            ratio(n * (alpha * problem.signal) ** 2, log_m),
            None,
        ),
        Condition("d >~ log m", ratio(d, log_m), None),
        Condition("p >~ log(m) / m", ratio(p * m, log_m), None),
        Condition("p m n' >~ d", p * m * n / d, None),
        Condition(
            "Delta >~ (sigma / p) sqrt(d / (m n')) + exp(-c (alpha rho / (rho + 1))^2 n')",
            ratio(problem.separation, problem.floor + miss),
            None,
        ),
    ]


def step_bound(problem, distance, *, c2, c3, c4, version="extended"):
    """IFCA's Theorem 1: a bound on ‖theta_j - theta*_j‖ after one round, with step size c_1 / p.

    Parameters
    ----------
    problem : LinearProblem
    distance : float
        max_j ‖theta_j - theta*_j‖ before the round.
    c2, c3, c4 : float
        The unknown constants of the floor, of the misclassification term and in its exponent.
    version : {"extended", "neurips"}
        The extended paper has alpha in the exponent and needs distance < Delta / 2; the NeurIPS
        paper has it in the constant and needs distance <= Delta / 4.

    Returns
    -------
    StepBound
        (1/2) distance, c_2 (sigma / p) sqrt(d / (m n')) and
        c_3 exp(-c_4 (alpha rho / (rho + 1))^2 n').

    Raises
    ------
    ValueError
        If the start is too far away for that version.
    """
    _check_version(version)
    _check_positive(c2=c2, c3=c3, c4=c4)
    alpha = closeness(distance, problem.separation)
    if distance < 0 or alpha <= 0 or (version == "neurips" and alpha < 0.25):
        span = "[0, Delta / 2)" if version == "extended" else "[0, Delta / 4]"
        raise ValueError(
            f"distance must be in {span} for the {version} version, "
            f"got {distance} with Delta = {problem.separation}"
        )
    exponent = c4 * (alpha * problem.signal if version == "extended" else problem.signal) ** 2
    return StepBound(distance / 2, c2 * problem.floor, c3 * math.exp(-exponent * problem.points))


def convergence(problem, *, c6, c7, c8, version="extended"):
    """IFCA's Corollary 1: the error reached, and after how many rounds.

    The papers write T = log(Delta / (4 epsilon)), in the extended one 2 more. The error is halved
    in a round, so this logarithm is to the base 2.

    Parameters
    ----------
    problem : LinearProblem
    c6, c7, c8 : float
        The unknown constants of the floor, of the misclassification term and in its exponent.
    version : {"extended", "neurips"}

    Returns
    -------
    Convergence
        epsilon = c_6 (sigma / p) sqrt(d / (m n')) + c_7 exp(-c_8 (rho / (rho + 1))^2 n'), T rounded
        up, and n = 2 n' T.
    """
    _check_version(version)
    _check_positive(c6=c6, c7=c7, c8=c8)
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

    Parameters
    ----------
    problem : LinearProblem
    step_size : float
        gamma, positive.
    share : float
        p_j, the cluster's share of the clients.

    Returns
    -------
    factor, floor : float
        E ‖error after‖^2 = factor ‖error before‖^2 + floor.
    """
    _check_positive(step_size=step_size)
    _check_share("share", share)
    samples = share * problem.clients * problem.points
    s, d = 2 * step_size * share, problem.features
    return 1 - 2 * s + s**2 * (samples + d + 1) / samples, s**2 * problem.noise**2 * d / samples


def misclassification(right, wrong, truth, noise, points):
    """The chance that a client prefers the wrong one of two models, exactly (IFCA, Lemma 1).

    The two losses share the data. With the residuals r = y - <x, right> and r' = y - <x, wrong>,
    the wrong model wins if sum (r - r')(r + r') >= 0. The factors are Gaussian, with correlation

        c = (‖a‖^2 - ‖b‖^2) / (‖a - b‖ sqrt(‖a + b‖^2 + 4 sigma^2)),

    a = truth - right, b = truth - wrong. A sum of n' such products is a difference of two scaled
    chi-squares that ARE independent, its sign that of an F variable against a number, and

        P = I_{(1 + c) / 2}(n' / 2, n' / 2),

    I the regularised incomplete beta function.

    Parameters
    ----------
    right, wrong : array [d]
        Model of the client's own cluster, and another.
    truth : array [d]
        The true parameters of the client's cluster.
    noise : float
        sigma.
    points : int or array of int
        n', from which the client computes both losses.

    Returns
    -------
    float or array
        P(F(wrong) <= F(right)).

    Raises
    ------
    ValueError
        If the two models have the same loss on every point, so that neither is preferred.
    """
    a = np.asarray(truth, float) - np.asarray(right, float)
    b = np.asarray(truth, float) - np.asarray(wrong, float)
    _check_counts(points=np.min(points))
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

    Parameters
    ----------
    right, wrong : float
        Distances of the two models from the client's true parameters, right < wrong.
    noise : float
        sigma.
    points : int or array of int
        n'.

    Returns
    -------
    float or array
        The sum of the two chances. It is a bound whatever the directions of the two errors.
    """
    if not 0 <= right < wrong:
        raise ValueError(f"right must be in [0, wrong), got right = {right}, wrong = {wrong}")
    _check_counts(points=np.min(points))
    low, high = right**2 + noise**2, wrong**2 + noise**2
    threshold = np.asarray(points) * (low + high) / 2
    above = chi2.sf(threshold / low, points) if low > 0 else 0.0  # a perfect model, no noise
    return chi2.cdf(threshold / high, points) + above


def misclassification_bound(problem, closeness, c1=1.0, c2=0.5):
    """IFCA's Lemma 1, P <= c_1 exp(-c_2 n' (alpha rho / (rho + 1))^2), with constants that hold.

    The paper does not give them. With c as in :func:`misclassification`, Chernoff's bound is
    P <= (1 - c^2)^(n' / 2) <= exp(-n' c^2 / 2), and the assumed distances give
    abs(c) >= 4 alpha rho / ((1 + 4 alpha^2) rho + 4) >= alpha rho / (rho + 1). Hence 1 and 1/2 do.

    Parameters
    ----------
    problem : LinearProblem
    closeness : float
        alpha, in (0, 1/2]: right and wrong model lie within (1/2 - alpha) Delta of their truths.
    c1, c2 : float
        Other constants, to compare.

    Returns
    -------
    float
    """
    _check_closeness(closeness)
    _check_positive(c1=c1, c2=c2)
    return c1 * math.exp(-c2 * problem.points * (closeness * problem.signal) ** 2)


def oracle_error(noise, features, samples):
    """The error of least squares when all identities are known: no method does better.

    For standard normal x, the root mean square of ‖theta_hat - theta*‖ is
    sigma sqrt(d / (N - d - 1)), which is the exact minimax error. IFCA's papers quote its order,
    sigma sqrt(d / N), after Corollary 1.

    Parameters
    ----------
    noise : float
        sigma.
    features : int
        d.
    samples : int
        N, the points of the whole cluster: p m n in the smallest one. More than d + 1.

    Returns
    -------
    float
    """
    if samples <= features + 1:
        raise ValueError(f"samples must be more than features + 1 = {features + 1}, got {samples}")
    return noise * math.sqrt(features / (samples - features - 1))


def distance_to_truth(estimates, truth):
    """IFCA's dist = (1/k) sum_j ‖theta_hat_j - theta*_j‖, by two ways to say who is who.

    Parameters
    ----------
    estimates, truth : array [k, d]

    Returns
    -------
    matched : float
        Under the best one-to-one matching (Hungarian method). Section 6.1 leaves open which.
    nearest : float
        With the nearest truth of each estimate, as the authors' code has it. Never larger: two
        estimates may then claim one truth, which hides that a cluster was lost.

    Raises
    ------
    ValueError
        If there are not as many estimates as truths.
    """
    table = cdist(np.atleast_2d(estimates), np.atleast_2d(truth))
    if table.shape[0] != table.shape[1]:
        raise ValueError(
            f"estimates must be as many as truth, got {table.shape[0]} and {table.shape[1]}"
        )
    rows, columns = linear_sum_assignment(table)
    return float(table[rows, columns].mean()), float(table.min(1).mean())


def succeeded(distance, noise):
    """IFCA's test of success in figure 3: dist <= 0.6 sigma, or 0.001 where there is no noise."""
    return distance <= (0.6 * noise if noise > 0 else 0.001)


# ---------------------------------------------------------------- IFCA: strongly convex losses


@dataclass(frozen=True)
class ConvexProblem:
    """The numbers in IFCA's theory of strongly convex losses (section 5.2).

    Assumptions 4 and 5 bound two variances at EVERY theta. The linear model has no such bound; take
    then the largest value between the start and the truth.

    Parameters
    ----------
    clients, points, clusters : int
        m, n' and k.
    smallest, separation : float
        p and Delta, as in :class:`LinearProblem`.
    convexity, smoothness : float
        lambda and L (Assumption 3), 0 < lambda <= L. The squared loss on standard normal x has 2
        and 2.
    loss_deviation, gradient_deviation : float
        eta and v, standard deviations of loss and gradient at one point (Assumptions 4 and 5).

    Raises
    ------
    ValueError
        If a number is out of bounds.
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
        _check_counts(clients=self.clients, points=self.points, clusters=self.clusters)
        _check_share("smallest", self.smallest)
        _check_positive(separation=self.separation, convexity=self.convexity)
        if self.smoothness < self.convexity:
            raise ValueError(
                f"smoothness must be at least convexity = {self.convexity}, got {self.smoothness}"
            )
        for name in ("loss_deviation", "gradient_deviation"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    @property
    def rate(self):
        """What a round takes off the error, p lambda / (8 L) of it (Theorem 2)."""
        return self.smallest * self.convexity / (8 * self.smoothness)

    @property
    def reach(self):
        """sqrt(lambda / L) Delta, what Delta is in the linear model (Assumption 6)."""
        return math.sqrt(self.convexity / self.smoothness) * self.separation


class ConvexBound(NamedTuple):
    """The terms of IFCA's Theorem 2: what is left of the error, and three parts of its floor."""

    contraction: float
    gradient: float
    misclassification: float
    cross: float

    @property
    def total(self):
        """The bound itself."""
        return sum(self)


def convex_misclassification(problem, closeness):
    """IFCA's Lemma 3: P(one wrong model wins) <= 8 eta^2 / (alpha^2 lambda^2 Delta^4 n').

    The paper writes c_1; its proof, Chebyshev's inequality on both losses, gives 4 + 4. With
    n' = 1 this is the p_epsilon of FedSoft's Lemma 1, whose points choose one by one.

    Parameters
    ----------
    problem : ConvexProblem
    closeness : float
        alpha, in (0, 1/2].

    Returns
    -------
    float
        May exceed 1.
    """
    _check_closeness(closeness)
    gap = closeness * problem.convexity * problem.separation**2
    return 8 * problem.loss_deviation**2 / (gap**2 * problem.points)


def convex_step_bound(problem, distance, failure, *, c0, c1, c2):
    """IFCA's Theorem 2 (extended paper): the error after one round with step size 1 / L.

    Parameters
    ----------
    problem : ConvexProblem
    distance : float
        max_j ‖theta_j - theta*_j‖ before the round, below sqrt(lambda / L) Delta / 2.
    failure : float
        delta, in (0, 1): the bound holds with probability 1 - delta for each cluster.
    c0, c1, c2 : float
        The unknown constants of the three parts of the floor.

    Returns
    -------
    ConvexBound
        (1 - p lambda / (8 L)) distance, c_0 v / (delta L sqrt(p m n')),
        c_1 eta^2 / (delta alpha^2 lambda^2 Delta^4 n') and
        c_2 v eta k^(3/2) / (delta^(3/2) alpha lambda L Delta^2 sqrt(m) n').

    Raises
    ------
    ValueError
        If the start is too far away.
    """
    _check_positive(c0=c0, c1=c1, c2=c2)
    _check_share("failure", failure)
    alpha = closeness(distance, problem.reach)
    if distance < 0 or alpha <= 0:
        raise ValueError(
            f"distance must be in [0, sqrt(lambda / L) Delta / 2) = [0, {problem.reach / 2}), "
            f"got {distance}"
        )
    floor = _convex_floor(problem, alpha, failure, (c0, c1, c2))
    return ConvexBound((1 - problem.rate) * distance, *floor)


def convex_convergence(problem, failure, *, c0, c1, c2):
    """IFCA's Corollary 2 (extended paper): the error reached, and after how many rounds.

    The error is (16 L / (p lambda)) times the floor of Theorem 2 at alpha = 1/4, with delta shared
    among all clusters and rounds: delta_0 = p lambda delta / (k L log(m n')) (eq. 40; its constant
    goes into c_0, c_1, c_2). The statement hides the third part in O~(1 / (n' sqrt(m))).

    Parameters
    ----------
    problem : ConvexProblem
    failure : float
        delta, in (0, 1), for all clusters and rounds together.
    c0, c1, c2 : float
        The unknown constants of the three parts.

    Returns
    -------
    Convergence
        epsilon, T = (8 L / (p lambda)) log(2 Delta / epsilon) rounded up, and n = 2 n' T.
    """
    _check_positive(c0=c0, c1=c1, c2=c2)
    _check_share("failure", failure)
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


# ---------------------------------------------------------------- CFL


def alignment(noise_i, noise_j):
    """H_ij of CFL's Theorem 1 (eq. 20): the least cosine of two noisy copies of one gradient.

    Parameters
    ----------
    noise_i, noise_j : float or array in [0, 1]
        gamma_i and gamma_j: distance of the client's gradient from its cluster's, over the norm of
        the cluster's.

    Returns
    -------
    float or array
        -gamma_i gamma_j + sqrt(1 - gamma_i^2) sqrt(1 - gamma_j^2), the cosine of the sum of the
        angles arcsin(gamma_i) and arcsin(gamma_j).
    """
    _check_noise(noise_i, noise_j)
    noise_i, noise_j = np.asarray(noise_i), np.asarray(noise_j)
    return -noise_i * noise_j + np.sqrt(1 - noise_i**2) * np.sqrt(1 - noise_j**2)


def separation_bounds(noise, clusters):
    """CFL's Theorem 1: similarity at most across the best split, and at least within a cluster.

    Parameters
    ----------
    noise : array [m] in [0, 1]
        gamma_i of each client, at a stationary point.
    clusters : array [m] of int
        True cluster of each client; k >= 2 different ones.

    Returns
    -------
    cross : float
        Upper bound on the largest cosine between clients of different sides of the best
        bipartition (eq. 19). The theorem does not say which clusters lie on which side, so this is
        the largest over all pairs of different clusters.
    intra : float
        Lower bound on the smallest cosine within a cluster (eq. 21); 1 if no cluster has two
        clients. Where it is greater than ``cross``, the best bipartition is correct (Corollary 1).
    """
    noise, clusters = np.asarray(noise, float), np.asarray(clusters)
    k = len(np.unique(clusters))
    if k < 2:
        raise ValueError(f"clusters must name at least 2 clusters, got {k}")
    h = alignment(noise[:, None], noise[None])
    same = clusters[:, None] == clusters[None]
    angle = math.pi / (k - 1)
    lemma = math.cos(angle) * h + math.sin(angle) * np.sqrt(np.clip(1 - h**2, 0, None))
    # h may fall short of cos(pi) = -1 by rounding only
    cross = np.where(h >= math.cos(angle) - 1e-12, lemma, 1.0)[~same].max()
    pairs = same & ~np.eye(len(noise), dtype=bool)
    return float(cross), float(h[pairs].min()) if pairs.any() else 1.0


def guaranteed_noise(clusters):
    """The noise below which CFL's Theorem 1 guarantees a correct split (figure 3, green).

    With one gamma for all clients, angles within a cluster are at most 2 arcsin(gamma) and across
    the split at least pi / (k - 1) - 2 arcsin(gamma), so the gap is positive if
    gamma < sin(pi / (4 (k - 1))).

    Parameters
    ----------
    clusters : int
        k, at least 2.

    Returns
    -------
    float
    """
    if clusters < 2:
        raise ValueError(f"clusters must be at least 2, got {clusters}")
    return math.sin(math.pi / (4 * (clusters - 1)))


def noise_limit(cross):
    """The noise below which a split that was found must be correct (CFL, eq. 39).

    Parameters
    ----------
    cross : float
        Largest cosine between clients of different sides of the split, in [-1, 1].

    Returns
    -------
    float
        sqrt((1 - cross) / 2), from 1 - 2 gamma_max^2 > cross (eq. 38); independent of k.
    """
    if not -1 <= cross <= 1:
        raise ValueError(f"cross must be a cosine, in [-1, 1], got {cross}")
    return math.sqrt((1 - cross) / 2)


def separation_probability(clusters, noise, features=100, each=3, trials=200, seed=0):
    """CFL's figure 3: how often the separation gap is positive, when nothing is worst case.

    The k true gradients are standard normal vectors, less their mean so that they sum to zero as at
    a stationary point. A client's gradient is its cluster's plus a normal vector, scaled to exactly
    gamma times the length of the cluster's.

    Parameters
    ----------
    clusters : int
        k, at least 2.
    noise : float
        gamma, of every client; it may exceed 1, where Theorem 1 is silent.
    features : int
        d; the paper has 100.
    each : int
        Clients a cluster, at least 2; the paper has 3.
    trials, seed : int
        How many draws, and from which seed.

    Returns
    -------
    positive : float
        Share of the draws with g(alpha) = alpha_intra_min - alpha_cross_max > 0 (Definition 2).
    correct : float
        Share of the draws in which the best bipartition splits no cluster. At least as large: a
        positive gap suffices, but is not needed.
    """
    _check_counts(features=features, trials=trials)
    for name, value in (("clusters", clusters), ("each", each)):
        if value < 2:
            raise ValueError(f"{name} must be at least 2, got {value}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    source = np.random.default_rng(seed)
    truth = np.repeat(np.arange(clusters), each)
    same = truth[:, None] == truth[None]
    positive = correct = 0
    for _ in range(trials):
        means = source.standard_normal((clusters, features))
        means -= means.mean(0)
        wobble = source.standard_normal((len(truth), features))
        lengths = noise * np.linalg.norm(means[truth], axis=1) / np.linalg.norm(wobble, axis=1)
        cosine = 1 - cdist(*[means[truth] + lengths[:, None] * wobble] * 2, "cosine")
        cross, sides = _best_bipartition(cosine)
        positive += bool(cosine[same].min() > cross)
        correct += not (same & (sides[:, None] != sides[None])).any()
    return positive / trials, correct / trials


def _best_bipartition(cosine):
    """Single linkage cut at two: its last merge is the largest cosine across the best split."""
    distance = squareform(np.clip(1 - cosine, 0, 2), checks=False)
    tree = linkage(distance, "single")
    return 1 - tree[-1, 2], fcluster(tree, 2, "maxclust")


# ---------------------------------------------------------------- FedSoft


def workload(clients, chosen, clusters):
    """How many clients train in a round of FedSoft on average: N (1 - (1 - K / N)^S).

    Holds if every client is as likely as any other to be chosen for each cluster, which is the
    paper's example; unequal aggregation weights make the same clients be chosen more often.

    Parameters
    ----------
    clients : int
        N.
    chosen : int
        K, clients chosen for each cluster, at most N.
    clusters : int
        S.

    Returns
    -------
    float
        At most S K, what training one cluster after another would take.
    """
    _check_counts(chosen=chosen, clusters=clusters)
    if chosen > clients:
        raise ValueError(f"chosen must be at most the {clients} clients, got {chosen}")
    return clients * (1 - (1 - chosen / clients) ** clusters)


def importance_bound(importance, misclassified, smoother):
    """FedSoft's Theorem 1: E u_ks^t <= (1 - p_epsilon) u_ks + p_epsilon + sigma.

    Parameters
    ----------
    importance : float or array in [0, 1]
        u_ks, the true share of the cluster in the client's data.
    misclassified : float
        p_epsilon, a bound on the chance that a point chooses a given wrong center, in [0, 1]: for
        example :func:`convex_misclassification` for one point.
    smoother : float
        sigma.

    Returns
    -------
    float or array
    """
    if not 0 <= misclassified <= 1:
        raise ValueError(f"misclassified must be in [0, 1], got {misclassified}")
    return (1 - misclassified) * np.asarray(importance) + misclassified + smoother


def expected_importance(counts, confusion, smoother):
    """The mean of FedSoft's estimate u_ks^t = max(n_ks^t / n_k, sigma), exactly.

    Points choose independently, so the mean count is that of the right choices plus that of the
    wrong ones, and sigma counts only if no point at all chooses the cluster.

    Parameters
    ----------
    counts : array [S] of int
        n_ks, how many of the client's points come from each cluster.
    confusion : array [S, S]
        Row s: the chances that a point of cluster s chooses each center; rows sum to one. For two
        centers of the linear model :func:`misclassification` with one point gives them.
    smoother : float
        sigma, at most 1 / n_k.

    Returns
    -------
    array [S]
    """
    counts, confusion = np.asarray(counts), np.asarray(confusion, float)
    if not np.allclose(confusion.sum(1), 1):
        raise ValueError(f"rows of confusion must sum to one, got {confusion.sum(1).tolist()}")
    if smoother * counts.sum() > 1:
        raise ValueError(f"smoother must be at most 1 / {counts.sum()} points, got {smoother}")
    nobody = np.prod((1 - confusion) ** counts[:, None], axis=0)
    return counts @ confusion / counts.sum() + smoother * nobody


def subproblem_inexactness(solver, similarity, convexity, smoothness):
    """The gamma of FedSoft's Theorem 2, sqrt((gamma_0^2 + beta) L_lambda / mu_lambda).

    Parameters
    ----------
    solver : float
        gamma_0 of Assumption 1; 0 if local problems are solved exactly.
    similarity : float
        beta of Assumption 2.
    convexity, smoothness : float
        mu_lambda and L_lambda of the sub-problems h_ks; mu_F + lambda and L_F + lambda where the
        importance is known.

    Returns
    -------
    float
        The gradient of h_ks at the local model is at most gamma / sqrt(u_ks) times that of F_s at
        the center.
    """
    _check_positive(convexity=convexity, smoothness=smoothness)
    return math.sqrt((solver**2 + similarity) * smoothness / convexity)


def divergence_radius(inexactness, clusters, convexity, smoothness):
    """The r of FedSoft's Theorem 3: a local model lies within r Delta of every center.

    Parameters
    ----------
    inexactness : float
        gamma, see :func:`subproblem_inexactness`.
    clusters : int
        S.
    convexity, smoothness : float
        mu_F and L_F of the cluster risks.

    Returns
    -------
    float
        (gamma S + 1) / 4 sqrt(L_F / mu_F) + 1/2 sqrt(mu_F / L_F) + 1; Delta is the largest
        distance between two optimal centers.
    """
    _check_positive(convexity=convexity, smoothness=smoothness)
    root = math.sqrt(smoothness / convexity)
    return (inexactness * clusters + 1) / 4 * root + 0.5 / root + 1


def soft_centers(theta, mixture, weights, proximal):
    """Where FedSoft's centers rest in linear regression, with endless data and known shares.

    A client with shares u_k solves its proximal problem (eq. 4) at
    w_k = sum_s u_ks (2 theta_s + lambda c_s) / (2 + lambda), and c_s is the mean of the w_k with
    the aggregation weights v_sk. So C = V U (2 Theta + lambda C) / (2 + lambda). Unless every
    client holds one cluster only, the centers are means of mixtures and not the theta_s: no theorem
    of the paper says so, its tables of errors show it.

    Parameters
    ----------
    theta : array [S, d]
        True parameters.
    mixture : array [N, S]
        U, rows sum to one.
    weights : array [S, N]
        V, rows sum to one. With everybody taking part v_sk = u_ks n_k / sum_k' u_k's n_k' (eq. 6);
        choosing K clients without replacement flattens it.
    proximal : float
        lambda, not negative.

    Returns
    -------
    array [S, d]
    """
    theta, share = np.asarray(theta, float), proximal / (2 + proximal)
    if proximal < 0:
        raise ValueError(f"proximal must not be negative, got {proximal}")
    blend = np.asarray(weights, float) @ np.asarray(mixture, float)
    return np.linalg.solve(np.eye(len(theta)) - share * blend, (1 - share) * blend @ theta)


# ---------------------------------------------------------------- arguments


def _check_counts(**counts):
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _check_positive(**numbers):
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def _check_share(name, value):
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def _check_closeness(value):
    if not 0 < value <= 0.5:
        raise ValueError(f"closeness must be in (0, 1/2], got {value}")


def _check_noise(*values):
    for value in values:
        if np.min(value) < 0 or np.max(value) > 1:
            raise ValueError(f"noise must be in [0, 1], got {value}")


def _check_version(version):
    if version not in VERSIONS:
        raise ValueError(f"version must be 'extended' or 'neurips', got {version!r}")
