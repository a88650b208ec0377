"""Typical answers to the assignments, wrong ones above all, and the points each must get.

``MISTAKES[assignment][name]`` maps the ``grade_id`` of a solution cell to what stands there instead
of the solution, and ``"points"`` to the points that the tests then give: the sum over the test
cells that pass. Explanations, which a person grades, do not count. ``FAILS[assignment][name]``
names the test cells that fail. Two answers stand in every assignment: ``"solution"``, and
``"empty"``, the student copy as it is handed out.
"""

import json
import re

import assignment_mistakes_a4 as a4
import house

ASSIGNMENTS = house.ROOT / "book" / "assignments"
REGION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION", re.MULTILINE | re.DOTALL)


def cells(assignment):
    """Cells of a source notebook, as pairs of nbgrader's metadata ({} if none) and source."""
    path = ASSIGNMENTS / assignment / f"{assignment}.ipynb"
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [(c["metadata"].get("nbgrader", {}) | {"cell": c}, "".join(c["source"])) for c in found]


def empty(assignment):
    """What nbgrader leaves of every solution cell of code."""
    stub = r"\1# YOUR CODE HERE\n\1raise NotImplementedError()"
    return {
        meta["grade_id"]: REGION.sub(stub, source)
        for meta, source in cells(assignment)
        if meta.get("solution") and meta["cell"]["cell_type"] == "code"
    }


def tests(assignment):
    """Points of every test cell."""
    return {
        meta["grade_id"]: meta["points"]
        for meta, _ in cells(assignment)
        if meta.get("grade") and not meta["solution"]
    }


MISTAKES, FAILS = {}, {}

# ---------------------------------------------------------------- A4, FedSoft, in a file of its own

MISTAKES[a4.NAME] = {
    name: {**case["cells"], "points": case["points"]} for name, case in a4.MISTAKES.items()
}
FAILS[a4.NAME] = a4.FAILS

# ---------------------------------------------------------------- A2, IFCA


def loop(
    part="people.train",
    who="invited(t)",
    begin="pass",
    pick="choose(thetas, x, y)",
    lost="pass",
):
    """Return a solution of A2's task 4 with something else in one place."""
    return f"""
def ifca(people, thetas, rounds, invited, choose, train, average):
    chosen = torch.full((len(people.train),), -1)
    {begin}
    for t in range(rounds):
        heard, returned = [], []
        for i in {who}:
            x, y = points({part}, i)
            j = {pick}
            model = train(thetas[j], x, y)
            {lost}
            if model is not None:
                heard.append(i)
                returned.append(model)
                chosen[i] = j
        if heard:
            counts = people.train.counts[heard]
            thetas = average(thetas, chosen[heard], torch.stack(returned), counts)
    return thetas, chosen
"""


def draw(
    low="min(own)",
    high="max(own)",
    mean="float(row.mean())",
    alarm="mean - min(own) > 0.05",
    limits="0, 1",
    names='"start", "accuracy"',
    said='f"{alarms} of {len(accuracy)} starts lose a group"',
):
    """Return a solution of A2's task 6 with something else in one place."""
    return f"""
def draw_starts(pen, accuracy, groups):
    alarms = 0
    for s, row in enumerate(accuracy):
        own = [float(row[groups == g].mean()) for g in groups.unique()]
        mean = {mean}
        alarm = {alarm}
        alarms += alarm
        pen.range(s, {low}, {high})
        pen.dot(s, mean, alarm)
    pen.limits({limits})
    pen.names({names})
    pen.say({said})
"""


def keep(mean="mean()", again="pass"):
    """Return a solution of A2's task 7 with something else in one place."""
    return f"""
def keep(losses, tolerance):
    kept = list(range(losses.shape[1]))
    most = losses.min(1).values.{mean} + tolerance
    while len(kept) > 1:
        rest = [[i for i in kept if i != j] for j in kept]
        best = min(rest, key=lambda some: float(losses[:, some].min(1).values.{mean}))
        if losses[:, best].min(1).values.{mean} > most:
            break
        kept = best
        {again}
    return kept
"""


