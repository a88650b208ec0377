"""Every laboratory as a reader has it: opened anywhere, by keys alone, shared, copied, refused."""

import base64
import contextlib
import gzip
import html
import io
import json
import re
from dataclasses import dataclass

import browser as browsing
import house
import numpy as np
import pytest
import torch
from browser import PHONE, WIDE, visited
from test_live_pages import FRAME, NARROW

import clusterfl_core as cf
from clusterfl_core import data, live
from clusterfl_core.live import page as cell
from clusterfl_core.live import replay, sources
from clusterfl_core.live.labs import playground
from clusterfl_core.populations import twists


@dataclass(frozen=True)
class Lab:
    """A laboratory under test.

    name: of the element and of the function in live. keys: how its task is solved, a list of
    (name of the control, key, times). solved: words of the task that then stand there.
    close: how far its numbers may lie from those of the copied Python, absolute and relative.
    """

    name: str
    keys: list
    solved: str
    close: float = 1e-6

    def made(self):
        """The laboratory with a task, as in its chapter."""
        return getattr(live, self.name)(task="What to do.")


LABS = [
    Lab(
        "angle",
        [("angle", "ArrowLeft", 12), ("Step", "Enter", 8), ("angle", "Home", 1)],
        "Solved: groups win at 30°, one model at 0°",
    ),
    Lab(
        "attack",
        [
            ("lie of client 11", "ArrowDown", 2),
            ("tip of the lie", "Shift+ArrowLeft", 3),
            ("Step", "Enter", 32),
            ("clip to the median length", "Space", 1),
            ("Step", "Enter", 10),
        ],
        "Solved: clipped",
    ),
    Lab(
        "balance",
        [
            ("arrow 0", "Shift+ArrowRight", 3),
            ("arrow 0", "ArrowLeft", 3),
            ("arrow 1", "Shift+ArrowRight", 5),
            ("arrow 1", "ArrowRight", 4),
            ("arrow 2", "Shift+ArrowRight", 8),
            ("arrow 2", "ArrowRight", 1),
            ("arrow 3", "Shift+ArrowRight", 11),
            ("arrow 3", "ArrowLeft", 3),
        ],
        "Solved: they balance",
    ),
    Lab(
        "compass",
        [("right model", "ArrowDown", 4), ("right model", "ArrowRight", 5)],
        "Solved: 0.10 apart",
    ),
    Lab(
        "deadline",
        [
            ("slow ones in group 1", "End", 1),
            ("deadline, seconds", "ArrowLeft", 20),
            ("late answers count when they come", "Space", 1),
            ("models", "ArrowDown", 1),
        ],
        "Solved: lost, and won back",
    ),
    Lab(
        "desk",
        [("feature skew", "End", 1), ("conflict", "End", 1)],
        "Solved: you broke one border twice",
        close=2e-4,  # the page has the ink in five decimals
    ),
    Lab(
        "gardens",
        [("first temperature", "ArrowRight", 2), ("Step", "Enter", 12)],
        "Solved: the crowded start is free",
    ),
    Lab(
        "drift",
        [
            ("local steps τ", "ArrowRight", 19),
            ("stretch", "Home", 1),
            ("bowl", "ArrowDown", 1),
            ("stretch", "Home", 1),
            ("bowl", "ArrowDown", 1),
            ("stretch", "Home", 1),
            ("bowl", "ArrowDown", 1),
            ("stretch", "Home", 1),
        ],
        "FedAvg rests at the best model",
    ),
    Lab(
        "playground",
        [("mission", "ArrowDown", 1), ("models k", "ArrowRight", 2), ("Step", "Enter", 10)],
        "Solved: 4 groups, 4 models",
    ),
    Lab("phase", [("spread within a group", "ArrowRight", 6)], "Solved: "),
    Lab(
        "race",
        [
            ("local steps τ", "End", 1),
            ("Step", "Enter", 1),
            ("local steps τ", "Home", 1),
            ("Step", "Enter", 1),
        ],
        "Solved: ",
    ),
    Lab(
        "server",
        [
            ("Step", "Enter", 8),
            ("mean below ε₁", "Home", 1),
            ("mean below ε₁", "ArrowRight", 9),
            ("longest above ε₂", "ArrowRight", 10),
            ("Step", "Enter", 22),
        ],
        "Solved: torn before",
    ),
    Lab(
        "springs",
        [("Step", "Enter", 6), ("Regress from here", "Enter", 1), ("Step", "Enter", 6)],
        "Solved: collapsed to 0.11",
    ),
    Lab(
        "threshold",
        [
            ("distance within a pair", "ArrowLeft", 7),
            ("threshold, % of the height", "ArrowLeft", 30),
        ],
        "Solved: ",
    ),
    Lab(
        "wedges",
        [("distance Δ", "ArrowRight", 24), ("leave out |z| below", "ArrowRight", 10)],
        "Solved: ",
    ),
]
END = '<p><a href="#end" id="end">The end of the page</a></p>'  # where Tab leads on to
NUMBER = r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)"
every_lab = pytest.mark.parametrize("lab", LABS, ids=[lab.name for lab in LABS])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with two pages a laboratory: its own address, and a sandboxed frame."""
    folder = tmp_path_factory.mktemp("labs")
    for lab in LABS:
        one = lab.made()._repr_html_()
        sandbox = f'<iframe sandbox="allow-scripts" title="An output" srcdoc="{html.escape(one)}"'
        own = one.replace(f"<cfl-{lab.name} ", f"<cfl-{lab.name} address ")
        frame = f'{sandbox} style="width: 700px; height: 1200px"></iframe>'
        (folder / f"{lab.name}.html").write_text(FRAME.format(own + END), encoding="utf-8")
        (folder / f"{lab.name}-frame.html").write_text(FRAME.format(frame), encoding="utf-8")
    (folder / "blank.html").write_text(FRAME.format(""), encoding="utf-8")
    return folder


class Bench:
    """A laboratory on the bench."""

    def __init__(self, lab, tab, within=None):
        self.lab, self.tab = lab, tab
        self.node = (within or tab).locator(f"cfl-{lab.name}").first

    def settle(self):
        """Wait until all rounds of its state are played."""
        self.node.evaluate(
            "e => new Promise(done => (function look() {"
            " e.busy === false ? done() : requestAnimationFrame(look); })())"
        )

    def tab_to(self, name):
        """Press Tab until the control of this name is focused."""
        focused = """e => {
          const at = e.shadowRoot.activeElement;
          return at && (at.ariaLabel ?? at.labels?.[0]?.textContent ?? at.textContent);
        }"""
        for _ in range(60):
            if self.node.evaluate(focused) == name:
                return
            self.tab.keyboard.press("Tab")
        raise AssertionError(f"{name} is not reached by Tab")

    def press(self, name):
        self.node.get_by_role("button", name=name, exact=True).click()

    def text(self):
        return self.node.locator("textarea").input_value()

    def said(self):
        return self.node.locator("p.message").inner_text()

    def state(self):
        return self.node.locator("p.state").inner_text()

    def numbers(self):
        """What the readings show: [(as written, as computed)]."""
        return self.node.locator("data").evaluate_all(
            "all => all.map(e => [e.textContent, Number(e.value)])"
        )

    def play(self):
        """A few rounds, where there are rounds."""
        step = self.node.get_by_role("button", name="Step", exact=True)
        for _ in range(3 * step.count()):
            step.click()
            self.settle()


@pytest.fixture(scope="module")
def desk(browser, site):
    """A page for all tests, and the list of its problems: errors, and requests that leave."""
    with visited(browser, f"{site.as_uri()}/", "blank.html") as found:
        yield found


@contextlib.contextmanager
def opened(desk, site, lab, fragment="", page=""):
    """The page of a laboratory, as a file; within a frame on the page "-frame"."""
    tab, wrong = desk
    tab.goto("about:blank")  # else another fragment would not load the page anew
    tab.set_viewport_size(WIDE)
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.goto(f"{site.as_uri()}/{lab.name}{page}.html{fragment}")
    bench = Bench(lab, tab, tab.frame_locator("iframe") if page else None)
    bench.settle()
    yield bench
    assert wrong == []


# ---------------------------------------------------------------- what Python puts together


@every_lab
def test_its_script_is_small_and_in_one_scope(lab):
    script = live.script(lab.name)
    images = f'"{sources.packed_digits()}"'
    carried = images in script
    assert carried == (("engine", "digits") in cell.modules(lab.name))
    size, whole = (len(gzip.compress(s.encode())) for s in (script.replace(images, ""), script))
    assert size <= 60_000
    assert whole <= 150_000
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


def test_every_laboratory_is_tested():
    assert {lab.name for lab in LABS} == set(live.__all__) - {"Laboratory", "plane", "script"}
    assert {path.stem for path in (cell.HERE / "labs").glob("*.js")} <= set(live.__all__)


def test_each_laboratory_stands_between_its_question_and_its_reason():
    found = {}
    for path in (house.ROOT / "book").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells]
        for at, text in enumerate(texts):
            if cells[at]["cell_type"] == "code" and (made := re.match(r"cf\.live\.(\w+)\(", text)):
                found[made[1]] = texts[at - 1], text, "".join(texts[at + 1 : at + 3])
    assert set(found) == {lab.name for lab in LABS} | {"plane"}
    for name, (before, cell_text, after) in found.items():
        assert re.search(r'\btask=\s*"[^"]+\."', cell_text), name
        if name != "playground":  # its questions and reasons are its missions'
            assert "> **Predict.**" in before, name
            assert "Then " in before, name
            reason = after.partition("After your guess: ")[2].partition("</summary>")[2]
            assert len(re.findall(r"[.?!](?:\s|\"|$)", reason)) >= 2, name


def test_a_script_carries_what_its_laboratory_needs_and_no_more():
    assert ("engine", "cfl") not in cell.modules("plane")
    assert ("engine", "lab") not in cell.modules("balance")


# ---------------------------------------------------------------- seen, and worked by keys


@every_lab
def test_nothing_is_cut_off_or_unnamed(desk, site, lab):
    with opened(desk, site, lab) as bench:
        bench.play()
        bench.press("Copy as Python")
        for summary in bench.node.locator("summary").all():
            summary.click()
        bench.tab.evaluate(browsing.AXE.read_text(encoding="utf-8"))
        for size in (WIDE, PHONE, NARROW):
            bench.tab.set_viewport_size(size)
            for scheme in ("light", "dark"):
                bench.tab.emulate_media(color_scheme=scheme)
                browsing.settle(bench.tab)
                found = bench.tab.evaluate(
                    "axe.run('main').then(r => r.violations.map(v => v.id + v.nodes[0].html))"
                )
                assert found == [], (size, scheme)
            width = bench.tab.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"]
            beyond = bench.node.evaluate(
                """lab => {
                  const { right } = lab.shadowRoot.querySelector(".live").getBoundingClientRect();
                  return [...lab.shadowRoot.querySelectorAll(
                    ".live *:not(.handle, .handle *, svg *, .spoken, .spoken *)")]
                    .filter(e => e.getBoundingClientRect().right > right + 1).map(e => e.outerHTML);
                }"""
            )
            assert beyond == [], size


FOCUSED = """lab => {
  const at = lab.shadowRoot.activeElement;
  return at && {
    name: (at.ariaLabel ?? at.labels?.[0]?.textContent ?? at.textContent).trim(),
    role: at.getAttribute("role") ?? (at.type === "range" ? "slider" : at.localName),
    value: at.ariaValueText ?? at.value,
  };
}"""
CONTROLS = """lab => [...lab.shadowRoot.querySelectorAll(
  "button:enabled, input, select, [role=slider], summary")]
  .filter(e => e.checkVisibility()).length"""


@every_lab
def test_tab_reaches_every_control_and_it_has_a_name_and_obeys_keys(desk, site, lab):
    with opened(desk, site, lab) as bench:
        for summary in bench.node.locator("summary").all():
            summary.click()
        bench.tab.evaluate("document.activeElement.blur()")
        count, seen = bench.node.evaluate(CONTROLS), []
        bench.tab.evaluate("getSelection().removeAllRanges(); scrollTo(0, 0)")
        bench.tab.keyboard.press("Tab")
        while len(seen) < 80 and (one := bench.node.evaluate(FOCUSED)):
            assert one["name"]
            seen.append((one["role"], one["name"]))
            if one["role"] == "slider":
                assert one["value"]
                for key in ("ArrowRight", "ArrowLeft", "ArrowLeft"):
                    bench.tab.keyboard.press(key)
                    bench.settle()
                    now = bench.node.evaluate(FOCUSED)
                    assert now["name"] == one["name"], "the focus is lost"
                    if now["value"] != one["value"]:
                        break
                else:
                    raise AssertionError(f"{one['name']} does not obey the arrow keys")
            bench.tab.keyboard.press("Tab")
        assert len(seen) >= count
        assert len(seen) == len(set(seen)), "two controls have one name"


@every_lab
def test_the_task_is_solved_by_keys_alone(desk, site, lab):
    with opened(desk, site, lab) as bench:
        task = bench.node.locator(".task")
        assert "☐" in task.inner_text()
        for name, key, times in lab.keys:
            bench.tab_to(name)
            for _ in range(times):
                bench.tab.keyboard.press(key)
                bench.settle()
        assert lab.solved in task.inner_text()
        assert "☑" in task.inner_text()


# What is heard on the way to a success in two parts, after so many of the keys that solve it.
PARTS = {
    "angle": (2, "Groups win at"),
    "attack": (3, "A veto: one client"),
    "deadline": (2, "Group 1 was lost."),
    "desk": (1, "Broken, and mended by two borders."),
    "drift": (1, "They were 0.5 apart"),
    "race": (2, "It has won by 2; now make it lose"),
    "server": (1, "A true group was torn."),
    "springs": (1, "Collapsed to"),
}


@pytest.mark.parametrize(
    "lab", [lab for lab in LABS if lab.name in PARTS], ids=lambda lab: lab.name
)
def test_the_first_half_of_a_task_is_heard_once(desk, site, lab):
    count, words = PARTS[lab.name]
    with opened(desk, site, lab) as bench:
        bench.node.evaluate(
            """lab => {
              const heard = lab.shadowRoot.querySelector(".task [aria-live]");
              window.heardTexts = [];
              new MutationObserver(() => {
                if (heard.textContent) window.heardTexts.push(heard.textContent);
              }).observe(heard, { childList: true });
            }"""
        )
        for name, key, times in lab.keys[:count]:
            bench.tab_to(name)
            for _ in range(times):
                bench.tab.keyboard.press(key)
                bench.settle()
        heard = bench.tab.evaluate("window.heardTexts")
        assert len(heard) == 1, heard
        assert words in heard[0]
        progress = bench.node.locator(".task .progress")
        same = progress.text_content() == bench.node.locator(".task [aria-live]").text_content()
        assert same == (progress.get_attribute("aria-hidden") == "true"), "read twice, or never"


# ---------------------------------------------------------------- by finger

# A handle of each kind: (laboratory, its name, pixels right and down).
HANDLES = [
    ("drift", "bottom of client 2, triangle", -30, 20),  # in the plane
    ("balance", "arrow 0", 40, 25),  # on a circle
    ("wedges", "edge of the wedge", 12, 12),  # at an angle
    ("wedges", "edge of what is left out", 20, 0),  # on a line
    ("deadline", "deadline on the time line", 20, 0),  # by steps
    ("server", "thresholds", 25, -20),  # on logarithmic axes
    ("gardens", "line 0, warm end", 0, 40),  # up and down
    ("phase", "cell that is looked at", 45, -45),  # from cell to cell
    ("springs", "centre 1", -20, 30),  # in a picture that plays
]


class Finger:
    """One finger on the screen, as Chromium has it from its own."""

    def __init__(self, page):
        self.wire = page.context.new_cdp_session(page)

    def touch(self, kind, *points):
        spots = [{"x": x, "y": y} for x, y in points]
        self.wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": spots})

    def drag(self, start, right, down):
        x, y = start
        self.touch("touchStart", start)
        for part in range(1, 6):
            self.touch("touchMove", (x + right * part / 5, y + down * part / 5))
        self.touch("touchEnd")

    def tap(self, spot):
        self.touch("touchStart", spot)
        self.touch("touchEnd")


@pytest.fixture(scope="module")
def phone(browser, site):
    """A page of a phone, and the list of its problems."""
    context = browser.new_context(
        viewport=PHONE, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page, wrong
    context.close()


def middle(node):
    box = node.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.parametrize(("name", "handle", "right", "down"), HANDLES)
def test_a_handle_follows_the_finger_and_the_next_tap_counts(
    phone, site, name, handle, right, down
):
    page, wrong = phone
    page.goto(f"{site.as_uri()}/{name}.html")
    bench = Bench(next(lab for lab in LABS if lab.name == name), page)
    bench.settle()
    finger, thing = Finger(page), bench.node.get_by_role("slider", name=handle, exact=True)
    undo = bench.node.get_by_role("button", name="Undo", exact=True)
    page.set_viewport_size({"width": PHONE["width"], "height": 1600})  # handle and button in sight
    thing.scroll_into_view_if_needed()
    before, scrolled = thing.get_attribute("aria-valuetext"), page.evaluate("scrollY")
    x, y = middle(thing)
    finger.drag((x + 8, y - 8), right, down)  # a finger is not exact
    assert thing.get_attribute("aria-valuetext") != before
    assert page.evaluate("scrollY") == scrolled
    finger.tap(middle(undo))
    page.wait_for_function(
        "([e, text]) => e.getAttribute('aria-valuetext') === text",
        arg=[thing.element_handle(), before],
        timeout=3000,
    )
    assert wrong == []


def test_a_digit_is_drawn_by_finger(phone, site):
    page, wrong = phone
    page.goto(f"{site.as_uri()}/playground.html")
    bench = Bench(next(lab for lab in LABS if lab.name == "playground"), page)
    bench.settle()
    pad, finger = bench.node.locator(".pad"), Finger(page)
    pad.scroll_into_view_if_needed()
    (x, y), scrolled = middle(pad), page.evaluate("scrollY")
    finger.drag((x, y - 60), 0, 120)
    ink = "all => all.map(e => Number(e.dataset.grey))"
    grid = np.array(pad.locator(".square").evaluate_all(ink)).reshape(8, 8)
    assert (grid[2:6, 3:5] > 0).any(axis=1).all()
    assert (grid[:, [0, 1, 6, 7]] == 0).all()
    assert page.evaluate("scrollY") == scrolled
    finger.tap(middle(bench.node.get_by_role("button", name="Clear", exact=True)))
    page.wait_for_function(
        "e => [...e.querySelectorAll('.square')].every(s => s.dataset.grey === '0')",
        arg=pad.element_handle(),
        timeout=3000,
    )
    assert wrong == []


# ---------------------------------------------------------------- kept, shared, copied, refused


def changed_a_little(bench, lab):
    """Some state that is not the first one: half of the keys that solve the task, some rounds."""
    name, key, _ = lab.keys[0]
    bench.tab_to(name)
    bench.tab.keyboard.press(key)
    bench.settle()
    bench.play()


@every_lab
def test_a_state_is_shared_by_address_and_copied_as_python(desk, site, lab):
    with opened(desk, site, lab) as bench:
        before = bench.state(), bench.numbers()
        changed_a_little(bench, lab)
        bench.press("Share")
        assert "spoken" in bench.node.locator("p.message").get_attribute("class")  # seen at the box
        address, after = bench.tab.url, (bench.state(), bench.numbers())
        assert bench.text() == address
        assert after != before
        bench.press("Copy as Python")
        code, shown = bench.text(), bench.numbers()
    with opened(desk, site, lab, "#" + address.split("#")[1]) as bench:
        assert (bench.state(), bench.numbers()) == after
        bench.press("Undo")
        bench.settle()
        assert (bench.state(), bench.numbers()) == before
    assert_prints(lab, code, shown)


def assert_prints(lab, code, shown):
    """The copied Python prints the numbers that the page shows."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    found = [float(one) for one in re.findall(NUMBER, printed.getvalue())]
    assert shown
    assert len(found) == len(shown), printed.getvalue()
    for (text, value), one in zip(shown, found, strict=True):
        assert np.isclose(one, value, rtol=lab.close, atol=lab.close)
        decimals = len(text.partition(".")[2])
        assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.51 * 10**-decimals)


