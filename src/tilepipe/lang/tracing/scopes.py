"""Open blocks of a trace, what is held in them, and the state of a role while it is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilepipe.errors import HandleError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.location import Loc, caller
from tilepipe.ir.memory import BarrierArray, Cursor
from tilepipe.ir.program import Role
from tilepipe.lang.handles.arrivals import Arrivals
from tilepipe.lang.tracing.rebinding import Snapshot

Mask = npt.NDArray[np.bool_]


@dataclass(eq=False, repr=False)
class Held:
    """What is acquired in a block and released once in it, as the block knows it; a `Handle`.

    Attributes:
        how_to_release: the cure in the message about what was not released.
        array, index_expr: the mbarrier that it is responsible for signalling; arrivals on it while
            it is held are its own.
        home, role: where it was acquired.
    """

    how_to_release: ClassVar[str] = "Call release() on every path, or use it in a with statement."

    what: str
    home: Scope
    role: RoleState
    array: BarrierArray | None = None
    index_expr: Expr | None = None
    acquired_at: Loc = field(default_factory=caller)
    released_at: Loc | None = None

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def describe(self) -> str:
        """Its description in messages: `the producer stage of 'inputs' acquired at gemm.py:41`."""
        return f"the {self.what} acquired at {self.acquired_at.short}"


@dataclass(eq=False)
class Scope:
    """One open block.

    Attributes:
        active: the threads that execute it, [CTA of the cluster, agent of the role, thread of the
            agent]; None where tracing cannot tell (a branch on data).
        handles: linear handles acquired here and not yet released.
        signals: arrivals made here for handles, by handle.
        group_open: whether a wgmma group is open and its registers are fenced.
        splits: how the threads that enter the block diverge: by a branch's condition, an elected
            lane, or per-warp code.
        groups: wgmma groups closed here and not yet waited for, oldest first, each with the
            barriers that `mma_commit` bound to it.
        on_data: of a branch: either all threads take it or none, depending on data.
        on_test: of a branch: it depends on the result of an mbarrier test, of which each warp of a
            warpgroup has its own (`barrier_tests`).
        before: of a branch: the Python state before its first side.
        unused: blocks and ranges made here and not yet entered or iterated.
        outward: the block itself and those around it, innermost first.
    """

    kind: str
    block: ops.Block
    loc: Loc
    parent: Scope | None = None
    role: RoleState | None = None
    active: Mask | None = None
    closed: bool = False
    handles: list[Held] = field(default_factory=list)
    signals: dict[Held, Arrivals] = field(default_factory=dict)
    group_open: bool = False
    on_data: bool = False
    on_test: bool = False
    splits: Vary = Vary.UNIFORM
    groups: list[list[Any]] = field(default_factory=list)
    before: Snapshot | None = None
    unused: list[tuple[str, Loc]] = field(default_factory=list)
    # the last `when` of this block, for `otherwise`
    closed_branch: tuple[ops.If, Scope, Mask | None] | None = None
    outward: tuple[Scope, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.outward = (self, *(self.parent.outward if self.parent is not None else ()))

    def inside(self, kind: str) -> Scope | None:
        """The nearest enclosing scope of that kind, this one included."""
        for scope in self.outward:
            if scope.kind == kind:
                return scope
        return None

    def held(self) -> Iterator[Held]:
        """The handles held in this block and in those around it, innermost block first."""
        for scope in self.outward:
            yield from scope.handles

    # -- arrivals made for handles: counted in each block, added to the next at its end --

    def note_signal(self, handle: Held, arrivals: Arrivals) -> None:
        """Records arrivals for a handle in this block."""
        present = self.signals.get(handle)
        self.signals[handle] = arrivals if present is None else present + arrivals

    def merge_signals(self, child: Scope, times: int | None = 1) -> None:
        """Adds the arrivals of `child`, a block in this one that has closed. `times`: how often it
        runs, None if that is unknown.

        Raises:
            HandleError: arrivals for a handle of this block in a loop without a known trip count.
        """
        for handle, arrivals in child.signals.items():
            if handle.home is child or arrivals.none:
                continue
            if times is None:
                raise HandleError(
                    f"{handle.describe()} is signalled inside a loop: once an iteration, not once a"
                    " stage. Signal it outside the loop.",
                    child.loc,
                )
            self.note_signal(handle, arrivals * times)

    def merge_branch(self, op: ops.If, then: Scope, orelse: Scope | None) -> None:
        """Adds the arrivals of both sides of a branch in this block.

        Raises:
            HandleError: a handle is signalled on one side alone of a branch on data.
        """
        # A branch that masks threads: each side's arrivals are made by its own threads, so both
        # count.
        if not then.on_data or op.cond.vary is not Vary.UNIFORM:
            self.merge_signals(then)
            if orelse is not None:
                self.merge_signals(orelse)
            return
        other = orelse.signals if orelse is not None else {}
        for handle in dict.fromkeys((*then.signals, *other)):
            a, b = then.signals.get(handle), other.get(handle)
            if handle.home in (then, orelse) or ((a is None or a.none) and (b is None or b.none)):
                continue
            if a is None or b is None or not a.same(b):
                raise HandleError(
                    f"{handle.describe()} is signalled on some paths only: the branch at"
                    f" {op.loc.short} arrives and the other does not (or arrives differently). A"
                    " phase needs its arrivals on every path.",
                    op.loc,
                )
            self.note_signal(handle, a)


@dataclass(eq=False)
class RoleState:
    """What belongs to one role while it is traced.

    Attributes:
        cursors: the place of each pipeline that the role steps.
        prologue: ops at the top of the role.
        grid_wait: where it has waited for the kernels before this one.
        ahead: the barriers of stages that are acquired ahead of their producer, with where.
        at_end: what is checked once the role is traced.
    """

    role: Role
    cursors: dict[object, Cursor] = field(default_factory=dict)
    prologue: ops.Block = field(default_factory=ops.Block)
    grid_wait: Loc | None = None
    ahead: dict[object, Loc] = field(default_factory=dict)
    at_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.role.name
