"""The order of packed weights, and what cannot be packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_quantised.layout import pack, unpack


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", [(1, 1), (3, 128), (5, 300)])
def test_unpacked_weights_are_what_was_packed(bits: int, shape: tuple[int, int]) -> None:
    half = 1 << (bits - 1)
    weights = np.random.default_rng(0).integers(-half, half, shape)
    words = pack(weights, bits)
    assert words.shape == (-(-shape[1] // 128), shape[0], 4 * bits)
    assert words.dtype == np.int32
    assert np.array_equal(unpack(words, shape[1]), weights)


def test_words_have_neighbours_in_their_halves() -> None:
    """Column 16 j + 8 i + 2 t + s of part 0 is in half s of word 8 j + 2 t + i; a part is 32
    columns, where weights have 4 bits.
    """
    weights = np.full((1, 128), -8)
    for column, code in ((0, 1), (1, 2), (8, 3), (2, 4), (16, 5), (32, 6)):
        weights[0, column] = code - 8
    words = pack(weights).view(np.uint32)[0, 0]
    assert [hex(w) for w in words[[0, 1, 2, 8]]] == ["0x20061", "0x3", "0x4", "0x5"]


@pytest.mark.parametrize(
    ("weights", "bits", "words"),
    [
        (np.zeros((2, 2)), 4, "a matrix (n, k) of integers; they are float64"),
        (np.zeros(2, np.int8), 4, "of shape (2,)"),
        (np.full((2, 2), 8), 4, "weights of 4 bits are -8 to 7; there are 8 to 8"),
        (np.full((2, 2), -129), 8, "weights of 8 bits are -128 to 127; there are -129 to -129"),
        (np.zeros((2, 2), np.int8), 2, "weights have 4 or 8 bits, got bits=2"),
        (np.zeros((2, 2), np.int8), True, "weights have 4 or 8 bits, got bits=True"),
        (np.zeros((2, 2), np.int8), 4.0, "weights have 4 or 8 bits, got bits=4.0"),
        (
            np.zeros((2, 2), np.int8),
            np.full(2, 4),
            "weights have 4 or 8 bits, got bits=array([4, 4])",
        ),
        ([[1]], 4, "weights must be a NumPy array, got [[1]]"),
    ],
)
def test_what_cannot_be_packed(weights: np.ndarray, bits: Any, words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        pack(weights, bits)
    assert words in str(caught.value)
