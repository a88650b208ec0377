"""One data set becomes a population of clients, with the truth kept for evaluation.

Each function returns a :class:`~clusterfl_core.clients.Federation`; printing it says in words
what was made. One seed gives one population, and the clients of a hidden cluster are neighbours:
client i belongs to cluster i k // m.

>>> federation = label_swapped("digits", clients=8, clusters=4, seed=0)
>>> print(federation)  # doctest: +NORMALIZE_WHITESPACE
digits, two labels swapped in each of 4 clusters:
8 training clients with 179 to 180 points each, 8 test clients with 45
4 hidden clusters of [2, 2, 2, 2] clients
>>> federation.truth["labels"][0]  # what the first cluster calls the digits 0 to 9
tensor([0, 1, 5, 3, 4, 2, 6, 7, 8, 9])

Test clients are of three kinds, as in the papers:

* NEW clients of the same clusters, who never trained: :func:`rotated` (IFCA's Table 1);
* the TRAINING clients, by the same ids, each with data of its own distribution that it did not
  train on: :func:`label_swapped`, :func:`label_permuted`, :func:`halves`, :func:`writers`,
  :func:`next_words`, the skews and the toy problems in the plane;
* one PURE client a cluster: the regressions and the mixtures (FedSoft's hold-out sets). What a
  model scores on the mixture of client i is the mean of its scores on these, weighted by
  ``truth["mixture"][i]``.
"""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from clusterfl_core import data
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.randomness import POPULATION, generator


def _check_sizes(clients, clusters):
    if clusters < 1:
        raise ValueError(f"clusters must be at least 1, got {clusters}")
    if clusters > clients:
        raise ValueError(f"clusters must be at most the {clients} clients, got {clusters}")


def _check_equal(clients, clusters):
    _check_sizes(clients, clusters)
    if clients % clusters:
        raise ValueError(f"clients must be a multiple of the {clusters} clusters, got {clients}")


def rotated(name, clients, clusters, seed=0):
    """Images turned by 0, 90, 180, 270 degrees: one rotation a hidden cluster (IFCA, section 6.2).

    Every training image is used once in each rotation: within a rotation the images are dealt at
    random to its clients, as evenly as they go. Test images are dealt the same way to test
    clients of about as many points.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m, a multiple of ``clusters``.
    clusters : int
        k in {1, 2, 4}: rotations by 0; by 0 and 180; by 0, 90, 180 and 270 degrees.
    seed : int
        Fixes which client holds which image.

    Returns
    -------
    Federation
        Clients of one rotation are neighbours: client i belongs to cluster i k // m.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_equal(clients, clusters)
    if clusters not in (1, 2, 4):
        raise ValueError(f"clusters must be 1, 2 or 4 (quarter turns), got {clusters}")
    images = data.load(name)
    share = clients // clusters
    points = len(images.y_train) / share
    if points < 1:
        raise ValueError(
            f"clients must be at most {len(images.y_train) * clusters}, so that each holds an "
            f"image; got {clients}"
        )
    test_share = max(1, round(len(images.y_test) / points))
    source = generator(POPULATION, seed)
    train = _deal_rotations(images.x_train, images.y_train, share, clusters, source)
    test = _deal_rotations(images.x_test, images.y_test, test_share, clusters, source)
    return Federation(
        train,
        test,
        clusters=torch.arange(clusters).repeat_interleave(share),
        test_clusters=torch.arange(clusters).repeat_interleave(test_share),
        classes=images.classes,
        name=f"{name} in {clusters} rotations" if clusters > 1 else f"{name}, upright",
    )


def _deal_rotations(x, y, share, clusters, source):
    xs, ys = [], []
    for j in range(clusters):
        turned = torch.rot90(x, j * 4 // clusters, dims=(-2, -1))
        for rows in torch.randperm(len(y), generator=source).tensor_split(share):
            xs.append(turned[rows])
            ys.append(y[rows])
    return Clients.from_lists(xs, ys)


def label_swapped(name, clients, clusters, seed=0, points=None):
    """Images whose labels two and two change places: two labels a hidden cluster (CFL, section VI).

    "Label-swap augmentation": each client gets an equal random part of the images; then all clients
    of a cluster call one class by the name of another and the other way round. Images and labels
    look alike everywhere, only p(y | x) differs. The paper says which labels by example ("1" and
    "7", "3" and "5"); here they are drawn, no label twice.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m, a multiple of ``clusters``.
    clusters : int
        k, at most half the number of classes.
    seed : int
        Fixes the swaps and which client holds which image.
    points : int, optional
        n, how many of its images each client keeps (figure 5). Default: all.

    Returns
    -------
    Federation
        ``truth["labels"]`` [k, classes] says what each cluster calls each class.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_equal(clients, clusters)
    images = data.load(name)
    if 2 * clusters > images.classes:
        raise ValueError(
            f"clusters must be at most {images.classes // 2}, so that each swaps two of the "
            f"{images.classes} labels for itself; got {clusters}"
        )
    source = generator(POPULATION, seed)
    swaps = torch.randperm(images.classes, generator=source)[: 2 * clusters].view(clusters, 2)
    labels = torch.arange(images.classes).repeat(clusters, 1)
    labels.scatter_(1, swaps, swaps.flip(1))
    words = f"{name}, two labels swapped in each of {clusters} clusters"
    return _relabelled(images, clients, labels, source, words, points)


