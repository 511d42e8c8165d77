"""Tensor maps: what a TMA copy by address needs to know of the tensor, the box and the swizzle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from tilepipe.errors import LimitError
from tilepipe.ir.dtypes import DType
from tilepipe.ir.layout import SWIZZLES, swizzle_offset
from tilepipe.machine.memory.byte_sets import ByteSet

ALIGNMENT = 128  # of the address in shared memory (PTX ISA, cp.async.bulk.tensor)
ROW_MULTIPLE = 16  # bytes: the inner extent of a box is a multiple of it
MOST_ROWS = 256  # extent of a box in one dimension


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A CUtensorMap as the machine reads it.

    Attributes:
        tensor: index of the tensor among those of the launch. dtype: of its elements.
        box: extents of a copy in elements, outermost dimension first. swizzle: bytes, 0 for none.
    """

    tensor: int
    dtype: DType
    box: tuple[int, ...]
    swizzle: int = 0

    def __post_init__(self) -> None:
        inner = self.dtype.bytes_of(self.box[-1])
        if self.swizzle not in SWIZZLES or any(not 1 <= n <= MOST_ROWS for n in self.box):
            raise LimitError(
                f"a tensor map has extents of 1..{MOST_ROWS} and a swizzle of 0, 32, 64 or 128"
                f" bytes; got {self.box}, {self.swizzle}"
            )
        if inner % ROW_MULTIPLE or (self.swizzle and inner > self.swizzle):
            raise LimitError(
                f"the inner extent of a box is a multiple of {ROW_MULTIPLE} bytes, and no more"
                f" than its swizzle; got {inner} bytes of swizzle {self.swizzle}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole box: what a copy credits."""
        return self.dtype.bytes_of(prod(self.box))

    def places(self, address: int) -> npt.NDArray[np.int64]:
        """Where each byte of a box at an address in shared memory lies, in the order of the box."""
        return _places(self.nbytes, self.swizzle, address)

    def touched(self, address: int) -> ByteSet:
        """The bytes of a box at an address."""
        if self.nbytes % ALIGNMENT:
            return ByteSet.of(self.places(address))
        return ByteSet.span(address, self.nbytes)  # a swizzle permutes within lines of 128 bytes


@lru_cache(maxsize=1024)
def _places(nbytes: int, swizzle: int, address: int) -> npt.NDArray[np.int64]:
    # The hardware swizzles bits of the address, not of the offset in the box (PTX ISA, tensor
    # swizzling modes).
    return swizzle_offset(address + np.arange(nbytes), swizzle)
