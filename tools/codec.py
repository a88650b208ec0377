"""Values as bytes, for two processes that do not trust each other.

A value is a tag of one byte and what the tag calls for: numbers, texts, arrays and tensors with
their type and shape, and lists, tuples, sets and dicts of these. :func:`decode` makes nothing else
of any bytes, whoever wrote them: plain objects of Python's, NumPy's and PyTorch's own types, within
the bounds below. It runs no code that the bytes name.

In one direction, to the process of the student, three more kinds travel: functions of the sender,
as numbers to call back by; bundles of named values; and the library's own data, by class and
fields. :func:`decode` takes them only where it is told how to make them.
"""

import dataclasses
import importlib
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from types import GeneratorType, SimpleNamespace
from typing import ClassVar

import numpy as np

LARGEST = 16 << 20  # bytes of one value
DEPTH = 16  # of lists in lists
PARTS = 100_000  # values in one value
KEYS = 10_000  # of one dict or set: equal hashes make them slow
DIGITS = 128  # bytes of an integer
DIMENSIONS = 8
ARRAYS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
ARRAYS = frozenset(f"{ARRAYS} complex128".split())
TENSORS = (ARRAYS | {"bfloat16"}) - {"uint16", "uint32", "uint64"}
LIBRARY = "clusterfl_core"

VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
LAZY = (range, map, zip, filter, deque, GeneratorType, *VIEWS)
DICTS = (dict, OrderedDict, Counter, defaultdict)


class Unfit(ValueError):
    """A value that does not travel, or bytes that are none; the message says why."""


def name_of(kind: type) -> str:
    """Return the name of a type, without code of its own."""
    return type.__dict__["__name__"].__get__(kind)[:100]


def torch():
    """Return PyTorch where the program uses it already, else None."""
    return sys.modules.get("torch")


# ---------------------------------------------------------------- to bytes


class Writer:
    """What :func:`encode` fills."""

    def __init__(self, lend=None):
        self.lend, self.parts, self.size, self.count = lend, [], 0, 0

    def raw(self, data) -> None:
        """Append bytes."""
        self.size += len(data)
        if self.size > LARGEST:
            raise Unfit(f"it is larger than {LARGEST >> 20} MB")
        self.parts.append(bytes(data))

    def number(self, value: int) -> None:
        """Append a length."""
        self.raw(struct.pack("<I", value))

    def block(self, data: bytes) -> None:
        """Append bytes and how many they are."""
        self.number(len(data))
        self.raw(data)

    def text(self, value: str) -> None:
        """Append a text; half characters become escapes."""
        self.block(str.encode(value, "utf-8", "backslashreplace"))

    def array(self, tag: bytes, dtype: str, known: frozenset, shape: tuple, data: bytes) -> None:
        """Append an array."""
        if dtype not in known:
            raise Unfit(f"it holds numbers of the type {dtype[:40]}")
        if len(shape) > DIMENSIONS:
            raise Unfit(f"it has more than {DIMENSIONS} dimensions")
        self.raw(tag)
        self.text(dtype)
        self.number(len(shape))
        self.raw(struct.pack(f"<{len(shape)}Q", *shape))
        self.block(data)

    def several(self, tag: bytes, values, depth: int) -> None:
        """Append a sequence, one that ends within the bounds."""
        kept = []
        for value in values:
            kept.append(value)
            if len(kept) > PARTS:
                raise Unfit(f"it has more than {PARTS} parts")
        self.raw(tag)
        self.number(len(kept))
        for value in kept:
            self.value(value, depth)

    def pairs(self, tag: bytes, pairs: list, depth: int) -> None:
        """Append the entries of a dict."""
        self.raw(tag)
        self.number(len(pairs))
        for key, value in pairs:
            if not hashable(key):
                raise Unfit(f"it has a key of the type {name_of(type(key))}")
            self.value(key, depth)
            self.value(value, depth)

    def value(self, value, depth: int = 0) -> None:
        """Append any value that travels, by its true type."""
        kind, depth = type(value), depth + 1
        self.count += 1
        if depth > DEPTH:
            raise Unfit(f"it is nested more than {DEPTH} levels deep")
        if self.count > PARTS:
            raise Unfit(f"it has more than {PARTS} parts")
        if value is None or kind is bool:
            self.raw({None: b"N", True: b"T", False: b"F"}[value])
        elif kind is int:
            length = value.bit_length() // 8 + 1
            if length > DIGITS:
                raise Unfit("it holds an integer of more than 300 digits")
            self.raw(b"i")
            self.block(value.to_bytes(length, "little", signed=True))
        elif kind is float:
            self.raw(b"f" + struct.pack("<d", value))
        elif kind is complex:
            self.raw(b"c" + struct.pack("<dd", value.real, value.imag))
        elif kind is str:
            self.raw(b"s")
            self.text(value)
        elif kind in (bytes, bytearray):
            self.raw(b"b")
            self.block(value)
        elif kind is np.ndarray:
            native = value.astype(value.dtype.newbyteorder("="), copy=False)
            self.array(b"a", value.dtype.name, ARRAYS, value.shape, native.tobytes())
        elif issubclass(kind, np.generic):
            self.array(b"g", value.dtype.name, ARRAYS, (), value.tobytes())
        elif torch() and kind in (torch().Tensor, torch().nn.Parameter):
            self.tensor(value)
        elif kind is list or kind in LAZY:
            self.several(b"l", value, depth)
        elif issubclass(kind, tuple):  # named ones too, and shapes of tensors
            self.several(b"u", tuple.__iter__(value), depth)
        elif kind in DICTS:
            self.pairs(b"d", list(dict.items(value)), depth)
        elif kind in (set, frozenset):
            self.several(b"e" if kind is set else b"z", value, depth)
        elif self.lend is not None and self.own(value, kind, depth):
            pass
        else:
            raise Unfit(f"it is an object of the type {name_of(kind)}")

    def tensor(self, value) -> None:
        """Append a tensor: its numbers, and whether it asks for gradients."""
        if value.layout is not torch().strided or value.device.type != "cpu":
            raise Unfit("it is a sparse tensor, or one that is not on the CPU")
        flat, data = value.detach().contiguous().reshape(-1), b""
        if len(flat):  # one without numbers has no other view
            data = flat.view(torch().uint8).numpy().tobytes()
        dtype = str(value.dtype).removeprefix("torch.")
        self.array(b"t", dtype, TENSORS, tuple(value.shape), data)
        self.raw(b"\1" if value.requires_grad else b"\0")

    def own(self, value, kind: type, depth: int) -> bool:
        """Append what travels in one direction only, and say whether it is such a thing."""
        if kind is SimpleNamespace:
            self.pairs(b"r", list(vars(value).items()), depth)
        elif kind.__module__.split(".")[0] == LIBRARY and not isinstance(value, type):
            if dataclasses.is_dataclass(value):
                fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            elif torch() and isinstance(value, torch().nn.Module) and not list(value.children()):
                fields = dict(value.named_parameters())
            else:
                return False
            self.raw(b"o")
            self.text(f"{kind.__module__}:{kind.__qualname__}")
            self.pairs(b"d", list(fields.items()), depth)
        elif callable(value):
            self.raw(b"h")
            self.number(self.lend(value))
        else:
            return False
        return True


