"""The ops by which the lanes of a warp learn of each other's values, as Python source.

A value that is the same in all lanes is a Python number; else an array over the threads of the
agent, warp after warp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import ops
from tilepipe.ir.expressions import Local
from tilepipe.sim.codegen.functions import Function, defines
from tilepipe.sim.reductions import extremes

Array = npt.NDArray[Any]

_VOTES: dict[str, Callable[[Array], Array]] = {
    "any": lambda warps: np.asarray(warps.any(axis=1)),
    "all": lambda warps: np.asarray(warps.all(axis=1)),
    "ballot": lambda warps: (warps << np.arange(32)).sum(axis=1),
}
_REDUCTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def shuffled(values: Array, lane: Array | int, xor: bool) -> Array:
    """An array over threads in which each has the value of another lane of its warp."""
    warps = values.reshape(-1, 32)
    named = np.broadcast_to(lane, values.shape).reshape(warps.shape)
    lanes = (np.arange(32) ^ named if xor else named) & 31
    return np.take_along_axis(warps, lanes.astype(np.intp), axis=1).reshape(values.shape)


def voted(conditions: Array | bool, mode: str) -> Array | bool | int:
    """What each thread's warp finds of the conditions of its lanes."""
    if not isinstance(conditions, np.ndarray):
        held = bool(conditions)
        return (0xFFFFFFFF if held else 0) if mode == "ballot" else held
    warps = conditions.astype(np.int64 if mode == "ballot" else np.bool_).reshape(-1, 32)
    return np.repeat(_VOTES[mode](warps), 32)


def reduced_lanes(values: Array | int | float, op: str, bits: int) -> Array | int | float:
    """The combination of the lanes' values, for each thread of a warp; integers are exact, and wrap
    round in `bits` bits where that is not 0. Of floats, a NaN gives way to a number, and -0 is less
    than +0 (PTX ISA, redux.sync, min and max).
    """
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":
            warps = values.reshape(-1, 32)
            best = np.where(np.isnan(warps).all(axis=1), np.nan, extremes(warps, op, 1)[:, 0])
            return np.repeat(best.astype(values.dtype), 32)
        exact = values.astype(np.int64).reshape(-1, 32)
        found: Array = np.repeat(_REDUCTIONS[op].reduce(exact, axis=1), 32)
        return found & ((1 << bits) - 1) if bits else found
    if op == "add":
        total = 32 * int(values)
        return total & ((1 << bits) - 1) if bits else total
    return 0 if op == "xor" else values


def _bind(f: Function, op: ops.Op, result: Local, text: str, array: bool) -> None:
    """Binds what each thread finds: to one number where it is the same for the whole agent."""
    if array and not f.x.varies(result.vary):
        text, array = f"{text}[0]", False
        if not result.dtype.is_float:  # no number of NumPy, whose arithmetic wraps round
            text = f"{'bool' if result.dtype.kind == 'bool' else 'int'}({text})"
    f.emit(f"{f.x.bind(result, array)} = {text}", op)


@defines(ops.Shuffle, shuffled)
def _(f: Function, op: ops.Shuffle) -> None:
    value, array = f.x(op.value)
    f.x.whole(op.lane, "the lane of a shuffle", op)
    lane = f.x(op.lane)[0]
    _bind(f, op, op.result, f"shuffled({value}, {lane}, {op.xor})" if array else value, array)


@defines(ops.Vote, voted)
def _(f: Function, op: ops.Vote) -> None:
    value, array = f.x(op.cond)
    _bind(f, op, op.result, f"voted({value}, {op.mode!r})", array)


@defines(ops.ReduceLanes, reduced_lanes)
def _(f: Function, op: ops.ReduceLanes) -> None:
    value, array = f.x(op.value)
    t = op.result.dtype
    sums = op.op == "add"
    text = f"reduced_lanes({value}, {op.op!r}, {32 if sums and t.kind == 'uint' else 0})"
    if sums and t.kind == "int":  # as any sum of signed integers
        if array:
            text = f"all_fit({f.x.site}, {text}, 32, {f.mask_text}, {f.x.base})"
        else:
            text = f"fits({f.x.site}, {text}, 32)"
    _bind(f, op, op.result, text, array)
