"""Deals times twists: what holds for every pair, and that named populations stay as they were."""

import doctest
import importlib
import pkgutil
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clusterfl_core as cf
from clusterfl_core import data, populations
from clusterfl_core.data import Images

DIGITS = data.load("digits")
NUMBER = {  # which image it is, told by its pixels
    x.numpy().tobytes(): (part, row)
    for part, xs in (("train", DIGITS.x_train), ("test", DIGITS.x_test))
    for row, x in enumerate(xs)
}
LABEL = {"train": DIGITS.y_train, "test": DIGITS.y_test}

# ---------------------------------------------------------------- the named populations

# Fingerprints of populations as they were made before there were deals and twists: stored results
# hang on them. Where real images lie in no file, small ones of a fixed seed do.
MADE = {
    "7cc7f1df07eec1459c866d1dff1e069d": lambda p: p.rotated("digits", 8, 4, 3),
    "38ddabfade059d5571280e78a4954d5b": lambda p: p.rotated("digits", 7, 1, 3),
    "062fd7e4c2917bc66eedd01fc2910a6c": lambda p: p.rotated("digits", 10, 2, 3),
    "4b0a05ab818a975086e78117349e34ee": lambda p: p.rotated("cifar10", 4, 4, 3),
    "e2113a667686a8cae1516aa3380168ab": lambda p: p.label_swapped("digits", 8, 4, 3),
    "835b29d205e63e15109012a3ef8d0c09": lambda p: p.label_swapped("digits", 10, 5, 3, points=20),
    "fbf4845b8535c61446735f2e7242e2fb": lambda p: p.label_permuted("digits", 8, 4, 3),
    "5eca5af84efc7821d279bda065c3dbc4": lambda p: p.halves("digits", 3),
    "f5c719aab0c1f38b9c44ce0d5e0600e0": lambda p: p.writers("mnist_writers", 5, 3),
    "439a4e3818128c32e4c7c3ca27bd96cf": lambda p: p.writers("mnist_writers", 3, 3),
    "75c6c0b74b62e5e691ebe996a65ccf9b": lambda p: p.label_skew("digits", 6, 0.5, 3),
    "a491deb0316e93f3040273daacb946c8": lambda p: p.label_skew("digits", 20, 0.1, 3),
    "a0309bade60726bd9bb3ee9871fd84c0": lambda p: p.quantity_skew("digits", 6, 1.0, 3),
    "1eeeaf36bf72790d4b4edb04fcc91483": lambda p: p.quantity_skew("digits", 20, 8.0, 3),
    "1c79aea612b99884f20c95e6aea3fb5f": lambda p: p.feature_skew("digits", 6, 0.8, 3),
    "25ff2e88d3e424cdc8443096ccfcd437": lambda p: p.mixed("digits", 6, 3, "random", 3),
    "95b556d91c16c89c7620f0eb8ad4bad5": lambda p: p.mixed("letters", 4, 2, "10:90", 3, (10, 12)),
    "a03a48a892b99947a55cdbe42ef31461": lambda p: p.mixed("letters", 4, 4, "random", 3, (10, 10)),
    "fe9234b0aaff1ffd96f047e434d7cadd": lambda p: p.linear_mixture("digits", 7, seed=3),
}


@pytest.fixture
def small_images(tmp_path, monkeypatch):
    """Files of random images that stand for the sets which have to be fetched."""
    monkeypatch.setenv("CLUSTERFL_DATA", str(tmp_path))

    def save(name, shape=(4, 4), **facts):
        parts = {}
        for seed, (part, count) in enumerate((("train", 240), ("test", 96))):
            source = np.random.default_rng(seed)
            parts[f"x_{part}"] = source.integers(0, 256, (count, *shape), dtype=np.uint8)
            parts[f"y_{part}"] = np.arange(count, dtype=np.uint8) % 4
        np.savez(tmp_path / f"{name}.npz", **parts, **facts)

    train, test = np.arange(240), np.arange(96)
    save("cifar10", (3, 5, 5))
    save("letters", upper_train=train // 2 % 2, upper_test=test // 2 % 2)
    save(
        "mnist_writers",
        writer_train=train % 5 + 100,
        hsf_train=np.array([0, 4, 0, 4, 1])[train % 5],
        writer_test=test + 2300,
        hsf_test=np.full(96, 1),
    )


@pytest.mark.parametrize("fingerprint", MADE)
def test_a_named_population_is_what_it_always_was(small_images, fingerprint):
    assert MADE[fingerprint](populations).fingerprint() == fingerprint


# ---------------------------------------------------------------- any deal with any twist

DEALS = {
    "equal": populations.equal(),
    "few": populations.equal(points=20),
    "anew": populations.anew(),
    "by_label": populations.by_label(0.7),
    "by_quantity": populations.by_quantity(1.3),
}
PERMUTED = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]
TWISTS = {  # and into how many clusters each makes the clients
    "none": (None, 1),
    "rotate": (populations.rotate(4), 4),
    "half turn": (populations.rotate([180, -90]), 2),
    "swap": (populations.swap_labels(3), 3),
    "permute": (populations.permute_labels(2), 2),
    "all kinds": ([populations.turn(90), populations.relabel(PERMUTED), populations.turn(360)], 3),
}


