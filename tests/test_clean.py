"""What students wrote is shown and never run: in reports, formgrader, JupyterLab, feedback."""

import base64
import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import assignments
import nbformat
import pytest
import small_assignment as small
from grader import clean, reports, running
from grader.results import Result, Student, Test
from hypothesis import given, settings
from hypothesis import strategies as st
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell
from PIL import Image
from small_class import Class, make, plainly, points

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")  # nbgrader's own
FIRE = "window.fired=1;fetch('/canary')"
PAYLOADS = {
    "image": f'<img src=x onerror="{FIRE}">',
    "script": f"<script>{FIRE}</script>",
    "svg": f'<svg onload="{FIRE}"><circle r=9 /></svg>',
    "svg animate": f'<svg><animate onbegin="{FIRE}" attributeName=x dur=1s></svg>',
    "details": f'<details open ontoggle="{FIRE}">x</details>',
    "video": f'<video src=x onerror="{FIRE}"></video>',
    "audio": f'<audio src=x onerror="{FIRE}"></audio>',
    "input": f'<input autofocus onfocus="{FIRE}">',
    "iframe": f'<iframe srcdoc="<script>parent.fired=1</script>{FIRE}"></iframe>',
    "frame link": '<iframe src="javascript:parent.fired=1"></iframe>',
    "object": '<object data="javascript:parent.fired=1"></object>',
    "embed": '<embed src="data:text/html,<script>parent.fired=1</script>">',
    "style": f"<style>@keyframes x{{}}</style><b style='animation:x' onanimationstart=\"{FIRE}\">",
    "base": f'<base href="//evil/"><img src=x onerror="{FIRE}">',
    "meta": '<meta http-equiv=refresh content="0;url=javascript:window.fired=1">',
    "math": f'<math><mtext><img src=x onerror="{FIRE}"></mtext></math>',
    "link": "[click](javascript:window.fired=1)",
    "reference": "[click][a]\n\n[a]: javascript:window.fired=1",
    "autolink": "<javascript:window.fired=1>",
    "entity link": "[click](java&#115;cript&colon;window.fired=1)",
    "tab link": "[click](java\tscript:window.fired=1)",
    "data link": "[click](data:text/html,<script>opener.fired=1</script>)",
    "bare link": "javascript://%0awindow.fired=1 vbscript:\\\\fired",
    "bare data": "data:text/html,<script>opener.fired=1</script>",
    "formula": r"$\href{javascript:window.fired=1}{click}$",
    "split formula": r"$\hr&#101;f{javascript:window.fired=1}{click}$ \href{javascript:1}{click}",
    "in a formula": f'$a<img src=x onerror="{FIRE}">b$',
    "in a fence": f'```html\n</code></pre><img src=x onerror="{FIRE}">\n```',
    "fence name": f'```"><img src=x onerror="{FIRE}">\ncode\n```',
    "comment": f'<!-- --!><img src=x onerror="{FIRE}"> -->',
    "nested": f'<<img src=x onerror="{FIRE}">img src=x onerror="{FIRE}">',
    "title": f'[click](https://a.b "\\"><img src=x onerror={FIRE}>")',
    "alt": f'![<img src=x onerror="{FIRE}">](x"onerror="{FIRE})',
    "heading": f'# <a name="x"></a><img src=x onerror="{FIRE}">',
    "attachment": "![x](attachment:x.svg)",
}


class Tags(HTMLParser):
    """Collect the tags and attributes of a page."""

    def __init__(self, page: str):
        super().__init__(convert_charrefs=True)
        self.tags, self.text, self.odd = [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.odd.append(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def assert_harmless(page: str):
    found = Tags(page)
    assert "\n" not in page
    assert page.startswith("<div>")
    assert page.endswith("</div>")
    assert found.odd == []
    for tag, attributes in found.tags:
        assert tag in clean.TAGS
        assert set(attributes) <= {"href", "start"}
        if "href" in attributes:
            assert re.match(r"https?:|mailto:|[^:]*$", attributes["href"])
    assert not clean.ACTIVE.search(found.text)
    assert not clean.ADDRESS.search(found.text)


@pytest.mark.parametrize("name", PAYLOADS)
def test_payloads_become_text(name):
    page = clean.rendered(PAYLOADS[name])
    assert_harmless(page)
    unseen = name in ("fence name", "title")  # of what no reader sees nothing is kept
    shown = "" if unseen else PAYLOADS[name]
    words = re.findall(r"onerror|onload|srcdoc|refresh", shown)
    assert all(word in Tags(page).text for word in words)  # readable and true


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*PAYLOADS.values(), "\n", "\n\n", "    ", "`", "$", "$$", "<", ">", "|"])
        | st.text(max_size=8),
        max_size=8,
    )
)
def test_any_markdown_becomes_harmless(parts):
    assert_harmless(clean.rendered("".join(parts)))


