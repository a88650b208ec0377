"""Typical answers to assignment 4, wrong ones above all, and the points each must get.

``MISTAKES[name]["cells"]`` maps the ``grade_id`` of a solution cell to what stands there instead of
the solution; ``"points"`` is what the tests then give. Explanations, which a person grades, do not
count. ``FAILS[name]`` names the test cells that fail, and those alone.
"""

NAME = "A4_fedsoft"

# What a test cell is worth.
TESTS = {
    "votes-test": 6,
    "votes-without-test": 3,
    "importance-test": 4,
    "smoother-test": 5,
    "gradient-data-test": 6,
    "gradient-springs-test": 5,
    "gradient-sum-test": 8,
    "walk-test": 5,
    "walk-kept-test": 3,
    "weights-test": 6,
    "weights-empty-test": 4,
    "mix-test": 4,
    "mix-empty-test": 4,
    "round-interval-test": 3,
    "round-work-test": 4,
}


def gradient(data="wrong.T @ x / len(x)", pull="u.sum() * w - torch.tensordot(u, centers, 1)"):
    """Return the solution of task 3 with another data part, or another pull."""
    return f"""
def gradient(w, x, y, u, centers, strength):
    wrong = torch.softmax(x @ w.T, 1) - nnf.one_hot(y, len(w))
    return {data} + strength * ({pull})
"""


def one_round(weigh="t % parts.interval == 0", body=""):
    """Return the solution of task 7 with another condition, or another way to train."""
    body = body or (
        "for i in drawn.any(0).nonzero()[:, 0].tolist():\n"
        "        new[i] = parts.train(i, personal[i], centers, u[i])"
    )
    return f"""
def one_round(t, centers, personal, u, parts):
    if {weigh}:
        u = parts.weigh(centers)
    drawn = parts.draw(u, t)
    new = personal.clone()
    {body}
    return parts.mix(centers, new, drawn), new, u
"""


