"""The built book in a browser, without a kernel and without a network: run `make book` first."""

import html
import json
import re
import subprocess
import zipfile

import browser as browsing
import house
import nbformat
import pytest
from browser import PHONE, WIDE, jupyter_lab, own_settings, visited
from small_figures import every_word

pytestmark = pytest.mark.pages

SITE = house.ROOT / "_build" / "html"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.parts and path != SITE / "index.html"
)
SOURCES = {page: (SITE / page).read_text(encoding="utf-8") for page in PAGES}
PLAYED = [page for page in PAGES if "widget-view+json" in SOURCES[page]]


@pytest.fixture(scope="module")
def http():
    with browsing.served(SITE) as base:
        yield base


def test_every_source_has_its_page():
    missing = [path for path in house.contents() if f"{path}.html" not in PAGES]
    assert not missing, f"not built: {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_page_over_http(browser, http, page):
    """Wide and light, then dark, then on a phone: each rule wherever it can decide otherwise."""
    with visited(browser, http, page) as (tab, problems):
        problems += browsing.missing_alts(tab)
        problems += browsing.unreadable_math(tab, SOURCES[page])
        problems += browsing.raw_markup(tab)
        problems += browsing.overflowing(tab)
        problems += browsing.inaccessible(tab)
        tab.emulate_media(color_scheme="dark")
        tab.wait_for_selector("html[data-theme=dark]", state="attached")
        browsing.settle(tab)
        problems += browsing.overflowing(tab)
        problems += browsing.inaccessible(tab, contrast=True)
        tab.set_viewport_size(PHONE)
        tab.wait_for_timeout(500)  # the theme answers to a new width a third of a second later
        problems += browsing.overflowing(tab)
        problems += browsing.inaccessible(tab, contrast=False)
    assert problems == []


@pytest.mark.parametrize("page", PAGES)
def test_what_belongs_together_stands_on_one_line(browser, http, page):
    """In tables a minus and what follows ±, a formula and its comma, a title and its link."""
    with visited(browser, http, page) as (tab, _):
        cells, titles, broken = tab.evaluate(
            """() => {
              const lines = [...document.querySelectorAll(".one-line:not(:has(.wide-math))")];
              const bare = [...document.querySelectorAll(".bd-article span.math")].filter(
                m => m.nextSibling?.nodeType == 3 && /^[),.;:]/.test(m.nextSibling.data)
                  && !m.parentElement.matches(".one-line"));
              const broken = lines.filter(e => e.getClientRects().length > 1).concat(bare);
              const cells = [...document.querySelectorAll(".bd-article table.table td")];
              for (const other of document.querySelectorAll("td :is(code, .math)")) other.remove();
              const titles = [...document.querySelectorAll(".bd-article :is(h1, h2, h3, h4)")];
              const high = t => t.getBoundingClientRect().height;
              const grown = titles.filter(t => {
                const before = high(t), link = t.querySelector(".headerlink");
                link?.remove();
                return Math.abs(high(t) - before) > 1;
              });
              return [cells.map(c => c.textContent), grown.map(t => t.textContent),
                broken.map(e => e.textContent)];
            }"""
        )
    assert not [text for text in cells if re.search(r"(^|[\s(])-\.?\d|± \d", text)]
    assert not titles
    assert not broken


@pytest.mark.parametrize("page", PAGES)
def test_page_from_a_file_and_unfolded_on_the_narrowest_screens(browser, page):
    """320 px are also what is left of 1280 when a page is shown four times as large."""
    with visited(browser, f"{SITE.as_uri()}/", page) as (tab, problems):
        problems += browsing.unreadable_math(tab, SOURCES[page])
        problems += browsing.unanswerable(tab, SOURCES[page])
        browsing.unfold(tab)
        for width in (360, 320):
            tab.set_viewport_size({"width": width, "height": 256})
            browsing.settle(tab)
            problems += browsing.overflowing(tab)
    assert problems == []


@pytest.mark.parametrize("page", PLAYED)
def test_players_over_http_on_a_wide_screen(browser, http, page):
    with visited(browser, http, page) as (tab, problems):
        problems += browsing.stuck_players(tab, SOURCES[page])
    assert problems == []


