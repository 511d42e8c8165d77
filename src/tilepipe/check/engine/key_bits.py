"""Numbers for the bits of accesses which do not depend on the order of the execution."""

from __future__ import annotations

from tilepipe.machine.machine import Machine


class KeyBits:
    """Numbers for the bits of one machine, by the accesses that they stand for."""

    def __init__(self, m: Machine, rename: dict[int, int]) -> None:
        self.of: dict[int, int] = {0: 0}
        self._next = 0
        self.dead = m.order.dead | m.order.resting
        self.rename = rename

    def add(self, *bits: int) -> None:
        for bit in bits:
            if bit and bit not in self.of:
                self.of[bit] = 1 << self._next
                self._next += 1

    def __call__(self, known: int) -> int:
        known &= ~self.dead
        out = 0
        while known:
            bit = known & -known
            out |= self.of.get(bit, 0)
            known ^= bit
        return out
