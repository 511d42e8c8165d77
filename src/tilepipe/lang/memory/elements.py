"""Single elements of shared and global memory, and their ordinary loads and stores."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import caller
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import (
    Value,
    require_fits,
    to_expr,
    traced_value,
)


class ElementRef:
    """A reference to one element, for `ctx.load` and `ctx.store`."""

    def __init__(
        self, tracer: Tracer, ir: memory.Element, dtype: DType, owner: Handle | None
    ) -> None:
        self._tracer = tracer
        self._scope: Scope = tracer.scope
        self._ir = ir
        self.dtype = dtype
        self.owner = owner

    @property
    def ir(self) -> memory.Element:
        """The operand.

        Raises:
            TraceError: the block or role in which it was made has closed, or it belongs to another
                trace.
        """
        self._tracer.check_alive(self._scope, "element", self)
        return self._ir

    def _is_dead(self) -> bool:
        return self._scope.closed


def element_indices(
    tracer: Tracer, base: object, dtype: DType, rank: int, index: object
) -> tuple[Expr, ...]:
    """The indices of `base[i, j]`, one for each of `rank` dimensions.

    Raises:
        TraceError: a dtype that registers do not hold, or an index that is missing or no integer.
    """
    broken = dtypes.broken_register_rule(dtype)
    if broken is not None:
        raise TraceError(f"an element of {base!r}: {broken}", caller())
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) != rank:
        raise TraceError(f"{base!r} takes {rank} indices, got {len(parts)}", caller())
    indices = tuple(to_expr(tracer, p) for p in parts)
    for x in indices:
        if not x.dtype.is_integer:
            raise TraceError(f"an index must be an integer, got {x.dtype}", caller())
    return indices


def load(tracer: Tracer, ref: ElementRef) -> Value:
    """Emits an ordinary load of one element."""
    if not isinstance(ref, ElementRef):
        raise TraceError(
            f"ctx.load reads one element, `tile[r, c]` or `tensor[i, j]`, not {ref!r}; a fragment"
            " reads a tile: `f.load(tile)`",
            caller(),
        )
    if ref.owner is not None:
        ref.owner.check_held()
        ref.owner.touched = True
    base = ref.ir.base
    places = (
        ()
        if isinstance(base, memory.TensorParam)
        else (base.index, base.row, base.col, *([base.cta] if base.cta is not None else []))
    )
    vary = max((i.vary for i in (*ref.ir.index, *places)), default=exprs.Vary.UNIFORM)
    local = tracer.local("v", ref.dtype, vary)
    tracer.emit(ops.Load(caller(), local, ref.ir))
    return traced_value(tracer, local)


def store(tracer: Tracer, ref: ElementRef, value: object) -> None:
    """Emits an ordinary store of one element, converted to the element's dtype."""
    if ref.owner is not None:
        ref.owner.check_held()
        ref.owner.touched = True
    x = to_expr(
        tracer, traced_value(tracer, require_fits(to_expr(tracer, value), ref.dtype)).to(ref.dtype)
    )
    tracer.emit(ops.Store(caller(), ref.ir, x))