@pytest.mark.parametrize("page", PLAYED)
def test_players_from_a_file_on_a_dark_phone(browser, page):
    with visited(browser, f"{SITE.as_uri()}/", page, dark=True, size=PHONE) as (tab, problems):
        problems += browsing.stuck_players(tab, SOURCES[page])
        problems += browsing.overflowing(tab)
    assert problems == []


def test_front_page_leads_into_the_book(browser, http):
    with visited(browser, http, "index.html") as (tab, problems):
        tab.wait_for_url(f"**/{house.contents()[0]}.html")
    assert problems == []


def test_search_finds_the_first_page(browser, http):
    title = re.search(r"<h1>(\w+)", SOURCES[f"{house.contents()[0]}.html"])[1]
    with visited(browser, http, f"search.html?q={title}") as (tab, problems):
        tab.locator("#search-results li a").first.wait_for()
    assert problems == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("book/")])
def test_buttons_lead_to_the_address_or_are_absent(page):
    url = house.address()
    found = "https://colab.research.google.com/github" in SOURCES[page]
    assert found == bool(url and (house.ROOT / page).with_suffix(".ipynb").exists())
    # a page may name an address, say of the authors' code, but no button may lead to none
    leading = re.findall(r"<(?:a|form)\b[^>]*github\.com[^>]*>", SOURCES[page])
    assert url or not [tag for tag in leading if "btn" in tag or tag.startswith("<form")]


# ---------------------------------------------------------------- the way in


def test_contents_have_parts_and_short_names_and_neighbours_say_their_question():
    source = SOURCES["book/05_ifca_theory.html"]
    contents = source[source.index('class="bd-links') :].split("</nav>")[0]
    parts = re.findall(r'class="caption-text">([^<]+)', contents)
    assert parts[0] == "The problem"
    assert parts[-1] == "Reference"
    assert re.search(r'href="04_ifca_algorithm.html">\s*4 IFCA\s*</a>', contents)
    said = re.findall(r'prev-next-title">([^<]+)', source)
    assert said == ["How can clients find their group themselves?", "Does it work on images?"]


@pytest.mark.parametrize("width", [1200, 1440, 1920])
@pytest.mark.parametrize("page", ["book/intro.html", "book/03_clusters.html"])
def test_a_line_has_60_to_75_characters(browser, http, page, width):
    with visited(browser, http, page, size={"width": width, "height": 900}) as (tab, _):
        found = browsing.line_lengths(tab)
    assert found
    assert 60 <= sum(found) / len(found) <= 75


# ---------------------------------------------------------------- predictions and checks

ASKING = "book/01_fedavg.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_prediction_unfolds_its_outcome_beside_the_guess_and_is_kept(browser, http, dark):
    with visited(browser, http, ASKING, dark, PHONE) as (tab, problems):
        chosen, typed = tab.locator(".prediction").nth(0), tab.locator(".prediction").nth(1)
        outcome = tab.locator("details", has_text="After your guess: which average").first
        button = chosen.get_by_role("button")
        button.click()
        assert "choose a guess" in chosen.get_by_role("status").inner_text()
        assert not outcome.evaluate("fold => fold.open")
        chosen.get_by_role("radio").first.focus()
        tab.keyboard.press("ArrowDown")  # to the second choice, by keyboard
        tab.keyboard.press("Enter")
        assert outcome.evaluate("fold => fold.open")
        assert outcome.locator(".guess").inner_text() == "Your guess: The plain one."
        chosen.get_by_role("radio").first.check()
        button.click()
        assert tab.locator(".guess").all_inner_texts() == ["Your guess: The weighted one."]
        typed.get_by_role("textbox", name="Your guess").fill("<b>Half</b> as many.")
        typed.get_by_role("button").click()
        guesses = ["Your guess: The weighted one.", "Your guess: <b>Half</b> as many."]
        assert tab.locator(".guess").all_inner_texts() == guesses
        problems += browsing.inaccessible(tab) + browsing.overflowing(tab)
        tab.reload()
        tab.locator("details:has(.guess)").evaluate_all("all => all.map(f => (f.open = true))")
        assert tab.locator(".guess").all_inner_texts() == guesses
    assert problems == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_check_answers_each_choice_and_asks_again(browser, http, dark):
    with visited(browser, http, ASKING, dark, PHONE) as (tab, problems):
        check = tab.locator(".check").first
        button, said = check.get_by_role("button"), check.get_by_role("status")
        assert not check.locator(".feedback:visible").count()
        button.click()
        assert said.inner_text() == "First choose an answer."
        check.get_by_role("radio", name="Its images, encrypted").check()
        button.click()
        (told,) = check.locator(".feedback:visible").all_inner_texts()
        assert told.startswith("No.")
        assert "Second question." in told
        check.get_by_role("radio", name="Its trained model").check()
        button.click()
        assert said.inner_text() == "Right."
        button.click()  # why the others are wrong
        assert check.locator(".feedback:visible").count() == 3
        browsing.unfold(tab)
        problems += browsing.inaccessible(tab) + browsing.overflowing(tab)
    assert problems == []


