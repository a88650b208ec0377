"""Wrong arguments of everything public: one sentence of the library's own, or the right result.

For each function a table has valid arguments and what each of them is; each is spoiled in turn, and
then some of them together. A name that is public and not in a table must be said to be inside.
"""

import importlib
import inspect
import itertools
import pkgutil
import random
from functools import cache

import fuzz_inputs as fuzz
import house
import numpy as np
import pytest
import torch
from fuzz_inputs import Case, choice, flag, function, names, number, only, table, text, thing, whole

import clusterfl_core as cf
from clusterfl_core import check, claims, comparison, contract, figures, grouping, live, theory
from clusterfl_core.algorithms import cfl, clove, fedem, fedsoft, ifca, secret
from clusterfl_core.live import fields, page, replay, sources
from clusterfl_core.live import random as streams

pytestmark = pytest.mark.filterwarnings("ignore")
INPUTS = 3000
LINE = cf.models.LinearRegression(3)
NET = cf.models.MLP(4, 5, 3)
THETA = torch.tensor([[1.0, 0.0, 2.0], [-1.0, 2.0, 0.0]])
SGD = cf.LocalSGD(2, 0.05)


@cache
def lines():
    """Six clients of two regressions."""
    return cf.populations.regression(THETA, clients=6, points=8, noise=0.5)


@cache
def labelled():
    """Four clients of three classes."""
    source = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 5, 4, generator=source), torch.randint(3, (4, 5), generator=source)
    clients = cf.Clients(x, y, [5, 3, 4, 5])
    return cf.Federation(clients, clients, [0, 0, 1, 1], [0, 0, 1, 1], classes=3)


@cache
def bank():
    return cf.banks.Bank.fresh(LINE, 2, 0)


@cache
def nets():
    return cf.banks.Bank.fresh(NET, 2, 0)


@cache
def ran():
    return cf.run(cf.IFCA(LINE, 2, SGD), lines(), 2, progress=False)


@cache
def split():
    """A state of CFL with a tree of three nodes."""
    algorithm = cf.CFL(LINE, eps1=INFINITE, eps2=1e-9, local=SGD)
    return cf.run(algorithm, lines(), 1, progress=False).state


@cache
def soft():
    return cf.run(cf.FedSoft(LINE, 2, SGD), lines(), 2, progress=False).state


@cache
def people():
    return comparison.build((comparison.TURNS[:2], torch.eye(2).repeat(2, 1), 6), 0)


INFINITE = float("inf")


def source():
    return torch.Generator().manual_seed(0)


def _seeded(given):
    """The same arguments, with generators as at the beginning."""
    for value in given.values():
        if isinstance(value, torch.Generator):
            value.manual_seed(0)
    return given


def foreign():
    """Objects of the library, each in a place where it does not belong."""
    return [LINE, cf.models.MLP, SGD, bank(), lines(), lines().train, ran(), ran().state]


def federation(words=""):
    return thing(cf.Federation, others=foreign(), words=words)


def clients_(words=""):
    return thing(cf.Clients, others=foreign(), words=words)


def bank_(words=""):
    return thing(cf.banks.Bank, others=foreign(), words=words)


def models_():
    """What has models: a state, or a run."""
    return only(*(v for v in state_().wrong if not isinstance(v, cf.Run)))


def state_(words=""):
    return thing(contract.State, others=foreign(), words=words)


def model_():
    return thing(torch.nn.Module, others=foreign())


def solver_(*kinds):
    return thing(*(kinds or (cf.solvers.LocalSolver,)), others=foreign())


SHARE = "(0, 1]"
STEPS = {
    "steps": whole(none=True),
    "step_size": number("(0, inf)"),
    "batch_size": whole(none=True),
    "decay": number(SHARE),
}
SECTIONS = {}


def section(made):
    """A part of the table: a function that gives the case of each name."""
    SECTIONS[made.__name__] = cache(made)
    return made


def case(call, valid, **args):
    return Case(call, valid, args)


# ---------------------------------------------------------------- the tables


@section
def settings():
    base = {"model": model_(), "local": solver_()}
    k, some = whole(1, None), number(SHARE)
    given = {"model": LINE, "local": SGD}
    found = {
        "solvers.LocalSGD": case(
            cf.LocalSGD, {"steps": 3, "step_size": 0.1, "batch_size": 2, "decay": 0.9}, **STEPS
        ),
        "solvers.LocalAdam": case(
            cf.LocalAdam, {"steps": 3, "step_size": 0.1, "batch_size": 2, "decay": 0.9}, **STEPS
        ),
        "solvers.LocalSolver": case(
            cf.solvers.LocalSolver, {"epochs": 2}, epochs=whole(none=True), decay=number(SHARE)
        ),
        "ifca.IFCA": case(
            cf.IFCA,
            given | {"clusters": 2, "participation": 0.5, "patience": 2, "resample": 2},
            **base,
            clusters=k,
            participation=some,
            patience=whole(none=True),
            resample=whole(none=True),
            option=choice("models", "gradients"),
            shared=only(3, None, "theta", [3], ["no"], [None], {"no": 1}, b"no"),
        ),
        "cfl.CFL": case(
            cf.CFL,
            given | {"eps1": 0.2, "eps2": 0.1, "gamma_max": 0.1, "quorum": 0.5},
            **base,
            eps1=number("(0, inf]"),
            eps2=number("(0, inf]"),
            gamma_max=number("[0, 1)"),
            quorum=some,
            similarity=choice("updates", "gradients"),
            privacy=choice(None, "permutation", "rotation"),
        ),
        "fedsoft.FedSoft": case(
            cf.FedSoft,
            given | {"clusters": 2, "proximal": 1.0, "selected": 2, "interval": 2, "smoother": 0.1},
            **base,
            clusters=k,
            proximal=number("[0, inf)"),
            selected=whole(none=True),
            interval=whole(),
            smoother=number("[0, 1)"),
            warm_start=flag(),
            regress_after=whole(0, none=True),
        ),
        "clove.CLoVE": case(
            cf.CLoVE,
            given | {"clusters": 2, "participation": 0.5, "starts": 2, "patience": 3},
            **base,
            clusters=k,
            participation=some,
            starts=whole(),
            first=choice("losses", "random"),
            search=flag(),
            square_root=flag(),
            patience=whole(none=True),
        ),
        "baselines.FedAvg": case(
            cf.FedAvg, given | {"participation": 0.5}, **base, participation=some, weighted=flag()
        ),
        "baselines.FineTuned": case(
            cf.FineTuned,
            given | {"after": 2, "tune": SGD, "participation": 0.5},
            **base,
            after=whole(),
            tune=solver_(),
            participation=some,
            weighted=flag(),
        ),
        "baselines.LocalOnly": case(cf.LocalOnly, given, **base),
        "baselines.OneShot": case(
            cf.OneShot,
            given | {"clusters": 2, "alone": SGD, "starts": 3, "excess": 0.1, "participation": 1.0},
            **base,
            clusters=whole(none=True),
            alone=solver_(),
            participation=some,
            weighted=flag(),
            starts=whole(),
            excess=number("[0, 2)"),
            recursive=flag(),
        ),
        "baselines.FedEM": case(
            cf.FedEM,
            given | {"clusters": 2, "participation": 0.5},
            **base,
            clusters=k,
            participation=some,
        ),
        "secret.Secret": case(
            secret.Secret,
            {"kind": None, "seed": 3},
            kind=choice(None, "permutation", "rotation"),
            seed=whole(0),
        ),
    }
    return found


@section
def runs():
    algorithm = cf.IFCA(LINE, 2, SGD)
    given = {"algorithm": algorithm, "federation": lines(), "rounds": 2}
    strange = thing(cf.IFCA, others=[*foreign(), cf.IFCA])
    device = choice("auto", "cpu")
    device = only(
        *without_none(fuzz.JUNK), None, "nowhere", "cuda:99", "meta", 0, torch.float32, "CPU"
    )
    one = {
        "algorithm": only(*strange.wrong, words="algorithm"),
        "federation": federation(),
        "rounds": whole(),
        "seed": whole(0),
        "device": device,
    }

    def first(**given):
        return next(cf.rounds(**given))

    def loaded(path, trust=()):
        return cf.Run.load(path, trust)

    return {
        "simulation.run": case(
            cf.run,
            given | {"seed": 1, "device": "cpu", "progress": False},
            **one,
            progress=flag(),
            checkpoint=only(3, 2.5, [], object(), b"x", True),
        ),
        "simulation.rounds": case(
            lambda **g: first(**g).state,
            given | {"seed": 1, "device": "cpu"},
            **one,
            start=thing(contract.State, none=True, others=foreign()),
            keep=flag(),
        ),
        "simulation.begin": case(
            cf.simulation.begin, given | {"seed": 1}, rounds=whole(), seed=whole(0)
        ),
        "starts.restarts": case(
            lambda **g: cf.starts.restarts(**g)[1],
            given | {"seeds": [0, 1]},
            federation=federation(),
            rounds=whole(),
            seeds=only(None, 3, "01", [], [-1], [2.5], [None], ["0"], [True], [2**70], 1.5),
            progress=flag(),
        ),
        "starts.training_loss": case(
            cf.starts.training_loss,
            {"run": ran(), "federation": lines()},
            run=thing(cf.Run, others=foreign()),
            federation=federation(),
        ),
        "runs.Run": case(
            loaded,
            {"path": "/nowhere/at/all"},
            path=only(
                3, None, 2.5, [], object(), b"x", "/etc/hostname", words="path|/etc/hostname"
            ),
        ),
        "runs.essence": case(cf.runs.essence, {"run": ran()}, run=thing(cf.Run, others=foreign())),
        "randomness.generator": case(
            lambda key: cf.randomness.generator(*key),
            {"key": ["own", 1, 2]},
            key=only([None], [-1], [2.5], [1, True], [fuzz.NAN], [b"x"], [[1]], [object()]),
        ),
        "randomness.participants": case(
            cf.randomness.participants,
            {"key": (0, 1), "clients": 9, "participation": 0.4},
            key=only(None, 3, "ab" * 0 + "", [None], [-1], [2.5], (0, fuzz.NAN), b"x"),
            clients=whole(),
            participation=number(SHARE),
        ),
        "randomness.drawing_from": case(
            lambda source: bool(cf.randomness.drawing_from(source)),
            {"source": source()},
            source=thing(torch.Generator, others=foreign()),
        ),
        "machine.named_device": case(
            cf.machine.named_device, {"name": "cpu"}, name=replace_words(device, "device")
        ),
        "files.write_whole": case(
            cf.files.write_whole,
            {"path": "/dev/null/x", "write": print},
            path=only(None, 3, 2.5, [], object(), b"x", True),
            write=function(),
        ),
    }


