"""A counterexample as plain text: its steps with agents, source lines and effects on barriers."""

from __future__ import annotations

from tilepipe.check.verdict import Fault


def as_text(fault: Fault) -> list[str]:
    """The steps of a fault, one line each, and one more line after an arrow for an effect; empty
    if the fault has no steps.

    Columns are padded and never cut: a terminal wraps lines that are too long.
    """
    steps = fault.steps
    if not steps:
        return []
    total = len(steps) + fault.left_out
    which = (
        "all steps" if not fault.left_out else f"the {len(steps):,} of {total:,} steps that matter"
    )
    lines = [f"counterexample ({which}):"]
    digits = len(str(len(steps)))
    agents, places = max(len(s.agent) for s in steps), max(len(s.loc) for s in steps)
    for number, step in enumerate(steps, 1):
        head = f"  {number:>{digits}}  {step.agent:<{agents}}  {step.loc:<{places}}  "
        lines.append(f"{head}{step.op}".rstrip())
        if step.effect:
            lines.append(f"{' ' * len(head)}→ {step.effect}")
    return lines