def fragment(lab, state):
    text = state if isinstance(state, str) else json.dumps(state)
    return f"#cfl-{lab.name}-0=1." + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@every_lab
def test_a_bad_address_gets_one_sentence_and_changes_nothing(desk, site, lab):
    state = json.dumps(lab.made().settings["state"])
    bound, field = next(
        (name, field)
        for name, field in lab_fields(lab).items()
        if field.table()["kind"] in ("whole", "number")
    )
    beyond = json.loads(state) | {bound: field.high + 1}
    bad = {
        f"#cfl-{lab.name}-0=2.eyJ9": "edition 2",
        fragment(lab, state.replace(f'"{bound}": ', f'"{bound}": NaN, "x": ', 1)): "cannot be read",
        fragment(lab, state[:-1] + ', "__proto__": {"k": 3}}'): "no setting",
        fragment(lab, beyond): re.escape(field.words),
        fragment(lab, json.loads(state) | {bound: "3"}): "must be a number",
    }
    with opened(desk, site, lab) as bench:
        before = bench.state(), bench.numbers()
        for one, words in bad.items():
            bench.tab.evaluate("one => { location.hash = one; }", one)
            bench.node.locator("p.warning", has_text=re.compile(words, re.IGNORECASE)).wait_for(
                timeout=3000
            )
            assert re.match(
                r"⚠ Not loaded\. [^\n]+ The laboratory stays as it was\.$", bench.said()
            )
            assert (bench.state(), bench.numbers()) == before
        assert bench.node.get_by_role("button", name="Undo").is_disabled()


