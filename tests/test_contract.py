"""One suite for any algorithm, in both engines; run on the library's own and on strangers."""

import ast
import multiprocessing
import random
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from strangers.fesem import FeSEM
from strangers.median import MedianIFCA
from strangers.momentum import MomentumIFCA
from strangers.odd import Odd
from test_flower import Network, alike, serve
from test_killed import same

import clusterfl_core as cf
from clusterfl_core import contract, door, machine
from clusterfl_core.contract import Replies

THETA = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])
BATCHES = cf.LocalSGD(epochs=2, step_size=0.02, batch_size=3)


def every(line):
    """Each algorithm with settings that use what is special in it."""
    return {
        "IFCA": cf.IFCA(line, 2, BATCHES, participation=0.5),
        "CFL": cf.CFL(line, eps1=0.5, eps2=0.1, local=cf.LocalSGD(3, 0.02)),
        "FedSoft": cf.FedSoft(line, 2, cf.LocalAdam(2, 0.01, 3), selected=3),
        "FedSoft, regression": cf.FedSoft(line, 2, cf.LocalSGD(4, 0.02), regress_after=1),
        "FedAvg": cf.FedAvg(line, BATCHES, participation=0.5),
        "LocalOnly": cf.LocalOnly(line, BATCHES),
        "OneShot": cf.OneShot(line, 2, alone=cf.LocalSGD(20, 0.05), local=BATCHES),
        "OneShot, no number": cf.OneShot(line, alone=cf.LocalSGD(20, 0.05), local=BATCHES),
        "CLoVE": cf.CLoVE(line, 2, BATCHES, participation=0.5, patience=2),
        "CLoVE, sought": cf.CLoVE(line, 3, BATCHES, first="random", search=True, starts=3),
        "FineTuned": cf.FineTuned(line, BATCHES, 0.5, after=2, tune=cf.LocalSGD(3, 0.02)),
        "FedEM": cf.FedEM(line, 2, BATCHES, participation=0.5),
        "FeSEM": FeSEM(line, 2, BATCHES),
        "median": MedianIFCA(line, 2, BATCHES),
        "momentum": MomentumIFCA(line, 2, BATCHES, beta=0.7),
        "odd": Odd(line, BATCHES),
    }


ALGORITHMS = every(cf.models.LinearRegression(3))
EACH = pytest.mark.parametrize("name", ALGORITHMS)


def lines(dtype=torch.float32):
    """Six clients with 3 to 9 points of two regressions."""
    whole = cf.populations.regression(THETA, clients=6, points=9, noise=0.3)
    counts = torch.tensor([9, 3, 5, 8, 4, 6])
    train, test = (replace(c, x=c.x.to(dtype), y=c.y.to(dtype)) for c in (whole.train, whole.test))
    return replace(whole, train=replace(train, counts=counts), test=test)


def trips(algorithm, federation, count=4):
    """The state and the jobs of the first round trips."""
    state = algorithm.init(federation, 3)
    for _ in range(count):
        jobs = algorithm.plan(state)
        yield state, jobs
        state = algorithm.absorb(state, [answer(algorithm, jobs, federation, jobs.clients)])


def answer(algorithm, jobs, federation, clients):
    """What some of the clients asked reply, in one batch."""
    rows = torch.isin(jobs.clients, clients).nonzero()[:, 0]
    some = jobs.take(rows)
    return algorithm.client_step(some, federation.train.take(some.clients))


# ---------------------------------------------------------------- the suite


@EACH
def test_it_keeps_the_contract(name):
    assert isinstance(ALGORITHMS[name], contract.Algorithm)
    assert door.admit(ALGORITHMS[name], lines(), 3, 5).round == 0


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_engines_end_with_the_same_bits(name, dtype):
    algorithm, federation = every(cf.models.LinearRegression(3).to(dtype))[name], lines(dtype)
    near = cf.run(algorithm, federation, 4, seed=3)
    far = serve(Network(algorithm, federation), algorithm, 4, federation, seed=3)
    assert near.models.dtype == dtype
    assert alike(far, near)
    assert [record["missing"] for record in far.history] == [[]] * 4


