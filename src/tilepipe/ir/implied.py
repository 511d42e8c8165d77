"""The points that a timed build need not note, since the note before them tells all about them.

An MMA is committed, and waited for, right where it is issued; the copies of a stage follow its
expected bytes. A warp that has noted the first of these comes to the others without delay, so who
reads the notes adds them. What is not noted costs the kernel nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.facts import Order, Unit
from tilepipe.ir.memory import BarrierRef, NamedBarrier
from tilepipe.ir.program import Kernel, bodies, walk
from tilepipe.ir.stamps import Stamp, is_noted, points, waits

_QUICK = (
    ops.Let, ops.Define, ops.Assign, ops.Read, ops.CursorDefine, ops.CursorRead, ops.CursorStep,
    ops.SyncWarp,
)  # fmt: skip

Note = tuple[int, bool]  # the number of a point, and whether it is the end of a wait


@dataclass(frozen=True, slots=True)
class Step:
    """What a warp comes to after a note.

    Attributes:
        point: its number. same_barrier: it names the barrier of the note.
        may_block: it is a wait for an mbarrier, which has notes of its own if it blocks, and has
            nothing to show if it does not.
    """

    point: int
    same_barrier: bool = False
    may_block: bool = False


@dataclass(slots=True)
class Implied:
    """What the notes of a kernel imply.

    Attributes:
        begins: the ops that are not noted when a warp comes to them.
        after: note -> what follows it, in order.
    """

    begins: set[ops.Op] = field(default_factory=set)
    after: dict[Note, list[Step]] = field(default_factory=dict)

    def complete(self, noted: Iterable[Stamp]) -> list[Stamp]:
        """The stamps of a warp with those that they imply."""
        found: list[Stamp] = []
        head: Stamp | None = None
        due: list[Step] = []
        for stamp in noted:
            begun = bool(found) and (found[-1].point, found[-1].ended) == (stamp.point, False)
            if not (stamp.ended and begun):  # what follows a wait that blocked is due after its end
                here = [i for i, s in enumerate(due) if s.may_block and s.point == stamp.point]
                before = here[0] if here else len(due)
                found += _following(head, found, due[:before])
                due = due[before + 1 :]
            found.append(stamp)
            if (stamp.point, stamp.ended) in self.after:
                head, due = stamp, self.after[stamp.point, stamp.ended]
        return found + _following(head, found, due)


def _following(head: Stamp | None, found: list[Stamp], steps: Iterable[Step]) -> list[Stamp]:
    """The stamps that steps after the note `head` would have made, when the last one was."""
    if head is None:
        return []
    now = found[-1].cycles
    return [
        replace(head, point=step.point, ended=False, cycles=now)
        if step.same_barrier
        else Stamp(step.point, False, now, 0, 0, None)
        for step in steps
        if not step.may_block
    ]


def implied(kernel: Kernel) -> Implied:
    """Finds them."""
    found = Implied()
    numbers = {point.op: n for n, point in enumerate(points(kernel))}
    for role in kernel.roles:
        _block(role.body, False, numbers, found)
    return found


def _block(block: ops.Block, diverged: bool, numbers: dict[ops.Op, int], found: Implied) -> None:
    """Adds those of a block. `diverged`: only some lanes of a warp may execute it."""
    head: ops.Op | None = None
    steps: list[Step] = []
    issued = False  # an MMA since: issuing it may have taken time
    for op in block.ops:
        parts = isinstance(op, ops.Elect) or (isinstance(op, ops.If) and op.cond.vary is Vary.LANE)
        for body in bodies(op):
            _block(body, diverged or parts, numbers, found)
        if not is_noted(op):
            if not quick(op) or any(is_noted(x) for body in bodies(op) for x in walk(body)):
                head = None
            continue
        number, mma = numbers[op], op.facts.unit is Unit.TENSOR_CORE
        if isinstance(op, ops.MbarWait) and not diverged:
            if head is not None:
                steps.append(Step(number, may_block=True))
            continue
        plain = _says_nothing(op)
        same = not plain and head is not None and _same_barrier(head, op)
        own = mma or op.facts.commits is not None or op.facts.awaits is not None
        if head is not None and (plain or same) and (own or not issued):
            found.begins.add(op)
            steps.append(Step(number, same))
            issued |= mma
            if not waits(op):
                continue
        head, steps, issued = op, [], mma  # it is noted, or its end is
        if getattr(op, "multicast", None) is not None:
            head = None  # a second note has the CTAs that it reaches
        else:
            found.after[number, waits(op)] = steps


def _says_nothing(op: ops.Op) -> bool:
    """True if a note of an op's begin has nothing but the number of its point."""
    bar = getattr(op, "bar", None)
    if isinstance(bar, BarrierRef):
        return False
    if isinstance(bar, NamedBarrier):
        return getattr(op, "group", None) is None
    return getattr(op, "multicast", None) is None


def _same_barrier(head: ops.Op, op: ops.Op) -> bool:
    """True if both name one mbarrier, and a note of either says no more than that."""
    of_head = getattr(head, "bar", None)
    bar = getattr(op, "bar", None)
    return (
        isinstance(bar, BarrierRef)
        and isinstance(of_head, BarrierRef)
        and (of_head.array, of_head.index, of_head.cta) == (bar.array, bar.index, bar.cta)
        and not (waits(head) or waits(op))
        and getattr(op, "multicast", None) is None
    )


def quick(op: ops.Op) -> bool:
    """True if an op takes next to no time: registers of a scalar, fences of registers, branches and
    elections that hold only such ops, arrivals and copies.
    """
    if isinstance(op, _QUICK) or op.facts.orders is Order.REGISTERS:
        return not getattr(getattr(op, "expr", None), "shape", ())
    if isinstance(op, ops.If | ops.Elect):
        return all(
            isinstance(x, ops.If | ops.Elect)
            or quick(x)
            or (is_noted(x) and not waits(x) and x.facts.unit is not Unit.TENSOR_CORE)
            for body in bodies(op)
            for x in walk(body)
        )
    return False
