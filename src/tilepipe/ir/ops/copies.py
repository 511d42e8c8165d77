"""The copies by TMA, and the bulk groups of stores."""

from typing import Annotated, Literal

from tilepipe.ir.expressions import Expr
from tilepipe.ir.facts import (
    READS_ASYNC,
    UPDATES_ASYNC,
    WRITES_ASYNC,
    Facts,
    Group,
    Sync,
    Unit,
)
from tilepipe.ir.memory import (
    BarrierRef,
    TensorParam,
    Tile,
)
from tilepipe.ir.ops.base import Op, declares

Reduction = Literal["add", "min", "max", "and", "or", "xor"]
Eviction = Literal["evict_first", "evict_last"]


@declares(Facts(ptx="cp.async.bulk.tensor", unit=Unit.TMA))
class TmaLoad(Op):
    """cp.async.bulk.tensor global -> shared by one lane; out of bounds reads zero; credits the
    whole box to `bar` when it lands.

    `coords`: element coordinates of the box, outermost first, may be negative or beyond the tensor.
    `multicast`: a mask of CTA ranks; the box lands at the same offset in each, and each one's copy
    of `bar` is credited. A box wider than a swizzle panel is several copies. `lines`, of a ragged
    tensor: only the first so many rows of the box, columns of a column-major one, are read, none
    below 1; the others are zeros. `l2`: the eviction priority of createpolicy.
    """

    tensor: Annotated[TensorParam, READS_ASYNC]
    coords: tuple[Expr, ...]
    dst: Annotated[Tile, WRITES_ASYNC]
    bar: Annotated[BarrierRef, Sync.CREDIT]
    multicast: Expr | None = None
    lines: Expr | None = None
    l2: Eviction | None = None


@declares(Facts(ptx="cp.async.bulk.tensor", unit=Unit.TMA, issues=Group.BULK))
class TmaStore(Op):
    """cp.async.bulk.tensor shared -> global by one lane; out of bounds is clipped. Belongs to the
    thread's open bulk group. `rows`, of a ragged tensor: only the first so many rows of the tile
    are written, none below 1.
    """

    tensor: Annotated[TensorParam, WRITES_ASYNC]
    coords: tuple[Expr, ...]
    src: Annotated[Tile, READS_ASYNC]
    rows: Expr | None = None


@declares(Facts(ptx="cp.reduce.async.bulk.tensor", unit=Unit.TMA, issues=Group.BULK))
class TmaReduce(Op):
    """cp.reduce.async.bulk.tensor shared -> global by one lane: each element of the box becomes
    what `operation` makes of it and of that of the tile, atomically. Otherwise as `TmaStore`.
    """

    tensor: Annotated[TensorParam, UPDATES_ASYNC]
    coords: tuple[Expr, ...]
    src: Annotated[Tile, READS_ASYNC]
    operation: Reduction
    rows: Expr | None = None

    @property
    def name(self) -> str:
        """`tma_reduce_add`."""
        return f"{self.kind}_{self.operation}"


@declares(Facts(ptx="cp.async.bulk.commit_group", commits=Group.BULK))
class TmaStoreCommit(Op):
    """cp.async.bulk.commit_group."""


@declares(Facts(ptx="cp.async.bulk.wait_group", awaits=Group.BULK))
class TmaStoreWait(Op):
    """cp.async.bulk.wait_group[.read]: until at most `pending` of this thread's groups are still to
    finish (reading).
    """

    pending: int
    read: bool
