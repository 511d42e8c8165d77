"""Traced control flow: loops, branches, elected lanes, per-warp code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import gcd
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tilepipe.errors import TraceError
from tilepipe.host_arguments import INT32_MAX, INT32_MIN
from tilepipe.ir import dtypes, ops
from tilepipe.ir import expressions as exprs
from tilepipe.ir.expressions import Const, Expr, Vary
from tilepipe.ir.location import Loc, caller, is_library_file
from tilepipe.ir.program import WARP, Role, walk
from tilepipe.ir.rules.operand_tiles import divisor
from tilepipe.ir.static_evaluation import evaluate, thread_env
from tilepipe.lang.handles import linear as handles
from tilepipe.lang.tracing import barrier_tests as answers
from tilepipe.lang.tracing import python_source as source
from tilepipe.lang.tracing import rebinding
from tilepipe.lang.tracing.tracer import Mask, Scope, Tracer, rebound_message
from tilepipe.lang.values.scalars import Value, require_uniform, to_expr
from tilepipe.lang.values.variables import Var

if TYPE_CHECKING:
    from types import FrameType, TracebackType

T = TypeVar("T")

SCOPES = ("warp", "warpgroup", "role")


class Range:
    """What `ctx.range` gives: iterating it traces a loop."""

    def __init__(self, tracer: Tracer, start: object, stop: object, step: object) -> None:
        self._tracer = tracer
        self._bounds = start, stop, step
        self._used = tracer.unused("ctx.range is not iterated: write `for i in ctx.range(...):`")

    def __iter__(self) -> Iterator[Value]:
        self._tracer.require_running()
        self._used()
        return loop(self._tracer, *self._bounds, make=lambda index: index)

    def __reversed__(self) -> Iterator[Value]:
        raise TraceError(
            "a traced range runs upwards: take `n - 1 - i` in the body instead of reversed()",
            caller(),
        )

    def __len__(self) -> int:
        raise TraceError("len() of a traced range is not known while tracing", caller())


class Entered(AbstractContextManager[T]):
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


def loop(
    tracer: Tracer, start: object, stop: object, step: object, make: Callable[[Value], Any], name: str = "i",
    end: Callable[[], None] | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Traces `for index in range(start, stop, step)`, yielding once what `make(index)` gives; `end`
    adds to the body what follows the user's part.

    Raises:
        TraceError: something else than a `for` statement iterates it.
    """
    source.require_for_statement(sys._getframe(1))
    return _loop(tracer, start, stop, step, make, name, end)


def _loop(
    tracer: Tracer,
    start: object,
    stop: object,
    step: object,
    make: Callable[[Value], Any],
    name: str,
    end: Callable[[], None] | None,
) -> Iterator[Any]:
    """See `loop`."""
    source.require_driven_by_for(sys._getframe(1))
    bounds = [
        require_uniform(_integer(to_expr(tracer, x)), "a loop bound", _at_most(tracer))
        for x in (start, stop, step)
    ]
    if isinstance(bounds[2], Const) and bounds[2].value <= 0:
        raise TraceError(
            f"the step of a traced range must be positive, got {bounds[2].value}", caller()
        )
    multiple = gcd(divisor(bounds[0]), divisor(bounds[2]))
    indices: list[exprs.Local] = []

    def begin() -> Any:
        indices.append(tracer.local(name, dtypes.int32, nonneg=bounds[0].nonneg, multiple=multiple))
        return make(tracer.value(indices[-1]))

    body, loc = yield from _body(tracer, begin, end, _trip_count(bounds))
    first, last, by = bounds
    tracer.emit(ops.For(loc, indices[0], first, last, by, body))


class WhileLoop:
    """What `ctx.loop_while` gives: iterating it traces a loop."""

    def __init__(self, tracer: Tracer, more: Var) -> None:
        self._tracer = tracer
        self._more = more
        self._used = tracer.unused(
            "ctx.loop_while is not iterated: write `for _ in ctx.loop_while(more):`"
        )

    def __iter__(self) -> Iterator[None]:
        self._tracer.require_running()
        self._used()
        return while_loop(self._tracer, self._more, lambda: None)


