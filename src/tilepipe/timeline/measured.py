"""The timeline of a launch on a GPU, from what its warps have noted.

A warp notes when it comes to a wait, and when it goes on; when it arrives, and when it issues a
copy or an MMA. It does not see when these end: a wait does, which is for them. If that wait
blocked, they ended when it did. If it did not, they had ended before it began, at a time that is
estimated: for copies as long after their issue as others of the same run took, for MMAs by the rate
of the tensor cores.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.ir.chip import Chip
from tilepipe.ir.program import Kernel
from tilepipe.ir.stamps import WarpStamps
from tilepipe.timeline.clocks import Clocks
from tilepipe.timeline.events import Event, Phase
from tilepipe.timeline.passages import passages
from tilepipe.timeline.record import Measured
from tilepipe.timeline.reenactment import Reenactment
from tilepipe.timeline.timeline import Timeline


def measured(
    kernel: Kernel, grid: int, chip: Chip, warps: Sequence[WarpStamps], name: str = ""
) -> Timeline:
    """The timeline of the CTAs whose warps these are. `name`: the kernel's unless given."""
    clocks = Clocks.of(warps, chip.clock_ghz)
    events: list[Event] = []
    phases: list[Phase] = []
    for cluster in passages(kernel, warps, clocks):
        run = Reenactment(kernel, clocks.cycles_per_ns * 1e3)
        for passage in cluster:
            run.passes(passage)
        run.finish()
        events += run.events
        phases += run.phases
    began = min((w.began_ns for w in warps), default=0)
    about = Measured(
        chip.name,
        clocks.cycles_per_ns,
        (max((w.ended_ns for w in warps), default=0) - began) / 1e3,
        sum(w.lost for w in warps),
    )
    ctas = len({w.cta for w in warps})
    return Timeline.of(name or kernel.name, grid, ctas, events, phases, None, about)
