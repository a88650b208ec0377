"""How data sets are read beyond the digits, and what populations are made of them."""

import hashlib
import io
import re
import time
import types
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
import torchvision
from sklearn.linear_model import LogisticRegression

import clusterfl_core as cf
from clusterfl_core import data, populations

DIGITS = data.load("digits")
ORIGINAL = {
    x.numpy().tobytes(): (int(y), part)
    for part, xs, ys in (
        ("train", DIGITS.x_train, DIGITS.y_train),
        ("test", DIGITS.x_test, DIGITS.y_test),
    )
    for x, y in zip(xs, ys, strict=True)
}


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small make threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images_of(clients, row):
    """The images and labels of one client, without padding."""
    n = int(clients.counts[row])
    return clients.x[row, :n], clients.y[row, :n]


def originals(clients):
    """(original label, part, label it bears, client) of every point, told by its pixels."""
    found = []
    for row in range(len(clients)):
        for x, y in zip(*images_of(clients, row), strict=True):
            found.append((*ORIGINAL[x.numpy().tobytes()], int(y), row))
    return found


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder and no waiting."""
    monkeypatch.setenv("CLUSTERFL_DATA", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return tmp_path


def pixels(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def save(cache, name, train=40, test=12, shape=(4, 4), classes=4, **facts):
    """A small data set as a file of the cache."""
    arrays = {
        "x_train": pixels(train, *shape),
        "y_train": np.arange(train, dtype=np.uint8) % classes,
        "x_test": pixels(test, *shape, seed=1),
        "y_test": np.arange(test, dtype=np.uint8) % classes,
    }
    np.savez_compressed(cache / f"{name}.npz", **arrays, **facts)
    return arrays


# ---------------------------------------------------------------- images from the cache


def writer_facts(train=40, test=12):
    return {
        "writer_train": np.arange(train, dtype=np.int16) % 3 + 100,
        "hsf_train": np.array([0, 4, 0], np.uint8)[np.arange(train) % 3],
        "writer_test": np.arange(test, dtype=np.int16) + 2300,
        "hsf_test": np.full(test, 1, np.uint8),
    }


def test_writers_of_mnist_may_lie_in_a_file_of_their_own(cache):
    arrays = save(cache, "mnist")
    np.savez_compressed(cache / "mnist_writers.npz", **writer_facts())
    found = data.load("mnist_writers")
    assert found.name == "mnist_writers"
    assert np.array_equal(found.x_train.numpy(), arrays["x_train"])
    assert found.facts["writer"][0][:4].tolist() == [100, 101, 102, 100]
    assert found.facts["hsf"][1].tolist() == [1] * 12
    assert found.facts["writer"][0].dtype == torch.int64
    assert data.load("mnist").facts == {}


def test_writers_and_images_may_lie_in_one_file(cache):
    save(cache, "mnist_writers", **writer_facts())
    assert set(data.load("mnist_writers").facts) == {"writer", "hsf"}


def test_facts_must_be_told_row_by_row(cache):
    save(cache, "mnist", train=30)
    np.savez_compressed(cache / "mnist_writers.npz", **writer_facts())
    with pytest.raises(ValueError, match=r"tells writer of \[40, 12\] images, but there are \[30"):
        data.load("mnist_writers")


@pytest.mark.parametrize("shape", [(3, 6, 5), (6, 5, 3)])
def test_colour_images_are_channel_first_whichever_way_the_file_has_them(cache, shape):
    arrays = save(cache, "cifar10", shape=shape)
    found = data.load("cifar10")
    assert found.x_train.shape == (40, 3, 6, 5)
    pixel = (7, 2, 4, 1) if shape[0] == 3 else (7, 4, 1, 2)
    assert found.x_train[7, 2, 4, 1] == arrays["x_train"][pixel]
    assert found.x_test.is_contiguous()


class Part:
    """Stands for a data set of torchvision: the same images each time, other ones for testing."""

    def __init__(self, targets, shape=(4, 4), numpy=False):
        self.targets, self.shape, self.numpy, self.calls = targets, shape, numpy, []

    def __call__(self, root, **settings):
        self.calls.append(settings)
        root.mkdir(parents=True, exist_ok=True)
        first = settings.get("train", settings.get("what") == "train")
        x = pixels(len(self.targets), *self.shape, seed=0 if first else 1)
        made = types.SimpleNamespace(data=x, targets=self.targets)
        if not self.numpy:
            made.data, made.targets = torch.from_numpy(x), torch.tensor(self.targets)
        return made


def test_letters_are_turned_upright_and_know_capitals_from_small_ones(cache, monkeypatch):
    part = Part([3, 10, 35, 36, 61, 9])  # 3, A, Z, a, z, 9
    monkeypatch.setattr(torchvision.datasets, "EMNIST", part)
    found = data.load("letters")
    assert found.y_train.tolist() == [0, 25, 0, 25]
    assert found.facts["upper"][0].tolist() == [1, 1, 0, 0]
    assert np.array_equal(found.x_train[0].numpy(), pixels(6, 4, 4)[1].T)
    assert [c["split"] for c in part.calls] == ["byclass"] * 2
    assert [one.name for one in cache.iterdir()] == ["letters.npz"]
    assert data.load("letters").facts["upper"][1].tolist() == [1, 1, 0, 0]
    assert len(part.calls) == 2  # the second time nothing is fetched


def test_writers_come_with_their_images_from_qmnist(cache, monkeypatch):
    rows = [[7, 0, 123, 0, 7, 1, 0, 0], [2, 4, 2310, 1, 2, 2, 0, 0]]  # class, series, writer, ...
    part = Part(rows)
    monkeypatch.setattr(torchvision.datasets, "QMNIST", part)
    found = data.load("mnist_writers")
    assert found.y_train.tolist() == [7, 2]
    assert found.facts["hsf"][0].tolist() == [0, 4]
    assert found.facts["writer"][1].tolist() == [123, 2310]
    assert [c["what"] for c in part.calls] == ["train", "test10k"]
    assert not any(c["compat"] for c in part.calls)


def test_cifar_comes_from_torchvision_channel_last(cache, monkeypatch):
    monkeypatch.setattr(torchvision.datasets, "CIFAR10", Part([1, 0, 2], (5, 5, 3), numpy=True))
    found = data.load("cifar10")
    assert found.x_train.shape == (3, 3, 5, 5)
    assert np.array_equal(found.x_train[1, 2].numpy(), pixels(3, 5, 5, 3)[1, :, :, 2])
    assert found.y_test.tolist() == [1, 0, 2]


# ---------------------------------------------------------------- text


def test_manuals_are_four_kinds_of_text_that_need_no_network():
    texts = data.load_text("manuals")
    assert len(texts.documents) == len(texts.labels)
    assert texts.labels.unique().tolist() == [0, 1, 2, 3]
    for kind, word in enumerate(("statement", "ndarray", "distribution", "tensor")):
        own = [text for text, k in zip(texts.documents, texts.labels, strict=True) if k == kind]
        assert sum(map(len, own)) > 200_000
        assert sum(word in text.lower() for text in own) > 30
    again = data.load_text("manuals")
    assert again.documents == texts.documents


def test_what_scipy_draws_for_its_docstrings_is_no_part_of_the_manuals(monkeypatch):
    """It draws anew in each process; a small number is written with the letter e, a word."""
    import scipy.stats

    drawn = [
        getattr(scipy.stats, name).__doc__.split(".sample(shape=(4,))\n")[1].split("  #")[0]
        for name in ("Normal", "Uniform", "Binomial", "Logistic")
    ]
    texts = data.load_text("manuals").documents
    assert not any(sample in text for sample in drawn for text in texts)
    usual = populations.next_words("manuals", 4, 4, points=50).fingerprint()
    small = scipy.stats.Normal.__doc__.replace(drawn[0], "array([1e-05, 2e-05, 1., 2.])")
    monkeypatch.setattr(scipy.stats.Normal, "__doc__", small)
    assert populations.next_words("manuals", 4, 4, points=50).fingerprint() == usual


def news(cache, documents=("A b. c", "D e", "F"), topics=(0, 2, 1)):
    np.savez_compressed(
        cache / "ag_news.npz",
        text=np.array("\0".join(documents)),
        y=np.array(topics, np.uint8),
        classes=np.array(["World", "Sports", "Business", "Sci/Tech"]),
        extra_text=np.array("more"),
    )


def test_a_text_in_the_cache_is_used_as_it_is(cache):
    news(cache)
    texts = data.load_text("ag_news")
    assert texts.documents == ["A b. c", "D e", "F"]
    assert texts.labels.tolist() == [0, 2, 1]
    assert texts.kinds == ("World", "Sports", "Business", "Sci/Tech")


PLAY = "ROMEO:\nO me!\n\nJULIET:\nWhat's in a name?\nThat which\n\nROMEO:\nI take thee\n\nExeunt"


def test_shakespeare_is_cut_into_speeches_those_who_speak_most_first(cache):
    np.savez_compressed(cache / "shakespeare.npz", raw=np.array(PLAY))
    texts = data.load_text("shakespeare")
    assert texts.kinds == ("JULIET", "ROMEO")
    assert texts.documents == ["What's in a name?\nThat which", "O me!", "I take thee"]
    assert texts.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("content", ["not a zip", None])
def test_a_damaged_text_is_named(cache, content):
    if content is None:
        news(cache, topics=(0, 1))  # a label is missing
    else:
        (cache / "ag_news.npz").write_text(content)
    with pytest.raises(ValueError, match=r"ag_news.npz cannot be read as a data set .* delete it"):
        data.load_text("ag_news")


def test_an_unknown_text_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown text 'bible'; known are manuals, ag_news, shake"):
        data.load_text("bible")


def answer(monkeypatch, body, checksum=True):
    """Let every address answer with these bytes; returns the list of requests."""
    asked = []

    def urlopen(address, timeout):
        asked.append(address)
        if isinstance(body, Exception):
            raise body
        return io.BytesIO(body)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    if checksum:
        known = {
            n: (a, hashlib.sha256(body).hexdigest())
            for n, (a, _) in data.texts.TEXT_SOURCES.items()
        }
        monkeypatch.setattr(data.texts, "TEXT_SOURCES", known)
    return asked


def test_news_are_fetched_once_and_read_from_their_table(cache, monkeypatch):
    body = b'"3","Wall St. Bears","Reuters - Short, ""green"""\n"1","Talks","end"\n'
    asked = answer(monkeypatch, body)
    for _ in range(2):
        texts = data.load_text("ag_news")
        assert texts.documents == ['Wall St. Bears Reuters - Short, "green"', "Talks end"]
        assert texts.labels.tolist() == [2, 0]
        assert texts.kinds[2] == "Business"
    assert len(asked) == 1
    assert [one.name for one in cache.iterdir()] == ["ag_news.npz"]


