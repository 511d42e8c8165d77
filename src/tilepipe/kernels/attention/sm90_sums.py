"""Sums of weights · V of attention on Hopper, and the weights as an operand in registers."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS, AttentionConfig


class Sums:
    """The sums (64, d_v) of a warpgroup's queries over the tiles of keys so far.

    With `accumulate="promote"` the tensor cores begin each tile of keys at 0, in registers of its
    own, which are added to the sums when the next begins: of 8 bits, tensor cores keep about 14
    bits of a sum, and those of all keys of a long sequence lose what single ones add.
    """

    def __init__(
        self,
        ctx: tp.Context,
        cfg: AttentionConfig,
        shape: tp.FA4Config,
        factor: tp.Fragment,
    ) -> None:
        """`factor`: (rows, 1), that of sums before each tile, as of `OnlineSoftmax`."""
        narrow = shape.qkv_dtype.nbytes == 1
        self._depth = shape.ov_depth
        self._factor = factor
        self._sums = ctx.accumulator((ROWS, self._depth))
        self._weights = ctx.fragment(
            shape=(ROWS, cfg.bn), dtype=shape.qkv_dtype, layout="fours" if narrow else "wgmma"
        )
        self._narrow = narrow
        self._part: tp.Fragment | None = None
        if cfg.accumulate == "promote":
            self._part = ctx.accumulator((ROWS, self._depth))
            self._before = ctx.fragment(shape=(ROWS, 1))
        self._ctx = ctx

    def reset(self) -> None:
        """Forgets the sums so far."""
        self._sums.fill(0)
        if self._part is not None:
            self._part.fill(0)
            self._before.fill(1)

    def take(self, weights: tp.Fragment) -> None:
        """Keeps the weights of a tile of keys, rounded, for `add`."""
        if self._narrow:
            self._weights.pack(weights)
        else:
            self._weights.set(weights)

    def rescale(self) -> None:
        """Multiplies the sums with the factor of the tile that `add` comes to."""
        if self._part is None:
            self._sums.set(self._sums * self._factor)
        else:
            self._sums.set(self._sums * self._before + self._part)
            self._before.set(self._factor)

    def add(self, v_tile: tp.SmemTile) -> None:
        """Issues the MMAs of a tile of keys."""
        v = v_tile.rows(0, self._depth)
        if self._part is None:
            self._ctx.mma(self._sums, self._weights, v)
        else:
            self._ctx.mma(self._part, self._weights, v, accumulate=False)

    def result(self) -> tp.FragmentValue:
        """The sums, after the wait for the last tile."""
        if self._part is None:
            return self._sums
        return self._sums * self._before + self._part
