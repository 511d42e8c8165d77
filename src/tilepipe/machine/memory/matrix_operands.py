"""Operands of an MMA in shared memory by matrix descriptor: which bytes, and which numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, gather
from tilepipe.machine.memory.matrix_descriptors import MatrixDescriptor, operand_places
from tilepipe.machine.memory.values import storage

WARP_ROWS = 16  # of A, and of the accumulator, that each warp of a warpgroup has in each 64


class MatrixOperand(NamedTuple):
    """A or B of one instruction.

    Attributes:
        descriptor: where it lies. dtype: of its elements.
        rows: its extent in M or N. first: the first row meant, and the rest are left out before it.
        k_major: whether K is the contiguous dimension.
    """

    descriptor: MatrixDescriptor
    dtype: DType
    rows: int
    k_major: bool = True
    first: int = 0

    def of_warp(self, warp: int) -> MatrixOperand:
        """The rows of A that belong to a warp, 0..3, of the warpgroup (PTX ISA, wgmma register
        fragments).
        """
        first = WARP_ROWS * warp
        return MatrixOperand(self.descriptor, self.dtype, first + WARP_ROWS, self.k_major, first)

    def touched(self) -> ByteSet:
        """The bytes that are read."""
        return _touched(self)

    def values(self, memory: Bytes) -> npt.NDArray[Any]:
        """The numbers, (rows, elements along K), in storage form."""
        return gather(memory, _places(self), self.dtype.numpy).astype(storage(self.dtype))


def _places(operand: MatrixOperand) -> npt.NDArray[np.int64]:
    places = operand_places(
        operand.descriptor, operand.rows, operand.dtype.nbytes, k_major=operand.k_major
    )
    return places[operand.first :]


@lru_cache(maxsize=4096)
def _touched(operand: MatrixOperand) -> ByteSet:
    return ByteSet.of(_places(operand))
