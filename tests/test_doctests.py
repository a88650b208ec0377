"""Every module shows an example that a reader can paste."""

import doctest
import importlib
import pkgutil

import pytest

import clusterfl_core

MODULES = [
    module.name
    for module in pkgutil.walk_packages(clusterfl_core.__path__, "clusterfl_core.")
    if not module.name.startswith("clusterfl_core.stored")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run_and_print_what_they_say(name):
    module = importlib.import_module(name)
    failed, attempted = doctest.testmod(module)
    inner = name.count(".") > 1 or name == "clusterfl_core.algorithms"  # a room has one, at least
    assert attempted or inner
    assert not failed