def empty(head):
    """Return what nbgrader leaves of a solution cell."""
    return f"{head}\n    # YOUR CODE HERE\n    raise NotImplementedError()"


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
VOTES_SHORT = """
def votes(x, y, centers):
    losses = [nnf.cross_entropy(x @ c.T, y, reduction="none") for c in centers]
    return torch.bincount(torch.stack(losses).argmin(0))
"""
NO_SMOOTHER = """
def importance(count, smoother):
    return count.double() / count.sum()
"""
SMOOTHER_ADDED = """
def importance(count, smoother):
    return count.double() / count.sum() + smoother
"""
SUM_FORCED = """
def importance(count, smoother):
    u = (count.double() / count.sum()).clamp(min=smoother)
    return u / u.sum()
"""
NOT_SHARES = """
def importance(count, smoother):
    return count.double().clamp(min=smoother)
"""
ONE_STEP = """
def walk(start, slope, steps, step_size):
    return start - step_size * slope(start)
"""
OLD_SLOPE = """
def walk(start, slope, steps, step_size):
    w, direction = start, slope(start)
    for _ in range(steps):
        w = w - step_size * direction
    return w
"""
UPHILL = """
def walk(start, slope, steps, step_size):
    w = start
    for _ in range(steps):
        w = w + step_size * slope(w)
    return w
"""
IN_PLACE = """
def walk(start, slope, steps, step_size):
    w = start
    for _ in range(steps):
        w -= step_size * slope(w)
    return w
"""
WITHOUT_SIZES = """
def weights(u, n):
    share = u.T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
"""
BY_CLIENT = """
def weights(u, n):
    return (u / u.sum(1, keepdim=True)).T
"""
WEIGHTS_NAN = """
def weights(u, n):
    share = (u * n[:, None]).T
    return share / share.sum(1, keepdim=True)
"""
LIBRARY = """
def weights(u, n):
    return cf.fedsoft.aggregation_weights(u, n)
"""
MIX_BY_ALL = """
def mix(centers, personal, drawn):
    sums = torch.tensordot(drawn.double(), personal, 1) / len(personal)
    return torch.where(drawn.any(1)[:, None, None], sums, centers)
"""
MIX_EVERYONE = """
def mix(centers, personal, drawn):
    return torch.where(drawn.any(1)[:, None, None], personal.mean(0), centers)
"""
MIX_NAN = """
def mix(centers, personal, drawn):
    return torch.stack([personal[row].mean(0) for row in drawn])
"""
MIX_ZERO = """
def mix(centers, personal, drawn):
    new = torch.zeros_like(centers)
    for j, row in enumerate(drawn):
        if row.any():
            new[j] = personal[row].mean(0)
    return new
"""
SINGLE_IMPORTANCE = """
def importance(count, smoother):
    return (count / count.sum()).clamp(min=smoother)
"""
SINGLE_GRADIENT = """
def gradient(w, x, y, u, centers, strength):
    w, x, u, centers = w.float(), x.float(), u.float(), centers.float()
    wrong = torch.softmax(x @ w.T, 1) - nnf.one_hot(y, len(w))
    return wrong.T @ x / len(x) + strength * (u.sum() * w - torch.tensordot(u, centers, 1))
"""
SINGLE_WEIGHTS = """
def weights(u, n):
    share = (u.float() * n[:, None]).T
    total = share.sum(1, keepdim=True)
    return torch.where(total > 0, share / total, 0.0)
"""
SINGLE_MIX = """
def mix(centers, personal, drawn):
    new = centers.float()
    for j, row in enumerate(drawn):
        if row.any():
            new[j] = personal[row].mean(0)
    return new
"""
NO_VOTES = """
def votes(x, y, centers):
    return torch.zeros(len(centers), dtype=torch.long)
"""
NO_WALK = """
def walk(start, slope, steps, step_size):
    pass
"""
NO_WEIGHTS = """
def weights(u, n):
    return torch.zeros(u.shape[1], u.shape[0])
"""
OLD_CENTRES = """
def mix(centers, personal, drawn):
    return centers
"""
NO_ROUND = """
def one_round(t, centers, personal, u, parts):
    return centers, personal, u
"""
PER_CENTRE = """for row in drawn:
        for i in row.nonzero()[:, 0].tolist():
            new[i] = parts.train(i, personal[i], centers, u[i])"""
EVERYONE = """for i in range(len(personal)):
        new[i] = parts.train(i, personal[i], centers, u[i])"""
COLD = """for i in drawn.any(0).nonzero()[:, 0].tolist():
        new[i] = parts.train(i, centers.mean(0), centers, u[i])"""

