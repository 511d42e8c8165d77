"""Printed helpers without assembly, run as Python: what their text computes, for every case that
counts.

Their bodies are one or two expressions that C++ and Python write almost alike; `python` turns one
into the other. Addresses are tested elsewhere with the simulator's swizzles in their place, so that
nothing else looks inside `swizzle_128`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilepipe.cuda.ptx.wrappers import SNIPPETS
from tilepipe.ir import layout

LANES = np.arange(32)
WIDTH = {"bytes": 4}  # of the type that a template is for
NAMES: dict[str, Any] = {
    "u16": lambda x: int(x) & 0xFFFF,
    "u32": lambda x: int(x) & 0xFFFFFFFF,
    "u64": lambda x: int(x) & 0xFFFFFFFFFFFFFFFF,
    "T": None,
    "sizeof": lambda _: WIDTH["bytes"],
    "quotient": lambda a, b: int(a / b),  # of C++: towards zero
    "remainder": lambda a, b: a - b * int(a / b),
    "__uint_as_float": lambda bits: float(np.uint32(bits).view(np.float32)),
    "from_f16": lambda bits: float(np.uint16(bits & 0xFFFF).view(np.float16)),
    "max": np.maximum,
    "min": np.minimum,
}


def shuffled(mask: int, x: Any, other: int) -> Any:
    """shfl.sync.bfly over the lanes of a warp."""
    assert mask == 0xFFFFFFFF
    return x[LANES ^ other]


def doubled(first: int, end: int) -> list[int]:
    """What `for (int i = first; i < end; i *= 2)` goes through."""
    return [1 << k for k in range(6) if first <= 1 << k < end]


def _choice(text: str) -> str:
    """`(a ? b : c)` as Python writes it."""
    if "?" not in text:
        return text
    at = text.index("?")
    first = next(
        i
        for i in reversed(range(at))
        if text[i] == "(" and text[i:at].count("(") > text[i:at].count(")")
    )
    last = next(
        i
        for i in range(at, len(text))
        if text[i] == ")" and text[at : i + 1].count(")") > text[at : i + 1].count("(")
    )
    condition, one, other = re.split(r" [?:] ", text[first + 1 : last])
    return f"{text[:first]}(({one}) if ({condition}) else ({other})){text[last + 1 :]}"


def python(code: str) -> Callable[..., Any]:
    """The function that a helper's text is."""
    found = re.search(r"(\w+)\(([^()]*)\) \{\n(.*)\n\}", code, re.DOTALL)
    assert found is not None
    parameters = [p.split()[-1] for p in found[2].split(",")]
    lines = []
    for line in found[3].splitlines():
        if line.startswith("#pragma"):
            continue
        text = line.strip().rstrip(";")
        text = re.sub(
            r"^for \(int i = (\w+); i < (\w+); i \*= 2\) ", r"for i in doubled(\1, \2): ", text
        )
        if text.startswith("return ") and "?" in text:
            text = f"return ({text[7:]})"
        text = re.sub(r"static_cast<(\w+)>", r"\1", text).replace("&&", " and ")
        text = re.sub(r"\b(\w+) / (\w+)\b", r"quotient(\1, \2)", text)
        text = re.sub(r"\b(\w+) % (\w+)\b", r"remainder(\1, \2)", text)
        lines.append(f"    {_choice(text)}")
    names = {**NAMES, "__shfl_xor_sync": shuffled, "doubled": doubled}
    if "from_bf16(" in found[3]:
        names["from_bf16"] = python(SNIPPETS["from_bf16"].code)
    exec("\n".join([f"def helper({', '.join(parameters)}):", *lines]), names)
    helper: Callable[..., Any] = names["helper"]
    return helper


def swizzles(bits: int) -> Callable[[Callable[..., Any]], None]:
    def check(helper: Callable[..., Any]) -> None:
        offsets = np.arange(0, 4096, 2)
        got = [helper(int(x)) for x in offsets]
        np.testing.assert_array_equal(got, layout.swizzle_offset(offsets, bits))

    return check


def divides(helper: Callable[..., Any], reference: Callable[[int, int], int]) -> None:
    for a in range(-9, 10):
        for b in (*range(-5, 0), *range(1, 6)):
            assert helper(a, b) == reference(a, b), (a, b)


def shifts(reference: Callable[[int, int], int]) -> Callable[[Callable[..., Any]], None]:
    """Shifts by any number: by a negative one or by the width and more as the reference says for
    the width.
    """

    def check(helper: Callable[..., Any]) -> None:
        for size in (1, 4, 8):
            WIDTH["bytes"], bits = size, 8 * size
            least, most = -(1 << (bits - 1)), (1 << bits) - 1
            for a in (least, -5, -1, 0, 1, 77, -1 - least, most):
                for n in (-1, 0, 1, bits - 1, bits, bits + 5):
                    wanted = reference(a, n if 0 <= n < bits else bits)
                    assert (helper(a, n) - wanted) % (1 << bits) == 0, (size, a, n)

    return check


