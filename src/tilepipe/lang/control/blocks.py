"""The `with` blocks of `ctx`: branches (`ctx.when`, `ctx.otherwise`), one elected lane
(`ctx.elect_one`), each warp on its own (`ctx.per_warp`). Each must be entered, and none may be left
by a jump.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.location import caller, is_library_file
from tilepipe.ir.program import WARP, Role
from tilepipe.ir.static_evaluation import evaluate, thread_env
from tilepipe.lang.tracing import python_source, rebinding
from tilepipe.lang.tracing.scopes import Mask, Scope
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr, traced_value

T = TypeVar("T")


class MustEnter(AbstractContextManager[T]):
    """A block that must be entered: `ctx.when(...)` that stands alone is an error."""

    def __init__(self, tracer: Tracer, what: str, block: AbstractContextManager[T]) -> None:
        self._tracer = tracer
        self._block = block
        self._used = tracer.unused(f"{what} is not entered: write `with {what}(...):`")

    def __enter__(self) -> T:
        self._tracer.require_running()
        self._used()
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


def refuse_jumps(what: str, consequence: str) -> None:
    """Raises TraceError where `break`, `continue` or `return` leaves the `with` block of `what`
    that the user's frame is entering.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        is_library_file(frame.f_code.co_filename)
        or frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    jump = python_source.leaves_block(frame) if frame is not None else None
    if jump is not None:
        raise TraceError(
            f"`{jump[0]}` at line {jump[1]} leaves a `with {what}(...)` block: {consequence}. Put"
            " the rest of the body under `with ctx.otherwise():`.",
            caller(),
        )


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
        scope.on_test = tracer.depends_on_test(c)
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
    tracer.scope.merge_branch(op, then, scope)


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
            f"'{name}' is reassigned in a branch: both sides are traced, so after it '{name}' would"
            " be what the branch made it, taken or not. Keep it in a variable of the kernel"
            f" (`{name} = ctx.var(start)`, then `{name}.set(...)`), or use `ctx.select`.",
            scope.loc,
        )


SCOPES = ("warp", "warpgroup", "role")


@contextmanager
def elect(tracer: Tracer, scope: str) -> Iterator[None]:
    """`with ctx.elect_one():` traces the body as executed by one lane."""
    if scope not in SCOPES:
        raise TraceError(f'elect_one takes "warp", "warpgroup" or "role", not {scope!r}', caller())
    parent = tracer.scope
    if parent.inside("elect") is not None:
        raise TraceError("elect_one inside elect_one: one lane is elected already", caller())
    role = tracer.role.role
    if scope == "warpgroup" and not role.is_warpgroup:
        raise TraceError(
            f"elect_one(\"warpgroup\") needs a role of warpgroups; '{role.name}' is one of warps",
            caller(),
        )
    active = None if parent.active is None else _elected(parent.active, scope, role)
    refuse_jumps("ctx.elect_one", "the rest of the block would be dropped without a trace of it")
    op = ops.Elect(caller(), scope, ops.Block())
    with tracer.open("elect", op.body, active=active) as inner:
        inner.splits = Vary.LANE
        yield
    tracer.emit(op)
    tracer.scope.merge_signals(inner)


def _elected(active: Mask, scope: str, role: Role) -> Mask:
    """One lane, the lowest active one, of each warp, or of the first warp of the warpgroup or role.

    Raises:
        TraceError: an enclosing condition excludes that first warp, so no lane would be elected.
    """
    lanes = active.reshape(*active.shape[:2], -1, WARP)
    chosen = lanes & (np.cumsum(lanes, axis=-1) == 1)
    if scope != "warp":
        chosen[:, :, 1:] = False
    if scope == "role":
        chosen[:, 1:] = False
    if active.any() and not chosen.any():
        raise TraceError(
            f'elect_one("{scope}") elects a lane of the first warp of the {scope}, which an'
            " enclosing condition of role"
            f" '{role.name}' excludes: no lane would be elected",
            caller(),
        )
    elected: Mask = chosen.reshape(active.shape)
    return elected


@contextmanager
def per_warp(tracer: Tracer) -> Iterator[Value]:
    """`with ctx.per_warp() as w:` traces the body as executed by each warp of the warpgroup
    separately.
    """
    role = tracer.role.role
    if not role.is_warpgroup:
        raise TraceError(
            f"per_warp needs a role of warpgroups; each warp of '{role.name}' runs on its own"
            " already",
            caller(),
        )
    if tracer.scope.inside("per_warp") or tracer.scope.inside("elect"):
        raise TraceError("per_warp inside per_warp or elect_one", caller())
    refuse_jumps("ctx.per_warp", "the rest of the block would be dropped without a trace of it")
    index = tracer.local("w", dtypes.int32, nonneg=True)
    op = ops.PerWarp(caller(), index, ops.Block())
    with tracer.open("per_warp", op.body, active=tracer.scope.active) as inner:
        inner.splits = Vary.WARP
        yield traced_value(tracer, index)
    tracer.emit(op)
    tracer.scope.merge_signals(inner)
