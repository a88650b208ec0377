"""Flower as the second engine: the same models bit for bit, and what happens when clients fail.

Most tests need no Flower: a network of a few lines carries the parcels. Those that do need it are
skipped where it is not installed, and run by `make test-deployment`, which installs it.
"""

import importlib.util
import pickle
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from test_killed import same

import clusterfl_core as cf
from clusterfl_core import flower, machine

NEEDS_FLOWER = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None,
    reason="Flower is not installed; `make test-deployment` installs it and runs this",
)
LINE, NET = cf.models.LinearRegression(3), cf.models.MLP(64, 12, 10)
THETA = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])
BATCHES = cf.LocalSGD(epochs=2, step_size=0.02, batch_size=3)


class Smooth(torch.nn.Module):
    """A model that this library knows nothing of."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 5), torch.nn.Linear(5, 10)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x.flatten(1))))


def lines():
    """Six clients with 3 to 9 points of two regressions."""
    whole = cf.populations.regression(THETA, clients=6, points=9, noise=0.3)
    counts = torch.tensor([9, 3, 5, 8, 4, 6])
    return replace(whole, train=replace(whole.train, counts=counts))


def digits():
    """Four clients with few images of digits; the Gram form pays for them."""
    whole = cf.populations.rotated("digits", clients=4, clusters=2)
    train = whole.train
    counts = torch.tensor([20, 11, 16, 9])
    return replace(whole, train=replace(train, x=train.x[:, :20], y=train.y[:, :20], counts=counts))


ALGORITHMS = {
    "IFCA": (lines, cf.IFCA(LINE, 2, BATCHES, participation=0.5)),
    "IFCA, gradients": (lines, cf.IFCA(LINE, 2, cf.LocalSGD(1, 0.05), option="gradients")),
    "IFCA, one model": (lines, cf.IFCA(LINE, 3, cf.LocalSGD(3, 0.05), patience=1)),
    "IFCA, Gram": (digits, cf.IFCA(NET, 2, cf.LocalSGD(10, 0.1))),
    "IFCA, shared": (digits, cf.IFCA(NET, 2, cf.LocalSGD(2, 0.1), shared=("hidden",))),
    "IFCA, other model": (digits, cf.IFCA(Smooth(), 2, cf.LocalSGD(3, 0.1, 4))),
    "IFCA, convolutions": (
        digits,
        cf.IFCA(cf.models.IFCAFemnist(side=8, classes=10, hidden=8), 2, cf.LocalSGD(2, 0.1)),
    ),
    "CFL": (lines, cf.CFL(LINE, eps1=0.5, eps2=0.1, local=cf.LocalSGD(3, 0.02))),
    "CFL, quorum": (lines, cf.CFL(LINE, 0.5, 0.1, local=cf.LocalSGD(3, 0.02), quorum=0.5)),
    "CFL, gradients": (
        lines,
        cf.CFL(LINE, 0.5, 0.1, local=BATCHES, similarity="gradients", privacy="permutation"),
    ),
    "CFL, rotation": (
        digits,
        cf.CFL(NET, 0.9, 0.2, local=cf.LocalSGD(10, 0.1), privacy="rotation"),
    ),
    "FedSoft": (lines, cf.FedSoft(LINE, 2, cf.LocalAdam(2, 0.01, 3), selected=3)),
    "FedSoft, cold": (lines, cf.FedSoft(LINE, 2, cf.LocalSGD(4, 0.01), warm_start=False)),
    "FedSoft, images": (digits, cf.FedSoft(NET, 2, cf.LocalSGD(4, 0.05), proximal=0.1)),
    "FedAvg": (digits, cf.FedAvg(NET, cf.LocalSGD(4, 0.1, 5), participation=0.5)),
    "LocalOnly": (lines, cf.LocalOnly(LINE, BATCHES)),
    "OneShot": (lines, cf.OneShot(LINE, 2, alone=cf.LocalSGD(20, 0.05), local=BATCHES)),
    "OneShot, no number": (digits, cf.OneShot(NET, alone=cf.LocalSGD(20, 0.1))),
    "CLoVE": (lines, cf.CLoVE(LINE, 2, BATCHES, participation=0.5, patience=2)),
    "CLoVE, images": (digits, cf.CLoVE(NET, 2, cf.LocalSGD(10, 0.1), first="random")),
    "FineTuned": (lines, cf.FineTuned(LINE, BATCHES, after=2, tune=cf.LocalSGD(3, 0.02))),
    "FedEM": (lines, cf.FedEM(LINE, 2, BATCHES, participation=0.5)),
}
THREE = pytest.mark.parametrize("name", ["IFCA, Gram", "CFL", "CFL, quorum", "FedSoft, images"])


class Network:
    """All nodes in one process. ``breaks`` maps (trip, client) to what becomes of its answer."""

    def __init__(self, algorithm, federation, breaks=()):
        self.algorithm, self.train, self.breaks = algorithm, federation.train, dict(breaks)
        self.node = {client: 100 + client for client in range(len(federation))}
        self.memory = {node: {} for node in self.node.values()}
        self.trips, self.bytes = 0, {"query": [0, 0], "train": [0, 0]}

    def nodes(self):
        return list(self.memory)

    def restart(self, client, node):
        """Start a client anew: its memory is gone, its id perhaps too."""
        self.node[client], self.memory[node] = node, {}

    def ask(self, kind, parcels, timeout):
        self.trips += kind == "train"
        clients = {node: client for client, node in self.node.items()}
        answers = {node: self.one(clients.get(node), node, kind, p) for node, p in parcels.items()}
        return {node: a for node, a in reversed(answers.items()) if a is not None}

    def one(self, client, node, kind, parcel):
        if client is None:
            return None  # a node that is listed and dead
        sent = pickle.dumps(parcel)
        own = replace(self.train.take([client]), ids=torch.tensor([client]))
        n = int(own.counts[0])  # a client knows nothing of the others' padding
        own = replace(own, x=own.x[:, :n], y=own.y[:, :n])
        if kind == "query":
            answer = flower.hello(self.algorithm, own)
        else:
            answer = flower.work(self.algorithm, own, pickle.loads(sent), self.memory[node])
            answer = self.breaks.get((self.trips, client), lambda a: a)(answer)
        received = pickle.dumps(answer)
        for place, data in enumerate((sent, received)):
            self.bytes[kind][place] += len(data)
        return pickle.loads(received)


def alike(far, near):
    """Two runs agree in everything but the seconds and who was missing."""
    history = [{k: v for k, v in record.items() if k != "missing"} for record in far.history]
    return same(replace(far, history=history), near)


def serve(network, algorithm, rounds, data, **options):
    options = {"timeout": 5, "federation": data} | options
    return flower.serve(network, algorithm, rounds, clients=len(data), **options)


# ---------------------------------------------------------------- equal, bit for bit


@pytest.mark.parametrize("name", ALGORITHMS)
def test_clients_elsewhere_end_with_the_same_bits(name):
    make, algorithm = ALGORITHMS[name]
    federation = make()
    near = cf.run(algorithm, federation, 5, seed=3)
    far = serve(Network(algorithm, federation), algorithm, 5, federation, seed=3)
    assert alike(far, near)
    assert [record["missing"] for record in far.history] == [[]] * 5


def test_the_cases_above_are_what_they_are_named_for():
    """A split, a client that is sent one model, a form that depends on the padded length."""
    runs = {
        name: cf.run(ALGORITHMS[name][1], ALGORITHMS[name][0](), 5, seed=3)
        for name in ("CFL", "CFL, gradients", "CFL, rotation", "IFCA, one model")
    }
    for name in ("CFL", "CFL, gradients", "CFL, rotation"):
        assert len(runs[name].state.tree) > 1, name
    down = [record["bytes_down"] for record in runs["IFCA, one model"].history]
    assert down[-1] == down[0] / 3
    federation, algorithm = digits(), ALGORITHMS["IFCA, Gram"][1]
    assert algorithm.local.in_gram_form(NET, federation.train)
    longer = flower.padded(federation.train, 200)
    assert not algorithm.local.in_gram_form(NET, longer)


def test_without_the_data_the_server_ends_with_the_same_models_and_scores_nothing():
    federation, algorithm = lines(), ALGORITHMS["FedSoft"][1]
    near = cf.run(algorithm, federation, 3)
    far = serve(Network(algorithm, federation), algorithm, 3, federation, federation=None)
    assert same(far.state, near.state)
    assert "error" not in far.history[-1]
    assert far.history[-1]["train_loss"] == near.history[-1]["train_loss"]


@THREE
def test_a_run_changes_engines_at_a_checkpoint(name, tmp_path):
    make, algorithm = ALGORITHMS[name]
    federation, file = make(), tmp_path / "run.pt"
    cf.run(algorithm, federation, 2, checkpoint=file)
    serve(Network(algorithm, federation), algorithm, 4, federation, checkpoint=file)
    far = serve(Network(algorithm, federation), algorithm, 5, federation, checkpoint=file)
    assert alike(far, cf.run(algorithm, federation, 5))
    assert same(cf.Run.load(file), far)


def test_a_round_costs_the_models_that_the_books_count():
    """Beyond them a fixed number of bytes a message; a kept model never travels down."""
    for name in ("IFCA, Gram", "CFL, rotation", "FedSoft, images", "IFCA, shared"):
        make, algorithm = ALGORITHMS[name]
        federation = make()
        network = Network(algorithm, federation)
        run = serve(network, algorithm, 3, federation)
        for place, way in enumerate(("bytes_down", "bytes_up")):
            counted = sum(record[way] for record in run.history)
            beyond = network.bytes["train"][place] - counted
            assert 0 < beyond < 700 * network.trips * len(federation), (name, way)


def test_the_model_that_all_begin_with_is_drawn_and_not_sent():
    federation, algorithm = digits(), ALGORITHMS["FedSoft, images"][1]
    state = algorithm.init(federation, 3)
    state = replace(state, weighed=0)  # the votes are in: now they train
    jobs = algorithm.plan(state)
    parcel = flower.job_parcel(jobs, 0, 50, with_kept=False)
    one = flower.name_of(flower.rows_of(state.personal.take([0])))
    assert parcel["numbers"]["name"] == one
    assert flower.KEPT not in parcel["arrays"]
    own = federation.train.take([0])
    answer = flower.work(algorithm, own, parcel, {})
    told = flower.work(algorithm, own, flower.job_parcel(jobs, 0, 50, with_kept=True), {})
    assert np.array_equal(answer["arrays"]["models"], told["arrays"]["models"])
    other = replace(jobs, seed=4)  # another seed draws another model
    answer = flower.work(algorithm, own, flower.job_parcel(other, 0, 50, with_kept=False), {})
    assert answer["numbers"] == {"lost": True}


# ---------------------------------------------------------------- what goes wrong


def without(algorithm, federation, absences, rounds=3):
    """The models of a run in which some answers never came: {trip: clients}."""
    state, trip = algorithm.init(federation, 0), 0
    while state.round < rounds:
        trip += 1
        jobs = algorithm.plan(state)
        keep = [i for i, c in enumerate(jobs.clients.tolist()) if c not in absences.get(trip, ())]
        here = jobs.take(keep)
        chunks = machine.in_order(
            lambda rows, jobs=here: algorithm.client_step(
                jobs.take(rows), federation.train.take(jobs.clients[rows])
            ),
            [torch.arange(len(keep))],
            "cpu",
        )
        state = algorithm.absorb(state, chunks)
    return state


def broken(what, answer):
    """An answer spoiled."""
    rows, values = answer["arrays"].get("models"), answer["values"]
    spoiled = {
        "NaN": lambda: {"models": np.where(np.arange(rows.shape[1]) == 0, np.nan, rows)},
        "infinite": lambda: {"models": rows + np.float32(np.inf)},
        "too wide": lambda: {"models": np.concatenate([rows, rows], 1)},
        "flat": lambda: {"models": rows[0]},
        "two models": lambda: {"models": np.concatenate([rows, rows])},
        "no models": lambda: {},
        "double": lambda: {"models": rows.astype(np.float64)},
        "text": lambda: {"models": "model"},
    }
    if what in spoiled:
        return {**answer, "arrays": spoiled[what]()}
    if what == "raises":
        return "gave no answer (Flower's error 2): ValueError"
    if what == "silent":
        return None
    if what == "nothing":
        return {**answer, "values": {}, "types": {}}
    if what == "NaN loss":
        return {**answer, "values": {**values, "loss": float("nan")}}
    if what == "two losses":
        types = {**answer["types"], "loss": "float32 2"}
        return {**answer, "values": {**values, "loss": [values["loss"]] * 2}, "types": types}
    if what == "foreign type":
        return {**answer, "types": dict.fromkeys(values, "load")}
    assert what == "foreign model"
    return {**answer, "values": {**values, "identity": 2}}


SAID = {
    "NaN": "sent a model that is not finite",
    "infinite": "sent a model that is not finite",
    "too wide": "sent models of shape [1, 1820], not of 910 numbers each",
    "flat": "sent models of shape [910], not of 910 numbers each",
    "two models": "sent 2 models, identity (int64 []), loss (float32 []), the others 1 models, "
    "identity (int64 []), loss (float32 [])",
    "no models": "sent 0 models, identity (int64 []), loss (float32 []), the others 1 models, "
    "identity (int64 []), loss (float32 [])",
    "double": "sent models of float64, not float32",
    "text": "sent what cannot be read: AttributeError: 'str' object has no attribute 'ndim'",
    "raises": "gave no answer (Flower's error 2): ValueError",
    "silent": "did not answer within 5 seconds",
    "nothing": "sent 1 models, , the others 1 models, identity (int64 []), loss (float32 [])",
    "NaN loss": "sent a loss that is not finite",
    "two losses": "sent 1 models, identity (int64 []), loss (float32 [2]), the others 1 models, "
    "identity (int64 []), loss (float32 [])",
    "foreign type": "sent what cannot be read: TypeError: identity is of type 'load', which torch "
    "does not have",
    "foreign model": "sent identity 2, there are 0 to 1",
}


@pytest.mark.parametrize("what", SAID)
def test_a_bad_answer_is_left_out_with_a_sentence(what):
    federation, algorithm = digits(), ALGORITHMS["IFCA, Gram"][1]
    network = Network(algorithm, federation, {(2, 1): partial(broken, what)})
    far = serve(network, algorithm, 3, federation)
    assert [record["missing"] for record in far.history] == [
        [],
        [{"client": 1, "trip": 1, "why": SAID[what]}],
        [],
    ]
    assert [record["clients"] for record in far.history] == [4, 3, 4]
    assert same(far.state, without(algorithm, federation, {2: [1]}))


def test_of_two_forms_as_frequent_the_one_that_was_absorbed_before_is_right():
    """Two clients are silent, one of the other two sends too much."""
    federation, algorithm = digits(), ALGORITHMS["IFCA, Gram"][1]
    for bad, good in ((0, 3), (3, 0)):
        breaks = {(2, client): partial(broken, "silent") for client in (1, 2)}
        breaks[2, bad] = partial(broken, "two models")
        far = serve(Network(algorithm, federation, breaks), algorithm, 3, federation)
        whys = {one["client"]: one["why"] for one in far.history[1]["missing"]}
        assert sorted(whys) == sorted((1, 2, bad)), good
        assert whys[bad] == SAID["two models"]
        assert same(far.state, without(algorithm, federation, {2: [1, 2, bad]}))


def absences(run, weighs):
    """{trip: clients}, counted through all rounds, from what the records say."""
    found, before = {}, 0
    for record in run.history:
        for one in record["missing"]:
            found.setdefault(before + one["trip"], []).append(one["client"])
        before += 2 if weighs and record["round"] % 2 else 1
    return found


@THREE
@pytest.mark.parametrize("node", [101, 900], ids=["same id", "new id"])
def test_a_client_that_dies_is_missed_and_known_again(name, node):
    """Its process dies over the job of a round and is back, with no memory, for the next."""
    make, algorithm = ALGORITHMS[name]
    federation, weighs = make(), name.startswith("FedSoft")
    dies = 2 + weighs  # the first trip of round 2: FedSoft's first round has two

    class Mortal(Network):
        def ask(self, kind, parcels, timeout):
            answers = super().ask(kind, parcels, timeout)
            if kind == "train" and self.trips == dies - 1:
                self.node[1] = None  # dead, and still listed
            if kind == "train" and self.trips == dies:
                self.restart(1, node)
            return answers

    network = Mortal(algorithm, federation)
    far = serve(network, algorithm, 3, federation)
    why = "did not answer within 5 seconds"
    said = [m for record in far.history for m in record["missing"]]
    assert said == [{"client": 1, "trip": 1, "why": why}]
    assert same(far.state, without(algorithm, federation, absences(far, weighs)))


def test_a_client_that_lost_the_model_it_kept_is_sent_it_anew():
    """In the same round trip, so nobody is missing and no bit changes."""
    make, algorithm = ALGORITHMS["FedSoft"]
    federation = make()

    class Forgetful(Network):
        def ask(self, kind, parcels, timeout):
            if kind == "train":
                self.asked.append(len(parcels))
                for memory in self.memory.values():
                    memory.clear()
            return super().ask(kind, parcels, timeout)

    network = Forgetful(algorithm, federation)
    network.asked = []
    far = serve(network, algorithm, 3, federation)
    assert alike(far, cf.run(algorithm, federation, 3))
    assert len(network.asked) == 5 + 2  # for the first training they draw it


def test_a_run_whose_clients_all_fail_says_why_and_keeps_its_checkpoint(tmp_path):
    federation, algorithm = digits(), ALGORITHMS["IFCA, Gram"][1]
    breaks = {(3, client): partial(broken, "NaN") for client in range(4)}
    file, network = tmp_path / "run.pt", Network(algorithm, federation, breaks)
    with pytest.raises(RuntimeError, match=r"round 3: none of the 4 clients .*: client 0 sent a"):
        serve(network, algorithm, 3, federation, checkpoint=file)
    again = serve(Network(algorithm, federation), algorithm, 3, federation, checkpoint=file)
    assert alike(again, cf.run(algorithm, federation, 3))


def test_a_node_that_leaves_is_not_asked_and_may_come_back():
    federation, algorithm = lines(), ALGORITHMS["CFL"][1]

    class Leaving(Network):
        def nodes(self):
            return [n for n in super().nodes() if n != 102 or self.trips != 1]

    far = serve(Leaving(algorithm, federation), algorithm, 3, federation)
    missing = [{"client": 2, "trip": 1, "why": "is not connected"}]
    assert [record["missing"] for record in far.history] == [[], missing, []]
    assert far.history[1]["bytes_down"] == far.history[0]["bytes_down"] * 5 / 6
    assert same(far.state, without(algorithm, federation, {2: [2]}))


# ---------------------------------------------------------------- who is who


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"client": 6}, "calls itself client 6, there are 0 to 5"),
        ({"client": "x"}, "does not say which client it is"),
        ({"count": 0}, "client 1 says it has 0 points in 3 rows"),
        ({"settings": "IFCA(k=7)"}, r"client 1 runs other settings: IFCA\(k=7\)"),
    ],
)
def test_a_node_that_is_not_believed_is_named_when_the_wait_ends(said, sentence):
    federation, algorithm = lines(), ALGORITHMS["IFCA"][1]

    class Odd(Network):
        def one(self, client, node, kind, parcel):
            answer = super().one(client, node, kind, parcel)
            if client == 1:
                answer["numbers"] |= said
            return answer

    with pytest.raises(RuntimeError, match=rf"1 of 6 clients .* 0.2 seconds: \[1\]; .*{sentence}"):
        serve(Odd(algorithm, federation), algorithm, 3, federation, timeout=0.2)


def test_clients_may_come_late_but_not_too_late():
    federation, algorithm = lines(), ALGORITHMS["IFCA"][1]

    class Late(Network):
        start = time.monotonic()

        def nodes(self):
            return super().nodes()[: 6 if time.monotonic() > self.start + 0.2 else 2]

    assert serve(Late(algorithm, federation), algorithm, 1, federation).state.round == 1
    Late.start += 3600
    with pytest.raises(RuntimeError, match=r"4 of 6 clients .*\[2, 3, 4, 5\]"):
        serve(Late(algorithm, federation), algorithm, 1, federation, timeout=0.1)


def test_with_registered_keys_a_node_cannot_pass_for_another():
    federation, algorithm = lines(), ALGORITHMS["IFCA"][1]
    members = {100 + client: client for client in range(6)}

    class Guests(Network):
        def nodes(self):
            return [*super().nodes(), 666]

        def one(self, client, node, kind, parcel):
            assert node != 666, "a node without a registered key was talked to"
            return super().one(client, node, kind, parcel)

    far = serve(Guests(algorithm, federation), algorithm, 2, federation, members=members)
    assert alike(far, cf.run(algorithm, federation, 2))
    swapped = members | {100: 1, 101: 0}
    with pytest.raises(RuntimeError, match="node 100 calls itself client 0, its key is 1's"):
        serve(
            Network(algorithm, federation), algorithm, 2, federation, members=swapped, timeout=0.1
        )


def test_a_client_that_comes_back_with_other_data_is_refused():
    federation, algorithm = lines(), ALGORITHMS["CFL"][1]

    class Changed(Network):
        def ask(self, kind, parcels, timeout):
            if kind == "train" and self.trips == 0:
                self.restart(1, 900)
                self.train = replace(self.train, counts=self.train.counts.clamp(min=4))
            return super().ask(kind, parcels, timeout)

        def nodes(self):
            return [n for n in super().nodes() if n != 101 or self.trips == 0]

    far = serve(Changed(algorithm, federation), algorithm, 3, federation)
    missing = [m for record in far.history for m in record["missing"]]
    assert [m["client"] for m in missing] == [1, 1, 1]
    why = "is not connected; client 1 came back with 4 points, it had 3"
    assert [m["why"] for m in missing[1:]] == [why] * 2


def test_bad_arguments_are_named():
    federation, algorithm = lines(), ALGORITHMS["IFCA"][1]
    network = Network(algorithm, federation)
    for wrong, sentence in (
        ({"timeout": 0}, "timeout must be a positive number of seconds, got 0"),
        ({"federation": digits()}, "the clients hold .* those of the federation"),
    ):
        with pytest.raises(ValueError, match=sentence):
            serve(network, algorithm, 1, federation, **wrong)
    with pytest.raises(ValueError, match="clients must be at least 1, got 0"):
        flower.serve(network, algorithm, 1, clients=0)
    with pytest.raises(ValueError, match="data of one client, got 6"):
        flower.hello(algorithm, federation.train)


def test_nothing_travels_in_the_clear_beyond_this_machine():
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        first, *nodes = flower.commands(2, host=host)
        assert "--insecure" in first
        assert all("--insecure" in node for node in nodes)
    for host in ("0.0.0.0", "192.168.0.7", "example.org"):
        with pytest.raises(ValueError, match=f"got '{host}': models would travel unencrypted"):
            flower.commands(2, host=host)
        first, *nodes = flower.commands(2, host=host, tls="keys")
        assert "--enable-supernode-auth" in first
        assert "--insecure" not in sum(nodes, first)
        assert str(Path("keys") / "client-1") in nodes[1]


# ---------------------------------------------------------------- with Flower's own objects


class Grid:
    """Flower's Grid without sockets: it calls the ClientApp of each node itself."""

    def __init__(self, app, clients):
        from flwr.app import Context, RecordDict

        self.app, self.bytes = app, [0, 0]
        self.contexts = {
            500 + i: Context(0, 500 + i, {"partition-id": i}, RecordDict(), {})
            for i in range(clients)
        }

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        from flwr.app import Error, Message

        for message in messages:
            context = self.contexts[message.metadata.dst_node_id]
            self.count(0, message)
            try:
                reply = self.app(message, context)
                self.count(1, reply)
            except Exception as error:
                reply = Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
                vars(reply.metadata)["_src_node_id"] = 1  # the SuperLink speaks for a dead node
            yield reply

    def count(self, way, message):
        if message.metadata.message_type != "query":
            self.bytes[way] += sum(record.count_bytes() for record in message.content.values())


