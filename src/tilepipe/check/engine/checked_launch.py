"""A launch as the checker takes it, whatever language its program is written in.

`launch_state.LaunchState` is that of a kernel of this project.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from tilepipe.check.proofs.guards import Guards
from tilepipe.check.proofs.polling import Kind
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.front_end import FrontEnd
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import World
from tilepipe.machine.sites import Site


class Loops(Protocol):
    """What of a program matters to loops that look for something again and again."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """Of each site, by id."""

    @property
    def adds(self) -> frozenset[int]:
        """Sites of the atomic adds whose results decide nothing: they commute."""

    def state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """All that can decide what an agent does next, as long as no other agent does anything."""


class CheckedLaunch(Protocol):
    """A launch that can be decided.

    Attributes:
        elected: the lane that elect.sync elects in executions that begin now.
        guards: the tests that count as the waits that they guard; none, unless who decides the
            launch says so.
    """

    elected: int
    guards: Guards

    @property
    def sites(self) -> Sequence[Site]:
        """All ops, by id."""

    @property
    def grid(self) -> int:
        """CTAs."""

    @property
    def clusters(self) -> int:
        """Of the grid."""

    @property
    def resident(self) -> int:
        """How many clusters run at once."""

    @property
    def lanes(self) -> Sequence[int]:
        """Those that are elected in turn."""

    @property
    def shares_work(self) -> bool:
        """What one cluster gets depends on the others: they are executed together."""

    @property
    def tests(self) -> bool:
        """Whether it has a try_wait that does not count as a wait."""

    @property
    def chooses(self) -> bool:
        """Whether what a step does can depend on the order of the others although every wait is for
        a phase number: it tests, or takes what is left.
        """

    @property
    def polls(self) -> bool:
        """Whether a loop looks at a counter."""

    @property
    def loops(self) -> Loops:
        """What matters to its loops."""

    @property
    def front_end(self) -> FrontEnd:
        """What reads the state of its bodies."""

    def possible_guards(self) -> Guards:
        """The tests that count as waits, as far as the text of the program says."""

    def world(self, journal: Journal | None) -> World:
        """The start of an execution: all memory as it was given."""
