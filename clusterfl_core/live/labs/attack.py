"""The attacker's arrow: one of twelve clients sends to CFL's server whatever it likes."""

from clusterfl_core.live.fields import Choice, Flag, Rows
from clusterfl_core.live.labs.server import CENTERS, SPLITTING, still
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "attack"]

LIES = (
    ("honest", "none: its update"),
    ("arrow", "always the same arrow"),
    ("spin", "an arrow that turns"),
    ("flip", "its update, reversed"),
)
FIELDS = {
    **SPLITTING,
    "lie": Choice("lie of client 11", LIES),
    "arrow": Rows("lie", 1, 1, 2, -2.5, 2.5),
    "clip": Flag("clip to the median length"),
}


def attack(
    centers=CENTERS,
    *,
    start=(-2.0, -2.0),
    eps1=0.1,
    eps2=0.3,
    gamma_max=0.0,
    lie="honest",
    arrow=(-0.5, 0.3),
    clip=False,
    task="",
):
    """CFL on bowls with one liar, the last client (local steps and bowls as in ``server``).

    Parameters
    ----------
    centers, start, eps1, eps2, gamma_max
        As in :func:`clusterfl_core.live.server`.
    lie : {"honest", "arrow", "spin", "flip"}
        What client 11 sends: its update, an arrow, an arrow that turns by a right angle each
        round, or its update with the other sign.
    arrow : sequence [2]
        The arrow, -2.5 to 2.5.
    clip : bool
        Whether the server shortens each update to the median length of its group.
    task : str
        What to try. The laboratory notices when the liar alone has kept all clients in one group
        for 30 rounds, and when with clipping all honest clients then find their true groups.
    """
    tests = {"eps1": eps1, "eps2": eps2, "gamma_max": gamma_max}
    liar = {"lie": lie, "arrow": [arrow], "clip": clip}
    own = {"steps": 5, "step_size": 0.1, "stretch": 1.5, "centers": centers, "start": [start]}
    words = "The attacker's arrow: CFL splits twelve clients, one of which may lie."
    return laboratory("attack", FIELDS, words, still, task=task, **tests, **liar, **own, rounds=0)
