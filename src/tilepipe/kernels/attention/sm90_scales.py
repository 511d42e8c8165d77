"""The factors of attention on Hopper: of products of queries and keys, of scores, of the output;
with what q, k and v of 8 bits stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.sm90_tiles import QueryTile
from tilepipe.kernels.common.validation import SMALLEST_SCALE


@dataclass(frozen=True, eq=False)
class Scales:
    """What is multiplied with what.

    Attributes:
        inner: the factor of products that are changed before the softmax (`changed`). scores: that
            of scores, in base 2. out: that of the output; None for 1.
        of_q, of_k, of_v: float32 (batch, kv_heads): what q, k and v of a head of K and V, and of
            the heads of q that share it, are multiplied with, not negative; None for 1.
        heads: of q. unscaled: the factor of products without descales, once `started`.
    """

    ctx: tp.Context
    inner: tp.Value | tp.Var
    scores: tp.Value | tp.Var
    out: tp.Value | None
    of_q: tp.GlobalTensor | None
    of_k: tp.GlobalTensor | None
    of_v: tp.GlobalTensor | None
    heads: tp.Value
    changed: bool
    unscaled: tp.Value | tp.Var | None = None

    def started(self) -> Scales:
        """The same in the current role; `take` gives it the factors of a tile of queries."""
        if self.of_q is None and self.of_k is None:
            return self
        unscaled = self.inner if self.changed else self.scores
        factor = self.ctx.var(unscaled)
        if self.changed:
            return replace(self, inner=factor, unscaled=unscaled)
        return replace(self, scores=factor, unscaled=unscaled)

    def take(self, at: QueryTile) -> None:
        """Sets the factor of products for the head of a tile."""
        factor = self.inner if self.changed else self.scores
        if isinstance(factor, tp.Var):
            value: Any = self.unscaled
            for tensor in (self.of_q, self.of_k):
                if tensor is not None:
                    value = value * self._of(tensor, at)
            # A descale of 0, as of a head of zeros, makes scores that differ by nothing; times 0
            # itself, the -inf of a key that is not seen would be NaN.
            factor[...] = self.ctx.max(value, SMALLEST_SCALE)

    def of_output(self, inverse: tp.Fragment, at: QueryTile) -> tp.FragmentValue:
        """(rows, 1): what the sums of a tile are multiplied with, `inverse` included."""
        value: tp.FragmentValue = inverse
        if self.out is not None:
            value = value * self.out
        if self.of_v is not None:
            value = value * self._of(self.of_v, at)
        return value

    def _of(self, tensor: tp.GlobalTensor, at: QueryTile) -> Any:
        assert at.batch is not None, "packed sequences have no operands of 8 bits"
        group = self.heads // tensor.shape[1]
        return self.ctx.let(self.ctx.load(tensor[at.batch, at.head // group]), "factor")