def without_none(values):
    return [v for v in values if v is not None]


def replace_words(arg, words):
    return fuzz.Arg(arg.wrong, arg.same, words)


@section
def clients_and_banks():
    x, y = torch.rand(2, 3, 4), [[0, 1, 2], [2, 1, 0]]
    data = {"x": x, "y": y, "counts": [3, 2]}
    many = [None, 3, "abc", fuzz.Strange(), [["a"]], 1j, fuzz.NAN, {}, torch.rand(5)]
    one, two = lines().train, bank()
    net = nets()
    rows = only("ab", 3.5, None, [9], [2.5], {}, object(), [-99], torch.tensor([77]), torch.rand(2))
    return {
        "clients.Clients": case(
            cf.Clients,
            data,
            x=only(*many, x[:1], x[:, :2], x.to_sparse(), torch.rand(2)),
            y=only(*many, y[:1], [[0, 1], [1, 0]], torch.rand(2, 3, 4), [[0, 1], [2]]),
            counts=only(*many, [3], [0, 3], [4, 3], [1.5, 2], [-1, 2], words="counts|x|point"),
            ids=only(*many[1:], [0], [0.5, 1], [[0, 1]]),
        ),
        "Clients.from_lists": case(
            cf.Clients.from_lists,
            {"xs": [x[0], x[1]], "ys": y},
            xs=only(*many, [x[0]], [x[0], x[1, :2]], [x[0], x[1, :, :2]], [], words="xs|point"),
            ys=only(None, 3, "abc", 1j, [y[0]], [y[0], [1]], [["a"], ["b"]], [], words="ys|point"),
        ),
        "Clients.take": case(lambda rows: vars(one.take(rows)), {"rows": [1, 0]}, rows=rows),
        "Clients.points": case(one.points, {"row": 1}, row=whole(-6, 5)),
        "Clients.inputs": case(
            one.inputs, {"dtype": torch.float32}, dtype=only(None, "float32", float, torch.int64, 3)
        ),
        "Clients.to": case(
            lambda device: vars(one.to(device)),
            {"device": "cpu"},
            device=only(None, "nowhere", 2.5, []),
        ),
        "clients.Federation": case(
            cf.Federation,
            {"train": one, "test": one},
            train=clients_(),
            test=clients_(),
            clusters=only(3, "ab", [0], [-1] * 6, [0.5] * 6, [[0] * 6], {}, fuzz.Strange()),
            test_clusters=only(3, "ab", [0], [-1] * 6, [0.5] * 6, [[0] * 6], {}, fuzz.Strange()),
            classes=only(2.5, -1, "3", [], True, fuzz.NAN, 1j, words="classes"),
            name=text(),
            truth=only(None, 3, "truth", [], [1]),
        ),
        "banks.Bank": case(
            cf.banks.Bank,
            {"model": LINE, "tensors": two.tensors},
            model=model_(),
            tensors=only(None, 3, "x", [], [1], words="tensors"),
        ),
        "Bank.initialize": case(
            lambda **g: cf.banks.Bank.initialize(**_seeded(g)).flatten(),
            {"model": LINE, "count": 2, "generator": source()},
            model=model_(),
            count=only(*whole().wrong),
            generator=thing(torch.Generator, others=foreign()),
        ),
        "Bank.fresh": case(
            lambda **g: cf.banks.Bank.fresh(**g).flatten(),
            {"model": LINE, "count": 2, "seed": 3},
            model=model_(),
            count=whole(),
            seed=whole(0),
        ),
        "Bank.concatenate": case(
            lambda parts: cf.banks.Bank.concatenate(parts).flatten(),
            {"parts": [two, two]},
            parts=only(None, 3, "ab", [], [3], [two, None], [two, LINE], {}),
        ),
        "Bank.take": case(lambda rows: two.take(rows).flatten(), {"rows": [1, 0]}, rows=rows),
        "Bank.to": case(
            lambda where: two.to(where).flatten(),
            {"where": torch.float64},
            where=only("nowhere", 2.5, object(), "float32", {}, words="where|device"),
        ),
        "Bank.mean": case(
            lambda weights: two.mean(weights).flatten(),
            {"weights": torch.tensor([1.0, 3.0])},
            weights=only(
                "ab", 3, [1.0], torch.zeros(2), torch.tensor([-1.0, 3]), [fuzz.NAN, 1], {}
            ),
        ),
        "Bank.unflatten": case(
            lambda rows: two.unflatten(rows).flatten(),
            {"rows": torch.rand(2, 3)},
            rows=only(
                None, 3, "ab", [[1.0] * 3], torch.rand(2, 4), torch.rand(3), torch.rand(1, 2, 3)
            ),
        ),
        "Bank.distances": case(two.distances, {"other": two}, other=only(*bank_().wrong, net)),
        "Bank.module": case(two.module, {"index": 1}, index=whole(-2, 1)),
        "banks.finite": case(cf.banks.finite, {"bank": two}, bank=bank_()),
    }


@section
def models():
    sizes = {"channels": whole(), "classes": whole()}
    sides = only(*whole().wrong, 3, 7, 9, 2)
    kinds = ("IFCACifar", "IFCAFemnist", "CFLConvNet", "FedSoftLetters", "FedSoftCifar")
    found = {
        f"models.{name}": case(
            getattr(cf.models, name), {"channels": 1, "side": 8, "classes": 3}, **sizes, side=sides
        )
        for name in kinds
    }
    found["models.IFCAFemnist"].valid["hidden"] = 4
    found["models.IFCAFemnist"].args["hidden"] = whole()
    three = {"inputs": whole(), "hidden": whole(), "classes": whole()}
    found |= {
        "models.MLP": case(cf.models.MLP, {"inputs": 4, "hidden": 3, "classes": 2}, **three),
        "models.SoftmaxRegression": case(
            cf.models.SoftmaxRegression,
            {"inputs": 4, "classes": 2},
            inputs=whole(),
            classes=whole(),
        ),
        "models.LinearRegression": case(
            cf.models.LinearRegression, {"features": 3}, features=whole()
        ),
        "models.LSTMLayer": case(
            cf.models.LSTMLayer, {"inputs": 4, "hidden": 3}, inputs=whole(), hidden=whole()
        ),
        "models.NextWordLSTM": case(
            cf.models.NextWordLSTM,
            {"vocabulary": 5, "embedding": 2, "hidden": 3},
            vocabulary=whole(),
            embedding=whole(),
            hidden=whole(),
        ),
        "models.check": case(
            cf.models.check,
            {"model": NET, "x": torch.rand(3, 4), "classes": 3},
            model=model_(),
            x=only(None, 3, "x", [[1.0]], torch.rand(3), torch.rand(0, 4)),
            classes=only(*whole(0, none=True).wrong),
        ),
    }
    return found


