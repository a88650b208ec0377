"""Measure the engine of the laboratories in Chromium: ``python benchmarks/live.py``.

Rounds a second without painting, the median of several spells after one that is not counted; in the
page itself and in a worker made from a blob, as laboratories of digits run. The least that each has
to reach stands beside it. Then every laboratory is used as a reader uses it, at its largest, and
the longest tasks of the page are listed: from beginning to end, which on a busy machine holds other
work too, and in the processor's time. What took longer than 50 ms is looked at up to three times,
and the least counts.
"""

import argparse
import dataclasses
import importlib
import json
import re
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import TimeoutError

from clusterfl_core import live
from clusterfl_core.live import sources

PLANE = {
    "world": {"kind": "linear", "truth": [[-1.2, -0.6], [1.2, -0.6], [0, 1.2], [1.5, 1.5]],
              "clients": 10, "points": 8, "noise": 0.6, "seed": 1},
    "algorithm": {"name": "IFCA", "clusters": 4, "local": {"steps": 5, "step_size": 0.1}},
}  # fmt: skip
DIGITS = {
    "world": {"kind": "digits", "clusters": 4, "clients": 6, "points": 40, "hidden": 32},
    "algorithm": {"name": "IFCA", "clusters": 4, "local": {"steps": 5, "step_size": 0.3}},
}
CASES = {  # what is measured: the description, and the rounds a second it must reach
    "IFCA in the plane, 40 clients": (PLANE, 60),
    "CFL in the plane, 40 clients": (
        PLANE | {"algorithm": {"name": "CFL", "eps1": 0.1, "eps2": 0.2}}, 60,
    ),
    "FedSoft in the plane, 40 clients": (
        PLANE | {"algorithm": {"name": "FedSoft", "clusters": 4}}, 60,
    ),
    "soft EM in the plane, 40 clients": (
        PLANE | {"algorithm": {"name": "EM", "clusters": 4, "soft": True}}, 60,
    ),
    "IFCA, digits, 24 clients of 40, 64-32-10, 5 steps": (DIGITS, 5),
}  # fmt: skip

WORKER = """
self.onmessage = ({ data: [description, digits, seconds] }) => {
  const images = unpack_digits(digits);
  const start = begin(description, images);
  let run = start, rounds = 0;
  const began = performance.now();
  while (performance.now() - began < 1000 * seconds) {
    run = next_round(description, run.state.round >= 30 ? start : run);
    rounds += 1;
  }
  self.postMessage((1000 * rounds) / (performance.now() - began));
};
"""

PAGE = """([script, message]) => new Promise((resolve, reject) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url);
  worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); };
  worker.onerror = (error) => reject(error.message);
  worker.postMessage(message);
})"""


FULL = {  # what makes a laboratory work hardest, beside its last round
    "angle": {"points": 110, "k": 4},
    "attack": {"steps": 20, "clip": True},
    "balance": {"k": 6},
    "compass": {"points": 60},
    "desk": {"label": 0.5, "feature": 0.5, "conflict": 0.5, "cameras": True},
    "drift": {"steps": 50},
    "gardens": {"points": 6, "heat": 4.0, "kept": 0.95},
    "phase": {"groups": 4, "models": 6, "steps": 40},
    "server": {"steps": 20},
    "springs": {},
    "wedges": {},
    "threshold": {"points": 200, "size": 6},
    "deadline": {"models": "each", "late": True},
    "race": {"clients": 24, "images": 160, "inputs": "784", "workers": 2},
    "playground": {"groups": 4, "clients": 6, "last": 6, "points": 50, "k": 6},
}
LAST = {  # at the last round the page has as much to show, and its worker less to compute
    "playground": {"points": 5, "steps": 1},
}
PATIENCE = {"Stop": 20, None: 60}  # seconds for a laboratory with such a button, and for another
PAPER = """<!doctype html><meta charset="utf-8">
<style>body {{ margin: 8px; font: 16px sans-serif }}</style><main>{}</main>"""


def largest():
    """Each laboratory at its first round and, where it has rounds, at its last: (name, html)."""
    truth = ((-1.2, -0.6), (1.2, -0.6), (0.0, 1.2), (0.0, -1.9))
    models = ((-1.8, 1.8), (1.8, 1.8), (0.0, 0.0), (0.0, -1.8), (-1.8, -1.8), (1.8, -1.8))
    plane = live.plane(truth, models, clients=12, points=50, task="What to do.")
    local = {"option": "models", "local": {"steps": 20, "step_size": 0.1}}
    first = plane.settings["description"]
    far = first | {"rounds": 200, "algorithm": first["algorithm"] | local}
    yield "plane", plane._repr_html_()
    last = dataclasses.replace(plane, settings=plane.settings | {"description": far})
    yield "plane, last round", last._repr_html_()
    for name, full in FULL.items():
        lab = getattr(live, name)(task="What to do.")
        for rounds in (0, *([30] if name == "angle" else [100])):
            if rounds and "rounds" not in lab.settings["state"]:
                continue
            fields = importlib.import_module(f"clusterfl_core.live.labs.{name}").FIELDS
            state = lab.settings["state"] | full
            if "rounds" in fields:
                state["rounds"] = fields["rounds"].high if rounds else 0
            if rounds:
                state |= LAST.get(name, {})
            made = dataclasses.replace(lab, settings=lab.settings | {"state": state})
            yield name + (", last round" if rounds else ""), made._repr_html_()


