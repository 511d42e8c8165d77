"""Fragments: matrices in the registers of a warpgroup, or of one warp; and which lane of a warp
holds which element of a matrix of wgmma.

PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": a warp has 16 rows; lane l has the rows
l / 4 and l / 4 + 8, and of each 8 columns the two from 2 · (l % 4). `fragment_access` reads and
writes fragments.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import SPAN
from tilepipe.machine.memory.poison import PoisonedMatrix
from tilepipe.machine.memory.storage import Array, storage
from tilepipe.machine.sites import Site

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
WARP_ROWS = 16  # of A, and of the accumulator, that each warp of a warpgroup has in each 64


class Fragment(Protocol):
    """A matrix in the registers of a warpgroup, and how its rows are laid out over the warps."""

    @property
    def name(self) -> str: ...
    @property
    def named(self) -> str:
        """Its variable, and where it was made, as messages name it."""

    @property
    def dtype(self) -> DType: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def layout(self) -> str: ...


class WarpMatrix(NamedTuple):
    """A matrix in the registers of one warp (`accumulator_places`)."""

    name: str
    dtype: DType
    rows: int
    cols: int
    layout: str = "warp"

    @property
    def named(self) -> str:
        """Its name, as messages quote it."""
        return f"'{self.name}'"


class Frag:
    """A fragment of one warpgroup: (rows, cols), kept as float32 where the dtype allows.

    Attributes:
        defined: bit c set where column c has been set.
        zero: known to be all zeros, so that the first wgmma can overwrite instead of adding.
        writers, readers: wgmma issued and not yet waited for that write, or read, these registers.
        loading: bit w set where a load from tensor memory into warp w's registers has not been
            waited for.
        dirty: the site of a register access with no wgmma.fence after it.
        poison: the elements that nobody has written, or that were made of such.
    """

    __slots__ = (
        "all_columns",
        "data",
        "defined",
        "dirty",
        "ir",
        "loading",
        "poison",
        "readers",
        "writers",
        "zero",
    )

    def __init__(self, ir: Fragment) -> None:
        self.ir = ir
        self.data: Array = np.zeros((ir.rows, ir.cols), storage(ir.dtype))
        self.all_columns = (1 << ir.cols) - 1
        self.defined = 0
        self.zero = False
        self.writers = 0
        self.readers = 0
        self.loading = 0
        self.dirty: Site | None = None
        self.poison: PoisonedMatrix | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """The state of its registers, apart from their contents: all of it that can decide a
        fault.
        """
        dirty = -1 if self.dirty is None else self.dirty.id
        state = self.defined, bool(self.zero), self.writers, self.readers, self.loading, dirty
        return self.ir.name, *state

    def by_warp(self, data: Array) -> Array:
        """A matrix of all rows as (spans, warps, rows, cols), a view."""
        rows, cols = data.shape
        span = SPAN[self.ir.layout]
        return data.reshape(rows // span, 4, span // 4, cols)

    def part(self, data: Array, warp: int | None) -> Array:
        """The rows that one warp holds of a matrix, or all of them. Of a fragment with one row, one
        value a column, every warp holds a copy.
        """
        if warp is None or len(data) == 1:
            return data
        return self.by_warp(data)[:, warp].reshape(len(data) // 4, data.shape[1])


# -- the registers of a warp -----------------------------------------------------------


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
    """(rows, columns) of the elements of A: each (4 registers, 32 lanes, elements of a
    register).
    """
    each = 4 // element_bytes
    register = np.arange(4)[:, None, None]
    lane, half = np.arange(32)[None, :, None], np.arange(each)[None, None, :]
    rows = lane // 4 + register % 2 * 8
    cols = register // 2 * 4 * each + lane % 4 * each + half
    return np.broadcast_to(rows, cols.shape), cols


def to_registers(matrix: Array) -> Array:
    """The registers of a warp's 16 rows of an accumulator: (registers, lanes)."""
    found: Array = matrix[accumulator_places(matrix.shape[1])]
    return found


def from_registers(registers: Array) -> Array:
    """The inverse of `to_registers`."""
    cols = 2 * len(registers)
    matrix = np.zeros((WARP_ROWS, cols), registers.dtype)
    matrix[accumulator_places(cols)] = registers
    return matrix
