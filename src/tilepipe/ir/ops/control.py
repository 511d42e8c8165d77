"""The ops that hold blocks: loops, branches, and who executes a block."""

from typing import Annotated

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, Control, Facts
from tilepipe.ir.memory import (
    Variable,
)
from tilepipe.ir.ops.base import Block, Op, declares


@declares(Facts(control=Control.LOOP))
class For(Op):
    """`for index in range(start, stop, step)`, step a positive value; the body may run no times.

    `unroll`: iterations that the compiler writes one after the other. It says nothing of what they
    do.
    """

    index: Annotated[Local, BINDS]
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    unroll: int = 1


@declares(Facts(control=Control.LOOP))
class While(Op):
    """`while var:`, a boolean variable that all threads of the agent agree on; tested before each
    iteration.
    """

    var: Annotated[Variable, READS]
    body: Block


@declares(Facts(control=Control.BRANCH))
class If(Op):
    """A branch. `cond.vary == LANE`: lanes that do not satisfy it are inactive in `then`, the
    others in `orelse`.
    """

    cond: Expr
    then: Block
    orelse: Block


@declares(Facts(ptx="elect.sync", active_lanes=True, control=Control.LANES))
class Elect(Op):
    """Body executed by one lane: of each warp ("warp"), of the first warp of each warpgroup
    ("warpgroup"), of the role ("role").
    """

    scope: str
    body: Block


@declares(Facts(control=Control.WARPS, by_warp=True))
class PerWarp(Op):
    """Body executed by each warp of the warpgroup on its own; `index` is the warp's number in it,
    0..3.
    """

    index: Annotated[Local, BINDS]
    body: Block
