"""What chapter 13 says of its stored runs, and that its protocol is older than they are."""

import hashlib

import numpy as np
import pytest
from house import ROOT

import clusterfl_core as cf

KINDS = [*cf.composing.RECIPES, *cf.composing.PEOPLE]
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
