"""A figure of each kind, small and always the same, for the tests that look at figures."""

from types import SimpleNamespace

import numpy as np
import torch

from clusterfl_core import figures


def a_run(*values):
    """A run as far as a figure looks at it."""
    return SimpleNamespace(
        history=[{"round": t, "accuracy": value} for t, value in enumerate(values, 1)]
    )


def a_tree():
    """Twenty clients; two splits."""
    node = SimpleNamespace
    return [
        node(parent=-1, children=[1, 2], clients=torch.arange(20)),
        node(parent=0, children=[], clients=torch.arange(5)),
        node(parent=0, children=[3, 4], clients=torch.arange(5, 20)),
        node(parent=2, children=[], clients=torch.arange(5, 10)),
        node(parent=2, children=[], clients=torch.arange(10, 20)),
    ]


def every_word():
    """A figure of each kind, by the name of its word."""
    random = np.random.default_rng(0)
    spots, groups = random.normal(size=(12, 2)), np.arange(12) // 4
    new = figures.panel
    log = new("Lines", x="images", xscale="log").spread(
        [2, 4, 8], [[1, 2, 3], [2, 2, 4]], "updates"
    )
    return {
        "spread": log,
        "curves": new("Runs").curves({"IFCA": [a_run(0.1, 0.5), a_run(0.2, 0.3)]}, "accuracy"),
        "points": new("Points").points([1, 2], [3, 4], "hollow", hollow=True).level(3).border(1.5),
        "rows": new("Rows").rows({"IFCA": [0.4, 0.5], "FedAvg": [0.2, 0.3]}),
        "bars": new("Bars").bars(["0°", "90°"], {"seed 0": [1, 2], "seed 1": [2, 1]}),
        "plane": new("Plane").plane(spots[:3], spots[3:6], spots, groups, groups, spots[6:9]),
        "contours": new("Hills", xlim=(-1, 1), ylim=(-1, 1))
        .contours(lambda at: (at**2).sum(-1), [0.2, 0.5], 1)
        .region(lambda at: at[..., 0], "left"),
        "circles": new("Circles")
        .circles([[0, 0], [1, 1]], 0.4)
        .arrows([[1, 1]], labels="v")
        .bare(),
        "squares": new("Squares").squares([[0, 1, -1], [7, 2, 3]], ["then", "now"]),
        "identities": new("Choices").identities(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1])),
        "heat": new("Heat").heat(np.eye(3) - 0.5, "cosine", numbers=True, clusters=[0, 0, 1]),
        "pictures": new("Digits").pictures(random.random((6, 8, 8)), "123456", columns=3),
        "weights": new("Weights").pictures(random.normal(size=(2, 8, 8)), signed=True),
        "tree": new("Tree").tree(a_tree(), torch.arange(20) // 5, [0, 2, 4]),
        "diagram": new("Diagram").box(0, 1, "server").box(0, 0, "client", 0).bare(),
        "many": new("Cloud").points(*random.normal(size=(2, 1500)), "draws"),
    }