def points(clients, row):
    n = int(clients.counts[row])
    return clients.x[row, :n], clients.y[row, :n]


def undone(name, federation, cluster, x, y):
    """What a client of the cluster held before the twist."""
    truth = federation.truth
    if "degrees" in truth:
        return populations.turn(-float(truth["degrees"][cluster]))(x, y)
    if "labels" in truth:
        return populations.relabel(truth["labels"][cluster].argsort())(x, y)
    if name == "all kinds" and cluster == 0:
        return populations.turn(270)(x, y)
    if name == "all kinds" and cluster == 1:
        return populations.relabel(torch.tensor(PERMUTED).argsort())(x, y)
    return x, y


@given(
    deal=st.sampled_from(sorted(DEALS)),
    twist=st.sampled_from(sorted(TWISTS)),
    share=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_every_pair_deals_each_image_once_and_its_twist_can_be_undone(deal, twist, share, seed):
    change, k = TWISTS[twist]
    m = share * k
    federation = populations.make("digits", m, deal=DEALS[deal], twist=change, seed=seed)
    assert federation.train.counts.min() >= 1
    assert federation.classes == 10
    known = twist != "none"
    assert (federation.clusters is not None) == known
    if known:
        assert federation.clusters.tolist() == [i * k // m for i in range(m)]
    if deal != "anew":
        assert torch.equal(federation.train.ids, federation.test.ids)
    for part, clients, clusters in (
        ("train", federation.train, federation.clusters),
        ("test", federation.test, federation.test_clusters),
    ):
        seen = Counter()
        for row in range(len(clients)):
            cluster = int(clusters[row]) if known else 0
            for x, y in zip(
                *undone(twist, federation, cluster, *points(clients, row)), strict=True
            ):
                source, number = NUMBER[x.contiguous().numpy().tobytes()]
                assert source == part  # no test image is trained on
                assert y == LABEL[part][number]
                seen[number, cluster if deal == "anew" else 0] += 1
        assert set(seen.values()) == {1}
        whole = len(LABEL[part]) * (k if deal == "anew" else 1)
        assert len(seen) == (20 * m if (deal, part) == ("few", "train") else whole)


@pytest.mark.parametrize("deal", DEALS)
def test_a_deal_does_not_hang_on_a_twist_that_draws_nothing(deal):
    plain = populations.make("digits", 8, deal=DEALS[deal], twist=[populations.turn(0)] * 2, seed=5)
    other = populations.make("digits", 8, deal=DEALS[deal], twist=populations.rotate(2), seed=5)
    assert torch.equal(plain.train.counts, other.train.counts)
    assert torch.equal(plain.train.y, other.train.y)
    assert torch.equal(plain.train.x[:4], other.train.x[:4])
    assert torch.equal(torch.rot90(plain.train.x[4:], 2, dims=(-2, -1)), other.train.x[4:])


def test_rotated_and_skewed_is_one_line_that_says_what_it_made():
    federation = cf.populations.make(
        "digits", clients=24, deal=populations.by_label(0.3), twist=populations.rotate(4)
    )
    skewed = populations.label_skew("digits", 24, 0.3)
    assert torch.equal(federation.truth["shares"], skewed.truth["shares"])
    assert torch.equal(federation.train.y, skewed.train.y)
    assert federation.truth["degrees"].tolist() == [0, 90, 180, 270]
    assert str(federation).startswith(
        "digits, classes dealt unevenly (Dirichlet 0.3) in 4 rotations: 24 training clients with "
    )
    assert "4 hidden clusters of [6, 6, 6, 6] clients" in str(federation)


def test_writers_keep_their_images_when_their_pages_are_turned(small_images):
    plain = populations.writers("mnist_writers", 4, seed=1)
    made = populations.make(
        "mnist_writers", 4, deal=populations.by_writer(), twist=[populations.turn(180)], seed=1
    )
    assert torch.equal(torch.rot90(plain.train.x, 2, dims=(-2, -1)), made.train.x)
    assert torch.equal(made.truth["writer"], plain.truth["writer"])
    assert plain.clusters.unique().tolist() == [0, 1]
    assert made.clusters.tolist() == [0] * 4  # of the twist


# ---------------------------------------------------------------- changes


def blob(height=24, width=24, row=6.0, column=16.0):
    """A bright spot off the middle."""
    i, j = torch.arange(height)[:, None], torch.arange(width)
    spot = 255 * torch.exp(-((i - row) ** 2 + (j - column) ** 2) / 8)
    return spot.round().to(torch.uint8)[None]


def middle(image):
    weight = image[0].double()
    i, j = (torch.arange(n, dtype=torch.float64) for n in weight.shape)
    return float((weight.sum(1) * i).sum() / weight.sum()), float(
        (weight.sum(0) * j).sum() / weight.sum()
    )


@given(angle=st.floats(-400, 400))
@settings(max_examples=80, deadline=None)
def test_a_turn_moves_a_spot_counterclockwise_by_its_angle(angle):
    (turned, labels) = populations.turn(angle)(blob(), torch.tensor([7]))
    assert turned.dtype == torch.uint8
    assert turned.shape == (1, 24, 24)
    assert labels.tolist() == [7]
    up, right = 11.5 - 6.0, 16.0 - 11.5
    there = np.radians(angle) + np.arctan2(up, right)
    radius = np.hypot(up, right)
    found = middle(turned)
    assert found[0] == pytest.approx(11.5 - radius * np.sin(there), abs=0.1)
    assert found[1] == pytest.approx(11.5 + radius * np.cos(there), abs=0.1)


@pytest.mark.parametrize("shape", [(1, 9, 9), (2, 6, 9), (2, 3, 6, 5)])
def test_turns_of_almost_a_quarter_are_quarters_and_keep_the_shape(shape):
    x = torch.arange(int(np.prod(shape))).mul(7).remainder(256).to(torch.uint8).view(shape)
    y = torch.zeros(len(x), dtype=torch.int64)
    half, _ = populations.turn(180.0 - 1e-4)(x, y)
    assert half.shape == x.shape
    assert (half.int() - torch.rot90(x, 2, dims=(-2, -1)).int()).abs().max() <= 1
    there, _ = populations.turn(90)(x, y)
    assert there.shape == (*shape[:-2], shape[-1], shape[-2])
    assert torch.equal(populations.turn(-90)(there, y)[0], x)


def test_any_angles_make_clusters_that_are_told():
    federation = populations.make("digits", 6, twist=populations.rotate([0, 15, 30]), seed=2)
    assert federation.truth["degrees"].tolist() == [0, 15, 30]
    upright = populations.make("digits", 6, seed=2)
    assert torch.equal(federation.train.x[:2], upright.train.x[:2])
    x, y = points(upright.train, 3)
    expected, _ = populations.turn(15)(x, y)
    assert torch.equal(points(federation.train, 3)[0], expected)
    assert not torch.equal(expected, x)
    one = populations.make("digits", 6, twist=populations.rotate([10]))
    assert str(one).startswith("digits turned by 10 degrees: ")


@pytest.fixture
def grey(monkeypatch):
    """A data set of 4,000 and 1,000 grey images, so that noise can be told from pixels."""
    parts = [
        (torch.full((n, 5, 5), 128, dtype=torch.uint8), torch.arange(n) % 4) for n in (4000, 1000)
    ]
    images = Images("grey", *parts[0], *parts[1], 4)
    monkeypatch.setattr(data, "load", lambda name: images)


def test_noise_is_as_strong_as_asked_and_leaves_test_labels_right(grey):
    twist = populations.add_noise(pixels=0.1, labels=(0.0, 0.4))
    federation = populations.make("grey", 4, twist=twist, seed=1)
    clean = populations.make("grey", 4, twist=[populations.turn(0)] * 2, seed=1)
    assert federation.truth["noise"].tolist() == [[0.1, 0.0], [0.1, 0.4]]
    assert federation.clusters.tolist() == [0, 0, 1, 1]
    for clients in (federation.train, federation.test):
        spread = (clients.x.double() - 128).std() / 255
        assert spread == pytest.approx(0.1, abs=0.002)
    wrong = (federation.train.y != clean.train.y).double().mean(1)
    assert wrong[:2].tolist() == [0, 0]
    # 1,000 labels a client: a standard deviation of 0.0155, five of them
    assert wrong[2:].tolist() == pytest.approx([0.4, 0.4], abs=0.08)
    moved = (federation.train.y - clean.train.y)[2:].remainder(4)
    assert all((moved == step).double().mean() > 0.1 for step in (1, 2, 3))
    assert torch.equal(federation.test.y, clean.test.y)
    again = populations.make("grey", 4, twist=twist, seed=1)
    assert again.fingerprint() == federation.fingerprint()


def test_no_noise_changes_nothing():
    quiet = populations.make("digits", 3, twist=populations.add_noise())
    assert (
        quiet.fingerprint()
        == populations.make("digits", 3, twist=[populations.turn(0)]).fingerprint()
    )


def test_a_stranger_writes_a_deal_and_a_twist():
    def first_come(table):
        rows = torch.arange(3 * table.clients).split(3)
        return populations.Hands(list(rows), list(rows), ", three each")

    def darker(table):
        by = torch.rand(2, generator=table.source)
        return populations.Twist([lambda x, y, b=b: ((b * x).to(x.dtype), y) for b in by], ", dark")

    federation = populations.make("digits", 4, deal=first_come, twist=darker)
    assert federation.train.counts.tolist() == [3] * 4
    assert torch.equal(federation.train.y.flatten(), DIGITS.y_train[:12])
    assert federation.train.x.sum() < DIGITS.x_train[:12].sum()
    assert str(federation).startswith("digits, three each, dark: 4 training clients with 3 points")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.make("digits", 5, twist=p.rotate(4)), "clients must be a multiple of the 4"),
        (lambda p: p.make("digits", 5, twist=[]), "clusters must be at least 1, got 0"),
        (lambda p: p.rotate(0), "clusters must be at least 1, got 0"),
        (lambda p: p.swap_labels(-1), "clusters must be at least 1, got -1"),
        (lambda p: p.add_noise(labels=1.5), r"pixels and labels must be in \[0, 1\], got 0.0 and"),
        (lambda p: p.make("digits", 3, deal=p.by_half()), "clients must be 2 to hold half of the"),
        (
            lambda p: p.make("digits", 3, deal=p.anew(), twist=p.cameras(0.5)),
            "deal must make equally many clients for each of the 3 changes of the twist, got 1",
        ),
        (lambda p: p.make("digits", 0, deal=p.anew()), "clients must be at least 1, got 0"),
        (lambda p: p.make("figures", 3), "unknown data set 'figures'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(populations)


def test_two_classes_have_two_permutations_and_no_third(grey, monkeypatch):
    two = Images("two", *[torch.zeros(9, 2, 2).byte(), torch.arange(9) % 2] * 2, 2)
    monkeypatch.setattr(data, "load", lambda name: two)
    with pytest.raises(ValueError, match="clusters must be at most 2, got 3"):
        populations.make("two", 3, twist=populations.permute_labels(3))


# ---------------------------------------------------------------- names

ROOMS = [
    importlib.import_module(f"{package.__name__}.{found.name}")
    for package in (populations, data)
    for found in pkgutil.iter_modules(package.__path__)
    if not found.name.startswith("_")
]


@pytest.mark.parametrize("room", [populations, data, *ROOMS], ids=lambda room: room.__name__)
def test_a_room_lists_its_names_and_its_examples_run(room):
    assert sorted(set(room.__all__)) == sorted(room.__all__)
    assert all(hasattr(room, name) for name in room.__all__)
    assert doctest.testmod(room).failed == 0


def test_each_name_of_a_file_is_a_name_of_the_populations():
    files = [room for room in ROOMS if room.__name__.startswith(populations.__name__)]
    assert sorted(populations.__all__) == sorted(name for room in files for name in room.__all__)
    assert "Counter" not in dir(populations)
