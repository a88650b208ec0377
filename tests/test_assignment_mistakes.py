"""Each typical mistake fails the test cells that are about it, and no others.

The cells run in one namespace, without a kernel: this is the quick check, and shows that the tests
work in a student's own notebook. The grader's two processes are in test_assignments.py.
"""

import json
from types import ModuleType

import assignment_mistakes as known
import pytest
import sandbox

import clusterfl_core as cf

CALLS_LIBRARY = {"library called", "the library called"}
CASES = [(name, mistake) for name, some in known.MISTAKES.items() for mistake in some]


def played(assignment, replaced):
    """Run an assignment with other sources in some cells; return what each test cell raised."""
    names, raised = {}, {}
    for meta, source in known.cells(assignment):
        tags = meta["cell"]["metadata"].get("tags", [])
        if meta["cell"]["cell_type"] != "code" or {"setup", "demonstration"} & set(tags):
            continue
        try:
            exec(replaced.get(meta.get("grade_id"), source), names)
        except Exception as error:  # as in a notebook that is graded: the next cell runs anyway
            if not meta["grade"]:
                raise
            raised[meta["grade_id"]] = error
    return raised


@pytest.fixture
def without(monkeypatch):
    """Take away what an assignment says students' work is graded without."""

    def take(assignment):
        path = known.ASSIGNMENTS / assignment / f"{assignment}.ipynb"
        own = json.loads(path.read_text(encoding="utf-8"))["metadata"]["clusterfl"]
        assert "algorithms" in own["withheld"]
        for name in {"baselines", "cfl", "fedsoft", "ifca", *own["withheld"]} - {"algorithms"}:
            module = ModuleType(name)
            exec(sandbox.STUB.format(module=name), vars(module))
            monkeypatch.setattr(cf, name, module)

    return take


@pytest.mark.parametrize(("assignment", "mistake"), CASES)
def test_mistake_fails_its_own_tests_and_no_others(assignment, mistake, without):
    without(assignment)
    case, fails = known.MISTAKES[assignment][mistake], known.FAILS[assignment][mistake]
    points = known.tests(assignment)
    assert set(case) - {"points"} <= set(known.empty(assignment))
    assert fails <= set(points)
    raised = played(assignment, case)
    assert set(raised) == fails
    assert case["points"] == sum(points.values()) - sum(points[one] for one in fails)
    for name, error in raised.items():
        kinds = NotImplementedError if mistake == "empty" else AssertionError
        kinds = RuntimeError if mistake in CALLS_LIBRARY else kinds
        assert isinstance(error, kinds), f"{name} does not say what is wrong: {error!r}"
        assert mistake == "empty" or len(str(error)) > 40


@pytest.mark.parametrize("assignment", known.MISTAKES)
def test_assignment_is_worth_100_points(assignment):
    graded = [meta["points"] for meta, _ in known.cells(assignment) if meta.get("grade")]
    assert sum(graded) == 100
    assert sum(known.tests(assignment).values()) == 70


@pytest.mark.parametrize("assignment", known.MISTAKES)
def test_regions_are_closed_and_names_differ(assignment):
    names = [meta["grade_id"] for meta, _ in known.cells(assignment) if "grade_id" in meta]
    assert len(names) == len(set(names))
    for meta, source in known.cells(assignment):
        code = meta["cell"]["cell_type"] == "code"
        solution, hidden = meta.get("solution") and code, meta.get("grade") and code
        for words, there in (("SOLUTION", solution), ("HIDDEN TESTS", hidden)):
            assert source.count(f"### BEGIN {words}\n") == source.count(f"### END {words}")
            assert (f"### BEGIN {words}\n" in source) == bool(there), meta.get("grade_id")
