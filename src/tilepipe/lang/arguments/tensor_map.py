"""Tensor maps: a global tensor, and the box of it that one TMA copy moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilepipe.errors import BindError, Padding
from tilepipe.host_arguments import plain_int, require_bool, require_int, shown
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype, array_order, byte_strides, item_bytes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tma import (
    ALIGNMENT,
    MAX_RANK,
    broken_array_rule,
    broken_extent_rule,
    broken_line_rule,
    default_swizzle,
    not_contiguous,
    wants_padding,
)
from tilepipe.ir.host_tensors import host_memory, is_host_tensor, require_simulated
from tilepipe.ir.layout import SWIZZLES
from tilepipe.ir.location import call_text, caller, users_frame


@dataclass(frozen=True, eq=False)
class TensorMap:
    """The static facts that a kernel is traced for (`dtype`, `rank`, `order`, `box`, `swizzle`),
    and the array that it runs on.

    Attributes:
        order: "row" when the last dimension is contiguous in memory, "col" when the one before it
            is.
        box: extent of one TMA copy in elements, outermost first; None: no TMA, ordinary loads and
            stores only.
        swizzle: 0, 32, 64 or 128 bytes; how the copy permutes 16-byte chunks in shared memory.
        array: the data, in its logical shape; of 4-bit elements, the array of their bytes.
        ragged: a TMA copy may move fewer lines than the box has.
    """

    dtype: DType
    rank: int
    order: str = "row"
    box: tuple[int, ...] | None = None
    swizzle: int = 0
    array: Any = field(default=None, repr=False)
    ragged: bool = False

    @property
    def static(self) -> tuple[object, ...]:
        """What a trace depends on."""
        return (self.dtype, self.rank, self.order, self.box, self.swizzle, self.ragged)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the array, in elements."""
        *outer, last = self.array.shape or (1,)
        return (*outer, last * self.dtype.per_byte) if self.array.shape else ()


def tensor_map(
    array: Any,
    box: tuple[int, ...] | None = None,
    swizzle: int | None = None,
    order: str | None = None,
    *,
    dtype: object = None,
    ragged: bool = False,
) -> TensorMap:
    """Describes `array` for TMA (with a `box`) or for ordinary loads and stores (without).

    Args:
        array: NumPy array or tensor of PyTorch, on the CPU or on a GPU, of rank 1..5, one of whose
            last two dimensions is contiguous. The map of a tensor on the CPU has a NumPy array of
            its memory.
        box: elements of one copy, outermost first, at most 256 each (a contiguous extent wider than
            the swizzle span is copied in panels).
        swizzle: bytes; the widest that divides the box's contiguous extent unless given.
        order: "row" or "col", for arrays where both are possible; found from the strides unless
            given.
        dtype: what the bytes of a uint8 array are: a float of 8 bits, or float4_e2m1, of which each
            byte holds two neighbours along the last dimension, the first in its low half. The
            tensor is then twice as long there; shapes and boxes count elements.
        ragged: for `ctx.tma_load(..., lines=)` and `ctx.tma_store(..., rows=)`, which move only the
            first rows of a tile, or columns of a column-major one: of an array of rank 2..4, with a
            box.

    Raises:
        BindError: a rule of cuTensorMapEncodeTiled is broken; the message names it.
    """
    try:
        return described(array, box, swizzle, order, dtype=dtype, ragged=ragged)
    except BindError as error:
        frame = users_frame()
        call = "" if frame is None else call_text(frame)
        if not call:
            raise
        error.args = f"{call}: {error}", caller()
        raise


