"""What attention on Hopper does with the scores of a tile of keys before the softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.scores import Terms
from tilepipe.kernels.attention.sm90_shared import Place


@dataclass(frozen=True, eq=False)
class Rows:
    """What is done with scores; the arguments of the kernel."""

    terms: Terms
    slopes: tp.GlobalTensor | None
    sinks: tp.GlobalTensor | None
    inner: tp.Value
    cap: tp.Value
    scale: tp.Value

    def changed(
        self,
        ctx: tp.Context,
        scores: tp.Fragment,
        at: Place,
        query: Callable[[tp.Value], Any],
        key: Any,
    ) -> tp.FragmentValue:
        """The scores (64, bn) of a tile of keys as `Terms` says; `query` as `attend` has it."""
        x: tp.FragmentValue = scores * self.inner
        if self.terms.softcap:
            # tanh(y) = 1 - 2 / (1 + exp(2 y)), within 2^-22; inner holds the 2 and log2(e)
            x = 1.0 - 2.0 * (1.0 + x.apply("exp2")).apply("rcp")
            if self.slopes is not None or self.terms.function is not None:
                x = x * self.cap
        if self.slopes is not None:
            slope: Any = ctx.let(ctx.load(self.slopes[at.head]), "slope")
            distance = (key - query(at.place)).apply("abs")
            x = x - slope * distance.to("float32")
        if self.terms.function is not None:
            x = self.terms.function(ctx, x, query(at.first), key, at.head)
        return x
