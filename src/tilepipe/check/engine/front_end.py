"""The interface of a front end to the checker, in whatever language the program is written.

An exploration follows equal states once. The machine's part of a state it reads itself; where each
body stands, which of its registers it will still read, and which data can come to decide something,
only the front end knows. The more of that a key leaves out, the fewer states there are; what it
leaves out must change no later step and no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Protocol

from tilepipe.check.proofs.guards import Guards
from tilepipe.check.proofs.polling import Kind
from tilepipe.check.unreached import Coverage
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import World
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site


class FrontEnd(Protocol):
    """A launch that can be decided: `traced_front_end.TracedFrontEnd` of a kernel of this project,
    `ptx_front_end.PtxFrontEnd` of one of PTX.
    Keys are plain values, as `marshal` takes them.

    Attributes:
        elected: the lane that elect.sync elects in executions that begin now.
        guards: the tests that count as the waits that they guard; none, unless the caller that
            decides the launch sets them.
        grid: its CTAs. clusters: its clusters. resident: how many of them run at once in
            executions that begin now. residents: the numbers of which each is tried.
        shares_work: what one cluster gets depends on the others: they are executed together.
        may_poll: a strong access to global memory stands in a loop.
        waits_for_flags: loops that only wait for a value in global memory count as waits in
            executions that begin now; no, unless the caller that decides the launch says so.
        flag_looks: the sites of the strong loads in such loops.
        requests: the sites of which a verdict says whether they were reached.
    """

    elected: int
    guards: Guards
    grid: int
    clusters: int
    resident: int
    residents: Sequence[int]
    shares_work: bool
    may_poll: bool
    waits_for_flags: bool
    flag_looks: frozenset[int]
    requests: frozenset[int]

    # -- the program -------------------------------------------------------------------

    @property
    def sites(self) -> Sequence[Site]:
        """All ops, by id."""

    @property
    def lanes(self) -> Sequence[int]:
        """The lanes of which each is tried as the elected one."""

    @property
    def other_lanes(self) -> Sequence[int]:
        """Further lanes, of which each is tried once: a fault is advice."""

    @property
    def has_tests(self) -> bool:
        """True if it has a try_wait that does not count as a wait."""

    def possible_guards(self) -> Guards:
        """The tests that count as waits, as far as the text of the program says."""

    def coverage(self, unmade: Collection[int]) -> Coverage:
        """The lines of source that executions have reached, and those that they have not. `unmade`:
        of `requests`, those that none of them has performed.
        """

    def interchangeable(self) -> Sequence[str]:
        """The names of the roles whose agents all do the same: nothing in them asks which agent it
        is.
        """

    def explained(self, error: Exception, agent: Agent, site: Site) -> Exception:
        """The fault of the program that an error inside the machine, in the op of a site, shows,
        such as an operand that nothing has written; or the error itself.
        """

    def standing(self, agent: Agent) -> str:
        """The loop in which an agent is, and its place there, in words that follow its name; ""
        where it is in none, or where that is not known.
        """

    # -- states ------------------------------------------------------------------------

    def world(self, journal: Journal | None) -> World:
        """The start of an execution: all memory as it was given."""

    def registers(self, agent: Agent) -> Hashable:
        """A key that is equal for agents of one role that go on alike: where the agent stands, and
        the registers that it will still read and that can come to decide something. Of each `Frag`
        that it will still use, `Frag.key` belongs to it even if its contents decide nothing.
        """

    def slot(self, slot: Slot) -> bytes:
        """The contents of a tile of shared memory, or of tensor memory, where they can come to
        decide something; else nothing.
        """

    def tensor(self, tensor: GlobalTensor) -> bytes:
        """The contents of a tensor in global memory where they can decide something; else
        nothing.
        """

    # -- loops that poll ---------------------------------------------------------------

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kind of each site, by the site's id."""

    def ends_wait(self, agent: Agent) -> Callable[[object], bool] | None:
        """Where the next op of an agent is the load of a loop that only waits for a value: whether
        a value ends that loop. None where it is another load.
        """

    @property
    def adds(self) -> frozenset[int]:
        """Sites of the atomic adds whose results decide nothing: they commute."""

    def polling_state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """All that can decide what an agent does next, as long as no other agent does anything."""
