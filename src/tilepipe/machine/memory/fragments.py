"""Fragments: matrices in the registers of a warpgroup."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import SPAN
from tilepipe.machine.memory.values import storage
from tilepipe.machine.sites import Site

Array = npt.NDArray[Any]


class Fragment(Protocol):
    """A matrix in the registers of a warpgroup, and how its rows are laid out over the warps."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def layout(self) -> str: ...


class WarpMatrix(NamedTuple):
    """A matrix in the registers of one warp (`warp_registers`)."""

    name: str
    dtype: DType
    rows: int
    cols: int
    layout: str = "warp"


class Frag:
    """A fragment of one warpgroup: (rows, cols), kept as float32 where the dtype allows.

    Attributes:
        defined: bit c set where column c has been set.
        zero: known to be all zeros, so that the first wgmma can overwrite instead of adding.
        writers, readers: wgmma issued and not yet waited for that write, or read, these registers.
        loading: bit w set where a load from tensor memory into warp w's registers has not been
            waited for.
        dirty: the site of a register access with no wgmma.fence after it.
    """

    __slots__ = (
        "all_columns",
        "data",
        "defined",
        "dirty",
        "ir",
        "loading",
        "readers",
        "scratch",
        "writers",
        "zero",
    )

    def __init__(self, ir: Fragment) -> None:
        self.ir = ir
        self.data: Array = np.zeros((ir.rows, ir.cols), storage(ir.dtype))
        self.scratch: Array | None = None
        self.all_columns = (1 << ir.cols) - 1
        self.defined = 0
        self.zero = False
        self.writers = 0
        self.readers = 0
        self.loading = 0
        self.dirty: Site | None = None

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
