"""A nursery forks students' sandboxes: they share packages, and nothing else."""

import contextlib
import time
from pathlib import Path

import pytest
import sandbox
from grader import running
from trial_assignment import run

LIMITS = sandbox.Limits(cell=5.0, total=60.0, memory=500, processes=24, folder=20)


@pytest.fixture(scope="module")
def nursery():
    """One nursery; skip where there can be no sandbox."""
    why = sandbox.unavailable()
    if why:
        pytest.skip(f"no sandbox: {why}")
    made = sandbox.Nursery(["numpy", "no_such_package"], ("algorithms",))
    yield made
    made.close()


def said(box: sandbox.Sandbox, code: str) -> str:
    """Run a cell that must not fail; return what it printed."""
    done = box.run(code)
    assert done["error"] is None, done["error"]
    return done["output"].strip()


def test_packages_are_there_and_the_library_is_not(nursery):
    with sandbox.Sandbox(LIMITS, nursery=nursery) as box:
        code = "import sys\nprint('numpy' in sys.modules, 'clusterfl_core' in sys.modules)"
        assert said(box, code) == "True False"
        done = box.run("import clusterfl_core as cf\ncf.cfl.anything()")
        assert "is not there while this assignment is graded" in done["error"]["message"]


def test_two_at_a_time_see_nothing_of_each_other(nursery):
    names = ("/tmp/x", "/dev/shm/x", "x")
    leave = "".join(f"open({name!r}, 'w').write('secret')\n" for name in names)
    leave += """\
import ctypes, os, socket, subprocess
shared = ctypes.CDLL(None).shmget(4711, 4096, 0o1666)
print(os.getpid(), shared >= 0)
quiet = subprocess.Popen(["sleep", "50"], start_new_session=True)
"""
    look = f"""\
import ctypes, os, signal, threading
own = {{thread.native_id for thread in threading.enumerate()}}
print([name for name in {names} if os.path.exists(name)])
print(ctypes.CDLL(None).shmget(4711, 4096, 0))
for number in range(1, 3000):
    if number not in own:
        try:
            os.kill(number, signal.SIGKILL)
        except OSError:
            pass
for name in os.listdir("/proc"):
    for what in ("mem", "environ", "maps", "cwd/x", "root/tmp/x"):
        if name.isdigit() and int(name) != int(os.readlink("/proc/self")):
            try:
                open(f"/proc/{{name}}/{{what}}", "rb").read(1)
                print("read", name, what)
            except OSError:
                pass
"""
    with (
        sandbox.Sandbox(LIMITS, slot=0, nursery=nursery) as one,
        sandbox.Sandbox(LIMITS, slot=1, nursery=nursery) as other,
    ):
        assert said(one, leave) == "2 True"
        assert said(other, look).splitlines() == ["[]", "-1"]
        assert said(one, "print(quiet.poll(), open('/tmp/x').read())") == "None secret"
    with sandbox.Sandbox(LIMITS, slot=0, nursery=nursery) as later:  # the same user as the first
        assert said(later, look).splitlines() == ["[]", "-1"]


def test_nothing_of_one_is_in_the_memory_of_the_next(nursery):
    search = """\
import re
found = 0
for low, high in re.findall(r"([0-9a-f]+)-([0-9a-f]+) rw", open("/proc/self/maps").read()):
    with open("/proc/self/mem", "rb", 0) as memory:
        try:
            memory.seek(int(low, 16))
            found += memory.read(int(high, 16) - int(low, 16)).count(bytes(KEY))
        except (OSError, OverflowError, ValueError):
            pass
print(found)
"""
    key = [104, 117, 115, 104, 45, 56, 49, 55, 51]
    with sandbox.Sandbox(LIMITS, nursery=nursery, files={"own": bytes(key)}) as box:
        mine = f"kept = [bytes({key}) for _ in range(9)]"
        assert int(said(box, f"{mine}\n{search.replace('KEY', str(key))}")) > 5
    backwards = f"{key[::-1]}[::-1]"
    with sandbox.Sandbox(LIMITS, nursery=nursery) as box:
        assert int(said(box, search.replace("KEY", backwards))) <= 1  # the search's own word