def test_a_play_is_fetched_once(cache, monkeypatch):
    asked = answer(monkeypatch, PLAY.encode())
    assert data.load_text("shakespeare").kinds == data.load_text("shakespeare").kinds
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>captive portal</html>", "what lies at https://.* is not the known file"),
        (urllib.error.URLError("no such host"), "<urlopen error no such host>"),
    ],
)
def test_a_text_that_cannot_be_had_says_what_works_without_it(cache, monkeypatch, body, reason):
    asked = answer(monkeypatch, body, checksum=False)
    with pytest.raises(
        data.Unavailable, match=rf"^ag_news could not be downloaded \({reason}\); .* 'manuals'"
    ):
        data.load_text("ag_news")
    assert len(asked) == data.cache.ATTEMPTS
    assert list(cache.iterdir()) == []


# ---------------------------------------------------------------- all populations

MAKERS = {
    "rotated": lambda seed: populations.rotated("digits", 8, 4, seed),
    "label_swapped": lambda seed: populations.label_swapped("digits", 8, 4, seed),
    "label_permuted": lambda seed: populations.label_permuted("digits", 8, 4, seed),
    "halves": lambda seed: populations.halves("digits", seed),
    "label_skew": lambda seed: populations.label_skew("digits", 6, 0.5, seed),
    "quantity_skew": lambda seed: populations.quantity_skew("digits", 6, 1.0, seed),
    "feature_skew": lambda seed: populations.feature_skew("digits", 6, 0.8, seed),
    "mixed": lambda seed: populations.mixed("digits", 6, 3, "random", seed),
    "linear_mixture": lambda seed: populations.linear_mixture("digits", 6, seed=seed),
    "federated_xor": lambda seed: populations.federated_xor(4, 10, seed),
    "conflicting_labels": lambda seed: populations.conflicting_labels(4, 10, seed),
    "next_words": lambda seed: populations.next_words("manuals", 4, 2, seed, points=50),
    "bernoulli_regression": lambda s: populations.bernoulli_regression(0.5, 4, 5, 20, 2, 0.1, s),
}
SAME_CLIENTS = (
    "label_swapped", "label_permuted", "halves", "label_skew", "quantity_skew", "feature_skew",
    "federated_xor", "conflicting_labels", "next_words",
)  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_one_seed_makes_one_population_and_another_seed_another(name):
    one, same, other = (MAKERS[name](seed) for seed in (3, 3, 4))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