@EACH
def test_a_client_alone_is_the_client_among_others(name):
    algorithm, federation = ALGORITHMS[name], lines()
    for _state, jobs in trips(algorithm, federation):
        whole = answer(algorithm, jobs, federation, jobs.clients)
        alone = [answer(algorithm, jobs, federation, one) for one in jobs.clients.split(1)]
        assert same(whole, Replies.join(alone))


@EACH
def test_the_next_state_does_not_depend_on_how_the_clients_were_cut(name):
    algorithm, federation = ALGORITHMS[name], lines()
    for state, jobs in trips(algorithm, federation):
        after = []
        for size in (1, 2, 4, len(jobs.clients)):
            chunks = [answer(algorithm, jobs, federation, c) for c in jobs.clients.split(size)]
            after.append(algorithm.absorb(state, iter(chunks)))
        assert all(same(after[0], other) for other in after[1:])


@EACH
def test_chunks_and_cores_change_nothing(name, monkeypatch):
    algorithm, federation = ALGORITHMS[name], lines()
    whole = cf.run(algorithm, federation, 3)
    monkeypatch.setattr(machine, "LARGEST_CHUNK", 1)
    assert same(cf.run(algorithm, federation, 3), whole)


@EACH
def test_missing_replies_are_left_out_alike_in_both_engines(name):
    """Client 4 answers nothing in the second trip, in either engine, and the run goes on."""
    algorithm, federation = ALGORITHMS[name], lines()
    network = Network(algorithm, federation, {(2, 4): lambda _answer: None})
    far = serve(network, algorithm, 3, federation, seed=3)
    state, number = algorithm.init(federation, 3), 0
    while state.round < 3:
        jobs, number = algorithm.plan(state), number + 1
        here = jobs.clients if number != 2 else jobs.clients[jobs.clients != 4]
        state = algorithm.absorb(state, iter([answer(algorithm, jobs, federation, here)]))
    assert same(far.state, state)


@EACH
def test_its_rounds_are_those_of_its_run(name):
    algorithm, federation = ALGORITHMS[name], lines()
    done = cf.run(algorithm, federation, 3, seed=3)
    seen = list(cf.rounds(algorithm, federation, 3, seed=3))
    assert same(seen[-1].state, done.state)
    assert [one.bytes_up for one in seen] == [record["bytes_up"] for record in done.history]
    again = list(cf.rounds(algorithm, federation, 2, start=seen[0].state))
    assert same(again[-1].state, done.state)


@EACH
def test_a_run_is_saved_and_loaded(name, tmp_path):
    algorithm = ALGORITHMS[name]
    done = cf.run(algorithm, lines(), 3, seed=np.int64(5))
    done.save(tmp_path / "run.pt")
    assert same(cf.Run.load(tmp_path / "run.pt", trust=[algorithm, done.state]), done)
    assert type(done.seed) is int


@EACH
def test_a_stranger_has_to_be_trusted_and_all_of_it_is_named_at_once(name, tmp_path):
    algorithm = ALGORITHMS[name]
    cf.run(algorithm, lines(), 1).save(tmp_path / "run.pt")
    if type(algorithm).__module__.startswith("clusterfl_core"):
        assert cf.Run.load(tmp_path / "run.pt").state.round == 1
        return
    with pytest.raises(ValueError, match="not of this package") as error:
        cf.Run.load(tmp_path / "run.pt")
    assert type(algorithm).__name__ in str(error.value)
    if name in ("momentum", "odd"):
        assert "State" in str(error.value) or "Memory" in str(error.value)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@EACH
