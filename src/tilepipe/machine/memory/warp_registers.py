"""How the 32 lanes of a warp hold the matrices of a wgmma in their registers.

PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": a warp has 16 rows; lane l has the rows
l / 4 and l / 4 + 8, and of each 8 columns the two from 2 · (l % 4).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

WARP_ROWS = 16
Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@lru_cache(maxsize=64)
def accumulator_places(cols: int) -> Places:
    """(rows, columns) of the elements of an accumulator of 32 bits: each (cols / 2 registers, 32
    lanes).
    """
    register, lane = np.arange(cols // 2)[:, None], np.arange(32)[None, :]
    rows = lane // 4 + register // 2 % 2 * 8
    cols_ = register // 4 * 8 + lane % 4 * 2 + register % 2
    return np.broadcast_to(rows, cols_.shape), cols_


@lru_cache(maxsize=64)
def operand_a_places(element_bytes: int) -> Places:
    """(rows, columns) of the elements of A: each (4 registers, 32 lanes, elements of a register)."""
    each = 4 // element_bytes
    register = np.arange(4)[:, None, None]
    lane, half = np.arange(32)[None, :, None], np.arange(each)[None, None, :]
    rows = lane // 4 + register % 2 * 8
    cols = register // 2 * 4 * each + lane % 4 * each + half
    return np.broadcast_to(rows, cols.shape), cols


def to_registers(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The registers of a warp's 16 rows of an accumulator: (registers, lanes)."""
    found: npt.NDArray[Any] = matrix[accumulator_places(matrix.shape[1])]
    return found


def from_registers(registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The inverse of `to_registers`."""
    cols = 2 * len(registers)
    matrix = np.zeros((WARP_ROWS, cols), registers.dtype)
    matrix[accumulator_places(cols)] = registers
    return matrix
