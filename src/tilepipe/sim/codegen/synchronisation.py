"""Named, CTA and cluster barriers, and fences, as Python source."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.machine.barriers import rendezvous
from tilepipe.sim.codegen.definition import defines, plain
from tilepipe.sim.codegen.functions import Function

plain(ops.SyncWarp, rendezvous.syncwarp)
plain(ops.SetupBarrier, rendezvous.setup_barrier)
plain(ops.ClusterArrive, rendezvous.cluster_arrive)
plain(ops.ClusterWait, rendezvous.cluster_wait)
plain(ops.FenceBarrierInit, rendezvous.fence_barrier_init)


@defines(ops.FenceProxyAsync, rendezvous.fence_proxy_async)
def _(f: Function, op: ops.FenceProxyAsync) -> None:
    f.request(op, rendezvous.fence_proxy_async, repr(op.space))


@defines(ops.NamedSync, rendezvous.named_sync)
def _(f: Function, op: ops.NamedSync) -> None:
    f.request(op, rendezvous.named_sync, _place(f, op))


@defines(ops.NamedArrive, rendezvous.named_arrive)
def _(f: Function, op: ops.NamedArrive) -> None:
    f.request(op, rendezvous.named_arrive, _place(f, op))


def _place(f: Function, op: ops.NamedSync | ops.NamedArrive) -> str:
    """Which of the CTA's named barriers it is."""
    base, copies = f.module.named_base[id(op.bar)], op.bar.per_warpgroup
    if op.group is not None:
        return f.flat(base, op.group, copies, op, op.bar.name)
    return f"{base} + ag.index" if copies > 1 and f.group else str(base)