def test_a_killed_run_goes_on_bit_for_bit(name, tmp_path):
    file, federation, algorithm = tmp_path / "run.pt", lines(), ALGORITHMS[name]
    torch.set_num_threads(1)  # a forked process has none of its parent's threads

    def play():
        cf.run(algorithm, federation, 10**6, seed=5, checkpoint=file, progress=False)

    process = multiprocessing.get_context("fork").Process(target=play)
    process.start()
    try:
        end = time.monotonic() + 120
        while not file.exists():
            assert process.is_alive()
            assert time.monotonic() < end, "no checkpoint in two minutes"
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
    finally:
        process.kill()  # SIGKILL: no chance to tidy up
        process.join()
    done = cf.Run.load(file, trust=[algorithm, algorithm.init(federation, 5)]).state.round
    whole = cf.run(algorithm, federation, done + 2, seed=5)
    assert same(cf.run(algorithm, federation, done + 2, seed=5, checkpoint=file), whole)


HOLDS = """
import multiprocessing, os, signal
from tqdm import tqdm
import clusterfl_core as cf

lock = tqdm.get_lock()  # of this process and of all that it forks
def dies():
    lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)

one = multiprocessing.get_context("fork").Process(target=dies)
one.start()
one.join()
print(one.exitcode, lock.locks[0].acquire(False))
world = cf.populations.regression([[1.0], [-1.0]], clients=4, points=5, noise=0.1)
print(cf.run(cf.FedAvg(cf.models.LinearRegression(1)), world, 2).state.round)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_whoever_is_killed_while_a_bar_is_drawn_holds_up_no_other_run():
    command = [sys.executable, "-c", HOLDS]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["-9", "False", "2"]


def test_strangers_use_public_names_only():
    files = sorted((Path(__file__).parent / "strangers").glob("[!_]*.py"))
    assert len(files) == 4
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert not name.startswith("_") or name.startswith("__"), (path.name, name)


def test_a_stranger_learns():
    """FeSEM finds the two lines from a start near them; a client that lies cannot move a median."""
    federation = cf.populations.regression(THETA * 3, clients=8, points=40, noise=0.1)
    line = cf.models.LinearRegression(3)
    near = cf.banks.Bank(line, {"theta": THETA})
    algorithm = FeSEM(line, 2, cf.LocalSGD(20, 0.1))
    start = replace(algorithm.init(federation, 0), bank=near, assignments=federation.clusters)
    (*_, last) = cf.rounds(algorithm, federation, 5, start=start)
    assert cf.evaluation.identity_accuracy(last.state.assignments, federation.clusters) == 1
    torch.testing.assert_close(last.state.bank.tensors["theta"], THETA * 3, atol=0.1, rtol=0)

    federation.train.y[0] = 1e4
    for algorithm, moved in ((MedianIFCA(line, 1), False), (cf.IFCA(line, 1), True)):
        start = replace(algorithm.init(federation, 0), bank=near.take([0]))
        (one,) = cf.rounds(algorithm, federation, 1, start=start)
        assert (float(one.state.bank.distances(near.take([0]))) > 20) is moved


def test_an_algorithm_says_how_often_its_clients_pass_over_their_data():
    """A local epoch or full step is one pass, a look at a model's loss a third; half take part."""
    expected = {"CFL": 3, "LocalOnly": 2, "FedAvg": 1, "FeSEM": 2, "OneShot": 20, "odd": 2}
    expected |= {"IFCA": (2 + 2 / 3) / 2, "FedEM": (2 * 2 + 2 / 3) / 2, "FineTuned": 1}
    expected |= {"CLoVE": (2 + 2 / 3) / 2, "CLoVE, sought": 2 + 3 / 3, "OneShot, no number": 20}
    federation = lines()
    for name, passes in expected.items():
        start = ALGORITHMS[name].init(federation, 3)
        (*_, work) = cf.comparison.one_round(ALGORITHMS[name], start, federation)
        assert work == pytest.approx(passes), name
    soft = ALGORITHMS["FedSoft"]
    (one,) = cf.rounds(soft, federation, 1, start=soft.init(federation, 3))
    assert [soft.passes(jobs) for jobs, _replies in one.trips] == [pytest.approx(2 / 3), 2]


