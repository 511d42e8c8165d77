"""Accesses to fragments: to their registers, which asynchronous MMAs and loads may be using, and
between them and memory (the generic proxy): shared tiles, of this CTA or of a peer, and tensors.

Which lane touches which element follows from the layout of a fragment (`ir.fragment.Fragment`); an
access to memory is recorded for each warp, as the rectangles of rows that the warp holds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn

import numpy as np

from tilepipe.errors import PoisonError, RaceError, SimFault
from tilepipe.ir.fragment import SPAN, VECTOR, WARP, row_threads, warp_boxes, warp_parts
from tilepipe.machine.agents import Agent
from tilepipe.machine.faults import groups
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.happens_before.conflicts import ordinary
from tilepipe.machine.happens_before.events import Index
from tilepipe.machine.happens_before.global_memory import box as order_box
from tilepipe.machine.happens_before.memory_order import RELAXED, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.elements import cta_of
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.outside import note_place
from tilepipe.machine.memory.reductions import combined, reduced
from tilepipe.machine.memory.storage import Array, Combine, rounded, storage
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK, warps_of

_FOUR = 0xF  # the first four lanes of a warp, which hold all columns of one row


# -- registers -------------------------------------------------------------------------


def _check_loaded(frag: Frag, ag: Agent, site: Site, warp: int | None, verb: str) -> None:
    if frag.loading if warp is None else frag.loading >> warp & 1:
        raise RaceError(
            f"{site.what}: {ag} {verb} fragment {frag.ir.named} while a load from tensor memory"
            " into its registers is in flight. Wait for it first:"
            f" {ag.cta.words['tcgen05.wait::ld']}.",
            site.loc,
        )


def _in_flight(frag: Frag, ag: Agent, site: Site, verb: str, users: int) -> NoReturn:
    """The registers are touched while wgmmas use them. `verb`: "reads" or "writes"."""
    loose = [u for u in ag.wgmma_open if frag in (u.acc, u.a)]
    use = "write" if verb == "reads" else "use"
    words = ag.cta.words
    pending = groups.pending_registers(ag, frag)
    remedy = f"Wait for them first: {words['wgmma.wait_group 0']}."
    remedy = f"{pending}. {remedy}" if pending else remedy
    if loose:
        last = loose[-1].site.loc.short
        if users == 1:
            which = f"The one at {last} is"
        elif len(loose) == 1:
            which = f"One of them, at {last}, is"
        else:
            which = f"{len(loose)} of them, the last at {last}, are"
        remedy = (
            f"{which} in no committed group, and a wait covers committed groups only. Close the"
            f" group after the MMA ({words['wgmma.commit_group']}), then wait for it:"
            f" {words['wgmma.wait_group 0']}."
        )
    users_are = f"1 wgmma that {use}s it is" if users == 1 else f"{users} wgmmas that {use} it are"
    raise RaceError(
        f"{site.what}: {ag} {verb} fragment {frag.ir.named} while {users_are} in flight. {remedy}",
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
    _mark_dirty(frag, ag, site)
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
        loop = (
            " If a loop was to set it, by its MMAs say, that loop has had no rounds in CTA"
            f" {ag.cta.block_id}: give it one, or leave out what uses the fragment."
        )
        raise PoisonError(
            f"{site.what}: {ag} reads fragment {frag.ir.named}, of which"
            f" {(wanted & ~frag.defined).bit_count()} of {width} columns were never set. Set it"
            f" first, for instance with {ag.cta.words['mov of 0']}.{'' if frag.defined else loop}",
            site.loc,
        )


def _mark_dirty(frag: Frag, ag: Agent, site: Site) -> None:
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
    _mark_dirty(frag, ag, site)
    frag.defined |= ((1 << width) - 1) << col
    if isinstance(value, np.ndarray) and value.ndim:
        frag.zero = False
        value = rounded(value, frag.ir.dtype)
    else:
        frag.zero = value == 0 and warp is None and width == frag.ir.cols
        value = rounded(np.asarray(value, storage(frag.ir.dtype)), frag.ir.dtype)
    if warp is None:
        frag.data[:, col : col + width] = value
        return
    mine = frag.by_warp(frag.data)[:, warp, :, col : col + width]
    mine[...] = np.broadcast_to(value, (mine.shape[0] * mine.shape[1], width)).reshape(mine.shape)


# -- shared memory ---------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _warp_rects(
    rect: Rect, mask: int, layout: str, is_write: bool, turned: bool
) -> list[tuple[int, Rect]]:
    """(lanes, rectangle of a tile) of each warp's part of a fragment: its rows, or all of a
    per-warp tile, or of a single row, which four lanes write. `mask`: the threads that are active;
    `turned`: the fragment's rows are the tile's columns.
    """
    r0, r1, c0, c1 = rect
    one_row = r1 - r0 == 1
    warps = [w for w, _ in warps_of(mask)]
    if one_row and is_write:
        warps = [0]
    if turned:
        parts = [(w, (r0, r1, a, b)) for w in warps for a, b in warp_parts(layout, w, c0, c1)]
    elif len(warps) == 1 or one_row:
        parts = [(w, rect) for w in warps]
    else:
        parts = [(w, (a, b, c0, c1)) for w in warps for a, b in warp_parts(layout, w, r0, r1)]
    each = _FOUR if one_row and is_write else WARP_MASK
    return [(mask & each << (32 * w), part) for w, part in parts]


def _touch(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    slot: Slot,
    rect: Rect,
    is_write: bool,
    aligned: bool,
    turned: bool = False,
) -> None:
    """Orders an access to a tile. `aligned`: by stmatrix, which the lanes of a warp execute as one.
    `turned`: the tile lies along the fragment's rows.
    """
    if threads := row_threads(site.layout):
        _touch_rows(m, ag, site, mask, slot, rect, is_write, threads)
        return
    if aligned and ag.pend:
        ag.converge(mask)
    for lanes, part in _warp_rects(rect, mask, site.layout, is_write, turned):
        ordinary(m, ag, site, lanes, slot, part, is_write, converged=aligned)


def _touch_rows(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    slot: Slot,
    rect: Rect,
    is_write: bool,
    threads: int,
) -> None:
    """`_touch`, of one value a row in layout "rows:T", T = `threads`: the first thread of a row
    writes it, all of them read it.
    """
    r0, r1, c0, c1 = rect
    for w in range(ag.warps):
        lanes = _first_of_rows(w, threads, r1 - r0) if is_write else WARP_MASK
        for a, b, _, _ in warp_boxes(site.layout, ag.warps, w, r1 - r0, 1) if lanes else ():
            part = (r0 + a, r0 + b, c0, c1)
            ordinary(m, ag, site, mask & lanes << (WARP * w), slot, part, is_write)


def _first_of_rows(warp: int, threads: int, rows: int) -> int:
    """The lanes of a warp that are the first of the `threads` threads of a row, which write a
    fragment (m, 1): of one row, that all groups of threads hold, the first of all.
    """
    if warp * WARP % threads or (rows == 1 and warp):
        return 0
    return 1 if rows == 1 else sum(1 << i for i in range(0, WARP, threads))


def fragment_store(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    slot: int,
    rect: Rect,
    aligned: bool,
    value: Array | float,
    cta: int | None = None,
) -> None:
    """Writes a fragment-shaped value to a shared tile, rounded to its dtype."""
    tile = cta_of(m, ag, site, cta).slots[slot]
    _touch(m, ag, site, mask, tile, rect, True, aligned)
    fragment_store_again(m, ag, site, mask, slot, rect, aligned, value, cta)


def fragment_store_again(
    m: Machine, ag: Agent, site: Site, mask: int, slot: int, rect: Rect, aligned: bool,
    value: Array | float, cta: int | None = None,
) -> None:  # fmt: skip
    """`fragment_store`, whose accesses are in order."""
    tile = cta_of(m, ag, site, cta).slots[slot]
    tile.write(rect, rounded(np.asarray(value), tile.buffer.dtype))


def fragment_load(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    dst: Frag,
    slot: int,
    rect: Rect,
    warp: int | None = None,
    cta: int | None = None,
) -> None:
    """Reads a shared tile into a fragment; a tile (1, m) into a fragment (m, 1), too."""
    tile = cta_of(m, ag, site, cta).slots[slot]
    turned = dst.ir.cols == 1 and rect[3] - rect[2] > 1
    _touch(m, ag, site, mask, tile, rect, False, False, turned)
    fragment_load_again(m, ag, site, mask, dst, slot, rect, warp, cta)


def fragment_load_again(
    m: Machine, ag: Agent, site: Site, mask: int, dst: Frag, slot: int, rect: Rect,
    warp: int | None = None, cta: int | None = None,
) -> None:  # fmt: skip
    """`fragment_load`, whose accesses are in order."""
    tile = cta_of(m, ag, site, cta).slots[slot]
    r0, r1, c0, c1 = rect
    turned = dst.ir.cols == 1 and c1 - c0 > 1
    values = tile.data[r0:r1, c0:c1]
    write_registers(dst, ag, site, values.T if turned else values, 0, dst.ir.cols, warp)


# -- tensors ---------------------------------------------------------------------------


def _box(tensor: GlobalTensor, rows: int, cols: int) -> tuple[int, ...]:
    """The extents of a fragment in the tensor's dimensions."""
    inner = (rows, cols) if 1 not in (rows, cols) else (rows * cols,)
    return (1,) * (len(tensor.shape) - len(inner)) + inner


