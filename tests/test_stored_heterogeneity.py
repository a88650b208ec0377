"""What chapter 2 says of its stored remedies."""

import json

import house
import numpy as np
import pytest

import clusterfl_core as cf

CELLS = {"1bbb6648": "renaming", "ec8cf08b": "conflict", "reply": "reply", "scaffold": "scaffold"}


def cells(path):
    """The text of each cell by its name."""
    found = json.loads((house.ROOT / "book" / path).read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in found}


def column(world, place=0):
    """Of each remedy the scores of ten seeds: own images, the worst client, everybody's."""
    found = [one["values"] for one in cf.results.stored("02_remedies", world=world, rounds=20)]
    assert len(found) == 10
    names = [name for name in found[0] if name != "ceiling"]
    return {name: np.array([one[name][place] for one in found]) for name in names}


@pytest.mark.parametrize(("chapter", "experiment"), CELLS.items())
def test_the_experiment_runs_what_the_chapter_prints(chapter, experiment):
    said, run = cells("02_heterogeneity.ipynb"), cells("experiments/02_remedies.ipynb")
    assert run[f"remedies-{experiment}"] == said[chapter]


def test_the_springs_are_alike_too():
    said, run = cells("02_heterogeneity.ipynb"), cells("experiments/02_remedies.ipynb")
    assert said["fedprox"].startswith(run["remedies-fedprox"])


def test_no_single_model_passes_the_ceiling_of_a_conflict():
    found = cf.results.stored("02_remedies", world="conflict, 3 pairs", rounds=20)
    for one in found:
        single = list(one["values"].items())[:6]
        assert all(scores[0] <= one["values"]["ceiling"] + 1e-6 for _, scores in single)


def test_skew_yields_to_patience_and_to_variates_and_not_to_springs():
    own = column("label skew 0.1")
    was, mean = own["as it was"], {name: v.mean() for name, v in own.items()}
    for better in ("three times the rounds", "three times the steps", "SCAFFOLD", "fine-tuning"):
        assert (own[better] > was).sum() >= 9
    assert max(mean["FedProx"], mean["plain mean"]) < was.mean() < mean["three times the steps"]
    assert mean["three times the steps"] < mean["SCAFFOLD"] < mean["fine-tuning"]
    everybody = column("label skew 0.1", 2)
    for own_model in ("fine-tuning", "alone"):
        assert everybody[own_model].max() < everybody["as it was"].min() - 0.3


def test_under_skew_springs_gain_in_no_seed_and_variates_more_than_steps_in_eight():
    own, worst = column("label skew 0.1"), column("label skew 0.1", 1)
    was = own["as it was"]
    assert (own["FedProx"] < was + 0.0005).all()
    assert (own["SCAFFOLD"] > own["three times the steps"]).sum() == 8
    luck = own["plain mean"] - was
    assert -0.06 < luck.min() < -0.05 < 0.03 < luck.max() < 0.04
    assert 0.045 < worst["fine-tuning"].mean() - worst["alone"].mean() < 0.055


def test_under_conflict_only_more_models_help():
    own = column("conflict, 3 pairs")
    assert (own["alone"] < own["fine-tuning"]).all()
    assert (own["fine-tuning"] < own["one model a group"]).all()
    was = own["as it was"]
    for patient in ("three times the rounds", "three times the steps"):
        assert (own[patient] > was + 0.005).all()
    assert 0 < own["SCAFFOLD"].mean() - was.mean() < 0.005
