"""Why a mutant that exploration verifies is equivalent to the kernel: rules, in the order in which
they are tried.

The exploration is the proof; a rule states the reason in a sentence. Rules that depend on what
happens in a run look at `Observations`. A mutant that no rule explains is an open question: either
a rule is missing, or the simulated machine misses a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilepipe.check.mutation import rewriting
from tilepipe.check.mutation.mutants import Mutant, only_waits, signals
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.reordering import FENCES, WAITS, why_either_order
from tilepipe.check.mutation.rewriting import Place
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.memory import BarrierRef, Cursor
from tilepipe.ir.program import Kernel

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
    ops.WgmmaCommit: "the second commit closes an empty group, which is complete at once",
    ops.TmaStoreCommit: "the second commit closes an empty group, which is complete at once",
    ops.TmemRelinquish: "the permit to allocate has been relinquished already",
    ops.GridDependencyWait: "the preceding kernels have completed already",
}
UNREACHED = "not reached: no instance of this configuration executes this op"
ADVISED = (
    "ordered by a fence on the reader's side instead, which is accepted with advice (a fault with"
    ' rules="strict")'
)
UNOBSERVED = (
    "no agent waits for the phases in which it arrives: the ring is not used again before the CTA"
    " ends"
)
FIRST_PHASE = (
    "it only waits for the phase before the first, which is complete from the beginning: the ring"
    " is used once at most"
)
NOTHING_NEW = (
    "all that it orders is ordered already: in no run did it add to what happens before its"
    " threads' next steps, nor did it have anything to fence"
)
ALONE = (
    "a drain protects arrivals from other CTAs: every arrival on these barriers is made by the CTA"
    " itself, which ends with the last of its warps"
)
COVERED = (
    "what the last iterations of this drain wait for is complete anyway before the CTA ends: the"
    " CTA waits for later commits"
)
LAST_STEP = "the cursor is not used again, or only by waits that pass at once"
NEVER_WAITS = "the role never waits by this cursor, which only says where to arrive"
STRONGER = "it waits for more than necessary: later, and only for what is certain to complete"
END_OF_GRID = (
    "what a grid wrote is visible after its end; before a CTA ends, its stores need only have read"
    " shared memory"
)
READ_BEFORE = "after the wait inside the loop, every store has read shared memory"
NO_GROUPS = "the other lanes have no store groups: for them the op does nothing"
NO_ALLOCATION = (
    "relinquishing the permit to allocate lets another CTA of the SM allocate sooner; this CTA does"
    " not allocate again"
)
ALIGNED = "the whole warp executes the op before it together, and sees what that wrote"
RETIRED = (
    "all that it publishes are reads of MMAs that have been waited for, or fenced accesses of"
    " tensor memory: relaxed semantics suffice"
)
PUBLISHES_MORE = "release publishes more than relaxed does"
DEALLOC = "freeing tensor memory takes the barrier and no fence"
TURNS = (
    "these turns are for speed: what the roles access before and after the wait has nothing in"
    " common"
)
REJOIN = (
    "it lets the lanes reconverge; no other lane uses what one did alone before they synchronise at"
    " another barrier"
)
NEXT_COMMIT = (
    "the stores go into the group that the thread's next commit closes, and are waited for with it"
)
PERMUTED = "each lane signals another CTA than before, and together they signal the same CTAs"
TOGETHER = (
    "the two CTAs of a pair free their tensor memory together, when each has waited for its own"
)
NEIGHBOUR = (
    "every agent that waits for this barrier waits for the next one of the array in turn: an"
    " arrival one stage early or late is made up for by the other barrier"
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
    def verb(self) -> str:
        return self.mutant.operator.split(" ", 1)[0]


def explain(
    mutant: Mutant, kernel: Kernel, observations: Observations, advised: bool = False
) -> str:
    """The reason in a sentence; "" if no rule has one.

    Args:
        kernel: the kernel of which it is a mutant.
        observations: those of the instances of that kernel.
        advised: the mutant is verified, but with advice that the kernel does not get.
    """
    question = Question(mutant, kernel, observations, advised)
    return next((reason for rule in _RULES if (reason := rule(question))), "")


def _unreached(q: Question) -> str:
    near = (
        [x for op in q.mutant.place.block.ops for x in rewriting.everything(op)]
        if not q.op.acts
        else [q.op]
    )
    seen = [q.observations.of(x).runs for x in near if x.acts]
    return UNREACHED if seen and not any(seen) else ""


def _advised(q: Question) -> str:
    return ADVISED if q.advised else ""


def _unobserved(q: Question) -> str:
    if q.mutant.operator == "drop release" and isinstance(q.op, ops.CursorStep):
        arrivals = [place.op for place in signals(q.kernel, q.mutant.place, q.op.cursor)]
    else:
        arrivals = [
            x
            for x in rewriting.everything(q.op)
            if isinstance(x, (ops.MbarArrive, ops.Tcgen05Commit))
        ]
    observed = any(q.observations.awaited(x) for x in arrivals)
    return UNOBSERVED if arrivals and not observed and q.mutant.operator != "arrive order" else ""


def _twice(q: Question) -> str:
    return _TWICE.get(type(q.op), "") if q.verb == "duplicate" else ""


def _drain(q: Question) -> str:
    if not in_drain(q.mutant.place):
        return ""
    inside = [x for x in rewriting.everything(q.op) if x.acts]
    if any(isinstance(x, ops.TmaStoreWait) for x in inside):
        return READ_BEFORE if q.verb in ("drop", "pending") else ""
    return ALONE if q.kernel.cluster_size == 1 else COVERED


def in_drain(place: Place) -> bool:
    """Whether an op is one of the waits at the end of its role."""
    role = place.role
    if role is None:
        return False
    held = role.body.ops
    index = place.parents[0][1] if place.parents else place.index
    return all(only_waits(op) for op in held[index:])


def _nothing_new(q: Question) -> str:
    observed = q.observations.of(q.op)
    if (
        not isinstance(q.op, _LEARNS)
        or observed.effects
        or not observed.runs
        or q.verb not in ("drop", "move", "pending", "stage", "phase")
    ):
        return ""
    if isinstance(q.op, ops.SyncWarp):
        return ALIGNED
    return (
        FIRST_PHASE
        if observed.phases and all(phase < 0 for *_, phase in observed.phases)
        else NOTHING_NEW
    )


def _stores(q: Question) -> str:
    if not isinstance(q.op, (ops.TmaStoreWait, ops.TmaStoreCommit)):
        return ""
    if isinstance(q.op, ops.TmaStoreWait) and q.mutant.operator == "wait kind":
        return STRONGER if q.op.read else END_OF_GRID
    return NO_GROUPS if q.verb == "move" and isinstance(q.mutant.passed, ops.Elect) else ""


def _elects(q: Question) -> str:
    if not isinstance(q.op, ops.Elect):
        return ""
    acting = [x for x in rewriting.everything(q.op) if x.acts]
    return (
        NO_GROUPS
        if all(isinstance(x, (ops.TmaStoreWait, ops.TmaStoreCommit, ops.TmaStore)) for x in acting)
        else ""
    )


def _numbers(q: Question) -> str:
    match q.mutant.operator, q.op:
        case "pending", _ if " -1:" in q.mutant.what:
            return STRONGER
        case "arrive order", ops.MbarArrive(sem="relaxed"):
            return PUBLISHES_MORE
        case "arrive order", ops.MbarArrive():
            return RETIRED
    return ""


def _tensor_memory(q: Question) -> str:
    if isinstance(q.op, ops.TmemRelinquish) and q.verb == "drop":
        return NO_ALLOCATION
    rest = q.mutant.place.block.ops[q.mutant.place.index + 1 :]
    after = next((x for op in rest for x in rewriting.everything(op) if x.acts), None)
    if (
        q.verb == "drop"
        and isinstance(q.op, ops.Tcgen05FenceAfter)
        and isinstance(after, ops.TmemDealloc)
    ):
        return DEALLOC
    hands_over = isinstance(after, ops.MbarArrive) and _freed_after(q.kernel, after.bar)
    return (
        DEALLOC
        if q.verb == "drop" and isinstance(q.op, ops.Tcgen05FenceBefore) and hands_over
        else ""
    )


def _dropped(q: Question) -> str:
    match q.mutant.operator, q.op:
        case ("drop syncwarp", _):
            return REJOIN
        case ("drop commit", ops.TmaStoreCommit()):
            return NEXT_COMMIT
    return ""


def _rings(q: Question) -> str:
    """Mutants of cursors, and of the barriers of an array."""
    match q.mutant.operator, q.op:
        case ("drop wait", ops.MbarWait(bar=bar)) if "order" in bar.array.name:
            return TURNS
        case ("stage", _):
            return NEIGHBOUR
        case ("mask", ops.MbarArrive(bar=bar) | ops.MbarExpect(bar=bar)) if (
            bar.cta is not None and bar.cta.vary == Vary.LANE
        ):
            return PERMUTED
        case ("mask", ops.MbarArrive(bar=bar)) if q.kernel.cta_group == 2 and _freed_after(
            q.kernel, bar
        ):
            return TOGETHER
        case (
            "cursor first phase" | "cursor stages",
            ops.CursorDefine(cursor=cursor),
        ) if not _waits_by(q.kernel, cursor):
            return NEVER_WAITS
        case (
            "drop step" | "duplicate step" | "cursor step" | "cursor stages" | "cursor first phase",
            _,
        ):
            return LAST_STEP
    return ""


def _waits_by(kernel: Kernel, cursor: Cursor) -> bool:
    """Whether any wait takes its phase from this cursor."""
    every = [place.op for place in rewriting.places(kernel)]
    phases = {op.phase for op in every if isinstance(op, ops.CursorRead) and op.cursor is cursor}
    return any(
        isinstance(op, (ops.MbarWait, ops.MbarTryWait)) and op.phase in phases for op in every
    )


def _freed_after(kernel: Kernel, bar: BarrierRef) -> bool:
    """Whether a wait for this barrier is the last one before tensor memory is freed."""
    for place in rewriting.places(kernel):
        if isinstance(place.op, ops.TmemDealloc):
            before = [op for op in place.block.ops[: place.index] if isinstance(op, ops.MbarWait)]
            if before and before[-1].bar.array is bar.array:
                return True
    return False


def _moved(q: Question) -> str:
    return (
        why_either_order(q.op, q.mutant.passed)
        if q.verb == "move" and q.mutant.passed is not None
        else ""
    )


_RULES: tuple[Callable[[Question], str], ...] = (
    _unreached,
    _advised,
    _unobserved,
    _twice,
    _drain,
    _nothing_new,
    _stores,
    _elects,
    _numbers,
    _tensor_memory,
    _dropped,
    _rings,
    _moved,
)
