"""The inside of the student's sandbox: it runs a notebook's cells, then answers calls.

Usage: sandbox_runner.py FD LIMITS: FD is a socket to the grader, LIMITS a JSON object.

Cells run in this process, as in a notebook. For each test a fork of it answers what the test asks:
"call the function of this name with these arguments". No test, no expected value and no mark is
ever in here; the test runs in another process (tester.py) which knows only the answers. Everything
that this program says may come from the student's code: whoever reads takes it for a claim.
"""

import base64
import builtins
import contextlib
import io
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection

import codec

CUT = 10_000  # characters of output, message or traceback that are passed on
GRACE = 3.0  # seconds that code which catches everything may go on


class OutOfTime(BaseException):
    """A cell ran longer than it may; no `except Exception` catches this."""


class Tail(io.TextIOBase):
    """Keep the first characters of what is printed, and forget the rest."""

    def __init__(self):
        self.kept = ""

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, text: str) -> int:
        """Take some text."""
        self.kept += text[: max(0, CUT - len(self.kept))]
        return len(text)


def confine(limits: dict) -> None:
    """Set what the kernel enforces, then give up root for good."""
    wanted = {
        "RLIMIT_DATA": limits["memory"],
        "RLIMIT_NPROC": limits["processes"],
        "RLIMIT_FSIZE": limits["folder"],
        "RLIMIT_CORE": 0,
    }
    for name, value in wanted.items():
        if value is not None:
            number = getattr(resource, name)
            _, hard = resource.getrlimit(number)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (value, value))
    if limits["user"]:
        os.setgroups([])
        os.setgid(limits["user"])
        os.setuid(limits["user"])


def alarm(number, frame):
    """Stop what runs."""
    raise OutOfTime


@contextlib.contextmanager
def at_most(seconds: float):
    """Raise OutOfTime after so many seconds, and again each second, for code that catches it."""
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def described(error: BaseException, seconds: float) -> dict:
    """Say which error it is; even its message is code of the student's."""
    try:
        if isinstance(error, OutOfTime):
            return {
                "name": "TimeoutError",
                "message": f"ran longer than {seconds:g} s",
                "trace": "",
            }
        trace = traceback.format_exception(error)
        lines = [line for line in trace if __file__ not in line]
        message = str(error)
    except BaseException:
        message, lines = "its message cannot be shown", []
    return {
        "name": type(error).__name__[:200],
        "message": message[:CUT],
        "trace": "".join(lines)[-CUT:],
    }


def outcome(made, work, seconds: float) -> dict:
    """Run `work`, and say what it printed, which error it raised, if any, and what it drew."""
    printed, error, images, missing = Tail(), None, [], ""
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            at_most(seconds),
        ):
            try:
                work()
            finally:
                with contextlib.suppress(Exception):
                    drawn, missing = made.display_formatter.cell()
                    images = [base64.b64encode(image).decode() for image in drawn]
    except BaseException as caught:
        error = described(caught, seconds)
    return {"error": error, "output": f"{printed.kept}{missing}", "images": images}


def shell():
    """Return IPython without a kernel: magics work, pictures are drawn and not shown."""
    from IPython.core.interactiveshell import InteractiveShell
    from sandbox_pictures import Pictures

    class Quiet(InteractiveShell):
        def init_display_formatter(self):
            self.display_formatter = Pictures(parent=self)

        def enable_gui(self, gui=None):
            pass

        def showtraceback(self, *args, **kwargs):
            pass

        def showsyntaxerror(self, *args, **kwargs):
            pass

    Quiet.instance(history_load_length=0)
    made = Quiet.instance()
    made.history_manager.enabled = False
    return made


def run(made, source: str) -> None:
    """Run a cell as a notebook would, and raise what it raises."""
    made.run_cell(source, store_history=True).raise_error()


def fork(alone: bool) -> int:
    """Fork; where the student's processes have used up the limit, end them first."""
    try:
        return os.fork()
    except BlockingIOError:
        if not alone:
            raise
        os.kill(-1, signal.SIGKILL)  # in a sandbox: all but this process and the first one
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass
        return os.fork()


class Answers:
    """The student's end of a link to a test.

    Parameters
    ----------
    link : Connection
        To the test.
    names : dict
        What the notebook has defined.
    """

    def __init__(self, link: Connection, names: dict):
        self.link, self.names = link, names

    def borrow(self, number: int):
        """Return a function of the test's, to be called from here."""

        def lent(*args, **kwargs):
            self.link.send_bytes(b"C" + codec.encode((number, args, kwargs)))
            frame = self.link.recv_bytes()
            answer = codec.decode(frame[1:])
            if frame[:1] == b"R":
                return answer
            name, text = answer
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise kind(text)
            raise RuntimeError(f"{name}: {text}")

        return lent

    def answer(self, call: bytes) -> bytes:
        """Call what a test asks for, and return what came of it."""
        name, args, kwargs, keeps = codec.decode(call[1:], self.borrow)
        if name not in self.names:
            raise NameError(f"name {name!r} is not defined")
        value = self.names[name](*args, **kwargs)
        try:
            return b"R" + codec.encode((value, args[0] if keeps else None))
        except codec.Unfit as why:
            return b"U" + codec.encode(str(why))

    def serve(self, seconds: float) -> None:
        """Answer until the test has no more calls."""
        try:
            with at_most(seconds):
                while True:
                    call = self.link.recv_bytes()
                    try:
                        reply = self.answer(call)
                    except OutOfTime:
                        raise
                    except BaseException as error:
                        reply = b"E" + codec.encode(tuple(described(error, seconds).values()))
                    self.link.send_bytes(reply)
        except EOFError:
            pass
        except OutOfTime:
            self.link.send_bytes(b"L")


def serve(made, fd: int, seconds: float, alone: bool) -> dict:
    """Fork, let the fork answer what comes through the link, and wait for it."""
    child = fork(alone)
    if child == 0:
        try:
            printed = Tail()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                Answers(Connection(fd), made.user_ns).serve(seconds)
        finally:
            os._exit(0)
    os.close(fd)  # the link ends with the fork
    end = time.monotonic() + seconds + GRACE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.002)
    return {"back": True}


def work(number: int, limits: dict) -> None:
    """Do what the grader asks by a socket until it closes it."""
    channel, wire = Connection(number), socket.socket(fileno=os.dup(number))
    made = shell()
    channel.send_bytes(b'{"started": true}')
    while True:
        try:
            task = json.loads(channel.recv_bytes())
        except EOFError:
            return
        seconds = task["seconds"]
        try:
            if task["do"] == "run":
                reply = outcome(made, lambda t=task: run(made, t["source"]), seconds)
            else:
                _, (fd,), _, _ = socket.recv_fds(wire, 1, 1)
                reply = serve(made, fd, seconds, limits["alone"])
        except OutOfTime as late:  # between the end of a cell and the end of its alarm
            reply = {"error": described(late, seconds), "output": "", "images": []}
        channel.send_bytes(json.dumps(reply).encode())


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    confine(told)
    work(int(sys.argv[1]), told)
