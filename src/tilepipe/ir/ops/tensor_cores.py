"""The ops of tensor cores: wgmma on Hopper; tensor memory, tcgen05.mma, copies and commits on
Blackwell.

tcgen05.alloc, relinquish and dealloc are executed by one whole warp; loads, stores and their waits
by whole warps, of which warp w of a warpgroup reaches lanes 32 w to 32 w + 31 of tensor memory;
mma, copies and commits by one thread. All but the waits, the fences and the allocation are
asynchronous (PTX ISA, "TensorCore 5th Generation Instructions"). The mma and copies of one thread
are executed in the order of issue (the PTX ISA lists copies before mma, and mma of one accumulator;
a copy over scale factors that an mma before it reads is not in its list, but kernels in the field
rely on it), and `Tcgen05Commit` signals that all of them so far are done. `TmemWaitLoad` and
`TmemWaitStore` wait for a warp's own loads and stores. Between threads, these ops are ordered by a
barrier after a `Tcgen05FenceBefore` and before a `Tcgen05FenceAfter`; the arrival of a commit needs
no fence before it.
"""

from dataclasses import field, replace
from typing import Annotated

from tilepipe.ir.expressions import Expr, const
from tilepipe.ir.facts import (
    READS,
    READS_ASYNC,
    UPDATES_ASYNC,
    WHOLE_WARP,
    WHOLE_WARPGROUP,
    WRITES,
    WRITES_ASYNC,
    Facts,
    Feature,
    Group,
    Order,
    Resource,
    Sync,
    Unit,
)
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import BarrierRef, Tile, Tmem, TmemScales
from tilepipe.ir.ops.base import Op, declares

_WGMMA = replace(WHOLE_WARPGROUP, feature=Feature.WGMMA)
_TENSOR_MEMORY = replace(WHOLE_WARP, feature=Feature.TENSOR_MEMORY)
_FENCE = Facts(ptx="tcgen05.fence", orders=Order.TENSOR_MEMORY, feature=Feature.TCGEN05)


@declares(replace(_WGMMA, ptx="wgmma.fence", orders=Order.REGISTERS))
class WgmmaFence(Op):
    """wgmma.fence: accesses to the registers of accumulators and A fragments are ordered before the
    wgmma that follow. One stands before the first of a warpgroup, and between any access by its
    threads and a wgmma that uses the same registers.
    """


@declares(replace(_WGMMA, ptx="wgmma.mma_async", unit=Unit.TENSOR_CORE, issues=Group.WGMMA))
class Wgmma(Op):
    """acc += A · Bᵀ, or acc = A · Bᵀ where `accumulate` is false, asynchronously, by one warpgroup:
    acc (m, n) float32; A a tile (m, k) or a 16-bit fragment; B a tile (n, k).
    `ir.hardware.mma` has the types.

    `accumulate`: a boolean, the same in all threads of the warpgroup. Printed as m / 64 × k / (32
    bytes) instructions, of which the first along K takes it (wgmma's scale-d). Reads of A, B and
    the accumulator last until the group is waited for.
    """

    acc: Annotated[Fragment, UPDATES_ASYNC]
    a: Annotated[Tile | Fragment, READS_ASYNC]
    b: Annotated[Tile, READS_ASYNC]
    accumulate: Expr = field(default_factory=lambda: const(True))


@declares(replace(_WGMMA, ptx="wgmma.commit_group", commits=Group.WGMMA))
class WgmmaCommit(Op):
    """wgmma.commit_group."""


@declares(replace(_WGMMA, ptx="wgmma.wait_group", awaits=Group.WGMMA))
class WgmmaWait(Op):
    """wgmma.wait_group: until at most `pending` groups of this warpgroup are unfinished."""

    pending: int


@declares(replace(_TENSOR_MEMORY, ptx="tcgen05.alloc", takes=Resource.TENSOR_MEMORY))
class TmemAlloc(Op):
    """tcgen05.alloc: reserves `columns` columns (a power of two, 32..512) and writes their address
    to `dst`, one uint32 of shared memory. Blocks while there is no room. `cta_group` 2: in both
    CTAs of the pair, by a warp of each.
    """

    dst: Annotated[Tile, WRITES]
    columns: int
    cta_group: int


@declares(
    replace(
        _TENSOR_MEMORY,
        ptx="tcgen05.relinquish_alloc_permit",
        gives=Resource.TENSOR_MEMORY,
    )
)
class TmemRelinquish(Op):
    """tcgen05.relinquish_alloc_permit: this CTA allocates no more."""

    cta_group: int


@declares(replace(_TENSOR_MEMORY, ptx="tcgen05.dealloc", gives=Resource.TENSOR_MEMORY))
class TmemDealloc(Op):
    """tcgen05.dealloc of the `columns` columns that an alloc gave at `address`."""

    address: Expr
    columns: int
    cta_group: int


