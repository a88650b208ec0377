"""What chapters 1 to 6 and the notation table claim, where a number or a rule can decide it."""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc
from scipy.stats import binom, chi2, f

import clusterfl_core as cf

BOOK = Path(__file__).resolve().parents[1] / "book"
CHAPTERS = sorted(BOOK.glob("0[1-6]_*.ipynb"))


def cells(path, kind=None):
    """Sources of the cells of a notebook."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in found if kind in (None, c["cell_type"])]


# ---------------------------------------------------------------- questions and folds


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_folds_are_closed_and_hold_markdown(path):
    for text in cells(path):
        text = text.replace("\\n", "\n")
        assert text.count("<details>") == text.count("</details>")
        assert not re.search(r"<summary>[^\n]*\*\*", text)  # would stand there as two stars
        for inside in re.findall(r"</summary>(.*?)</details>", text, flags=re.S):
            blank = inside.replace('"', "").replace("f\n", "\n")
            assert blank.startswith("\n\n"), inside[:60]


# ---------------------------------------------------------------- symbols


def main_rows():
    text = (BOOK / "notation.md").read_text(encoding="utf-8").split("## Letters")[0]
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| $")]


def letter(symbol):
    """The letter of a symbol without its marks, indices and arguments."""
    bare = re.sub(r"\\(hat|tilde|mathcal|lvert)\b\s*", "", symbol)
    return re.match(r"\\?[A-Za-z]+" if bare.startswith("\\") else r"[A-Za-z]", bare)[0]


def second_table():
    text = (BOOK / "notation.md").read_text(encoding="utf-8").split("## Letters")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| $")]
    return {row[0].strip("$ "): row[1] for row in rows}


def relatives():
    text = (BOOK / "notation.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("An index makes a relative"))
    return set(re.findall(r"\$([^$]+)\$", line.split(":")[1]))


def test_a_letter_of_several_rows_is_a_family_or_is_listed_as_serving_twice():
    rows = defaultdict(set)
    for number, row in enumerate(main_rows()):
        for symbol in re.findall(r"\$([^$]+)\$", row):
            rows[letter(symbol)].add(number)
    several = {one for one, found in rows.items() if len(found) > 1}
    assert {"\\alpha", "\\lambda", "v", "R", "c"} <= several
    assert several <= set(second_table()) | relatives()
    assert not relatives() & set(second_table())


def test_no_page_claims_that_every_symbol_has_one_meaning():
    for path in [*BOOK.glob("*.md"), *CHAPTERS]:
        text = path.read_text(encoding="utf-8")
        assert "means the same in every chapter" not in text
        assert "All chapters use the same ones" not in text


def math_of(path):
    """All formulas of a notebook's cells, a space between them."""
    text = "\n".join(cells(path)).replace("\\\\", "\\")
    inline = re.findall(r"(?<!\$)\$([^$\n]+)\$(?!\$)", text)
    return " ".join(inline + re.findall(r"\$\$(.+?)\$\$", text, flags=re.S))


def test_the_letters_that_serve_twice_do_so_where_the_table_says():
    formulas = {}
    for symbol, meanings in second_table().items():
        found = re.findall(r"\$([^$]+)\$ \(((?:\[\w+\]\([^)]+\)(?:, )?)+)\)", meanings)
        assert len(found) > 1, symbol
        for used, links in found:
            assert letter(used) == letter(symbol)
            for name in re.findall(r"\]\(([^)]+)\)", links):
                text = formulas.setdefault(name, math_of(BOOK / name))
                assert re.search(r"(?<![A-Za-z\\])" + re.escape(used), text), (used, name)


def test_a_step_is_eta_and_a_noise_is_nu_in_every_chapter():
    assert "| $\\eta$ | step size |" in (BOOK / "notation.md").read_text(encoding="utf-8")
    for path in sorted(BOOK.glob("[01]*.ipynb")):
        if path.name.startswith("11"):
            continue  # gamma is how inexactly FedSoft's client solves its problem
        gammas = set(re.findall(r"\\gamma(?![A-Za-z])(?:_\{*[\\a-z0-9]+\}*)?", math_of(path)))
        assert gammas <= {"\\gamma_{max}", "\\gamma_{{max}}", "\\gamma_{\\max}"}, path.name


def test_no_letter_has_two_meanings_in_chapter_5():
    """Apart from the standard deviations of loss and gradient, which their index tells apart."""
    for symbol, meanings in second_table().items():
        times = meanings.count("](05_ifca_theory.ipynb)")
        assert times <= 1 or (symbol, times) == ("\\sigma", 2), symbol


# ---------------------------------------------------------------- where FedAvg rests


