"""What a test of an mbarrier (`try_wait`, `try_acquire`) answers: to whom, and what may depend on
it.

A warp has one answer: its lanes test and vote, so that what follows is the same for all of them.
That takes the whole warp: lanes that test apart would each have an answer of its own, and some
might wait where others go on.

The four warps of a warpgroup test one after the other and do not vote, so that each has an answer
of its own, while they are simulated as one, with one answer; under `per_warp` in the order of their
numbers, so that a later warp is never told less. So in a warpgroup role only a wait may depend on
an answer: a warp that was told yes has acquired what it would have waited for. What warps would do
apart otherwise (arrive, store, copy, meet) is refused.

The values that the warps of a warpgroup draw under `per_warp` with `atomic_add` are refused for the
same reason: on a GPU the warps draw in any order, and the simulator has only that of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.def_use import nodes, reads
from tilepipe.ir.expressions import Expr, Local, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.memory import BarrierRef, Variable
from tilepipe.ir.program import Role, bodies, walk
from tilepipe.lang.tracing.convergence import divergence

if TYPE_CHECKING:
    from tilepipe.lang.tracing.tracer import Tracer
    from tilepipe.lang.values.scalars import Value

# What may stand in a branch on an answer of a warp of a warpgroup, besides ops that only name a
# value.
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
    """Emits a test of one barrier and gives its answer.

    Raises:
        TraceError: lanes of a warp would test apart.
    """
    require_whole_warp(tracer)
    # One value in the model, also where the warps of a warpgroup may be told different things:
    # nothing but waits depends on it then.
    result = tracer.local("ready", dtypes.boolean, Vary.UNIFORM)
    tracer.emit(ops.MbarTryWait(caller(), ref, phase, result))
    if tracer.role.role.is_warpgroup:
        tracer.test_results.add(result)
    return tracer.value(result)


def require_whole_warp(tracer: Tracer) -> None:
    """Raises TraceError where only some lanes of a warp would test."""
    split, cause = divergence(tracer)
    if split is Vary.LANE and cause is not None:
        raise TraceError(
            f"a test of a barrier under the {cause.kind} block at {cause.loc.short}, where not"
            " all lanes of a warp come: the lanes of a"
            " warp test together and vote, so that all of them have one answer; lanes that test"
            " apart have one each, and where some then"
            " wait and others do not, the kernel may hang. Test outside that block, `ready ="
            " bar.try_wait(phase)`, and use the answer"
            " in it.",
            caller(),
        )


def depends_on_test(tracer: Tracer, x: Expr) -> bool:
    """Whether a value depends on an answer that each warp of a warpgroup has for itself, as far as
    the trace has come.
    """
    return bool(tracer.test_results) and any(
        isinstance(n, Local) and n in tracer.test_results for n in nodes(x)
    )


def track(tracer: Tracer, op: ops.Op) -> None:
    """Notes a name that an op makes depend on an answer, so that a branch on it is known for one
    while the kernel is traced. What is carried round a loop is not known yet where the loop begins:
    `refuse_divergent_effects` looks at the whole role.
    """
    target = _named_by(op)
    if target is not None and (
        tracer.scope.inside_test_branch() is not None
        or any(x in tracer.test_results for x in reads(op))
    ):
        tracer.test_results.add(target)


def refuse_divergent_effects(role: Role) -> None:
    """Raises TraceError where something of a warpgroup role, which has been traced, depends on an
    answer and is not a wait.

    The names that depend on answers are found by data flow to a fixed point: a variable that is set
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
            target = _named_by(op)
            if target is not None:
                names.add(target)
    for op, branch in _dependent(role.body, names, None):
        # warps would go round it apart
        counts = isinstance(op, ops.For) and any(x in names for x in reads(op))
        if _named_by(op) is None and (counts or not isinstance(op, _ALLOWED)):
            where = (
                f"in the branch at {branch.loc.short} on the answer of a test"
                if branch is not None
                else "with the answer of a test"
            )
            raise TraceError(
                f"{type(op).__name__} {where}, in warpgroup role '{role.name}': each of the four"
                " warps of a warpgroup has an answer"
                " of its own, so some would do this and others not. Of a warpgroup, only waits"
                " may depend on an answer"
                " (`pipe.wait_producer_if_needed(ready)`). Test in a role of warps (`warps=`), or wait.",
                op.loc,
            )


def refuse_per_warp_atomics(role: Role) -> None:
    """Raises TraceError where a warpgroup role, which has been traced, uses what an `atomic_add`
    under `per_warp` gives.
    """
    if not role.is_warpgroup:
        return
    blocks = [op.body for op in walk(role.body) if isinstance(op, ops.PerWarp)]
    for draw in (op for block in blocks for op in walk(block) if isinstance(op, ops.AtomicAdd)):
        user = next((op for op in walk(role.body) if draw.result in reads(op)), None)
        if user is not None:
            raise TraceError(
                f"atomic_add under per_warp, in warpgroup role '{role.name}', whose result is"
                " used at"
                f" {user.loc.short}: on a GPU the four warps draw in any order, while the"
                " simulator runs them in"
                " the order of their numbers, so that neither a run nor a check sees what another"
                " order does."
                " Draw once for the warpgroup, outside per_warp, `with"
                ' ctx.elect_one("warpgroup"):`, or in a role'
                " of one warp (`warps=1`), and hand the result on in shared memory. An add whose"
                " result nothing"
                " uses may stay.",
                draw.loc,
            )


def _named_by(op: ops.Op) -> Local | Variable | None:
    """The name that an op gives a value, where it does nothing else."""
    match op:
        case ops.Let(local=target) | ops.Read(local=target):
            return target
        case ops.Define(var=var) | ops.Assign(var=var):
            return var
    return None


def _dependent(
    block: ops.Block, names: set[Local | Variable], branch: ops.If | None
) -> Iterator[tuple[ops.Op, ops.If | None]]:
    """The ops of a block that read one of `names`, or stand in a branch on one, each with the
    innermost such branch.
    """
    for op in block.ops:
        on_name = any(x in names for x in reads(op))
        if on_name or branch is not None:
            yield op, branch
        inner = op if isinstance(op, ops.If) and on_name else branch
        for body in bodies(op):
            yield from _dependent(body, names, inner)
