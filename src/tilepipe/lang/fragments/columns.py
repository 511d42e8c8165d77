"""Columns of a fragment expression: the same expression of the same registers, fewer of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from tilepipe.errors import TraceError
from tilepipe.ir.expressions import (
    Binary,
    Bitcast,
    Cast,
    Expr,
    FragmentRead,
    Interleave,
    Iota,
    Select,
    Unary,
    const,
)
from tilepipe.ir.location import caller
from tilepipe.lang.values.scalars import Value


def columns(x: Expr, start: int, count: int) -> Expr:
    """Columns [start, start + count), multiples of 8, of a fragment-shaped expression. What it
    broadcasts along columns stays as it is.

    Raises:
        TraceError: parts of elements lie side by side in units of more columns.
    """
    if not x.shape or x.shape[1] == 1:
        return x
    shape = (x.shape[0], count)
    match x:
        case FragmentRead():
            return replace(x, shape=shape, col=x.col + start)
        case Iota():
            numbers = replace(x, shape=shape)
            if start == 0:
                return numbers
            return Binary(x.dtype, x.vary, True, shape, 3, op="add", a=numbers, b=const(start))
        case Unary() | Cast():
            return replace(x, shape=shape, a=columns(x.a, start, count))
        case Binary():
            a, b = columns(x.a, start, count), columns(x.b, start, count)
            return replace(x, shape=shape, a=a, b=b)
        case Select():
            cond, a, b = (columns(part, start, count) for part in (x.cond, x.a, x.b))
            return replace(x, shape=shape, cond=cond, a=a, b=b)
        case Bitcast() if x.dtype.bits > x.a.dtype.bits:
            return replace(x, shape=shape, a=columns(x.a, 2 * start, 2 * count))
        case Bitcast():
            first, number = _of_parts("a bitcast", start, count, x.shape[1] // x.a.shape[1])
            return replace(x, shape=shape, a=columns(x.a, first, number))
        case Interleave():
            first, number = _of_parts("an interleave", start, count, 2)
            a, b = columns(x.a, first, number), columns(x.b, first, number)
            return replace(x, shape=shape, a=a, b=b)
    raise AssertionError(f"columns of {type(x).__name__}")


def _of_parts(what: str, start: int, count: int, parts: int) -> tuple[int, int]:
    """The columns of which [start, start + count) are made, each of so many parts."""
    unit = 8 * parts
    if start % unit or count % unit:
        raise TraceError(
            f"columns [{start}, {start + count}) of {what}, which makes {unit} columns of 8: need"
            f" multiples of {unit}",
            caller(),
        )
    return start // parts, count // parts


def refuse_traced_columns(what: str, *numbers: object) -> NoReturn:
    """Raises the error of columns that are known only when the kernel runs, or are no numbers."""
    traced = any(isinstance(n, Value) or hasattr(type(n), "_now") for n in numbers)
    raise TraceError(
        f"{what}: "
        + (
            "which columns these are must be known while tracing, since a thread holds them in"
            " registers, which have no addresses. Loop over them by a Python range, `for c in"
            " range(0, f.shape[1], 8):`, not by ctx.range; where c must equal a traced number n,"
            " put `with ctx.when(n == c):` around the part, or `ctx.select(ctx.col_index(cols) =="
            " n, x, y)` over all of it. Columns of a shared tile, `tile.cols(n, 8)`, may be traced."
            if traced
            else "columns are numbers, f.cols(start, count)."
        ),
        caller(),
    )
