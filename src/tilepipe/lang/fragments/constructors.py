"""Fragments made by `ctx`: from a value or shape, of row and column numbers, and selections."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes
from tilepipe.ir.expressions import Iota
from tilepipe.ir.location import caller
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue, _of_one_layout, _scalar
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, select as select_scalar


def make(
    tracer: Tracer,
    value: object,
    shape: tuple[int, int] | None,
    dtype: object,
    layout: str = "wgmma",
) -> Fragment:
    """See `Context.fragment`."""
    if value is not None:
        if not isinstance(value, FragmentValue):
            raise TraceError(
                f"ctx.fragment(value) takes a fragment expression, got {value!r}; give a shape as"
                " shape=(m, n)",
                caller(),
            )
        result = Fragment.define(tracer, value.shape, value.dtype, "frag", value.layout)
        result.set(value)
        return result
    if shape is None:
        raise TraceError("ctx.fragment needs a value or a shape", caller())
    return Fragment.define(tracer, shape, dtypes.dtype(dtype), "frag", layout)


def rows_of(tracer: Tracer, rows: int, layout: str) -> Fragment:
    """See `Context.row_index`."""
    result = Fragment.define(tracer, (rows, 1), dtypes.int32, "rows", layout)
    result.set(
        FragmentValue(
            tracer, Iota(dtypes.int32, shape=(rows, 1), nonneg=True, layout=result.layout), {}
        )
    )
    return result


def columns_of(tracer: Tracer, cols: int) -> FragmentValue:
    """See `Context.col_index`."""
    if type(cols) is not int or cols < 8 or cols % 8:
        raise TraceError(f"ctx.col_index takes a multiple of 8 columns, got {cols!r}", caller())
    if not tracer.role.role.is_warpgroup:
        raise TraceError(
            f"fragments live in the registers of a warpgroup; role '{tracer.role.role.name}'"
            " needs warpgroups=",
            caller(),
        )
    return FragmentValue(tracer, Iota(dtypes.int32, shape=(1, cols), nonneg=True), {})


def select(tracer: Tracer, cond: object, x: object, y: object) -> Value | FragmentValue:
    """`x` where `cond`, else `y`: scalars, or elementwise where one of the three is a fragment
    expression.
    """
    parts = (cond, x, y)
    shaped = [p for p in parts if isinstance(p, FragmentValue)]
    if not shaped:
        return select_scalar(tracer, cond, x, y)
    values = [
        Value(tracer, p.ir() if isinstance(p, FragmentValue) else _scalar(tracer, p)) for p in parts
    ]
    reads = {fragment: version for p in shaped for fragment, version in p._dependencies().items()}
    return FragmentValue(tracer, select_scalar(tracer, *values)._expr, _of_one_layout(reads))
