"""The state of mbarriers, of named barriers, and of the barriers at which whole CTAs meet."""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site

UNINITIALISED, LIVE, INVALIDATED = 0, 1, 2
WORD_BYTES = 8  # an mbarrier in shared memory (PTX ISA, mbarrier, size and alignment)
_NEVER = -(1 << 40)  # the phase of a barrier that is not live: no wait matches it


class Copy:
    """A copy that credits its bytes to an mbarrier.

    Attributes:
        coords: where its box begins in the tensor. slot, write: the tile it writes, and the access.
        nbytes: what it credits. landed: its bytes have arrived.
    """

    __slots__ = ("agent", "coords", "landed", "nbytes", "site", "slot", "write")

    def __init__(
        self, agent: Actor, site: Site, coords: tuple[int, ...], slot: Slot, write: Access
    ) -> None:
        self.agent = agent
        self.site = site
        self.coords = coords
        self.slot = slot
        self.write = write
        self.nbytes = site.nbytes
        self.landed = False


class Mbarrier:
    """One mbarrier.

    Attributes:
        flat: what names it among the mbarriers of its CTA (`Cta.bars`): its number, or its
            address. address: in shared memory.
        phase: number of the phase in progress; phases below it are complete.
        count: arrivals of a phase. pending: arrivals still to come.
        tx: bytes still to come (negative: delivered early). expected: bytes announced in this
            phase.
        copies: the TMA loads issued in it. inflight: their bytes not landed yet.
        arrivals: who arrived in this phase, for messages. last_arrivals, last_copies: of the phase
            before.
        completions: phases completed since the CTA started.
        acc: knowledge released into this phase. known: what every completed phase released.
        repeated_arrivals: (phase, arrivals) of the first phase in which an agent arrived twice; for messages.
        completed_by: the op whose arrival, or bytes, completed the phase before; for messages.
        waiters: agents to wake when the phase completes.
        init_bit: the bit of its initialisation, in a cluster or in a role; fenced, proxy_bit: one that
            whoever comes after a fence.mbarrier_init, or a fence.proxy.async, of the initialising
            thread knows. initialiser: that thread, (agent, mask).
        by_parity: some wait on its array gives a parity. completion_bits: then, of the last two phases that
        completed, latest first, a bit that whoever knows of the completion knows.
        in_role, reinitialised: it was initialised in a role, and after it had been invalidated.
        acc_time, time: virtual times of the last arrival of this phase, and of the last completion.
    """

    __slots__ = (
        "acc",
        "acc_time",
        "address",
        "array",
        "arrivals",
        "by_parity",
        "completed_by",
        "completion_bits",
        "completions",
        "copies",
        "count",
        "cta",
        "expected",
        "fenced",
        "flat",
        "in_role",
        "index",
        "inflight",
        "init_bit",
        "init_site",
        "initialiser",
        "known",
        "last_arrivals",
        "last_copies",
        "pending",
        "phase",
        "proxy_bit",
        "reinitialised",
        "repeated_arrivals",
        "size",
        "state",
        "time",
        "tx",
        "waiters",
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
    ) -> None:
        self.cta = cta
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
        self.state = UNINITIALISED
        self.count = self.pending = self.tx = self.expected = self.inflight = 0
        self.phase = _NEVER
        self.acc = self.known = 0
        self.acc_time = self.time = 0.0
        self.copies: list[Copy] = []
        self.arrivals: list[tuple[Actor, Site, int]] = []
        self.last_arrivals: list[tuple[Actor, Site, int]] = []
        self.last_copies: list[Copy] = []
        self.waiters: list[Actor] = []
        self.init_bit = self.fenced = self.proxy_bit = 0
        self.completion_bits = (0, 0)
        self.in_role = self.reinitialised = False
        self.initialiser: tuple[int, int] = (-1, 0)
        self.init_site: Site | None = None
        self.completed_by: Site | None = None
        self.repeated_arrivals: tuple[int, list[tuple[Actor, Site, int]]] | None = None

    @property
    def name(self) -> str:
        return f"{self.array}[{self.index}]" if self.size > 1 else self.array

    @property
    def where(self) -> str:
        """The name, with the CTA where there is more than one."""
        return f"{self.name} of CTA {self.cta.block_id}" if self.cta.grid > 1 else self.name

    def forget(self, dead: int) -> None:
        keep = ~dead
        self.acc &= keep
        self.known &= keep


class NamedState:
    """One hardware barrier (bar.sync): `threads` arrive, then those that synced go on.

    `generation` counts its completions; `arrived` maps (agent uid, warp) to the site; `acc`,
    `known` as in `Mbarrier`.
    """

    __slots__ = (
        "acc",
        "acc_time",
        "arrived",
        "generation",
        "known",
        "name",
        "threads",
        "time",
        "waiters",
    )

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.threads = threads
        self.reset()

    def reset(self) -> None:
        self.generation = 0
        self.arrived: dict[tuple[int, int], tuple[Actor, Site]] = {}
        self.acc = self.known = 0
        self.acc_time = self.time = 0.0
        self.waiters: list[Actor] = []

    @property
    def missing(self) -> int:
        return self.threads - 32 * len(self.arrived)

    def forget(self, dead: int) -> None:
        self.acc &= ~dead
        self.known &= ~dead


class Rendezvous:
    """Where all agents of some CTAs that have not returned meet: the end of set-up, and
    barrier.cluster.

    `arrived`: agents that have arrived in this generation.
    """

    __slots__ = ("acc", "arrived", "generation", "known", "members", "name", "time", "waiters")

    def __init__(self, name: str, members: Sequence[Actor]) -> None:
        self.name = name
        self.members = members
        self.generation = 0
        self.arrived: dict[int, Site] = {}
        self.acc = self.known = 0
        self.time = 0.0
        self.waiters: list[Actor] = []

    def missing(self) -> list[Actor]:
        """Agents that are still to arrive."""
        return [a for a in self.members if not a.done and a.uid not in self.arrived]

    def forget(self, dead: int) -> None:
        self.acc &= ~dead
        self.known &= ~dead
