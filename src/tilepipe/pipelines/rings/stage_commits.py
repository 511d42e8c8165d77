"""Commits of MMAs to the barrier of an acquired stage, and whether both CTAs of a pair get one."""

from __future__ import annotations

from tilepipe.errors import CountError
from tilepipe.ir.location import caller
from tilepipe.lang.context.context import Context
from tilepipe.pipelines.barriers.pairs import mma_arrive, mma_arrive_multicast
from tilepipe.pipelines.rings.producer_consumer import StageHandle


def commit_by_one_lane(handle: StageHandle, mask: object) -> None:
    """Commits to the barrier of a stage, for a release whose body has not. `mask`: the CTAs to
    signal, None: this one.
    """
    with Context(handle._tracer).elect_one("warp" if handle.role.role.warps == 1 else "role"):
        if mask is None:
            mma_arrive(handle.mbar())
        else:
            mma_arrive_multicast(handle.mbar(), mask)


def require_both_signalled(handle: StageHandle) -> None:
    """Checks the signals of a stage of a pair before its release.

    Raises:
        CountError: its signal reaches one CTA of a pair and not the other.
    """
    signals = handle.signals
    if signals is None or not signals.known:
        return
    by_rank = signals.received.sum(axis=1)
    for even in range(0, len(by_rank), 2):
        pair = by_rank[even : even + 2]
        if pair.any() and not pair.all():
            signalled = even + int(pair[1] > 0)
            raise CountError(
                f"{handle.describe()} is signalled in CTA rank {signalled} of the cluster and not"
                f" in rank {signalled ^ 1}, the other of the pair (arrivals by rank:"
                f" {by_rank.tolist()}), whose roles would wait for ever. Commit to both:"
                " ctx.mma_commit(stage.mbar(), mask=outputs.mma_complete_mask), or leave it to the"
                " release.",
                caller(),
            )