@pytest.mark.parametrize("name", MAKERS)
def test_a_population_says_what_it_is(name):
    first, *rest = str(MAKERS[name](0)).split("\n")
    assert " training clients with " in first
    assert first[0].islower()
    assert len(first.split(":")[0]) < 90
    hidden = name not in ("label_skew", "quantity_skew", "feature_skew", "mixed", "linear_mixture")
    assert bool(rest) == hidden


@pytest.mark.parametrize("name", SAME_CLIENTS)
def test_test_clients_are_the_training_clients_where_that_is_the_rule(name):
    federation = MAKERS[name](0)
    assert torch.equal(federation.test.ids, federation.train.ids)
    if federation.clusters is not None:
        assert torch.equal(federation.test_clusters, federation.clusters)
        assert federation.clusters.tolist() == sorted(federation.clusters.tolist())


@pytest.mark.parametrize(
    "name", ["label_swapped", "label_permuted", "halves", "label_skew", "quantity_skew"]
)
def test_every_image_is_dealt_once_and_test_images_are_held_out(name):
    federation = MAKERS[name](0)
    for clients, part, count in ((federation.train, "train", 1437), (federation.test, "test", 360)):
        found = originals(clients)
        assert len(found) == count
        assert {one[1] for one in found} == {part}
        dealt = [x for row in range(len(clients)) for x in images_of(clients, row)[0]]
        assert len({x.numpy().tobytes() for x in dealt}) == count


