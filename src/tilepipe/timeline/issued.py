"""The copies and MMAs that agents have issued on a GPU: when they were over, as events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tilepipe.ir import ops
from tilepipe.ir.facts import Unit
from tilepipe.ir.memory import BarrierArray, Tile
from tilepipe.ir.op_text import text_of
from tilepipe.ir.program import barrier_of
from tilepipe.machine import cost
from tilepipe.timeline.events import Event, Kind
from tilepipe.timeline.passages import Passage, Who


@dataclass(eq=False, slots=True)
class Issued:
    """A copy or an MMA that an agent has issued; of a multicast, the copy to one CTA.

    Attributes:
        to: the CTA whose barrier it credits, where it credits one.
        seen_us: by when it was over, as a wait has seen; None: none has. blocked: that wait ended
            when it did.
    """

    passage: Passage
    to: int | None = None
    seen_us: float | None = None
    blocked: bool = False
    end_us: float = 0.0

    def see(self, us: float, blocked: bool) -> None:
        """A wait for it is over. `us`: since when it is known to be complete."""
        if self.seen_us is None or (blocked and not self.blocked):
            self.seen_us, self.blocked = us, blocked


def events_of(units: Sequence[Issued], last_us: float, cycles_per_us: float) -> list[Event]:
    """The events of copies and MMAs, in the order of their issue. `last_us`: when the last wait was
    over, until which those last that no wait was for.
    """
    last_us = max([last_us, *(unit.passage.us for unit in units)], default=0.0)
    copies = [u for u in units if u.passage.op.facts.unit is not Unit.TENSOR_CORE]
    return [*_copies(copies, last_us, cycles_per_us), *_mmas(units, last_us, cycles_per_us)]


def _copies(copies: Sequence[Issued], last_us: float, per_us: float) -> Iterable[Event]:
    took: dict[str, list[float]] = {}
    for unit in copies:
        if unit.blocked and unit.seen_us is not None:
            took.setdefault(unit.passage.op.kind, []).append(unit.seen_us - unit.passage.us)
    usual = {kind: median(times) for kind, times in took.items()}
    free: dict[int, float] = {}
    occupied: dict[int, tuple[float, float]] = {}
    for unit in copies:
        x = unit.passage
        _end(unit, x.us + usual.get(x.op.kind, cost.TMA_LATENCY / per_us), last_us)
        nbytes = _bytes(x.op)
        if id(x) not in occupied:  # else this is another copy of the same multicast
            takes = nbytes / cost.TMA_BYTES_PER_CYCLE / per_us
            occupied[id(x)] = _occupies(free, x.who.cta, x.us, takes)
        yield event_of(
            x, "copy", x.us, unit.end_us, *_about_copy(unit), nbytes=nbytes,
            estimated=not unit.blocked, unit_us=occupied[id(x)], unit_ctas=(x.who.cta,),
        )  # fmt: skip


def _mmas(units: Sequence[Issued], last_us: float, per_us: float) -> Iterable[Event]:
    """An MMA begins when the one before it of the same agent ends."""
    free: dict[int, float] = {}
    ends: dict[Who, float] = {}
    for unit in units:
        x = unit.passage
        if not isinstance(x.op, ops.Wgmma | ops.Tcgen05Mma):
            continue
        takes = _flops(x.op) / _rate(x.op) / per_us
        begin = max(x.us, ends.get(x.who, 0.0))
        _end(unit, begin + takes, last_us)
        begin = min(begin, unit.end_us)
        ends[x.who] = unit.end_us
        yield event_of(
            x, "mma", begin, unit.end_us, x.op.b.buffer.name, None,
            estimated=not unit.blocked, unit_us=_occupies(free, x.who.cta, begin, takes),
            unit_ctas=(x.who.cta,),
        )  # fmt: skip


def event_of(
    x: Passage, kind: Kind, begin: float, end: float, about: str, stage: int | None, **more: Any
) -> Event:
    """An event of an agent that has passed a point. `more`: other fields of it."""
    return Event(
        x.who.cta, x.who.role, x.who.part, kind, x.op.name, text_of(x.op), x.op.loc.short,
        begin, end, about, stage, **more,
    )  # fmt: skip


def _end(unit: Issued, likely_us: float, last_us: float) -> None:
    """Says when a unit was over: as a wait saw it, or else when it is likely to have been."""
    if unit.blocked and unit.seen_us is not None:
        unit.end_us = unit.seen_us
    else:
        bound = last_us if unit.seen_us is None else unit.seen_us
        unit.end_us = max(unit.passage.us, min(likely_us, bound))


def _occupies(free: dict[int, float], cta: int, begin: float, takes: float) -> tuple[float, float]:
    """When a unit occupies the TMA unit, or the tensor cores, of a CTA, which serve one at a time
    at the rate of the cost model.
    """
    start = max(begin, free.get(cta, 0.0))
    free[cta] = start + takes
    return start, start + takes


def _about_copy(unit: Issued) -> tuple[str, int | None]:
    """The barrier that a copy credits, and its stage."""
    x = unit.passage
    bar = barrier_of(x.op)
    if bar is None:
        return "", None
    stage = stage_of(bar.array, x.stamp.index)
    name = bar.array.name if stage is None else f"{bar.array.name}[{stage}]"
    return name if unit.to in (None, x.who.cta) else f"{name} of CTA {unit.to}", stage


def stage_of(array: BarrierArray, index: int) -> int | None:
    """The stage of a barrier, where its array has several."""
    return index if array.size > 1 else None


def _bytes(op: ops.Op) -> int:
    """The bytes that a copy moves."""
    tile = getattr(op, "dst", None) if isinstance(op, ops.TmaLoad) else getattr(op, "src", None)
    return tile.nbytes if isinstance(tile, Tile) else 0


def _flops(op: ops.Wgmma | ops.Tcgen05Mma) -> int:
    """Floating-point operations of an MMA in one CTA."""
    return 2 * op.acc.rows * op.acc.cols * op.b.cols


def _rate(op: ops.Wgmma | ops.Tcgen05Mma) -> float:
    """Of these, how many the tensor cores of an SM do in a cycle."""
    bits = op.b.buffer.dtype.bits
    if isinstance(op, ops.Wgmma):
        return cost.FLOPS_PER_CYCLE[bits]
    return cost.TCGEN05_FLOPS_PER_CYCLE[bits]
