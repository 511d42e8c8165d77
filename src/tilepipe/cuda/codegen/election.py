"""Conditions that hold in one lane of a warp, of a warpgroup or of a role."""

from __future__ import annotations

from tilepipe.cuda.codegen.context import Context
from tilepipe.ir import ops

# scope -> the warp of it whose lane is elected
_FIRST = {"role": "warp", "warpgroup": "warp_in_group"}
# scope -> the name of a lane elected at the top of a function
NAMES = {
    "warp": "elected",
    "warpgroup": "elected_of_warpgroup",
    "role": "elected_of_role",
}


def declarations(ctx: Context) -> dict[str, str]:
    """The values of those of `NAMES` that a function reads, by name."""
    return {name: _condition(ctx, scope) for scope, name in NAMES.items() if name in ctx.specials}


def condition(ctx: Context, op: ops.Elect) -> str:
    """What holds in the lane that is to execute the body of `op`.

    For a body that only arrives on barriers, the lane is elected at the top of the function, so
    that a predicate guards each arrive. With elect.sync in place ptxas branches around the arrive
    and schedules nothing across the branch: the softmax of attention, after the release of its
    keys, takes 1 to 4 % longer on an H100.
    """
    only_arrives = op.body.ops and all(isinstance(x, ops.MbarArrive) for x in op.body.ops)
    if not only_arrives or ctx.role is None or ctx.mask is not None:
        return _condition(ctx, op.scope)
    return ctx.special(NAMES[op.scope])


def first_warp(ctx: Context, scope: str) -> str | None:
    """A special value that is 0 in the warp of the elected lane; None where the scope has one
    warp.
    """
    warps = ctx.role.warps if ctx.role is not None else ctx.kernel.warps
    return ctx.special(_FIRST[scope]) if scope in _FIRST and warps > 1 else None


def _condition(ctx: Context, scope: str) -> str:
    lane = f"{ctx.use('elect_of')}({ctx.mask})" if ctx.mask else f"{ctx.use('elect_one')}()"
    first = first_warp(ctx, scope)
    return lane if first is None else f"{first} == 0 && {lane}"
