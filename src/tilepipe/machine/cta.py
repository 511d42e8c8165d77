"""One CTA: its shared memory, its barriers and its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.barriers.mbarrier import Mbarrier
    from tilepipe.machine.barriers.rendezvous import NamedState
    from tilepipe.machine.memory.tensor_memory import TensorMemory
    from tilepipe.machine.memory.tiles import Slot
    from tilepipe.machine.sites import Site


class Cta:
    """One CTA: its shared memory, barriers and agents.

    Attributes:
        rank: in its cluster. block_id: in the grid. grid: CTAs of the grid.
        arrivals: (agent, barrier) -> the bit of that agent's last remote arrive here; a CTA may
        exit only knowing of all of them. tmem: the last of its slots, where the kernel has tcgen05
        ops.
        tma_free, tensor_free: virtual time (cycles) from which the TMA unit and the tensor cores
            are free.
    """

    __slots__ = (
        "agents",
        "arrivals",
        "bars",
        "block_id",
        "grid",
        "named",
        "rank",
        "slots",
        "tensor_free",
        "tma_free",
        "tmem",
    )

    def __init__(self, rank: int, grid: int) -> None:
        self.rank = rank
        self.grid = grid
        self.block_id = rank
        self.slots: list[Slot] = []
        self.tmem: TensorMemory | None = None
        self.bars: list[Mbarrier] = []
        self.named: list[NamedState] = []
        self.agents: list[Agent] = []
        self.arrivals: dict[tuple[int, int], tuple[int, Agent, Site]] = {}
        self.tma_free = 0.0
        self.tensor_free = 0.0