def while_loop(
    tracer: Tracer, more: Var, begin: Callable[[], Any], end: Callable[[], None] | None = None
) -> Iterator[Any]:
    """Traces `while more:`, yielding once what `begin` gives in the body; `end` adds to the body
    what follows the user's part.

    Raises:
        TraceError: something else than a `for` statement iterates it; `more` is no boolean
            variable, or not one for all threads, or is not set in the body.
    """
    source.require_for_statement(sys._getframe(1))
    return _while(tracer, more, begin, end)


def _while(
    tracer: Tracer, more: Var, begin: Callable[[], Any], end: Callable[[], None] | None
) -> Iterator[Any]:
    source.require_driven_by_for(sys._getframe(1))
    if not isinstance(more, Var) or more.variable.dtype is not dtypes.boolean:
        raise TraceError(
            f"a traced while loop runs while a boolean variable holds (`more = ctx.var(True)`), got {more!r}",
            caller(),
        )
    if more.variable.vary > _at_most(tracer):
        raise TraceError(
            f"{more!r} must be the same in every thread that runs the loop: make it from a value that does not vary",
            caller(),
        )
    body, loc = yield from _body(tracer, begin, end, None)
    if not any(isinstance(op, ops.Assign) and op.var is more.variable for op in walk(body)):
        raise TraceError(
            f"nothing in this loop sets {more!r}, so it would never end: {more.variable.name}.set(...) in its body",
            loc,
        )
    tracer.emit(ops.While(loc, more.variable, body))


def _at_most(tracer: Tracer) -> Vary:
    """Over what a loop's trip count may vary: a plain warp runs on its own."""
    return Vary.UNIFORM if tracer.role.role.is_warpgroup else Vary.WARP


def _body(
    tracer: Tracer, begin: Callable[[], Any], end: Callable[[], None] | None, times: int | None
) -> Generator[Any, None, tuple[ops.Block, Loc]]:
    """Traces the body of a loop that runs `times` times, None where that is not known, and gives it
    with its line.

    The generator is resumed when the Python body has ended; it then closes the block. If the body
    changed Python state, it is traced once more, and that trace thrown away, to see whether the
    change is carried from one iteration to the next.
    """
    counter = dict(tracer.counter)
    body = ops.Block()
    loc = caller()
    role = tracer.role
    before = rebinding.take(tracer.entry)

    def trace(block: ops.Block) -> Iterator[Any]:
        with tracer.open("loop", block, active=tracer.scope.active, role=role) as scope:
            try:
                yield begin()
            except GeneratorExit:
                if sys.exc_info()[0] is GeneratorExit and not tracer.deferred:
                    tracer.deferred = TraceError(
                        "a traced loop was left by `break` or `return`: its body is traced once,"
                        " for all iterations, so there"
                        " is nothing to leave. Bound the loop, or guard the rest of the body with `ctx.when`.",
                        loc,
                    )
                raise
            if end is not None:
                end()
        merged.append(scope)

    merged: list[Scope] = []
    yield from trace(body)
    after = rebinding.take(tracer.entry)
    changed = rebinding.changes(before, after)
    if changed:
        yield from _second_pass(tracer, trace, counter, changed, body, after, loc)
    handles.merge_signals(tracer, merged[0], times)
    return body, loc


def _second_pass(
    tracer: Tracer, trace: Callable[[ops.Block], Iterator[Any]], counter: dict[str, int], changed: dict[tuple[Any, ...], Any],
    body: ops.Block, first: rebinding.Snapshot, loc: Any,
) -> Iterator[Any]:  # fmt: skip
    from tilepipe.ir.printer import block_text

    names = {path: rebinding.path_name(path) for path in changed}
    kept, tracer.counter = dict(tracer.counter), counter
    names = {
        path: name
        for path, name in names.items()
        if path == next(p for p in changed if changed[p] is changed[path])
    }
    outer, tracer.carried = (
        tracer.carried,
        tracer.carried | {id(changed[path]): name for path, name in names.items()},
    )
    again = ops.Block()
    yield from trace(again)
    tracer.carried = outer
    tracer.counter = kept
    second = rebinding.take(tracer.entry)
    drifting = [
        path for path in changed
        if isinstance(second.state.get(path), int | float | str | bool) and second.state[path] != first.state.get(path)
    ]  # fmt: skip
    if drifting or block_text(again) != block_text(body):
        raise TraceError(
            rebound_message(*(names.get(p) or rebinding.path_name(p) for p in drifting or names)),
            loc,
        )