def inside(helper: Callable[..., Any]) -> None:
    for i in range(-3, 6):
        for n in range(5):
            assert helper(i, n) == (0 <= i < n)


def joins(helper: Callable[..., Any]) -> None:
    assert helper(0x1234, 0xABCD) == 0xABCD1234


def widens(helper: Callable[..., Any]) -> None:
    bits = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    wanted = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(np.array([helper(x) for x in bits.tolist()], np.float32), wanted)


def unpacks(dtype: Any) -> Callable[[Callable[..., Any]], None]:
    def check(helper: Callable[..., Any]) -> None:
        pair = np.array([1.5, -3.0], dtype)
        word = int(pair.view(np.uint32)[0])
        assert [helper(word, half) for half in (0, 1)] == [1.5, -3.0]

    return check


def reduces(reduce: Any) -> Callable[[Callable[..., Any]], None]:
    """Over four lanes that hold a row, 4 r .. 4 r + 3, over a warp, and over eight that hold a
    column, l, l + 4, ... .
    """

    def check(helper: Callable[..., Any]) -> None:
        x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.float64)
        rows = x.reshape(8, 4)
        for first, end, wanted in (
            (1, 4, np.repeat(reduce(rows, axis=1), 4)),
            (4, 32, np.tile(reduce(rows, axis=0), 8)),
            (1, 32, np.repeat(reduce(x), 32)),
        ):
            np.testing.assert_array_equal(helper(x.copy(), first, end), wanted)

    return check


def reduces_rows(reduce: Any) -> Callable[[Callable[..., Any]], None]:
    """Over the four lanes that hold a row, 4 r .. 4 r + 3."""

    def check(helper: Callable[..., Any]) -> None:
        x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.float64)
        wanted = np.repeat(reduce(x.reshape(8, 4), axis=1), 4)
        np.testing.assert_array_equal(helper(x.copy()), wanted)

    return check


CHECKS: dict[str, Callable[[Callable[..., Any]], None]] = {
    "swizzle_32": swizzles(32),
    "swizzle_64": swizzles(64),
    "swizzle_128": swizzles(128),
    "floor_div": lambda helper: divides(helper, lambda a, b: a // b),
    "floor_mod": lambda helper: divides(helper, lambda a, b: a % b),
    "shift_left": shifts(lambda a, n: a << n),
    "shift_right": shifts(lambda a, n: a >> n),
    "inside": inside,
    "join": joins,
    "from_bf16": widens,
    "unpack_bf16": unpacks(ml_dtypes.bfloat16),
    "unpack_f16": unpacks(np.float16),
    "row_add": reduces_rows(np.sum),
    "row_max": reduces_rows(np.max),
    "row_min": reduces_rows(np.min),
    "add_lanes": reduces(np.sum),
    "max_lanes": reduces(np.max),
    "min_lanes": reduces(np.min),
}


@pytest.mark.parametrize("name", CHECKS)
def test_helper(name: str) -> None:
    CHECKS[name](python(SNIPPETS[name].code))


@pytest.mark.parametrize("suffix", ["", "_cluster"])
def test_a_wait_polls_its_own_test(suffix: str) -> None:
    body = SNIPPETS[f"wait{suffix}"].code.split("{\n", 1)[1]
    assert re.sub(r"\s+", " ", body).strip() == f"while (!try_wait{suffix}(bar, parity)) {{ }} }}"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("swizzle_128", "0x70", "0x30"),
        ("swizzle_64", ">> 3", ">> 4"),
        ("swizzle_32", "^", "|"),
        ("floor_div", "(a < 0) != (b < 0)", "(a < 0) == (b < 0)"),
        ("floor_mod", "? b : 0", "? 0 : b"),
        ("shift_left", ": 0", ": a"),
        ("shift_right", ">> 1;", ">> 0;"),
        ("inside", "(i) <", "(i) <="),
        ("join", "(hi) << 16 | lo", "(lo) << 16 | hi"),
        ("from_bf16", "16", "15"),
        ("unpack_bf16", "pair >> 16 : pair & 0xffff", "pair & 0xffff : pair >> 16"),
        ("unpack_f16", ">> 16", ">> 8"),
        ("row_add", "x, 2", "x, 4"),
        ("row_max", "x, 1", "x, 2"),
        ("row_min", "min(", "max("),
        ("add_lanes", "x, i", "x, first"),
        ("max_lanes", "i = first", "i = 1"),
        ("min_lanes", "min(", "max("),
    ],
)
def test_a_planted_error_is_seen(name: str, old: str, new: str) -> None:
    code = SNIPPETS[name].code
    body = code[code.index("{\n") :]
    assert old in body
    with pytest.raises(AssertionError):
        CHECKS[name](python(code[: code.index("{\n")] + body.replace(old, new)))
