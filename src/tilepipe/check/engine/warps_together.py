"""Faults between the warps of one warpgroup, which the machine performs together.

A warp can be ahead of its siblings by as much as no barrier, and no MMA that all of them have to
issue, holds it back. So what one warp does may come before a wait of another. No execution of the
machine shows that; the causal order does.
"""

from __future__ import annotations

from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.steps import Node, Race
from tilepipe.errors import BarrierError
from tilepipe.ir.location import Loc
from tilepipe.machine.barriers.mbarrier import Mbarrier

_TOLD = ("lapped", "phase", "ahead")


def fault(execution: Execution) -> BarrierError | None:
    """The first such fault of an execution, or None."""
    for race in execution.causality.races:
        if (
            race.warps
            and race.why in _TOLD
            and isinstance(race.barrier, Mbarrier)
            and execution.causality.awaited(race.barrier)
        ):
            return _error(race, race.barrier)
    return None


def _error(race: Race, bar: Mbarrier) -> BarrierError:
    first, second = race.first, race.second
    warps = ", ".join(map(str, race.warps))
    late = f"warp{'s' if len(race.warps) > 1 else ''} {warps} of role '{first.site.role if first.site is not None else ''}'"
    if race.why == "lapped":
        return BarrierError(
            f"{bar.where}: {late} can be lapped by its siblings: {_where(second)} completes phase"
            f" {race.phase + 1}, and does not come after"
            f" the wait of {late} for phase {race.phase} (at {_short(first)}), only after that of"
            " a sibling.\n"
            "  On hardware the parity has then flipped back for the warps that are late, and they"
            " may wait for ever.\n"
            "  Whatever frees the stage must speak for every warp that waits: let the warps meet"
            " between the wait and that arrive"
            " (ctx.sync_warpgroup(), a ctx.named_barrier, an MMA of the warpgroup that has been"
            " waited for), or let every warp arrive and"
            " raise the count.",
            _loc(first),
        )
    what = "waits for" if race.why == "ahead" else "counts in"
    return BarrierError(
        f"{bar.where}: {_where(second)} {what} phase {race.phase + 1}, and its warp cannot know"
        f" that phase {race.phase} is complete:"
        f" it does not come after what {late} did in it ({_short(first)}); only a sibling has"
        " waited for that.\n"
        "  Let every warp wait, or let the warps meet in between (ctx.sync_warpgroup(), or a ctx.named_barrier).",
        _loc(second),
    )


def _where(node: Node) -> str:
    """`mbar_arrive full at gemm.py:41`."""
    return f"{node.site.what} at {node.site.loc.short}" if node.site is not None else "a step"


def _short(node: Node) -> str:
    return node.site.loc.short if node.site is not None else "set-up"


def _loc(node: Node) -> Loc | None:
    return node.site.loc if node.site is not None else None
