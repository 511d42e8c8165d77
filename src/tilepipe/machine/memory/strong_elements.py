"""Strong accesses by lanes to single elements of tensors: flags, counters and sums by which CTAs
synchronise (`happens_before.memory_order`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.advice import Advice
from tilepipe.machine.agents import Agent, looked
from tilepipe.machine.happens_before import flags
from tilepipe.machine.happens_before.events import GlobalOrder
from tilepipe.machine.happens_before.global_memory import points
from tilepipe.machine.happens_before.memory_order import Look, Scope, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory import elements
from tilepipe.machine.memory.elements import Scalar, scalar
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.storage import Array
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.machine.units.grid import LATENCY, may_act

Where = tuple[list[int], ...]


def load_strong(
    m: Machine, ag: Agent, site: Site, mask: int, strong: Strong, *index: Scalar
) -> Scalar:
    """ld.relaxed, ld.acquire of an element by every active lane."""
    tensor = m.world.tensors[site.tensor]
    if tensor.order is None:  # the kernel writes none of it
        return elements.load_global(m, ag, site, mask, *index)
    tensor, order, at = _ordered(m, ag, site, mask, index, strong, is_write=False)
    found = elements.loaded(ag, mask, tensor, at, index)
    lanes, flat = lanes_in(mask), np.ravel_multi_index(at, order.shape).tolist()
    for where in dict.fromkeys(zip(*at, strict=True)):
        m.in_turn((site.tensor, *where), mask, False)
    for where in dict.fromkeys(flat):
        readers = sum(1 << lane for lane, one in zip(lanes, flat, strict=True) if one == where)
        flags.observed(m, ag, site, readers, order.values.get(where), strong)
        if m.world.order is not None and where not in order.values:
            element = tuple(int(i) for i in np.unravel_index(where, order.shape))
            look = Look(
                readers, site, strong, None, where, name_of(tensor, element),
                str(scalar(tensor.array[element])),
                tuple(len(t.order.history) if t.order else 0 for t in m.world.tensors),
            )  # fmt: skip
            m.world.seen.looked(flags.place_of(m, ag), ag.uid, look)
    _note_look(ag, site, mask, tensor, at, flat, tensor.array[at])
    return found


def store_strong(
    m: Machine, ag: Agent, site: Site, mask: int, strong: Strong, value: Scalar, *index: Scalar
) -> None:
    """st.relaxed, st.release of an element by every active lane."""
    tensor, order, at = _ordered(m, ag, site, mask, index, strong, is_write=True)
    elements.write(ag, site, mask, tensor, at, value, index)
    for lane, where in zip(lanes_in(mask), zip(*at, strict=True), strict=True):
        m.in_turn((site.tensor, *where), 1 << lane, True)
        _wrote(m, ag, site, lane, tensor, order, where, strong, updates=False)


def atomic(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    strong: Strong,
    operation: str,
    width: int,
    value: Scalar,
    compare: Scalar | None,
    *index: Scalar,
) -> Scalar | Blocked:
    """atom.global, red.global: one active lane after another updates its element. Returns what
    each found: one value, of the one lane that is active, or an array over `width` threads.
    """
    if not may_act(m, ag):
        return BLOCKED
    tensor, order, at = _ordered(m, ag, site, mask, index, strong, is_write=True)
    lanes, flat = lanes_in(mask), np.ravel_multi_index(at, order.shape).tolist()
    base = elements.base_of(ag, mask, value, *index) if width == 0 else _first(mask, width)
    found = np.zeros(len(lanes), tensor.array.dtype)
    reads, changed = site.id not in m.world.unread, False
    if site.one_place and not reads:
        _note_same(m, site, lanes, base, value)
    for i, (lane, where) in enumerate(zip(lanes, zip(*at, strict=True), strict=True)):
        old = found[i] = tensor.array[where]
        given = [x[lane - base] if isinstance(x, np.ndarray) else x for x in (value, compare)]
        new = combined(tensor, operation, old, *given)
        tensor.array[where] = new
        changes = new.tobytes() != old.tobytes()
        changed |= changes
        m.in_turn((site.tensor, *where), 1 << lane, changes)
        if reads:
            flags.observed(m, ag, site, 1 << lane, order.values.get(flat[i]), strong)
        _wrote(m, ag, site, lane, tensor, order, where, strong, updates=True)
    if m.world.recorder is not None:
        m.world.recorder.awaited(ag, site, [(site, ag.time + LATENCY)])
    ag.time += LATENCY
    if changed:
        ag.repeats = False
    else:
        _note_look(ag, site, mask, tensor, at, flat, found)
    if width == 0:
        return scalar(found[0])
    out = np.zeros(width, found.dtype)
    out[[lane - base for lane in lanes]] = found
    return out.astype(elements.computed(out.dtype))


def _note_same(m: Machine, site: Site, lanes: list[int], base: int, value: Scalar) -> None:
    """Advises where several lanes add the same number to one element: a sum that a warp has made by
    shuffles, say, which is then 32 times as much.
    """
    if not isinstance(value, np.ndarray):
        return
    values = value[[lane - base for lane in lanes]]
    if len(lanes) > 1 and values[0] != 0 and (values == values[0]).all():
        words = m.world.program.words
        text = (
            f"{site.what}, at {site.loc.short}: {len(lanes)} lanes add the same number to one"
            f" element, which becomes greater by {len(lanes)} times that number. If it is one"
            f" number of the warp, let one lane add it, by {words['elect.sync']}. If each lane has"
            f" its own, add them up first, by {words['redux.sync or shfl.sync']}, and let one lane"
            " add the sum"
        )
        m.world.advise(Advice("one number of several lanes", (site.loc.short,), (text,)))


def combined(tensor: GlobalTensor, operation: str, old: Any, value: Any, compare: Any) -> Any:
    """The new value of an element after an atomic operation; sums of integers wrap."""
    dtype = tensor.array.dtype
    wrapped: Any = _wrapped(int(value), dtype) if dtype.kind in "iu" else dtype.type(value)
    match operation:
        case "add" if dtype.kind in "iu":
            return _wrapped(int(old) + int(value), dtype)
        case "add":
            return dtype.type(old + wrapped)
        case "min":
            return min(old, wrapped)
        case "max":
            return max(old, wrapped)
        case "and" | "or" | "xor":
            a, b = int(old), int(wrapped)
            return _wrapped(
                a & b if operation == "and" else a | b if operation == "or" else a ^ b, dtype
            )
        case "cas":
            return wrapped if old == _wrapped(int(compare), dtype) else old
    return wrapped  # exchange


def _wrapped(value: int, dtype: np.dtype[Any]) -> Any:
    """An integer modulo 2 to the number of bits of its dtype."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    one = np.array(value % (1 << 8 * dtype.itemsize), unsigned).view(dtype)
    return one[()]


