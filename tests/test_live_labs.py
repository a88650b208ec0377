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
import numpy as np
import pytest
from browser import PHONE, WIDE, visited
from test_live_pages import FRAME, NARROW

from clusterfl_core import live
from clusterfl_core.live import page as cell


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
        "wedges",
        [("distance Δ", "ArrowRight", 24), ("leave out |z| below", "ArrowRight", 10)],
        "Solved: ",
    ),
]
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
        (folder / f"{lab.name}.html").write_text(FRAME.format(own), encoding="utf-8")
        (folder / f"{lab.name}-frame.html").write_text(FRAME.format(frame), encoding="utf-8")
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
            self.tab.keyboard.press("Tab")
            if self.node.evaluate(focused) == name:
                return
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


@contextlib.contextmanager
def opened(browser, site, lab, fragment="", **options):
    """The page of a laboratory, as a file; no error, nothing leaves."""
    address = f"{lab.name}.html{fragment}"
    with visited(browser, f"{site.as_uri()}/", address, **options) as (tab, wrong):
        bench = Bench(lab, tab)
        bench.settle()
        yield bench
    assert wrong == []


# ---------------------------------------------------------------- what Python puts together


@every_lab
def test_its_script_is_small_and_in_one_scope(lab):
    script = live.script(lab.name)
    assert len(gzip.compress(script.encode())) <= 60_000
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


def test_every_laboratory_is_tested():
    assert {lab.name for lab in LABS} == set(live.__all__) - {"Laboratory", "plane", "script"}
    assert {path.stem for path in (cell.HERE / "labs").glob("*.js")} <= set(live.__all__)


def test_a_script_carries_what_its_laboratory_needs_and_no_more():
    assert ("engine", "cfl") not in cell.modules("plane")
    assert ("engine", "lab") not in cell.modules("balance")


# ---------------------------------------------------------------- seen, and worked by keys


@every_lab
def test_nothing_is_cut_off_or_unnamed(browser, site, lab):
    with opened(browser, site, lab) as bench:
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


CONTROLS = """lab => [...lab.shadowRoot.querySelectorAll("button, input, select, [role=slider]")]
  .filter(e => e.checkVisibility())
  .map(e => ({
    name: (e.ariaLabel ?? e.labels?.[0]?.textContent ?? e.textContent).trim(),
    role: e.getAttribute("role") ?? (e.type === "range" ? "slider" : e.localName),
    value: e.ariaValueText ?? e.value,
    reached: e.tabIndex === 0,
  }))"""


@every_lab
def test_every_control_has_a_name_and_a_value_and_obeys_keys(browser, site, lab):
    with opened(browser, site, lab) as bench:
        for summary in bench.node.locator("summary").all():
            summary.click()
        controls = bench.node.evaluate(CONTROLS)
        names = [(one["role"], one["name"]) for one in controls]
        assert len(names) == len(set(names)), "two controls have one name"
        assert all(one["name"] and one["reached"] for one in controls)
        for one in controls:
            if one["role"] != "slider":
                continue
            assert one["value"]
            slider = bench.node.get_by_role("slider", name=one["name"], exact=True)
            if not slider.count():
                continue
            moved = set()
            for key in ("ArrowRight", "ArrowLeft", "ArrowLeft"):
                slider.press(key)
                bench.settle()
                moved.add(slider.evaluate("e => e.ariaValueText ?? e.value"))
            assert len(moved) > 1, one["name"]
        bench.press("Reset")
        bench.press("Undo")
        bench.settle()


@every_lab
def test_the_task_is_solved_by_keys_alone(browser, site, lab):
    with opened(browser, site, lab) as bench:
        task = bench.node.locator(".task")
        assert "☐" in task.inner_text()
        for name, key, times in lab.keys:
            bench.tab_to(name)
            for _ in range(times):
                bench.tab.keyboard.press(key)
                bench.settle()
        assert lab.solved in task.inner_text()
        assert "☑" in task.inner_text()


# ---------------------------------------------------------------- kept, shared, copied, refused


def changed_a_little(bench, lab):
    """Some state that is not the first one: half of the keys that solve the task, some rounds."""
    name, key, _ = lab.keys[0]
    bench.tab_to(name)
    bench.tab.keyboard.press(key)
    bench.settle()
    bench.play()


@every_lab
def test_a_state_goes_into_the_address_and_comes_back(browser, site, lab):
    with opened(browser, site, lab) as bench:
        before = bench.state(), bench.numbers()
        changed_a_little(bench, lab)
        bench.press("Share")
        address, after = bench.tab.url, (bench.state(), bench.numbers())
        assert bench.text() == address
        assert after != before
    with opened(browser, site, lab, "#" + address.split("#")[1]) as bench:
        assert (bench.state(), bench.numbers()) == after
        bench.press("Undo")
        bench.settle()
        assert (bench.state(), bench.numbers()) == before


@every_lab
def test_the_copied_python_prints_what_the_laboratory_shows(browser, site, lab):
    with opened(browser, site, lab) as bench:
        changed_a_little(bench, lab)
        bench.press("Copy as Python")
        code, shown = bench.text(), bench.numbers()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    found = [
        float(one)
        for one in re.findall(r"[-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan)", printed.getvalue())
    ]
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
def test_a_bad_address_gets_one_sentence_and_changes_nothing(browser, site, lab):
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
    with opened(browser, site, lab) as bench:
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
def test_in_a_sandboxed_frame_as_of_colab(browser, site, lab):
    with visited(browser, f"{site.as_uri()}/", f"{lab.name}-frame.html") as (tab, wrong):
        bench = Bench(lab, tab, tab.frame_locator("iframe"))
        bench.settle()
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
    assert wrong == []


@every_lab
def test_bad_settings_are_refused_in_one_sentence(lab):
    name, field = next(iter(lab_fields(lab).items()))
    with pytest.raises(ValueError, match=re.escape(field.words)):
        getattr(live, lab.name)(**{name: object()})
