"""Flower's simulation engine, in which Ray plays the clients: equal bits."""

import importlib.util

import pytest
from flower_lab import Lab
from flower_small import CASES
from test_flower_deployment import PATIENCE, app, assert_alike, near

import clusterfl_core as cf

pytestmark = pytest.mark.deployment


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs flwr[simulation]")
@pytest.mark.parametrize("case", CASES)
def test_flowers_simulation_ends_with_the_same_bits(tmp_path, case):
    file = tmp_path / "run.pt"
    with Lab(tmp_path, clients=3, port=18380, simulation=True) as lab:
        lab.simulate(app(tmp_path / "app", case), 2, file, PATIENCE)
    assert file.exists(), lab.text()[-6000:]
    far = cf.Run.load(file)
    assert_alike(far, near(case, 2))
    print(case, [record["seconds"] for record in far.history])
