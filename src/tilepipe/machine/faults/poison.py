"""The messages of reads of memory that nothing has written."""

from __future__ import annotations

from tilepipe.errors import PoisonError
from tilepipe.ir.location import Loc
from tilepipe.machine.faults import races, tensor_memory as tensor_faults, waits
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace, Slot


def never_written(m: Machine, slot: Slot, new: Access, missing: int) -> Origin:
    """A read of bytes that nothing has written, or to which what was read so has been stored; then
    where it was read first.
    """
    if m.poison_at is None:
        m.poison_at = new
    if isinstance(slot, ByteSpace) and (carried := slot.origin(slot.bytes_of(new))) is not None:
        return carried
    r0, r1, c0, c1 = new.rect
    total = (r1 - r0) * (c1 - c0) if new.points is None else len(new.points)
    remedy = (
        tensor_faults.poison(new)
        if isinstance(slot, TensorMemory)
        else "Wait for the copy or the store that fills them, or fill them first."
    )
    if early := waits.for_nothing(m, new.agent):
        remedy = f"{early} Otherwise: {remedy[0].lower()}{remedy[1:]}"
    written = next((view.name for view in slot.views if view.state), None)
    if written is not None:
        remedy = (
            f"The slot holds what was written as {written}, and a view does not reinterpret what"
            f" was written through another: read it through {written}. Where the slots are those of"
            " a ring, one of the two sides may have its place in the ring wrong."
        )
    return Origin(
        f"{new.agent} reads {slot.part(new)} with {races.resolved(slot, new)}, but {missing} of"
        f" {total} {slot.unit} were never written. {remedy}",
        new.site,
    )


def used(m: Machine, origin: Origin, loc: Loc | None = None, how: str = "") -> None:
    """Poison decides something or leaves. Reported when the run ends, unless a race explains it
    first. `loc`, `how`: where, and what happens to it there; not given where it was read.
    """
    if m.poisoned is not None:
        return
    message = origin.message
    if loc is not None:
        message += f"\n  What it has read is used at {loc.short}: {how}."
    m.poisoned = PoisonError(message, origin.site.loc)
