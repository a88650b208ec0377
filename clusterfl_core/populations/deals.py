"""Deals: which client gets which images.

A deal is a function from a :class:`Table`, where everything lies that it may look at, to the
:class:`Hands` of the clients. Each function here makes one; one of your own is as good.

>>> from clusterfl_core.populations import make
>>> def nobody_writes_zero(table):
...     rows = [(y > 0).nonzero()[:, 0] for y in (table.images.y_train, table.images.y_test)]
...     return Hands(*(list(part.tensor_split(table.clients)) for part in rows))
>>> make("digits", clients=3, deal=nobody_writes_zero).train.y.unique().tolist()
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from clusterfl_core import check
from clusterfl_core.data import Images
from clusterfl_core.populations._sizes import whole_numbers
from clusterfl_core.randomness import POPULATION

__all__ = ["Hands", "Table", "anew", "by_half", "by_label", "by_quantity", "by_writer", "equal"]


@dataclass(frozen=True)
class Table:
    """What a deal or a twist may look at.

    ``images`` are the :class:`~clusterfl_core.data.Images` for m ``clients`` in k ``clusters``; a
    twist is asked first and sees k = 1. ``source`` is the generator of the population's random
    numbers, drawn from by the twist and then by the deal; ``seed`` is for random numbers of one's
    own.
    """

    images: Images
    clients: int
    clusters: int
    seed: int
    source: torch.Generator

    def shuffled(self, count):
        """The rows 0 to count - 1 in random order."""
        return torch.randperm(count, generator=self.source)


@dataclass(frozen=True)
class Hands:
    """The rows of the images that each client holds.

    ``train`` and ``test`` are lists of LongTensor, one a training or test client, rows of the
    training and of the test images; of the training images in both if ``held_out``. ``words`` go
    on after the name of the data set, ``truth`` into the federation's, and ``clusters`` [m] are the
    true ones unless a twist makes others.
    """

    train: list
    test: list
    words: str = ""
    truth: dict = field(default_factory=dict)
    clusters: torch.Tensor = None
    held_out: bool = False


def equal(points=None):
    """Each client gets an equal part at random, of the training and of the test images.

    With ``points`` it keeps only so many training images.
    """
    points = check.whole("points", points, none=True)

    def deal(table):
        y_train, y_test, clients = table.images.y_train, table.images.y_test, table.clients
        if not 1 <= clients <= len(y_test):
            raise ValueError(
                f"clients must be from 1 to {len(y_test)}, so that each holds a test image; "
                f"got {clients}"
            )
        train, test = (table.shuffled(len(y)).tensor_split(clients) for y in (y_train, y_test))
        least = min(map(len, train))
        if points is not None and not 1 <= points <= least:
            raise ValueError(
                f"points must be from 1 to the {least} images of a client, got {points}"
            )
        return Hands([rows[:points] for rows in train], test)

    return deal


def anew():
    """Every hidden cluster is dealt ALL images as evenly as they go (IFCA, section 6.2).

    Test clients are new ones who hold about as many points as the training clients.
    """

    def deal(table):
        y_train, y_test, clusters = table.images.y_train, table.images.y_test, table.clusters
        share = table.clients // clusters
        points = len(y_train) / share
        if points < 1:
            raise ValueError(
                f"clients must be at most {len(y_train) * clusters}, so that each holds an image; "
                f"got {table.clients}"
            )

        def each(y, share):
            decks = [table.shuffled(len(y)).tensor_split(share) for _ in range(clusters)]
            return [rows for deck in decks for rows in deck]

        return Hands(each(y_train, share), each(y_test, max(1, round(len(y_test) / points))))

    return deal


def by_half():
    """Of two clients one gets the first half of the classes, one the second (CFL, figure 7)."""

    def deal(table):
        if table.clients != 2:
            raise ValueError(f"clients must be 2 to hold half of the classes, got {table.clients}")

        def split(y):
            order = table.shuffled(len(y))
            late = y[order] >= table.images.classes / 2
            return [order[~late], order[late]]

        parts, one = (table.images.y_train, table.images.y_test), torch.zeros(2, dtype=torch.int64)
        return Hands(*map(split, parts), ", half of the classes on either client", clusters=one)

    return deal


def by_label(concentration):
    """Each class is dealt unevenly, by shares from a Dirichlet distribution.

    ``concentration`` is its parameter, positive: 100 is nearly even, 0.1 leaves most clients a few
    classes. Shares that leave a client without any training or test image are drawn anew, 1,000
    times at most. ``truth["shares"]`` [m, classes] tells the share of each class that each client
    holds, of the training images as of the test images.
    """
    concentration = check.positive("concentration", concentration)

    def deal(table):
        images, clients = table.images, table.clients
        draws = np.random.default_rng([POPULATION, table.seed])
        sizes = [y.bincount(minlength=images.classes) for y in (images.y_train, images.y_test)]
        for _ in range(1000):
            shares = torch.from_numpy(draws.dirichlet([concentration] * clients, images.classes))
            counts = [whole_numbers(shares, size) for size in sizes]
            if min(int(count.sum(0).min()) for count in counts) > 0:
                break
        else:
            raise ValueError(
                f"concentration {concentration} left a client without images in each of 1000 "
                f"draws; take a larger one or fewer than {clients} clients"
            )
        parts = []
        for y, count in zip((images.y_train, images.y_test), counts, strict=True):
            order = table.shuffled(len(y))
            classes = [order[y[order] == c].split(own.tolist()) for c, own in enumerate(count)]
            parts.append([torch.cat(own) for own in zip(*classes, strict=True)])
        words = f", classes dealt unevenly (Dirichlet {concentration})"
        return Hands(*parts, words, {"shares": shares.T})

    return deal


def by_quantity(exponent):
    """Client i gets about (i + 1)^-exponent of the training images of the first, at least one.

    ``exponent`` is not negative; 0 deals evenly, 1 is Zipf's law. All have as many test images.
    """
    exponent = check.number("exponent", exponent, "[0, inf)", "not be negative")

    def deal(table):
        test = equal()(table).test
        clients, images = table.clients, len(table.images.y_train)
        weights = torch.arange(1, clients + 1, dtype=torch.float64) ** -exponent
        sizes = 1 + ((images - clients) * weights / weights.sum()).to(torch.int64)
        sizes[0] += images - sizes.sum()
        train = table.shuffled(images).split(sizes.tolist())
        return Hands(train, test, f", unequal amounts (exponent {exponent})")

    return deal


def by_writer():
    """Each client is a person and holds what that person wrote (after IFCA's section 6.3, FEMNIST).

    The data set must know the facts ``writer`` and ``hsf``, as "mnist_writers" does. The writers
    are drawn among those with 10 images or more; a fifth of each one's images is held out. The true
    clusters are where a writer comes from, employees of the Census Bureau (0), who come first, or
    high school students (1). ``truth["writer"]`` [m] holds NIST's numbers of the writers.
    """

    def deal(table):
        facts, clients = table.images.facts, table.clients
        if not {"writer", "hsf"} <= set(facts):
            raise ValueError(
                "name must be a set that knows its writers, mnist_writers, "
                f"got {table.images.name!r}"
            )
        writer, series = facts["writer"][0], facts["hsf"][0]
        people, counts = writer.unique(return_counts=True)
        people = people[counts >= 10]
        if not 1 <= clients <= len(people):
            raise ValueError(f"clients must be from 1 to the {len(people)} writers, got {clients}")
        people = people[table.shuffled(len(people))[:clients]].sort().values
        students = torch.stack([(series[writer == person] == 4).any() for person in people]).long()
        order = students.argsort(stable=True)
        train, test = [], []
        for person in people[order]:
            rows = (writer == person).nonzero()[:, 0]
            rows = rows[table.shuffled(len(rows))]
            train.append(rows[len(rows) // 5 :])
            test.append(rows[: len(rows) // 5])
        truth = {"writer": people[order]}
        return Hands(train, test, ", a client is a writer", truth, students[order], held_out=True)

    return deal
