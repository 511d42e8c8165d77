"""A verdict as a part of a page, in the colours of `tilepipe check`."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe import markup
from tilepipe.check.faults import Fault
from tilepipe.check.unreached import Unreached, listed
from tilepipe.check.wording import EXPLORED, MEANING, NOT_REACHED


def part(
    row: tuple[str, ...],
    kind: str,
    faults: Sequence[Fault],
    facts: Sequence[str],
    explored_because: str,
    advice: Sequence[str],
    unreached: Sequence[Unreached],
) -> str:
    """The verdict, the faults with their counterexamples, and what it rests on.

    Args:
        row: instance, method, executions, states, seconds, verdict. kind: the colour of the last.
        facts, explored_because, advice, unreached: of the verdict.
    """
    return markup.part(
        markup.table(
            "",
            ("instance", "method", "executions", "states", "seconds", "verdict"),
            [row],
            [kind],
        ),
        *map(_fault, faults),
        markup.listed("Facts that hold in every interleaving:", facts),
        markup.listed(EXPLORED, [explored_because] if explored_because else []),
        markup.listed("Advice:", advice),
        markup.listed(NOT_REACHED, listed(unreached)),
        markup.text(MEANING, kind="soft") if kind == "good" else "",
    )


def _fault(fault: Fault) -> str:
    steps = (
        (str(i), step.agent, step.op, step.loc, step.effect)
        for i, step in enumerate(fault.steps, 1)
    )
    more = ""
    if fault.left_out:
        do = "steps do" if fault.left_out > 1 else "step does"
        more = markup.text(f"{fault.left_out:,} more {do} not affect the fault.", kind="soft")
    return (
        markup.text(fault.kind, "h4", "bad")
        + markup.text(fault.message, "pre")
        + markup.table("Counterexample", ("step", "agent", "op", "line", "effect"), steps)
        + more
    )