MISTAKES["A2_ifca"] = {
    "solution": {"points": 70},
    "empty": {**empty("A2_ifca"), "points": 0},
    "every client counts alike": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new = thetas.clone()
    for j in chosen.unique():
        new[j] = returned[chosen == j].mean(0)
    return new
""",
        "points": 65,
    },
    "weights of all participants": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new, share = thetas.clone(), counts / counts.sum()
    for j in chosen.unique():
        mine = chosen == j
        new[j] = torch.tensordot(share[mine], returned[mine], 1)
    return new
""",
        "points": 65,
    },
    "sums of models": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new = thetas.clone()
    for j in chosen.unique():
        mine = chosen == j
        new[j] = torch.tensordot(counts[mine].float(), returned[mine], 1)
    return new
""",
        "points": 65,
    },
    "option II in place": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    for j in chosen.unique():
        mine = chosen == j
        share = counts[mine] / counts[mine].sum()
        thetas[j] = torch.tensordot(share, returned[mine], 1)
    return thetas
""",
        "points": 65,
    },
    "empty cluster NaN": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new = []
    for j in range(len(thetas)):
        mine = chosen == j
        share = counts[mine] / counts[mine].sum()
        new.append(torch.tensordot(share, returned[mine], 1) / share.sum())
    return torch.stack(new)
