"""What may be given in place of a right argument, and what came of it: a judge of refusals."""

import dis
import math
import re
import warnings
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from types import GeneratorType

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(str(ROOT / folder) + "/" for folder in ("clusterfl_core", "tools"))
RAISE = dis.opmap["RAISE_VARARGS"]
NAN, INF = math.nan, math.inf


class Strange:
    """An object of a class that nobody knows."""

    def __repr__(self):
        return "something\nstrange"


JUNK = [
    None, NAN, INF, -INF, "3", "", b"3", True, [], [1, 2], {}, {"a": 1}, (), Strange(), int, 1j,
    np.array([1.5, 2.5]), np.array("x"), torch.ones(2, 2), torch.tensor(NAN), 10**400, print,
]  # fmt: skip


@dataclass(frozen=True)
class Arg:
    """What an argument is: what must be refused in its place, and what is the same as it."""

    wrong: list
    same: object = lambda value: []
    words: str = ""  # what a message calls it, if not by its name; several, parted by "|"


def without(values, *kinds):
    """Values that are of none of these kinds."""
    return [v for v in values if not (isinstance(v, kinds) if kinds else False)]


def whole(least=1, most=None, none=False, words=""):
    """A whole number in [least, most]."""
    wrong = [v for v in JUNK if not (v is None and none)]
    wrong += [2.5, 2**70, -(2**70), Fraction(7, 2), torch.tensor(2.5)]
    wrong += [] if least is None else [least - 1, least - 7, np.int64(least - 1)]
    wrong += [] if most is None else [most + 1, np.float64(most + 1)]

    def same(value):
        return [] if value is None else [np.int64(value), float(value), torch.tensor(value)]

    return Arg(wrong, same, words)


def number(interval="(-inf, inf)", none=False, words=""):
    """A number in an interval."""
    low, high = map(float, interval[1:-1].split(","))
    wrong = [v for v in JUNK if not (v is None and none)]
    if "inf]" in interval:
        wrong = [v for v in wrong if not (isinstance(v, float) and v == INF)]
    if "[-inf" in interval:
        wrong = [v for v in wrong if not (isinstance(v, float) and v == -INF)]
    wrong += [low - 0.5, low - 3] if low > -INF else []
    wrong += [high + 0.5, np.float64(high + 2)] if high < INF else []
    wrong += [low] if interval[0] == "(" and low > -INF else []
    wrong += [high] if interval[-1] == ")" and high < INF else []

    def same(value):
        return (
            [] if value is None else [np.float64(value), torch.tensor(value, dtype=torch.float64)]
        )

    return Arg(wrong, same, words)


def choice(*choices, words=""):
    """One of some texts (or None)."""
    wrong = [v for v in JUNK if not (v is None and None in choices)]
    wrong += [f"{c}x" for c in choices if c] + [str(c).swapcase() for c in choices if c]
    wrong += [3, ["a"], *([choices[0], choices[0]] for _ in "a")]
    return Arg([v for v in wrong if not (isinstance(v, str) and v in choices)], words=words)


def flag(words=""):
    """True or false."""
    wrong = [v for v in JUNK if v is not True] + ["yes", "False", 2, -1, 0.5]
    return Arg(wrong, lambda value: [np.bool_(value), int(value)], words)


def text(empty=True, none=False, words=""):
    """Some text."""
    wrong = [v for v in JUNK if not isinstance(v, str) and not (v is None and none)]
    return Arg([*wrong, 3, 2.5] + ([] if empty else ["", "  "]), words=words)


def function(none=False, words=""):
    """Something to be called."""
    wrong = [v for v in JUNK if not callable(v) and not (v is None and none)]
    return Arg([*wrong, 3, 2.5], words=words)


def thing(*kinds, none=False, others=(), words=""):
    """An object of one of these classes."""
    wrong = [*JUNK, 3, 2.5, *others, *kinds]
    wrong = [v for v in wrong if isinstance(v, type) or not isinstance(v, kinds)]
    return Arg([v for v in wrong if not (v is None and none)], words=words)


def only(*wrong, same=lambda value: [], words=""):
    """What only these spoil."""
    return Arg(list(wrong), same, words)


