"""Images become clients: a deal says who gets what, a twist what each hidden cluster does to it.

>>> from clusterfl_core.populations.deals import by_label
>>> from clusterfl_core.populations.twists import rotate
>>> print(make("digits", clients=8, deal=by_label(1.0), twist=rotate(4)))
digits, classes dealt unevenly (Dirichlet 1.0) in 4 rotations: \
8 training clients with 108 to 255 points each, 8 test clients with 25 to 60
4 hidden clusters of [2, 2, 2, 2] clients
"""

from dataclasses import replace

import torch

from clusterfl_core import check, data
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.populations import deals, twists
from clusterfl_core.populations._sizes import check_equal, neighbours
from clusterfl_core.randomness import POPULATION, generator

__all__ = [
    "feature_skew", "halves", "label_permuted", "label_skew", "label_swapped", "make",
    "quantity_skew", "rotated", "writers",
]  # fmt: skip


def make(name, clients, *, deal=None, twist=None, seed=0):
    """A population of images: any deal with any twist.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m, a multiple of the twist's clusters k.
    deal : callable, optional
        Of :mod:`clusterfl_core.populations.deals`, or your own. Default: equal parts at random.
    twist : callable or list of callable, optional
        Of :mod:`clusterfl_core.populations.twists`, or your own: one change a hidden cluster.
        Default: none.
    seed : int
        Fixes the twist and which client holds which image.
    """
    table = _table(name, clients, seed)
    clients = table.clients
    check.function("deal", deal, none=True)
    if isinstance(twist, list):
        twist = [check.function("twist", change) for change in check.items("twist", twist, 0)]
        twisted = twists.Twist(twist, f", {len(twist)} kinds")
    else:
        check.function("twist", twist, none=True)
        twisted = twist(table) if twist else twists.Twist([lambda x, y: (x, y)], hidden=False)
    if twisted.hidden:
        check_equal(clients, len(twisted.changes))
        table = replace(table, clusters=len(twisted.changes))
    check.kind("what twist makes", twisted, twists.Twist)
    hands = (deal or deals.equal())(table)
    return _federation(table, check.kind("what deal makes", hands, deals.Hands), twisted)


def _table(name, clients, seed):
    clients, seed = check.whole("clients", clients), check.whole("seed", seed, 0)
    return deals.Table(data.load(name), clients, 1, seed, generator(POPULATION, seed))


def _federation(table, hands, twisted):
    def collect(x, y, parts, changes):
        share, rest = divmod(len(parts), len(changes))
        if rest:
            raise ValueError(
                f"deal must make equally many clients for each of the {len(changes)} changes of "
                f"the twist, got {len(parts)} of them"
            )
        xs, ys = [], []
        for j, change in enumerate(changes):
            own = parts[j * share : (j + 1) * share]
            rows, sizes = torch.cat(tuple(own)), [len(one) for one in own]
            for held, changed in zip((xs, ys), change(x[rows], y[rows]), strict=True):
                held += changed.split(sizes)
        return Clients.from_lists(xs, ys)

    images, truth = table.images, [hands.clusters] * 2
    if twisted.hidden:
        truth = [neighbours(len(parts), table.clusters) for parts in (hands.train, hands.test)]
    source = (images.x_train, images.y_train)
    other = source if hands.held_out else (images.x_test, images.y_test)
    return Federation(
        collect(*source, hands.train, twisted.changes),
        collect(*other, hands.test, twisted.on_test or twisted.changes),
        *truth,
        classes=images.classes,
        name=images.name + hands.words + twisted.words,
        truth=hands.truth | twisted.truth,
    )


# ---------------------------------------------------------------- the papers' and the field's


def rotated(name, clients, clusters, seed=0):
    """Images turned by 0, 90, 180, 270 degrees: one rotation a hidden cluster (IFCA, section 6.2).

    ``make(name, clients, deal=anew(), twist=rotate(clusters))`` with ``clusters`` k in {1, 2, 4}:
    rotations by 0; by 0 and 180; by 0, 90, 180 and 270 degrees. Every image is used once in each.
    """
    clients, clusters = check_equal(clients, clusters)
    if clusters not in (1, 2, 4):
        raise ValueError(f"clusters must be 1, 2 or 4 (quarter turns), got {clusters}")
    return make(name, clients, deal=deals.anew(), twist=twists.rotate(clusters), seed=seed)


def label_swapped(name, clients, clusters, seed=0, points=None):
    """Images whose labels two and two change places: two labels a hidden cluster (CFL, section VI).

    ``make(name, clients, deal=equal(points), twist=swap_labels(clusters))`` (with ``points``:
    figure 5).
    """
    return make(
        name, clients, deal=deals.equal(points), twist=twists.swap_labels(clusters), seed=seed
    )


def label_permuted(name, clients, clusters, seed=0):
    """Images whose labels are permuted: one permutation a hidden cluster (CFL, figure 8, eq. 52).

    ``make(name, clients, twist=permute_labels(clusters))``. The paper tests every client on all
    test images (eq. 53); here each has its own equal part of them, with the same mean over the
    clients.
    """
    return make(name, clients, twist=twists.permute_labels(clusters), seed=seed)


def halves(name, seed=0):
    """Two clients, one with the first half of the classes, one with the second (CFL, figure 7).

    ``make(name, 2, deal=by_half())``. Very different data, yet CONGRUENT: one model can serve both,
    so no split is due. The incongruent counterpart is ``label_swapped(name, clients=2,
    clusters=2)``.
    """
    return make(name, 2, deal=deals.by_half(), seed=seed)


def writers(name, clients, seed=0):
    """Clients that are persons: ``make(name, clients, deal=by_writer())`` (IFCA, section 6.3).

    Nobody made these clusters, and nobody knows whether they matter.
    """
    return make(name, clients, deal=deals.by_writer(), seed=seed)


def label_skew(name, clients, concentration, seed=0):
    """Clients that see different classes: ``make(name, clients, deal=by_label(concentration))``."""
    return make(name, clients, deal=deals.by_label(concentration), seed=seed)


def quantity_skew(name, clients, exponent, seed=0):
    """Clients that hold much or little: ``make(name, clients, deal=by_quantity(exponent))``."""
    return make(name, clients, deal=deals.by_quantity(exponent), seed=seed)


def feature_skew(name, clients, strength, seed=0):
    """Clients with different cameras: equal parts, seen as :func:`cameras` (strength) says."""
    table, twist = _table(name, clients, seed), twists.cameras(strength)
    hands = deals.equal()(table)  # before the cameras are drawn: the numbers of earlier runs stay
    return _federation(table, hands, twist(table))
