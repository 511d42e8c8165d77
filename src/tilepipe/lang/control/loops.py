"""Traced loops: `ctx.range` and `ctx.loop_while`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from math import gcd
from typing import Any, TypeVar

from tilepipe.errors import TraceError
from tilepipe.host_arguments import INT32_MAX, INT32_MIN
from tilepipe.ir import dtypes, expressions as exprs, ops, printer
from tilepipe.ir.expressions import Const, Expr, Vary
from tilepipe.ir.hardware.operand_tiles import divisor
from tilepipe.ir.location import Loc, caller
from tilepipe.ir.program import walk
from tilepipe.lang.tracing import python_source, rebinding
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer, rebound_message
from tilepipe.lang.values.scalars import Value, require_uniform, to_expr, traced_value
from tilepipe.lang.values.variables import Var

T = TypeVar("T")  # what a loop yields


class Range:
    """What `ctx.range` gives: iterating it traces a loop."""

    def __init__(
        self, tracer: Tracer, start: object, stop: object, step: object, unroll: int
    ) -> None:
        self._tracer = tracer
        self._bounds = start, stop, step
        self._unroll = unroll
        self._used = tracer.unused("ctx.range is not iterated: write `for i in ctx.range(...):`")

    def __iter__(self) -> Iterator[Value]:
        self._tracer.require_running()
        self._used()
        return loop(self._tracer, *self._bounds, make=lambda index: index, unroll=self._unroll)

    def __reversed__(self) -> Iterator[Value]:
        raise TraceError(
            "a traced range runs upwards: take `n - 1 - i` in the body instead of reversed()",
            caller(),
        )

    def __len__(self) -> int:
        raise TraceError("len() of a traced range is not known while tracing", caller())


def loop(
    tracer: Tracer,
    start: object,
    stop: object,
    step: object,
    make: Callable[[Value], T],
    name: str = "i",
    end: Callable[[], None] | None = None,
    unroll: int = 1,
) -> Iterator[T]:
    """Traces `for index in range(start, stop, step)`. Yields `make(index)` once; `end` adds ops to
    the body after the user's part. `unroll`: iterations that the compiler writes one after the
    other.

    Raises:
        TraceError: anything but a `for` statement iterates it.
    """
    python_source.require_for_statement(sys._getframe(1))
    return _loop(tracer, start, stop, step, make, name, end, unroll)


def _loop(
    tracer: Tracer,
    start: object,
    stop: object,
    step: object,
    make: Callable[[Value], T],
    name: str,
    end: Callable[[], None] | None,
    unroll: int,
) -> Iterator[T]:
    """See `loop`."""
    python_source.require_driven_by_for(sys._getframe(1))
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

    def begin() -> T:
        indices.append(tracer.local(name, dtypes.int32, nonneg=bounds[0].nonneg, multiple=multiple))
        return make(traced_value(tracer, indices[-1]))

    body, loc = yield from _body(tracer, begin, end, _trip_count(bounds))
    first, last, by = bounds
    tracer.emit(ops.For(loc, indices[0], first, last, by, body, unroll))


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
    tracer: Tracer, more: Var, begin: Callable[[], T], end: Callable[[], None] | None = None
) -> Iterator[T]:
    """Traces `while more:`. Yields `begin()` once, in the body; `end` adds ops to the body after
    the user's part.

    Raises:
        TraceError: anything but a `for` statement iterates it; `more` is no boolean variable,
            varies between the threads that run the loop, or is not set in the body.
    """
    python_source.require_for_statement(sys._getframe(1))
    return _while(tracer, more, begin, end)


def _while(
    tracer: Tracer, more: Var, begin: Callable[[], T], end: Callable[[], None] | None
) -> Iterator[T]:
    python_source.require_driven_by_for(sys._getframe(1))
    if not isinstance(more, Var) or more.variable.dtype is not dtypes.boolean:
        raise TraceError(
            "a traced while loop runs while a boolean variable holds (`more = ctx.var(True)`), got"
            f" {more!r}",
            caller(),
        )
    if more.variable.vary > _at_most(tracer):
        raise TraceError(
            f"{more!r} must be the same in every thread that runs the loop: make it from a value"
            " that does not vary",
            caller(),
        )
    body, loc = yield from _body(tracer, begin, end, None)
    if not any(isinstance(op, ops.Assign) and op.var is more.variable for op in walk(body)):
        raise TraceError(
            f"nothing in this loop sets {more!r}, so it would never end:"
            f" {more.variable.name}.set(...) in its body",
            loc,
        )
    tracer.emit(ops.While(loc, more.variable, body))


def _at_most(tracer: Tracer) -> Vary:
    """How far a loop's trip count may vary: in a role of warps each warp runs on its own."""
    return Vary.UNIFORM if tracer.role.role.is_warpgroup else Vary.WARP


def _body(
    tracer: Tracer, begin: Callable[[], T], end: Callable[[], None] | None, times: int | None
) -> Generator[T, None, tuple[ops.Block, Loc]]:
    """Traces the body of a loop that runs `times` times (None: unknown); returns it and its line.

    The generator is resumed when the Python body has ended; it then closes the block. If the body
    changed Python state, it is traced once more and that trace discarded, to find out whether one
    iteration depends on the change that the one before made (`rebinding`).
    """
    counter = dict(tracer.counter)
    body = ops.Block()
    loc = caller()
    role = tracer.role
    before = rebinding.take(tracer.entry)

    def trace(block: ops.Block) -> Iterator[T]:
        with tracer.open("loop", block, active=tracer.scope.active, role=role) as scope:
            try:
                yield begin()
            except GeneratorExit:
                if sys.exc_info()[0] is GeneratorExit and not tracer.deferred:
                    tracer.deferred = TraceError(
                        "a traced loop was left by `break` or `return`: its body is traced once,"
                        " for all iterations, so there is nothing to leave. Bound the loop, or"
                        " guard the rest of the body with `ctx.when`.",
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
    tracer.scope.merge_signals(merged[0], times)
    return body, loc


def _second_pass(
    tracer: Tracer,
    trace: Callable[[ops.Block], Iterator[T]],
    counter: dict[str, int],
    changed: dict[tuple[Any, ...], Any],
    body: ops.Block,
    first: rebinding.Snapshot,
    loc: Loc,
) -> Iterator[T]:
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
        path
        for path in changed
        if isinstance(second.state.get(path), int | float | str | bool)
        and second.state[path] != first.state.get(path)
    ]
    if drifting or printer.block_text(again) != printer.block_text(body):
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
