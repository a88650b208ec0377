"""What is asked of a built page, each question a function that returns the problems it found."""

import contextlib
import functools
import http.server
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import house
from playwright.sync_api import Browser, Page, sync_playwright

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 5.0  # seconds that a picture has to change
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A file server that does not log."""

    def log_message(self, *_):
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback and give its address."""
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start the machine's Chromium, or playwright's own where there is none."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=house.chromium(), args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def visited(browser: Browser, base: str, path: str, dark: bool = False, size: dict = WIDE):
    """Open a page and give it, with the list of its problems: errors and requests that leave."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce")
    page, problems = context.new_page(), []
    home = (base, "data:", "blob:")

    def on_request(request):
        if not request.url.startswith(home):
            problems.append(f"request leaves: {request.url}")

    def on_console(message):
        if message.type == "error":
            problems.append(f"console: {message.text} {message.location.get('url', '')}")

    page.on("request", on_request)
    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.goto(base + path, wait_until="load")
    ready = "() => (window.MathJax?.startup?.promise ?? Promise.resolve()).then(() => true)"
    page.wait_for_function(ready)
    yield page, problems
    context.close()


def own_settings(folder: Path) -> dict[str, str]:
    """Return an environment in which Jupyter knows nothing of the user's settings."""
    own = {f"JUPYTER_{k}_DIR": str(folder / f".{k}") for k in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{k}_DIR": str(folder / f".{k}") for k in ("SETTINGS", "WORKSPACES")}
    return os.environ | own


@contextlib.contextmanager
def jupyter_lab(folder: Path) -> Iterator[str]:
    """Start JupyterLab in a folder, without the user's settings, and give the address of a file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    options += ["--ServerApp.port_retries=0", "--IdentityProvider.token=a-token"]
    log = folder / "log"
    with log.open("w") as said:
        command = [house.PYTHON, "-m", "jupyterlab", *options]
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=own_settings(folder),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 60
        while True:
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=a-token").close()
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab/tree/{{}}?token=a-token"
    finally:
        server.terminate()  # ends its kernels first
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def missing_alts(page: Page) -> list[str]:
    """Return the images and figures that say nothing to a reader who does not see them."""
    found = page.eval_on_selector_all(
        "main img, main [role=img]:not([aria-hidden=true])",
        "all => all.filter(i => !(i.alt ?? i.ariaLabel ?? '').trim()).map(i => i.outerHTML)",
    )
    return [f"no alt text: {what[:80]}" for what in found]


def unreadable_math(page: Page, source: str) -> list[str]:
    """Return what is wrong with the mathematics: not rendered, or rendered as an error."""
    if 'class="math' not in source:
        return []
    if not page.locator("mjx-container").count():
        return ["mathematics not rendered"]
    return [f"bad formula: {text}" for text in page.locator("mjx-merror").all_inner_texts()]


def raw_markup(page: Page) -> list[str]:
    """Return what should have become a formula or a number and is still its source."""
    texts = page.evaluate(
        """() => {
          const found = [], kind = "pre, code, script, style, mjx-container, .math";
          const all = document.querySelector("main article") ?? document.body;
          const walk = document.createTreeWalker(all, NodeFilter.SHOW_TEXT);
          for (let text; (text = walk.nextNode()); )
            if (!text.parentElement.closest(kind)) found.push(text.data);
          return found;
        }"""
    )
    raw = re.compile(r"\$|\{\w[\w.]*[}\[(:!]|\\(frac|sum|theta|tag)\b")
    return [f"still source: {text.strip()[:80]}" for text in texts if raw.search(text)]


def inaccessible(page: Page, contrast: bool | None = None) -> list[str]:
    """Return axe-core's serious and critical findings.

    ``contrast``: True for the contrast of colours alone, False for all but it. It takes half of the
    time, and depends on the colours, where no other rule does.
    """
    page.evaluate(AXE.read_text(encoding="utf-8"))
    chosen = {"resultTypes": ["violations"]}
    if contrast:
        chosen["runOnly"] = ["color-contrast"]
    elif contrast is False:
        chosen["rules"] = {"color-contrast": {"enabled": False}}
    found = page.evaluate("chosen => axe.run(chosen).then(r => r.violations)", chosen)
    return [
        f"{rule['impact']}: {rule['id']}: {node['html'][:200]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def overflowing(page: Page) -> list[str]:
    """Return what is wider than the screen and not in a box that scrolls to all of it."""
    return page.evaluate(
        """() => {
          const width = document.documentElement.clientWidth, found = [];
          if (document.documentElement.scrollWidth > width) found.push("the page scrolls sideways");
          const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
          const scroller = e =>
            !e.matches("body *") ? null : scrolls(e) ? e : scroller(e.parentElement);
          const hidden = "mjx-assistive-mml, mjx-assistive-mml *";  // for screen readers only
          const parts = `main :is(article, .prev-next-area) *:not(${hidden})`;
          for (const e of document.querySelectorAll(parts)) {
            const box = e.getBoundingClientRect(), around = scroller(e.parentElement);
            const start = around?.getBoundingClientRect().left ?? 0;
            const out = around ? box.left < start - 1 : box.right > width + 1;
            if (box.width && out) found.push(`cut off: ${e.outerHTML.slice(0, 120)}`);
          }
          return found;
        }"""
    )


def unanswerable(page: Page, source: str) -> list[str]:
    """Return what the page asks in its text but offers no way to answer."""
    forms = {
        "prediction": (source.count("<strong>Predict.</strong>"), ".prediction form"),
        "second question": (source.count("<strong>Second question.</strong>"), ".option .feedback"),
    }
    problems = []
    for what, (asked, answerable) in forms.items():
        if asked > page.locator(answerable).count():
            problems.append(f"not every {what} of {asked} can be answered")
    return problems


def settle(page: Page) -> None:
    """Wait until the page has answered to what was just done to it."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


def unfold(page: Page) -> None:
    """Open all folds, and all that a check says; what fades in has come."""
    page.evaluate(
        """async () => {
          for (const fold of document.querySelectorAll("main details")) fold.open = true;
          for (const told of document.querySelectorAll(".feedback")) told.hidden = false;
          await new Promise(requestAnimationFrame);
          for (const fading of document.getAnimations())
            if (fading.effect.getComputedTiming().endTime < Infinity) fading.finish();
        }"""
    )


def line_lengths(page: Page) -> list[float]:
    """Return how many characters a full line of each long paragraph has."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main article section > p")]
          .filter(p => p.textContent.length > 300 && !p.querySelector("mjx-container"))
          .map(p => {
            const words = document.createTreeWalker(p, NodeFilter.SHOW_TEXT), lines = new Map();
            for (let text; (text = words.nextNode()); )
              for (let i = 0; i < text.length; i++) {
                const one = document.createRange();
                one.setStart(text, i);
                one.setEnd(text, i + 1);
                const box = one.getBoundingClientRect(), line = Math.round(box.bottom / 8);
                if (box.width) lines.set(line, (lines.get(line) ?? 0) + 1);
              }
            const full = [...lines.values()].slice(0, -1);
            return full.reduce((a, b) => a + b, 0) / full.length;
          })"""
    )


