"""The commands of the ledger: each runs, and each means the records that stand beside it."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import clusterfl_core as cf
from clusterfl_core import claims

ROOT = Path(__file__).resolve().parents[1]
BOOK = claims.ledger()
stored = cache(cf.results.stored)


@cache
def wanted():
    """Records by command: an experiment and its parameter, as the ledger's rows name them."""
    found = {}
    for paper in BOOK.papers.values():
        for claim in paper["claim"]:
            for number in claim.get("number", ()):
                for record in claims.runs(number, stored):
                    at = record["experiment"], claims.parameter(BOOK, record)
                    key = json.dumps(record["settings"], sort_keys=True)
                    found.setdefault(at, {})[key, record["seed"]] = record
    return found


COMMANDS = sorted(wanted())
each = pytest.mark.parametrize(("experiment", "words"), COMMANDS, ids=map(" ".join, COMMANDS))


def sources(experiment):
    path = ROOT / "book" / "experiments" / f"{experiment}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        ("".join(c["source"]), c["metadata"].get("tags", []))
        for c in cells
        if c["cell_type"] == "code"
    ]


@each
def test_a_command_names_an_experiment_and_a_parameter_that_it_has(experiment, words):
    (parameters,) = [text for text, tags in sources(experiment) if "parameters" in tags]
    names = re.findall(r"^(\w+) = ", parameters, re.M)
    assert {"preset", "seed"} <= set(names)
    if words:
        assert words.split("=")[0] in names
        assert words not in parameters.replace(" ", "").replace('"', "")  # not the default


class Asked(Exception):
    """All that was wanted has been asked for."""


@pytest.mark.long
@each
def test_a_command_means_the_records_of_its_rows(experiment, words, monkeypatch):
    """Every cell runs as with `preset=paper`, but nothing is computed: what is stored is read."""
    open_ones = dict(wanted()[experiment, words])
    kept = {
        (json.dumps(r["settings"], sort_keys=True), r["seed"]): r["values"]
        for r in stored(experiment)
    }

    def run(store, seed, settings, *rest, **more):
        at = json.dumps(settings, sort_keys=True, default=lambda x: x.tolist()), int(seed)
        open_ones.pop(at, None)
        if not any(seed == one for _, one in open_ones):
            raise Asked
        return kept.get(at, next(v for (_, one), v in kept.items() if one == seed))

    monkeypatch.setattr(cf.results.Store, "run", run)
    monkeypatch.chdir(ROOT / "book" / "experiments")
    for seed in sorted({one for _, one in open_ones}):
        names = {"__name__": "__main__"}
        try:
            for text, tags in sources(experiment):
                exec(compile(text, experiment, "exec"), names)
                if "parameters" in tags:
                    names |= {"preset": "paper", "seed": seed}
                    if words:
                        name, value = words.split("=")
                        names[name] = int(value) if value.isdecimal() else value
        except Asked:
            pass
        except cf.data.Unavailable as error:
            pytest.skip(str(error))
    assert list(open_ones) == []


@pytest.mark.long
@pytest.mark.parametrize("experiment", sorted({name for name, _ in COMMANDS}))
def test_an_experiment_runs_once_at_its_small_size(experiment, tmp_path):
    """The command of a row with `PRESET=quick`; it stores nothing."""
    command = [sys.executable, str(ROOT / "tools" / "run_experiment.py")]
    path = ROOT / "book" / "experiments" / f"{experiment}.ipynb"
    before = sorted((ROOT / "book" / "results").rglob("*.json"))
    done = subprocess.run(
        [*command, str(path), "0", "preset=quick", "device=cpu"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=900,
    )
    if "Unavailable" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted((ROOT / "book" / "results").rglob("*.json")) == before
