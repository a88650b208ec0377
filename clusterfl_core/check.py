"""Settings and data at the door: as plain numbers, or one sentence that says what is wrong.

>>> whole("clusters", 4.0), share("participation", 1)
(4, 1.0)
"""

from dataclasses import replace

import numpy as np
import torch

__all__ = ["among", "array", "blame", "flag", "function", "items", "keep", "kind", "labelled"]
__all__ += ["number", "numbers", "one_of", "positive", "reals", "rows", "share", "shown", "solver"]
__all__ += ["taken", "tensor", "text", "whole", "wholes"]

LARGEST = 2**63 - 1  # what a tensor of whole numbers can hold


def shown(value):
    """What was given, in at most some 80 characters of one line."""
    try:
        words = " ".join(repr(value).split())
    except Exception:  # a stranger's object may not even say what it is
        words = type(value).__name__
    return words if len(words) <= 80 else f"{words[:77]}..."


def whole(name, value, least=1, most=LARGEST, none=False):
    """An int in [least, most], or None where that is allowed; else ValueError."""
    if value is None and none:
        return None
    found, otherwise = _float(name, value), " or None" if none else ""
    if not found.is_integer():
        raise ValueError(f"{name} must be a whole number{otherwise}, got {shown(value)}")
    found = int(value)
    if not least <= found <= most:
        bound = f"least {least}" if found < least else f"most {most}"
        raise ValueError(f"{name} must be at {bound}{otherwise}, got {shown(value)}")
    return found


def number(name, value, interval, words=None):
    """A float in an interval as one writes it, "[0, 1)" or "(0, inf)"; else ValueError."""
    found, (low, high) = _float(name, value), map(float, interval[1:-1].split(","))
    ends = (found == low and "[" in interval) or (found == high and "]" in interval)
    if not (low < found < high or ends):
        raise ValueError(f"{name} must {words or f'be in {interval}'}, got {shown(value)}")
    return found


def positive(name, value):
    """A positive, finite float; else ValueError."""
    return number(name, value, "(0, inf)", "be positive and finite")


def share(name, value):
    """A fraction in (0, 1], for example of the clients; else ValueError."""
    return number(name, value, "(0, 1]")


def among(name, value, clients):
    """Refuse a number that exceeds the number of clients."""
    if value is not None and value > whole("clients", clients):
        raise ValueError(f"{name} must be at most the {clients} clients, got {value}")


def one_of(name, value, *choices):
    """Refuse what is none of the choices."""
    plain = isinstance(value, str | int | float | np.bool_ | None)
    if not plain or value not in choices:
        *most, last = map(repr, choices)
        words = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{name} must be {words}, got {shown(value)}")
    return value


def flag(name, value):
    """True or False; else ValueError."""
    return bool(one_of(name, value, True, False))


def text(name, value):
    """Refuse what is no text; else the text."""
    return kind(name, value, str)


def kind(name, value, *classes, none=False):
    """The value, if it is an object of one of these classes (or None, if allowed); else TypeError.

    >>> kind("federation", "digits", dict, list)
    Traceback (most recent call last):
    TypeError: federation must be a dict or a list, got 'digits'
    """
    if not (isinstance(value, classes) or (none and value is None)):
        names = [one.__name__ for one in classes]
        words = " or ".join(f"{'an' if name[0] in 'AEIO' else 'a'} {name}" for name in names)
        got = f"the class {value.__name__}" if isinstance(value, type) else shown(value)
        raise TypeError(f"{name} must be {words}{' or None' if none else ''}, got {got}")
    return value


def solver(name, value):
    """The value, if it trains clients' models, whoever wrote it; else TypeError.

    What the book's own solvers have besides is in :class:`clusterfl_core.solvers.LocalSolver`.
    """
    trains = callable(getattr(value, "train", None)) and not hasattr(value, "state_dict")
    if isinstance(value, type) or not trains:
        got = f"the class {value.__name__}" if isinstance(value, type) else shown(value)
        raise TypeError(f"{name} must be a LocalSolver, or another object that trains, got {got}")
    return value


def function(name, value, none=False):
    """The value, if it can be called (or None, if allowed); else TypeError."""
    if not (callable(value) or (none and value is None)):
        raise TypeError(f"{name} must be a function, got {shown(value)}")
    return value


