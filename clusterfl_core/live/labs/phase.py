"""Phase diagram: which method fits which clients, for lines with five unknowns (chapter 13)."""

import numpy as np

from clusterfl_core.live.fields import Number, Whole
from clusterfl_core.live.page import laboratory
from clusterfl_core.live.random import stream

__all__ = ["DISTANCES", "FIELDS", "POINTS", "errors", "phase"]

CLIENTS, UNKNOWNS, STARTS, STEP = 24, 5, 5, 0.1
POINTS = [round(10 * 2 ** (c / 2)) for c in range(8)]
DISTANCES = [round(0.25 * 2 ** (r / 2), 2) for r in range(8)]
FIELDS = {
    "noise": Number("noise σ", 0.25, 2, by=0.25),
    "spread": Number("spread within a group", 0, 1, by=0.05),
    "groups": Whole("groups", 2, 4),
    "models": Whole("models k", 2, 6),
    "steps": Whole("own steps after FedAvg", 0, 40),
    "column": Whole("column of the map", 0, 7),
    "row": Whole("row of the map", 0, 7),
    "rounds": Whole("draws", 0, 40),
}


def phase(*, noise=1, spread=0, groups=2, models=2, steps=10, column=3, row=4, draws=12, task=""):
    """Map of the best of five methods over points a client and distance of the groups.

    Parameters
    ----------
    noise : float
        Standard deviation of a label's noise, 0.25 to 2.
    spread : float
        How far a client's true model stands from its group's, root mean square, 0 to 1.
    groups, models : int
        True groups, 2 to 4, and models of OneShot and IFCA, 2 to 6.
    steps : int
        Gradient steps of size 0.1 on the own points after FedAvg, 0 to 40.
    column, row : int
        Of the cell that is looked at, 0 to 7, from the left and from below.
    draws : int
        Populations that a cell is the mean of, 0 to 40.
    task : str
        What to try. The laboratory notices when after at least ten draws LocalOnly, FedAvg,
        FedAvg with own steps, and OneShot or IFCA are each the best in at least five cells.
    """
    words = (
        f"Phase diagram: the best of five methods for {CLIENTS} clients in {{groups}} groups, "
        "over points a client and distance of the groups."
    )
    own = {"noise": noise, "spread": spread, "groups": groups, "models": models, "steps": steps}
    own |= {"column": column, "row": row, "rounds": draws}
    return laboratory("phase", FIELDS, words, _still, task=task, **own)


def errors(points, distance, *, noise, spread, groups, models, steps, draws):
    """Mean squared error of five methods' models, as in a cell of the map.

    Client i of 24 is of group i modulo ``groups`` and holds ``points`` points of a linear
    regression with five unknowns. The error is the squared distance of the model that a client
    ends with from its true model, a mean over clients and draws: the excess loss on fresh points.

    Parameters
    ----------
    points : int
        Of each client, at most 113.
    distance : float
        Between the models of any two groups.
    noise, spread, groups, models, steps : see `phase`
    draws : int
        Populations, from number 1 on; without any there is no error.

    Returns
    -------
    dict of str to float
        For LocalOnly, FedAvg, FedAvg+ (own steps follow), OneShot and IFCA.
    """
    found = [
        _draw(t, points, distance, noise, spread, groups, models, steps)
        for t in range(1, draws + 1)
    ]
    names = found[0] if found else {}
    return {name: float(np.mean([one[name] for one in found])) for name in names}


def _draw(draw, points, distance, noise, spread, groups, models, steps):
    numbers = [stream(draw, "points", i).normal(6 * points) for i in range(CLIENTS)]
    numbers = np.reshape(numbers, (CLIENTS, points, 6))
    x, e = numbers[..., :5], numbers[..., 5:]
    corners = distance / 2**0.5 * np.eye(UNKNOWNS)[:groups]
    own = stream(draw, "own").normal(CLIENTS * UNKNOWNS).reshape(CLIENTS, UNKNOWNS)
    truth = corners[np.arange(CLIENTS) % groups] + spread / UNKNOWNS**0.5 * own
    grams = x.transpose(0, 2, 1) @ x
    alone = truth + noise * np.linalg.solve(grams, x.transpose(0, 2, 1) @ e)[..., 0]

    def together(members):
        gram = grams[members].sum(0)
        side = np.einsum("iab,ib->a", grams[members], alone[members])
        return np.linalg.solve(gram, side)

    def straight(w):
        return ((alone - w) ** 2).sum(1)

    def loss(w):
        return np.einsum("ia,iab,ib->i", alone - w, grams, alone - w)

    def grouped(apart, fit):
        tries = []
        for start in range(STARTS):
            order = stream(draw, "starts", start).shuffle(CLIENTS)
            centers, found = alone[order[:models]].copy(), None
            for _ in range(50):
                far = np.stack([apart(w) for w in centers], axis=1)
                before, found = found, far.argmin(1)
                if before is not None and (before == found).all():
                    break
                for j in set(found):
                    centers[j] = fit(found == j)
            tries.append((far.min(1).sum(), found))
        found = min(tries, key=lambda one: one[0])[1]
        return np.stack([together(found == j) for j in found])

    one = together(np.full(CLIENTS, True))
    tuned = np.tile(one, (CLIENTS, 1))
    for _ in range(steps):
        tuned = tuned - STEP / points * np.einsum("iab,ib->ia", grams, tuned - alone)
    ends = {
        "LocalOnly": alone,
        "FedAvg": one,
        "FedAvg+": tuned,
        "OneShot": grouped(straight, lambda rows: alone[rows].mean(0)),
        "IFCA": grouped(loss, together),
    }
    return {name: ((w - truth) ** 2).sum(1).mean() for name, w in ends.items()}


def _still(figures, found):
    panel = figures.panel("A map whose axes are points a client and distance.", width=200)
    panel.points([found["column"]], [found["row"]], like="ink").set(xlim=(-1, 8), ylim=(-1, 8))
    return panel.named("points a client", "distance")