@given(st.integers(0, 10_000), st.sampled_from([1, 2, 5, 20]), st.integers(2, 5))
def test_the_closed_form_is_where_an_exact_round_stays(seed, tau, clients):
    """A round of FedAvg on quadratic bowls, walked step by step, leaves theta_infinity fixed."""
    random = np.random.default_rng(seed)
    roots = random.normal(size=(clients, 2, 2))
    A = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(2)
    c, w = random.normal(size=(clients, 2)), random.dirichlet(np.ones(clients))
    gamma = 0.5 / max(np.linalg.eigvalsh(A).max(), 1)
    pull = w[:, None, None] * (np.eye(2) - np.linalg.matrix_power(np.eye(2) - gamma * A, tau))
    rest = np.linalg.solve(pull.sum(0), np.einsum("iab,ib->a", pull, c))

    def one_round(theta):
        own = np.tile(theta, (clients, 1))
        for _ in range(tau):
            own = own - gamma * np.einsum("iab,ib->ia", A, own - c)
        return w @ own

    size = 1 + np.abs(rest).max()
    assert np.abs(one_round(rest) - rest).max() < 1e-9 * size
    weighted = w[:, None, None] * A
    best = np.linalg.solve(weighted.sum(0), np.einsum("iab,ib->a", weighted, c))
    if tau == 1:
        assert np.abs(rest - best).max() < 1e-6 * size


# ---------------------------------------------------------------- chapter 5


def test_the_tools_in_the_box_are_true_as_stated():
    xi = np.linspace(0.02, 1, 50)
    for n in (1, 2, 5, 20, 200):
        bound = np.exp(-n * xi**2 / 8)
        assert (chi2.sf(n * (1 + xi), n) <= bound).all()
        assert (chi2.cdf(n * (1 - xi), n) <= bound).all()
        for x in (0.1, 0.5, 0.8):  # A / (A + B) <= x where A / B <= x / (1 - x)
            assert betainc(n / 2, n / 2, x) == pytest.approx(f.cdf(x / (1 - x), n, n))
        assert (binom.cdf(n * (0.5 - xi / 2), n, 0.5) <= np.exp(-n * xi**2 / 2) + 1e-12).all()


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6), st.floats(0.1, 3), st.integers(1, 60))
def test_the_chance_is_a_matter_of_midpoint_and_direction(numbers, noise, points):
    """(5.2) and (5.3), from the picture: kappa = -cos(phi) h / sqrt(h^2 + sigma^2)."""
    right, wrong, truth = np.reshape(numbers, (3, 2))
    to_middle, way = (right + wrong) / 2 - truth, wrong - right
    h, apart = np.linalg.norm(to_middle), np.linalg.norm(way)
    if min(h, apart) < 0.01:
        return
    cosine = to_middle @ way / (h * apart)
    kappa = -cosine * h / np.sqrt(h**2 + noise**2)
    told = cf.theory.misclassification(right, wrong, truth, noise, points)
    assert told == pytest.approx(betainc(points / 2, points / 2, (1 + kappa) / 2), abs=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.25, 0.4])
@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_behind_its_truth_is_the_worst_place_of_the_right_model(alpha, noise):
    turns = np.linspace(0, np.pi, 181)
    ring = (0.5 - alpha) * np.c_[np.cos(turns), np.sin(turns)]
    wrong = np.array([0.5 + alpha, 0])
    chances = [cf.theory.misclassification(a, wrong, np.zeros(2), noise, 20) for a in ring]
    rho = 1 / noise**2
    kappa = -alpha * np.sqrt(rho / (alpha**2 * rho + 1))
    assert max(chances) == pytest.approx(betainc(10, 10, (1 + kappa) / 2))
    assert chances[-1] == pytest.approx(max(chances))


def test_no_start_of_the_paper_s_linear_experiment_satisfies_assumption_1():
    """Below half of Delta: a quarter of the differences. Hoeffding, and the exact chance."""
    bound, exact = np.exp(-2 * 1000 * 0.375**2), binom.cdf(125, 1000, 0.5)
    assert 0 < exact < bound < 1e-122
    assert np.log(bound) == pytest.approx(-281.25)


# ---------------------------------------------------------------- small numbers in the text


@pytest.mark.parametrize(
    ("clients", "groups", "low", "high"), [(30, 3, 0.44, 0.47), (40, 4, 0.37, 0.4)]
)
def test_blind_guessing_scores_more_than_one_name_for_everybody(clients, groups, low, high):
    truth, dice = torch.arange(clients) % groups, torch.Generator().manual_seed(1)
    guesses = torch.randint(groups, (1000, clients), generator=dice)
    scores = [cf.evaluation.identity_accuracy(guess, truth) for guess in guesses]
    assert cf.evaluation.identity_accuracy(torch.zeros(clients, dtype=int), truth) == 1 / groups
    assert low < np.mean(scores) < high


