"""What chapter 11 and the ledger say of the stored runs of FedSoft and its rivals."""

import numpy as np
import pytest

import clusterfl_core as cf

LINES, LETTERS = 60, 30  # rounds
PATTERNS = "10:90", "linear", "30:70"


def values(rounds, pattern, method, key, k=2):
    """One of the stored values, a seed a row."""
    found = cf.results.stored("11_rivals", pattern=pattern, method=method, rounds=rounds, k=k)
    seeds = [one["seed"] for one in found]
    assert seeds == list(range(len(seeds)))
    return np.array([one["values"][key] for one in found])


def better(rounds, pattern, method):
    """The better centre on each pure group, mean over the groups, a number a seed."""
    table = values(rounds, pattern, method, "table")
    return (table.min(2) if rounds == LINES else table.max(2)).mean(1)


def winners(rounds, pattern, method):
    """How many centres lead on a group, a number a seed."""
    table = values(rounds, pattern, method, "table") * (1 if rounds == LINES else -1)
    return [len(set(one)) for one in table.argmin(2)]


def test_lines_have_five_seeds_and_letters_of_10_90_three():
    for pattern in PATTERNS:
        for method in ("FedSoft", "everyone", "regression", "IFCA", "FedEM", "OneShot", "FedAvg"):
            assert len(better(LINES, pattern, method)) == 5
    for method in ("FedSoft", "FedEM", "IFCA"):
        assert len(better(LETTERS, "10:90", method)) == 3


def test_on_the_same_true_models_30_70_is_worst_in_every_seed():
    worst = better(LINES, "30:70", "FedSoft")
    for pattern in ("10:90", "linear"):
        assert (worst > better(LINES, pattern, "FedSoft")).all()
    assert (better(LINES, "random", "FedSoft") > worst).sum() == 2


def test_on_the_stand_in_letters_each_centre_of_fedsoft_leads_on_one_group_of_10_90():
    assert winners(LETTERS, "10:90", "FedSoft") == [2, 2, 2]
    assert winners(LETTERS, "30:70", "FedSoft") == [1]


def test_on_the_stand_in_letters_fedsoft_stands_between_fedem_and_ifca():
    fedem, soft, ifca = (100 * better(LETTERS, "10:90", m) for m in ("FedEM", "FedSoft", "IFCA"))
    ahead, behind = soft - fedem, ifca - soft
    assert 1 < ahead.min() < ahead.max() < 2
    assert 12 < behind.min() < behind.max() < 14
    (one,) = 100 * better(LETTERS, "10:90", "FedAvg")
    assert 0.5 < one - soft[0] < 1.5
    assert (better(LINES, "10:90", "IFCA") < better(LINES, "10:90", "FedSoft")).all()


def test_one_centre_of_fedem_wins_both_groups_of_letters_in_two_seeds_of_three():
    assert sorted(winners(LETTERS, "10:90", "FedEM")) == [1, 1, 2]
    for pattern in PATTERNS:
        assert winners(LINES, pattern, "FedEM") == [2] * 5


def missed(rounds, method):
    """How far the reported shares are from the true ones on average, a number a seed."""
    guess, truth = (values(rounds, "10:90", method, key) for key in ("assignments", "truth"))
    ways = [np.abs(one - truth).mean((1, 2)) for one in (guess, guess[..., ::-1])]
    return np.min(ways, axis=0)


def test_on_the_stand_in_letters_fedem_gives_everybody_about_one_half():
    assert missed(LETTERS, "FedSoft").max() < 0.11 < 0.3 < missed(LETTERS, "FedEM").min()
    assert max(missed(LINES, m).max() for m in ("FedSoft", "FedEM")) < 0.1
    shares = values(LETTERS, "10:90", "FedEM", "assignments")[..., 0]
    halves = shares.reshape(3, 2, 50).mean(2)  # of the two mixtures
    assert np.abs(halves - 0.5).max() < 0.16
    overall = shares.mean(1)
    assert overall.min() < 0.5 < overall.max()
    group = values(LETTERS, "10:90", "IFCA", "assignments").astype(int)
    main = values(LETTERS, "10:90", "IFCA", "truth").argmax(2)
    for found, truth in zip(group, main, strict=True):
        assert cf.evaluation.identity_accuracy(found, truth) == 1


def test_fedsofts_springs_lift_a_client_on_letters_and_on_lines_of_30_70():
    gain = 100 * np.subtract(
        *(values(LETTERS, "10:90", m, "heldout") for m in ("FedSoft", "LocalOnly"))
    )
    assert gain.min() > 13
    (linear,) = np.subtract(
        *(values(LETTERS, "linear", m, "heldout") for m in ("FedSoft", "LocalOnly"))
    )
    assert linear > 0.1
    alone, soft = (values(LINES, "10:90", m, "heldout") for m in ("LocalOnly", "FedSoft"))
    assert (alone < soft).all()  # errors
    alone, soft = (values(LINES, "30:70", m, "heldout") for m in ("LocalOnly", "FedSoft"))
    saved = 1 - np.array(soft) / alone
    assert 0.02 <= saved.min().round(2) <= saved.max().round(2) <= 0.04
    for rival in ("IFCA", "FedEM"):
        assert (np.array(values(LINES, "30:70", rival, "heldout")) < soft).all()


def test_on_fresh_data_ifca_is_ahead_of_fedsoft_in_10_90_and_on_letters():
    ifca, soft = (values(LINES, "10:90", m, "heldout") for m in ("IFCA", "FedSoft"))
    assert (ifca < soft).all()  # errors
    ifca, soft = (values(LETTERS, "10:90", m, "heldout").mean() for m in ("IFCA", "FedSoft"))
    assert (round(100 * soft), round(100 * ifca)) == (58, 70)


@pytest.mark.parametrize("pattern", ["10:90", "linear", "30:70"])
def test_with_the_regression_a_client_has_less_error_than_alone(pattern):
    cured, alone = (values(LINES, pattern, m, "heldout") for m in ("regression", "LocalOnly"))
    assert len(cured) == 5
    assert np.less(cured, alone).all()


def test_ifca_serves_the_clients_of_the_letters_better_than_fedsoft():
    for pattern in ("10:90", "linear"):
        ifca, soft = (values(LETTERS, pattern, m, "heldout") for m in ("IFCA", "FedSoft"))
        assert (ifca > soft + 0.05).all()
        assert (better(LETTERS, pattern, "IFCA") > better(LETTERS, pattern, "FedSoft")).all()


@pytest.mark.parametrize("pattern", [*PATTERNS, "random"])
def test_one_centre_differs_more_between_the_groups_of_lines_than_of_letters(pattern):
    gaps = []
    for rounds in (LINES, LETTERS):
        table = values(rounds, pattern, "FedSoft", "table")
        gaps.append((np.ptp(table, axis=1) / table.mean(1)).mean(1))
    assert gaps[0].min() > 2 * gaps[1].max()
