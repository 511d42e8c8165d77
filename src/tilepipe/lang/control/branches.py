"""Traced branches: `ctx.when` and `ctx.otherwise`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.static_evaluation import evaluate, thread_env
from tilepipe.lang.control.blocks import refuse_jumps
from tilepipe.lang.handles import signals
from tilepipe.lang.tracing import python_source, rebinding
from tilepipe.lang.tracing.scopes import Mask, Scope
from tilepipe.lang.tracing.test_results import depends_on_test
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import to_expr


@contextmanager
def branch(tracer: Tracer, cond: object) -> Iterator[None]:
    """`with ctx.when(cond):` traces the body as a branch."""
    c = to_expr(tracer, cond)
    if c.dtype is not dtypes.boolean:
        raise TraceError(
            f"the condition of ctx.when must be boolean, got {c.dtype}; compare with `!= 0`",
            caller(),
        )
    parent = tracer.scope
    tracer.flush_branch()
    op = ops.If(caller(), c, ops.Block(), ops.Block())
    active, on_data = _active_threads(tracer, parent, c)
    with _side(tracer, op.then, active, on_data, c.vary) as scope:
        scope.on_test = depends_on_test(tracer.test_results, c)
        yield
    tracer.emit(op)
    parent.closed_branch = (op, scope, parent.active)


@contextmanager
def otherwise(tracer: Tracer) -> Iterator[None]:
    """`with ctx.otherwise():` traces the other side of the branch just before it."""
    parent = tracer.scope
    pending = parent.closed_branch
    if pending is None or parent.block.ops[-1] is not pending[0]:
        raise TraceError("ctx.otherwise() must follow its ctx.when(...) block directly", caller())
    op, then, _ = pending
    parent.closed_branch = None
    active = then.active
    if not then.on_data and parent.active is not None and active is not None:
        active = parent.active & ~active
    with _side(tracer, op.orelse, active, then.on_data, then.splits, then.before) as scope:
        scope.on_test = then.on_test
        yield
    signals.merge_branch(tracer.scope, op, then, scope)


def _active_threads(tracer: Tracer, parent: Scope, cond: Expr) -> tuple[Mask | None, bool]:
    """The threads for which `cond` holds, None if that is unknown; and whether either all take the
    branch or none, depending on data.
    """
    uniform = cond.vary is Vary.UNIFORM
    if parent.active is None or parent.role is None:
        return None, uniform
    role = parent.role.role
    value = evaluate(cond, thread_env(role, tracer.kernel.cluster_size))
    if value is not None:
        return parent.active & np.broadcast_to(value, parent.active.shape), False
    return (parent.active if uniform else None), uniform


@contextmanager
def _side(
    tracer: Tracer,
    block: ops.Block,
    active: Mask | None,
    on_data: bool,
    splits: Vary,
    first: rebinding.Snapshot | None = None,
) -> Iterator[Scope]:
    """Opens one side of a branch, and checks that it leaves Python state unchanged. `first`: the
    state before the first side, where this is the second.
    """
    refuse_jumps("ctx.when", "the rest of the block would be dropped without a trace of it")
    before = rebinding.take(tracer.entry)
    with tracer.open("branch", block, active=active) as scope:
        scope.before = first or before
        scope.on_data = on_data
        scope.splits = splits
        yield scope
    after = rebinding.take(tracer.entry)
    tracer.temporaries.update(path for path in after.state if path not in scope.before.state)
    for path, new in rebinding.changes(before, after).items():
        if path not in scope.before.state or path in tracer.temporaries:
            continue
        if rebinding.is_dead(new) or any(
            python_source.only_loop_target(f.f_code, str(path[-1])) for f in before.frames
        ):
            continue
        name = rebinding.path_name(path)
        raise TraceError(
            f"'{name}' is rebound in a branch: both sides are traced, so after it '{name}' would"
            " be what the branch made it, taken or not."
            f" Keep it in a variable of the kernel (`{name} = ctx.var(start)`, then"
            f" `{name}.set(...)`), or use `ctx.select`.",
            scope.loc,
        )