@section
def populations():
    p, digits = cf.populations, {"name": "digits", "clients": 4}
    name = choice("digits", words="data set")
    m, k, seed = whole(), whole(), whole(0)
    base = {"name": name, "clients": m, "seed": seed}

    def made(twist=None, deal=None):
        return str(p.make("digits", 4, twist=twist, deal=deal))

    plane = {"clients": whole(), "points": whole(), "seed": seed}
    return {
        "populations.make": case(
            p.make,
            digits | {"seed": 1},
            **base,
            deal=function(none=True),
            twist=only(3, "turn", [3], [None, print], {"a": 1}, fuzz.Strange()),
        ),
        "populations.rotated": case(
            p.rotated, digits | {"clusters": 2, "seed": 1}, **base, clusters=k
        ),
        "populations.label_swapped": case(
            p.label_swapped,
            digits | {"clusters": 2, "seed": 1, "points": 30},
            **base,
            clusters=k,
            points=whole(1, 359, none=True),
        ),
        "populations.label_permuted": case(
            p.label_permuted, digits | {"clusters": 2, "seed": 1}, **base, clusters=k
        ),
        "populations.label_skew": case(
            p.label_skew,
            digits | {"concentration": 1.0, "seed": 1},
            **base,
            concentration=number("(0, inf)"),
        ),
        "populations.quantity_skew": case(
            p.quantity_skew,
            digits | {"exponent": 1.0, "seed": 1},
            **base,
            exponent=number("[0, inf)"),
        ),
        "populations.feature_skew": case(
            p.feature_skew, digits | {"strength": 0.5, "seed": 1}, **base, strength=number("[0, 1]")
        ),
        "populations.halves": case(p.halves, {"name": "digits", "seed": 1}, name=name, seed=seed),
        "populations.writers": case(
            lambda **given: p.writers(**{"clients": 4, "name": "digits"} | given),
            {},
            clients=m,
            seed=seed,
            name=choice("digits", words="data set|name"),
        ),
        "populations.equal": case(
            lambda points: made(deal=p.equal(points)),
            {"points": 9},
            points=whole(1, 359, none=True),
        ),
        "populations.by_label": case(
            lambda concentration: made(deal=p.by_label(concentration)),
            {"concentration": 1.0},
            concentration=number("(0, inf)"),
        ),
        "populations.by_quantity": case(
            lambda exponent: made(deal=p.by_quantity(exponent)),
            {"exponent": 1.0},
            exponent=number("[0, inf)"),
        ),
        "populations.turn": case(
            lambda degrees: made([p.turn(0), p.turn(degrees)]), {"degrees": 30}, degrees=number()
        ),
        "populations.relabel": case(
            lambda names: made([p.relabel(names)]),
            {"names": [1, 0, 2, 3, 4, 5, 6, 7, 8, 9]},
            names=only(None, 3, "abc", [0.5] * 10, [0, 1], [["a"]], {}, fuzz.NAN),
        ),
        "populations.rotate": case(
            lambda angles: made(p.rotate(angles)),
            {"angles": 2},
            angles=only(
                "ab",
                None,
                2.5,
                0,
                -1,
                True,
                [fuzz.NAN],
                ["a"],
                [],
                {},
                [[1, 2]],
                1j,
                words="clusters|angles",
            ),
        ),
        "populations.swap_labels": case(
            lambda clusters: made(p.swap_labels(clusters)), {"clusters": 2}, clusters=whole(1, 5)
        ),
        "populations.permute_labels": case(
            lambda clusters: made(p.permute_labels(clusters)), {"clusters": 2}, clusters=whole()
        ),
        "populations.cameras": case(
            lambda strength: made(p.cameras(strength)), {"strength": 0.2}, strength=number("[0, 1]")
        ),
        "populations.add_noise": case(
            lambda **g: made(p.add_noise(**g)),
            {"pixels": 0.1, "labels": [0.1, 0.2]},
            pixels=only("a", None, -1, 2, fuzz.NAN, {}, ["a"], [], 1j, [0.1, 0.1, 0.1]),
            labels=only("a", None, -1, 2, fuzz.NAN, {}, ["a"], [], 1j, [[0.1]]),
        ),
        "populations.mixed": case(
            p.mixed,
            digits | {"clusters": 2, "pattern": "linear", "seed": 1, "points": (20, 30)},
            **base,
            clusters=whole(2, 4),
            pattern=choice("10:90", "30:70", "linear", "random"),
            points=only(None, 3, "ab", (0, 3), (5, 2), (1,), (1, 2, 3), (1.5, 2), ("a", "b"), {}),
        ),
        "populations.linear_mixture": case(
            p.linear_mixture, digits | {"clusters": 2, "seed": 1}, **base, clusters=whole(2, 2)
        ),
        "populations.pattern_shares": case(
            lambda **g: p.pattern_shares(**_seeded(g)),
            {"pattern": "linear", "clients": 4, "clusters": 2, "source": source()},
            pattern=choice("10:90", "30:70", "linear", "random"),
            clients=whole(),
            clusters=whole(2, 2),
            source=thing(torch.Generator, others=foreign()),
        ),
        "populations.federated_xor": case(
            p.federated_xor, {"clients": 4, "points": 5, "seed": 1}, **plane
        ),
        "populations.conflicting_labels": case(
            p.conflicting_labels, {"clients": 4, "points": 5, "seed": 1}, **plane
        ),
        "populations.regression": case(
            p.regression,
            {"theta": THETA, "clients": 4, "points": 5, "noise": 0.1, "seed": 1},
            **plane,
            theta=table(THETA, also=[THETA.int(), THETA[0]]),
            noise=number("[0, inf)"),
        ),
        "populations.bernoulli_regression": case(
            p.bernoulli_regression,
            {
                "scale": 1.0,
                "clients": 4,
                "points": 5,
                "features": 6,
                "clusters": 2,
                "noise": 0.1,
                "seed": 1,
            },
            **plane,
            scale=number("(0, inf)"),
            features=only(*whole().wrong[:24], 1),
            clusters=whole(1, 4),
            noise=number("[0, inf)"),
            reading=choice("coordinate", "norm"),
        ),
        "populations.mixture_regression": case(
            p.mixture_regression,
            {
                "pattern": "linear",
                "clients": 4,
                "clusters": 2,
                "seed": 1,
                "features": 3,
                "variance": 2.0,
            },
            pattern=choice("10:90", "30:70", "linear", "random"),
            clients=m,
            clusters=whole(2, 2),
            seed=seed,
            features=whole(),
            variance=number("(0, inf)"),
        ),
        "populations.next_words": case(
            p.next_words,
            {
                "name": "manuals",
                "clients": 4,
                "clusters": 2,
                "seed": 1,
                "window": 3,
                "points": 9,
                "vocabulary": 50,
            },
            name=choice("manuals", words="text"),
            clients=m,
            clusters=whole(1, 4),
            seed=seed,
            window=only(*whole().wrong[:-4]),
            vocabulary=whole(2),
            points=whole(),
        ),
        "data.load": case(cf.data.load, {"name": "digits"}, name=name),
        "data.load_text": case(
            cf.data.load_text, {"name": "manuals"}, name=choice("manuals", words="text")
        ),
    }


@section
def judging():
    e, m = cf.evaluation, [0, 0, 1, 1, 0, 1]
    two = {"estimated": m, "clusters": [0, 0, 0, 1, 1, 1]}
    both = {
        "estimated": names(also=[m[:2], [-2] * 6, [10**9] * 6]),
        "clusters": names(also=[m[:2], [-1] * 6, [10**9] * 6]),
    }
    state = ran().state
    pair = {"state": state, "federation": lines()}
    judged = {
        "state": state_(),
        "federation": only(*federation().wrong, labelled(), words="state|federation"),
    }
    judging = {"state": models_(), "federation": federation()}
    alpha = torch.tensor([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]])
    square = table(alpha, fixed=True, also=[alpha[:2], alpha[:1, :1], torch.rand(3, 3)])
    rows = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1], [8, 8], [8, 9], [9, 8], [9, 9]])
    u = torch.full((4, 2), 0.5)
    return {
        "evaluation.adjusted_rand_index": case(e.adjusted_rand_index, two, **both),
        "evaluation.identity_accuracy": case(e.identity_accuracy, two, **both),
        "evaluation.match_clusters": case(e.match_clusters, two, **both),
        "evaluation.blind_level": case(
            e.blind_level,
            {"clusters": m, "guesses": 5, "seed": 1},
            clusters=names(also=[[-1] * 6, [10**9] * 6]),
            guesses=only(*whole().wrong[:27]),
            seed=whole(0),
        ),
        "evaluation.torn": case(
            e.torn,
            {"groups": [[0, 1], [2, 3, 4, 5]], "clusters": m},
            groups=only(None, 3, "ab", [], [["a"]], [[0, 99]], [[-1]], [[0.5]], {}, [0, 1]),
            clusters=names(also=[m[:2], [-1] * 6, [10**9] * 6], words="clusters|groups"),
        ),
        "evaluation.hard": case(
            e.hard,
            {"assignments": u},
            assignments=only(None, 3, "ab", [0, 1], torch.rand(2, 2, 2), {}),
        ),
        "evaluation.lowest": case(
            e.lowest,
            {"losses": u},
            losses=only(None, 3, "ab", [[0, 1]], torch.rand(2), torch.rand(2, 0)),
        ),
        "evaluation.loss_and_lowest": case(
            e.loss_and_lowest,
            {"losses": u},
            losses=only(None, 3, "ab", [[0, 1]], torch.rand(2), torch.rand(2, 0)),
        ),
        "evaluation.lowest_loss": case(e.lowest_loss, pair, **judging),
        "evaluation.own_distribution": case(e.own_distribution, pair, **judged),
        "evaluation.own_training_data": case(e.own_training_data, pair, **judged),
        "evaluation.score": case(
            e.score,
            pair | {"algorithm": ran().algorithm},
            **judging,
            algorithm=thing(cf.IFCA, others=foreign()),
        ),
        "evaluation.personal_quality": case(
            e.personal_quality,
            pair | {"rows": torch.arange(6), "clients": lines().train},
            **judged,
            rows=names(also=[[0], [9] * 6, [-1] * 6], lists=False),
            clients=only(*clients_().wrong, words="clients"),
        ),
        "evaluation.quality": case(
            e.quality,
            pair | {"found": torch.rand(6, 8), "clients": lines().train},
            **judging,
            found=only(None, 3, "ab", [[0.5]], torch.rand(6), torch.rand(5, 8)),
            clients=only(*clients_().wrong),
        ),
        "evaluation.center_table": case(
            e.center_table,
            {"bank": bank(), "federation": lines()},
            bank=bank_(),
            federation=federation(),
        ),
        "evaluation.same_people": case(
            e.same_people, {"federation": lines()}, federation=federation()
        ),
        "evaluation.mixture_ratio": case(
            e.mixture_ratio,
            {
                "personal": torch.rand(4, 3),
                "federation": cf.populations.mixture_regression("linear", 4, 2, features=3),
            },
            personal=only(None, 3, "ab", [[0.5]], torch.rand(4), torch.rand(5, 3)),
            federation=only(*federation().wrong, lines()),
        ),
        "evaluation.separation_gap": case(
            e.separation_gap,
            {"similarity": alpha, "clusters": [0, 0, 1]},
            similarity=square,
            clusters=names(also=[[0, 1], [0] * 4]),
        ),
        "similarity.optimal_bipartition": case(
            cf.similarity.optimal_bipartition, {"similarity": alpha}, similarity=square
        ),
        "similarity.cross_similarity": case(
            cf.similarity.cross_similarity,
            {"similarity": alpha, "first": [0, 1], "second": [2]},
            similarity=only(None, 3, "ab", [1.0], torch.rand(3), alpha.to(torch.complex64), {}),
            first=only(None, 3, "ab", [], [9], [-1], [0.5], [[0]], {}),
            second=only(None, 3, "ab", [], [9], [-1], [0.5], [[0]], {}),
        ),
        "similarity.cosine_similarity": case(
            cf.similarity.cosine_similarity,
            {"updates": alpha},
            updates=only(None, 3, "ab", [[0.5]], torch.rand(3), alpha.to(torch.complex64), lines()),
        ),
        "matching.best_matching": case(
            cf.matching.best_matching,
            {"table": alpha},
            table=table(alpha, empty=False, also=[torch.zeros(3)]),
        ),
        "grouping.silhouette": case(
            grouping.silhouette,
            {"distances": torch.cdist(rows, rows), "labels": [0, 0, 0, 0, 1, 1, 1, 1]},
            distances=table(torch.cdist(rows, rows), fixed=True, words="distances|labels"),
            labels=names(also=[[0] * 8, [0, 1], []], words="labels|distances"),
        ),
        "grouping.cuts": case(
            grouping.cuts,
            {"rows": rows, "most": 3},
            rows=table(rows, empty=False),
            most=whole(0, 7, none=True),
        ),
        "grouping.spread_alike": case(
            lambda **g: list(grouping.spread_alike(**_seeded(g))),
            {"rows": rows, "source": source(), "count": 1},
            rows=table(rows),
            source=thing(torch.Generator, others=foreign()),
            count=only(*whole().wrong[:24]),
        ),
        "grouping.against_clouds": case(
            lambda **g: grouping.against_clouds(**_seeded(g)),
            {"rows": rows, "source": source(), "count": 1},
            rows=table(rows),
            source=thing(torch.Generator, others=foreign()),
            count=only(*whole().wrong[:24]),
        ),
        "grouping.groups": case(
            grouping.groups,
            {"rows": rows, "seed": 0, "least": 0.07},
            rows=table(rows, empty=False),
            seed=whole(0),
            least=number("[-2, 2]"),
            recursive=flag(),
            clouds=function(none=True),
        ),
    }