def lab_fields(lab):
    """The table of a laboratory."""
    return __import__(f"clusterfl_core.live.labs.{lab.name}", fromlist=["FIELDS"]).FIELDS


@every_lab
def test_in_a_sandboxed_frame_as_of_colab(desk, site, lab):
    with opened(desk, site, lab, page="-frame") as bench:
        before = bench.numbers()
        changed_a_little(bench, lab)
        after = bench.numbers()
        assert after != before
        bench.press("Share")
        text = bench.text()
        assert re.fullmatch(r"1\.[\w-]+", text)
        bench.press("Undo")
        bench.node.locator("textarea").fill(text)
        bench.press("Load the text")
        bench.settle()
        assert bench.numbers() == after


@every_lab
def test_bad_settings_are_refused_in_one_sentence(lab):
    name, field = next(iter(lab_fields(lab).items()))
    with pytest.raises(ValueError, match=re.escape(field.words)):
        getattr(live, lab.name)(**{name: object()})


# ---------------------------------------------------------------- what single laboratories say


def test_the_page_turns_digits_as_the_library_does_but_for_one_grey_level_in_256():
    images = data.load("digits")
    for degrees in (15, 45, 80):
        x, _ = twists.turn(degrees)(images.x_train, images.y_train)
        ours, _ = replay._tilt(degrees)(images.x_train, images.y_train)
        apart = (x.int() - ours.int()).abs()
        assert apart.max() <= 1
        assert (apart > 0).float().mean() < 1e-4