def described(
    array: Any,
    box: tuple[int, ...] | None = None,
    swizzle: int | None = None,
    order: str | None = None,
    *,
    dtype: object = None,
    ragged: bool = False,
) -> TensorMap:
    """`tensor_map`, whose errors name neither the call nor its line."""
    # tiles and tensors of a kernel have a shape, but a DType
    if not hasattr(array, "shape") or isinstance(getattr(array, "dtype", None), DType):
        raise BindError(f"expected an array, got {type(array).__name__}")
    ragged = require_bool(ragged, "ragged=")
    if order is not None and not isinstance(order, str):
        raise BindError(f'order must be "row" or "col", got {shown(order)}')
    if swizzle is not None:
        swizzle = require_int(swizzle, "swizzle=", 0, max(SWIZZLES))
    kind = _element_type(array, dtype)
    if is_host_tensor(array):
        require_simulated("the tensor")
        array = host_memory(array, "the tensor")
    rank = len(array.shape)
    what = "an argument" if box is None else "a tensor map"
    if not 1 <= rank <= MAX_RANK:
        raise BindError(f"{what} has 1..{MAX_RANK} dimensions, the array has {rank}")
    if any(extent < 1 for extent in array.shape):
        raise BindError(
            f"an array of shape {tuple(array.shape)} has no elements; {what} has every extent >= 1."
            " Where there is nothing to do, launch no kernel."
        )
    if order is None:
        order = array_order(array, box is not None)
    if order not in ("row", "col") or (order == "col" and rank == 1):
        wanted = '"row", of an array of 1 dimension' if rank == 1 else '"row" or "col"'
        raise BindError(f"order must be {wanted}; got {order!r}")
    if ragged and (box is None or not 2 <= rank < MAX_RANK):
        boxed = "a box" if box is not None else "no box"
        raise BindError(
            f"a ragged map is of an array of rank 2..{MAX_RANK - 1}, and has a box; this one is of"
            f" rank {rank}, with {boxed}"
        )
    if kind.per_byte > 1 and order != "row":
        raise BindError(
            f"{kind} is packed along the last dimension, which must be the contiguous one; got"
            f" order {order!r}"
        )
    inner = rank - (1 if order == "row" else 2)
    if box is None:
        shape = tuple(array.shape)
        broken = not_contiguous(shape, byte_strides(array), inner, item_bytes(array))
        if broken is not None:
            raise BindError(f"an array of shape {shape} {kind}: {broken}")
        return TensorMap(kind, rank, order, None, 0, array)
    if isinstance(box, tuple | list):
        plain = ((extent, plain_int(extent)) for extent in box)
        box = tuple(extent if found is None else found for extent, found in plain)
    _check_box(box, tuple(array.shape), kind)
    lines, contiguous = (1, *box)[-2:] if order == "row" else (box[-1], box[-2])
    if swizzle is None:
        swizzle = default_swizzle(contiguous, lines, kind)
    if swizzle not in SWIZZLES:
        raise BindError(f"swizzle must be one of {SWIZZLES} bytes, got {swizzle}")
    broken = broken_line_rule(contiguous, kind, swizzle)
    if broken is not None:
        raise BindError(f"box {tuple(box)} of {kind}: {broken}")
    _check_array(array, kind, inner)
    return TensorMap(kind, rank, order, tuple(box), swizzle, array, ragged)


def _element_type(array: Any, wanted: object) -> DType:
    """The dtype of an array's elements; for an array of uint8, of the floats that its bytes
    hold.
    """
    found = array_dtype(array)
    kind = found if wanted is None else dtypes.dtype(wanted)
    if kind is not found and not (found is dtypes.uint8 and kind.is_float and kind.bits <= 8):
        raise BindError(
            f"dtype= says which floats of 8 or 4 bits the bytes of a uint8 array are; got {kind}"
            f" for an array of {found}"
        )
    if found.per_byte > 1 and isinstance(array, np.ndarray):
        raise BindError(
            f"a NumPy array of {found} has a byte for each element, but TMA moves two to a byte."
            " Pack each two neighbours along the last dimension, the first in the low half, and"
            f" pass those bytes: tensor_map(uint8_array, dtype={found.name!r}, ...)"
        )
    return kind


def _check_box(box: tuple[int, ...], shape: tuple[int, ...], dtype: DType) -> None:
    rank = len(shape)
    if not isinstance(box, tuple | list):
        raise BindError(
            f"a box is a tuple of {rank} extents, one for each dimension; got {shown(box)}"
        )
    if len(box) != rank:
        raise BindError(f"box {shown(box)} has {len(box)} dimensions, the array {rank}")
    broken = broken_extent_rule(box)
    if broken is not None:
        raise BindError(f"box={tuple(box)} for an array of shape {shape}: {broken}")
    if dtype.kind == "bool" or dtype.bits > 64:
        raise BindError(f"TMA does not move {dtype}")


def _check_array(array: Any, dtype: DType, inner: int) -> None:
    shape = tuple(array.shape)
    # Only PyTorch gives the address here; others are checked at the launch, and a NumPy array is
    # copied to an aligned address.
    address = array.data_ptr() if hasattr(array, "data_ptr") else 0
    given = shape, byte_strides(array), inner, item_bytes(array), address
    broken = broken_array_rule(*given)
    if broken is None:
        return
    error = BindError(f"an array of shape {shape} {dtype}: {broken}")
    if wants_padding(*given):
        error.padding = Padding("", shape[inner], ALIGNMENT // item_bytes(array))
    raise error
