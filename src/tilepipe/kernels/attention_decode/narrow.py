"""Attention over a cache of float8_e4m3: what the role that multiplies works on (`Scaled`), and
that role for more queries than there are columns. Its keys and values become float16 in shared
memory, on their way to the tensor cores; with fewer queries `columns` widens them in registers.

That a float16 with the bits of an e4m3 is 2^-8 of it, scores and output make up for. Tiles of K, V
and q, and the sums, have the even elements of a head in their left half and the odd ones in the
right one (`pairs`).

q may be bfloat16, which has a wider range than float16: each row is divided by a power of two, by
which its scores are multiplied. Its largest element is then 2^15 or more, since the larger q is in
float16, the less is lost of small elements, and the smaller is what scores are multiplied with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.attend import Attention, Operands
from tilepipe.kernels.attention_decode.config import ROWS
from tilepipe.kernels.attention_decode.pairs import RAISED, parted, widen
from tilepipe.kernels.attention_decode.shares import Segment

EXPONENT = 0x7F800000  # of a float32
# Powers of two of the largest elements of rows: of all of bfloat16, and what has an inverse.
LARGEST, SMALLEST = 2.0**127, 2.0**-100
LOWERED = 2.0**-15  # float16 has numbers below 2^16
LEAST_FACTOR = 2.0**-120  # of scores: 0 times the -inf of a key that is not seen would be NaN
MOST_FACTOR = (2 - 2.0**-23) * 2.0**127  # of float32; infinity times a score of 0 would be NaN


@dataclass(frozen=True, eq=False)
class Scaled(Operands):
    """What a role works on.

    Attributes:
        q: words of 32 bits, two elements each, of dtype `q_dtype`.
        k_scale, v_scale: float32 (batch, kv_heads), what K and V are multiplied with; None: 1.
            v_factor: what V is multiplied with, too.
    """

    q_dtype: tp.DType
    k_scale: tp.GlobalTensor | None
    v_scale: tp.GlobalTensor | None
    v_factor: tp.Value

    def scaled_queries(self, at: Segment) -> tp.FragmentValue:
        """Puts the queries of an item into shared memory, divided by powers of two. Returns (rows,
        1) what scores are multiplied with.
        """
        ctx, half = self.ctx, self.results.width // 2
        even, odd = parted(ctx, self.queries(at, half), self.q_dtype)
        size = even.apply("abs").maximum(odd.apply("abs")).max()
        power = ctx.fragment((size.bitcast("uint32") & EXPONENT).bitcast("float32"))
        power.set(power.maximum(SMALLEST).minimum(LARGEST) * LOWERED)
        inverse = ctx.fragment((2 * 127 << 23) - power.bitcast("uint32")).bitcast("float32")
        ctx.store(self.tile.cols(0, half), even * inverse)
        ctx.store(self.tile.cols(half, half), odd * inverse)
        factor = self._times(self.k_scale, at, self.scale * RAISED)
        found: tp.FragmentValue = (power * factor).maximum(LEAST_FACTOR).minimum(MOST_FACTOR)
        return found

    def value_factor(self, at: Segment) -> tp.Value:
        """The factor of sums of weights · values."""
        found: tp.Value = self._times(self.v_scale, at, self.v_factor * RAISED)
        return found

    def _times(self, scales: tp.GlobalTensor | None, at: Segment, factor: Any) -> Any:
        return factor if scales is None else self.ctx.load(scales[at.batch, at.head]) * factor


@dataclass(frozen=True, eq=False)
class NarrowOperands(Scaled):
    """What the role works on.

    Attributes:
        k_tile, v_tile: (keys, d) float16.
    """

    k_tile: tp.SmemTile
    v_tile: tp.SmemTile


class NarrowAttention(Attention):
    """The role for a cache of float8_e4m3."""

    of: NarrowOperands

    def __init__(self, of: NarrowOperands) -> None:
        self._factor = of.ctx.fragment(shape=(ROWS, 1))
        super().__init__(of)

    def factor(self) -> tp.Fragment:
        """What scores are multiplied with: a number for each row."""
        return self._factor

    def of_output(self, at: Segment, inverse: tp.Fragment) -> tp.FragmentValue:
        """(rows, 1): what the sums of an item are multiplied with."""
        return inverse * self.of.value_factor(at)

    def load_queries(self, at: Segment) -> None:
        """Puts the queries of an item into shared memory, and sets their factors."""
        self._factor.set(self.of.scaled_queries(at))
        self.ctx.fence_proxy_async()
        self.ctx.sync_warpgroup()

    def multiply(self, at: Segment, i: tp.Value, k_tile: tp.SmemTile, v_tile: tp.SmemTile) -> None:
        """Tile i of a segment: both tiles are (keys, pairs)."""
        ctx, of = self.ctx, self.of
        widen(ctx, k_tile, of.k_tile)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        ctx.mma(self.scores, of.tile, of.k_tile, accumulate=False)
        ctx.wgmma_commit()
        widen(ctx, v_tile, of.v_tile)  # while the tensor cores multiply
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        ctx.wgmma_wait(0)
        bn = of.sequences.bn
        key = ctx.let((at.first + i) * bn, "key")
        with ctx.when(of.sequences.seen.cuts(key, bn, at.keys)):
            self.mask(at, key)
        self.weigh()
        ctx.mma(self.sums, self.weights, of.v_tile.T)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
