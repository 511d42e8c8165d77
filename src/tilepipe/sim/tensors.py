"""Global memory: the tensors of a launch, and who last touched each element of those the kernel writes.

A tensor that the kernel only reads needs no ordering. For one that it writes, a map holds for each element the last
write (and,
where the kernel also reads it, the last read). Nothing in the language orders CTAs of different clusters within a
launch, so two of
them at one element, one writing, is always a race; within a cluster the happens-before bits decide.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, SimFault
from tilepipe.sim import faults
from tilepipe.sim.memory import storage

if TYPE_CHECKING:
    from tilepipe.ir.memory import TensorParam
    from tilepipe.sim.agents import Agent
    from tilepipe.sim.machine import Machine
    from tilepipe.sim.sites import Site

WINDOW = 64  # a cluster's events older than its last WINDOW count as ordered within the cluster
MANY = -2  # in a map of readers: clusters other than the last reader's have read it too
INT32 = 1 << 31

Coords = tuple[int, ...]
Index = tuple[Any, ...]


class Event:
    """One access to global memory. `bit` is 0 once it counts as ordered within its cluster."""

    __slots__ = ("agent_uid", "bit", "cluster", "site", "who")

    def __init__(self, who: str, agent_uid: int, cluster: int, site: Site, bit: int) -> None:
        self.who = who
        self.agent_uid = agent_uid
        self.cluster = cluster
        self.site = site
        self.bit = bit


class GlobalTensor:
    """A tensor argument.

    Attributes:
        array: the caller's array, in its logical shape.
        values: what loads read, in storage form: a float32 copy where the kernel only reads; None where it writes.
        written, read_too: whether the kernel writes it, and whether it then also reads it.
    """

    __slots__ = ("array", "events", "lead", "param", "read_too", "readers", "shape", "values", "writers", "written")

    def __init__(self, param: TensorParam, array: npt.NDArray[Any], written: bool, read_too: bool) -> None:
        if not isinstance(array, np.ndarray) or array.dtype != param.dtype.numpy or array.ndim != param.rank:
            got = f"{array.dtype} of rank {array.ndim}" if isinstance(array, np.ndarray) else type(array).__name__
            raise BindError(f"tensor '{param.name}': the simulator needs a NumPy {param.dtype} array of rank {param.rank}, got {got}")
        if written and not array.flags.writeable:
            raise BindError(f"tensor '{param.name}' is written by the kernel, but its array is read-only")
        self.param = param
        self.array = array
        self.shape = array.shape
        self.written = written
        self.read_too = read_too
        kept = storage(param.dtype)
        self.values = None if written else array if array.dtype == kept else array.astype(kept)
        self.lead: tuple[int, ...] = param.box[:-2] if param.box is not None else ()
        self.writers = np.zeros(array.shape, np.int32) if written else None
        self.readers = np.zeros(array.shape, np.int32) if read_too else None
        self.events: list[Event] = []

    # -- boxes ---------------------------------------------------------------------------------------------------------

    def box(self, rows: int, cols: int) -> tuple[int, ...]:
        """The box that a tile of (rows, cols) holds."""
        if len(self.shape) == 1:
            return (rows * cols,)
        return (*self.lead, rows // prod(self.lead), cols)

    def clip(self, coords: Coords, rows: int, cols: int) -> tuple[Index, Index, bool]:
        """Slices into the tensor and into the box for the part of a box within bounds, and whether that is all of
        it.
        """
        there, here, whole = [], [], True
        for at, n, extent in zip(coords, self.box(rows, cols), self.shape, strict=True):
            if not -INT32 <= at < INT32:
                raise SimFault(f"coordinate {at} of tensor '{self.param.name}' is beyond int32")
            lo, hi = max(at, 0), min(at + n, extent)
            hi = max(hi, lo)
            whole = whole and hi - lo == n
            there.append(slice(lo, hi))
            here.append(slice(lo - at, hi - at))
        return tuple(there), tuple(here), whole

    def read(self, coords: Coords, rows: int, cols: int) -> npt.NDArray[Any]:
        """The box at `coords` as (rows, cols) in storage form; zero out of bounds."""
        source = self.array if self.values is None else self.values
        if len(coords) == 2:
            y, x = coords
            if y >= 0 and x >= 0 and y + rows <= self.shape[0] and x + cols <= self.shape[1]:
                return source[y : y + rows, x : x + cols]
        there, here, whole = self.clip(coords, rows, cols)
        if whole:
            return source[there].reshape(rows, cols)
        out = np.zeros(self.box(rows, cols), storage(self.param.dtype))
        out[here] = source[there]
        return out.reshape(rows, cols)

    def write(self, coords: Coords, values: npt.NDArray[Any]) -> None:
        """Writes a (rows, cols) box at `coords`; out of bounds is clipped."""
        rows, cols = values.shape
        there, here, _ = self.clip(coords, rows, cols)
        self.array[there] = values.reshape(self.box(rows, cols))[here]

    # -- ordering ------------------------------------------------------------------------------------------------------

    def note_write(self, m: Machine, ag: Agent, site: Site, coords: Coords, known: int) -> Event:
        """Orders the write of a box against what has touched its elements."""
        return self.note(m, ag, site, self.clip(coords, site.rows, site.cols)[0], known, is_write=True)

    def note_read(self, m: Machine, ag: Agent, site: Site, coords: Coords, known: int) -> Event:
        return self.note(m, ag, site, self.clip(coords, site.rows, site.cols)[0], known, is_write=False)

    def note(self, m: Machine, ag: Agent, site: Site, where: Index, known: int, is_write: bool) -> Event:
        """Orders an access to the elements `where` (an index of the array) and records it.

        Raises:
            RaceError: an element was written, or is now written after being read, with nothing that orders the two.
        """
        assert self.writers is not None
        self._check(self.writers[where], m, ag, site, known, "written")
        if is_write and self.readers is not None:
            self._check(self.readers[where], m, ag, site, known, "read")
        event = Event(str(ag), ag.uid, m.cluster_id, site, m.order.new_bit())
        m.note_event(event)
        self.events.append(event)
        number = len(self.events)
        if is_write:
            self.writers[where] = number
        elif self.readers is not None:
            self.readers[where] = self._merged(self.readers[where], m.cluster_id, number)
        return event

    def _merged(self, seen: npt.NDArray[np.int32], cluster: int, number: int) -> npt.NDArray[np.int32] | int:
        """The map of readers after a read by `cluster`: MANY where another cluster has read the element as well."""
        before = [int(i) for i in np.unique(seen) if i]
        others = [i for i in before if i == MANY or self.events[i - 1].cluster != cluster]
        return np.where(np.isin(seen, others), MANY, number).astype(np.int32) if others else number

    def _check(self, seen: npt.NDArray[np.int32], m: Machine, ag: Agent, site: Site, known: int, verb: str) -> None:
        if not seen.any():
            return
        for number in np.unique(seen):
            if number == 0:
                continue
            if number == MANY:
                faults.global_race(self.param.name, None, verb, ag, site)
            event = self.events[int(number) - 1]
            ordered = event.cluster == m.cluster_id and (not event.bit or event.bit & known)
            same_thread = event.site.kind in ("load", "store") and site.kind in ("load", "store") and event.agent_uid == ag.uid
            if not ordered and not (same_thread and event.cluster == m.cluster_id):
                faults.global_race(self.param.name, event, verb, ag, site)
