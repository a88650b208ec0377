"""The inside of the testers' sandbox: tests of one assignment, on functions that are elsewhere.

Usage: tester.py FD LIMITS: FD is a socket to the grader, LIMITS a JSON object.

This process never runs a byte of a student's code. It runs the assignment's own locked cells, in
which each name that students write is a stand-in: called, it asks the student's process
(sandbox_runner.py) by a link, and gives back a value made anew from the bytes of the answer
(codec.py). Each test runs in a fork of its own, with its own link; what it finds goes to the
grader by a socket that no student's process has.
"""

import ast
import builtins
import contextlib
import json
import math
import os
import resource
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection

import codec
from sandbox_runner import OutOfTime, Tail, at_most, confine

CALLS = 5000  # back to the test, that one test answers
TAKEN = 256 << 20  # bytes that one test takes
MEMORY = 2000 << 20  # bytes of one test
TOLD = 1000  # characters of what a student is told
KEPT = 10_000  # characters of what the instructor is told
TEST = "<test>"  # the file that a test's lines seem to be in


class Raised(Exception):
    """An error in the student's process: the name of its type, and its text."""

    def __init__(self, name: str, text: str, trace: str = ""):
        super().__init__(f"{name}: {text}" if text else name)
        self.name, self.text, self.trace = name, text, trace


class Broken(Exception):
    """No answer, or one that is none; the message says so to the student.

    Parameters
    ----------
    text : str
        Ours, every word.
    theirs : str
        What the student's process says of it; not told of a hidden test.
    """

    def __init__(self, text: str, theirs: str = ""):
        super().__init__(f"{text}: {theirs}"[:TOLD] if theirs else text)
        self.text = text


class Student:
    """The test's end of a link to a student's process.

    Parameters
    ----------
    link : Connection
        To the process that answers.
    seconds : float
        What the student's side has for all calls of the test.
    """

    def __init__(self, link: Connection, seconds: float):
        self.link, self.seconds = link, seconds
        self.lent, self.calls, self.taken, self.inside = [], 0, 0, False

    def lend(self, function) -> int:
        """Give a function a number."""
        if function not in self.lent:
            self.lent.append(function)
        return self.lent.index(function)

    def take(self) -> tuple[bytes, object]:
        """Return the next message: its kind and its content."""
        try:
            frame = self.link.recv_bytes(codec.LARGEST + (1 << 16))
            self.taken += len(frame)
            if self.taken > TAKEN:
                raise Broken(f"it sent more than {TAKEN >> 20} MB")
            return frame[:1], codec.decode(frame[1:]) if frame[1:] else None
        except EOFError:
            raise Broken("it ended the process that it ran in") from None
        except (OSError, codec.Unfit):
            raise Broken("its process sent what is no answer") from None

    def send(self, kind: bytes, value) -> None:
        """Send a message."""
        content = codec.encode(value, self.lend)
        with contextlib.suppress(OSError):  # an end is seen where the answer is taken
            self.link.send_bytes(kind + content)

    def call(self, name: str, args: tuple, kwargs: dict, keeps: bool):
        """Return what a function of the student's returns."""
        if self.inside:
            raise Broken(f"{name} was called while it calls back")
        self.send(b"C", (name, args, kwargs, keeps))
        while True:
            kind, content = self.take()
            try:
                if kind == b"R":
                    value, first = content
                    if keeps:
                        restore(name, args[0], first)
                    return value
                if kind == b"E":
                    raise Raised(*(str(part) for part in content))
                if kind == b"U":
                    raise Broken(f"what {name} returns cannot be judged", str(content))
                if kind == b"L":
                    raise OutOfTime
                if kind != b"C":
                    raise ValueError
                number, back, named = content
                function = self.lent[number]
                named = {**named}
            except (ValueError, TypeError, IndexError):
                raise Broken("its process sent what is no answer") from None
            self.answer(function, back, named)

    def answer(self, function, args: tuple, kwargs: dict) -> None:
        """Call a function of the test's for the student's process."""
        self.calls += 1
        if self.calls > CALLS:
            raise Broken(f"it called back more than {CALLS} times")
        self.inside = True
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            self.send(b"E", (type(error).__name__, str(error)[:TOLD]))
        else:
            self.send(b"R", value)
        finally:
            self.inside = False


def restore(name: str, given, now) -> None:
    """Make a tensor that was an argument what the student's process made of it."""
    import torch

    if type(now) is not torch.Tensor or (now.shape, now.dtype) != (given.shape, given.dtype):
        raise AssertionError(f"{name} turned its first argument into something else")
    with torch.no_grad():
        given.copy_(now)