def test_fedavg_on_bowls_comes_to_rest_where_the_closed_form_says():
    bowls = {"centers": [[-1.6, -1], [1.4, -1.3], [1.2, 1.5]], "turn": [60, -20, 0]}
    for stretch, pairs in ([4, 3, 1.5], [2, 2, 2]), ([1, 1, 1], [1, 5, 2]):
        federation = replay.bowls(**bowls, stretch=stretch, pairs=pairs)
        best = replay.resting_point(federation, cf.LocalSGD(1, 0.3))
        held = zip(federation.train.x, federation.train.mask(), strict=True)
        bends = [2 * x[there].T @ x[there] / there.sum() for x, there in held]
        pulls = [
            n * bend @ (best - torch.tensor(center, dtype=best.dtype))
            for n, bend, center in zip(pairs, bends, bowls["centers"], strict=True)
        ]
        assert sum(pulls).norm() < 1e-9, "one local step rests where the mean loss is lowest"
        local = cf.LocalSGD(20, 0.1)
        fedavg = cf.FedAvg(cf.models.LinearRegression(2), local)
        run = replay.run(fedavg, federation, 30, models=[[0, -2]])
        rest = replay.resting_point(federation, local)
        assert torch.allclose(run.models.flatten()[0], rest, atol=1e-8)
        assert ((rest - best).norm() < 1e-9) == (stretch == [1, 1, 1])


