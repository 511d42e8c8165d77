"""Arrivals made for handles: counted in each block, and added to the enclosing block at its end."""

from __future__ import annotations

from tilepipe.errors import HandleError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.lang.handles.arrivals import Arrivals
from tilepipe.lang.tracing.scopes import Held, Scope


def note_signal(scope: Scope, handle: Held, arrivals: Arrivals) -> None:
    """Records arrivals for a handle in a block."""
    present = scope.signals.get(handle)
    scope.signals[handle] = arrivals if present is None else present + arrivals


def merge_signals(scope: Scope, child: Scope, times: int | None = 1) -> None:
    """Adds the arrivals of a closed block to the enclosing one, `scope`. `times`: how often it runs, None if
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
        note_signal(scope, handle, arrivals * times)


def merge_branch(scope: Scope, op: ops.If, then: Scope, orelse: Scope | None) -> None:
    """Adds the arrivals of both sides of a branch to the enclosing block, `scope`."""
    # A branch that masks threads: each side's arrivals are made by its own threads, so both count.
    if not then.on_data or op.cond.vary is not Vary.UNIFORM:
        merge_signals(scope, then)
        if orelse is not None:
            merge_signals(scope, orelse)
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
        note_signal(scope, handle, a)
