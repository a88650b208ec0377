"""What travels between a test and a student's process, and what bytes can make there."""

import struct
from collections import Counter, OrderedDict, namedtuple
from types import SimpleNamespace

import codec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import clusterfl_core as cf

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**900), 2**900)
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
KEYS = st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
DTYPES = st.sampled_from(sorted(codec.ARRAYS - {"float16"}))
ARRAYS = DTYPES.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0)))
TENSORS = ARRAYS.filter(lambda a: a.dtype.name in codec.TENSORS).map(
    lambda a: torch.from_numpy(a.copy())
)
VALUES = st.recursive(
    SCALARS | ARRAYS | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
    ),
    max_leaves=12,
)
PLAIN = {type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}
PLAIN |= {np.ndarray, torch.Tensor}


def same(one, other) -> bool:
    """Return whether two values are equal, types and NaN included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and same(one.detach().numpy(), other.detach().numpy())
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return one == other or (one != one and other != other)


def kinds(value) -> set:
    """Return all types in a value."""
    found = {type(value)}
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        found = found.union(*map(kinds, value))
    return found


@given(VALUES)
def test_what_travels_arrives_as_it_was(value):
    assert same(codec.decode(codec.encode(value)), value)


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_make_plain_values_or_none(data):
    try:
        value = codec.decode(data)
    except codec.Unfit:
        return
    assert all(kind in PLAIN or issubclass(kind, np.generic) for kind in kinds(value))


@given(VALUES, st.data())
def test_damaged_messages_make_plain_values_or_none(value, data):
    sent = bytearray(codec.encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(sent) - 1))
        sent[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(sent)))
    try:
        found = codec.decode(bytes(sent[:cut] if cut % 3 == 0 else sent))
    except codec.Unfit:
        return
    assert all(kind in PLAIN or issubclass(kind, np.generic) for kind in kinds(found))


Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (range(3), [0, 1, 2]),
        ((i for i in "ab"), ["a", "b"]),
        ({1: 2}.keys(), [1]),
        (Pair(1, 2), (1, 2)),
        (torch.zeros(2, 3).shape, (2, 3)),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        ("\ud800", "\\ud800"),
        (np.arange(2, dtype=">i4"), np.arange(2, dtype="i4")),
    ],
)
def test_what_honest_functions_return_travels_too(value, arrives):
    assert same(codec.decode(codec.encode(value)), arrives)


def test_tensors_keep_type_shape_and_whether_they_ask_for_gradients():
    asked = torch.nn.Parameter(torch.eye(2)[:, :1])
    found = codec.decode(codec.encode(asked))
    assert type(found) is torch.Tensor
    assert found.requires_grad
    assert found.tolist() == [[1.0], [0.0]]
    assert codec.decode(codec.encode(torch.ones(2, dtype=torch.bfloat16))).dtype == torch.bfloat16
    assert isinstance(codec.decode(codec.encode(np.float32(2))), np.float32)


class Liar(int):
    """A number that is never asked what it is."""

    def __eq__(self, other):
        return True

    __hash__ = None


class Claims:
    """An object that says it is an int, a tensor and an array."""

    __class__ = int

    def __array__(self, *args, **kwargs):
        raise AssertionError("it was asked")

    def __torch_function__(self, *args, **kwargs):
        raise AssertionError("it was asked")

    def __reduce__(self):
        raise AssertionError("it was asked")


class Sub(torch.Tensor):
    """A tensor that compares as it likes."""


class Odd(dict):
    """A dict that lists what it does not hold."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Liar(3), "an object of the type Liar"),
        (Claims(), "an object of the type Claims"),
        (torch.ones(2).as_subclass(Sub), "an object of the type Sub"),
        (Odd(), "an object of the type Odd"),
        (np.ma.masked_array([1]), "an object of the type MaskedArray"),
        (np.array([object()]), "numbers of the type object"),
        (np.array(["x"]), "numbers of the type str32"),
        (torch.eye(2).to_sparse(), "a sparse tensor"),
        ([[1, {"a": print}]], "an object of the type builtin_function_or_method"),
        (int, "an object of the type type"),
        (cf.models.LinearRegression(2), "an object of the type LinearRegression"),
        (SimpleNamespace(a=1), "an object of the type SimpleNamespace"),
        ({Pair(1, 2): 1}, "a key of the type Pair"),
        (10**400, "more than 300 digits"),
        (np.zeros(codec.LARGEST, np.uint8), "larger than 16 MB"),
        ([0] * 100_001, "more than 100000 parts"),
        ((0 for _ in iter(int, 1)), "more than 100000 parts"),
        (np.zeros([1] * 9), "more than 8 dimensions"),
    ],
    ids=lambda value: value if type(value) is str else "value",
)
def test_what_does_not_travel_is_said(value, said):
    with pytest.raises(codec.Unfit, match=said):
        codec.encode(value)


