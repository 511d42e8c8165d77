"""What attention on Hopper does with the scores of a tile of keys before the softmax: it changes
them as the call asks, and takes out those of keys that a query does not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS
from tilepipe.kernels.attention.scores import ScoreChanges, change_by
from tilepipe.kernels.attention.sm90_seen import SeenKeys
from tilepipe.kernels.attention.sm90_tiles import QueryTile
from tilepipe.kernels.common.online_softmax import OnlineSoftmax


@dataclass(frozen=True, eq=False)
class Scoring:
    """How the scores of a tile of keys are changed and masked. `slopes`, `cap`: as the kernel gets
    them; see `ScoreChanges`.
    """

    ctx: tp.Context
    changes: ScoreChanges
    seen: SeenKeys
    slopes: tp.GlobalTensor | None
    cap: tp.Value

    def change(
        self,
        scores: tp.Fragment,
        inner: tp.Value | tp.Var,
        at: QueryTile,
        first_key: tp.Value,
    ) -> None:
        """Changes the scores (64, bn) of the keys from `first_key` on as `ScoreChanges` says;
        `inner`: the factor that they have before.
        """
        if not self.changes.any:
            return
        ctx = self.ctx
        key: Any = first_key + ctx.col_index(self.seen.bn)
        x: tp.FragmentValue = scores * inner
        if self.changes.softcap:
            # tanh(y) = 1 - 2 / (1 + exp(2 y)), within 2^-22; inner holds the 2 and log2(e)
            x = 1.0 - 2.0 * (1.0 + x.apply("exp2")).apply("rcp")
            if self.slopes is not None or self.changes.function is not None:
                x = x * self.cap
        if self.slopes is not None:
            slope: Any = ctx.let(ctx.load(self.slopes[at.head]), "slope")
            distance = (key - self._queries(at.place)).apply("abs")
            x = x - slope * distance.to("float32")
        if self.changes.function is not None:
            query = self._queries(at.first)
            x = change_by(self.changes.function, ctx, x, query, key, at.head)
        scores.set(x)

    def mask(
        self,
        softmax: OnlineSoftmax,
        at: QueryTile,
        first_key: tp.Value,
        *,
        on_left: bool,
        on_right: bool,
    ) -> None:
        """Takes out the scores of keys, of those from `first_key` on, that are after the last, or
        on a side named here where a query does not see them.
        """
        key: Any = first_key + self.ctx.col_index(self.seen.bn)
        if on_right:
            stop = (self._queries(at.place) + (1 + self.seen.right)).minimum(at.keys)
            softmax.mask(key < stop)
        else:
            softmax.mask(key < at.keys)
        if on_left:
            softmax.mask(key >= self._queries(at.place) - self.seen.left)

    def _queries(self, start: tp.Value) -> Any:
        """(64, 1): `start` and the numbers after it, one for each query of this warpgroup."""
        ctx = self.ctx
        return start + ctx.warpgroup_rank * ROWS + ctx.row_index(ROWS)
