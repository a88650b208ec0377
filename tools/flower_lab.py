"""A small laboratory on this machine: Flower's real programs, talking over loopback."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import clusterfl_core as cf
from clusterfl_core import flower

BIN = Path(sys.executable).parent
APP = """[project]
name = "lab"
version = "1.0.0"
description = "One case"
license = { text = "BSD-3-Clause" }

[tool.flwr.app]
publisher = "book"

[tool.flwr.app.components]
serverapp = "programs:server"
clientapp = "programs:client"

[tool.flwr.app.config]
rounds = 3
checkpoint = "run.pt"
timeout = 600.0
"""
PROGRAMS = '''"""The two programs of one algorithm on one federation."""

import clusterfl_core as cf
from {cases} import CASES

federation, algorithm = CASES["{case}"]
server = cf.flower.server_app(algorithm, 3, clients=len(federation), federation=federation)
client = cf.flower.client_app(algorithm, lambda number: federation.train.take([number]))
'''


def app(folder, case, more="", cases="flower_cases"):
    """Write the Flower app of one of the cases, with ``more`` lines at the end of its programs."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(APP)
    (folder / "programs.py").write_text(PROGRAMS.format(case=case, cases=cases) + more)
    return folder


def environment(home):
    """What Flower's programs need to stay on this machine and to find the cases."""
    home.mkdir(exist_ok=True)
    paths = [str(Path(flower.__file__).parents[1]), str(Path(__file__).parent)]
    flags = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
    }
    return {**os.environ, **flags}


def end(mark):
    """End at once all programs whose environment says that ``mark`` is their LAB_PROGRAM.

    Helpers leave the group of the program that started them, but keep its environment.
    """
    mine = f"LAB_PROGRAM={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if mine in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), 9)


def rounds_in(file):
    """How many rounds a file holds."""
    return cf.Run.load(file).state.round if file.exists() else 0


class Lab:
    """A SuperLink and its SuperNodes; all end with the ``with`` block.

    With ``simulation`` there are no SuperNodes: the SuperLink plays them, by means of Ray.
    """

    def __init__(self, folder, clients, port, simulation=False):
        self.folder, self.port = folder, port
        self.environment = environment(folder / "home")
        self.commands, self.options = flower.commands(clients, port=port), []
        if simulation:
            self.commands = [[*self.commands[0], "--simulation"]]
            config = f"num-supernodes={clients} client-resources-num-cpus=1 init-args-num-cpus=2"
            self.options = ["--federation-config", config]
        self.programs = {}
        config = f'[superlink.lab]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        (folder / "home" / "config.toml").write_text(config)

    def start(self, number):
        """Start the SuperLink (0) or the SuperNode of client number - 1."""
        command, *rest = self.commands[number]
        log = (self.folder / f"program-{number}.log").open("a")
        self.programs[number] = subprocess.Popen(
            [BIN / command, *rest],
            cwd=self.folder,
            env={**self.environment, "LAB_PROGRAM": self.mark(number)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that no signal to the tests ends it
        )

    def mark(self, number):
        """What the environment of a program and of its helpers says."""
        return f"{self.folder}/{number}"

    def kill(self, number):
        """End a program and its helpers at once, with no chance to tidy up."""
        end(self.mark(number))
        self.programs.pop(number).wait()

    def __enter__(self):
        self.start(0)
        wait(self.listens, 120, self)
        for number in range(1, len(self.commands)):
            self.start(number)
        return self

    def listens(self):
        """Whether the SuperLink takes connections."""
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_error):
        for number in list(self.programs):
            self.kill(number)

    def submit(self, app, rounds, checkpoint, more=""):
        """Start a run; `flwr run` waits until it ends."""
        log = (self.folder / "run.log").open("a")
        config = f'rounds={rounds} checkpoint="{checkpoint}" {more}'
        return subprocess.Popen(
            [BIN / "flwr", "run", app, "lab", "--stream", "--run-config", config, *self.options],
            cwd=self.folder,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def simulate(self, app, rounds, checkpoint, patience):
        """Play a run to its end, in a lab with ``simulation``.

        Ray gives its helpers 15 seconds to start. A busy machine needs more, so there are five
        tries.
        """
        for _ in range(5):
            said = len(self.text())
            process = self.submit(app, rounds, checkpoint)
            wait(lambda one=process: one.poll() is not None, patience, self)
            if "timed out during startup" not in self.text()[said:]:
                break

    def text(self):
        """All that the programs have said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def wait(what, seconds, lab):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, lab.text()[-6000:]
        time.sleep(0.2)
