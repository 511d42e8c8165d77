"""Commits of MMAs on a barrier: one call for tcgen05 and wgmma."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.context.context import Context
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr, traced_value
from tilepipe.pipelines.barriers.mbarriers import MbarPtr
from tilepipe.pipelines.barriers.pairs import mma_arrive, mma_arrive_multicast, pair_mask


def commit(mbar: MbarPtr, e: object = None) -> None:
    """One arrival on `mbar` when the MMAs that the role has issued so far have finished.

    tcgen05: `tcgen05.commit` by one lane, which is elected here unless `e` is given: then by the
    lanes in which it is not 0, and those must be one; in a pair of CTAs on both copies. wgmma: the
    group is closed and the arrival bound to it, by the whole warpgroup, one for each; the
    `ctx.wgmma_wait` that retires the group makes it. `e` is 0, no arrival, or 1 there.

    Raises:
        TraceError: with wgmma, an `e` that is traced.
    """
    t = mbar._tracer
    ctx = Context(t)
    if isinstance(e, int) and not e:
        return
    if not t.kernel.cta_group:
        if e is not None and not isinstance(e, int):
            raise TraceError(
                "e elects the lane that commits a tcgen05 MMA; here the kernel has no tensor"
                " memory, and a group of wgmmas is closed by the"
                " whole warpgroup: leave e out",
                caller(),
            )
        ctx.mma_commit(mbar)
    elif e is None and t.scope.inside("elect") is None:
        with ctx.elect_one("warp" if t.role.role.warps == 1 else "role"):
            _arrive(ctx, mbar)
    elif e is None or isinstance(e, int):
        _arrive(ctx, mbar)
    else:
        with ctx.when(truth(t, e)):
            _arrive(ctx, mbar)


def _arrive(ctx: Context, mbar: MbarPtr) -> None:
    if ctx.tracer.kernel.cta_group == 2:
        mma_arrive_multicast(mbar, pair_mask(ctx))
    else:
        mma_arrive(mbar)


def truth(tracer: Tracer, e: object) -> Value:
    """`e` as a condition: itself, or whether it is not 0."""
    x = to_expr(tracer, e)
    value = traced_value(tracer, x)
    return value if x.dtype.kind == "bool" else value != 0