# ---------------------------------------------------------------- at the door


class Broken:
    """FeSEM with one thing changed."""

    def __new__(cls, **changed):
        kind = type("Mine", (FeSEM,), changed)
        return kind(cf.models.LinearRegression(3), 2)


def without_loss(self, jobs, clients):
    return Replies(clients.ids, jobs.start)


def of_shape(shape):
    return lambda self, jobs, clients: Replies(clients.ids, jobs.start, {"loss": torch.ones(shape)})


DOORS = {
    "no init": ({"init": None}, "Mine is no algorithm: it has no function init"),
    "no plan": ({"plan": None}, "it has no function plan"),
    "no client step": ({"client_step": None}, "it has no function client_step"),
    "no absorb": ({"absorb": 3}, "it has no function absorb"),
    "no test protocol": ({"test_protocol": None}, "it has no function test_protocol"),
    "a test by name": ({"test_protocol": "lowest_loss"}, "it has no function test_protocol"),
    "a test that takes self": (
        {"test_protocol": cf.evaluation.lowest_loss},
        r"Mine.test_protocol must take \(state, federation\); .* stands in staticmethod",
    ),
    "init without a seed": (
        {"init": lambda self, federation: None},
        r"Mine.init must take \(federation, seed\)",
    ),
    "no loss": (
        {"client_step": without_loss},
        r"must say the loss .* of shape \[1\] beside nothing",
    ),
    "one loss for all": (
        {"client_step": of_shape(())},
        "loss must be a tensor with 1 rows|loss of",
    ),
    "a loss a point": ({"client_step": of_shape((1, 4))}, "must say the loss of each client"),
    "no state": ({"init": lambda self, f, s: {"round": 0}}, "init must give a contract.State, got"),
    "no jobs": (
        {"plan": lambda self, s: s.assignments},
        "plan must give contract.Jobs, got Tensor",
    ),
    "nobody": ({"plan": lambda self, s: s.jobs(torch.arange(0))}, "asks no client in round 1"),
    "unsorted": (
        {"plan": lambda self, s: s.jobs(torch.tensor([2, 1]))},
        "must name clients of 0 to 5 in ascending order",
    ),
    "a list of clients": (
        {"plan": lambda self, s: s.jobs([0, 1, 2])},
        "plan must name clients in a LongTensor, got list",
    ),
    "a model that nobody has": (
        {
            "init": lambda self, f, s: replace(
                FeSEM.init(self, f, s), assignments=-torch.ones(6).long()
            )
        },
        "plan must send models 0 to 1 of the bank, got -1 to -1",
    ),
    "too many": (
        {"plan": lambda self, s: s.jobs(torch.arange(7) % 8, torch.zeros(7, 1).long())},
        "must name clients of 0 to 5 in ascending order",
    ),
    "bare tensors": (
        {"client_step": lambda self, j, c: j.start},
        "client_step must give contract.Replies, got Bank",
    ),
    "other clients": (
        {"client_step": lambda self, j, c: Replies(c.ids + 1, j.start, {"loss": torch.ones(1)})},
        "must answer for the clients asked, in their order",
    ),
    "rows for ids": (
        {
            "client_step": lambda self, j, c: Replies(
                torch.arange(len(c)), j.start, {"loss": torch.ones(len(c))}
            )
        },
        "must answer for the clients asked, in their order",
    ),
    "a list of assignments": (
        {"init": lambda self, f, s: replace(FeSEM.init(self, f, s), assignments=[0] * 6)},
        r"init must give assignments as a LongTensor \[m\] or shares \[m, k\], got list",
    ),
    "fractions of models": (
        {"init": lambda self, f, s: replace(FeSEM.init(self, f, s), assignments=torch.zeros(6))},
        "got torch.float32",
    ),
    "assignments of who answered": (
        {"absorb": lambda self, s, parts: s.next(assignments=Replies.join(parts).clients * 0)},
        r"one assignment for each of the 6 clients, whoever answered, got shape \[1\]",
    ),
    "a state that moves": (
        {
            "absorb": lambda self, s, parts: (s.assignments.fill_(1), FeSEM.absorb(self, s, parts))[
                1
            ]
        },
        "Mine changes the state it is given",
    ),
    "a bank that moves": (
        {"absorb": lambda self, s, parts: (s.bank.tensors["theta"].zero_(), s.next())[1]},
        "Mine changes the state it is given",
    ),
    "two rounds at once": (
        {"absorb": lambda self, s, parts: s.next().next()},
        "must end one round at a time: state.round went from 0 to 2",
    ),
    "no next state": ({"absorb": lambda self, s, parts: None}, "absorb must give a contract.State"),
    "data at the server": (
        {"init": lambda self, f, s: f.train.x.mean()},
        "Mine.init asks for x, but the data is with the clients",
    ),
    "the truth at the server": (
        {"init": lambda self, f, s: f.clusters},
        "Mine.init asks for clusters, but the data is with the clients",
    ),
    "test clients at the server": (
        {"init": lambda self, f, s: f.test.counts},
        "Mine.init asks for test, but the data is with the clients",
    ),
    "classes at the server, perhaps": (
        {"init": lambda self, f, s: getattr(f, "classes", 10)},
        "Mine.init asks for classes, but the data is with the clients",
    ),
    "parts for replies": (
        {"absorb": lambda self, s, parts: s.next(bank=parts.bank)},
        "absorb asks parts for bank, but they are an iterator of Replies",
    ),
    "parts for a list": (
        {"absorb": lambda self, s, parts: s.next(bank=parts[0].bank)},
        "'Parts' object is not subscriptable",
    ),
    "parts read twice": (
        {"absorb": lambda self, s, parts: s.next(bank=[Replies.join(parts) for _ in "ab"][1].bank)},
        "there are no replies to join: parts can be read once only",
    ),
    "parts summed after they were read": (
        {"absorb": lambda self, s, parts: [contract.summed(parts, 2, len) for _ in list(parts)]},
        "there are no replies to join: parts can be read once only",
    ),
    "numbers of torch's own": (
        {
            "client_step": lambda self, j, c: Replies(
                c.ids, j.start.map(torch.randn_like), {"loss": torch.ones(len(c))}
            )
        },
        "plays the same round in two ways with the same seed",
    ),
    "numbers of NumPy's own": (
        {
            "init": lambda self, f, s: (
                lambda one: replace(one, bank=one.bank.map(lambda t: t + np.random.rand()))  # noqa: NPY002
            )(FeSEM.init(self, f, s))
        },
        "plays the same round in two ways with the same seed",
    ),
    "no end": ({"absorb": lambda self, s, parts: s}, "does not end round 1: after 100 round trips"),
}


