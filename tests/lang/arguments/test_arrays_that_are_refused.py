"""Arrays that no kernel takes: errors of an argument without a map do not speak of TMA, and errors
of a map say which call makes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel()
def kernel(ctx: tp.Context, logits: Any) -> None:
    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.syncwarp()


EMPTY, STRIDED = np.zeros((0, 8), np.float32), np.zeros((8, 16), np.float32)[:, ::2]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (EMPTY, "an array of shape (0, 8) has no elements; an argument has every extent >= 1"),
        (STRIDED, "a kernel needs a stride of one element (4 bytes) in one of them"),
        (np.array(1.0), "an argument has 1..5 dimensions, the array has 0"),
    ],
)
def test_an_argument_without_a_map(array: Any, words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        kernel.bind(array)
    assert str(caught.value).startswith("argument 'logits': ")
    assert words in str(caught.value)
    assert "TMA" not in str(caught.value)
    assert "tensor map" not in str(caught.value)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (EMPTY, "a tensor map has every extent >= 1"),
        (STRIDED, "TMA needs a stride of one element (4 bytes) in one of them"),
        (np.zeros((8, 9), np.float32), "dimension 0 has a stride of 36 bytes"),
        (np.zeros(8, np.float32), "box (8, 8) has 2 dimensions, the array 1"),
    ],
)
def test_a_map_says_which_call_makes_it(array: Any, words: str) -> None:
    right = np.zeros((8, 8), np.float32)
    with pytest.raises(tp.BindError) as caught:
        tp.tensor_map(right, box=(8, 8)), tp.tensor_map(array, box=(8, 8))
    message = str(caught.value)
    assert message.startswith("tp.tensor_map(array, box=(8, 8)): ")
    assert words in message
    assert f"at {__file__}:" in message


def test_kernels_of_the_package_name_their_own_argument() -> None:
    from tilepipe.kernels.gemm import sm90
    from tilepipe.kernels.gemm.config import GemmConfig

    a, b, c = (np.zeros(s, np.float16) for s in ((128, 201), (128, 201), (128, 128)))
    with pytest.raises(tp.BindError, match=r"^gemm: a: an array of shape \(128, 201\)"):
        sm90.bind(a, b, c, GemmConfig())
