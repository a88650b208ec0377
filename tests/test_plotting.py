"""Figures: what is drawn is what the results say."""

import itertools
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from clusterfl_core import plotting

mpl.use("Agg")
plt = plotting.plt


@pytest.fixture
def axis():
    """One axis, closed after the test."""
    figure, made = plt.subplots()
    yield made
    plt.close(figure)


def a_run(*values):
    """A run as far as a figure looks at it."""
    return SimpleNamespace(
        history=[{"round": t, "accuracy": value} for t, value in enumerate(values, 1)]
    )


def test_every_algorithm_has_a_colour_and_a_dash_and_no_two_share_both():
    assert list(plotting.ALGORITHMS) == list(plotting.DASHES)
    looks = set(zip(plotting.ALGORITHMS.values(), plotting.DASHES.values(), strict=True))
    assert len(looks) == len(plotting.ALGORITHMS)
    assert len(set(plotting.ALGORITHMS.values())) == len(plotting.ALGORITHMS)


def test_every_cluster_has_a_colour_and_a_marker_of_its_own():
    assert len(set(plotting.CLUSTERS)) == len(set(plotting.MARKERS)) == len(plotting.CLUSTERS)
    for first, second in itertools.combinations(plotting.CLUSTERS, 2):
        distance = np.abs(np.subtract(mpl.colors.to_rgb(first), mpl.colors.to_rgb(second)))
        assert distance.max() > 0.2


def test_a_single_run_is_one_line_in_the_colour_of_its_algorithm(axis):
    plotting.curves(axis, {"IFCA": a_run(0.2, 0.5, 0.9), "FedAvg": a_run(0.1, 0.2)}, "accuracy")
    first, second = axis.lines
    assert first.get_xydata().tolist() == [[1, 0.2], [2, 0.5], [3, 0.9]]
    assert second.get_xydata().tolist() == [[1, 0.1], [2, 0.2]]
    for line, name in ((first, "IFCA"), (second, "FedAvg")):
        assert line.get_label() == name
        assert line.get_color() == plotting.ALGORITHMS[name]
        assert line.get_linestyle() == plotting.DASHES[name]
    assert len(axis.collections) == 0
    assert axis.get_xlabel() == "round"


def test_several_runs_are_their_mean_and_a_band_from_lowest_to_highest(axis):
    group = [a_run(0.0, 0.4), a_run(0.3, 0.5), a_run(0.6, 0.9)]
    plotting.curves(axis, {"FedAvg": group}, "accuracy")
    (line,) = axis.lines
    assert line.get_ydata() == pytest.approx([0.3, 0.6])
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices
    for t, low, high in ((1, 0.0, 0.6), (2, 0.4, 0.9)):
        heights = corners[corners[:, 0] == t, 1]
        assert (heights.min(), heights.max()) == pytest.approx((low, high))
    assert to_hex(band.get_facecolor()[0]) == plotting.ALGORITHMS["FedAvg"].lower()


def test_a_group_of_one_run_has_no_band(axis):
    plotting.curves(axis, {"FedAvg": [a_run(0.0, 0.4)]}, "accuracy")
    assert len(axis.lines) == 1
    assert len(axis.collections) == 0


def test_a_table_shows_truth_above_and_choice_below_in_numbers_and_colours(axis):
    identities, clusters = torch.tensor([1, 0, -1]), torch.tensor([0, 0, 1])
    plotting.identity_table(axis, identities, clusters)
    for row, values in enumerate((clusters.tolist(), identities.tolist())):
        for i, value in enumerate(values):
            square, text = axis.patches[3 * row + i], axis.texts[3 * row + i]
            assert text.get_text() == str(value)
            assert text.get_position() == (i, row)
            left, top = square.get_xy()
            assert left < i < left + square.get_width()
            assert top < row < top + square.get_height()
            wanted = plotting.CLUSTERS[value].lower() if value >= 0 else "#dddddd"
            assert to_hex(square.get_facecolor()) == wanted
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "true cluster", "chosen model"
    ]  # fmt: skip
    bottom, top = axis.get_ylim()
    assert bottom > top  # row 0 above row 1


def test_a_run_stands_beside_the_stored_ones_of_its_setting():
    figure, axis = plt.subplots()
    plotting.beside(axis, {"k = 2": (0.5, [0.4, 0.6]), "k = 3": (0.7, [])})
    drawn = [line.get_xydata().tolist() for line in axis.lines if len(line.get_xdata())]
    assert drawn == [[[0.4, 0], [0.6, 0]], [[0.5, 0]], [[0.7, 1]]]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["k = 2", "k = 3"]
    bottom, top = axis.get_ylim()
    assert bottom > top
    plt.close(figure)


def test_images_are_shown_side_by_side_under_their_titles():
    figure, axes = plt.subplots(1, 2)
    images = torch.arange(8, dtype=torch.uint8).view(2, 2, 2)
    plotting.image_grid(axes, images, ["seven", "three"])
    for one, image, title in zip(axes, images, ["seven", "three"], strict=True):
        assert np.array_equal(one.images[0].get_array(), image.numpy())
        assert one.get_title() == title
        assert not one.axison
    with pytest.raises(ValueError, match="zip"):
        plotting.image_grid(axes, images, ["only one title"])
    plt.close(figure)


def test_the_style_holds_for_the_figures_that_follow():
    with mpl.rc_context():
        mpl.rcdefaults()
        plotting.style()
        figure, made = plt.subplots()
        assert figure.get_size_inches().tolist() == [6.4, 3.6]
        assert not made.spines["top"].get_visible()
        assert not made.spines["right"].get_visible()
        assert made.xaxis.get_gridlines()[0].get_visible()
        plt.close(figure)
