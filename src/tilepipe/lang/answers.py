"""What a test of an mbarrier (`try_wait`, `try_acquire`) answers: to whom, and what may depend on it.

A warp has one answer: its lanes test and vote, so that what follows is the same for all of them. That takes the whole warp: lanes that test
apart would each have an answer of its own, and some might wait where others go on.

The four warps of a warpgroup test one after the other and do not vote, so that each has an answer of its own, while they are simulated
as one, with one answer. So in a warpgroup role an answer varies by warp, and only a wait may depend on it: a warp that was told yes
has acquired what it would have waited for. What warps would do apart otherwise (arrive, store, copy, meet) is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.exprs import Expr, Local, Vary
from tilepipe.ir.location import caller
from tilepipe.ir.memory import BarrierRef, Variable
from tilepipe.ir.uses import nodes, reads
from tilepipe.lang.convergence import splitting

if TYPE_CHECKING:
    from tilepipe.lang.tracer import Tracer
    from tilepipe.lang.values import Value

# What may stand in a branch on an answer of a warp of a warpgroup, besides ops that only bind names.
_HARMLESS = (ops.MbarWait, ops.MbarTryWait, ops.CursorRead, ops.CursorDefine, ops.If, ops.For, ops.PerWarp, ops.Print, ops.Assert)
_NAMES = (ops.Let, ops.Read, ops.Define, ops.Assign)


def test(tracer: Tracer, ref: BarrierRef, phase: Expr) -> Value:
    """Emits a test of one barrier and gives its answer.

    Raises:
        TraceError: lanes of a warp would test apart.
    """
    refuse_lanes(tracer)
    alone = not tracer.role.role.is_warpgroup or tracer.scope.inside("per_warp") is not None
    result = tracer.local("ready", dtypes.boolean, Vary.UNIFORM if alone else Vary.WARP)
    tracer.emit(ops.MbarTryWait(caller(), ref, phase, result))
    if not alone:
        tracer.answers.add(result)
    return tracer.value(result)


def refuse_lanes(tracer: Tracer) -> None:
    """Raises TraceError where only some lanes of a warp would test."""
    split, cause = splitting(tracer)
    if split is Vary.LANE and cause is not None:
        raise TraceError(
            f"a test of a barrier under the {cause.kind} block at {cause.loc.short}, where not all lanes of a warp come: the lanes of a"
            " warp test together and vote, so that all of them have one answer; lanes that test apart have one each, and where some then"
            " wait and others do not, the kernel may hang. Test outside that block, `ready = bar.try_wait(phase)`, and use the answer"
            " in it.",
            caller(),
        )


def is_answer(tracer: Tracer, x: Expr) -> bool:
    """Whether a value depends on an answer that varies by warp."""
    return bool(tracer.answers) and any(isinstance(n, Local) and n in tracer.answers for n in nodes(x))


def follow(tracer: Tracer, op: ops.Op) -> None:
    """Notes the names that an op makes depend on an answer.

    Raises:
        TraceError: the op would do for some warps of a warpgroup what it does not do for others.
    """
    branch = tracer.scope.inside_answer()
    depends = branch is not None or any(x in tracer.answers for x in reads(op))
    if not depends:
        return
    if isinstance(op, _NAMES):
        target: Local | Variable = op.local if isinstance(op, ops.Let | ops.Read) else op.var
        tracer.answers.add(target)
    elif not isinstance(op, _HARMLESS):
        where = f"in the branch at {branch.loc.short} on the answer of a test" if branch is not None else "with the answer of a test"
        raise TraceError(
            f"{type(op).__name__} {where}, in warpgroup role '{tracer.role.name}': each of the four warps of a warpgroup has an answer"
            " of its own, so some would do this and others not. Of a warpgroup, only waits may depend on an answer"
            " (`pipe.wait_producer_if_needed(ready)`). Test in a role of warps (`warps=`), or wait.",
            op.loc,
        )
