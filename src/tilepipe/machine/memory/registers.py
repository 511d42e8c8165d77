"""Reading and writing the registers of fragments, which asynchronous MMAs and loads may be using."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tilepipe.errors import PoisonError, RaceError
from tilepipe.machine.agents import Agent
from tilepipe.machine.memory.fragments import Array, Frag
from tilepipe.machine.memory.values import rounded
from tilepipe.machine.sites import Site


def _check_loaded(frag: Frag, ag: Agent, site: Site, warp: int | None, verb: str) -> None:
    if frag.loading if warp is None else frag.loading >> warp & 1:
        raise RaceError(
            f"{site.what}: {ag} {verb} fragment '{frag.ir.name}' while a load from tensor"
            " memory into its registers is in flight."
            f" Wait for it first: {ag.cta.words['tcgen05.wait::ld']}.",
            site.loc,
        )


def _in_flight(frag: Frag, ag: Agent, site: Site, verb: str, users: int) -> NoReturn:
    """The registers are touched while wgmmas use them. `verb`: "reads" or "writes"."""
    loose = [u for u in ag.wgmma_open if frag in (u.acc, u.a)]
    use = "write" if verb == "reads" else "use"
    words = ag.cta.words
    remedy = f"Wait for them first: {words['wgmma.wait_group 0']}."
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
            f" the MMA ({words['wgmma.commit_group']}), then wait for it:"
            f" {words['wgmma.wait_group 0']}."
        )
    users_are = f"1 wgmma that {use}s it is" if users == 1 else f"{users} wgmmas that {use} it are"
    raise RaceError(
        f"{site.what}: {ag} {verb} fragment '{frag.ir.name}' while {users_are} in flight. {remedy}",
        site.loc,
    )


def read_registers(
    frag: Frag, ag: Agent, site: Site, col: int, width: int, warp: int | None = None
) -> Array:
    """Columns [col, col + width), read by the threads.

    Raises:
        RaceError: a wgmma, or a load from tensor memory, that writes the registers has not been
            waited for.
        PoisonError: a column has never been set.
    """
    readable(frag, ag, site, col, width, warp)
    _touched(frag, ag, site)
    data = frag.part(frag.data, warp)
    return data if width == data.shape[1] else data[:, col : col + width]


def readable(
    frag: Frag, ag: Agent, site: Site, col: int, width: int, warp: int | None = None
) -> None:
    """Raises what `read_registers` raises."""
    if frag.writers:
        _in_flight(frag, ag, site, "reads", frag.writers)
    if frag.loading:
        _check_loaded(frag, ag, site, warp, "reads")
    wanted = ((1 << width) - 1) << col
    if wanted & ~frag.defined:
        raise PoisonError(
            f"{site.what}: {ag} reads fragment '{frag.ir.name}', of which"
            f" {(wanted & ~frag.defined).bit_count()}"
            f" of {width} columns were never set. Set it first, for instance with"
            f" {ag.cta.words['mov of 0']}.",
            site.loc,
        )


def _touched(frag: Frag, ag: Agent, site: Site) -> None:
    """The threads access the registers: a wgmma that names them then needs a wgmma.fence before
    it, reads included.
    """
    if frag.dirty is None and ag.cta.tmem is None:  # no wgmma in a kernel with tensor memory
        ag.dirty.append(frag)
    frag.dirty = site


def write_registers(
    frag: Frag,
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
    if frag.writers or frag.readers:
        _in_flight(frag, ag, site, "writes", frag.writers + frag.readers)
    if frag.loading:
        _check_loaded(frag, ag, site, warp, "writes")
    _touched(frag, ag, site)
    frag.defined |= ((1 << width) - 1) << col
    if isinstance(value, np.ndarray) and value.ndim:
        frag.zero = False
        value = rounded(value, frag.ir.dtype)
    else:
        frag.zero = value == 0 and warp is None and width == frag.ir.cols
        value = rounded(np.asarray(value, np.float32), frag.ir.dtype)
    if warp is None:
        frag.data[:, col : col + width] = value
        return
    mine = frag.by_warp(frag.data)[:, warp, :, col : col + width]
    mine[...] = np.broadcast_to(value, (mine.shape[0] * mine.shape[1], width)).reshape(mine.shape)
