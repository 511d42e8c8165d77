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
    """The facts of a program that the analysis of polling loops needs."""

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kind of each site, by the site's id."""

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
        """The number of CTAs in the grid."""

    @property
    def clusters(self) -> int:
        """The number of clusters in the grid."""

    @property
    def resident(self) -> int:
        """The number of clusters that run at once."""

    @property
    def lanes(self) -> Sequence[int]:
        """The lanes of which each is tried as the elected one."""

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
        """The facts of the program that the analysis of polling loops needs."""

    @property
    def front_end(self) -> FrontEnd:
        """The front end, which reads registers from the bodies of agents."""

    def possible_guards(self) -> Guards:
        """The tests that count as waits, as far as the text of the program says."""

    def world(self, journal: Journal | None) -> World:
        """The start of an execution: all memory as it was given."""
