"""What chapter 8 says of its stored runs."""

import numpy as np
import pytest

import clusterfl_core as cf

OURS = {"eps1": 0.12, "eps2": 0.7, "gamma_max": 0.65}
CONGRUENT = ["equal", "quantity_skew", "halves", "label_skew_0.5", "label_skew_0.1"]


def values(experiment, **wanted):
    """The values of the stored runs with these settings, by seed."""
    found = cf.results.stored(f"08_{experiment}")
    found = [one["values"] for one in found if wanted.items() <= one["settings"].items()]
    assert found, wanted
    return found


def swept(**changed):
    return values("three_tests", rounds=100, **OURS | changed)


def four(one):
    return sorted(one["sizes"]) == [5] * 4 and not one["torn"]


def test_ten_seeds_tear_no_cluster():
    for population, exact in {"label_swap": 9, "permuted_labels": 10}.items():
        runs = values("three_tests", rounds=90, population=population)
        assert len(runs) == 10
        assert not any(one["torn"] for one in runs)
        assert sum(map(four, runs)) == exact
    assert [one["identity_accuracy"] for one in values("mnist")] == [1] * 5


# ---- figures 5 and 6 with convolutions

CONVOLVED = {10: [3, 4], 20: [0, 3, 4], 50: [3, 4], 100: [3, 4], 200: [0, 1, 2, 4]}


def convolved(points):
    """The similarities of the stored runs with convolutions, MNIST, a seed each."""
    found = cf.results.stored("08_conv", part="points", data="mnist", points=points)
    assert [one["seed"] for one in found] == CONVOLVED[points]
    return [one["values"] for one in found]


def stays(good):
    """From which round on it stays so; None if not at the end."""
    bad = np.flatnonzero(~np.array(good, bool))
    return int(bad.max(initial=-1)) + 2 if good[-1] else None


def test_with_convolutions_too_20_points_are_too_few_and_50_are_enough():
    gaps = {}
    for points in CONVOLVED:
        some = [one["updates"] for one in convolved(points)]
        gaps[points] = np.array([one["gap"][-1] for one in some])
        assert {one["correct"][-1] for one in some} == {points > 20}
        assert ((gaps[points] > 0) == (points > 20)).all()
        dense = values("gap", data="mnist", points=points)
        assert len(dense) == 5
        assert {one["updates"]["correct"][-1] for one in dense} == {points > 20}
        assert {one["updates"]["gap"][-1] > 0 for one in dense} == {points > 20}
    assert (np.diff([one.mean() for one in gaps.values()]) > 0).all()  # it grows


def test_with_convolutions_the_gap_opens_after_about_ten_rounds():
    """As the paper's figure 6 has it; sooner with the dense network."""
    some = convolved(100)
    rounds = [stays([g > 0 for g in one["updates"]["gap"]]) for one in some]
    assert rounds == [10, 11]
    assert [stays(one["updates"]["correct"]) for one in some] == [9, 8]
    dense = values("gap", data="mnist", points=100)
    assert max(stays([g > 0 for g in one["updates"]["gap"]]) for one in dense) < 10
    for one in some:  # it rises, then falls a little
        gap = one["updates"]["gap"]
        assert gap[9] < max(gap) > gap[-1] > 0.3


def test_with_convolutions_gradients_end_with_the_wider_gap_where_points_are_many():
    """With few points, early, and with the dense network updates have it."""
    for points in (100, 200):
        for one in convolved(points):
            assert one["gradients"]["gap"][-1] > one["updates"]["gap"][-1] > 0
    for points in (10, 20):
        for one in convolved(points):
            assert one["gradients"]["gap"][-1] < one["updates"]["gap"][-1] < 0
    for one in convolved(100):
        early = [np.mean(one[kind]["gap"][:10]) for kind in ("gradients", "updates")]
        assert early[0] < early[1] - 0.1
    for one in values("gap", data="mnist", points=100):
        assert one["gradients"]["gap"][-1] < one["updates"]["gap"][-1]