def test_the_answers_of_a_check_stand_in_another_order_each_time(browser, http):
    with visited(browser, http, ASKING) as (tab, _):
        orders = set()
        for _ in range(4):  # nine shuffles of three by chance the same: one in ten millions
            orders.add(tuple(tab.locator(".option .choice").all_inner_texts()))
            tab.reload()
    assert len(orders) > 1
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_progress_is_shown_in_the_contents_kept_here_and_deleted(browser, http):
    with visited(browser, http, "book/intro.html") as (tab, problems):
        context, marks = tab.context, ".bd-links .progress-mark"
        assert tab.locator(marks).all_inner_texts() == ["✓\n(opened)"]
        tab.goto(http + ASKING)
        check = tab.locator(".check").nth(1)
        check.get_by_role("radio").first.check()
        check.get_by_role("button").click()
        assert tab.locator(".progress-note").is_visible()
        link = tab.locator(".bd-links a", has_text="1 Federated averaging")
        assert "1 of 3 checks answered" in link.inner_text()
        assert context.cookies() == []
        tab.goto(http + "book/notation.html")
        assert "1 of 3 checks answered" in link.inner_text()
        tab.get_by_role("button", name="Delete them").click()
        assert tab.evaluate("localStorage.getItem('clustered-federated-learning')") is None
        assert not tab.locator(marks).count()
        assert not tab.locator(".progress-note").is_visible()
    assert problems == []


LECTURE = "document.documentElement.classList.contains('lecture')"
SHOWN = """() => [...document.querySelectorAll(".bd-article section > :not(section)")]
  .filter((block) => block.checkVisibility()).length"""
