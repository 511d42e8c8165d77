"""Arguments of cuTensorMapEncodeTiled for a tensor parameter: which box of global memory one TMA
copy of the printed code moves.

The driver counts dimensions innermost first and leaves the innermost stride out (it is one
element). A "col" tensor, whose dimension before the last is contiguous, therefore has its last two
dimensions swapped; the printed copies swap their coordinates in the same way. A box wider than a
swizzle panel is encoded as one panel, and the printed code copies panel by panel.

A ragged map of R rows, whose box has B, has two dimensions for its rows, both with the stride of a
row: element (e, j), with e in [0, R] and j in [0, B), is row e + j - B. The first r rows of a tile
that starts at row s are then those of the box at (s + r, B - r) that lie inside: row i of the tile
is at j = B - r + i, which is row s + i, and is clipped where i >= r. Every element that lies inside
the map and is written is a row of the tensor; the address that is encoded is B rows before it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.errors import BindError
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.rules.tma import ALIGNMENT, broken_array_rule, broken_extent_rule, broken_line_rule

# CU_TENSOR_MAP_DATA_TYPE_*
_DATA_TYPE = {
    "boolean": "UINT8", "int8": "UINT8", "uint8": "UINT8", "float8_e4m3": "UINT8", "float8_e5m2": "UINT8",
    "float8_e8m0": "UINT8", "float4_e2m1": "UINT8",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
    "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64",
}  # fmt: skip
# CU_TENSOR_MAP_SWIZZLE_*
_SWIZZLE = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class TiledMap:
    """What cuTensorMapEncodeTiled is called with, beside the address; every tuple innermost
    dimension first.

    Attributes:
        data_type, swizzle: last part of the CU_TENSOR_MAP_DATA_TYPE_ and CU_TENSOR_MAP_SWIZZLE_
            names.
        global_dim: extents, elements. global_strides: bytes, without the innermost.
        box_dim: elements. element_strides: all 1. Interleave is NONE, fill of out-of-bounds
            elements zero.
        before: bytes that the encoded address lies before the tensor's.
    """

    data_type: str
    swizzle: str
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    before: int = 0


# of a CUtensorMap, and its alignment since CUDA 13 (before, 64: what the hardware asks for)
MAP_BYTES = 128


class EncodedMap:
    """The bytes of a tensor map at an address that a CUtensorMap may have, for cuLaunchKernel to
    copy.

    The driver's Python binding keeps its own object wherever the allocator put it.

    Attributes:
        address: a multiple of `MAP_BYTES`.
    """

    __slots__ = ("_buffer", "address")

    def __init__(self, source: int) -> None:
        """Copies the map at the address `source`."""
        self._buffer = ctypes.create_string_buffer(2 * MAP_BYTES)
        start = ctypes.addressof(self._buffer)
        self.address = start + -start % MAP_BYTES
        ctypes.memmove(self.address, source, MAP_BYTES)


def tiled_map(
    param: TensorParam, shape: Sequence[int], strides: Sequence[int], address: int = 0
) -> TiledMap:
    """The encoding of a tensor with this shape and these strides, in elements, outermost first.
    Elements of 4 bits are encoded as the bytes that hold two each; the printed copies halve the
    coordinate.

    Raises:
        BindError: the tensor breaks a rule of TMA (`ir.tma`); the message names the rule.
    """
    if param.box is None:
        raise BindError(f"tensor '{param.name}' has no box, so TMA does not touch it")
    if not len(shape) == len(strides) == len(param.box) == param.rank:
        raise BindError(
            f"tensor '{param.name}' is {param.rank}-d; got shape {tuple(shape)}, strides"
            f" {tuple(strides)}, box {param.box}"
        )
    inner, share = param.contiguous_axis, param.dtype.per_byte
    shape = [extent // share if axis == inner else extent for axis, extent in enumerate(shape)]
    nbytes = param.dtype.bytes_of(share)
    byte_strides = [stride * param.dtype.bits // 8 for stride in strides]
    broken = broken_array_rule(shape, byte_strides, inner, nbytes, address)
    if broken is not None:
        raise BindError(f"tensor '{param.name}': {broken}")
    order = [inner, *(axis for axis in reversed(range(param.rank)) if axis != inner)]
    box = list(param.box)
    if param.swizzle:
        box[inner] = min(box[inner], param.swizzle * 8 // param.dtype.bits)
    broken = broken_extent_rule(box) or broken_line_rule(box[inner], param.dtype)
    if broken is not None:
        raise BindError(f"the box {param.box} of tensor '{param.name}': {broken}")
    box[inner] //= share
    row = -(-shape[inner] * nbytes // ALIGNMENT) * ALIGNMENT
    # The stride of a dimension of extent 1 is never used, but has to obey the rules.
    used = [
        stride if extent > 1 else row for stride, extent in zip(byte_strides, shape, strict=True)
    ]
    dims, before = [(shape[axis], used[axis], box[axis]) for axis in order], 0
    if param.ragged:
        rows, step, count = dims[1]
        dims[1:2] = [(count, step, count), (rows + 1, step, 1)]
        before = count * step
    extents, steps, counts = zip(*dims, strict=True)
    return TiledMap(
        _DATA_TYPE[param.dtype.name],
        _SWIZZLE[param.swizzle],
        extents,
        steps[1:],
        counts,
        (1,) * len(dims),
        before,
    )