ANSWERS = {  # name: (cells, test cells that fail)
    "solution": ({}, []),
    "empty": (
        {
            "votes": empty("def votes(x, y, centers):"),
            "importance": empty("def importance(count, smoother):"),
            "gradient": empty("def gradient(w, x, y, u, centers, strength):"),
            "walk": empty("def walk(start, slope, steps, step_size):"),
            "weights": empty("def weights(u, n):"),
            "mix": empty("def mix(centers, personal, drawn):"),
            "round": empty("def one_round(t, centers, personal, u, parts):"),
        },
        list(TESTS),
    ),
    "the client votes, not the point": ({"votes": VOTES_BY_CLIENT}, ["votes-test"]),
    "ties to the highest number": ({"votes": VOTES_TIES}, ["votes-test"]),
    "centre without votes left out": ({"votes": VOTES_SHORT}, ["votes-without-test"]),
    "counts instead of shares": (
        {"importance": NOT_SHARES},
        ["importance-test", "smoother-test"],
    ),
    "no smoother": ({"importance": NO_SMOOTHER}, ["smoother-test"]),
    "smoother added": ({"importance": SMOOTHER_ADDED}, ["smoother-test"]),
    "shares made to sum to one": ({"importance": SUM_FORCED}, ["smoother-test"]),
    "loss summed over points": ({"gradient": gradient(data="wrong.T @ x")}, ["gradient-data-test"]),
    "sign of the data part": (
        {"gradient": gradient(data="-wrong.T @ x / len(x)")},
        ["gradient-data-test"],
    ),
    "equation 5: weights sum to one": (
        {"gradient": gradient(pull="w - torch.tensordot(u, centers, 1)")},
        ["gradient-sum-test"],
    ),
    "weights normalised in the gradient": (
        {"gradient": gradient(pull="w - torch.tensordot(u / u.sum(), centers, 1)")},
        ["gradient-sum-test"],
    ),
    "springs twice too strong": (
        {"gradient": gradient(pull="2 * (u.sum() * w - torch.tensordot(u, centers, 1))")},
        ["gradient-springs-test", "gradient-sum-test"],
    ),
    "two centres assumed": (  # seen by hidden tests alone
        {"gradient": gradient(pull="(u[0] + u[1]) * w - u[0] * centers[0] - u[1] * centers[1]")},
        ["gradient-springs-test", "gradient-sum-test"],
    ),
    "one local step": ({"walk": ONE_STEP}, ["walk-test"]),
    "slope of the start for all steps": ({"walk": OLD_SLOPE}, ["walk-test"]),
    "uphill": ({"walk": UPHILL}, ["walk-test"]),
    "start changed in place": ({"walk": IN_PLACE}, ["walk-kept-test"]),
    "weights forget the sizes": ({"weights": WITHOUT_SIZES}, ["weights-test"]),
    "weights of a client sum to one": ({"weights": BY_CLIENT}, ["weights-test"]),
    "empty cluster NaN in the weights": ({"weights": WEIGHTS_NAN}, ["weights-empty-test"]),
    "library called": ({"weights": LIBRARY}, ["weights-test", "weights-empty-test"]),
    "single precision": (
        {
            "importance": SINGLE_IMPORTANCE,
            "gradient": SINGLE_GRADIENT,
            "weights": SINGLE_WEIGHTS,
            "mix": SINGLE_MIX,
        },
        [],
    ),
    "no votes at all": ({"votes": NO_VOTES}, ["votes-test", "votes-without-test"]),
    "a walk that gives nothing back": ({"walk": NO_WALK}, ["walk-test", "walk-kept-test"]),
    "weights of zero": ({"weights": NO_WEIGHTS}, ["weights-test", "weights-empty-test"]),
    "centres as they were": ({"mix": OLD_CENTRES}, ["mix-test", "mix-empty-test"]),
    "a round in which nothing happens": (
        {"round": NO_ROUND},
        ["round-interval-test", "round-work-test"],
    ),
    "mean divided by all clients": ({"mix": MIX_BY_ALL}, ["mix-test"]),
    "mean of all models": ({"mix": MIX_EVERYONE}, ["mix-test"]),
    "empty cluster NaN": ({"mix": MIX_NAN}, ["mix-empty-test"]),
    "empty cluster zero": ({"mix": MIX_ZERO}, ["mix-empty-test"]),
    "votes counted every round": ({"round": one_round(weigh="True")}, ["round-interval-test"]),
    "one problem for each centre": ({"round": one_round(body=PER_CENTRE)}, ["round-work-test"]),
    "everyone works": ({"round": one_round(body=EVERYONE)}, ["round-work-test"]),
    "start from the centres": ({"round": one_round(body=COLD)}, ["round-work-test"]),
    "no smoother, and NaN twice": (
        {"importance": NO_SMOOTHER, "weights": WEIGHTS_NAN, "mix": MIX_NAN},
        ["smoother-test", "weights-empty-test", "mix-empty-test"],
    ),
}

FAILS = {name: set(fails) for name, (_, fails) in ANSWERS.items()}
MISTAKES = {
    name: {"cells": cells, "points": sum(TESTS.values()) - sum(TESTS[one] for one in fails)}
    for name, (cells, fails) in ANSWERS.items()
}
