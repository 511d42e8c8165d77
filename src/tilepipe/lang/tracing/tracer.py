"""The tracer: open blocks, what belongs to which block, and emission of ops.

A kernel function is executed once. Every traced statement appends an op to the innermost open
block. Values, handles and tile views belong to the block that they were made in, and end with it:
a value of a loop body used after the loop, a handle carried round a loop, or an object of one role
used in another is an error instead of a wrong result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from tilepipe.errors import HandleError, TilepipeError, TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.def_use import nodes, reads
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, Local, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.memory import Variable
from tilepipe.ir.program import Kernel, Role
from tilepipe.lang.handles.arrivals import Ledger
from tilepipe.lang.tracing import uniform_operands
from tilepipe.lang.tracing.scopes import Mask, RoleState, Scope

# Python, into which the simulator translates a kernel, nests at most 20 loops and 100 levels of
# indentation. Some blocks take two levels.
MAX_LOOPS, MAX_BLOCKS = 16, 40

T = TypeVar("T", bound=ops.Op)


class _Running(threading.local):
    """The trace that this thread is running: the innermost one where a kernel binds another while
    it is traced.
    """

    tracer: Tracer | None = None


_RUNNING = _Running()


class Tracer:
    """State of one trace. Not shared between threads; `ctx` carries it.

    Everything that a kernel does passes through `scope`, `kernel`, `ledger`, `name` or `use`, and
    each of them calls `refuse` unless this is the trace that the thread is running: a ctx, and
    whatever was made from one, may be used in its own trace alone.
    """

    def __init__(self, kernel: Kernel, ledger: Ledger) -> None:
        self._kernel = kernel
        self._ledger = ledger
        self.counter: dict[str, int] = {}
        self.deferred: TilepipeError | None = None
        # id of a value rebound in a loop -> its name, while the body is traced again
        self.carried: dict[int, str] = {}
        self.entry: FrameType | None = None
        self.ended = False  # the trace has finished or failed
        # names that depend on the result of an mbarrier test in a warpgroup role
        self.test_results: set[Local | Variable] = set()
        self.temporaries: set[tuple[Any, ...]] = set()  # Python state first bound inside a branch
        self._scope = Scope("setup", kernel.setup, kernel.loc)

    # -- the running trace -------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Makes this the trace that the thread is running, for the duration of a with statement;
        afterwards it has ended.
        """
        outer, _RUNNING.tracer = _RUNNING.tracer, self
        try:
            yield
        finally:
            _RUNNING.tracer = outer
            self.ended = True

    def require_running(self) -> None:
        """Raises TraceError unless this is the trace that the thread is running."""
        if _RUNNING.tracer is not self:
            self.refuse()

    def refuse(self) -> None:
        """Raises TraceError: an object of this trace is used outside it, where it would have no
        effect, or an effect on another kernel.
        """
        kernel, other = self._kernel, _RUNNING.tracer
        whose = f"kernel '{kernel.name}' ({kernel.loc.short})"
        if other is not None and other._kernel.loc == kernel.loc:
            how = "another bind of the same kernel is being traced"
        elif other is not None:
            how = f"kernel '{other._kernel.name}' ({other._kernel.loc.short}) is being traced"
        elif self.ended:
            how = f"kernel '{kernel.name}' has been traced"
        else:
            how = "another thread traces that kernel"
        raise TraceError(
            f"this uses the ctx of {whose}, or something made from it, while {how}: it would become"
            " part of no kernel. A ctx and its tiles, barriers, pipelines, handles and values are"
            " good for one trace, in the thread that runs it. Make them from the ctx that this"
            " kernel function is given, and keep none in a global, a closure or a default"
            " argument.",
            caller(),
        )

    @property
    def scope(self) -> Scope:
        """The innermost open block."""
        if _RUNNING.tracer is not self:
            self.refuse()
        return self._scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def kernel(self) -> Kernel:
        """The kernel that is being built."""
        if _RUNNING.tracer is not self:
            self.refuse()
        return self._kernel

    @property
    def ledger(self) -> Ledger:
        """The arrivals counted on its barriers."""
        if _RUNNING.tracer is not self:
            self.refuse()
        return self._ledger

    # -- names and values --------------------------------------------------------------

    def name(self, base: str) -> str:
        """A name not used before in this kernel: `base`, `base_1`, ..."""
        if _RUNNING.tracer is not self:
            self.refuse()
        n = self.counter.get(base, 0)
        self.counter[base] = n + 1
        return base if n == 0 else f"{base}_{n}"

    def cursor_name(self, base: str) -> str:
        """As `name`, for an op hoisted to the top of the role. Counted separately, since the second
        pass over a loop body does not hoist again.
        """
        n = self.counter.get(f"cursor {base}", 0)
        self.counter[f"cursor {base}"] = n + 1
        return base if n == 0 else f"{base}_{n}"

    def local(
        self,
        base: str,
        dtype: DType = dtypes.int32,
        vary: Vary = Vary.UNIFORM,
        nonneg: bool = False,
        multiple: int = 1,
    ) -> Local:
        """A fresh immutable name for a value that is known to be a multiple of `multiple`."""
        return Local(dtype, vary, nonneg, name=self.name(base), multiple=multiple)

    def check_alive(self, scope: Scope, what: str, thing: object = None) -> None:
        """Raises TraceError when `scope`, in which `thing` was made, has closed, or belongs to
        another trace.
        """
        if _RUNNING.tracer is not self:
            self.refuse()
        if not scope.closed:
            return
        carried = self.carried.get(id(thing))
        if carried is not None:
            raise TraceError(rebound_message(carried), scope.loc)
        if scope.kind == "role" and scope.role is not None:
            where = f"in role '{scope.role.name}', which has ended"
        else:
            where = f"inside the {scope.kind} at {scope.loc.short}, which has ended"
        raise TraceError(
            f"this {what} was created {where}; it is not defined outside. Keep what must survive in"
            " `ctx.var(...)`, an accumulator or shared memory.",
            caller(),
        )

    # -- emission ----------------------------------------------------------------------

    def emit(self, op: T) -> T:
        """Appends an op to the innermost open block."""
        self.raise_deferred()
        self.flush_branch()
        if self._scope.role is not None:
            uniform_operands.require_uniform_operands(self._scope, op)
        if self.test_results:
            self._track_test(op)
        self.scope.block.ops.append(op)
        return op

    def depends_on_test(self, x: Expr) -> bool:
        """True if a value depends on the result of a test in a warpgroup role, as far as the kernel
        has been traced.
        """
        results = self.test_results
        return bool(results) and any(isinstance(n, Local) and n in results for n in nodes(x))

    def _track_test(self, op: ops.Op) -> None:
        """Records a name that depends on a test through this op, so that a later branch on it is
        recognised while the kernel is traced. Values carried round a loop are unknown where the
        loop begins; `barrier_tests.refuse_divergent_effects` therefore examines the whole role
        afterwards.
        """
        target = named_by(op)
        if target is not None and (
            any(scope.on_test for scope in self._scope.outward)
            or any(x in self.test_results for x in reads(op))
        ):
            self.test_results.add(target)

    def flush_branch(self) -> None:
        """Records the arrivals of a `when` that has no `otherwise`."""
        pending = self.scope.closed_branch
        if pending is not None:
            self.scope.closed_branch = None
            self._scope.merge_branch(pending[0], pending[1], None)

    def raise_deferred(self) -> None:
        """Raises an error that could not be raised where it was detected (a `break` out of a traced
        loop).
        """
        if self.deferred is not None:
            error, self.deferred = self.deferred, None
            raise error

    # -- scopes ------------------------------------------------------------------------

    @property
    def role(self) -> RoleState:
        """The role being traced.

        Raises:
            TraceError: set-up code is being traced.
        """
        if self.scope.role is None:
            raise TraceError(
                "this belongs in a role: code outside roles runs in all warps and only allocates"
                " and initialises."
                ' Put it in a function under `@ctx.role("name", warps=...)`.',
                caller(),
            )
        return self.scope.role

    @contextmanager
    def open(
        self,
        kind: str,
        block: ops.Block,
        *,
        active: Mask | None = None,
        role: RoleState | None = None,
    ) -> Iterator[Scope]:
        """Opens a block for the duration of a with statement, and checks at its end that no handle
        is still held in it.
        """
        parent = self.scope
        scope = Scope(kind, block, caller(), parent, role or parent.role, active)
        depth, loops = len(parent.outward), sum(s.kind == "loop" for s in scope.outward)
        if loops > MAX_LOOPS or depth > MAX_BLOCKS:
            raise TraceError(
                f"{loops} loops inside each other; at most {MAX_LOOPS} are printed"
                if loops > MAX_LOOPS
                else f"{depth} blocks (loops, branches, elected lanes) inside each other; at most"
                f" {MAX_BLOCKS} are printed",
                caller(),
            )
        self.scope = scope
        clean = False
        try:
            yield scope
            self.flush_branch()
            clean = True
        finally:
            self.scope = parent
            scope.closed = True
            parent.group_open = False
        if clean:
            self.raise_deferred()
            self.check_released(scope)

    def check_released(self, scope: Scope) -> None:
        """Raises HandleError when a handle acquired in `scope` is still held, TraceError when a
        commit was never waited for, or a block or range made in it never used.
        """
        for what, loc in scope.unused:
            raise TraceError(f"{what}: by itself it does nothing", loc)
        for handle in scope.handles:
            raise HandleError(
                f"{handle.describe()} is still held when the {scope.kind} block ends."
                f" {handle.how_to_release}",
                handle.acquired_at,
            )
        for commit in (c for group in scope.groups for c in group):
            raise TraceError(
                f"mma_commit binds {commit.describe()} to the MMAs before it, but no ctx.wgmma_wait"
                " in the same block retires them, so the arrival would never be made. (The release"
                " of a staged ring is such a commit.) Wait in this block, or consume through"
                " `inputs.consumer(lag=n)`; of a ring of raw slots `tp.MmaConsumer(ring, lag=n)`.",
                commit.loc,
            )

    def unused(self, what: str) -> Callable[[], None]:
        """Registers an object that must be used before the present block ends. Returns the function
        to call when it is used; `what` begins the message.
        """
        noted, scope = (what, caller()), self.scope
        scope.unused.append(noted)

        def used() -> None:
            scope.unused = [other for other in scope.unused if other is not noted]

        return used

    def hoist(self, op: ops.Op) -> None:
        """Adds an op to the top of the role."""
        self.role.prologue.ops.append(op)

    def all_active(self, role: Role) -> Mask:
        """Every thread of a role."""
        return np.ones((self.kernel.cluster_size, role.agents, role.agent_threads), dtype=np.bool_)


def rebound_message(*names: str) -> str:
    """The message about Python names that a traced loop rebinds, or whose contents it changes."""
    listed, them = ", ".join(f"'{name}'" for name in names), "it" if len(names) == 1 else "each"
    first = "x" if "(" in names[0] else names[0]
    return (
        f"{listed} {'is' if len(names) == 1 else 'are'} reassigned in a traced loop and read"
        " earlier in its body: the body is traced once, so the second iteration would not see the"
        f" new value. Keep {them} in a variable of the kernel: `{first} = ctx.var(start)` before"
        f" the loop, `{first}.set(...)` or `{first} += ...` in it."
    )


def require_rule(broken: str | None, what: str = "") -> None:
    """Raises TraceError where a rule is broken; `broken`: which, `what`: by what."""
    if broken is not None:
        raise TraceError(f"{what}: {broken}" if what else broken, caller())


def named_by(op: ops.Op) -> Local | Variable | None:
    """The name that an op binds, where it has no other effect."""
    match op:
        case ops.Let(local=target) | ops.Read(local=target):
            return target
        case ops.Define(var=var) | ops.Assign(var=var):
            return var
    return None
