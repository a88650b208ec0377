"""The boxes of the page on deployment, run as printed on three machines.

The machines are network namespaces of this one, joined by a bridge, each with a folder and a home
of its own. Making them needs Linux and root.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time

import house
import pytest
import torch
from flower_lab import end, rounds_in, wait

import clusterfl_core as cf

PAGE = house.ROOT / "book" / "deployment.md"
MACHINES = {"server": "10.77.0.1", "clinic-a": "10.77.0.2", "clinic-b": "10.77.0.3"}
PATIENCE = 600  # seconds: each message starts a process that imports PyTorch
RUN = "flwr run app clinics --stream"

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(
        importlib.util.find_spec("flwr") is None,
        reason="Flower is not installed; `make test-deployment` installs it and runs this",
    ),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() or not shutil.which("ip"),
        reason="network namespaces need Linux, root and the command ip",
    ),
]


def boxes():
    """What stands in the boxes of the page: kind, first line without its #, the rest."""
    text = PAGE.read_text(encoding="utf-8")
    for kind, body in re.findall(r"^```(bash|toml|python)\n(.*?)^```$", text, re.M | re.S):
        first, rest = body.split("\n", 1)
        yield kind, first.removeprefix("# "), rest


class Machines:
    """Three machines on one network; all that runs on them ends with the ``with`` block."""

    def __init__(self, folder):
        self.folder, self.prelude, self.kept = folder, "", []

    def __enter__(self):
        self.remove()
        self.ip("netns", "add", "cf-lan")
        self.ip("-n", "cf-lan", "link", "add", "lan", "type", "bridge")
        self.ip("-n", "cf-lan", "link", "set", "lan", "up")
        for name, address in MACHINES.items():
            space, plug = f"cf-{name}", f"to-{name}"
            self.ip("netns", "add", space)
            link = ["-n", space, "link"]
            self.ip(*link, "add", "eth0", "type", "veth", "peer", "name", plug, "netns", "cf-lan")
            self.ip("-n", "cf-lan", "link", "set", plug, "master", "lan", "up")
            self.ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            self.ip(*link, "set", "eth0", "up")
            self.ip(*link, "set", "lo", "up")
            (self.folder / name).mkdir()
            (self.folder / name / "env").symlink_to(sys.prefix)
        return self

    def __exit__(self, *_error):
        for number in range(len(self.kept)):
            self.kill(number)
        self.remove()

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def remove(self):
        for name in ("lan", *MACHINES):
            subprocess.run(["ip", "netns", "del", f"cf-{name}"], stderr=subprocess.DEVNULL)

    def start(self, machine, commands, number, log):
        """Start the commands of a box on a machine."""
        own = {"HOME": str(self.folder / machine), "LAB_PROGRAM": f"{self.folder}/{number}"}
        own |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(house.ROOT)}
        shell = ["bash", "-euo", "pipefail", "-c", self.prelude + commands]
        return subprocess.Popen(
            ["ip", "netns", "exec", f"cf-{machine}", *shell],
            cwd=self.folder / machine,
            env={**os.environ, **own},
            stdout=log.open("a"),
            stderr=subprocess.STDOUT,
        )

    def keep(self, machine, commands):
        """Start a program that keeps running; gives its number."""
        number = len(self.kept)
        self.kept.append([machine, commands, None])
        self.again(number)
        return number

    def again(self, number):
        machine, commands, _process = self.kept[number]
        log = self.folder / f"{number}-{machine}.log"
        self.kept[number][2] = self.start(machine, commands, number, log)

    def kill(self, number):
        """End a program and its helpers at once."""
        end(f"{self.folder}/{number}")
        self.kept[number][2].wait()

    def do(self, machine, commands):
        """Run the commands of a box to their end; gives what they said."""
        log = self.folder / "said.txt"
        before = len(self.text())
        process = self.start(machine, commands, "box", log)
        try:
            assert process.wait(PATIENCE) == 0, self.text()[-6000:]
        finally:
            process.kill()
        print(self.text()[before:])

    def text(self):
        logs = [*sorted(self.folder.glob("*.log")), self.folder / "said.txt"]
        return "\n".join(path.read_text() for path in logs if path.exists())


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """The machines, after all boxes of the page up to the first run."""
    with Machines(tmp_path_factory.mktemp("machines")) as lan:
        for kind, first, rest in boxes():
            if kind != "bash":
                name, machine = first.split(" on ")
                file = lan.folder / machine / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(rest)
            elif first == "all three, in every shell":
                lan.prelude = rest
            elif first.endswith(", keeps running"):
                lan.keep(first.removesuffix(", keeps running"), rest)
                time.sleep(10)
            elif first in MACHINES:
                if rest.startswith(RUN):
                    break
                lan.do(first, rest)
            if "ssh-keygen" in rest and first == "clinic-b":
                carry(lan.folder)
        yield lan


def carry(folder):
    """The copies that the page asks for."""
    for clinic in ("clinic-a", "clinic-b"):
        shutil.copy(folder / "server/keys/ca.crt", folder / clinic / "keys")
        for file in (folder / clinic / "keys").glob("*.pub"):
            shutil.copy(file, folder / "server/keys")


def near(rounds):
    federation = cf.populations.rotated("digits", clients=4, clusters=2)
    algorithm = cf.IFCA(cf.models.MLP(64, 32, 10), clusters=2, local=cf.LocalSGD(10, 0.1))
    return cf.run(algorithm, federation, rounds)


def test_three_machines_end_with_the_same_bits(machines):
    machines.do("server", RUN)
    far = cf.Run.load(machines.folder / "server" / "run.pt")
    assert [record["missing"] for record in far.history] == [[], [], []]
    assert torch.equal(far.models.flatten(), near(3).models.flatten())
    print([record["seconds"] for record in far.history])


def test_a_killed_client_and_a_killed_server_come_back(machines):
    file = machines.folder / "server" / "run.pt"
    log = machines.folder / "said.txt"
    process = machines.start("server", f'{RUN} --run-config "rounds=7"', "box", log)
    wait(lambda: rounds_in(file) == 4, PATIENCE, machines)
    machines.kill(2)  # client 1
    wait(lambda: rounds_in(file) == 5, PATIENCE, machines)
    machines.again(2)
    wait(lambda: process.poll() is not None, PATIENCE, machines)
    far = cf.Run.load(file)
    missing = [record["missing"] for record in far.history]
    print(missing, [record["seconds"] for record in far.history])
    assert {one["client"] for round in missing for one in round} == {1}
    assert missing[4]
    assert missing[6] == []

    process = machines.start("server", f'{RUN} --run-config "rounds=8"', "box", log)
    time.sleep(20)
    machines.kill(0)  # the SuperLink
    wait(lambda: process.poll() is not None, PATIENCE, machines)
    print("SuperLink killed", machines.text()[-1500:])
    machines.again(0)
    time.sleep(30)
    machines.do("server", "flwr supernode list clinics")
    for _ in range(3):  # a busy machine may lose a run; the same command goes on where it was
        machines.do("server", f'{RUN} --run-config "rounds=8"')
        if rounds_in(file) == 8:
            break
    far = cf.Run.load(file)
    print([record["missing"] for record in far.history])
    assert far.state.round == 8
    assert far.history[7]["missing"] == []
