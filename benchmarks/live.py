"""Measure the engine of the laboratories in Chromium: ``python benchmarks/live.py``.

Rounds a second without painting, the median of several spells after one that is not counted; in the
page itself and in a worker made from a blob, as laboratories of digits run. The least that each has
to reach stands beside it.
"""

import argparse
import re
import statistics
import sys
from pathlib import Path

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
    return f"too slow: {', '.join(slow)}" if slow else 0


if __name__ == "__main__":
    sys.exit(main())