SEEN = """() => ["cfl-drift", ".cf-figure", ".check", ".prediction", "h2"].filter((kind) =>
  [...document.querySelectorAll(`.bd-article ${kind}`)].some((one) => one.checkVisibility()))"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_one_key_turns_a_page_into_steps_and_back(browser, http, dark):
    with visited(browser, http, "book/01_fedavg.html", dark) as (tab, problems):
        tab.wait_for_selector("cfl-drift")
        whole, kinds = tab.evaluate(SHOWN), []
        tab.keyboard.press("l")
        tab.wait_for_function(LECTURE)
        count = int(tab.inner_text(".lecture-bar [role=status]").split(" of ")[1])
        assert 30 < count < 80
        total = 0
        for number in range(1, count + 1):
            assert tab.inner_text(".lecture-bar [role=status]") == f"{number} of {count}"
            now = tab.evaluate(SHOWN)
            assert 0 < now < whole / 3
            total += now
            kinds.append(tab.evaluate(SEEN))
            problems += browsing.overflowing(tab)
            tab.click(".lecture-bar button[aria-label^=Next]")
        assert total == whole  # each block has its step, and one only
        for kind in ("cfl-drift", ".cf-figure", ".check", ".prediction"):
            assert [kind] in kinds, kind  # alone on the screen
        problems += browsing.inaccessible(tab, contrast=True)
        tab.keyboard.press("Home")
        for key, place in (("ArrowRight", 2), ("PageDown", 3), ("ArrowLeft", 2), ("End", count)):
            for _ in range(12):  # through what is taller than the screen
                if tab.inner_text(".lecture-bar [role=status]") == f"{place} of {count}":
                    break
                tab.keyboard.press(key)
            assert tab.inner_text(".lecture-bar [role=status]") == f"{place} of {count}"
        tab.keyboard.press("Escape")
        tab.wait_for_function(f"!{LECTURE}")
        assert tab.evaluate(SHOWN) == whole
        assert tab.locator("h2", has_text="Run time and references").is_visible()
    assert problems == []


def test_a_lecture_by_finger_and_a_key_that_belongs_to_a_text(browser, http):
    with visited(browser, http, "book/01_fedavg.html", size=PHONE) as (tab, problems):
        tab.focus(".prediction input, .prediction textarea")
        tab.keyboard.press("l")
        assert not tab.evaluate(LECTURE)
        tab.evaluate("scrollTo(0, 0)")
        tab.click(".lecture-button")
        tab.wait_for_function(LECTURE)
        assert tab.inner_text(".lecture-bar [role=status]").startswith("1 of ")
        problems += browsing.overflowing(tab)
        tab.click(".lecture-bar button[aria-label^=End]")
        tab.wait_for_function(f"!{LECTURE}")
    assert problems == []


@pytest.mark.parametrize("stored", ["null", "7", "[]", "{", '{"book/01_fedavg.html": 1}'])
def test_a_page_works_whatever_the_browser_has_kept(browser, http, stored):
    with visited(browser, http, ASKING) as (tab, problems):
        tab.evaluate("text => (localStorage['clustered-federated-learning'] = text)", stored)
        tab.reload()
        tab.locator(".prediction textarea").first.fill("Half.")
        tab.locator(".prediction:has(textarea)").first.get_by_role("button").click()
        assert tab.locator(".guess").inner_text() == "Your guess: Half."
    assert problems == []


def test_where_no_script_runs_all_is_plain_text_and_folds(browser, http):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(http + ASKING)
    assert tab.locator("blockquote", has_text="Predict.").count() > 2
    assert tab.locator("summary", has_text="Its images, encrypted").is_visible()
    assert not tab.locator(".check, form.guess-form").count()
    context.close()


# ---------------------------------------------------------------- paper and high contrast


def test_on_paper_the_page_is_light_and_its_folds_are_open(browser, http):
    look = """() => ({
      ground: getComputedStyle(document.body).backgroundColor,
      text: getComputedStyle(document.querySelector("main section > p:not(.chapter-name)")).color,
      shut: [...document.querySelectorAll("main details:not([open])")]
        .filter(fold => !fold.closest(".tag_hide-input")).length,
      drawing: document.querySelectorAll(".tag_hide-input details[open]").length,
      told: [...document.querySelectorAll(".feedback")].filter(t => !t.checkVisibility()).length,
    })"""
    with visited(browser, http, ASKING, dark=True) as (tab, problems):
        seen = []
        for media in ("screen", "print", "screen"):
            tab.emulate_media(media=media)
            tab.wait_for_function("media => matchMedia(media).matches", arg=media)
            browsing.settle(tab)  # changes of the medium are told before the next frame
            seen.append(tab.evaluate(look))
    before, printed, after = seen
    assert after == before
    assert before["shut"] > 3
    assert printed["shut"] == printed["drawing"] == printed["told"] == 0

    def brightness(colour):
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 765

    assert brightness(before["ground"]) < 0.3
    assert brightness(printed["ground"]) > 0.95
    assert brightness(printed["text"]) < 0.3
    assert problems == []


def test_high_contrast_shows_tracks_and_the_chosen_button(browser, http):
    with visited(browser, http, "book/04_ifca_algorithm.html") as (tab, problems):
        tab.emulate_media(forced_colors="active")
        tab.wait_for_selector(".widget-play")
        style = "(e, what) => getComputedStyle(e)[what]"
        track, handle = tab.locator(".noUi-target").first, tab.locator(".noUi-handle").first
        assert track.evaluate(style, "borderTopStyle") == "solid"
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert handle.evaluate(style, "backgroundColor") != ground
        chosen = tab.locator(".widget-toggle-button.mod-active").first
        other = tab.locator(".widget-toggle-button:not(.mod-active)").first
        shades = [one.evaluate(style, "backgroundColor") for one in (chosen, other)]
        assert shades[0] != shades[1]
    assert problems == []


# ---------------------------------------------------------------- JupyterLab


def test_jupyterlab_folds_what_the_page_hides(browser, tmp_path):
    path = house.ROOT / "book" / "03_clusters.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    expected = []
    for i, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            text = f"Output of cell {i}."
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
            tags = set(cell["metadata"].get("tags", []))
            whole = bool(tags & {"hide-cell", "remove-cell"})
            code = not (tags & {"hide-input", "remove-input"}) and not whole
            first = "" if code else "".join(cell["source"]).split("\n")[0]
            expected.append([code, first, not whole])
    assert sum(first.startswith("# @title Solution") for _, first, _ in expected) == 3
    (tmp_path / "chapter.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with jupyter_lab(tmp_path) as address:
        tab = browser.new_page(viewport=WIDE)
        tab.goto(address.format("chapter.ipynb"))
        cells = tab.locator(".jp-Notebook .jp-Cell")
        cells.nth(len(notebook["cells"]) - 1).wait_for(state="attached", timeout=60_000)
        found = tab.eval_on_selector_all(
            ".jp-Notebook .jp-CodeCell",
            """all => all.map(cell => {
              const seen = what => Boolean(cell.querySelector(what)?.checkVisibility());
              const first = cell.querySelector(".jp-InputPlaceholder")?.textContent ?? "";
              return [seen(".jp-InputArea"), first.trim(), seen(".jp-OutputArea-output")];
            })""",
        )
        tab.close()
    assert found == expected


def test_jupyterlab_shows_a_figure_in_its_own_colours(browser, tmp_path):
    figure = every_word()["plane"]
    shown = nbformat.v4.new_output("display_data", {"text/html": figure._repr_html_()})
    cell = nbformat.v4.new_code_cell("figure", outputs=[shown])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "figure.ipynb")
    trust = [house.PYTHON, "-m", "jupyter", "trust", "figure.ipynb"]
    subprocess.run(trust, cwd=tmp_path, env=own_settings(tmp_path), check=True)
    with jupyter_lab(tmp_path) as address:
        tab = browser.new_page(viewport=PHONE)
        tab.goto(address.format("figure.ipynb"))
        drawn = tab.locator(".jp-OutputArea-output .cf-figure svg text").first
        drawn.wait_for(timeout=60_000)
        ink = "e => getComputedStyle(e).fill"
        around = "e => getComputedStyle(e.closest('.jp-OutputArea-output')).color"
        assert drawn.evaluate(ink) == drawn.evaluate(around)
        tab.close()


# ---------------------------------------------------------------- assignments


def test_site_has_the_student_copies_and_no_line_of_what_students_may_not_see():
    import assignments  # with nbgrader, which the other tests of pages do not need

    with zipfile.ZipFile(SITE / "book" / "assignments" / "students.zip") as pack:
        names = [name for name in pack.namelist() if name.endswith(".ipynb")]
        copies = [pack.read(name).decode() for name in names]
    assert len(names) == len(assignments.names())
    public = [cell.source for copy in copies for cell in nbformat.reads(copy, 4).cells]
    for path in [path for path in house.notebooks() if path.parent == house.ROOT / "book"]:
        public += [cell.source for cell in nbformat.read(path, 4).cells]
    for folder in ("clusterfl_core", "book"):
        for path in (house.ROOT / folder).rglob("*.[mp][dy]"):
            if path.name != "instructor.md":
                public.append(path.read_text(encoding="utf-8"))
    shown = "\n".join(public)
    secret = set()
    for name in assignments.names():
        for blocks in assignments.secrets(name).values():
            secret |= assignments.lines(blocks, shown)
    assert len(secret) > 100
    for path in SITE.rglob("*"):
        if path.suffix in (".html", ".ipynb", ".md", ".txt", ".js", ".json", ".inv", ".csv"):
            text = path.read_text(encoding="utf-8", errors="replace")
            text += html.unescape(re.sub("<[^>]+>", "", text)) + text.replace('\\"', '"')
            text = assignments.bare(text)
            assert not [line for line in secret if line in text], path
