"""One data set becomes a population of clients, with the truth kept for evaluation.

Each function returns a :class:`~clusterfl_core.clients.Federation`; printing it says in words what
was made. One ``seed`` gives one population, and the clients of a hidden cluster are neighbours:
client i belongs to cluster i k // m. An argument out of bounds is a ValueError that says so.

A population of images is a DEAL, who gets what (:mod:`~clusterfl_core.populations.deals`), times a
TWIST, what each hidden cluster does to it (:mod:`~clusterfl_core.populations.twists`). The
populations of the papers have names; any other is one line:

>>> federation = make("digits", clients=8, deal=by_label(1.0), twist=swap_labels(4))
>>> print(federation)  # doctest: +NORMALIZE_WHITESPACE
digits, classes dealt unevenly (Dirichlet 1.0), two labels swapped in each of 4 clusters:
8 training clients with 108 to 255 points each, 8 test clients with 25 to 60
4 hidden clusters of [2, 2, 2, 2] clients
>>> label_swapped("digits", clients=8, clusters=4).truth["labels"][0]  # its names of 0 to 9
tensor([0, 1, 5, 3, 4, 2, 6, 7, 8, 9])

Test clients are of three kinds, as in the papers:

* NEW clients of the same clusters, who never trained: :func:`rotated` (IFCA's Table 1), and
  whatever is dealt :func:`anew`;
* the TRAINING clients, by the same ids, each with data of its own distribution that it did not
  train on: all other populations made by deal and twist, :func:`next_words`, and the toy problems
  in the plane;
* one PURE client a cluster: the regressions and the mixtures (FedSoft's hold-out sets). What a
  model scores on the mixture of client i is the mean of its scores on these, weighted by
  ``truth["mixture"][i]``.
"""

from clusterfl_core.populations import deals, images, mixtures, synthetic, texts, twists
from clusterfl_core.populations.deals import *  # noqa: F403
from clusterfl_core.populations.images import *  # noqa: F403
from clusterfl_core.populations.mixtures import *  # noqa: F403
from clusterfl_core.populations.synthetic import *  # noqa: F403
from clusterfl_core.populations.texts import *  # noqa: F403
from clusterfl_core.populations.twists import *  # noqa: F403

__all__ = [
    *images.__all__,
    *deals.__all__,
    *twists.__all__,
    *mixtures.__all__,
    *synthetic.__all__,
    *texts.__all__,
]
