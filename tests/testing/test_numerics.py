"""The error bound accepts rounding and nothing else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.testing import compare_matmul

RNG = np.random.default_rng(0)
A = RNG.standard_normal((64, 256)).astype(ml_dtypes.bfloat16)
B = RNG.standard_normal((256, 48)).astype(ml_dtypes.bfloat16)
WANT = A.astype(np.float64) @ B.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_rounded_result_passes(dtype: type) -> None:
    assert compare_matmul(WANT.astype(dtype), A, B).ok


def test_one_lost_product_does_not() -> None:
    got = WANT.astype(np.float32)
    got[5, 7] -= float(A[5, 3]) * float(B[3, 7])
    found = compare_matmul(got, A, B)
    assert not found.ok
    assert found.worst_at == (5, 7)
    assert "WRONG at (5, 7)" in str(found)


def test_nan_never_passes() -> None:
    got = WANT.astype(np.float32)
    got[1, 2] = np.nan
    found = compare_matmul(got, A, B)
    assert not found.ok
    assert found.worst_at == (1, 2)


def test_the_wrong_shape_is_refused() -> None:
    with pytest.raises(tp.BindError, match=r"\(48, 64\)"):
        compare_matmul(WANT.T.astype(np.float32), A, B)


def test_a_dtype_without_a_bound_is_refused() -> None:
    with pytest.raises(tp.BindError, match="no error bound for int32"):
        compare_matmul(WANT.astype(np.int32), A, B)