def test_the_angle_dial_plays_in_a_worker(desk, site):
    (lab,) = [lab for lab in LABS if lab.name == "angle"]
    with opened(desk, site, lab) as bench:
        assert bench.tab.workers == []
        bench.play()
        assert len(bench.tab.workers) == 1


def lab_named(name):
    return next(lab for lab in LABS if lab.name == name)


def test_rewind_keeps_the_settings_and_reset_does_not(desk, site):
    with opened(desk, site, lab_named("drift")) as bench:
        first = bench.state(), bench.numbers()
        bench.node.get_by_label("local steps τ", exact=True).press("ArrowRight")
        turned = bench.state(), bench.numbers()
        bench.play()
        bench.press("Rewind")
        bench.settle()
        assert (bench.state(), bench.numbers()) == turned
        bench.press("Rewind")  # there already: nothing to undo
        bench.press("Undo")
        bench.settle()
        assert "Round 3." in bench.state()
        bench.press("Reset")
        bench.settle()
        assert (bench.state(), bench.numbers()) == first


def test_a_new_map_is_not_judged_by_the_old_one_and_reset_empties_nothing(desk, site):
    with opened(desk, site, lab_named("phase")) as bench:
        task = bench.node.locator(".task")
        first = bench.numbers()
        said = bench.node.evaluate(
            """async lab => {
              const root = lab.shadowRoot, found = [];
              const spread = [...root.querySelectorAll("label")]
                .find(l => l.textContent === "spread within a group").control;
              const look = () => found.push(root.querySelector(".task .progress").textContent);
              new MutationObserver(look).observe(root.querySelector(".task .progress"),
                { childList: true });
              spread.value = 0.3;
              spread.dispatchEvent(new Event("input", { bubbles: true }));
              await new Promise(done => (function wait() {
                lab.busy === false ? done() : requestAnimationFrame(wait); })());
              return found;
            }"""
        )
        assert said[0] == "A new map: 0 of 12 draws. It is judged when it is drawn."
        assert all(one.startswith("A new map") for one in said[:-1])
        assert said[-1] == task.locator(".progress").text_content()
        assert said[-1].startswith("Solved: ")
        bench.press("Reset")
        bench.settle()
        assert bench.numbers() == first
        assert "12 draws" in bench.state()