def test_it_has_no_power_and_no_descriptor_but_its_own(nursery):
    with sandbox.Sandbox(LIMITS, nursery=nursery) as box:
        status = said(box, "print(open('/proc/self/status').read())")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{name}:\t0000000000000000\n" in status
        assert "NoNewPrivs:\t1\n" in status
        code = """\
import os, stat
kinds = []
for name in os.listdir("/proc/self/fd"):
    try:
        if stat.S_ISSOCK(os.stat(int(name)).st_mode):
            kinds.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
print(len(set(kinds)), os.getuid() == 0)"""
        assert said(box, code) == "1 False"
        for path in ("/", "/usr", "/etc", "/sandbox", "/dev", "/proc/sys/kernel"):
            done = box.run(f"open({path + '/new'!r}, 'w')")
            assert done["error"]["name"] in ("OSError", "PermissionError", "FileNotFoundError")
        code = "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)"
        assert "unreachable" in box.run(code)["error"]["message"]
        umount = "ctypes.CDLL(None).umount2(b'/tmp', 2)"
        assert said(box, f"import ctypes\nprint({umount})") == "-1"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (
            "import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass",
            "longer",
        ),
        (
            "import mmap\nm = mmap.mmap(-1, 3 << 30)\nwhile True: m.write(b'x' * (1 << 24))",
            "memory",
        ),
        ("import os\nos._exit(0)", "ended by itself"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended by itself"),
    ],
)
def test_limits_hold_and_the_others_go_on(nursery, code, why):
    limits = sandbox.Limits(cell=4.0, total=30.0, memory=200, processes=24, folder=20)
    with sandbox.Sandbox(LIMITS, slot=1, nursery=nursery) as other:
        with (
            sandbox.Sandbox(limits, nursery=nursery) as box,
            pytest.raises(sandbox.Stopped, match=why),
        ):
            box.run(code)
        assert said(other, "print(1)") == "1"


def test_its_folder_is_bounded_and_its_files_are_not_its_own(nursery):
    with sandbox.Sandbox(LIMITS, nursery=nursery, files={"a.csv": b"1,2", "b": b""}) as box:
        assert said(box, "print(open('a.csv').read(), len(open('b').read()))") == "1,2 0"
        assert box.run("open('a.csv', 'w')")["error"]["name"] == "PermissionError"
        fill = "for i in range(9): open(f'f{i}', 'wb').write(bytes(9_000_000))"
        assert "No space left" in box.run(fill)["error"]["message"]


def test_what_is_needed_may_lie_in_a_folder_that_is_made_anew(nursery, tmp_path, monkeypatch):
    needed = tmp_path / "needed"  # as a clone of the book in /tmp
    needed.mkdir()
    (needed / "x").write_text("there")
    folders = [*sandbox.readable(), needed]
    monkeypatch.setattr(sandbox, "readable", lambda: folders)
    made = sandbox.Nursery(())
    try:
        with sandbox.Sandbox(LIMITS, nursery=made) as box:
            assert said(box, f"print(open({str(needed / 'x')!r}).read())") == "there"
            assert "Read-only" in box.run(f"open({str(needed / 'y')!r}, 'w')")["error"]["message"]
    finally:
        made.close()


def test_processes_end_with_it(nursery):
    code = "import subprocess\np = [subprocess.Popen(['sleep', '77.5']) for _ in range(3)]"
    with sandbox.Sandbox(LIMITS, nursery=nursery) as box:
        said(
            box,
            code
            + "\nimport os\nif os.fork() == 0: os.setsid(); os.execlp('sleep', 'sleep', '77.5')",
        )
        inside = sandbox.family(box.process.pid)
        assert len(inside) == sandbox.OUTER + 1 + 4
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/exe").exists() for pid in inside):
        assert time.monotonic() < end, "a process lives on"
        time.sleep(0.05)


def test_random_numbers_differ(nursery):
    drawn = set()
    for _ in range(2):
        with sandbox.Sandbox(LIMITS, nursery=nursery) as box:
            drawn.add(
                said(box, "import random, numpy\nprint(random.random(), numpy.random.rand())")
            )
    numbers = [set(text.split()) for text in drawn]
    assert len(numbers) == 2
    assert not numbers[0] & numbers[1]


CELLS = [
    ("locked", "given", "import json"),
    ("solution", "double", "def double(x):\n    return 2 * x"),
    ("test", "t", "assert double(2) == 4"),
]


@pytest.fixture
def light(monkeypatch):
    """Let an assignment that imports json have a nursery without packages."""
    monkeypatch.setattr(running, "HEAVY", {"json"})
    monkeypatch.setattr(running, "READY", ())


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("allowed", [True, False])
def test_with_or_without_a_nursery_a_submission_gets_the_same(
    nursery, monkeypatch, tmp_path, allowed
):
    seen, real = [], sandbox.Nursery

    def refuse(packages, withheld=()):
        seen.append(packages)
        if not allowed:
            raise sandbox.Stopped("unshare: not permitted")
        return real(packages, withheld)

    monkeypatch.setattr(running, "Nursery", refuse)
    found = run(monkeypatch, tmp_path / "a", CELLS, {})
    assert seen == [()]
    assert found["t"].error == ""
    assert found["looks"] == ()


@pytest.mark.usefixtures("light")
def test_one_that_died_is_made_again(nursery, monkeypatch, tmp_path):
    made, real = [], sandbox.Nursery

    def remember(packages, withheld=()):
        made.append(real(packages, withheld))
        return made[-1]

    monkeypatch.setattr(running, "Nursery", remember)
    monkeypatch.setattr(running, "close_all", lambda: None)
    with contextlib.ExitStack() as stack:
        for number in range(2):
            found = run(monkeypatch, tmp_path / str(number), CELLS, {})
            stack.callback(made[-1].close)
            assert found["t"].error == ""
            made[-1].box.stop("killed")
            made[-1].box.process.wait()
    monkeypatch.undo()
    running.close_all()
    assert len(made) == 2
