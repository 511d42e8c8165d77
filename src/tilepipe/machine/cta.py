"""One CTA: its shared memory, its barriers and its agents."""

from __future__ import annotations

from typing import NamedTuple

from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.barriers.state import AddressedBarriers, Mbarrier, NamedState
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace, Slot
from tilepipe.machine.shared_names import NO_NAMES, SharedNames
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import WarpgroupQueue
from tilepipe.machine.wording import Wording


class Arriver(NamedTuple):
    """A source of arrivals at barriers of peers: the threads of agent `uid`, where `lane` is -1, or
    the commits that one of its lanes issues.
    """

    uid: int
    lane: int = -1


class Cta(CtaPlace):
    """One CTA: its shared memory, barriers and agents.

    Attributes:
        aliased: those of its typed tiles that lie on bytes of others which are no views of the same
            slot.
        slots: its typed tiles, its tensor memory (also `tmem`), and its bytes (also `space`) where
            something accesses them by address. smem_bytes: how many there are.
        bars: its mbarriers; by number where the program places them in arrays, by address where it
            does not.
        arrivals: (arriver, barrier) -> the bit of its last arrival here from another CTA, or by a
            commit, its agent and its op; a CTA may exit only knowing of all of them.
        warpgroups: number -> the wgmma groups of a warpgroup whose warps are agents of their own.
        tma_free, tensor_free: virtual time (cycles) from which the TMA unit and the tensor cores
            are free.
    """

    __slots__ = (
        "agents",
        "aliased",
        "arrivals",
        "bars",
        "named",
        "slots",
        "smem_bytes",
        "space",
        "tensor_free",
        "tma_free",
        "tmem",
        "warpgroups",
    )

    def __init__(
        self,
        rank: int,
        grid: int,
        smem_bytes: int,
        words: Wording,
        names: SharedNames = NO_NAMES,
        *,
        addressed: bool = False,
    ) -> None:
        """`addressed`: the program names its barriers, and all shared memory, by address."""
        super().__init__(rank, grid, words, names)
        self.slots: list[Slot] = []
        self.aliased: list[Slot] = []
        self.tmem: TensorMemory | None = None
        self.smem_bytes = smem_bytes
        self.space: ByteSpace | None = None
        self.bars: list[Mbarrier] | AddressedBarriers = AddressedBarriers(self) if addressed else []
        self.named: list[NamedState] = []
        self.agents: list[Actor] = []
        self.arrivals: dict[tuple[Arriver, int], tuple[int, Actor, Site]] = {}
        self.tma_free = 0.0
        self.tensor_free = 0.0
        self.warpgroups: dict[int, WarpgroupQueue] = {}
        if addressed:
            self.bytes()

    def bytes(self) -> ByteSpace:
        """Its shared memory as bytes; made when something first accesses it by address."""
        if self.space is None:
            self.space = ByteSpace(self, self.smem_bytes)
            self.slots.append(self.space)
        return self.space


def memory_of(cta: Cta) -> TensorMemory:
    """The tensor memory of a CTA of a program with tcgen05 ops."""
    assert cta.tmem is not None, "the program has no tensor memory"
    return cta.tmem