def test_an_error_of_the_rehearsal_says_that_one_client_answered_alone():
    def absorb(self, state, parts):
        raise RuntimeError(f"{len(Replies.join(parts).clients)} of 6")

    with pytest.raises(RuntimeError, match="1 of 6") as error:
        cf.run(Broken(absorb=absorb), lines(), 3)
    (note,) = error.value.__notes__
    assert "one client answers alone: Mine.absorb must cope with that" in note


@pytest.mark.parametrize("what", DOORS)
def test_what_is_wrong_is_one_sentence_before_any_round(what, tmp_path):
    changed, sentence = DOORS[what]
    worked = []
    if callable(changed.get("client_step", FeSEM.client_step)):
        step = changed.get("client_step", FeSEM.client_step)
        changed = changed | {
            "client_step": lambda s, j, c: (worked.append(len(c)), step(s, j, c))[1]
        }
    with pytest.raises((TypeError, ValueError), match=sentence) as error:
        cf.run(Broken(**changed), lines(), 3, checkpoint=tmp_path / "run.pt")
    assert "\n" not in str(error.value)
    assert set(worked) <= {1}  # one client tried, no round was computed
    assert not (tmp_path / "run.pt").exists()


@pytest.mark.parametrize(
    ("note", "got"), [(None, "NoneType"), ({"round": 7}, r"\['round'\]"), ([1], "list")]
)
def test_a_note_that_is_no_record_is_refused(note, got):
    @dataclass(frozen=True)
    class Noting(contract.State):
        def note(self):
            return note

    class Mine(FeSEM):
        def init(self, federation, seed):
            return Noting(**vars(super().init(federation, seed)))

    with pytest.raises(TypeError, match=rf"Mine.init .* note\(\) is a dict .*, got {got}"):
        cf.run(Mine(cf.models.LinearRegression(3), 2), lines(), 1)


