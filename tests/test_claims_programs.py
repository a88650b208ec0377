"""Defects of released programs, the lines in question rebuilt on a small input."""

from itertools import chain

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

import clusterfl_core as cf


def test_nearest_truth_calls_a_lost_group_perfect():
    truths, found = np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 0.0]])
    gaps = np.linalg.norm(found[:, None] - truths, axis=2)
    assert np.mean(gaps.min(axis=1)) == 0  # the program's min_dist
    matched, nearest = cf.theory.distance_to_truth(found, truths)
    assert (matched, nearest) == (2, 0)


def test_matched_and_nearest_agree_in_all_stored_trials_of_panel_a():
    for r in cf.results.stored("06_figure3", panel="a", reading="coordinate"):
        assert r["values"]["success"] == r["values"]["success_nearest"]


def test_multiplying_by_r_is_not_rescaling_to_norm_r():
    coins = np.random.default_rng(0).integers(0, 2, 1000).astype(float)
    program, text = 0.5 * coins, 0.5 * coins / np.linalg.norm(coins)
    assert np.linalg.norm(text) == pytest.approx(0.5)
    assert np.linalg.norm(program) / np.linalg.norm(text) == pytest.approx(np.sqrt(500), rel=0.1)


def test_comparing_names_of_clusters_calls_a_perfect_grouping_wrong():
    truth, chosen = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0])
    assert np.mean(chosen == truth) == 0  # the program's cl_acc
    assert cf.evaluation.identity_accuracy(torch.tensor(chosen), torch.tensor(truth)) == 1


def test_complete_linkage_cuts_a_chain_of_similar_clients():
    """Seven clients on an arc, one far off: complete linkage cuts the arc."""
    angles = np.radians([0, 20, 40, 60, 80, 100, 120, 180])
    alpha = np.cos(angles[:, None] - angles)
    tree = linkage(squareform(1 - alpha, checks=False), "complete")
    halves = fcluster(tree, 2, "maxclust")
    best = {frozenset(map(int, half)) for half in cf.cfl.optimal_bipartition(alpha)}
    assert best == {frozenset(range(7)), frozenset({7})}
    assert len(set(halves[:7])) == 2


def test_positions_are_not_ids():
    """A second split of clients 4 to 7 answers 0 to 3: they are in two clusters, 4 to 7 in none."""
    leaves = [[0, 1, 2, 3], [4, 5, 6, 7]]
    positions = ([0, 1], [2, 3])
    wrong = [leaves[0], *positions]
    assert sorted(chain(*wrong)) == [0, 0, 1, 1, 2, 2, 3, 3]
    right = [leaves[0], *([leaves[1][p] for p in half] for half in positions)]
    assert sorted(chain(*right)) == list(range(8))


def test_calls_that_do_not_fit_their_functions():
    class Client:
        def estimate_importance_weights(self):
            return 1

    def reduce_add_average(targets, sources):
        return targets, sources

    with pytest.raises(TypeError):
        Client().estimate_importance_weights("fedsoft")
    with pytest.raises(TypeError):
        reduce_add_average(target=[], sources=[])


def test_fields_that_only_one_solver_has():
    class Base:
        def __init__(self):
            self.classification = False

    class Photographs(Base):
        def __init__(self):
            super().__init__()
            self.classification = True
            self.estimate_criterion = "losses point by point"

    assert Photographs().estimate_criterion
    for field in ("estimate_criterion", "sequence"):
        with pytest.raises(AttributeError):
            getattr(Base(), field)


def test_a_softmax_before_cross_entropy_takes_the_slope_away():
    slopes = {}
    for twice in (False, True):
        logits = torch.tensor([[20.0, 0.0, 0.0]], requires_grad=True)  # sure, and wrong
        outputs = logits.softmax(1) if twice else logits
        torch.nn.functional.cross_entropy(outputs, torch.tensor([1])).backward()
        slopes[twice] = logits.grad.norm().item()
    assert slopes[False] > 1
    assert slopes[True] < 1e-6


def test_a_variance_of_one_hides_that_it_is_used_as_a_deviation():
    for variance, same in ((1.0, True), (4.0, False)):
        noise = np.random.default_rng(0).normal(0, variance, 100_000)
        assert (abs(noise.var() / variance - 1) < 0.05) == same


def test_a_slice_from_one_to_zero_is_empty():
    package = ["shared", "model 0", "model 1"]
    models = package[1:0]
    assert models == []
    with pytest.raises(IndexError):
        models[0]  # the cluster of which it takes the model
    assert package[1:] == ["model 0", "model 1"]


def test_a_flag_overwritten_in_a_loop_tells_only_the_last():
    def printed(history, patience=3):
        stable = False
        for back in range(2, patience + 1):
            stable = history[-back] == history[-1]
        return stable

    def meant(history, patience=3):
        return all(one == history[-1] for one in history[-patience:])

    assert printed(["A", "B", "A"])
    assert not meant(["A", "B", "A"])
    assert printed(["A", "A", "A"]) == meant(["A", "A", "A"]) == True  # noqa: E712


def test_trimming_unequally_pulls_every_mean_down():
    n, beta = 10, 0.15
    low, high = int(beta * n), int((1 - beta) * n)
    assert (low, n - high) == (1, 2)
    draws = np.sort(np.random.default_rng(0).normal(size=(20_000, n)), axis=1)
    assert draws[:, low:high].mean() < -0.1
    assert abs(draws[:, low : n - low].mean()) < 0.01


def test_means_of_batches_over_points_are_no_loss():
    losses = np.full(200, 1.0)
    batches = losses.reshape(4, 50)
    assert sum(b.mean() for b in batches) / len(losses) == pytest.approx(1 / 50)
    assert losses.mean() == 1


def test_a_model_overwritten_in_the_loop_is_not_federated_averaging():
    minima, rate = np.array([0.0, 10.0]), 0.5

    def train(model, minimum):
        return model + rate * (minimum - model)

    model, stages = 4.0, []
    for minimum in minima:
        model = train(model, minimum)
        stages.append(model)
    assert np.mean(stages) == 4.0
    assert np.mean([train(4.0, m) for m in minima]) == 4.5
    back = 4.0
    for minimum in minima[::-1]:
        back = train(back, minimum)
    assert back != model  # the order of clients decides


def test_filtering_by_truth_drops_client_zero():
    assert list(filter(None, [0, 1, 2])) == [1, 2]
    assert [one for one in [0, 1, 2] if one is not None] == [0, 1, 2]
