"""Matrix descriptors: where the operands of a wgmma or of a tcgen05.mma lie in shared memory, which
bytes an instruction reads, and which numbers these are.

A descriptor names core matrices of 8 rows of 16 bytes by a start address and two byte offsets
(PTX ISA, "Shared Memory Matrix Layout", "Matrix Descriptor Format"). What the offsets mean depends
on the swizzle and on which dimension is contiguous; CUTLASS's mma_sm90_desc.hpp has the same as
canonical layouts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir.dtypes import DType
from tilepipe.ir.layout import swizzle_offset
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, gather
from tilepipe.machine.memory.fragments import WARP_ROWS
from tilepipe.machine.memory.poison import Marks
from tilepipe.machine.memory.storage import Array, storage

K_BYTES = 32  # of each row that one instruction reads
CORE_ROWS, CORE_BYTES = 8, 16
WIDE_ROWS = 4  # lines of an atom of 128 bytes whose swizzle keeps 32 bytes together
_FIELD = 0x3FFF  # the three addresses and offsets have 14 bits, in units of 16 bytes
_WGMMA_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
_TCGEN05_SWIZZLES = {0: 0, 1: 128, 2: 128, 4: 64, 6: 32}
_TCGEN05_ZERO = 3 << 14 | 3 << 30 | 0xFF << 53


class MatrixDescriptor(NamedTuple):
    """A descriptor's fields, in bytes. `wide`: the swizzle keeps 32 bytes together, not 16."""

    start: int
    leading: int
    stride: int
    swizzle: int
    wide: bool = False

    @staticmethod
    def of_wgmma(bits: int) -> MatrixDescriptor:
        """From the 64 bits that wgmma takes (PTX ISA, "Asynchronous Warpgroup Level Matrix
        Instructions").
        """
        if other := bits & ~(_FIELD | _FIELD << 16 | _FIELD << 32 | 3 << 62):
            raise SimFault(
                f"matrix descriptor {bits:#018x} of wgmma: the base offset in bits 49-51 is"
                f" {bits >> 49 & 7} and the bits {other:#x} are set; only base offset 0 is"
                " supported, and all bits outside the fields must be 0"
            )
        return _fields(bits, _WGMMA_SWIZZLES[bits >> 62])

    @staticmethod
    def of_tcgen05(bits: int) -> MatrixDescriptor:
        """From the 64 bits that tcgen05.mma takes (PTX ISA, "TensorCore 5th Generation
        Instructions").
        """
        code = bits >> 61
        broken = ""
        if code not in _TCGEN05_SWIZZLES:
            broken = f"the swizzle in bits 61-63 is {code}; there are 0, 1, 2, 4 and 6"
        elif bits >> 46 & 7 != 1:
            broken = f"bits 46-48 are {bits >> 46 & 7}; they must be 1"
        elif bits >> 52 & 1:
            broken = "bit 52 is set: an absolute address for the second half of K is of sm_103a"
        elif code and bits >> 49 & 7:
            # Without a swizzle the base offset, which says where its pattern begins, means nothing.
            # Triton gives bits of the address.
            broken = f"the base offset in bits 49-51 is {bits >> 49 & 7}; only 0 is modelled"
        elif bits & _TCGEN05_ZERO:
            broken = f"the bits {bits & _TCGEN05_ZERO:#x} are set; they must be 0"
        if broken:
            raise SimFault(
                f"matrix descriptor {bits:#018x} of tcgen05: {broken} (PTX ISA, Shared memory"
                " descriptor)"
            )
        return _fields(bits, _TCGEN05_SWIZZLES[code])._replace(wide=code == 1)


def _fields(bits: int, swizzle: int) -> MatrixDescriptor:
    start, leading, stride = ((bits >> shift & _FIELD) << 4 for shift in (0, 16, 32))
    return MatrixDescriptor(start, leading, stride, swizzle)


@lru_cache(maxsize=4096)
def operand_places(
    descriptor: MatrixDescriptor, rows: int, element_bytes: int, *, k_major: bool
) -> npt.NDArray[np.int64]:
    """Where the bytes of an operand lie: (rows, elements along K, bytes of an element). `rows`: its
    extent in M or N.
    """
    d = descriptor
    row = np.arange(rows)[:, None, None]
    k = np.arange(K_BYTES // element_bytes)[None, :, None]
    byte = np.arange(element_bytes)[None, None, :]
    if k_major:
        along = k * element_bytes + byte
        if d.swizzle:
            # all of an instruction's K lies within one row of the swizzle
            at = row % CORE_ROWS * d.swizzle + row // CORE_ROWS * d.stride + along
        else:
            at = row % CORE_ROWS * CORE_BYTES + row // CORE_ROWS * d.stride
            at = at + along // CORE_BYTES * d.leading + along % CORE_BYTES
    else:
        per = (d.swizzle or CORE_BYTES) // element_bytes  # elements of M or N in one line
        lines = WIDE_ROWS if d.wide else CORE_ROWS
        line = row % per * element_bytes + byte + k % lines * (d.swizzle or CORE_BYTES)
        over, down = (d.leading, d.stride) if d.swizzle else (d.stride, d.leading)
        at = line + row // per * over + k // lines * down
    at = d.start + at
    return at ^ (at >> 7 & 3) << 5 if d.wide else swizzle_offset(at, d.swizzle)


class MatrixOperand(NamedTuple):
    """A or B of one instruction.

    Attributes:
        descriptor: where it lies. dtype: of its elements.
        rows: its extent in M or N. first: the first row meant, and the rest are left out before it.
        k_major: whether K is the contiguous dimension. negated: the numbers are.
    """

    descriptor: MatrixDescriptor
    dtype: DType
    rows: int
    k_major: bool = True
    first: int = 0
    negated: bool = False

    def of_warp(self, warp: int) -> MatrixOperand:
        """The rows of A that belong to a warp, 0..3, of the warpgroup (PTX ISA, wgmma register
        fragments).
        """
        first = WARP_ROWS * warp
        return self._replace(rows=first + WARP_ROWS, first=first)

    def touched(self) -> ByteSet:
        """The bytes that are read."""
        return _touched(self)

    def values(self, memory: Bytes) -> Array:
        """The numbers, (rows, elements along K), in storage form."""
        found = gather(memory, _places(self), self.dtype.numpy).astype(storage(self.dtype))
        return -found if self.negated else found

    def unwritten(self, present: Marks) -> Marks:
        """The elements of which some byte has not been written, (rows, elements along K).
        `present`: of each byte of shared memory, whether it has.
        """
        found: Marks = np.logical_not(present[_places(self)].all(axis=-1))
        return found


def _places(operand: MatrixOperand) -> npt.NDArray[np.int64]:
    places = operand_places(
        operand.descriptor, operand.rows, operand.dtype.nbytes, k_major=operand.k_major
    )
    return places[operand.first :]


@lru_cache(maxsize=4096)
def _touched(operand: MatrixOperand) -> ByteSet:
    return ByteSet.of(_places(operand))
