"""IFCA with a median: a cluster's model is the coordinate-wise median of its clients' models.

A few clients that lie cannot move it far, where they can move a mean anywhere.
"""

from dataclasses import dataclass

import torch

import clusterfl_core as cf
from clusterfl_core.contract import Replies


@dataclass(frozen=True)
class MedianIFCA(cf.IFCA):
    """The settings of IFCA; the clients do the same."""

    def absorb(self, state, parts):
        """Server: the median within each estimated cluster; an empty one keeps its model."""
        replies = Replies.join(parts)
        identities = replies.values["identity"]
        groups = [(identities == j).nonzero()[:, 0] for j in range(self.clusters)]

        def middle(old, models):
            rows = [models[g].median(0).values if len(g) else old[j] for j, g in enumerate(groups)]
            return torch.stack(rows)

        assignments = state.assignments.clone()
        assignments[replies.clients] = identities
        return state.next(bank=state.bank.map(middle, replies.bank), assignments=assignments)