@declares(
    replace(
        _TENSOR_MEMORY,
        ptx="tcgen05.ld",
        unit=Unit.TENSOR_MEMORY,
        issues=Group.TMEM_LOADS,
        by_warp=True,
    )
)
class TmemLoad(Op):
    """tcgen05.ld: fragment := a matrix of the same extent in tensor memory, whose registers may be
    read after `TmemWaitLoad`. A fragment of 128 rows has layout "tmem".
    """

    dst: Annotated[Fragment, WRITES_ASYNC]
    src: Annotated[Tmem, READS_ASYNC]


@declares(
    replace(
        _TENSOR_MEMORY,
        ptx="tcgen05.st",
        unit=Unit.TENSOR_MEMORY,
        issues=Group.TMEM_STORES,
        by_warp=True,
    )
)
class TmemStore(Op):
    """tcgen05.st: a matrix in tensor memory := a fragment-shaped value of its extent, in its
    dtype.
    """

    dst: Annotated[Tmem, WRITES_ASYNC]
    value: Annotated[Expr, READS]


@declares(replace(_TENSOR_MEMORY, ptx="tcgen05.wait", awaits=Group.TMEM_LOADS))
class TmemWaitLoad(Op):
    """tcgen05.wait::ld: the warp's loads are done."""


@declares(replace(_TENSOR_MEMORY, ptx="tcgen05.wait", awaits=Group.TMEM_STORES))
class TmemWaitStore(Op):
    """tcgen05.wait::st: the warp's stores are done."""


@declares(
    Facts(
        ptx="tcgen05.cp", unit=Unit.TENSOR_CORE, issues=Group.TCGEN05, feature=Feature.TENSOR_MEMORY
    )
)
class TmemCopy(Op):
    """tcgen05.cp: a matrix in tensor memory := an unswizzled shared tile of as many bytes a row, by
    one thread.

    A tile of 128 rows goes row r to lane r. One of 32 rows goes to all four groups of 32 lanes
    (.warpx4). So do the 512-byte pieces of scale factors, 32 rows of 16 bytes each, whatever rows
    the tile has: `ir.hardware.tensor_memory.pieces` says which goes where.
    """

    dst: Annotated[Tmem | TmemScales, WRITES_ASYNC]
    src: Annotated[Tile, READS_ASYNC]
    cta_group: int


@declares(
    Facts(ptx="tcgen05.mma", unit=Unit.TENSOR_CORE, issues=Group.TCGEN05, feature=Feature.TCGEN05)
)
class Tcgen05Mma(Op):
    """acc += A · Bᵀ, or acc = A · Bᵀ where `accumulate` is false, asynchronously, by one thread:
    acc (m, n) float32 in tensor memory; A a tile (m, k), or (m, k) in tensor memory; B a tile (n,
    k). `ir.hardware.mma` has shapes and types.

    `cta_group` 2: the leader (even CTA) of a pair issues it for both. `acc`, A and B name the same
    place in either CTA: CTA i of the pair holds rows [i m, (i + 1) m) of A and of the accumulator,
    and rows [i n / 2, (i + 1) n / 2) of B, so that the tile B has n / 2 rows. Printed as k / (32
    bytes) instructions, of which the first along K takes `accumulate`.

    `sfa` and `sfb`, both or neither: .block_scale, acc += (A · sfa) (B · sfb)ᵀ with a scale factor
    for each row and block of K (`ir.hardware.block_scales`). A pair reads those of each CTA's 128
    rows of A in its own tensor memory, and those of all n rows of B in both.
    """

    acc: Annotated[Tmem, UPDATES_ASYNC]
    a: Annotated[Tile | Tmem, READS_ASYNC]
    b: Annotated[Tile, READS_ASYNC]
    accumulate: Expr
    cta_group: int
    sfa: Annotated[TmemScales | None, READS_ASYNC] = None
    sfb: Annotated[TmemScales | None, READS_ASYNC] = None


@declares(
    Facts(
        ptx="tcgen05.commit",
        unit=Unit.TENSOR_CORE,
        commits=Group.TCGEN05,
        feature=Feature.TCGEN05,
    )
)
class Tcgen05Commit(Op):
    """tcgen05.commit: one arrival on `bar`, of each CTA in `mask` where there is one, when all mma
    and copies issued by this thread have finished; implies `Tcgen05FenceBefore`.
    """

    bar: Annotated[BarrierRef, Sync.ARRIVE]
    cta_group: int
    mask: Expr | None = None


@declares(_FENCE)
class Tcgen05FenceBefore(Op):
    """tcgen05.fence::before_thread_sync: this thread's tcgen05 ops are ordered before what follows
    the next synchronisation.
    """


@declares(_FENCE)
class Tcgen05FenceAfter(Op):
    """tcgen05.fence::after_thread_sync: this thread's later tcgen05 ops are ordered after what
    preceded the last synchronisation.
    """
