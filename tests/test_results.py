"""Stored runs: what is written, what is read, what is refused, and what a kill leaves behind."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import house
import numpy as np
import pytest
import scipy.stats
import torch

import clusterfl_core as cf
from clusterfl_core import results

SETTINGS = {"m": 8, "rate": 0.1, "data": "digits"}
FILE = "m8-rate0.1-data_digits-5305b90b"


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
        values = store.run(0, SETTINGS, lambda c: seen.append(c) or {"a": (1, 2)})
        assert values == {"a": [1, 2]}  # as it would come back from a file
    assert seen == [None, None]
    assert not folder.exists()
    assert capsys.readouterr().out == ""


def test_paper_computes_once_and_then_reads(store, folder, capsys):
    values = store.run(3, SETTINGS, lambda c: {"loss": [0.1, 1e-300, 3]}, data="digits")
    assert values == {"loss": [0.1, 1e-300, 3]}
    assert files(folder) == ["06_x/.unfinished/lock", f"06_x/{FILE}.json"]
    again = dict(reversed(SETTINGS.items()))
    assert store.run(3, again, never, data="digits") == values
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"06_x {FILE}, seed 3: starts"
    assert re.fullmatch(r"stored after \d+\.\d s", lines[1].removeprefix(f"06_x {FILE}, seed 3: "))
    assert lines[2].endswith(", seed 3: already stored")
    assert len(lines) == 3


def test_a_file_holds_all_seeds_sorted_a_line_each(store, folder):
    for seed in (10, 2, 0):
        store.run(seed, SETTINGS, lambda c, seed=seed: {"a": seed})
    lines = (folder / f"06_x/{FILE}.json").read_text().splitlines()
    assert json.loads(lines[0] + "]}") == {
        **{"experiment": "06_x", "settings": SETTINGS, "data": "", "runs": []}
    }
    assert [json.loads(line.removesuffix(","))["seed"] for line in lines[1:-1]] == [0, 2, 10]
    assert lines[-1] == "null]}"


def test_a_record_says_all_about_itself(store, folder):
    store.run(np.int64(3), SETTINGS, lambda c: {"loss": 0.5}, data="digits, 8×8")
    (record,) = results.stored("06_x")
    assert list(record) == [
        *("experiment", "settings", "data", "seed", "values"),
        *("versions", "device", "seconds", "resumed", "commit", "date"),
    ]
    assert record["settings"] == SETTINGS
    assert (record["seed"], record["values"]) == (3, {"loss": 0.5})
    assert (record["experiment"], record["data"]) == ("06_x", "digits, 8×8")
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


# ---------------------------------------------------------------- values


def test_values_come_back_as_they_were_given(store):
    given = {
        "nan": math.nan,
        "deep": [{"inf": [math.inf, -math.inf]}, None, True, "nan", "Größe", [], {}],
        "tensor": torch.tensor([[1, 2], [3, 4]]),
        "array": np.array([0.1, 0.2]),
        "scalar": np.float64(0.1),
    }
    first = store.run(0, {"x": math.nan}, lambda c: given)
    again = store.run(0, {"x": math.nan}, never)
    assert repr(first) == repr(again)
    assert math.isnan(first["nan"])
    assert first["deep"] == given["deep"]
    assert first["tensor"] == [[1, 2], [3, 4]]
    assert (first["array"], first["scalar"]) == ([0.1, 0.2], 0.1)


def test_files_are_strict_json(store, folder):
    store.run(0, {}, lambda c: {"a": [math.nan, math.inf]})

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    (path,) = (folder / "06_x").glob("*.json")
    json.loads(path.read_text(), parse_constant=refuse)


def test_a_history_is_stored_as_it_is(store):
    federation = cf.populations.rotated("digits", clients=4, clusters=2)
    model = cf.IFCA(cf.models.MLP(64, 8, 10), clusters=2, local=cf.LocalSGD(1, 0.1))
    history = cf.run(model, federation, 2, progress=False).history
    store.run(0, {}, lambda c: {"history": history})
    assert results.stored("06_x")[0]["values"]["history"] == history


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
        results.Store("06_x", preset).run(0, {}, lambda c: values)
    assert not [name for name in files(folder) if name.endswith(".json")]


# ---------------------------------------------------------------- names and order


def test_records_are_sorted_by_the_size_of_numbers(store):
    for m, rate, seed in [(1200, 0.1, 10), (1200, 0.1, 9), (600, 0.1, 0), (600, 0.05, 0)]:
        store.run(seed, {"m": m, "rate": rate}, lambda c: {})
    results.Store("06_x_other", "paper").run(0, {"m": 1}, lambda c: {})
    found = [(r["settings"]["m"], r["settings"]["rate"], r["seed"]) for r in store_records()]
    assert found == [(600, 0.05, 0), (600, 0.1, 0), (1200, 0.1, 9), (1200, 0.1, 10)]


def test_records_are_chosen_by_their_settings(store):
    for m in (8, 16):
        store.run(0, {"m": m, "step": [1, 2]}, lambda c: {})
    store.run(0, {"n": 3}, lambda c: {})
    assert [r["settings"] for r in results.stored("06_x", m=8, step=[1, 2])] == [
        {"m": 8, "step": [1, 2]}
    ]
    assert results.stored("06_x", m=8, n=3) == []
    with pytest.raises(ValueError, match="06_x has no setting 'M'"):
        results.stored("06_x", M=8)


def store_records():
    return results.stored("06_x")


def test_nothing_stored_is_an_empty_list(folder):
    assert store_records() == []


def test_names_have_safe_characters_and_paths_are_short(folder):
    store = results.Store("x" * 30, "paper")
    store.run(0, {"a": "../x y:*?", "b": [1, {"c": None}], "d": -1e-5}, lambda c: {})
    long = {"text": "x" * 500}
    store.run(0, long, lambda c: {"a": 1})
    store.run(0, {"text": "x" * 501}, lambda c: {"a": 2})
    store.run(0, {}, lambda c: {"a": 3})
    assert store.run(0, long, never) == {"a": 1}
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*.json")]
    assert len(paths) == 4
    for path in paths:
        assert re.fullmatch(r"x{30}/([A-Za-z0-9._+-]+-)?[0-9a-f]{8}\.json", path), path
        assert len(f"book/results/{path}") <= 100


def test_paths_of_the_book_s_records_are_short():
    folder = house.ROOT / "book" / "results"
    paths = [path.relative_to(house.ROOT).as_posix() for path in folder.rglob("*.json")]
    assert max(map(len, paths)) <= 100


def only_file(folder) -> Path:
    (path,) = (folder / "06_x").glob("*.json")
    return path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"a": "x"', '"a": "y"', "holds settings"),
        ('"data": ""', '"data": "other"', "holds data 'other', not ''"),
        ('"06_x"', '"07_y"', "holds experiment '07_y', not '06_x'"),
    ],
)
def test_a_file_of_other_runs_is_an_error_before_any_work(store, folder, old, new, said):
    store.run(0, {"a": "x"}, lambda c: {"kept": 1})
    path = only_file(folder)
    path.write_text(path.read_text().replace(old, new))
    before = path.read_bytes()
    for seed in (0, 1):
        with pytest.raises(ValueError, match=said):
            store.run(seed, {"a": "x"}, never)
    assert path.read_bytes() == before


def test_other_data_are_refused(store, folder):
    store.run(0, {}, lambda c: {"kept": 1}, data="digits")
    with pytest.raises(ValueError, match="holds data 'digits', not 'mnist': name one"):
        store.run(1, {}, never, data="mnist")


HEAD = '{"experiment": "06_x", "settings": {}, "data": "", "runs": ['


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", "7", '{"runs": []}', "\xff\x00"),
        HEAD + "7, null]}",
        HEAD + '{"seed": 0}, null]}',
        HEAD + '\n<<<<<<< ours\n{"seed": 0, "values": {}},\nnull]}',
        HEAD[:-1] + "3}",
    ],
)
def test_a_damaged_file_is_named_and_kept(store, folder, text):
    store.run(0, {}, lambda c: {"a": 1})
    path = only_file(folder)
    path.write_text(text, encoding="latin-1")
    before = path.read_bytes()
    said = re.escape(f"{path} does not hold stored runs: restore it, or remove it and run again")
    for read in (store_records, lambda: store.run(0, {}, never), lambda: store.run(1, {}, never)):
        with pytest.raises(ValueError, match=said):
            read()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: results.Store("../06"), "experiment must be at most 30 letters"),
        (lambda s: results.Store("x" * 31), "experiment must be at most 30 letters"),
        (lambda s: results.Store("06_é"), "experiment must be at most 30 letters"),
        (lambda s: results.Store("06_x", "fast"), 'preset must be "quick" or "paper", got \'fast'),
        (lambda s: results.stored("06 x"), "experiment must be at most 30 letters"),
        (lambda s: results.stored(""), "experiment must be at most 30 letters"),
        (lambda s: s.run(-1, {}, never), "seed must be at least 0, got -1"),
        (lambda s: s.run(0.5, {}, never), "seed must be a whole number, got 0.5"),
        (lambda s: s.run(True, {}, never), "seed must be a number, got True"),
        (lambda s: s.run(0, {}, never, data=3), "data must be a few words"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(store, folder, call, said):
    with pytest.raises(ValueError, match=said):
        call(store)
    assert not folder.exists()


def test_settings_that_json_cannot_hold_are_refused_before_any_work(store):
    with pytest.raises(TypeError, match=r"settings\['local'\] must be a number"):
        store.run(0, {"local": cf.LocalSGD(1, 0.1)}, never)


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

cf.results.Store("06_x", "paper").run(0, {}, compute)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_run_goes_on_from_its_checkpoint(folder, tmp_path):
    results.Store("06_x", "paper").run(5, {}, lambda c: {"kept": 1})
    name = only_file(folder).stem
    command = [sys.executable, "-c", SCRIPT]
    assert subprocess.run([*command, "die"]).returncode == -signal.SIGKILL
    unfinished = folder / "06_x" / ".unfinished"
    assert (unfinished / f"{name}-seed0.pt").exists()
    (unfinished / f"{name}-seed0.json123.part").touch()  # of a kill while writing
    (unfinished / f"{name}-seed00.pt").touch()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith(f"06_x {name}, seed 0: goes on\n"), done.stderr
    first, other = store_records()
    assert (first["seed"], first["resumed"]) == (0, True)
    assert len(first["values"]["loss"]) == 4
    assert (other["seed"], other["values"]) == (5, {"kept": 1})
    left = sorted(path.name for path in unfinished.iterdir())
    assert left == [f"{name}-seed00.pt", "lock"]


def test_an_interrupted_write_leaves_the_file_as_it_was(store, folder, monkeypatch):
    store.run(0, {}, lambda c: {"a": 1})
    before = only_file(folder).read_bytes()

    def full(path, write):
        if path.suffix == ".json":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(results, "write_whole", full)
    with pytest.raises(OSError, match="No space"):
        store.run(1, {}, lambda c: c.write_text("here") and {"a": 1})
    assert only_file(folder).read_bytes() == before
    assert (folder / "06_x/.unfinished" / f"{only_file(folder).stem}-seed1.pt").exists()


# ---------------------------------------------------------------- several at once


MANY = """
import sys, time
from pathlib import Path
import clusterfl_core as cf

