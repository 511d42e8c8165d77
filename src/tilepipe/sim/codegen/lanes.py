"""Exchange of values between the lanes of a warp, as Python source."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import ops
from tilepipe.sim.codegen.definition import defines
from tilepipe.sim.codegen.functions import Function

Array = npt.NDArray[Any]


def shuffled(values: Array, lane: Array | int, xor: bool) -> Array:
    """An array over threads in which each has the value of another lane of its warp."""
    warps = values.reshape(-1, 32)
    named = np.broadcast_to(lane, values.shape).reshape(warps.shape)
    lanes = (np.arange(32) ^ named if xor else named) & 31
    return np.take_along_axis(warps, lanes.astype(np.intp), axis=1).reshape(values.shape)


@defines(ops.Shuffle, shuffled)
def _(f: Function, op: ops.Shuffle) -> None:
    value, array = f.x(op.value)
    f.x.whole(op.lane, "the lane of a shuffle", op)
    lane = f.x(op.lane)[0]
    text = f"shuffled({value}, {lane}, {op.xor})" if array else value
    if array and not f.x.varies(op.result.vary):
        text, array = f"{text}[0]" if op.value.dtype.is_float else f"int({text}[0])", False
    f.emit(f"{f.x.bind(op.result, array)} = {text}", op)
