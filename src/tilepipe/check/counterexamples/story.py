"""A counterexample as text: who does what, in order, with the source lines and what it did to the
barriers.
"""

from __future__ import annotations

from tilepipe.check.verdict import Fault


def story(fault: Fault) -> list[str]:
    """The steps of a fault that matter to it, a line each and, behind an arrow, one for an effect;
    nothing where there are none.

    Columns are padded and not cut: a terminal wraps what is too wide.
    """
    steps = fault.steps
    if not steps:
        return []
    total = len(steps) + fault.left_out
    what = (
        "all its steps" if not fault.left_out else f"{len(steps):,} of its {total:,} steps matter"
    )
    lines = [f"how it comes about ({what}):"]
    digits = len(str(len(steps)))
    who, where = max(len(s.agent) for s in steps), max(len(s.loc) for s in steps)
    for number, step in enumerate(steps, 1):
        head = f"  {number:>{digits}}  {step.agent:<{who}}  {step.loc:<{where}}  "
        lines.append(f"{head}{step.op}".rstrip())
        if step.effect:
            lines.append(f"{' ' * len(head)}→ {step.effect}")
    return lines
