"""Linear handles: an acquired stage is released exactly once, in the block that acquired it.

The tracer sees every path, so this is checked before anything runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.errors import HandleError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.location import Loc, caller
from tilepipe.ir.memory import BarrierArray
from tilepipe.lang.handles.arrivals import Arrivals

if TYPE_CHECKING:
    from tilepipe.lang.tracing.tracer import Scope, Tracer


class Handle:
    """Base class of everything that is acquired and must be released.

    Attributes:
        array, index: the mbarrier this handle is responsible for signalling; arrivals on it while
            the handle is held are the handle's.
        how_to_release: the cure in the message about a handle that was not released.
    """

    how_to_release = "Call release() on every path, or use it in a with statement."

    def __init__(
        self,
        tracer: Tracer,
        what: str,
        array: BarrierArray | None = None,
        index: Expr | None = None,
    ) -> None:
        self._tracer = tracer
        self.what = what
        self.array = array
        self.index_expr = index
        self.acquired_at: Loc = caller()
        self.released_at: Loc | None = None
        self.home: Scope = tracer.scope
        self.role = tracer.role
        self.read_by_mma = False
        self.touched = False  # by ordinary loads or stores
        self._signalled: list[tuple[str, Scope, Loc]] = []
        self.home.handles.append(self)

    def describe(self) -> str:
        """The handle in messages: `the producer stage of 'inputs' acquired at gemm.py:41`."""
        return f"the {self.what} acquired at {self.acquired_at.short}"

    def _is_dead(self) -> bool:
        return self.released_at is not None or self.home.closed

    def check_held(self, use: str = "used") -> None:
        """Raises HandleError when the handle has been released, or belongs to another role or a
        closed block.
        """
        if self.released_at is not None:
            raise HandleError(
                f"{self.describe()} is {use} after its release at {self.released_at.short}. Its"
                " slot may already belong to the other side.",
                caller(),
            )
        if self.home.closed:
            raise HandleError(
                f"{self.describe()} is {use} outside the block it was acquired in, which has"
                " closed",
                caller(),
            )

    def refuse_twice(self, verb: str) -> None:
        """Raises HandleError when the threads of this block have signalled the stage in the same
        way already, on the same path.
        """
        scope = self._tracer.scope
        for earlier, where, loc in self._signalled:
            if earlier == verb and _on_the_way(where, scope) and _overlap(where, scope):
                raise HandleError(
                    f"{self.describe()} is signalled twice: it {verb} at {loc.short} already. One"
                    " stage is one phase: a second time would"
                    " complete, or count towards, the next.",
                    caller(),
                )
        self._signalled.append((verb, scope, caller()))

    def check_releasable(self) -> None:
        """Raises HandleError when the handle may not be released here."""
        if self.released_at is not None:
            raise HandleError(
                f"{self.describe()} is released twice: first at {self.released_at.short}. One"
                " acquire, one release.",
                caller(),
            )
        self.check_held("released")
        if self._tracer.scope is not self.home:
            raise HandleError(
                f"{self.describe()} is released in a nested {self._tracer.scope.kind} block: on"
                " the other paths, or in other"
                " iterations, it would be released never or twice. Release it in the block that"
                " acquired it.",
                caller(),
            )

    def must_signal(self) -> bool:
        """Whether a release must signal, because the body has not.

        Raises:
            HandleError: it must, and a release is not allowed here.
        """
        self._tracer.flush_branch()
        if self.released_at is not None or self.signals is not None:
            return False
        self.check_releasable()
        return True

    def mark_released(self) -> None:
        """Ends the handle's life."""
        self._tracer.flush_branch()
        self.check_releasable()
        self.home.handles.remove(self)
        self.released_at = caller()

    @property
    def signals(self) -> Arrivals | None:
        """The arrivals made so far for this handle in its own block, None if there are none."""
        return self.home.signals.get(self)


def _on_the_way(earlier: Scope, now: Scope) -> bool:
    """Whether threads that execute `now` have also executed `earlier`: no branch on data contains
    `earlier` and not `now`.
    """
    ways: list[Scope] = []
    scope: Scope | None = now
    while scope is not None:
        ways.append(scope)
        scope = scope.parent
    scope = earlier
    while scope is not None and scope not in ways:
        if scope.on_data:
            return False
        scope = scope.parent
    return True


def _overlap(earlier: Scope, now: Scope) -> bool:
    """Whether some thread is known to execute both blocks."""
    return (
        earlier.active is not None
        and now.active is not None
        and bool((earlier.active & now.active).any())
    )


def owner_of(tracer: Tracer, array: BarrierArray, index: Expr) -> Handle | None:
    """The held handle of the current role that is responsible for one barrier."""
    scope: Scope | None = tracer.scope
    while scope is not None:
        for handle in scope.handles:
            if handle.array is array and handle.index_expr is index:
                return handle
        scope = scope.parent
    return None


def note_signal(tracer: Tracer, handle: Handle, arrivals: Arrivals) -> None:
    """Records arrivals for a handle in the current block."""
    signals = tracer.scope.signals
    present = signals.get(handle)
    signals[handle] = arrivals if present is None else present + arrivals


def merge_signals(tracer: Tracer, child: Scope, times: int | None = 1) -> None:
    """Adds the arrivals of a closed block to the enclosing one. `times`: how often it runs, None if
    that is unknown.
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
        note_signal(tracer, handle, arrivals * times)


def merge_branch(tracer: Tracer, op: ops.If, then: Scope, orelse: Scope | None) -> None:
    """Adds the arrivals of both sides of a branch to the enclosing block."""
    # A branch that masks threads: each side's arrivals are made by its own threads, so both count.
    if not then.on_data or op.cond.vary is not Vary.UNIFORM:
        merge_signals(tracer, then)
        if orelse is not None:
            merge_signals(tracer, orelse)
        return
    handles = list(then.signals) + (
        [h for h in orelse.signals if h not in then.signals] if orelse else []
    )
    for handle in handles:
        if handle.home in (then, orelse):
            continue
        a = then.signals.get(handle)
        b = orelse.signals.get(handle) if orelse else None
        if (a is None or a.none) and (b is None or b.none):
            continue
        if a is None or b is None or not a.same(b):
            raise HandleError(
                f"{handle.describe()} is signalled on some paths only: the branch at"
                f" {op.loc.short} arrives and the other does not"
                " (or arrives differently). A phase needs its arrivals on every path.",
                op.loc,
            )
        note_signal(tracer, handle, a)
