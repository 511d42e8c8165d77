"""Arguments of `bind` that TMA cannot take: messages are about what was given, not about the view
of it that a kernel reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.values import bind_turn, turned_shape
from tilepipe.kernels.attention_decode import sm90 as decode
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.gemm_quantised import validation as quantised
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig

BF16 = ml_dtypes.bfloat16


def zeros(*shape: int) -> Any:
    return np.zeros(shape, BF16)


def attending(given: dict[str, Any]) -> None:
    x = zeros(1, 40, 2, 64)
    attention.bind(**({"q": x, "k": x, "v": x, "out": x} | given))


def decoding(given: dict[str, Any]) -> None:
    q, cache = zeros(3, 1, 4, 64), zeros(3, 128, 2, 64)
    arrays = {"q": q, "k_cache": cache, "v_cache": cache, "out": q} | given
    decode.bind(**arrays, cfg=DecodeConfig())


Binds = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("binds", "kernel", "name", "shape"),
    [
        *((attending, "attention", name, (1, 40, 2, 64)) for name in ("q", "k", "v", "out")),
        (decoding, "attention_decode", "q", (3, 1, 4, 64)),
        *((decoding, "attention_decode", name, (3, 128, 2, 64)) for name in ("k_cache", "v_cache")),
    ],
)
def test_what_is_wrong_is_said_of_the_argument(
    binds: Binds, kernel: str, name: str, shape: tuple[int, ...]
) -> None:
    *outer, d = shape
    with pytest.raises(tp.BindError) as caught:
        binds({name: zeros(*outer, 2 * d)[..., ::2]})
    assert str(caught.value).startswith(
        f"{kernel}: {name}: an array of shape {shape} bfloat16: dimension 3 must be contiguous, and"
        " its elements of 2 bytes are 4 bytes apart"
    )
    if name == "out" or (kernel == "attention_decode" and name == "q"):
        return  # written from registers, or read without TMA
    with pytest.raises(tp.BindError) as caught:
        binds({name: zeros(*outer, d + 4)[..., :d]})
    assert f"{kernel}: {name}: an array of shape {shape} bfloat16: TMA needs" in str(caught.value)
    assert f"dimension 2 has a stride of {2 * (d + 4)} bytes" in str(caught.value)
    assert f"padded = np.zeros({shape}, {name}.dtype)[..., :{d}]" in str(caught.value)


def test_values_to_turn() -> None:
    v, out = (
        np.zeros((1, 48, 2, 72), np.uint8)[..., :64],
        np.zeros(turned_shape(1, 48, 2, 64), "u1"),
    )
    with pytest.raises(tp.BindError, match=r"attention: v: an array of shape \(1, 48, 2, 64\)"):
        bind_turn(v, out.view(np.uint32))


def test_a_result_that_a_kernel_writes_turned() -> None:
    a, c = zeros(64, 128), zeros(64, 68)[:, :64]
    words, scales = np.zeros((1, 64, 128), np.uint32), zeros(2, 64)
    cfg = QuantisedGemmConfig(bm=64, bn=64, consumers=1)
    with pytest.raises(
        tp.BindError, match=r"c: an array of shape \(64, 64\).*dimension 0 has a stride"
    ):
        quantised.maps(a, words, scales, c, cfg, 64)
