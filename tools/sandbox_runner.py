"""The inside of the grader's sandbox: it runs a notebook's cells as the grader outside sends them.

Usage: sandbox_runner.py FD LIMITS: FD is a socket to the grader, LIMITS a JSON object.

A cell of the student runs in this process. A test runs in a fork of it, made for this test alone:
its text reaches that fork only, so no code that runs afterwards has ever been in a process with a
hidden test. Everything said on the socket may come from the student's code: the grader outside
takes it for what it is, a claim.
"""

import ast
import contextlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection

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


def number(value: object) -> float | None:
    """Return a number that a test cell ends in: it is worth so many points. Else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def outcome(work, seconds: float) -> dict:
    """Run `work`, and say what it printed and which error it raised, if any."""
    printed, error, value = Tail(), None, None
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            at_most(seconds),
        ):
            value = work()
    except BaseException as caught:
        error = described(caught, seconds)
    return {"error": error, "output": printed.kept, "value": number(value)}


def shell():
    """Return IPython without a kernel: magics work, pictures are drawn and not shown."""
    from IPython.core.interactiveshell import InteractiveShell

    class Quiet(InteractiveShell):
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


def run(made, source: str):
    """Run a cell as a notebook would, and raise what it raises."""
    done = made.run_cell(source, store_history=True)
    done.raise_error()
    return done.result


def do_test(source: str, names: dict, compile=compile, exec=exec, eval=eval, parse=ast.parse):
    """Run a test by Python's own means, as they were before the student's code ran."""
    body = parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, type_ignores=[]), "<test>", "exec"), names)
    if last is not None:
        return eval(compile(ast.Expression(last.value), "<test>", "eval"), names)
    return None


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


def test(made, channel: Connection, seconds: float, alone: bool) -> dict:
    """Fork, let the fork get the test and answer, and wait for it."""
    child = fork(alone)
    if child == 0:
        try:
            channel.send_bytes(b'{"ready": true}')
            task = json.loads(channel.recv_bytes())
            done = outcome(lambda: do_test(task["source"], made.user_ns), seconds)
            channel.send_bytes(json.dumps(done | {"nonce": task["nonce"]}).encode())
        finally:
            os._exit(0)
    end = time.monotonic() + seconds + GRACE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"back": True, "late": True}
        time.sleep(0.005)
    return {"back": True, "late": False}


def main() -> None:
    """Do what the grader asks until it closes the socket."""
    channel, limits = Connection(int(sys.argv[1])), json.loads(sys.argv[2])
    confine(limits)
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
                reply = outcome(lambda t=task: run(made, t["source"]), seconds)
            else:
                reply = test(made, channel, seconds, limits["alone"])
        except OutOfTime as late:  # between the end of a cell and the end of its alarm
            reply = {"error": described(late, seconds), "output": "", "value": None}
        channel.send_bytes(json.dumps(reply).encode())


if __name__ == "__main__":
    main()
