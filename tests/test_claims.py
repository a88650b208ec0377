"""The ledger of claims: complete, with evidence for each verdict, and nothing typed."""

import ast
import json
import os
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import clusterfl_core as cf
from clusterfl_core import claims

ROOT = Path(__file__).resolve().parents[1]
BOOK = claims.ledger()
CLAIMS = [(key, c) for key, paper in BOOK.papers.items() for c in paper["claim"]]
IDS = [c["id"] for _, c in CLAIMS]
ERRATA = [(key, e) for key, paper in BOOK.papers.items() for e in paper["erratum"]]
PAGE = ROOT / "book" / "15_claims.ipynb"
FIELDS = {
    *("id", "place", "says", "size", "ours", "did"),
    *("evidence", "verdict", "cause", "ground", "chapter"),
}
# Where a text numbers a place: at the beginning of a line, or before a full stop or colon.
PLACES = re.compile(
    r"^[*\s#]*(?:(Theorem|Lemma|Corollary|Remark|Algorithm|Table|Figure|Fig\.) (\d+))\b", re.M
)
stored = cache(cf.results.stored)


@cache
def page():
    return json.loads(PAGE.read_text(encoding="utf-8"))["cells"]


@cache
def quantities():
    names = {"np": np}
    (cell,) = [c for c in page() if "quantities" in c["metadata"].get("tags", [])]
    exec(compile("".join(cell["source"]), "quantities", "exec"), names)
    return names


def numbers():
    return [(c["id"], n) for _, c in CLAIMS for n in c.get("number", ())]


# ---------------------------------------------------------------- complete


def test_no_claim_is_there_twice():
    assert [name for name, n in Counter(IDS).items() if n > 1] == []
    assert [w for w, n in Counter(c["says"] for _, c in CLAIMS).items() if n > 1] == []
    places = Counter(
        (key, place) for key, c in CLAIMS for place in (c["place"], *c.get("also", []))
    )
    assert [place for place, n in places.items() if n > 1] == []


@pytest.mark.parametrize("key", list(BOOK.papers))
def test_every_numbered_place_of_a_paper_has_a_claim(key):
    listed = tomllib.loads((ROOT / "tests/claims_places.toml").read_text(encoding="utf-8"))
    assert listed.keys() == BOOK.papers.keys()
    told = {p for k, c in CLAIMS if k == key for p in (c["place"], *c.get("also", []))}
    same = BOOK.papers[key].get("same", {})
    assert set(same.values()) <= set(IDS)
    assert set(listed[key]) <= told | set(same)


def test_the_list_of_places_is_what_the_texts_have():
    """Runs where the papers lie, in the folder that CLUSTERFL_PAPERS names."""
    texts = {
        "ifca": "ifca-extended-annotated",
        "ifca_neurips": "ifca-neurips",
        "cfl": "cfl",
        "fedsoft": "fedsoft",
    }
    if "CLUSTERFL_PAPERS" not in os.environ:
        pytest.skip("the papers are not in the repository")
    listed = tomllib.loads((ROOT / "tests/claims_places.toml").read_text(encoding="utf-8"))
    for key, name in texts.items():
        text = (Path(os.environ["CLUSTERFL_PAPERS"]) / f"{name}.txt").read_text(encoding="utf-8")
        found = {f"{kind.replace('Fig.', 'Figure')} {n}" for kind, n in PLACES.findall(text)}
        assert found == set(listed[key]), key


def test_there_are_as_many_claims_as_were_listed():
    assert len(CLAIMS) >= 142


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize(("key", "claim"), CLAIMS, ids=IDS)
def test_a_row_is_whole_and_its_verdict_fits_what_was_done(key, claim):
    assert set(claim) >= FIELDS
    assert set(claim) <= FIELDS | {"also", "number"}
    assert claim["verdict"] in claims.VERDICTS
    assert claim["ours"] in ("exact", "paper", "smaller", "none")
    assert claim["ground"] in ("proved", "measured", "conjectured", "")
    evidence = bool(claim["evidence"] or claim.get("number"))
    if claim["verdict"] == "holds":
        assert claim["ours"] in ("exact", "paper")
    if claim["verdict"] == "smaller":
        assert claim["ours"] == "smaller"
    if claim["ours"] == "none":
        assert claim["verdict"] == "undecided"
    else:
        assert evidence
        assert claim["ground"]
    if claim["verdict"] in ("in part", "not here"):
        assert claim["cause"]