@section
def parts_of_algorithms():
    tree = split()
    inner = next(v for v, node in enumerate(tree.tree) if node.children)
    u, v = soft().assignments, torch.full((2, 6), 1 / 6, dtype=torch.float64)
    train, counts = lines().train, lines().train.counts
    losses = torch.rand(2, 6, 8, dtype=torch.float64)
    vectors = torch.rand(4, 2, dtype=torch.float64)
    square = [None, 3, "ab", [[0.5]], torch.rand(3), torch.ones(2, 2, dtype=torch.int64), {}]
    return {
        "ifca.estimate_identities": case(
            ifca.estimate_identities,
            {"bank": bank(), "clients": train},
            bank=bank_(),
            clients=clients_(),
        ),
        "cfl.own_leaf": case(
            cfl.own_leaf,
            {"state": ran().state, "federation": lines()},
            state=models_(),
            federation=federation(),
        ),
        "cfl.path_models": case(
            lambda **g: cfl.path_models(**g).flatten(),
            {"state": tree, "path": [inner]},
            state=thing(cfl.State, others=foreign()),
            path=only(None, 3, "ab", [], [99], [-1], [0.5], ["a"], {}),
        ),
        "cfl.nearer_children": case(
            cfl.nearer_children,
            {"tree": tree.tree, "v": inner, "updates": torch.rand(2, 3)},
            tree=only(None, 3, "ab", [], [3], {}),
            v=only(*whole(0, len(tree.tree) - 1).wrong),
            updates=only(None, 3, "ab", [[0.5]], torch.rand(2, 4)),
        ),
        "cfl.weighted_mean": case(
            cfl.weighted_mean,
            {"updates": torch.rand(2, 3), "counts": torch.tensor([1, 2])},
            updates=only(None, 3, "ab", [[0.5]], torch.rand(3), torch.rand(0, 3)),
            counts=only(
                None,
                3,
                "ab",
                [1, 2],
                torch.tensor([1]),
                torch.tensor([0, 1]),
                torch.tensor([-1, 3]),
            ),
        ),
        "clove.chosen_number": case(
            clove.chosen_number,
            {"rows": vectors, "most": 2},
            rows=only(None, 3, "ab", torch.rand(3), fuzz.NAN, {}),
            most=only(*whole().wrong[:24]),
        ),
        "clove.k_means": case(
            clove.k_means,
            {"rows": vectors, "count": 2, "starts": 1, "seed": 0},
            rows=only(None, 3, "ab", torch.rand(3), torch.full((2, 2), fuzz.NAN), torch.rand(0, 2)),
            count=whole(),
            starts=only(*whole().wrong[:24]),
            seed=whole(0),
        ),
        "clove.matched": case(
            clove.matched,
            {"labels": [0, 0, 1, 1], "vectors": vectors},
            labels=names(also=[[0], [9] * 4, [-1] * 4]),
            vectors=only(None, 3, "ab", torch.rand(3), torch.full((4, 2), fuzz.NAN)),
        ),
        "baselines.responsibilities": case(
            fedem.responsibilities,
            {"table": losses, "weights": u},
            table=only(None, 3, "ab", torch.rand(3), torch.rand(3, 6, 8)),
            weights=only(None, 3, "ab", torch.rand(3), torch.rand(5, 2)),
        ),
        "baselines.mixed_outputs": case(
            fedem.mixed_outputs,
            {"bank": bank(), "weights": u, "x": train.inputs(), "classes": 0},
            bank=bank_(),
            weights=only(None, 3, "ab", torch.rand(3), torch.rand(5, 2)),
        ),
        "baselines.mixture": case(
            fedem.mixture,
            {"state": ran().state, "federation": lines()},
            state=models_(),
            federation=federation(),
        ),
        "fedsoft.estimate_importance": case(
            fedsoft.estimate_importance,
            {"bank": bank(), "clients": train, "smoother": 0.1},
            bank=bank_(),
            clients=clients_(),
            smoother=number("[0, 1)"),
        ),
        "fedsoft.aggregation_weights": case(
            fedsoft.aggregation_weights,
            {"importance": u, "counts": counts},
            importance=only(*square),
            counts=only(None, 3, "ab", [1], torch.ones(2), {}),
        ),
        "fedsoft.regression_weights": case(
            fedsoft.regression_weights,
            {"weights": v, "importance": u},
            weights=only(*square, torch.rand(3, 6)),
            importance=only(*square, torch.rand(5, 2)),
        ),
        "fedsoft.select": case(
            fedsoft.select,
            {"weights": v, "size": 2, "key": (0, 1)},
            weights=only(*square),
            size=only(*whole(1, 6).wrong, words="size|selected"),
            key=only(None, 3, "abc", (0,), (0, 1, 2), (0, -1), (0, 0.5), {}),
        ),
        "fedsoft.blend": case(
            lambda **g: fedsoft.blend(**g).flatten(),
            {"bank": bank(), "weights": u},
            bank=bank_(),
            weights=only(*square, torch.rand(6, 3)),
        ),
        "fedsoft.proximal_pull": case(
            lambda **g: fedsoft.proximal_pull(**g)[0],
            {"bank": bank(), "importance": u, "proximal": 1.0},
            bank=bank_(),
            importance=only(*square, torch.rand(6, 3)),
            proximal=number("[0, inf)"),
        ),
        "fedsoft.objective": case(
            fedsoft.objective,
            {
                "personal": soft().personal,
                "clients": train,
                "bank": bank(),
                "importance": u,
                "proximal": 1.0,
            },
            personal=only(*bank_().wrong, bank()),
            clients=clients_(),
            bank=bank_(),
            importance=only(*square, torch.rand(6, 3)),
            proximal=number("[0, inf)"),
        ),
        "secret.hartley": case(
            secret.hartley,
            {"rows": torch.rand(2, 3)},
            rows=only(None, 3, "ab", [[1.0]], {}, torch.rand(0), torch.rand(2).to(torch.complex64)),
        ),
    }


@section
def comparing():
    method = choice(*comparison.METHODS, *comparison.LATER)
    run_on = cf.FedAvg(comparison.NET, SGD)
    state = cf.door.admit(run_on, people(), 0, 1)
    x, y = torch.rand(3, 8, 8), torch.tensor([0, 1, 2])
    settings = {"gamma": 0.2, "tau": 2, "k": 2}
    folk = only(*federation().wrong)
    return {
        "comparison.build": case(
            comparison.build,
            {"kind": "tiny", "seed": 0},
            kind=choice(*comparison.KINDS),
            seed=whole(0),
            held_out=choice("test", "validation"),
        ),
        "comparison.make": case(
            comparison.make,
            {"method": "IFCA", "settings": settings, "m": 4, "model": comparison.NET},
            method=method,
            settings=only(None, 3, "ab", [], {}, {"gamma": 0.2}, {"gamma": 0.2, "tau": 2}),
            m=whole(),
            model=model_(),
        ),
        "comparison.play": case(
            lambda **g: comparison.play(**g)[0],
            {
                "algorithm": run_on,
                "people": people(),
                "seed": 0,
                "models": 4,
                "passes": 50,
                "most": 1,
            },
            people=folk,
            seed=whole(0),
            models=only(*number("[0, inf]").wrong),
            passes=only(*number("[0, inf]").wrong),
            most=whole(none=True),
            watch=flag(),
            device=only(None, "nowhere", 2.5, []),
        ),
        "comparison.one_round": case(
            lambda **g: comparison.one_round(**g)[1:],
            {"algorithm": run_on, "state": state, "people": people()},
            state=state_(words="state|start"),
            people=only(*folk.wrong, words="people|federation"),
        ),
        "comparison.accuracy": case(
            comparison.accuracy, {"state": state, "people": people()}, state=state_(), people=folk
        ),
        "comparison.found": case(
            comparison.found,
            {"state": state, "people": people()},
            state=state_(),
            people=only(*folk.wrong, lines()),
        ),
        "comparison.honest": case(comparison.honest, {"people": people()}, people=folk),
        "comparison.seen": case(
            comparison.seen,
            {"view": {"turn": 1}, "x": x, "y": y},
            view=only(None, 3, "ab", [], {"turn": 0.5}, {"turn": "a"}, words="view|turn"),
            x=only(None, 3, "ab", [[1.0]], x[:2]),
            y=only(None, 3, "ab", y[:2], [0.5, 1, 1], {}),
        ),
        "results.Store": case(
            lambda **g: vars(cf.results.Store(**g)),
            {"experiment": "99_fuzz", "preset": "quick"},
            experiment=only(None, 3, "", "a b", "x" * 31, "../x", b"x", ["a"], "a/b", 2.5),
            preset=choice("quick", "paper"),
        ),
        "Store.run": case(
            cf.results.Store("99_fuzz").run,
            {"seed": 0, "settings": {"k": 2}, "compute": lambda checkpoint: {"a": 1}},
            seed=whole(0),
            settings=only(None, 3, "ab", [], {1: 2}, {"a": object()}, {"a": {2: 3}}, {"a": 1j}),
            compute=only(*function().wrong, lambda _: None, lambda _: 3, words="compute|values"),
            data=text(),
        ),
        "results.stored": case(
            lambda experiment: cf.results.stored(experiment),
            {"experiment": "99_fuzz"},
            experiment=only(None, 3, "", "a b", "x" * 31, "../x", b"x", ["a"], "a/b", 2.5),
        ),
        "results.interval": case(
            cf.results.interval,
            {"values": [1, 2, 3]},
            values=only(
                None, 3, "ab", [], [1], [[1, 2]], ["a", "b"], [fuzz.NAN, 1], [1, INFINITE], {}
            ),
        ),
        "results.table": case(
            cf.results.table,
            {"rows": [2, 3], "columns": [1], "show": lambda a, b: a * b},
            rows=only(None, 3, "ab", 2.5, b"x"),
            columns=only(None, 3, "ab", 2.5, b"x"),
            show=function(),
        ),
        "claims.runs": case(
            claims.runs,
            {
                "number": {"experiment": "x", "where": {}},
                "stored": lambda name: [{"settings": {}, "seed": 0}],
            },
            number=only(
                None,
                3,
                "ab",
                [],
                {},
                {"where": {}},
                {"experiment": "x", "where": 3},
                words="number|where",
            ),
            stored=function(),
        ),
        "claims.unclaimed": case(
            claims.unclaimed,
            {"kept": claims.Ledger({}, {}, {}, []), "experiments": [], "stored": lambda name: []},
            kept=thing(claims.Ledger, others=foreign()),
            experiments=only(None, 3, "ab", [3], [None], 2.5),
            stored=function(),
        ),
    }


