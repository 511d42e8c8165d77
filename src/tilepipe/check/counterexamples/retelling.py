"""A schedule performed anew, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.check.counterexamples import shortest
from tilepipe.check.scene import Scene
from tilepipe.check.verdict import Fault, Pick
from tilepipe.ir.launch import Launch
from tilepipe.sim.run import quiet_numbers


def retold(launch: Launch, schedule: Sequence[Pick], *, strict_proxy: bool = False) -> Fault | None:
    """The fault that `check.replay` of a schedule ends in, told step by step as it comes about in this execution; None: it ends in none.

    Args:
        schedule: of a fault that `check` found, of this kernel or of one that it was before. What cannot be performed is left out.
        strict_proxy: orders between ordinary and asynchronous accesses that are advice by default are faults.

    Raises:
        BindError: the arguments do not fit the kernel.
    """
    with quiet_numbers():
        return shortest.retold(Scene(launch, strict_proxy), tuple(schedule))[1]
