"""Members of `ctx` by which CTAs synchronise through global memory: atomic operations, loops that
wait for a value, fences. Strong loads and stores are `load` and `store` with an order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tilepipe.errors import TraceError
from tilepipe.host_arguments import shown
from tilepipe.ir import dtypes
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import AtomicOrder, FenceOrder, GlobalScope, LoadOrder
from tilepipe.lang.control.loops import WhileLoop
from tilepipe.lang.memory import strong_memory
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value
from tilepipe.lang.values.variables import Var

_CONDITION = (
    "the condition of wait_until is a function of the value that gives a traced condition,"
    " `lambda value: value >= n`"
)


class StrongAccessMembers:
    """The part of `Context` that concerns strong accesses to global memory (PTX ISA, Memory
    Consistency Model).

    An atomic operation is performed by every active lane, one after another, on `tensor[i, j]`, and
    gives what the element was before. `order` is about other accesses: "relaxed" orders none,
    "release" publishes what its thread has done and learned, "acquire" comes after what the release
    that it observes has published, "acq_rel" does both. `scope`: the threads with which it
    synchronises. An operation whose result is unused is printed as `red`, which acquires nothing.

    In a warpgroup role the result may not be used under `per_warp`, where the order of the four
    warps is unspecified.
    """

    tracer: Tracer

    def atomic_add(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Adds `value`; sums of integers wrap. int32, uint32, int64, uint64, float32, float64,
        float16, bfloat16. The last bits of a sum of floats depend on the order, which is not fixed.
        """
        return strong_memory.atomic(self.tracer, "add", ref, value, order, scope)

    def atomic_min(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Keeps the smaller of the element and `value`, integers of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "min", ref, value, order, scope)

    def atomic_max(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Keeps the larger of the element and `value`, integers of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "max", ref, value, order, scope)

    def atomic_and(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Keeps the bits that both the element and `value` have, integers of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "and", ref, value, order, scope)

    def atomic_or(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Adds the bits of `value` to those of the element, integers of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "or", ref, value, order, scope)

    def atomic_xor(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Inverts the bits that `value` has, integers of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "xor", ref, value, order, scope)

    def atomic_exchange(
        self,
        ref: ElementRef,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Puts `value` in the place of the element: integers and floats of 32 or 64 bits."""
        return strong_memory.atomic(self.tracer, "exchange", ref, value, order, scope)

    def atomic_cas(
        self,
        ref: ElementRef,
        expected: object,
        value: object,
        *,
        order: AtomicOrder = "relaxed",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Compare and swap: puts `value` in the place of the element if it equals `expected`,
        integers of 32 or 64 bits. The result equals `expected` where it has.
        """
        return strong_memory.atomic(self.tracer, "cas", ref, value, order, scope, expected)

    def fence(self, order: FenceOrder = "acq_rel", *, scope: GlobalScope = "gpu") -> None:
        """Orders the accesses of each active thread before it with strong accesses after it, and
        strong accesses before it with accesses after it: a relaxed access beside it synchronises as
        a release, or an acquire. CUDA's `__threadfence()` is "sc" at "gpu".
        """
        strong_memory.fence(self.tracer, order, scope)

    def wait_until(
        self,
        ref: ElementRef,
        condition: Callable[[Value], Value],
        *,
        order: LoadOrder = "acquire",
        scope: GlobalScope = "gpu",
    ) -> Value:
        """Loads `tensor[i]` again and again until `condition` holds for its value, and gives that
        value: `ctx.wait_until(flags[i], lambda value: value >= n)`. One lane only; the others of
        its warp follow at `ctx.syncwarp()`, those of its role at `ctx.sync_role()`.

        Another CTA may not be running at the same time unless the launch fits on the GPU at once;
        `check` tries every number of clusters that run together.
        """
        require_one_lane(self.tracer, "wait_until")
        try:
            inspect.signature(condition).bind(None)
        except TypeError:  # no function, or not of one argument
            raise TraceError(f"{_CONDITION}; got {shown(condition)}", caller()) from None
        waits = Var(self.tracer, True, dtypes.boolean, "waits")
        found = Var(self.tracer, 0, getattr(ref, "dtype", None), "found")
        for _ in WhileLoop(self.tracer, waits):
            value = strong_memory.load(self.tracer, ref, order, scope)
            found.set(value)
            holds = condition(value)
            if not isinstance(holds, Value):
                raise TraceError(f"{_CONDITION}; it gave {holds!r}", caller())
            waits.set(~holds)
        return found.get()