@section
def trials_and_theory():
    t, two = cf.trials, {"clients": 4, "points": 5, "features": 3, "clusters": 2}
    starts = t.first_models(3, 2, [0])
    problem = theory.LinearProblem(100, 20, 2, 0.5, 1.0, 1.0)
    convex = theory.ConvexProblem(100, 20, 2, 0.5, 1.0, 2.0, 2.0, 1.0, 1.0)
    one = thing(theory.LinearProblem, others=[convex, *foreign()])
    other = thing(theory.ConvexProblem, others=[problem, *foreign()])
    positive, some = number("(0, inf)"), number("[0, inf)")
    noise = table(torch.tensor([0.1, 0.2]), fixed=True, also=[[-1.0, 0], [2.0, 0]])
    theta, shares = torch.eye(2), torch.full((3, 2), 0.5)
    weights = torch.full((2, 3), 1 / 3)
    vector = torch.tensor([0.2, 0.0])
    line = table(vector, fixed=True, words="truth|right|wrong")
    counts = only(None, "ab", 0, -1, 2.5, fuzz.NAN, [0, 3], [], {}, ["a"], 1j)
    return {
        "trials.figure_3": case(t.figure_3, {"panel": "a"}, panel=choice("a", "b", "c", "d")),
        "trials.first_models": case(
            t.first_models,
            {"features": 3, "clusters": 2, "seeds": [0, 1]},
            features=whole(),
            clusters=only(*whole().wrong, words="clusters|count"),
            seeds=only(None, 3, "ab", [], [-1], [0.5], ["a"], words="seeds|seed"),
            dtype=only(None, "float32", torch.int64, float),
        ),
        "trials.regression_trial": case(
            t.regression_trial,
            {"federation": lines(), "starts": starts, "steps": [0.1], "rounds": 2},
            federation=only(*federation().wrong, labelled()),
            starts=only(
                None, 3, "ab", [], starts[0], starts.int(), starts * fuzz.NAN, torch.rand(1, 3, 3)
            ),
            steps=only(None, 3, "ab", [], [0], [-1], [fuzz.NAN], ["a"], [INFINITE], {}),
            rounds=whole(),
            device=only(None, "nowhere", 2.5, []),
        ),
        "trials.success_trial": case(
            lambda **g: t.success_trial(**g)["success"],
            two | {"scale": 1.0, "noise": 0.1, "steps": [0.1], "seed": 0, "starts": 1, "rounds": 2},
            scale=positive,
            noise=some,
            clients=whole(),
            points=whole(),
            features=whole(2),
            clusters=whole(1, 4),
            steps=only(None, 3, "ab", [], [0], [-1], [fuzz.NAN], ["a"], {}),
            seed=whole(0),
            starts=only(*whole().wrong),
            rounds=whole(),
            reading=choice("coordinate", "norm"),
        ),
        "trials.success_rates": case(
            lambda records, names, reading: t.success_rates(records, *names, reading=reading),
            {"records": [{"k": 2, "success": True}], "names": ["k"], "reading": "matched"},
            records=only(None, 3, "ab", [3], [{}], [{"k": 2}], words="records"),
            reading=choice("matched", "nearest"),
        ),
        "theory.LinearProblem": case(
            theory.LinearProblem,
            {
                "clients": 9,
                "points": 5,
                "features": 2,
                "smallest": 0.5,
                "separation": 1.0,
                "noise": 1.0,
            },
            clients=whole(),
            points=whole(),
            features=whole(),
            smallest=number(SHARE),
            separation=positive,
            noise=some,
        ),
        "theory.ConvexProblem": case(
            theory.ConvexProblem,
            {
                "clients": 9,
                "points": 5,
                "clusters": 2,
                "smallest": 0.5,
                "separation": 1.0,
                "convexity": 2.0,
                "smoothness": 2.0,
                "loss_deviation": 1.0,
                "gradient_deviation": 1.0,
            },
            clients=whole(),
            points=whole(),
            clusters=whole(),
            smallest=number(SHARE),
            separation=positive,
            convexity=positive,
            smoothness=only(*positive.wrong, 1.0),
            loss_deviation=some,
            gradient_deviation=some,
        ),
        "theory.closeness": case(
            theory.closeness,
            {"distance": 0.2, "separation": 1.0},
            distance=some,
            separation=positive,
        ),
        "theory.assumptions": case(
            theory.assumptions,
            {"problem": problem, "distance": 0.2, "largest": 1.0, "c": 1.0},
            problem=one,
            distance=some,
            largest=positive,
            c=positive,
        ),
        "theory.step_bound": case(
            theory.step_bound,
            {"problem": problem, "distance": 0.2, "c2": 1.0, "c3": 1.0, "c4": 1.0},
            problem=one,
            distance=number("[0, 0.5)"),
            c2=positive,
            c3=positive,
            c4=positive,
            version=choice("extended", "neurips"),
        ),
        "theory.convergence": case(
            theory.convergence,
            {"problem": problem, "c6": 1.0, "c7": 1.0, "c8": 1.0},
            problem=one,
            c6=positive,
            c7=positive,
            c8=positive,
            version=choice("extended", "neurips"),
        ),
        "theory.exact_step": case(
            theory.exact_step,
            {"problem": problem, "step_size": 0.1, "share": 0.5},
            problem=one,
            step_size=positive,
            share=number(SHARE),
        ),
        "theory.misclassification": case(
            theory.misclassification,
            {"right": vector, "wrong": [0.8, 0.0], "truth": [0.0, 0.0], "noise": 1.0, "points": 20},
            right=line,
            wrong=line,
            truth=line,
            noise=some,
            points=counts,
        ),
        "theory.threshold_split": case(
            theory.threshold_split,
            {"right": 0.2, "wrong": 0.8, "noise": 1.0, "points": 20},
            right=number("[0, 0.7]"),
            wrong=only(*positive.wrong, 0.1),
            noise=some,
            points=counts,
        ),
        "theory.misclassification_bound": case(
            theory.misclassification_bound,
            {"problem": problem, "closeness": 0.3, "c1": 1.0, "c2": 0.5},
            problem=one,
            closeness=number("(0, 0.5]"),
            c1=positive,
            c2=positive,
        ),
        "theory.distance_to_truth": case(
            theory.distance_to_truth,
            {"estimates": theta, "truth": theta},
            estimates=only(
                None,
                "ab",
                3,
                [[fuzz.NAN, 0], [0, 1]],
                torch.rand(3, 2),
                torch.rand(2, 3),
                [],
                {},
                1j,
            ),
            truth=only(
                None,
                "ab",
                3,
                [[fuzz.NAN, 0], [0, 1]],
                torch.rand(3, 2),
                [],
                {},
                1j,
                words="truth|estimates",
            ),
        ),
        "theory.succeeded": case(
            theory.succeeded,
            {"distance": torch.tensor(0.2), "noise": 1.0},
            distance=only(None, "ab", fuzz.NAN, {}, 1j),
            noise=some,
        ),
        "theory.basin": case(
            theory.basin,
            {
                "starts": torch.rand(3, 2, 2),
                "truth": theta,
                "noise": 0.1,
                "clients": 4,
                "points": 5,
                "rounds": 2,
                "seeds": 1,
            },
            starts=only(
                None, "ab", 3, theta, torch.rand(3, 3, 2), torch.full((3, 2, 2), fuzz.NAN), {}
            ),
            truth=only(None, "ab", 3, torch.rand(3, 2), theta * fuzz.NAN, {}, words="truth|truths"),
            noise=some,
            clients=whole(),
            points=whole(),
            rounds=only(*whole().wrong[:24]),
            seeds=only(*whole().wrong[:24]),
            fresh=flag(),
        ),
        "theory.convex_misclassification": case(
            theory.convex_misclassification,
            {"problem": convex, "closeness": 0.3},
            problem=other,
            closeness=number("(0, 0.5]"),
        ),
        "theory.convex_step_bound": case(
            theory.convex_step_bound,
            {"problem": convex, "distance": 0.2, "failure": 0.1, "c0": 1.0, "c1": 1.0, "c2": 1.0},
            problem=other,
            distance=number("[0, 0.5)"),
            failure=number(SHARE),
            c0=positive,
            c1=positive,
            c2=positive,
        ),
        "theory.convex_convergence": case(
            theory.convex_convergence,
            {"problem": convex, "failure": 0.1, "c0": 1.0, "c1": 1.0, "c2": 1.0},
            problem=other,
            failure=number(SHARE),
            c0=positive,
            c1=positive,
            c2=positive,
        ),
        "theory.alignment": case(
            theory.alignment,
            {"noise_i": 0.1, "noise_j": 0.2},
            noise_i=only(None, "ab", -1, 2, fuzz.NAN, [], {}, ["a"], 1j, [0.1, 3.0], words="noise"),
            noise_j=only(None, "ab", -1, 2, fuzz.NAN, [], {}, ["a"], 1j, [0.1, 3.0], words="noise"),
        ),
        "theory.guaranteed_noise": case(
            theory.guaranteed_noise, {"clusters": 3}, clusters=whole(2)
        ),
        "theory.separation_bounds": case(
            theory.separation_bounds,
            {"noise": torch.tensor([0.1, 0.2]), "clusters": [0, 1]},
            noise=noise,
            clusters=names(also=[[0, 0], [0, 1, 1]], words="clusters|noise"),
        ),
        "theory.separation_probability": case(
            theory.separation_probability,
            {"clusters": 2, "noise": 0.1, "features": 5, "each": 2, "trials": 2, "seed": 0},
            clusters=only(*whole(2).wrong[:24]),
            noise=some,
            features=only(*whole().wrong[:24]),
            each=only(*whole(2).wrong[:24]),
            trials=only(*whole().wrong[:24]),
            seed=whole(0),
        ),
        "theory.workload": case(
            theory.workload,
            {"clients": 100, "chosen": 60, "clusters": 2},
            clients=only(*whole().wrong, 5, words="clients"),
            chosen=whole(1, 100),
            clusters=whole(),
        ),
        "theory.importance_bound": case(
            theory.importance_bound,
            {"importance": 0.5, "misclassified": 0.1, "smoother": 0.01},
            importance=only(None, "ab", -1, 2, fuzz.NAN, [], {}, 1j),
            misclassified=number("[0, 1]"),
            smoother=number("[0, 1)"),
        ),
        "theory.expected_importance": case(
            theory.expected_importance,
            {"counts": [3, 4], "confusion": [[0.9, 0.1], [0.2, 0.8]], "smoother": 0.01},
            counts=names(also=[[3], [-1, 4], [0, 0]], words="counts|confusion"),
            confusion=only(
                None, "ab", 3, [[0.9, 0.2], [0.2, 0.8]], [[1.5, -0.5], [0, 1]], [[0.5, 0.5]], {}, 1j
            ),
            smoother=only(*number("[0, 1]").wrong, 0.5),
        ),
        "theory.subproblem_inexactness": case(
            theory.subproblem_inexactness,
            {"solver": 0.1, "similarity": 0.2, "convexity": 1.0, "smoothness": 2.0},
            solver=some,
            similarity=some,
            convexity=positive,
            smoothness=positive,
        ),
        "theory.divergence_radius": case(
            theory.divergence_radius,
            {"inexactness": 0.1, "clusters": 2, "convexity": 1.0, "smoothness": 2.0},
            inexactness=some,
            clusters=whole(),
            convexity=positive,
            smoothness=positive,
        ),
        "theory.soft_centers": case(
            theory.soft_centers,
            {"theta": theta, "mixture": shares, "weights": weights, "proximal": 1.0},
            theta=table(theta, also=[torch.rand(3, 2)], words="theta|mixture"),
            mixture=table(shares, fixed=True, also=[shares * 2], words="mixture|weights"),
            weights=table(weights, fixed=True, also=[weights * 2, torch.rand(2, 4)]),
            proximal=some,
        ),
    }


