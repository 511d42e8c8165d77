"""Loops that wait for a value in memory, performed as waits.

An agent that is about to look in such a loop goes on when the value is there that ends it; rounds
that find another value are not performed. docs/decisions/0017-waits-for-flags.md says why that
stands for all executions.

`FlagHistory` keeps what each such element has held. So the causal order can tell whether a wait
that has passed could have passed earlier: before the step that has brought the value, or before an
earlier one. If it could not, the wait follows that step in every execution, as a wait for an
mbarrier follows the arrivals of its phase.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.steps import VisibleStep
from tilepipe.check.proofs.polling import Cell
from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.machine import World
from tilepipe.machine.memory.elements import scalar
from tilepipe.machine.memory.storage import Array
from tilepipe.machine.memory.strong_elements import combined, name_of

_MOST_SUMS = 1024  # values that additions in any order may leave, which are tried


@dataclass(frozen=True, eq=False, slots=True)
class FlagWait:
    """An agent that is about to look at an element of a tensor in a loop that only waits.

    Attributes:
        cell: the element. value: what it holds. ends: whether a value ends the loop.
    """

    cell: Cell
    name: str
    value: object
    ends: Callable[[object], bool]

    @property
    def is_over(self) -> bool:
        """True if the loop ends now."""
        return self.ends(self.value)

    def spin(self, agent: Agent) -> Spin:
        """The words in which messages say what the agent waits for."""
        assert agent.request is not None
        return Spin(agent.request[1][0], name=self.name, value=str(self.value))


class FlagWaits:
    """The waits for flags of one execution. `sites`: their looks."""

    def __init__(self, world: World, front_end: FrontEnd) -> None:
        self._world = world
        self._front_end = front_end
        self.sites = front_end.flag_looks if front_end.waits_for_flags else frozenset()

    def of(self, agent: Agent) -> FlagWait | None:
        """The wait that an agent is about to perform; None where its look is one like any other."""
        assert agent.request is not None
        ends = self._front_end.ends_wait(agent)
        if ends is None:
            return None
        site, _, _, *index = agent.request[1]
        tensor = self._world.tensors[site.tensor]
        # one element: what a loop goes on by is the same in all lanes
        where = tuple(int(i) for i in index)
        if not all(0 <= i < n for i, n in zip(where, tensor.array.shape, strict=True)):
            return None  # a fault, which the look reports
        known: Callable[[object], bool] = ends

        def is_end(value: object) -> bool:
            try:
                return known(value)
            except SimFault:
                return True  # the loop itself reports it

        return FlagWait(
            (site.tensor, *where), name_of(tensor, where), scalar(tensor.array[where]), is_end
        )


@dataclass(eq=False, slots=True)
class Change:
    """A step that has changed an element.

    Attributes:
        adds: it adds, and commutes with additions before and after it.
        before, after: what the element held.
        known: what those know who come after the step.
    """

    step: VisibleStep
    adds: bool
    before: Any
    after: Any
    known: int


class FlagHistory:
    """What the elements have held that loops wait for.

    Attributes:
        wait: the wait that the current step performs; None where it performs none.
    """

    def __init__(self, world: World, front_end: FrontEnd, looks: frozenset[int]) -> None:
        """`looks`: the sites of the waits."""
        self._tensors = {site.tensor: world.tensors[site.tensor] for site in front_end.sites
                         if site.id in looks}  # fmt: skip
        self._given: dict[int, Array] = {n: t.array.copy() for n, t in self._tensors.items()}
        self._changes: defaultdict[Cell, list[Change]] = defaultdict(list)
        self.wait: FlagWait | None = None

    def changed(self, cell: Cell, step: VisibleStep, adds: bool, known: int) -> None:
        """A step has changed an element, or has written what was there."""
        if cell[0] not in self._tensors:
            return
        after, changes = self._tensors[cell[0]].array[cell[1:]], self._changes[cell]
        if changes and changes[-1].step is step:  # another lane
            changes[-1].after, changes[-1].known = after, changes[-1].known | known
            return
        before = changes[-1].after if changes else self._given[cell[0]][cell[1:]]
        changes.append(Change(step, adds, before, after, known))

    def preceding(self, wait: FlagWait, known: int) -> tuple[list[Change], list[Change]]:
        """The steps before which a wait that passes now could have passed, if some others of the
        steps that it does not know had not been performed either; and the latest steps that it does
        not know.

        Where there are none of the first kind, the wait follows all of the second in every
        execution. `known`: the steps that it follows in every execution anyway.
        """
        groups = [
            [*group]
            for _, group in groupby(
                enumerate(self._changes[wait.cell]), lambda one: -1 if one[1].adds else one[0]
            )
        ]
        latest: list[Change] = []
        for group in reversed(groups):
            members = [change for _, change in group]
            unknown = [c for c in members if c.step.warp_bits & ~known]
            latest = latest or unknown
            if self._could_pass(wait, members, unknown):
                return unknown, latest
            if len(unknown) < len(members):
                break  # what comes before a known step is known
        return [], latest

    def _could_pass(self, wait: FlagWait, members: list[Change], unknown: list[Change]) -> bool:
        """True if the wait could pass without some of the steps that it does not know: additions,
        any of which may come last, or one step of another kind.
        """
        start = members[0].before
        if not members[0].adds:
            return wait.ends(scalar(start))
        if start.dtype.kind not in "iu":
            return True
        every, partial = int(start), set[int]()
        for change in members:
            if change not in unknown:
                every += int(change.after) - int(change.before)
        for change in unknown:
            added = int(change.after) - int(change.before)
            partial |= {every, *(value + added for value in partial)}
            every += added
            if len(partial) > _MOST_SUMS:
                return True
        tensor = self._tensors[wait.cell[0]]
        zero = start.dtype.type(0)
        return any(
            wait.ends(scalar(combined(tensor, "add", zero, value, None))) for value in partial
        )
