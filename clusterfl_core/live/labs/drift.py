"""Where does FedAvg come to rest? Four clients whose losses are bowls."""

from clusterfl_core.live.fields import Choice, Number, Numbers, Rows, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "drift"]

CLIENTS = 4
FIELDS = {
    "steps": Whole("local steps τ", 1, 50),
    "step_size": Number("step size η", 0.01, 0.45, 0.01),
    "chosen": Choice("bowl", tuple((f"{i}", f"client {i}") for i in range(CLIENTS))),
    "stretch": Numbers("stretch", CLIENTS, CLIENTS, 1, 4, by=0.1),
    "turn": Numbers("turn", CLIENTS, CLIENTS, -90, 90, by=5),
    "pairs": Numbers("pairs of points", CLIENTS, CLIENTS, 1, 10, whole=True),
    "centers": Rows("centers", CLIENTS, CLIENTS, 2, -2.5, 2.5),
    "start": Rows("start", 1, 1, 2, -2.5, 2.5),
    "rounds": Whole("rounds", 0, 200),
}


def drift(
    centers=((-1.6, -1.0), (1.4, -1.3), (1.2, 1.5), (-1.2, 1.2)),
    *,
    stretch=(4, 3, 1.5, 4),
    turn=(60, -20, 0, 0),
    pairs=(2, 2, 2, 2),
    start=(0.2, -2.2),
    steps=1,
    step_size=0.1,
    task="",
):
    """FedAvg on four bowls of two numbers: how its point of rest depends on the local steps.

    Parameters
    ----------
    centers : sequence [4, 2]
        The bottoms of the clients' bowls, -2.5 to 2.5.
    stretch, turn, pairs : sequence [4]
        As in :func:`clusterfl_core.live.replay.bowls`: 1 to 4, -90 to 90 degrees, 1 to 10.
    start : sequence [2]
        The first model.
    steps : int
        Local steps a round, tau, 1 to 50.
    step_size : float
        eta, 0.01 to 0.45; no bowl is so steep that its steps diverge.
    task : str
        What to try. The laboratory notices when the point of rest was at least 0.5 from the best
        model, and is then brought within 0.01 of it, with at least 5 local steps and with bottoms
        that are at least 1 apart.
    """
    shapes = {"centers": centers, "stretch": stretch, "turn": turn, "pairs": pairs}
    run = {"start": [start], "steps": steps, "step_size": step_size, "rounds": 0}
    words = f"Drift: FedAvg on {CLIENTS} bowls, and the point where it comes to rest."
    return laboratory("drift", FIELDS, words, _still, task=task, chosen="0", **shapes, **run)


def _still(figures, now):
    import numpy as np

    panel = figures.panel("Four elliptical bowls.", width=200, xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
    panel.plane()
    for j, center in enumerate(now["centers"]):
        angle, s = np.radians(now["turn"][j]), now["stretch"][j]
        axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        bend = axes.T @ np.diag([s, 1 / s]) @ axes
        far = np.array(center)
        panel.contours(
            lambda at, A=bend, c=far: ((at - c) @ A * (at - c)).sum(-1) / 2, [0.1, 0.4], j
        )
    return panel