@section
def drawing():
    def drawn(word):
        def call(**given):
            return getattr(figures.panel("A figure", width=150), word)(**given)._repr_html_()

        return call

    look_of = only(fuzz.NAN, 2.5, [1], {}, object(), 1j, int, fuzz.Strange(), words="what")
    like = only(fuzz.NAN, 2.5, {}, object(), 1j, fuzz.Strange(), words="what")
    label = only(3, 2.5, [], {}, object(), b"x", True)
    floats = only(None, "ab", {}, object(), ["a"], [None], 1j, fuzz.Strange())
    spots = only(None, "ab", {"a": 1}, object(), [["a", "b"]], [[1.0]], 3, [[1, 2, 3]])
    at = number()
    draw = lambda value: figures.panel("A figure", width=100).level(value)  # noqa: E731
    image = torch.rand(2, 3, 3)
    return {
        "figures.colour": case(figures.colour, {"what": 1}, what=look_of),
        "figures.look": case(figures.look, {"what": 1}, what=look_of),
        "figures.marker": case(
            figures.marker, {"number": 1}, number=only(None, fuzz.NAN, 2.5, "a", [], {})
        ),
        "figures.dash": case(figures.dash, {"name": "IFCA"}, name=text()),
        "looks.luminance": case(
            figures.looks.luminance,
            {"color": "#0072B2"},
            color=only(None, 3, "", "red", "#12", "#gggggg", b"#000000", []),
        ),
        "looks.ink_on": case(
            figures.looks.ink_on,
            {"color": "#0072B2"},
            color=only(None, 3, "", "red", "#12", "#gggggg", b"#000000", []),
        ),
        "figures.panels": case(
            figures.panels,
            {"alt": "Some", "width": 100, "height": 90},
            alt=text(empty=False, words="alt"),
            width=only(None, "a", 0, -1, fuzz.NAN, INFINITE, 10**9, [], True, 1j),
            height=only("a", -1, fuzz.NAN, INFINITE, 10**9, [], True, 1j),
            xscale=only("no such", 3, [], words="settings"),
            nothing=only(3, "a", words="settings"),
        ),
        "figures.panel": case(
            figures.panel,
            {"alt": "Some", "title": "one"},
            alt=text(empty=False, words="alt"),
            title=only(None, 3, [], b"x", words="titles"),
            ylim=only([1, 2, 3], {}, object(), words="settings"),
        ),
        "figures.player": case(
            lambda **g: type(figures.player(**g)),
            {"draw": draw, "label": "round", "values": [1, 2]},
            draw=function(),
            label=text(),
            values=only(
                None, 3, "ab", [], [None], [fuzz.NAN], [[1]], [object()], words="values|value"
            ),
            choice_label=text(none=True),
            choices=only(3, "ab", [], [None], [fuzz.NAN], words="choices|choice"),
        ),
        "Panel.spread": case(
            drawn("spread"),
            {"x": [1, 2], "values": [1.0, 2.0]},
            x=only(None, 3, "ab", [], [1], [1, 2, 3], {}, words="x"),
            values=only(*floats.wrong, [1.0], [[1.0], [2.0]], 3),
            label=label,
            like=like,
            marks=flag(),
            line=flag(),
        ),
        "Panel.curves": case(
            drawn("curves"),
            {"runs": {"IFCA": ran()}, "key": "error"},
            runs=only(None, 3, "ab", [], [ran()], {"a": 3}, {"a": [3]}),
            key=only(None, 3, "no such", [], b"x"),
        ),
        "Panel.points": case(
            drawn("points"),
            {"x": [1, 2], "y": [1.0, 2.0]},
            x=only(*floats.wrong, [1.0], 3),
            y=only(*floats.wrong, [1.0], 3),
            size=only(*number("(0, inf)").wrong),
            like=like,
            label=label,
        ),
        "Panel.level": case(drawn("level"), {"height": 1.0}, height=at, label=label, like=like),
        "Panel.border": case(drawn("border"), {"place": 1.0}, place=at, label=label, like=like),
        "Panel.rows": case(
            drawn("rows"),
            {"groups": {"a": [1.0, 2.0]}},
            groups=only(None, 3, "ab", [], {"a": ["b"]}, {"a": 3}, {"a": None}),
            like=only(3, "ab", [1, 2], words="like"),
            middle=function(none=True),
        ),
        "Panel.beside": case(
            drawn("beside"),
            {"rows": {"a": (1.0, [1.0, 2.0])}},
            rows=only(
                None, 3, "ab", [], {"a": 3}, {"a": (1, "b")}, {"a": ("x", [1])}, {"a": (1, [1], 2)}
            ),
        ),
        "Panel.bars": case(
            drawn("bars"),
            {"names": ["a", "b"], "groups": {"one": [1.0, 2.0]}},
            names=only(None, 3, "ab", [], ["a"], words="names|groups"),
            groups=only(None, 3, "ab", [], {}, {"a": [1]}, {"a": ["b", "c"]}, {"a": None}),
            stacked=flag(),
        ),
        "Panel.plane": case(
            drawn("plane"),
            {
                "truths": [[0, 1]],
                "models": [[1.0, 0]],
                "clients": [[0.5, 0.5]],
                "clusters": [0],
                "chosen": [0],
            },
            truths=spots,
            models=spots,
            clients=only(*spots.wrong, words="clients"),
            clusters=only(3, "ab", [0, 1], [0.5], ["a"], {}),
            chosen=only(3, "ab", [0, 1], [0.5], ["a"], {}),
            after=only("ab", [["a", "b"]], [[1.0]], 3, words="after"),
        ),
        "Panel.arrows": case(
            drawn("arrows"),
            {"tips": [[1.0, 2.0]], "starts": (0, 0)},
            tips=spots,
            starts=only("ab", None, [[1.0]], [[1, 2], [3, 4]], 3, ["a", "b"], {}),
        ),
        "Panel.note": case(
            drawn("note"),
            {"spot": (1, 2), "text": "a"},
            spot=only(None, "ab", 3, [1], [fuzz.NAN, 1], {}),
            text=text(),
        ),
        "Panel.contours": case(
            drawn("contours"),
            {"height": lambda points: points[..., 0], "levels": [0.2, 0.5]},
            height=only(*function().wrong, lambda points: 3.0, lambda points: "a"),
            levels=only(None, "ab", [fuzz.NAN], ["a"], {}),
        ),
        "Panel.region": case(
            drawn("region"),
            {"height": lambda points: points[..., 0] - 0.5},
            height=only(*function().wrong, lambda points: 3.0, lambda points: "a"),
            label=label,
        ),
        "Panel.circles": case(
            drawn("circles"),
            {"centers": [[0, 1.0]], "radius": 0.5},
            centers=only(*spots.wrong),
            radius=number("(0, inf)"),
        ),
        "Panel.squares": case(
            drawn("squares"),
            {"table": [[0, 1], [1, -1]]},
            table=only(None, 3, "ab", [], [["a"]], [[0.5]], [3], {}),
            names=only(3, "ab", ["a"], []),
        ),
        "Panel.identities": case(
            drawn("identities"),
            {"identities": [0, 1, 1], "clusters": [0, 1, 1]},
            identities=names(also=[[0, 1]]),
            clusters=names(also=[[0, 1], [-1] * 3]),
        ),
        "Panel.heat": case(
            drawn("heat"),
            {"values": [[0.1, 0.2]], "label": "share"},
            values=only(*floats.wrong, 3, [1.0], [[[1.0]]], []),
            label=text(),
            limits=only(None, 3, "ab", (1,), (1, 0), (0, 0), (fuzz.NAN, 1), ("a", "b")),
            numbers=flag(),
            clusters=only(None, 3, "ab", [0.5], ["a"], words="clusters"),
        ),
        "Panel.pictures": case(
            drawn("pictures"),
            {"images": image},
            images=only(*floats.wrong, 3, [1.0], image[0], image * fuzz.NAN, torch.rand(0, 3, 3)),
            labels=only(None, 3, "abc", ["a"]),
            columns=only(*whole(none=True).wrong),
            signed=flag(),
        ),
        "Panel.picture": case(
            drawn("picture"),
            {"image": image[0], "x": 0.0, "y": 0.0, "width": 1.0},
            image=only(*floats.wrong, 3, [1.0], image),
            x=at,
            y=at,
            width=number("(0, inf)"),
        ),
    }


