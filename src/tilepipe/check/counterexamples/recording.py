"""What is shown of an execution: who does what, in order, and what it does to barriers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilepipe.check.verdict import Step
from tilepipe.errors import DeadlockError, RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import Mbarrier
from tilepipe.machine.barriers.rendezvous import NamedState, Rendezvous
from tilepipe.machine.units.grid import ASKS, ResponseUnit
from tilepipe.sim.sites import SETUP, Site

if TYPE_CHECKING:
    from tilepipe.check.engine.execution import Execution, Flight

_ROWS = 24  # of the table
_DRAWS = 8  # the last ones are shown
_SLOTS = {  # kind of op -> where its operands name a tile
    "tma_load": (3,), "tma_store": (3,), "load": (2,), "store": (3,), "fragment_store": (2,), "fragment_load": (3,), "wgmma": (3, 5),
    "tcgen05_mma": (3, 5), "tmem_copy": (3,), "clc_try_cancel": (3,), "clc_query": (2,),
}  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """What a step did to a barrier, in a phase of it. `passes`: it had waited for that phase, or
    found it complete.
    """

    barrier: Hashable
    phase: int
    text: str
    passes: bool


@dataclass(eq=False, slots=True)
class Row:
    """One step as it was performed. `tiles`: those that it touches. `told`: what it did to
    barriers. `blocked`: it waits. `drawn`: what the grid gave it.
    """

    agent: Agent
    site: Site
    unit: bool
    tiles: tuple[str, ...] = ()
    told: list[Told] = field(default_factory=list)
    blocked: bool = False
    drawn: str = ""


class Recorder:
    """Watches an execution step by step."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def step(self, agent: Agent, site: Site, args: tuple[Any, ...]) -> None:
        """An agent is about to perform an op."""
        # of a tensor: no tile
        places = (
            () if site.kind in ("load", "store") and site.tensor >= 0 else _SLOTS.get(site.kind, ())
        )
        if site.kind == "tcgen05_mma" and args[4] is None:
            places = (5,)  # A is in tensor memory: its operand is an address
        numbers = [args[i] for i in places if i < len(args) and isinstance(args[i], int)]
        tiles = tuple(agent.cta.slots[n].name for n in numbers)
        self.rows.append(Row(agent, site, False, tiles))

    def unit(self, flight: Flight, agent: Agent) -> None:
        """A unit is about to act."""
        one = flight.unit.waiting[0] if hasattr(flight.unit, "waiting") else flight.unit
        site = getattr(one, "site")  # noqa: B009
        slot = getattr(one, "slot", None)
        self.rows.append(Row(agent, site, True, (slot.name,) if slot is not None else ()))

    def blocked(self) -> None:
        """The last op waits."""
        self.rows[-1].blocked = True

    def performed(self, result: object, issued: Sequence[object]) -> None:
        """The last op is done. `issued`: the units that it has sent off."""
        row = self.rows[-1]
        if row.site.kind == "atomic_add":
            row.drawn = f"draws {result}"
        for unit in issued:
            if isinstance(unit, ResponseUnit):
                row.drawn = (
                    "is refused" if unit.refuses else f"is granted cluster {unit.words[0, 0]}"
                )

    def tell(self, barrier: Hashable, phase: int, text: str, passes: bool = False) -> None:
        """The last step has done something to a barrier."""
        if self.rows:
            self.rows[-1].told.append(Told(barrier, phase, text, passes))

    # -- the table ---------------------------------------------------------------------

    def table(self, execution: Execution, error: SimFault) -> tuple[tuple[Step, ...], int]:
        """The steps that matter to a fault, and how many are left out: those at the tiles, tensors
        and barriers that its message names, what the agents at those tiles did in between, who
        completed the phases that they passed, what they were told by tests, who drew what, and
        where everybody waits.
        """
        stuck = isinstance(error, DeadlockError)
        rows = [
            r for i, r in enumerate(self.rows) if not r.blocked or (stuck and self._for_good(i))
        ]
        message = str(error)
        touching = [i for i, r in enumerate(rows) if any(_names(message, tile) for tile in r.tiles)]
        since = touching[-2] if isinstance(error, RaceError) and len(touching) > 1 else len(rows)
        agents = {id(rows[i].agent) for i in touching if i >= since}
        kept = {id(r) for r in [r for r in rows if r.drawn or r.site.kind in ASKS][-_DRAWS:]}
        if isinstance(error, RaceError):
            accesses = {(id(r.agent), r.site.id): r for r in rows if _accesses(message, r)}.values()
            kept |= {id(r) for r in accesses}
            agents |= {id(r.agent) for r in accesses}
        kept |= _last_tests(rows, agents | {id(rows[-1].agent)} if rows else agents)
        story = [
            r
            for i, r in enumerate(rows)
            if (r is rows[-1] and not stuck)
            or r.blocked
            or id(r) in kept
            or (stuck and r.site.kind.startswith("mbar_try"))
            or (i in touching and (i >= since or since == len(rows)))
            or (i > since and id(r.agent) in agents and r.told)
            or (
                since == len(rows)
                and r.site.role != SETUP
                and any(_names(message, name_of(t.barrier)) for t in r.told)
            )
        ]
        story = _with_what_completed(rows, story)
        if stuck:
            story = sorted(story[-_ROWS:], key=lambda r: r.blocked)
        shown = story[-_ROWS:]
        steps = tuple(Step(_who(r), r.site.what, r.site.loc.short, _effect(r)) for r in shown)
        return steps, len(rows) - len(shown)

    def _for_good(self, at: int) -> bool:
        """Whether the agent of a blocked row never went on."""
        agent = self.rows[at].agent
        return all(r.unit or r.agent is not agent for r in self.rows[at + 1 :])