def test_a_state_of_other_clients_is_no_start():
    algorithm = ALGORITHMS["FeSEM"]
    few = cf.populations.regression(THETA, clients=4, points=9, noise=0.3)
    for start, said in (
        (algorithm.init(few, 0), r"for each of the 6 clients, whoever answered, got shape \[4\]"),
        (algorithm.model, "start must give a contract.State, got LinearRegression"),
    ):
        with pytest.raises(TypeError, match=said):
            next(cf.rounds(algorithm, lines(), 1, start=start))


@pytest.mark.parametrize(
    ("protocol", "got"),
    [
        (lambda state, federation: torch.ones(5), r"\[5\] of torch.float32"),
        (lambda state, federation: torch.ones(6, 1), r"\[6, 1\] of torch.float32"),
        (lambda state, federation: torch.ones(6).long(), r"\[6\] of torch.int64"),
        (lambda state, federation: torch.ones(6) == 1, r"\[6\] of torch.bool"),
        (lambda state, federation: torch.tensor(0.5), r"\[\] of torch.float32"),
        (lambda state, federation: [0.5] * 6, "list"),
        (lambda state, federation: None, "NoneType"),
    ],
)
def test_a_test_protocol_gives_one_number_a_client(protocol, got):
    mine = Broken(test_protocol=staticmethod(protocol))
    sentence = rf"^Mine.test_protocol must give a floating tensor \[2\], .* \[6\], .* got {got}$"
    with pytest.raises(TypeError, match=sentence):
        cf.run(mine, lines(), 1)


def test_what_the_server_makes_infinite_is_named_too():
    def absorb(self, state, parts):
        return state.next(bank=state.bank.map(lambda t: t / 0))

    said = "a model that the server made is not finite"
    with pytest.raises(cf.simulation.Diverged, match=said):
        cf.run(Broken(absorb=absorb), lines(), 1)


def test_a_class_a_function_and_a_mutable_thing_are_no_algorithms():
    class Loose(FeSEM):
        """Not a frozen dataclass of its own: its settings could change under a run."""

    class Plain:
        model = cf.models.LinearRegression(3)
        init = plan = client_step = absorb = test_protocol = print

    for thing, sentence in (
        (FeSEM, "it is a class, not an object"),
        (print, "it has no function init"),
        (Plain(), "must be a frozen dataclass"),
        (
            replace(ALGORITHMS["FeSEM"], model="MLP"),
            "FeSEM.model must be a torch.nn.Module, got str",
        ),
    ):
        with pytest.raises(TypeError, match=sentence):
            cf.run(thing, lines(), 1)
    assert cf.run(Loose(cf.models.LinearRegression(3), 2), lines(), 1).state.round == 1