@cache
def names_in(name):
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def found(evidence):
    path, _, name = evidence.partition("::")
    if name:
        return name in names_in(path)
    path, _, cell = path.partition("#")
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    return not cell or cell in {c["id"] for c in cells}


def all_evidence():
    yield from (e for _, c in CLAIMS for e in c["evidence"])
    yield from (e["check"] for _, e in ERRATA if e["check"] != "reading")
    yield from (d["check"] for kind in ("defect", "right") for d in BOOK.programs[kind])


def test_all_evidence_exists():
    assert [e for e in all_evidence() if not found(e)] == []


def test_all_chapters_that_explain_exist():
    for _, one in (*CLAIMS, *ERRATA):
        assert (ROOT / "book" / one["chapter"]).is_file(), one["chapter"]


def test_few_errata_rest_on_reading_alone():
    assert sum(e["check"] == "reading" for _, e in ERRATA) <= 2


# ---------------------------------------------------------------- numbers


def test_every_number_has_records_and_a_quantity_that_reads_them():
    for name, number in numbers():
        values = [
            quantities()[number["quantity"]](r["values"]) for r in claims.runs(number, stored)
        ]
        assert values, name
        for value in values:
            assert value is None or np.isfinite(value), (name, number["what"])


def test_a_number_without_a_record_is_refused():
    number = numbers()[0][1]
    with pytest.raises(ValueError, match=f"no record of {number['experiment']} has"):
        claims.runs(number | {"seeds": [10**6]}, stored)
    with pytest.raises(ValueError, match="no record of 06_never"):
        claims.runs(number | {"experiment": "06_never"})


def test_no_number_of_ours_is_typed():
    """A row may hold the paper's text; ours is an experiment, a filter and a quantity."""
    for name, number in numbers():
        assert set(number) <= {
            "what",
            "paper",
            "experiment",
            "where",
            "seeds",
            "quantity",
            "unit",
        }, name
        assert isinstance(number.get("paper", ""), str)
    text = "".join("".join(c["source"]) for c in page() if c["cell_type"] == "markdown")
    assert not re.search(r"\d+\.\d+ ?%|\d ?± ?\d", text)


def test_every_experiment_answers_a_claim_or_a_question_of_the_book():
    kept = {p.parent.name for p in (ROOT / "book" / "results").glob("*/*.json")}
    used = {n["experiment"] for _, n in numbers()}
    assert used | set(BOOK.own) == kept
    assert used.isdisjoint(BOOK.own)


def test_records_that_no_claim_uses_are_counted():
    left = claims.unclaimed(BOOK, ["A_linear", "09_late", "13_fair_final"], stored)
    every = len(stored("A_linear"))
    runs = [r["settings"] for r in stored("13_fair_final")]
    claimed = [{"kind": "hard", "method": m, "hidden": 16} for m in ("OneShot", "IFCA")]
    rest = sum(one not in claimed for one in runs)
    assert left == {"A_linear": every, "13_fair_final": rest}


def test_seeds_and_lists_choose_records():
    number = {"experiment": "07_figure3", "where": {"k": [2, 30]}}
    assert {r["settings"]["k"] for r in claims.runs(number, stored)} == {2, 30}
    number = {"experiment": "08_gap", "where": {"data": "mnist", "points": 20}, "seeds": [3]}
    assert [r["seed"] for r in claims.runs(number, stored)] == [3]


# ---------------------------------------------------------------- as a page shows it


@pytest.mark.parametrize(
    ("values", "unit", "said"),
    [
        ([True, False, True], "%", "2 of 3 runs"),
        ([False], "", "0 of 1 runs"),
        ([90.0, 92.0], "%", "91.0\u202f% (90.0 to 92.0; runs: 2)"),
        ([14.25], "", "14.2 (one run)"),
        ([3, 5, 4], "", "4.0 (3 to 5; runs: 3)"),
        ([4, 4], "", "4 (all 2 runs)"),
        ([2, None, 4], "", "3.0 (2 to 4; runs: 2), never in 1"),
        ([None, None], "", "never (runs: 2)"),
    ],
)
def test_what_a_quantity_came_to_is_said(values, unit, said):
    assert claims.shown(values, unit) == said


