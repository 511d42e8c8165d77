"""Rules of TMA for tensors in global memory and for boxes: cuTensorMapEncodeTiled (CUDA Driver API)
and of the tensor copies (PTX ISA, cp.async.bulk.tensor). Each rule returns None, or a sentence that
says what is broken. The rules for tiles in shared memory are in `operand_tiles`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

MAX_RANK = 5
MOST_RAGGED_LOADED = MAX_RANK - 2  # dimensions of a tensor whose ragged map loads use
RAGGED_WRAP = 2**30  # the coordinate that takes such a map round the address space
MAX_BOX = 256  # elements of a box in any dimension
MAX_EXTENT = 2**32
MAX_STRIDE = 2**40  # bytes
ALIGNMENT = 16  # bytes: address, strides, contiguous extent of a box

_HALVES = (dtypes.float16, dtypes.bfloat16)
_EXTREMA = (dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, *_HALVES)
# Of int64 the PTX ISA also has .and, .or, .xor: on an H100 its tensor maps take .min and .max alone
_BITS = (dtypes.int32, dtypes.uint32, dtypes.uint64)
# PTX ISA, cp.reduce.async.bulk.tensor: the dtypes of each operation
REDUCED = {
    "add": (dtypes.int32, dtypes.uint32, dtypes.uint64, dtypes.float32, *_HALVES),
    "min": _EXTREMA,
    "max": _EXTREMA,
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
}


def in_bytes(elements: int, dtype: DType) -> str:
    """`64 × 2 = 128 bytes`, for messages."""
    each = str(dtype.nbytes) if dtype.per_byte == 1 else f"1/{dtype.per_byte}"
    return f"{elements} × {each} = {dtype.bytes_of(elements)} bytes"


def takes_stride(extent: int, stride: int) -> bool:
    """True if a dimension other than the contiguous one may have this stride, bytes. The stride of
    a dimension of extent 1 is not used.
    """
    return extent == 1 or (stride % ALIGNMENT == 0 and 0 < stride < MAX_STRIDE)


def default_swizzle(contiguous: int, lines: int, dtype: DType) -> int:
    """The widest swizzle (bytes) whose span divides `contiguous` elements; 0 below 32 bytes, or
    where `lines`, the extent of the other dimension, is not a multiple of the 8 that every swizzle
    repeats after.
    """
    if lines % 8 or contiguous % dtype.per_byte:
        return 0
    nbytes = dtype.bytes_of(contiguous)
    return next((s for s in (128, 64, 32) if nbytes % s == 0), 0)


def broken_array_rule(
    shape: Sequence[int], strides: Sequence[int], inner: int, nbytes: int, address: int = 0
) -> str | None:
    """The rule that an array breaks, with contiguous dimension `inner`, `strides` in bytes and
    elements of `nbytes`. For 4-bit elements: the array of their bytes.
    """
    if address % ALIGNMENT:
        return (
            f"TMA needs it to start at a multiple of {ALIGNMENT} bytes; it starts at {address:#x}"
        )
    for axis, extent in enumerate(shape):
        if not 0 < extent <= MAX_EXTENT:
            return f"dimension {axis} has {extent} elements; TMA takes 1 to 2^32"
    if broken := not_contiguous(shape, strides, inner, nbytes):
        return broken
    wrong = _wrong_stride(shape, strides, inner)
    if wrong is None:
        return None
    advice = (
        f"Pad the contiguous dimension to a multiple of {ALIGNMENT // nbytes} elements"
        if wants_padding(shape, strides, inner, nbytes)
        else "Make a copy"
    )
    return (
        f"TMA needs strides that are positive multiples of {ALIGNMENT} bytes below 2^40; dimension"
        f" {wrong} has a stride of {strides[wrong]} bytes. {advice}."
    )


def wants_padding(
    shape: Sequence[int], strides: Sequence[int], inner: int, nbytes: int, address: int = 0
) -> bool:
    """True if padding the contiguous dimension mends the rule that `broken_array_rule` names."""
    axis = _wrong_stride(shape, strides, inner)
    return (
        axis is not None
        and strides[axis] > 0
        and address % ALIGNMENT == 0
        and not_contiguous(shape, strides, inner, nbytes) is None
    )


def _wrong_stride(shape: Sequence[int], strides: Sequence[int], inner: int) -> int | None:
    """The first dimension, other than the contiguous one, whose stride TMA does not take."""
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if axis != inner and not takes_stride(extent, stride):
            return axis
    return None


def not_contiguous(
    shape: Sequence[int], strides: Sequence[int], inner: int, nbytes: int
) -> str | None:
    """What is wrong where dimension `inner` of an array is not the contiguous one; ordinary loads
    and stores take it for that, too. Arguments as of `broken_array_rule`.
    """
    if shape[inner] == 1 or strides[inner] == nbytes:
        return None
    return (
        f"dimension {inner} must be contiguous, and its elements of {nbytes} bytes are"
        f" {strides[inner]} bytes apart. Make a copy."
    )


def broken_coordinate_rule(
    coords: Sequence[int], inner: int, dtype: DType, *, store: bool, ragged: bool = False
) -> str | None:
    """The rule that the coordinates of a box break, outermost first. Neither rule of all maps is in
    the PTX ISA; on an H200 breaking one is an illegal instruction, which destroys the process's
    CUDA context. A load of a ragged map would read what lies before the tensor.
    """
    unit = ALIGNMENT * 8 // dtype.bits
    if coords[inner] % unit:
        at = "" if coords[inner] % dtype.per_byte else f", {in_bytes(coords[inner], dtype)}"
        return (
            f"TMA copies from and to multiples of {ALIGNMENT} bytes along the contiguous dimension;"
            f" the box starts at element {coords[inner]}{at}. Start at a multiple of {unit}"
            " elements."
        )
    if (store or ragged) and min(coords) < 0:
        copy = "TMA store" if store else "load by a ragged map"
        return (
            f"a {copy} may reach beyond the end of a tensor, where it is clipped, but not start"
            f" before it: its box starts at {tuple(coords)}"
        )
    return None


def broken_extent_rule(box: Sequence[int]) -> str | None:
    """The rule that the extents of a box, in elements, break."""
    for extent in box:
        integer = isinstance(extent, int) and not isinstance(extent, bool)
        if not integer or not 1 <= extent <= MAX_BOX:
            kind = "" if integer else "an integer in "
            return f"each extent must be {kind}1..{MAX_BOX}, got {extent!r}"
    return None


def broken_line_rule(contiguous: int, dtype: DType, swizzle: int = 0) -> str | None:
    """The rule that the contiguous extent of a box, in elements, breaks."""
    unit = swizzle or ALIGNMENT
    if contiguous * dtype.bits % (unit * 8) == 0:
        return None
    why = "the swizzle span" if swizzle else f"TMA moves {ALIGNMENT}-byte units"
    has = (
        f"are {in_bytes(contiguous, dtype)}"
        if contiguous % dtype.per_byte == 0
        else f"of {dtype.bits} bits are no whole number of bytes"
    )
    return f"{contiguous} contiguous elements {has}, not a multiple of {unit} ({why})"


def broken_reduction_rule(operation: str, dtype: DType) -> str | None:
    """The rule that a store breaks which reduces elements of this dtype."""
    if dtype in REDUCED[operation]:
        return None
    names = ", ".join(map(str, REDUCED[operation]))
    return f"a TMA store reduces by '{operation}' elements of {names}; these are {dtype}"
