"""The rules for where a tile's rectangle may lie, against what TMA and stmatrix do to the addresses
of `ir.layout`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tilepipe.ir import dtypes, layout
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Binary, Cast, Const, Expr, Local, Select, Unary, const
from tilepipe.ir.hardware.operand_tiles import (
    broken_descriptor_rule,
    broken_stmatrix_rule,
    broken_tma_rule,
    divisor,
)
from tilepipe.ir.memory import SmemBuffer, Tile

I32 = dtypes.int32
OPS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": min,
    "max": max,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "floordiv": operator.floordiv,
    "shl": operator.lshift,
}


def local(multiple: int = 1) -> Local:
    return Local(I32, nonneg=True, name="i", multiple=multiple)


def binary(op: str, a: Expr, b: Expr | int) -> Binary:
    return Binary(I32, op=op, a=a, b=const(b) if isinstance(b, int) else b)


Pair = tuple[Expr, int]
leaves: st.SearchStrategy[Pair] = st.one_of(
    st.integers(-200, 200).map(lambda n: (const(n), n)),
    st.tuples(st.integers(0, 96), st.integers(-5, 5)).map(lambda x: (local(x[0]), x[0] * x[1])),
)


def joined(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def two(x: tuple[str, Pair, Pair]) -> Pair:
        op, (a, va), (b, vb) = x
        if op in ("mod", "floordiv") and vb == 0:
            op = "add"
        if op == "shl":
            b, vb = const(abs(vb) % 5), abs(vb) % 5
        return binary(op, a, b), OPS[op](va, vb)

    pairs = st.tuples(st.sampled_from(sorted(OPS)), inner, inner).map(two)
    chosen = st.tuples(inner, inner, st.booleans()).map(
        lambda x: (
            Select(I32, cond=const(x[2]), a=x[0][0], b=x[1][0]),
            x[0][1] if x[2] else x[1][1],
        )
    )
    negated = inner.map(lambda x: (Unary(I32, op="neg", a=x[0]), -x[1]))
    wider = inner.map(lambda x: (Cast(dtypes.int64, a=x[0]), x[1]))
    return st.one_of(pairs, chosen, negated, wider)


@pytest.mark.slow
@given(st.recursive(leaves, joined, max_leaves=8))
def test_what_is_said_to_divide_divides(x: Pair) -> None:
    e, value = x
    d = divisor(e)
    assert d >= 0
    assert value == 0 if d == 0 else value % d == 0


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (binary("mul", local(), 64), 64),
        (binary("add", binary("mul", local(), 64), 16), 16),
        (binary("mul", local(8), 6), 48),
        (binary("floordiv", binary("mul", local(), 64), 16), 4),
        (binary("mul", binary("floordiv", local(), 8), 8), 8),
        (binary("and", local(), -64), 64),
        (binary("shl", local(3), 4), 48),
        (binary("mod", binary("mul", local(), 64), 256), 64),
        (local(), 1),
        (const(0), 0),
    ],
)
def test_divisors(x: Expr, wanted: int) -> None:
    assert divisor(x) == wanted


def tile(b: SmemBuffer, row: int, col: int, rows: int, cols: int) -> Tile:
    return Tile(b, const(0), const(row), const(col), rows, cols)


def offsets(t: Tile) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Byte offsets of a rectangle, [line, position along the contiguous dimension]."""
    assert isinstance(t.row, Const)
    assert isinstance(t.col, Const)
    rows, cols = (
        int(t.row.value) + np.arange(t.rows)[:, None],
        int(t.col.value) + np.arange(t.cols)[None, :],
    )
    found = layout.byte_offsets(t.buffer, rows, cols)
    return found if t.buffer.order == "row" else found.T


def copied(t: Tile) -> bool:
    """Whether copies of panels, from aligned addresses on, put every element where the layout has
    it.
    """
    b, nbytes = t.buffer, t.buffer.dtype.nbytes
    found = offsets(t)
    wide = found.shape[1] if b.swizzle == 0 else b.swizzle // nbytes
    if found.shape[1] % wide:
        return False
    for first in range(0, found.shape[1], wide):
        panel = found[:, first : first + wide]
        start = int(layout.swizzle_offset(panel[:1, :1], b.swizzle)[0, 0])
        linear = (
            start + (np.arange(panel.shape[0])[:, None] * wide + np.arange(wide)[None, :]) * nbytes
        )
        if start % 128 or not np.array_equal(panel, layout.swizzle_offset(linear, b.swizzle)):
            return False
    return True


BUFFERS = [
    # rows, cols, swizzle, dtype; cols are contiguous, in the other order rows
    (64, 128, 128, dtypes.bfloat16),
    (32, 96, 64, dtypes.bfloat16),
    (32, 64, 32, dtypes.float32),
    (16, 8, 0, dtypes.bfloat16),
    (16, 64, 0, dtypes.bfloat16),
    (8, 256, 0, dtypes.uint8),
]


