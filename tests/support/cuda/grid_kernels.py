"""The ops that reach beyond the cluster, as IR built by hand."""

from __future__ import annotations

from tests.support.build import Builder, binary, ex
from tilepipe.ir import dtypes, expressions as exprs, ops
from tilepipe.ir.program import Kernel


def grid() -> Kernel:
    """While, atomic adds, and a wait for the kernels before."""
    b = Builder()
    signed, unsigned = b.tensor("signed", dtypes.int32, 1), b.tensor("unsigned", dtypes.uint32, 2)
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.GridDependencyWait)
        more, last = b.var(True), b.var(0)
        body = ops.Block()
        b.do(ops.While, more, body)
        with b.into(body), b.elect():
            old = b.local("old")
            b.do(ops.Atomic, old, b.element(signed, 3), "add", ex(1), None, "relaxed", "gpu")
            b.do(ops.Assign, last, old)
        with b.into(body):
            b.do(ops.Assign, more, binary("lt", b.read(last), 9))
        with b.elect():
            b.do(
                ops.Atomic,
                b.local("unused", dtypes.uint32),
                b.element(unsigned, b.read(last), 1),
                "add",
                exprs.const(2, dtypes.uint32),
                None,
                "relaxed",
                "gpu",
            )
    return b.finished()


def launch_control() -> Kernel:
    """Cluster launch control, to this CTA and to the cluster."""
    b = Builder(cluster=2)
    out = b.tensor("out", dtypes.int32, 1)
    responses, bars = b.smem("responses", 2, 4, 1, dtypes.int32), b.barriers("bars", 2)
    b.setup_done()
    with b.role("one", warps=1):
        with b.elect():
            for i, multicast in enumerate((False, True)):
                b.do(ops.ClcTryCancel, b.tile(responses, 0, i, 0, 1, 4), b.bar(bars, i), multicast)
        valid, cluster = b.local("valid", dtypes.boolean), b.local("cluster")
        b.do(ops.ClcQuery, b.tile(responses, 0, 1, 0, 1, 4), valid, cluster)
        with b.when(valid), b.elect():
            b.store(b.element(out, cluster), 1)
    return b.finished()
