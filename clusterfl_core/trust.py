"""Which classes a saved run may name: this package's, PyTorch's layers, numbers, and the trusted.

>>> from torch import nn
>>> parts = parts_of(nn.Sequential(nn.Linear(2, 1)))
>>> sorted(part.__name__ for part in parts if issubclass(part, nn.Module))
['Linear', 'Sequential']
"""

import importlib
import inspect
from dataclasses import is_dataclass

import numpy as np
import torch
from torch import nn

__all__ = ["known_to", "parts_of"]


def known_to(trust, names):
    """The things behind the names in a file, and the names of those that nobody trusts."""
    own = {}
    for thing in trust:
        for one in [thing] if isinstance(thing, type) else parts_of(thing):
            own[f"{one.__module__}.{one.__qualname__}"] = one
    known = {name: own.get(name) or _ours(name) for name in names}
    foreign = [name for name, found in known.items() if not found]
    return [(found, name) for name, found in known.items() if found], foreign


def _ours(name):
    """What a name means, if it is a class of this package or of PyTorch's layers, or a number's."""
    module, _, word = name.rpartition(".")
    root = module.split(".")[0]
    plain = word in ("scalar", "dtype", "ndarray", "_reconstruct")
    if name != "builtins.set" and not (
        root == "clusterfl_core"
        or module.startswith("torch.nn.")
        or (root == "numpy" and (plain or module.startswith("numpy.dtypes")))
    ):
        return None
    try:
        found = getattr(importlib.import_module(module), word)
    except (ImportError, AttributeError):
        return None
    layer = isinstance(found, type) and issubclass(found, nn.Module)
    settings = root == "clusterfl_core" and isinstance(found, type) and is_dataclass(found)
    free = root in ("numpy", "builtins") or module == "torch.nn.functional"
    return found if layer or settings or free else None


def parts_of(thing):
    """The classes and named functions that a thing is made of, its own class first."""
    found, seen, waiting = {}, set(), [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, torch.Tensor | np.ndarray | str | bytes):
            continue
        seen.add(id(one))
        named = one if inspect.isroutine(one) or isinstance(one, type) else type(one)
        if getattr(named, "__module__", "builtins") != "builtins":
            found[named] = None
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        elif not inspect.isroutine(one) and not isinstance(one, type):
            waiting += getattr(one, "__dict__", {}).values()
    return list(found)
