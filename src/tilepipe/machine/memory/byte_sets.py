"""Sets of bytes of one address space: what an access by address touches, exactly.

A set is its first byte and a Python integer with a bit for each byte from there, so that asking
whether two sets meet is one shift and one `&`, whatever the layout and the swizzle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class ByteSet:
    """Byte `lo + i` for each bit i of `mask`; bit 0 is set."""

    __slots__ = ("lo", "mask")

    def __init__(self, lo: int, mask: int) -> None:
        self.lo = lo
        self.mask = mask

    @staticmethod
    def span(lo: int, nbytes: int) -> ByteSet:
        """`nbytes` consecutive bytes."""
        return ByteSet(lo, (1 << nbytes) - 1)

    @staticmethod
    def of(addresses: npt.NDArray[np.int64]) -> ByteSet:
        """The bytes at some addresses, of which there is at least one."""
        lo, hi = int(addresses.min()), int(addresses.max()) + 1
        if (
            hi - lo == addresses.size
            and addresses.ndim == 1
            and bool((np.diff(addresses) == 1).all())
        ):
            return ByteSet.span(lo, hi - lo)
        there = np.zeros(hi - lo, np.bool_)
        there[addresses.reshape(-1) - lo] = True
        bits = np.packbits(there, bitorder="little")
        return ByteSet(lo, int.from_bytes(bits.tobytes(), "little"))

    @property
    def hi(self) -> int:
        """One past the last byte."""
        return self.lo + self.mask.bit_length()

    def __len__(self) -> int:
        return self.mask.bit_count()

    @property
    def is_span(self) -> bool:
        """True if the bytes are consecutive."""
        return not self.mask & (self.mask + 1)

    def mask_from(self, lo: int) -> int:
        """The mask with bit 0 at byte `lo`; what lies before it is left out."""
        return self.mask >> lo - self.lo if lo >= self.lo else self.mask << self.lo - lo

    def common(self, other: ByteSet) -> int:
        """The bytes in both sets, as a mask from the higher of their first bytes."""
        lo = max(self.lo, other.lo)
        return self.mask_from(lo) & other.mask_from(lo)

    def meets(self, other: ByteSet) -> bool:
        """True if the sets have a byte in common."""
        return self.lo < other.hi and other.lo < self.hi and bool(self.common(other))

    def within(self, other: ByteSet) -> bool:
        """True if every byte is one of `other`."""
        return self.lo >= other.lo and not self.mask & ~other.mask_from(self.lo)

    def moved(self, by: int) -> ByteSet:
        """The set with all addresses raised by so much."""
        return ByteSet(self.lo + by, self.mask)

    def addresses(self) -> npt.NDArray[np.int64]:
        """The addresses, ascending."""
        raw = np.frombuffer(self.mask.to_bytes(-(-self.mask.bit_length() // 8), "little"), np.uint8)
        return self.lo + np.flatnonzero(np.unpackbits(raw, bitorder="little"))

    def __str__(self) -> str:
        """`bytes 0x400..0x7ff`, or `512 bytes in 0x400..0x7ff` where there are gaps."""
        ends = f"{self.lo:#x}..{self.hi - 1:#x}" if self.hi - self.lo > 1 else f"{self.lo:#x}"
        return f"bytes {ends}" if self.is_span else f"{len(self):,} bytes in {ends}"


class LaneBytes(ByteSet):
    """The bytes of an ordinary access, with the lane that touches each: `lanes` holds (mask of one
    lane, its first byte, number of bytes).
    """

    __slots__ = ("lanes",)

    def __init__(self, lanes: Iterable[tuple[int, int, int]]) -> None:
        self.lanes = tuple(lanes)
        lo = min(first for _, first, _ in self.lanes)
        mask = 0
        for _, first, nbytes in self.lanes:
            mask |= ((1 << nbytes) - 1) << first - lo
        super().__init__(lo, mask)

    def lanes_of(self, wanted: ByteSet) -> dict[int, int]:
        """Lane -> which of the bytes of `wanted` it touches, as a mask from `wanted.lo`."""
        found: dict[int, int] = {}
        for lane, first, nbytes in self.lanes:
            mine = ByteSet.span(first, nbytes).mask_from(wanted.lo) & wanted.mask
            if mine:
                found[lane] = found.get(lane, 0) | mine
        return found


def one_lane_each(a: ByteSet, b: ByteSet) -> bool:
    """True if each byte in both sets is touched by one and the same lane in both."""
    if not isinstance(a, LaneBytes) or not isinstance(b, LaneBytes):
        return False
    lo = max(a.lo, b.lo)
    both = ByteSet(lo, a.common(b))
    mine, theirs = a.lanes_of(both), b.lanes_of(both)
    seen = 0
    for lane, bytes_ in mine.items():
        if seen & bytes_ or theirs.get(lane, 0) != bytes_:
            return False
        seen |= bytes_
    return sum(x.bit_count() for x in theirs.values()) == both.mask.bit_count()


def lanes_at_common(old: ByteSet, new: ByteSet) -> Iterator[tuple[int, int]] | None:
    """For the bytes in both sets, the lane that touches them in `old`, and that in `new`; None
    where one of the accesses is not by lanes.
    """
    if not isinstance(old, LaneBytes) or not isinstance(new, LaneBytes):
        return None
    both = ByteSet(max(old.lo, new.lo), old.common(new))
    later = new.lanes_of(both)
    return (
        (lane, other)
        for lane, bytes_ in old.lanes_of(both).items()
        for other, theirs in later.items()
        if bytes_ & theirs
    )


def gather(
    memory: Bytes, addresses: npt.NDArray[np.int64], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The elements whose bytes lie at `addresses` (..., bytes of one element), as (...)."""
    raw = np.ascontiguousarray(memory[addresses])
    out: npt.NDArray[Any] = raw.view(dtype)[..., 0]
    return out
