"""Real data sets: the bundled digits, and files in the cache."""

import http.client
import io
import pickle
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from clusterfl_core import data
from clusterfl_core.data import Unavailable, load
from clusterfl_core.data.images import KEYS
from clusterfl_core.files import write_whole


def test_digits_are_1437_and_360_images_of_bytes():
    digits = load("digits")
    assert digits.name == "digits"
    assert digits.classes == 10
    assert digits.x_train.shape == (1437, 8, 8)
    assert digits.x_test.shape == (360, 8, 8)
    assert digits.y_train.shape == (1437,)
    assert digits.y_test.shape == (360,)
    for pixels in (digits.x_train, digits.x_test):
        assert pixels.dtype == torch.uint8
        assert (int(pixels.min()), int(pixels.max())) == (0, 255)
    for labels in (digits.y_train, digits.y_test):
        assert labels.dtype == torch.int64
        assert labels.unique().tolist() == list(range(10))


def test_the_two_parts_of_digits_hold_every_image_of_scikit_learn_once():
    digits, bundled = load("digits"), load_digits()
    levels = np.rint(bundled.images * 255 / 16).astype(np.uint8)
    expected = sorted((x.tobytes(), int(y)) for x, y in zip(levels, bundled.target, strict=True))
    found = [
        (x.numpy().tobytes(), int(y))
        for pixels, labels in ((digits.x_train, digits.y_train), (digits.x_test, digits.y_test))
        for x, y in zip(pixels, labels, strict=True)
    ]
    assert len(found) == 1797
    assert sorted(found) == expected
    assert len(set(found)) == 1797  # no image twice, so none in both parts


def test_digits_are_split_the_same_way_every_time():
    torch.manual_seed(1)
    first = load("digits")
    torch.manual_seed(2)
    second = load("digits")
    assert torch.equal(first.x_train, second.x_train)
    assert torch.equal(first.y_test, second.y_test)


def test_whoever_changes_digits_changes_only_a_copy():
    first, before = load("digits"), load("digits")
    for part in (first.x_train, first.y_train, first.x_test, first.y_test):
        part.zero_()
    after = load("digits")
    for key in KEYS:
        assert torch.equal(getattr(after, key), getattr(before, key))
        assert getattr(after, key).any()


def test_every_class_is_in_both_parts_in_about_the_same_share():
    digits = load("digits")
    shares = [torch.bincount(y) / len(y) for y in (digits.y_train, digits.y_test)]
    assert (shares[0] - shares[1]).abs().max() < 0.05


@pytest.mark.parametrize("name", ["digit", "", "MNIST", "../mnist"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"^unknown data set '{name}'; known are .*digits, mnist"):
        load(name)


# ---- the cache


def arrays(train=6, test=3):
    """A small data set as it lies in a cache file."""
    source = np.random.default_rng(0)
    return {
        "x_train": source.integers(0, 256, (train, 4, 4), dtype=np.uint8),
        "y_train": np.arange(train, dtype=np.uint8),
        "x_test": source.integers(0, 256, (test, 4, 4), dtype=np.uint8),
        "y_test": np.arange(test, dtype=np.uint8),
    }


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, no network and no waiting."""
    monkeypatch.setenv("CLUSTERFL_DATA", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()

    def reached(*arguments, **settings):
        raise AssertionError("the network was reached")

    monkeypatch.setattr(torchvision.datasets, "MNIST", reached)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return tmp_path / "cache"


def test_the_cache_folder_is_the_named_one_or_in_the_home(monkeypatch):
    monkeypatch.setenv("CLUSTERFL_DATA", "/somewhere/else")
    assert data.cache_folder() == Path("/somewhere/else")
    for unset in (lambda: monkeypatch.setenv("CLUSTERFL_DATA", ""),
                  lambda: monkeypatch.delenv("CLUSTERFL_DATA")):  # fmt: skip
        unset()
        assert data.cache_folder() == Path.home() / ".cache" / "clusterfl"


def test_a_file_in_the_cache_is_used_as_it_is(cache):
    np.savez_compressed(cache / "mnist.npz", **arrays())
    before = (cache / "mnist.npz").read_bytes()
    found = load("mnist")
    for key, expected in arrays().items():
        assert np.array_equal(getattr(found, key).numpy(), expected)
    assert found.x_train.dtype == torch.uint8
    assert (found.y_train.dtype, found.y_test.dtype) == (torch.int64, torch.int64)
    assert (found.name, found.classes) == ("mnist", 6)
    assert (cache / "mnist.npz").read_bytes() == before
    assert [one.name for one in cache.iterdir()] == ["mnist.npz"]


def packed(**changes):
    """The bytes of a cache file with some arrays changed or, if None, left out."""
    file = io.BytesIO()
    np.savez_compressed(file, **{k: v for k, v in (arrays() | changes).items() if v is not None})
    return file.getvalue()


def one_array():
    """The bytes of a .npy file, which holds one array without a name."""
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"<html>not found</html>",
        packed()[:-40],
        packed()[:100],
        packed(y_test=None),
        packed(x_train=None, y_train=None, x_test=None, y_test=None, writer_train=np.zeros(6, int),
               writer_test=np.zeros(3, int)),
        packed(x_train=np.array(["a", "b"])),
        packed(x_train=np.array([None, {}])),
        packed(y_train=np.arange(5, dtype=np.uint8)),
        packed(x_test=np.zeros((0, 4, 4), np.uint8), y_test=np.zeros(0, np.uint8)),
        one_array(),
        pickle.dumps(arrays()),
    ],
    ids=["empty", "a web page", "cut", "cut early", "a part missing", "facts alone", "words",
         "objects", "too few labels", "no test images", "one array", "a pickle"],
)  # fmt: skip
def test_a_damaged_file_is_named_and_kept(cache, whole):
    path = cache / "mnist.npz"
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"cannot be read as a data set .* delete it to") as error:
        load("mnist")
    assert str(error.value).startswith(str(path))
    assert path.read_bytes() == whole


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_damaged_byte_is_either_noticed_or_harmless(tmp_path_factory, data):
    whole = packed()
    at = data.draw(st.integers(0, len(whole) - 1))
    other = whole[at] ^ data.draw(st.integers(1, 255))
    folder = tmp_path_factory.mktemp("cache")
    (folder / "mnist.npz").write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTERFL_DATA", str(folder))
        try:
            found = load("mnist")
        except ValueError:
            return
    for key, expected in arrays().items():
        assert np.array_equal(getattr(found, key).numpy(), expected)


# ---- downloads


class Source:
    """Stands for torchvision's MNIST: fails the first times, then leaves files as it does."""

    def __init__(self, failures, error=None):
        self.failures, self.calls = failures, 0
        self.error = error or OSError("the host is away")

    def __call__(self, root, train, download):
        assert download
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        raw = Path(root) / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / f"{train}.gz").write_bytes(b"as downloaded")
        part = "train" if train else "test"
        return SimpleNamespace(
            data=torch.from_numpy(arrays()[f"x_{part}"]),
            targets=torch.from_numpy(arrays()[f"y_{part}"]).to(torch.int64),
        )


