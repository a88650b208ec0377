"""Who points where: cosine similarities of updates, and the best cut in two (CFL, section II).

>>> import torch
>>> from clusterfl_core.similarity import cosine_similarity, optimal_bipartition
>>> alpha = cosine_similarity(torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.2]]))
>>> [half.tolist() for half in optimal_bipartition(alpha)]
[[0, 1], [2]]
"""

import numpy as np
import torch

from clusterfl_core.banks import Bank
from clusterfl_core.check import kind, rows, shown, wholes

__all__ = ["cosine_similarity", "cross_similarity", "optimal_bipartition", "separation_gap"]


def cosine_similarity(updates):
    """Cosine similarities between the updates (or gradients) of m clients, equation 44.

    ``updates`` is a Tensor [m, p] or a Bank. Tensor [m, m], float64, symmetric, in [-1, 1], with
    ones on the diagonal. An update of length zero has no direction; its similarity to every other
    is 0.
    """
    found = updates.flatten() if isinstance(updates, Bank) else updates
    if kind("updates", found, torch.Tensor, Bank).ndim != 2 or found.is_complex():
        raise ValueError(f"updates must be real numbers [m, p], got shape {list(found.shape)}")
    m = len(found)
    gram = torch.zeros(m, m, dtype=torch.float64, device=found.device)
    # In blocks of columns, so that the copy in double precision stays small, and of rows, so that
    # hardly more than the half above the diagonal is computed.
    for block in found.split(1 << 11, dim=1):
        block = block.to(torch.float64)
        for i in range(0, m, 256):
            gram[i : i + 256, i:].addmm_(block[i : i + 256], block[i:].T)
    norms = gram.diagonal().sqrt()
    gram.triu_().add_(gram.triu(1).T)
    lengths = norms[:, None] * norms
    alpha = gram.div_(lengths).masked_fill_(lengths == 0, 0).clamp_(-1, 1)
    return alpha.fill_diagonal_(1)


def optimal_bipartition(similarity):
    """The two clusters with the smallest maximum similarity across (25), in O(m^2).

    Algorithm 1 joins clients from the most similar pair downwards until two clusters are left.
    That is single-linkage clustering cut at two, or the maximum spanning tree without its weakest
    edge; SciPy finds it without sorting the pairs. Complete linkage answers another question.

    Parameters
    ----------
    similarity : Tensor or ndarray [m, m]
        Symmetric, m at least 2.

    Returns
    -------
    first, second : ndarray of int
        Positions 0, ..., m - 1, ascending; ``first`` holds position 0. Where several
        bipartitions are equally good, one of them.

    Raises
    ------
    ValueError
        If the matrix is not square, has fewer than two rows, holds NaN or infinity, or differs
        from its transpose by more than 1e-6.
    """
    alpha = _matrix(similarity).detach().cpu().to(torch.float64).numpy()
    if alpha.ndim != 2 or alpha.shape[0] != alpha.shape[1]:
        raise ValueError(f"similarity must be a square matrix, got shape {alpha.shape}")
    m = len(alpha)
    if m < 2:
        raise ValueError(f"similarity must compare at least 2 clients to split, got {m}")
    if not np.isfinite(alpha).all():
        i, j = np.argwhere(~np.isfinite(alpha))[0].tolist()
        raise ValueError(f"similarity must be finite, got {alpha[i, j]} between {i} and {j}")
    gap = np.abs(alpha - alpha.T)
    if gap.max() > 1e-6:
        i, j = (int(axis) for axis in np.unravel_index(gap.argmax(), gap.shape))
        raise ValueError(
            f"similarity must be symmetric, got {alpha[i, j]} between {i} and {j} but "
            f"{alpha[j, i]} between {j} and {i}"
        )
    from scipy.cluster import hierarchy

    # The negative similarity serves as distance: 1 - alpha could round two values to one.
    links = hierarchy.linkage(-alpha[np.triu_indices(m, 1)], "single")
    # Numbers from m on name the clusters made by earlier links; the last link joins the halves.
    members, pending = [], [int(links[-1, 0])]
    while pending:
        item = pending.pop()
        if item < m:
            members.append(item)
        else:
            pending += links[item - m, :2].astype(int).tolist()
    half = np.isin(np.arange(m), members)
    return np.flatnonzero(half == half[0]), np.flatnonzero(half != half[0])


def _matrix(similarity):
    """The similarity as a tensor of real numbers with two axes."""
    try:
        found = torch.as_tensor(similarity)
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros((), dtype=torch.complex64)
    if found.is_complex():
        raise ValueError(f"similarity must be a square matrix, got {shown(similarity)}")
    if found.ndim != 2:
        raise ValueError(f"similarity must be a square matrix, got shape {tuple(found.shape)}")
    return found


def cross_similarity(similarity, first, second):
    """alpha_cross^max: the largest similarity between two clusters (Algorithm 3, line 5)."""
    alpha, halves = _matrix(similarity), []
    m = min(alpha.shape)
    for name, given in (("first", first), ("second", second)):
        half = rows(name, given, m)
        if not len(half) or int(half.min()) < 0 or int(half.max()) >= m:
            raise ValueError(f"{name} must name some of the {m} clients, got {shown(given)}")
        halves.append(half)
    return float(alpha[halves[0]][:, halves[1]].max())


def separation_gap(similarity, clusters):
    """How clearly similarities show the clusters: g = alpha_intra^min - alpha_cross^max (CFL, 29).

    The least similarity within a true cluster, less the largest across the OPTIMAL bipartition.
    Where it is positive the bipartition is correct: no true cluster is torn (Corollary 1). Remark 2
    of the paper adds "only if", which is not so: the bipartition is also correct where the clients
    of a cluster are similar along a chain, not all in pairs.

    Parameters
    ----------
    similarity : Tensor or ndarray [m, m]
        Cosine similarities of the clients, m at least 2.
    clusters : LongTensor [m]
        True cluster of each client, I(i).

    Raises
    ------
    ValueError
        If the clusters are not those of the similarity's clients, or the similarity is not one
        that :func:`optimal_bipartition` takes.
    """
    similarity, clusters = _matrix(similarity), wholes("clusters", clusters)
    halves = optimal_bipartition(similarity)
    if clusters.shape != (len(similarity),):
        raise ValueError(
            f"clusters must name the cluster of each of the {len(similarity)} clients, "
            f"got shape {tuple(clusters.shape)}"
        )
    within = similarity[clusters[:, None] == clusters]
    return float(within.min()) - cross_similarity(similarity, *halves)