def test_directions_alone_do_not_tell_congruent_clients_from_others():
    runs = {kind: values("two_clients", kind=kind) for kind in ("congruent", "incongruent")}
    for kind, some in runs.items():
        assert np.mean([one["cosine"][-1] for one in some]) < -0.9
        at = np.abs(np.array(some[0]["round"]) - 20).argmin()
        early, late = (np.mean([one["longest"][t] for one in some]) for t in (at, -1))
        assert (late < early) == (kind == "congruent")
        after = np.mean([one["longest"][at:] for one in some], axis=0)
        assert (after.min() < 0.2) == (kind == "congruent")


@pytest.mark.parametrize("population", CONGRUENT)
def test_four_of_five_congruent_populations_need_no_angle(population):
    safe, free = (
        values("three_tests", rounds=60, population=population, gamma_max=g) for g in (0.65, 0.0)
    )
    assert len(safe) == len(free) == 5
    assert not any(one["splits"] for one in safe)
    assert any(one["splits"] for one in free) == (population == "label_skew_0.1")


def test_a_first_threshold_too_small_leaves_cuts_out_and_tears_nothing():
    for eps1 in (0.03, 0.06):
        for one in swept(eps1=eps1, gamma_max=0.0):
            assert len(one["sizes"]) < 4
            assert not one["torn"]
    assert not any(one["splits"] for one in swept(eps1=0.03))
    (late,) = [one for one in swept(eps1=0.24) if not four(one)]
    assert (sorted(late["sizes"]), late["torn"]) == ([5, 5, 10], 0)


def test_thresholds_too_large_or_small_fail_as_told():
    assert min(one["torn"] for one in swept(eps1=1.0, gamma_max=0.0)) == 4
    assert min(len(one["sizes"]) for one in swept(eps2=0.1)) > 4
    assert max(len(one["sizes"]) for one in swept(eps2=0.9)) < 4
    good = [e for e in (0.1, 0.3, 0.5, 0.7, 0.9, 1.1) if all(map(four, swept(eps2=e)))]
    assert good == [0.5, 0.7]


def test_waiting_costs_rounds_and_the_angle_makes_up_for_it():
    waited, early = swept(), swept(eps1=1.0)
    assert all(map(four, waited + early))
    for slow, quick in zip(waited, early, strict=True):
        assert slow["splits"][-1] - quick["splits"][-1] > 20
        assert abs(slow["accuracy"] - quick["accuracy"]) < 0.02


# ---- the rule: worlds that did not choose it


RULES = "lengths", "ratios", "lengths at once", "ratios at once", "our run's lengths"
THREE = "four swaps", "equal mixes", "label skew 0.1"
SEEDS = 5


def judged(world, rule, key="right"):
    found = [one[rule][key] for one in values("rule", world=world, stage="test")]
    assert len(found) == SEEDS
    return found


def every_world():
    kept = cf.results.stored("08_rule", stage="test")
    return sorted({one["settings"]["world"] for one in kept})


def test_every_rule_chose_the_best_pair_in_runs_as_long_as_the_test():
    kept = values("rule", stage="choose")
    assert len(kept) == 3
    grids = {"lengths": ((0.06, 0.12, 0.24, 0.48), (0.3, 0.5, 0.7, 0.9))}
    grids["ratios"] = ((0.1, 0.2, 0.3, 0.4), (0.45, 0.6, 0.75, 0.9))
    grids |= {f"{form} at once": ((99.0,), grids[form][1]) for form in grids}
    for form, (first, second) in grids.items():
        right = sum(np.array(one[form]) for one in kept)
        a, b = values("rule", world="halves", stage="test")[0][form]["thresholds"]
        assert right[first.index(a), second.index(b)] == right.max() == 12
        assert (right == 12).sum() == (4 if len(first) > 1 else 2)


def test_all_rules_are_right_on_the_four_that_chose():
    for world in (*THREE, "four permutations"):
        assert all(all(judged(world, rule)) for rule in RULES)


def test_with_three_local_steps_ratios_cut_and_lengths_do_not():
    assert not any(judged("four swaps, short", "lengths"))
    assert judged("four swaps, short", "lengths", "groups") == [1] * SEEDS
    assert all(judged("four swaps, short", "ratios"))


