"""Every algorithm is killed in the middle of a run and goes on from its checkpoint, bit for bit."""

import json
import multiprocessing
import random
import sys
import time
from dataclasses import fields, is_dataclass

import pytest
import torch

import clusterfl_core as cf

LINE = cf.models.LinearRegression(3)
SOLVER = cf.LocalSGD(2, 0.02, batch_size=3)
THETA = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])
ALGORITHMS = {
    "IFCA": cf.IFCA(LINE, 2, SOLVER, participation=0.5),
    "CFL": cf.CFL(LINE, eps1=0.2, eps2=0.1, local=cf.LocalSGD(2, 0.02)),
    "FedSoft": cf.FedSoft(LINE, 2, cf.LocalAdam(2, 0.01, 3), selected=3),
    "FedAvg": cf.FedAvg(LINE, SOLVER, participation=0.5),
    "LocalOnly": cf.LocalOnly(LINE, SOLVER),
    "OneShot": cf.OneShot(LINE, 2, alone=cf.LocalSGD(20, 0.05), local=SOLVER),
    "CLoVE": cf.CLoVE(LINE, 2, SOLVER, participation=0.5, patience=2),
    "FineTuned": cf.FineTuned(LINE, SOLVER, 0.5, after=2, tune=SOLVER),
    "FedEM": cf.FedEM(LINE, 2, SOLVER, participation=0.5),
}


def play(name, rounds, file=None):
    federation = cf.populations.regression(THETA, clients=6, points=8, noise=0.5)
    return cf.run(ALGORITHMS[name], federation, rounds, seed=5, checkpoint=file, progress=False)


def same(first, second):
    """Equal bit for bit, whatever they are made of."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, torch.nn.Module):
        return repr(first) == repr(second)
    if is_dataclass(first):
        names = (f.name for f in fields(first))
        return all(same(getattr(first, n), getattr(second, n)) for n in names)
    if isinstance(first, dict):
        keys = first.keys() - {"seconds"}
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in keys)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_killed_run_goes_on_bit_for_bit(name, tmp_path):
    file = tmp_path / "run.pt"
    torch.set_num_threads(1)  # a forked process has none of its parent's threads
    process = multiprocessing.get_context("fork").Process(target=play, args=(name, 10**6, file))
    process.start()
    try:
        end = time.monotonic() + 120
        while not file.exists() or not cf.Run.load(file).history:
            assert process.is_alive()
            assert time.monotonic() < end, "no round in two minutes"
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.3))
    finally:
        process.kill()  # SIGKILL: no chance to tidy up
        process.join()
    done = cf.Run.load(file).state.round
    assert done >= 1
    assert same(play(name, done + 2, file), play(name, done + 2))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_history_is_plain_json(name):
    history = play(name, 3).history
    assert json.loads(json.dumps(history)) == history


def test_same_sees_one_changed_bit():
    one, other = play("CFL", 2), play("CFL", 2)
    assert same(one, other)
    other.state.tree[0].clients[0] += 1
    assert not same(one, other)