def fence(m: Machine, ag: Agent, site: Site, mask: int, scope: Scope) -> None:
    """fence.acq_rel, fence.sc."""
    flags.fence(m, ag, mask, scope)


def _ordered(
    m: Machine, ag: Agent, site: Site, mask: int, index: Sequence[Scalar], strong: Strong,
    *, is_write: bool,
) -> tuple[GlobalTensor, GlobalOrder, Where]:  # fmt: skip
    """Orders a strong access; returns the tensor, its order and the elements of the lanes."""
    tensor = m.world.tensors[site.tensor]
    at = elements.indices(m, ag, site, mask, *index)
    assert tensor.order is not None
    points(m, tensor.order, ag, site, mask, at, is_write=is_write, strong=strong)
    return tensor, tensor.order, at


def _wrote(
    m: Machine, ag: Agent, site: Site, lane: int, tensor: GlobalTensor, order: GlobalOrder,
    where: tuple[int, ...], strong: Strong, *, updates: bool,
) -> None:  # fmt: skip
    if m.world.order is not None:
        flat = int(np.ravel_multi_index(where, order.shape))
        name = name_of(tensor, where)
        access = flags.written(order, ag, site, 1 << lane, 1)
        flags.wrote(
            m, ag, site, 1 << lane, order.values, flat, strong, name, access=access, updates=updates
        )


def _note_look(
    ag: Agent, site: Site, mask: int, tensor: GlobalTensor, at: Where, flat: list[int], found: Array
) -> None:
    """Notes what lanes have found, for loops that poll."""
    lanes = lanes_in(mask)
    places = np.zeros(32 * ag.warps, np.int64)
    places[lanes] = flat
    held = np.zeros((32 * ag.warps, found.dtype.itemsize), np.uint8)
    held[lanes] = np.ascontiguousarray(found).view(np.uint8).reshape(len(lanes), -1)
    first = tuple(i[0] for i in at)
    looked(ag, site, mask, lanes, places, held, lambda: name_of(tensor, first))


def name_of(tensor: GlobalTensor, where: tuple[int, ...]) -> str:
    """The name of an element in messages."""
    return f"'{tensor.param.name}[{', '.join(map(str, where))}]'"


def _first(mask: int, width: int) -> int:
    """The thread that element 0 of an array over `width` threads belongs to."""
    return (mask.bit_length() - 1) // width * width
