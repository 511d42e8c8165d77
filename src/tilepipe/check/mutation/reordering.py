"""Why two ops may be swapped: the reason why a mutant in which one was moved past the other is
redundant.

Each entry is about two kinds of ops, whichever of them was moved. The exploration of the mutant has
shown that it applies to the kernel in question.
"""

from __future__ import annotations

from tilepipe.check.mutation.mutants import SUBJECTS
from tilepipe.ir import facts, ops

Kinds = tuple[type[ops.Op], ...]

_STORE_GROUPS: Kinds = (ops.TmaStoreWait, ops.TmaStoreCommit)
WAITS: Kinds = tuple(
    op
    for op, subject in SUBJECTS.items()
    if subject in ("wait", "named sync") and op not in (ops.TmaStoreWait, ops.GridDependencyWait)
)
FENCES: Kinds = tuple(
    op
    for op, subject in SUBJECTS.items()
    if subject == "fence" and op.facts.orders is not facts.Order.BARRIER_INITIALISATION
)
_ARRIVES: Kinds = tuple(
    op for op in ops.EVERY if op.sync == facts.Sync.ARRIVE and "bar" in op.given
)
_COMMITS: Kinds = tuple(op for op in ops.EVERY if op.facts.commits)
_ACCESSES: Kinds = (*(op for op in ops.EVERY if op.acts and op.uses), ops.TmemDealloc)
_CONTROL: Kinds = tuple(op for op in ops.EVERY if op.blocks)


def why_either_order(op: ops.Op, passed: ops.Op) -> str:
    """Why the order of two ops makes no difference; "" if no entry applies.

    Args:
        op: the op that was moved.
        passed: the op that it was moved past; a block stands for the ops in it.
    """
    for first, second, reason in _PAIRS:
        if (isinstance(op, first) and isinstance(passed, second)) or (
            isinstance(op, second) and isinstance(passed, first)
        ):
            return reason
    return ""


_PAIRS: tuple[tuple[Kinds, Kinds, str], ...] = (
    (
        (ops.MbarExpect,),
        (ops.TmaLoad, ops.ClcTryCancel),
        "bytes may arrive before they are expected: the phase cannot complete without this arrival",
    ),
    (
        (ops.SetupBarrier,),
        (ops.Elect,),
        (
            "the warp that initialises these barriers is the first to use them: every other use"
            " follows one of its later steps"
        ),
    ),
    (
        (ops.WgmmaWait,),
        (ops.SyncWarp,),
        "the lanes of a warp execute wgmma.wait_group together, and so converge at either",
    ),
    (
        WAITS,
        (ops.WgmmaFence,),
        "wgmma.fence orders accesses to registers, and the wait orders accesses to memory",
    ),
    (
        (ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter, ops.MbarWait, ops.TmemRelinquish),
        (ops.TmemDealloc, ops.TmemRelinquish),
        (
            "freeing tensor memory needs the barrier and no fence, and relinquishing the permit to"
            " allocate orders nothing"
        ),
    ),
    (
        (ops.TmemRelinquish,),
        (ops.Load,),
        "relinquishing the permit to allocate orders nothing, and the load reads shared memory",
    ),
    (
        (ops.MbarWait,),
        (ops.Tcgen05FenceAfter,),
        "no access to tensor memory follows this wait but its deallocation, which needs no fence",
    ),
    (
        _ARRIVES,
        (ops.Tcgen05FenceBefore,),
        (
            "the tensor memory that this fence publishes is not accessed after this arrival, but"
            " freed, which needs no fence"
        ),
    ),
    (
        WAITS,
        (ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter),
        "no access to tensor memory that the fence could cover stands between them",
    ),
    (
        _ARRIVES,
        _ARRIVES,
        (
            "two arrivals, on two barriers or in two CTAs, with nothing between: no wait for one of"
            " them depends on when the other is made"
        ),
    ),
    (
        WAITS,
        WAITS,
        "two consecutive waits: both have passed before any op that needs either",
    ),
    (
        WAITS,
        _ARRIVES,
        (
            "the arrival publishes nothing that the wait orders, and the wait does not depend on"
            " this arrival"
        ),
    ),
    (
        _ARRIVES,
        _COMMITS,
        "the arrival publishes nothing of the group, and the group is waited for by its own thread",
    ),
    (
        _ARRIVES,
        (ops.FenceProxyAsync,),
        "a later arrival also publishes what this fence covers, to the agents that write next",
    ),
    (WAITS, _COMMITS, "the wait is not for the group that is committed here"),
    (
        _COMMITS,
        _ACCESSES,
        (
            "everything in the group was issued before either place; the access in between is in no"
            " group"
        ),
    ),
    (WAITS, _ACCESSES, "the access in between uses nothing that the wait is for"),
    (_ARRIVES, _ACCESSES, "the access in between uses nothing that the arrival publishes"),
    (FENCES, _ACCESSES, "the access in between is not one that the fence orders"),
    (
        (ops.SyncWarp, ops.NamedSync),
        (*_ACCESSES, *_CONTROL),
        (
            "no lane depends yet on what another lane has done: the accesses in between are private"
            " to each lane, or ordered by another barrier"
        ),
    ),
    (
        _STORE_GROUPS,
        (*_CONTROL, *_ACCESSES),
        "the other lanes have no store groups: for them the op does nothing",
    ),
    (WAITS, _CONTROL, "the ops of the block use nothing that the wait is for"),
    (_ARRIVES, _CONTROL, "the ops of the block use nothing that the arrival publishes"),
    (FENCES, _CONTROL, "the ops of the block are none that the fence orders"),
    (_COMMITS, _CONTROL, "the ops of the block are not part of the group"),
    (
        (ops.TmemRelinquish,),
        (*_CONTROL, *WAITS, *_ARRIVES),
        (
            "relinquishing the permit to allocate lets other CTAs allocate sooner; this CTA does"
            " not allocate again"
        ),
    ),
)
