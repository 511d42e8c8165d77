"""The state of mbarriers, of named barriers, and of the barriers of whole CTAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.program import RingSide
from tilepipe.machine.sites import Site

UNINITIALISED, LIVE, INVALIDATED = 0, 1, 2
WORD_BYTES = 8  # an mbarrier in shared memory (PTX ISA, mbarrier, size and alignment)
_NEVER = -(1 << 40)  # the phase of a barrier that is not live: no wait matches it


@dataclass(eq=False, repr=False, slots=True)
class TmaLoadUnit:
    """A copy in flight to one CTA, which credits its bytes to an mbarrier.

    Attributes:
        coords: where its box begins in the tensor. slot, write: the tile, or the bytes, that it
            writes, and the access.
        nbytes: what it credits. bar: to which barrier.
        seen: its read of a tensor that is also written, or of shared memory.
        end: when it has landed, by the cost model. landed: its bytes have arrived.
        lines: how many rows of the box, columns of a column-major one, are read; None: all.
    """

    agent: Actor
    site: Site
    coords: tuple[int, ...]
    slot: Slot
    write: Access
    nbytes: int
    bar: Mbarrier
    seen: Event | Access | None
    end: float
    landed: bool = field(default=False, init=False)
    lines: int | None = field(default=None, init=False)


class Released:
    """The knowledge that arrivals release through a barrier of any kind.

    Attributes:
        acc: knowledge released into the phase in progress. known: what every completed phase
            released.
        acc_time, time: virtual times of the last arrival of this phase, and of the last completion.
        waiters: agents to wake when the phase completes.
    """

    __slots__ = ("acc", "acc_time", "known", "time", "waiters")

    def reset(self) -> None:
        """Nothing has been released."""
        self.acc = self.known = 0
        self.acc_time = self.time = 0.0
        self.waiters: list[Actor] = []

    def forget(self, dead: int) -> None:
        self.acc &= ~dead
        self.known &= ~dead


class MbarrierArrival(NamedTuple):
    """`number` arrivals of an agent on an mbarrier by one op. `warp`: the first of its warps that
    arrive; -1 where the op is asynchronous.
    """

    agent: Actor
    site: Site
    number: int
    warp: int

    @property
    def who(self) -> tuple[int, int]:
        """The warp that arrives."""
        return self.agent.uid, self.warp


class Mbarrier(Released):
    """One mbarrier.

    Attributes:
        flat: what names it among the mbarriers of its CTA (`Cta.bars`): its number, or its
            address. address: in shared memory.
        phase: number of the phase in progress; phases below it are complete.
        count: arrivals of a phase. pending: arrivals still to come.
        tx: bytes still to come (negative: delivered early). expected: bytes announced in this
            phase.
        copies: the TMA loads issued in it. inflight: their bytes not landed yet.
        arrivals: those of this phase, for messages. last_arrivals, last_copies: of the phase
            before. arrivers: the latest arrival of each warp that has arrived since the
            initialisation.
        completions: phases completed since the CTA started.
        repeated_arrivals: (phase, arrivals) of the first phase in which a warp arrived twice; for
            messages.
        completed_by: the op whose arrival, or bytes, completed the phase before; for messages.
        init_bit: the bit of its initialisation, in a cluster or in a role; fenced, proxy_bit: bits
            of the fence.mbarrier_init, and of the fence.proxy.async, of the initialising thread.
            initialiser: that thread, (agent, mask).
        by_parity: some wait on its array gives a parity. completion_bits: then the bits of the last
            two completions, latest first.
        far: of `acc` and `known`, what only threads of other CTAs have released.
        side: what it is for in a ring, where the program says so.
        in_role, reinitialised: it was initialised in a role, and after it had been invalidated.
    """

    __slots__ = (
        "address",
        "array",
        "arrivals",
        "arrivers",
        "by_parity",
        "completed_by",
        "completion_bits",
        "completions",
        "copies",
        "count",
        "cta",
        "expected",
        "far",
        "fenced",
        "flat",
        "in_role",
        "index",
        "inflight",
        "init_bit",
        "init_site",
        "initialiser",
        "last_arrivals",
        "last_copies",
        "pending",
        "phase",
        "proxy_bit",
        "reinitialised",
        "repeated_arrivals",
        "side",
        "size",
        "state",
        "tx",
    )  # fmt: skip

    def __init__(
        self,
        cta: CtaPlace,
        array: str,
        index: int,
        size: int,
        flat: int,
        by_parity: bool = False,
        *,
        address: int,
        side: RingSide | None = None,
    ) -> None:
        self.cta = cta
        self.side = side
        self.address = address
        self.flat = flat
        self.by_parity = by_parity
        self.array = array
        self.index = index
        self.size = size
        self.completions = 0
        self.reset()

    def reset(self) -> None:
        """Memory that holds no barrier."""
        Released.reset(self)
        self.state = UNINITIALISED
        self.count = self.pending = self.tx = self.expected = self.inflight = 0
        self.phase = _NEVER
        self.copies: list[TmaLoadUnit] = []
        self.arrivals: list[MbarrierArrival] = []
        self.last_arrivals: list[MbarrierArrival] = []
        self.arrivers: dict[tuple[int, int], MbarrierArrival] = {}
        self.last_copies: list[TmaLoadUnit] = []
        self.init_bit = self.fenced = self.proxy_bit = self.far = 0
        self.completion_bits = (0, 0)
        self.in_role = self.reinitialised = False
        self.initialiser: tuple[int, int] = (-1, 0)
        self.init_site: Site | None = None
        self.completed_by: Site | None = None
        self.repeated_arrivals: tuple[int, list[MbarrierArrival]] | None = None

    def forget(self, dead: int) -> None:
        Released.forget(self, dead)
        self.far &= ~dead

    @property
    def name(self) -> str:
        return f"{self.array}[{self.index}]" if self.size > 1 else self.array

    @property
    def where(self) -> str:
        """The name, with the CTA where there is more than one."""
        return f"{self.name} of CTA {self.cta.block_id}" if self.cta.grid > 1 else self.name


class AddressedBarriers:
    """The mbarriers of a CTA by their address in shared memory, for a front end that works with
    addresses: `Cta.bars`, which is a list where the program's barriers stand in arrays. An op names
    a barrier by its number in the one, by its address in the other.

    An address that holds none gives one that is not initialised, so that an op on it says so.
    """

    __slots__ = ("_at", "cta")

    def __init__(self, cta: CtaPlace) -> None:
        self.cta = cta
        self._at: dict[int, Mbarrier] = {}

    def __getitem__(self, address: int) -> Mbarrier:
        bar = self._at.get(address)
        if bar is None:
            name = f"the mbarrier at {self.cta.names.place(address) or hex(address)}"
            bar = self._at[address] = Mbarrier(
                self.cta, name, 0, 1, address, by_parity=True, address=address
            )
        return bar

    def __iter__(self) -> Iterator[Mbarrier]:
        """In the order of their addresses, whatever the order in which they were first used."""
        return iter([self._at[address] for address in sorted(self._at)])

    def __len__(self) -> int:
        return len(self._at)


class Arrival(NamedTuple):
    """The arrival of one warp of an agent at a named barrier."""

    agent: Actor
    warp: int
    site: Site


class Again(NamedTuple):
    """A warp has arrived at a named barrier a second time in one generation.

    Attributes:
        second, first: its two arrivals. missing: threads that were missing between them.
    """

    second: Arrival
    first: Arrival
    missing: int


class NamedState(Released):
    """One hardware barrier (bar.sync): `threads` are counted, then those that synced go on.

    It counts 32 threads for each arrival of a warp, also where the warp has arrived before (PTX
    ISA, bar, barrier).

    Attributes:
        generation: counts its completions. arrived: the arrivals since the last one. last: those in
            the generation before.
        again: the first warp that is counted twice in this generation, if there is one. closed:
            that of the generation before. reset_bit: then the bit of its completion.
        whole: it is for all threads of the CTA that have not exited.
        votes: of a bar.red, generation -> (threads whose predicate is true, threads).
    """

    __slots__ = (
        "again", "arrived", "closed", "generation", "last", "name", "reset_bit", "threads", "votes",
        "whole",
    )  # fmt: skip

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self.reset()

    def reset(self) -> None:
        Released.reset(self)
        self.generation = 0
        self.arrived: list[Arrival] = []
        self.last: list[Arrival] = []
        self.again: Again | None = None
        self.closed: Again | None = None
        self.reset_bit = 0
        self.votes: dict[int, tuple[int, int]] = {}
        self.whole = False

    @property
    def missing(self) -> int:
        return self.threads - 32 * len(self.arrived)


class RelaxedArrival(NamedTuple):
    """A relaxed arrival of an agent at the barrier of its cluster; for messages. `withheld`: what
    the agent knew and did not release.
    """

    agent: Actor
    site: Site
    generation: int
    withheld: int


class Rendezvous(Released):
    """A barrier of all agents of some CTAs that have not returned: the end of set-up, and
    barrier.cluster. `generation` counts its completions; `arrived`: agent uid -> site; `relaxed`:
    (agent uid, generation modulo 2) -> the last relaxed arrival, of this generation or one before.
    """

    __slots__ = ("arrived", "generation", "members", "name", "relaxed")

    def __init__(self, name: str, members: Sequence[Actor]) -> None:
        self.name = name
        self.members = members
        self.generation = 0
        self.arrived: dict[int, Site] = {}
        self.relaxed: dict[tuple[int, int], RelaxedArrival] = {}
        self.reset()

    def forget(self, dead: int) -> None:
        super().forget(dead)
        for key, arrival in self.relaxed.items():
            self.relaxed[key] = arrival._replace(withheld=arrival.withheld & ~dead)

    def missing(self) -> list[Actor]:
        """Agents that are still to arrive."""
        return [a for a in self.members if not a.done and a.uid not in self.arrived]