def test_ratios_leave_cuts_out_and_cut_unequal_amounts():
    assert max(judged("eight permutations", "ratios", "groups")) < 8
    assert judged("four swaps, flat", "ratios", "groups").count(3) == 4
    for world in ("eight permutations", "four swaps, flat"):
        assert all(judged(world, "lengths"))
    assert judged("unequal amounts", "ratios").count(False) == 2
    assert all(judged("unequal amounts", "lengths"))
    assert not any(judged("halves", "lengths"))
    assert all(judged("halves", "ratios"))


def test_rules_that_wait_leave_halves_whole_and_have_no_time_for_eight_groups():
    for rule in RULES:
        waits = rule in ("ratios", "our run's lengths")
        assert judged("halves", rule) == [waits] * SEEDS
        assert judged("eight permutations", rule) == [not waits] * SEEDS
        assert not any(judged("eight permutations", rule, "torn"))
    first = {
        rule: [cuts[0] for world in every_world() for cuts in judged(world, rule, "splits") if cuts]
        for rule in ("lengths", "ratios", "our run's lengths")
    }
    assert max(first["lengths"]) < 15 < min(first["ratios"] + first["our run's lengths"])


def test_in_twice_as_many_rounds_all_eight_are_found_and_the_fourth_swap_is_not():
    """A longer run begins as the shorter one did, up to rounding."""
    for world, right in (("eight permutations", [5, 5]), ("four swaps, flat", [1, 5])):
        kept = values("rule", world=world, stage="longer")
        assert len(kept) == SEEDS
        for rule, count in zip(("ratios", "our run's lengths"), right, strict=True):
            assert [one[rule]["right"] for one in kept].count(True) == count
            for one, short in zip(kept, judged(world, rule, "splits"), strict=True):
                assert one[rule]["torn"] == 0
                assert max(np.abs(np.subtract(one[rule]["splits"][: len(short)], short))) <= 1


def test_at_once_lengths_are_right_in_the_same_runs_and_ratios_tear():
    for world in every_world():
        assert judged(world, "lengths") == judged(world, "lengths at once")
        if world != "halves":  # where all are of one cluster
            assert not any(judged(world, "ratios", "torn"))
    assert judged("four swaps, short", "ratios at once", "torn").count(0) == 3


def test_no_rule_wins_on_the_fifteen_others():
    known = {*THREE, "four permutations"}
    others = [world for world in every_world() if world not in known]
    assert len(others) == 15
    total = {rule: sum(sum(judged(world, rule)) for world in others) for rule in RULES}
    assert list(total.values()) == [65, 63, 65, 68, 62]


# ---- silent clients


def test_who_waits_for_all_finds_every_cluster_and_who_does_not_misses_cuts():
    found = {q: values("silent", quorum=q, rounds=150) for q in (0.05, 0.7, 1.0)}
    assert [len(some) for some in found.values()] == [5] * 3
    assert not any(one["torn"] for some in found.values() for one in some)
    right = [sum(one["identities"] == 1 for one in some) for some in found.values()]
    assert right == [2, 5, 5]
    assert sorted(len(one["splits"]) for one in found[0.05]) == [0, 2, 2, 3, 3]
    first = {q: [(one["splits"] or [150])[0] for one in some] for q, some in found.items()}
    assert all(np.less(first[1.0], first[0.05]))


def test_many_points_show_the_clusters_before_any_training_and_few_do_not():
    found = {n: values("gap", data="mnist", points=n) for n in (50, 100, 200)}
    right = {n: sum(one["updates"]["correct"][0] for one in some) for n, some in found.items()}
    assert right == {50: 1, 100: 5, 200: 5}
    few = values("gap", data="digits", points=70)
    assert sum(one["updates"]["correct"][0] for one in few) == 2


# ---- servers that clip


def test_a_server_that_clips_and_keeps_its_second_threshold_seldom_finds_the_groups():
    """Chapter 9: in 0 to 3 of ten seeds, whoever lies, and where nobody does."""
    found = {}
    for one in cf.results.stored("09_lies", server="clips"):
        ended = one["values"]["parted"] and one["values"]["whole"]
        found.setdefault(one["settings"]["lie"], []).append(ended)
    assert len(found) == 5
    assert {len(runs) for runs in found.values()} == {10}
    times = [sum(runs) for runs in found.values()]
    assert (min(times), max(times)) == (0, 3)
