"""Flower's own programs on this machine: equal bits, killed clients, a killed SuperLink."""

import importlib.util
import time
from dataclasses import replace
from functools import partial

import flower_lab
import pytest
from flower_lab import Lab, rounds_in, wait
from flower_small import CASES
from test_flower import without
from test_killed import same

import clusterfl_core as cf

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(
        importlib.util.find_spec("flwr") is None,
        reason="Flower is not installed; `make test-deployment` installs it and runs this",
    ),
]
app = partial(flower_lab.app, cases="flower_small")
PATIENCE = 400  # seconds: each message starts a process that imports PyTorch


def near(case, rounds):
    federation, algorithm = CASES[case]
    return cf.run(algorithm, federation, rounds)


def assert_alike(far, close):
    history = [{k: v for k, v in record.items() if k != "missing"} for record in far.history]
    assert same(replace(far, history=history), close)


def ended(process, lab):
    wait(lambda: process.poll() is not None, PATIENCE, lab)
    return process.returncode


def test_a_deployment_ends_with_the_same_bits(tmp_path):
    """FedSoft; IFCA and CFL do so below, with clients that fail and a server that is killed."""
    file, started = tmp_path / "run.pt", time.monotonic()
    with Lab(tmp_path, clients=3, port=18300) as lab:
        process = lab.submit(app(tmp_path / "app", "FedSoft"), 2, file)
        assert ended(process, lab) == 0, lab.text()[-6000:]
    far = cf.Run.load(file)
    assert_alike(far, near("FedSoft", 2))
    assert [record["missing"] for record in far.history] == [[], []]
    seconds = [round(record["seconds"], 1) for record in far.history]
    print(f"FedSoft: {seconds} s a round, {time.monotonic() - started:.0f} s in all")


def test_a_killed_client_is_missed_and_known_again_when_it_is_back(tmp_path):
    file = tmp_path / "run.pt"
    with Lab(tmp_path, clients=3, port=18320) as lab:
        process = lab.submit(app(tmp_path / "app", "IFCA"), 4, file)
        wait(lambda: rounds_in(file) == 1, PATIENCE, lab)
        lab.kill(2)  # client 1
        wait(lambda: rounds_in(file) == 2, PATIENCE, lab)
        lab.start(2)
        assert ended(process, lab) == 0, lab.text()[-6000:]
    far = cf.Run.load(file)
    missing = [record["missing"] for record in far.history]
    print(missing, [record["seconds"] for record in far.history])
    assert missing[0] == []
    assert {one["client"] for round in missing for one in round} == {1}
    assert missing[-1] == []
    for why in (one["why"] for round in missing for one in round):
        assert "Flower's error" in why or why.startswith("is not connected")


BAD = """
import time


class IFCA(cf.IFCA):  # what the server asks about, the name and the settings, stays the same
    def client_step(self, jobs, clients):
        replies, client = super().client_step(jobs, clients), int(clients.ids[0])
        if not jobs.round or client == 2:
            return replies
        if jobs.round == 1 and client == 0:
            bank = replies.bank.map(lambda tensor: tensor * float("nan"))
        elif jobs.round == 1:
            bank = cf.banks.Bank.fresh(cf.models.LinearRegression(3), 1, seed=0)
        elif client == 0:
            raise OSError("the disk is gone")
        else:
            time.sleep(10_000)
        return cf.contract.Replies(replies.clients, bank, replies.values)


bad = IFCA(**{name: getattr(algorithm, name) for name in algorithm.__dataclass_fields__})
client = cf.flower.client_app(bad, lambda number: federation.train.take([number]))
"""


def test_clients_that_send_nan_a_wrong_shape_an_error_and_nothing(tmp_path):
    file = tmp_path / "run.pt"
    with Lab(tmp_path, clients=3, port=18330) as lab:
        process = lab.submit(app(tmp_path / "app", "IFCA", BAD), 3, file, "timeout=100.0")
        assert ended(process, lab) == 0, lab.text()[-6000:]
    far = cf.Run.load(file)
    first, *rest = [record["missing"] for record in far.history]
    print(rest, [round(record["seconds"]) for record in far.history])
    assert first == []
    parts = [["not finite", "sent models of shape [1, 3], not of 2 numbers each"]]
    parts += [["the disk is gone", "did not answer within 100"]]
    for missing, said in zip(rest, parts, strict=True):
        whys = {one["client"]: one["why"] for one in missing}
        assert sorted(whys) == [0, 1], missing
        assert all(part in whys[client] for client, part in enumerate(said)), missing
    told = {k: v for k, v in far.history[0].items() if k != "missing"}
    assert same(told, near("IFCA", 1).history[0])  # before anybody fails
    federation, algorithm = CASES["IFCA"]
    assert same(far.state, without(algorithm, federation, {2: [0, 1], 3: [0, 1]}, 3))


def test_a_killed_superlink_costs_no_round_that_was_done(tmp_path):
    file = tmp_path / "run.pt"
    with Lab(tmp_path, clients=3, port=18340) as lab:
        process = lab.submit(app(tmp_path / "app", "CFL"), 3, file)
        wait(lambda: rounds_in(file) == 1, PATIENCE, lab)
        for number in range(4):
            lab.kill(number)
        ended(process, lab)
    assert rounds_in(file) == 1
    with Lab(tmp_path, clients=3, port=18360) as lab:
        process = lab.submit(tmp_path / "app", 3, file)
        assert ended(process, lab) == 0, lab.text()[-6000:]
    far = cf.Run.load(file)
    assert_alike(far, near("CFL", 3))
    assert [record["missing"] for record in far.history] == [[], [], []]
