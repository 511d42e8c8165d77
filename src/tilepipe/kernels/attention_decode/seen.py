"""Which keys the query tokens of a sequence see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp


@dataclass(frozen=True, eq=False)
class Seen:
    """Token i of a sequence stands at the key i + keys - tokens.

    Attributes:
        causal: whether it sees no key after that one. left: how many keys before it, at most; None:
            all.
    """

    ctx: tp.Context
    tokens: int
    causal: bool
    left: tp.Value | None

    def first(self, keys: Any) -> Any:
        """The first key that some token sees, of a sequence or of each of several."""
        assert self.left is not None
        at = keys - (self.tokens + self.left)
        return at.maximum(0) if isinstance(at, tp.FragmentValue) else self.ctx.max(at, 0)

    def skipped(self, keys: Any, bn: int) -> Any:
        """How many tiles of bn keys no token sees, before those that are seen."""
        return 0 if self.left is None else self.first(keys) // bn

    def cuts(self, key: tp.Value, bn: int, keys: tp.Value) -> Any:
        """Whether some token does not see all of a tile of bn keys from `key` on."""
        cut: Any = key + bn > keys - (self.tokens - 1 if self.causal else 0)
        if self.left is None:
            return cut
        return cut | (key < keys - 1 - self.left)

    def mask(self, place: Any, token: Any, keys: tp.Value) -> Any:
        """Which of the keys at `place`, one for each column or row of scores, a token sees, one for
        each row or column.
        """
        seen: Any = place < keys
        if self.tokens == 1 and self.left is None:
            return seen
        if self.causal:
            seen = place < (token + (keys - (self.tokens - 1))).minimum(keys)
        if self.left is not None:
            seen = seen & (place >= token + (keys - (self.tokens + self.left)))
        return seen

    def held(self, place: tp.FragmentValue, keys: tp.Value) -> Any:
        """Which of the keys at `place` some token sees; what others hold may be anything."""
        held: Any = place < keys
        return held if self.left is None else held & (place >= self.first(keys))
