"""Every module shows an example that a reader can paste."""

import doctest
import importlib
import pkgutil

import pytest

import clusterfl_core

MODULES = [module.name for module in pkgutil.iter_modules(clusterfl_core.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run_and_print_what_they_say(name):
    module = importlib.import_module(f"clusterfl_core.{name}")
    failed, attempted = doctest.testmod(module)
    assert attempted
    assert not failed
