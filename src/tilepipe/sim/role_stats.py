"""The work of the agents of each role in a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.ir.program import Kernel
from tilepipe.machine.machine import World


@dataclass(frozen=True)
class RoleStats:
    """What the agents of one role did, over all CTAs.

    Attributes:
        ops: executions by kind. bytes_loaded, bytes_stored: by TMA, whole boxes. waits_blocked:
        waits that did not pass at once.
    """

    name: str
    ops: dict[str, int] = field(default_factory=dict)
    bytes_loaded: int = 0
    bytes_stored: int = 0
    mmas: int = 0
    flops: int = 0
    waits: int = 0
    waits_blocked: int = 0

    def __str__(self) -> str:
        parts = []
        if self.bytes_loaded:
            parts.append(
                f"loaded {self.bytes_loaded / 1e6:,.1f} MB in {self.ops['tma_load']:,} TMA copies"
            )
        if self.mmas:
            parts.append(f"{self.mmas:,} MMAs, {self.flops / 1e9:,.2f} GFLOP")
        if self.bytes_stored:
            parts.append(
                f"stored {self.bytes_stored / 1e6:,.1f} MB in {self.ops['tma_store']:,} TMA copies"
            )
        parts.append(f"{self.waits:,} waits, {self.waits_blocked:,} of them blocked")
        return f"{self.name}: {'; '.join(parts)}"


def role_stats(kernel: Kernel, world: World) -> list[RoleStats]:
    """The work of each role of a kernel."""
    out = []
    for role in kernel.roles:
        kinds: dict[str, int] = {}
        loaded = stored = mmas = flops = waits = blocked = 0
        for site in world.program.sites:
            n = world.counts[site.id]
            if site.role != role.name or not n:
                continue
            kinds[site.kind] = kinds.get(site.kind, 0) + n
            loaded += n * site.nbytes if site.fills else 0
            stored += n * site.nbytes if site.stores else 0
            mmas += n if site.flops else 0
            flops += n * site.flops
            waits += n if site.waits else 0
            blocked += world.blocked[site.id] if site.waits else 0
        out.append(RoleStats(role.name, kinds, loaded, stored, mmas, flops, waits, blocked))
    return out
