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
        return cf.local.loss_matrix(banks[name], people.test).min(1).values.mean()

    return min(banks, key=loss)
""",
        "points": 67,
    },
    "mean over models instead of the lowest": {
        "best-start": """
def best_start(banks, people):
    def loss(name):
        return cf.local.loss_matrix(banks[name], people.train).mean()

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
    "surplus learnt by heart": {
        "surplus": """
def surplus(losses):
    return 2 if len(losses) == 2 else 0
""",
        "points": 67,
    },
}

FAILS["A2_ifca"] = {
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
    "surplus learnt by heart": {"test-surplus"},
}
