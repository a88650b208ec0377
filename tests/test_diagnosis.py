"""What can be seen without the truth: each observable against plain loops, and who may look."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.metrics import silhouette_score

import clusterfl_core as cf
from clusterfl_core import diagnosis, grouping
from clusterfl_core.randomness import generator

STEP = cf.LocalSGD(3, 0.3)
ROUNDS = 4


def people(sizes=(9, 12, 3, 8, 10, 16), seed=0, turned=3):
    """Points in the plane in three classes; the last clients give the classes other names."""
    draw = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for i, n in enumerate(sizes):
        y = torch.randint(3, (n,), generator=draw)
        corner = torch.tensor([[2.0, 0], [-1, 2], [-1, -2]])[y]
        xs.append(corner + torch.randn(n, 2, generator=draw))
        ys.append((y + (i >= turned)) % 3)
    train = cf.Clients.from_lists(xs, ys)
    return cf.Federation(train, train, classes=3)


def seen(federation, model=None, **more):
    model = model or cf.models.MLP(2, 4, 3)
    return cf.diagnose(federation, model, **{"local": STEP, "rounds": ROUNDS} | more)


# ---------------------------------------------------------------- plain loops


def stepped(theta, x, y, times):
    """So many rounds of full-batch descent, with autograd, on one client."""
    for _ in range(times * STEP.steps):
        theta = [t.clone().requires_grad_() for t in theta]
        loss = torch.nn.functional.cross_entropy(answers(theta, x), y)
        slopes = torch.autograd.grad(loss, theta)
        theta = [(t - STEP.step_size * g).detach() for t, g in zip(theta, slopes, strict=True)]
    return theta


def answers(theta, x):
    first, first_bias, second, second_bias = theta
    return (x @ first.T + first_bias).relu() @ second.T + second_bias


def right(theta, x, y):
    return float((answers(theta, x).argmax(1) == y).double().mean())


def stands_out(rows):
    """Best cut above clouds and by how much, with SciPy's tree and scikit-learn's silhouettes."""

    def cuts(points):
        tree = linkage(points, "ward")
        return [fcluster(tree, k, "maxclust") for k in range(2, len(points) // 2 + 1)]

    def scores(points):
        apart = squareform(pdist(points))
        each = [silhouette_score(apart, cut, metric="precomputed") for cut in cuts(points)]
        return np.array(each)

    source = generator("clouds without groups", 0, 0, len(rows))
    clouds = [scores(one) for one in grouping.spread_alike(rows, source, 99)]
    excess = scores(rows) - np.mean(clouds, 0)
    return excess.max(), cuts(rows)[excess.argmax()]


def test_each_observable_is_that_of_plain_loops():
    federation = people()
    found, model = seen(federation), cf.models.MLP(2, 4, 3)
    start = [t[0] for t in cf.banks.Bank.fresh(model, 1, 0).tensors.values()]
    points = [federation.train.points(i) for i in range(6)]
    near, far = [], []
    for x, y in points:
        back = [j for j in range(len(y)) if j % 4 == 3] or [len(y) - 1]
        rest = [j for j in range(len(y)) if j not in back]
        near.append((x[rest], y[rest]))
        far.append((x[back], y[back]))
    first = [stepped(start, *one, 1) for one in near]
    last = [stepped(start, *one, ROUNDS) for one in near]
    weights = torch.tensor([float(len(y)) for _, y in near])
    one = start
    for _ in range(ROUNDS):
        sent = [stepped(one, *own, 1) for own in near]
        stacked = [torch.stack(same) for same in zip(*sent, strict=True)]
        one = [torch.tensordot(weights / weights.sum(), t, 1) for t in stacked]
    tuned = [stepped(one, *own, 5) for own in near]

    alone = np.array([right(t, *own) for t, own in zip(last, far, strict=True)])
    shared = np.array([right(one, *own) for own in far])
    own = np.array([right(t, *own) for t, own in zip(tuned, far, strict=True)])
    assert (found.alone, found.shared, found.tuned) == pytest.approx(
        (alone.mean(), shared.mean(), own.mean()), abs=1e-12
    )
    for pair, values in ((found.gap, shared - alone), (found.gain, own - shared)):
        error = np.sqrt(((values - values.mean()) ** 2).sum() / 5 / 6)
        assert pair == pytest.approx((values.mean(), error), abs=1e-12)
    assert len({found.alone, found.shared, found.tuned}) == 3  # else nothing was told apart

    def flat(theta):
        return torch.cat([(t - s).flatten() for t, s in zip(theta, start, strict=True)]).double()

    lone = torch.stack([flat(t) for t in last]).numpy()
    excess, cut = stands_out(lone)
    assert found.excess == pytest.approx(excess, abs=1e-5)
    updates = torch.stack([flat(t) for t in first])
    lengths, sides = updates.norm(dim=1), {True: [], False: []}
    for i in range(6):
        for j in range(6):
            if i != j:
                cosine = float(updates[i] @ updates[j] / lengths[i] / lengths[j])
                sides[cut[i] == cut[j]].append(cosine)
    assert found.within == pytest.approx(np.mean(sides[True]), abs=1e-5)
    assert found.across == pytest.approx(np.mean(sides[False]), abs=1e-5)
    assert found.lengths == pytest.approx(float(lengths.max()) / np.median(lengths), rel=1e-5)
    moves = [stepped(one, *own, 1) for own in near]
    moves = torch.stack(
        [torch.cat([(t - s).flatten() for t, s in zip(m, one, strict=True)]) for m in moves]
    )
    ratio = moves.mean(0).norm() / max(m.norm() for m in moves)
    assert found.rest == pytest.approx(float(ratio), abs=1e-4)
    assert found.groups == len(grouping.groups(lone, 0).unique())
    assert (found.clients, found.points, found.of_classes) == (6, 9.5, 3)
    assert found.classes == np.median([len(set(y.tolist())) for _, y in points])


def test_four_kinds_of_clients_are_four_groups_and_one_kind_is_one():
    turned = cf.diagnose(cf.comparison.build("hard", 0))
    plain = cf.diagnose(cf.populations.make("digits", 24, deal=cf.populations.equal(40)))
    assert (turned.groups, plain.groups) == (4, 1)
    assert turned.excess > 0.07 > plain.excess
    assert turned.within - turned.across > plain.within - plain.across


# ---------------------------------------------------------------- the price


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_the_price_is_what_travels_and_what_is_gone_through(part):
    found = seen(people(), participation=part)
    assert found.answers == part
    # down and up in each round; once down to be tuned, and up from there; the first and the last
    # of training alone
    assert found.models == pytest.approx(2 * ROUNDS * part + 2 + 2)
    assert found.passes == pytest.approx(STEP.steps * (ROUNDS * part + 5 + ROUNDS))


# ---------------------------------------------------------------- who may look, and at what


def close(one, other):
    for name, value in asdict(one).items():
        assert value == pytest.approx(getattr(other, name), abs=2e-5), name


@pytest.mark.parametrize("seed", range(3))
def test_the_names_of_clients_do_not_matter(seed):
    federation = people(seed=seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    moved = replace(federation.train.take(order), ids=torch.arange(6))
    close(seen(federation), seen(cf.Federation(moved, moved, classes=3)))


def test_neither_test_clients_nor_the_truth_are_looked_at():
    federation = people()
    other = people(sizes=(5, 5), seed=7).train
    truth = {"clusters": torch.tensor([0, 0, 0, 1, 1, 1]), "test_clusters": torch.tensor([1, 0])}
    told = cf.Federation(federation.train, other, classes=3, truth={"shares": None}, **truth)
    assert seen(told) == seen(federation)


@pytest.mark.parametrize("given", [True, False])
def test_the_global_generator_is_not_touched(given):
    federation, model = people(), cf.models.MLP(2, 4, 3) if given else None
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = (cf.diagnose(federation, model, local=STEP, rounds=2) for _ in "ab")
    assert one == other
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [torch.float32, torch.int32, torch.uint8])
def test_whole_labels_of_any_type_are_the_same_labels(kind):
    federation = people()
    train = replace(federation.train, y=federation.train.y.to(kind))
    assert seen(cf.Federation(train, train, classes=3)) == seen(federation)


def test_bytes_stay_bytes_until_they_are_used():
    federation = cf.populations.rotated("digits", 4, 2)
    kept = diagnosis.held_back(federation)
    assert kept.train.x.dtype == kept.test.x.dtype == torch.uint8


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 9])
def test_what_is_held_back_and_the_rest_are_all_there_is(n):
    federation = people(sizes=(n, 12))
    kept = diagnosis.held_back(federation)
    for i, size in enumerate((n, 12)):
        x = federation.train.points(i)[0]
        near, far = kept.train.points(i)[0], kept.test.points(i)[0]
        back = [j for j in range(size) if j % 4 == 3] or [size - 1]
        assert torch.equal(far, x[back])
        assert torch.equal(near, x[[j for j in range(size) if j not in back]])
    assert kept.clusters is None
    assert not kept.truth


# ---------------------------------------------------------------- bad input


def broken(**changes):
    return {"federation": people()} | changes


CASES = {
    "no federation": (
        lambda: broken(federation=people().train),
        TypeError,
        "federation must be a Federation, got Clients",
    ),
    "responses": (
        lambda: broken(federation=cf.populations.regression(torch.eye(2), 6, 20, 0.1)),
        ValueError,
        "y must be labels, for accuracies are compared; got responses",
    ),
    "one point": (
        lambda: broken(federation=people(sizes=(4, 1, 4, 4))),
        ValueError,
        "each client needs two points, one to hold back; client 1 has one",
    ),
    "few clients": (
        lambda: broken(federation=people(sizes=(4, 4, 4))),
        ValueError,
        "federation needs 4 clients at least, got 3",
    ),
    "no rounds": (lambda: broken(rounds=0), ValueError, "rounds must be at least 1, got 0"),
    "half a round": (
        lambda: broken(rounds=1.5),
        ValueError,
        "rounds must be a whole number, got 1.5",
    ),
    "nobody": (
        lambda: broken(participation=0),
        ValueError,
        r"participation must be in \(0, 1\], got 0",
    ),
    "a number as solver": (
        lambda: broken(local=10),
        TypeError,
        "local must be a LocalSolver, or another object that trains, got",
    ),
    "a seed in words": (
        lambda: broken(seed="x"),
        ValueError,
        "seed must be a number, got 'x'",
    ),
    "a class as model": (
        lambda: broken(model=cf.models.MLP),
        TypeError,
        "model must be a Module, got the class MLP",
    ),
    "too few outputs": (
        lambda: broken(model=cf.models.MLP(2, 4, 2)),
        ValueError,
        r"the model answers a point with the shape \(2,\), 3 classes need",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_input_is_one_sentence_before_any_work(case, monkeypatch):
    def worked(*given):
        raise AssertionError("work was done")

    make, kind, words = CASES[case]
    given = make()
    monkeypatch.setattr(cf.simulation, "play", worked)
    with pytest.raises(kind, match=words) as caught:
        cf.diagnose(**given)
    assert "\n" not in str(caught.value)


def test_a_model_that_runs_away_is_named_by_its_step():
    with pytest.raises(cf.simulation.Diverged, match="step size"):
        seen(people(), local=cf.LocalSGD(50, 1e20))


# ---------------------------------------------------------------- the advice, and its record


def made(**changes):
    """A diagnosis of nobody."""
    given = dict.fromkeys(diagnosis.Diagnosis.__dataclass_fields__, 1.0)
    return diagnosis.Diagnosis(**given | {"gap": (0.1, 0.02), "gain": (0.0, 0.01)} | changes)


@pytest.mark.parametrize(
    ("groups", "gap", "sort"),
    [
        (2, 0.3, "groups"),
        (3, -0.3, "groups"),
        (1, -0.001, "contradiction"),
        (1, 0.0, "neither"),
        (1, 0.3, "neither"),
    ],
)
def test_the_rule_asks_for_groups_and_then_for_the_sign_of_the_gap(groups, gap, sort):
    found = made(groups=groups, gap=(gap, 0.02))
    assert found.sort == sort
    assert found.advice == diagnosis.ADVICE[sort]
    assert set(found.advice) <= set(cf.composing.METHODS)


def test_the_report_says_what_was_seen_the_advice_its_record_and_the_price():
    found = seen(people())
    said = str(found).split("\n")
    assert f"alone {found.alone:.1%}" in said[1]
    assert f"gap {100 * found.gap[0]:+.1f}" in said[2]
    asked, right, behind, worst = diagnosis.RECORD[found.sort]
    assert said[-3].startswith(f"advice: {found.advice[0]}, then ")
    assert said[-2].startswith(f"of {asked} such populations never seen before")
    assert f"right on {right}; {behind} points" in said[-2]
    assert f"{worst} at worst" in said[-2]
    assert (
        said[-1] == f"price: {found.models:.0f} models moved and {found.passes:.0f} passes a client"
    )


def lost(part):
    """By sort: points behind the best of all methods, a row a population, a column a method."""
    rows = {}
    for one in cf.results.stored("13_unseen", part=part):
        tried = one["values"]["tried"]
        scores = [max(tried[m], key=lambda t: t["own"])["test"] for m in cf.composing.METHODS]
        sort = diagnosis.Diagnosis(**one["values"]["seen"]).sort
        rows.setdefault(sort, []).append(100 * (max(scores) - np.array(scores)))
    return {sort: np.array(some) for sort, some in rows.items()}


def test_the_advice_is_the_method_that_lost_least_on_the_design():
    for sort, rows in lost("design").items():
        best = cf.composing.METHODS[rows.mean(0).argmin()]
        assert diagnosis.ADVICE[sort][0] == best


def test_the_record_is_that_of_populations_never_seen():
    numbers = {
        part: {one["seed"] for one in cf.results.stored("13_unseen", part=part)}
        for part in ("design", "unseen")
    }
    assert max(numbers["design"]) < 1000 <= min(numbers["unseen"])
    assert len(numbers["unseen"]) >= 40
    for sort, rows in lost("unseen").items():
        behind = rows[:, cf.composing.METHODS.index(diagnosis.ADVICE[sort][0])]
        asked, right, mean, worst = diagnosis.RECORD[sort]
        assert (asked, right) == (len(behind), int((behind <= 2 + 1e-9).sum()))
        assert (mean, worst) == (round(behind.mean(), 1), round(behind.max(), 1))


def test_on_them_the_advice_beats_each_single_habit():
    methods, some = cf.composing.METHODS, lost("unseen")
    told = [rows[:, methods.index(diagnosis.ADVICE[sort][0])] for sort, rows in some.items()]
    told, rows = np.concatenate(told), np.concatenate(list(some.values()))
    assert (len(told), int((told <= 2 + 1e-9).sum()), round(told.mean(), 1)) == (48, 35, 1.8)
    assert (methods[rows.mean(0).argmin()], round(rows.mean(0).min(), 1)) == ("FineTuned", 3.9)
    for habit in rows.T:
        gap, half = cf.results.interval(habit - told)
        assert gap > half


class Strange:
    """A solver of somebody's own, which says nothing of its passes."""

    def train(self, start, clients, key):
        return STEP.train(start, clients, key)


def test_a_solver_of_ones_own_is_taken_and_its_price_is_said_to_be_unknown():
    strange, known = seen(people(), local=Strange()), seen(people())
    assert math.isnan(strange.passes)
    assert replace(strange, passes=known.passes) == known
    assert "nan passes" in str(strange)
