"""The engine of the laboratories: what the page computes is what the library computes.

Worlds are drawn by Hypothesis, no two alike, and played on both sides in float64. Where a decision
(a nearest model, a split, a vote) hangs on less than 1e-8, rounding may decide; such a world is set
aside and counted.
"""

import ast
import contextlib
import json
import re
from collections import Counter

import house
import numpy as np
import pytest
import torch
from browser import served
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

import clusterfl_core as cf
from clusterfl_core import simulation
from clusterfl_core.algorithms.clove import matched
from clusterfl_core.live import random as shared
from clusterfl_core.live import replay, sources

CLOSE, ROUNDS, NETWORK_ROUNDS = 1e-8, 30, 20
MANY = [pytest.param(12, id="few"), pytest.param(800, id="many", marks=pytest.mark.long)]


def drawn(worlds):
    """How Hypothesis draws: few worlds are always the same ones, many are new in every run.

    One world an example: of a list of worlds Hypothesis repeats some while it changes another.
    """
    return settings(
        max_examples=worlds,
        derandomize=worlds < 50,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # a world is made small sooner by hand than by hundreds of runs
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def page(browser):
    """A page that holds all modules of the engine, and the digits."""
    with served(house.ROOT / "clusterfl_core" / "live" / "engine") as base:
        context = browser.new_context()
        tab = context.new_page()
        tab.route("**/empty", lambda route: route.fulfill(body="", content_type="text/html"))
        tab.goto(base + "empty")
        tab.evaluate(
            """async ([names, digits]) => {
              window.engine = {};
              for (const name of names) Object.assign(engine, await import(`/${name}.js`));
              window.images = engine.unpack_digits(digits);
              window.plain = (value) => ArrayBuffer.isView(value) ? Array.from(value, plain)
                : Array.isArray(value) ? value.map(plain)
                : value && typeof value === "object"
                ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)])) : value;
              window.refused = (work) => {
                try { return { value: work() }; }
                catch (error) { return { error: error.message, kind: error.constructor.name }; }
              };
              window.course = (description) => {
                let run = engine.begin(description, images);
                const path = [];
                try {
                  while (run.state.round < description.rounds) {
                    run = engine.next_round(description, run);
                    path.push(plain(run.state.assignments));
                  }
                } catch (error) { return { error: error.message, path }; }
                return plain({ path, ...run.state });
              };
            }""",
            [list(sources.ENGINE), sources.packed_digits()],
        )
        yield tab
        context.close()


def courses(page, descriptions):
    """What the page makes of each description."""
    return page.evaluate("all => all.map(course)", descriptions)


# ---------------------------------------------------------------- the generator

# Random123's known answers for philox4x32-10: counter, key, words.
KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_known_answers(page, counter, key, words):
    assert page.evaluate("([c, k]) => engine.philox(c, k)", [counter, key]) == words
    assert shared.philox([counter], key)[0].tolist() == words


def test_streams_are_alike_in_both_languages(page):
    names = st.sampled_from(["points", "starts", "café", ""])
    seeds = st.integers(0, 2**32 - 1)
    key = st.tuples(seeds, names, *[st.integers(0, 2**32 - 1)] * 3)

    @settings(max_examples=5, deadline=None)
    @given(st.lists(st.tuples(key, st.integers(1, 2**32)), min_size=10, max_size=10))
    def each(keys):
        found = page.evaluate(
            """keys => keys.map(([key, n]) => {
              const [one, two, three] = [0, 1, 2].map(() => engine.stream(...key));
              const times = (draw) => Array.from({ length: 20 }, draw);
              return [times(() => one.uniform()), times(() => two.integer(n)),
                      times(() => three.normal()), one.shuffle(engine.range(9))];
            })""",
            keys,
        )
        for (key, n), (uniform, integer, normal, order) in zip(keys, found, strict=True):
            one = shared.stream(*key)
            assert one.uniform(20).tolist() == uniform
            assert one.shuffle(9) == order
            assert shared.stream(*key).integers(n, 20).tolist() == integer
            np.testing.assert_allclose(shared.stream(*key).normal(20), normal, rtol=0, atol=1e-12)

    each()


def test_numbers_of_a_stream_are_spread_as_they_should():
    draw = shared.stream(3, "spread")
    uniform, normal, integer = draw.uniform(20000), draw.normal(20000), draw.integers(7, 21000)
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.02
    assert np.abs(np.bincount(integer) - 3000).max() < 200


# ---------------------------------------------------------------- worlds

LINEAR = [
    {"truth": [[2, 0], [0, 2], [-1, -1]], "clients": 4, "points": 7, "noise": 0.3, "seed": 5},
    {"truth": [[1.5]], "clients": 3, "points": 1, "noise": 0, "seed": 2**32 - 1},
    {"truth": [[1, 0], [-1, 1]], "clients": [2, 3], "points": [4, 6], "features": "line"},
    {"truth": [[3, 0], [0, 3]], "shares": [[0.9, 0.1], [0.3, 0.7], [0.5, 0.5]], "clients": 5},
]


@pytest.mark.parametrize("given", LINEAR)
def test_linear_worlds_are_alike_in_both_languages(page, given):
    clients = page.evaluate("g => plain(engine.make_linear(g).clients)", given)
    federation = replay.linear(**given)
    assert federation.clusters.tolist() == [client["cluster"] for client in clients]
    assert federation.train.counts.tolist() == [client["n"] for client in clients]
    for i, client in enumerate(clients):
        x, y = federation.train.x[i, : client["n"]], federation.train.y[i, : client["n"]]
        np.testing.assert_allclose(client["x"], x.flatten(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(client["y"], y, rtol=0, atol=1e-11)


def test_a_clients_points_stay_when_the_world_grows(page):
    base = {"truth": [[2, 0], [0, 2]], "clients": 2, "points": 5, "noise": 0.5, "seed": 1}
    worlds = [base, base | {"clients": 3}, base | {"points": 8}, base | {"truth": [[5, 5], [1, 1]]}]
    small, more, longer, other = (
        page.evaluate("g => plain(engine.make_linear(g).clients)", given) for given in worlds
    )
    assert small == more[:2] + more[3:5]
    assert [c["x"] for c in small] == [c["x"][:10] for c in longer]
    assert [c["y"] for c in small] == [c["y"][:5] for c in longer]
    assert [c["x"] for c in small] == [c["x"] for c in other]


DIGITS = [
    {"twist": "rotated", "clusters": 4, "clients": 2, "points": 9, "seed": 3},
    {"twist": "rotated", "clusters": 2, "clients": 1, "points": 5},
    {"twist": "rotated", "clusters": 3, "clients": 2, "points": 30, "angle": 35},
    {"twist": "swapped", "clusters": 3, "clients": 2, "points": 30, "seed": 1},
    {"twist": "none", "clusters": 1, "clients": 3, "points": 4},
]


@pytest.mark.parametrize("given", DIGITS)
def test_worlds_of_digits_are_equal_in_both_languages(page, given):
    found = page.evaluate(
        """g => {
          const { clients, test } = engine.make_digits({ ...g, images });
          const some = (all) => all.map(({ n, x, y, cluster }) =>
            ({ n, x: Array.from(x.slice(0, 64 * 30)), y: Array.from(y), cluster }));
          return [some(clients), some(test)];
        }""",
        given,
    )
    federation = replay.digits(**given)
    for clients, twin in zip(found, (federation.train, federation.test), strict=True):
        assert twin.counts.tolist() == [client["n"] for client in clients]
        for i, client in enumerate(clients):
            assert twin.inputs(torch.float64)[i, :30].flatten().tolist() == client["x"]
            assert twin.y[i].tolist() == client["y"]
    assert federation.clusters.tolist() == [client["cluster"] for client in found[0]]


PATCHWORKS = [
    {},
    {"groups": 2, "angle": 25, "swaps": 2, "skew": 0.5, "points": 20, "last": 1, "liars": 3},
    {"groups": 4, "angle": 180, "swaps": 5, "skew": 1, "points": 55, "clients": 6, "last": 6},
    {"groups": 1, "clients": 9, "last": 2, "points": 12, "skew": 0.3, "liars": 1, "seed": 7},
]


@pytest.mark.parametrize("given", PATCHWORKS)
def test_patchworks_are_equal_in_both_languages(page, given):
    found = page.evaluate(
        """g => {
          const world = engine.make_patchwork({ ...g, images });
          const some = (all) =>
            all.map(({ n, x, y }) => ({ n, x: Array.from(x), y: Array.from(y) }));
          return { train: some(world.clients), test: some(world.test), clusters: world.clusters,
                   weights: world.weights.map((row) => Array.from(row)) };
        }""",
        given,
    )
    federation = replay.patchwork(**given)
    assert federation.clusters.tolist() == found["clusters"]
    for part in ("train", "test"):
        twin = getattr(federation, part)
        assert twin.counts.tolist() == [client["n"] for client in found[part]]
        for i, client in enumerate(found[part]):
            assert twin.inputs(torch.float64)[i].flatten().tolist() == client["x"]
            assert twin.y[i].tolist() == client["y"]
    shown = torch.nn.functional.one_hot(federation.truth["digits"], 10).double()
    weights = federation.truth["mix"] @ (shown / shown.sum(0)).T
    np.testing.assert_allclose(found["weights"], weights, rtol=1e-12)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-12)


def test_a_patchwork_is_what_it_says():
    one = replay.patchwork(groups=3, swaps=5, skew=0.8, points=30, last=2, liars=2, seed=3)
    assert one.clusters.tolist() == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 2
    plain = replay.patchwork(groups=3, swaps=0, skew=0.8, points=30, last=2, liars=2, seed=3)
    changed = [one.train.y[i] != plain.train.y[i] for i in range(12)]
    assert [bool(found.any()) for found in changed] == [False] * 4 + [True] * 6 + [False] * 2
    rows = plain.truth["mix"]
    for i in range(10):
        liked = rows[i].topk(2).indices
        held = (plain.train.y[i][:, None] == liked).any(1).double().mean()
        assert held > 0.6, "a client holds what it prefers"
    honest = replay.patchwork(groups=1, last=2, points=30, liars=0, seed=3)
    lies = replay.patchwork(groups=1, last=1, points=30, liars=1, seed=3)
    assert lies.train.x.equal(honest.train.x)
    assert lies.train.y[1].equal((honest.train.y[1] + 1) % 10)


def test_packed_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    labels = sources.packed_digits()[-1797:]
    assert Counter(labels) == Counter(map(str, load_digits().target))


def test_fresh_models_are_alike_in_both_languages(page):
    for model, text in (
        (cf.models.LinearRegression(3), "engine.LinearRegression(3)"),
        (cf.models.MLP(64, 5, 10), "engine.MLP(64, 5, 10)"),
    ):
        found = page.evaluate(f"() => plain(engine.first_models({text}, 3, 11))")
        assert replay.fresh(model, 3, 11).flatten().tolist() == found


# ---------------------------------------------------------------- equal to the library


@st.composite
def worlds(draw, equal=False, least_features=1, most=9):
    """Linear clients, and the source of first models: numbers of NumPy, which know no ties."""
    d, clusters = draw(st.integers(least_features, 4)), draw(st.integers(1, 3))
    m = draw(st.integers(max(clusters, 2), most))
    # Bytes, since of integers Hypothesis prefers small ones, and draws them again.
    source = np.random.default_rng(list(draw(st.binary(min_size=16, max_size=16))))
    truth = draw(st.sampled_from([1.0, 3.0])) * source.normal(size=(clusters, d))
    noise, least = draw(st.sampled_from([0.1, 0.5, 1.0])), draw(st.sampled_from([1, 4, 10]))
    sizes = source.integers(least, least + 6, m)
    clients = []
    for i in range(m):
        n, cluster = int(sizes[0] if equal else sizes[i]), i % clusters
        x = source.normal(size=(n, d))
        y = x @ truth[cluster] + noise * source.normal(size=n)
        clients.append({"x": x.tolist(), "y": y.tolist(), "cluster": cluster})
    return {"kind": "points", "clients": clients}, source


def solvers(most=0.15):
    return st.fixed_dictionaries({"steps": st.integers(1, 4), "step_size": st.floats(0.01, most)})


@st.composite
def descriptions(draw, algorithm, count=None, world=None):
    """A whole run. count(settings): how many first models."""
    world, source = draw(worlds() if world is None else world)
    m, d = len(world["clients"]), len(world["clients"][0]["x"][0])
    chosen = draw(algorithm(m))
    first = source.normal(size=(chosen.get("clusters", 1) if count is None else count(chosen), d))
    absent = {}
    if draw(st.booleans()):
        for _ in range(draw(st.integers(1, 4))):
            some = draw(st.lists(st.integers(0, m - 1), max_size=m - 1, unique=True))
            absent[str(draw(st.integers(0, ROUNDS - 1)))] = some
    few = chosen.get("participation", 1) < 1 or chosen.get("selected") is not None
    few = few or chosen.get("patience") is not None
    if few or chosen["name"] in ("OneShot", "EM"):
        absent = {}  # or nobody might be left
    return {
        "world": world, "algorithm": chosen, "seed": draw(st.integers(0, 2**32 - 1)),
        "models": first.tolist(), "rounds": ROUNDS, "absent": absent,
    }  # fmt: skip


def shares_of_clients():
    return st.sampled_from([1, 0.5, 0.34])


def fedavg(m):
    return st.fixed_dictionaries(
        {"name": st.just("FedAvg"), "local": solvers(), "weighted": st.booleans(),
         "participation": shares_of_clients()}
    )  # fmt: skip


def fine_tuned(m):
    return st.fixed_dictionaries(
        {"name": st.just("FineTuned"), "local": solvers(), "weighted": st.booleans(),
         "participation": shares_of_clients(), "after": st.integers(1, ROUNDS - 1),
         "tune": solvers()}
    )  # fmt: skip


def local_only(m):
    return st.fixed_dictionaries({"name": st.just("LocalOnly"), "local": solvers(2.0)})


def one_shot(m):
    starts = st.permutations(range(m))
    return st.integers(1, min(4, m)).flatmap(
        lambda k: st.fixed_dictionaries(
            {"name": st.just("OneShot"), "clusters": st.just(k), "local": solvers(),
             "alone": st.fixed_dictionaries(
                 {"steps": st.just(60), "step_size": st.floats(0.01, 0.1)}),
             "participation": shares_of_clients(), "weighted": st.booleans(),
             "starts": st.one_of(
                 st.integers(1, 3),
                 st.lists(starts.map(lambda order: list(order[:k])), min_size=1, max_size=2))}
        )
    )  # fmt: skip


def one_shot_without_k(m):
    return st.fixed_dictionaries(
        {"name": st.just("OneShot"), "local": solvers(), "participation": shares_of_clients(),
         "alone": st.fixed_dictionaries({"steps": st.just(60), "step_size": st.floats(0.01, 0.1)}),
         "excess": st.sampled_from([0, 0.07, 0.2]), "recursive": st.booleans()}
    )  # fmt: skip


def clove(m):
    return st.fixed_dictionaries(
        {"name": st.just("CLoVE"), "clusters": st.integers(1, min(4, m)), "local": solvers(),
         "participation": shares_of_clients(), "first": st.sampled_from(["losses", "random"]),
         "starts": st.integers(1, 3), "search": st.booleans(), "square_root": st.booleans(),
         "patience": st.none() | st.integers(1, 5)}
    )  # fmt: skip


def ifca(m):
    common = {"name": st.just("IFCA"), "clusters": st.integers(2, min(4, m)),
              "participation": shares_of_clients()}  # fmt: skip
    one_step = {"steps": st.just(1), "step_size": st.floats(0.1, 1.0)}
    return st.one_of(
        st.fixed_dictionaries(common | {"local": solvers()}),
        st.fixed_dictionaries(
            common | {"option": st.just("gradients"), "local": st.fixed_dictionaries(one_step)}
        ),
    )


def cfl(m):
    return st.fixed_dictionaries(
        {"name": st.just("CFL"), "local": solvers(), "eps1": st.floats(0.02, 0.5),
         "eps2": st.floats(0.02, 0.5), "gamma_max": st.sampled_from([0, 0.3, 0.8]),
         "similarity": st.sampled_from(["updates", "gradients"]),
         "quorum": st.sampled_from([0.1, 0.6, 1])}
    )  # fmt: skip


def fedsoft(m):
    return st.fixed_dictionaries(
        {"name": st.just("FedSoft"), "clusters": st.integers(2, min(3, m)), "local": solvers(0.1),
         "proximal": st.floats(0, 2), "selected": st.none() | st.integers(1, m - 1),
         "interval": st.integers(1, 3), "smoother": st.sampled_from([1e-4, 0.1]),
         "warm_start": st.booleans()}
    )  # fmt: skip


def fedem(m):
    return st.fixed_dictionaries(
        {"name": st.just("FedEM"), "clusters": st.integers(2, min(4, m)), "local": solvers(),
         "participation": shares_of_clients()}
    )  # fmt: skip


CASES = {  # the settings, and how many first models they need, where it is not one a cluster
    "FedAvg": (fedavg, None), "FineTuned": (fine_tuned, None), "LocalOnly": (local_only, None),
    "OneShot": (one_shot, lambda a: 1), "OneShot without k": (one_shot_without_k, lambda a: 1),
    "IFCA": (ifca, None), "CLoVE": (clove, None), "CFL": (cfl, None),
    "FedSoft": (fedsoft, lambda a: a["clusters"] + 1),
    "FedEM": (fedem, None),
}  # fmt: skip
WORLDS = {
    "CFL": worlds(least_features=2),  # numbers have two directions only
    "OneShot without k": worlds(most=16),  # in which there is something to be found
}


def twin(description):
    """The same algorithm and federation on the library's side."""
    chosen, world = dict(description["algorithm"]), description["world"]
    if world["kind"] == "digits":
        given = {name: world[name] for name in world if name not in ("kind", "hidden")}
        federation, model = replay.digits(**given), cf.models.MLP(64, world["hidden"], 10)
    else:
        clients = [(client["x"], client["y"]) for client in world["clients"]]
        federation = replay.points(clients, [client["cluster"] for client in world["clients"]])
        model = cf.models.LinearRegression(federation.train.x.shape[2])
    kind, starts = getattr(cf, chosen.pop("name")), chosen.get("starts")
    if isinstance(starts, list):
        chosen["starts"] = len(starts)
    for solver in {"local", "alone", "tune"} & set(chosen):
        chosen[solver] = cf.LocalSGD(**chosen[solver])
    absent = {int(round): ids for round, ids in description["absent"].items()}
    told = starts if isinstance(starts, list) else None
    algorithm = kind(model, **chosen)
    seed, models = description["seed"], description["models"]
    return replay.replayed(algorithm, seed, models, absent, told), federation


def margin(played, settings, federation):
    """How near the closest decision of a round was to falling otherwise; relative where large."""
    jobs, replies, state, algorithm = (
        played.jobs, played.replies, played.before, settings.algorithm,
    )  # fmt: skip
    kind = settings.algorithm.__class__.__mro__[-2].__name__
    if kind == "IFCA":
        clients = federation.train.take(jobs.clients)
        return _gap(cf.compute.loss_matrix(_different(jobs.bank), clients))
    if kind == "FedSoft":
        if len(played.trips) == 1:  # nothing was weighed
            return 1.0
        weighed = played.trips[0][0]
        clients = federation.train.take(weighed.clients)
        table = cf.compute.point_loss_table(_different(weighed.bank), clients)
        return _gap(table.permute(1, 2, 0)[clients.mask()])
    if kind == "CLoVE":
        return _choice_of_clove(played, algorithm)
    if kind == "OneShot" and played.before.round == 0:
        rows, groups = replies.bank.flatten(), played.state.assignments
        cluster = lambda moved: algorithm.cluster(replies.bank.unflatten(moved), state.seed)  # noqa: E731
        if algorithm.clusters is None:
            return _steady(cluster, rows)
        present = groups.unique()
        centers = torch.stack([rows[groups == j].mean(0) for j in present])
        gap = _gap(torch.cdist(rows, centers) ** 2, rows.square().mean())
        return min(gap, _steady(cluster, rows))
    if kind == "CFL":
        return min([1.0, *_tests(played, algorithm)])
    return 1.0


def _choice_of_clove(played, algorithm):
    """Whether clustering and matching hang on rounding; of clients on their own: the gap."""
    vectors = played.trips[0][1].values.get("losses")
    if vectors is None or (played.before.round == 0 and algorithm.first == "random"):
        return 1.0
    if played.before.stable:
        return _gap(vectors)
    return _steady(
        lambda rows: matched(algorithm.cluster(rows.clamp(min=0), played.before.seed), rows),
        vectors.double(),
    )


def _steady(answer, rows):
    """1 if what is answered to some rows stays when they move by 1e-8 of their size, else 0."""
    source, found, far = np.random.default_rng(0), answer(rows), CLOSE * float(rows.abs().max())
    moves = (torch.from_numpy(source.uniform(-far, far, rows.shape)) for _ in range(5))
    return float(all(torch.equal(found, answer(rows + move)) for move in moves))


def _different(bank):
    """The models of a bank without exact copies, among which the first is taken."""
    rows = bank.flatten().tolist()
    return bank.take([j for j, row in enumerate(rows) if row not in rows[:j]])


def _gap(losses, scale=1.0):
    if losses.shape[1] < 2:
        return 1.0
    two = losses.sort(1).values[:, :2]
    return float(((two[:, 1] - two[:, 0]) / (scale + two[:, 0])).min())


def _tests(played, algorithm):
    """The slack of every split test and late client of a round of CFL."""
    state, replies = played.before, played.replies
    updates, compared = algorithm.unpack(replies)
    stands = torch.tensor(state.nodes)[state.assignments][replies.clients]
    for v in stands.unique().tolist():
        here = stands == v
        sent = updates[here]
        if state.tree[v].children:
            alphas = []
            for child in state.tree[v].children:
                edge = torch.cat([sent, state.tree[child].updates])
                alpha = cf.cfl.cosine_similarity(edge)[: len(sent), len(sent) :]
                alphas.append(alpha.max(1).values)
            yield float((alphas[0] - alphas[1]).abs().min())
            continue
        told = replies.clients[here], sent, compared[here]
        if v in state.heard:
            told = cf.cfl.newest(state.heard[v], told)
        ids, sent, seen = told
        if len(ids) < max(2, algorithm.quorum * len(state.tree[v].clients)):
            continue
        mean = cf.cfl.weighted_mean(sent, state.counts[ids])
        near, far = float(mean.norm()), float(sent.norm(dim=1).max())
        yield abs(near - algorithm.eps1)
        yield abs(far - algorithm.eps2)
        if near >= algorithm.eps1 or far <= algorithm.eps2:
            continue
        alpha = cf.cfl.cosine_similarity(seen)
        halves = cf.cfl.optimal_bipartition(alpha)
        cross = cf.cfl.cross_similarity(alpha, *halves)
        yield abs(algorithm.gamma_max - ((1 - cross) / 2) ** 0.5)
        inside = alpha.clone().fill_diagonal_(-2)
        # Unique if the halves are joined by edges above the cut.
        for half in halves:
            if len(half) > 1:
                part = inside[half][:, half]
                first, second = cf.cfl.optimal_bipartition(part)
                yield cf.cfl.cross_similarity(part, first, second) - cross


def play_twin(description):
    """The library's run: identities a round, the last state, the closest decision, or an error.

    copies: the first round in which clients voted among exact copies of a center. If all vote
    alike, FedSoft's centers are one, up to rounding on either side.
    """
    settings, federation = twin(description)
    path, closest, state, copies = [], 1.0, None, None
    try:
        rounds = simulation.rounds(
            settings, federation, description["rounds"], seed=description["seed"], device="cpu"
        )
        for one in rounds:
            closest = min(closest, margin(one, settings, federation))
            if len(one.trips) > 1 and "importance" in one.trips[0][1].values and copies is None:
                bank = one.trips[0][0].bank
                copies = len(path) if len(_different(bank)) < len(bank) else None
            path.append(one.state.assignments.tolist())
            state = one.state
    except simulation.Diverged as error:
        return {"error": str(error), "path": path, "closest": closest, "copies": copies}
    return {"path": path, "state": state, "closest": closest, "copies": copies}


def same_rows(found, rows, relative):
    """Whether two lists of models agree, each relative to its length."""
    one, other = torch.tensor(found, dtype=torch.float64), rows.to(torch.float64)
    assert one.shape == other.shape
    off, long = (one - other).norm(dim=1), other.norm(dim=1)
    assert (off <= relative * long + 1e-14).all(), float(off.max())
    return float((off / long.clamp(min=1e-5)).max())


@contextlib.contextmanager
def new_world(description, tally):
    """One more world: one that was drawn before counts for nothing, and another is drawn for it.

    A world that fails stays new, so that Hypothesis can show the failure again.
    """
    text, seen = json.dumps(description["world"]), tally.setdefault("seen", set())
    tally["drawn again"] += text in seen
    assume(text not in seen)
    yield
    seen.add(text)
    tally["worlds"] += 1


def report(tally):
    """The counts and the largest relative error, for whoever reads the log."""
    return {what: count for what, count in tally.items() if what != "seen"}


def compare(found, expected, relative, tally):
    """One world of the page with its twin."""
    if expected["closest"] < CLOSE:
        tally["set aside"] += 1
        return
    close, copies = {"rtol": 0, "atol": 1e-12}, expected["copies"]
    if copies is not None and not np.allclose(found["path"], expected["path"], **close):
        tally["set aside"] += 1  # rounding told copies apart; until then all must be the same
        np.testing.assert_allclose(found["path"][:copies], expected["path"][:copies], **close)
        return
    tally["compared"] += 1
    for ours, theirs in zip(found["path"], expected["path"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    if "error" in expected:
        tally["diverged"] += 1
        assert expected["error"].startswith(found["error"].split(" of client")[0].split(": ")[0])
        return
    state = expected["state"]
    off = same_rows(found["bank"], state.bank.flatten(), relative)
    tally["error"] = max(tally["error"], off)
    if hasattr(state, "personal"):
        same_rows(found["personal"], state.personal.flatten(), relative)
    if hasattr(state, "empty"):
        assert found["empty"] == state.empty.tolist()
    if hasattr(state, "tree"):
        tally["splits"] += len(state.tree) // 2
        assert found["nodes"] == list(state.nodes)
        assert len(found["tree"]) == len(state.tree)
        for ours, theirs in zip(found["tree"], state.tree, strict=True):
            assert ours["parent"] == theirs.parent
            assert ours["clients"] == theirs.clients.tolist()
            assert tuple(ours["children"]) == theirs.children
            if theirs.updates is not None:
                same_rows(ours["updates"], theirs.updates, 1e3 * relative)
            if theirs.model is not None:
                same_rows([ours["model"]], theirs.model.flatten(), relative)


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("name", CASES)
def test_linear_runs_are_the_librarys(page, name, count):
    tally = Counter()
    algorithm, models = CASES[name]

    @drawn(count)
    @given(descriptions(algorithm, models, WORLDS.get(name)))
    def each(description):
        with new_world(description, tally):
            compare(courses(page, [description])[0], play_twin(description), 1e-9, tally)

    each()
    print(name, report(tally))
    assert tally["worlds"] == count, report(tally)
    assert tally["compared"] >= 4 * tally["set aside"], report(tally)
    assert name != "CFL" or tally["splits"] > tally["compared"] / 5


def wide_seeds():
    """Seeds of the shared generator, all equally likely."""
    return st.binary(min_size=4, max_size=4).map(int.from_bytes)


def networks(draw, name):
    """A small world of digits and settings at which networks learn something."""
    world = {"kind": "digits", "twist": draw(st.sampled_from(["rotated", "swapped"])),
             "clusters": 2, "clients": draw(st.integers(1, 3)), "points": draw(st.integers(4, 9)),
             "hidden": draw(st.integers(3, 6)), "seed": draw(wide_seeds())}  # fmt: skip
    local = {"steps": draw(st.integers(1, 3)), "step_size": draw(st.floats(0.05, 0.5))}
    chosen = {"name": name.partition(" ")[0], "local": local}
    if name in ("IFCA", "OneShot", "FedSoft", "CLoVE", "FedEM"):
        chosen["clusters"] = 2
    if name == "FineTuned":
        chosen |= {"after": draw(st.integers(1, 15)), "tune": local}
    if name == "CFL":
        chosen |= {"eps1": 2.0, "eps2": 0.01}
    if chosen["name"] == "OneShot":
        chosen |= {"alone": {"steps": 20, "step_size": 0.3}, "starts": 2}
    return {"world": world, "algorithm": chosen, "seed": draw(st.integers(0, 1000)),
            "models": None, "rounds": NETWORK_ROUNDS, "absent": {}}  # fmt: skip


@pytest.mark.parametrize(
    "count", [pytest.param(4, id="few"), pytest.param(60, id="many", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", CASES)
def test_runs_of_networks_are_the_librarys(page, name, count):
    tally = Counter()

    @drawn(count)
    @given(st.composite(networks)(name))
    def each(description):
        with new_world(description, tally):
            compare(courses(page, [description])[0], play_twin(description), 1e-6, tally)

    each()
    print(name, report(tally))
    assert tally["worlds"] == count, report(tally)
    assert tally["compared"] >= 4 * tally["set aside"], report(tally)
    assert name != "CFL" or tally["splits"]


def chapter_3():
    """The functions of EM as chapter 3 writes them, in a namespace of their own."""
    wanted, found = {"loss_table", "hard_step", "soft_step", "improve", "em"}, {"torch": torch}
    path = house.ROOT / "book" / "03_clusters.ipynb"
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and node.name in wanted:
                    exec(compile(ast.Module([node], []), str(path), "exec"), found)
    assert wanted <= set(found)
    return found


def play_chapter(description):
    """Chapter 3's run: what :func:`play_twin` gives, and why it would be set aside."""
    chosen, ns = description["algorithm"], chapter_3()
    ns |= {"k": chosen["clusters"], "noise": chosen["noise"]}
    _settings, federation = twin(description | {"algorithm": {"name": "IFCA", "clusters": 1},
                                                "models": description["models"][:1]})  # fmt: skip
    clients, lines = federation.train, torch.tensor(np.array(description["models"]))
    e_step = ns["soft_step" if chosen["soft"] else "hard_step"]
    path = ns["em"](lines, clients, e_step, steps=ROUNDS + 1)
    closest = 1.0
    for lines, _shares, q in path[:-1]:
        if not chosen["soft"]:
            closest = min(closest, _gap(ns["loss_table"](lines, clients)))
        for j in range(ns["k"]):
            total = float(q[:, j].sum())
            closest = min(closest, abs(np.log(max(total, 1e-300) / 1e-9)))
            if total > 1e-9:  # a fit of which the data says little is rounding, as a tie is
                left = torch.einsum("m,mna,mnb->ab", q[:, j], clients.x, clients.x)
                low, high = torch.linalg.eigvalsh(left)[[0, -1]].tolist()
                closest = closest if low > 1e-6 * high else 0.0
    return {"path": [q.tolist() for _, _, q in path[:-1]], "lines": path[-1][0],
            "shares": path[-1][1], "closest": closest}  # fmt: skip


def hard_or_soft_em(m):
    return st.fixed_dictionaries(
        {"name": st.just("EM"), "clusters": st.integers(1, min(3, m)), "soft": st.booleans(),
         "noise": st.sampled_from([0.3, 1.0, 2.0])}
    )  # fmt: skip


@pytest.mark.parametrize("count", MANY)
def test_em_is_chapter_3s(page, count):
    tally = Counter()

    @drawn(2 * count)
    @given(descriptions(hard_or_soft_em, world=worlds(equal=True)))
    def each(description):
        with new_world(description, tally):
            expected = play_chapter(description)
            if expected["closest"] < CLOSE:
                tally["set aside"] += 1
                return
            tally["soft" if description["algorithm"]["soft"] else "hard"] += 1
            found = courses(page, [description])[0]
            np.testing.assert_allclose(found["path"], expected["path"], rtol=0, atol=1e-8)
            np.testing.assert_allclose(found["shares"], expected["shares"], rtol=0, atol=1e-9)
            tally["error"] = max(tally["error"], same_rows(found["bank"], expected["lines"], 1e-9))

    each()
    print("EM", report(tally))
    assert tally["worlds"] == 2 * count, report(tally)
    assert min(tally["soft"], tally["hard"]) > tally["set aside"] / 2, report(tally)
    assert tally["soft"] + tally["hard"] >= count


# ---------------------------------------------------------------- the parts


def test_k_means_is_scikit_learns(page):
    source, cases = np.random.default_rng(0), []
    for _ in range(60):
        rows, first = source.normal(size=(12, 2)), source.normal(size=(3, 2))
        first[0] += source.choice([0, 50])  # nobody is nearest to it
        cases.append((rows, first))
    found = page.evaluate(
        "all => all.map(([rows, first]) => plain(engine.k_means(rows, first)))",
        [[rows.tolist(), first.tolist()] for rows, first in cases],
    )
    for (rows, first), one in zip(cases, found, strict=True):
        means = KMeans(3, init=first, n_init=1, tol=0).fit(rows)
        assert one["found"] == means.labels_.tolist()
        np.testing.assert_allclose(one["centers"], means.cluster_centers_, rtol=1e-9)
        np.testing.assert_allclose(one["inertia"], means.inertia_, rtol=1e-9)


def test_wards_cuts_and_their_silhouettes_are_the_librarys(page):
    source = np.random.default_rng(3)
    cases = [source.normal(size=shape) for shape in [(2, 3), (4, 1), (9, 2), (24, 5), (30, 2)] * 4]
    found = page.evaluate("all => all.map((rows) => engine.cuts(rows, rows.length - 1))",
                          [rows.tolist() for rows in cases])  # fmt: skip
    for rows, one in zip(cases, found, strict=True):
        labels, scores = cf.grouping.cuts(rows, len(rows) - 1)
        assert one["labels"] == labels.tolist()
        np.testing.assert_allclose(one["scores"], scores, rtol=0, atol=1e-12)
        assert len(scores) == max(0, len(rows) - 2)


@pytest.mark.parametrize("recursive", [False, True])
def test_groups_that_stand_out_are_the_librarys_with_the_pages_clouds(page, recursive):
    source, cases = np.random.default_rng(4), []
    for case in range(24):  # a cloud, or two to four of them, in one to thirty dimensions
        count, d = case % 4 + 1, [1, 2, 5, 30][case // 4 % 4]
        middles = 6 * source.normal(size=(count, d))
        cases.append(np.repeat(middles, 6, 0) + source.normal(size=(6 * count, d)))
    found = page.evaluate(
        "([all, recursive]) => all.map((rows, s) => engine.groups_among(rows, s, 0.07, recursive))",
        [[rows.tolist() for rows in cases], recursive],
    )
    for seed, (rows, one) in enumerate(zip(cases, found, strict=True)):
        clouds = lambda first, n, seed=seed: shared.stream(seed, "clouds", first, n)  # noqa: E731
        assert one == cf.grouping.groups(rows, seed, 0.07, recursive, clouds).tolist()
    assert {max(one) + 1 for one in found} >= {1, 2, 3, 4}


def test_the_bipartition_is_the_librarys(page):
    source, cases = np.random.default_rng(1), []
    for m in [2, 3, 4, 6, 9, 20] * 5:
        half = source.uniform(-1, 1, (m, m))
        cases.append(((half + half.T) / 2).tolist())
    found = page.evaluate("all => all.map(engine.optimal_bipartition)", cases)
    for alpha, halves in zip(cases, found, strict=True):
        assert [half.tolist() for half in cf.cfl.optimal_bipartition(torch.tensor(alpha))] == halves


def test_new_clients_walk_down_the_tree_as_in_the_library(page):
    description = {
        "world": {"kind": "linear", "truth": [[3, 0], [-3, 0], [0, 3]], "clients": 4, "points": 12},
        "algorithm": {"name": "CFL", "eps1": 0.2, "eps2": 0.3, "gamma_max": 0.1,
                      "local": {"steps": 3, "step_size": 0.1}},
        "seed": 1, "models": [[0.3, 0.2]], "rounds": 40,
    }  # fmt: skip
    paths = page.evaluate(
        """d => {
          const { world, algorithm, state } = engine.played(d);
          return world.clients.map((client) => algorithm.assign(state, client));
        }""",
        description,
    )
    algorithm = cf.CFL(cf.models.LinearRegression(2), 0.2, 0.3, 0.1, cf.LocalSGD(3, 0.1))
    federation = replay.linear([[3, 0], [-3, 0], [0, 3]], 4, 12)
    run = replay.run(algorithm, federation, 40, seed=1, models=[[0.3, 0.2]])
    assert len(run.state.tree) == 5
    assert [tuple(path) for path in paths] == run.algorithm.algorithm.assign(
        run.state, federation.train
    )


def test_least_squares_of_one_client(page):
    given = {"truth": [[1, 2, -1]], "clients": 4, "points": 2, "noise": 0.5, "seed": 3}
    for points in (2, 3, 8):  # with 2 points many models fit: the shortest counts
        given["points"] = points
        found = page.evaluate("g => plain(engine.make_linear(g).clients.map(engine.best))", given)
        train = replay.linear(**given).train
        fit = torch.linalg.lstsq(train.x, train.y[..., None], driver="gelsd").solution[..., 0]
        np.testing.assert_allclose(found, fit, rtol=1e-6, atol=1e-9)


def test_distance_to_the_truth_is_that_of_the_best_matching(page):
    models, truth = [[0.1, 0], [5, 5], [2, 0]], [[2, 1], [0, 0], [5, 4]]
    found = page.evaluate("([a, b]) => engine.true_error(a, b)", [models, truth])
    np.testing.assert_allclose(found, [0.1, 1, 1])


def test_the_lowest_loss_is_a_number_if_there_is_one(page):
    found = page.evaluate(
        "() => [[NaN, 1, 2], [2, NaN, 1], [NaN, Infinity, NaN], [NaN, NaN]].map(engine.lowest)"
    )
    assert found == [1, 2, 1, 0]


def test_restarts_keep_the_start_with_the_lowest_loss(page):
    given = {
        "truth": [[3, 0], [-3, 0], [0, 3]],
        "clients": 4,
        "points": 10,
        "noise": 0.3,
        "seed": 2,
    }
    found = page.evaluate(
        """g => {
          const world = engine.make_linear(g);
          const local = engine.LocalSGD({ steps: 3, step_size: 0.1 });
          const ifca = engine.IFCA({ model: world.model, clusters: 3, local });
          const { seed, losses } = engine.restarts(ifca, world, 10, engine.range(8));
          return { seed, losses };
        }""",
        given,
    )
    federation = replay.linear(**given)
    settings = cf.IFCA(cf.models.LinearRegression(2), 3, cf.LocalSGD(3, 0.1))
    for seed, loss in found["losses"].items():
        run = replay.run(settings, federation, 10, seed=int(seed))
        assert cf.starts.training_loss(run, federation) == pytest.approx(loss, rel=1e-6)
    assert found["losses"][str(found["seed"])] == min(found["losses"].values())
    assert max(found["losses"].values()) > 2 * min(found["losses"].values())


# ---------------------------------------------------------------- copy as Python

WORLD = {"kind": "linear", "truth": [[2, 0], [0, 2], [-1, -1]], "clients": [4, 5, 3],
         "points": 12, "noise": 0.4, "seed": 9}  # fmt: skip
LOCAL = {"steps": 3, "step_size": 0.05}
COPIED = {
    "IFCA": {"algorithm": {"name": "IFCA", "clusters": 3, "local": LOCAL, "participation": 0.5}},
    "IFCA, models told": {
        "algorithm": {"name": "IFCA", "clusters": 2, "option": "gradients",
                      "local": {"step_size": 0.5}},
        "models": [[0.1, 1e-7], [-0.25, 1]],
    },
    "FedAvg": {"algorithm": {"name": "FedAvg", "weighted": False}, "absent": {"2": [0, 1]}},
    "LocalOnly": {"algorithm": {"name": "LocalOnly", "local": LOCAL}},
    "OneShot": {"algorithm": {"name": "OneShot", "clusters": 3, "alone": {"steps": 80}}},
    "OneShot, starts told": {
        "algorithm": {"name": "OneShot", "clusters": 2, "starts": [[0, 11], [4, 5]]},
    },
    "OneShot, no number told": {
        "algorithm": {"name": "OneShot", "alone": {"steps": 80, "step_size": 0.05},
                      "excess": 0.05, "recursive": True},
    },
    "FedAvg with fine-tuning": {
        "algorithm": {"name": "FineTuned", "local": LOCAL, "after": 7, "participation": 0.5,
                      "tune": {"steps": 2, "step_size": 0.04}},
    },
    "CLoVE": {
        "algorithm": {"name": "CLoVE", "clusters": 3, "local": LOCAL, "participation": 0.5,
                      "starts": 3, "first": "random", "patience": 2},
    },
    "CFL, late clients": {
        "algorithm": {"name": "CFL", "eps1": 0.2, "eps2": 0.3, "local": LOCAL},
        "absent": {str(round): [0, 7] for round in range(4, 25)}, "rounds": 40,
    },
    "FedSoft": {
        "algorithm": {"name": "FedSoft", "clusters": 3, "local": LOCAL, "selected": 4},
        "world": WORLD | {"shares": [[0.9, 0.1, 0], [0.3, 0.3, 0.4], [0, 0, 1]]},
    },
    "FedSoft, centers told": {
        "algorithm": {"name": "FedSoft", "clusters": 2, "local": LOCAL, "warm_start": False},
        "models": [[1, 0], [0, 1]],
    },
    "hard EM": {"algorithm": {"name": "EM", "clusters": 3}, "models": [[1, 0], [0, 1], [-1, 0]]},
    "soft EM": {
        "algorithm": {"name": "EM", "clusters": 3, "soft": True, "noise": 1},
        "models": [[1, 0.5], [0, 1], [-1, 0]],
    },
    "points": {
        "algorithm": {"name": "IFCA", "clusters": 2, "local": LOCAL},
        "world": {"kind": "points", "clients": [
            {"x": [[1, 0], [0.5, 1]], "y": [2, 1]}, {"x": [[0, 1]], "y": [-2], "cluster": 1}]},
    },
    "line": {
        "algorithm": {"name": "IFCA", "clusters": 2, "local": LOCAL},
        "world": {"kind": "linear", "truth": [[1, 0], [-1, 0.5]], "features": "line"},
    },
    "digits": {
        "algorithm": {"name": "IFCA", "clusters": 4, "local": {"steps": 2, "step_size": 0.3}},
        "world": {"kind": "digits", "clients": 2, "points": 12, "hidden": 6, "seed": 4},
    },
    "digits, labels swapped": {
        "algorithm": {"name": "CFL", "eps1": 1, "eps2": 0.1, "local": LOCAL},
        "world": {"kind": "digits", "twist": "swapped", "clusters": 2, "clients": 3, "points": 10},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", COPIED)
def test_what_is_copied_as_python_gives_the_run(page, name):
    description = {"world": WORLD, "seed": 6, "rounds": 12, "models": None} | COPIED[name]
    text, state = page.evaluate(
        "d => [engine.as_python(d), plain(engine.played(d, images).state)]", description
    )
    namespace = {}
    exec(text, namespace)
    assert len(text.splitlines()) <= 12
    if "em(" in text:
        found, models = namespace["q"], namespace["models"]
    else:
        found, models = namespace["run"].assignments, namespace["run"].models.flatten()
        assert namespace["run"].state.round == description["rounds"]
    np.testing.assert_allclose(state["assignments"], found, rtol=0, atol=1e-9)
    same_rows(state["bank"], models, 1e-6 if "digits" in name else 1e-9)


# ---------------------------------------------------------------- bad settings

GOOD = {
    "world": {"kind": "linear", "truth": [[1, 0], [0, 1]], "clients": 2, "points": 5},
    "algorithm": {"name": "IFCA", "clusters": 2, "local": {"steps": 2, "step_size": 0.1}},
}


def changed(where, **changes):
    return json.dumps(GOOD | {where: GOOD[where] | changes})


BAD = {
    "": "cannot be read",
    "[1": "cannot be read",
    "null": "needs its settings by name",
    "[]": "needs its settings by name",
    "{}": "needs world",
    '{"world": 1, "algorithm": 1}': "the kind of world must be",
    json.dumps(GOOD)[:-1] + ', "__proto__": {"rounds": 3}}': 'no setting "__proto__"',
    json.dumps(GOOD)[:-1] + ', "version": 2}': 'no setting "version"',
    json.dumps(GOOD | {"rounds": 1e9}): "rounds must be at most",
    json.dumps(GOOD | {"seed": -1}): "seed must be at least 0",
    json.dumps(GOOD | {"seed": 2**32}): "seed must be at most",
    json.dumps(GOOD | {"models": [[1, 0]]}): "models must be 2, got 1",
    json.dumps(GOOD | {"models": [[1, 0], [1, None]]}): "models must be finite",
    json.dumps(GOOD | {"models": "abc"}): "models must be a list",
    json.dumps(GOOD | {"models": [[1], [2]]}): "models must have 2 numbers",
    json.dumps(GOOD | {"absent": {"0": [9]}}): "absent must be at most 3",
    json.dumps(GOOD | {"absent": {"x": [0]}}): "absent must be a number",
    json.dumps(GOOD | {"absent": [[0]]}): "absent needs its settings by name",
    json.dumps(GOOD).replace(
        '"kind"', '"__proto__": {"seed": 1}, "kind"'
    ): 'no setting "__proto__"',
    json.dumps(GOOD).replace('"steps"', '"__proto__": 1, "steps"'): 'no setting "__proto__"',
    json.dumps(GOOD | {"absent": {"0": []}})[:-2]
    + ', "__proto__": []}}': "absent must be a number",
    changed("world", kind="__proto__"): "the kind of world must be",
    changed("world", clients=10**6): "clients must be at most 2000",
    changed("world", clients=0): "clients must be at least 1",
    changed("world", clients=1.5): "clients must be a whole number",
    changed("world", clients="9"): "clients must be a number",
    changed("world", points=1000, clients=2000): "clients",
    changed("world", truth=[[1, None]]): "truth must be finite",
    changed("world", truth=[[1, 2], [1]]): "truth must have 2 numbers in each row",
    changed("world", truth=[]): "truth must be a list of 1 to",
    changed("world", truth=[[]]): "truth must have some numbers",
    changed("world", noise=-1): "noise must not be negative",
    changed("world", noise=None): "noise must be a number",
    changed("world", shares=[[0.5, 0.4]]): "shares must sum to 1",
    changed("world", features="line", truth=[[1]]): "a slope and a height",
    changed("algorithm", name="constructor"): "the algorithm must be",
    changed("algorithm", name="__proto__"): "the algorithm must be",
    changed("algorithm", clusters=0): "clusters must be at least 1",
    changed("algorithm", clusters=5): "clusters must be at most the 4 clients",
    changed("algorithm", participation=0): "participation must be in (0, 1]",
    changed("algorithm", local={"step_size": 0}): "step_size must be positive",
    changed("algorithm", local={"steps": 10**6}): "steps must be at most",
    changed("algorithm", local=3): "LocalSGD needs its settings by name",
    changed("algorithm", option="both"): "option must be 'models' or 'gradients'",
    changed("algorithm", option="gradients"): "local.steps must be 1",
    changed("algorithm", model=1): 'no setting "model"',
    changed("algorithm", name="FineTuned"): 'no setting "clusters"',
    '{"world": {"kind": "linear", "truth": [[1]]}, '
    '"algorithm": {"name": "FineTuned"}}': "FineTuned needs after",
    '{"world": {"kind": "linear", "truth": [[1]], "clients": 200}, "algorithm": '
    '{"name": "OneShot"}}': "clients must be at most 100",
    changed("algorithm", name="CLoVE", clusters=13): "clusters must be at most 12",
    changed("algorithm", name="CLoVE", patience=0): "patience must be at least 1",
    changed("algorithm", name="CLoVE", first="last"): "first must be 'losses' or 'random'",
    '{"world": {"kind": "points", "clients": [{"x": [[1]], "y": [1, 2]}]}, '
    '"algorithm": {"name": "FedAvg"}}': "y of client 0 must have 1 numbers",
    '{"world": {"kind": "points", "clients": [null]}, "algorithm": {"name": "FedAvg"}}': "features",
    '{"world": {"kind": "digits", "points": 300}, "algorithm": {"name": "FedAvg"}}': "1437 images",
    '{"world": {"kind": "digits", "clusters": 3}, "algorithm": {"name": "FedAvg"}}': "1, 2 or 4",
    '{"world": {"kind": "digits", "twist": "x"}, "algorithm": {"name": "FedAvg"}}': "twist must be",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_laboratory_gets_one_sentence(page, text):
    found = page.evaluate("t => refused(() => engine.read_description(t))", text)
    assert found.get("kind") == "Error", found
    assert BAD[text] in found["error"]
    assert len(found["error"]) < 200
    assert page.evaluate("Object.prototype.rounds === undefined")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    "change",
    ["d.models = [[VALUE, 0], [0, 1]]", "d.world.noise = VALUE", "d.world.truth[0][0] = VALUE",
     "d.world.clients = VALUE", "d.algorithm.local.step_size = VALUE", "d.rounds = VALUE",
     "d.seed = VALUE", "d.algorithm.clusters = VALUE"],
)  # fmt: skip
def test_what_is_no_number_gets_one_sentence(page, change, value):
    code = f"d => {{ {change.replace('VALUE', value)}; return refused(() => engine.begin(d)); }}"
    found = page.evaluate(code, GOOD)
    assert found.get("kind") == "Error", found


def test_python_is_copied_before_the_first_round_too(page):
    text = page.evaluate("d => engine.as_python(d)", GOOD)
    assert "rounds=1, seed=0" in text


def test_a_good_laboratory_is_read(page):
    found = page.evaluate("t => engine.read_description(t)", json.dumps(GOOD))
    assert found == GOOD | {"seed": 0, "models": None, "rounds": 0, "absent": {}}


def test_a_step_that_diverges_leaves_the_state_as_it_was(page):
    description = json.loads(changed("algorithm", local={"steps": 400, "step_size": 1e3}))
    found = page.evaluate(
        """d => {
          const run = engine.begin(d), before = JSON.stringify(plain(run.state));
          const said = refused(() => engine.next_round(d, run));
          return [said, before === JSON.stringify(plain(run.state))];
        }""",
        description,
    )
    said, same = found
    assert same
    assert said["kind"] == "Error"
    assert said["error"].startswith("round 1: ")
    assert said["error"].endswith("is not finite; the step size 1000 is probably too large")


def test_a_round_that_nobody_answers_is_refused(page):
    description = GOOD | {"absent": {"0": [0, 1, 2, 3]}, "rounds": 1}
    found = page.evaluate("d => refused(() => engine.played(d))", description)
    assert found == {"error": "round 1: no client answers", "kind": "Error"}


@pytest.mark.parametrize("name", COPIED)
def test_a_state_can_be_sent_to_a_worker(page, name):
    description = {"world": WORLD} | COPIED[name] | {"rounds": 2, "absent": {}}
    sent, kept = page.evaluate(
        """d => {
          const { state } = engine.played(d, images);
          return [plain(structuredClone(state)), plain(state)];
        }""",
        description,
    )
    assert sent == kept


# ---------------------------------------------------------------- the script


def test_the_modules_stand_in_one_scope(page):
    declared = r"^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+)"
    texts = [sources.source(name) for name in sources.ENGINE]
    names = [found for text in texts for found in re.findall(declared, text, re.MULTILINE)]
    assert {name: count for name, count in Counter(names).items() if count > 1} == {}
    script = re.sub(r"^import .*;$|^export ", "", "\n".join(texts), flags=re.MULTILINE)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    description = GOOD | {"rounds": 5, "models": [[1, 0], [0, 1]]}
    code = """([script, description]) => {
      const play = new Function("description", script + "; return played(description);");
      return [plain(play(description).state), plain(engine.played(description).state)];
    }"""
    alone, modules = page.evaluate(code, [script, description])
    assert alone == modules


def test_all_modules_are_listed():
    folder = house.ROOT / "clusterfl_core" / "live" / "engine"
    assert {path.stem for path in folder.glob("*.js")} == set(sources.ENGINE)
