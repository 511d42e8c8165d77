"""Ordinary loads and stores of single elements by lanes (the generic proxy)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilepipe.errors import RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.happens_before.conflicts import ordinary
from tilepipe.machine.happens_before.global_memory import points as order_points
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.storage import Array, rounded
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in, warps_of

Scalar = int | float | bool | Array


def _at(x: Scalar, lane: int, base: int) -> int:
    """The value of a scalar for one thread; arrays cover the agent's threads from `base`."""
    return int(x[lane - base]) if isinstance(x, np.ndarray) else int(x)


def base_of(ag: Agent, mask: int, *values: Scalar) -> int:
    """The thread that element 0 of array operands belongs to: 0, or the warp's first thread where
    the op runs per warp.
    """
    arrays = [v for v in values if isinstance(v, np.ndarray) and v.ndim]
    if arrays and len(arrays[0]) < 32 * ag.warps:
        return (mask.bit_length() - 1) // 32 * 32
    return 0


def _bounds(site: Site, slot: Slot, rect: Rect, row: int, col: int) -> tuple[int, int]:
    r0, r1, c0, c1 = rect
    if not (0 <= row < r1 - r0 and 0 <= col < c1 - c0):
        raise SimFault(
            f"{site.what}: element ({row}, {col}) of a {r1 - r0}×{c1 - c0} tile of {slot.name}",
            site.loc,
        )
    return r0 + row, c0 + col


def _accesses(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    slot: Slot,
    rect: Rect,
    row: Scalar,
    col: Scalar,
    is_write: bool,
    base: int,
) -> dict[int, tuple[int, int]]:
    """Orders one access per warp; returns the element of each active thread."""
    where: dict[int, tuple[int, int]] = {}
    uniform = not isinstance(row, np.ndarray) and not isinstance(col, np.ndarray)
    for _, lanes in warps_of(mask):
        points: dict[int, int] = {}
        if uniform:
            r, c = one = _bounds(site, slot, rect, int(row), int(col))
            where.update(dict.fromkeys(lanes_in(lanes), one))
            points[r << 32 | c] = lanes
        else:
            for lane in lanes_in(lanes):
                r, c = where[lane] = _bounds(
                    site, slot, rect, _at(row, lane, base), _at(col, lane, base)
                )
                points[r << 32 | c] = points.get(r << 32 | c, 0) | 1 << lane
        rows = [p >> 32 for p in points]
        cols = [p & 0xFFFFFFFF for p in points]
        hull = (min(rows), max(rows) + 1, min(cols), max(cols) + 1)
        ordinary(m, ag, site, lanes, slot, hull, is_write, points)
    return where


def cta_of(m: Machine, ag: Agent, site: Site, rank: int | None) -> Cta:
    """The CTA of that rank in the cluster; None: this one."""
    if rank is None:
        return ag.cta
    if not 0 <= rank < len(m.ctas):
        raise SimFault(f"{site.what}: {m.no_cta_of(rank)}", site.loc)
    return m.ctas[rank]


def load(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    slot: int,
    rect: Rect,
    row: Scalar,
    col: Scalar,
    cta: int | None = None,
) -> Scalar:
    """Loads one element of a shared tile for every active thread: one value, or an array over the
    threads.
    """
    tile = cta_of(m, ag, site, cta).slots[slot]
    base = base_of(ag, mask, row, col)
    where = _accesses(m, ag, site, mask, tile, rect, row, col, False, base)
    if not (isinstance(row, np.ndarray) or isinstance(col, np.ndarray)):
        r, c = next(iter(where.values()))
        return scalar(tile.data[r, c])
    across = row if isinstance(row, np.ndarray) else col
    assert isinstance(across, np.ndarray)
    out = np.zeros(len(across), tile.data.dtype)
    for lane, (r, c) in where.items():
        out[lane - base] = tile.data[r, c]
    return out.astype(computed(out.dtype))


def computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What lanes' elements of a stored dtype are computed with; what is not an integer has been
    rounded to its own.
    """
    if dtype.kind in "iu" and dtype != np.uint64:
        return np.dtype(np.int64)
    return dtype


def scalar(x: Any) -> Scalar:
    """A loaded element as generated code computes with it: integers are Python's."""
    return int(x) if x.dtype.kind in "iu" else bool(x) if x.dtype.kind == "b" else x


