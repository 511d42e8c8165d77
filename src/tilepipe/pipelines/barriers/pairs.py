"""Pairs of CTAs that share an MMA (cta_group 2): CTAs 2 i and 2 i + 1 of a cluster, of which the
even one leads; and commits of MMAs, in a pair and elsewhere.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import MulticastMask
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.linear import owner_of
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr, traced_value
from tilepipe.pipelines.barriers.mbarriers import MbarPtr


def elect_one_cta(ctx: Context) -> Value:
    """Whether this CTA issues the MMAs: the even one of a pair; every CTA where there are no
    pairs.
    """
    return (
        traced_value(ctx.tracer, exprs.const(True))
        if ctx.tracer.kernel.cta_group < 2
        else ctx.cta_rank % 2 == 0
    )


def elected_cta(ctx: Context, cta_group: int) -> AbstractContextManager[None]:
    """A block that only the even CTA of a pair executes; every CTA where `cta_group` is 1."""
    return ctx.when(ctx.cta_rank % 2 == 0) if cta_group == 2 else nullcontext()


def leader_cta(ctx: Context) -> Value:
    """The rank of the even CTA of the pair (the bit that `address & 0xFEFFFFFF` clears)."""
    return ctx.cta_rank & ~1


def pair_mask(ctx: Context) -> Value:
    """A mask of both CTAs of the pair."""
    return traced_value(ctx.tracer, exprs.const(3)) << leader_cta(ctx)


def mma_arrive(mbar: MbarPtr) -> None:
    """tcgen05.commit: one arrival on `mbar` when the MMAs that this lane has issued have finished.
    One lane.
    """
    Context(mbar._tracer).mma_commit(mbar)


def mma_arrive_multicast(mbar: MbarPtr, cta_mask: MulticastMask) -> None:
    """`mma_arrive` on the barrier's copies in all CTAs of the mask."""
    Context(mbar._tracer).mma_commit(mbar, mask=cta_mask)


def umma_arrive_leader_cta(mbar: MbarPtr) -> None:
    """One arrival by every active thread on the even CTA's copy. It releases loads from tensor
    memory that have been waited for and fenced (`ctx.tcgen05_fence_before()`), and no other access.
    """
    ref = mbar.ref()
    handle = owner_of(mbar._tracer, ref.array, ref.index)
    if handle is not None:
        handle.refuse_twice("arrives on the even CTA's barrier")
    mbar._arrive(mbar._at(leader_cta(Context(mbar._tracer))), 1, "relaxed")


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
                " memory, and a group of wgmmas is closed by the whole warpgroup: leave e out",
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
