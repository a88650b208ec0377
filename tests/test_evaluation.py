"""The papers' test protocols and the matching of clusters, by brute force."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_local import architecture, models_of, plain_loss, plain_points, ragged
from torch import nn

from clusterfl_core import evaluation, populations, simulation
from clusterfl_core.algorithms.baselines import FedAvg, LocalOnly
from clusterfl_core.algorithms.ifca import IFCA
from clusterfl_core.banks import Bank
from clusterfl_core.clients import Clients, Federation
from clusterfl_core.models import MLP
from clusterfl_core.solvers import LocalSGD

KINDS = pytest.mark.parametrize("kind", ["classes", "regression"])


def a_federation(kind, truth=True):
    """Four training and five test clients in two clusters."""
    return Federation(
        ragged(kind, (2, 3, 1, 4), torch.float64),
        ragged(kind, (5, 2, 6, 1, 3), torch.float64, seed=1),
        clusters=torch.tensor([0, 1, 1, 0]) if truth else None,
        test_clusters=torch.tensor([1, 0, 0, 1, 1]) if truth else None,
        classes=3 if kind == "classes" else 0,
    )


def a_state(algorithm, federation, kind, count):
    """A state whose models are different and in double precision."""
    state = algorithm.init(federation, seed=0)
    return replace(state, bank=models_of(kind, count, torch.float64))


def plain_quality(module, x, y, kind):
    """Accuracy, or mean squared error, of one ordinary module on one client."""
    if kind == "regression":
        return ((y - module(x)) ** 2).mean().item()
    return (module(x).argmax(1) == y).to(torch.float64).mean().item()


@KINDS
def test_every_test_client_takes_the_model_with_the_lowest_loss_on_its_own_data(kind):
    federation = a_federation(kind)
    algorithm = IFCA(architecture(kind), 3)
    state = a_state(algorithm, federation, kind, 3)
    modules = [state.bank.module(j) for j in range(3)]
    expected, chosen = [], set()
    for i in range(5):
        x, y = plain_points(federation.test, i)
        losses = [plain_loss(module, x, y).item() for module in modules]
        best = losses.index(min(losses))
        chosen.add(best)
        expected.append(plain_quality(modules[best], x, y, kind))
    assert len(chosen) > 1
    found = evaluation.lowest_loss(state, federation)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(evaluation.score(algorithm, state, federation), found)


class Constant(nn.Module):
    """The same logits for every point."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def test_the_lowest_loss_decides_even_where_another_model_is_more_accurate():
    """Sure of class 0: two of three right, loss 10. Leaning to class 1: one right, loss 0.73."""
    clients = Clients.from_lists([torch.ones(3, 1)], [torch.tensor([0, 0, 1])])
    logits = torch.tensor([[30.0, 0.0], [0.0, 0.2]])
    state = SimpleNamespace(models=Bank(Constant(), {"logits": logits}))
    found = evaluation.lowest_loss(state, Federation(clients, clients, classes=2))
    assert found.tolist() == pytest.approx([1 / 3])


@KINDS
def test_a_client_alone_is_tested_on_all_test_clients_of_its_own_cluster(kind):
    federation = a_federation(kind)
    algorithm = LocalOnly(architecture(kind))
    state = a_state(algorithm, federation, kind, 4)
    expected = []
    for i, cluster in enumerate([0, 1, 1, 0]):
        values = [
            plain_quality(state.bank.module(i), *plain_points(federation.test, t), kind)
            for t, other in enumerate([1, 0, 0, 1, 1])
            if other == cluster
        ]
        expected.append(sum(values) / len(values))
    found = evaluation.own_distribution(state, federation)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(evaluation.score(algorithm, state, federation), found)


@pytest.mark.parametrize("truth", [None, torch.tensor([0, 0, 0, 0, 0])])
def test_a_cluster_without_test_clients_is_named(truth):
    federation = replace(a_federation("classes"), test_clusters=truth)
    state = a_state(LocalOnly(architecture("classes")), federation, "classes", 4)
    absent = 0 if truth is None else 1
    sentence = rf"^test_clusters must name a test client .* there is none of cluster {absent}$"
    with pytest.raises(ValueError, match=sentence):
        evaluation.own_distribution(state, federation)


@KINDS
def test_where_the_truth_is_unknown_a_client_alone_is_tested_on_everybody(kind):
    federation = a_federation(kind, truth=False)
    state = a_state(LocalOnly(architecture(kind)), federation, kind, 4)
    expected = [
        sum(
            plain_quality(state.bank.module(i), *plain_points(federation.test, t), kind)
            for t in range(5)
        )
        / 5
        for i in range(4)
    ]
    found = evaluation.own_distribution(state, federation)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


@KINDS
def test_with_one_model_there_is_nothing_to_choose(kind):
    federation = a_federation(kind)
    algorithm = FedAvg(architecture(kind))
    state = a_state(algorithm, federation, kind, 1)
    expected = [
        plain_quality(state.bank.module(0), *plain_points(federation.test, t), kind)
        for t in range(5)
    ]
    found = evaluation.score(algorithm, state, federation)
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


# ---- matching


def best_matching(estimated, clusters):
    """The most clients that any one-to-one naming of clusters gets right."""
    names = sorted({e for e in estimated if e >= 0})
    truths = sorted(set(clusters)) + [None] * len(names)
    return max(
        sum(dict(zip(names, order, strict=True)).get(e, "?") == c
            for e, c in zip(estimated, clusters, strict=True))
        for order in itertools.permutations(truths, len(names))
    )  # fmt: skip


