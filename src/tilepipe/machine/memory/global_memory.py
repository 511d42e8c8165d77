"""Global memory: the tensors of a launch. A tensor that the kernel only reads needs no ordering
(`global_order`).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.machine.happens_before.events import GlobalOrder, Index
from tilepipe.machine.memory.storage import Array, Combine, storage

INT32 = 1 << 31
# The two float4_e2m1 of each byte, the first in the low half.
_PAIRS = (
    np.stack([np.arange(256) & 15, np.arange(256) >> 4], -1)
    .astype(np.uint8)
    .view(dtypes.float4_e2m1.numpy)
    .astype(np.float32)
)

Coords = tuple[int, ...]


def _unpacked(array: Array) -> npt.NDArray[np.float32]:
    """The elements of bytes that hold two each."""
    found: npt.NDArray[np.float32] = _PAIRS[array].reshape(*array.shape[:-1], -1)
    return found


class Tensor(Protocol):
    """A tensor that a program names: `box`, what a TMA copy moves of it; `contiguous_axis`, the
    dimension whose stride is one element.
    """

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def rank(self) -> int: ...
    @property
    def box(self) -> tuple[int, ...] | None: ...
    @property
    def contiguous_axis(self) -> int: ...


class PlainTensor(NamedTuple):
    """A tensor whose contiguous dimension is the last."""

    name: str
    dtype: DType
    rank: int
    box: tuple[int, ...] | None = None

    @property
    def contiguous_axis(self) -> int:
        """The last."""
        return self.rank - 1


class GlobalTensor:
    """A tensor argument.

    Attributes:
        array: the caller's array, in its logical shape; of 4-bit elements, of their bytes. shape:
            in elements.
        values: what loads read, in storage form: a float32 copy where the kernel only reads; None
            where it writes.
        boxes: boxes of `values` that have been read twice, by coordinates and extents, each in
            memory of its own; None: read once. kept: how many elements they have.
        order: the accesses to its elements, where the kernel writes it.
    """

    __slots__ = (
        "array", "boxes", "kept", "lead", "order", "outside", "param", "shape", "values"
    )  # fmt: skip

    def __init__(
        self,
        param: Tensor,
        array: Array,
        written: bool,
        read_too: bool,
        mixed: bool = False,
    ) -> None:
        packed = param.dtype.per_byte > 1
        bytes_given = (
            isinstance(array, np.ndarray) and array.dtype == np.uint8 and param.dtype.is_float
        )
        if bytes_given and param.dtype.bits == 8:
            array = array.view(param.dtype.numpy)
        wanted = np.dtype(np.uint8) if packed else param.dtype.numpy
        if not isinstance(array, np.ndarray) or array.dtype != wanted or array.ndim != param.rank:
            got = (
                f"{array.dtype} of rank {array.ndim}"
                if isinstance(array, np.ndarray)
                else type(array).__name__
            )
            raise BindError(
                f"tensor '{param.name}': the simulator needs a NumPy {param.dtype} array of rank"
                f" {param.rank}, got {got}"
            )
        if written and not array.flags.writeable:
            raise BindError(
                f"tensor '{param.name}' is written by the kernel, but its array is read-only"
            )
        self.param = param
        self.array = array
        kept = storage(param.dtype)
        self.values = (
            None
            if written
            else _unpacked(array)
            if packed
            else array
            if array.dtype == kept
            else array.astype(kept)
        )
        if self.values is not None:
            # nothing writes it: a tile may hold a box of it without a copy (`Slot.fill`)
            self.values = self.values.view()
            self.values.flags.writeable = False
        self.boxes: dict[tuple[Coords, int, int], Array] = {}
        self.kept = 0
        self.shape: tuple[int, ...] = (
            (*array.shape[:-1], array.shape[-1] * param.dtype.per_byte) if packed else array.shape
        )
        # what bytes of zero are
        self.outside = 2.0**-127 if param.dtype is dtypes.float8_e8m0 else 0
        self.lead: tuple[int, ...] = param.box[:-2] if param.box is not None else ()
        self.order = GlobalOrder(param.name, self.shape, read_too, mixed) if written else None

    # -- boxes -------------------------------------------------------------------------

    def box(self, rows: int, cols: int) -> tuple[int, ...]:
        """The box that a tile of (rows, cols) holds."""
        if len(self.shape) == 1:
            return (rows * cols,)
        return (*self.lead, rows // prod(self.lead), cols)

    def clip(self, coords: Coords, box: tuple[int, ...]) -> tuple[Index, Index, bool]:
        """Slices into the tensor and into the box for the part of a box within bounds, and whether
        that is all of it.
        """
        there, here, whole = [], [], True
        for at, n, extent in zip(coords, box, self.shape, strict=True):
            if not -INT32 <= at < INT32:
                raise SimFault(f"coordinate {at} of tensor '{self.param.name}' is beyond int32")
            lo, hi = max(at, 0), min(at + n, extent)
            hi = max(hi, lo)
            whole = whole and hi - lo == n
            there.append(slice(lo, hi))
            here.append(slice(lo - at, hi - at))
        return tuple(there), tuple(here), whole

    def read(self, coords: Coords, rows: int, cols: int) -> Array:
        """The box at `coords` as (rows, cols) in storage form; zero out of bounds."""
        if self.values is None:
            return self._read(coords, rows, cols)
        key = coords, rows, cols
        box = self.boxes.get(key)
        return self._packed(key) if box is None else box

    def _packed(self, key: tuple[Coords, int, int]) -> Array:
        """A box, kept for further reads as long as all of them are no more than the tensor. By
        columns: a product A · Bᵀ of small tiles whose columns each lie together takes BLAS half
        the time, and packed boxes are read faster than parts of a large array. The first read of
        a box, too, and one that is not kept: BLAS adds up in another order where elements lie
        otherwise, and who reads first is the scheduler's choice.
        """
        box = np.array(self._read(*key), order="F")
        box.flags.writeable = False
        assert self.values is not None
        if self.kept + box.size <= self.values.size:
            self.boxes[key] = box
            self.kept += box.size
        return box

    def _read(self, coords: Coords, rows: int, cols: int) -> Array:
        source = self._source()
        if len(coords) == 2:
            y, x = coords
            if y >= 0 and x >= 0 and y + rows <= self.shape[0] and x + cols <= self.shape[1]:
                return source[y : y + rows, x : x + cols]
        return self.read_box(coords, self.box(rows, cols)).reshape(rows, cols)

    def read_box(self, coords: Coords, box: tuple[int, ...]) -> Array:
        """The box at `coords` in storage form; zero out of bounds."""
        source = self._source()
        there, here, whole = self.clip(coords, box)
        if whole:
            return source[there]
        out = np.full(box, self.outside, storage(self.param.dtype))
        out[here] = source[there]
        return out

    def write(self, coords: Coords, values: Array, reduction: Combine | None = None) -> None:
        """Writes a (rows, cols) box at `coords`; out of bounds is clipped. `reduction`: what is
        written is what this makes of the elements there and of `values`.
        """
        self.write_box(coords, values.reshape(self.box(*values.shape)), reduction)

    def write_box(self, coords: Coords, values: Array, reduction: Combine | None = None) -> None:
        """Writes a box of the tensor's rank at `coords`, as `write`."""
        there, here, _ = self.clip(coords, values.shape)
        if reduction is not None:
            given = values[here].astype(self.array.dtype)
            self.array[there] = reduction(self.array[there], given)
            return
        if self.param.dtype.per_byte == 1:
            self.array[there] = values[here]
            return
        codes = values[here].astype(self.param.dtype.numpy).view(np.uint8)
        *outer, last = there
        self.array[(*outer, slice(last.start // 2, last.stop // 2))] = (
            codes[..., ::2] | codes[..., 1::2] << 4
        )

    def _source(self) -> Array:
        """The elements as they are now."""
        if self.values is not None:
            return self.values
        return self.array if self.param.dtype.per_byte == 1 else _unpacked(self.array)
