"""How many groups, if any: silhouettes, Ward's cuts, clouds without groups; one-shot without k."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score, silhouette_score
from test_oneshot_fedem import THETA, Normal

import clusterfl_core as cf
from clusterfl_core import grouping
from clusterfl_core.populations import regression
from clusterfl_core.randomness import generator


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def blobs(k, each, d, gap, seed=0):
    centers = np.random.default_rng(seed).standard_normal((k, d)) * gap
    return centers.repeat(each, 0) + cloud(k * each, d, seed + 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 14), st.integers(1, 4), st.integers(0, 10**6), st.data())
def test_silhouettes_are_those_of_scikit_learn(n, d, seed, data):
    rows, k = cloud(n, d, seed), data.draw(st.integers(2, n - 1))
    labels = np.r_[np.arange(k), np.random.default_rng(seed).integers(k, size=n - k)]
    ours = grouping.silhouette(cdist(rows, rows), labels + 5)
    assert ours == pytest.approx(silhouette_score(rows, labels), abs=1e-12)


def test_equal_rows_score_nothing():
    assert grouping.silhouette(np.zeros((4, 4)), [0, 0, 1, 1]) == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 16), st.integers(1, 4), st.integers(0, 10**6))
def test_the_cuts_are_those_of_wards_tree(n, d, seed):
    rows = cloud(n, d, seed)
    labels, scores = grouping.cuts(rows)
    assert labels.shape == (n // 2 - 1, n)
    for k, (label, score) in enumerate(zip(labels, scores, strict=True), 2):
        theirs = fcluster(linkage(rows, "ward"), k, "maxclust")
        assert adjusted_rand_score(label, theirs) == 1
        assert score == pytest.approx(silhouette_score(rows, label), abs=1e-12)
        assert list(dict.fromkeys(label.tolist())) == list(range(k))  # named in order
    assert len(grouping.cuts(rows, n - 1)[1]) == n - 2


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 12), st.integers(1, 15), st.integers(0, 10**6))
def test_a_cloud_spreads_as_the_rows_do(n, d, seed):
    rows = cloud(n, d, seed) * np.arange(1, d + 1)
    (other,) = grouping.spread_alike(rows, generator("test", seed))
    centered = rows - rows.mean(0)
    np.testing.assert_allclose(other.sum(0), 0, atol=1e-9 * np.abs(rows).sum())
    np.testing.assert_allclose(
        np.linalg.svd(other, compute_uv=False),
        np.linalg.svd(centered, compute_uv=False)[: other.shape[1]],
        rtol=1e-5,
    )
    apart = [np.square(cdist(x, x)).sum() for x in (rows, other)]
    assert apart[0] == pytest.approx(apart[1])  # the mean squared distance is the same


def test_rows_are_held_against_clouds_that_spread_alike():
    rows = blobs(3, 5, 8, 3)
    scores, clouds = grouping.against_clouds(rows, generator("test", 1), 7)
    alike = grouping.spread_alike(rows, generator("test", 1), 7)
    assert clouds.tolist() == [grouping.cuts(cloud)[1].tolist() for cloud in alike]
    assert scores.tolist() == grouping.cuts(rows)[1].tolist()
    assert scores[1] > clouds[:, 1].max() + 0.07  # the cut into three


def test_a_silhouette_means_nothing_by_itself():
    """One cloud in the plane scores far above 0.16, the cut of a first trial, and stays whole."""
    for seed in range(5):
        plane = cloud(24, 2, seed)
        assert grouping.cuts(plane)[1].max() > 0.3
        assert grouping.groups(plane, seed).max() == 0


def test_a_cloud_is_cut_about_as_often_as_promised():
    """4 of 99 clouds may show as much: one in twenty, without the least excess."""
    wrong = sum(bool(grouping.groups(cloud(16, 6, s), s, least=0).max()) for s in range(60))
    assert wrong <= 8  # more has a chance below 0.01 at one in twenty


def test_a_sliding_scale_is_no_group():
    for seed in range(5):
        shade = np.linspace(-3, 3, 24)[:, None] * cloud(1, 20, seed) + cloud(24, 20, seed + 9)
        assert grouping.groups(shade, seed).max() == 0


@pytest.mark.parametrize("k", [2, 3, 5])
def test_planted_groups_are_found_and_named_in_order(k):
    for seed in range(3):
        rows = blobs(k, 6, 12, 3, seed)
        found = grouping.groups(rows, seed)
        assert found.tolist() == np.arange(k).repeat(6).tolist()
        assert torch.equal(found, grouping.groups(torch.tensor(rows), seed))
        order = np.random.default_rng(seed).permutation(6 * k)
        again = grouping.groups(rows[order], seed)
        assert adjusted_rand_score(again, found[order]) == 1


def test_too_few_or_equal_rows_stay_together():
    assert grouping.groups(np.array([[0.0], [9.0], [99.0]]), 0).tolist() == [0, 0, 0]
    assert grouping.groups(np.ones((9, 3)), 0).tolist() == [0] * 9


# ---------------------------------------------------------------- one-shot clustering without k


def oneshot(**more):
    alone, local = cf.LocalSGD(300, 0.1), cf.LocalSGD(2, 0.1)
    return cf.OneShot(Normal(4).double(), alone=alone, local=local, **more)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_shot_finds_the_number_of_groups(k):
    for seed in range(3):
        federation = regression(THETA[:k], 18, 30, 0.2, seed)
        run = cf.run(oneshot(), federation, 3, seed=seed)
        assert run.history[-1]["identity_accuracy"] == 1
        assert len(run.models) == k


@pytest.mark.parametrize("seed", range(3))
def test_asked_again_groups_within_groups_come_apart(seed):
    """Two pairs of groups, 40 from pair to pair and 8 within; one cut sees the pairs alone."""
    centers = np.zeros((4, 10))
    centers[:2, 0], centers[2:, 0] = 20, -20
    centers[:, 1:3] = [[4, 0], [-4, 0], [0, 4], [0, -4]]
    truth = np.arange(4).repeat(8)
    rows = centers[truth] + cloud(32, 10, seed)
    once, again = (grouping.groups(rows, 0, recursive=deep).numpy() for deep in (False, True))
    assert (once == truth // 2).all()
    for group in range(again.max() + 1):
        assert len(set(truth[again == group])) == len(set(once[again == group])) == 1


def test_it_is_one_shot_with_the_number_it_found():
    federation = regression(THETA, 18, 30, 0.2)
    found, told = (cf.run(oneshot(clusters=k), federation, 4) for k in (None, 3))
    assert adjusted_rand_score(found.assignments, told.assignments) == 1
    same = [told.assignments.tolist().index(j) for j in range(3)]
    order = found.assignments[same].argsort()
    torch.testing.assert_close(found.models.flatten(), told.models.flatten()[order])


def test_one_group_is_federated_averaging_from_the_mean_of_the_local_models():
    federation = regression(THETA[:1], 8, 20, 0.2)
    mine, other = oneshot(), oneshot(clusters=1)
    assert torch.equal(*(cf.run(one, federation, 3).models.flatten() for one in (mine, other)))


def test_groups_do_not_depend_on_who_else_would_have_answered():
    """Who did not answer in round 1 is in no group; a model that is not finite as well."""
    algorithm, federation = oneshot(), regression(THETA[:2], 12, 30, 0.2)
    state = algorithm.init(federation, 0)
    replies = algorithm.client_step(algorithm.plan(state), federation.train)
    replies.bank.tensors["theta"][3] = torch.inf
    after = algorithm.absorb(state, iter([replies]))
    assert after.assignments.tolist() == [0, 0, 0, -1, 0, 0, 1, 1, 1, 1, 1, 1]
    assert after.bank.flatten().isfinite().all()
    replies.bank.tensors["theta"][:] = torch.nan
    assert algorithm.absorb(state, iter([replies])).assignments.tolist() == [-1] * 12


def test_bad_settings_are_one_sentence():
    with pytest.raises(ValueError, match=r"excess must be in \[0, 2\), got -1"):
        oneshot(excess=-1)
    with pytest.raises(ValueError, match="clusters must be at least 1 or None, got 0"):
        oneshot(clusters=0)
