"""Settings of attention over a cache, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings

ROWS = 64  # of the queries that a CTA multiplies: of one wgmma
SPAN = 64  # elements of 16 bits that the swizzle spans
# CTAs of an SM -> registers of a thread of the load warp's warpgroup, and of the other one: at most
# 65,536 / (128 · CTAs) together.
REGISTERS = {1: (120, 240), 2: (56, 200)}
# Numbers of an item's parts that a thread has in them at once: where queries are rows, and where
# they are columns, of which each thread has the statistics.
HELD = {1: 128, 2: 64}
HELD_OF_COLUMNS = {1: 120, 2: 96}
# Keys of a tile, by CTAs of an SM and the padded size of a head, whose scores and weights the
# registers hold beside the sums. Found by compiling: with 16 more ptxas spills.
MOST_KEYS = {1: {64: 160, 128: 64, 192: 64, 256: 32}, 2: {64: 160, 128: 64, 192: 32, 256: 0}}
COLUMN_KEYS = 64  # rows of a wgmma: of what keys of a tile are a multiple where queries are columns
MOST_COLUMNS = 16  # queries of an item that are columns; more are rows
# Keys of a tile of 8 bits and heads up to 128, where queries are columns.
MOST_NARROW_KEYS = 128
SMEM_OF_CTA = 1024  # bytes that an SM keeps for itself for each CTA
SLACK = 512  # bytes of shared memory: barriers, the ticket, alignment


@dataclass(frozen=True)
class DecodeConfig(Settings):
    """Settings of attention over a cache on Hopper.

    Attributes:
        bn: keys of a tile.
        stages: tiles of K and V in the ring.
        ctas: CTAs of an SM.
        waves: CTAs that an SM takes one after the other in each of these places. All CTAs together
            share the tiles of all sequences. With several waves SMs that are faster take more, and
            a CTA begins while others of its SM load; each finds its share anew.
        queries: "columns": up to 16 queries of an item are the columns of products, and more the
            rows, as all are where bn is no multiple of 64; "rows": all are rows.
    """

    bn: int = 64
    stages: int = 2
    ctas: int = 2
    waves: int = 1
    queries: str = "columns"

    def _rules(self) -> dict[str, bool]:
        return {
            "bn must be a multiple of 16 up to 160": self.bn % 16 == 0 and self.bn <= 160,
            "ctas must be 1 or 2": self.ctas in REGISTERS,
            "waves must be from 1 to 8": 1 <= self.waves <= 8,
            'queries must be "columns" or "rows"': self.queries in ("columns", "rows"),
        }

    @property
    def registers(self) -> tuple[int, int]:
        """What setmaxnreg gives a thread of the load warp's warpgroup, and of the other one."""
        return REGISTERS[self.ctas]

    @property
    def most_columns(self) -> int:
        """Queries of an item that are the columns of products; more are rows."""
        return MOST_COLUMNS if self.queries == "columns" else 0

    @property
    def held(self) -> dict[bool, int]:
        """Numbers of an item's parts that a thread loads together, by whether queries are columns
        (`Form`).
        """
        return {False: HELD[self.ctas], True: HELD_OF_COLUMNS[self.ctas]}


def padded(d: int, span: int = SPAN) -> int:
    """Elements of a head in shared memory: whole spans."""
    return -(-d // span) * span


def columns(rows: int) -> int:
    """The columns of a wgmma for so many queries."""
    return -(-rows // 8) * 8


@dataclass(frozen=True)
class Form:
    """How the queries of an item lie.

    Attributes:
        columns: whether they are the columns of products, and not rows. width: elements of a head
            in shared memory.
    """

    columns: bool
    width: int

    @classmethod
    def of(cls, rows: int, d: int, narrow: bool, cfg: DecodeConfig) -> Form:
        """The form for an item with so many queries."""
        found = rows <= cfg.most_columns and cfg.bn % COLUMN_KEYS == 0
        # The even elements of heads of 8 bits, and the odd ones, are rows of a wgmma then.
        return cls(found, padded(d, 2 * ROWS if found and narrow else SPAN))
