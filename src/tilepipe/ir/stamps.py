"""The points of a kernel at which a timed build notes when a warp passes: those of which the
simulator's recorder is told. The printer numbers them, and who reads the stamps finds the ops
again.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir import ops
from tilepipe.ir.facts import BRINGS, Group, Sync, Unit
from tilepipe.ir.memory import BarrierRef, NamedBarrier
from tilepipe.ir.program import Kernel, Role, walk

_UNITS = (Unit.TMA, Unit.TENSOR_CORE, Unit.LAUNCH_CONTROL)
_GROUPS = (Group.BULK, Group.WGMMA, Group.TCGEN05)


@dataclass(frozen=True, slots=True)
class Point:
    """An op that is noted, and the role that executes it."""

    op: ops.Op
    role: Role


@dataclass(frozen=True, slots=True)
class Stamp:
    """A warp has come to a point.

    Attributes:
        point: its number. ended: it is the end of a wait.
        cycles: of the clock of its SM since the role of the warp began.
        index: of the barrier in its array; of a named barrier, the group. parity: of the phase that
            a wait is for. rank: in the cluster, of the CTA that has the barrier; None: its own.
        ctas: those that a multicast reaches, as a mask of ranks.
    """

    point: int
    ended: bool
    cycles: int
    index: int
    parity: int
    rank: int | None
    ctas: int | None = None


@dataclass(frozen=True, slots=True)
class WarpStamps:
    """What a warp has noted.

    Attributes:
        cta, warp: its CTA in the grid, and its number there. sm: where the CTA ran.
        began_ns, ended_ns: when its role began and ended, by the clock of the GPU. began, ended:
            the same in cycles of the SM.
        stamps: in order. lost: how many there was no room for, which are the last ones.
    """

    cta: int
    warp: int
    sm: int
    began_ns: int
    ended_ns: int
    began: int
    ended: int
    stamps: tuple[Stamp, ...]
    lost: int


def waits(op: ops.Op) -> bool:
    """True if an op may block, and is noted when it begins and when it ends."""
    if op.facts.awaits in _GROUPS or isinstance(op, ops.ClusterWait):
        return True
    return Sync.WAIT in op.sync and isinstance(getattr(op, "bar", None), BarrierRef | NamedBarrier)


def is_noted(op: ops.Op) -> bool:
    """True if a timed build notes when warps come to an op: a wait, an arrival, a copy, an MMA, and
    what closes a group of copies or of MMAs.
    """
    facts = op.facts
    if waits(op) or facts.unit in _UNITS or facts.commits in _GROUPS:
        return True
    if isinstance(op, ops.ClusterArrive):
        return True
    named = isinstance(getattr(op, "bar", None), BarrierRef | NamedBarrier)
    return named and bool(op.sync & BRINGS)


def points(kernel: Kernel) -> tuple[Point, ...]:
    """What is noted, in the order of the numbers. The set-up has none."""
    return tuple(Point(op, role) for role in kernel.roles for op in walk(role.body) if is_noted(op))
