"""Strong accesses to global memory, and atomic operations, as ops."""

from __future__ import annotations

from typing import cast

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Vary
from tilepipe.ir.location import caller
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.tracing.convergence import is_one_lane, require_one_lane
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, converted, traced_value

_INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)
_HALVES = (dtypes.float16, dtypes.bfloat16)
_STRONG = (*_INTEGERS, dtypes.float32, dtypes.float64)
# PTX ISA, atom: the dtypes of each operation on global memory
DTYPES: dict[ops.AtomicOperation, tuple[DType, ...]] = {
    "add": (*_STRONG, *_HALVES),
    "min": _INTEGERS,
    "max": _INTEGERS,
    "and": _INTEGERS,
    "or": _INTEGERS,
    "xor": _INTEGERS,
    "exchange": _STRONG,
    "cas": _INTEGERS,
}


def load(tracer: Tracer, ref: ElementRef, order: str, scope: str) -> Value:
    """A strong load of an element of a tensor."""
    element = _element(ref, "load", _STRONG)
    result = tracer.local("v", ref.dtype, _vary(tracer))
    found = cast(ops.LoadOrder, order), cast(ops.MemoryScope, scope)
    tracer.emit(ops.StrongLoad(caller(), result, element, *found))
    return traced_value(tracer, result)


def store(tracer: Tracer, ref: object, value: object, order: str, scope: str) -> None:
    """A strong store of an element of a tensor."""
    element = _element(ref, "store", _STRONG)
    assert isinstance(ref, ElementRef)
    x = converted(tracer, value, ref.dtype)
    given = cast(ops.StoreOrder, order), cast(ops.MemoryScope, scope)
    tracer.emit(ops.StrongStore(caller(), element, x, *given))


def atomic(
    tracer: Tracer,
    operation: ops.AtomicOperation,
    ref: ElementRef,
    value: object,
    order: str,
    scope: str,
    compare: object = None,
) -> Value:
    """An atomic operation; its result is what the element was before."""
    element = _element(ref, f"atomic_{operation}", DTYPES[operation])
    expected = None if operation != "cas" else converted(tracer, compare, ref.dtype)
    x = converted(tracer, value, ref.dtype)
    alike = not any(part.vary is Vary.LANE for part in (*element.index, x))
    if alike and tracer.scope.inside("elect") is None:
        require_one_lane(
            tracer,
            f"atomic_{operation} of one value to one element",
            " For a number of each warp, `ctx.elect_one()` is one lane of each warp."
            " To count lanes in which something holds, give a value of each lane,"
            " `ctx.select(condition, 1, 0)`.",
        )
    result = tracer.local("old", ref.dtype, _vary(tracer))
    given = cast(ops.AtomicOrder, order), cast(ops.MemoryScope, scope)
    tracer.emit(ops.Atomic(caller(), result, element, operation, x, expected, *given))
    return traced_value(tracer, result)


def fence(tracer: Tracer, order: str, scope: str) -> None:
    """A fence between strong accesses and others."""
    _ = tracer.role
    given = cast(ops.FenceOrder, order), cast(ops.MemoryScope, scope)
    tracer.emit(ops.Fence(caller(), *given))


def _vary(tracer: Tracer) -> Vary:
    """How far what a strong access finds varies: each lane observes memory for itself."""
    if not is_one_lane(tracer):
        return Vary.LANE
    return Vary.WARP if tracer.scope.inside("per_warp") else Vary.UNIFORM


def _element(ref: object, what: str, allowed: tuple[DType, ...]) -> memory.Element:
    """The element of a tensor that a strong access names.

    Raises:
        TraceError: it is none, or of a dtype without such an instruction.
    """
    strong = f"{what} with an order" if what in ("load", "store") else what
    if not isinstance(ref, ElementRef) or not isinstance(ref.ir.base, memory.TensorParam):
        raise TraceError(
            f"{strong} takes one element of a tensor in global memory, `tensor[i]`, not {ref!r}."
            " Threads of a cluster synchronise through shared memory by barriers.",
            caller(),
        )
    if ref.dtype not in allowed:
        names = ", ".join(str(t) for t in allowed)
        raise TraceError(f"{strong} takes {names}; '{ref.ir.base.name}' is {ref.dtype}", caller())
    return ref.ir
