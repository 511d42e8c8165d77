"""Integers of printed C++ that are sums of multiples of variables, constants folded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Index:
    """An index linear in loop variables: offset + Σ factor · variable, as (variable, factor)
    terms.
    """

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
        """The C++ of index // n."""
        if all(f % n == 0 for _, f in self.terms):
            return str(Index(self.offset // n, tuple((v, f // n) for v, f in self.terms)))
        return f"{self._bracketed} / {n}"

    def remainder(self, n: int) -> str:
        """The C++ of index % n."""
        rest = tuple((v, f) for v, f in self.terms if f % n)
        return f"{Index(self.offset, rest)._bracketed} % {n}" if rest else str(self.offset % n)

    def in_row(self) -> str:
        """The C++ of the place of a register among those of its row, two for each eight columns."""
        if all(f % 4 == 0 for _, f in self.terms):
            whole, rest = divmod(self.offset, 4)
            return str(Index(2 * whole + rest % 2, tuple((v, f // 2) for v, f in self.terms)))
        low = self.remainder(2)
        return f"{self._bracketed} / 4 * 2{'' if low == '0' else f' + {low}'}"

    @property
    def _bracketed(self) -> str:
        text = str(self)
        return text if text.isidentifier() or text.isdigit() else f"({text})"


def term(code: str, factor: int = 1) -> Index:
    """`factor` times what C++ gives; a number is folded."""
    if code.isdigit():
        return Index(int(code) * factor)
    return Index(0, ((code if code.isidentifier() else f"({code})", factor),))
