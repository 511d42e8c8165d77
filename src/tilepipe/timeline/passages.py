"""The stamps of warps as those of agents, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, Role
from tilepipe.ir.stamps import Stamp, WarpStamps, points
from tilepipe.timeline.clocks import Clocks


@dataclass(frozen=True, slots=True)
class Who:
    """A warp, or the warpgroup of a warpgroup role, of a CTA. `part`: as of `Event`."""

    cta: int
    role: str
    part: str


@dataclass(frozen=True, slots=True)
class Passage:
    """An agent passes a point. `us`: when, since the first role of its cluster began."""

    us: float
    who: Who
    op: ops.Op
    stamp: Stamp


def passages(
    kernel: Kernel, warps: Sequence[WarpStamps], clocks: Clocks
) -> Iterator[list[Passage]]:
    """Those of each cluster, in order."""
    clusters: dict[int, list[WarpStamps]] = {}
    for w in warps:
        clusters.setdefault(w.cta // kernel.cluster_size, []).append(w)
    every = [point.op for point in points(kernel)]
    for mine in clusters.values():
        start = min(clocks.ns(w.cta, w.began) for w in mine)
        found = [
            Passage(
                (clocks.ns(w.cta, w.began + stamp.cycles) - start) / 1e3,
                who,
                every[stamp.point],
                stamp,
            )
            for who, w, stamp in _of_agents(kernel, mine)
        ]
        found.sort(key=lambda x: x.us)
        yield found


def _of_agents(
    kernel: Kernel, warps: Iterable[WarpStamps]
) -> Iterator[tuple[Who, WarpStamps, Stamp]]:
    """Of the warps of a warpgroup, each point is taken from one warp all the time, the
    lowest-numbered that has stamps of it. The earliest of all warps would be wrong for waits: only
    warps that a wait blocks have stamps of it, so that the third stamp of one warp need not be of
    the same turn of a loop as the third of another, and a begin and an end of two warps make no
    wait.
    """
    agents: dict[Who, list[WarpStamps]] = {}
    for w in warps:
        role = _role(kernel, w.warp)
        agents.setdefault(Who(w.cta, role.name, _part(role, w.warp)), []).append(w)
    for who, mine in agents.items():
        taken: dict[int, int] = {}  # from which warp
        for w in sorted(mine, key=lambda w: w.warp):
            for stamp in w.stamps:
                if taken.setdefault(stamp.point, w.warp) == w.warp:
                    yield who, w, stamp


def _role(kernel: Kernel, warp: int) -> Role:
    return next(r for r in kernel.roles if r.first_warp <= warp < r.first_warp + r.warps)


def _part(role: Role, warp: int) -> str:
    if role.agents == 1:
        return ""
    index = warp - role.first_warp
    return f"warpgroup {index // 4}" if role.is_warpgroup else f"warp {index}"