def test_depth_is_bounded_on_both_sides():
    deep = []
    deep.append(deep)
    with pytest.raises(codec.Unfit, match="nested more than 16 levels"):
        codec.encode(deep)
    with pytest.raises(codec.Unfit, match="nested too deep"):
        codec.decode(b"l\1\0\0\0" * 1000 + b"N")


LONG = struct.pack("<I", 0xFFFFFFFF)


def block(data: bytes) -> bytes:
    """Return bytes after their number."""
    return struct.pack("<I", len(data)) + data


def array(tag: bytes, dtype: str, shape: list[int], data: bytes) -> bytes:
    """Return the message of an array, whether it is one or not."""
    sizes = struct.pack(f"<{len(shape)}Q", *shape)
    return tag + block(dtype.encode()) + struct.pack("<I", len(shape)) + sizes + block(data)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"?",
        b"l" + LONG,
        b"s" + LONG,
        b"s" + block(b"\xff"),
        b"i" + LONG,
        b"NN",
        b"d\1\0\0\0l\0\0\0\0N",  # a list as a key
        b"e\1\0\0\0a",
        array(b"a", "object", [1], b"12345678"),
        array(b"a", "O", [1], b"12345678"),
        array(b"t", "uint64", [1], b"12345678"),
        array(b"t", "load", [1], b"12345678"),
        array(b"a", "int8", [2], b"1"),
        array(b"a", "int8", [1 << 62, 4], b""),
        array(b"a", "int8", [1 << 39, 1 << 39, 0], b""),
        array(b"a", "int8", [1] * 9, b"1"),
        array(b"a", "bool", [1], b"\2"),
        array(b"t", "bool", [1], b"\2") + b"\0",
        array(b"g", "int8", [0], b""),
        b"r" + b"\0\0\0\0",
        b"h" + b"\0\0\0\0",
        b"o" + block(b"clusterfl_core.models:LinearRegression") + b"d\0\0\0\0",
        b"x" * (codec.LARGEST + (1 << 17)),
    ],
    ids=lambda message: repr(message[:12]),
)
def test_bytes_that_are_no_value_are_refused(message):
    with pytest.raises(codec.Unfit):
        codec.decode(message)


def test_what_a_test_lends_is_made_again_in_the_other_process():
    lent = []

    def lend(function):
        lent.append(function)
        return len(lent) - 1

    world = cf.populations.label_swapped("digits", 6, 2, seed=4)
    bank = cf.banks.Bank(cf.models.LinearRegression(2), {"theta": torch.eye(2)})
    sent = codec.encode((world, bank, SimpleNamespace(a=1, square=abs)), lend)
    found, banked, bundle = codec.decode(sent, lambda number: lent[number])
    assert found.fingerprint() == world.fingerprint()
    assert same(banked.tensors, bank.tensors)
    assert (bundle.a, bundle.square) == (1, abs)
    with pytest.raises(codec.Unfit):
        codec.decode(sent)
    with pytest.raises(codec.Unfit, match="type Claims"):
        codec.encode(Claims(), lend)


def test_only_data_of_the_library_is_made_by_name():
    for name in (b"os:system", b"clusterfl_corex:a", b"builtins:eval"):
        with pytest.raises(codec.Unfit):
            codec.decode(b"o" + block(name) + b"d\0\0\0\0", print)
