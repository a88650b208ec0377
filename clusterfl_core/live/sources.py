"""The engine's JavaScript, and scikit-learn's digits as a text that a page can carry.

>>> text = packed_digits()
>>> len(text)
88053
"""

from pathlib import Path

import torch

from clusterfl_core import check, data

__all__ = ["ENGINE", "packed_digits", "source"]

# In this order they can stand one after another in one scope.
ENGINE = (
    "check", "random", "solve", "kinds", "linear", "bowls", "digits", "patchwork", "solvers",
    "contract", "fedavg", "fine_tuned", "local_only", "grouping", "one_shot", "ifca", "clove",
    "similarity", "cfl", "fedsoft", "em", "fedem", "loop", "starts", "lab", "rivals", "missions",
)  # fmt: skip

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def source(name):
    """The text of a module of the engine, as it stands in its file."""
    check.one_of("name", name, *ENGINE)
    return (Path(__file__).parent / "engine" / f"{name}.js").read_text(encoding="utf-8")


def packed_digits():
    """All 1,797 digits as text, those for training first; engine/digits.js unpacks it.

    Four pixels of 17 grey levels are a number below 17^4 < 2^18 and so three characters of the
    base-64 alphabet. After the pixels come the labels, a digit each.
    """
    images = data.load("digits")
    x = torch.cat([images.x_train, images.x_test]).to(torch.float64)
    greys = (x * (16 / 255)).round().to(torch.int64).view(-1, 4)
    fours = (greys * torch.tensor([17**3, 17**2, 17, 1])).sum(1).tolist()
    pixels = "".join(_ALPHABET[n >> 12] + _ALPHABET[n >> 6 & 63] + _ALPHABET[n & 63] for n in fours)
    return pixels + "".join(map(str, torch.cat([images.y_train, images.y_test]).tolist()))
