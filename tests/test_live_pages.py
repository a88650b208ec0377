"""Laboratories as a reader has them: by mouse, keys and finger, in a page, a frame, JupyterLab."""

import base64
import contextlib
import gzip
import html
import json
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import browser as browsing
import house
import live_pages
import nbformat
import numpy as np
import pytest
from browser import PHONE, WIDE, jupyter_lab, served, visited
from docutils import nodes
from docutils.utils import new_document
from nbformat.v4 import new_code_cell, new_notebook

from clusterfl_core import figures, live
from clusterfl_core.live import page as cell
from clusterfl_core.live import sources

NARROW = {"width": 320, "height": 700}
TASK = "Make IFCA lose a group with the smallest noise you can."
FRAME = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>A page</title>
<style>:root {{ color-scheme: light dark }} body {{ margin: 8px; font: 16px sans-serif;
background: light-dark(#fff, #14181e); color: light-dark(#222, #ced6dd) }}</style>
<main><h1>A page</h1>{}</main></html>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with a page for each way to stand in one."""
    folder = tmp_path_factory.mktemp("site")
    one = live.plane(task=TASK)._repr_html_()
    sandbox = f'<iframe sandbox="allow-scripts" title="An output" srcdoc="{html.escape(one)}"'
    pages = {
        "one": one,
        "own": one.replace("<cfl-plane ", "<cfl-plane address "),
        "two": one + live.plane(noise=0)._repr_html_(),
        "small": live.plane(small=True)._repr_html_(),
        "frame": f'{sandbox} style="width: 700px; height: 1200px"></iframe>',
    }
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(FRAME.format(body), encoding="utf-8")
    return folder


class Bench:
    """A laboratory under test, and what a reader does with it."""

    def __init__(self, page, within=None):
        self.page, self.lab = page, (within or page).locator("cfl-plane").first

    def press(self, name):
        self.lab.get_by_role("button", name=name, exact=True).click()

    def steps(self, count):
        """Press Step so often, as fast as the page can."""
        step = self.lab.get_by_role("button", name="Step")
        step.evaluate("(step, count) => { while (count--) step.click(); }", count)

    def handle(self, name):
        return self.lab.get_by_role("slider", name=name, exact=True)

    def at(self, name):
        """Where a handle says that it is."""
        text = self.handle(name).get_attribute("aria-valuetext").replace("−", "-")
        return [float(value) for value in re.match(r"(\S+) across, (\S+) up", text).groups()]

    def said(self, kind):
        return self.lab.locator(f"p.{kind}").inner_text()

    def round(self):
        return int(re.match(r"Round (\d+)\.", self.said("state"))[1])

    def settings(self):
        self.lab.get_by_text("More settings").click()

    def slide(self, name, value):
        self.lab.get_by_label(name, exact=True).fill(str(value))

    def text(self):
        return self.lab.locator("textarea").input_value()


@contextlib.contextmanager
def opened(browser, site, name="one", fragment="", **options):
    """Open a page of the site as a file and give its first laboratory."""
    with visited(browser, f"{site.as_uri()}/", f"{name}.html{fragment}", **options) as (
        page,
        wrong,
    ):
        yield Bench(page)
    assert wrong == []


# ---------------------------------------------------------------- what Python puts together


def test_the_scripts_of_a_page_are_small():
    size = len(gzip.compress(live.script("plane").encode()))
    assert size <= 60_000
    assert size + len(gzip.compress(sources.packed_digits().encode())) <= 150_000


def test_modules_can_share_one_scope():
    script = live.script("plane")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", script, re.MULTILINE)
    assert len(names) > 100
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("folder", ["parts", "labs"])
def test_every_module_is_taken_and_imports_what_is_there(folder):
    modules = {path.stem: path for path in (cell.HERE / folder).glob("*.js")}
    if folder == "parts":
        assert set(modules) == set(cell.PARTS)
    for path in modules.values():
        text = path.read_text(encoding="utf-8")
        imports = re.findall(r'^import \{([^}]+)\} from "([^"]+)";$', text, re.MULTILINE)
        assert len(imports) == len(re.findall(r"^import\b", text, re.MULTILINE))
        for names, source in imports:
            other = (path.parent / source).read_text(encoding="utf-8")
            for name in re.findall(r"\w+", names):
                assert re.search(rf"^export (?:function|class|const|let) {name}\b", other, re.M)
                assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is not used"


def test_colours_and_shapes_are_those_of_the_figures():
    known = cell.looks()
    assert known["colours"] == list(figures.CLUSTERS)
    assert [mark["name"] for mark in known["markers"]] == [cell.NAMES[m] for m in figures.MARKERS]
    (picture,) = re.findall(r"<svg.*</svg>", live.plane()._repr_html_())
    for j in range(3):
        assert figures.CLUSTERS[j] in picture
        assert known["markers"][j]["outline"] in picture
    assert len(ElementTree.fromstring(picture).findall("path")) == 1 + 18 + 3 + 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noise": float("nan")}, "noise must be in"),
        ({"noise": 3}, "noise must be in"),
        ({"clients": 10**6}, "clients must be at most 12"),
        ({"points": 0}, "points must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"truth": [[1, 2, 3]]}, "truth must be 1 to 4 rows of two numbers"),
        ({"truth": 3}, "truth must be rows of two numbers"),
        ({"models": [[0, 9]]}, "models must be in"),
        ({"models": [[0, 0]] * 3, "truth": [[0, 0]], "clients": 2}, "models must be at most the 2"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        live.plane(**settings)


def page_of(*texts):
    """What the extension makes of a page with some raw HTML."""
    document = new_document("page")
    for text in texts:
        document += nodes.raw("", text, format="html", classes=["output", "text_html"])
    app = SimpleNamespace(builder=SimpleNamespace(format="html"))
    live_pages.laboratories(app, document, "page")
    return [(raw.astext(), raw["classes"]) for raw in document.findall(nodes.raw)]


def test_the_book_keeps_a_script_once_a_page():
    one = live.plane()._repr_html_()
    (first, classes), (other, _), (table, kept) = page_of(one, one, "<table></table>")
    assert first == one.replace("<cfl-plane ", "<cfl-plane address ")
    assert other == re.sub("(?s)<script.*</script>\n", "", first)
    assert classes == ["output"]  # the theme gives text_html a pale background in dark mode
    assert (table, kept) == ("<table></table>", ["output", "text_html"])


def test_the_front_page_has_the_small_laboratory_where_its_mark_is():
    ((text, _),) = page_of(f"{live_pages.FRONT}\n")
    assert html.escape('"small": true') in text
    assert "<script data-cfl" in text


# ---------------------------------------------------------------- seen


@pytest.mark.parametrize("size", [WIDE, PHONE, NARROW], ids=["1200", "390", "320"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_off_or_unnamed(browser, site, dark, size):
    with opened(browser, site, dark=dark, size=size) as bench:
        bench.settings()
        bench.press("Step")
        bench.press("Draw 200 starts")
        bench.press("Copy as Python")
        bench.page.wait_for_function(
            "() => !document.querySelector('cfl-plane').shadowRoot"
            ".querySelector('.starts p').textContent.includes('so far')"
        )
        bench.page.evaluate(browsing.AXE.read_text(encoding="utf-8"))
        found = bench.page.evaluate("axe.run().then(r => r.violations.map(v => v.id))")
        assert found == []
        width = "() => document.documentElement.scrollWidth"
        assert bench.page.evaluate(width) <= size["width"]
        assert (
            bench.page.evaluate(
                """() => {
              const root = document.querySelector("cfl-plane").shadowRoot;
              const { right } = root.querySelector(".live").getBoundingClientRect();
              return [...root.querySelectorAll(".live *:not(.handle, .handle *, .plane svg *)")]
                .filter(e => e.getBoundingClientRect().right > right + 1).map(e => e.outerHTML);
            }"""
            )
            == []
        )


def test_no_choice_is_told_by_colour_alone(browser, site):
    with opened(browser, site) as bench:
        numbers = bench.lab.locator(".plane > svg .number").all_text_contents()
        rows = bench.lab.locator(".identities td .spoken").all_inner_texts()
        assert sorted(set(numbers)) == ["0", "1", "2"]
        for j, row in enumerate(rows):
            assert sum(map(int, re.findall(r"\d+", row))) == numbers.count(str(j))


def test_the_small_one_plays_by_itself_unless_motion_is_unwelcome(browser, site):
    with opened(browser, site, "small") as bench:
        bench.page.wait_for_timeout(700)
        assert bench.lab.get_by_role("button", name="Play").is_visible()
        assert bench.lab.get_by_text("Round 0.").is_visible()
        bench.press("Step")
        assert bench.lab.get_by_text("Round 1.").is_visible()
        assert (
            bench.handle("model 0").evaluate("e => getComputedStyle(e).transitionDuration") == "0s"
        )
    context = browser.new_context(viewport=WIDE, reduced_motion="no-preference")
    page = context.new_page()
    page.goto(f"{site.as_uri()}/small.html")
    moving = Bench(page)
    moving.lab.get_by_text("Round 2.").wait_for()
    moving.press("Pause")
    assert moving.lab.get_by_role("button", name="Play").is_visible()
    context.close()


@pytest.mark.parametrize("paper", [False, True], ids=["no scripts", "print"])
def test_a_still_picture_and_a_sentence_stand_where_nothing_moves(browser, site, paper):
    context = browser.new_context(java_script_enabled=paper)
    page = context.new_page()
    page.goto(f"{site.as_uri()}/one.html")
    if paper:
        page.emulate_media(media="print")
        assert not page.get_by_role("button", name="Step").is_visible()
    assert page.locator("cfl-plane > figure svg").is_visible()
    assert page.get_by_text("18 clients in 3 groups choose among 3 models").is_visible()
    context.close()


# ---------------------------------------------------------------- moved


def drag(page, start, x, y):
    box = start.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + x, box["y"] + box["height"] / 2 + y, steps=4)
    page.mouse.up()


def test_by_mouse(browser, site):
    with opened(browser, site) as bench:
        scale = 5 / bench.lab.locator(".plane").bounding_box()["width"]  # of a pixel
        for _ in range(3):
            bench.press("Step")
        assert bench.round() == 3
        after = bench.at("model 0")
        assert after != [-0.6, 0.3]

        drag(bench.page, bench.handle("true model of group triangle"), 60, 30)
        assert bench.round() == 3, "another world is played again to the same round"
        star = bench.at("true model of group triangle")
        assert star == pytest.approx([60 * scale, 1.2 - 30 * scale], abs=0.02)
        assert bench.at("model 2") != [0.3, 0.9]

        drag(bench.page, bench.handle("model 0"), -30, -60)
        assert bench.round() == 0, "a model that is moved begins a run"
        moved = bench.at("model 0")
        assert moved[0] < after[0]
        assert moved[1] > after[1]
        bench.press("Copy as Python")
        assert not re.search(r"\.\d{4}", bench.text()), "more digits than the state has"

        bench.press("Undo")
        assert bench.round() == 3
        assert bench.at("true model of group triangle") == star
        bench.press("Undo")
        assert bench.at("true model of group triangle") == [0, 1.2]
        assert bench.at("model 0") == after
        bench.press("Undo")
        assert bench.round() == 2
        bench.press("Reset")
        assert bench.round() == 0
        assert bench.at("model 0") == [-0.6, 0.3]
        bench.press("Play")
        bench.lab.get_by_text("Round 1.").first.wait_for()
        bench.press("Pause")


def tab_to(page, name):
    """Press Tab until what has the name, or the label, is focused."""
    focused = """() => {
      let at = document.activeElement;
      while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
      return at.getAttribute("aria-label") ?? at.labels?.[0]?.textContent ?? at.textContent;
    }"""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == name:
            return
    raise AssertionError(f"{name} is not reached by Tab")


def test_the_task_is_solved_by_keys_alone(browser, site):
    with opened(browser, site) as bench:
        task, keys = bench.lab.locator(".task"), bench.page.keyboard
        assert "☐" in task.inner_text()
        tab_to(bench.page, "model 2")
        for _ in range(5):
            keys.press("Shift+ArrowRight")
            keys.press("Shift+ArrowUp")
        assert bench.at("model 2") == [2.5, 2.5]
        progress = task.locator(".progress")
        progress.get_by_text("But model 2 has no client at the start").wait_for()
        bench.steps(9)
        assert "model 2 has no client at the start: that does not count." in progress.inner_text()
        tab_to(bench.page, "Rewind")
        keys.press("Enter")
        tab_to(bench.page, "model 2")
        for key in ["Shift+ArrowDown"] * 5 + ["ArrowDown"] + ["ArrowLeft"] * 2:
            keys.press(key)
        assert bench.at("model 2") == [2.3, -0.1]
        tab_to(bench.page, "Step")
        for _ in range(9):
            keys.press("Enter")
        half = "Your smallest noise: 0.6. Can you do it with less?"
        task.locator(".progress").get_by_text(half).wait_for()
        assert half in task.locator("[aria-live]").text_content()
        assert task.get_by_role("paragraph").filter(has_text=half).count() == 1  # read once
        assert "☐" in task.inner_text()
        tab_to(bench.page, "noise")
        keys.press("Home")
        solved = "Solved: you lost a group without any noise."
        task.locator(".progress").get_by_text(solved).wait_for()
        assert task.get_by_role("paragraph").filter(has_text=solved).count() == 1  # said once
        assert "☑" in task.inner_text()
        spoken = bench.lab.get_by_role("status").inner_text()
        assert "the groups circle and triangle share model 0" in spoken


def test_by_finger(browser, site):
    context = browser.new_context(viewport=NARROW, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{site.as_uri()}/one.html")
    bench, wire = Bench(page), context.new_cdp_session(page)
    handle = bench.handle("model 1")
    handle.scroll_into_view_if_needed()
    box, scrolled = handle.bounding_box(), page.evaluate("scrollY")
    assert min(box["width"], box["height"]) >= 44
    small = page.eval_on_selector(
        "cfl-plane",
        """lab => [...lab.shadowRoot.querySelectorAll("button, select, summary, input")]
          .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 44)
          .map(e => e.outerHTML)""",
    )
    assert small == []

    def touch(kind, x, y):
        points = [] if kind == "touchEnd" else [{"x": x, "y": y}]
        wire.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    x, y = box["x"] + 22 + 9, box["y"] + 22 - 9  # a finger is not exact
    touch("touchStart", x, y)
    for step in range(1, 7):
        touch("touchMove", x + 5 * step, y + 10 * step)
    touch("touchEnd", 0, 0)
    scale = 5 / bench.lab.locator(".plane").bounding_box()["width"]
    assert bench.at("model 1") == pytest.approx([0.6 + 30 * scale, -0.2 - 60 * scale], abs=0.03)
    assert page.evaluate("scrollY") == scrolled
    bench.lab.get_by_role("button", name="Step").tap()  # at once: no fling of the drag takes it
    bench.lab.locator("p.state", has_text=re.compile(r"^Round 1\.")).wait_for()
    assert bench.round() == 1
    context.close()


def test_all_controls_change_the_run(browser, site):
    with opened(browser, site) as bench:
        bench.settings()
        for name, value in [("clients a group", 4), ("models k", 5), ("groups", 4)]:
            bench.slide(name, value)
        assert bench.handle("true model of group diamond").is_visible()
        assert bench.lab.locator(".plane > svg .number").count() == 16
        assert bench.lab.locator(".identities tr").count() == 5
        bench.slide("participation", 0.5)
        assert bench.lab.locator(".plane > svg .ring").count() == 8
        bench.lab.get_by_label("option").select_option("models")
        bench.slide("local steps τ", 3)
        bench.slide("points a client", 20)
        before = bench.lab.locator(".plane > svg").inner_html()
        bench.press("Deal new points")
        assert bench.lab.locator(".plane > svg").inner_html() != before
        bench.press("Copy as Python")
        for words in ["clients=4", "points=20", "clusters=5", "participation=0.5", '"models"']:
            assert words in bench.text()
        assert "cf.LocalSGD(steps=3, step_size=0.1)" in bench.text()


def test_two_hundred_starts_and_what_their_loss_says(browser, site):
    with opened(browser, site) as bench:
        bench.press("Draw 200 starts")
        said = bench.lab.locator(".starts p")
        bench.lab.locator(".starts p", has_text=re.compile("^Of 200 starts")).wait_for()
        right, wrong = map(int, re.findall(r"(\d+) (?:end|do not)", said.inner_text()))
        assert right + wrong == 200
        assert min(right, wrong) > 0
        assert bench.lab.locator(".starts .hit").count() == right
        assert bench.lab.locator(".starts .miss").count() == wrong
        for button, words in [
            ("of lowest loss", "every group has a model"),
            ("lost", "share model"),
        ]:
            bench.lab.get_by_role("button", name=button).click()
            assert bench.round() == 0
            bench.steps(30)
            assert words in bench.said("state")
        bench.slide("noise", 1)
        assert not said.is_visible(), "what was counted in another world is put away"


def test_a_start_that_was_drawn_is_no_answer(browser, site):
    with opened(browser, site) as bench:
        bench.slide("noise", 0)
        bench.press("Draw 200 starts")
        bench.lab.locator(".starts p", has_text=re.compile("^Of 200 starts")).wait_for()
        bench.lab.get_by_role("button", name="lost").click()
        for _ in range(30):
            bench.steps(1)
            bench.page.wait_for_function("lab => !lab.busy", arg=bench.lab.element_handle())
        assert "share model" in bench.said("state")
        progress = bench.lab.locator(".task .progress").inner_text()
        assert re.search(r"^Lost with noise 0\.0, but .+: that does not count\.$", progress)


def test_two_on_a_page(browser, site):
    with opened(browser, site, "two") as bench:
        bench.press("Step")
        assert bench.round() == 1
        other = bench.page.locator("cfl-plane").nth(1)
        assert other.locator("p.state").inner_text().startswith("Round 0.")


# ---------------------------------------------------------------- kept, shared, refused


def fragment_of(description):
    text = description if isinstance(description, str) else json.dumps(description)
    coded = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"#cfl-plane-0=1.{coded}"


def test_a_state_goes_into_the_address_and_comes_back(browser, site):
    with opened(browser, site, "own") as bench:
        bench.slide("noise", 1.1)
        drag(bench.page, bench.handle("model 2"), 40, 10)
        bench.steps(4)
        bench.press("Share")
        address, state = bench.page.url, bench.said("state")
        places = [bench.at(f"model {j}") for j in range(3)]
        assert bench.text() == address
    with opened(browser, site, "own", "#" + address.split("#")[1]) as bench:
        assert bench.said("state") == state
        assert [bench.at(f"model {j}") for j in range(3)] == places
        assert bench.lab.get_by_label("noise").input_value() == "1.1"


STATE = live.plane().settings["description"]


def changed(**parts):
    return json.loads(json.dumps(STATE)) | parts


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("#cfl-plane-0=2.eyJ9", "edition 2"),
        ("#cfl-plane-0=hello", "no state of a laboratory"),
        ("#cfl-plane-0=1.eyJ", "damaged|cannot be read"),
        (fragment_of("{"), "cannot be read"),
        (fragment_of('{"rounds": NaN}'), "cannot be read"),
        (fragment_of("null"), "needs its settings"),
        (fragment_of(changed(world=STATE["world"] | {"clients": 10**6})), "at most 2000"),
        (
            fragment_of(changed(world=STATE["world"] | {"clients": 13})),
            "clients a group from 1 to 12",
        ),
        (fragment_of(changed(world=STATE["world"] | {"noise": None})), "Noise must be a number"),
        (fragment_of(json.dumps(STATE)[:-1] + ', "__proto__": {"rounds": 3}}'), "__proto__"),
        (
            fragment_of(changed(world=STATE["world"] | {"truth": [[1, 2, 3]]})),
            "3 numbers in each row",
        ),
        (fragment_of(changed(algorithm={"name": "CFL", "eps1": 1, "eps2": 2})), "must be 'IFCA'"),
        (fragment_of(changed(rounds=5000)), "rounds from 0 to 200"),
        (fragment_of(changed(models=None)), "where the models begin"),
        (fragment_of(changed(models=[[0, 0], [0, 1], [0, 1e308]])), "models from -10000 to 10000"),
    ],
)
def test_a_bad_address_gets_a_sentence_and_changes_nothing(browser, site, fragment, words):
    with opened(browser, site, "own", fragment) as bench:
        said = bench.said("message")
        assert re.search(words, said), said
        assert re.match(r"⚠ [^\n]+[.]$", said)
        assert bench.at("model 0") == [-0.6, 0.3]
        bench.press("Step")
        assert bench.round() == 1


def test_a_step_that_diverges_is_stopped_at_the_last_good_round(browser, site):
    with opened(browser, site) as bench:
        bench.settings()
        bench.slide("step size η", 4)
        bench.steps(40)
        last = bench.round()
        assert 1 < last < 39
        said = bench.said("message")
        assert re.match(rf"⚠ Round {last + 1}: .* the step size is probably too large\.$", said)
        bench.slide("step size η", 0.1)
        bench.press("Reset")
        bench.press("Step")
        assert bench.round() == 1
        assert "⚠" not in bench.said("message")


@pytest.mark.parametrize("settings", [{}, {"option": "models", "participation": 0.4, "noise": 1.3}])
def test_the_copied_python_gives_the_same_run(browser, site, settings):
    with opened(browser, site) as bench:
        if settings:
            bench.settings()
            bench.lab.get_by_label("option").select_option(settings["option"])
            bench.slide("participation", settings["participation"])
            bench.slide("noise", settings["noise"])
        bench.handle("model 1").press("Shift+ArrowDown")
        bench.steps(6)
        bench.press("Copy as Python")
        code, places = bench.text(), [bench.at(f"model {j}") for j in range(3)]
    names = {}
    exec(code, names)
    assert np.allclose(names["run"].models.flatten().numpy(), places, atol=0.005 + 1e-9)


# ---------------------------------------------------------------- elsewhere


def test_in_a_sandboxed_frame_as_of_colab(browser, site):
    with visited(browser, f"{site.as_uri()}/", "frame.html") as (page, wrong):
        bench = Bench(page, page.frame_locator("iframe"))
        bench.press("Step")
        bench.handle("model 0").press("ArrowLeft")
        bench.press("Share")
        text, place = bench.text(), bench.at("model 0")
        assert re.fullmatch(r"1\.[\w-]+", text)
        bench.press("Reset")
        assert bench.at("model 0") != place
        bench.lab.locator("textarea").fill(text)
        bench.press("Load the text")
        assert bench.at("model 0") == place
        bench.lab.locator("textarea").fill("1.e30")
        bench.press("Load the text")
        assert "The laboratory stays as it was." in bench.said("message")
        assert bench.at("model 0") == place
    assert wrong == []


def test_in_jupyterlab(browser, tmp_path):
    cells = [
        new_code_cell("import clusterfl_core as cf\ncf.live.plane()", id="one"),
        new_code_cell("'the next cell'", id="two"),
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, tmp_path / "page.ipynb")
    with jupyter_lab(tmp_path) as address:
        page = browser.new_page(viewport=WIDE)
        page.goto(address.format("page.ipynb"))
        page.locator(".jp-Notebook .jp-CodeCell").first.click(timeout=60_000)
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        page.keyboard.press("Control+Enter")
        bench = Bench(page)
        bench.lab.wait_for(timeout=60_000)
        bench.press("Step")
        assert bench.round() == 1
        start = bench.at("model 0")
        bench.handle("model 0").press("ArrowDown")
        assert bench.at("model 0")[1] < start[1]
        bench.lab.get_by_label("noise").press("ArrowRight")
        assert bench.lab.get_by_label("noise").input_value() == "0.7"
        active = page.locator(".jp-Notebook .jp-Cell.jp-mod-active")
        assert "cf.live.plane" in active.inner_text(), "the keys left the laboratory"
        page.close()


# ---------------------------------------------------------------- in the built book

BUILT = house.ROOT / "_build" / "html"
CHAPTER = "book/04_ifca_algorithm.html"


@pytest.mark.pages
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_in_the_chapter(browser, dark):
    assert (BUILT / CHAPTER).read_text(encoding="utf-8").count("<script data-cfl=") == 1
    with served(BUILT) as base, visited(browser, base, CHAPTER, dark=dark) as (page, wrong):
        bench = Bench(page)
        bench.press("Step")
        bench.press("Share")
        assert "#cfl-plane-0=1." in page.url
        shades = bench.lab.evaluate_all(
            """([lab]) => {
              const found = [];
              for (let e = lab; e && !e.matches("article"); e = e.parentElement)
                found.push(getComputedStyle(e).backgroundColor);
              return found;
            }"""
        )
        assert set(shades) == {"rgba(0, 0, 0, 0)"}, "a background under the laboratory"
    assert wrong == []


@pytest.mark.pages
def test_on_the_front_page(browser):
    front = house.contents()[0]
    if live_pages.FRONT not in (house.ROOT / f"{front}.md").read_text(encoding="utf-8"):
        pytest.skip("the front page has no mark")
    with visited(browser, f"{BUILT.as_uri()}/", f"{front}.html", size=NARROW) as (page, wrong):
        bench = Bench(page)
        bench.press("Step")
        assert bench.lab.get_by_text("Round 1.").is_visible()
    assert wrong == []
