"""The playground: seven methods side by side on digits, eight missions, a digit drawn."""

import torch

from clusterfl_core.live.fields import Choice, Number, Numbers, Whole
from clusterfl_core.live.page import laboratory

__all__ = ["FIELDS", "METHODS", "MISSIONS", "given", "playground", "scores"]

START = {
    "groups": 3, "angle": 90, "swaps": 0, "skew": 0, "points": 40, "clients": 4, "last": 4,
    "liars": 0, "k": 3, "steps": 10, "step_size": 0.5, "participation": 1, "eps1": 0.45,
    "eps2": 1.2, "seed": 0,
}  # fmt: skip


def _mission(key, name, ask, why, free, method="IFCA", **setup):
    return {
        "key": key, "name": name, "ask": ask, "why": why, "free": free, "method": method,
        "setup": START | setup,
    }  # fmt: skip


LOCAL = ["steps", "step_size", "participation", "seed"]
# What is asked, why it comes out so, and which entries of the first state the reader may change;
# whether it is solved says engine/missions.js.
MISSIONS = [
    _mission(
        "find",
        "Find k",
        "Somebody hid the groups. Find the k with which IFCA gives every group one model of its "
        "own and leaves none over.",
        "With too few models two groups must share one, which then reads for neither as well as "
        "it "
        "could. With too many a group is torn, so that its parts train on fewer images, or a "
        "model is left that nobody follows.",
        ["k", *LOCAL], groups=4, clients=3, last=3, k=2,
    ),
    _mission(
        "start",
        "A bad start",
        "Three groups, three models, and all is well. Change nothing but the start until IFCA has"
        " "
        "most of two groups on one model.",
        "The first choice is among random models. Where one of them happens to suit two groups, "
        "both train it, so it goes on to suit both, and little in a later round parts them: that "
        "is why one runs several starts and keeps the one of lowest loss.",
        ["seed"], seed=3,
    ),
    _mission(
        "together",
        "One model is enough",
        "Let the groups differ by at least 15 degrees, and still make one model for all better "
        "than training alone and than every method with k models, by 5 points on average.",
        "Where clients hold few images, what counts is how many a model sees, and FedAvg's sees "
        "all of them. Three models would take two thirds of the images from each, and a small "
        "difference between groups costs less than that.",
        ["angle", "points"], method="FedAvg",
    ),
    _mission(
        "alone",
        "Everyone for themselves",
        "Make training alone the best of the seven on average, by 2 points, and better than 80 "
        "percent. Label skew leads there, at 40 images short of the whole of it, and with half as "
        "many images the lead is larger.",
        "Where each client meets mostly two digits of its own, the others teach its model what it"
        " never needs. Pushed to the end, at 40 images, the lead is gone: with nothing but two "
        "digits a client, FedSoft's personal models learn them as well.",
        ["skew", "points", "angle", "swaps"], method="LocalOnly",
    ),
    _mission(
        "budget",
        "On a budget",
        "Make IFCA read 90 percent on average before more than 150 models were moved.",
        "A round moves k models to each client that takes part and one back, however long the "
        "client trains in between. So fewer models, larger and more local steps, and fewer "
        "clients in a round reach the same accuracy with fewer journeys.",
        ["k", *LOCAL], seed=3,
    ),
    _mission(
        "liars",
        "Lock the liars away",
        "Four liars call each digit one more. Make IFCA keep them off every model that an honest "
        "client follows, with 85 percent or more for the worst honest client.",
        "Liars who all tell the same lie are a group like any other, and one more model is all "
        "they need to leave the others alone. Liars who each invent a lie of their own would not "
        "be so kind.",
        ["k", *LOCAL], groups=2, liars=4, k=2,
    ),
    _mission(
        "readings",
        "Two readings",
        "Draw one thing that IFCA's two models read as two different digits, each at least 80 "
        "percent sure. The second group holds its digits upside down: which digit becomes another "
        "one? Draw it large, in the middle; if a model is not sure, play ten rounds more.",
        "The second group holds its digits upside down, and its model has learned to read what "
        "the first one's would call wrong. Both are right, each for the clients that follow it: "
        "without its group a model says little.",
        LOCAL, groups=2, clients=6, last=6, angle=180, k=2,
    ),
    _mission(
        "starve",
        "Starve the smallest group",
        "There is a model for each of three groups. Keep IFCA's mean at 85 percent or more while "
        "nobody in the last group reads more than 60 percent.",
        "A mean over clients hardly notices one or two. So small a group is outvoted in the first"
        " rounds, has few images, or is not even asked, so look at the worst client beside the "
        "mean.",
        ["last", "participation", "seed"], clients=5, last=5, seed=1,
    ),
]  # fmt: skip
METHODS = ("FedAvg", "LocalOnly", "OneShot", "IFCA", "CFL", "FedSoft", "FedEM")
FIELDS = {
    "groups": Whole("groups", 1, 4),
    "angle": Number("angle between groups", 0, 180, 5),
    "swaps": Whole("swapped pairs of labels", 0, 5),
    "skew": Number("label skew", 0, 1, 0.1),
    "points": Whole("images a client", 5, 50),
    "clients": Whole("clients a group", 1, 6),
    "last": Whole("clients of the last group", 1, 6),
    "liars": Whole("liars", 0, 4),
    "k": Whole("models k", 1, 6),
    "steps": Whole("local steps τ", 1, 20),
    "step_size": Number("step size η", 0.1, 1, 0.1),
    "participation": Number("participation", 0.1, 1, 0.1),
    "eps1": Number("CFL: mean below ε₁", 0.05, 1, 0.05),
    "eps2": Number("CFL: longest above ε₂", 0.1, 2, 0.1),
    "seed": Whole("start", 0, 19),
    "method": Choice("look at", tuple((name, name) for name in METHODS)),
    "mission": Choice(
        "mission",
        (("none", "none: play"), *((one["key"], one["name"]) for one in MISSIONS)),
    ),
    "ink": Numbers("drawing", 64, 64, 0, 16, whole=True),
    "rounds": Whole("rounds", 0, 30),
}


