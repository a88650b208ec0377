"""A sandbox for one process and its children: bubblewrap, limits, and a socket to talk through.

Inside are Python, its packages, `clusterfl_core` and an empty folder that is gone afterwards; there
is no network, no other file and no other process. The student's code runs in one such sandbox
(`tools/sandbox_runner.py`), the tests of an assignment in another (`tools/tester.py`). Where
packages take long to import, a nursery (`tools/sandbox_nursery.py`) has them ready. The kernel
limits the memory of each process and, with bubblewrap, the number of processes; a thread outside
watches memory, processes and time of all together, and ends the sandbox that exceeds one.
"""

import atexit
import base64
import compileall
import contextlib
import json
import math
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(__file__).parent
RUNNER = TOOLS / "sandbox_runner.py"
NURSERY = TOOLS / "sandbox_nursery.py"
BESIDE = {RUNNER, TOOLS / "codec.py", TOOLS / "sandbox_pictures.py"}  # what these import
OUTER = 2  # processes around what runs in a sandbox, which are ours
LIBRARY = ROOT / "clusterfl_core"
FIRST_USER = 64_600  # of root's sandboxes: a user each, who owns nothing and runs nothing else
MESSAGE = 8 << 20  # bytes that one answer may have
TEXT = 1 << 20  # characters of a text in it
WATCH = 0.1  # seconds between two looks
MB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
CREDENTIALS = struct.Struct("3i")  # of a process, as a socket gives them: pid, user, group


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Attributes
    ----------
    cell : float
        Seconds for one cell or one test; an error is raised in it after that.
    total : float
        Seconds for the whole submission, the start of Python included.
    memory : int
        MB, of all processes together, and of private data of any one.
    processes : int
        Processes (with bubblewrap also threads) at a time.
    folder : int
        MB in each of its own folder, /tmp and /dev/shm.
    """

    cell: float = 60.0
    total: float = 600.0
    memory: int = 3000
    processes: int = 64
    folder: int = 100


class Stopped(Exception):
    """The sandbox is gone; the message says why."""


def kernel_counts_processes() -> bool:
    """Return whether RLIMIT_NPROC can count the sandbox alone, not all of this user's processes."""
    version = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    return os.getuid() == 0 or version >= (5, 14)  # since then it is counted a user namespace