def names(words="", **more):
    """A list of whole numbers, one a client: labels, identities, clusters."""
    wrong = [v for v in JUNK if not (isinstance(v, list) and v == [1, 2])]
    wrong += [3, 2.5, "abc", [0.5, 1], [NAN, 1], [INF, 0], [[0, 1]], ["a", "b"], [None, 1]]
    wrong += [torch.rand(3, 3, 3), np.array([0.25, 1]), torch.tensor([1j, 0])]
    wrong += more.get("also", [])

    def same(value):
        found = torch.as_tensor(value)
        return [
            found.double(),
            found.tolist(),
            found.numpy().astype(np.int32),
            tuple(found.tolist()),
        ]

    return Arg(wrong, same if more.get("lists", True) else (lambda value: []), words)


def table(value, *, fixed=False, empty=True, words="", also=()):
    """An array of finite numbers; ``fixed``: of this width; ``empty``: none is wrong."""
    found = torch.as_tensor(value)
    wide = found[..., :1].repeat(*[1] * (found.ndim - 1), found.shape[-1] + 2)
    wrong = [v for v in JUNK if not isinstance(v, np.ndarray | torch.Tensor | list | tuple)]
    wrong += [3, 2.5, "abc", [["a"]], [[1.0], [1.0, 2.0]]]
    wrong += [found[None], found[(0,) * found.ndim], found.to(torch.complex64), *also]
    wrong += [wide] * fixed + [torch.zeros([0] * found.ndim)] * empty
    if found.is_floating_point():
        for bad in (NAN, INF):
            broken = found.clone()
            broken.view(-1)[-1] = bad
            wrong.append(broken)

    def same(value):
        given = torch.as_tensor(value)
        return [given.numpy(), given.tolist(), given.double(), given.clone()]

    return Arg(wrong, same, words)


# ---------------------------------------------------------------- the judge


@dataclass
class Case:
    """A function, valid arguments of it, and what each is."""

    call: object
    valid: dict
    args: dict = field(default_factory=dict)


def judge(case, spoiled):
    """What came of wrong arguments (a dict): "refused", or what is wrong with that, in words."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _used(case.call(**case.valid | spoiled))
    except (Exception, SystemExit) as error:
        return said(error, [word for name in spoiled for word in _words(case, name)])
    return "silent"


def judge_same(case, name, value, plain):
    """What came of another spelling of a right argument: "right", "refused", or words."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _used(case.call(**case.valid | {name: value}))
    except (Exception, SystemExit) as error:
        return said(error, _words(case, name))
    return "right" if alike(found, plain) else "another result"


def _words(case, name):
    return (case.args[name].words or name).split("|")


def plainly(case):
    """What the valid arguments give."""
    return _used(case.call(**case.valid))


def _used(found):
    return list(found) if isinstance(found, GeneratorType) else found


def said(error, words):
    """ "refused" where an error is one sentence of ours that names an argument, else what it is."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    code, sentence = trace.tb_frame.f_code, str(error)
    place = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
    shown = f"{type(error).__name__} at {place}: {sentence[:150]!r}"
    raised = isinstance(error, SystemExit) or code.co_code[trace.tb_lasti] == RAISE
    if not (raised and code.co_filename.startswith(OURS)):  # a command ends by sys.exit
        return f"from inside: {shown}"
    if not isinstance(error, ValueError | TypeError | OSError | SystemExit | ArithmeticError):
        return f"of a strange kind: {shown}"
    if not sentence.strip() or "\n" in sentence or len(sentence) > 400:
        return f"no sentence: {shown}"
    if not any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence) for word in words):
        return f"names no {' or '.join(words)}: {shown}"
    return "refused"


def alike(one, other):
    """Equal but for rounding, types of numbers and names made up on the way."""
    if isinstance(one, torch.Tensor | np.ndarray | float | int | np.generic):
        if not isinstance(other, torch.Tensor | np.ndarray | float | int | np.generic):
            return False
        one, other = (np.asarray(v.detach() if hasattr(v, "detach") else v) for v in (one, other))
        return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, equal_nan=True)
    if isinstance(one, torch.nn.Module):
        return repr(one) == repr(other)
    if isinstance(one, torch.Generator):
        return torch.equal(one.get_state(), other.get_state())
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(alike(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, dict):
        keys = one.keys() - {"seconds", "about", "name"}
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in keys)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "_repr_html_"):
        return _bare(one._repr_html_()) == _bare(other._repr_html_())
    if isinstance(one, str):
        return _bare(one) == _bare(other)
    return repr(one) == repr(other) or callable(one)


def _bare(page):
    """Text without the numbers that tell one figure from another, and without a trailing .0."""
    page = re.sub(r'(id="|#|url\(#)[\w-]+', r"\1", page)
    return re.sub(r"(\d)\.0\b", r"\1", page)
