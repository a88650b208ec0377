"""You are the server: when should CFL split a group? Twelve clients whose losses are bowls."""

from clusterfl_core.live.fields import Number, Rows, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["CENTERS", "FIELDS", "SPLITTING", "server", "still"]

SPLITTING = {  # what all laboratories of CFL on bowls begin with
    "eps1": Number("mean below ε₁", 0.01, 2, 0.01),
    "eps2": Number("longest above ε₂", 0.01, 2, 0.01),
    "gamma_max": Number("width γ_max", 0, 0.95, 0.05),
    "steps": Whole("local steps τ", 1, 20),
    "step_size": Number("step size η", 0.01, 0.45, 0.01),
    "stretch": Number("stretch", 1, 4, 0.1),
    "centers": Rows("centers", 12, 12, 2, -2.5, 2.5),
    "start": Rows("start", 1, 1, 2, -2.5, 2.5),
    "rounds": Whole("rounds", 0, 100),
}
FIELDS = SPLITTING
CENTERS = (
    (-0.27, 0.27),
    (-0.16, 0.32),
    (-0.42, 0.38),
    (-0.01, 0.51),
    (1.35, 1.42),
    (1.36, 1.71),
    (0.99, 1.65),
    (1.23, 1.54),
    (1.38, -1.37),
    (1.59, -1.07),
    (1.47, -1.0),
    (1.35, -1.22),
)


def server(
    centers=CENTERS,
    *,
    start=(-2.0, -2.0),
    eps1=0.6,
    eps2=0.2,
    gamma_max=0.0,
    steps=5,
    step_size=0.1,
    stretch=1.5,
    task="",
):
    """CFL on bowls: the thresholds of its three tests, and what they lead to (Sattler et al.).

    Parameters
    ----------
    centers : sequence [12, 2]
        Each client's own best model, -2.5 to 2.5; four clients a true group.
    start : sequence [2]
        The first model.
    eps1, eps2 : float
        A group splits only if its mean update is shorter than eps1 and its longest is longer than
        eps2; 0.01 to 2.
    gamma_max : float
        The third test, 0 to 0.95; 0: every cut is wide enough.
    steps, step_size : int, float
        Local steps, 1 to 20, of size 0.01 to 0.45.
    stretch : float
        Shape of all bowls, 1 to 4, as in :func:`clusterfl_core.live.replay.bowls`, turned by 30
        degrees.
    task : str
        What to try. The laboratory notices when a true group was torn, and the run then ends in
        exactly the true groups and has settled.
    """
    tests = {"eps1": eps1, "eps2": eps2, "gamma_max": gamma_max}
    local = {"steps": steps, "step_size": step_size, "stretch": stretch, "start": [start]}
    words = "You are the server: CFL splits twelve clients in the plane, by your thresholds."
    own = {**tests, **local, "centers": centers, "rounds": 0}
    return laboratory("server", FIELDS, words, still, task=task, **own)


def still(figures, now):
    """The clients of a state, as a picture."""
    words = "Twelve clients in three groups, and the first model."
    panel = figures.panel(words, width=200, xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
    groups = [i // 4 for i in range(len(now["centers"]))]
    return panel.plane(clients=now["centers"], clusters=groups, models=now["start"])
