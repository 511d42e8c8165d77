"""The error bound accepts rounding and nothing else."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.testing import compare, compare_matmul
from tilepipe.testing.numerics import fp8_sum_error, judged_by_the_whole

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
A = RNG.standard_normal((64, 256)).astype(ml_dtypes.bfloat16)
B = RNG.standard_normal((256, 48)).astype(ml_dtypes.bfloat16)
WANT = A.astype(np.float64) @ B.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_rounded_result_passes(dtype: type) -> None:
    assert compare_matmul(WANT.astype(dtype), A, B).ok


@pytest.mark.parametrize(
    ("dtype", "tiny"),
    [(np.float32, 2.0**-126), (np.float16, 2.0**-14), (ml_dtypes.bfloat16, 2.0**-126)],
)
def test_so_does_what_is_rounded_below_the_smallest_normal(dtype: type, tiny: float) -> None:
    """A 1 by 1 product of each number: its own rounding is all of its error."""
    for factor in np.linspace(0.001, 1.5, 40):
        a, b = np.array([[tiny * factor]], np.float64), np.ones((1, 1))
        assert compare_matmul(a.astype(dtype), a, b).ok
        assert compare(a.astype(dtype), a).ok
        assert not compare((a + tiny / 4).astype(dtype), a).ok


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


# -- sums of fp8 products in Hopper's tensor cores -------------------------------------


def fast_sums(a: Array, b: Array) -> Array:
    """A (m, k) · B (n, k)ᵀ as Hopper's tensor cores add fp8: the 32 products of an instruction and
    the sum so far are aligned with the largest of them, and what lies below 13 bits behind its
    leading one is cut off.
    """
    sums = np.zeros((len(a), len(b)))
    for k in range(0, a.shape[1], 32):
        products = a[:, None, k : k + 32] * b[None, :, k : k + 32]
        largest = np.maximum(np.abs(products).max(-1), np.abs(sums))
        unit = 2.0 ** (np.floor(np.log2(np.maximum(largest, 1e-30))) - 13)
        sums = (np.trunc(sums / unit) + np.trunc(products / unit[..., None]).sum(-1)) * unit
    return sums


def fp8(rng: np.random.Generator, rows: int, k: int) -> Array:
    values = np.clip(rng.standard_normal((rows, k)) * 100, -448, 448)
    return values.astype(ml_dtypes.float8_e4m3fn).astype(np.float64)


@pytest.mark.parametrize(
    ("k", "recorded"), [(128, None), (512, None), (2048, 1.9e-3), (4096, 2.1e-3), (8192, 2.6e-3)]
)
def test_the_error_of_fp8_sums_grows_with_k(k: int, recorded: float | None) -> None:
    """The bound holds for what the tensor cores do, by emulation and as measured
    (docs/performance/gemm.md), and is not ten times too wide.
    """
    rng = np.random.default_rng(k)
    a, b = fp8(rng, 32, k), fp8(rng, 32, k)
    want, got = a @ b.T, fast_sums(a, b)
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    assert fp8_sum_error(k) / 10 < error < fp8_sum_error(k) / 1.5
    rounded = got.astype(ml_dtypes.bfloat16)
    compared = compare_matmul(rounded, a, b.T)
    assert judged_by_the_whole(compared, k, "bfloat16").ok
    assert recorded is None or compared.rel_error == pytest.approx(recorded, rel=0.15)
    # A tile of K that is left out, or a scale that is off by a hundredth, is seen.
    for wrong in (a[:, : -(k // 16)] @ b[:, : -(k // 16)].T, want * 1.01):
        assert not judged_by_the_whole(
            compare_matmul(wrong.astype(ml_dtypes.bfloat16), a, b.T), k, "bfloat16"
        ).ok


def test_sums_of_one_instruction_are_exact_where_nothing_is_cut() -> None:
    a, b = np.full((1, 32), 3.0), np.full((1, 32), 5.0)
    assert fast_sums(a, b) == 480
    assert fast_sums(np.r_[448.0, np.ones(31)][None], np.r_[448.0, np.ones(31)][None]) == 448**2, (
        "the small ones vanish"
    )
