"""Why a mutant that exploration verifies is equivalent to the kernel: reasons, in the order in
which they are tried, each with the condition under which it is given.

The exploration is the proof; a reason puts it in a sentence. Conditions that depend on what happens
in a run look at `Observations`. A mutant for which there is no reason is an open question: either a
reason is missing, or the simulated machine misses a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.mutants import Mutant, only_waits, signals
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.reordering import FENCES, WAITS, why_either_order
from tilepipe.check.mutation.rewriting import Place
from tilepipe.ir import facts, ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.memory import BarrierRef, Cursor
from tilepipe.ir.program import Kernel, barrier_of

_LEARNS = (*WAITS, *FENCES, ops.TmaStoreWait, ops.SyncWarp)
_TWICE: dict[type[ops.Op], str] = {
    ops.MbarWait: (
        "the second of two waits for one phase finds it complete, and orders nothing more"
    ),
    ops.TmaStoreWait: "the second of two waits for one thread's store groups finds them done",
    ops.WgmmaWait: "the second of two waits for the warpgroup's MMAs finds them done",
    ops.TmemWaitLoad: (
        "the second of two waits for the warp's loads from tensor memory finds them done"
    ),
    ops.TmemWaitStore: (
        "the second of two waits for the warp's stores to tensor memory finds them done"
    ),
    ops.ClusterWait: "the second wait finds the cluster barrier complete",
    ops.NamedSync: (
        "the same threads synchronise twice in a row: the second barrier orders nothing more"
    ),
    ops.SyncWarp: "the lanes of the warp have just converged",
    ops.FenceProxyAsync: "the second of two fences finds every access fenced",
    ops.WgmmaFence: "the second of two fences finds all registers fenced",
    ops.Tcgen05FenceBefore: "the second of two fences finds every access fenced",
    ops.Tcgen05FenceAfter: "the second of two fences finds nothing more to order",
    ops.FenceBarrierInit: "the second of two fences finds every initialisation fenced",
    ops.TmemRelinquish: "the permit to allocate has been relinquished already",
    ops.GridDependencyWait: "the preceding kernels have completed already",
}
_TWICE |= {
    op: "the second commit closes an empty group, which is complete at once"
    for op in ops.EVERY
    if op.facts.commits and not op.sync
}
ADVISED = (
    "ordered by a fence on the reader's side instead, which is accepted with advice (a fault with"
    ' rules="strict")'
)


@dataclass(frozen=True)
class Question:
    """A mutant without a fault, and what is known about it."""

    mutant: Mutant
    kernel: Kernel
    observations: Observations
    advised: bool

    @property
    def op(self) -> ops.Op:
        return self.mutant.place.op

    @property
    def operator(self) -> str:
        return self.mutant.operator

    @property
    def verb(self) -> str:
        return self.operator.split(" ", 1)[0]

    @property
    def acting(self) -> list[ops.Op]:
        """The op, and those inside it, that act."""
        return [x for x in rewriting.everything(self.op) if x.acts]


def explain(
    mutant: Mutant, kernel: Kernel, observations: Observations, advised: bool = False
) -> str:
    """The reason in a sentence; "" if there is none.

    Args:
        kernel: the kernel of which it is a mutant.
        observations: those of the instances of that kernel.
        advised: the mutant is verified, but with advice that the kernel does not get.
    """
    q = Question(mutant, kernel, observations, advised)
    for reason, holds in _REASONS:
        if holds(q):
            return reason if isinstance(reason, str) else reason(q)
    return ""


def _unreached(q: Question) -> bool:
    near = [q.op] if q.op.acts else q.mutant.place.block.ops
    runs = [q.observations.of(x).runs for op in near for x in rewriting.everything(op) if x.acts]
    return bool(runs) and not any(runs)


def _unobserved(q: Question) -> bool:
    arrivals = [x for x in q.acting if x.sync is facts.Sync.ARRIVE and barrier_of(x) is not None]
    if q.operator == "drop release" and isinstance(q.op, ops.CursorStep):
        arrivals = [place.op for place in signals(q.kernel, q.mutant.place, q.op.cursor)]
    observed = any(q.observations.awaited(x) for x in arrivals)
    return bool(arrivals) and not observed and q.operator != "arrive order"


def in_drain(place: Place) -> bool:
    """True if an op is one of the waits at the end of its role."""
    if place.role is None:
        return False
    index = place.parents[0][1] if place.parents else place.index
    return all(only_waits(op) for op in place.role.body.ops[index:])


def _drains(q: Question, stores: bool) -> bool:
    waits_for_stores = any(isinstance(x, ops.TmaStoreWait) for x in q.acting)
    return in_drain(q.mutant.place) and waits_for_stores == stores


def _adds_nothing(q: Question) -> bool:
    observed = q.observations.of(q.op)
    changed = q.verb in ("drop", "move", "pending", "stage", "phase")
    return changed and isinstance(q.op, _LEARNS) and observed.runs > 0 and not observed.effects


def _before_the_first(q: Question) -> bool:
    phases = q.observations.of(q.op).phases
    return bool(phases) and all(phase < 0 for *_, phase in phases)


def _of_stores(op: ops.Op) -> bool:
    """True if an op is about the groups of a thread's stores."""
    return facts.Group.BULK in (op.facts.issues, op.facts.commits, op.facts.awaits)


