"""Where the last stamp of a warp is as late as the present: reading the clock again would take more
time than has passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.cuda.codegen.context import Context
from tilepipe.ir import ops
from tilepipe.ir.facts import Group, Unit
from tilepipe.ir.implied import quick
from tilepipe.ir.stamps import is_noted, waits

LOOPS = (ops.For, ops.While)


def follows_a_stamp(ctx: Context, op: ops.Op) -> bool:
    """True if, on each way to the present position, a stamp has been made and nothing since then
    takes time. What closes a group needs no time of its own.
    """
    if op.facts.commits in (Group.BULK, Group.WGMMA):
        return True
    blocks = [*ctx.enclosing[1:], (ctx.block, ctx.position)]
    return _before(blocks)


def _before(blocks: Sequence[tuple[ops.Block, int]]) -> bool:
    """The same of a position. `blocks`: those around it and the positions there, outermost first;
    in a role's body, the innermost one last.
    """
    if not blocks:
        return False
    block, position = blocks[-1]
    found = _scanned(block.ops[:position])
    if found is not None:
        return found
    if len(blocks) == 1:  # the begin of the role
        return False
    holder = blocks[-2][0].ops[blocks[-2][1]]
    if isinstance(holder, LOOPS):  # the clock is read before a loop; and what does its end say?
        return _scanned(block.ops[position:]) is True
    return _before(blocks[:-1])


def _scanned(before: Sequence[ops.Op]) -> bool | None:
    """Whether the last that matters of these ops is a stamp; None: none of them matters."""
    for op in reversed(before):
        if isinstance(op, ops.MbarWait) or op.facts.commits is not None:
            continue  # it takes time only if it blocks, and is noted then; it takes none
        if is_noted(op):
            # issuing MMAs may block, after the stamp
            return waits(op) or op.facts.unit is not Unit.TENSOR_CORE
        if quick(op):
            continue
        return False
    return None
