"""Runs: their history, their checkpoints, and how they end badly without losing anything."""

import io
import os
import pickle
import random
import subprocess
import sys
import time
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import tqdm
from hypothesis import given, settings
from hypothesis import strategies as st
from test_local import plain_loss, plain_points, ragged
from torch import nn

import clusterfl_core
from clusterfl_core import evaluation, machine, populations, starts
from clusterfl_core.algorithms.baselines import FedAvg, LocalOnly
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.clients import Federation
from clusterfl_core.models import MLP, LinearRegression
from clusterfl_core.randomness import participants
from clusterfl_core.simulation import Diverged, Run, run
from clusterfl_core.solvers import LocalSGD

MODEL = MLP(5, 4, 3)
SOLVER = LocalSGD(2, 0.1, batch_size=3)
ALGORITHMS = {
    "IFCA": IFCA(MODEL, 2, SOLVER, participation=0.6),
    "FedAvg": FedAvg(MODEL, SOLVER, participation=0.6),
    "LocalOnly": LocalOnly(MODEL, SOLVER),
}
EACH = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


def a_federation(seed=0):
    """Five ragged clients of random labels in two "clusters"."""
    clients = ragged("classes", (4, 1, 7, 2, 6), seed=seed)
    truth = torch.tensor([0, 0, 0, 1, 1])
    return Federation(clients, clients, clusters=truth, test_clusters=truth, classes=3)


FEDERATION = a_federation()