def test_honest_markdown_stays_what_it_says():
    page = clean.rendered(
        "## Why\n\n*Since* $a_i < b_i$ and **so** `x_1 < 2`:\n\n1. one\n2. two\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\\begin{aligned}a&=b\\\\c&=d\\end{aligned}$$\n\n"
        "See [the paper](https://arxiv.org/abs/2006.04088)."
    )
    assert_harmless(page)
    for part in (
        "<h2>Why</h2>",
        "<em>Since</em> <span>$a_i \\lt b_i$</span>",
        "<code>x_1 &lt; 2</code>",
        "<li>two</li>",
        "<td>2</td>",
        "a & =b\\\\c & =d",
        '<a href="https://arxiv.org/abs/2006.04088">the paper</a>',
    ):
        assert part in page


@settings(deadline=None)
@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_can_be_written_and_says_no_command(given_text):
    done = clean.text(given_text)
    assert done.encode("utf-8").decode() == done
    assert "\x1b" not in done
    assert clean.text(done) == done


def test_terminal_codes_and_turned_writing_are_left_out():
    assert (
        clean.text("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07a\x1b]8;;\x07 b\u202ecba")
        == "red a bcba"
    )
    assert clean.text("\ud800") == "\ufffd"


def png(size: tuple[int, int] = (3, 2)) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    "given_bytes",
    [b"", b"<svg onload=alert(1)>", b"GIF89a", png()[:40], png((5000, 5000)), b"\x89PNG\r\n\x1a\n"],
)
def test_what_is_no_small_picture_is_said_to_be_none(given_bytes):
    assert clean.picture_output(given_bytes).text == "[a picture that cannot be shown]\n"


def test_pictures_are_drawn_anew():
    tail = png() + b"<script>alert(1)</script>"
    output = clean.picture_output(tail)
    data = base64.b64decode(output.data["image/png"])
    assert b"script" not in data
    with Image.open(io.BytesIO(data)) as image:
        assert image.getpixel((0, 0)) == (255, 0, 0, 255)


def test_of_a_cell_text_and_our_marks_are_left():
    code = new_code_cell("1", metadata={"tags": ['"><img src=x onerror=alert(1)>']})
    code.outputs = [nbformat.v4.new_output("display_data", {"text/html": PAYLOADS["image"]})]
    note = new_markdown_cell(PAYLOADS["image"], attachments={"x.svg": {"image/svg+xml": "<svg>"}})
    raw = nbformat.v4.new_raw_cell(PAYLOADS["script"], metadata={"raw_mimetype": "text/html"})
    for given_cell in (code, note, raw):
        done = clean.cell(given_cell)
        assert "nbgrader" not in done.metadata
        assert done.metadata == {}
        assert done.cell_type != "raw"
        assert "attachments" not in done
        assert done.get("outputs", []) == []
        assert "<img" not in done.source
        assert "<script" not in done.source


def test_reports_escape_what_students_write():
    evil = PAYLOADS["image"]
    test = Test("t", 1, evil, evil, points=0, task=f"{evil}, test")
    found = Result(Student(evil), evil, looks=(evil,), notes=(evil,), errors=(evil,), tests=(test,))
    page = reports.page(found.who, [found, Result(Student(evil), evil, refused=evil)])
    assert "<img" not in page
    assert page.count("&lt;img") >= 8
    assert "Content-Security-Policy" in page


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return make(tmp_path_factory.mktemp("made"), patch)


@pytest.fixture
def course(tmp_path, made, monkeypatch) -> Class:
    monkeypatch.setattr(assignments, "SOURCE", made.parent / "assignments")
    monkeypatch.setattr(running, "run", shows(plainly))
    return Class(tmp_path, made)


