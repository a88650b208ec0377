"""A small laboratory on this machine: Flower's real programs, talking over loopback."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

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
"""
PROGRAMS = '''"""The two programs of one algorithm on one federation."""

import clusterfl_core as cf
from flower_cases import CASES

federation, algorithm = CASES["{case}"]
server = cf.flower.server_app(algorithm, 3, clients=len(federation), federation=federation)
client = cf.flower.client_app(algorithm, lambda number: federation.train.take([number]))
'''


def app(folder, case):
    """Write the Flower app of one case."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(APP)
    (folder / "programs.py").write_text(PROGRAMS.format(case=case))
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


class Lab:
    """A SuperLink and its SuperNodes; all end with the ``with`` block."""

    def __init__(self, folder, clients, port):
        self.folder, self.port = folder, port
        self.environment = environment(folder / "home")
        self.commands = flower.commands(clients, port=port)
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
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its helpers end with it
        )

    def kill(self, number):
        """End a program and its helpers at once, with no chance to tidy up."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.programs[number].pid, 9)
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

    def submit(self, app, rounds, checkpoint):
        """Start a run; `flwr run` waits until it ends."""
        log = (self.folder / "run.log").open("a")
        config = f'rounds={rounds} checkpoint="{checkpoint}"'
        return subprocess.Popen(
            [BIN / "flwr", "run", app, "lab", "--stream", "--run-config", config],
            cwd=self.folder,
            env=self.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def text(self):
        """All that the programs have said."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def wait(what, seconds, lab):
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, lab.text()[-6000:]
        time.sleep(0.2)
