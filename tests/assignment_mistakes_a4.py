"""Typical answers to assignment 4, wrong ones above all, and the points each must get.

``MISTAKES[name]["cells"]`` maps the ``grade_id`` of a solution cell to what stands there instead of
the solution; ``"points"`` is what the tests then give. Explanations, which a person grades, do not
count. ``FAILS[name]`` names the test cells that fail, and those alone.
"""

NAME = "A4_fedsoft"

# What a test cell is worth.
TESTS = {
    "floor-test": 4,
    "twisted-test": 4,
    "votes-test": 2,
    "votes-sure-test": 5,
    "gradient-data-test": 5,
    "gradient-near-test": 2,
    "gradient-far-test": 10,
    "weights-test": 2,
    "weights-hard-test": 5,
    "purity-test": 5,
    "sharpest-test": 5,
    "sharpest-empty-test": 2,
    "round-interval-test": 2,
    "round-work-test": 2,
    "round-lost-test": 7,
    "draw-dots-test": 3,
    "draw-names-test": 3,
    "draw-words-test": 2,
}


def empty(head):
    """Return what nbgrader leaves of a solution cell."""
    return f"{head}\n    # YOUR CODE HERE\n    raise NotImplementedError()"


def constant(head, value):
    """Return a function that gives back an expression."""
    return f"\ndef {head}:\n    return {value}\n"


def votes(losses='nnf.cross_entropy(x @ c.T, y, reduction="none")', then=""):
    """Return a solution of task 1 with another loss, or another end."""
    then = then or "torch.bincount(losses.argmin(0), minlength=len(centers))"
    return f"""
def votes(x, y, centers):
    losses = torch.stack([{losses} for c in centers])
    return {then}
"""


def gradient(data="wrong.T @ x / len(x)", pull="torch.tensordot(u * held, away, 1)"):
    """Return the solution of task 2 with another data part, or another pull."""
    return f"""
def gradient(w, x, y, u, centers, strength, reach):
    wrong = torch.softmax(x @ w.T, 1) - nnf.one_hot(y, len(w))
    away = w - centers
    lengths = away.flatten(1).norm(dim=1)
    held = (reach / lengths).clamp(max=1.0)
    return {data} + strength * ({pull})
"""


def weights(sharp="(u / u.max(0).values) ** power", share="torch.where(u > 0, sharp, 0.0)"):
    """Return the solution of task 3 with other powers, or other shares."""
    return f"""
def weights(u, n, power):
    sharp = {sharp}
    share = ({share} * n[:, None]).T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
"""


def sharpest(rows="v[v.sum(1) > 0]", number="1 / (rows**2).sum(1)", good=".all()", end=None):
    """Return the solution of task 3's last part with something else in one place."""
    end = end or "max(good, default=None)"
    return f"""
def sharpest(table, least):
    good = []
    for power, v in table.items():
        rows = {rows}
        if ({number} >= least){good}:
            good.append(power)
    return {end}
"""


def one_round(weigh="t % parts.interval == 0", who="v.any(0).nonzero()[:, 0].tolist()", **other):
    """Return the solution of task 4 with something else in one place."""
    start = other.get("start", "personal[i]")
    lost = other.get("lost", "if model is not None:\n            new[i], arrived[i] = model, 1")
    heard = other.get("heard", "v * arrived")
    mean = other.get("mean", "torch.where(total > 0, mean, centers)")
    return f"""
def one_round(t, centers, personal, u, parts):
    if {weigh}:
        u = parts.weigh(centers)
    v = parts.weights(u)
    new, arrived = personal.clone(), torch.zeros(len(personal))
    for i in {who}:
        model = parts.train(i, {start}, centers, u[i])
        {lost}
    heard = {heard}
    total = heard.sum(1)[:, None, None]
    mean = torch.tensordot(heard.double(), new, 1) / total
    return {mean}, new, u
"""


def draw(name="int(missed.argmin())", dot="x, y", line="0, 0, 1, 1", **other):
    """Return the solution of task 5 with something else in one place."""
    names = other.get("names", '"true share", "importance"')
    said = other.get("said", 'f"votes miss the shares by {missed[name]:.2f}"')
    return f"""
def draw_votes(pen, u, mixture):
    share = mixture[:, 0]
    missed = (u - share[:, None]).abs().mean(0)
    name = {name}
    for x, y in zip(share.tolist(), u[:, name].tolist()):
        pen.dot({dot})
    pen.line({line})
    pen.names({names})
    pen.say({said})
"""