# ---------------------------------------------------------------- conflicting conditionals


@pytest.mark.parametrize("seed", range(4))
def test_each_cluster_swaps_two_labels_of_its_own(seed):
    federation = populations.label_swapped("digits", 10, 5, seed)
    labels = federation.truth["labels"]
    moved = labels != torch.arange(10)
    assert moved.sum(1).tolist() == [2] * 5
    assert moved.sum(0).tolist() == [1] * 10  # no class is swapped twice
    assert torch.equal(labels.gather(1, labels), torch.arange(10).expand(5, 10))
    for clients in (federation.train, federation.test):
        for original, _, label, row in originals(clients):
            assert label == labels[federation.clusters[row], original]


def test_label_swapped_keeps_as_many_points_as_asked():
    whole = populations.label_swapped("digits", 8, 4, 1)
    few = populations.label_swapped("digits", 8, 4, 1, points=20)
    assert few.train.counts.tolist() == [20] * 8
    assert torch.equal(few.train.x, whole.train.x[:, :20])  # more of the same, as in figure 5
    assert torch.equal(few.test.x, whole.test.x)


def test_label_permuted_uses_one_permutation_a_cluster():
    federation = populations.label_permuted("digits", 8, 4)
    labels = federation.truth["labels"]
    assert torch.equal(labels.sort(1).values, torch.arange(10).expand(4, 10))
    assert len(labels.unique(dim=0)) == 4
    for clients in (federation.train, federation.test):
        for original, _, label, row in originals(clients):
            assert label == labels[row // 2, original]


def test_permutations_of_two_classes_are_all_there_is(cache):
    save(cache, "mnist", classes=2)
    labels = populations.label_permuted("mnist", 4, 2).truth["labels"]
    assert sorted(labels.tolist()) == [[0, 1], [1, 0]]


def test_halves_hold_different_classes_and_are_one_cluster():
    federation = populations.halves("digits")
    for clients in (federation.train, federation.test):
        assert images_of(clients, 0)[1].unique().tolist() == [0, 1, 2, 3, 4]
        assert images_of(clients, 1)[1].unique().tolist() == [5, 6, 7, 8, 9]
    assert federation.clusters.tolist() == [0, 0]


def test_rotations_turn_colour_images_as_they_turn_grey_ones(cache):
    arrays = save(cache, "cifar10", shape=(3, 5, 5))
    federation = populations.rotated("cifar10", 4, 4)
    turned = np.rot90(arrays["x_train"], 1, axes=(2, 3))
    expected = {x.tobytes() for x in turned}
    assert {x.numpy().tobytes() for x in images_of(federation.train, 1)[0]} == expected


# ---------------------------------------------------------------- writers


def test_writers_are_clients_with_their_series_as_the_truth(cache):
    train = 60  # three writers of 20 images each, the second a student
    arrays = save(cache, "mnist", train=train)
    np.savez_compressed(cache / "mnist_writers.npz", **writer_facts(train))
    federation = populations.writers("mnist_writers", 3)
    assert federation.truth["writer"].tolist() == [100, 102, 101]  # employees first
    assert federation.clusters.tolist() == [0, 0, 1]
    assert torch.equal(federation.test_clusters, federation.clusters)
    assert federation.train.counts.tolist() == [16] * 3
    assert federation.test.counts.tolist() == [4] * 3
    for row, writer in enumerate(federation.truth["writer"].tolist()):
        own = {x.tobytes() for x in arrays["x_train"][writer - 100 :: 3]}
        parts = [images_of(c, row)[0] for c in (federation.train, federation.test)]
        assert {x.numpy().tobytes() for part in parts for x in part} == own
    assert str(populations.writers("mnist_writers", 2, seed=1)).startswith(
        "mnist_writers, a client"
    )


# ---------------------------------------------------------------- skews


def test_label_skew_gives_whole_classes_to_few_when_the_concentration_is_small():
    def spread(concentration):
        shares = populations.label_skew("digits", 5, concentration, 1).truth["shares"]
        assert shares.shape == (5, 10)
        assert torch.allclose(shares.sum(0), torch.ones(10, dtype=torch.float64))
        return shares.max(0).values.mean()

    assert spread(100) < 0.27
    assert spread(0.2) > 0.6


def test_label_skew_deals_the_shares_it_tells():
    federation = populations.label_skew("digits", 5, 0.5, 2)
    shares = federation.truth["shares"]
    for clients, y in ((federation.train, DIGITS.y_train), (federation.test, DIGITS.y_test)):
        for row in range(5):
            held = images_of(clients, row)[1].bincount(minlength=10)
            wanted = shares[row] * y.bincount(minlength=10)
            assert (held - wanted).abs().max() <= 1


def test_quantities_follow_the_exponent():
    even = populations.quantity_skew("digits", 6, 0).train.counts
    assert even.max() - even.min() <= 6
    counts = populations.quantity_skew("digits", 6, 1.0).train.counts
    assert counts.sum() == 1437
    assert (counts / counts[0] * torch.arange(1, 7) - 1).abs().max() < 0.03
    steep = populations.quantity_skew("digits", 20, 8.0)
    assert steep.train.counts.min() == 1  # nobody goes empty
    assert steep.test.counts.tolist() == [18] * 20


def test_cameras_change_contrast_and_brightness_and_never_clip():
    federation = populations.feature_skew("digits", 6, 1.0)
    plain = populations.feature_skew("digits", 6, 0.0)
    a, b = federation.truth["contrast"], federation.truth["brightness"]
    assert (a >= 0).all()
    assert (a <= 1).all()
    assert (b + 255 * a <= 255.001).all()
    for seen, kept in ((federation.train, plain.train), (federation.test, plain.test)):
        assert torch.equal(seen.y, kept.y)
        for row in range(6):
            expected = a[row] * images_of(kept, row)[0] + b[row]
            assert (images_of(seen, row)[0] - expected).abs().max() <= 0.501
    assert {one[0] == one[2] for one in originals(plain.train)} == {True}  # nothing has changed


# ---------------------------------------------------------------- mixtures


@pytest.mark.parametrize("pattern", ["10:90", "30:70", "linear", "random"])
def test_mixtures_hold_the_shares_of_their_pattern(pattern):
    federation = populations.mixed("digits", 10, 2, pattern, 1, points=(30, 40))
    counts, mix = federation.train.counts, federation.truth["mixture"]
    assert counts.min() >= 30
    assert counts.max() <= 40
    first = {
        "10:90": [0.1] * 5 + [0.9] * 5,
        "30:70": [0.3] * 5 + [0.7] * 5,
        "linear": [0.05 + 0.1 * i for i in range(10)],
    }.get(pattern, mix[:, 0].tolist())
    assert (mix[:, 0] - torch.tensor(first)).abs().max() <= 0.5 / 30
    assert torch.allclose(mix.sum(1), torch.ones(10, dtype=torch.float64))
    for row in range(10):
        upright = [x.numpy().tobytes() in ORIGINAL for x in images_of(federation.train, row)[0]]
        assert sum(upright) == round(float(mix[row, 0] * counts[row]))
        assert upright == sorted(upright, reverse=True)  # kind after kind


def test_images_of_a_mixture_are_used_again_only_when_all_have_been():
    federation = populations.mixed("digits", 40, 2, "linear", points=(100, 100))
    used = {}
    for row in range(40):
        for x in images_of(federation.train, row)[0]:
            used[x.numpy().tobytes()] = used.get(x.numpy().tobytes(), 0) + 1
    assert len(used) == 2 * 1437
    assert set(used.values()) == {1, 2}


def test_pure_test_clients_hold_all_test_images_of_a_kind_turned():
    federation = populations.mixed("digits", 6, 4, "random")
    assert federation.clusters is None
    assert federation.test_clusters.tolist() == [0, 1, 2, 3]
    for j in range(4):
        x, y = images_of(federation.test, j)
        assert torch.equal(x, torch.rot90(DIGITS.x_test, j, dims=(1, 2)))
        assert torch.equal(y, DIGITS.y_test)
    assert "mixed random of 0 degrees, 90 degrees, 180" in str(federation)


def test_letters_are_mixed_by_case_and_then_by_rotation(cache):
    upper = {"upper_train": np.arange(40) // 2 % 2, "upper_test": np.arange(12) // 2 % 2}
    arrays = save(cache, "letters", **upper)
    small = arrays["x_train"][upper["upper_train"] == 0]
    federation = populations.mixed("letters", 4, 2, "10:90", points=(10, 10))
    assert str(federation).startswith("letters, mixed 10:90 of small letters, capital letters:")
    wanted = {x.tobytes() for x in small}
    for row, first in enumerate([1, 1, 9, 9]):
        held = [x.numpy().tobytes() in wanted for x in images_of(federation.train, row)[0]]
        assert held == [True] * first + [False] * (10 - first)
    four = populations.mixed("letters", 4, 4, "random", points=(10, 10))
    x, _ = images_of(four.test, 3)
    capital = arrays["x_test"][upper["upper_test"] == 1]
    assert np.array_equal(x.numpy(), np.rot90(capital, 1, axes=(1, 2)))
    assert "small letters at 0, small letters at 90, capital letters at 0" in str(four)


def test_linear_mixture_is_a_pattern_of_mixed():
    one = populations.linear_mixture("digits", 7, seed=5)
    assert one.fingerprint() == populations.mixed("digits", 7, 2, "linear", 5).fingerprint()


# ---------------------------------------------------------------- the plane


def points_of(federation, cluster):
    rows = (federation.clusters == cluster).nonzero()[:, 0]
    parts = [images_of(federation.train, int(row)) for row in rows]
    return (torch.cat(part).numpy() for part in zip(*parts, strict=True))


def test_a_line_separates_each_cluster_of_the_xor_and_not_both():
    federation = populations.federated_xor(6, 200)
    (x0, y0), (x1, y1) = (points_of(federation, c) for c in (0, 1))
    for x, y in ((x0, y0), (x1, y1)):
        assert LogisticRegression().fit(x, y).score(x, y) > 0.99
    assert (x0[:, 0] < 0).mean() > 0.99  # the clusters themselves are easily told apart
    assert (x1[:, 0] > 0).mean() > 0.99
    both, labels = np.concatenate([x0, x1]), np.concatenate([y0, y1])
    assert LogisticRegression().fit(both, labels).score(both, labels) < 0.8
    assert ((both[:, 0] * both[:, 1] < 0) == labels).mean() > 0.99


def test_conflicting_labels_leave_every_model_right_half_of_the_time():
    federation = populations.conflicting_labels(4, 500)
    for cluster in (0, 1):
        x, y = points_of(federation, cluster)
        assert np.array_equal(y, (x[:, 0] > 0) ^ bool(cluster))
        assert abs(y.mean() - 0.5) < 0.06
    assert federation.classes == 2


# ---------------------------------------------------------------- text


def test_next_words_are_the_words_that_follow_in_the_clients_text():
    federation = populations.next_words("manuals", 4, 2, window=6, vocabulary=300, points=80)
    train, test, words = federation.train, federation.test, federation.truth["words"]
    assert train.x.shape == (4, 80, 6)
    assert test.x.shape == (4, 20, 6)
    assert federation.classes == len(words) == 300
    assert federation.truth["kinds"] == ("Python", "NumPy")
    assert federation.clusters.tolist() == [0, 0, 1, 1]
    text = data.load_text("manuals")
    joined = " ".join(
        re.findall(
            r"[a-z']+|[.,;:?!]",
            "\n".join(
                d for d, k in zip(text.documents, text.labels, strict=True) if k == 0
            ).lower(),
        )
    )
    sought = 0
    for x, y in zip(train.x[0], train.y[0], strict=True):
        window = [*x.tolist(), int(y)]
        if 0 not in window:
            assert " ".join(words[token] for token in window) in joined
            sought += 1
    assert sought > 3


def test_text_of_all_clients_is_different_and_held_out_text_is_another(cache):
    counted = " ".join(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghijklmnopqrst")  # 200 words
    news(cache, (counted, counted.upper().replace("A", "z")), (0, 1))
    federation = populations.next_words("ag_news", 4, 2, window=2, vocabulary=1000, points=50)
    words = federation.truth["words"]
    for row in range(4):
        train, test = (c.x[row].unique().tolist() for c in (federation.train, federation.test))
        assert not {words[t] for t in train} & {words[t] for t in test if t}
    first = [federation.train.x[row].unique().tolist() for row in (0, 1)]
    assert not set(first[0]) & set(first[1]) - {0}
    starts = federation.train.x[:, :, 0]
    assert all(len(set(row.tolist())) == 50 for row in starts)  # every window once


def test_rare_words_count_as_one():
    few = populations.next_words("manuals", 4, 2, vocabulary=20, points=100)
    assert few.train.x.max() < 20
    assert (few.train.x == 0).float().mean() > 0.3
    many = populations.next_words("manuals", 4, 2, vocabulary=5000, points=100)
    assert (many.train.x == 0).float().mean() < 0.05


def test_a_language_model_learns_the_next_word():
    federation = populations.next_words("manuals", 4, 2, vocabulary=50, window=4, points=60)
    algorithm = cf.FedAvg(cf.models.NextWordLSTM(50, 8, 16), cf.LocalAdam(10, 0.02))
    run = cf.run(algorithm, federation, 4, progress=False)
    assert run.history[-1]["train_loss"] < np.log(50) - 0.5


# ---------------------------------------------------------------- regression


@pytest.mark.parametrize("reading", ["coordinate", "norm"])
def test_both_readings_of_the_bernoulli_parameters(reading):
    federation = populations.bernoulli_regression(0.5, 6, 50, 40, 3, 0.1, reading=reading)
    theta = federation.truth["theta"]
    assert theta.shape == (3, 40)
    assert len(theta.unique(dim=0)) == 3
    if reading == "coordinate":
        assert theta.unique().tolist() == [0, 0.5]
        assert 0.35 < (theta > 0).float().mean() < 0.65
    else:
        assert torch.allclose(theta.norm(dim=1), torch.tensor(0.5))
        for row in theta:
            assert len(row.unique()) == 2  # zero and one other value
    x, y = federation.train.x, federation.train.y
    noise = y - torch.einsum("mnd,md->mn", x, theta[federation.clusters])
    assert abs(noise.std() - 0.1) < 0.02
    assert f"R = 0.5 by {reading}" in str(federation)


def test_bernoulli_parameters_are_never_zero_and_never_equal():
    for seed in range(30):
        theta = populations.bernoulli_regression(1.0, 3, 1, 2, 3, 0.0, seed).truth["theta"]
        assert sorted(theta.tolist()) == [[0, 1], [1, 0], [1, 1]]


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.label_swapped("digits", 12, 6), "clusters must be at most 5, so that each"),
        (lambda p: p.label_swapped("digits", 9, 4), "clients must be a multiple of the 4 clusters"),
        (lambda p: p.label_swapped("digits", 2, 4), "clusters must be at most the 2 clients"),
        (
            lambda p: p.label_swapped("digits", 400, 4),
            "clients must be from 1 to 360, so that each",
        ),
        (
            lambda p: p.label_swapped("digits", 8, 4, points=180),
            "points must be from 1 to the 179 images of a client, got 180",
        ),
        (lambda p: p.label_permuted("digits", 4, 0), "clusters must be at least 1, got 0"),
        (lambda p: p.writers("digits", 5), "name must be a set that knows its writers, mnist_wr"),
        (
            lambda p: p.label_skew("digits", 5, 0),
            "concentration must be positive and finite, got 0",
        ),
        (lambda p: p.label_skew("digits", 0, 1.0), "clients must be at least 1, got 0"),
        (lambda p: p.label_skew("digits", 40, 0.01), "concentration 0.01 left a client without"),
        (lambda p: p.quantity_skew("digits", 5, -1), "exponent must not be negative, got -1"),
        (lambda p: p.feature_skew("digits", 5, 1.5), r"strength must be in \[0, 1\], got 1.5"),
        (lambda p: p.mixed("digits", 5, 2, "20:80"), "pattern must be '10:90', '30:70', 'linear'"),
        (lambda p: p.mixed("digits", 5, 5, "random"), "clusters must be at most 4 .quarter turns"),
        (
            lambda p: p.mixed("digits", 5, 2, "linear", points=(9, 8)),
            r"points must be two numbers, 1 <= low <= high, got \(9, 8\)",
        ),
        (lambda p: p.linear_mixture("digits", 5, 3), "pattern 'linear' mixes 2 clusters, got 3"),
        (lambda p: p.federated_xor(3, 5), "clients must be a multiple of the 2 clusters, got 3"),
        (lambda p: p.conflicting_labels(2, 0), "points must be at least 1, got 0"),
        (lambda p: p.next_words("manuals", 5, 5), "clusters must be at most 4 kinds, got 5"),
        (lambda p: p.next_words("manuals", 4, 2, window=0), "window must be at least 1, got 0"),
        (lambda p: p.next_words("manuals", 4, 2, vocabulary=1), "vocabulary must be at least 2"),
        (
            lambda p: p.next_words("manuals", 4, 4, points=10**6),
            "points must be from 1 to [0-9]+, what the shortest part holds with window 10; got",
        ),
        (
            lambda p: p.bernoulli_regression(0, 2, 5, 9, 2, 0.1),
            "scale must be positive and finite, got 0",
        ),
        (
            lambda p: p.bernoulli_regression(1, 2, 5, 9, 2, 0.1, reading="text"),
            "reading must be 'coordinate' or 'norm', got 'text'",
        ),
        (
            lambda p: p.bernoulli_regression(1, 2, 5, 1, 2, 0.1),
            "features must allow 2 different vectors, got 1",
        ),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(populations)


def test_letters_come_in_two_cases_or_four_kinds(cache):
    save(cache, "letters", upper_train=np.arange(40) % 2, upper_test=np.arange(12) % 2)
    with pytest.raises(ValueError, match="clusters must be 2 or 4 with two kinds of letters"):
        populations.mixed("letters", 3, 3, "random")


def test_too_many_writers_are_refused(cache):
    save(cache, "mnist")
    np.savez_compressed(cache / "mnist_writers.npz", **writer_facts())
    with pytest.raises(ValueError, match="clients must be from 1 to the 3 writers, got 4"):
        populations.writers("mnist_writers", 4)
