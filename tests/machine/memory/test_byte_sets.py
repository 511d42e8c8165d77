"""Sets of bytes, against Python's sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tilepipe.machine.memory.byte_sets import ByteSet, LaneBytes, one_lane_each

addresses = st.sets(st.integers(0, 300), min_size=1, max_size=60)


def of(members: set[int]) -> ByteSet:
    return ByteSet.of(np.array(sorted(members)))


@pytest.mark.slow
@given(addresses, addresses)
def test_sets(a: set[int], b: set[int]) -> None:
    x, y = of(a), of(b)
    assert set(x.addresses().tolist()) == a
    assert (x.lo, x.hi, len(x)) == (min(a), max(a) + 1, len(a))
    assert x.meets(y) == bool(a & b)
    assert x.within(y) == (a <= b)
    assert x.is_span == (max(a) - min(a) + 1 == len(a))
    assert x.common(y).bit_count() == len(a & b)


lanes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=5)


@pytest.mark.slow
@given(lanes, lanes)
def test_program_order_of_lanes(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    """Program order settles it where each byte in common is one and the same lane's."""

    def touched(accesses: list[tuple[int, int]]) -> dict[int, set[int]]:
        by: dict[int, set[int]] = {}
        for lane, at in accesses:
            for byte in range(at, at + 2):
                by.setdefault(byte, set()).add(lane)
        return by

    one, two = touched(a), touched(b)
    want = all(one[p] == two[p] and len(one[p]) == 1 for p in one.keys() & two.keys())
    made = [LaneBytes((1 << lane, at, 2) for lane, at in accesses) for accesses in (a, b)]
    assert one_lane_each(*made) == want


def test_how_a_set_is_named() -> None:
    assert str(ByteSet.span(0x400, 0x400)) == "bytes 0x400..0x7ff"
    assert str(ByteSet.span(8, 1)) == "bytes 0x8"
    assert str(of({0, 2, 16})) == "3 bytes in 0x0..0x10"