def _frees(q: Question) -> bool:
    """True if the fence stands before the tensor memory is freed, or handed on to be freed."""
    rest = q.mutant.place.block.ops[q.mutant.place.index + 1 :]
    match q.op, next((x for op in rest for x in rewriting.everything(op) if x.acts), None):
        case ops.Tcgen05FenceAfter(), ops.TmemDealloc():
            return True
        case ops.Tcgen05FenceBefore(), ops.MbarArrive(bar=bar):
            return _freed_after(q.kernel, bar)
    return False


def _waits_by(kernel: Kernel, cursor: Cursor) -> bool:
    """True if any wait takes its phase from this cursor."""
    every = [place.op for place in rewriting.places(kernel)]
    phases = {op.phase for op in every if isinstance(op, ops.CursorRead) and op.cursor is cursor}
    return any(
        isinstance(op, (ops.MbarWait, ops.MbarTryWait)) and op.phase in phases for op in every
    )


def _freed_after(kernel: Kernel, bar: BarrierRef) -> bool:
    """True if a wait for this barrier is the last one before tensor memory is freed."""
    for place in rewriting.places(kernel):
        if isinstance(place.op, ops.TmemDealloc):
            before = [op for op in place.block.ops[: place.index] if isinstance(op, ops.MbarWait)]
            if before and before[-1].bar.array is bar.array:
                return True
    return False