def readable() -> list[Path]:
    """Return the folders that Python and its packages need, outer ones before those in them."""
    folders = {Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), LIBRARY}
    folders |= {ROOT / "book" / "results"}  # the package's stored runs
    folders |= {Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")}
    folders = {path.resolve() for path in folders} | folders  # .venv may be a link
    return sorted(path for path in folders if path.is_dir())


STUB = '''\
"""Not there while this assignment is graded."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(*args, **kwargs):
        raise RuntimeError(
            f"{module}.{{name}} is not there while this assignment is graded: it is yours to write"
        )

    return type(name, (), {{"__new__": refuse}})
'''


@cache
def library(withheld: tuple[str, ...]) -> Path:
    """Return a copy of the library without some of its modules, for as long as this program runs.

    Parameters
    ----------
    withheld : tuple of str
        Modules and folders of modules, as "theory" or "algorithms.cfl". Whatever is asked of one
        raises an error that says so; no file in the copy has its source or its bytecode.

    Raises
    ------
    ValueError
        If the library has no such module.
    """
    if not withheld:
        return LIBRARY
    folder = tempfile.mkdtemp(prefix="library-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = Path(folder) / LIBRARY.name
    shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name in withheld:
        place = copy.joinpath(*name.split("."))
        files = [*place.rglob("*.py")] or [place.with_suffix(".py")]
        if not all(file.is_file() for file in files):
            raise ValueError(f"{LIBRARY.name} has no module {name!r}")
        for file in files:
            module = file.parent.name if file.stem == "__init__" else file.stem
            file.write_text(STUB.format(module=module), encoding="utf-8")
    compileall.compile_dir(copy, quiet=2)
    return copy


def bubblewrap(
    limits: Limits,
    programs: Iterable[Path] = (),
    withheld: tuple[str, ...] = (),
    files: Mapping[str, int] | None = None,
) -> list[str]:
    """Return the command that makes the sandbox, up to the program that is to run in it.

    Parameters
    ----------
    limits : Limits
    programs : iterable of Path
        Our own files that are to lie in /sandbox.
    withheld : tuple of str
        Modules of the library that are to be missing.
    files : dict of int
        Files of the student's own folder: their names, and descriptors to read them from.
    """
    size = str(limits.folder * MB)
    command = ["bwrap", "--die-with-parent", "--new-session", "--clearenv"]
    if os.getuid() == 0:  # the runner becomes another user, for whom the kernel counts processes
        command += [f"--unshare-{name}" for name in ("ipc", "pid", "net", "uts", "cgroup-try")]
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-all", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    for name in ("/tmp", "/dev/shm", "/home/student"):  # first: what is needed may lie in /tmp
        command += ["--perms", "1777", "--size", size, "--tmpfs", name]
    for path in readable():
        for parent in reversed(path.parents[:-1]):  # else made for root alone
            command += ["--perms", "0755", "--dir", str(parent)]
        source = library(withheld) if path == LIBRARY else path
        command += ["--ro-bind", str(source), str(path)]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if Path(name).is_symlink():
            command += ["--symlink", str(Path(name).readlink()), name]
        else:
            command += ["--ro-bind-try", name, name]
    for name in ("/etc", "/sandbox"):
        command += ["--perms", "0755", "--dir", name]
    for name in ("/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/alternatives"):
        command += ["--ro-bind-try", name, name]
    for path in programs:
        command += ["--ro-bind", str(path), f"/sandbox/{path.name}"]
    for name, number in (files or {}).items():
        command += ["--perms", "0444", "--ro-bind-data", str(number), f"/home/student/{name}"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/home/student"]
    for name, value in environment("/home/student", "/tmp").items():
        command += ["--setenv", name, value]
    return command


def environment(home: str, temporary: str, packages: Path = ROOT) -> dict[str, str]:
    """Return the environment variables inside: nothing of the grader's own."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.prefix) / "bin"), "/usr/bin", "/bin"]),
        "HOME": home,
        "TMPDIR": temporary,
        "USER": "student",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it, where /proc tells."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{found[-1]}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return found


def resident(pids: list[int]) -> int:
    """Return the bytes of memory that processes use, pages that they share counted for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * PAGE


def shared_out(pids: list[int]) -> int:
    """Return the same with shared pages counted once, as far as /proc tells; this takes longer."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            total += resident([pid])
        else:
            found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
            total += int(found[1]) * 1024 if found else 0
    return total


class Born:
    """A process that a nursery made; it has what `Sandbox` asks of one of its own.

    Parameters
    ----------
    pid : int
        Of the outermost of its processes.

    Raises
    ------
    ProcessLookupError
        If it has ended already.
    """

    number = -1

    def __init__(self, pid: int):
        self.pid, self.number = pid, os.pidfd_open(pid)

    def __del__(self):
        if self.number >= 0:
            os.close(self.number)

    def poll(self) -> int | None:
        """Return None while it lives."""
        return 0 if select.select([self.number], [], [], 0)[0] else None

    def wait(self) -> None:
        """Wait for its end."""
        select.select([self.number], [], [])


class Nursery:
    """A sandbox that has packages imported and forks a sandbox of its own for each submission.

    Parameters
    ----------
    packages : iterable of str
        Modules that are to be imported.
    withheld : tuple of str
        Modules of the library that no submission has.

    Raises
    ------
    Stopped
        If the kernel does not allow it: then each submission needs a sandbox made anew.
    """

    def __init__(self, packages: Iterable[str], withheld: tuple[str, ...] = ()):
        self.lock = threading.Lock()
        own = Limits(cell=120.0, total=120.0, memory=1 << 20, processes=1 << 20)
        told = {"packages": list(packages)}
        self.box = Sandbox(own, program=NURSERY, withheld=withheld, told=told)
        self.box.end = self.box.deadline = math.inf
        try:
            Sandbox(Limits(), nursery=self).close()
        except Stopped:
            self.box.close()
            raise

    def bear(self, told: dict, files: Mapping[str, bytes]) -> tuple[socket.socket, Born]:
        """Return the socket of a new sandbox, and its process."""
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(30.0)
        sizes = {name: len(content) for name, content in files.items()}
        with content_file(b"".join(files.values())) as data, theirs, self.lock:
            self.box.tell(told | {"files": sizes}, [theirs.fileno(), data.fileno()])
        try:
            _, beside, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(CREDENTIALS.size))
            (pid,) = [CREDENTIALS.unpack(text)[0] for _, _, text in beside]
            born = Born(pid)
        except (OSError, ValueError):
            ours.close()
            raise Stopped("it did not start: the nursery does not answer") from None
        ours.settimeout(None)
        return ours, born

    def close(self) -> None:
        """End it, and all that it made."""
        self.box.close()


class Sandbox:
    """One process in a sandbox, the student's unless told otherwise.

    Parameters
    ----------
    limits : Limits
        What it may use.
    unsafe : bool
        Run without bubblewrap: the code can then read, write and send what the grader can.
    slot : int
        A number that no other sandbox has at the same time.
    program : Path
        What runs in it.
    withheld : tuple of str
        Modules of the library that it does not have.
    files : dict of bytes
        Files in its folder; it can read them only.
    told : dict
        What the program is told besides its limits.
    nursery : Nursery
        What makes it, instead of a start of Python; `program` and `withheld` are then the
        nursery's.
    """

    alive: ClassVar[set["Sandbox"]] = set()

    def __init__(
        self,
        limits: Limits,
        unsafe: bool = False,
        slot: int = 0,
        *,
        program: Path = RUNNER,
        withheld: tuple[str, ...] = (),
        files: Mapping[str, bytes] | None = None,
        told: Mapping[str, object] | None = None,
        nursery: Nursery | None = None,
    ):
        if any(Path(name).name != name for name in files or ()):
            raise ValueError("a file of the student's has no name that a file can have")
        self.limits, self.reason, self.folder = limits, "", None
        end = time.monotonic() + limits.total
        self.end = self.deadline = end
        self.outer = 0 if unsafe else OUTER
        counted = not unsafe and kernel_counts_processes()
        told = {
            **(told or {}),
            "memory": limits.memory * MB,
            "processes": limits.processes if counted else None,
            "folder": limits.folder * MB,
            "user": FIRST_USER + slot if os.getuid() == 0 and not unsafe else 0,
            "alone": not unsafe,
        }
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
        try:
            if nursery is None:
                self.wire = self.begin(told, unsafe, program, withheld, files or {})
            else:
                self.wire, self.process = nursery.bear(told, files or {})
        except BaseException:
            self.said.close()
            raise
        self.alive.add(self)
        self.channel = Connection(os.dup(self.wire.fileno()))
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        try:
            self.receive()
        except Stopped as stopped:
            self.close()
            raise Stopped(f"it did not start: {stopped}") from None

    def begin(
        self,
        told: dict,
        unsafe: bool,
        program: Path,
        withheld: tuple[str, ...],
        files: Mapping[str, bytes],
    ) -> socket.socket:
        """Start Python in a sandbox, and return the socket to it."""
        ours, theirs = socket.socketpair()
        python = [str(Path(sys.prefix) / "bin" / "python"), "-B"]
        tail = [str(theirs.fileno()), json.dumps(told)]
        opened = []
        if unsafe:
            self.folder = tempfile.mkdtemp(prefix="submission-")
            for name, content in files.items():
                (Path(self.folder) / name).write_bytes(content)
            command = [*python, str(program), *tail]
            packages = library(withheld).parent
            options = {"cwd": self.folder, "env": environment(self.folder, self.folder, packages)}
        else:
            opened = [content_file(content) for content in files.values()]
            given = dict(zip(files, (file.fileno() for file in opened), strict=True))
            made = bubblewrap(self.limits, {program, *BESIDE}, withheld, given)
            command = [*made, *python, f"/sandbox/{program.name}", *tail]
            options = {"cwd": "/"}
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno(), *(file.fileno() for file in opened)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
            start_new_session=True,
            **options,
        )
        for file in (theirs, *opened):
            file.close()
        return ours

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def watch(self) -> None:
        """End the sandbox when it is over a limit."""
        limits, most = self.limits, self.limits.memory * MB
        while self.process.poll() is None:
            now = time.monotonic()
            if now > self.end:
                self.stop(f"it ran longer than {limits.total:g} s in all")
            elif now > self.deadline:
                self.stop(
                    f"a cell ran longer than {limits.cell:g} s and did not let itself be stopped"
                )
            else:
                pids = family(self.process.pid)[self.outer :]
                if len(pids) > limits.processes:
                    self.stop(f"it had more than {limits.processes} processes at a time")
                elif resident(pids) > most and shared_out(pids) > most:
                    self.stop(f"it used more than {limits.memory} MB of memory")
            time.sleep(WATCH)

    def stop(self, reason: str) -> None:
        """End all its processes at once, and keep the first reason."""
        self.reason = self.reason or reason
        living = family(self.process.pid) if self.process.poll() is None else []
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its folder."""
        self.alive.discard(self)
        self.stop("closed")
        self.process.wait()
        self.watcher.join()
        self.channel.close()
        self.wire.close()
        self.said.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def end_all(cls) -> None:
        """End every sandbox of this program."""
        for sandbox in list(cls.alive):
            sandbox.stop("the grader was stopped")

    def receive(self) -> dict:
        """Read one answer, an object, or raise Stopped."""
        try:
            reply = json.loads(self.channel.recv_bytes(MESSAGE))
            if isinstance(reply, dict):
                return reply
            raise ValueError
        except (EOFError, ConnectionError):
            time.sleep(WATCH)
            self.said.seek(0)
            said = self.said.read(2000).decode(errors="replace").strip().splitlines()
            why = f" ({said[-1]})" if said else ""
            raise Stopped(self.reason or f"its process ended by itself{why}") from None
        except (OSError, ValueError, RecursionError):
            self.stop("its process sent what is no answer")
            raise Stopped(self.reason) from None

    def tell(self, task: dict, descriptors: Iterable[int] = ()) -> None:
        """Send a task, and with it the ends of some sockets."""
        with contextlib.suppress(OSError):  # why it ended is read where the answer is
            self.channel.send_bytes(json.dumps(task | {"seconds": self.limits.cell}).encode())
            if descriptors:
                socket.send_fds(self.wire, [b"!"], list(descriptors))

    def ask(self, task: dict, grace: float, descriptors: Iterable[int] = ()) -> dict:
        """Send a task and return the answer, which must come within a cell's time and a grace."""
        self.deadline = time.monotonic() + self.limits.cell + grace
        self.tell(task, descriptors)
        return self.receive()

    def serve(self, descriptor: int) -> None:
        """Let a fork of the process answer calls that come by a socket; :meth:`served` waits."""
        self.deadline = time.monotonic() + self.limits.cell + 10.0
        self.tell({"do": "serve"}, [descriptor])

    def served(self) -> None:
        """Wait until that fork has ended."""
        if "back" not in self.receive():
            self.stop("its process sent what is no answer")
            raise Stopped(self.reason)

    def run(self, source: str) -> dict:
        """Run a cell.

        Returns
        -------
        dict
            output : str, what it printed; error : None or a dict of name, message and trace;
            images : list of bytes, the figures that it drew, as PNG.
        """
        return checked(self.ask({"do": "run", "source": source}, grace=5.0))


def content_file(content: bytes):
    """Return a file without a name that has this content, at its beginning."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(content)
    file.seek(0)
    return file


def checked(reply: dict) -> dict:
    """Return an answer whose parts have the types they should; it may be the student's own."""
    error, images = reply.get("error", {}), []
    if error is not None:
        parts = error if isinstance(error, dict) else {}
        error = {name: str(parts.get(name, "?"))[:TEXT] for name in ("name", "message", "trace")}
    given = reply.get("images")
    for image in given if isinstance(given, list) else []:
        with contextlib.suppress(TypeError, ValueError):
            content = base64.b64decode(image)
            if content.startswith(b"\x89PNG\r\n\x1a\n"):
                images.append(content)
    return {"output": str(reply.get("output", ""))[:TEXT], "error": error, "images": images}


def unavailable() -> str:
    """Return why there can be no sandbox on this machine, "" where one was just made and worked."""
    if not shutil.which("bwrap"):
        return "bubblewrap (bwrap) is not installed"
    try:
        with Sandbox(Limits(total=120.0)) as sandbox:
            done = sandbox.run("import clusterfl_core")
    except (Stopped, OSError) as error:
        return f"bubblewrap is installed, but {error}"
    if done["error"]:
        return f"bubblewrap is installed, but its Python fails: {done['error']['message']}"
    return ""