def shown(player) -> tuple[str, str]:
    """Return the picture and the alt text that a player shows."""
    seen = player.locator("img:visible, .cf-figure:visible").first
    return tuple(seen.evaluate("e => [e.src ?? e.innerHTML, e.alt ?? e.ariaLabel]"))


def unmoved(player, what: str, before: tuple[str, str]) -> list[str]:
    """Return what did not change although a control was moved."""
    for _ in range(round(PATIENCE / 0.05)):
        picture, alt = shown(player)
        if picture != before[0] and alt != before[1]:
            return []
        player.page.wait_for_timeout(50)
    return [f"{what} does not change picture and alt text"]


def stuck_players(page: Page, source: str) -> list[str]:
    """Return what does not move: each player by keyboard, mouse, Play and choice."""
    widgets = source.count("application/vnd.jupyter.widget-view+json")
    if not widgets:
        return []
    page.wait_for_function(
        "n => document.querySelectorAll('.widget-subarea').length == n", arg=widgets
    )
    page.wait_for_selector(".widget-play")
    problems = []
    for player in page.locator(".widget-subarea").filter(has=page.locator(".widget-play")).all():
        player.scroll_into_view_if_needed()
        handle, track = player.locator(".noUi-handle"), player.locator(".noUi-base")

        handle.focus()
        page.keyboard.press("Home")
        page.wait_for_timeout(100)
        before = shown(player)
        page.keyboard.press("ArrowRight")
        problems += unmoved(player, "an arrow key", before)

        before, box = shown(player), track.bounding_box()
        page.mouse.click(box["x"] + 0.98 * box["width"], box["y"] + box["height"] / 2)
        problems += unmoved(player, "a click", before)

        before = shown(player)
        handle.hover()  # waits until the handle stands still
        page.mouse.down()
        page.mouse.move(box["x"], box["y"] + box["height"] / 2, steps=5)
        page.mouse.up()
        problems += unmoved(player, "dragging", before)

        before = shown(player)
        player.get_by_role("button", name="Play or pause").click()
        problems += unmoved(player, "Play", before)
        player.get_by_role("button", name="Stop").click()

        for button in player.locator(".widget-toggle-button:not(.mod-active)").all()[:1]:
            before = shown(player)
            button.click()
            problems += unmoved(player, "the choice", before)
    return problems