def playground(
    groups=3,
    *,
    angle=90,
    swaps=0,
    skew=0,
    points=40,
    clients=4,
    last=4,
    liars=0,
    k=3,
    steps=10,
    step_size=0.5,
    participation=1,
    eps1=0.45,
    eps2=1.2,
    seed=2,
    method="IFCA",
    mission="none",
    task="",
):
    """Seven methods on clients with digits that a reader puts together.

    Parameters
    ----------
    groups : int
        Honest groups, 1 to 4.
    angle : float
        By how much a group's images are turned against those of the group before, 0 to 180.
    swaps : int
        Pairs of labels that change places in each group but the first, 0 to 5.
    skew : float
        The share of a client's images that shows its two favourite digits alone, 0 to 1.
    points : int
        Images of each client, 5 to 50.
    clients, last : int
        Clients of each group, and of the last one, 1 to 6.
    liars : int
        Further clients that call each digit one more, 0 to 4.
    k : int
        Models of OneShot, IFCA, FedSoft and FedEM, 1 to 6.
    steps, step_size : int, float
        Local steps of a round, 1 to 20, of size 0.1 to 1.
    participation : float
        Of FedAvg, OneShot, IFCA and FedEM: the share of the clients in a round, 0.1 to 1.
    eps1, eps2 : float
        CFL splits if a mean update is shorter than eps1 and the longest one longer than eps2.
    seed : int
        Of the first models, 0 to 19.
    method : str
        Whose numbers, identities and models are shown: one of METHODS.
    mission : str
        "none", or the key of one of MISSIONS. A reader who chooses one gets its clients; what else
        is given here stays.
    task : str
        What to do with the missions. The laboratory notices when the one that is chosen is solved.
    """
    world = {"groups": groups, "angle": angle, "swaps": swaps, "skew": skew, "points": points}
    people = {"clients": clients, "last": last, "liars": liars}
    methods = {"k": k, "steps": steps, "step_size": step_size, "participation": participation}
    thresholds = {"eps1": eps1, "eps2": eps2, "seed": seed}
    looked = {"method": method, "mission": mission, "ink": [0] * 64, "rounds": 0}
    own = world | people | methods | thresholds | looked
    words = "The playground: seven methods on clients with digits in groups, {groups} of them."
    return laboratory("playground", FIELDS, words, _still, task=task, **own)


def given():
    """The missions, for the page."""
    return {"missions": MISSIONS}


def scores(run, federation):
    """What the laboratory shows of a run on a ``replay.patchwork``.

    Parameters
    ----------
    run : Run
    federation : Federation

    Returns
    -------
    mean, worst : float
        Accuracy of the honest clients on test images as their groups see them. Each digit counts
        as much as in the client's own mix; a client that was never asked has none right.
    moved : float
        Models that went to clients and back.
    """
    test, mix, found = federation.test, federation.truth["mix"], []
    shown = torch.nn.functional.one_hot(federation.truth["digits"], 10).to(mix)
    weights = mix @ (shown / shown.sum(0)).T
    for i, group in enumerate(federation.clusters.tolist()):
        if group == len(test):
            continue
        guess = run.state.predict(torch.tensor([i]), test.inputs(mix.dtype)[[group]], 10)[0]
        asked = bool((run.assignments[i] >= 0).all())
        found.append(asked * float(weights[i] @ (guess.argmax(1) == test.y[group]).to(mix)))
    moved = sum(record["bytes_down"] + record["bytes_up"] for record in run.history)
    return sum(found) / len(found), min(found), moved / run.state.bank.bytes_of_one()


def _still(figures, now):
    from clusterfl_core.live import replay  # brings all of the library

    world = {name: now[name] for name in ("groups", "angle", "swaps")}
    shown = replay.patchwork(**world, points=5, clients=1, last=1).train.x
    words = "Digits as clients of each group see them, a row a group."
    panel = figures.panel(words, width=195)
    return panel.pictures(shown.flatten(0, 1), columns=5)
