"""Why a mutant that exploration verifies is as good as the kernel: rules, in the order in which
they are tried.

The proof is the exploration; a rule only says in a sentence what makes it so. One that rests on
what a run showed looks at `Facts`. A mutant that no rule explains is a question: either a rule is
missing here, or the simulated machine lets something pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilepipe.check.mutation import surgery
from tilepipe.check.mutation.facts import Facts
from tilepipe.check.mutation.mutants import SUBJECTS, Mutant, signals
from tilepipe.check.mutation.pairs import why_either_order
from tilepipe.check.mutation.surgery import Place
from tilepipe.ir import ops
from tilepipe.ir.expressions import Vary
from tilepipe.ir.memory import BarrierRef, Cursor
from tilepipe.ir.program import Kernel

_LEARNS = (
    ops.MbarWait, ops.TmaStoreWait, ops.WgmmaWait, ops.TmemWaitLoad, ops.TmemWaitStore, ops.ClusterWait, ops.NamedSync, ops.SyncWarp,
    ops.FenceProxyAsync, ops.WgmmaFence, ops.Tcgen05FenceBefore, ops.Tcgen05FenceAfter,
)  # fmt: skip
_TWICE: dict[type[ops.Op], str] = {
    ops.MbarWait: "the second of two waits for one phase finds it complete and learns nothing",
    ops.TmaStoreWait: "the second of two waits for one thread's store groups finds them done",
    ops.WgmmaWait: "the second of two waits for the warpgroup's MMAs finds them done",
    ops.TmemWaitLoad: "the second of two waits for the warp's loads from tensor memory finds them done",
    ops.TmemWaitStore: "the second of two waits for the warp's stores to tensor memory finds them done",
    ops.ClusterWait: "the second wait finds the cluster barrier complete",
    ops.NamedSync: "the same threads meet again at once: the second meeting has nothing to order",
    ops.SyncWarp: "the lanes have just converged",
    ops.FenceProxyAsync: "the second of two fences finds every access fenced",
    ops.WgmmaFence: "the second of two fences finds all registers fenced",
    ops.Tcgen05FenceBefore: "the second of two fences finds every access fenced",
    ops.Tcgen05FenceAfter: "the second of two fences finds nothing new to receive",
    ops.FenceBarrierInit: "the second of two fences finds every initialisation fenced",
    ops.WgmmaCommit: "the second commit closes an empty group, which is done at once",
    ops.TmaStoreCommit: "the second commit closes an empty group, which is done at once",
    ops.TmemRelinquish: "the right to allocate, once given up, stays so",
    ops.GridDependencyWait: "the kernels before this one have ended already",
}
UNREACHED = "not reached: no instance of this family comes to this op"
ADVISED = 'ordered by a fence on the reader\'s side instead, which is accepted with advice (a fault with rules="strict")'
UNOBSERVED = (
    "nobody waits for the phases that it counts in: the ring is not used again before the CTA ends"
)
FIRST_PHASE = "it only ever waits for the phase before the first, which is complete from the beginning: the ring goes round once at most"
NOTHING_NEW = "all that it orders is ordered already: in no run did its threads learn anything from it, nor was anything left to be fenced"
ALONE = "a drain matters to peers only: every arrival on these barriers is made by the CTA itself, which ends with the last of its warps"
COVERED = "what the last turns of this drain would learn, the CTA learns otherwise before it ends: by waits for later commits"
LAST_STEP = "the cursor is not used again, or only by waits that pass at once"
NEVER_WAITS = "the role never waits by this cursor: it only tells where to arrive"
STRONGER = "it waits for more than it must: later, but for nothing that could not come"
END_OF_GRID = "what a grid wrote is visible when it has ended; before a CTA ends, its stores need only have read shared memory"
READ_BEFORE = "the wait inside the loop has already seen every store read shared memory"
NO_GROUPS = "the other lanes have no store groups: for them the op does nothing"
NO_ALLOCATION = "giving up the right to allocate lets another CTA of the SM allocate sooner; this CTA allocates no more"
ALIGNED = "the whole warp executes the op before it as one, and sees what that wrote"
RETIRED = "all that it hands over are reads of MMAs that have been waited for, or fenced accesses of tensor memory: relaxed does"
PUBLISHES_MORE = "release publishes more than relaxed does"
DEALLOC = "freeing tensor memory takes the barrier and no fence"
TURNS = "these turns are for speed: what the roles do on either side of the wait touches nothing in common"
REJOIN = "it brings lanes together again; what they did apart is nobody's business before they meet at another barrier"
NEXT_COMMIT = (
    "the stores go into the group that the thread's next commit closes, and are waited for with it"
)
PERMUTED = "each lane names another CTA than before, and all of them are named as before"
TOGETHER = (
    "the two CTAs of a pair free their tensor memory together, when each has waited for its own"
)
NEIGHBOUR = "whoever waits for this barrier waits for its neighbour in turn: what one tells a step too early or late, the other makes good"


@dataclass(frozen=True)
class Question:
    """A survivor, and what is known of it."""

    mutant: Mutant
    kernel: Kernel
    facts: Facts
    advised: bool

    @property
    def op(self) -> ops.Op:
        return self.mutant.place.op

    @property
    def verb(self) -> str:
        return self.mutant.operator.split(" ", 1)[0]


def explain(mutant: Mutant, kernel: Kernel, facts: Facts, advised: bool = False) -> str:
    """The reason in a sentence; "" where no rule has one.

    Args:
        kernel: the one that it is a mutant of, and facts: those of the kernel's instances.
        advised: verified, but with advice that the kernel does not get.
    """
    question = Question(mutant, kernel, facts, advised)
    return next((reason for rule in _RULES if (reason := rule(question))), "")


def _unreached(q: Question) -> str:
    near = (
        [x for op in q.mutant.place.block.ops for x in surgery.everything(op)]
        if not _performs(q.op)
        else [q.op]
    )
    seen = [q.facts.of(x).runs for x in near if _performs(x)]
    return UNREACHED if seen and not any(seen) else ""


def _performs(op: ops.Op) -> bool:
    return not isinstance(op, (*surgery.VALUES, *surgery.CONTROL))


def _advised(q: Question) -> str:
    return ADVISED if q.advised else ""


def _unobserved(q: Question) -> str:
    if q.mutant.operator == "drop release" and isinstance(q.op, ops.CursorStep):
        arrivals = [place.op for place in signals(q.kernel, q.mutant.place, q.op.cursor)]
    else:
        arrivals = [
            x
            for x in surgery.everything(q.op)
            if isinstance(x, (ops.MbarArrive, ops.Tcgen05Commit))
        ]
    heard = any(q.facts.awaited(x) for x in arrivals)
    return UNOBSERVED if arrivals and not heard and q.mutant.operator != "arrive order" else ""


def _twice(q: Question) -> str:
    return _TWICE.get(type(q.op), "") if q.verb == "duplicate" else ""


def _drain(q: Question) -> str:
    if not in_drain(q.mutant.place):
        return ""
    inside = [x for x in surgery.everything(q.op) if _performs(x)]
    if any(isinstance(x, ops.TmaStoreWait) for x in inside):
        return READ_BEFORE if q.verb in ("drop", "pending") else ""
    return ALONE if q.kernel.cluster_size == 1 else COVERED


def in_drain(place: Place) -> bool:
    """Whether an op stands among the waits at the end of its role."""
    role = place.role
    if role is None:
        return False
    held = role.body.ops
    index = place.parents[0][1] if place.parents else place.index
    return all(_waits(op) for op in held[index:])


def _waits(op: ops.Op) -> bool:
    return all(
        isinstance(x, (*surgery.VALUES, *surgery.CONTROL)) or SUBJECTS.get(type(x)) == "wait"
        for x in surgery.everything(op)
    )


def _nothing_new(q: Question) -> str:
    fact = q.facts.of(q.op)
    if (
        not isinstance(q.op, _LEARNS)
        or fact.effects
        or not fact.runs
        or q.verb not in ("drop", "move", "pending", "stage", "phase")
    ):
        return ""
    if isinstance(q.op, ops.SyncWarp):
        return ALIGNED
    return (
        FIRST_PHASE if fact.phases and all(phase < 0 for *_, phase in fact.phases) else NOTHING_NEW
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
    acting = [x for x in surgery.everything(q.op) if _performs(x)]
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
    after = next((x for op in rest for x in surgery.everything(op) if _performs(x)), None)
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
    """Cursors, and barriers of an array."""
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
        case ("cursor first phase" | "cursor stages", ops.CursorDefine(cursor=cursor)) if (
            not _waits_by(q.kernel, cursor)
        ):
            return NEVER_WAITS
        case (
            "drop step" | "duplicate step" | "cursor step" | "cursor stages" | "cursor first phase",
            _,
        ):
            return LAST_STEP
    return ""


def _waits_by(kernel: Kernel, cursor: Cursor) -> bool:
    """Whether a wait is for a phase that this cursor gives."""
    every = [place.op for place in surgery.places(kernel)]
    phases = {op.phase for op in every if isinstance(op, ops.CursorRead) and op.cursor is cursor}
    return any(
        isinstance(op, (ops.MbarWait, ops.MbarTryWait)) and op.phase in phases for op in every
    )


def _freed_after(kernel: Kernel, bar: BarrierRef) -> bool:
    """Whether a wait for this barrier is the last before tensor memory is freed."""
    for place in surgery.places(kernel):
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
    _unreached, _advised, _unobserved, _twice, _drain, _nothing_new, _stores, _elects, _numbers, _tensor_memory, _dropped, _rings,
    _moved,
)  # fmt: skip
