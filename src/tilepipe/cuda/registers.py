"""Indices into the register arrays that hold fragments.

Register r of row block i of an (m, n) fragment is row 64 i + 16 w + 8 (r / 2 % 2) + l / 4 and column
8 (r / 4) + 2 (l % 4) + r % 2 for lane l of warp w of the warpgroup (PTX ISA, "Register Fragments and Shared Memory Matrix
Layouts" of wgmma, matrix D).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.context import Context


@dataclass(frozen=True, slots=True)
class Index:
    """An index linear in loop variables: offset + Σ factor · variable, as (variable, factor) terms."""

    offset: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.offset + other, self.terms)
        return Index(self.offset + other.offset, self.terms + other.terms)

    def __mul__(self, n: int) -> Index:
        return Index(self.offset * n, tuple((v, f * n) for v, f in self.terms))

    def __str__(self) -> str:
        parts = [v if f == 1 else f"{f} * {v}" for v, f in self.terms]
        return " + ".join([*parts, str(self.offset)] if self.offset or not parts else parts)

    def divided(self, n: int) -> str:
        """index // n, as C++."""
        if all(f % n == 0 for _, f in self.terms):
            return str(Index(self.offset // n, tuple((v, f // n) for v, f in self.terms)))
        return f"{self._bracketed} / {n}"

    def remainder(self, n: int) -> str:
        """Index % n, as C++."""
        rest = tuple((v, f) for v, f in self.terms if f % n)
        return f"{Index(self.offset, rest)._bracketed} % {n}" if rest else str(self.offset % n)

    @property
    def _bracketed(self) -> str:
        text = str(self)
        return text if text.isidentifier() or text.isdigit() else f"({text})"


def loop_index(ctx: Context, name: str, trips: int) -> Index:
    """The variable of an unrolled loop, or 0 where the loop runs once."""
    return Index() if trips == 1 else Index(0, ((ctx.temporary(name), 1),))


@dataclass(frozen=True, slots=True)
class At:
    """Which element of fragment-shaped values is meant.

    Attributes:
        block: C++ index of the 64-row block. register: of the element in it. half: C++ index of its upper or lower row.
    """

    block: str
    register: Index
    half: str
