"""The ops by which the lanes of a warp exchange values."""

from dataclasses import dataclass
from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, Facts, Scope
from tilepipe.ir.ops.base import Op


@dataclass(eq=False, slots=True)
class Shuffle(Op):
    """shfl.sync by whole warps: binds `result` to the `value`, of 32 bits, of another lane.

    `xor` false (.idx): of lane `lane`, modulo 32. `xor` true (.bfly): of the lane whose number is
    the lane's own xor `lane`, modulo 32.
    """

    result: Annotated[Local, BINDS]
    value: Annotated[Expr, READS]
    lane: Expr
    xor: bool

    facts = Facts(ptx="shfl.sync", scope=Scope.WARP, together=Scope.WARP)