first = int(sys.argv[1])
Path(f"ready{first}").touch()
while not Path(f"ready{1 - first}").exists():
    time.sleep(0.001)
for seed in range(first, 60, 2):
    cf.results.Store("06_x", "paper").run(seed, {"m": 8}, lambda c: {"seed": [seed] * 2000})
"""


def test_two_processes_lose_nothing(folder, tmp_path):
    command = [sys.executable, "-c", MANY]
    both = [subprocess.Popen([*command, str(i)], cwd=tmp_path) for i in range(2)]
    assert [process.wait(120) for process in both] == [0, 0]
    found = store_records()
    assert [r["seed"] for r in found] == list(range(60))
    assert all(r["values"] == {"seed": [r["seed"]] * 2000} for r in found)


def test_of_two_computations_of_one_run_the_first_counts(store, folder):
    def slow(checkpoint):
        assert results.Store("06_x", "paper").run(0, {}, lambda c: {"a": "first"}) == {"a": "first"}
        return {"a": "second"}

    assert store.run(0, {}, slow) == {"a": "first"}
    assert [r["values"] for r in store_records()] == [{"a": "first"}]


def git(folder, *words):
    author = ["-c", "user.name=A reader", "-c", "user.email=reader@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *author, *words], capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("twice", [False, True])
def test_seeds_of_two_branches_merge(tmp_path, monkeypatch, twice):
    kept = tmp_path / "book" / "results"
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(kept))
    (tmp_path / ".gitattributes").write_bytes((house.ROOT / ".gitattributes").read_bytes())
    (tmp_path / ".gitignore").write_bytes((house.ROOT / ".gitignore").read_bytes())
    store = results.Store("06_x", "paper")

    def commit(*seeds):
        for seed in seeds:
            store.run(seed, {}, lambda c, seed=seed: {"seed": seed, "at": time.time()})
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", f"{seeds}")

    git(tmp_path, "init", "-q", "-b", "main", ".")
    commit(3)
    git(tmp_path, "checkout", "-q", "-b", "other")
    commit(0, 7)
    git(tmp_path, "checkout", "-q", "main")
    commit(1, 7 if twice else 9)
    git(tmp_path, "merge", "-q", "other", "-m", "Both")
    if twice:
        with pytest.raises(ValueError, match="holds seed 7 twice: keep one of its lines"):
            store_records()
    else:
        assert [r["values"]["seed"] for r in store_records()] == [0, 1, 3, 7, 9]


# ---------------------------------------------------------------- where


@pytest.mark.parametrize("place", ["", "book", "book/experiments", "tests"])
def test_within_a_checkout_its_folder_serves(tmp_path, monkeypatch, place):
    monkeypatch.delenv("CLUSTERFL_RESULTS", raising=False)
    project = (house.ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(project)
    inside = tmp_path / place
    inside.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(inside)
    assert results.folders() == [tmp_path / "book" / "results"]


@pytest.mark.parametrize("text", [None, "[tool]", "no TOML", "tool = 3", "\xff"])
def test_elsewhere_the_working_folder_serves_beside_the_installed_copy(tmp_path, monkeypatch, text):
    monkeypatch.delenv("CLUSTERFL_RESULTS", raising=False)
    if text:  # of another project
        (tmp_path / "pyproject.toml").write_text(text, encoding="latin-1")
    monkeypatch.chdir(tmp_path)
    assert results.folders() == [tmp_path / "results", house.ROOT / "book" / "results"]


def test_a_folder_that_cannot_be_written_is_named_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLUSTERFL_RESULTS", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"file.06_x cannot be written .* set CLUSTERFL_RESULTS"):
        results.Store("06_x", "paper").run(0, {}, never)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A package in a small repository of its own."""
    for name in ("clusterfl_core/__init__.py", "book/06_x.ipynb", "book/experiments/07_y.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(results, "PACKAGE", tmp_path / "clusterfl_core")
    git(tmp_path, "init", "-q", ".")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "All")
    return tmp_path


