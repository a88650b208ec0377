"""What chapter 6 says of its stored runs, where no record holds it: how they were made."""

import json
import re

import house
import pytest

BOOK = house.ROOT / "book"

SAID = [  # an experiment, what the chapter says of it, and its code
    ("06_cifar", "30 rounds of two passes", "passes=2"),
    ("06_cifar", "400 test photographs in both positions", "held_out=400"),
    ("06_cifar", "copies that had been JPEG files", '", from JPEG copies (lossy)"'),
    ("06_groups", "28 of its images", "n, x, y = 28, digits.train.x, digits.train.y"),
    ("06_groups", "keeps the best of three starts", "starts, rounds = (3, 20) if paper"),
    ("06_hands", "the 80 who lean most to the right", '"mnist_writers", 420, seed=seed'),
    ("06_hands", "the 80 at the other end", "ranks[: m // 2], ranks[-m // 2 :]"),
    ("06_hands", "40 rounds of ten steps", "ten = cf.LocalSGD(10, 0.1)"),
    ("06_hands", "the better of two starts", "range(2 * seed, 2 * seed + 2)"),
    ("06_hands", "Alone: 200 steps", "cf.LocalSGD(200, 0.1)"),
    ("06_hands", "10, 20 or 40 steps more", "for steps in (10, 20, 40)"),
    ("06_phones", "Fine-tuning takes 200 steps more", "rounds // 2, rounds * ten.steps"),
    ("06_phones", "hidden=32", "net = cf.models.MLP(inputs=64, hidden=32, classes=10)"),
    ("06_phones", "| fine-tuned, no more steps | 100 | 100 |", "tuned(half, steps // 2)"),
    ("06_table1", "{300 * ten.steps:,} local steps in 300 rounds", "cf.LocalSGD(10, 0.1)"),
    ("06_table2", "first layer shared", 'shared=("hidden",)'),
    ("06_table2", "groups dealt in turn", "torch.arange(m) % max(k, 1)"),
]


def source(path):
    """All that stands in the cells of a notebook, its lines joined as they are read."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.mark.parametrize(("experiment", "words", "code"), SAID)
def test_the_chapter_says_how_its_stored_runs_were_made(experiment, words, code):
    assert words in source(BOOK / "06_ifca_experiments.ipynb")
    assert code in source(BOOK / "experiments" / f"{experiment}.ipynb")


def test_the_laboratory_and_the_cell_that_explains_it_run_equally_long():
    text = (house.ROOT / "clusterfl_core" / "live" / "labs" / "angle.js").read_text("utf-8")
    (task,) = re.findall(r"\[ENOUGH, NEAR\] = \[(\d+), (\d+)\]", text)
    chapter = source(BOOK / "06_ifca_experiments.ipynb")
    assert task == ("8", "30")
    assert "at most 30° apart such that after eight rounds" in chapter
    assert "replay.run(method, dial, 8, seed=start)" in chapter
