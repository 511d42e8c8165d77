"""The ops of Hopper's tensor cores."""

from dataclasses import dataclass, field
from typing import Annotated

from tilepipe.ir.expressions import Expr, const
from tilepipe.ir.facts import (
    READS_ASYNC,
    UPDATES_ASYNC,
    Facts,
    Feature,
    Group,
    Order,
    Scope,
    Unit,
)
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tile
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class WgmmaFence(Op):
    """wgmma.fence: accesses to the registers of accumulators and A fragments are ordered before the
    wgmma that follow. One stands before the first of a warpgroup, and between any access by its
    threads and a wgmma that uses the same registers.
    """

    facts = Facts(
        ptx="wgmma.fence",
        scope=Scope.WARPGROUP,
        together=Scope.WARPGROUP,
        orders=Order.REGISTERS,
        feature=Feature.WGMMA,
    )


@dataclass(eq=False, slots=True)
class Wgmma(Op):
    """acc += A · Bᵀ, or acc = A · Bᵀ where `accumulate` is false, asynchronously, by one warpgroup:
    acc (m, n) float32; A a tile (m, k) or a 16-bit fragment; B a tile (n, k). `ir.mma` has the
    types.

    `accumulate`: a boolean, the same in all threads of the warpgroup. Printed as m / 64 × k / (32
    bytes) instructions, of which the first along K takes it (wgmma's scale-d). Reads of A, B and
    the accumulator last until the group is waited for.
    """

    acc: Annotated[Fragment, UPDATES_ASYNC]
    a: Annotated[Tile | Fragment, READS_ASYNC]
    b: Annotated[Tile, READS_ASYNC]
    accumulate: Expr = field(default_factory=lambda: const(True))

    facts = Facts(
        ptx="wgmma.mma_async",
        scope=Scope.WARPGROUP,
        together=Scope.WARPGROUP,
        unit=Unit.TENSOR_CORE,
        issues=Group.WGMMA,
        feature=Feature.WGMMA,
    )


@dataclass(eq=False, slots=True)
class WgmmaCommit(Op):
    """wgmma.commit_group."""

    facts = Facts(
        ptx="wgmma.commit_group",
        scope=Scope.WARPGROUP,
        together=Scope.WARPGROUP,
        commits=Group.WGMMA,
        feature=Feature.WGMMA,
    )


@dataclass(eq=False, slots=True)
class WgmmaWait(Op):
    """wgmma.wait_group: until at most `pending` groups of this warpgroup are unfinished."""

    pending: int

    facts = Facts(
        ptx="wgmma.wait_group",
        scope=Scope.WARPGROUP,
        together=Scope.WARPGROUP,
        awaits=Group.WGMMA,
        feature=Feature.WGMMA,
    )