def without_seconds(history):
    """The history but for the one number that never repeats."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def assert_equal_runs(first, second):
    """Bit for bit, in all that a run holds but its seconds."""
    assert without_seconds(first.history) == without_seconds(second.history)
    assert (first.seed, first.data) == (second.seed, second.data)
    assert repr(first.algorithm) == repr(second.algorithm)
    assert type(first.state) is type(second.state)
    for name, value in vars(first.state).items():
        other = getattr(second.state, name)
        if name == "bank":
            assert torch.equal(value.flatten(), other.flatten())
        elif isinstance(value, torch.Tensor):
            assert torch.equal(value, other)
        else:
            assert value == other


# ---- history


@EACH
def test_the_history_has_one_record_a_round(algorithm):
    history = run(algorithm, FEDERATION, 3).history
    assert [record["round"] for record in history] == [1, 2, 3]
    needed = {"round", "train_loss", "accuracy", "identity_accuracy", "bytes_down", "bytes_up"}
    for record in history:
        assert needed | {"seconds"} <= set(record)
        assert ("empty" in record) == isinstance(algorithm, IFCA)
        assert "error" not in record
        assert record["seconds"] > 0
        assert 0 <= record["accuracy"] <= 1


def test_regression_records_an_error_and_unknown_truth_no_identity_accuracy():
    clients = ragged("regression", (3, 2))
    (record,) = run(FedAvg(LinearRegression(5)), Federation(clients, clients), 1).history
    assert "error" in record
    assert not {"accuracy", "identity_accuracy", "empty"} & set(record)


def test_a_record_says_what_its_round_did():
    algorithm = ALGORITHMS["IFCA"]
    before = algorithm.init(FEDERATION, seed=3)
    (record,) = run(algorithm, FEDERATION, 1, seed=3).history
    after = run(algorithm, FEDERATION, 1, seed=3).state
    modules = [before.bank.module(j) for j in range(2)]
    losses = [
        min(plain_loss(module, *plain_points(FEDERATION.train, i)).item() for module in modules)
        for i in participants((3, 0), 5, 0.6).tolist()
    ]
    assert len(losses) == 3
    assert record["train_loss"] == pytest.approx(sum(losses) / 3, rel=1e-5)
    quality = evaluation.lowest_loss(after, FEDERATION)
    assert record["accuracy"] == pytest.approx(float(quality.mean()), abs=1e-12)
    assert record["identity_accuracy"] == evaluation.identity_accuracy(
        after.assignments, FEDERATION.clusters
    )
    assert record["empty"] == int((after.empty > 0).sum())


def test_empty_clusters_are_counted_in_the_record():
    everybody_alike = ragged("regression", (5,) * 4)
    federation = Federation(everybody_alike, everybody_alike)
    found = run(IFCA(LinearRegression(5), 4, LocalSGD(1, 0.1)), federation, 2)
    chosen = len(set(found.assignments.tolist()))
    assert chosen < 4
    assert found.history[-1]["empty"] == 4 - chosen


# ---- one seed fixes everything


@EACH
def test_the_same_seed_gives_the_same_run_bit_for_bit(algorithm):
    torch.manual_seed(1)
    first = run(algorithm, FEDERATION, 3, seed=7)
    torch.manual_seed(2)  # global random numbers play no part
    assert_equal_runs(first, run(algorithm, a_federation(), 3, seed=7))


def test_a_named_device_is_the_one_chosen_where_there_is_no_other(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    algorithm = ALGORITHMS["IFCA"]
    assert_equal_runs(
        run(algorithm, FEDERATION, 2, device="cpu"), run(algorithm, FEDERATION, 2, device="auto")
    )


@EACH
def test_different_seeds_give_different_runs(algorithm):
    rows = [run(algorithm, FEDERATION, 2, seed=seed).models.flatten() for seed in range(3)]
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[1], rows[2])


@EACH
def test_a_longer_run_begins_like_a_shorter_one(algorithm):
    long, short = (run(algorithm, FEDERATION, rounds, seed=1) for rounds in (4, 2))
    assert without_seconds(long.history)[:2] == without_seconds(short.history)


# ---- checkpoints


@EACH
@given(stop=st.integers(1, 5), seed=st.integers(0, 20))
@settings(max_examples=8, deadline=None)
def test_a_run_stopped_and_resumed_equals_the_uninterrupted_one(tmp_path_factory, algorithm, stop,
                                                                seed):  # fmt: skip
    file = tmp_path_factory.mktemp("runs") / "run.pt"
    whole = run(algorithm, FEDERATION, 5, seed=seed)
    run(algorithm, FEDERATION, stop, seed=seed, checkpoint=file)
    torch.rand(3)  # other random numbers in between
    resumed = run(algorithm, FEDERATION, 5, seed=seed, checkpoint=file)
    assert_equal_runs(resumed, whole)
    assert_equal_runs(Run.load(file), whole)
    assert [one.name for one in file.parent.iterdir()] == ["run.pt"]


def test_a_finished_run_is_read_back_without_any_work(monkeypatch, tmp_path):
    file = tmp_path / "run.pt"
    whole = run(ALGORITHMS["IFCA"], FEDERATION, 2, checkpoint=file)
    monkeypatch.setattr(IFCA, "client_step", lambda *_: 1 / 0)
    assert_equal_runs(run(ALGORITHMS["IFCA"], FEDERATION, 2, checkpoint=file), whole)


def test_an_error_in_the_middle_leaves_a_checkpoint_to_go_on_from(monkeypatch, tmp_path):
    file, algorithm = tmp_path / "run.pt", ALGORITHMS["IFCA"]
    step, calls = IFCA.client_step, []

    def interrupted(self, jobs, clients):
        calls.append(jobs.round)
        if len(calls) == 6:  # the first two were the trials at the door
            raise KeyboardInterrupt
        return step(self, jobs, clients)

    monkeypatch.setattr(IFCA, "client_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, FEDERATION, 6, checkpoint=file)
    assert len(Run.load(file).history) == 3
    resumed = run(algorithm, FEDERATION, 6, checkpoint=file)
    assert calls == [0, 0, 0, 1, 2, 3, 3, 4, 5]
    assert_equal_runs(resumed, run(algorithm, FEDERATION, 6))


def test_a_checkpoint_half_written_leaves_the_one_before(monkeypatch, tmp_path):
    file, algorithm = tmp_path / "run.pt", ALGORITHMS["IFCA"]
    run(algorithm, FEDERATION, 2, checkpoint=file)
    before, save = file.read_bytes(), torch.save

    def half(what, to):
        whole = io.BytesIO()
        save(what, whole)
        to.write(whole.getvalue()[:500])
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="no space left"):
        run(algorithm, FEDERATION, 4, checkpoint=file)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["run.pt"]


def long_run(file, rounds=1_000_000):
    """A run that somebody will kill."""
    theta = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])
    federation = populations.regression(theta, clients=6, points=8, noise=0.5)
    algorithm = IFCA(LinearRegression(3), 2, LocalSGD(2, 0.01, 3), participation=0.5)
    return run(algorithm, federation, rounds, seed=5, checkpoint=file)


def test_a_killed_process_leaves_a_checkpoint_that_continues_bit_for_bit(tmp_path):
    file = tmp_path / "run.pt"
    folders = [Path(__file__).parent, Path(clusterfl_core.__file__).parents[1]]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys, test_simulation as t; t.long_run(sys.argv[1])", file],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))},
    )
    try:
        while not file.exists() or not Run.load(file).history:
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(random.uniform(0, 0.4))
    finally:
        process.kill()
        process.wait()
    done = len(Run.load(file).history)
    assert done >= 1
    resumed = long_run(file, done + 2)
    assert_equal_runs(resumed, long_run(None, done + 2))


def touch(path):
    """What a hostile file would do."""
    Path(path).touch()


class Hostile:
    """Unpickling this runs code."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return touch, (self.path,)


