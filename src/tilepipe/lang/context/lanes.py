"""Members of `ctx` by which the lanes of a warp learn of each other's values."""

from __future__ import annotations

from typing import cast

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Vary
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Reduction
from tilepipe.lang.tracing.convergence import require_whole_warps
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr, traced_value

_WORDS = (dtypes.int32, dtypes.uint32, dtypes.float32)
_EXTREMA = ("min", "max")


class LaneMembers:
    """The part of `Context` that concerns the lanes of a warp. All lanes execute these together;
    they order no accesses to memory.
    """

    tracer: Tracer

    def shuffle(self, value: object, lane: object) -> Value:
        """The `value` that lane `lane` of the warp has (modulo 32): an int32, uint32 or float32. By
        all lanes of a warp; with one `lane` for all of them, all get the same.
        """
        return self._shuffle("shuffle", value, lane, False)

    def shuffle_xor(self, value: object, mask: object) -> Value:
        """The `value` of the lane whose number is the lane's own xor `mask` (modulo 32), as
        `shuffle`. Five of them, with masks 1, 2, 4, 8 and 16, sum over a warp.
        """
        return self._shuffle("shuffle_xor", value, mask, True)

    def _shuffle(self, what: str, value: object, lane: object, xor: bool) -> Value:
        require_whole_warps(self.tracer, what)
        x, number = to_expr(self.tracer, value), to_expr(self.tracer, lane)
        if x.dtype not in _WORDS:
            raise TraceError(
                f"{what} exchanges values of 32 bits (int32, uint32, float32), got {x.dtype}."
                f"{_word_of(x.dtype)}",
                caller(),
            )
        if not number.dtype.is_integer:
            raise TraceError(f"{what} takes the number of a lane, got {number.dtype}", caller())
        # of one lane, every lane gets the same
        vary = x.vary if xor or number.vary is Vary.LANE else min(x.vary, Vary.WARP)
        result = self.tracer.local("shuffled", x.dtype, vary)
        self.tracer.emit(ops.Shuffle(caller(), result, x, number, xor))
        return traced_value(self.tracer, result)

    def any_lane(self, cond: object) -> Value:
        """True if a condition holds in any lane of the warp (PTX ISA, vote.sync): the same in all
        lanes, so that `ctx.when` may use it.

        Raises:
            TraceError: not by all lanes of a warp, or `cond` is no condition.
        """
        return self._vote("any_lane", "any", cond)

    def all_lanes(self, cond: object) -> Value:
        """True if a condition holds in all lanes of the warp, as `any_lane`."""
        return self._vote("all_lanes", "all", cond)

    def ballot(self, cond: object) -> Value:
        """The lanes of the warp in which a condition holds: a uint32 whose bit i is that of lane i,
        the same in all lanes. As `any_lane`.
        """
        return self._vote("ballot", "ballot", cond)

    def reduce_lanes(self, op: Reduction, value: object) -> Value:
        """The sum ("add"), or another combination ("min", "max", "and", "or", "xor"), of the int32
        or uint32 `value` of all lanes of the warp, the same in all of them (PTX ISA, redux.sync).
        "min" and "max" also take a float32, and pass over NaN: one instruction on sm_100a, five
        shuffles on sm_90a. An unsigned sum wraps round; a signed one must fit.

        Raises:
            TraceError: not by all lanes of a warp, or a dtype that `op` does not take.
        """
        require_whole_warps(self.tracer, "reduce_lanes")
        x = to_expr(self.tracer, value)
        if x.dtype not in _WORDS or (x.dtype.is_float and op not in _EXTREMA):
            raise TraceError(
                f'reduce_lanes("{op}") combines'
                f" {'int32, uint32 or float32' if op in _EXTREMA else 'int32 or uint32'}, got"
                f" {x.dtype}.{_instead_of_reduction(op, x.dtype)}",
                caller(),
            )
        result = self.tracer.local("of_lanes", x.dtype, min(x.vary, Vary.WARP), x.nonneg)
        self.tracer.emit(ops.ReduceLanes(caller(), result, x, cast(ops.Reduction, op)))
        return traced_value(self.tracer, result)

    def _vote(self, what: str, mode: ops.VoteMode, cond: object) -> Value:
        require_whole_warps(self.tracer, what)
        x = to_expr(self.tracer, cond)
        if x.dtype is not dtypes.boolean:
            raise TraceError(
                f"{what} takes a condition, such as `x > 0`; got a value of {x.dtype}", caller()
            )
        dtype = dtypes.uint32 if mode == "ballot" else dtypes.boolean
        result = self.tracer.local(what, dtype, min(x.vary, Vary.WARP), True)
        self.tracer.emit(ops.Vote(caller(), result, x, mode))
        return traced_value(self.tracer, result)


def _word_of(dtype: DType) -> str:
    """How a value of another dtype becomes one of 32 bits, a sentence."""
    if dtype.is_float:
        return ' Convert it: x.to("float32").'
    if dtype is dtypes.boolean:
        return (
            " Of a condition take ctx.select(cond, 1, 0), or ctx.ballot(cond), a bit of each lane."
        )
    if dtype.bits == 64:
        return ' If it fits convert it, x.to("int32"); else its halves: x and x >> 32, both so.'
    return ' Convert it: x.to("int32").'


def _instead_of_reduction(op: str, dtype: DType) -> str:
    """What to write for a reduction of lanes that there is not, a sentence."""
    if dtype is dtypes.boolean:
        vote = {"and": "ctx.all_lanes(cond)", "or": "ctx.any_lane(cond)"}.get(op)
        return f" Write {vote}." if vote else " Of a condition take ctx.select(cond, 1, 0)."
    if dtype.is_float and op in _EXTREMA:
        return _word_of(dtype)
    if dtype.is_float and op == "add":
        wide = "" if dtype is dtypes.float32 else f' Convert the {dtype} first: x.to("float32").'
        return (
            " A sum of floats depends on the order of its parts, so it is written out: `v ="
            " ctx.var(x)`, then `v += ctx.shuffle_xor(v.get(), mask)` for mask in 1, 2, 4, 8, 16."
            f"{wide}"
        )
    if dtype.bits == 64 and op not in ("and", "or", "xor"):
        return ' If it fits, convert it: x.to("int32").'
    if dtype.is_float:
        bits = ', as x.bitcast("uint32")' if dtype is dtypes.float32 else ""
        return f' "{op}" combines bits, and a {dtype} has them as an integer{bits}.'
    return _word_of(dtype)