def encode(value, lend=None) -> bytes:
    """Return a value as bytes.

    Parameters
    ----------
    value : object
        What :func:`decode` can make, in types of Python's, NumPy's and PyTorch's own. Ranges,
        generators and the like travel as lists, named tuples as tuples.
    lend : callable, optional
        Gives a function a number; with it, functions, SimpleNamespaces and the library's data
        travel as well.

    Raises
    ------
    Unfit
        For anything else, and beyond the bounds.
    """
    writer = Writer(lend)
    writer.value(value)
    return b"".join(writer.parts)


# ---------------------------------------------------------------- from bytes


class Reader:
    """What :func:`decode` reads from."""

    def __init__(self, data: bytes, borrow=None):
        self.data, self.borrow, self.at, self.count = data, borrow, 0, 0

    def raw(self, length: int) -> bytes:
        """Take bytes."""
        if length > len(self.data) - self.at:
            raise Unfit("it ends too early")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, most: int) -> int:
        """Take a length."""
        (value,) = struct.unpack("<I", self.raw(4))
        if value > most:
            raise Unfit("a length is out of bounds")
        return value

    def block(self) -> bytes:
        """Take bytes that follow their number."""
        return self.raw(self.number(LARGEST))

    def text(self) -> str:
        """Take a text."""
        try:
            return self.block().decode()
        except UnicodeDecodeError:
            raise Unfit("a text is not in UTF-8") from None

    def array(self, known: frozenset) -> tuple[str, tuple, bytes]:
        """Take type, shape and numbers of an array, which fit each other."""
        dtype = self.text()
        if dtype not in known:
            raise Unfit("an array has an unknown type")
        dimensions = self.number(DIMENSIONS)
        shape = struct.unpack(f"<{dimensions}Q", self.raw(8 * dimensions))
        data, items = self.block(), 1
        for length in shape:
            items *= length  # of Python's integers, which do not overflow
        width = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        if max(shape, default=0) > 1 << 40 or items * width != len(data):
            raise Unfit("an array has another number of entries than its shape says")
        if dtype == "bool" and data.strip(b"\0\1"):
            raise Unfit("an array of truth values holds something else")
        return dtype, shape, data

    def several(self, depth: int, most: int = PARTS) -> list:
        """Take a sequence."""
        return [self.value(depth) for _ in range(self.number(most))]

    def keyed(self, depth: int) -> dict:
        """Take the entries of a dict."""
        return {self.key(depth): self.value(depth) for _ in range(self.number(KEYS))}

    def key(self, depth: int):
        """Take a value that can be a key."""
        value = self.value(depth)
        if not hashable(value):
            raise Unfit("a key is no number, text or tuple of them")
        return value

    def value(self, depth: int = 0):
        """Take any value."""
        depth += 1
        self.count += 1
        if depth > DEPTH or self.count > PARTS:
            raise Unfit("it has too many parts, or they are nested too deep")
        tag = self.raw(1)
        make = self.MAKERS.get(tag)
        if make is None and self.borrow is not None:
            make = self.ONE_WAY.get(tag)
        if make is None:
            raise Unfit("it has an unknown tag")
        return make(self, depth)

    def integer(self, depth: int) -> int:
        """Take an integer."""
        return int.from_bytes(self.raw(self.number(DIGITS)), "little", signed=True)

    def ndarray(self, depth: int) -> np.ndarray:
        """Take an array of NumPy's."""
        dtype, shape, data = self.array(ARRAYS)
        return np.frombuffer(data, dtype).reshape(shape).copy()

    def tensor(self, depth: int):
        """Take a tensor."""
        import torch

        dtype, shape, data = self.array(TENSORS)
        kind, grad = getattr(torch, dtype), self.raw(1) == b"\1"
        made = torch.empty(0, dtype=kind)
        if data:
            made = torch.frombuffer(bytearray(data), dtype=kind).clone()  # owns its memory
        made = made.reshape(shape)
        if grad and (kind.is_floating_point or kind.is_complex):
            made.requires_grad_()
        return made

    def members(self, depth: int) -> set:
        """Take the members of a set."""
        return {self.key(depth) for _ in range(self.number(KEYS))}

    def bundle(self, depth: int) -> SimpleNamespace:
        """Take named values."""
        return SimpleNamespace(**self.keyed(depth))

    def library(self, depth: int):
        """Take data of the library."""
        module, _, name = self.text().partition(":")
        if module.split(".")[0] != LIBRARY or self.raw(1) != b"d":
            raise Unfit("it is no data of the library")
        kind, fields = getattr(importlib.import_module(module), name), self.keyed(depth)
        if dataclasses.is_dataclass(kind):
            return kind(**fields)
        import torch

        made = kind.__new__(kind)
        torch.nn.Module.__init__(made)
        for key, value in fields.items():
            made.register_parameter(key, torch.nn.Parameter(value.detach()))
        return made

    MAKERS: ClassVar = {
        b"N": lambda self, depth: None,
        b"T": lambda self, depth: True,
        b"F": lambda self, depth: False,
        b"i": integer,
        b"f": lambda self, depth: struct.unpack("<d", self.raw(8))[0],
        b"c": lambda self, depth: complex(*struct.unpack("<dd", self.raw(16))),
        b"s": lambda self, depth: self.text(),
        b"b": lambda self, depth: self.block(),
        b"a": ndarray,
        b"g": lambda self, depth: self.ndarray(depth).reshape(-1)[0],
        b"t": tensor,
        b"l": several,
        b"u": lambda self, depth: tuple(self.several(depth)),
        b"d": keyed,
        b"e": members,
        b"z": lambda self, depth: frozenset(self.members(depth)),
    }
    ONE_WAY: ClassVar = {
        b"r": bundle,
        b"o": library,
        b"h": lambda self, depth: self.borrow(self.number(PARTS)),
    }


def hashable(value) -> bool:
    """Return whether a value can be a key."""
    if type(value) in (tuple, frozenset):
        return all(map(hashable, value))
    plain = type(value) in (bool, int, float, complex, str, bytes)
    return value is None or plain or issubclass(type(value), np.generic)


def decode(data: bytes, borrow=None):
    """Return the value that some bytes stand for.

    Parameters
    ----------
    data : bytes
        Of anybody.
    borrow : callable, optional
        Makes a function of its number; with it, what travels in one direction only is taken.

    Raises
    ------
    Unfit
        If they stand for nothing, or for something out of bounds.
    """
    if len(data) > LARGEST + (1 << 16):
        raise Unfit(f"it is larger than {LARGEST >> 20} MB")
    reader = Reader(data, borrow)
    try:
        value = reader.value()
    except (IndexError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise error if isinstance(error, Unfit) else Unfit("a shape is out of bounds") from None
    if reader.at != len(data):
        raise Unfit("something follows its end")
    return value
