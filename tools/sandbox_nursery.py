"""The inside of a nursery: a sandbox that loads packages once and forks students' sandboxes.

Usage: sandbox_nursery.py FD TOLD: FD is a socket to the grader, TOLD a JSON object.

Importing PyTorch costs more than most submissions do. This process imports packages, never the
book's library and never a line of a student's, and forks for each submission. The fork becomes
another user where it can, and moves into namespaces of its own before it runs anything: it sees no
process but its own, its folders are empty and gone afterwards, it has no socket but its own. What
it shares with the next submission is the memory as it was before either began.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import re
import signal
import socket
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import sandbox_runner

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PIDS = 0x20000, 0x8000000, 0x10000000, 0x20000000
NO_SETUID, NO_DEVICES, BIND = 2, 4, 0x1000 | 0x4000  # with what is mounted in it
DIE_WITH_PARENT, DUMPABLE, DROP_BOUND, NO_NEW_PRIVILEGES, AMBIENT = 1, 4, 24, 38, 47
CAPABILITIES_3 = 0x20080522
FOLDERS = ("/tmp", "/dev/shm", "/home/student")

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments) -> None:
    """Call a function of the C library; raise OSError if it fails."""
    if getattr(libc, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def control(option: int, value: int) -> None:
    """Set an attribute of this process."""
    call("prctl", option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


def powerless() -> None:
    """Give up every capability for good."""
    control(NO_NEW_PRIVILEGES, 1)
    with contextlib.suppress(OSError):  # the number after the kernel's last one
        for number in range(64):
            control(DROP_BOUND, number)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())


def mount(kind: bytes, where: str, options: str = "") -> None:
    """Mount a file system without devices and programs of other users."""
    call("mount", b"none", where.encode(), kind, NO_SETUID | NO_DEVICES, options.encode())


def mounted_below(folder: str) -> list[str]:
    """Return what is mounted in a folder, outer ones first: the book itself may lie there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), one.split()[4]) for one in lines]
    return sorted({place for place in places if place.startswith(f"{folder}/")})


def apart(size: int, shared_user: bool) -> None:
    """Move into namespaces of one's own; only a fork of a fork of this process returns.

    Raises
    ------
    OSError
        If the kernel does not allow it, or submissions could see each other.
    """
    user, group = os.getuid(), os.getgid()
    control(DUMPABLE, 1)  # else its own maps belong to root
    call("unshare", NEW_USER | NEW_MOUNTS | NEW_PIDS | NEW_IPC)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    wait_if_parent()
    try:
        mount(b"proc", "/proc")
    except OSError:
        if shared_user:
            raise
    for folder in FOLDERS:
        kept = {path: os.open(path, os.O_PATH) for path in mounted_below(folder)}
        mount(b"tmpfs", folder, f"size={size},mode=1777")
        for path, number in kept.items():
            Path(path).mkdir(parents=True, exist_ok=True)
            call("mount", f"/proc/self/fd/{number}".encode(), path.encode(), None, BIND, None)
            os.close(number)
    os.chdir(FOLDERS[-1])
    powerless()
    wait_if_parent()
    os.setsid()


def wait_if_parent() -> None:
    """Fork; the parent waits, as the first process of its namespace must, and ends with the fork.

    Where the parent is ended, so is the fork, and the kernel ends with it all in its namespace.
    """
    child = os.fork()
    if child == 0:
        control(DIE_WITH_PARENT, signal.SIGKILL)
        return
    control(DUMPABLE, 0)
    powerless()
    with contextlib.suppress(ChildProcessError):
        while os.wait()[0] != child:
            pass
    os._exit(0)


def child(link: int, data: int, limits: dict) -> None:
    """Become the sandbox of one submission."""
    os.write(link, b"!")  # the kernel tells the grader who wrote this
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in (0, 1, link, data):
            with contextlib.suppress(OSError):
                os.close(number)
    os.dup2(1, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sandbox_runner.confine(limits)
    apart(limits["folder"], not limits["user"])
    with os.fdopen(data, "rb") as file:
        for name, size in limits["files"].items():
            Path(name).write_bytes(file.read(size))
            Path(name).chmod(0o444)
    sys.argv = [sandbox_runner.__file__, str(link), "{}"]
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sandbox_runner.work(link, limits)


def main() -> None:
    """Import what is asked for, then fork whenever the grader asks, until it closes the socket."""
    channel, told = Connection(int(sys.argv[1])), json.loads(sys.argv[2])
    wire = socket.socket(fileno=os.dup(int(sys.argv[1])))
    control(DUMPABLE, 0)  # nobody may look into it
    for name in ("IPython.core.interactiveshell", *told["packages"]):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # pages that no collection touches stay shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no dead process is kept
    channel.send_bytes(b'{"started": true}')
    while True:
        try:
            limits = json.loads(channel.recv_bytes())
        except EOFError:
            return
        _, (link, data), _, _ = socket.recv_fds(wire, 1, 2)
        if os.fork() == 0:
            try:
                child(link, data, limits)
            finally:
                os._exit(1)
        os.close(link)
        os.close(data)


if __name__ == "__main__":
    main()
