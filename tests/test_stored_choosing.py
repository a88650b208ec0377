"""What chapter 13 says of its stored runs, and that its protocol is older than they are."""

import hashlib

import numpy as np
import pytest
from house import ROOT

import clusterfl_core as cf

KINDS = [*cf.composing.RECIPES, "writers"]  # what the hours allowed of the protocol
ROWS = [*cf.composing.METHODS, "IFCA, five", "OneShot, five"]
PROTOCOL = "3a7689d926962ea31fca21dc6d56299f52a7da9c5f77ddcaa117790f00d874b9"


@pytest.fixture(scope="module")
def runs():
    found = {}
    for one in cf.results.stored("13_fair_final"):
        what = one["settings"]
        key = what["kind"], what["method"], what["hidden"]
        found.setdefault(key, {})[one["seed"]] = one["values"]
    return found


@pytest.fixture(scope="module")
def searches():
    found = {}
    for one in cf.results.stored("13_fair_search"):
        what = one["settings"]
        found[what["kind"], what["method"], what["hidden"]] = one["values"]
    return found


def test_the_protocol_is_the_one_that_was_fixed():
    text = (ROOT / "book" / "protocol_choosing.md").read_bytes()
    assert hashlib.sha256(text).hexdigest() == PROTOCOL


def test_every_kind_has_all_methods_and_ten_seeds(runs):
    for kind in KINDS:
        for method in ROWS:
            assert set(runs[kind, method, 16]) >= set(range(10)), (kind, method)


def test_a_width_is_complete_or_not_shown(runs):
    """A kind is shown with 64 units where its last row has ten seeds; then all rows have."""
    for kind in KINDS:
        if len(runs.get((kind, ROWS[-1], 64), ())) == 10:
            for method in ROWS:
                assert set(runs[kind, method, 64]) >= set(range(10)), (kind, method)


def test_no_run_broke_the_purse(runs):
    for key, some in runs.items():
        for one in some.values():
            if one["clients"]:
                assert one["models"] <= 200 + 1e-6, key
                assert one["passes"] <= 1000 + 1e-6, key


def test_liars_are_not_judged_and_all_others_are(runs):
    judged = {"liars": 18, "tiny": 48}
    for (kind, method, _), some in runs.items():
        for one in some.values():
            if one["clients"]:
                assert len(one["clients"]) == judged.get(kind, 24), (kind, method)


def test_nobody_had_more_tries(searches):
    for key, one in searches.items():
        assert len(one["tried"]) <= 14, key
        assert len(one["second"]) == 3, key
        assert np.argmax(one["first"]) in map(int, one["second"]), key


# ---------------------------------------------------------------- what the summary says

DIGITS = list(cf.composing.RECIPES)
CLEAR = ("hard", "nested", "liars", "many")
NONE = ("soft", "skewed", "tiny")


@pytest.fixture(scope="module")
def ends(runs):
    """Mean accuracy over the clients, in percent, a number a seed."""
    return {
        (kind, m): np.array(
            [100 * np.mean(runs[kind, m, 16][s]["clients"] or [0]) for s in range(10)]
        )
        for kind in DIGITS
        for m in ROWS
    }


@pytest.fixture(scope="module")
def best(ends):
    return {k: max(ROWS, key=lambda m: ends[k, m].mean()) for k in DIGITS}


def failures(ends, kind, m):
    plain = np.max([ends[kind, one] for one in ("FedAvg", "LocalOnly", "FineTuned")], 0)
    return int((ends[kind, m] < plain - 1).sum())


@pytest.mark.parametrize(
    ("m", "kinds", "least", "most"),
    [
        ("FedAvg", (*CLEAR, "both"), 7, 20),
        ("FineTuned", CLEAR, 5, 8),
        ("LocalOnly", DIGITS, 2, 38),
        ("IFCA", ("nested", "both", "many"), 5, 11),
    ],
)
def test_how_far_a_method_is_behind_the_best(ends, best, m, kinds, least, most):
    behind = [round((ends[k, best[k]] - ends[k, m]).mean()) for k in kinds]
    assert (min(behind), max(behind)) == (least, most)


def test_cfl_is_first_where_groups_contradict_and_fails_where_there_are_none(ends, best, runs):
    assert {k for k in DIGITS if best[k] == "CFL"} == {"nested", "both", "many"}
    assert sum(failures(ends, k, "CFL") for k in NONE) == 29
    for kind in ("nested", "both", "many"):
        assert {round(run["models"]) for run in runs[kind, "CFL", 16].values()} == {80}


def test_fine_tuning_failed_on_two_of_eighty_seeds(ends):
    assert sum(failures(ends, k, "FineTuned") for k in DIGITS) == 2


def test_the_cure_gains_four_points_where_there_are_groups(ends):
    for kind in (*CLEAR, "tiny"):
        assert (ends[kind, "FedSoft+"] - ends[kind, "FedSoft"]).mean() > 4
    assert (ends["skewed", "FedSoft+"] - ends["skewed", "FedSoft"]).mean() < -4


def test_one_shot_on_the_kinds_of_the_first_check(ends):
    for kind, points in (("hard", 9), ("many", 12)):
        assert round((ends[kind, "OneShot"] - ends[kind, "FedAvg"]).mean()) == points


@pytest.mark.parametrize(
    ("kind", "m"), [("skewed", "FedSoft"), ("many", "CLoVE"), ("soft", "FedAvg")]
)
def test_what_the_summary_calls_level(ends, best, kind, m):
    gap = ends[kind, best[kind]] - ends[kind, m]
    half = cf.results.interval(gap)[1] if gap.any() else 0
    assert gap.mean() - half <= 0.5


def test_on_writers_the_cured_fedsoft_is_first_and_fine_tuning_never_fails(runs):
    scores = {
        m: np.array([100 * np.mean(runs["writers", m, 16][s]["clients"]) for s in range(10)])
        for m in ROWS
    }
    assert max(scores, key=lambda m: scores[m].mean()) == "FedSoft+"
    gap, half = cf.results.interval(scores["FedSoft+"] - scores["FineTuned"])
    assert gap - half > 0
    plain = np.max([scores[m] for m in ("FedAvg", "LocalOnly", "FineTuned")], 0)
    assert not (scores["FineTuned"] < plain - 1).any()
