"""The clocks of the SMs of a GPU as one: when stamps were made, in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.ir.stamps import WarpStamps


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time of an SM's clock.

    Each SM counts cycles of its own, at a frequency that all share; the GPU counts nanoseconds, in
    steps. Each warp has read both, when its role began and when it ended. The GPU's clock is never
    ahead of the time, so of a CTA's readings that one is nearest to the truth in which the GPU's
    clock is most advanced.

    Attributes:
        cycles_per_ns: of the SMs.
        readings: CTA -> (nanoseconds since the first role began, cycles), the reading that counts.
    """

    cycles_per_ns: float
    readings: dict[int, tuple[int, int]]

    @classmethod
    def of(cls, warps: Sequence[WarpStamps], default_ghz: float) -> Clocks:
        """`default_ghz`: the frequency where the run was too short to tell."""
        spans = [(w.ended - w.began, w.ended_ns - w.began_ns) for w in warps]
        longest = max((ns for _, ns in spans), default=0)
        known = [(cycles, ns) for cycles, ns in spans if ns * 2 > longest >= 2000]
        rate = default_ghz
        if known:
            rate = sum(cycles for cycles, _ in known) / sum(ns for _, ns in known)
        # whole numbers first: the GPU's nanoseconds have more digits than a float
        start = min((w.began_ns for w in warps), default=0)
        found = cls(rate, {})
        for w in warps:
            for ns, cycles in ((w.began_ns - start, w.began), (w.ended_ns - start, w.ended)):
                if w.cta not in found.readings or ns > found.ns(w.cta, cycles):
                    found.readings[w.cta] = ns, cycles
        return found

    def ns(self, cta: int, cycles: int) -> float:
        """When the SM of a CTA had counted so many cycles, since the first role began."""
        ns, then = self.readings[cta]
        return ns + (cycles - then) / self.cycles_per_ns