def test_scaled_and_renumbered_units_compute_the_same():
    random = torch.Generator().manual_seed(0)
    net = cf.models.MLP(inputs=5, hidden=7, classes=3).double()
    bank = cf.banks.Bank.initialize(net, 1, random)
    t, factor = bank.tensors, torch.linspace(0.2, 5, 7).double()
    order = torch.randperm(7, generator=random)
    twin = {
        "hidden.weight": (t["hidden.weight"] * factor[:, None])[:, order],
        "hidden.bias": (t["hidden.bias"] * factor)[:, order],
        "output.weight": (t["output.weight"] / factor)[:, :, order],
        "output.bias": t["output.bias"],
    }
    x = torch.randn(50, 5, generator=random).double()
    with torch.no_grad():
        one, other = (
            cf.banks.Bank(net, tensors).module(0)(x)
            for tensors in (t, {name: twin[name] for name in t})
        )
    assert torch.allclose(one, other, atol=1e-12)
    assert not torch.allclose(t["hidden.weight"], twin["hidden.weight"], atol=0.01)


def test_twenty_stored_draws_exceed_what_endless_points_would_give():
    """The text's reading of R at R = 1, sigma = 0.1, beside the chance of a split start."""
    records = cf.results.stored("06_figure3", reading="norm", scale=1.0, noise=0.1)
    assert [r["seed"] for r in records] == list(range(20))
    r = np.sqrt(2 / 1000)
    split = np.arccos((1 - r) ** 2 / ((1 - r) ** 2 + r**2)) / np.pi
    passed = np.mean([one["values"]["success"] for one in records])
    endless = 1 - (1 - split) ** 10
    assert 0.18 < endless < 0.2
    assert passed == 11 / 20
    for one in records:
        assert one["settings"]["reading"] == "norm"
        assert (one["settings"]["scale"], one["settings"]["noise"]) == (1.0, 0.1)
        best = one["values"]["best_identity_accuracy"]
        assert (best == 1) == one["values"]["success"]


@pytest.mark.parametrize(("images", "ahead"), [(20, True), (40, False)])
def test_two_schools_of_writers_pay_with_few_images_and_fine_tuning_with_more(images, ahead):
    """Seed by seed, on the same people: IFCA with two models against one model fine-tuned."""
    read = {}
    for method in ("IFCA, k = 2", "fine-tuned", "alone", "global"):
        kept = cf.results.stored("06_hands", who="schools", images=images, method=method)
        assert [r["seed"] for r in kept] == [0, 1, 2]
        read[method] = np.array([np.mean(r["values"]["test"]) for r in kept])
    assert ((read["IFCA, k = 2"] > read["fine-tuned"] + 0.01) == ahead).all()
    assert (read["IFCA, k = 2"] > read["global"] + 0.015).all()
    assert (read["IFCA, k = 2"] > read["alone"] + 0.05).all()


def test_left_of_the_wall_groups_are_found_and_the_test_of_success_fails():
    kept = [r["values"]["trials"] for r in cf.results.stored("15_success")]
    assert len(kept) == 20
    assert all(trial["40 10"] == [False, 1.0] for trial in kept)  # 400 points, the wall: 606
    few, more = (sum(trial[point][0] for trial in kept) for point in ("200 5", "200 20"))
    assert few == 20 > 15 > more


def test_both_standard_deviations_of_one_failure_in_five():
    five = [0.0, 0.0, 0.0, 0.0, -1.0]
    assert np.std(five) == pytest.approx(0.4)
    assert 0.4 / np.std(five, ddof=1) == pytest.approx(0.894, abs=1e-3)


def accuracies(seeds=range(5), **settings):
    """The accuracy of stored runs of Table 1 over 300 rounds, in %, seed by seed."""
    kept = {r["seed"]: r for r in cf.results.stored("06_table1", rounds=300, **settings)}
    return np.array([100 * kept[seed]["values"]["accuracy"] for seed in seeds])


@pytest.mark.parametrize(
    ("n", "ifca", "one"),
    [
        (50, (94.16, 0.05), (86.59, 0.03)),
        (100, (95.02, 0.05), (88.55, 0.09)),
        (200, (95.52, 0.04), (89.61, 0.14)),
    ],
)
def test_table_1_at_the_paper_s_size(n, ifca, one):
    """Five seeds a number; all find the four rotations, by round 6, and keep them."""
    for k, (mean, spread) in ((4, ifca), (1, one)):
        found = accuracies(n=n, k=k)
        assert np.mean(found) == pytest.approx(mean, abs=0.006)
        assert np.std(found) == pytest.approx(spread, abs=0.006)
    assert (accuracies(n=n, k=4) > accuracies(n=n, k=1)).all()
    for r in cf.results.stored("06_table1", rounds=300, n=n, k=4):
        if r["seed"] < 5:
            right = [(p[0], p[3]) for p in r["values"]["curve"]]
            assert 2 <= max(t for t, share in right if share < 1) + 1 <= 6
            assert right[-1] == (300, 1)