_OF_CURSORS = (
    "drop step",
    "duplicate step",
    "cursor step",
    "cursor stages",
    "cursor first phase",
)
_REASONS: tuple[tuple[str | Callable[[Question], str], Callable[[Question], object]], ...] = (
    ("not reached: no instance of this configuration executes this op", _unreached),
    (ADVISED, lambda q: q.advised),
    (
        (
            "no agent waits for the phases in which it arrives: the ring is not used again before"
            " the CTA ends"
        ),
        _unobserved,
    ),
    (lambda q: _TWICE[type(q.op)], lambda q: q.verb == "duplicate" and type(q.op) in _TWICE),
    (
        "after the wait inside the loop, every store has read shared memory",
        lambda q: _drains(q, stores=True) and q.verb in ("drop", "pending"),
    ),
    (
        (
            "a drain protects arrivals from other CTAs: every arrival on these barriers is made by"
            " the CTA itself, which ends with the last of its warps"
        ),
        lambda q: _drains(q, stores=False) and q.kernel.cluster_size == 1,
    ),
    (
        (
            "what the last iterations of this drain wait for is complete anyway before the CTA"
            " ends: the CTA waits for later commits"
        ),
        lambda q: _drains(q, stores=False),
    ),
    (
        "the whole warp executes the op before it together, and sees what that wrote",
        lambda q: _adds_nothing(q) and isinstance(q.op, ops.SyncWarp),
    ),
    (
        (
            "it only waits for the phase before the first, which is complete from the beginning:"
            " the ring is used once at most"
        ),
        lambda q: _adds_nothing(q) and _before_the_first(q),
    ),
    (
        (
            "all that it orders is ordered already: in no run did it add to what happens before its"
            " threads' next steps, nor did it have anything to fence"
        ),
        _adds_nothing,
    ),
    (
        "it waits for more than necessary: later, and only for what is certain to complete",
        lambda q: (
            (isinstance(q.op, ops.TmaStoreWait) and q.operator == "wait kind" and q.op.read)
            or (q.operator == "pending" and " -1:" in q.mutant.what)
        ),
    ),
    (
        (
            "what a grid wrote is visible after its end; before a CTA ends, its stores need only"
            " have read shared memory"
        ),
        lambda q: q.operator == "wait kind",
    ),
    (
        "the other lanes have no store groups: for them the op does nothing",
        lambda q: (
            (isinstance(q.op, ops.Elect) and all(_of_stores(x) for x in q.acting))
            or (
                q.verb == "move"
                and isinstance(q.op, ops.TmaStoreWait | ops.TmaStoreCommit)
                and isinstance(q.mutant.passed, ops.Elect)
            )
        ),
    ),
    (
        (
            "each warp stores the same value to the flag, or waits for the same: a store that comes"
            " late is seen by the next launch alone"
        ),
        lambda q: (
            q.operator == "elect scope"
            and all(isinstance(x, ops.StrongStore | ops.StrongLoad | ops.Assign) for x in q.acting)
        ),
    ),
    (
        "set-up initialises no barrier, and nothing follows its end",
        lambda q: (
            q.verb == "drop"
            and isinstance(q.op, ops.SetupBarrier)
            and not any(isinstance(x, ops.MbarInit) for x in q.kernel.setup.ops)
        ),
    ),
    (
        "release publishes more than relaxed does",
        lambda q: q.operator == "arrive order" and getattr(q.op, "sem", "") == "relaxed",
    ),
    (
        (
            "all that it publishes are reads of MMAs that have been waited for, or fenced accesses"
            " of tensor memory: relaxed semantics suffice"
        ),
        lambda q: q.operator == "arrive order",
    ),
    (
        (
            "relinquishing the permit to allocate lets another CTA of the SM allocate sooner; this"
            " CTA does not allocate again"
        ),
        lambda q: q.verb == "drop" and isinstance(q.op, ops.TmemRelinquish),
    ),
    (
        "freeing tensor memory takes the barrier and no fence",
        lambda q: q.verb == "drop" and _frees(q),
    ),
    (
        (
            "it lets the lanes reconverge; no other lane uses what one did alone before they"
            " synchronise at another barrier"
        ),
        lambda q: q.operator == "drop syncwarp",
    ),
    (
        (
            "the stores go into the group that the thread's next commit closes, and are waited for"
            " with it"
        ),
        lambda q: q.operator == "drop commit" and isinstance(q.op, ops.TmaStoreCommit),
    ),
    (
        (
            "these turns are for speed: what the roles access before and after the wait has nothing"
            " in common"
        ),
        lambda q: (
            q.operator == "drop wait"
            and isinstance(q.op, ops.MbarWait)
            and "order" in q.op.bar.array.name
        ),
    ),
    (
        (
            "every agent that waits for this barrier waits for the next one of the array in turn:"
            " an arrival one stage early or late is made up for by the other barrier"
        ),
        lambda q: q.operator == "stage",
    ),
    (
        "each lane signals another CTA than before, and together they signal the same CTAs",
        lambda q: (
            q.operator == "mask"
            and isinstance(q.op, ops.MbarArrive | ops.MbarExpect)
            and q.op.bar.cta is not None
            and q.op.bar.cta.vary == Vary.LANE
        ),
    ),
    (
        (
            "the two CTAs of a pair free their tensor memory together, when each has waited for its"
            " own"
        ),
        lambda q: (
            q.operator == "mask"
            and isinstance(q.op, ops.MbarArrive)
            and q.kernel.cta_group == 2
            and _freed_after(q.kernel, q.op.bar)
        ),
    ),
    (
        "the role never waits by this cursor, which only says where to arrive",
        lambda q: (
            q.operator in ("cursor first phase", "cursor stages")
            and isinstance(q.op, ops.CursorDefine)
            and not _waits_by(q.kernel, q.op.cursor)
        ),
    ),
    (
        "the cursor is not used again, or only by waits that pass at once",
        lambda q: q.operator in _OF_CURSORS,
    ),
    (
        lambda q: why_either_order(q.op, q.mutant.passed) if q.mutant.passed is not None else "",
        lambda q: q.verb == "move",
    ),
)
