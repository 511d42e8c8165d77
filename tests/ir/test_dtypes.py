"""Dtypes are found by their names and by NumPy's types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        ("bfloat16", tp.bfloat16),
        ("bf16", tp.bfloat16),
        ("float8_e4m3", tp.float8_e4m3),
        ("float8_e4m3fn", tp.float8_e4m3),
        ("e4m3", tp.float8_e4m3),
        ("e5m2", tp.float8_e5m2),
        (ml_dtypes.float8_e5m2, tp.float8_e5m2),
        (np.dtype(np.float32), tp.float32),
        (tp.int8, tp.int8),
        ("float4_e2m1fn_x2", tp.float4_e2m1),
        ("e2m1", tp.float4_e2m1),
        (ml_dtypes.float4_e2m1fn, tp.float4_e2m1),
        ("float8_e8m0fnu", tp.float8_e8m0),
        (ml_dtypes.float8_e8m0fnu, tp.float8_e8m0),
    ],
)
def test_a_dtype_by_name(spec: object, dtype: tp.DType) -> None:
    assert tp.dtype(spec) is dtype


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("tf32", "tf32 is no dtype in memory: keep the tiles in float32"),
        ("float7", "unknown dtype 'float7'"),
    ],
)
def test_no_such_dtype(spec: str, words: str) -> None:
    with pytest.raises(tp.BindError, match=words):
        tp.dtype(spec)
