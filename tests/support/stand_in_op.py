"""An op that the library does not have, by which tests ask how a new one would be treated."""

from typing import Annotated

from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.ir.expressions import Local
from tilepipe.ir.facts import BINDS, Facts, Scope
from tilepipe.ir.ops import Op
from tilepipe.ir.ops.base import declares


@declares(Facts(ptx="vote.sync", scope=Scope.WARP, active_lanes=True))
class StandInVote(Op):
    """Binds `result` to the mask of the active lanes of the warp."""

    result: Annotated[Local, BINDS]


@emit.register
def _(op: StandInVote, ctx: Context) -> None:
    ctx.out(f"const u32 {ctx.bind(op.result)} = __ballot_sync({ctx.mask or '0xffffffff'}, true);")
