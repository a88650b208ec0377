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

MISTAKES["A2_ifca"] = {
    "solution": {"points": 70},
    "empty": {**empty("A2_ifca"), "points": 0},
    "option I divided by |S_j|": {
        "option-1": """
def average_gradients(thetas, chosen, gradients, m, step_size):
    new = thetas.clone()
    for j in chosen.unique():
        new[j] -= step_size * gradients[chosen == j].mean(0)
    return new
""",
        "points": 62,
    },
    "option I divided by |M_t|": {
        "option-1": """
def average_gradients(thetas, chosen, gradients, m, step_size):
    new = thetas.clone()
    for j, gradient in zip(chosen.tolist(), gradients):
        new[j] -= step_size / len(chosen) * gradient
    return new
""",
        "points": 62,
    },
    "option I uphill": {
        "option-1": """
def average_gradients(thetas, chosen, gradients, m, step_size):
    new = thetas.clone()
    for j, gradient in zip(chosen.tolist(), gradients):
        new[j] += step_size / m * gradient
    return new
""",
        "points": 64,
    },
    "option I in place": {
        "option-1": """
def average_gradients(thetas, chosen, gradients, m, step_size):
    for j, gradient in zip(chosen.tolist(), gradients):
        thetas[j] -= step_size / m * gradient
    return thetas
""",
        "points": 64,
    },
    "empty cluster NaN": {
        "option-2": """
def average_models(thetas, chosen, returned):
    return torch.stack([returned[chosen == j].mean(0) for j in range(len(thetas))])
""",
        "points": 62,
    },
    "empty cluster zero": {
        "option-2": """
def average_models(thetas, chosen, returned):
    new = torch.zeros_like(thetas)
    for j in chosen.unique():
        new[j] = returned[chosen == j].mean(0)
    return new
""",
        "points": 62,
    },
    "option II divided by m": {
        "option-2": """
def average_models(thetas, chosen, returned):
    new = thetas.clone()
    for j in chosen.unique():
        new[j] = returned[chosen == j].sum(0) / len(chosen)
    return new
""",
        "points": 64,
    },
    "training on the test set": {
        "loop": """
def ifca(people, thetas, rounds, choose, train, average):
    data = [points(people.test, i) for i in range(len(people.test))]
    for _ in range(rounds):
        chosen = [choose(thetas, x, y) for x, y in data]
        returned = torch.stack([train(thetas[j], x, y) for j, (x, y) in zip(chosen, data)])
        chosen = torch.tensor(chosen)
        thetas = average(thetas, chosen, returned)
    return thetas, chosen
""",
        "points": 64,
    },
    "identities chosen once": {
        "loop": """
def ifca(people, thetas, rounds, choose, train, average):
    data = [points(people.train, i) for i in range(len(people.train))]
    chosen = torch.tensor([choose(thetas, x, y) for x, y in data])
    for _ in range(rounds):
        returned = torch.stack([train(thetas[j], x, y) for j, (x, y) in zip(chosen, data)])
        thetas = average(thetas, chosen, returned)
    return thetas, chosen
""",
        "points": 63,
    },
    "start chosen by test data": {
        "best-start": """
def best_start(banks, people):
    def loss(name):
        return cf.compute.loss_matrix(banks[name], people.test).min(1).values.mean()

    return min(banks, key=loss)
""",
        "points": 67,
    },
    "mean over models instead of the lowest": {
        "best-start": """
def best_start(banks, people):
    def loss(name):
        return cf.compute.loss_matrix(banks[name], people.train).mean()

    return min(banks, key=loss)
""",
        "points": 67,
    },
    "loss summed over points": {
        "client-losses": """
def client_losses(thetas, x, y):
    return torch.stack([F.cross_entropy(x @ theta, y, reduction="sum") for theta in thetas])
""",
        "points": 65,
    },
    "NaN is chosen": {
        "choose": """
def choose(losses):
    return int(losses.argmin())
""",
        "points": 66,
    },
    "one local step": {
        "local-update": """
def local_update(theta, x, y, steps, step_size):
    new = theta
    for _ in range(steps):
        p = torch.softmax(x @ theta, 1)
        slope = x.T @ (p - F.one_hot(y, theta.shape[1])) / len(y)
        new = theta - step_size * slope
    return new
""",
        "points": 63,
    },
    "model number compared with group number": {
        "failed-starts": """
def failed_starts(identities, groups):
    return sorted(s for s, chosen in identities.items() if (chosen != groups).any())
""",
        "points": 66,
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
}

MISTAKES["A2_ifca"] |= {
    "double precision": {
        "client-losses": """
def client_losses(thetas, x, y):
    return torch.stack([F.cross_entropy(x.double() @ t.double(), y) for t in thetas])
""",
        "option-1": """
def average_gradients(thetas, chosen, gradients, m, step_size):
    new = thetas.double()
    for j, gradient in zip(chosen.tolist(), gradients):
        new[j] = new[j] - step_size / m * gradient
    return new
""",
        "local-update": """
def local_update(theta, x, y, steps, step_size):
    new = theta.double()
    for _ in range(steps):
        p = torch.softmax(x.double() @ new, 1)
        new = new - step_size * x.T.double() @ (p - F.one_hot(y, new.shape[1])) / len(y)
    return new
""",
        "option-2": """
def average_models(thetas, chosen, returned):
    new = thetas.double()
    for j in chosen.unique():
        new[j] = returned[chosen == j].double().mean(0)
    return new
""",
        "points": 70,
    },
    "models handed back as they were": {
        "option-2": """
def average_models(thetas, chosen, returned):
    return thetas
""",
        "points": 56,
    },
    "a loop that does nothing": {
        "loop": """
def ifca(*anything):
    pass
""",
        "points": 57,
    },
    "no start is kept": {
        "best-start": """
def best_start(banks, people):
    return None
""",
        "points": 64,
    },
}

FAILS["A2_ifca"] = {
    "double precision": set(),
    "models handed back as they were": {"test-option-2-mean", "test-option-2-empty"},
    "a loop that does nothing": {"test-loop", "test-loop-data"},
    "no start is kept": {"test-best-start", "test-best-start-data"},
    "solution": set(),
    "empty": set(tests("A2_ifca")),
    "option I divided by |S_j|": {"test-option-1-divisor"},
    "option I divided by |M_t|": {"test-option-1-divisor"},
    "option I uphill": {"test-option-1-direction"},
    "option I in place": {"test-option-1-direction"},
    "empty cluster NaN": {"test-option-2-empty"},
    "empty cluster zero": {"test-option-2-empty"},
    "option II divided by m": {"test-option-2-mean"},
    "training on the test set": {"test-loop-data"},
    "identities chosen once": {"test-loop"},
    "start chosen by test data": {"test-best-start-data"},
    "mean over models instead of the lowest": {"test-best-start"},
    "loss summed over points": {"test-client-losses"},
    "NaN is chosen": {"test-choose"},
    "one local step": {"test-local-update"},
    "model number compared with group number": {"test-failed-starts"},
    "surplus is the model with the fewest clients": {"test-surplus"},
    "surplus learnt by heart": {"test-surplus"},
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