@pytest.fixture
def source(cache, monkeypatch):
    """Install a source; returns it and the list of waits."""

    def install(*arguments):
        made, waits = Source(*arguments), []
        monkeypatch.setattr(torchvision.datasets, "MNIST", made)
        monkeypatch.setattr(time, "sleep", waits.append)
        return made, waits

    return install


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_download_leaves_one_file_with_the_four_parts_and_nothing_else(cache, source, failures):
    made, waits = source(failures)
    found = load("mnist")
    assert made.calls == failures + 2
    assert len(waits) == failures
    assert waits == sorted(waits)  # each wait at least as long as the one before
    assert [one.name for one in cache.iterdir()] == ["mnist.npz"]
    with np.load(cache / "mnist.npz") as file:
        assert sorted(file.files) == sorted(KEYS)
        for key, expected in arrays().items():
            assert file[key].dtype == np.uint8
            assert np.array_equal(file[key], expected)
    calls = made.calls
    again = load("mnist")
    assert made.calls == calls  # the second time nothing is fetched
    assert torch.equal(again.x_train, found.x_train)


def test_the_cache_folder_is_made_where_it_is_missing(cache, source):
    cache.rmdir()
    source(0)
    load("mnist")
    assert [one.name for one in cache.iterdir()] == ["mnist.npz"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("<urlopen error timed out>"), "<urlopen error timed out>"),
        (RuntimeError("Error downloading:\nmirror 1\nmirror 2"), "Error downloading:"),
        (TimeoutError(), "TimeoutError"),
        (http.client.IncompleteRead(b"half"), r"IncompleteRead\(4 bytes read\)"),
        (http.client.RemoteDisconnected("gone"), "gone"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_failing_download_says_what_works_without_it(cache, source, error, reason):
    made, waits = source(99, error)
    with pytest.raises(
        Unavailable, match=rf"^mnist could not be downloaded \({reason}\); what works"
    ) as raised:
        load("mnist")
    sentence = str(raised.value)
    assert "'digits'" in sentence
    assert str(cache / "mnist.npz") in sentence
    assert "\n" not in sentence
    assert made.calls == data.cache.ATTEMPTS
    assert len(waits) == data.cache.ATTEMPTS - 1
    assert not (cache / "mnist.npz").exists()
    assert len(load("digits").y_train) == 1437  # as the sentence says


def test_what_a_failed_download_has_fetched_is_still_there_for_the_next_try(cache, source):
    class HalfAway(Source):
        def __call__(self, root, train, download):
            if not train:
                raise OSError("the host went away")
            return super().__call__(root, train, download)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torchvision.datasets, "MNIST", HalfAway(0))
        with pytest.raises(Unavailable):
            load("mnist")
    assert list(cache.rglob("True.gz"))
    source(0)
    load("mnist")
    assert [one.name for one in cache.iterdir()] == ["mnist.npz"]


def test_an_error_that_trying_again_cannot_mend_is_passed_on_at_once(cache, source):
    made, waits = source(99, KeyError("a mistake in a program"))
    with pytest.raises(KeyError):
        load("mnist")
    assert (made.calls, waits) == (1, [])


# ---- writing files whole


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new folder" / "file"
    write_whole(path, lambda file: file.write(b"first"))
    assert path.read_bytes() == b"first"

    def fail(file):
        file.write(b"sec")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fail)
    assert path.read_bytes() == b"first"
    write_whole(str(path), lambda file: file.write(b"third"))
    assert path.read_bytes() == b"third"
    assert list(path.parent.iterdir()) == [path]
    shutil.rmtree(path.parent)