def test_what_is_only_passed_with_the_mouse_is_not_kept(desk, site):
    with opened(desk, site, lab_named("wedges")) as bench:
        progress = bench.node.locator(".task .progress")
        fewest = lambda: re.search(r"Fewest so far: (\S+) %", progress.inner_text())[1]  # noqa: E731
        before = fewest()
        x, y = middle(bench.node.get_by_role("slider", name="edge of the wedge", exact=True))
        bench.tab.mouse.move(x, y)
        bench.tab.mouse.down()
        bench.tab.mouse.move(x - 30, y - 5, steps=3)
        assert fewest() != before, "it shows what would be"
        bench.tab.mouse.move(x, y, steps=3)
        bench.tab.mouse.up()
        assert fewest() == before
        bench.node.get_by_label("distance Δ", exact=True).press("ArrowRight")
        assert fewest() != before


def test_a_race_is_said_from_its_start_to_its_end(desk, site):
    with opened(desk, site, lab_named("race")) as bench:
        status = bench.node.get_by_role("status")
        bench.press("Step")
        assert status.text_content() == "Racing …"
        assert bench.node.locator(".task .progress").text_content() == "Racing …"
        bench.settle()
        assert re.match(
            r"Raced\. Rounds a second: plain, one after another: \S+; Gram", status.text_content()
        )


def test_springs_do_not_answer_before_they_are_played(desk, site):
    with opened(desk, site, lab_named("springs")) as bench:
        rows = bench.node.locator(".readings div")
        asked = rows.filter(has_text="gap where the mean rests")
        assert "after 3 rounds" in asked.inner_text()
        bench.play()
        assert re.search(r"0\.\d{3}$", asked.inner_text())


def test_the_attacker_is_told_how_long_the_lie_is(desk, site):
    with opened(desk, site, lab_named("attack")) as bench:
        bench.node.get_by_label("lie of client 11", exact=True).select_option("arrow")
        assert "sends an arrow 0.58 long" in bench.state()
        (_, sent), (_, taken), *_ = bench.numbers()
        assert sent == taken == pytest.approx(np.hypot(0.5, 0.3))
        tip = bench.node.get_by_role("slider", name="tip of the lie", exact=True)
        for _ in range(3):
            tip.press("Shift+ArrowLeft")
        assert "and is 2.02 long" in tip.get_attribute("aria-valuetext")
        bench.node.get_by_label("clip to the median length", exact=True).check()
        bench.settle()
        (_, sent), (_, taken), *_ = bench.numbers()
        assert taken < sent


