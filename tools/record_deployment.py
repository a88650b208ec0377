"""Run the three algorithms in Flower's own programs on this machine and store what was seen.

Chapter 14 shows the records. Usage, after `make test-deployment` has made the environment:

    .venv-flower/bin/python tools/record_deployment.py

It takes some 15 minutes, goes on where it was stopped, and adds what `book/results` lacks. Between
the SuperLink and its clients stands a relay that counts every byte; all stays on loopback.
"""

import contextlib
import functools
import itertools
import os
import socket
import socketserver
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from flower_cases import CASES  # noqa: E402
from flower_lab import Lab, app, rounds_in, wait  # noqa: E402

import clusterfl_core as cf  # noqa: E402

PATIENCE = 900  # seconds for one round
DATA = "scikit-learn's digits in 2 rotations, 4 clients"


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to another port of this machine and counts the bytes each way."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port, onward):
        super().__init__(("127.0.0.1", port), Connection)
        self.onward, self.lock, self.bytes = onward, threading.Lock(), {"down": 0, "up": 0}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def counted(self):
        """Bytes so far: down to the clients and up from them."""
        with self.lock:
            return dict(self.bytes)


class Connection(socketserver.BaseRequestHandler):
    """One connection of a client."""

    def handle(self):
        """Pass on both ways until both sides have ended."""
        with (
            contextlib.suppress(ConnectionRefusedError),  # it has ended, the client will try again
            socket.create_connection(("127.0.0.1", self.server.onward)) as link,
        ):
            down = threading.Thread(target=self.carry, args=(link, self.request, "down"))
            down.start()
            self.carry(self.request, link, "up")
            down.join()

    def carry(self, source, target, way):
        """Pass on what one side says."""
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                with self.server.lock:
                    self.server.bytes[way] += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def load():
    """How many programs want a core of this machine now, on average over a minute."""
    return round(os.getloadavg()[0], 1)


def between(marks, way):
    """How many bytes went this way between a mark and the next."""
    return [b[way] - a[way] for a, b in itertools.pairwise(marks)]


def compared(file, name, rounds):
    """What the records of a run say, and whether it ended with the bits of `cf.run`."""
    far, (federation, algorithm) = cf.Run.load(file), CASES[name]
    near = cf.run(algorithm, federation, rounds, progress=False)
    return {
        "seconds": [record["seconds"] for record in far.history],
        "missing": [record.get("missing", []) for record in far.history],
        "accuracy": [record["accuracy"] for record in far.history],
        "theory_down": [record["bytes_down"] for record in near.history],
        "theory_up": [record["bytes_up"] for record in near.history],
        "equal": torch.equal(far.models.flatten(), near.models.flatten()),
        "model_bytes": near.models.bytes_of_one(),
    }


def deployment(name, rounds, port, kill=None):
    """A run with real programs; `kill` ends client 1 after this round and starts it a round later.

    The bytes of a round are those between the moments at which it and the one before were saved.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        file, done = folder / "run.pt", []
        lab = Lab(folder, clients=4, port=port)
        lab.commands[1:] = cf.flower.commands(4, port=port + 20)[1:]  # nodes go by the relay
        with Relay(port + 20, port) as relay, lab:
            time.sleep(30)
            before = relay.counted()
            time.sleep(30)
            idle = [before, relay.counted()]
            started, loads, marks = time.monotonic(), [load()], [relay.counted()]
            process = lab.submit(app(folder / "app", name), rounds, file)
            while len(done) < rounds:
                wait(lambda: rounds_in(file) > len(done), PATIENCE, lab)
                marks.append(relay.counted())
                loads.append(load())
                done.append(round(time.monotonic() - started, 1))
                print(f"    {name}: round {len(done)} after {done[-1]} s, load {loads[-1]}")
                if kill == len(done):
                    lab.kill(2)
                if kill is not None and kill + 1 == len(done):
                    lab.start(2)
            wait(lambda: process.poll() is not None, PATIENCE, lab)
            total = round(time.monotonic() - started, 1)
        own = {
            "ended": done,
            "total": total,
            "load": loads,
            "down": between(marks, "down"),
            "up": between(marks, "up"),
            "idle_30s": {way: between(idle, way)[0] for way in ("down", "up")},
        }
        return compared(file, name, rounds) | own


def simulation(name, rounds, port):
    """A run in Flower's simulation."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        file = folder / "run.pt"
        with Lab(folder, clients=4, port=port, simulation=True) as lab:
            started, loads = time.monotonic(), [load()]
            lab.simulate(app(folder / "app", name), rounds, file, PATIENCE)
            own = {"total": round(time.monotonic() - started, 1), "load": [*loads, load()]}
        return compared(file, name, rounds) | own


def main():
    """Make every record that is missing."""
    for place, name in enumerate(CASES):
        make = functools.partial(deployment, name, 4, 18400 + 40 * place)
        record("deployment", {"algorithm": name, "rounds": 4, "clients": 4}, make)
    settings = {"algorithm": "IFCA", "rounds": 6, "clients": 4, "killed_after": 1, "client": 1}
    record("killed", settings, functools.partial(deployment, "IFCA", 6, 18540, kill=1))
    for place, name in enumerate(CASES):
        make = functools.partial(simulation, name, 6, 18600 + 10 * place)
        record("simulation", {"algorithm": name, "rounds": 6, "clients": 4}, make)


def record(experiment, settings, make):
    """Make one record, unless it is stored."""
    store = cf.results.Store(f"14_{experiment}", "paper")
    store.run(0, settings, lambda _checkpoint: make(), data=DATA)


if __name__ == "__main__":
    main()