PAIRS = st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 2)), min_size=1, max_size=9)


@given(PAIRS)
@settings(max_examples=80, deadline=None)
def test_identity_accuracy_is_the_best_over_all_matchings(pairs):
    estimated, clusters = (list(column) for column in zip(*pairs, strict=True))
    found = evaluation.identity_accuracy(torch.tensor(estimated), torch.tensor(clusters))
    assert found == pytest.approx(best_matching(estimated, clusters) / len(pairs), abs=1e-12)


@given(PAIRS)
@settings(max_examples=50, deadline=None)
def test_no_two_estimated_clusters_stand_for_one_true_cluster(pairs):
    estimated, clusters = (torch.tensor(column) for column in zip(*pairs, strict=True))
    matching = evaluation.match_clusters(estimated, clusters)
    assert len(set(matching.values())) == len(matching)
    assert -1 not in matching


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.permutations(range(4)))
@settings(max_examples=40, deadline=None)
def test_names_of_clusters_do_not_matter(clusters, names):
    renamed = torch.tensor([names[c] for c in clusters])
    assert evaluation.identity_accuracy(renamed, torch.tensor(clusters)) == 1
    matching = evaluation.match_clusters(renamed, torch.tensor(clusters))
    assert all(matching[names[c]] == c for c in clusters)


@pytest.mark.parametrize(
    ("estimated", "clusters", "accuracy"),
    [
        ([0, 0, 1, 1], [0, 0, 0, 0], 0.5),  # two models for one cluster count once
        ([0, 0, 0, 0], [0, 0, 1, 1], 0.5),  # one model for two clusters costs one of them
        ([0, 0, 0, 0], [0, 0, 0, 1], 0.75),
        ([2, 2, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2], 1.0),
        ([-1, -1, 0, 0], [0, 0, 1, 1], 0.5),  # who was never asked is not right
        ([-1, -1], [0, 1], 0.0),
    ],
)
def test_what_identity_accuracy_says_of_typical_cases(estimated, clusters, accuracy):
    found = evaluation.identity_accuracy(torch.tensor(estimated), torch.tensor(clusters))
    assert found == accuracy


@pytest.mark.parametrize("clusters", [[0, 1, 0, 1, 1], [0, 1, 2, 0, 1, 2], [0, 0, 0, 0]])
def test_the_blind_level_is_the_mean_over_all_guesses(clusters):
    true = torch.tensor(clusters)
    guesses = itertools.product(range(int(true.max()) + 1), repeat=len(true))
    exact = [evaluation.identity_accuracy(torch.tensor(one), true) for one in guesses]
    found = evaluation.blind_level(true)
    assert found == pytest.approx(sum(exact) / len(exact), abs=0.01)
    assert found == evaluation.blind_level(true)  # not torch's global dice
    assert found == evaluation.blind_level(true + 7)  # names do not matter
    assert 1 / (int(true.max()) + 1) <= found <= 1


def partition(names):
    """The groups of equal names, whatever the names are."""
    return {frozenset(i for i, n in enumerate(names) if n == one) for one in set(names)}


@given(PAIRS)
@settings(max_examples=80, deadline=None)
def test_the_adjusted_rand_index_is_1_exactly_for_the_same_partition(pairs):
    first, second = (list(column) for column in zip(*pairs, strict=True))
    found = evaluation.adjusted_rand_index(torch.tensor(first), torch.tensor(second))
    assert (found == pytest.approx(1, abs=1e-12)) == (partition(first) == partition(second))
    assert found <= 1 + 1e-12


def test_the_adjusted_rand_index_of_random_partitions_is_about_0():
    source = torch.Generator().manual_seed(0)
    draws = torch.randint(0, 3, (40, 2, 60), generator=source)
    found = [evaluation.adjusted_rand_index(*pair) for pair in draws]
    assert abs(sum(found) / len(found)) < 0.02


def test_clients_without_known_clusters_are_judged_on_held_out_data_of_their_own():
    federation = populations.label_skew("digits", 6, 0.3, seed=0)
    assert federation.clusters is None
    done = simulation.run(LocalOnly(MLP(64, 8, 10), LocalSGD(3, 0.1)), federation, 1)
    scores = evaluation.own_distribution(done.state, federation)
    for i in range(6):
        x, y = federation.test.points(i)
        right = (done.models.module(i)(x).argmax(1) == y).double().mean()
        assert scores[i] == pytest.approx(float(right))


def test_the_mixture_ratio_is_the_error_on_fresh_points_over_that_of_the_best_models():
    federation = populations.mixture_regression("random", 4, 3, seed=0, variance=0.3)
    theta, u = (federation.truth[key].double() for key in ("theta", "mixture"))
    best = u @ theta
    assert evaluation.mixture_ratio(best, federation) == pytest.approx(1, abs=1e-12)
    source = torch.Generator().manual_seed(0)
    personal = best + 0.5 * torch.randn(best.shape, generator=source, dtype=torch.float64)
    x, noise = (torch.randn(400_000, size, generator=source).double() for size in (10, 1))
    drawn = [
        sum(
            share * (x @ (right - model) + noise[:, 0]).square().mean()
            for share, right in zip(shares, theta, strict=True)
        )
        for models in (personal, best)
        for shares, model in zip(u, models, strict=True)
    ]
    found = evaluation.mixture_ratio(personal, federation)
    assert found == pytest.approx(float(sum(drawn[:4]) / sum(drawn[4:])), rel=0.01)
    assert found > 1.1