@pytest.mark.parametrize("lie", ["arrow", "spin", "flip"])
def test_every_lie_is_copied_as_python(desk, site, lie):
    lab = lab_named("attack")
    with opened(desk, site, lab) as bench:
        bench.node.get_by_label("lie of client 11", exact=True).select_option(lie)
        bench.node.get_by_label("clip to the median length", exact=True).check()
        bench.play()
        bench.press("Copy as Python")
        assert_prints(lab, bench.text(), bench.numbers())


def test_what_is_dragged_is_copied_in_three_decimals(desk, site):
    lab = lab_named("compass")
    with opened(desk, site, lab) as bench:
        x, y = middle(bench.node.get_by_role("slider", name="wrong model", exact=True))
        bench.tab.mouse.move(x, y)
        bench.tab.mouse.down()
        bench.tab.mouse.move(x - 31, y + 17, steps=3)
        bench.tab.mouse.up()
        bench.press("Copy as Python")
        assert re.search(r"\[\[0,0.4\],\[0.\d{1,3},-0.\d{1,3}\]\]", bench.text()), bench.text()
        assert_prints(lab, bench.text(), bench.numbers())


@pytest.mark.parametrize("name", ["compass", "drift", "balance"])
def test_no_name_lies_on_a_mark(desk, site, name):
    with opened(desk, site, lab_named(name)) as bench:
        handles = bench.node.get_by_role("slider").locator("visible=true")
        for at in range(min(2, bench.node.locator(".handle").count())):
            for key in ["Shift+ArrowRight", "Shift+ArrowDown", "Shift+ArrowDown"]:
                bench.node.locator(".handle").nth(at).press(key)
        bench.settle()
        covered = bench.node.evaluate(
            """lab => {
              const boxes = kind => [...lab.shadowRoot.querySelectorAll(kind)]
                .map(e => [e.getBoundingClientRect(), e.textContent]);
              const marks = boxes(".plane .handle .edge, .plane > svg .star");
              return boxes(".plane text.name").flatMap(([name, words]) => marks
                .filter(([mark]) =>
                  Math.min(name.right, mark.right) - Math.max(name.left, mark.left) > 4 &&
                  Math.min(name.bottom, mark.bottom) - Math.max(name.top, mark.top) > 6)
                .map(([mark]) => [words, mark.x, mark.y]));
            }"""
        )
        assert handles.count()
        assert covered == []


CROSSED = """lab => [...lab.shadowRoot.querySelectorAll("svg.chart")].flatMap(chart =>
  [...chart.querySelectorAll("text.name")].flatMap(name => {
    const { x, y, width, height } = name.getBBox();
    return [...chart.querySelectorAll("polyline")].filter(line =>
      Array.from({ length: Math.ceil(line.getTotalLength()) + 1 }, (_, far) =>
        line.getPointAtLength(far))
        .some(at => at.x > x && at.x < x + width && at.y > y + 3 && at.y < y + height - 3))
      .map(() => name.textContent);
  }))"""


@pytest.mark.parametrize("name", ["deadline", "phase", "race", "threshold", "wedges"])
def test_no_line_of_a_chart_crosses_a_name(desk, site, name):
    lab = lab_named(name)
    with opened(desk, site, lab) as bench:
        for where in ("at first", "when solved"):
            for size in (WIDE, PHONE):
                bench.tab.set_viewport_size(size)
                browsing.settle(bench.tab)
                assert bench.node.locator("svg.chart text.name").count() > 0
                assert bench.node.evaluate(CROSSED) == [], (where, size)
            if where == "at first":
                for control, key, times in lab.keys:
                    bench.tab_to(control)
                    for _ in range(times):
                        bench.tab.keyboard.press(key)
                        bench.settle()


def test_the_lie_stays_in_the_picture_and_follows_the_hand(desk, site):
    lab = lab_named("attack")
    state = lab.made().settings["state"] | {"lie": "arrow", "arrow": [[1.5, 1.2]], "rounds": 40}
    with opened(desk, site, lab, fragment(lab, state)) as bench:
        tip = bench.node.get_by_role("slider", name="tip of the lie", exact=True)
        assert "The liar is alone" in bench.state(), "its model runs away"

        def inside():
            frame, box = bench.node.locator(".plane").first.bounding_box(), tip.bounding_box()
            middles = [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2]
            ends = [(frame[a], frame[a] + frame[b]) for a, b in (("x", "width"), ("y", "height"))]
            return all(
                low + 8 <= at <= high - 8 for at, (low, high) in zip(middles, ends, strict=True)
            )

        assert inside()
        x, y = middle(tip)
        bench.tab.mouse.move(x, y)
        bench.tab.mouse.down()
        bench.tab.mouse.move(x - 60, y + 45, steps=6)
        bench.settle()
        assert middle(tip) == pytest.approx((x - 60, y + 45), abs=1.5), "it goes with the hand"
        length = float(re.search(r"lie, (\S+) long", tip.text_content())[1])
        assert length == pytest.approx(bench.numbers()[0][1], abs=0.006)
        bench.tab.mouse.up()
        assert middle(tip) == pytest.approx((x - 60, y + 45), abs=1.5), "it stays where it was put"
        for _ in range(8):
            tip.press("Shift+ArrowRight")
            tip.press("Shift+ArrowDown")
            assert inside()
        assert "and is 3.54 long" in tip.get_attribute("aria-valuetext")


