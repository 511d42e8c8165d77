"""What is kept of the accesses to a tensor in global memory: the live ones of each cluster,
and maps that hold for each element its last write and, where the program reads, its last read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilepipe.machine.happens_before.accesses import GLOBAL
from tilepipe.machine.happens_before.events import LIMIT, MANY, SWEEP, Event, GlobalOrder, Index
from tilepipe.machine.happens_before.live_events import LiveEvents
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import COPIES_OF_CTAS, READ_REFILL


def record(m: Machine, order: GlobalOrder, event: Event, where: Index) -> None:
    """Keeps an event, which touches the elements `where`."""
    present = order.present
    if len(present.live) >= present.sweep_at:
        _sweep(m, order)
    event.bit = m.order.new_bit()
    refilled = event.is_write or m.world.asks(READ_REFILL)
    fences = m.world.asks(COPIES_OF_CTAS) if event.asynchronous else refilled
    if order.mixed and fences:
        m.order.add_fences(event, GLOBAL)
    if m.world.program.commits and not event.asynchronous:
        m.order.add_release_bit(event)
    present.widen(event)
    present.written |= event.is_write
    order.history.append(event)
    event.number = len(order.history)
    present.live.add(event)
    order.touched(event)
    mark(order, event, where)


def overwrite_flags(order: GlobalOrder, event: Event) -> None:
    """An ordinary write ends what strong ones have left in its elements."""
    if event.box is None:
        gone = event.points.keys() & order.values.keys()
    else:
        flags = np.fromiter(order.values, np.int64, len(order.values))
        places = np.unravel_index(flags, order.shape)
        inside = [
            (low <= at) & (at < high) for at, (low, high) in zip(places, event.box, strict=True)
        ]
        gone = set(flags[np.logical_and.reduce(inside)].tolist())
    for at in gone:
        del order.values[at]


def retire(m: Machine, event: Event) -> None:
    """Forgets an event: later ones need not be compared with it."""
    m.order.retire(event)
    event.bit = event.fenced = event.reader_fenced = event.release_bit = 0
    event.points = {}


def mark(order: GlobalOrder, event: Event, where: Index) -> None:
    """Puts an event into the map of the elements it touches."""
    if event.is_strong and not event.is_write and order.presents is None:
        return  # a relaxed load meets the atomic operations of other clusters
    if event.is_strong:
        order.writers[where] = _merged(order, order.writers[where], event)
    elif event.is_write:
        order.writers[where] = event.number
    elif order.readers is not None:
        order.readers[where] = _merged(order, order.readers[where], event)


def _merged(
    order: GlobalOrder, seen: npt.NDArray[np.int32], event: Event
) -> npt.NDArray[np.int32] | int:
    """A map after a read, or an atomic write: MANY where another cluster has made one to the
    element as well.
    """
    if not seen.any():
        return event.number
    before = [int(i) for i in np.unique(seen) if i]
    others = [i for i in before if i == MANY or order.history[i - 1].cluster != event.cluster]
    return (
        np.where(np.isin(seen, others), MANY, event.number).astype(np.int32)
        if others
        else event.number
    )


def _sweep(m: Machine, order: GlobalOrder) -> None:
    """Drops the events that every running agent knows of, and the oldest ones where too many are
    left.
    """
    common = -1
    for agent in m.agents:
        if not agent.done:
            common &= agent.k
    keep = []
    for event in order.present.live:
        if event.bit & common and not (event.fenced | event.release_bit) & ~common:
            if order.presents is None:
                retire(m, event)
            else:
                order.present.settled.add(event)
        else:
            keep.append(event)
    if len(keep) >= LIMIT:
        for event in keep[: LIMIT // 2]:
            retire(m, event)
        keep = keep[LIMIT // 2 :]
        m.world.incomplete = f"{LIMIT:,} live accesses of a cluster to tensor '{order.name}'"
        m.world.advise(
            f"tensor '{order.name}': a cluster has more than {LIMIT:,} accesses to it that not"
            f" every {m.world.program.words['warp']} knows of; the oldest are no longer compared"
            " with later ones, so a race with them would not be seen. A smaller problem has fewer;"
            " so has a kernel in which a barrier that all wait for follows the accesses"
        )
    order.present.live = LiveEvents(keep)
    order.present.sweep_at = max(SWEEP, min(2 * len(keep), LIMIT))
