"""The ops by which the lanes of a warp learn of each other's values. None of them orders accesses
to memory.
"""

from dataclasses import replace
from typing import Annotated, Literal

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, WHOLE_WARP
from tilepipe.ir.ops.base import Op, declares
from tilepipe.ir.ops.copies import Reduction

VoteMode = Literal["any", "all", "ballot"]


@declares(replace(WHOLE_WARP, ptx="shfl.sync"))
class Shuffle(Op):
    """shfl.sync by whole warps: binds `result` to the `value`, of 32 bits, of another lane.

    `xor` false (.idx): of lane `lane`, modulo 32. `xor` true (.bfly): of the lane whose number is
    the lane's own xor `lane`, modulo 32.
    """

    result: Annotated[Local, BINDS]
    value: Annotated[Expr, READS]
    lane: Expr
    xor: bool


@declares(replace(WHOLE_WARP, ptx="vote.sync"))
class Vote(Op):
    """vote.sync by whole warps: binds `result` to whether the condition holds in any lane, or in
    all; or (`mode` "ballot") to a uint32 whose bit i is the condition of lane i.
    """

    result: Annotated[Local, BINDS]
    cond: Annotated[Expr, READS]
    mode: VoteMode


@declares(replace(WHOLE_WARP, ptx="redux.sync"))
class ReduceLanes(Op):
    """redux.sync by whole warps: binds `result` to the sum, or another combination by `op`, of the
    lanes' values: int32 or uint32; float32 for "min" and "max", which pass over NaN. redux.sync has
    float32 on sm_100a; elsewhere five shuffles compute the same.
    """

    result: Annotated[Local, BINDS]
    value: Annotated[Expr, READS]
    op: Reduction
