"""Ops that may stand in either order: what makes a mutant redundant in which one has been moved
past the other.

Each entry is about two kinds of ops, whichever was moved. That it applies to the kernel at hand is
what its exploration has shown.
"""

from __future__ import annotations

from tilepipe.ir import ops

Kinds = tuple[type[ops.Op], ...]

_STORE_GROUPS: Kinds = (ops.TmaStoreWait, ops.TmaStoreCommit)
_WAITS: Kinds = (
    ops.MbarWait,
    ops.WgmmaWait,
    ops.TmemWaitLoad,
    ops.TmemWaitStore,
    ops.NamedSync,
    ops.ClusterWait,
)
_FENCES: Kinds = (
    ops.Tcgen05FenceBefore,
    ops.Tcgen05FenceAfter,
    ops.FenceProxyAsync,
    ops.WgmmaFence,
)
_ARRIVES: Kinds = (ops.MbarArrive, ops.NamedArrive, ops.Tcgen05Commit)
_COMMITS: Kinds = (ops.WgmmaCommit, ops.TmaStoreCommit, ops.Tcgen05Commit)
_ACCESSES: Kinds = (
    ops.Load, ops.Store, ops.FragmentLoad, ops.FragmentStore, ops.FragmentLoadGlobal, ops.FragmentStoreGlobal, ops.TmaLoad, ops.TmaStore,
    ops.Wgmma, ops.Tcgen05Mma, ops.TmemLoad, ops.TmemStore, ops.TmemCopy, ops.TmemAlloc, ops.TmemDealloc, ops.AtomicAdd,
    ops.ClcTryCancel, ops.ClcQuery,
)  # fmt: skip
_CONTROL: Kinds = (ops.If, ops.For, ops.While, ops.Elect, ops.PerWarp)


def why_either_order(op: ops.Op, passed: ops.Op) -> str:
    """Why it does not matter which of the two comes first; "" where nothing is known.

    Args:
        op: what was moved. passed: past what; a block stands for what is in it.
    """
    for first, second, reason in _PAIRS:
        if (isinstance(op, first) and isinstance(passed, second)) or (
            isinstance(op, second) and isinstance(passed, first)
        ):
            return reason
    return ""


_PAIRS: tuple[tuple[Kinds, Kinds, str], ...] = (
    ((ops.MbarExpect,), (ops.TmaLoad, ops.ClcTryCancel), "bytes may come first: the phase cannot complete without this arrival"),
    ((ops.SetupBarrier,), (ops.Elect,), "the warp that initialises these barriers is the first to use them: others come to them only by way"
     " of what it does afterwards"),
    (_WAITS, (ops.WgmmaFence,), "wgmma.fence orders accesses to registers, the wait those to memory"),
    ((ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter, ops.MbarWait, ops.TmemRelinquish), (ops.TmemDealloc, ops.TmemRelinquish),
     "freeing tensor memory takes the barrier and no fence, and giving up the right to allocate orders nothing"),
    ((ops.MbarWait,), (ops.Tcgen05FenceAfter,), "behind this wait comes nothing that touches tensor memory; freeing it takes no fence"),
    (_ARRIVES, (ops.Tcgen05FenceBefore,), "what this fence publishes is not used behind this arrival, but freed, which takes no fence"),
    (_WAITS, (ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter), "no access to tensor memory stands between for the fence to cover"),
    (_ARRIVES, _ARRIVES, "two arrivals, on two barriers or in two CTAs, with nothing between: whoever waits for one takes no notice of when"
     " the other comes"),
    (_WAITS, _WAITS, "two waits, one after the other: both are over before anything that needs either"),
    (_WAITS, _ARRIVES, "the arrival tells of nothing that the wait is for, and the wait is for nothing that this arrival sets off"),
    (_ARRIVES, _COMMITS, "the arrival tells of nothing in the group, and the group is waited for by its own thread"),
    (_ARRIVES, (ops.FenceProxyAsync,), "a later arrival hands over what this fence covers, too, to whoever writes next"),
    (_WAITS, _COMMITS, "the wait is not for the group that is closed here"),
    (_COMMITS, _ACCESSES, "the group takes in what was issued before either place; the access in between is no part of a group"),
    (_WAITS, _ACCESSES, "the access in between touches nothing that the wait is for"),
    (_ARRIVES, _ACCESSES, "the access in between touches nothing that the arrival hands over"),
    (_FENCES, _ACCESSES, "the access in between is not one that the fence orders"),
    ((ops.SyncWarp, ops.NamedSync), (*_ACCESSES, *_CONTROL), "no lane needs to know by then what another has"
     " done: the accesses in between are each lane's own, or ordered by another barrier"),
    (_STORE_GROUPS, (*_CONTROL, *_ACCESSES), "the other lanes have no store groups: for them the op does nothing"),
    (_WAITS, _CONTROL, "what is done in there touches nothing that the wait is for"),
    (_ARRIVES, _CONTROL, "what is done in there touches nothing that the arrival hands over"),
    (_FENCES, _CONTROL, "what is done in there is nothing that the fence orders"),
    (_COMMITS, _CONTROL, "what is done in there is no part of the group"),
    ((ops.TmemRelinquish,), (*_CONTROL, *_WAITS, *_ARRIVES),
     "giving up the right to allocate lets others allocate sooner; this CTA does not"),
)  # fmt: skip
