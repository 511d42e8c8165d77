"""A schedule performed anew, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.check.counterexamples import shortest
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.verdict import Fault, Pick
from tilepipe.ir.launch import Launch
from tilepipe.machine.rules import Rules
from tilepipe.sim.run import quiet_numbers


def retold(launch: Launch, schedule: Sequence[Pick], *, rules: Rules = "practice") -> Fault | None:
    """The fault that `check.replay` of a schedule ends in, told step by step as it comes about in
    this execution; None: it ends in none.

    Args:
        schedule: of a fault that `check` found, of this kernel or of one that it was before. What
            cannot be performed is left out.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.

    Raises:
        BindError: the arguments do not fit the kernel.
    """
    with quiet_numbers():
        return shortest.retold(Scene(launch, rules), tuple(schedule))[1]