def items(name, value, least=1):
    """What a sequence or another iterable holds, as a list, at least so many; else TypeError."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a list, got {shown(value)}")
    found = list(value)
    if len(found) < least:
        raise ValueError(f"{name} must hold at least {least}, got {len(found)}")
    return found


def array(name, given, *axes):
    """Finite numbers with so many axes, as a float64 ndarray; else ValueError.

    An axis is None, or the length that it must have.
    """
    found = reals(name, given)
    wrong = any(a is not None and a != n for a, n in zip(axes, found.shape, strict=False))
    if found.ndim != len(axes) or wrong:
        form = ", ".join("any" if axis is None else str(axis) for axis in axes)
        raise ValueError(f"{name} must have the shape [{form}], got {list(found.shape)}")
    return found


def reals(name, given, finite=True):
    """Numbers of any shape as a float64 ndarray, all finite if so asked; else ValueError."""
    try:
        given = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else given
        found = np.asarray(given)
        found = found.astype(float) if found.dtype.kind in "fiub" else None
    except (TypeError, ValueError, RuntimeError):
        found = None
    if found is None:
        raise ValueError(f"{name} must be an array of plain numbers, got {shown(given)}")
    if finite and not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite, got {shown(found.tolist())}")
    return found


def numbers(name, given):
    """A tensor, an array or lists as a tensor of plain numbers; else ValueError."""
    try:
        found = given.detach() if isinstance(given, torch.Tensor) else torch.tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = torch.zeros((), dtype=torch.complex64)
    if found.is_complex() or found.layout != torch.strided or not found.ndim:
        raise ValueError(
            f"{name} must be an array of plain numbers, got {type(given).__name__}; clients of "
            "different sizes are padded by Clients.from_lists"
        )
    return found


def tensor(name, value, *axes):
    """A tensor with these axes, each a length or a letter for any; else TypeError or ValueError."""
    found = kind(name, value, torch.Tensor).shape
    wrong = any(isinstance(a, int) and a != n for a, n in zip(axes, found, strict=False))
    if len(found) != len(axes) or wrong:
        form = ", ".join(map(str, axes))
        raise ValueError(f"{name} must be [{form}], got shape {list(found)}")
    return value


def wholes(name, given):
    """What was given as one int64 a client."""
    found = numbers(name, given)
    whole_ones = found.to(torch.int64)
    if found.ndim != 1 or not torch.equal(whole_ones.to(found.dtype), found):
        raise ValueError(f"{name} must be one whole number a client, got {shown(given)}")
    return whole_ones


def rows(name, given, count):
    """Which of so many rows are taken: their numbers, or one True or False for each."""
    found = given if isinstance(given, torch.Tensor) else numbers(name, given)
    if found.ndim != 1 or found.is_floating_point():
        return wholes(name, found)
    if found.dtype == torch.bool:
        if len(found) != count:
            raise ValueError(f"{name} must be {count} times True or False, got {len(found)}")
        return found.nonzero()[:, 0]
    return found


def taken(pick, given, count, what):
    """What ``pick`` makes of a function that takes the given rows, of so many; else ValueError."""
    found = rows("rows", given, count)
    try:
        return pick(lambda one: one[found])
    except IndexError:
        named = shown(found.tolist())
        raise ValueError(f"rows must be of {count} {what}, got {named}") from None


def labelled(part, clients, classes):
    """The same clients with labels as int64, or with responses as floating-point numbers."""
    y, label = clients.y, clients.y.to(torch.int64)
    if not classes:
        return clients if y.is_floating_point() else replace(clients, y=y.to(torch.float32))
    if not torch.equal(label.to(y.dtype), y):
        blame(f"{part} y must be whole numbers, for they are labels", clients, y, label != y)
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise ValueError(f"{part} labels go from {low} to {high}, allowed are 0 to {classes - 1}")
    return replace(clients, y=label)


def blame(sentence, clients, values, wrong):
    """Refuse data [m, n, ...] and name its first wrong point."""
    row, point, *where = wrong.nonzero()[0].tolist()
    padding = " (padding)" if point >= int(clients.counts[row]) else ""
    raise ValueError(
        f"{sentence}, client {int(clients.ids[row])} has {values[(row, point, *where)].item()} in "
        f"point {point}{padding}"
    )


def keep(settings, **values):
    """Set fields of a frozen dataclass, in its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def _float(name, value):
    try:
        boolean = getattr(value, "dtype", None) is torch.bool
        none = boolean or isinstance(value, bool | np.bool_ | str | bytes)
        return float("no" if none or getattr(value, "ndim", 0) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be a number, got {shown(value)}") from None