def test_a_changed_library_or_notebook_is_marked(repository):
    clean = results._commit("07_y")
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (repository / "book" / "06_x.ipynb").write_text("another notebook")
    assert results._commit("07_y") == clean
    (repository / "book" / "experiments" / "07_y.ipynb").write_text("changed")
    assert results._commit("07_y") == f"{clean}+changed"
    (repository / "book" / "experiments" / "07_y.ipynb").write_text("")
    (repository / "clusterfl_core" / "new.py").touch()
    assert results._commit("07_y") == f"{clean}+changed"


def test_no_commit_is_claimed_where_there_is_none(repository, monkeypatch):
    git(repository, "rm", "-q", "--cached", "-r", "clusterfl_core")  # installed inside another one
    assert results._commit("07_y") == ""
    monkeypatch.setenv("PATH", "")
    assert results._commit("07_y") == ""


def test_the_wheel_carries_the_records_and_new_ones_go_to_the_working_folder(tmp_path):
    root = tmp_path / "source"
    (root / "book/results/06_x/.unfinished").mkdir(parents=True)
    (root / "book/claims").mkdir()
    (root / "book/claims/paper.toml").write_text('name = "a paper"')
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (root / name).write_bytes((house.ROOT / name).read_bytes())
    package = root / "clusterfl_core"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(house.ROOT / "clusterfl_core", package, ignore=ignored)
    (package / "room" / "inner").mkdir(parents=True)
    for folder in (package / "room", package / "room" / "inner"):
        (folder / "__init__.py").touch()
    head = {"experiment": "06_x", "settings": {}, "data": ""}
    name = results._file_name({})
    text = results._text(head, {0: {"seed": 0, "values": {"a": 1}}})
    (root / f"book/results/06_x/{name}.json").write_text(text)
    (root / f"book/results/06_x/.unfinished/{name}-seed1.pt").touch()
    options = ["--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(root)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert cf.__version__ in wheel.name
    with zipfile.ZipFile(wheel) as parts:
        carried = {name for name in parts.namelist() if "dist-info" not in name}
        parts.extractall(tmp_path / "site")
    sources = [*package.rglob("*.py"), *(package / "live").rglob("*.js")]
    modules = {path.relative_to(root).as_posix() for path in sources}
    data = {f"clusterfl_core/stored/06_x/{name}.json", "clusterfl_core/ledger/paper.toml"}
    assert carried == modules | data

    script = """if True:
        import clusterfl_core as cf
        store = cf.results.Store("06_x", "paper")
        assert store.run(0, {}, None) == {"a": 1}
        assert store.run(1, {}, lambda checkpoint: {"a": 2}) == {"a": 2}
        assert [r["values"] for r in cf.results.stored("06_x")] == [{"a": 1}, {"a": 2}]
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTERFL_")}
    alone = kept | {"PYTHONPATH": str(tmp_path / "site")}
    work = tmp_path / "work"
    work.mkdir()
    site = sorted((tmp_path / "site").rglob("*.json"))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script], cwd=work, env=alone, check=True)
    assert sorted((tmp_path / "site").rglob("*.json")) == site
    assert sorted(work.rglob("*.json")) == [work / "results" / "06_x" / f"{name}.json"]


# ---------------------------------------------------------------- what pages show


def test_an_interval_is_that_of_student():
    values = np.random.default_rng(0).standard_normal(10)
    low, high = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    mean, half = results.interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    with pytest.raises(ValueError, match=r"values must be two numbers at least, got \[1\.0\]"):
        results.interval([1])


def test_a_table_has_equally_many_bars_in_each_line():
    text = results.table(["a", "b"], ["x", "y"], lambda row, column: row + column)
    assert text.split("\n")[2:] == ["| **a** | ax | ay |", "| **b** | bx | by |"]
    assert {line.count("|") for line in text.split("\n")} == {4}