""",
        "points": 66,
    },
    "empty cluster zero": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new = torch.zeros_like(thetas)
    for j in chosen.unique():
        mine = chosen == j
        share = counts[mine] / counts[mine].sum()
        new[j] = torch.tensordot(share, returned[mine], 1)
    return new
""",
        "points": 66,
    },
    "models handed back as they were": {
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    return thetas
""",
        "points": 61,
    },
    "two servers count alike": {
        "merge": """
def merge(first, second):
    return (first[0] + second[0]) / 2, first[1] + second[1]
""",
        "points": 64,
    },
    "merge of nothing NaN": {
        "merge": """
def merge(first, second):
    shape = [-1] + [1] * (first[0].dim() - 1)
    one, two = (part[1].reshape(shape) for part in (first, second))
    return (one * first[0] + two * second[0]) / (one + two), first[1] + second[1]
""",
        "points": 64,
    },
    "merge forgets what is behind": {
        "merge": """
def merge(first, second):
    shape = [-1] + [1] * (first[0].dim() - 1)
    one, two = (part[1].reshape(shape) for part in (first, second))
    mean = (one * first[0] + two * second[0]) / (one + two).clamp(min=1)
    return torch.where(one + two > 0, mean, first[0]), torch.maximum(first[1], second[1])
""",
        "points": 64,
    },
    "option I divided by |S_j|": {
        "option-1": """
def option_one(thetas, chosen, returned, m):
    new = thetas.clone()
    for j in chosen.unique():
        new[j] = returned[chosen == j].mean(0)
    return new
""",
        "points": 65,
    },
    "option I divided by |M_t|": {
        "option-1": """
def option_one(thetas, chosen, returned, m):
    new = thetas.clone()
    for j, model in zip(chosen.tolist(), returned):
        new[j] += (model - thetas[j]) / len(chosen)
    return new
""",
        "points": 65,
    },
    "option I uphill": {
        "option-1": """
def option_one(thetas, chosen, returned, m):
    new = thetas.clone()
    for j, model in zip(chosen.tolist(), returned):
        new[j] += (thetas[j] - model) / m
    return new
""",
        "points": 67,
    },
    "option I in place": {
        "option-1": """
def option_one(thetas, chosen, returned, m):
    before = thetas.clone()
    for j, model in zip(chosen.tolist(), returned):
        thetas[j] += (model - before[j]) / m
    return thetas
""",
        "points": 67,
    },
    "the old model forgotten": {
        "option-1": """
def option_one(thetas, chosen, returned, m):
    new = thetas.clone()
    for j in chosen.unique():
        new[j] = returned[chosen == j].sum(0) / m
    return new
""",
        "points": 62,
    },
    "training on the test set": {
        "loop": loop(part="people.test"),
        "points": 68,
    },
    "identities chosen once": {
        "loop": loop(
            begin="fixed = [choose(thetas, *points(people.train, i)) for i in range(len(chosen))]",
            pick="fixed[i]",
        ),
        "points": 61,
    },
    "one client after another": {
        "loop": """
def ifca(people, thetas, rounds, invited, choose, train, average):
    chosen = torch.full((len(people.train),), -1)
    for t in range(rounds):
        for i in invited(t):
            x, y = points(people.train, i)
            j = choose(thetas, x, y)
            model = train(thetas[j], x, y)
            if model is not None:
                chosen[i] = j
                counts = people.train.counts[[i]]
                thetas = average(thetas, chosen[[i]], model[None], counts)
    return thetas, chosen
""",
        "points": 61,
    },
    "everybody works": {
        "loop": loop(who="range(len(people.train))", begin="invited(0)"),
        "points": 64,
    },
    "a lost answer counts as the old model": {
        "loop": loop(lost="model = thetas[j] if model is None else model"),
        "points": 64,
    },
    "the identity of a lost answer noted": {
        "loop": loop(lost="chosen[i] = j"),
        "points": 64,
    },
    "a loop that does nothing": {
        "loop": """
def ifca(*anything):
    pass
""",
        "points": 59,
    },
    "an example without a lost group": {
        "fooled": """
def fooled():
    truth = [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
    return [[0.0, 0.0], [4.0, 0.05], [0.0, 4.0]], truth
""",
        "points": 65,
    },
    "an example with equal models": {
        "fooled": """
def fooled():
    return [[0.0, 0.0], [0.0, 0.0], [4.0, 0.0]], [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
""",
        "points": 65,
    },
    "an example that fools nobody": {
        "fooled": """
def fooled():
    return [[0.0, 0.0], [4.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
""",
        "points": 65,
    },
    "an example on the edge": {  # seen by hidden tests alone
        "fooled": """
def fooled():
    return [[0.0, 0.0], [0.299, 0.0], [4.0, 0.0]], [[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
""",
        "points": 65,
    },
    "the released measure": {
        "distance": """
def distance(found, truth):
    return released_distance(found, truth)
""",
        "points": 63,
    },
    "each true model's nearest": {
        "distance": """
def distance(found, truth):
    return float(torch.cdist(truth, found).min(1).values.mean())
""",
        "points": 63,
    },
    "nearest, in both directions": {
        "distance": """
def distance(found, truth):
    gaps = torch.cdist(found, truth)
    return float(max(gaps.min(0).values.mean(), gaps.min(1).values.mean()))
""",
        "points": 63,
    },
    "the nearest free one first": {
        "distance": """
def distance(found, truth):
    gaps, total = torch.cdist(found, truth), 0.0
    for _ in range(len(gaps)):
        i, j = divmod(int(gaps.argmin()), len(gaps))
        total += float(gaps[i, j])
        gaps[i], gaps[:, j] = torch.inf, torch.inf
    return total / len(gaps)
""",
        "points": 63,
    },
    "worst client in place of worst group": {
        "draw-starts": draw(low="float(row.min())", high="float(row.max())"),
        "points": 65,
    },
    "the mean of groups": {
        "draw-starts": draw(mean="sum(own) / len(own)"),
        "points": 65,
    },
    "alarm for every difference": {
        "draw-starts": draw(alarm="mean > min(own)"),
        "points": 67,
    },
    "an axis that exaggerates": {
        "draw-starts": draw(limits="float(accuracy.min()), 1"),
        "points": 67,
    },
    "axes without names": {
        "draw-starts": draw(names='"", ""'),
        "points": 67,
    },
    "the sentence counts what is well": {
        "draw-starts": draw(said='f"{len(accuracy) - alarms} of {len(accuracy)} starts are well"'),
        "points": 67,
    },
    "loss summed over points": {
        "client-losses": """
def client_losses(thetas, x, y):
    return torch.stack([F.cross_entropy(x @ theta, y, reduction="sum") for theta in thetas])
""",
        "points": 68,
    },
    "NaN is chosen": {
        "choose": """
def choose(losses):
    return int(losses.argmin())
""",
        "points": 67,
    },
    "NaN counts as a large loss": {  # infinity is larger
        "choose": """
def choose(losses):
    return int(losses.nan_to_num(nan=1e9).argmin())
""",
        "points": 67,
    },
    "surplus is the model with the fewest clients": {
        "surplus": """
def surplus(losses):
    return int(torch.bincount(losses.argmin(1), minlength=losses.shape[1]).argmin())
""",
        "points": 67,
    },
    "surplus learnt by heart": {
        "surplus": """
def surplus(losses):
    return 2 if len(losses) == 2 else 0
""",
        "points": 67,
    },
    "each model judged beside all others": {  # of two alike both go
        "keep": """
def keep(losses, tolerance):
    k, start = losses.shape[1], losses.min(1).values.mean()
    kept = []
    for j in range(k):
        others = [i for i in range(k) if i != j]
        if losses[:, others].min(1).values.mean() > start + tolerance:
            kept.append(j)
    return kept or [int(losses.sum(0).argmin())]
""",
        "points": 65,
    },
    "the tolerance anew at each step": {
        "keep": keep(again="most = losses[:, kept].min(1).values.mean() + tolerance"),
        "points": 65,
    },
    "total in place of the mean": {
        "keep": keep(mean="sum()"),
        "points": 65,
    },
    "positions in place of numbers": {
        "keep": """
def keep(losses, tolerance):
    most = losses.min(1).values.mean() + tolerance
    while losses.shape[1] > 1:
        k = losses.shape[1]
        rest = [losses[:, [i for i in range(k) if i != j]] for j in range(k)]
        best = min(rest, key=lambda some: float(some.min(1).values.mean()))
        if best.min(1).values.mean() > most:
            break
        losses = best
    return list(range(losses.shape[1]))
""",
        "points": 67,
    },
    "all models are kept": {
        "keep": """
def keep(losses, tolerance):
    return list(range(losses.shape[1]))
""",
        "points": 62,
    },
    "double precision": {
        "client-losses": """
def client_losses(thetas, x, y):
    return torch.stack([F.cross_entropy(x.double() @ t.double(), y) for t in thetas])
""",
        "option-2": """
def average_models(thetas, chosen, returned, counts):
    new = thetas.double()
    for j in chosen.unique():
        mine = chosen == j
        share = counts[mine].double() / counts[mine].sum()
        new[j] = torch.tensordot(share, returned[mine].double(), 1)
    return new
""",
        "merge": """
def merge(first, second):
    shape = [-1] + [1] * (first[0].dim() - 1)
    one, two = (part[1].double().reshape(shape) for part in (first, second))
    mean = (one * first[0] + two * second[0]) / (one + two).clamp(min=1)
    return torch.where(one + two > 0, mean, first[0].double()), first[1] + second[1].double()
""",
        "option-1": """
def option_one(thetas, chosen, returned, m):
    new = thetas.double()
    for j, model in zip(chosen.tolist(), returned):
        new[j] += (model.double() - thetas[j]) / m
    return new
""",
        "points": 70,
    },
    "numbers of NumPy, and SciPy": {
        "choose": """
def choose(losses):
    return int(losses.nan_to_num(nan=float("inf")).numpy().argmin())
""",
        "distance": """
def distance(found, truth):
    from scipy.optimize import linear_sum_assignment

    gaps = torch.cdist(found, truth).numpy()
    return gaps[linear_sum_assignment(gaps)].mean()
""",
        "keep": """
def keep(losses, tolerance):
    import numpy as np

    table, kept = losses.numpy(), np.arange(losses.shape[1])
    most = table.min(1).mean() + tolerance
    while len(kept) > 1:
        means = [table[:, np.delete(kept, j)].min(1).mean() for j in range(len(kept))]
        if min(means) > most:
            break
        kept = np.delete(kept, np.argmin(means))
    return kept
""",
        "points": 70,
    },
}

FAILS["A2_ifca"] = {
    "solution": set(),
    "empty": set(tests("A2_ifca")),
    "double precision": set(),
    "numbers of NumPy, and SciPy": set(),
    "every client counts alike": {"test-option-2-weights"},
    "weights of all participants": {"test-option-2-weights"},
    "sums of models": {"test-option-2-weights"},
    "option II in place": {"test-option-2-weights"},
    "empty cluster NaN": {"test-option-2-empty"},
    "empty cluster zero": {"test-option-2-empty"},
    "models handed back as they were": {"test-option-2-weights", "test-option-2-empty"},
    "two servers count alike": {"test-merge"},
    "merge of nothing NaN": {"test-merge"},
    "merge forgets what is behind": {"test-merge"},
    "option I divided by |S_j|": {"test-option-1-divisor"},
    "option I divided by |M_t|": {"test-option-1-divisor"},
    "option I uphill": {"test-option-1-direction"},
    "option I in place": {"test-option-1-direction"},
    "the old model forgotten": {"test-option-1-direction", "test-option-1-divisor"},
    "training on the test set": {"test-loop-data"},
    "identities chosen once": {"test-loop", "test-loop-absent"},
    "one client after another": {"test-loop", "test-loop-absent"},
    "everybody works": {"test-loop-absent"},
    "a lost answer counts as the old model": {"test-loop-absent"},
    "the identity of a lost answer noted": {"test-loop-absent"},
    "a loop that does nothing": {"test-loop", "test-loop-absent", "test-loop-data"},
    "an example without a lost group": {"test-fooled"},
    "an example with equal models": {"test-fooled"},
    "an example that fools nobody": {"test-fooled"},
    "an example on the edge": {"test-fooled"},
    "the released measure": {"test-distance"},
    "each true model's nearest": {"test-distance"},
    "nearest, in both directions": {"test-distance"},
    "the nearest free one first": {"test-distance"},
    "worst client in place of worst group": {"test-draw-ranges"},
    "the mean of groups": {"test-draw-ranges"},
    "alarm for every difference": {"test-draw-words"},
    "an axis that exaggerates": {"test-draw-words"},
    "axes without names": {"test-draw-words"},
    "the sentence counts what is well": {"test-draw-words"},
    "loss summed over points": {"test-client-losses"},
    "NaN is chosen": {"test-choose"},
    "NaN counts as a large loss": {"test-choose"},
    "surplus is the model with the fewest clients": {"test-surplus"},
    "surplus learnt by heart": {"test-surplus"},
    "each model judged beside all others": {"test-keep"},
    "the tolerance anew at each step": {"test-keep"},
    "total in place of the mean": {"test-keep"},
    "positions in place of numbers": {"test-keep-numbers"},
    "all models are kept": {"test-keep", "test-keep-numbers"},
}

# ---------------------------------------------------------------- A3, CFL

MISTAKES["A3_cfl"] = {
    "solution": {"points": 70},
    "empty": {**empty("A3_cfl"), "points": 0},
    "positions instead of ids": {
        "find-clusters": """
def find_clusters(similarity, limit):
    waiting, done = [list(range(len(similarity)))], []
    while waiting:
        clients = waiting.pop(0)
        if len(clients) == 1:
            done.append(clients)
            continue
        alpha = similarity[clients][:, clients]
        first, second = best_cut(alpha)
        if alpha[first][:, second].max() > limit:
            done.append(clients)
        else:
            waiting += [first, second]
    return done
""",
        "points": 58,
    },
    "one cut and no more": {
        "find-clusters": """
def find_clusters(similarity, limit):
    first, second = best_cut(similarity)
    if similarity[first][:, second].max() > limit:
        return [list(range(len(similarity)))]
    return [first, second]
""",
        "points": 58,
    },
    "inner products without lengths": {
        "cosine": """
def similarities(updates):
    return updates @ updates.T
""",
        "points": 64,
    },
    "zero update gives NaN": {
        "cosine": """
def similarities(updates):
    unit = updates / updates.norm(dim=1, keepdim=True)
    return unit @ unit.T
""",
        "points": 67,
    },
    "mean of the torn pairs": {
        "torn": """
def torn(alpha, first, second):
    return float(alpha[first][:, second].mean())
""",
        "points": 66,
    },
    "complete linkage as the best cut": {
        "bipartition": """
def bipartition(alpha):
    upper = np.triu_indices(len(alpha), 1)
    links = hierarchy.linkage(1 - alpha.numpy()[upper], "complete")
    side = hierarchy.cut_tree(links, 2)[:, 0]
    return np.flatnonzero(side == 0).tolist(), np.flatnonzero(side).tolist()
""",
        "points": 58,
    },
    "the least similar pair as seeds": {
        "bipartition": """
def bipartition(alpha):
    i, j = divmod(int(alpha.argmin()), len(alpha))
    near = alpha[i] >= alpha[j]
    near[i], near[j] = True, False
    return near.nonzero()[:, 0].tolist(), (~near).nonzero()[:, 0].tolist()
""",
        "points": 58,
    },
    "every repeated listing reported": {
        "problems": """
def problems(clusters, m):
    seen, several = set(), []
    for cluster in clusters:
        several += [i for i in cluster if i in seen]
        seen |= set(cluster)
    return sorted(several), sorted(set(range(m)) - seen)
""",
        "points": 67,
    },
    "torn groups without clients on both sides": {
        "torn-groups": """
def torn_groups(first, second, groups):
    return sorted({groups[i] for i in first})
""",
        "points": 66,
    },
    "example on which both methods agree": {
        "counterexample": """
def counterexample():
    return [0, 10, 20, 120, 130, 140], [0, 0, 0, 1, 1, 1]
""",
        "points": 62,
    },
    "example of the chapter": {
        "counterexample": """
def counterexample():
    return [0, 15, 31, 48, 66, 85, 118, 130], [0, 0, 0, 0, 0, 0, 1, 1]
""",
        "points": 62,
    },
    "mean update not weighted": {
        "decide": """
def decide(updates, counts, torn_similarity, eps1, eps2, gamma_max):
    if updates.mean(0).norm() >= eps1:
        return "moving"
    if updates.norm(dim=1).max() <= eps2:
        return "content"
    return "unsafe" if gamma_max >= ((1 - torn_similarity) / 2) ** 0.5 else "split"
""",
        "points": 65,
    },
    "mean of the lengths": {
        "decide": """
def decide(updates, counts, torn_similarity, eps1, eps2, gamma_max):
    lengths = updates.norm(dim=1)
    if (counts / counts.sum()) @ lengths >= eps1:
        return "moving"
    if lengths.max() <= eps2:
        return "content"
    return "unsafe" if gamma_max >= ((1 - torn_similarity) / 2) ** 0.5 else "split"
""",
        "points": 65,
    },
    "content when one client is": {
        "decide": """
def decide(updates, counts, torn_similarity, eps1, eps2, gamma_max):
    if ((counts / counts.sum()) @ updates).norm() >= eps1:
        return "moving"
    if updates.norm(dim=1).min() <= eps2:
        return "content"
    return "unsafe" if gamma_max >= ((1 - torn_similarity) / 2) ** 0.5 else "split"
""",
        "points": 66,
    },
    "similarity in the place of the root": {
        "decide": """
def decide(updates, counts, torn_similarity, eps1, eps2, gamma_max):
    if ((counts / counts.sum()) @ updates).norm() >= eps1:
        return "moving"
    if updates.norm(dim=1).max() <= eps2:
        return "content"
    return "unsafe" if gamma_max >= (1 - torn_similarity) / 2 else "split"
""",
        "points": 65,
    },
}

MISTAKES["A3_cfl"] |= {
    "zero for every pair": {
        "cosine": """
def similarities(updates):
    return torch.zeros(len(updates), len(updates))
""",
        "points": 61,
    },
    "the library called": {
        "bipartition": """
def bipartition(alpha):
    return [side.tolist() for side in cf.cfl.optimal_bipartition(alpha)]
""",
        "points": 58,
    },
}

FAILS["A3_cfl"] = {
    "zero for every pair": {"test-cosine", "test-cosine-zero"},
    "the library called": {"test-bipartition"},
    "solution": set(),
    "empty": set(tests("A3_cfl")),
    "positions instead of ids": {"test-all-cuts"},
    "one cut and no more": {"test-all-cuts"},
    "inner products without lengths": {"test-cosine"},
    "zero update gives NaN": {"test-cosine-zero"},
    "mean of the torn pairs": {"test-torn"},
    "complete linkage as the best cut": {"test-bipartition"},
    "the least similar pair as seeds": {"test-bipartition"},
    "every repeated listing reported": {"test-problems"},
    "torn groups without clients on both sides": {"test-torn-groups"},
    "example on which both methods agree": {"test-counterexample"},
    "example of the chapter": {"test-counterexample"},
    "mean update not weighted": {"test-moving"},
    "mean of the lengths": {"test-moving"},
    "content when one client is": {"test-content"},
    "similarity in the place of the root": {"test-unsafe"},
}

# ---------------------------------------------------------------- A1, heterogeneity

MISTAKES["A1_heterogeneity"] = {
    "solution": {"points": 70},
    "empty": {**empty("A1_heterogeneity"), "points": 0},
    "rounding loses images": {
        "deal": """
def deal(y, shares):
    hands = [[] for _ in shares]
    for c in range(shares.shape[1]):
        rows, first = (y == c).nonzero()[:, 0], 0
        for i, hand in enumerate(hands):
            number = int(float(shares[i, c]) * len(rows))
            hand.append(rows[first : first + number])
            first += number
    return [torch.cat(hand) for hand in hands]
""",
        "points": 64,
    },
    "images drawn with replacement": {
        "deal": """
def deal(y, shares):
    random = torch.Generator().manual_seed(0)
    hands = [[] for _ in shares]
    for c in range(shares.shape[1]):
        rows = (y == c).nonzero()[:, 0]
        for i, hand in enumerate(hands):
            number = round(float(shares[i, c]) * len(rows))
            picked = torch.randint(len(rows), (number,), generator=random)
            hand.append(rows[picked])
    return [torch.cat(hand) for hand in hands]
""",
        "points": 64,
    },
    "shares ignored": {
        "deal": """
def deal(y, shares):
    return list(torch.arange(len(y)).tensor_split(len(shares)))
""",
        "points": 65,
    },
    "mean of shares instead of all points": {
        "label-skew": """
def label_skew(labels, classes):
    own = torch.stack([y.bincount(minlength=classes) / len(y) for y in labels])
    return (own - own.mean(0)).abs().sum(1) / 2
""",
        "points": 67,
    },
    "distance not halved": {
        "label-skew": """
def label_skew(labels, classes):
    counts = torch.stack([y.bincount(minlength=classes) for y in labels])
    own = counts / counts.sum(1, keepdim=True)
    return (own - counts.sum(0) / counts.sum()).abs().sum(1)
""",
        "points": 61,
    },
    "plain mean of the models": {
        "average": """
def weighted_average(thetas, counts):
    return thetas.mean(0)
""",
        "points": 65,
    },
    "each client compared with itself": {
        "cosine": """
def mean_cosine(updates):
    unit = updates / updates.norm(dim=1, keepdim=True)
    return float((unit @ unit.T).mean())
""",
        "points": 64,
    },
    "accuracy over all images": {
        "accuracies": """
def client_accuracies(theta, clients):
    hits = [((x @ theta).argmax(1) == y).float() for x, y in clients]
    return torch.cat(hits).mean().expand(len(clients))
""",
        "points": 64,
    },
    "the two means are one": {
        "fairness": """
def fairness(accuracy, counts):
    return {
        "client mean": float(accuracy.mean()),
        "image mean": float(accuracy.mean()),
        "worst": float(accuracy.min()),
        "spread": float(accuracy.std(unbiased=False)),
    }
""",
        "points": 65,
    },
    "worst is the client with the fewest images": {
        "fairness": """
def fairness(accuracy, counts):
    return {
        "client mean": float(accuracy.mean()),
        "image mean": float((accuracy * counts).sum() / counts.sum()),
        "worst": float(accuracy[counts.argmin()]),
        "spread": float(accuracy.std(unbiased=False)),
    }
""",
        "points": 67,
    },
    "spread of a sample": {
        "fairness": """
def fairness(accuracy, counts):
    return {
        "client mean": float(accuracy.mean()),
        "image mean": float((accuracy * counts).sum() / counts.sum()),
        "worst": float(accuracy.min()),
        "spread": float(accuracy.std()),
    }
""",
        "points": 67,
    },
    "two groups only": {
        "group-gap": """
def group_gap(accuracy, groups):
    return float((accuracy[groups == 0].mean() - accuracy[groups == 1].mean()).abs())
""",
        "points": 65,
    },
    "margin forgotten": {
        "better-alone": """
def better_alone(together, alone, margin=0.0):
    return (alone > together).nonzero()[:, 0].tolist()
""",
        "points": 65,
    },
    "ceiling of two equal groups": {
        "ceiling": """
def ceiling(names, shares):
    return 1 - float((names[0] != names[1]).float().mean()) / 2
""",
        "points": 64,
    },
    "the model follows the largest group": {
        "ceiling": """
def ceiling(names, shares):
    leader = names[shares.argmax()]
    return float((shares @ (names == leader).float()).mean())
""",
        "points": 64,
    },
}

MISTAKES["A1_heterogeneity"] |= {
    "nobody gets an image": {
        "deal": """
def deal(y, shares):
    return []
""",
        "points": 59,
    },
    "double precision": {
        "average": """
def weighted_average(thetas, counts):
    return torch.tensordot(counts.double() / counts.sum(), thetas.double(), 1)
""",
        "cosine": """
def mean_cosine(updates):
    unit = updates.double() / updates.double().norm(dim=1, keepdim=True)
    alpha, m = unit @ unit.T, len(updates)
    return (alpha.sum() - alpha.trace()) / (m * (m - 1))
""",
        "points": 70,
    },
}

FAILS["A1_heterogeneity"] = {
    "nobody gets an image": {"test-deal-once", "test-deal-shares"},
    "double precision": set(),
    "solution": set(),
    "empty": set(tests("A1_heterogeneity")),
    "rounding loses images": {"test-deal-once"},
    "images drawn with replacement": {"test-deal-once"},
    "shares ignored": {"test-deal-shares"},
    "mean of shares instead of all points": {"test-label-skew-pooled"},
    "distance not halved": {"test-label-skew", "test-label-skew-pooled"},
    "plain mean of the models": {"test-average"},
    "each client compared with itself": {"test-cosine"},
    "accuracy over all images": {"test-accuracies"},
    "the two means are one": {"test-means"},
    "worst is the client with the fewest images": {"test-worst"},
    "spread of a sample": {"test-spread"},
    "two groups only": {"test-group-gap"},
    "margin forgotten": {"test-better-alone"},
    "ceiling of two equal groups": {"test-ceiling-many"},
    "the model follows the largest group": {"test-ceiling-many"},
}
