"""The softmax of rows whose scores come in tiles: the largest score so far, and the sum of
exponentials below it.
"""

from __future__ import annotations

import math
from typing import Any

import tilepipe as tp

# columns of the partial sums: two of each thread, so that a row is added up over threads once, at
# the end
LANES = 8


class OnlineSoftmax:
    """The running softmax of one warpgroup's rows, in base 2: the scale includes log2(e).

    `update` turns the scores of a tile into weights exp2(octaves + scale · (score - largest));
    `result` gives what the sums of weights · V, without the octaves, are multiplied with.

    ptxas joins the scaling of scores with the subtraction of the largest: the weight of the largest
    score is then 2 to the rounding error of scale · largest, up to half a unit in its last place.
    All weights of a row have that factor, and so has their sum; it overflows float32 from products
    of 2^31 on, and weights in float16 from 2^28 on. A separate subtraction would take one more
    instruction for each score.

    Attributes:
        factor: (rows, 1), what sums of weights of earlier tiles are multiplied by before those of
            the last one are added: the largest score may have grown.
    """

    def __init__(
        self,
        ctx: tp.Context,
        scores: tp.Fragment,
        scale: tp.Value | tp.Var | tp.Fragment,
        octaves: int = 0,
    ) -> None:
        """`scores`: an accumulator (rows, n). `scale`: a positive number, or one for each row,
        (rows, 1); log2(e) included. `octaves`: weights are 2^octaves times as large.
        """
        rows = scores.shape[0]
        self._octaves = octaves
        self._ctx = ctx
        self._scores = scores
        self._scale = scale
        self._largest = ctx.fragment(shape=(rows, 1))
        self._total = ctx.fragment(shape=(rows, LANES))
        self.factor = ctx.fragment(shape=(rows, 1))

    def reset(self) -> None:
        """Forgets the scores so far: what follows is of other rows."""
        self._largest.fill(-math.inf)
        self._total.fill(0)

    def mask(self, seen: tp.FragmentValue) -> None:
        """Takes the scores out that are not `seen`, a condition (rows, n) or (1, n)."""
        self._scores.set(self._ctx.select(seen, self._scores, -math.inf))

    def update(self) -> None:
        """A tile of scores -> weights."""
        ctx, scores, scale = self._ctx, self._scores, self._scale
        before = ctx.fragment(self._largest)
        self._largest.set(before.maximum(scores.max()))
        # A row that has seen no key yet has -inf, from which nothing can be subtracted.
        largest = ctx.fragment(ctx.select(self._largest == -math.inf, 0.0, self._largest))
        base = ctx.fragment(largest * scale)
        top = ctx.fragment(base - float(self._octaves)) if self._octaves else base
        scores.set((scores * scale - top).apply("exp2"))
        # Not before * scale - base: ptxas makes that one operation, which does not round the
        # product as `base` has been rounded, so that the factor of a score that is still the
        # largest would not be 1, and each tile would multiply by it again.
        self.factor.set(((before - largest) * scale).apply("exp2"))
        part = scores.cols(0, LANES)
        for col in range(LANES, scores.shape[1], LANES):
            part = part + scores.cols(col, LANES)
        self._total.set(self._total * self.factor + part)

    @property
    def largest(self) -> tp.Fragment:
        """The largest score of each row, (rows, 1); -inf without keys."""
        return self._largest

    def total(self) -> tp.FragmentValue:
        """The sum of exponentials below the largest of each row, (rows, 1); 0 without keys."""
        total: tp.FragmentValue = self._total.sum()
        if self._octaves:
            return self._ctx.fragment(total * 2.0**-self._octaves)
        return total

    def result(self, sink: tp.Value | None = None) -> tuple[tp.Fragment, tp.FragmentValue]:
        """(1 / sum, log(sum)) of each row, the latter with the largest score in it; (0, -inf) of a
        row without keys.

        Args:
            sink: a score, in base e, of a key that has no value: it takes its part of the sum only.
        """
        ctx, top = self._ctx, self._largest * self._scale
        total = self.total()
        shrink: tp.FragmentValue | float = 1.0
        if sink is not None:
            score: Any = sink * math.log2(math.e)
            largest = ctx.fragment(top)
            top = ctx.fragment(largest.maximum(score))
            base = ctx.fragment(ctx.select(top == -math.inf, 0.0, top))
            shrink = ctx.fragment((largest - base).apply("exp2"))
            total = ctx.fragment(total * shrink + (score - base).apply("exp2"))
        nothing = total == 0.0
        inverse = ctx.fragment(ctx.select(nothing, 0.0, shrink / total))
        logarithm = ctx.select(nothing, -math.inf, (top + total.apply("log2")) * math.log(2))
        return inverse, logarithm
