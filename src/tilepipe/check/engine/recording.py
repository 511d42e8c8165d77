"""Recording an execution step by step, for the table of a counterexample."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tilepipe.ir.facts import Resource
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier, NamedState, Rendezvous
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import ResponseUnit, UnitQueue, WgmmaGroup


@dataclass(frozen=True, eq=False, slots=True)
class BarrierEffect:
    """The effect of a step on one phase of a barrier. `passes`: the step waited for that phase, or
    found it complete.
    """

    barrier: Hashable
    phase: int
    text: str
    passes: bool


@dataclass(eq=False, slots=True)
class RecordedStep:
    """One step as it was performed.

    Attributes:
        unit: whether an asynchronous unit of the agent performed it.
        tiles: the names of the tiles that it accesses.
        effects: what it did to barriers.
        blocked: it is a wait that did not pass.
        drawn: the work that the grid gave it, in words.
    """

    agent: Agent
    site: Site
    unit: bool
    tiles: tuple[str, ...] = ()
    effects: list[BarrierEffect] = field(default_factory=list)
    blocked: bool = False
    drawn: str = ""


def _is_rect(x: object) -> bool:
    return isinstance(x, tuple) and len(x) == 4 and all(isinstance(n, int) for n in x)


class Recorder:
    """Records the steps of an execution in their order."""

    def __init__(self) -> None:
        self.steps: list[RecordedStep] = []

    def step(self, agent: Agent, site: Site, args: tuple[Any, ...]) -> None:
        """Records that an agent is about to perform an op."""
        # a request names a tile by its number and the rectangle of it, which follows; where memory
        # is named by address, there are no tiles
        pairs = () if agent.cta.space is not None else pairwise(args[2:])
        numbers = [n for n, rect in pairs if isinstance(n, int) and _is_rect(rect)]
        slots = agent.cta.slots  # of PTX there are none: such numbers are then other operands
        tiles = tuple(slots[n].name for n in numbers if n < len(slots))
        self.steps.append(RecordedStep(agent, site, False, tiles))

    def unit(self, unit: object, agent: Agent) -> None:
        """Records that an asynchronous unit is about to act."""
        one = unit.waiting[0] if isinstance(unit, UnitQueue) else unit
        site = getattr(one, "site")  # noqa: B009
        slot = getattr(one, "slot", None)
        self.steps.append(RecordedStep(agent, site, True, (slot.name,) if slot is not None else ()))

    def blocked(self) -> None:
        """Marks the last op as a wait that does not pass."""
        self.steps[-1].blocked = True

    def performed(self, result: object, issued: Sequence[object]) -> None:
        """Completes the record of the last op. `issued`: the asynchronous units that it started."""
        step = self.steps[-1]
        if step.site.facts.takes is Resource.COUNTERS and result is not None:
            step.drawn = f"{'draws' if step.site.writes else 'reads'} {_shown(result)}"
        for unit in issued:
            if isinstance(unit, ResponseUnit):
                step.drawn = (
                    "is refused" if unit.refuses else f"is granted cluster {unit.words[0, 0]}"
                )

    def effect(self, barrier: Hashable, phase: int, text: str, passes: bool = False) -> None:
        """Adds an effect of the last step on a barrier."""
        if self.steps:
            self.steps[-1].effects.append(BarrierEffect(barrier, phase, text, passes))


def _shown(drawn: object) -> str:
    """A number that was drawn; of the rows of bytes that the lanes of a warp draw, the numbers."""
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 2:
        return str(drawn)
    numbers = {int.from_bytes(row.tobytes(), "little") for row in drawn}
    shown = sorted(numbers - {0}) or [0]
    return ", ".join(map(str, shown[:4])) + (", ..." if len(shown) > 4 else "")


def name_of(barrier: Hashable) -> str:
    """The name of a barrier in messages."""
    match barrier:
        case Mbarrier():
            return barrier.where
        case NamedState() | Rendezvous():
            return barrier.name
        case WgmmaGroup():
            return "a group of wgmma"
    return "the grid's work" if not isinstance(barrier, tuple) else "a counter"