def _check_indices(
    ag: Agent, site: Site, tensor: GlobalTensor, coords: tuple[int, ...], height: int = 1
) -> None:
    """The edges of the last two dimensions clip a fragment: rows and columns beyond them are
    normal. An index of a dimension before those names a matrix that must be there, such as the
    part of a workspace. `height`: rows that are moved.

    Raises:
        SimFault: it is not.
    """
    if len(coords) < 3 or height < 1:
        return
    for axis, (at, extent) in enumerate(zip(coords[:-2], tensor.shape, strict=False)):
        if not 0 <= at < extent:
            raise SimFault(
                f"{site.what}: {ag} accesses coordinates {tuple(coords)} of tensor"
                f" '{tensor.param.name}' of shape {tensor.shape}, whose dimension {axis} has"
                f" indices 0..{extent - 1}. Rows and columns of a fragment, in the last two"
                " dimensions, may lie outside; an index may not: on the GPU a load gives 0 there"
                " and a store is lost. Make the tensor larger, correct the index, or guard the"
                f" access with {ag.cta.words['a predicate']}.",
                site.loc,
            )


def _parts(
    ag: Agent, site: Site, is_write: bool, box: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """(lanes, first row, rows) of each warp's parts of a fragment, along the dimension of its
    rows.
    """
    if site.rows == 1:  # along columns: every warp reads them all, four lanes write them
        return (
            [(_FOUR, 0, box[-1])]
            if is_write
            else [(WARP_MASK << (32 * w), 0, box[-1]) for w in range(ag.warps)]
        )
    lanes = 0x11111111 if site.cols == 1 and is_write else WARP_MASK
    return [
        (lanes << (32 * w), a, b - a)
        for w in range(ag.warps)
        for a, b in warp_parts(site.layout, w, 0, site.rows)
    ]


def _note(
    m: Machine,
    ag: Agent,
    site: Site,
    tensor: GlobalTensor,
    coords: tuple[int, ...],
    is_write: bool,
    strong: Strong | None = None,
    height: int | None = None,
) -> None:
    """Orders an access to a tensor that the kernel writes. `height`: to so many rows of the
    fragment; all unless given.
    """
    order = tensor.order
    if order is None:
        return
    height = site.rows if height is None else height
    if threads := row_threads(site.layout):
        _note_rows(m, ag, site, tensor, coords, is_write, threads, strong, height)
        return
    box = _box(tensor, site.rows, site.cols)
    along = len(box) - (1 if 1 in (site.rows, site.cols) else 2)
    layout = (
        None
        if 1 in (site.rows, site.cols)
        else (site.layout, coords[-2] % SPAN[site.layout], coords[-1] % 8)
    )
    for lanes, first, whole in _parts(ag, site, is_write, box):
        count = whole if site.rows == 1 else min(whole, max(height - first, 0))
        start = tuple(at + first if axis == along else at for axis, at in enumerate(coords))
        extents = tuple(count if axis == along else n for axis, n in enumerate(box))
        where: Index = tensor.clip(start, extents)[0]
        if all(s.stop > s.start for s in where):
            event = order_box(m, order, ag, site, lanes, where, is_write, layout, strong=strong)
            ag.made(lanes, event.bit | event.release_bit)


def _note_rows(
    m: Machine,
    ag: Agent,
    site: Site,
    tensor: GlobalTensor,
    coords: tuple[int, ...],
    is_write: bool,
    threads: int,
    strong: Strong | None,
    height: int,
) -> None:
    """`_note`, of layout "rows:T", T = `threads`."""
    assert tensor.order is not None
    rows, cols = site.rows, site.cols
    row_axis = None if rows == 1 and cols > 1 else len(coords) - (1 if cols == 1 else 2)
    col_axis = None if cols == 1 else len(coords) - 1
    groups = WARP * ag.warps // threads
    layout = None  # several lanes have the same element
    if col_axis is not None and (rows > 1 or groups == 1):
        row = 0 if row_axis is None else coords[-2] % groups
        layout = (site.layout, row, coords[-1] % (VECTOR * threads))
    for w in range(ag.warps):
        lanes = WARP_MASK
        if is_write and cols == 1:  # the first thread of each row
            lanes = _first_of_rows(w, threads, rows)
            if not lanes:
                continue
        elif is_write and rows == 1:  # the first group
            if w * WARP >= threads:
                continue
            lanes = (1 << min(threads, WARP)) - 1
        for r0, r1, c0, c1 in warp_boxes(site.layout, ag.warps, w, rows, cols):
            start, extents = list(coords), [1] * len(coords)
            for axis, first, stop in ((row_axis, r0, min(r1, height)), (col_axis, c0, c1)):
                if axis is not None:
                    start[axis] += first
                    extents[axis] = max(stop - first, 0)
            where: Index = tensor.clip(tuple(start), tuple(extents))[0]
            if all(s.stop > s.start for s in where):
                by = lanes << (32 * w)
                event = order_box(
                    m, tensor.order, ag, site, by, where, is_write, layout, strong=strong
                )
                ag.made(by, event.bit | event.release_bit)


def fragment_load_global(
    m: Machine, ag: Agent, site: Site, mask: int, dst: Frag, coords: tuple[int, ...]
) -> None:
    """Reads a part of a tensor into a fragment; zero beyond the tensor's rows and columns."""
    tensor = m.world.tensors[site.tensor]
    _check_indices(ag, site, tensor, coords)
    note_place(m.world, site, tensor, coords, _box(tensor, site.rows, site.cols))
    _note(m, ag, site, tensor, coords, is_write=False)
    values = tensor.read_box(coords, _box(tensor, site.rows, site.cols))
    write_registers(dst, ag, site, values.reshape(site.rows, site.cols), 0, site.cols)


def fragment_store_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: tuple[int, ...],
    value: Array | float,
    rows: int | None = None,
) -> None:
    """Writes a fragment-shaped value to a part of a tensor, rounded to its dtype; what lies outside
    is dropped. `rows`: how many rows of the value at most.
    """
    tensor, height = m.world.tensors[site.tensor], _height(site, rows)
    _check_indices(ag, site, tensor, coords, height)
    _note(m, ag, site, tensor, coords, is_write=True, height=height)
    _put(m, tensor, site, coords, value, height)


