"""What the GEMM for Hopper refuses to be bound to: operands, options, stages."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.validation import check_stage_bytes

BF16 = ml_dtypes.bfloat16


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


def test_operands_that_do_not_fit_together() -> None:
    with pytest.raises(tp.BindError, match="A is 64×64 and B 64×72"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 72), BF16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="C is 64×72"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), BF16),
            np.zeros((64, 72), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="the same for A and B"):
        gemm.bind(
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), np.float16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )
    with pytest.raises(tp.BindError, match="matrices"):
        gemm.bind(
            np.zeros(64, BF16),
            np.zeros((64, 64), BF16),
            np.zeros((64, 64), BF16),
            GemmConfig(),
        )


def test_a_stage_of_more_bytes_than_its_barrier_counts() -> None:
    a = half(512, 512)
    words = (
        "100 * (128 + 128) * 64 * 2 bytes = 3,276,800 bytes, and the stage's mbarrier counts "
        "up to 1,048,575"
    )
    with pytest.raises(
        tp.BindError,
        match=rf"k_group_size=100 makes .*{re.escape(words)}.* k_group_size may be 31 at most",
    ):
        gemm.bind(a, a, a, GemmConfig(k_group_size=100))
    with pytest.raises(tp.LimitError, match="shared memory"):
        gemm.bind(a, a, a, GemmConfig(k_group_size=31))
    check_stage_bytes(128, 128, 64, 31, tp.bfloat16)
    for a_and_b in ((128, 64, 64, 22, tp.bfloat16, 2), (256, 256, 128, 16, tp.float8_e4m3)):
        with pytest.raises(
            tp.BindError, match=r"1,\d{3},\d{3} bytes, and .* may be (21|15) at most"
        ):
            check_stage_bytes(*a_and_b)


def test_beta_without_a_source() -> None:
    a, b, c = np.zeros((64, 64), BF16), np.zeros((64, 64), BF16), np.zeros((64, 64), BF16)
    with pytest.raises(
        tp.BindError,
        match=r"beta=2.0 scales source, which is not given; to add to what C holds, pass it as "
        r"source",
    ):
        gemm.bind(a, b, c, GemmConfig(), beta=2.0)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"cfg": None}, "cfg is a GemmConfig, got None"),
    ({"cfg": {}}, "cfg is a GemmConfig, got {}"),
    ({"a": None}, "a must be an array, got None"),
    ({"c": [[1.0]]}, "c must be an array, got [[1.0]]"),
    ({"bias": 3}, "bias must be an array, got 3"),
    ({"bias": np.zeros(128)}, "bias is float64; it may be bfloat16, float16, float32"),
    ({"source": 5.0, "beta": 1.0}, "source must be an array, got 5.0"),
    ({"source": np.zeros((128, 128), np.int8), "beta": 1.0}, "source is int8"),
    ({"a_scale": 1.0, "b_scale": 1.0}, "a_scale must be an array, got 1.0"),
    (
        {"a_scale": np.zeros(1, np.int32), "b_scale": np.zeros(1, np.int32)},
        "a_scale is int32; it must be float32",
    ),
    ({"bias": half(256)[::2]}, "gemm: bias: an array of shape (128,) with strides (4,)"),
    ({"alpha": "x"}, "alpha must be a number, got 'x'"),
    ({"alpha": None}, "alpha must be a number, got None"),
    ({"alpha": 2j}, "alpha must be a number"),
    ({"source": half(128, 128), "beta": "1"}, "beta must be a number, got '1'"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=[words for _, words in BAD_OPTIONS])
def test_arguments_of_the_wrong_kind(options: dict[str, Any], words: str) -> None:
    arguments = {
        "a": half(128, 64),
        "b": half(128, 64),
        "c": half(128, 128),
        "cfg": GemmConfig(),
    } | options
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm.bind(**arguments)


@pytest.mark.parametrize(
    ("dtype", "settings", "words"),
    [
        (
            "float32",
            {"bk": 32},
            "A is contiguous along m; tensor cores transpose 16-bit elements only",
        ),
        (
            "float16",
            {"cluster_n": 4},
            (
                "tiles of 128 along m are loaded in parts of 32, which must be a multiple of "
                "64: change bm"
            ),
        ),
        (
            "float16",
            {"swap": "ab", "cluster": 8},
            "loaded in parts of 16, which must be a multiple of 64: change bn and cluster",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 320, "bm": 64, "consumers": 1, "stages": 2},
            "tiles of 320 along m are loaded in parts of 160",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 56, "split_k": 7},
            "A is contiguous along m, and its tiles have 56 along m; tensor cores read them in"
            " lines of 16, 32 or 64, and 56 / 16 = 3.5: change bn, or pass A contiguous along k",
        ),
        (
            "float16",
            {"swap": "ab", "bn": 168},
            "168 / 16 = 10.5: change bn",
        ),
    ],
)
def test_operands_that_are_not_contiguous_along_k(
    dtype: str, settings: dict[str, Any], words: str
) -> None:
    a, b = np.zeros((64, 128), dtype).T, np.zeros((128, 64), dtype)
    with pytest.raises(tp.BindError, match=re.escape(words)):
        gemm.bind(a, b, half(128, 128), GemmConfig(**settings))
