"""Tensor maps: what a TMA copy by address needs to know of the tensor, the box and the swizzle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import LimitError, SimFault
from tilepipe.ir.dtypes import DType
from tilepipe.ir.layout import SWIZZLES, swizzle_offset
from tilepipe.machine.memory.byte_sets import ByteSet
from tilepipe.machine.memory.global_memory import Coords
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site

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
                f"the inner extent of a box is a multiple of {ROW_MULTIPLE} bytes, and no more than"
                f" its swizzle; got {inner} bytes of swizzle {self.swizzle}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole box: what a copy credits."""
        return self.dtype.bytes_of(prod(self.box))

    def check(self, site: Site, coords: Coords, address: int, rank: int) -> None:
        """Raises SimFault for a copy that a tensor of that rank, or its address, does not allow."""
        if address % ALIGNMENT:
            raise SimFault(
                f"{site.what}: a box at {address:#x} of shared memory; its address is a multiple of"
                f" {ALIGNMENT} (PTX ISA, cp.async.bulk.tensor).",
                site.loc,
            )
        if len(coords) != rank or len(self.box) != rank:
            raise SimFault(
                f"{site.what}: coordinates {coords} and a box {self.box} for a tensor of {rank}"
                " dimensions",
                site.loc,
            )


class Box(NamedTuple):
    """What a copy by address moves, at an address in the shared memory of one CTA."""

    map: TensorMap
    address: int
    space: ByteSpace

    @property
    def key(self) -> tuple[object, ...]:
        """What of it two executions have in common."""
        map_ = self.map
        return map_.tensor, map_.dtype.name, map_.box, map_.swizzle, self.address

    def places(self) -> npt.NDArray[np.int64]:
        """Where each byte lies, in the order of the box."""
        return _places(self.map.nbytes, self.map.swizzle, self.address)

    def touched(self) -> ByteSet:
        """The bytes, as a set."""
        if self.map.nbytes % ALIGNMENT:
            return ByteSet.of(self.places())
        # a swizzle permutes within lines of 128 bytes
        return ByteSet.span(self.address, self.map.nbytes)


@lru_cache(maxsize=1024)
def _places(nbytes: int, swizzle: int, address: int) -> npt.NDArray[np.int64]:
    # The hardware swizzles bits of the address, not of the offset in the box (PTX ISA, tensor
    # swizzling modes).
    return swizzle_offset(address + np.arange(nbytes), swizzle)