def fragment_reduce_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: tuple[int, ...],
    value: Array | float,
    operation: str,
    rows: int | None = None,
) -> None:
    """red.global of each element of a fragment-shaped value, rounded to the tensor's dtype; what
    lies outside the tensor is dropped. `rows`: as of `fragment_store_global`.
    """
    tensor, height = m.world.tensors[site.tensor], _height(site, rows)
    _check_indices(ag, site, tensor, coords, height)
    _note(m, ag, site, tensor, coords, is_write=True, strong=RELAXED, height=height)
    box = _put(m, tensor, site, coords, value, height, combined(operation, tensor.param.dtype))
    where: Index = tensor.clip(coords, box)[0]
    reduced(m, site, mask, [(s.start, s.stop) for s in where])


def _put(
    m: Machine,
    tensor: GlobalTensor,
    site: Site,
    coords: tuple[int, ...],
    value: Array | float,
    height: int,
    reduction: Combine | None = None,
) -> tuple[int, ...]:
    """Writes the first `height` rows of a value; gives the extents of what it writes."""
    values = np.broadcast_to(rounded(np.asarray(value), tensor.param.dtype), (site.rows, site.cols))
    values = values.reshape(_box(tensor, site.rows, site.cols))
    if height > 0:
        note_place(m.world, site, tensor, coords, values.shape)
    if height < site.rows:
        values = values[..., :height] if site.cols == 1 else values[..., :height, :]
    tensor.write_box(coords, values, reduction)
    return values.shape


def _height(site: Site, rows: int | None) -> int:
    """How many rows of a fragment are written."""
    return site.rows if rows is None else min(max(rows, 0), site.rows)
