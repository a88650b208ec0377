"""Stored runs: what is written, what is read, what is refused, and what a kill leaves behind."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import house
import numpy as np
import pytest
import torch

import clusterfl_core as cf
from clusterfl_core import results

SETTINGS = {"m": 8, "rate": 0.1, "data": "digits"}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def store(folder):
    return results.Store("06_x", "paper")


def never(checkpoint):
    raise AssertionError("computed though it was stored")


def files(folder) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


# ---------------------------------------------------------------- two presets


def test_quick_computes_every_time_and_writes_nothing(folder, capsys):
    seen = []
    store = results.Store("06_x")
    for _ in range(2):
        values = store.run("table1", 0, SETTINGS, lambda c: seen.append(c) or {"a": (1, 2)})
        assert values == {"a": [1, 2]}  # as it would come back from a file
    assert seen == [None, None]
    assert not folder.exists()
    assert capsys.readouterr().out == ""


def test_paper_computes_once_and_then_reads(store, folder, capsys):
    values = store.run("table1", 3, SETTINGS, lambda c: {"loss": [0.1, 1e-300, 3]}, data="digits")
    assert values == {"loss": [0.1, 1e-300, 3]}
    assert files(folder) == ["06_x/table1-data_digits-m8-rate0.1-seed3.json"]
    assert not (folder / "06_x" / ".unfinished").exists()
    again = dict(reversed(SETTINGS.items()))
    assert store.run("table1", 3, again, never, data="digits") == values
    lines = capsys.readouterr().out.splitlines()
    name = "06_x table1-data_digits-m8-rate0.1-seed3: "
    assert [line.startswith(name) for line in lines] == [True] * 3
    assert lines[0] == f"{name}starts"
    assert re.fullmatch(r"stored after \d+\.\d s", lines[1].removeprefix(name))
    assert lines[2] == f"{name}already stored"


def test_a_record_says_all_about_itself(store, folder):
    store.run("table1", np.int64(3), SETTINGS, lambda c: {"loss": 0.5}, data="digits, 8×8")
    (record,) = results.stored("06_x", "table1")
    assert list(record) == [
        *("chapter", "experiment", "preset", "seed", "settings", "data", "values"),
        *("versions", "device", "seconds", "resumed", "commit", "date"),
    ]
    assert record["settings"] == SETTINGS
    assert (record["seed"], record["values"]) == (3, {"loss": 0.5})
    assert (record["preset"], record["data"]) == ("paper", "digits, 8×8")
    assert record["versions"]["torch"] == torch.__version__
    assert record["versions"]["clusterfl_core"] == cf.__version__
    assert f"cores: {os.cpu_count()}, threads: {torch.get_num_threads()}" in record["device"]
    assert 0 <= record["seconds"] < 60
    assert record["resumed"] is False
    head = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(head, cwd=house.ROOT, capture_output=True, text=True).stdout.strip()
    assert record["commit"].removesuffix("+changed") == head
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])


def test_the_gpu_is_named_where_it_was_used(monkeypatch):
    assert "cores" in results._device()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A fast card")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)
    assert "cores" in results._device()
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)
    assert results._device() == "A fast card"


def test_a_processor_without_a_name_is_still_named(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *a, **k: "Hardware: some board")
    assert re.match(r"\S.*, cores: ", results._device())


def test_only_one_experiment_is_run(folder):
    store = results.Store("06_x", "paper", only="table1")
    assert (store.wants("table1"), store.wants("table2")) == (True, False)
    assert store.run("table2", 0, {}, never) is None
    assert store.run("table1", 0, {}, lambda c: {"a": 1}) == {"a": 1}
    quick = results.Store("06_x", "quick", only="table1")
    assert quick.wants("table2")  # a page in its quick size needs all its numbers
    assert quick.run("table2", 0, {}, lambda c: {"a": 2}) == {"a": 2}


# ---------------------------------------------------------------- values


def test_values_come_back_as_they_were_given(store):
    given = {
        "nan": math.nan,
        "deep": [{"inf": [math.inf, -math.inf]}, None, True, "nan", "Größe", [], {}],
        "tensor": torch.tensor([[1, 2], [3, 4]]),
        "array": np.array([0.1, 0.2]),
        "scalar": np.float64(0.1),
    }
    first = store.run("e", 0, {"x": math.nan}, lambda c: given)
    again = store.run("e", 0, {"x": math.nan}, never)
    assert repr(first) == repr(again)
    assert math.isnan(first["nan"])
    assert first["deep"] == given["deep"]
    assert first["tensor"] == [[1, 2], [3, 4]]
    assert (first["array"], first["scalar"]) == ([0.1, 0.2], 0.1)


def test_files_are_strict_json(store, folder):
    store.run("e", 0, {}, lambda c: {"a": [math.nan, math.inf]})

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads((folder / "06_x/e-seed0.json").read_text(), parse_constant=refuse)


def test_a_history_is_stored_as_it_is(store):
    federation = cf.populations.rotated("digits", clients=4, clusters=2)
    model = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=2, local=cf.LocalSGD(1, 0.1))
    history = cf.run(model, federation, 2, progress=False).history
    store.run("e", 0, {}, lambda c: {"history": history})
    assert results.stored("06_x", "e")[0]["values"]["history"] == history


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"a": {1, 2}}, r"values\['a'\] must be a number"),
        ({"a": [0, {"b": object()}]}, r"values\['a'\]\[1\]\['b'\] must be"),
        ({0: 1.0}, "a key of values must be a string, got 0"),
        ([1, 2], "values must be a dict"),
        (None, "values must be a dict"),
    ],
)
@pytest.mark.parametrize("preset", results.PRESETS)
def test_values_that_json_cannot_hold_are_refused_in_both_presets(folder, preset, values, said):
    with pytest.raises(TypeError, match=said):
        results.Store("06_x", preset).run("e", 0, {}, lambda c: values)
    assert not [name for name in files(folder) if name.endswith(".json")]


# ---------------------------------------------------------------- names and order


def test_records_are_sorted_by_the_size_of_numbers(store):
    for m, rate, seed in [(1200, 0.1, 10), (1200, 0.1, 9), (600, 0.1, 0), (600, 0.05, 0)]:
        store.run("e", seed, {"m": m, "rate": rate}, lambda c: {})
    store.run("e_other", 0, {"m": 1}, lambda c: {})
    found = [(r["settings"]["m"], r["settings"]["rate"], r["seed"]) for r in store_records()]
    assert found == [(600, 0.05, 0), (600, 0.1, 0), (1200, 0.1, 9), (1200, 0.1, 10)]


def store_records():
    return results.stored("06_x", "e")


def test_nothing_stored_is_an_empty_list(folder):
    assert store_records() == []


def test_names_have_safe_characters_and_bounded_length(store, folder):
    store.run("e", 0, {"a": "../x y:*?", "b": [1, {"c": None}], "d": -1e-5}, lambda c: {})
    long = {"text": "x" * 500}
    store.run("e", 0, long, lambda c: {"a": 1})
    store.run("e", 0, {"text": "x" * 501}, lambda c: {"a": 2})
    assert store.run("e", 0, long, never) == {"a": 1}
    names = [path.name for path in (folder / "06_x").iterdir()]
    assert len(names) == 3
    for name in names:
        assert re.fullmatch(r"e-[A-Za-z0-9._+-]{1,130}-seed0\.json", name), name


@pytest.mark.parametrize(
    ("settings", "data", "said"),
    [({"a": "x y"}, "", "holds settings"), ({"a": "x/y"}, "other", "holds data")],
)
def test_a_file_of_another_run_is_an_error_before_any_work(store, settings, data, said):
    store.run("e", 0, {"a": "x/y"}, lambda c: {"kept": 1})
    with pytest.raises(ValueError, match=said):
        store.run("e", 0, settings, never, data=data)
    assert store.run("e", 0, {"a": "x/y"}, never) == {"kept": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": {}}', "\xff\x00"])
def test_a_damaged_file_is_named(store, folder, text):
    (folder / "06_x").mkdir(parents=True)
    (folder / "06_x" / "e-seed0.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"e-seed0\.json is not a stored record"):
        store.run("e", 0, {}, never)
    with pytest.raises(ValueError, match=r"e-seed0\.json is not a stored record"):
        store_records()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: results.Store("../06"), "chapter must be letters"),
        (lambda s: results.Store("06_x", "fast"), 'preset must be "quick" or "paper", got \'fast'),
        (lambda s: results.Store("06_x", only="a-b"), "only must be letters"),
        (lambda s: results.stored("06 x", "e"), "chapter must be letters"),
        (lambda s: results.stored("06_x", "e-1"), "experiment must be letters"),
        (lambda s: s.run("a/b", 0, {}, never), "experiment must be letters"),
        (lambda s: s.run("e", -1, {}, never), "seed must be a whole number"),
        (lambda s: s.run("e", 0.0, {}, never), "seed must be a whole number"),
        (lambda s: s.run("e", True, {}, never), "seed must be a whole number"),
        (lambda s: s.run("e", 0, {}, never, data=3), "data must be a few words"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(store, folder, call, said):
    with pytest.raises(ValueError, match=said):
        call(store)
    assert not folder.exists()


def test_settings_that_json_cannot_hold_are_refused_before_any_work(store):
    with pytest.raises(TypeError, match=r"settings\['local'\] must be a number"):
        store.run("e", 0, {"local": cf.LocalSGD(1, 0.1)}, never)


# ---------------------------------------------------------------- killed


SCRIPT = """
import os, signal, sys
import clusterfl_core as cf

