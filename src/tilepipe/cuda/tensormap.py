"""Arguments of cuTensorMapEncodeTiled for a tensor parameter: which box of global memory one TMA copy of the printed code moves.

The driver counts dimensions innermost first and leaves the innermost stride out (it is one element). A "col" tensor, whose
dimension before the last is contiguous, therefore has its last two dimensions swapped; the printed copies swap their coordinates
in the same way. A box wider than a swizzle panel is encoded as one panel, and the printed code copies panel by panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.cuda.parameters import contiguous_axis
from tilepipe.errors import BindError
from tilepipe.ir.memory import TensorParam

MAX_BOX = 256  # elements of a box in any dimension
MAX_EXTENT = 2**32
MAX_STRIDE = 2**40  # bytes
ALIGNMENT = 16  # bytes: address, strides, inner extent of a box

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
        BindError: the tensor breaks a rule of TMA (CUDA Driver API, cuTensorMapEncodeTiled); the message names the rule.
    """
    if param.box is None:
        raise BindError(f"tensor '{param.name}' has no box, so TMA does not touch it")
    if not len(shape) == len(strides) == len(param.box) == param.rank:
        raise BindError(f"tensor '{param.name}' is {param.rank}-d; got shape {tuple(shape)}, strides {tuple(strides)}, box {param.box}")
    nbytes = param.dtype.nbytes
    inner = contiguous_axis(param)
    _check_memory(param, shape, strides, inner, address)
    order = [inner, *(axis for axis in reversed(range(param.rank)) if axis != inner)]
    box = list(param.box)
    if param.swizzle:
        box[inner] = min(box[inner], param.swizzle // nbytes)
    _check_box(param, box, inner)
    row = -(-shape[inner] * nbytes // ALIGNMENT) * ALIGNMENT
    # The stride of a dimension of extent 1 is never used, but has to obey the rules.
    byte_strides = tuple(strides[axis] * nbytes if shape[axis] > 1 else row for axis in order[1:])
    return TiledMap(
        _DATA_TYPE[param.dtype.name],
        _SWIZZLE[param.swizzle],
        tuple(shape[axis] for axis in order),
        byte_strides,
        tuple(box[axis] for axis in order),
        (1,) * param.rank,
    )


def _check_memory(param: TensorParam, shape: Sequence[int], strides: Sequence[int], inner: int, address: int) -> None:
    name, nbytes = param.name, param.dtype.nbytes
    if address % ALIGNMENT:
        raise BindError(f"tensor '{name}' starts at address {address:#x}; TMA needs a multiple of {ALIGNMENT}")
    for axis, extent in enumerate(shape):
        if not 0 < extent <= MAX_EXTENT:
            raise BindError(f"dimension {axis} of tensor '{name}' has {extent} elements; TMA takes 1 to 2^32")
    if shape[inner] > 1 and strides[inner] != 1:
        raise BindError(
            f"dimension {inner} of tensor '{name}' is said to be contiguous ({param.order} order), its stride is {strides[inner]}"
        )
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        nbytes_apart = stride * nbytes
        if axis != inner and extent > 1 and (nbytes_apart % ALIGNMENT or not 0 < nbytes_apart < MAX_STRIDE):
            raise BindError(
                f"dimension {axis} of tensor '{name}' has a stride of {stride} × {nbytes} = {nbytes_apart} bytes; TMA needs a"
                f" positive multiple of {ALIGNMENT} below 2^40. Pad the contiguous dimension to a multiple of"
                f" {ALIGNMENT // nbytes} elements, or copy the tensor."
            )


def _check_box(param: TensorParam, box: Sequence[int], inner: int) -> None:
    nbytes = param.dtype.nbytes
    for axis, extent in enumerate(box):
        if not 0 < extent <= MAX_BOX:
            raise BindError(f"the box of tensor '{param.name}' has {extent} elements in dimension {axis}; TMA takes 1 to {MAX_BOX}")
    if box[inner] * nbytes % ALIGNMENT:
        raise BindError(
            f"the box of tensor '{param.name}' has {box[inner]} × {nbytes} = {box[inner] * nbytes} contiguous bytes; TMA needs a"
            f" multiple of {ALIGNMENT}"
        )
