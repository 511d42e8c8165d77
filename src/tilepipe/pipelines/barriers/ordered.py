"""OrderedBarrier: groups of threads take turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory, ops
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARPGROUP
from tilepipe.lang.arguments.annotations import Index, Name
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.context.context import Context
from tilepipe.lang.control.blocks import MustEnter
from tilepipe.lang.values.scalars import (
    Value,
    require_integer,
    require_uniform,
    to_expr,
    traced_value,
)
from tilepipe.pipelines.barriers.mbarriers import SharedMemBarrier
from tilepipe.pipelines.state import PipelineState


class OrderedBarrier:
    """An order in which groups of threads execute `depth` sections of code, one group after the
    other: group 0, 1, ..., and 0 again.

    In every round a group has one turn at each section, in order. With a depth of 2, say the MMAs
    of a tile and then its epilogue, group 1 issues its MMAs while group 0 executes its epilogue,
    and no two groups execute the same section. A turn happens before the next turn at the same
    section. A group may leave when it has no more turns, provided no group before it in the round
    still has a later turn.

    Uses depth · groups mbarriers, each of `threads` arrivals: barrier [section, group] completes
    when it is that group's turn.
    """

    def __init__(
        self,
        ctx: Context,
        groups: int,
        *,
        depth: int = 1,
        threads: int = WARPGROUP,
        name: Name = "order",
    ) -> None:
        """Makes the barriers, in set-up code. `threads`: the size of each group.

        Raises:
            TraceError: in a role, or a number that is not positive.
        """
        require_positive(" of an OrderedBarrier", groups=groups, depth=depth, threads=threads)
        t = self._tracer = ctx.tracer
        if t.scope.role is not None:
            raise TraceError("an OrderedBarrier is made in set-up code, outside roles", caller())
        self.groups = groups
        self.depth = depth
        self._array = memory.BarrierArray(t.name(name), depth * groups, threads, loc=caller())
        t.kernel.barriers.append(self._array)
        self._state = PipelineState(t, depth, 0, name)
        # Group 0 has the first turn at every section: its barriers get the arrivals that the last
        # group of the round before would have made.
        opening: list[ops.Op] = [
            ops.MbarInit(caller(), self._bar(exprs.const(0)), None, depth * groups)
        ]
        opening += [
            ops.MbarArrive(caller(), self._bar(exprs.const(i * groups)), exprs.const(threads))
            for i in range(depth)
        ]
        t.emit(ops.Elect(caller(), "role", ops.Block(opening)))

    def turn(self, group: Index) -> AbstractContextManager[None]:
        """`with order.turn(ctx.warpgroup_rank):` waits for the group's turn at its next section;
        leaving gives the turn to the next group.
        """
        return MustEnter(self._tracer, f"{self._array.name}.turn", self._turn(group))

    @contextmanager
    def _turn(self, group: object) -> Iterator[None]:
        self.wait(group)
        yield
        self.pass_on(group)

    def wait(self, group: Index) -> None:
        """Waits for the group's turn at its next section."""
        stage, phase = self._state.read()
        SharedMemBarrier(self._tracer, self._array, self._index(stage, group)).wait(phase)

    def pass_on(self, group: Index) -> None:
        """Gives the turn to the next group, by every thread of this one."""
        me = self._group(group)
        following = (
            Context(self._tracer).select(me + 1 == self.groups, 0, me + 1)
            if self.groups > 1
            else me
        )
        stage, _ = self._state.read()
        SharedMemBarrier(self._tracer, self._array, self._index(stage, following)).arrive()
        self._state.step()

    def _group(self, group: object) -> Value:
        expr = require_uniform(
            require_integer(to_expr(self._tracer, group), "a group"), "a group", exprs.Vary.WARP
        )
        if isinstance(expr, exprs.Const) and not 0 <= expr.value < self.groups:
            raise TraceError(f"group {expr.value} of an OrderedBarrier of {self.groups}", caller())
        return traced_value(self._tracer, expr)

    def _index(self, stage: Value, group: object) -> exprs.Expr:
        return to_expr(self._tracer, stage * self.groups + self._group(group))

    def _bar(self, index: exprs.Expr) -> memory.BarrierRef:
        return memory.BarrierRef(self._array, index)
