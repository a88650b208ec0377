"""A class hands in one assignment: every typical mistake, every editor, every name."""

import time
import unicodedata

import assignment_mistakes as known
import assignments
import grading
import pytest
import sandbox
import typical_class

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's own
]
SIZES = {"A1_heterogeneity": 19, "A2_ifca": 60, "A3_cfl": 19, "A4_fedsoft": 72}


@pytest.mark.parametrize("name", SIZES)
def test_everybody_of_a_class_gets_the_declared_points_and_no_false_flag(tmp_path, name):
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    assignments.generate(tmp_path / "made", [name])
    released = assignments.released(tmp_path / "made", name)
    handed_in = typical_class.hand_in(tmp_path / "class", name, released, SIZES[name])
    assert {mistake for *_, mistake in handed_in.values()} == set(known.MISTAKES[name])
    wanted = {unicodedata.normalize("NFC", who): what for who, what in handed_in.items()}
    begun = time.monotonic()
    limits = sandbox.Limits(cell=200.0, total=900.0)
    results = grading.grade(
        tmp_path / "class",
        tmp_path / "graded",
        [name],
        limits,
        unsafe=False,
        jobs=2,
    )
    print(f"{len(results)} submissions in {time.monotonic() - begun:.0f} s")
    assert {r.student for r in results} == set(wanted)
    problems = []
    for r in results:
        points, *how = wanted[r.student]
        got = sum(test.points for test in r.tests if not test.by_hand)
        if r.refused or got != points or r.status != "graded":
            problems.append((r.student, how, points, got, r.refused, r.looks))
        by_hand = [test for test in r.tests if test.by_hand]
        state = {"to mark"} if points else {""}  # who wrote nothing waits for nobody
        if {test.state for test in by_hand} != state:
            problems.append((r.student, how, [(t.id, t.state) for t in by_hand]))
    assert problems == []