class Tests:
    """The tests of one assignment, ready to run.

    Parameters
    ----------
    locked : list of str
        Sources of the cells that tests build on.
    students : list of str
        Names that students write.
    keeps : list of str
        Those of them that must leave their first argument as it was: tests see what became of it.
    tests : dict of str
        Sources of the tests by name.
    """

    def __init__(self, locked: list, students: list, keeps: list, tests: dict):
        self.tests, self.student = tests, None
        self.names = {"__name__": "__main__", "__builtins__": builtins}
        for name in students:
            self.names[name] = self.stand_in(name, name in keeps)
        for number, source in enumerate(locked):
            exec(compile(source, f"<locked cell {number}>", "exec"), self.names)

    def stand_in(self, name: str, keeps: bool):
        """Return a function that asks the student's process for what a name of it returns."""

        def ask(*args, **kwargs):
            if self.student is None:
                raise LookupError(f"a locked cell calls {name}, which students write")
            return self.student.call(name, args, kwargs, keeps)

        ask.__name__ = ask.__qualname__ = name
        return ask

    def run(self, name: str, student: Student) -> dict:
        """Run a test, and say what came of it.

        Returns
        -------
        dict
            told : str, "" if it passed; private : str, for the instructor; output : str, what it
            printed; value : None or the number that its last line is worth.
        """
        self.student, source, printed = student, self.tests[name], Tail()
        value, told, private = None, "", ""
        try:
            with contextlib.redirect_stdout(printed), at_most(student.seconds + 2.0):
                value = self.play(source)
        except BaseException as error:
            told, private = verdict(error, source, student.seconds)
        number = None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            number = float(value)
        return {"told": told, "private": private, "output": printed.kept, "value": number}

    def play(self, source: str):
        """Run a source, and return what its last line is worth."""
        body = ast.parse(source).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, type_ignores=[]), TEST, "exec"), self.names)
        if last is not None:
            return eval(compile(ast.Expression(last.value), TEST, "eval"), self.names)
        return None


def verdict(error: BaseException, source: str, seconds: float) -> tuple[str, str]:
    """Return what a student may be told of a test that failed, and what the instructor may."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if step.filename == TEST]
    hidden = any(in_hidden(source, step.lineno) for step in steps)
    where = f" (line {steps[0].lineno} of the test)" if steps else ""
    text = str(error).strip()
    if isinstance(error, Broken):
        return error.text if hidden else text, text + where
    if isinstance(error, AssertionError):
        told = text or "an assertion failed"
        if hidden and not text:
            told = "a hidden test of this task fails"
        return told[:TOLD], text[:KEPT] + where
    if isinstance(error, OutOfTime):
        kind, told = "", f"it ran longer than {seconds:g} s"
    elif isinstance(error, Raised):
        known = getattr(builtins, error.name, None)  # a name of theirs could carry what was asked
        known = isinstance(known, type) and issubclass(known, BaseException)
        kind, told = error.name if known else "an error", text
        if error.name == "NotImplementedError" and not error.text:
            told = "nothing is written there yet"
    else:
        kind = type(error).__name__
        told = f"{kind}: {text}"
    private = told[:KEPT] + where + (f"\n{error.trace}" if isinstance(error, Raised) else "")
    if hidden:
        told = f"a hidden test of this task fails: it raises {kind}" if kind else told
        told = told if kind else f"a hidden test of this task fails: {told}"
    return told[:TOLD], private


def in_hidden(source: str, line: int) -> bool:
    """Return whether a line of a test is one that students do not have."""
    inside = False
    for number, text in enumerate(source.splitlines(), 1):
        inside = (inside or "BEGIN HIDDEN TESTS" in text) and "END HIDDEN TESTS" not in text
        if number == line:
            return inside
    return False


def fork(tests: Tests, task: dict, link: int, report: int) -> None:
    """Let a fork run a test and report."""
    if os.fork():
        return
    try:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        seconds = int(used + 2 * task["limit"]) + 30
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (min(MEMORY, hard) if hard > 0 else MEMORY,) * 2)
        done = tests.run(task["test"], Student(Connection(link), task["limit"]))
        Connection(report).send_bytes(json.dumps(done).encode())
    finally:
        os._exit(0)


def main() -> None:
    """Make the tests ready, then run what the grader asks for until it closes the socket."""
    channel, limits = Connection(int(sys.argv[1])), json.loads(sys.argv[2])
    wire = socket.socket(fileno=os.dup(int(sys.argv[1])))
    confine(limits)
    channel.send_bytes(b'{"started": true}')
    try:
        with contextlib.redirect_stdout(Tail()), contextlib.redirect_stderr(Tail()):
            tests = Tests(**json.loads(channel.recv_bytes())["assignment"])
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        channel.send_bytes(json.dumps({"wrong": why[:TOLD]}).encode())
        return
    channel.send_bytes(b'{"ready": true}')
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no dead process is kept
    while True:
        try:
            task = json.loads(channel.recv_bytes())
        except EOFError:
            return
        _, (link, report), _, _ = socket.recv_fds(wire, 1, 2)
        fork(tests, task, link, report)
        os.close(link)
        os.close(report)


if __name__ == "__main__":
    main()
