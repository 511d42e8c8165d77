"""Values made of several fragment expressions: one of two where a condition says so, and the
columns of two side by side.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.expressions import Interleave
from tilepipe.ir.location import caller
from tilepipe.lang.fragments.fragment import (
    FragmentValue,
    of_one_layout,
    refuse_rows,
    scalar_operand,
)
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, select as select_scalar


def select(tracer: Tracer, cond: object, x: object, y: object) -> Value | FragmentValue:
    """`x` where `cond`, else `y`: scalars, or elementwise where one of the three is a fragment
    expression.
    """
    parts = (cond, x, y)
    shaped = [p for p in parts if isinstance(p, FragmentValue)]
    if not shaped:
        return select_scalar(tracer, cond, x, y)
    values = [
        Value(tracer, p.ir() if isinstance(p, FragmentValue) else scalar_operand(tracer, p))
        for p in parts
    ]
    reads = {fragment: version for p in shaped for fragment, version in p._dependencies().items()}
    return FragmentValue(tracer, select_scalar(tracer, *values)._expr, of_one_layout(reads))


def interleave(tracer: Tracer, low: object, high: object) -> FragmentValue:
    """See `Context.interleave`."""
    if not isinstance(low, FragmentValue) or not isinstance(high, FragmentValue):
        other = high if isinstance(low, FragmentValue) else low
        raise TraceError(
            f"interleave takes two fragment expressions of one shape, got {other!r}", caller()
        )
    a, b = low.ir(), high.ir()
    if a.shape != b.shape or a.dtype is not b.dtype or a.shape[1] == 1:
        raise TraceError(
            "interleave takes two values of one shape and dtype, of at least 8 columns; got"
            f" {a.shape[0]}×{a.shape[1]} {a.dtype} and {b.shape[0]}×{b.shape[1]} {b.dtype}",
            caller(),
        )
    for part in (low, high):
        refuse_rows(part, "interleave", 'layout="wgmma"')
    shape, nonneg = (a.shape[0], 2 * a.shape[1]), a.nonneg and b.nonneg
    joined = Interleave(a.dtype, max(a.vary, b.vary), nonneg, shape, a.size + b.size + 1, a=a, b=b)
    return low._new(joined, high)
