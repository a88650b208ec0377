"""Measure the engine of the laboratories in Chromium: ``python benchmarks/live.py``.

Rounds a second without painting, the median of several spells after one that is not counted; in the
page itself and in a worker made from a blob, as laboratories of digits run. The least that each has
to reach stands beside it. Then the laboratory of the plane is used as a reader uses it, at its
largest, and every task of the page that took longer than 50 ms is listed.
"""

import argparse
import re
import statistics
import sys
from pathlib import Path

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


LONG = """
window.long = [];
new PerformanceObserver((list) => list.getEntries().forEach((e) => long.push(e.duration)))
  .observe({ type: "longtask", buffered: true });
"""


def long_tasks(browser):
    """Use the laboratory of the plane; give what was done and the tasks over 50 ms, in ms."""
    truth = ((-1.2, -0.6), (1.2, -0.6), (0.0, 1.2), (0.0, -1.9))
    models = ((-1.8, 1.8), (1.8, 1.8), (0.0, 0.0), (0.0, -1.8), (-1.8, -1.8), (1.8, -1.8))
    largest = live.plane(truth, models, clients=12, points=50)._repr_html_()
    page = browser.new_page()
    page.add_init_script(LONG)
    page.goto("about:blank")
    page.set_content(f"<script>{LONG}</script>{largest}")
    lab = page.locator("cfl-plane")
    press = lambda name: lab.get_by_role("button", name=name, exact=True).click()  # noqa: E731
    lab.get_by_text("More settings").click()

    def play():
        press("Play")
        page.wait_for_timeout(4000)
        press("Reset")

    def drag():
        lab.get_by_role("slider", name="model 1", exact=True).hover()
        page.mouse.down()
        for step in range(60):
            page.mouse.move(500 + 2 * step, 300)
        page.mouse.up()

    def starts():
        press("Draw 200 starts")
        page.wait_for_timeout(8000)

    def local_models():
        lab.get_by_label("option", exact=True).select_option("models")
        lab.get_by_label("local steps τ", exact=True).fill("20")
        play()

    done = {"opened": lambda: page.wait_for_timeout(500), "play": play, "drag": drag}
    done |= {"deal": lambda: press("Deal new points"), "200 starts": starts}
    done |= {"option II, 20 steps": local_models, "200 starts of option II": starts}
    for name, act in done.items():
        page.evaluate("long.length = 0") if name != "opened" else None
        act()
        page.wait_for_timeout(200)
        yield name, page.evaluate("long")


def script():
    """The engine in one scope."""
    text = "\n".join(map(sources.source, sources.ENGINE))
    return re.sub(r"^import .*;$|^export ", "", text, flags=re.MULTILINE)


def main():
    """Print a table; the exit code says whether everything is fast enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long one spell lasts")
    parser.add_argument("--spells", type=int, default=5)
    given = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("tests", "tools")]
    from browser import chromium

    slow, digits = [], sources.packed_digits()
    with chromium() as browser:
        page = browser.new_page()
        print(f"Chromium {browser.version}\n\n| work | rounds/s | at least |\n|---|---|---|")
        for name, (description, least) in CASES.items():
            message = [script() + WORKER, [description, digits, given.seconds]]
            rates = [page.evaluate(PAGE, message) for _ in range(given.spells + 1)][1:]
            rate = statistics.median(rates)
            slow += [name] if rate < least else []
            print(f"| {name} | {rate:,.1f} | {least} |")
        print("\n| what a reader does | tasks over 50 ms, in ms |\n|---|---|")
        for name, long in long_tasks(browser):
            slow += [name] if long else []
            print(f"| {name} | {', '.join(f'{ms:.0f}' for ms in long) or 'none'} |")
    return f"too slow: {', '.join(slow)}" if slow else 0


if __name__ == "__main__":
    sys.exit(main())
