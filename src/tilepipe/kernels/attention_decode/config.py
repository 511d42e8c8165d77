"""Settings of attention over a cache, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings

ROWS = 64  # of the queries that a CTA multiplies: of one wgmma
SPAN = 64  # elements of 16 bits that the swizzle spans
# CTAs of an SM -> registers of a thread of the load warp's warpgroup, and of the other one: at most
# 65,536 / (128 · CTAs) together.
REGISTERS = {1: (120, 240), 2: (56, 200)}
HELD = {1: 128, 2: 64}  # numbers of an item's parts that a thread has in them at once
# Keys of a tile, by CTAs of an SM and the padded size of a head, whose scores and weights the
# registers hold beside the sums. Found by compiling: with 16 more ptxas spills.
MOST_KEYS = {1: {64: 160, 128: 64, 192: 64, 256: 32}, 2: {64: 160, 128: 64, 192: 32, 256: 0}}
SMEM_OF_CTA = 1024  # bytes that an SM keeps for itself for each CTA
SLACK = 512  # bytes of shared memory: barriers, the ticket, alignment


@dataclass(frozen=True)
class DecodeConfig(Settings):
    """Settings of attention over a cache on Hopper.

    Attributes:
        bn: keys of a tile.
        stages: tiles of K and V in the ring.
        ctas: CTAs of an SM. All of them together share the tiles of all sequences.
    """

    bn: int = 64
    stages: int = 2
    ctas: int = 2

    def _rules(self) -> dict[str, bool]:
        return {
            "bn must be a multiple of 16 up to 160": self.bn % 16 == 0 and self.bn <= 160,
            "ctas must be 1 or 2": self.ctas in REGISTERS,
        }

    @property
    def registers(self) -> tuple[int, int]:
        """What setmaxnreg gives a thread of the load warp's warpgroup, and of the other one."""
        return REGISTERS[self.ctas]

    @property
    def held(self) -> int:
        """Numbers of an item's parts that a thread loads together."""
        return HELD[self.ctas]


def padded(d: int) -> int:
    """Elements of a head in shared memory: whole spans of the swizzle."""
    return -(-d // SPAN) * SPAN