federation = cf.populations.rotated("digits", clients=4, clusters=2)
model = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=2, local=cf.LocalSGD(1, 0.1))

def compute(checkpoint):
    cf.run(model, federation, 2, checkpoint=checkpoint, progress=False)
    if sys.argv[1:]:
        os.kill(os.getpid(), signal.SIGKILL)
    run = cf.run(model, federation, 4, checkpoint=checkpoint, progress=False)
    return {"loss": [record["train_loss"] for record in run.history]}

cf.results.Store("06_x", "paper").run("e", 0, {}, compute)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_run_goes_on_from_its_checkpoint(folder, tmp_path):
    command = [sys.executable, "-c", SCRIPT]
    assert subprocess.run([*command, "die"]).returncode == -signal.SIGKILL
    assert files(folder) == ["06_x/.unfinished/e-seed0.pt"]
    (folder / "06_x/.unfinished/e-seed0.record123.part").touch()  # of a kill while writing
    other = folder / "06_x/.unfinished/e-seed10.pt"
    other.touch()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("06_x e-seed0: goes on\n"), done.stderr
    (record,) = store_records()
    assert record["resumed"] is True
    assert len(record["values"]["loss"]) == 4
    assert files(folder) == ["06_x/.unfinished/e-seed10.pt", "06_x/e-seed0.json"]