def drag(page, node):
    """Move what is held through thirty places, and rest."""
    node.scroll_into_view_if_needed()
    box = node.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 31):
        page.mouse.move(x + (4 * step if step < 16 else 120 - 4 * step), y - 2 * step)
    page.mouse.up()


def used(page, lab):
    """What a reader does with a laboratory, as (kind, what is done)."""
    button = lambda name: lab.get_by_role("button", name=name, exact=True)  # noqa: E731

    def settled():
        """Wait for the rounds as a reader does: where there is Stop, not for ever."""
        stop = button("Stop") if button("Stop").count() else None
        for last in (False, True):
            try:
                page.wait_for_function(
                    "lab => lab.busy !== true",
                    arg=lab.element_handle(),
                    timeout=1000 * PATIENCE["Stop" if stop else None],
                )
                break
            except TimeoutError:
                if last or stop is None:
                    raise
                stop.click()
        page.wait_for_timeout(300)

    for summary in lab.locator("summary").all():
        summary.click()
    for handle in lab.locator(".handle").all()[::3]:
        yield "dragged", lambda handle=handle: drag(page, handle)
    settled()
    for slider in lab.locator("input[type=range]:visible").all():
        yield "dragged", lambda slider=slider: drag(page, slider)
    settled()
    for name in ("Share", "Copy as Python", "Undo", "Reset"):
        yield name, lambda name=name: (button(name).click(), settled())
    if button("Deal new points").count():
        yield "Deal new points", lambda: (button("Deal new points").click(), settled())
    if button("Draw 200 starts").count():

        def starts():
            button("Draw 200 starts").click()
            lab.get_by_text("Of 200 starts").first.wait_for(timeout=120000)

        yield "Draw 200 starts", starts
    if button("Play").count():

        def play():
            button("Play").click()
            page.wait_for_timeout(2500)

        yield "Play", play


def longest(browser, page, act):
    """The longest task of the page while something is done: (begin to end, processor), in ms."""
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    act()
    page.wait_for_timeout(150)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    tasks = [
        (e.get("dur", 0) / 1000, e.get("tdur", 0) / 1000)
        for e in events
        if e["name"].endswith("RunTask") and threads.get((e["pid"], e["tid"])) == "CrRendererMain"
    ]
    return tuple(max(column, default=0) for column in zip(*tasks, strict=True))


def worst_tasks(browser, address, tag):
    """Use a laboratory once: {what is done: the longest task, see above}."""
    page = browser.new_page()
    found = {
        "opened": longest(browser, page, lambda: (page.goto(address), page.wait_for_timeout(1500)))
    }
    for kind, act in used(page, page.locator(tag)):
        now = longest(browser, page, act)
        found[kind] = tuple(map(max, now, found.get(kind, now)))
    page.close()
    return found


def long_tasks(browser, names):
    """Name of each laboratory, and the longest task of all that is done with it."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in largest():
            tag = name.partition(",")[0]
            if names and tag not in names:
                continue
            path = Path(folder) / "page.html"
            path.write_text(PAPER.format(text), encoding="utf-8")
            least = {}
            for _ in range(3):
                for kind, both in worst_tasks(browser, path.as_uri(), f"cfl-{tag}").items():
                    least[kind] = tuple(map(min, both, least.get(kind, both)))
                if max(wall for wall, _ in least.values()) <= 50:
                    break
            yield name, least


def script():
    """The engine in one scope."""
    text = "\n".join(map(sources.source, sources.ENGINE))
    return re.sub(r"^import .*;$|^export ", "", text, flags=re.MULTILINE)


def main():
    """Print a table; the exit code says whether everything is fast enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long one spell lasts")
    parser.add_argument("--spells", type=int, default=5)
    parser.add_argument("names", nargs="*", help="only the tasks of these laboratories")
    given = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "tools")]
    from browser import chromium

    slow, digits = [], sources.packed_digits()
    with chromium() as browser:
        page = browser.new_page()
        print(f"Chromium {browser.version}\n\n| work | rounds/s | at least |\n|---|---|---|")
        for name, (description, least) in ({} if given.names else CASES).items():
            message = [script() + WORKER, [description, digits, given.seconds]]
            rates = [page.evaluate(PAGE, message) for _ in range(given.spells + 1)][1:]
            rate = statistics.median(rates)
            slow += [name] if rate < least else []
            print(f"| {name} | {rate:,.1f} | {least} |", flush=True)
        print("\n| laboratory | longest task, ms | processor, ms | over 50 ms |\n|---|---|---|---|")
        for name, found in long_tasks(browser, given.names):
            walls, processor = zip(*found.values(), strict=True)
            long = [f"{kind} {wall:.0f} ms" for kind, (wall, _) in found.items() if wall > 50]
            slow += [name] if max(processor) > 50 else []
            words = ", ".join(long) or "none"
            print(f"| {name} | {max(walls):.0f} | {max(processor):.0f} | {words} |", flush=True)
    return f"too slow: {', '.join(slow)}" if slow else 0


if __name__ == "__main__":
    sys.exit(main())
