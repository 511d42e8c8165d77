"""What happens in a run, and when: copies, MMAs, waits, and phases of mbarriers that complete.

All times are microseconds since the CTA started, by the cost model (`machine.cost`); or, where they
are measured, since the first role of the CTA's cluster began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["copy", "mma", "wait"]


@dataclass(frozen=True, slots=True)
class Release:
    """The arrival, or the end of a copy or an MMA, that let a wait go on: of several the last.

    Attributes:
        cta, role, part: who arrived, or issued the copy or the MMA: see `Event`.
        op, what, at: the op, its object and its line of source.
        time_us: when it arrived, or was over.
    """

    cta: int
    role: str
    part: str
    op: str
    what: str
    at: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Wait:
    """What a wait waited for.

    Attributes:
        on: the barrier without its stage, as "tiles.full"; of a wait for the agent's own copies or
            MMAs their ops, as "wgmma".
        phase: the phase of an mbarrier, or the generation of another barrier, that it waited for,
            of which a GPU tells the parity alone; None: it waited for the agent's own units.
        released_by: who let it go on; None where nobody is known.
    """

    on: str
    phase: int | None
    released_by: Release | None

    @property
    def own(self) -> bool:
        """True if the agent waited for what it had issued itself."""
        return self.phase is None


@dataclass(frozen=True, slots=True)
class Event:
    """A copy or an MMA, from its issue (an MMA: from when the tensor core takes it up) to its
    completion, or a wait that blocked.

    Attributes:
        cta: its number in the grid. role: the name of the agent's role. part: "warp 1", or
            "warpgroup 0", of the role; "" where the role has one agent.
        kind: "copy", "mma" or "wait". op: the name of the op, as "tma_load". what: the op with its
            object. at: its line of source, as "gemm.py:41".
        begin_us, end_us: from when to when.
        about: the barrier with its stage, as "tiles.full[2]", that a copy credits or a wait waits
            for; of an MMA the tile that it reads; "" where none is known. stage: that stage.
        nbytes: of a copy.
        unit_us: from when to when it occupies the TMA unit, or the tensor cores, of `unit_ctas`;
            of a wait, and of what is no TMA copy, of no CTA.
        wait: what a wait waited for.
        estimated: of a copy or an MMA on a GPU: no wait was there when it ended, so its end is an
            estimate, no later than when a wait found that it was over.
        stuck: of a wait: it never ended. `end_us` is then when nothing happened any more.
    """

    cta: int
    role: str
    part: str
    kind: Kind
    op: str
    what: str
    at: str
    begin_us: float
    end_us: float
    about: str = ""
    stage: int | None = None
    nbytes: int = 0
    unit_us: tuple[float, float] = (0.0, 0.0)
    unit_ctas: tuple[int, ...] = ()
    wait: Wait | None = None
    estimated: bool = False
    stuck: bool = False

    @property
    def us(self) -> float:
        """How long it takes, or blocks."""
        return self.end_us - self.begin_us


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of an mbarrier that has completed.

    Attributes:
        cta: of the barrier. barrier: its array. stage: its number there. stages: how many there
            are.
        ring: the ring that the array belongs to, "" where no ring is known. fills: its phases are
            fills of a stage; else they are releases.
        number: of the phase, from 0. time_us: when it completed.
    """

    cta: int
    barrier: str
    stage: int
    stages: int
    ring: str
    fills: bool
    number: int
    time_us: float
