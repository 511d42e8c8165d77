"""Tests of mbarriers (`try_wait`, `try_acquire`): which threads get which result, and what may
depend on it.

A warp has one result: its lanes test and vote, so that all of them take the same path. That needs
the whole warp. Lanes that test separately would each have their own result, and some might wait
where others do not.

The four warps of a warpgroup test one after the other and do not vote, so each has its own result.
The simulator runs them as one agent with one result. Therefore only a wait may depend on a result
in a warpgroup role: a warp whose test succeeded has acquired what a wait would have acquired.
Anything else that the warps would do separately (arrive, store, copy, synchronise) is an error.
Under `per_warp` the simulator tests in the order of warp numbers, so a later warp never sees an
earlier phase than the warp before it.

The results of `atomic_add` under `per_warp` are restricted for the same reason: on a GPU the warps
add in any order, and the simulator has only the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.def_use import reads
from tilepipe.ir.expressions import Expr, Local, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.memory import BarrierRef, Variable
from tilepipe.ir.program import Role, bodies, walk
from tilepipe.lang.tracing.convergence import divergence
from tilepipe.lang.tracing.tracer import Tracer, named_by
from tilepipe.lang.values.scalars import Value, traced_value

# Ops allowed in a branch on a test in a warpgroup role, besides those that only name a value: none
# of them is visible to another agent, and a wait only makes up for a test that failed.
_ALLOWED = (
    ops.MbarWait,
    ops.MbarTryWait,
    ops.CursorRead,
    ops.CursorDefine,
    ops.If,
    ops.For,
    ops.PerWarp,
    ops.Print,
    ops.Assert,
)


def emit_test(tracer: Tracer, ref: BarrierRef, phase: Expr) -> Value:
    """Emits a test of one barrier and returns its result.

    Raises:
        TraceError: only some lanes of a warp would test.
    """
    require_whole_warp(tracer)
    # Uniform in the model even where the warps of a warpgroup may get different results: only waits
    # may depend on those.
    result = tracer.local("ready", dtypes.boolean, Vary.UNIFORM)
    tracer.emit(ops.MbarTryWait(caller(), ref, phase, result))
    if tracer.role.role.is_warpgroup:
        tracer.test_results.add(result)
    return traced_value(tracer, result)


def require_whole_warp(tracer: Tracer) -> None:
    """Raises TraceError where only some lanes of a warp would test."""
    split, cause = divergence(tracer)
    if split is Vary.LANE and cause is not None:
        raise TraceError(
            f"a test of a barrier under the {cause.kind} block at {cause.loc.short}, where not all"
            " lanes of a warp are active: the lanes of a warp test together and vote, so that all"
            " of them have one result; lanes that test separately have one each, and where some"
            " then wait and others do not, the kernel may hang. Test outside that block, `ready ="
            " bar.try_wait(phase)`, and use the result in it.",
            caller(),
        )


def refuse_divergent_effects(role: Role) -> None:
    """Raises TraceError where an op of a traced warpgroup role depends on the result of a test and
    is not a wait.

    The names that depend on tests are found by data flow to a fixed point: a variable that is set
    at the end of a loop's body is read at its beginning.
    """
    tests = [op.result for op in walk(role.body) if isinstance(op, ops.MbarTryWait)]
    if not role.is_warpgroup or not tests:
        return
    names: set[Local | Variable] = set(tests)
    known = -1
    while known != len(names):
        known = len(names)
        for op, _ in _dependent(role.body, names, None):
            target = named_by(op)
            if target is not None:
                names.add(target)
    for op, branch in _dependent(role.body, names, None):
        # its trip count would differ between warps
        counts = isinstance(op, ops.For) and any(x in names for x in reads(op))
        if named_by(op) is None and (counts or not isinstance(op, _ALLOWED)):
            where = (
                f"in the branch at {branch.loc.short} on the result of a test"
                if branch is not None
                else "with the result of a test"
            )
            raise TraceError(
                f"{type(op).__name__} {where}, in warpgroup role '{role.name}': each of the four"
                " warps of a warpgroup has its own result, so some would do this and others not. In"
                " a warpgroup only waits may depend on a result"
                " (`pipe.wait_producer_if_needed(ready)`). Test in a role of warps (`warps=`), or"
                " wait.",
                op.loc,
            )


def refuse_per_warp_atomics(role: Role) -> None:
    """Raises TraceError where a traced warpgroup role uses the result of an atomic operation under
    `per_warp`.
    """
    if not role.is_warpgroup:
        return
    blocks = [op.body for op in walk(role.body) if isinstance(op, ops.PerWarp)]
    for draw in (op for block in blocks for op in walk(block) if isinstance(op, ops.Atomic)):
        user = next((op for op in walk(role.body) if draw.result in reads(op)), None)
        if user is not None:
            raise TraceError(
                f"{draw.name} under per_warp, in warpgroup role '{role.name}', whose result is"
                " used at"
                f" {user.loc.short}: on a GPU the four warps add in any order, while the"
                " simulator runs them in the order of their numbers, so neither a run nor a check"
                " would show another order. Add once for the warpgroup, outside per_warp, `with"
                ' ctx.elect_one("warpgroup"):`, or in a role'
                " of one warp (`warps=1`), and pass the result on in shared memory. An add whose"
                " result is unused is allowed.",
                draw.loc,
            )


def _dependent(
    block: ops.Block, names: set[Local | Variable], branch: ops.If | None
) -> Iterator[tuple[ops.Op, ops.If | None]]:
    """The ops of a block that read one of `names`, or are inside a branch on one, each with the
    innermost such branch.
    """
    for op in block.ops:
        on_name = any(x in names for x in reads(op))
        if on_name or branch is not None:
            yield op, branch
        inner = op if isinstance(op, ops.If) and on_name else branch
        for body in bodies(op):
            yield from _dependent(body, names, inner)