def test_which_runs_of_table_1_a_card_made():
    """All of 300 rounds but seed 0 of IFCA with n = 200, and the failed one there."""
    kept = cf.results.stored("06_table1", rounds=300)
    assert len(kept) == 31
    slow = [
        (r["settings"]["n"], r["settings"]["k"], r["seed"])
        for r in kept
        if r["device"] != "NVIDIA H200"
    ]
    assert slow == [(200, 4, 0), (200, 4, 12)]


@pytest.mark.parametrize(("n", "ahead"), [(200, True), (100, True), (50, False)])
def test_after_thirty_rounds_one_model_reads_less_than_clients_with_many_images(n, ahead):
    brief = cf.results.stored("06_table1", rounds=30, n=n, k=1)
    alone = cf.results.stored("06_local", n=n, steps=400)
    one, own = ([r["values"]["accuracy"] for r in some] for some in (brief, alone))
    assert len(one) == len(own) == 5
    assert (max(one) < min(own)) == ahead
    assert max(own) < accuracies(n=n, k=1).min() / 100


def test_four_good_seeds_and_a_failed_one_print_the_third_column_s_spread():
    """The paper prints 95.25 and 0.40 for n = 200, over five seeds."""
    kept = cf.results.stored("06_table1", rounds=300, n=200, k=4)
    assert [r["seed"] for r in kept] == [0, 1, 2, 3, 4, 12]
    right = [r["values"]["identity_accuracy"] for r in kept]
    assert right == [1, 1, 1, 1, 1, 0.75]
    assert kept[-1]["values"]["empty"] == 1
    good, (failed,) = accuracies(n=200, k=4), accuracies([12], n=200, k=4)
    assert np.std(good) < 0.05
    for left_out in range(5):
        mixed = [*np.delete(good, left_out), failed]
        assert np.mean(mixed) == pytest.approx(95.25, abs=0.1)
        assert np.std(mixed) < 0.40 < np.std(mixed, ddof=1) < 0.44
        assert np.std(mixed) > 0.35


def test_by_the_text_s_reading_success_does_not_climb_to_all():
    """At the largest noise it falls, since trials pass at R = 0.1 in which no start succeeds."""

    def passed(reading, scale):
        kept = cf.results.stored("06_figure3", panel="a", reading=reading, scale=scale, noise=0.4)
        return [(r["values"]["success"], r["values"]["best_identity_accuracy"]) for r in kept]

    close, middle, apart = (passed("norm", R) for R in (0.1, 0.5, 1.0))
    assert [len(some) for some in (close, middle, apart)] == [18, 18, 17]
    assert [sum(ok for ok, _ in some) for some in (close, middle, apart)] == [14, 3, 9]
    assert max(right for _, right in close) < 0.7
    assert all(ok for ok, _ in passed("coordinate", 1.0))


@pytest.mark.parametrize(("panel", "k", "trials", "grouped"), [("c", 2, 55, 10), ("d", 4, 30, 0)])
def test_the_wall_stands_at_the_paper_s_thousand_numbers(panel, k, trials, grouped):
    """Of the trials with clearly fewer points than (15.1) wants none passes, grouped or not."""
    left = [
        r["values"]
        for r in cf.results.stored("06_figure3", panel=panel)
        if r["settings"]["clients"] * r["settings"]["points"] < 0.95 * k * (1000 / 0.36 + 1001)
    ]
    assert len(left) == trials
    assert not any(v["success"] for v in left)
    assert sum(v["best_identity_accuracy"] == 1 for v in left) == grouped


def test_the_start_on_photographs_of_the_paper_s_size_failed():
    """Half of the identities are right, as if one model served both positions."""
    kept = cf.results.stored("06_cifar", m=200)
    assert [(r["seed"], r["settings"]["rounds"]) for r in kept] == [(0, 100), (0, 200)]
    assert all("JPEG copies (lossy)" in r["data"] for r in kept)
    assert [round(100 * r["values"]["accuracy"], 1) for r in kept] == [65.6, 69.0]
    assert {p[3] for p in kept[1]["values"]["curve"] if p[0] >= 50} == {0.5}


@pytest.mark.parametrize(
    "name", ["03_clusters.ipynb", "06_ifca_experiments.ipynb", "references.md"]
)
def test_the_earlier_one_shot_paper_is_named(name):
    text = (BOOK / name).read_text(encoding="utf-8")
    assert "arXiv:1906.06629" in text
    assert "Hong" in text
