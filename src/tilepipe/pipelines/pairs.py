"""Pairs of CTAs that share an MMA (cta_group 2): CTAs 2 i and 2 i + 1 of a cluster, of which the even one leads."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tilepipe.ir import exprs
from tilepipe.lang.context import Context
from tilepipe.lang.values import Value
from tilepipe.pipelines.barriers import MbarPtr


def elect_one_cta(ctx: Context) -> Value:
    """Whether this CTA issues the MMAs: the even one of a pair; every CTA where there are no pairs."""
    return ctx.tracer.value(exprs.const(True)) if ctx.tracer.kernel.cta_group < 2 else ctx.cta_rank % 2 == 0


def elected_cta(ctx: Context, cta_group: int) -> AbstractContextManager[None]:
    """A block that the even CTA of a pair executes, or every CTA."""
    return ctx.when(ctx.cta_rank % 2 == 0) if cta_group == 2 else nullcontext()


def leader_cta(ctx: Context) -> Value:
    """The rank of the even CTA of the pair (the bit that `address & 0xFEFFFFFF` clears)."""
    return ctx.cta_rank & ~1


def pair_mask(ctx: Context) -> Value:
    """A mask of both CTAs of the pair."""
    return ctx.tracer.value(exprs.const(3)) << leader_cta(ctx)


def mma_arrive(mbar: MbarPtr) -> None:
    """tcgen05.commit: one arrival on `mbar` when the MMAs that this lane has issued are done. One lane."""
    Context(mbar._tracer).mma_commit(mbar)


def mma_arrive_multicast(mbar: MbarPtr, cta_mask: object) -> None:
    """`mma_arrive` on the barrier's copies in all CTAs of the mask."""
    Context(mbar._tracer).mma_commit(mbar, mask=cta_mask)


def umma_arrive_leader_cta(mbar: MbarPtr) -> None:
    """One arrival by every active thread on the even CTA's copy. It publishes loads from tensor memory that are waited for and
    fenced (`ctx.tcgen05_fence_before()`), and no other access.
    """
    mbar._arrive(mbar._at(leader_cta(Context(mbar._tracer))), 1, "relaxed")
