"""The recorder that a run reports to, and that makes events of what it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilepipe.ir.facts import Unit
from tilepipe.machine import cost
from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier, NamedState, Released, Rendezvous, TmaLoadUnit
from tilepipe.machine.cta import Cta
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.recorder import Ended, OnEvent
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import ResponseUnit, TmaStoreUnit
from tilepipe.timeline.events import Event, Phase, Release, Wait
from tilepipe.timeline.record import Stopped
from tilepipe.timeline.timeline import Timeline

_Arrival = tuple[Actor, Site, float]


class Recording:
    """Events of the first `ctas` CTAs of a grid.

    Attributes:
        events, phases: in the order of the steps of the run.
    """

    def __init__(
        self, grid: int, ctas: int, cycles_per_us: float, on_event: OnEvent | None = None
    ) -> None:
        """`on_event`: is called for each copy and MMA as well, of all CTAs."""
        self.grid = grid
        self.ctas = min(ctas, grid)
        self.events: list[Event] = []
        self.phases: list[Phase] = []
        self._per_us = cycles_per_us
        self._on_event = on_event
        # barrier -> the latest arrival of the phase in progress, and of the last one completed
        self._latest: dict[Released, _Arrival] = {}
        self._released: dict[Released, _Arrival] = {}
        self._stuck: list[tuple[Agent, Site, object, int | None]] = []

    def timeline(self, name: str, simulated_us: float) -> Timeline:
        """What has been recorded. `name`: of the kernel."""
        return Timeline.of(name, self.grid, self.ctas, self.events, self.phases, simulated_us)

    def until(
        self, message: str, name: str, steps: tuple[tuple[str, str, str, str], ...] = ()
    ) -> Timeline:
        """What has been recorded until a fault. Agents that are stuck wait until nothing happens
        any more, and a little longer, to be seen. `message`, `steps`: as of `Stopped`.
        """
        last = max((e.end_us for e in self.events), default=0.0)
        last = max([last, *(self._us(ag.time) for ag, *_ in self._stuck)])
        last += max(0.1 * last, self._us(cost.TMA_LATENCY))
        for ag, site, on, number in self._stuck:
            if ag.cta.block_id < self.ctas:
                self._wait_stuck(ag, site, on, number, last)
        found = Timeline.of(name, self.grid, self.ctas, self.events, self.phases, None)
        return replace(found, fault=Stopped(message, steps))

    def _wait_stuck(
        self, ag: Agent, site: Site, on: object, number: int | None, end_us: float
    ) -> None:
        about, stage, name = site.what, None, site.what
        if isinstance(on, Mbarrier):
            about, stage, name = _named(on, ag), _stage(on), on.array
        elif isinstance(on, Released):
            about = name = _name(on)
        self.events.append(
            Event(
                ag.cta.block_id, ag.role.name, _part(ag), "wait", site.kind, site.what,
                site.loc.short, self._us(ag.time), end_us, about, stage,
                wait=Wait(name, 0 if number is None else number, None), stuck=True,
            )
        )  # fmt: skip

    # -- what the machine reports ------------------------------------------------------

    def copy(self, ag: Agent, unit: TmaLoadUnit | TmaStoreUnit) -> None:
        site = unit.site
        if self._on_event is not None:
            self._on_event(ag, site, ag.time, unit.end)
        if ag.cta.block_id >= self.ctas:
            return
        about, stage, nbytes = "", None, site.nbytes
        if isinstance(unit, TmaLoadUnit):
            about, stage, nbytes = _named(unit.bar, ag), _stage(unit.bar), unit.nbytes
        elif unit.tile.buffer.count > 1:
            about, stage = _tile(unit.tile)
        occupied: tuple[float, float] = (0.0, 0.0)
        ctas: tuple[int, ...] = ()
        if site.facts.unit is Unit.TMA and not isinstance(unit, ResponseUnit):
            until = unit.end - cost.TMA_LATENCY
            since = max(until - nbytes / cost.TMA_BYTES_PER_CYCLE, 0.0)
            occupied = self._us(since), self._us(until)
            ctas = (ag.cta.block_id,)
        self.events.append(
            Event(
                ag.cta.block_id, ag.role.name, _part(ag), "copy", site.kind, site.what,
                site.loc.short, self._us(ag.time), self._us(unit.end), about, stage, nbytes,
                occupied, ctas,
            )
        )  # fmt: skip

    def mma(
        self, ag: Agent, site: Site, start: float, end: float, ctas: list[Cta], tile: Slot | None
    ) -> None:
        if self._on_event is not None:
            self._on_event(ag, site, start, end)
        if ag.cta.block_id >= self.ctas:
            return
        about, stage = ("", None) if tile is None else _tile(tile)
        begin_us, end_us = self._us(start), self._us(end)
        self.events.append(
            Event(
                ag.cta.block_id, ag.role.name, _part(ag), "mma", site.kind, site.what,
                site.loc.short, begin_us, end_us, about, stage, 0, (begin_us, end_us),
                tuple(cta.block_id for cta in ctas),
            )
        )  # fmt: skip

    def arrived(self, bar: Released, ag: Actor, site: Site, time: float) -> None:
        latest = self._latest.get(bar)
        if latest is None or time >= latest[2]:
            self._latest[bar] = ag, site, time

    def completed(self, bar: Released, number: int) -> None:
        latest = self._latest.pop(bar, None)
        if latest is not None:
            self._released[bar] = latest
        if isinstance(bar, Mbarrier) and bar.cta.block_id < self.ctas:
            side = bar.side
            self.phases.append(
                Phase(
                    bar.cta.block_id, bar.array, bar.index, bar.size,
                    "" if side is None else side.ring, side is not None and side.fills, number,
                    self._us(bar.time),
                )
            )  # fmt: skip

    def waited(self, ag: Agent, site: Site, bar: Released, number: int) -> None:
        if ag.cta.block_id >= self.ctas or bar.time <= ag.time:
            return
        found = self._released.get(bar)
        release = None if found is None else self._release(*found)
        on = bar.array if isinstance(bar, Mbarrier) else _name(bar)
        about, stage = (
            (_named(bar, ag), _stage(bar)) if isinstance(bar, Mbarrier) else (_name(bar), None)
        )
        self._wait(ag, site, bar.time, about, stage, Wait(on, number, release))

    def stuck(self, ag: Agent, site: Site, on: object, number: int | None) -> None:
        self._stuck.append((ag, site, on, number))

    def awaited(self, ag: Agent, site: Site, units: Iterable[Ended]) -> None:
        if ag.cta.block_id >= self.ctas:
            return
        last = max(units, key=lambda unit: unit[1], default=None)
        if last is not None and last[1] > ag.time:
            by, end = last
            release = self._release(ag, by, end)
            self._wait(ag, site, end, "", None, Wait(by.kind, None, release))

    # ----------------------------------------------------------------------------------

    def _wait(
        self, ag: Agent, site: Site, end: float, about: str, stage: int | None, wait: Wait
    ) -> None:
        self.events.append(
            Event(
                ag.cta.block_id, ag.role.name, _part(ag), "wait", site.kind, site.what,
                site.loc.short, self._us(ag.time), self._us(end), about, stage, wait=wait,
            )
        )  # fmt: skip

    def _release(self, ag: Actor, site: Site, time: float) -> Release:
        return Release(
            ag.cta.block_id, ag.role.name, _part(ag), site.kind, site.what, site.loc.short,
            self._us(time),
        )  # fmt: skip

    def _us(self, cycles: float) -> float:
        return cycles / self._per_us


def _part(ag: Actor) -> str:
    return "" if ag.role.alone else ag.part


def _name(bar: Released) -> str:
    return bar.name if isinstance(bar, NamedState | Rendezvous) else "a barrier"


def _named(bar: Mbarrier, ag: Agent) -> str:
    """A barrier's name with its stage, and with its CTA where that is not the agent's."""
    return bar.name if bar.cta is ag.cta else f"{bar.name} of CTA {bar.cta.block_id}"


def _stage(bar: Mbarrier) -> int | None:
    return bar.index if bar.size > 1 else None


def _tile(tile: Slot) -> tuple[str, int | None]:
    buffer = tile.buffer
    return (f"{buffer.name}[{tile.index}]", tile.index) if buffer.count > 1 else (buffer.name, None)
