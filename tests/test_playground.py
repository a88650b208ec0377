"""The playground: a mission can be solved and is noticed then and only then; a digit is drawn."""

import json
import re

import house
import pytest
import torch
from browser import visited
from test_live_labs import Lab, fragment, opened
from test_live_pages import FRAME

import clusterfl_core as cf
from clusterfl_core import data, live
from clusterfl_core.live import replay
from clusterfl_core.live.labs import playground

LAB = Lab("playground", [], "")
MISSIONS = {mission["key"]: mission for mission in playground.MISSIONS}
ROUNDS = 10


def six():
    """A test image of a 6, as ink."""
    images = data.load("digits")
    (row, *_) = (images.y_test == 6).nonzero()[:, 0].tolist()
    return (images.x_test[row].flatten() * (16 / 255)).round().int().tolist()


SOLVED = {
    "find": {"k": 4},
    "start": {"seed": 1},
    "together": {"angle": 15, "points": 10},
    "alone": {"skew": 0.9, "points": 20},
    "budget": {"steps": 20, "step_size": 1, "rounds": 3},
    "liars": {"k": 3},
    "readings": {"ink": six()},
    "starve": {"last": 1, "seed": 0},
}
every_mission = pytest.mark.parametrize("key", MISSIONS)


def state_of(key, **more):
    """The state in which a mission begins, after ten rounds, and what a reader changed."""
    first = live.playground().settings["state"]
    begun = MISSIONS[key]["setup"] | {"mission": key, "rounds": ROUNDS}
    return first | begun | {"method": MISSIONS[key]["method"]} | more


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the page of the playground."""
    folder = tmp_path_factory.mktemp("playground")
    one = live.playground(task="Choose a mission.")._repr_html_()
    own = one.replace("<cfl-playground ", "<cfl-playground address ")
    (folder / "playground.html").write_text(FRAME.format(own), encoding="utf-8")
    (folder / "blank.html").write_text(FRAME.format(""), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def desk(browser, site):
    """A page for all tests, and the list of its problems."""
    with visited(browser, f"{site.as_uri()}/", "blank.html") as found:
        yield found


def judged(desk, site, state):
    """What the task says in a state that an address brings."""
    with opened(desk, site, LAB, fragment(LAB, state)) as bench:
        bench.settle()
        return bench.node.locator(".task").inner_text()


def test_there_are_eight_missions_each_with_a_way_to_solve_it():
    assert list(SOLVED) == list(MISSIONS)
    assert len(MISSIONS) == 8
    for mission in MISSIONS.values():
        assert set(mission["free"]) <= set(mission["setup"])
        assert len(re.findall(r"[.?!](?:\s|$)", mission["why"])) == 2, mission["why"]


def test_the_page_says_what_the_laboratory_says():
    cells = json.loads((house.ROOT / "book" / "playground.ipynb").read_text("utf-8"))["cells"]
    (text,) = ["".join(cell["source"]) for cell in cells if cell["id"] == "missions"]
    for number, mission in enumerate(MISSIONS.values(), 1):
        assert f"**{number}. {mission['name']}.** {mission['ask']}\n" in text
        assert f"</summary>\n\n{mission['why']}\n\n</details>" in text


@every_mission
def test_a_mission_is_noticed_when_it_is_solved_and_only_then(desk, site, key):
    solved = judged(desk, site, state_of(key, **SOLVED[key]))
    assert "☑" in solved, solved
    assert "Solved: " in solved
    assert "1 of 8 solved" in solved
    begun = judged(desk, site, state_of(key))
    assert "☐" in begun, begun
    assert "Not yet: " in begun
    moved = judged(desk, site, state_of(key, **SOLVED[key]) | {"eps1": 0.5})
    assert "☐" in moved
    assert "This mission keeps “CFL: mean below ε₁” at 0.45" in moved


def test_no_mission_is_judged_before_its_rounds_are_played(desk, site):
    found = judged(desk, site, state_of("find", **SOLVED["find"]) | {"rounds": 9})
    assert "Judged from round 10 on; this is round 9" in found
    assert "☐" in found


# ---------------------------------------------------------------- what solves a mission, in Python


def played(state, name="IFCA"):
    """(federation, run) of a state in the library."""
    world = ("groups", "angle", "swaps", "skew", "points", "clients", "last", "liars")
    federation = replay.patchwork(**{entry: state[entry] for entry in world})
    local = cf.LocalSGD(state["steps"], state["step_size"])
    own = {"local": local}
    if name in ("OneShot", "IFCA", "FedSoft", "FedEM"):
        own["clusters"] = state["k"]
    own |= {"OneShot": {"alone": cf.LocalSGD(60, state["step_size"])},
            "FedSoft": {"proximal": 0.1},
            "CFL": {"eps1": state["eps1"], "eps2": state["eps2"]}}.get(name, {})  # fmt: skip
    algorithm = getattr(cf, name)(cf.models.MLP(64, 32, 10), **own)
    return federation, replay.run(algorithm, federation, state["rounds"], seed=state["seed"])


def groups_of(key, **more):
    """For each group (liars last), the models that its clients follow in IFCA; and the scores."""
    federation, run = played(state_of(key, **more))
    chosen = run.assignments
    each = [chosen[federation.clusters == g].tolist() for g in federation.clusters.unique()]
    return each, playground.scores(run, federation)


def test_the_solutions_are_true_in_the_library():
    each, _ = groups_of("find", **SOLVED["find"])
    assert sorted(set(own).pop() for own in each) == [0, 1, 2, 3]
    assert all(len(set(own)) == 1 for own in each)

    each, _ = groups_of("start", **SOLVED["start"])
    most = [max(set(own), key=own.count) for own in each if max(map(own.count, own)) > 2]
    assert len(most) > len(set(most))

    each, (_, worst, _) = groups_of("liars", **SOLVED["liars"])
    assert not set(each[-1]) & {model for own in each[:-1] for model in own}
    assert worst >= 0.85

    _, (mean, _, moved) = groups_of("budget", **SOLVED["budget"])
    assert mean >= 0.9
    assert moved <= 150

    _, (mean, worst, _) = groups_of("starve", **SOLVED["starve"])
    assert mean >= 0.85
    assert worst <= 0.6


@pytest.mark.parametrize(("key", "lead"), [("together", 0.05), ("alone", 0.02)])
def test_the_best_method_is_the_best_in_the_library(key, lead):
    state = state_of(key, **SOLVED[key])
    means = {}
    for name in playground.METHODS:
        federation, run = played(state, name)
        means[name] = playground.scores(run, federation)[0]
    best = means.pop(MISSIONS[key]["method"])
    if key == "together":
        means.pop("CFL")
    assert best >= max(means.values()) + lead, (best, means)


# ---------------------------------------------------------------- a mission's page


def test_a_mission_brings_its_clients_and_holds_what_it_needs(desk, site):
    with opened(desk, site, LAB) as bench:
        bench.node.get_by_label("mission", exact=True).select_option("find")
        bench.settle()
        for hidden in ("groups", "angle between groups", "clients a group"):
            assert not bench.node.get_by_label(hidden, exact=True).is_visible()
        assert bench.node.get_by_label("models k", exact=True).is_enabled()
        assert bench.node.get_by_label("label skew", exact=True).is_disabled()
        told = bench.node.locator("section[aria-label=Mission]")
        assert MISSIONS["find"]["ask"] in told.inner_text()
        assert MISSIONS["find"]["why"] not in told.inner_text()
        bench.node.locator("summary").click()
        assert MISSIONS["find"]["why"] in told.inner_text()
        bench.node.get_by_label("mission", exact=True).select_option("none")
        assert bench.node.get_by_label("label skew", exact=True).is_enabled()


def test_what_is_to_be_drawn_is_not_lent(desk, site):
    with opened(desk, site, LAB) as bench:
        lent = bench.node.get_by_role("button", name="Show a digit")
        lent.click()
        assert sum(pixels(bench)) > 0
        bench.node.get_by_label("mission", exact=True).select_option("readings")
        bench.settle()
        assert not lent.is_visible()
        assert sum(pixels(bench)) == 0


def test_long_work_can_be_stopped_and_the_page_says_how_far_it_is(desk, site):
    with opened(desk, site, LAB) as bench:
        bench.press("10 rounds")
        bench.node.locator("p.state", has_text="Computing round").wait_for()
        bench.node.get_by_role("button", name="Stop").click()
        bench.settle()
        found = re.search(r"Round (\d+)", bench.state())
        stopped = int(found[1]) if found else 0
        assert stopped < 10
        bench.press("Step")
        bench.settle()
        assert f"Round {stopped + 1}:" in bench.state()
        assert bench.node.get_by_role("status").text_content() == bench.state(), "the end is said"


def pixels(bench):
    """How dark the squares of the drawing are."""
    return bench.node.locator(".square").evaluate_all("all => all.map(e => Number(e.dataset.grey))")


def test_a_digit_is_drawn_by_finger_and_by_keys_and_read_by_every_model(desk, site):
    with opened(desk, site, LAB) as bench:
        bench.press("Step")
        bench.settle()
        box = bench.node.locator(".pad").bounding_box()
        middle = box["x"] + box["width"] / 2 + 3
        bench.tab.mouse.move(middle, box["y"] + 12)
        bench.tab.mouse.down()
        bench.tab.mouse.move(middle, box["y"] + box["height"] - 12, steps=5)
        bench.tab.mouse.up()
        drawn = torch.tensor(pixels(bench)).view(8, 8)
        assert (drawn[:, 4] > 8).all()
        assert (drawn[:, [0, 1, 7]] == 0).all()
        answers = bench.node.locator(".answers tbody tr")
        assert answers.count() == 3
        assert re.search(r"\d\s*\d+ %", answers.first.inner_text())
        before = bench.numbers()
        bench.press("Undo")
        assert pixels(bench) == [0] * 64
        assert bench.numbers() == before, "a stroke plays nothing again"
        bench.node.locator(".square").first.focus()
        for key in ("Space", "Shift+ArrowRight", "ArrowDown", "Enter", "ArrowUp", "Space"):
            bench.tab.keyboard.press(key)
        assert pixels(bench) == [16] + [0] * 8 + [16] + [0] * 54
        bench.press("Clear")
        assert pixels(bench) == [0] * 64