def _trip_count(bounds: list[Expr]) -> int | None:
    values = [b.value for b in bounds if isinstance(b, Const)]
    return len(range(*map(int, values))) if len(values) == 3 else None


def _integer(x: Expr) -> Expr:
    if not x.dtype.is_integer:
        raise TraceError(f"a loop bound must be an integer, got {x.dtype}", caller())
    if isinstance(x, Const) and not INT32_MIN <= x.value <= INT32_MAX:
        raise TraceError(f"a loop counts in 32 bits; the bound {x.value} does not fit", caller())
    return x


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
    active, on_data = _narrow(tracer, parent, c)
    with _arm(tracer, op.then, active, on_data, c.vary) as scope:
        scope.on_answer = answers.is_answer(tracer, c)
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
    with _arm(tracer, op.orelse, active, then.on_data, then.splits, then.before) as scope:
        scope.on_answer = then.on_answer
        yield
    handles.merge_branch(tracer, op, then, scope)


def _narrow(tracer: Tracer, parent: Scope, cond: Expr) -> tuple[Mask | None, bool]:
    """The threads for which `cond` holds, None if that is not known; and whether it is all of them
    or none, by data.
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
def _arm(
    tracer: Tracer,
    block: ops.Block,
    active: Mask | None,
    on_data: bool,
    splits: Vary,
    first: rebinding.Snapshot | None = None,
) -> Iterator[Scope]:
    """One side of a branch: Python state must come out of it as it went in. `first`: the state
    before the other side.
    """
    _refuse_jumps("ctx.when", "the rest of the block would be dropped without a trace of it")
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
            source.only_loop_target(f.f_code, str(path[-1])) for f in before.frames
        ):
            continue
        name = rebinding.path_name(path)
        raise TraceError(
            f"'{name}' is rebound in a branch: both sides are traced, so after it '{name}' would"
            " be what the branch made it, taken or not."
            f" Keep it in a variable of the kernel (`{name} = ctx.var(start)`, then `{name}.set(...)`), or use `ctx.select`.",
            scope.loc,
        )


def _refuse_jumps(what: str, consequence: str) -> None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        is_library_file(frame.f_code.co_filename)
        or frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    jump = source.leaves_block(frame) if frame is not None else None
    if jump is not None:
        raise TraceError(
            f"`{jump[0]}` at line {jump[1]} leaves a `with {what}(...)` block: {consequence}."
            " Put the rest of the body under `with ctx.otherwise():`.",
            caller(),
        )


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
    _refuse_jumps("ctx.elect_one", "the rest of the block would be dropped without a trace of it")
    op = ops.Elect(caller(), scope, ops.Block())
    with tracer.open("elect", op.body, active=active) as inner:
        inner.splits = Vary.LANE
        yield
    tracer.emit(op)
    handles.merge_signals(tracer, inner)


def _elected(active: Mask, scope: str, role: Role) -> Mask:
    """One lane, the lowest active one, of each warp, or of the first warp of the warpgroup or role.

    Raises:
        TraceError: an enclosing condition keeps that first warp out, so that nobody would be
            elected.
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
            f" '{role.name}' keeps out: nobody would be elected",
            caller(),
        )
    elected: Mask = chosen.reshape(active.shape)
    return elected


@contextmanager
def per_warp(tracer: Tracer) -> Iterator[Value]:
    """`with ctx.per_warp() as w:` traces the body as executed by each warp of the warpgroup on its
    own.
    """
    role = tracer.role.role
    if not role.is_warpgroup:
        raise TraceError(
            f"per_warp needs a role of warpgroups; each warp of '{role.name}' runs on its own already",
            caller(),
        )
    if tracer.scope.inside("per_warp") or tracer.scope.inside("elect"):
        raise TraceError("per_warp inside per_warp or elect_one", caller())
    _refuse_jumps("ctx.per_warp", "the rest of the block would be dropped without a trace of it")
    index = tracer.local("w", dtypes.int32, nonneg=True)
    op = ops.PerWarp(caller(), index, ops.Block())
    with tracer.open("per_warp", op.body, active=tracer.scope.active) as inner:
        inner.splits = Vary.WARP
        yield tracer.value(index)
    tracer.emit(op)
    handles.merge_signals(tracer, inner)
