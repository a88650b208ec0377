"""Settings and data at the door: as plain numbers, or one sentence that says what is wrong.

>>> whole("clusters", 4.0), share("participation", 1)
(4, 1.0)
"""

import numpy as np
import torch

__all__ = ["among", "keep", "number", "numbers", "one_of", "positive"]
__all__ += ["share", "whole", "wholes"]


def whole(name, value, least=1, most=None, none=False):
    """An int in [least, most], or None where that is allowed; else ValueError."""
    if value is None and none:
        return None
    found, otherwise = _float(name, value), " or None" if none else ""
    if not found.is_integer():
        raise ValueError(f"{name} must be a whole number{otherwise}, got {value!r}")
    if found < least or (most is not None and found > most):
        bound = f"least {least}" if found < least else f"most {most}"
        raise ValueError(f"{name} must be at {bound}{otherwise}, got {value}")
    return int(value)


def number(name, value, interval, words=None):
    """A float in an interval as one writes it, "[0, 1)" or "(0, inf)"; else ValueError."""
    found, (low, high) = _float(name, value), map(float, interval[1:-1].split(","))
    ends = (found == low and "[" in interval) or (found == high and "]" in interval)
    if not (low < found < high or ends):
        raise ValueError(f"{name} must {words or f'be in {interval}'}, got {value}")
    return found


def positive(name, value):
    """A positive, finite float; else ValueError."""
    return number(name, value, "(0, inf)", "be positive and finite")


def share(name, value):
    """A fraction in (0, 1], for example of the clients; else ValueError."""
    return number(name, value, "(0, 1]")


def among(name, value, clients):
    """Refuse a number that exceeds the number of clients."""
    if value is not None and value > clients:
        raise ValueError(f"{name} must be at most the {clients} clients, got {value}")


def one_of(name, value, *choices):
    """Refuse what is none of the choices."""
    if value not in choices:
        *most, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {value!r}")


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


def wholes(name, given):
    """What was given as one int64 a client."""
    found = numbers(name, given)
    whole_ones = found.to(torch.int64)
    if found.ndim != 1 or not torch.equal(whole_ones.to(found.dtype), found):
        raise ValueError(f"{name} must be one whole number a client, got {found[:9].tolist()}")
    return whole_ones


def keep(settings, **values):
    """Set fields of a frozen dataclass, in its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def _float(name, value):
    try:
        return float("no" if isinstance(value, bool | np.bool_ | str | bytes) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