@section
def laboratories():
    found = {}
    for name in live.__all__:
        lab = getattr(live, name)
        if name in ("Laboratory", "script", "plane"):
            continue
        module = importlib.import_module(f"clusterfl_core.live.labs.{name}")
        given = {
            n: p.default for n, p in inspect.signature(lab).parameters.items() if n in module.FIELDS
        }
        args = {n: _entry(module.FIELDS[n]) for n in given}
        if name == "race":
            args["inputs"] = only(
                *args["inputs"].wrong[4:20], 65, 0, "8", words=args["inputs"].words
            )
        found[f"live.{name}"] = case(lab, given | {"task": ""}, **args, task=text())
    rows = only(None, 3, "ab", [], [[1]], [["a", "b"]], [[9, 0]], [[fuzz.NAN, 0]], {}, [[0, 0]] * 9)
    found["live.plane"] = case(
        live.plane,
        {"clients": 2, "points": 3, "noise": 0.5, "seed": 0},
        truth=rows,
        models=rows,
        clients=whole(1, 12),
        points=whole(1, 50),
        noise=number("[0, 2]"),
        seed=whole(0),
        task=text(),
        small=flag(),
    )
    found["live.script"] = case(
        live.script,
        {"name": "angle"},
        name=only(None, 3, "", "no such", [], "../page", b"angle", {}),
    )
    found["sources.source"] = case(
        sources.source,
        {"name": "ifca"},
        name=only(None, 3, "", "no such", [], "../page", b"ifca", {}),
    )
    found["page.modules"] = case(
        page.modules,
        {"name": "angle"},
        name=only(None, 3, "", "no such", [], "../page", b"angle", {}),
    )
    return found


def _entry(one):
    """What an entry of a laboratory's table is."""
    words = one.words
    if isinstance(one, fields.Whole):
        return whole(one.low, one.high, words=words)
    if isinstance(one, fields.Number):
        return number(f"[{one.low}, {one.high}]", words=words)
    if isinstance(one, fields.Choice):
        return choice(*(name for name, _ in one.options), words=words)
    if isinstance(one, fields.Flag):
        return flag(words)
    wrong = [None, 3, "ab", [], ["a"] * 4, [fuzz.NAN] * 4, [[9, 9]] * 99, {}, object(), [1e9] * 12]
    return only(*wrong, 2.5, True, fuzz.Strange(), [None] * 6, words=words)


@section
def replays():
    r, world = replay, replay.linear([[2, 0], [0, 2]], clients=2, points=4)
    algorithm = cf.IFCA(cf.models.LinearRegression(2), 2, SGD)
    one = [[2.0, 0.0], [0.0, 2.0]]
    pair = ([[1.0, 2.0], [2.0, 1.0]], [1.0, 2.0])
    seed = whole(0, 2**32 - 1)
    kind = thing(cf.IFCA, others=foreign())
    some = only("ab", None, 0, -1, 2.5, [1], [1, 0], fuzz.NAN, {}, [1, 2, 3])
    every = only("ab", None, [1], ["a", "b"], fuzz.NAN, {}, [1, 2, 3])
    rows = only(
        "ab", 3, [], [[1]], [["a", "b"]] * 2, [[fuzz.NAN, 0]] * 2, {}, [[0, 0]] * 9, words="models"
    )
    return {
        "replay.linear": case(
            r.linear,
            {"truth": one, "clients": 2, "points": 3, "noise": 0.1, "seed": 1},
            truth=table(one),
            clients=some,
            points=some,
            noise=number("[0, inf)"),
            seed=seed,
            features=choice("normal", "line"),
            shares=only("ab", 3, [], [[1, 1]], [[1]], [["a", "b"]], [[2, -1]], {}),
        ),
        "replay.points": case(
            r.points,
            {"clients": [pair, pair], "clusters": [0, 1]},
            clients=only(None, 3, "ab", [], [3], [pair[:1]], [([["a"]], [1])], {}, [(1, 2)]),
            clusters=only(3, "ab", [0], [-1, 0], [0.5, 1], {}, ["a", "b"]),
        ),
        "replay.bowls": case(
            r.bowls,
            {"centers": one, "stretch": 2, "turn": 30, "pairs": 1},
            centers=table(one),
            stretch=only(*every.wrong, 0.5, -1),
            turn=every,
            pairs=some,
        ),
        "replay.resting_point": case(
            r.resting_point,
            {"federation": world, "local": SGD},
            federation=only(*federation().wrong, labelled()),
            local=only(*solver_(cf.LocalSGD).wrong, cf.LocalSGD(epochs=2), cf.LocalAdam(2)),
        ),
        "replay.digits": case(
            r.digits,
            {"twist": "rotated", "clusters": 2, "clients": 1, "points": 2, "seed": 0, "angle": 30},
            twist=choice("rotated", "swapped", "none"),
            clusters=whole(1, 5),
            clients=only(*whole().wrong, 10**6, words="clients"),
            points=only(*whole().wrong, 10**6, words="points"),
            seed=seed,
            angle=number(none=True),
        ),
        "replay.patchwork": case(
            r.patchwork,
            {
                "groups": 2,
                "clients": 1,
                "last": 1,
                "points": 2,
                "seed": 0,
                "angle": 90,
                "swaps": 1,
                "skew": 0.1,
            },
            groups=whole(),
            angle=number(),
            swaps=whole(0, 5),
            skew=number("[0, 1]"),
            points=whole(),
            clients=whole(),
            last=whole(),
            liars=whole(0),
            seed=seed,
        ),
        "replay.fresh": case(
            lambda **g: r.fresh(**g).flatten(),
            {"model": LINE, "count": 2, "seed": 1},
            model=only(*model_().wrong, torch.nn.Linear(2, 2)),
            count=only(*whole().wrong),
            seed=seed,
        ),
        "replay.participants": case(
            r.participants,
            {"key": (0, 1), "clients": 9, "participation": 0.4},
            key=only(None, 3, [None, 1], [-1, 0], (0,), (0, fuzz.NAN), words="key|seed|a"),
            clients=whole(),
            participation=number(SHARE),
        ),
        "replay.select": case(
            r.select,
            {"weights": torch.full((2, 4), 0.25), "size": 2, "key": (0, 1)},
            weights=only(
                None, 3, "ab", torch.rand(3), -torch.ones(2, 4), torch.full((2, 4), fuzz.NAN)
            ),
            size=only(*whole(1, 4).wrong),
            key=only(None, 3, [None, 1], [-1, 0], (0,), (0, fuzz.NAN), words="key|seed|a"),
        ),
        "replay.run": case(
            lambda **g: r.run(**g).history[-1]["error"],
            {"algorithm": algorithm, "federation": world, "rounds": 1, "seed": 0, "models": one},
            algorithm=kind,
            federation=federation(),
            rounds=whole(),
            seed=seed,
            models=rows,
            absent=only(3, "ab", [], [1]),
        ),
        "replay.replayed": case(
            lambda **g: r.replayed(**g).first.flatten(),
            {"algorithm": algorithm, "seed": 0, "models": one},
            algorithm=kind,
            models=rows,
            absent=only(3, "ab", [], [1]),
        ),
        "replay.em": case(
            r.em,
            {"federation": world, "clusters": 2, "rounds": 1, "noise": 0.3, "seed": 0},
            federation=only(*federation().wrong, labelled()),
            clusters=whole(),
            rounds=only(*whole(0).wrong[:24]),
            soft=flag(),
            noise=only(*number("(0, inf)").wrong[:3], "a", 0, -1, [0], {}, 1j),
            seed=seed,
            models=rows,
        ),
        "random.stream": case(
            lambda **g: streams.stream(**g).uniform(3),
            {"seed": 1, "name": "own", "a": 0, "b": 1, "c": 2},
            seed=seed,
            name=text(),
            a=seed,
            b=seed,
            c=seed,
        ),
        "random.stream_number": case(streams.stream_number, {"name": "own"}, name=text()),
        "flower.commands": case(
            cf.flower.commands,
            {"clients": 2, "host": "127.0.0.1", "port": 8000},
            clients=whole(),
            host=only(None, 3, "", "example.org", "0.0.0.0", [], b"127.0.0.1"),
            port=whole(1, 65535),
            tls=only(3, [], 2.5, object(), True, b"x"),
        ),
    }


