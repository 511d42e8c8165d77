"""Arguments of cuTensorMapEncodeTiled for a tensor parameter: which box of global memory one TMA copy of the printed code moves.

The driver counts dimensions innermost first and leaves the innermost stride out (it is one element). A "col" tensor, whose
dimension before the last is contiguous, therefore has its last two dimensions swapped; the printed copies swap their coordinates
in the same way. A box wider than a swizzle panel is encoded as one panel, and the printed code copies panel by panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.errors import BindError
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.tma import ALIGNMENT, broken_array_rule, broken_extent_rule, broken_line_rule

# CU_TENSOR_MAP_DATA_TYPE_*
_DATA_TYPE = {
    "boolean": "UINT8", "int8": "UINT8", "uint8": "UINT8", "float8_e4m3": "UINT8", "float8_e5m2": "UINT8",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
    "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64",
}  # fmt: skip
# CU_TENSOR_MAP_SWIZZLE_*
_SWIZZLE = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class TiledMap:
    """What cuTensorMapEncodeTiled is called with, beside the address; every tuple innermost dimension first.

    Attributes:
        data_type, swizzle: last part of the CU_TENSOR_MAP_DATA_TYPE_ and CU_TENSOR_MAP_SWIZZLE_ names.
        global_dim: extents, elements. global_strides: bytes, without the innermost.
        box_dim: elements. element_strides: all 1. Interleave is NONE, fill of out-of-bounds elements zero.
    """

    data_type: str
    swizzle: str
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...]


def tiled_map(param: TensorParam, shape: Sequence[int], strides: Sequence[int], address: int = 0) -> TiledMap:
    """The encoding of a tensor with this shape and these strides, in elements, outermost first.

    Raises:
        BindError: the tensor breaks a rule of TMA (`ir.tma`); the message names the rule.
    """
    if param.box is None:
        raise BindError(f"tensor '{param.name}' has no box, so TMA does not touch it")
    if not len(shape) == len(strides) == len(param.box) == param.rank:
        raise BindError(f"tensor '{param.name}' is {param.rank}-d; got shape {tuple(shape)}, strides {tuple(strides)}, box {param.box}")
    nbytes = param.dtype.nbytes
    inner = param.contiguous_axis
    byte_strides = [stride * nbytes for stride in strides]
    broken = broken_array_rule(shape, byte_strides, inner, nbytes, address)
    if broken is not None:
        raise BindError(f"tensor '{param.name}': {broken}")
    order = [inner, *(axis for axis in reversed(range(param.rank)) if axis != inner)]
    box = list(param.box)
    if param.swizzle:
        box[inner] = min(box[inner], param.swizzle // nbytes)
    broken = broken_extent_rule(box) or broken_line_rule(box[inner], nbytes)
    if broken is not None:
        raise BindError(f"the box {param.box} of tensor '{param.name}': {broken}")
    row = -(-shape[inner] * nbytes // ALIGNMENT) * ALIGNMENT
    # The stride of a dimension of extent 1 is never used, but has to obey the rules.
    global_strides = tuple(byte_strides[axis] if shape[axis] > 1 else row for axis in order[1:])
    return TiledMap(
        _DATA_TYPE[param.dtype.name],
        _SWIZZLE[param.swizzle],
        tuple(shape[axis] for axis in order),
        global_strides,
        tuple(box[axis] for axis in order),
        (1,) * param.rank,
    )