def test_a_checkpoint_that_could_not_be_read_again_is_refused_before_the_first_round(tmp_path):
    class Local(torch.nn.Linear):
        """A class without a name that a file could hold."""

    algorithm = cf.FedAvg(torch.nn.Sequential(torch.nn.Flatten(), Local(64, 10)))
    digits = cf.populations.rotated("digits", clients=4, clusters=2)
    with pytest.raises(ValueError, match="no run can go on from a checkpoint"):
        cf.run(algorithm, digits, 1, checkpoint=tmp_path / "run.pt")
    assert list(tmp_path.iterdir()) == []


def test_settings_may_be_numbers_of_numpy(tmp_path):
    step = np.geomspace(0.01, 0.1, 3)[1]
    algorithm = cf.IFCA(cf.models.LinearRegression(3), np.int64(2), cf.LocalSGD(np.int32(3), step))
    stranger = MomentumIFCA(cf.models.LinearRegression(3), 2, beta=np.float64(0.5))
    for one in (algorithm, stranger):
        done = cf.run(one, lines(), 2, seed=np.uint8(3), checkpoint=tmp_path / type(one).__name__)
        assert same(
            cf.run(one, lines(), 3, seed=3, checkpoint=tmp_path / type(one).__name__).seed, 3
        )
        assert done.state.round == 2


@pytest.mark.parametrize("model", ["Sequential", "with a function"])
def test_models_of_torchs_own_parts_load_without_being_named(model, tmp_path):
    flat, net = torch.nn.Flatten(), torch.nn
    parts = [flat, net.Linear(64, 6), net.GELU(), net.Linear(6, 10)]
    if model == "with a function":
        attend = net.TransformerEncoderLayer(16, 2, 8, dropout=0.0, batch_first=True)
        parts = [flat, net.Unflatten(1, (4, 16)), attend, flat, *parts[1:]]
    digits = cf.populations.rotated("digits", clients=4, clusters=2)
    done = cf.run(cf.FedAvg(torch.nn.Sequential(*parts), cf.LocalSGD(1, 0.1)), digits, 1)
    done.save(tmp_path / "run.pt")
    assert same(cf.Run.load(tmp_path / "run.pt").models.flatten(), done.models.flatten())


def test_a_file_with_foreign_code_runs_none_of_it(tmp_path):
    """It asks for os.system, for eval in a torch module's namespace, and for a helper of ours."""
    canary = tmp_path / "canary"

    class Evil:
        def __init__(self, call):
            self.call = call

        def __reduce__(self):
            return self.call

    import os

    from clusterfl_core import files

    for call in (
        (os.system, (f"touch {canary}",)),
        (eval, (f"open({str(canary)!r}, 'w')",)),
        (files.write_whole, (canary, len)),
    ):
        torch.save(Evil(call), tmp_path / "run.pt")
        with pytest.raises(ValueError, match=r"not of this package|not a run saved"):
            cf.Run.load(tmp_path / "run.pt")
        assert not canary.exists()


def test_a_report_says_whose_model_and_whose_test():
    done = cf.run(ALGORITHMS["IFCA"], lines(), 2, seed=4)
    said = done.report()
    for words in (
        "participation=0.5",
        "6 training clients with 3 to 9 points",
        "seed: 4",
        "rounds: 2",
        "lowest_loss: Each test client takes the model with the lowest loss on its OWN data",
        "before its local steps",
    ):
        assert words in said


def test_rounds_can_be_left_at_any_time():
    threads = torch.get_num_threads()
    for one in cf.rounds(ALGORITHMS["IFCA"], lines(), 50):
        if one.state.round == 2:
            break
    assert one.state.round == 2
    assert torch.get_num_threads() == threads
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        next(cf.rounds(ALGORITHMS["IFCA"], lines(), 0))


def test_a_record_notes_what_the_algorithm_says():
    done = cf.run(cf.IFCA(cf.models.LinearRegression(3), 3, BATCHES), lines(), 1)
    assert list(done.history[0]) == [
        "round", "train_loss", "clients", "error", "identity_accuracy", "empty", "bytes_down",
        "bytes_up", "seconds",
    ]  # fmt: skip