VOTES_BY_CLIENT = """
def votes(x, y, centers):
    means = torch.stack([nnf.cross_entropy(x @ center.T, y) for center in centers])
    count = torch.zeros(len(centers), dtype=torch.long)
    count[means.argmin()] = len(y)
    return count
"""
VOTES_TIES = """
def votes(x, y, centers):
    losses = [nnf.cross_entropy(x @ c.T, y, reduction="none") for c in centers]
    chosen = len(centers) - 1 - torch.stack(losses[::-1]).argmin(0)
    return torch.bincount(chosen, minlength=len(centers))
"""
VOTES_RELEASED = """
def votes(x, y, centers):
    chosen = released_losses(x, y, centers).argmin(0)
    return torch.bincount(chosen, minlength=len(centers))
"""
VOTES_BY_LABEL = """
def votes(x, y, centers):
    right = [torch.softmax(x @ c.T, 1)[range(len(y)), y] for c in centers]
    return torch.bincount(torch.stack(right).argmax(0), minlength=len(centers))
"""
LIBRARY = """
def weights(u, n, power):
    return cf.fedsoft.aggregation_weights(u**power, n)
"""
BY_CLIENT = """
def weights(u, n, power):
    share = u**power * n[:, None]
    share = torch.where(share.sum(1, keepdim=True) > 0, share, 1.0)
    return (share / share.sum(1, keepdim=True)).T
"""
UNDERFLOW = """
def weights(u, n, power):
    share = (torch.where(u > 0, u**power, 0.0) * n[:, None]).T
    return share / share.sum(1, keepdim=True)
"""
GUARDED = """
def weights(u, n, power):
    share = (torch.where(u > 0, u**power, 0.0) * n[:, None]).T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
"""
POWER_OF_MASS = """
def weights(u, n, power):
    mass = u * n[:, None]
    share = torch.where(u > 0, (mass / mass.max(0).values) ** power, 0.0).T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
"""
SINGLE = {
    "gradient": """
def gradient(w, x, y, u, centers, strength, reach):
    w, x, u, centers = w.float(), x.float(), u.float(), centers.float()
    wrong = torch.softmax(x @ w.T, 1) - nnf.one_hot(y, len(w))
    away = w - centers
    held = (reach / away.flatten(1).norm(dim=1)).clamp(max=1.0)
    return wrong.T @ x / len(x) + strength * torch.tensordot(u * held, away, 1)
""",
    "weights": """
def weights(u, n, power):
    u = u.float()
    sharp = torch.where(u > 0, (u / u.max(0).values) ** power, 0.0)
    share = (sharp * n[:, None]).T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
""",
    "purity": """
def purity(u, v):
    return (v.float() * u.float().T).sum(1)
""",
    "round": one_round(mean="torch.where(total > 0, mean, centers).float()"),
}
EDGE = "[math.log(p) for p in (0.19, 0.8, 0.01)], [math.log(p) for p in (0.18, 0.41, 0.41)], 0"
HEADS = {
    "floor": "floor(classes)",
    "twisted": "twisted()",
    "votes": "votes(x, y, centers)",
    "gradient": "gradient(w, x, y, u, centers, strength, reach)",
    "weights": "weights(u, n, power)",
    "purity": "purity(u, v)",
    "sharpest": "sharpest(table, least)",
    "round": "one_round(t, centers, personal, u, parts)",
    "draw-votes": "draw_votes(pen, u, mixture)",
}