OTHERS = {
    "another algorithm": (
        {"algorithm": FedAvg(MODEL, SOLVER, 0.6)},
        "belongs to another run: its algorithm is 'IFCA', not 'FedAvg'",
    ),
    "another setting": (
        {"algorithm": replace(ALGORITHMS["IFCA"], clusters=3)},
        "belongs to another run: its clusters is 2, not 3",
    ),
    "another step size": (
        {"algorithm": replace(ALGORITHMS["IFCA"], local=LocalSGD(2, 0.2, 3))},
        r"belongs to another run: its local is .*step_size=0\.1.*, not .*step_size=0\.2",
    ),
    "another width": (
        {"algorithm": replace(ALGORITHMS["IFCA"], model=MLP(5, 6, 3))},
        "belongs to another run: its model is MLP.*out_features=4.*, not MLP.*out_features=6",
    ),
    "another precision": (
        {"algorithm": replace(ALGORITHMS["IFCA"], model=MLP(5, 4, 3).double())},
        r"belongs to another run: its parameters is .*torch\.float32.*, not .*torch\.float64",
    ),
    "other data": (
        {"federation": a_federation(seed=1)},
        "belongs to another run: its data is '[0-9a-f]{32}', not '[0-9a-f]{32}'",
    ),
    "another truth": (
        {"federation": replace(FEDERATION, clusters=torch.tensor([0, 1, 0, 1, 0]))},
        "belongs to another run: its data is",
    ),
    "another seed": ({"seed": 1}, "belongs to another run: its seed is 0, not 1"),
    "fewer rounds": ({"rounds": 2}, "is 3 rounds into its run, more than rounds=2"),
}
DAMAGES = {
    "empty": (lambda whole, _: b"", "not a run saved by this package, or it is damaged"),
    "cut short": (lambda whole, _: whole[:-700], "saved by this package, or it is damaged"),
    "one bit": (
        lambda whole, run: flipped(whole, run.models.tensors["hidden.weight"]),
        r"or it is damaged: the checksum of \S+ is wrong",
    ),
    "text": (lambda whole, _: b"round,loss\n1,2.3\n", "saved by this package, or it is damaged"),
    "numbers": (lambda whole, _: saved({"a": torch.ones(2)}), "holds a dict, not a saved run"),
    "a state": (lambda whole, run: saved(run.state), "holds a State, not a saved run"),
}


def saved(what):
    """The bytes that torch.save makes."""
    file = io.BytesIO()
    torch.save(what, file)
    return file.getvalue()


