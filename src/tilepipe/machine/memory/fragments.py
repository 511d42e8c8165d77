"""Fragments: matrices in the registers of a warpgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from tilepipe.errors import PoisonError, RaceError
from tilepipe.ir.fragment_layout import SPAN
from tilepipe.machine.memory.values import rounded, storage

if TYPE_CHECKING:
    from tilepipe.ir.memory import Fragment
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.sites import Site

Array = npt.NDArray[Any]


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

    def _by_warp(self, data: Array) -> Array:
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
        return self._by_warp(data)[:, warp].reshape(len(data) // 4, data.shape[1])

    def _check_loaded(self, ag: Agent, site: Site, warp: int | None, verb: str) -> None:
        if self.loading if warp is None else self.loading >> warp & 1:
            raise RaceError(
                f"{site.what}: {ag} {verb} fragment '{self.ir.name}' while a load from tensor"
                " memory into its registers is in flight."
                " Wait for it first: ctx.tmem_wait_load().",
                site.loc,
            )

    def _in_flight(self, ag: Agent, site: Site, verb: str, users: int) -> NoReturn:
        """The registers are touched while wgmmas use them. `verb`: "reads" or "writes"."""
        loose = [u for u in ag.wgmma_open if self in (u.acc, u.a)]
        use = "write" if verb == "reads" else "use"
        remedy = "Wait for them first: ctx.wgmma_wait(0)."
        if loose:
            last = loose[-1].site.loc.short
            if users == 1:
                which = f"The one at {last} is"
            elif len(loose) == 1:
                which = f"One of them, at {last}, is"
            else:
                which = f"{len(loose)} of them, the last at {last}, are"
            remedy = (
                f"{which} in no committed group, and a wait covers committed groups only. Close"
                " the group behind"
                " the MMA (ctx.wgmma_commit(), or ctx.mma_commit(mbar)), then wait for it:"
                " ctx.wgmma_wait(0)."
            )
        users_are = (
            f"1 wgmma that {use}s it is" if users == 1 else f"{users} wgmmas that {use} it are"
        )
        raise RaceError(
            f"{site.what}: {ag} {verb} fragment '{self.ir.name}' while {users_are} in flight. {remedy}",
            site.loc,
        )

    def get(self, ag: Agent, site: Site, col: int, width: int, warp: int | None = None) -> Array:
        """Columns [col, col + width), read by the threads.

        Raises:
            RaceError: a wgmma, or a load from tensor memory, that writes the registers has not been
                waited for.
            PoisonError: a column has never been set.
        """
        self.readable(ag, site, col, width, warp)
        self._touched(ag, site)
        data = self.part(self.data, warp)
        return data if width == data.shape[1] else data[:, col : col + width]

    def readable(
        self, ag: Agent, site: Site, col: int, width: int, warp: int | None = None
    ) -> None:
        """Raises what `get` raises."""
        if self.writers:
            self._in_flight(ag, site, "reads", self.writers)
        if self.loading:
            self._check_loaded(ag, site, warp, "reads")
        wanted = ((1 << width) - 1) << col
        if wanted & ~self.defined:
            raise PoisonError(
                f"{site.what}: {ag} reads fragment '{self.ir.name}', of which"
                f" {(wanted & ~self.defined).bit_count()}"
                f" of {width} columns were never set. Set it first, for instance with .fill(0).",
                site.loc,
            )

    def _touched(self, ag: Agent, site: Site) -> None:
        """The threads access the registers: a wgmma that names them then needs a wgmma.fence before
        it, reads included.
        """
        if self.dirty is None and ag.cta.tmem is None:  # no wgmma in a kernel with tensor memory
            ag.dirty.append(self)
        self.dirty = site

    def set(
        self,
        ag: Agent,
        site: Site,
        value: Array | float,
        col: int,
        width: int,
        warp: int | None = None,
    ) -> None:
        """Columns [col, col + width) := value, rounded to the fragment's dtype.

        Raises:
            RaceError: a wgmma that reads or writes the registers, or a load into them, has not been
                waited for.
        """
        if self.writers or self.readers:
            self._in_flight(ag, site, "writes", self.writers + self.readers)
        if self.loading:
            self._check_loaded(ag, site, warp, "writes")
        self._touched(ag, site)
        self.defined |= ((1 << width) - 1) << col
        if isinstance(value, np.ndarray) and value.ndim:
            self.zero = False
            value = rounded(value, self.ir.dtype)
        else:
            self.zero = value == 0 and warp is None and width == self.ir.cols
            value = rounded(np.asarray(value, np.float32), self.ir.dtype)
        if warp is None:
            self.data[:, col : col + width] = value
            return
        mine = self._by_warp(self.data)[:, warp, :, col : col + width]
        mine[...] = np.broadcast_to(value, (mine.shape[0] * mine.shape[1], width)).reshape(
            mine.shape
        )
