"""What a graphics card computes is what the processor computes; skipped where there is none."""

import pytest
import torch

import clusterfl_core as cf
from clusterfl_core import machine
from clusterfl_core.banks import Bank

card = pytest.mark.skipif(not torch.cuda.is_available(), reason="no card that CUDA reaches")

MLP, CONV = cf.models.MLP(64, 16, 10), cf.models.CFLConvNet(1, 8, 10)
SGD = cf.LocalSGD(5, 0.1)
ADAM = cf.LocalAdam(step_size=1e-3, batch_size=10, epochs=1)
ROTATED = {"name": "digits", "clients": 20, "clusters": 4}
MIXED = {"name": "digits", "clients": 20, "clusters": 2, "pattern": "10:90", "points": (40, 60)}
RUNS = {
    "IFCA in Gram form": (cf.IFCA(MLP, 4, SGD), cf.populations.rotated, ROTATED),
    "IFCA of convolutions": (cf.IFCA(CONV, 4, SGD), cf.populations.rotated, ROTATED),
    "FedAvg in batches": (
        cf.FedAvg(MLP, cf.LocalSGD(epochs=1, batch_size=10, step_size=0.1)),
        cf.populations.rotated,
        ROTATED,
    ),
    "CFL": (cf.CFL(CONV, 0.1, 0.5, local=SGD), cf.populations.label_swapped, ROTATED),
    "FedSoft": (cf.FedSoft(MLP, 2, ADAM, 0.1, 12), cf.populations.mixed, MIXED),
    "FedEM": (cf.FedEM(MLP, 2, ADAM), cf.populations.mixed, MIXED),
}


@card
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_the_card_is_the_run_on_the_processor(name):
    algorithm, make, settings = RUNS[name]
    there, here = (cf.run(algorithm, make(**settings), 3, device=d) for d in ("auto", "cpu"))
    for one, other in zip(there.history, here.history, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=2e-3)
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.02)
    for tensor, other in zip(
        there.models.tensors.values(), here.models.tensors.values(), strict=True
    ):
        assert tensor.device.type == "cpu"
        assert (tensor - other).norm() < 0.01 * other.norm()


@card
def test_a_trial_on_the_card_is_the_trial_on_the_processor():
    settings = {"scale": 1.0, "noise": 0.1, "clients": 20, "points": 40, "features": 20}
    settings |= {"clusters": 2, "steps": [0.1, 0.01], "rounds": 50}
    there, here = (cf.trials.success_trial(**settings, device=d) for d in ("cuda", "cpu"))
    for key in ("success", "success_nearest", "diverged", "identity_accuracy"):
        assert there[key] == here[key]
    for one, other in zip(there["matched"], here["matched"], strict=True):
        assert one == pytest.approx(other, rel=1e-3)


@card
def test_auto_takes_the_card():
    assert machine.named_device("auto").type == "cuda"


def test_a_batch_on_a_card_is_as_large_as_its_memory_allows(monkeypatch):
    bank = Bank.fresh(cf.models.MLP(784, 200, 10), 4, seed=0)
    clients = cf.Clients(torch.zeros(2, 50, 784), torch.zeros(2, 50, dtype=torch.int64), [50, 50])
    monkeypatch.setattr(machine, "free_memory", lambda device="cpu": 128 * 2**30)
    assert machine.chunk_size(bank, clients) <= machine.LARGEST_CHUNK
    large = machine.chunk_size(bank, clients, "cuda")
    assert machine.LARGEST_CHUNK < large < machine.LARGEST_ON_GPU
    monkeypatch.setattr(machine, "free_memory", lambda device="cpu": 2**40)
    assert machine.chunk_size(bank, clients, "cuda") == machine.LARGEST_ON_GPU