ANSWERS = {  # name: (cells, test cells that fail)
    "solution": ({}, []),
    "empty": (
        {cell: empty(f"def {head}:") for cell, head in HEADS.items()},
        list(TESTS),
    ),
    "single precision": (SINGLE, []),
    # task 1
    "the floor is zero": ({"floor": constant("floor(classes)", "0.0")}, ["floor-test"]),
    "the floor knows nothing": (
        {"floor": constant("floor(classes)", "math.log(classes)")},
        ["floor-test"],
    ),
    "the floor of two classes": (  # seen with ten
        {"floor": constant("floor(classes)", "math.log(1 + 1 / math.e)")},
        ["floor-test"],
    ),
    "a vote that is not turned": (
        {"twisted": constant("twisted()", "[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], 0")},
        ["twisted-test"],
    ),
    "a vote with two classes": (
        {"twisted": constant("twisted()", "[0.1, 0.0], [0.0, 0.0], 0")},
        ["twisted-test"],
    ),
    "a turned vote on the edge": ({"twisted": constant("twisted()", EDGE)}, ["twisted-test"]),
    "the released losses": ({"votes": VOTES_RELEASED}, ["votes-sure-test"]),
    "the largest probability": ({"votes": VOTES_BY_LABEL}, ["votes-sure-test"]),
    "the logarithm of zero": (
        {"votes": votes("-torch.softmax(x @ c.T, 1)[range(len(y)), y].log()")},
        ["votes-sure-test"],
    ),
    "the client votes, not the point": (
        {"votes": VOTES_BY_CLIENT},
        ["votes-test", "votes-sure-test"],
    ),
    "ties to the highest number": ({"votes": VOTES_TIES}, ["votes-test"]),
    "centre without votes left out": (
        {"votes": votes(then="torch.bincount(losses.argmin(0))")},
        ["votes-test"],
    ),
    "no votes at all": (
        {"votes": constant("votes(x, y, centers)", "torch.zeros(len(centers), dtype=torch.long)")},
        ["votes-test", "votes-sure-test"],
    ),
    # task 2
    "loss summed over points": ({"gradient": gradient(data="wrong.T @ x")}, ["gradient-data-test"]),
    "sign of the data part": (
        {"gradient": gradient(data="-wrong.T @ x / len(x)")},
        ["gradient-data-test"],
    ),
    "the gradient of the chapter": (  # no reach
        {"gradient": gradient(pull="u.sum() * w - torch.tensordot(u, centers, 1)")},
        ["gradient-far-test"],
    ),
    "equation 5: weights sum to one": (
        {"gradient": gradient(pull="w - torch.tensordot(u, centers, 1)")},
        ["gradient-near-test", "gradient-far-test"],
    ),
    "shares made to sum to one": (
        {"gradient": gradient(pull="torch.tensordot(u / u.sum() * held, away, 1)")},
        ["gradient-near-test"],
    ),
    "springs twice too strong": (
        {"gradient": gradient(pull="2 * torch.tensordot(u * held, away, 1)")},
        ["gradient-near-test", "gradient-far-test"],
    ),
    "each number cut off alone": (
        {"gradient": gradient(pull="torch.tensordot(u, away.clamp(-reach, reach), 1)")},
        ["gradient-far-test"],
    ),
    "the pull of a unit": (
        {
            "gradient": gradient(
                pull="torch.tensordot(u * (1 / lengths).where(lengths > reach, "
                "torch.ones_like(lengths)), away, 1)"
            )
        },
        ["gradient-far-test"],
    ),
    "a spring that tears": (
        {"gradient": gradient(pull="torch.tensordot(u * (lengths <= reach), away, 1)")},
        ["gradient-far-test"],
    ),
    "one reach for all springs together": (
        {
            "gradient": gradient(
                pull="(lambda p: p * min(1.0, reach / float(p.norm())))"
                "(torch.tensordot(u, away, 1))"
            )
        },
        ["gradient-far-test"],
    ),
    "0/0 on a centre": (
        {
            "gradient": gradient(
                pull="torch.tensordot(u * lengths.clamp(max=reach) / lengths, away, 1)"
            )
        },
        ["gradient-far-test"],
    ),
    # task 3
    "weights forget the sizes": (
        {"weights": weights().replace(" * n[:, None]", "")},
        ["weights-test", "weights-hard-test"],
    ),
    "weights of a client sum to one": (
        {"weights": BY_CLIENT},
        ["weights-test", "weights-hard-test"],
    ),
    "the power forgotten": ({"weights": weights(sharp="u")}, ["weights-test", "weights-hard-test"]),
    "the power of importance and points": (
        {"weights": POWER_OF_MASS},
        ["weights-test", "weights-hard-test"],
    ),
    "0/0 at a large power": ({"weights": UNDERFLOW}, ["weights-hard-test"]),
    "nobody left at a large power": ({"weights": GUARDED}, ["weights-hard-test"]),
    "no importance, and yet weight": (
        {"weights": weights(sharp="(u / u.max(0).values).nan_to_num() ** power", share="sharp")},
        ["weights-hard-test"],
    ),
    "library called": ({"weights": LIBRARY}, ["weights-test", "weights-hard-test"]),
    "weights of zero": (
        {"weights": constant("weights(u, n, power)", "torch.zeros(u.shape[1], u.shape[0])")},
        ["weights-test", "weights-hard-test"],
    ),
    "purity without weights": ({"purity": constant("purity(u, v)", "u.mean(0)")}, ["purity-test"]),
    "purity of the purest": (
        {"purity": constant("purity(u, v)", "u.max(0).values")},
        ["purity-test"],
    ),
    "the other group's part": (
        {"purity": constant("purity(u, v)", "(v * u.flip(1).T).sum(1)")},
        ["purity-test"],
    ),
    "clients with weight counted": (
        {"sharpest": sharpest(number="(rows > 0).sum(1)")},
        ["sharpest-test"],
    ),
    "one good centre is enough": ({"sharpest": sharpest(good=".any()")}, ["sharpest-test"]),
    "the mean of the centres": (
        {"sharpest": sharpest(number="(1 / (rows**2).sum(1)).mean()", good="")},
        ["sharpest-test"],
    ),
    "the smallest power": (
        {"sharpest": sharpest(end="min(good, default=None)")},
        ["sharpest-test", "sharpest-empty-test"],
    ),
    "the last power": (
        {"sharpest": sharpest(end="good[-1] if good else None")},
        ["sharpest-test"],
    ),
    "a centre without weights counts": (
        {
            "sharpest": sharpest(
                rows="v", number="((v**2).sum(1) > 0) / (v**2).sum(1).clamp(min=1e-9)"
            )
        },
        ["sharpest-empty-test"],
    ),
    "some power always": (
        {"sharpest": sharpest(end="max(good, default=0)")},
        ["sharpest-empty-test"],
    ),
    # task 4
    "votes counted every round": ({"round": one_round(weigh="True")}, ["round-interval-test"]),
    "one problem for each centre": (
        {"round": one_round(who="[int(i) for row in v for i in row.nonzero()]")},
        ["round-work-test"],
    ),
    "everyone works": ({"round": one_round(who="range(len(personal))")}, ["round-work-test"]),
    "start from the centres": (
        {"round": one_round(start="centers.mean(0)")},
        ["round-work-test", "round-lost-test"],
    ),
    "weights that no longer sum to one": (
        {"round": one_round(mean="torch.where(total > 0, mean * total, centers)")},
        ["round-lost-test"],
    ),
    "kept models count": ({"round": one_round(heard="v")}, ["round-lost-test"]),
    "a plain mean of who answered": (
        {"round": one_round(heard="(v > 0) * arrived")},
        ["round-lost-test"],
    ),
    "nobody answered, NaN": ({"round": one_round(mean="mean")}, ["round-lost-test"]),
    "nobody answered, zero": (
        {"round": one_round(mean="torch.where(total > 0, mean, 0.0)")},
        ["round-lost-test"],
    ),
    "a lost answer is the start": (
        {
            "round": one_round(
                lost="new[i], arrived[i] = personal[i] if model is None else model, 1"
            )
        },
        ["round-lost-test"],
    ),
    "a round in which nothing happens": (
        {"round": constant(HEADS["round"], "centers, personal, u")},
        ["round-interval-test", "round-work-test", "round-lost-test"],
    ),
    # task 5
    "centre 0 is group 0": ({"draw-votes": draw(name="0")}, ["draw-names-test"]),
    "centres named by one client": (
        {"draw-votes": draw(name="int((u[0] - share[0]).abs().argmin())")},
        ["draw-names-test"],
    ),
    "axes exchanged": ({"draw-votes": draw(dot="y, x")}, ["draw-dots-test", "draw-names-test"]),
    "no line": ({"draw-votes": draw(line="0, 0, 0, 0")}, ["draw-dots-test"]),
    "axes without names": ({"draw-votes": draw(names='"", ""')}, ["draw-words-test"]),
    "a sentence with more numbers": (
        {"draw-votes": draw(said='f"the 2 groups: votes miss by {missed[name]:.2f}"')},
        ["draw-words-test"],
    ),
    # several
    "no power, no reach, no line": (
        {
            "weights": weights(sharp="u"),
            "gradient": gradient(pull="u.sum() * w - torch.tensordot(u, centers, 1)"),
            "draw-votes": draw(line="0, 0, 0, 0"),
        },
        ["weights-test", "weights-hard-test", "gradient-far-test", "draw-dots-test"],
    ),
}

FAILS = {name: set(fails) for name, (_, fails) in ANSWERS.items()}
MISTAKES = {
    name: {"cells": cells, "points": sum(TESTS.values()) - sum(TESTS[one] for one in fails)}
    for name, (cells, fails) in ANSWERS.items()
}
