"""What the package loads, and when."""

import importlib
import pickle
import subprocess
import sys

import pytest

import clusterfl_core as cf

HEAVY = ("IPython", "PIL", "flwr", "ipywidgets", "matplotlib", "scipy", "sklearn", "torchvision")


def loaded(code, *names):
    """Which of the modules a fresh interpreter holds after some code."""
    report = f"{code}\nimport sys; print(*sorted({set(names)!r} & set(sys.modules)))"
    command = [sys.executable, "-c", report]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import clusterfl_core",
        "from clusterfl_core import data, populations\npopulations.regression",
        "import clusterfl_core as cf\ncf.models.MLP, cf.LocalSGD, cf.Federation, cf.results",
        "import clusterfl_core as cf\ncf.run, cf.IFCA, cf.CFL, cf.FedSoft, cf.OneShot, cf.flower",
        "import clusterfl_core as cf\ncf.CLoVE, cf.FineTuned, cf.grouping",
        "from clusterfl_core.live import random, replay, sources",
    ],
)
def test_what_is_heavy_is_not_loaded_before_it_is_used(code):
    assert loaded(code, *HEAVY) == []


@pytest.mark.parametrize("model", ["cf.models.MLP(2, 3, 2)", "torch.nn.Linear(2, 2)"])
def test_a_run_begins_without_torchs_compiler(model):
    """A mode that watches torch's operations would load it, unless it says that it need not."""
    code = f"""
import clusterfl_core as cf, torch
world = cf.populations.conflicting_labels(8, 40, 0)
cf.run(cf.FedAvg({model}, cf.LocalSGD(2, 0.1)), world, 2, seed=0)
"""
    assert loaded(code, "torch._dynamo", "sympy", "triton") == []


def test_notebooks_are_read_without_a_grammar_of_addresses():
    """From jsonschema 4.25 on it is compiled at every start, which takes two seconds."""
    assert loaded("import nbformat", "rfc3987_syntax") == []


def test_images_are_twisted_without_a_library_of_figures_or_statistics():
    code = "import clusterfl_core as cf; cf.populations.rotated('digits', 4, 2)"
    assert loaded(code, "IPython", "ipywidgets", "matplotlib", "torchvision") == []


def test_products_are_told_to_round_alike_before_torch_is_there():
    code = "import os, clusterfl_core; assert os.environ['MKL_CBWR']"
    assert loaded(code, "torch") == []


@pytest.mark.parametrize("name", cf.__all__)
def test_every_name_is_found_and_listed(name):
    found = getattr(cf, name)
    assert name in dir(cf)
    namespace = {}
    exec(f"from clusterfl_core import {name}", namespace)
    assert namespace[name] is found
    assert getattr(cf, name) is found


@pytest.mark.parametrize("name", ["baselines", "cfl", "clove", "fedsoft", "ifca"])
def test_algorithms_have_short_names(name):
    assert getattr(cf, name) is importlib.import_module(f"clusterfl_core.algorithms.{name}")


def test_a_star_brings_all_names():
    namespace = {}
    exec("from clusterfl_core import *", namespace)
    assert set(cf.__all__) <= set(namespace)


@pytest.mark.parametrize("name", ["fedprox", "__wrapped__", "Ifca"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"module 'clusterfl_core' has no attribute '{name}'"):
        getattr(cf, name)


def test_what_is_pickled_is_found_again_by_a_fresh_interpreter():
    written = pickle.dumps(cf.LocalSGD(5, 0.1))
    code = f"import pickle; print(pickle.loads({written!r}).steps)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["5"]
