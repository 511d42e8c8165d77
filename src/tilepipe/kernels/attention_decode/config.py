"""Settings of attention over a cache, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings

if TYPE_CHECKING:
    from tilepipe.kernels.attention_decode.validation import Extents

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

    def check_fits(self, found: Extents, chip: tp.Chip) -> None:
        """Raises BindError where an SM has not room for so many CTAs, or where pages neither make
        up a tile nor are made up by tiles, or where the registers do not suffice.
        """
        d, page, width, nbytes = found.d, found.page, padded(found.d), found.cache_dtype.nbytes
        most = MOST_KEYS[self.ctas][width]
        if self.bn > most:
            raise tp.BindError(
                f"bn={self.bn} keys of a tile: with heads of {d} elements and ctas={self.ctas} the"
                f" registers of a thread have room for {most} ({self})"
            )
        if page and self.bn % page and page % self.bn:
            raise tp.BindError(
                f"bn={self.bn} keys of a tile and pages of {page}: one must be a multiple of the"
                f" other ({self})"
            )
        if found.narrow and self.bn % ROWS:
            raise tp.BindError(
                f"bn={self.bn} keys of a tile: of a cache of 8 bits a warpgroup widens {ROWS} at"
                f" once, so it is a multiple of {ROWS} ({self})"
            )
        ring = self.stages * 2 * self.bn * width * nbytes
        queries = fixed_bytes(found, self.bn)
        room = (chip.smem_per_cta + SMEM_OF_CTA) // self.ctas - SMEM_OF_CTA
        if ring + queries + SLACK > room:
            raise tp.BindError(
                f"shared memory: {self.stages} stages of K and V, {self.bn} keys of {width}"
                f" elements each, take {self.stages} · 2 · {self.bn} · {width} · {nbytes} ="
                f" {ring:,} bytes; {self.ctas} CTAs of an SM have {room - SLACK - queries:,} bytes"
                f" each for them: lower stages, bn or ctas ({self})"
            )


def fixed_bytes(found: Extents, bn: int) -> int:
    """Bytes of shared memory of a CTA beside the ring: queries, and a tile of a narrow cache that
    has become one of 16 bits.
    """
    return (ROWS + 2 * bn * found.narrow) * padded(found.d) * 2


def padded(d: int) -> int:
    """Elements of a head in shared memory: whole spans of the swizzle."""
    return -(-d // SPAN) * SPAN
