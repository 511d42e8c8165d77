"""Members of `ctx` that give scalars: indices of threads and CTAs, variables, arithmetic."""

from __future__ import annotations

from typing import overload

from tilepipe.errors import TraceError
from tilepipe.host_arguments import plain
from tilepipe.ir import expressions as exprs
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Name
from tilepipe.lang.fragments.combining import interleave, select
from tilepipe.lang.fragments.fragment import FragmentValue
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import FUNCTIONS, Value, binary, let, to_expr, traced_value, unary
from tilepipe.lang.values.variables import Scalar, Var

# Set-up code may use these: they are the same for all threads of a CTA.
_OF_THE_CTA = ("cta_rank", "cluster_id", "num_clusters", "block_id")


class ScalarMembers:
    """The part of `Context` that concerns scalars."""

    tracer: Tracer

    def _special(self, name: str) -> Value:
        if name not in _OF_THE_CTA:
            _ = self.tracer.role
        return traced_value(self.tracer, exprs.special(name))

    @property
    def lane(self) -> Value:
        """The lane's index in its warp, 0..31."""
        return self._special("lane")

    @property
    def warp(self) -> Value:
        """The warp's index in the role."""
        return self._special("warp")

    @property
    def thread(self) -> Value:
        """The thread's index in the role."""
        return self._special("thread")

    @property
    def warpgroup_rank(self) -> Value:
        """The warpgroup's index in the role."""
        return self._special("warpgroup")

    @property
    def cta_rank(self) -> Value:
        """The CTA's rank in its cluster."""
        return self._special("cta_rank")

    @property
    def cluster_id(self) -> Value:
        """The cluster's index in the grid."""
        return self._special("cluster_id")

    @property
    def num_clusters(self) -> Value:
        """The number of clusters in the grid."""
        return self._special("num_clusters")

    @property
    def block_id(self) -> Value:
        """The CTA's index in the grid."""
        return self._special("block_id")

    @property
    def cluster_size(self) -> int:
        """The number of CTAs in a cluster (static)."""
        return self.tracer.kernel.cluster_size

    def var(self, init: object, dtype: object = None) -> Var:
        """A scalar that changes in place, in the current role.

        Args:
            init: its first value. It varies by lane or by warp only if this does: `ctx.lane * 0.0`
                is a zero for each lane.
            dtype: that of `init` unless given. A float is not assigned to one of integers.
        """
        # Named after the left side of `x = ctx.var(...)`, where the line is as plain as that.
        left = caller().source.split("=", 1)[0].strip()
        return Var(self.tracer, init, dtype, left if left.isidentifier() else "var")

    @overload
    def ceil_div(self, a: int, b: int) -> int: ...
    @overload
    def ceil_div(self, a: Value | Var, b: Scalar) -> Value: ...
    @overload
    def ceil_div(self, a: Scalar, b: Value | Var) -> Value: ...
    def ceil_div(self, a: object, b: object) -> int | Value:
        """(a + b - 1) // b; a Python int when both are."""
        self.tracer.require_running()
        a, b = plain(a), plain(b)
        if isinstance(b, bool | float | str | None) or (isinstance(b, int) and b < 1):
            raise TraceError(
                f"ctx.ceil_div divides by an integer of at least 1, got {b!r}", caller()
            )
        if isinstance(a, int) and isinstance(b, int):
            return -(-a // b)
        return (self._value(a) + (b - 1 if isinstance(b, int) else self._value(b) - 1)) // b

    def min(self, a: object, b: object) -> Value:
        """The smaller of two scalars."""
        return binary(self.tracer, "min", a, b)

    def max(self, a: object, b: object) -> Value:
        """The larger of two scalars."""
        return binary(self.tracer, "max", a, b)

    def math(self, function: str, x: object) -> Value:
        """A function of one scalar: neg, abs, exp, exp2, log, log2, sqrt, rsqrt, rcp, tanh, sin,
        cos, erf, sigmoid, floor, ceil, round (to nearest even); integers become float32, except for
        neg and abs.
        """
        if function not in FUNCTIONS:
            raise TraceError(
                f"ctx.math knows {', '.join(sorted(FUNCTIONS))}; not {function!r}", caller()
            )
        return unary(self.tracer, function, x)

    @overload
    def select(self, cond: FragmentValue, x: object, y: object) -> FragmentValue: ...
    @overload
    def select(self, cond: object, x: FragmentValue, y: object) -> FragmentValue: ...
    @overload
    def select(self, cond: object, x: object, y: FragmentValue) -> FragmentValue: ...
    @overload
    def select(self, cond: Scalar, x: Scalar, y: Scalar) -> Value: ...
    def select(self, cond: object, x: object, y: object) -> Value | FragmentValue:
        """`x` where `cond` holds, else `y`; both are evaluated. Elementwise where one of the three
        is a fragment.
        """
        return select(self.tracer, cond, x, y)

    def interleave(self, low: FragmentValue, high: FragmentValue) -> FragmentValue:
        """Two values (m, c) of one dtype as one (m, 2 c), without moving anything between threads:
        column 2 t + i of eight columns (t = 0..3, i = 0, 1) gives columns 8 i + 2 t (`low`) and
        8 i + 2 t + 1 (`high`) of sixteen.
        """
        self.tracer.require_running()
        return interleave(self.tracer, low, high)

    def let(self, x: object, name: Name = "t") -> Value:
        """Binds an expression to a name here, so that it is computed once."""
        return let(self.tracer, name, to_expr(self.tracer, x))

    def _value(self, x: object) -> Value:
        return traced_value(self.tracer, to_expr(self.tracer, x))
