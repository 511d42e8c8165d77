"""Operands that must be the same in all threads that execute an op together: barriers, tiles, boxes
of tensors, counts.

The threads of a warp execute such an op as one, and so do the four warps of a warpgroup outside
`per_warp`. Where their operands would differ, the simulator has no single value and a GPU would do
something else, so tracing the op raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.errors import TraceError
from tilepipe.ir import ops
from tilepipe.ir.def_use import operands
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.memory import BarrierRef, Element, Tile
from tilepipe.ir.printer import expr as text
from tilepipe.lang.tracing.scopes import RoleState, Scope

_EACH_THREAD = (ops.MbarArrive, ops.MbarExpect)  # each thread may name a CTA of its own


def _shared_expressions(op: ops.Op) -> Iterator[tuple[Expr, str]]:
    """The expressions of an op that its threads share, each with its description for messages."""
    match op:
        case ops.MbarArrive(count=n):
            yield n, "the count of an arrive"
        case ops.MbarExpect(nbytes=n) | ops.MbarCompleteTx(nbytes=n):
            yield n, "a number of bytes"
        case ops.MbarWait(phase=n) | ops.MbarTryWait(phase=n):
            yield n, "the phase of a wait"
        case ops.CursorStep(n=n):
            yield n, "a number of steps"
        case ops.TmaStore(rows=n) | ops.TmaReduce(rows=n) if n is not None:
            yield n, "rows= of tma_store"
        case ops.TmaLoad(lines=n) if n is not None:
            yield n, "lines= of tma_load"
    if isinstance(op, ops.TmaLoad | ops.TmaStore | ops.TmaReduce):
        yield from ((c, "a TMA coordinate") for c in op.coords)
    for x in operands(op):
        if isinstance(x, BarrierRef):
            yield x.index, f"the index of a barrier of '{x.array.name}'"
            if x.cta is not None and not isinstance(op, _EACH_THREAD):
                yield x.cta, "the rank of a CTA"
        elif isinstance(x, Tile):
            yield x.index, f"the index of a tile of '{x.buffer.name}'"
            yield x.row, f"the first row of a part of '{x.buffer.name}'"
            yield x.col, f"the first column of a part of '{x.buffer.name}'"
            if x.cta is not None:
                yield x.cta, "the rank of a CTA"


def require_uniform_operands(scope: Scope, op: ops.Op) -> None:
    """Raises TraceError where threads that execute an op together would have different operands."""
    for x, what in _shared_expressions(op):
        if x.vary is not Vary.UNIFORM and scope.role is not None:
            _require(scope, scope.role, op, x, what)


def _require(scope: Scope, state: RoleState, op: ops.Op, x: Expr, what: str) -> None:
    role = state.role
    if x.vary is Vary.LANE:
        element = (
            " Each lane names an element of its own by the index of the element, `tile[i,"
            " ctx.lane]`."
            if _has_elements(op)
            else ""
        )
        raise TraceError(
            f"{what}, {text(x)}, varies by lane, but the lanes of a warp execute"
            f" {type(op).__name__} together: it must be the same in every thread of a"
            f" warp.{element}",
            op.loc,
        )
    if role.is_warpgroup and scope.inside("per_warp") is None:
        raise TraceError(
            f"{what}, {text(x)}, varies by warp, but the four warps of warpgroup role '{role.name}'"
            f" execute {type(op).__name__} together. Put it under `with ctx.per_warp() as w:`,"
            " where each warp runs on its own, w is 0..3, and it may depend on w.",
            op.loc,
        )


def _has_elements(op: ops.Op) -> bool:
    return any(isinstance(x, Element) for x in operands(op))