def test_what_happened_or_not_is_counted_by_runs():
    """A share of runs has no lowest and highest: its quantity is true or false."""
    for name, number in numbers():
        values = [
            quantities()[number["quantity"]](r["values"]) for r in claims.runs(number, stored)
        ]
        same = number["unit"] == "%" and {0.0, 100.0} == set(values)
        assert not same, (name, number["what"])


@pytest.mark.parametrize(("key", "claim"), CLAIMS, ids=IDS)
def test_a_row_shows_the_verdict_and_can_be_filtered(key, claim):
    text = claims.row(BOOK, key, claim, quantities(), stored)
    head = text.partition("</summary>")[0]
    assert head.endswith(f": {claims.VERDICTS[claim['verdict']]}")
    assert f'id="claim-{claim["id"]}"' in head
    (kinds,) = re.findall('class="claim (.*?)"', head)
    form = claims.filters(BOOK)
    for kind in kinds.split():
        assert f'id="f-{kind}"' in form
        assert f"body:has(#f-{kind}:checked) .claim:not(.{kind}) {{display: none}}" in form
    assert text.count("<details") == text.count("</details>") == 1


def test_a_command_says_the_parameter_of_its_runs():
    (claim,) = [c for _, c in CLAIMS if c["id"] == "cfl-figure-9"]
    text = claims.row(BOOK, "cfl", claim, quantities(), stored)
    assert '`make results EXPERIMENT=09_language SEEDS="0 1 2" SET="text=ag_news"`' in text


def test_filters_count_all_rows():
    found = re.findall(r"\((\d+)\)</label>", claims.filters(BOOK))
    assert sum(map(int, found)) == 3 * len(CLAIMS)


@pytest.mark.parametrize("key", list(BOOK.papers))
def test_signs_are_as_many_as_a_papers_claims(key):
    text = re.sub("<.*?>", "", claims.signs(BOOK, key)).replace(" ", "")
    assert Counter(text) == Counter(claims.MARKS[c["verdict"]] for k, c in CLAIMS if k == key)


def test_a_link_leads_to_a_row_and_says_its_verdict():
    (_, claim) = CLAIMS[0]
    said = claims.link(BOOK, claim["id"], "it")
    assert said.startswith(f'<a href="#claim-{claim["id"]}">it</a> (')
    assert claims.VERDICTS[claim["verdict"]] in said
    with pytest.raises(ValueError, match="no claim is called 'none'"):
        claims.link(BOOK, "none")


def test_quantities_of_the_news_say_what_the_trees_say():
    halves = [[-1, list(range(20))], [0, list(range(10))], [0, list(range(10, 20))]]
    quarters = [[1 + j // 2, list(range(5 * j, 5 * j + 5))] for j in range(4)]
    found = quantities()["topics_found"]
    assert found({"tree": [*halves, *quarters]})
    assert found({"tree": [*halves, *quarters, [6, [15, 16, 17, 18]], [6, [19]]]})
    mixed = [*quarters[:2], [2, list(range(10, 16))], [2, list(range(16, 20))]]
    assert not found({"tree": [*halves, *mixed]})
    since = quantities()["since"]
    assert (since([True, True]), since([False, True]), since([True, False])) == (1, 2, None)


# ---------------------------------------------------------------- where


def test_the_ledger_is_read_from_the_checkout_or_from_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "book")
    assert claims.folder() == ROOT / "book" / "claims"
    monkeypatch.chdir(tmp_path)
    assert claims.folder() == ROOT / "book" / "claims"  # this package is in its checkout
    package = tmp_path / "site" / "clusterfl_core"
    (package / "ledger").mkdir(parents=True)
    monkeypatch.setattr(cf.results, "PACKAGE", package)
    assert claims.folder() == package / "ledger"
    (package / "ledger").rmdir()
    with pytest.raises(FileNotFoundError, match="install the package anew"):
        claims.folder()


def test_a_damaged_ledger_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "folder", lambda: tmp_path)
    (tmp_path / "cfl.toml").write_text("no TOML")
    with pytest.raises(ValueError, match=r"cfl.toml is not TOML"):
        claims.ledger()


def test_the_package_ships_the_ledger():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tools = project["tool"]["setuptools"]
    assert tools["package-dir"]["clusterfl_core.ledger"] == "book/claims"
    assert tools["package-data"]["clusterfl_core.ledger"] == ["*.toml"]
    assert '"clusterfl_core.ledger"' in (ROOT / "setup.py").read_text(encoding="utf-8")
