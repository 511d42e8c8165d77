"""`ctx`, the first argument of a kernel: roles, control flow and debugging; the other members are
in the modules beside this one, by subject.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.location import caller
from tilepipe.ir.program import Role
from tilepipe.lang.arguments.annotations import Name, Unroll
from tilepipe.lang.context.lanes import LaneMembers
from tilepipe.lang.context.scalars import ScalarMembers
from tilepipe.lang.context.strong_accesses import StrongAccessMembers
from tilepipe.lang.context.synchronisation import SynchronisationMembers
from tilepipe.lang.context.tensor_cores import TensorCoreMembers
from tilepipe.lang.context.transfers import TransferMembers
from tilepipe.lang.control.blocks import MustEnter, branch, elect, otherwise, per_warp
from tilepipe.lang.control.loops import Range, WhileLoop
from tilepipe.lang.tracing import barrier_tests, other_names
from tilepipe.lang.tracing.missing_members import missing
from tilepipe.lang.tracing.scopes import RoleState
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr
from tilepipe.lang.values.variables import Var


class Context(
    TransferMembers,
    StrongAccessMembers,
    SynchronisationMembers,
    ScalarMembers,
    LaneMembers,
    TensorCoreMembers,
):
    """The first argument of a kernel function: everything a kernel can do.

    Shapes, lanes and loop indices are traced; everything else is Python.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    if not TYPE_CHECKING:  # a type checker knows the members
        __getattr__ = missing("ctx", "ctx", other_names.CONTEXT)

    # -- roles -------------------------------------------------------------------------

    def role(
        self,
        name: Name,
        *,
        warps: int | None = None,
        warpgroups: int | None = None,
        registers: int | None = None,
    ) -> Callable[[Callable[[], object]], None]:
        """Decorator: traces a function without arguments as the body of a role of `warps`, or of
        `warpgroups`.

        Args:
            name: unique in the kernel; used in every message.
            warps: warps that run the body, each on its own.
            warpgroups: groups of 4 warps that run it together (wgmma, fragments, `per_warp`).
            registers: for setmaxnreg: a multiple of 8 in 24..256; roles that share a warpgroup must
                agree.

        Raises:
            TraceError: a role inside a role, a name used twice, neither or both of warps and
                warpgroups.
        """
        if (warps is None) == (warpgroups is None):
            raise TraceError(f"role '{name}': give either warps= or warpgroups=", caller())
        count = warps if warpgroups is None else 4 * warpgroups
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise TraceError(f"role '{name}' needs at least one warp, got {count!r}", caller())
        if self.tracer.scope.role is not None:
            raise TraceError(
                f"role '{name}' is declared inside role '{self.tracer.role.name}'; declare roles"
                " beside each other",
                caller(),
            )
        if any(r.name == name for r in self.tracer.kernel.roles):
            raise TraceError(f"there are two roles named '{name}'", caller())
        role = Role(name, count, warpgroups is not None, registers, ops.Block(), caller())

        used = self.tracer.unused(f"@ctx.role('{name}', ...) stands above no function")

        def trace(body: Callable[[], object]) -> None:
            used()
            if not callable(body):
                raise TraceError(
                    f"@ctx.role('{name}', ...) marks a function, `def name():`; got {body!r}",
                    role.loc,
                )
            wanted = list(inspect.signature(body).parameters)
            if wanted:
                raise TraceError(
                    f"the body of role '{name}' takes no arguments; it asks for"
                    f" {', '.join(wanted)}",
                    role.loc,
                )
            state = RoleState(role)
            self.tracer.kernel.roles.append(role)
            names = dict(self.tracer.counter)
            with self.tracer.open(
                "role", role.body, active=self.tracer.all_active(role), role=state
            ):
                result = body()
            self.tracer.counter = names  # each role has names of its own
            if result is not None:
                raise TraceError(
                    f"role '{name}' returns {result!r}; a role returns nothing", role.loc
                )
            role.body.ops[:0] = state.prologue.ops
            # Both need the whole role: what an answer controls may follow it much later.
            barrier_tests.refuse_divergent_effects(role)
            barrier_tests.refuse_per_warp_atomics(role)
            for check in state.at_end:
                check()

        return trace

    # -- control flow ------------------------------------------------------------------

    def range(self, *bounds: object, unroll: Unroll = 1) -> Range:
        """`range(stop)`, `range(start, stop)` or `range(start, stop, step)` as one traced loop;
        bounds may be traced, step is positive.

        Args:
            unroll: so many iterations become one of the machine code, with a rest where they do
                not divide the trips: a wait of one may then be tried during the arithmetic of the
                one before. What the loop does is the same. An integer from 1 to 64;
                iterate Python's `range` for a few known trips without a branch.
        """
        if not 1 <= len(bounds) <= 3:
            raise TraceError(f"ctx.range takes 1 to 3 arguments, got {len(bounds)}", caller())
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        return Range(self.tracer, start, stop, bounds[2] if len(bounds) == 3 else 1, unroll)

    def loop_while(self, more: Var) -> WhileLoop:
        """`for _ in ctx.loop_while(more):` is one traced loop, repeated while the boolean variable
        `more` holds; it is tested before each iteration.
        """
        return WhileLoop(self.tracer, more)

    def when(self, cond: object) -> AbstractContextManager[None]:
        """`with ctx.when(cond):` traces a branch; a condition that varies by lane masks lanes."""
        return MustEnter(self.tracer, "ctx.when", branch(self.tracer, cond))

    def otherwise(self) -> AbstractContextManager[None]:
        """`with ctx.otherwise():` directly after a `when` block: the other side of the branch."""
        return MustEnter(self.tracer, "ctx.otherwise", otherwise(self.tracer))

    def elect_one(self, scope: str = "warp") -> AbstractContextManager[None]:
        """`with ctx.elect_one():` one lane of each warp; "warpgroup", "role": one lane of that
        group's first warp.
        """
        return MustEnter(self.tracer, "ctx.elect_one", elect(self.tracer, scope))

    def per_warp(self) -> AbstractContextManager[Value]:
        """`with ctx.per_warp() as w:` each warp of the warpgroup on its own; w is 0..3."""
        return MustEnter(self.tracer, "ctx.per_warp", per_warp(self.tracer))

    # -- debugging ---------------------------------------------------------------------

    def print(self, format: str, *args: object) -> None:
        """Prints a line for every active thread; one `{}` in `format` for each argument."""
        if not isinstance(format, str):
            raise TraceError(
                f"ctx.print takes a text with one {{}} for each argument, got {format!r}", caller()
            )
        if format.count("{}") != len(args):
            raise TraceError(
                f"{format!r} has {format.count('{}')} places `{{}}` for {len(args)} arguments",
                caller(),
            )
        self.tracer.emit(ops.Print(caller(), format, tuple(to_expr(self.tracer, a) for a in args)))

    def assert_(self, cond: object, message: str = "") -> None:
        """Stops the kernel where `cond` does not hold, in the simulator and on the GPU."""
        x = to_expr(self.tracer, cond)
        if x.dtype is not dtypes.boolean:
            raise TraceError(f"ctx.assert_ takes a condition, got a {x.dtype}", caller())
        self.tracer.emit(ops.Assert(caller(), x, message or caller().source))
