"""The ops of Hopper's tensor cores."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir.expressions import Expr, const
from tilepipe.ir.memory import Fragment, Tile
from tilepipe.ir.ops.base import Op


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