def shows(run):
    """Let code cells besides print every payload and show a picture."""

    def with_output(assignment, nb, limits, **options):
        done = run(assignment, nb, limits, **options)
        said = running.Outcome("\n".join(PAYLOADS.values()), PAYLOADS["image"], "", None, (png(),))
        own = "given"
        outcomes = [
            said if cell.metadata.get("nbgrader", {}).get("grade_id") == own else outcome
            for cell, outcome in zip(nb.cells, done.outcomes, strict=True)
        ]
        return running.Ran(tuple(outcomes), tuple(PAYLOADS.values()))

    return with_output


def evil(course: Class) -> dict:
    """Return a submission with every payload in its answer, cells, outputs and metadata."""
    nb = course.solved(why="\n\n".join([*PAYLOADS.values(), "The end of it."]))
    for name, payload in PAYLOADS.items():
        ident = name.replace(" ", "-")
        nb["cells"].append(
            {"cell_type": "markdown", "id": f"m-{ident}", "metadata": {}, "source": payload}
        )
        raw = {"raw_mimetype": "text/html"}
        nb["cells"].append(
            {"cell_type": "raw", "id": f"r-{ident}", "metadata": raw, "source": payload}
        )
        outputs = [
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {kind: payload if kind != "application/javascript" else FIRE},
            }
            for kind in (
                "text/html",
                "image/svg+xml",
                "application/javascript",
                "text/markdown",
                "application/vnd.jupyter.widget-view+json",
            )
        ]
        nb["cells"].append(
            {
                "cell_type": "code",
                "id": f"c-{ident}",
                "metadata": {"tags": [payload], "trusted": True},
                "source": f"# {payload}".replace("\n", " "),
                "outputs": outputs,
                "execution_count": 1,
            }
        )
    model = {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls"}
    state = {"state": {"w": model | {"state": {"value": PAYLOADS["image"]}}}, "version_major": 2}
    nb["metadata"] = {
        "title": PAYLOADS["script"],
        "language_info": {"name": PAYLOADS["image"]},
        "widgets": {"application/vnd.jupyter.widget-state+json": state},
    }
    return nb


@contextlib.contextmanager
def jupyter(folder: Path, home: Path):
    """Serve a course by JupyterLab with nbgrader, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {name: str(home / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "HOME")}
    own["JUPYTER_RUNTIME_DIR"] = str(home / "run")
    for path in own.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    own["JUPYTER_ALLOW_INSECURE_WRITES"] = "1"
    options = [f"--ServerApp.port={port}", "--ServerApp.token=", "--ServerApp.password="]
    options += ["--no-browser", "--allow-root", "--ServerApp.disable_check_xsrf=True"]
    options += ["--LabApp.news_url=None", "--ServerApp.open_browser=False"]
    with subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options],
        cwd=folder,
        env=os.environ | own | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=(home / "log").open("w"),
        stderr=subprocess.STDOUT,
    ) as server:
        base = f"http://127.0.0.1:{port}/"
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{base}api", timeout=5):
                    break
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
            yield base
        finally:
            server.terminate()


class Watch:
    """A page whose canary sings when something of a student's runs."""

    def __init__(self, browser, base: str):
        self.context = browser.new_context()
        self.page, self.sang = self.context.new_page(), []
        self.page.on("request", lambda r: r.url.endswith("/canary") and self.sang.append(r.url))
        self.page.on("dialog", lambda d: [self.sang.append(d.message), d.dismiss()])
        self.base = base

    def fired(self) -> bool:
        """Click every link that a student wrote, and say whether anything ran."""
        self.page.wait_for_timeout(1500)
        for link in self.page.get_by_text("click", exact=True).all():
            with contextlib.suppress(Exception):
                link.click(timeout=500, modifiers=["Control"])
        links = "all => all.map(a => a.getAttribute('href') || a.getAttribute('xlink:href'))"
        for href in self.page.eval_on_selector_all("a", links):
            if href and re.match(r"\W*(java|vb)script:.*fired|data:", href, re.IGNORECASE):
                self.sang.append(href)
        return bool(self.sang) or self.page.evaluate("window.fired === 1")


@pytest.mark.grading
def test_nothing_of_a_student_runs_where_a_person_looks(course, tmp_path, browser):
    assert len(PAYLOADS) >= 20
    name = f"<img src=x onerror={FIRE}>"
    course.hand_in("mallory", evil(course))
    course.hand_in(re.sub("/", "", name), evil(course))
    found = course.grade()
    assert len(found) == 2
    for result in found.values():
        assert points(result) == [3, 5, None]

    # (a) the page of a student
    watch = Watch(browser, "")
    for path in sorted((course.out / "reports").glob("*.html")):
        watch.page.goto(path.as_uri())
        assert not watch.fired(), path

    raw = course.out / "autograded" / "mallory" / small.NAME / f"{small.NAME}.ipynb"
    with jupyter(course.out, tmp_path / "home") as base:
        # (b) formgrader: lists of submissions and students, and each notebook
        watch = Watch(browser, base)
        lists = ["manage_assignments", "manage_students", f"manage_submissions/{small.NAME}"]
        lists += ["gradebook", f"gradebook/{small.NAME}", f"gradebook/{small.NAME}/{small.NAME}"]
        for path in lists:
            watch.page.goto(f"{base}formgrader/{path}")
            watch.page.wait_for_load_state("networkidle")
            assert not watch.fired(), path
            if "submissions" in path:  # it shows who handed in
                assert "mallory" in watch.page.inner_text("body")
        links = submissions(course)
        assert len(links) == 2
        for link in links:
            watch.page.goto(f"{base}formgrader/submissions/{link}/")
            assert "The end of it." in watch.page.inner_text("body")
            assert "onerror" in watch.page.inner_text("body")  # as text
            assert watch.page.locator("img[src^='data:image/png']").count() == 1
            assert not watch.fired(), watch.sang

        # (c) JupyterLab
        lab = Watch(browser, base)
        lab.page.goto(f"{base}lab/tree/{raw.relative_to(course.out)}")
        shown = lab.page.locator(".jp-NotebookPanel .jp-RenderedMarkdown")
        shown.first.wait_for(timeout=60_000)
        lab.page.locator(".jp-NotebookPanel").hover()
        read = ""
        for _ in range(80):  # what is out of sight is not drawn
            read += "".join(shown.all_inner_texts())
            lab.page.mouse.wheel(0, 400)
            lab.page.wait_for_timeout(100)
        assert "The end of it." in read
        assert "onerror" in read
        assert not lab.fired(), lab.sang

    # (d) the pages that nbgrader makes for students
    feedback(course)
    pages = list((course.out / "feedback").rglob("*.html"))
    assert len(pages) == 2
    for path in pages:
        assert "onerror" in path.read_text(encoding="utf-8")
        watch = Watch(browser, "")
        watch.page.goto(path.as_uri())
        assert not watch.fired(), path

    # the same without care, by the exporter that formgrader's pages come from, does run
    loud = [payload for name, payload in PAYLOADS.items() if name != "attachment"]
    cells = [nbformat.v4.new_markdown_cell(payload) for payload in loud]
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    bare = tmp_path / "bare.html"
    bare.write_text(page, encoding="utf-8")
    watch = Watch(browser, "")
    watch.page.goto(bare.as_uri())
    assert watch.fired()


def feedback(course: Class) -> None:
    """Let nbgrader make its pages for students."""
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", "generate_feedback", small.NAME],
        cwd=course.out,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def submissions(course: Class) -> list[str]:
    """Return the gradebook's names of the submitted notebooks."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course.out / 'gradebook.db'}") as gradebook:
        return [one.id for one in gradebook.notebook_submissions(small.NAME, small.NAME)]


@pytest.mark.grading
def test_feedback_and_release_hold_no_hidden_test(course):
    course.hand_in("ana", mean="def mean(values):\n    return 5")
    course.grade()
    assert {p.name for p in (course.out / "release" / small.NAME).iterdir()} == {
        f"{small.NAME}.ipynb"
    }
    feedback(course)
    (page,) = (course.out / "feedback").rglob("*.html")
    assert small.SECRET not in page.read_text()
    assert "not 5" in page.read_text()


@pytest.mark.grading
def test_formgraders_button_runs_nothing(course):
    """Nbgrader's own autograding, which runs code with all rights, does nothing here."""
    mark = course.folder / "ran"
    course.hand_in("ana", total=f"open({str(mark)!r}, 'w').close()\n{small.FIRST}")
    course.grade()
    mark.unlink()  # made by this test's own way of running
    before = course.seen("ana")
    subprocess.run(
        [sys.executable, "-m", "nbgrader", "autograde", small.NAME, "--force"],
        cwd=course.out,
        capture_output=True,
        check=False,
    )
    assert not mark.exists()
    assert course.seen("ana") == before
