"""Twists: what each hidden cluster does to the images and labels that its clients got.

A change is a function from images x [n, height, width] or [n, 3, height, width] (bytes) and labels
y [n] to changed ones. A twist is a list of changes, one a hidden cluster; or a function from a
:class:`~clusterfl_core.populations.deals.Table` to a :class:`Twist`, which can draw random numbers.

>>> from clusterfl_core.populations import make
>>> upside_down_or_renamed = [turn(0), turn(180), relabel([1, 0, 2, 3, 4, 5, 6, 7, 8, 9])]
>>> print(make("digits", clients=6, twist=upside_down_or_renamed))
digits, 3 kinds: 6 training clients with 239 to 240 points each, 6 test clients with 60
3 hidden clusters of [2, 2, 2] clients
"""

import math
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch.nn.functional import affine_grid, grid_sample

from clusterfl_core import check
from clusterfl_core.randomness import POPULATION, generator

__all__ = [
    "Twist", "add_noise", "cameras", "permute_labels", "relabel", "rotate", "swap_labels", "turn",
]  # fmt: skip


@dataclass(frozen=True)
class Twist:
    """The changes of all clusters, and what is known of them.

    ``changes`` is a list, one a hidden cluster; if not ``hidden``, one for equally many clients
    each that are no cluster. ``words`` go on after the name of the data set, ``truth`` goes into
    the federation's. ``on_test`` are the changes of the test data, where they are others.
    """

    changes: list
    words: str = ""
    truth: dict = field(default_factory=dict)
    hidden: bool = True
    on_test: list = None


