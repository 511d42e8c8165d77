"""Which threads of a role execute the present block together, and which ops need all of them.

A branch whose condition varies, an elected lane and per-warp code split a role. Ops that hardware
defines for whole warps or warpgroups (wgmma, stmatrix, fragments in registers, named barriers,
cluster barriers) must not stand where their threads are split: the GPU would hang or corrupt
registers.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.expressions import Vary
from tilepipe.ir.location import caller
from tilepipe.ir.program import Role
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer


def divergence(tracer: Tracer, up_to: Scope | None = None) -> tuple[Vary, Scope | None]:
    """How the threads that execute this block diverge (by lane, by warp, or not), and the block
    that splits them, inside `up_to` (the role unless given).

    In a role of plain warps each warp runs on its own, so what varies by warp splits nothing.
    """
    role = tracer.role.role
    worst: Vary = Vary.UNIFORM
    cause: Scope | None = None
    for scope in tracer.scope.outward:
        if scope is up_to:
            break
        split = scope.splits
        if split is Vary.WARP and not role.is_warpgroup:
            split = Vary.UNIFORM
        if split > worst:
            worst, cause = split, scope
    return worst, cause


def require_warpgroup(tracer: Tracer, what: str) -> None:
    """Raises TraceError unless all 128 threads of a warpgroup execute this block together."""
    role = tracer.role.role
    if not role.is_warpgroup:
        raise TraceError(
            f"{what} needs a role of warpgroups (warpgroups=); '{role.name}' is one of warps",
            caller(),
        )
    _require(tracer, what, "all 128 threads of a warpgroup", None)


def require_fragment(tracer: Tracer, what: str) -> None:
    """Raises TraceError unless a warpgroup, or under per_warp a warp, executes this block
    together.
    """
    _require(
        tracer,
        what,
        "all threads of the warpgroup (of the warp, under per_warp)",
        tracer.scope.inside("per_warp"),
    )


def agent_vary(tracer: Tracer) -> Vary:
    """How far a scalar may vary that is the same in the whole warpgroup, or, in a role of warps, in
    the warp.
    """
    return Vary.UNIFORM if tracer.role.role.is_warpgroup else Vary.WARP


def require_role(tracer: Tracer, what: str) -> None:
    """Raises TraceError unless all threads of the role execute this block."""
    _require(tracer, what, "all threads of the role", None)


def require_whole_warps(tracer: Tracer, what: str) -> None:
    """Raises TraceError unless each warp executes this block with all its lanes, or not at all."""
    _require(tracer, what, "all lanes of a warp", None, Vary.WARP)


def _require(
    tracer: Tracer, what: str, whom: str, up_to: Scope | None, allowed: Vary = Vary.UNIFORM
) -> None:
    split, cause = divergence(tracer, up_to)
    if split > allowed and cause is not None:
        raise TraceError(
            f"{what} is executed by {whom} together, but the {cause.kind} block at"
            f" {cause.loc.short} lets only some of them reach it. Move it out of that block.",
            caller(),
        )


def require_whole_warpgroup_waits(tracer: Tracer, what: str) -> None:
    """Raises TraceError where only some warps of a warpgroup would wait or step.

    The warps of a warpgroup role share their place in every ring, and are simulated together; warps
    that wait apart belong in a role of warps.
    """
    role = tracer.role.role
    for scope in tracer.scope.outward if role.is_warpgroup else ():
        # a warp that need not wait has acquired
        if scope.splits is Vary.WARP and not (scope.on_test and what == "a wait"):
            raise TraceError(
                f"{what} under the {scope.kind} block at {scope.loc.short}: the warps of warpgroup"
                f" role '{role.name}' share their place in a ring and wait together. Give warps"
                " that wait apart a role of their own (`warps=`).",
                caller(),
            )


def is_one_lane(tracer: Tracer) -> bool:
    """True if one lane executes the present block: of the role, of each warpgroup, or, under
    per_warp, of each warp.
    """
    scope = tracer.scope
    role = tracer.role.role
    if scope.active is not None:
        per_agent = scope.active.sum(axis=2).max()
        per_cta = scope.active.sum(axis=(1, 2)).max()
        if scope.inside("per_warp") is not None:
            return bool(per_agent <= 4 and scope.inside("elect") is not None)
        return bool(per_agent <= 1 if role.is_warpgroup else per_cta <= 1)
    return scope.inside("elect") is not None


def require_one_lane(tracer: Tracer, what: str, more: str = "") -> None:
    """Raises TraceError unless one lane executes the present block: of the role, of each warpgroup,
    or, under per_warp, of each warp. `more`: what else to say.
    """
    if is_one_lane(tracer):
        return
    role = tracer.role.role
    elected = tracer.scope.inside("elect")
    if elected is not None and tracer.scope.active is not None:
        lanes = int(tracer.scope.active.sum(axis=(1, 2)).max())
        who = (
            f"the elect_one block at {elected.loc.short} elects one of each of {lanes} warps of"
            f" role '{role.name}'. Elect one of them all"
        )
    else:
        who = f"here every active lane of role '{role.name}' would. Put it"
    elect = "ctx.elect_one()" if role.warps == 1 else 'ctx.elect_one("role")'
    each = "" if role.warps == 1 else _each_warpgroup(role)
    raise TraceError(
        f"{what} must be executed by one lane, but {who} under `with {elect}:`{each}.{more}",
        caller(),
    )


def _each_warpgroup(role: Role) -> str:
    """The other way to elect one lane, where a role has one in each warpgroup."""
    if not role.is_warpgroup:
        return ""
    if role.agents == 1:
        return ' or `with ctx.elect_one("warpgroup"):`'
    return (
        ', or under `with ctx.elect_one("warpgroup"):` with coordinates that depend on'
        " ctx.warpgroup_rank"
    )
