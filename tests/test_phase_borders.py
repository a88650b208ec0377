"""The phase diagram of chapter 13: errors are bias squared and variance, as derived there."""

import numpy as np
import pytest

from clusterfl_core.live.labs.phase import CLIENTS, DISTANCES, POINTS, UNKNOWNS, errors


def variance(points, noise=1):
    """Return what least squares errs by with normal inputs: noise^2 E tr (X^T X)^-1."""
    return UNKNOWNS * noise**2 / (points - UNKNOWNS - 1)


def shared_bias(distance, groups, spread):
    """Return the squared bias of one model for all: from the mean of the groups' corners."""
    return distance**2 / 2 * (1 - 1 / groups) + spread**2 * (1 - 1 / CLIENTS)


@pytest.fixture(scope="module")
def exact_map():
    rest = {"noise": 1, "spread": 0, "groups": 2, "models": 2, "steps": 0, "draws": 3}
    return {(n, d): errors(n, d, **rest) for n in POINTS for d in DISTANCES}


def test_the_mean_trace_is_what_the_derivation_says():
    draw = np.random.default_rng(0)
    for points in (14, 40):
        x = draw.normal(size=(4000, points, UNKNOWNS))
        traces = np.trace(np.linalg.inv(x.transpose(0, 2, 1) @ x), axis1=1, axis2=2)
        assert traces.mean() == pytest.approx(variance(points), rel=0.05)


def test_errors_on_the_map_are_bias_squared_and_variance(exact_map):
    for n in POINTS[2:]:  # below, three draws have heavy tails
        alone = [exact_map[n, d]["LocalOnly"] for d in DISTANCES]
        assert np.mean(alone) == pytest.approx(variance(n), rel=0.15)
        for d in DISTANCES:
            told = shared_bias(d, 2, 0) + variance(CLIENTS * n)
            assert exact_map[n, d]["FedAvg"] == pytest.approx(told, rel=0.15)


def test_the_border_between_alone_and_one_for_all_runs_where_bias_is_variance(exact_map):
    sides = set()
    for (n, d), found in exact_map.items():
        alone, shared = variance(n), shared_bias(d, 2, 0) + variance(CLIENTS * n)
        if max(alone, shared) > 1.3 * min(alone, shared):  # not on the border itself
            assert (found["LocalOnly"] < found["FedAvg"]) == (alone < shared), (n, d)
            sides.add(alone < shared)
    assert sides == {True, False}


def test_nobody_is_best_alone_where_groups_are_exact(exact_map):
    assert all(min(found, key=found.get) != "LocalOnly" for found in exact_map.values())


@pytest.mark.parametrize(("points", "best"), [(40, "OneShot"), (113, "LocalOnly")])
def test_a_spread_gives_alone_a_border_in_points(points, best):
    """Where spread^2 (1 - 2/m) is V(n) - V(mn/2), whatever the distance: between 57 and 80."""
    of_group = 0.3**2 * (1 - 2 / CLIENTS) + variance(CLIENTS / 2 * points)
    assert (of_group < variance(points)) == (best == "OneShot")
    rest = {"noise": 1, "spread": 0.3, "groups": 2, "models": 2, "steps": 0, "draws": 6}
    found = errors(points, 2.83, **rest)
    assert min(("LocalOnly", "OneShot"), key=found.get) == best
    assert found["OneShot"] == pytest.approx(of_group, rel=0.1)
