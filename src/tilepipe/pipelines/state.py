"""PipelineState: a position in a ring of stages."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.location import caller
from tilepipe.ir.memory import Cursor
from tilepipe.lang.arguments.annotations import Extent, Name, PositiveInt
from tilepipe.lang.context.context import Context
from tilepipe.lang.tracing.convergence import divergence, require_whole_warpgroup_waits
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, binary, require_uniform, to_expr, traced_value


class PipelineState:
    """A position in a ring of `num_stages`: index and phase. Each role has its own, created on
    first use at the top of the role.

    `p2 = p` is the same state; `p.copy()` is a separate one at the same position. A consumer starts
    at `phase` 0. A producer starts at 1, the parity of the phase before the first, which a fresh
    barrier reports as complete: its first lap does not wait.
    """

    def __init__(
        self, ctx: Context | Tracer, num_stages: PositiveInt, phase: int = 0, name: Name = "state"
    ) -> None:
        if not isinstance(num_stages, int) or num_stages < 1:
            raise TraceError(f"a ring has at least one stage, got {num_stages!r}", caller())
        if phase not in (0, 1):
            raise TraceError(f"a start phase is 0 or 1, got {phase!r}", caller())
        self._tracer = ctx.tracer if isinstance(ctx, Context) else ctx
        self.num_stages = num_stages
        self._start = phase
        self._name = name

    def _cursor(self) -> Cursor:
        if self._tracer.scope.role is None:
            raise TraceError(
                f"'{self._name}' is read or stepped in set-up code, which all warps run; a position"
                " in a ring belongs to a role",
                caller(),
            )
        cursors = self._tracer.role.cursors
        cursor = cursors.get(self)
        if cursor is None:
            cursor = cursors[self] = Cursor(
                self._tracer.cursor_name(self._name), self.num_stages, -self._start
            )
            self._tracer.hoist(ops.CursorDefine(caller(), cursor))
        return cursor

    def read(self) -> tuple[Value, Value]:
        """The present (stage, phase). The phase is the full number, for the simulator; `phase()`
        gives the parity.
        """
        t = self._tracer
        cursor = self._cursor()
        stage = t.local("stage", dtypes.int32, nonneg=True)
        phase = t.local("phase", dtypes.phase)
        t.emit(ops.CursorRead(caller(), cursor, stage, phase))
        return traced_value(t, stage), traced_value(t, phase)

    def index(self) -> Value:
        """The stage, 0..num_stages-1."""
        return self.read()[0]

    def phase(self) -> Value:
        """The parity, 0 or 1."""
        return binary(self._tracer, "and", self.read()[1].to(dtypes.int32), 1)

    def step(self) -> None:
        """Advances by one stage; the phase flips at the wrap."""
        self.advance(1)

    def next(self) -> PipelineState:
        """Steps, and returns itself."""
        self.step()
        return self

    def advance(self, n: Extent) -> None:
        """Advances by `n` stages (n >= 0, any size, may be traced); the phase flips at each wrap.

        Raises:
            TraceError: under a condition that not all lanes of a warp share.
        """
        steps = require_uniform(to_expr(self._tracer, n), "a number of steps", exprs.Vary.WARP)
        if isinstance(steps, exprs.Const) and steps.value < 0:
            raise TraceError(f"a ring steps forward; advance({steps.value})", caller())
        cursor = self._cursor()
        require_whole_warpgroup_waits(self._tracer, "a step")
        if divergence(self._tracer)[0] is exprs.Vary.LANE:
            raise TraceError(
                f"'{self._name}' is stepped under a lane condition: the other lanes of the warp"
                " would not step. Step outside it.",
                caller(),
            )
        self._tracer.emit(ops.CursorStep(caller(), cursor, steps))

    def copy(self) -> PipelineState:
        """A separate state at the present position of this one.

        Raises:
            TraceError: in a loop. The copy is one variable of the role, so the next iteration would
                continue at the position where this iteration left it.
        """
        other = PipelineState(self._tracer, self.num_stages, self._start, self._name)
        t = self._tracer
        if t.scope.role is None:
            return other
        if t.scope.inside("loop") is not None:
            raise TraceError(
                f"'{self._name}' is copied in a loop, but a copy is made once in a role: make it"
                " before the loop",
                caller(),
            )
        if self in t.role.cursors:  # otherwise it is still at the start of the ring
            stage, phase = self.read()
            other.advance((phase.to(dtypes.int32) + self._start) * self.num_stages + stage)
        return other
