"""Faults between the warps of one agent.

The machine performs the warps of a warpgroup together. On hardware, a warp runs ahead of the others
until a barrier stops it, or an MMA that all of them have to issue; so a step of one warp may come
before a wait of another. No execution of the machine shows that. The causal order does: it keeps a
vector clock for each warp.
"""

from __future__ import annotations

from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.steps import Race, VisibleStep
from tilepipe.errors import BarrierError
from tilepipe.ir.location import Loc
from tilepipe.machine.barriers.state import Mbarrier

_REPORTED = ("lapped", "phase", "ahead")


def fault(execution: Execution) -> BarrierError | None:
    """The first such fault of an execution, or None."""
    for race in execution.causal_order.races:
        if (
            race.warps
            and race.kind in _REPORTED
            and isinstance(race.barrier, Mbarrier)
            and execution.causal_order.is_awaited(race.barrier)
        ):
            return _error(race, race.barrier)
    return None


def _error(race: Race, bar: Mbarrier) -> BarrierError:
    first, second = race.first, race.second
    warps = ", ".join(map(str, race.warps))
    role = first.site.role if first.site is not None else ""
    late = f"warp{'s' if len(race.warps) > 1 else ''} {warps} of role '{role}'"
    if race.kind == "lapped":
        return BarrierError(
            f"{bar.where}: {late} can be lapped by the other warps: {_where(second)} completes"
            f" phase {race.phase + 1}, and does not follow the wait of {late} for phase"
            f" {race.phase} (at {_short(first)}), only that of another warp.\n  On hardware the"
            " parity has flipped back by the time the late warps look, and they may wait for"
            " ever.\n  The arrive that frees the stage must follow the waits of all warps:"
            " synchronise the warps between the wait and that arrive (ctx.sync_warpgroup(), a"
            " ctx.named_barrier, an MMA of the warpgroup that has been waited for), or let every"
            " warp arrive and raise the count.",
            _loc(first),
        )
    what = "waits for" if race.kind == "ahead" else "counts in"
    return BarrierError(
        f"{bar.where}: {_where(second)} {what} phase {race.phase + 1}, and its warp cannot know"
        f" that phase {race.phase} is complete: it does not follow the step of {late} in that phase"
        f" ({_short(first)}); only another warp has waited for that.\n"
        "  Let every warp wait, or synchronise the warps in between (ctx.sync_warpgroup(), or a"
        " ctx.named_barrier).",
        _loc(second),
    )


def _where(node: VisibleStep) -> str:
    """`mbar_arrive full at gemm.py:41`."""
    return f"{node.site.what} at {node.site.loc.short}" if node.site is not None else "a step"


def _short(node: VisibleStep) -> str:
    return node.site.loc.short if node.site is not None else "set-up"


def _loc(node: VisibleStep) -> Loc | None:
    return node.site.loc if node.site is not None else None