def flipped(whole, tensor):
    """The file with one bit of one number changed."""
    at = whole.index(tensor.numpy().tobytes())
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A run of three rounds, and the bytes of its file."""
    file = tmp_path_factory.mktemp("checkpoint") / "run.pt"
    return run(ALGORITHMS["IFCA"], FEDERATION, 3, checkpoint=file), file.read_bytes()


def refused(file, sentence, **changes):
    """Whether a run refuses a checkpoint in one line and leaves it as it is, alone."""
    before = file.read_bytes()
    arguments = {"algorithm": ALGORITHMS["IFCA"], "federation": FEDERATION, "rounds": 5} | changes
    with pytest.raises(ValueError, match=sentence) as error:
        run(**arguments, checkpoint=file)
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)
    assert file.read_bytes() == before
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(("changes", "sentence"), OTHERS.values(), ids=OTHERS)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, checkpoint, changes, sentence):
    file = tmp_path / "run.pt"
    file.write_bytes(checkpoint[1])
    refused(file, sentence, **changes)


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_foreign_file_is_refused_and_kept(tmp_path, checkpoint, damage, sentence):
    done, whole = checkpoint
    file = tmp_path / "run.pt"
    file.write_bytes(damage(whole, done))
    refused(file, sentence)
    with pytest.raises(ValueError, match=sentence):
        Run.load(file)


@pytest.mark.parametrize("by", ["pickle", "torch", "inside a run"])
def test_a_hostile_file_is_refused_and_its_code_not_run(tmp_path, checkpoint, by):
    marker = tmp_path / "it ran"
    evil = Hostile(str(marker))
    whole = {
        "pickle": lambda: pickle.dumps(evil),
        "torch": lambda: saved(evil),
        "inside a run": lambda: saved(replace(checkpoint[0], history=[evil])),
    }[by]()
    (tmp_path / "here").mkdir()
    file = tmp_path / "here" / "run.pt"
    file.write_bytes(whole)
    sentence = "it is damaged" if by == "pickle" else r"holds \S*touch, which is not of this"
    refused(file, sentence)
    with pytest.raises(ValueError, match=sentence):
        Run.load(file)
    assert not marker.exists()
    if by != "inside a run":
        pickle_of = pickle.loads(pickle.dumps(evil))  # the file would have done it
        assert pickle_of is None
        assert marker.exists()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_damaged_byte_is_either_noticed_or_harmless(tmp_path_factory, checkpoint, data):
    done, whole = checkpoint
    file = tmp_path_factory.mktemp("damage") / "run.pt"
    at = data.draw(st.integers(0, len(whole) - 1))
    other = whole[at] ^ data.draw(st.integers(1, 255))
    file.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
    try:
        found = Run.load(file)
    except ValueError:
        return
    assert_equal_runs(found, done)


# ---- saving


@EACH
def test_a_saved_run_reads_back_equal(tmp_path, algorithm):
    done = run(algorithm, FEDERATION, 2, seed=4)
    file = tmp_path / "folders" / "are made" / "run.pt"
    done.save(file)
    found = Run.load(file)
    assert_equal_runs(found, done)
    assert found.history == done.history
    assert torch.equal(found.models.flatten(), done.models.flatten())
    assert torch.equal(found.assignments, done.assignments)
    x = torch.randn(6, 5)
    assert torch.equal(found.models.module(0)(x), done.models.module(0)(x))
    assert [one.name for one in file.parent.iterdir()] == ["run.pt"]


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.pt"):
        Run.load(tmp_path / "absent.pt")


class Mine(nn.Module):
    """A model that a reader might write."""

    def __init__(self):
        super().__init__()
        self.only = nn.Linear(5, 3)

    def forward(self, x):
        return self.only(x)


def test_a_model_of_ones_own_reads_back_once_it_is_named(tmp_path):
    file, algorithm = tmp_path / "run.pt", FedAvg(Mine(), LocalSGD(1, 0.1))
    run(algorithm, FEDERATION, 1, checkpoint=file)
    with pytest.raises(ValueError, match=r"holds test_simulation\.Mine, which .*trust=.Mine."):
        Run.load(file)
    once = run(algorithm, FEDERATION, 1)
    assert_equal_runs(Run.load(file, trust=[Mine]), once)
    assert_equal_runs(Run.load(file, trust=[algorithm]), once)
    resumed = run(algorithm, FEDERATION, 2, checkpoint=file)
    assert_equal_runs(resumed, run(algorithm, FEDERATION, 2))


# ---- divergence


@pytest.mark.parametrize("option", ["models", "gradients"])
def test_a_loss_that_is_not_finite_stops_the_run_and_loses_nothing(tmp_path, option):
    clients = ragged("regression", (4, 3, 5))
    federation, file = Federation(clients, clients), tmp_path / "run.pt"
    algorithm = IFCA(LinearRegression(5), 2, LocalSGD(1, 1e4), option)
    with pytest.raises(Diverged, match=r"^round \d+: the (loss|model) of client \d+ is not") as e:
        run(algorithm, federation, 100, checkpoint=file)
    kept, words = e.value.run, str(e.value).split()
    stopped, client = int(words[1].rstrip(":")), int(words[6])
    assert "the step size 10000.0 is probably too large" in str(e.value)
    assert [record["round"] for record in kept.history] == list(range(1, stopped))
    assert kept.models.flatten().isfinite().all()
    assert_equal_runs(Run.load(file), kept)
    assert_equal_runs(run(algorithm, federation, stopped - 1), kept)
    replies = algorithm.client_step(algorithm.plan(kept.state), clients)
    unsound = ~(replies.values["loss"].isfinite() & replies.bank.flatten().isfinite().all(1))
    assert client == int(replies.clients[unsound][0])


def test_models_that_break_in_the_last_round_do_not_pass_for_a_result():
    clients = ragged("regression", (4, 3))
    federation = Federation(clients, clients)
    algorithm = LocalOnly(LinearRegression(5), LocalSGD(80, 1e6))
    with pytest.raises(Diverged, match=r"^round 1: the model of client 0 is not finite") as error:
        run(algorithm, federation, 1)
    assert error.value.run.history == []


def test_the_first_client_whose_loss_is_not_finite_is_named():
    clients = ragged("regression", (4, 3, 5))
    x = clients.x.clone()
    x[1, 0, 0] = 1e30  # finite, and its square is not
    federation = Federation(replace(clients, x=x), clients)
    with pytest.raises(Diverged, match=r"^round 1: the loss of client 1 is not finite"):
        run(FedAvg(LinearRegression(5)), federation, 1)


# ---- progress


@EACH
def test_a_run_prints_nothing_when_nobody_watches(capsys, algorithm):
    run(algorithm, FEDERATION, 3, progress=True)
    assert capsys.readouterr() == ("", "")


def test_a_bar_shows_where_somebody_watches_and_only_if_wanted(monkeypatch, capsys):
    monkeypatch.setattr(machine, "watched", lambda: True)

    class AtOnce(tqdm.tqdm):
        def __init__(self, **how):
            super().__init__(**how | {"delay": 0})

    monkeypatch.setattr(tqdm, "tqdm", AtOnce)
    run(ALGORITHMS["IFCA"], FEDERATION, 2, progress=False)
    assert capsys.readouterr() == ("", "")
    run(ALGORITHMS["IFCA"], FEDERATION, 2, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "IFCA" in printed.err
    assert printed.err.endswith("\r")  # wiped at the end


@pytest.mark.parametrize("asks", [True, False])
def test_a_live_notebook_is_told_from_an_executed_one(monkeypatch, asks):
    kernel = types.SimpleNamespace(_allow_stdin=asks)
    notebook = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert machine.watched() is asks


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_from_a_log(monkeypatch, terminal):
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(isatty=lambda: terminal))
    assert machine.watched() is terminal


class WildOnOddSeeds(IFCA):
    """Clients answer with an infinite loss if the seed is odd."""

    def client_step(self, jobs, clients):
        replies = super().client_step(jobs, clients)
        wild = replies.values["loss"] * (float("inf") if jobs.seed % 2 else 1)
        return replace(replies, values={**replies.values, "loss": wild})


def planted():
    theta = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    return populations.regression(theta, clients=4, points=10, noise=0.1, seed=0)


def test_restarts_pass_over_a_run_that_diverged():
    federation = planted()
    wild = WildOnOddSeeds(LinearRegression(2), 2, LocalSGD(1, 0.1))
    best, losses = starts.restarts(wild, federation, 3, seeds=range(4), progress=False)
    assert losses[1] == losses[3] == float("inf")
    assert losses[best.seed] == min(losses[0], losses[2])
    with pytest.raises(Diverged):
        starts.restarts(wild, federation, 3, seeds=[1, 3], progress=False)


def test_training_loss_does_not_depend_on_the_chunk(monkeypatch):
    federation = planted()
    done = run(IFCA(LinearRegression(2), 2), federation, 2, progress=False)
    whole = starts.training_loss(done, federation)
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 3)
    assert starts.training_loss(done, federation) == pytest.approx(whole, rel=1e-6)


def test_a_device_torch_does_not_know_is_refused():
    with pytest.raises(
        ValueError, match="device must be 'auto' or a name torch knows, got 'abacus'"
    ):
        run(IFCA(LinearRegression(2), 2), planted(), 1, device="abacus")
