"""The ops: every statement a program is made of.

A new op is one dataclass here (on fragments in `fragment_ops`, on tensor memory in `tmem_ops`,
beyond the cluster in `grid_ops`), one definition in `sim`, one in `cuda`, and a test that runs it
in both.

Execution scope is structural: an op inside `Elect` or `If(lane condition)` is executed by those
lanes only, and an arrive counts one for each of them. Every op carries `loc`, the line of the
user's kernel that caused it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir.expressions import Expr, Local, const
from tilepipe.ir.fragment_ops import FragmentAny as FragmentAny
from tilepipe.ir.fragment_ops import FragmentDefine as FragmentDefine
from tilepipe.ir.fragment_ops import FragmentLoad as FragmentLoad
from tilepipe.ir.fragment_ops import FragmentLoadGlobal as FragmentLoadGlobal
from tilepipe.ir.fragment_ops import FragmentReduce as FragmentReduce
from tilepipe.ir.fragment_ops import FragmentSet as FragmentSet
from tilepipe.ir.fragment_ops import FragmentStore as FragmentStore
from tilepipe.ir.fragment_ops import FragmentStoreGlobal as FragmentStoreGlobal
from tilepipe.ir.grid_ops import AtomicAdd as AtomicAdd
from tilepipe.ir.grid_ops import ClcQuery as ClcQuery
from tilepipe.ir.grid_ops import ClcTryCancel as ClcTryCancel
from tilepipe.ir.grid_ops import GridDependencyWait as GridDependencyWait
from tilepipe.ir.grid_ops import While as While
from tilepipe.ir.memory import (
    BarrierRef,
    Cursor,
    Element,
    Fragment,
    NamedBarrier,
    TensorParam,
    Tile,
    Variable,
)
from tilepipe.ir.op import Block as Block
from tilepipe.ir.op import Op as Op
from tilepipe.ir.tmem_ops import Tcgen05Commit as Tcgen05Commit
from tilepipe.ir.tmem_ops import Tcgen05FenceAfter as Tcgen05FenceAfter
from tilepipe.ir.tmem_ops import Tcgen05FenceBefore as Tcgen05FenceBefore
from tilepipe.ir.tmem_ops import Tcgen05Mma as Tcgen05Mma
from tilepipe.ir.tmem_ops import TmemAlloc as TmemAlloc
from tilepipe.ir.tmem_ops import TmemCopy as TmemCopy
from tilepipe.ir.tmem_ops import TmemDealloc as TmemDealloc
from tilepipe.ir.tmem_ops import TmemLoad as TmemLoad
from tilepipe.ir.tmem_ops import TmemRelinquish as TmemRelinquish
from tilepipe.ir.tmem_ops import TmemStore as TmemStore
from tilepipe.ir.tmem_ops import TmemWaitLoad as TmemWaitLoad
from tilepipe.ir.tmem_ops import TmemWaitStore as TmemWaitStore

# -- values ----------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Let(Op):
    """Binds `local` to the value of `expr` now."""

    local: Local
    expr: Expr


@dataclass(eq=False, slots=True)
class Define(Op):
    """Creates a variable with an initial value."""

    var: Variable
    init: Expr


@dataclass(eq=False, slots=True)
class Assign(Op):
    """Sets a variable."""

    var: Variable
    value: Expr


@dataclass(eq=False, slots=True)
class Read(Op):
    """Binds `local` to the present value of a variable."""

    local: Local
    var: Variable


@dataclass(eq=False, slots=True)
class CursorDefine(Op):
    """Creates a cursor at stage 0."""

    cursor: Cursor


@dataclass(eq=False, slots=True)
class CursorRead(Op):
    """Binds `stage` (int32) and `phase` (dtype `phase`) to where the cursor stands."""

    cursor: Cursor
    stage: Local
    phase: Local


@dataclass(eq=False, slots=True)
class CursorStep(Op):
    """Advances a cursor by `n` >= 0 (any size; the phase number grows by one at each wrap)."""

    cursor: Cursor
    n: Expr


# -- control ---------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class For(Op):
    """`for index in range(start, stop, step)`, step a positive value; the body may run no times."""

    index: Local
    start: Expr
    stop: Expr
    step: Expr
    body: Block


@dataclass(eq=False, slots=True)
class If(Op):
    """A branch. `cond.vary == LANE`: lanes that do not satisfy it are inactive in `then`, the
    others in `orelse`.
    """

    cond: Expr
    then: Block
    orelse: Block


@dataclass(eq=False, slots=True)
class Elect(Op):
    """Body executed by one lane: of each warp ("warp"), of the first warp of each warpgroup
    ("warpgroup"), of the role ("role").
    """

    scope: str
    body: Block


@dataclass(eq=False, slots=True)
class PerWarp(Op):
    """Body executed by each warp of the warpgroup on its own; `index` is the warp's number in it,
    0..3.
    """

    index: Local
    body: Block


# -- mbarriers -------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class MbarInit(Op):
    """mbarrier.init of `n` consecutive barriers from `bar` (one lane). `count` None: the array's
    derived count.
    """

    bar: BarrierRef
    count: Expr | None
    n: int = 1


@dataclass(eq=False, slots=True)
class MbarInval(Op):
    """mbarrier.inval (one lane)."""

    bar: BarrierRef


@dataclass(eq=False, slots=True)
class MbarArrive(Op):
    """mbarrier.arrive by every active lane, `count` each.

    `sem`: "release" publishes what the lane has done and seen. "relaxed" is printed as the plain
    form, which releases at the scope of the CTA: on a barrier of another CTA it publishes the
    retired asynchronous reads of its warpgroup, accesses of tensor memory that `Tcgen05FenceBefore`
    has covered, and reads of a response (`ClcQuery`) that a `FenceProxyAsync` has, and no other
    access. A release at cluster scope is a fence of the whole GPU (MEMBAR.ALL.GPU).
    """

    bar: BarrierRef
    count: Expr
    sem: str = "release"


@dataclass(eq=False, slots=True)
class MbarExpect(Op):
    """mbarrier.arrive.expect_tx: adds `nbytes` to the pending transaction and arrives once.
    `arrive=False`: expect_tx only. `sem`: as of `MbarArrive`.
    """

    bar: BarrierRef
    nbytes: Expr
    arrive: bool = True
    sem: str = "release"


@dataclass(eq=False, slots=True)
class MbarCompleteTx(Op):
    """Credits `nbytes` without a copy."""

    bar: BarrierRef
    nbytes: Expr


@dataclass(eq=False, slots=True)
class MbarWait(Op):
    """Blocks until phase `phase` is complete. dtype `phase`: a full number; an integer: a parity
    (only bit 0 counts).
    """

    bar: BarrierRef
    phase: Expr


@dataclass(eq=False, slots=True)
class MbarTryWait(Op):
    """Binds `result` (boolean, warp-uniform: tested by lane 0 and broadcast) to whether phase
    `phase` is complete; never blocks.
    """

    bar: BarrierRef
    phase: Expr
    result: Local


# -- other synchronisation -------------------------------------------------------------


@dataclass(eq=False, slots=True)
class NamedSync(Op):
    """bar.sync: arrives at the named barrier and waits for all its threads. `group`: which of its
    copies (per warpgroup).
    """

    bar: NamedBarrier
    group: Expr | None = None


@dataclass(eq=False, slots=True)
class NamedArrive(Op):
    """bar.arrive: arrives at the named barrier without waiting."""

    bar: NamedBarrier
    group: Expr | None = None


@dataclass(eq=False, slots=True)
class SyncWarp(Op):
    """__syncwarp: the active lanes of the warp converge and see each other's shared-memory
    accesses.
    """


@dataclass(eq=False, slots=True)
class SetupBarrier(Op):
    """End of set-up: mbarrier-init fence, then every thread of the CTA (or cluster) meets. Emitted
    by the library.
    """


@dataclass(eq=False, slots=True)
class ClusterArrive(Op):
    """barrier.cluster.arrive.release."""


@dataclass(eq=False, slots=True)
class ClusterWait(Op):
    """barrier.cluster.wait.acquire."""


@dataclass(eq=False, slots=True)
class FenceProxyAsync(Op):
    """fence.proxy.async: orders this thread's ordinary accesses, and those it knows of, before what
    the async proxy (TMA, wgmma, tcgen05) does behind it. `space`: a key of `PROXY_SPACES`, the
    memory whose accesses it orders.
    """

    space: str = "shared"


# Space -> the state spaces of the fences that are printed (PTX ISA, membar/fence: .proxykind).
# `.shared::cta` leaves out the shared memory of other CTAs. The form without a state space covers
# them all by the PTX ISA, but ptxas 13 makes FENCE.VIEW.ASYNC.S of it, that of shared memory, and
# no FENCE.VIEW.ASYNC.G; so the form for global memory stands beside it
# (tests/cuda/test_synchronisation.py).
PROXY_SPACES: dict[str, tuple[str, ...]] = {
    "shared": (".shared::cta",), "cluster": (".shared::cluster",), "global": (".global",), "all": ("", ".global"),
}  # fmt: skip


@dataclass(eq=False, slots=True)
class FenceBarrierInit(Op):
    """fence.mbarrier_init.release.cluster."""


@dataclass(eq=False, slots=True)
class LaunchDependents(Op):
    """griddepcontrol.launch_dependents: the next kernel of the stream may start its set-up where an
    SM has room, once every CTA of this one has come here or ended. It waits for the end of this
    kernel before it touches memory.
    """


# -- memory ----------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Load(Op):
    """Ordinary load of one element by every active lane."""

    result: Local
    src: Element


@dataclass(eq=False, slots=True)
class Store(Op):
    """Ordinary store of one element by every active lane."""

    dst: Element
    value: Expr


@dataclass(eq=False, slots=True)
class TmaLoad(Op):
    """cp.async.bulk.tensor global -> shared by one lane; out of bounds reads zero; credits the
    whole box to `bar` when it lands.

    `coords`: element coordinates of the box, outermost first, may be negative or beyond the tensor.
    `multicast`: a mask of CTA ranks; the box lands at the same offset in each, and each one's copy
    of `bar` is credited. A box wider than a swizzle panel is several copies.
    """

    tensor: TensorParam
    coords: tuple[Expr, ...]
    dst: Tile
    bar: BarrierRef
    multicast: Expr | None = None


@dataclass(eq=False, slots=True)
class TmaStore(Op):
    """cp.async.bulk.tensor shared -> global by one lane; out of bounds is clipped. Belongs to the
    thread's open bulk group. `rows`, of a ragged tensor: only the first so many rows of the tile
    are written, none below 1.
    """

    tensor: TensorParam
    coords: tuple[Expr, ...]
    src: Tile
    rows: Expr | None = None


@dataclass(eq=False, slots=True)
class TmaStoreCommit(Op):
    """cp.async.bulk.commit_group."""


@dataclass(eq=False, slots=True)
class TmaStoreWait(Op):
    """cp.async.bulk.wait_group[.read]: until at most `pending` of this thread's groups are still to
    finish (reading).
    """

    pending: int
    read: bool


# -- tensor cores ----------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class WgmmaFence(Op):
    """wgmma.fence: accesses to the registers of accumulators and A fragments are ordered before the
    wgmma that follow. One stands before the first of a warpgroup, and between any access by its
    threads and a wgmma that uses the same registers.
    """


@dataclass(eq=False, slots=True)
class Wgmma(Op):
    """acc += A · Bᵀ, or acc = A · Bᵀ where `accumulate` is false, asynchronously, by one warpgroup:
    acc (m, n) float32; A a tile (m, k) or a 16-bit fragment; B a tile (n, k). `ir.mma` has the
    types.

    `accumulate`: a boolean, the same in all threads of the warpgroup. Printed as m / 64 × k / (32
    bytes) instructions, of which the first along K takes it (wgmma's scale-d). Reads of A, B and
    the accumulator last until the group is waited for.
    """

    acc: Fragment
    a: Tile | Fragment
    b: Tile
    accumulate: Expr = field(default_factory=lambda: const(True))


@dataclass(eq=False, slots=True)
class WgmmaCommit(Op):
    """wgmma.commit_group."""


@dataclass(eq=False, slots=True)
class WgmmaWait(Op):
    """wgmma.wait_group: until at most `pending` groups of this warpgroup are unfinished."""

    pending: int


# -- debugging -------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Print(Op):
    """Prints a line: `format` with one `{}` for each argument."""

    format: str
    args: tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class Assert(Op):
    """Stops the kernel with `message` where `cond` does not hold."""

    cond: Expr
    message: str
