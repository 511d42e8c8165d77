"""Strides that put two elements of an array into the same bytes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilepipe.ir.arrays import shared_elements


@pytest.mark.parametrize(
    ("shape", "strides", "words"),
    [
        ((4, 3), (0, 2), "dimension 0 has a stride of 0, as that of an expanded or broadcast view"),
        ((4, 3), (4, 2), "dimension 0 has a stride of 4 bytes, and what it steps over takes 6"),
        ((4, 3), (-4, 2), "dimension 0 has a stride of 4 bytes, and what it steps over takes 6"),
        ((4,), (1,), "dimension 0 has a stride of 1 bytes, and what it steps over takes 2"),
        ((4, 3), (6, 2), None),
        ((4, 3), (2, 8), None),
        ((1, 3), (0, 2), None),
        ((4, 0), (0, 2), None),
        ((), (), None),
        ((2, 3), (6, 4), None),  # one between those of the other, but none on another
        ((3, 4), (6, 4), "dimension 0 has a stride of 6 bytes, and what it steps over takes 14"),
    ],
)
def test_elements_that_share_memory(
    shape: tuple[int, ...], strides: tuple[int, ...], words: str | None
) -> None:
    assert shared_elements(shape, strides, 2) == words


@pytest.mark.parametrize("size", [1, 2, 4])
def test_as_the_addresses_say(size: int) -> None:
    rng = np.random.default_rng(size)
    seen = set()
    for _ in range(500):
        rank = int(rng.integers(1, 4))
        shape = tuple(rng.integers(1, 4, rank).tolist())
        strides = tuple(rng.integers(-14, 15, rank).tolist())
        places = [
            sum(i * stride for i, stride in zip(index, strides, strict=True)) + byte
            for index in itertools.product(*map(range, shape))
            for byte in range(size)
        ]
        found = shared_elements(shape, strides, size) is not None
        assert found == (len(set(places)) < len(places)), (shape, strides)
        seen.add(found)
    assert seen == {True, False}
