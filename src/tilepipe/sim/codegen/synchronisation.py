"""Barriers of all kinds, fences, and the order of grids, as Python source."""

from __future__ import annotations

from tilepipe.errors import BarrierError
from tilepipe.ir import ops
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.units import grid
from tilepipe.sim.codegen.functions import Function, defines

defines(ops.SyncWarp, rendezvous.syncwarp)
defines(ops.SetupBarrier, rendezvous.setup_barrier)
defines(ops.ClusterArrive, rendezvous.cluster_arrive)
defines(ops.ClusterWait, rendezvous.cluster_wait)
defines(ops.FenceBarrierInit, rendezvous.fence_barrier_init)
defines(ops.FenceProxyAsync, rendezvous.fence_proxy_async, operands=lambda f, op: [repr(op.space)])
defines(ops.LaunchDependents, rendezvous.launch_dependents)
defines(ops.GridDependencyWait, grid.grid_dependency_wait)
defines(ops.NamedSync, rendezvous.named_sync, operands=lambda f, op: [_named(f, op)])
defines(ops.NamedArrive, rendezvous.named_arrive, operands=lambda f, op: [_named(f, op)])
defines(ops.MbarInval, mbarrier.mbar_inval, operands=lambda f, op: [f.bar(op.bar, op)])


def _named(f: Function, op: ops.NamedSync | ops.NamedArrive) -> str:
    """Which of the CTA's named barriers it is."""
    base, copies = f.module.named_base[id(op.bar)], op.bar.per_warpgroup
    if op.group is not None:
        return f.flat(base, op.group, copies, op, op.bar.name)
    return f"{base} + ag.index" if copies > 1 and f.group else str(base)


@defines(ops.MbarInit, mbarrier.mbar_init)
def _(f: Function, op: ops.MbarInit) -> None:
    array = op.bar.array
    if op.count is None and array.count is None:
        raise BarrierError(f"{array.name} is initialised without an arrival count", op.loc)
    n = str(array.count) if op.count is None else f.x.scalar(op.count, "an arrival count", op)
    f.request(op, mbarrier.mbar_init, f.bar(op.bar, op), op.n, n)


@defines(ops.MbarArrive, mbarrier.mbar_arrive, mbarrier.mbar_arrive_each)
def _(f: Function, op: ops.MbarArrive) -> None:
    n = f.x.scalar(op.count, "the count of an arrive", op)
    each, to = f.targets(op.bar.cta, op)
    function = mbarrier.mbar_arrive_each if each else mbarrier.mbar_arrive
    f.request(op, function, f.bar(op.bar, op), n, *to)


@defines(ops.MbarExpect, mbarrier.mbar_expect, mbarrier.mbar_expect_each)
def _(f: Function, op: ops.MbarExpect) -> None:
    n = f.x.scalar(op.nbytes, "a number of bytes", op)
    each, to = f.targets(op.bar.cta, op)
    function = mbarrier.mbar_expect_each if each else mbarrier.mbar_expect
    f.request(op, function, f.bar(op.bar, op), n, op.arrive, *to)


@defines(ops.MbarCompleteTx, mbarrier.mbar_complete_tx)
def _(f: Function, op: ops.MbarCompleteTx) -> None:
    n = f.x.scalar(op.nbytes, "a number of bytes", op)
    f.request(op, mbarrier.mbar_complete_tx, f.bar(op.bar, op), n, *f.remote(op.bar.cta, op))


@defines(ops.MbarWait, mbarrier.mbar_wait, mbarrier.mbar_wait_parity)
def _(f: Function, op: ops.MbarWait) -> None:
    full = op.phase.dtype.kind == "phase"
    f.request(op, mbarrier.mbar_wait if full else mbarrier.mbar_wait_parity, *_asked(f, op))


@defines(ops.MbarTryWait, mbarrier.mbar_try_wait, mbarrier.mbar_try_wait_parity)
def _(f: Function, op: ops.MbarTryWait) -> None:
    full = op.phase.dtype.kind == "phase"
    function = mbarrier.mbar_try_wait if full else mbarrier.mbar_try_wait_parity
    f.request(op, function, *_asked(f, op), result=f.x.bind(op.result, False))


def _asked(f: Function, op: ops.MbarWait | ops.MbarTryWait) -> tuple[str, str]:
    """The barrier and the phase of a wait or a test."""
    if op.bar.cta is not None:
        raise BarrierError(
            f"a wait on {op.bar.array.name} of another CTA: only a CTA's own barriers can be"
            " waited on",
            op.loc,
        )
    return f.bar(op.bar, op), f.x.scalar(op.phase, "the phase of a wait", op)
