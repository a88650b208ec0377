"""Rotated images and clustered linear regression."""

import math

import numpy as np
import pytest
import torch

from clusterfl_core import data
from clusterfl_core.populations import regression, rotated


def points_of(clients, rows):
    """All (pixels, label) of some clients, padding cut off, as a sorted list."""
    found = []
    for row in rows:
        n = int(clients.counts[row])
        for x, y in zip(clients.x[row, :n], clients.y[row, :n].tolist(), strict=True):
            found.append((x.numpy().tobytes(), y))
    return sorted(found)


def turned(pixels, labels, degrees):
    """Images turned counter-clockwise by numpy, as a sorted list."""
    found = np.rot90(pixels.numpy(), degrees // 90, axes=(1, 2))
    return sorted(
        (np.ascontiguousarray(x).tobytes(), y) for x, y in zip(found, labels.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("clients", "degrees"), [(7, [0]), (10, [0, 180]), (16, [0, 90, 180, 270])]
)
def test_every_image_is_dealt_exactly_once_in_each_rotation(clients, degrees):
    federation, digits = rotated("digits", clients, len(degrees)), data.load("digits")
    for part, truth, x, y in (
        (federation.train, federation.clusters, digits.x_train, digits.y_train),
        (federation.test, federation.test_clusters, digits.x_test, digits.y_test),
    ):
        assert truth.unique().tolist() == list(range(len(degrees)))
        for cluster, angle in enumerate(degrees):
            rows = (truth == cluster).nonzero()[:, 0].tolist()
            assert points_of(part, rows) == turned(x, y, angle)


def test_a_quarter_turn_moves_the_upper_right_corner_to_the_upper_left(monkeypatch):
    """Read from pixels, without rot90."""
    image = torch.tensor([[[1, 2], [3, 4]]], dtype=torch.uint8)
    label = torch.zeros(1, dtype=torch.int64)
    one = data.Images("corners", image, label, image, label, 1)
    monkeypatch.setattr(data, "load", lambda name: one)
    federation = rotated("corners", clients=4, clusters=4)
    assert [x.tolist() for x in federation.train.x[:, 0]] == [
        [[1, 2], [3, 4]],
        [[2, 4], [1, 3]],
        [[4, 3], [2, 1]],
        [[3, 1], [4, 2]],
    ]
    assert torch.equal(federation.test.x, federation.train.x)


@pytest.mark.parametrize(("clients", "clusters"), [(5, 1), (6, 2), (12, 4)])
def test_client_i_belongs_to_cluster_i_k_over_m(clients, clusters):
    federation = rotated("digits", clients, clusters)
    assert len(federation) == clients
    expected = [i * clusters // clients for i in range(clients)]
    assert federation.clusters.tolist() == expected


@pytest.mark.parametrize("clients", [4, 20, 52])
def test_images_are_dealt_as_evenly_as_they_go_and_test_clients_are_alike(clients):
    federation = rotated("digits", clients, 4)
    counts, test_counts = federation.train.counts, federation.test.counts
    assert int(counts.max() - counts.min()) <= 1
    assert int(test_counts.max() - test_counts.min()) <= 1
    assert int(counts.sum()) == 4 * 1437
    assert int(test_counts.sum()) == 4 * 360
    nearest = max(1, round(360 / (1437 / (clients // 4))))
    assert len(federation.test) == 4 * nearest


def test_images_stay_bytes_and_the_federation_says_what_it_is():
    federation = rotated("digits", 8, 4)
    assert federation.train.x.dtype == torch.uint8
    assert federation.classes == 10
    assert str(federation) == (
        "digits in 4 rotations: 8 training clients with 718 to 719 points each, "
        "4 test clients with 360\n4 hidden clusters of [2, 2, 2, 2] clients"
    )


def test_the_same_seed_deals_the_same_images_and_another_one_others():
    prints = [rotated("digits", 8, 4, seed=seed).fingerprint() for seed in (0, 0, 1)]
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]
    torch.manual_seed(5)  # the global random numbers play no part
    assert rotated("digits", 8, 4).fingerprint() == prints[0]


def test_each_rotation_is_dealt_anew():
    """Else the i-th clients of all rotations would hold the same images."""
    federation = rotated("digits", 8, 4)
    labels = [federation.train.y[row, :700].tolist() for row in (0, 2, 4, 6)]
    assert len({tuple(one) for one in labels}) == 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("digits", 8, 0), "clusters must be at least 1, got 0"),
        (("digits", 2, 4), "clusters must be at most the 2 clients, got 4"),
        (("digits", 9, 3), r"clusters must be 1, 2 or 4 \(quarter turns\), got 3"),
        (("digits", 10, 4), "clients must be a multiple of the 4 clusters, got 10"),
        (
            ("digits", 5752, 4),
            "clients must be at most 5748, so that each holds an image; got 5752",
        ),
        (("letters of fire", 8, 4), "unknown data set 'letters of fire'; known are"),
    ],
)
def test_bad_arguments_of_rotated_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        rotated(*arguments)


def test_as_many_clients_as_images_hold_one_image_each():
    federation = rotated("digits", 5748, 4)
    assert federation.train.counts.tolist() == [1] * 5748
    assert federation.test.counts.tolist() == [1] * 4 * 360


# ---- regression


THETA = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], dtype=torch.float64)


def residuals(federation, clients, truth):
    """y - <x, theta of the true cluster> of all points."""
    theta = federation.truth["theta"][truth]
    return clients.y - (clients.x * theta[:, None]).sum(2)


@pytest.mark.parametrize("noise", [0.0, 0.3, 2.0])
def test_responses_are_the_true_line_plus_noise_of_the_asked_variance(noise):
    federation = regression(THETA, clients=40, points=250, noise=noise)
    for clients, truth in (
        (federation.train, federation.clusters),
        (federation.test, federation.test_clusters),
    ):
        found = residuals(federation, clients, truth)
        points = found.numel()
        # The mean of n normal squares has standard deviation sqrt(2 / n); five of them.
        assert abs(found.square().mean() - noise**2) <= 5 * noise**2 * math.sqrt(2 / points) + 1e-12
        assert abs(found.mean()) <= 5 * noise / math.sqrt(points) + 1e-12


def test_inputs_are_standard_normal_and_independent_of_the_noise():
    federation = regression(THETA, clients=40, points=250, noise=1.0)
    x = federation.train.x.flatten(0, 1)
    assert (x.T @ x / len(x) - torch.eye(3)).abs().max() < 5 * math.sqrt(2 / len(x))
    assert x.mean(0).abs().max() < 5 / math.sqrt(len(x))
    noise = residuals(federation, federation.train, federation.clusters).flatten()
    assert (x.T @ noise / len(x)).abs().max() < 5 / math.sqrt(len(x))


def test_clients_of_one_cluster_are_neighbours_and_the_truth_is_kept():
    federation = regression(THETA, clients=6, points=5, noise=0.1)
    assert federation.clusters.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(federation.truth["theta"], THETA)
    assert federation.train.x.shape == (6, 5, 3)
    assert federation.train.counts.tolist() == [5] * 6
    assert federation.classes == 0
    assert federation.train.x.dtype == torch.float64
    assert regression(THETA.to(torch.float32), 2, 3, 0.1).train.y.dtype == torch.float32


def test_there_is_one_new_test_client_a_cluster():
    federation = regression(THETA, clients=6, points=5, noise=0.1)
    assert federation.test_clusters.tolist() == [0, 1]
    assert federation.test.counts.tolist() == [5, 5]
    trained_on = {tuple(x) for x in federation.train.x.flatten(0, 1).tolist()}
    assert not trained_on & {tuple(x) for x in federation.test.x.flatten(0, 1).tolist()}


def test_the_same_seed_gives_the_same_regression_and_another_one_another():
    prints = [regression(THETA, 4, 5, 0.1, seed=seed).fingerprint() for seed in (0, 0, 1)]
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((THETA, 1, 5, 0.1), "clusters must be at most the 1 clients, got 2"),
        ((THETA[:0], 4, 5, 0.1), "clusters must be at least 1, got 0"),
        ((THETA, 5, 5, 0.1), "clients must be a multiple of the 2 clusters, got 5"),
        ((THETA, 4, 0, 0.1), "points must be at least 1, got 0"),
        ((THETA, 4, 5, -0.1), r"noise must not be negative, got -0\.1"),
    ],
)
def test_bad_arguments_of_regression_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        regression(*arguments)


def test_one_rotation_is_no_cluster_to_speak_of():
    text = str(rotated("digits", 8, 1, seed=0))
    assert text.startswith("digits, upright: 8 training clients")
    assert text.endswith("\nno hidden clusters: one for all clients")
