"""Names that depend on the result of an mbarrier test in a warpgroup role, found as the kernel is
traced (`barrier_tests` has the rules).
"""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.ir.def_use import nodes, reads
from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import Variable
from tilepipe.lang.tracing.scopes import Scope

TestResults = set[Local | Variable]


def depends_on_test(results: TestResults, x: Expr) -> bool:
    """Whether a value depends on the result of a test in a warpgroup role, as far as the kernel has
    been traced.
    """
    return bool(results) and any(isinstance(n, Local) and n in results for n in nodes(x))


def track(results: TestResults, scope: Scope, op: ops.Op) -> None:
    """Records a name that depends on a test through this op, so that a later branch on it is
    recognised while the kernel is traced. Values carried round a loop are unknown where the loop
    begins; `barrier_tests.refuse_divergent_effects` therefore examines the whole role afterwards.
    """
    target = named_by(op)
    if target is not None and (
        scope.inside_test_branch() is not None or any(x in results for x in reads(op))
    ):
        results.add(target)


def named_by(op: ops.Op) -> Local | Variable | None:
    """The name that an op binds, where it has no other effect."""
    match op:
        case ops.Let(local=target) | ops.Read(local=target):
            return target
        case ops.Define(var=var) | ops.Assign(var=var):
            return var
    return None
