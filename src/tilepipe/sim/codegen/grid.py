"""The ops beyond the cluster, and those for debugging, as Python source."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.units import grid
from tilepipe.sim import runtime
from tilepipe.sim.codegen.definition import defines, plain
from tilepipe.sim.codegen.functions import Function

plain(ops.LaunchDependents, rendezvous.launch_dependents)
plain(ops.GridDependencyWait, grid.grid_dependency_wait)


@defines(ops.ClcTryCancel, grid.clc_try_cancel)
def _(f: Function, op: ops.ClcTryCancel) -> None:
    where = f.place(op.dst, op)
    f.request(op, grid.clc_try_cancel, op.multicast, *where, f.bar(op.bar, op))


@defines(ops.ClcQuery, grid.clc_query)
def _(f: Function, op: ops.ClcQuery) -> None:
    results = f"{f.x.bind(op.valid, False)}, {f.x.bind(op.cluster, False)}"
    f.request(op, grid.clc_query, *f.place(op.src, op), result=results)


@defines(ops.Print, runtime.show)
def _(f: Function, op: ops.Print) -> None:
    values = "".join(f"{f.x(a)[0]}, " for a in op.args)
    f.emit(f"show(m, ag, {f.x.site}, {f.mask_text}, {op.format!r}, ({values}))", op)


@defines(ops.Assert, runtime.check)
def _(f: Function, op: ops.Assert) -> None:
    f.emit(f"check(ag, {f.x.site}, {f.mask_text}, {f.x(op.cond)[0]}, {op.message!r})", op)