def store(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    value: Scalar,
    slot: int,
    rect: Rect,
    row: Scalar,
    col: Scalar,
    cta: int | None = None,
) -> None:
    """Stores one element of a shared tile for every active thread."""
    tile = cta_of(m, ag, site, cta).slots[slot]
    base = base_of(ag, mask, row, col, value)
    where = _accesses(m, ag, site, mask, tile, rect, row, col, True, base)
    values = rounded(np.asarray(value), tile.buffer.dtype)
    if values.ndim:
        _one_value_each(ag, site, where, values, base, tile.name)
    for lane, (r, c) in where.items():
        one = values[lane - base] if values.ndim else values[()]
        tile.write((r, r + 1, c, c + 1), one)


def _one_value_each(
    ag: Agent,
    site: Site,
    where: Mapping[int, tuple[int, ...]],
    values: Array,
    base: int,
    name: str,
) -> None:
    """Refuses threads that store different values to one element; `where`: thread -> element."""
    stored: dict[tuple[int, ...], tuple[int, Any]] = {}
    for lane, element in where.items():
        x = values[lane - base]
        first, other = stored.setdefault(element, (lane, x))
        if other != x and not (other != other and x != x):  # NaN
            raise RaceError(
                f"{site.what}: threads {first} and {lane} of {ag} store different values ({other}"
                f" and {x}) to element {element} of {name} in one instruction; which value wins is"
                " undefined",
                site.loc,
            )


def value_of(ag: Agent, mask: int, x: Scalar) -> int:
    """The integer that the one active thread means."""
    return _at(x, mask.bit_length() - 1, base_of(ag, mask, x))


def indices(m: Machine, ag: Agent, site: Site, mask: int, *index: Scalar) -> tuple[list[int], ...]:
    """Per dimension, the indices of the active threads, checked against the tensor."""
    tensor = m.world.tensors[site.tensor]
    base, lanes = base_of(ag, mask, *index), lanes_in(mask)
    out = tuple([_at(i, lane, base) for lane in lanes] for i in index)
    for lane, at in zip(lanes, zip(*out, strict=True), strict=True):
        if any(not 0 <= i < n for i, n in zip(at, tensor.shape, strict=True)):
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses element {tuple(at)} of tensor"
                f" '{tensor.param.name}' of shape {tensor.shape}. Guard it with"
                f" {ag.cta.words['a predicate']}.",
                site.loc,
            )
    return out


def load_global(m: Machine, ag: Agent, site: Site, mask: int, *index: Scalar) -> Scalar:
    """Loads one element of a tensor for every active thread."""
    tensor = m.world.tensors[site.tensor]
    at = indices(m, ag, site, mask, *index)
    if tensor.order is not None:
        order_points(m, tensor.order, ag, site, mask, at, is_write=False)
    return loaded(ag, mask, tensor, at, index)


def loaded(
    ag: Agent, mask: int, tensor: GlobalTensor, at: tuple[list[int], ...], index: Sequence[Scalar]
) -> Scalar:
    """The elements `at` of a tensor, for the active threads: one value, or an array over the
    threads where an index is one.
    """
    source = tensor.array if tensor.values is None else tensor.values
    arrays = [i for i in index if isinstance(i, np.ndarray)]
    if not arrays:
        return scalar(_stored(source[tuple(i[0] for i in at)]))
    own = source.dtype.kind in "iub" or source.dtype == np.float64
    out = np.zeros(len(arrays[0]), computed(source.dtype) if own else np.float32)
    base = base_of(ag, mask, *index)
    out[[lane - base for lane in lanes_in(mask)]] = source[at]
    return out


def _stored(x: Any) -> Any:
    """An element of a caller's array in storage form."""
    return x if x.dtype.kind in "iub" or x.dtype == np.float64 else np.float32(x)


def store_global(
    m: Machine, ag: Agent, site: Site, mask: int, value: Scalar, *index: Scalar
) -> None:
    """Stores one element of a tensor for every active thread."""
    tensor = m.world.tensors[site.tensor]
    at = indices(m, ag, site, mask, *index)
    assert tensor.order is not None
    order_points(m, tensor.order, ag, site, mask, at, is_write=True)
    write(ag, site, mask, tensor, at, value, index)


def write(
    ag: Agent, site: Site, mask: int, tensor: GlobalTensor, at: tuple[list[int], ...],
    value: Scalar, index: Sequence[Scalar],
) -> None:  # fmt: skip
    """Writes the elements `at` of a tensor, one for each active thread.

    Raises:
        RaceError: two threads write different values to one element.
    """
    values = rounded(np.asarray(value), tensor.param.dtype)
    if not values.ndim:
        tensor.array[at] = values
        return
    lanes, base = lanes_in(mask), base_of(ag, mask, value, *index)
    _one_value_each(
        ag,
        site,
        dict(zip(lanes, zip(*at, strict=True), strict=True)),
        values,
        base,
        f"tensor '{tensor.param.name}'",
    )
    tensor.array[at] = values[[lane - base for lane in lanes]]