def test_whoever_leaves_a_race_does_not_wait_for_it(desk, site):
    with opened(desk, site, lab_named("race")) as bench:
        for name, key in [("clients", "End"), ("local steps τ", "End"), ("hidden units", "End")]:
            bench.node.get_by_label(name, exact=True).press(key)
        bench.press("Step")
        bench.tab.wait_for_timeout(100)
        assert bench.node.evaluate("lab => lab.busy")
        for name in ("clients", "local steps τ", "hidden units"):
            bench.node.get_by_label(name, exact=True).press("Home")
        assert not bench.node.evaluate("lab => lab.busy")
        bench.press("Step")
        bench.settle()
        assert "best of 1 try" in bench.node.locator("caption").first.inner_text()
        for _ in range(50):  # a worker in a loop is ended within seconds
            if len(bench.tab.workers) <= 2:
                break
            bench.tab.wait_for_timeout(100)
        assert len(bench.tab.workers) <= 2, "the old ones are at work"


def test_a_mission_says_how_it_stands_before_it_is_judged(desk, site):
    lab = lab_named("playground")
    alone = next(one for one in playground.MISSIONS if one["key"] == "alone")
    state = lab.made().settings["state"] | alone["setup"] | {"mission": "alone", "rounds": 2}
    with opened(desk, site, lab, fragment(lab, state)) as bench:
        said = bench.node.locator(".task .progress").inner_text()
    found = re.match(
        r"So far: alone (\S+) %, the best of the others, [\w-]+, (\S+) %: (\S+) points "
        r"(ahead|behind), where 2 points ahead .*are asked\. "
        r"Judged from round 10 on; this is round 2\.",
        said,
    )
    own, other, by = map(float, found.groups()[:3])
    assert abs(own - other) == pytest.approx(by, abs=0.11)
    assert (own < other) == (found[4] == "behind")


def test_the_wedges_say_what_does_not_count(desk, site):
    with opened(desk, site, lab_named("wedges")) as bench:
        progress = bench.node.locator(".task .progress")
        assert "more may be left out" in progress.inner_text()
        bench.node.get_by_label("leave out |z| below", exact=True).press("End")
        kept = bench.numbers()[0][1]
        assert f"It does not count: {1000 - kept:.0f} points too few are kept." in (
            progress.inner_text()
        )
        bench.node.get_by_label("distance Δ", exact=True).press("End")
        assert "too far apart and" in progress.inner_text()


def test_a_shared_link_that_is_played_again_says_so(desk, site):
    lab = lab_named("playground")
    state = lab.made().settings["state"]
    find = next(one for one in playground.MISSIONS if one["key"] == "find")
    state |= find["setup"] | {"mission": "find", "rounds": 10, "k": 4}
    with opened(desk, site, lab) as bench:
        bench.tab.evaluate("one => { location.hash = one; }", fragment(lab, state))
        progress, status = bench.node.locator(".task .progress"), bench.node.get_by_role("status")
        progress.get_by_text(re.compile("Playing round \\d of 10")).wait_for()
        assert "Mission “Find k” is judged then." in progress.text_content()
        assert status.text_content() == "Loaded. Its rounds are played."
        bench.settle()
        assert "Solved: 4 groups, 4 models" in progress.text_content()
        assert status.text_content() == bench.state(), "the end is said"


@pytest.mark.parametrize("by", ["models", "cross", "losses"])
def test_by_losses_a_lower_threshold_moves_more_models(by):
    settings = {"by": by, "link": "single", "near": 1.2, "noise": 1, "points": 40}
    for t in (10, 40, 60, 100):
        found = cf.live.labs.threshold.cut(t, **settings, size=3, draw=0)
        # all up; by losses the others' down to each, then the groups'
        assert found["moved"] == (12 if by == "models" else 12 + 12 * 11 + 12 * found["groups"])


@pytest.mark.parametrize("more", [{}, {"near": 0.8}, {"noise": 1.6}, {"by": "losses"}])
def test_the_window_of_the_threshold_is_where_all_stand_right(more):
    lab = cf.live.labs.threshold
    settings = {"by": "models", "link": "single", "near": 1.2, "noise": 1, "points": 40}
    settings |= {"size": 3, "draw": 0} | more
    found = [t for t in range(0, 101) if lab.cut(t, **settings)["right"] == 100]
    assert lab.window(**settings) == ((found[0], found[-1]) if found else None)
