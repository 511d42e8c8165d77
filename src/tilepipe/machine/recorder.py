"""What a run reports to those who record when things happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_bool, plain_int, shown
from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Released, TmaLoadUnit
from tilepipe.machine.cta import Cta
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import TmaStoreUnit

OnEvent = Callable[[Agent, Site, float, float], None]
Ended = tuple[Site, float]  # an asynchronous unit: its op, and when it is over


def recorded_ctas(timeline: bool | int, grid: int) -> int | None:
    """Of how many CTAs a run with this `timeline=` records one; None: of none.

    Raises:
        BindError: it is neither a truth value nor a number above 0.
    """
    wanted = plain_bool(timeline)
    if wanted is not None:
        return grid if wanted else None
    ctas = plain_int(timeline)
    if ctas is None or ctas < 1:
        raise BindError(
            "timeline= is True, for all CTAs, or how many of them, at least 1; or False. Got"
            f" {shown(timeline)}"
        )
    return ctas


class Recorder(Protocol):
    """Is told of copies, MMAs, arrivals and waits as a run performs them. All times are virtual, in
    cycles since the CTA of the agent started. The order of the calls is that of the steps, which is
    not that of the times.
    """

    def copy(self, ag: Agent, unit: TmaLoadUnit | TmaStoreUnit) -> None:
        """A copy has been issued, at the agent's time, and is over at `unit.end`."""

    def mma(
        self, ag: Agent, site: Site, start: float, end: float, ctas: list[Cta], tile: Slot | None
    ) -> None:
        """An MMA occupies the tensor cores of `ctas` from `start` to `end`. `tile`: its operand B
        in shared memory; None where that is named by address.
        """

    def arrived(self, bar: Released, ag: Actor, site: Site, time: float) -> None:
        """An arrival at a barrier, or a copy that credits it, which takes effect at `time`, in the
        phase that is in progress.
        """

    def completed(self, bar: Released, number: int) -> None:
        """Phase or generation `number` of a barrier is complete, at `bar.time`."""

    def waited(self, ag: Agent, site: Site, bar: Released, number: int) -> None:
        """The agent has waited from its own time to `bar.time`, if that is later."""

    def awaited(self, ag: Agent, site: Site, units: Iterable[Ended]) -> None:
        """The agent has waited from its own time to the end of its own units, where one ends
        later.
        """

    def stuck(self, ag: Agent, site: Site, on: object, number: int | None) -> None:
        """The run ends in a deadlock, and the agent waits, since its own time, for phase or
        generation `number` of `on`: a barrier, or what else an agent can wait for.
        """


class UnitEvents:
    """A recorder that passes on copies and MMAs, and nothing else, to a function that gets (agent,
    site, start, end).
    """

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event

    def copy(self, ag: Agent, unit: TmaLoadUnit | TmaStoreUnit) -> None:
        self.on_event(ag, unit.site, ag.time, unit.end)

    def mma(
        self, ag: Agent, site: Site, start: float, end: float, ctas: list[Cta], tile: Slot | None
    ) -> None:
        self.on_event(ag, site, start, end)

    def arrived(self, bar: Released, ag: Actor, site: Site, time: float) -> None:
        pass

    def completed(self, bar: Released, number: int) -> None:
        pass

    def waited(self, ag: Agent, site: Site, bar: Released, number: int) -> None:
        pass

    def awaited(self, ag: Agent, site: Site, units: Iterable[Ended]) -> None:
        pass

    def stuck(self, ag: Agent, site: Site, on: object, number: int | None) -> None:
        pass