def label_permuted(name, clients, clusters, seed=0):
    """Images whose labels are permuted: one permutation a hidden cluster (CFL, figure 8, eq. 52).

    The paper tests every client on all test images (eq. 53); here each has its own equal part of
    them, with the same mean over the clients.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m, a multiple of ``clusters``.
    clusters : int
        k.
    seed : int
        Fixes the permutations and which client holds which image.

    Returns
    -------
    Federation
        ``truth["labels"]`` [k, classes] says what each cluster calls each class; no two rows are
        equal.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_equal(clients, clusters)
    images = data.load(name)
    source, labels = generator(POPULATION, seed), torch.empty(0, images.classes, dtype=torch.int64)
    while len(labels) < clusters:
        drawn = torch.randperm(images.classes, generator=source)
        if not (labels == drawn).all(1).any():
            labels = torch.cat([labels, drawn[None]])
    words = f"{name}, labels permuted in {clusters} ways"
    return _relabelled(images, clients, labels, source, words)


def _relabelled(images, clients, labels, source, words, points=None):
    train, test = _even_parts(images, clients, source)
    if points is not None:
        if not 1 <= points <= min(map(len, train)):
            raise ValueError(
                f"points must be from 1 to the {min(map(len, train))} images of a client, "
                f"got {points}"
            )
        train = [rows[:points] for rows in train]
    clusters = torch.arange(len(labels)).repeat_interleave(clients // len(labels))

    def collect(x, y, parts):
        ys = [own[y[rows]] for own, rows in zip(labels[clusters], parts, strict=True)]
        return Clients.from_lists([x[rows] for rows in parts], ys)

    return Federation(
        collect(images.x_train, images.y_train, train),
        collect(images.x_test, images.y_test, test),
        clusters=clusters,
        test_clusters=clusters,
        classes=images.classes,
        name=words,
        truth={"labels": labels},
    )


def _even_parts(images, clients, source):
    """Rows of training and of test images for each client, dealt at random."""
    if not 1 <= clients <= len(images.y_test):
        raise ValueError(
            f"clients must be from 1 to {len(images.y_test)}, so that each holds a test image; "
            f"got {clients}"
        )
    return [
        torch.randperm(len(y), generator=source).tensor_split(clients)
        for y in (images.y_train, images.y_test)
    ]


def _pick(x, y, parts):
    """Clients that hold these rows each."""
    return Clients.from_lists([x[rows] for rows in parts], [y[rows] for rows in parts])


def halves(name, seed=0):
    """Two clients, one with the first half of the classes, one with the second (CFL, figure 7).

    Very different data, yet CONGRUENT: one model can serve both, so no split is due. The
    incongruent counterpart is ``label_swapped(name, clients=2, clusters=2)``.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    seed : int
        Fixes the order of the images.

    Returns
    -------
    Federation
        Both clients belong to cluster 0.
    """
    images, source = data.load(name), generator(POPULATION, seed)

    def split(x, y):
        order = torch.randperm(len(y), generator=source)
        late = y[order] >= images.classes / 2
        return _pick(x, y, [order[~late], order[late]])

    together = torch.zeros(2, dtype=torch.int64)
    return Federation(
        split(images.x_train, images.y_train),
        split(images.x_test, images.y_test),
        clusters=together,
        test_clusters=together,
        classes=images.classes,
        name=f"{name}, half of the classes on either client",
    )


def writers(name, clients, seed=0):
    """Images by who wrote them: a client is a person (after IFCA's section 6.3, FEMNIST).

    Nobody made these clusters, and nobody knows whether they matter: the truth names the group a
    writer comes from, employees of the Census Bureau (0) or high school students (1). A fifth of
    each writer's images is held out.

    Parameters
    ----------
    name : str
        A data set with the facts ``writer`` and ``hsf``: "mnist_writers".
    clients : int
        m, how many writers, drawn at random. Employees come first.
    seed : int
        Fixes the writers and the images held out.

    Returns
    -------
    Federation
        ``truth["writer"]`` [m] holds NIST's numbers of the writers.

    Raises
    ------
    ValueError
        If the data set knows no writers, or too few with 10 images or more.
    """
    images = data.load(name)
    if not {"writer", "hsf"} <= set(images.facts):
        raise ValueError(f"name must be a set that knows its writers, mnist_writers, got {name!r}")
    writer, series = images.facts["writer"][0], images.facts["hsf"][0]
    people, counts = writer.unique(return_counts=True)
    people = people[counts >= 10]
    if not 1 <= clients <= len(people):
        raise ValueError(f"clients must be from 1 to the {len(people)} writers, got {clients}")
    source = generator(POPULATION, seed)
    people = people[torch.randperm(len(people), generator=source)[:clients]].sort().values
    students = torch.stack([(series[writer == person] == 4).any() for person in people])
    order = students.to(torch.int64).argsort(stable=True)
    people, clusters = people[order], students[order].to(torch.int64)
    train, test = [], []
    for person in people:
        rows = (writer == person).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=source)]
        train.append(rows[len(rows) // 5 :])
        test.append(rows[: len(rows) // 5])
    return Federation(
        _pick(images.x_train, images.y_train, train),
        _pick(images.x_train, images.y_train, test),
        clusters=clusters,
        test_clusters=clusters,
        classes=images.classes,
        name=f"{name}, a client is a writer",
        truth={"writer": people},
    )


def label_skew(name, clients, concentration, seed=0):
    """Clients that see different classes: the images of each class are dealt unevenly.

    For each class the clients' shares are drawn from a Dirichlet distribution. The smaller its
    parameter, the fewer clients hold nearly all of a class.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m.
    concentration : float
        The parameter, positive: 100 is nearly even, 0.1 leaves most clients a few classes.
    seed : int
        Fixes the shares and the images. Shares that leave a client without any training or test
        image are drawn anew.

    Returns
    -------
    Federation
        Without clusters. ``truth["shares"]`` [m, classes]: the share of each class that each
        client holds, of the training images as of the test images.

    Raises
    ------
    ValueError
        If an argument is out of bounds, or in 1,000 draws some client always went empty.
    """
    images = data.load(name)
    if clients < 1:
        raise ValueError(f"clients must be at least 1, got {clients}")
    if not concentration > 0:
        raise ValueError(f"concentration must be positive, got {concentration}")
    draws, source = np.random.default_rng([POPULATION, seed]), generator(POPULATION, seed)
    parts = [(images.x_train, images.y_train), (images.x_test, images.y_test)]
    sizes = [y.bincount(minlength=images.classes) for _, y in parts]
    for _ in range(1000):
        shares = torch.from_numpy(draws.dirichlet([concentration] * clients, images.classes))
        cuts = [(shares.cumsum(1)[:, :-1] * size[:, None]).round().long() for size in sizes]
        held = [
            cut.diff(dim=1, prepend=torch.zeros(len(cut), 1).long(), append=size[:, None]).sum(0)
            for cut, size in zip(cuts, sizes, strict=True)
        ]
        if min(int(one.min()) for one in held) > 0:
            break
    else:
        raise ValueError(
            f"concentration {concentration} left a client without images in each of 1000 draws; "
            f"take a larger one or fewer than {clients} clients"
        )
    made = []
    for (x, y), cut in zip(parts, cuts, strict=True):
        order = torch.randperm(len(y), generator=source)
        classes = [order[y[order] == c].tensor_split(cut[c]) for c in range(images.classes)]
        made.append(_pick(x, y, [torch.cat(own) for own in zip(*classes, strict=True)]))
    return Federation(
        *made,
        classes=images.classes,
        name=f"{name}, classes dealt unevenly (Dirichlet {concentration})",
        truth={"shares": shares.T},
    )


def quantity_skew(name, clients, exponent, seed=0):
    """Clients that hold much or little: client i about (i + 1)^-exponent of what the first has.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m.
    exponent : float
        Not negative; 0 deals evenly, 1 is Zipf's law.
    seed : int
        Fixes which client holds which image.

    Returns
    -------
    Federation
        Without clusters. Every client has a training image, and as many test images as any other.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    images = data.load(name)
    if exponent < 0:
        raise ValueError(f"exponent must not be negative, got {exponent}")
    source = generator(POPULATION, seed)
    _, test = _even_parts(images, clients, source)
    spare = len(images.y_train) - clients
    weights = torch.arange(1, clients + 1, dtype=torch.float64) ** -exponent
    sizes = 1 + (spare * weights / weights.sum()).to(torch.int64)
    sizes[0] += len(images.y_train) - sizes.sum()
    train = torch.randperm(len(images.y_train), generator=source).split(sizes.tolist())
    return Federation(
        _pick(images.x_train, images.y_train, train),
        _pick(images.x_test, images.y_test, test),
        classes=images.classes,
        name=f"{name}, unequal amounts (exponent {exponent})",
    )


def feature_skew(name, clients, strength, seed=0):
    """Clients with different cameras: each sees its images with its own contrast and brightness.

    A pixel x becomes a x + b, with the contrast a uniform in [1 - strength, 1] and the brightness b
    uniform in [0, 255 (1 - a)], so that no pixel leaves the range.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`.
    clients : int
        m.
    strength : float
        In [0, 1]; 0 changes nothing.
    seed : int
        Fixes the cameras and which client holds which image.

    Returns
    -------
    Federation
        Without clusters. ``truth["contrast"]`` and ``truth["brightness"]`` [m] hold a and b.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    images = data.load(name)
    if not 0 <= strength <= 1:
        raise ValueError(f"strength must be in [0, 1], got {strength}")
    source = generator(POPULATION, seed)
    train, test = _even_parts(images, clients, source)
    contrast = 1 - strength * torch.rand(clients, generator=source)
    brightness = 255 * (1 - contrast) * torch.rand(clients, generator=source)

    def collect(x, y, parts):
        seen = [
            (a * x[rows] + b).round().to(torch.uint8)
            for a, b, rows in zip(contrast, brightness, parts, strict=True)
        ]
        return Clients.from_lists(seen, [y[rows] for rows in parts])

    return Federation(
        collect(images.x_train, images.y_train, train),
        collect(images.x_test, images.y_test, test),
        classes=images.classes,
        name=f"{name}, own contrast and brightness (strength {strength})",
        truth={"contrast": contrast, "brightness": brightness},
    )


def mixed(name, clients, clusters, pattern, seed=0, points=(100, 200)):
    """Images of which every client has a mixture of k kinds (FedSoft, section "Experiments").

    The kinds are images turned by 0, 90, 180, 270 degrees counterclockwise. Where capital and small
    letters are told apart, they are: small and capital letters for k = 2; small, small turned by
    90, capital, capital turned by 90 for k = 4 (Table 4). A client holds between 100 and 200
    images, uniformly at random; one is used again only when all of its kind have been.

    Parameters
    ----------
    name : str
        A data set of :func:`clusterfl_core.data.load`. With "letters" it is the paper's, if the
        file tells capital from small letters.
    clients : int
        m; even for "10:90" and "30:70".
    clusters : int
        k, 2 to 4 (2 or 4 with letters); more than 2 only for "random", as in the paper.
    pattern : {"10:90", "30:70", "linear", "random"}
        As in :func:`mixture_regression`.
    seed : int
        Fixes sizes, shares and images.
    points : (int, int)
        Other bounds of n_i, both included.

    Returns
    -------
    Federation
        A client's points lie in the order of the kinds. ``truth["mixture"]`` [m, k] holds the
        shares of the points dealt, n_ij / n_i. One test client a kind, with all its test images.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    images = data.load(name)
    _check_sizes(clients, clusters)
    if not 1 <= points[0] <= points[1]:
        raise ValueError(f"points must be two numbers, 1 <= low <= high, got {points}")
    source = generator(POPULATION, seed)
    shares = _mixture(pattern, clients, clusters, source)
    kinds = _kinds(images, clusters)
    sizes = torch.randint(points[0], points[1] + 1, (clients,), generator=source)
    counts = _whole(shares, sizes)
    xs, ys = [[] for _ in range(clients)], [[] for _ in range(clients)]
    for (x, y, _, _), wanted in zip(kinds.values(), counts.T, strict=True):
        decks = -(-int(wanted.sum()) // len(y))
        order = torch.cat([torch.randperm(len(y), generator=source) for _ in range(max(1, decks))])
        for i, rows in enumerate(order[: wanted.sum()].split(wanted.tolist())):
            xs[i].append(x[rows])
            ys[i].append(y[rows])
    return Federation(
        Clients.from_lists([torch.cat(x) for x in xs], [torch.cat(y) for y in ys]),
        Clients.from_lists(*zip(*[kind[2:] for kind in kinds.values()], strict=True)),
        test_clusters=torch.arange(clusters),
        classes=images.classes,
        name=f"{name}, mixed {pattern} of {', '.join(kinds)}",
        truth={"mixture": counts / sizes[:, None].to(torch.float64)},
    )


def linear_mixture(name, clients, clusters=2, seed=0):
    """Images of two kinds, client i with the share (i + 1/2) / m of the first: FedSoft's "linear".

    It is :func:`mixed` with that pattern.
    """
    return mixed(name, clients, clusters, "linear", seed)


def _kinds(images, clusters):
    """Training and test images of each kind, by its name."""

    def turn(quarters, train=slice(None), test=slice(None)):
        turned = [torch.rot90(x, quarters, dims=(-2, -1)) for x in (images.x_train, images.x_test)]
        return turned[0][train], images.y_train[train], turned[1][test], images.y_test[test]

    if "upper" not in images.facts:
        if clusters > 4:
            raise ValueError(f"clusters must be at most 4 (quarter turns), got {clusters}")
        return {f"{90 * j} degrees": turn(j) for j in range(clusters)}
    if clusters not in (2, 4):
        raise ValueError(f"clusters must be 2 or 4 with two kinds of letters, got {clusters}")
    return {
        f"{case} letters" + (f" at {90 * quarters}" if clusters == 4 else ""): turn(
            quarters, *(one == upper for one in images.facts["upper"])
        )
        for upper, case in enumerate(("small", "capital"))
        for quarters in range(clusters // 2)
    }


def _whole(shares, sizes):
    """Whole numbers [m, k] that follow the shares [m, k] and sum to the sizes [m]."""
    cuts = (shares.cumsum(1) * sizes[:, None]).round().to(torch.int64)
    return cuts.diff(dim=1, prepend=torch.zeros(len(cuts), 1, dtype=torch.int64))


def federated_xor(clients, points, seed=0):
    """Points in the plane that no line separates, though each client's could be (CFL, figure 1).

    Four clouds lie at the corners of a square, opposite corners of one class. Clients of cluster 0
    see the two corners on the left, clients of cluster 1 those on the right: a linear model fits
    either cluster, and no linear model fits both.

    Parameters
    ----------
    clients : int
        m, even.
    points : int
        n, points of each client; as many for testing.
    seed : int
        Fixes the points.

    Returns
    -------
    Federation

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """

    def draw(cluster, source):
        side = torch.randint(2, (points,), generator=source)
        corner = torch.stack([torch.full((points,), 2.0 * cluster - 1), 2.0 * side - 1], 1)
        return corner + 0.3 * torch.randn(points, 2, generator=source), side ^ cluster

    return _plane(clients, points, seed, draw, "points in the plane, XOR of two clusters")


def conflicting_labels(clients, points, seed=0):
    """Points in the plane that two clusters label the opposite way (CFL, figure 1, right).

    x is standard normal; cluster 0 calls the right half class 1, cluster 1 the left half. Whatever
    a model says is right for exactly one of the clusters.

    Parameters
    ----------
    clients : int
        m, even.
    points : int
        n, points of each client; as many for testing.
    seed : int
        Fixes the points.

    Returns
    -------
    Federation

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """

    def draw(cluster, source):
        x = torch.randn(points, 2, generator=source)
        return x, (x[:, 0] > 0).to(torch.int64) ^ cluster

    return _plane(clients, points, seed, draw, "points in the plane with conflicting labels")


def _plane(clients, points, seed, draw, words):
    _check_equal(clients, 2)
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    source = generator(POPULATION, seed)
    clusters = torch.arange(2).repeat_interleave(clients // 2)
    train, test = (
        Clients.from_lists(*zip(*[draw(c, source) for c in clusters.tolist()], strict=True))
        for _ in range(2)
    )
    return Federation(train, test, clusters, clusters, classes=2, name=words)


def next_words(name, clients, clusters, seed=0, *, window=10, vocabulary=1000, points=2000):
    """Text of which each client has one kind, to predict the next word (CFL, figure 9).

    The documents of a kind are shuffled, joined and cut into equal parts, one a client; the last
    fifth of a part is held out. A point is a window of words and the word that follows, so a run's
    loss is a mean over words and exp(loss) is the perplexity. Words are letters and apostrophes
    in lower case, and marks of punctuation; all words outside the vocabulary count as word 0.

    Parameters
    ----------
    name : str
        A collection of :func:`clusterfl_core.data.load_text`.
    clients : int
        m, a multiple of ``clusters``.
    clusters : int
        k, the number of kinds: the first k of the collection.
    seed : int
        Fixes the order of the documents.
    window : int
        Words a model sees, at least 1.
    vocabulary : int
        How many words are told apart, the most frequent ones in the training parts of all clients.
    points : int
        n, windows of each client, evenly spaced; a quarter as many for testing. With a few hundred,
        a model of one kind alone learns its few sentences by heart.

    Returns
    -------
    Federation
        x is [m, n, window], numbers of words. ``truth["words"]`` lists the vocabulary,
        ``truth["kinds"]`` the name of each cluster.

    Raises
    ------
    ValueError
        If an argument is out of bounds or a client's text is too short.
    """
    texts = data.load_text(name)
    _check_equal(clients, clusters)
    if clusters > len(texts.kinds):
        raise ValueError(f"clusters must be at most {len(texts.kinds)} kinds, got {clusters}")
    for given, value, least in (("window", window, 1), ("vocabulary", vocabulary, 2)):
        if value < least:
            raise ValueError(f"{given} must be at least {least}, got {value}")
    source, parts = generator(POPULATION, seed), []
    for kind in range(clusters):
        rows = (texts.labels == kind).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=source)]
        text = "\n".join(texts.documents[row] for row in rows.tolist())
        words = re.findall(r"[a-z']+|[.,;:?!]", text.lower())
        size = len(words) * clusters // clients
        parts += [words[i * size : (i + 1) * size] for i in range(clients // clusters)]
    cuts = [len(words) * 4 // 5 for words in parts]
    most = min(min(cut, 4 * (len(w) - cut)) for cut, w in zip(cuts, parts, strict=True))
    if not 1 <= points <= most - 4 * window:
        raise ValueError(
            f"points must be from 1 to {max(0, most - 4 * window)}, what the shortest part holds "
            f"with window {window}; got {points}"
        )
    seen = Counter(w for words, cut in zip(parts, cuts, strict=True) for w in words[:cut])
    known = ["(any other)", *(word for word, _ in seen.most_common(vocabulary - 1))]
    number = {word: i for i, word in enumerate(known)}

    def windows(words, count):
        tokens = torch.tensor([number.get(word, 0) for word in words])
        starts = torch.arange(count) * (len(tokens) - window) // count
        spans = tokens[starts[:, None] + torch.arange(window + 1)]
        return spans[:, :-1].to(torch.int32), spans[:, -1]

    both = list(zip(parts, cuts, strict=True))
    train = [windows(words[:cut], points) for words, cut in both]
    test = [windows(words[cut:], max(1, points // 4)) for words, cut in both]
    kinds = torch.arange(clusters).repeat_interleave(clients // clusters)
    return Federation(
        Clients.from_lists(*zip(*train, strict=True)),
        Clients.from_lists(*zip(*test, strict=True)),
        clusters=kinds,
        test_clusters=kinds,
        classes=vocabulary,
        name=f"next word of {name}: {', '.join(texts.kinds[:clusters])}",
        truth={"words": known, "kinds": texts.kinds[:clusters]},
    )


def regression(theta, clients, points, noise, seed=0):
    """Linear regression in hidden clusters: y = <x, theta_j> + noise (IFCA, section 5.1).

    Parameters
    ----------
    theta : Tensor [k, d]
        True parameters, one row a cluster.
    clients : int
        m, a multiple of k.
    points : int
        n, points of each client. Test clients, k of them, hold as many.
    noise : float
        sigma, standard deviation of the Gaussian noise; x is standard normal in d dimensions.
    seed : int
        Fixes x and the noise.

    Returns
    -------
    Federation
        Client i belongs to cluster i k // m; ``truth["theta"]`` holds ``theta``.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    k, features = theta.shape
    _check_equal(clients, k)
    if points < 1:
        raise ValueError(f"points must be at least 1, got {points}")
    if noise < 0:
        raise ValueError(f"noise must not be negative, got {noise}")
    source = generator(POPULATION, seed)

    def sample(clusters):
        x = torch.randn(len(clusters), points, features, generator=source).to(theta)
        wobble = noise * torch.randn(len(clusters), points, generator=source).to(theta)
        y = torch.einsum("mnd,md->mn", x, theta[clusters]) + wobble
        return Clients(x, y, torch.full((len(clusters),), points))

    clusters = torch.arange(k).repeat_interleave(clients // k)
    return Federation(
        sample(clusters),
        sample(torch.arange(k)),
        clusters=clusters,
        test_clusters=torch.arange(k),
        name=f"linear regression in {features} dimensions",
        truth={"theta": theta},
    )


def bernoulli_regression(
    scale, clients, points, features, clusters, noise, seed=0, *, reading="coordinate"
):
    """The regressions of IFCA's figure 3: each theta_j is a random vector of 0 and 1, scaled by R.

    The paper says that the vector is rescaled to the NORM R. Its released code multiplies it by R
    instead, so that each COORDINATE is 0 or R and the norm about R sqrt(d / 2); only that reading
    gives the published figure.

    Parameters
    ----------
    scale : float
        R, positive.
    clients, points, features, clusters : int
        m, a multiple of k; n; d; k.
    noise : float
        sigma.
    seed : int
        Fixes theta, x and the noise.
    reading : {"coordinate", "norm"}
        Of the released code, or of the text.

    Returns
    -------
    Federation
        As by :func:`regression`. No theta is zero and no two are equal; others are drawn anew.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_sizes(clients, clusters)
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    if reading not in ("coordinate", "norm"):
        raise ValueError(f"reading must be 'coordinate' or 'norm', got {reading!r}")
    if features < 1 or (features < 32 and 2**features <= clusters):
        raise ValueError(f"features must allow {clusters} different vectors, got {features}")
    source, theta = generator(POPULATION, seed, 1), torch.zeros(1, features)
    while len(theta.unique(dim=0)) < clusters or not theta.any(1).all():
        theta = torch.randint(2, (clusters, features), generator=source).to(torch.float32)
    theta *= scale if reading == "coordinate" else scale / theta.norm(dim=1, keepdim=True)
    made = regression(theta, clients, points, noise, seed)
    return replace(made, name=f"{made.name}, R = {scale} by {reading}")


def mixture_regression(pattern, clients=100, clusters=2, seed=0, *, features=10, variance=10.0):
    """Linear regression in which every client is a mixture of clusters (FedSoft's synthetic data).

    y = <x, theta_j> + noise, with x and the noise standard normal and theta_j ~ N(0, variance I).
    The paper writes theta_j ~ N(0, sigma_0^2 I) with sigma_0 = 10, which would be a variance of 100
    in each coordinate; its released code takes 10 as the VARIANCE, and that gives errors of the
    size it prints. Each client holds between 100 and 200 points, uniformly at random.

    Parameters
    ----------
    pattern : {"10:90", "30:70", "linear", "random"}
        How the clusters share a client's points (section "Experiments"). "10:90": a tenth of
        cluster 0 in the first half of the clients, nine tenths in the second. "30:70": likewise.
        "linear": client i has the share (i + 1/2) / m of cluster 0, in percent 0.5 + i for m = 100.
        "random": [0, 1] cut at k - 1 uniform points.
    clients : int
        m; even for "10:90" and "30:70".
    clusters : int
        k, at least 2; more only for "random", as in the paper.
    seed : int
        Fixes theta, the sizes, the shares, x and the noise.
    features : int
        d.
    variance : float
        Of each coordinate of theta, positive.

    Returns
    -------
    Federation
        A client's points lie in the order of the clusters. ``truth["mixture"]`` [m, k] holds the
        shares of the points drawn, n_ij / n_i (the wanted shares, rounded to whole points), and
        ``truth["theta"]`` theta. One test client a cluster, of 1,000 points of that cluster alone.

    Raises
    ------
    ValueError
        If an argument is out of bounds.
    """
    _check_sizes(clients, clusters)
    source = generator(POPULATION, seed)
    shares = _mixture(pattern, clients, clusters, source)
    if features < 1:
        raise ValueError(f"features must be at least 1, got {features}")
    if not variance > 0:
        raise ValueError(f"variance must be positive, got {variance}")
    theta = variance**0.5 * torch.randn(clusters, features, generator=source)

    def sample(kinds):
        x = torch.randn(len(kinds), features, generator=source)
        return x, (x * theta[kinds]).sum(1) + torch.randn(len(kinds), generator=source)

    sizes = torch.randint(100, 201, (clients,), generator=source)
    counts = _whole(shares, sizes)
    train = [sample(torch.arange(clusters).repeat_interleave(count)) for count in counts]
    test = [sample(torch.full((1000,), j)) for j in range(clusters)]
    return Federation(
        Clients.from_lists(*zip(*train, strict=True)),
        Clients.from_lists(*zip(*test, strict=True)),
        test_clusters=torch.arange(clusters),
        name=f"linear regression in {features} dimensions, mixed {pattern}",
        truth={"theta": theta, "mixture": counts / sizes[:, None].to(torch.float64)},
    )


def _mixture(pattern, clients, clusters, source):
    if clusters < 2:
        raise ValueError(f"clusters must be at least 2 to be mixed, got {clusters}")
    if pattern not in ("10:90", "30:70", "linear", "random"):
        raise ValueError(f"pattern must be '10:90', '30:70', 'linear' or 'random', got {pattern!r}")
    if pattern == "random":
        cuts = torch.rand(clients, clusters - 1, generator=source, dtype=torch.float64)
        edges = torch.nn.functional.pad(cuts.sort(1).values, (1, 0))
        return edges.diff(dim=1, append=torch.ones(clients, 1, dtype=torch.float64))
    if clusters > 2:
        raise ValueError(f"pattern {pattern!r} mixes 2 clusters, got {clusters}; use 'random'")
    if pattern == "linear":
        first = (torch.arange(clients, dtype=torch.float64) + 0.5) / clients
    else:
        if clients % 2:
            raise ValueError(f"clients must be even for pattern {pattern!r}, got {clients}")
        small = int(pattern[:2]) / 100
        halves = torch.tensor([small, 1 - small], dtype=torch.float64)
        first = halves.repeat_interleave(clients // 2)
    return torch.stack([first, 1 - first], 1)
