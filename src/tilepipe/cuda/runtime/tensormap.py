"""The arguments of cuTensorMapEncodeTiled for a tensor parameter: the box of global memory that one
TMA copy of the printed code moves.

The driver counts dimensions innermost first and leaves the innermost stride out (it is one
element). A "col" tensor, whose dimension before the last is contiguous, therefore has its last two
dimensions swapped; the printed copies swap their coordinates in the same way. A box wider than a
swizzle panel is encoded as one panel, and the printed code copies panel by panel.

A ragged map lets a copy of a whole box move only the first r rows of a tile, with r known at run
time: what lies outside a map TMA does not write, and reads as zeros, so the map is made such that
the other rows lie outside (columns, of a column-major tile). Of a tensor of R rows and a box of B
rows, the map has two dimensions for the rows, both with the stride of a row: element (e, j), with e
in [0, R] and j in [0, B), is row e + j - B of the tensor.
For a tile that starts at row s, the box is put at (s + r, B - r): row i of the tile is at j = B - r
+ i, which is row s + i of the tensor, and for i >= r it has j >= B and is clipped. So every row
that is moved lies inside the tensor, although the encoded address is B rows before it.

That is for stores. A load can fault where the encoded address is not mapped, even if it reads no
element there (seen once on an H100; QuACK's `copy_utils` says the same), so a map that loads use is
encoded at the tensor's own address, and its addresses wrap round: with W = 2^30 it has three
dimensions for the rows, (w, e, j) with strides of 2^34 - t, t and t bytes, where t is that of a row
and 0 <= j < W. For a tile that starts at row s the box is put at (W, s + r, W - r). Its row i is
then at W (2^34 - t) + (s + r) t + (W - r + i) t, which is (s + i) t modulo 2^64. Triton's ragged
descriptors (`triton.tools.ragged_tma`) are made so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.errors import BindError
from tilepipe.ir.hardware.tma import (
    ALIGNMENT,
    RAGGED_WRAP,
    broken_array_rule,
    broken_extent_rule,
    broken_line_rule,
)
from tilepipe.ir.memory import TensorParam

# CU_TENSOR_MAP_DATA_TYPE_*
_DATA_TYPE = {
    "boolean": "UINT8",
    "int8": "UINT8",
    "uint8": "UINT8",
    "float8_e4m3": "UINT8",
    "float8_e5m2": "UINT8",
    "float8_e8m0": "UINT8",
    "float4_e2m1": "UINT8",  # two elements to a byte
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    "int32": "INT32",
    "uint32": "UINT32",
    "int64": "INT64",
    "uint64": "UINT64",
}
# bytes of an element of each
_ELEMENT = {
    "UINT8": 1,
    **dict.fromkeys(("FLOAT16", "BFLOAT16"), 2),
    **dict.fromkeys(("FLOAT32", "INT32", "UINT32"), 4),
    **dict.fromkeys(("FLOAT64", "INT64", "UINT64"), 8),
}
# CU_TENSOR_MAP_SWIZZLE_*
_SWIZZLE = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class TiledMap:
    """The arguments of cuTensorMapEncodeTiled except the address. Every tuple has the innermost
    dimension first. Interleave is always NONE, and elements out of bounds read as zero.

    Attributes:
        data_type, swizzle: last part of the CU_TENSOR_MAP_DATA_TYPE_ and CU_TENSOR_MAP_SWIZZLE_
            names.
        global_dim: extents in elements.
        global_strides: strides in bytes, without the innermost.
        box_dim: extents of the box in elements.
        element_strides: all 1.
        before: bytes from the encoded address to the tensor's (above 0 for ragged maps).
    """

    data_type: str
    swizzle: str
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]
    before: int = 0

    @property
    def reach(self) -> int:
        """Bytes from the first element to the end of the last one."""
        steps = (_ELEMENT[self.data_type], *self.global_strides)
        return steps[0] + sum(
            (extent - 1) * step for extent, step in zip(self.global_dim, steps, strict=True)
        )


@dataclass(frozen=True, slots=True)
class MapRecipe:
    """What is the same in all maps of a parameter.

    Attributes:
        data_type, swizzle: as of `TiledMap`.
        order: dimensions of the tensor, innermost first.
        box: extents of the box in that order; of 4-bit elements, in bytes.
    """

    data_type: str
    swizzle: str
    order: tuple[int, ...]
    box: tuple[int, ...]


def map_recipe(param: TensorParam) -> MapRecipe:
    """How the maps of a parameter that has a box are encoded.

    Raises:
        BindError: TMA has no such box.
    """
    assert param.box is not None
    inner = param.contiguous_axis
    order = (inner, *(axis for axis in reversed(range(param.rank)) if axis != inner))
    box = list(param.box)
    if param.swizzle:
        box[inner] = min(box[inner], param.swizzle * 8 // param.dtype.bits)
    if broken := broken_extent_rule(box) or broken_line_rule(box[inner], param.dtype):
        raise BindError(f"the box {param.box} of tensor '{param.name}': {broken}")
    box[inner] //= param.dtype.per_byte
    return MapRecipe(
        _DATA_TYPE[param.dtype.name],
        _SWIZZLE[param.swizzle],
        order,
        tuple(box[axis] for axis in order),
    )


_ADDRESSES = 1 << 64
# Bit 85 of a map tells Blackwell that its tensor takes 128 KiB or more, for the addresses of what
# lies outside; Hopper does not read it. Drivers before CUDA 13.2 set it for smaller tensors, too:
# CUTLASS (`copy_traits_sm90_tma.hpp`) and Triton clear it, as is done here.
SIZED = 1 << (85 - 64)
SIZED_FROM = 128 * 1024
SIZED_SINCE = 13020
# The size of a CUtensorMap, and its alignment since CUDA 13 (the hardware asks for 64).
MAP_BYTES = 128


class EncodedMap:
    """The bytes of a tensor map at an aligned address, for cuLaunchKernel to copy.

    The object of the driver's Python binding will not do: it lies wherever the allocator put it.

    Attributes:
        address: a multiple of `MAP_BYTES`.
    """

    __slots__ = ("_buffer", "address")

    def __init__(self, source: int, reach: int, driver_version: int) -> None:
        """Copies the tensor map at the address `source`.

        Args:
            reach: bytes of memory that it covers (`TiledMap.reach`).
            driver_version: of the driver that encoded it, as cuDriverGetVersion gives it.
        """
        self._buffer = ctypes.create_string_buffer(2 * MAP_BYTES)
        start = ctypes.addressof(self._buffer)
        self.address = start + -start % MAP_BYTES
        ctypes.memmove(self.address, source, MAP_BYTES)
        if driver_version < SIZED_SINCE and reach < SIZED_FROM:
            word = ctypes.c_uint64.from_address(self.address + 8)
            word.value &= ~SIZED


def tiled_map(
    param: TensorParam, shape: Sequence[int], strides: Sequence[int], address: int = 0
) -> TiledMap:
    """The encoding of a tensor whose shape and strides, in elements, are given outermost first.

    Elements of 4 bits are encoded as bytes, which hold two elements each; the printed copies halve
    the coordinate.

    Raises:
        BindError: the tensor breaks a rule of TMA (`ir.hardware.tma`); the message names the rule.
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
    if broken := broken_array_rule(shape, byte_strides, inner, nbytes, address):
        raise BindError(f"tensor '{param.name}': {broken}")
    recipe = map_recipe(param)
    row = -(-shape[inner] * nbytes // ALIGNMENT) * ALIGNMENT
    # TMA never uses the stride of a dimension of extent 1, but checks it: any legal one will do.
    used = [
        stride if extent > 1 else row for stride, extent in zip(byte_strides, shape, strict=True)
    ]
    dims, before = (
        [(shape[a], used[a], n) for a, n in zip(recipe.order, recipe.box, strict=True)],
        0,
    )
    if param.ragged:
        rows, step, count = dims[1]
        if param.loaded:
            dims[1:2] = [
                (RAGGED_WRAP, step, count),
                (rows + 1, step, 1),
                (RAGGED_WRAP + 1, _ADDRESSES // RAGGED_WRAP - step, 1),
            ]
        else:
            dims[1:2] = [(count, step, count), (rows + 1, step, 1)]
            before = count * step
    extents, steps, counts = zip(*dims, strict=True)
    return TiledMap(
        recipe.data_type,
        recipe.swizzle,
        extents,
        steps[1:],
        counts,
        (1,) * len(dims),
        before,
    )