def test_an_interrupted_write_leaves_no_record(store, folder, monkeypatch):
    def full(path, write):
        if path.suffix == ".record":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        store.run("e", 0, {}, lambda c: c.write_text("here") and {"a": 1})
    assert files(folder) == ["06_x/.unfinished/e-seed0.pt"]


# ---------------------------------------------------------------- where


def test_the_repository_is_the_folder(monkeypatch):
    monkeypatch.delenv("CLUSTERFL_RESULTS", raising=False)
    assert results.folder() == house.ROOT / "book" / "results"


def test_a_folder_that_cannot_be_written_is_named_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"file.06_x cannot be written .* set CLUSTERFL_RESULTS"):
        results.Store("06_x", "paper").run("e", 0, {}, never)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A package in a small repository of its own."""
    (tmp_path / "clusterfl_core").mkdir()
    (tmp_path / "clusterfl_core" / "a.py").touch()
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "06_x.ipynb").touch()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(results, "ROOT", tmp_path)

    def git(*words):
        author = ["-c", "user.name=A reader", "-c", "user.email=reader@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *author, *words], check=True)

    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-q", "-m", "All")
    return tmp_path


def test_a_changed_library_or_chapter_is_marked(repository):
    clean = results._commit("06_x")
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (repository / "book" / "07_y.ipynb").write_text("another chapter")
    assert results._commit("06_x") == clean
    (repository / "book" / "06_x.ipynb").write_text("changed")
    assert results._commit("06_x") == f"{clean}+changed"
    (repository / "book" / "06_x.ipynb").write_text("")
    (repository / "clusterfl_core" / "new.py").touch()
    assert results._commit("06_x") == f"{clean}+changed"


def test_no_commit_is_claimed_where_there_is_none(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert results._commit("06_x") == ""
    (repository / ".git").rename(repository / "not git")
    assert results._commit("06_x") == ""


def test_the_wheel_carries_the_records_and_never_writes_into_itself(tmp_path):
    root = tmp_path / "source"
    (root / "book/results/06_x/.unfinished").mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (root / name).write_bytes((house.ROOT / name).read_bytes())
    package = root / "clusterfl_core"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(house.ROOT / "clusterfl_core", package, ignore=ignored)
    (package / "room" / "inner").mkdir(parents=True)
    for folder in (package / "room", package / "room" / "inner"):
        (folder / "__init__.py").touch()
    record = {"seed": 0, "settings": {}, "values": {"a": 1}}
    record |= {"chapter": "06_x", "experiment": "e", "data": ""}
    (root / "book/results/06_x/e-seed0.json").write_text(json.dumps(record))
    (root / "book/results/06_x/.unfinished/e-seed1.pt").touch()
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(root)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as parts:
        carried = {name for name in parts.namelist() if "dist-info" not in name}
        parts.extractall(tmp_path / "site")
    modules = {path.relative_to(root).as_posix() for path in package.rglob("*.py")}
    assert carried == modules | {"clusterfl_core/stored/06_x/e-seed0.json"}

    script = """if True:
        import clusterfl_core as cf
        assert [r["values"] for r in cf.results.stored("06_x", "e")] == [{"a": 1}]
        store = cf.results.Store("06_x", "paper")
        assert store.run("e", 0, {}, None) == {"a": 1}
        store.run("e", 1, {}, None)
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERFL_")}
    alone = kept | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=alone, capture_output=True, text=True
    )
    assert "OSError: the installed package does not write into itself: set CLUSTERFL" in done.stderr
    assert not list((tmp_path / "site").rglob(".unfinished"))