def turn(degrees):
    """A change: images turned counterclockwise.

    Quarter turns move pixels, and a wide image becomes a high one. Other angles mean pixels
    (bilinear) and keep the shape; what enters at the corners is black.
    """
    degrees = check.number("degrees", degrees, "(-inf, inf)", "be finite")

    def change(x, y):
        if degrees % 90:
            return _tilted(x, math.radians(degrees)), y
        return torch.rot90(x, int(degrees // 90), dims=(-2, -1)), y

    return change


def _tilted(x, angle):
    (h, w), c, s = x.shape[-2:], math.cos(angle), math.sin(angle)
    planes = x.reshape(len(x), -1, h, w).to(torch.float32)
    # Where each pixel comes from, in a picture that reaches from -1 to 1 both ways.
    back = torch.tensor([[c, -s * h / w, 0], [s * w / h, c, 0]]).expand(len(x), 2, 3)
    grid = affine_grid(back, planes.shape, align_corners=False)
    turned = grid_sample(planes, grid, align_corners=False)
    return turned.round().clamp(0, 255).to(x.dtype).view_as(x)


def relabel(names):
    """A change: class c is called ``names[c]``."""
    names = check.wholes("names", names)

    def change(x, y):
        if len(y) and int(y.max()) >= len(names):
            raise ValueError(f"names must name {int(y.max()) + 1} classes, got {len(names)}")
        return x, names[y]

    return change


def rotate(angles):
    """A rotation of the images a cluster (IFCA, section 6.2).

    ``angles`` are degrees, one a cluster; or k, for k equal parts of a full turn.
    """
    if hasattr(angles, "__iter__") and getattr(angles, "ndim", 1):
        angles = check.array("angles", list(check.items("angles", angles)), None).tolist()
    else:
        angles = check.whole("clusters", angles)
        angles = [360 / angles * j for j in range(angles)]
    words = f" in {len(angles)} rotations" if len(angles) > 1 else ", upright"
    if len(angles) == 1 and angles[0] % 360:
        words = f" turned by {angles[0]:g} degrees"
    truth = {"degrees": torch.tensor(angles, dtype=torch.float64)}
    return lambda table: Twist([turn(angle) for angle in angles], words, truth)


def swap_labels(clusters):
    """Two labels change places, others in each cluster (CFL, section VI).

    "Label-swap augmentation": images and labels look alike everywhere, only p(y | x) differs. The
    paper says which labels by example ("1" and "7", "3" and "5"); here they are drawn, no label
    twice. ``truth["labels"]`` [k, classes] says what each cluster calls each class.
    """
    clusters = check.whole("clusters", clusters)

    def twist(table):
        classes = table.images.classes
        if 2 * clusters > classes:
            raise ValueError(
                f"clusters must be at most {classes // 2}, so that each swaps two of the "
                f"{classes} labels for itself; got {clusters}"
            )
        swaps = table.shuffled(classes)[: 2 * clusters].view(clusters, 2)
        labels = torch.arange(classes).repeat(clusters, 1)
        labels.scatter_(1, swaps, swaps.flip(1))
        return _relabelled(labels, f", two labels swapped in each of {clusters} clusters")

    return twist


def permute_labels(clusters):
    """All labels are permuted, another way in each cluster (CFL, figure 8, eq. 52).

    ``truth["labels"]`` [k, classes] says what each cluster calls each class; no two rows are equal.
    """
    clusters = check.whole("clusters", clusters)

    def twist(table):
        classes = table.images.classes
        check.whole("clusters", clusters, 1, math.factorial(classes))
        labels = torch.empty(0, classes, dtype=torch.int64)
        while len(labels) < clusters:
            drawn = table.shuffled(classes)
            if not (labels == drawn).all(1).any():
                labels = torch.cat([labels, drawn[None]])
        return _relabelled(labels, f", labels permuted in {clusters} ways")

    return twist


def _relabelled(labels, words):
    return Twist([relabel(names) for names in labels], words, {"labels": labels})


def cameras(strength):
    """Each client sees its images with a contrast and a brightness of its own.

    A pixel x becomes a x + b, with the contrast a uniform in [1 - strength, 1] and the brightness b
    uniform in [0, 255 (1 - a)], so that no pixel leaves the range. ``strength`` is in [0, 1]; 0
    changes nothing. ``truth["contrast"]`` and ``truth["brightness"]`` [m] hold a and b.
    """
    strength = check.number("strength", strength, "[0, 1]")

    def twist(table):
        contrast = 1 - strength * torch.rand(table.clients, generator=table.source)
        brightness = 255 * (1 - contrast) * torch.rand(table.clients, generator=table.source)

        def seen(a, b, x, y):
            return (a * x + b).round().to(torch.uint8), y

        changes = [partial(seen, a, b) for a, b in zip(contrast, brightness, strict=True)]
        words = f", own contrast and brightness (strength {strength})"
        truth = {"contrast": contrast, "brightness": brightness}
        return Twist(changes, words, truth, hidden=False)

    return twist


def add_noise(pixels=0.0, labels=0.0):
    """Noise in the pixels and in the training labels; one number, or one a cluster.

    ``pixels`` is the standard deviation of Gaussian noise as a part of the range of a pixel, in
    training and test images. ``labels`` is the chance that a training label is replaced by another
    one; test labels stay right. ``truth["noise"]`` [k, 2] holds both.
    """
    both = [
        torch.from_numpy(check.array(name, np.reshape(v, -1) if np.ndim(v) == 0 else v, None))
        for name, v in (("pixels", pixels), ("labels", labels))
    ]
    if len({len(one) for one in both} - {1}) > 1 or not all(map(len, both)):
        raise ValueError(f"pixels and labels must be as many, got {pixels} and {labels}")
    levels = torch.stack(torch.broadcast_tensors(*both), 1)
    if not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"pixels and labels must be in [0, 1], got {pixels} and {labels}")

    def twist(table):
        source = generator(POPULATION, table.seed, 2)

        def noisy(spread, wrong, x, y):
            blur = 255 * spread * torch.randn(x.shape, generator=source)
            lies = torch.rand(len(y), generator=source) < wrong
            other = y + torch.randint(1, table.images.classes, (len(y),), generator=source)
            x = (x + blur).round().clamp(0, 255).to(torch.uint8)
            return x, torch.where(lies, other % table.images.classes, y)

        return Twist(
            [partial(noisy, *level) for level in levels.tolist()],
            f", noise in pixels {pixels} and labels {labels}",
            {"noise": levels},
            on_test=[partial(noisy, spread, 0.0) for spread, _ in levels.tolist()],
        )

    return twist
