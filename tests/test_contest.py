"""The search and the final round of chapter 13 play what their protocol says."""

import numpy as np
import pytest

import clusterfl_core as cf
from clusterfl_core import contest

FAIR = cf.composing.METHODS


def stored(kind, method, hidden):
    (one,) = cf.results.stored("13_fair_search", kind=kind, method=method, hidden=hidden)
    return one["values"]


@pytest.mark.parametrize("method", FAIR)
def test_nothing_is_tried_twice_and_the_middle_is_played(method):
    """Whatever a setting leaves unsaid."""
    asked = []

    def score(settings, seed):
        asked.append((seed, cf.composing.make(method, settings, 24)))
        return 0.5

    found = contest.search(method, score)
    first = [algorithm for seed, algorithm in asked if seed == 500]
    assert len(set(map(repr, first))) == len(first) == len(found["tried"])
    assert len(first) == {"IFCA": 13, "CLoVE": 13, "LocalOnly": 13}.get(method, 14)
    assert [seed for seed, _ in asked[len(first) :]] == [501] * 3
    assert found["won"] == 0  # of equal ones the earlier


@pytest.mark.parametrize("method", FAIR)
def test_the_search_takes_the_highest_sum_of_two_looks(method):
    luck = np.random.default_rng(3)
    found = contest.search(method, lambda settings, seed: round(float(luck.uniform()), 2))
    first, second = found["first"], found["second"]
    assert sorted(map(int, second)) == sorted(np.argsort(-np.array(first), kind="stable")[:3])
    sums = {place: first[int(place)] + again for place, again in second.items()}
    assert sums[str(found["won"])] == max(sums.values())
    assert found["settings"] == found["tried"][found["won"]]


@pytest.mark.parametrize("method", ["OneShot", "CFL", "FedSoft+", "FedEM", "LocalOnly", "FedAvg"])
def test_the_stored_searches_tried_the_same_list(method):
    old = stored("nested", method, 16)
    known = iter(old["first"])
    found = contest.search(method, lambda _, seed: next(known) if seed == 500 else 0.0)
    assert found["tried"] == old["tried"]


def test_a_search_is_refused_a_method_it_does_not_know():
    with pytest.raises(ValueError, match="method must be"):
        contest.search("Magic", lambda settings, seed: 0.0)
    with pytest.raises((TypeError, ValueError), match="score must be"):
        contest.search("IFCA", None)


PLAIN = {"gamma": 0.2, "tau": 5, "k": 2}


def test_five_starts_stay_in_the_purse_and_one_start_is_the_plain_run():
    five = contest.final("tiny", "IFCA, five", PLAIN, 0)
    assert five["models"] <= 200 + 1e-6
    assert five["passes"] <= 1000 + 1e-6
    people = cf.composing.build("tiny", 0)
    algorithm = cf.composing.make("IFCA", PLAIN, len(people))
    rows, state = cf.comparison.play(algorithm, people, 0)
    one = contest.final("tiny", "IFCA", PLAIN, 0)
    assert (one["rounds"], one["models"], one["passes"]) == (rows[-1][0], *rows[-1][1:3])
    assert one["clients"] == np.round(cf.composing.judge(state, people).tolist(), 3).tolist()
    assert one == contest.final("tiny", "IFCA, k = 2", PLAIN | {"k": 8}, 0)


def test_what_diverges_counts_nothing():
    assert contest.validate("tiny", "FedAvg", PLAIN | {"gamma": 1e30}, 500, models=4) == 0
    assert contest.final("tiny", "FedAvg", PLAIN | {"gamma": 1e30}, 0) == {"clients": []}
    assert contest.final("tiny", "IFCA, five", PLAIN | {"gamma": 1e30}, 0) == {"clients": []}
