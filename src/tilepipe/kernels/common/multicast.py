"""Which CTA of a cluster loads which part of the tiles that they share, and on whose barriers it
arrives when a slot is free.

CTA r of a cluster of `x` × `y` is at (r % x, r // x) along M and N. CTAs at the same place along M
use the same rows of A, CTAs at the same place along N the same rows of B; each of them loads a part
and multicasts it. Where pairs of CTAs share an MMA, the CTAs 2 i and 2 i + 1 along M hold a half of
the rows of B each, so only CTAs of the same parity share it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import tilepipe as tp

Index = tp.Value | int
# (batch, row, k), where the batch is None without batches.
Place = tuple[Index | None, Index, Index]
MAX_BOX_ROWS = 256  # of one TMA copy
SWIZZLE_ROWS = 8  # rows after which the swizzle repeats


def load_rows(rows: int) -> int:
    """Rows of one TMA copy of a tile of `rows`: all of them, or an equal part that a box can
    have.
    """
    return rows // -(-rows // MAX_BOX_ROWS)


def rows_of_load(rows: int, parts: int) -> int:
    """Rows of one TMA copy of a tile of `rows` that so many CTAs share: of an equal part, or eight
    where there is none, since the swizzle repeats every eight rows.
    """
    return load_rows(rows // parts) if _divides(rows, parts) else SWIZZLE_ROWS


def _divides(rows: int, parts: int) -> bool:
    return parts == 1 or rows % (SWIZZLE_ROWS * parts) == 0


@dataclass(frozen=True, eq=False)
class Share:
    """A tile that `parts` CTAs need: this one loads part `part` of its rows, for the CTAs of
    `mask`. Where the rows have no such part, it loads each `parts`-th eight of them.
    """

    parts: int
    part: tp.Value | int = 0
    mask: tp.Value | int | None = None

    @classmethod
    def of_all(cls, ctx: tp.Context, parts: int) -> Share:
        """The share of a tile that every CTA of a cluster of `parts` needs; with one CTA, the whole
        tile.
        """
        return cls(parts, ctx.cta_rank, (1 << parts) - 1) if parts > 1 else cls(1)

    def load_whole(
        self,
        ctx: tp.Context,
        tensor: tp.GlobalTensor,
        tile: tp.SmemTile,
        at: Place,
        barrier: tp.MbarPtr,
    ) -> None:
        """Loads a whole `tile` that is too small to divide, from element (outer index, line, 0):
        the first CTA that shares it loads it for all. Lines beyond the end of the box come from the
        next outer index.
        """
        outer, line, column = at
        assert tensor.box is not None
        assert outer is not None
        lines = tensor.box[-2]
        with ctx.when(self.part == 0) if self.parts > 1 else nullcontext():
            for i in range(tile.shape[0] // lines):
                ctx.tma_load(
                    tensor,
                    (outer + i, line, column),
                    tile.rows(i * lines, lines),
                    barrier,
                    multicast=self.mask,
                )

    def load(
        self,
        ctx: tp.Context,
        tensor: tp.GlobalTensor,
        tile: tp.SmemTile,
        at: Place,
        barrier: tp.MbarPtr,
        *,
        lines: tp.Value | None = None,
        number: int = 0,
    ) -> None:
        """Loads this CTA's part of `tile`, whose first element is at (batch, row, k).

        Args:
            lines: of a column-major tile, by a ragged map, as of `ctx.tma_load`.
            number: of the tile in its stage: with several, CTAs that have less of one have more of
                the next.
        """
        batch, row, k = at
        whole = tile.shape[0]
        rows = rows_of_load(whole, self.parts)
        if _divides(whole, self.parts):
            share = whole // self.parts
            first = self.part * share if self.parts > 1 else 0
            starts = [first + i for i in range(0, share, rows)]
            sure = len(starts)
        else:
            eights = whole // SWIZZLE_ROWS
            first = (self.part + -number * eights % self.parts) % self.parts
            starts = [(first + i) * SWIZZLE_ROWS for i in range(0, eights, self.parts)]
            sure = eights // self.parts
        for i, start in enumerate(starts):
            where = (batch, row + start, k)[-tensor.rank :]
            with nullcontext() if i < sure else ctx.when(start < whole):
                ctx.tma_load(
                    tensor,
                    where,
                    tile.rows(start, rows),
                    barrier,
                    multicast=self.mask,
                    lines=lines,
                )


@dataclass(frozen=True, eq=False)
class ClusterShares:
    """The shares of one CTA in a cluster.

    Attributes:
        a, b: of the tiles of A and B. b_whole: of what belongs to the rows of B and each CTA needs
            whole, also in a pair.
        release: the CTAs that copy into this one's slots, or into its peer's: a commit tells all of
            them; None where there is one.
    """

    a: Share
    b: Share
    b_whole: Share
    release: tp.Value | None

    @classmethod
    def of(cls, ctx: tp.Context, x: int, y: int, cta_group: int = 1) -> ClusterShares:
        """In set-up code, for x × y CTAs of which `cta_group` share an MMA: the cluster, or, where
        CTAs split K, those of a cluster that take the same part of it, which are neighbours.
        """
        if x * y == 1:
            return cls(Share(1), Share(1), Share(1), None)
        column = sum(1 << i * x for i in range(y))  # CTAs at one place along M
        m, n = ctx.cta_rank % x, ctx.cta_rank // x
        first: tp.Value | int = 0  # CTA of this part of K
        if ctx.cluster_size > x * y:
            first = ctx.cta_rank // (x * y) * (x * y)
        same_m, same_n = column << m + first, (1 << x) - 1 << n * x
        sharers = x // cta_group
        every_half = sum(1 << i * cta_group for i in range(sharers))
        same_half = every_half << (n * x + m % 2 if cta_group == 2 else n * x)
        a = Share(y, n % y if ctx.cluster_size > x * y else n, same_m) if y > 1 else Share(1)
        b = Share(sharers, m // cta_group, same_half) if sharers > 1 else Share(1)
        b_whole = Share(x, m, same_n) if x > 1 else Share(1)
        release = same_m | same_n
        if cta_group == 2:
            release |= column << (m ^ 1) + first
        return cls(a, b, b_whole, release)