def parts(rows: int, cols: int, swizzle: int, dtype: DType, order: str) -> list[Tile]:
    shape = (rows, cols) if order == "row" else (cols, rows)
    b = SmemBuffer("a", dtype, 1, *shape, order, swizzle, offset=0)
    found = []
    for line, start, count, extent in itertools.product(
        range(0, rows, 2),
        range(0, cols, 8),
        {1, 4, rows // 2, rows},
        {8, 16, cols // 4, cols // 2, cols},
    ):
        if line + count <= rows and start + extent <= cols and extent * dtype.nbytes % 16 == 0:
            found.append(
                tile(b, line, start, count, extent)
                if order == "row"
                else tile(b, start, line, extent, count)
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(("rows", "cols", "swizzle", "dtype"), BUFFERS)
def test_tma_takes_the_parts_that_it_copies_right(
    rows: int, cols: int, swizzle: int, dtype: DType, order: str
) -> None:
    found = parts(rows, cols, swizzle, dtype, order)
    wrong = [t for t in found if (broken_tma_rule(t) is None) != copied(t)]
    assert not wrong, broken_tma_rule(wrong[0])
    assert {broken_tma_rule(t) is None for t in found} == {True, False}


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(
    ("rows", "cols", "swizzle"), [(64, 128, 128), (32, 96, 32), (16, 40, 0), (16, 20, 0)]
)
def test_stmatrix_takes_the_parts_whose_rows_are_whole(
    rows: int, cols: int, swizzle: int, order: str
) -> None:
    shape = (rows, cols) if order == "row" else (cols, rows)
    b = SmemBuffer("a", dtypes.bfloat16, 1, *shape, order, swizzle, offset=0)
    for start in range(cols - 15):
        t = tile(b, 0, start, 8, 16) if order == "row" else tile(b, start, 0, 16, 8)
        rows_of_8 = offsets(t).reshape(8, 2, 8)
        whole = bool(
            (rows_of_8[..., 0] % 16 == 0).all() and (np.diff(rows_of_8, axis=-1) == 2).all()
        )
        assert (broken_stmatrix_rule(t) is None) == whole, (start, broken_stmatrix_rule(t))


A = SmemBuffer("a", dtypes.bfloat16, 1, 128, 128, "row", 128, offset=0)
AT = SmemBuffer("a", dtypes.bfloat16, 1, 128, 128, "col", 128, offset=0)
PLAIN = SmemBuffer("a", dtypes.bfloat16, 1, 64, 64, "row", 0, offset=0)
NARROW = SmemBuffer("a", dtypes.bfloat16, 1, 64, 24, "row", 0, offset=0)


@pytest.mark.parametrize(
    ("b", "row", "col", "cols", "words"),
    [
        (A, 64, 0, 128, None),
        (A, 8, 48, 32, None),  # from inside a panel into the next, at a known place
        (A, binary("mul", local(), 8), binary("mul", local(), 64), 128, None),
        (A, local(64), binary("mul", local(), 32), 32, None),
        (A, local(64), local(16), 16, None),
        (AT, binary("mul", local(), 64), binary("mul", local(), 16), 32, None),
        (A, 4, 0, 64, ["atoms of 8 rows", "row 4", "no multiple of 8"]),
        (A, 0, 8, 64, ["16 elements of K", "column 8", "no multiple of 16"]),
        (A, local(), 0, 64, ["row i", "not known to be a multiple of 8", "`i // 8 * 8`"]),
        (
            A,
            0,
            binary("mul", local(), 16),
            64,
            ["64 elements of K", "a panel of 64", "column i * 16", "multiple of 64"],
        ),
        (A, 0, binary("mul", local(), 16), 32, ["32 elements of K", "multiple of 32"]),
        (AT, 32, 0, 32, ["panels of 64 × 2 = 128 bytes", "row 32", "no multiple of 64"]),
        (AT, 0, 4, 32, ["atoms of 8 columns", "column 4"]),
        (PLAIN, 0, 0, 64, ["no swizzle", "64 × 2 = 128", "swizzle=128"]),
        (NARROW, 0, 0, 16, ["24 × 2 = 48", "Pad its columns to a multiple of 16"]),
    ],
)
def test_wgmma(
    b: SmemBuffer, row: Expr | int, col: Expr | int, cols: int, words: list[str] | None
) -> None:
    start, inner = (const(x) if isinstance(x, int) else x for x in (row, col))
    broken = broken_descriptor_rule(Tile(b, const(0), start, inner, 64, cols))
    if words is None:
        assert broken is None
    else:
        assert broken is not None
        assert not [w for w in words if w not in broken], broken


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ((0, binary("mul", local(), 64), 128, 64), None),
        ((binary("mul", local(), 32), 0, 32, 128), None),
        (
            (0, local(), 128, 64),
            ["whole panels of 64 × 2 = 128 bytes", "column i", "multiple of 64"],
        ),
        ((0, 32, 128, 64), ["whole panels", "column 32", "32 mod 64 = 32"]),
        ((0, 0, 128, 96), ["whole panels", "96 columns"]),
    ],
)
def test_tma(part: tuple[Expr | int, Expr | int, int, int], words: list[str] | None) -> None:
    row, col = (const(x) if isinstance(x, int) else x for x in part[:2])
    broken = broken_tma_rule(Tile(A, const(0), row, col, part[2], part[3]))
    if words is None:
        assert broken is None
    else:
        assert broken is not None
        assert not [w for w in words if w not in broken], broken