def deployed(name, rounds, file, load=None, config=None):
    """A run through server_app, client_app and the Grid above."""
    from flwr.app import Context, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    # What Flower's own processes are told when they start.
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, 0, 1

    make, algorithm = ALGORITHMS[name]
    federation = make()
    load = load or (lambda number: federation.train.take([number]))
    grid = Grid(flower.client_app(algorithm, load), len(federation))
    options = {"clients": len(federation), "federation": federation, "checkpoint": file}
    app = flower.server_app(algorithm, rounds, **options, timeout=5)
    app(grid, Context(0, 1, {}, RecordDict(), config or {}))
    with torch.serialization.safe_globals([Smooth]):
        return cf.Run.load(config["checkpoint"] if config else file), grid


@NEEDS_FLOWER
@pytest.mark.parametrize("name", ALGORITHMS)
def test_flowers_two_programs_end_with_the_same_bits(name, tmp_path):
    far, grid = deployed(name, 5, tmp_path / "run.pt")
    make, algorithm = ALGORITHMS[name]
    assert alike(far, cf.run(algorithm, make(), 5))
    if name == "FedSoft, images":
        assert all("kept" in context.state for context in grid.contexts.values())


@NEEDS_FLOWER
def test_flowers_run_config_changes_a_run(tmp_path):
    config = {"rounds": 2, "seed": 4, "checkpoint": str(tmp_path / "other.pt")}
    far, _grid = deployed("IFCA", 5, tmp_path / "run.pt", config=config)
    make, algorithm = ALGORITHMS["IFCA"]
    assert alike(far, cf.run(algorithm, make(), 2, seed=4))
    assert not (tmp_path / "run.pt").exists()


@NEEDS_FLOWER
def test_a_client_whose_code_raises_is_named(tmp_path):
    federation, calls = digits(), []

    def load(number):
        calls.append(number)
        if calls.count(1) == 3 and number == 1:  # once to say hello, once a round
            raise OSError("the disk is gone")
        return federation.train.take([number])

    far, _grid = deployed("IFCA, Gram", 3, tmp_path / "run.pt", load)
    why = "gave no answer (Flower's error 2): OSError: the disk is gone"
    missing = [{"client": 1, "trip": 1, "why": why}]
    assert [record["missing"] for record in far.history] == [[], missing, []]
    assert same(far.state, without(ALGORITHMS["IFCA, Gram"][1], federation, {2: [1]}))


@NEEDS_FLOWER
def test_a_record_that_is_no_parcel_is_a_sentence():
    from flwr.app import RecordDict

    assert flower.from_records(RecordDict()).startswith("sent what cannot be read: KeyError")