@section
def house_():
    experiment = house.experiments()[0].stem
    given = {"experiment": experiment, "preset": "quick", "seeds": ["0"], "device": "cpu"}

    def results(**asked):
        house.results(**asked, root=house.ROOT)

    found = {
        "house.results": case(
            results,
            given,
            experiment=only(
                "", "no_such", "../06_table1", "a b", "06_table1.ipynb", words="experiment"
            ),
            preset=only("", "fast", "QUICK", "paper ", words="preset"),
            seeds=only([], [""], ["-1"], ["a"], ["1,2"], ["1.5"], ["0", "x"], words="Seeds"),
            device=only("", "gpu", "cuda:x", "CPU", "cpu;", words="device"),
            others=only(["rounds"], ["=3"], ["Rounds=3"], ["a b=3"], words="parameters"),
        ),
        "house.repository": case(
            house.repository,
            {"url": "https://github.com/OWNER/NAME"},
            url=only(
                "",
                "x",
                "http://github.com/a/b",
                "https://gitlab.com/a/b",
                "https://github.com/a",
                "https://github.com/OWNER/NAME",
                "https://github.com/a/b/c",
                words="address",
            ),
        ),
    }
    return found


# ---------------------------------------------------------------- what is inside

RECORDS = "a plain record; what it holds is looked at where it is used"
HOT = "computes for the rooms outside, in the innermost loop, with what they have looked at"
DOOR = "a door itself, for those who write rooms"
PAGE = "makes the pages' laboratories, with entries that were looked at"
WIRE = "between Flower's programs; what comes over the wire is doubted there, see test_flower.py"
PRINTED = "writes the rows of the claims page from a ledger that its own tests hold"
CHAPTER = "composes what chapter 13 plays; its own tests are in test_composing.py"
CONTEST = "plays what chapter 13 compares; its own tests are in test_contest.py"
DIAGNOSED = "its wrong inputs are tried one by one in test_diagnosis.py"
STRANGER = "asked of an algorithm of one's own; door.admit looks at it, see test_door.py"
INSIDE = {
    "baselines": {},
    "cfl": {RECORDS: "Node State", HOT: "joined newest"},
    "clove": {RECORDS: "State"},
    "fedavg": {RECORDS: "State", HOT: "train_from"},
    "fedem": {RECORDS: "State"},
    "fedsoft": {RECORDS: "State"},
    "ifca": {RECORDS: "State"},
    "banks": {HOT: "on_device widest"},
    "check": {DOOR: " ".join(check.__all__)},
    "claims": {
        RECORDS: "Ledger",
        DOOR: "folder ledger",
        PRINTED: "filters link parameter row runs shown signs",
    },
    "composing": {
        RECORDS: "LeanFedSoft Recipe",
        CHAPTER: "answering build compose deal held_back judge make persons",
    },
    "contest": {
        CONTEST: "behind diagnoses final runs search searches second_look stage_1 stage_2 "
        "taken validate",
    },
    "diagnosis": {RECORDS: "Diagnosis", DIAGNOSED: "best_cut diagnose held_back"},
    "comparison": {},
    "compute": {HOT: " ".join(cf.compute.__all__)},
    "contract": {
        STRANGER: "Algorithm Jobs Replies State summed traffic",
        RECORDS: "Unusable",
    },
    "cache": {RECORDS: "Unavailable", HOT: "cached cache_folder"},
    "images": {RECORDS: "Images"},
    "texts": {RECORDS: "Texts"},
    "door": {DOOR: " ".join(cf.door.__all__)},
    "evaluation": {DOOR: "refuse_unknown"},
    "panels": {HOT: "Figure Panel"},
    "svg": {HOT: "draw written"},
    "looks": {RECORDS: "Look"},
    "flower": {WIRE: " ".join(n for n in cf.flower.__all__ if n != "commands")},
    "page": {RECORDS: "Laboratory", PAGE: "laboratory looks"},
    "fields": {PAGE: " ".join(fields.__all__)},
    "random": {PAGE: "Stream philox"},
    "sources": {PAGE: "packed_digits"},
    "labs": {PAGE: "all but the laboratory itself"},
    "machine": {HOT: "activations chunk_size free_memory in_order placed watched"},
    "models": {
        HOT: "FirstLinear Form XavierConv2d XavierLinear cross_entropy form point_loss pull "
        "squared_error batched loops drawn affine inner plus_product product"
    },
    "deals": {RECORDS: "Hands Table", DOOR: "anew by_half by_writer"},
    "twists": {RECORDS: "Twist"},
    "replay": {RECORDS: "Replayed"},
    "results": {DOOR: "folders"},
    "runs": {DOOR: "resumed"},
    "simulation": {RECORDS: "Diverged Round", STRANGER: "extended play round_trip"},
    "theory": {RECORDS: "Condition Convergence ConvexBound"},
    "trials": {RECORDS: "Trial"},
    "trust": {DOOR: "known_to parts_of"},
}


def _inside():
    return {name for parts in INSIDE.values() for some in parts.values() for name in some.split()}


def _public():
    """Every public name, and the modules that say it is."""
    found = {}
    for module in pkgutil.walk_packages(cf.__path__, "clusterfl_core."):
        one = importlib.import_module(module.name)
        labs = module.name.startswith("clusterfl_core.live.labs.")
        for name in getattr(one, "__all__", ()):
            thing_ = getattr(one, name)
            if callable(thing_) and not (labs and name != module.name.rpartition(".")[2]):
                found.setdefault(name, []).append(module.name)
    return found


def test_every_public_name_is_tried_or_said_to_be_inside():
    tried = {name.split(".")[-1] for made in SECTIONS.values() for name in made()}
    assert {n: m for n, m in _public().items() if n not in tried | _inside()} == {}
    assert _inside() - set(_public()) - {"all", "but", "the", "laboratory", "itself"} <= {"looks"}


# ---------------------------------------------------------------- the inputs


def inputs():
    """Every input: the section, the name and the spoiled arguments; some spoil two."""
    found = []
    for part, made in SECTIONS.items():
        for name, one in made().items():
            for arg, what in one.args.items():
                found += [(part, name, {arg: value}, False) for value in what.wrong]
                if arg in one.valid:
                    same = what.same(one.valid[arg])
                    found += [(part, name, {arg: value}, True) for value in same]
    dice = random.Random(0)
    several = [
        (part, name)
        for part, made in SECTIONS.items()
        for name, one in made().items()
        if len(one.args) > 1
    ]
    for part, name in dice.choices(several, k=max(400, INPUTS - len(found))):
        args = SECTIONS[part]()[name].args
        two = {arg: dice.choice(args[arg].wrong) for arg in dice.sample(sorted(args), 2)}
        found.append((part, name, two, False))
    return found


def tried(asked):
    """How many inputs were refused and how many gave the right result, and all that is wrong."""
    counts, wrong, plain = {"refused": 0, "right": 0}, [], {}
    for part, name, spoiled, same in asked:
        one = SECTIONS[part]()[name]
        if same:
            if name not in plain:
                plain[name] = fuzz.plainly(one)
            ((arg, value),) = spoiled.items()
            said = fuzz.judge_same(one, arg, value, plain[name])
        else:
            said = fuzz.judge(one, spoiled)
        if said in counts:
            counts[said] += 1
        else:
            given = ", ".join(f"{arg}={check.shown(value)}" for arg, value in spoiled.items())
            wrong.append(f"{name}({given}): {said}")
    return counts, wrong


@pytest.mark.long
@pytest.mark.parametrize("part", SECTIONS)
def test_wrong_arguments_end_in_one_sentence(part):
    counts, wrong = tried([one for one in inputs() if one[0] == part])
    print(part, counts)
    assert wrong == []


@pytest.mark.long
def test_there_are_as_many_inputs_as_promised():
    assert len(inputs()) >= INPUTS


def test_some_wrong_arguments_end_in_one_sentence():
    asked = inputs()
    counts, wrong = tried(asked[:: len(asked) // 150 + 1])
    print(counts)
    assert wrong == []
    assert sum(counts.values()) > 100


# ---------------------------------------------------------------- the judge


def _doubled(size):
    return 2 * size


def _refusing(size):
    raise ValueError(f"size must be small, got {size}")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (_doubled, "silent"),
        (lambda size: {}[size], "from inside"),
        (lambda size: check.whole("size", size).no, "from inside"),
        (_refusing, "from inside"),  # a raise, but none of the library's
        (lambda size: check.whole("clients", "a"), "names no size"),
        (lambda size: check.whole("size", "a"), "refused"),
    ],
)
def test_the_judge_sees_what_is_no_refusal(call, said):
    found = fuzz.judge(case(call, {"size": 1}, size=whole()), {"size": 3})
    assert found.startswith(said)


def test_the_judge_sees_another_result():
    one = case(_doubled, {"size": 1}, size=whole())
    assert fuzz.judge_same(one, "size", 1.0, 2) == "right"
    assert fuzz.judge_same(one, "size", 1.5, 2) == "another result"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.ones(2), np.ones(2), True),
        (torch.ones(2), torch.tensor([1.0, 1.1]), False),
        ({"a": [1, 2.0]}, {"a": [1.0, 2]}, True),
        ({"a": 1}, {"b": 1}, False),
        ("noise 3.0 in", "noise 3 in", True),
        ("noise 3 in", "noise 4 in", False),
        (fuzz.NAN, fuzz.NAN, True),
    ],
)
def test_results_are_compared_by_value(one, other, same):
    assert fuzz.alike(one, other) == same


def test_pairs_are_drawn_alike_each_time():
    first, second = (list(itertools.islice(reversed(inputs()), 5)) for _ in "ab")
    assert [one[:2] for one in first] == [one[:2] for one in second]