def _last_tests(rows: list[Row], agents: set[int]) -> set[int]:
    """The last test of each barrier by some agents."""
    last = {
        (id(r.agent), id(t.barrier)): id(r)
        for r in rows
        for t in r.told
        if r.site.kind == "mbar_try_wait" and id(r.agent) in agents
    }
    return set(last.values())


def _with_what_completed(rows: list[Row], story: list[Row]) -> list[Row]:
    """The story with the steps that made up each phase that somebody passes in it."""
    passed = {(id(t.barrier), t.phase) for r in story for t in r.told if t.passes}
    kept = {id(r) for r in story}
    return [
        r
        for r in rows
        if id(r) in kept or any((id(t.barrier), t.phase) in passed and not t.passes for t in r.told)
    ]


def _names(message: str, name: str) -> bool:
    """Whether a message names a barrier or a tile."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w\[])", message) is not None


def _accesses(message: str, row: Row) -> bool:
    """Whether the message of a race names a step as an access to a tensor."""
    site = row.site
    named = site.tensor >= 0 and f"{row.agent}: {site.what}" in message
    return named and re.search(rf"{re.escape(site.loc.short)}(?!\d)", message) is not None


def _who(row: Row) -> str:
    return (
        f"a copy of {row.agent}"
        if row.unit and row.site.kind == "tma_load"
        else f"{row.agent}, later"
        if row.unit
        else str(row.agent)
    )


def _effect(row: Row) -> str:
    parts = [] if not row.tiles else [", ".join(row.tiles)]
    if row.blocked:
        parts.append("waits, and does not go on")
    last: dict[int, str] = {}
    for one in row.told:
        last[id(one.barrier)] = one.text
    return "; ".join([*parts, *([row.drawn] if row.drawn else []), *last.values()])


def name_of(barrier: Hashable) -> str:
    """What a message calls a barrier."""
    match barrier:
        case Mbarrier():
            return barrier.where
        case NamedState() | Rendezvous():
            return barrier.name
    return "the grid's work" if not isinstance(barrier, tuple) else "a counter"
