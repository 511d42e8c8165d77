"""What the benchmark of quantised weights measures: shapes from texts and settings, and the weights
that its reference takes from words. No GPU: nothing is opened.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp

pytest.importorskip("torch")

import torch

from tilepipe.bench import quantised
from tilepipe.kernels.gemm_quantised.layout import BITS, pack


@pytest.mark.parametrize("bits", BITS)
def test_weights_from_words(bits: int) -> None:
    half, rng = 1 << (bits - 1), np.random.default_rng(bits)
    weights = rng.integers(-half, half, (24, 200)).astype(np.int8)
    words = torch.from_numpy(pack(weights, bits))
    assert np.array_equal(quantised.weights_of(words, 200).numpy(), weights)


def test_contests() -> None:
    found = quantised.contests({}, [], tp.H200, 0)
    assert len(found) == 2 * len(quantised.STANDARD)
    assert found[0].problem == "16×8192×8192, 4 bits"
    assert found[-1].problem == "1024×14336×4096, 8 bits"
    assert found[0].flop == 2.0 * 16 * 8192 * 8192
    (one,) = quantised.contests({"m": 8, "bits": 8}, [], tp.H200, 0)
    assert one.problem == "8×1024×1024, 8 bits"
    assert [x.problem for x in quantised.contests({}, ["1,2,3"], tp.H200, 0)] == [
        "1×2×3, 4 bits",
        "1×2×3, 8 bits",
    ]


@pytest.mark.parametrize(
    ("given", "text", "words"),
    [
        ({}, "16,4096", "--shapes of gemm_quantised takes M,N,K, or standard; got '16,4096'"),
        ({"bits": 5}, "16,256,256", "bits must be 4 or 8, got 5"),
        ({"activation": "silu"}, "16,256,256", "measures products without an activation"),
    ],
)
def test_what_is_not_measured(given: dict[str, int | str], text: str, words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        quantised.contests(given, [text], tp.H200, 0)
    assert words in str(caught.value)
