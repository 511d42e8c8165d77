"""What the softmax over some keys of an item has found of each query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tilepipe as tp


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a part of an item is combined with others by. Its logarithm alone would not do: where
    scores are large, the total is lost in it.

    Attributes:
        largest: score; -inf without keys. total: of the exponentials below it; 0 without keys.
        factor: what scores are multiplied with, log2(e) included: a positive number, or one for
            each query.
    """

    largest: Any
    total: Any
    factor: Any

    def result(self, ctx: tp.Context) -> tuple[tp.Fragment, tp.FragmentValue]:
        """What sums of exponentials · values are multiplied with, and the logarithm of the sum of
        exponentials: 0 and -inf without keys.
        """
        nothing = self.total == 0.0
        inverse = ctx.fragment(ctx.select(nothing, 0.0, 1.0 / self.total))
        logarithm = (self.largest * self.factor + self.total.apply("log2")) * math.log(2)
        return inverse, ctx.select(nothing, -math.inf, logarithm)
