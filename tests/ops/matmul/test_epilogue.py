"""ops.matmul of NumPy arrays with batches, bias, activation, source, tf32: the simulated kernel
against float64.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm.reference import activated

Array = npt.NDArray[Any]
BF16 = ml_dtypes.bfloat16


def array(*shape: int, dtype: Any = BF16, seed: int = 0) -> Array:
    values: Array = (
        np.random.default_rng(seed).standard_normal(shape, dtype=np.float32).astype(dtype)
    )
    return values


def check(a: Array, b: Array, **options: Any) -> Array:
    """Asserts ops.matmul(a, b, **options) elementwise."""
    got: Array = tp.ops.matmul(a, b, **options)
    x, y = a.astype(np.float64), b.astype(np.float64)
    z, spread = (
        options.get("alpha", 1.0) * (x @ y),
        abs(options.get("alpha", 1.0)) * (abs(x) @ abs(y)),
    )
    if options.get("source") is not None and options.get("beta") != 0:
        z = z + options.get("beta", 1.0) * options["source"].astype(np.float64)
    if options.get("bias") is not None:
        z = z + options["bias"].astype(np.float64)
    want = activated(z, options.get("activation"))
    assert got.shape == want.shape
    inputs = 2.0**-10 if options.get("precision") else 0.0  # tf32 cuts an operand to 10 bits
    eps = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[got.dtype.name]
    bound = (
        (4 * 2.0**-23 * np.sqrt(a.shape[-1]) + 2 * inputs) * 1.13 * (spread + abs(z))
        + 1.01 * eps * abs(want)
        + 2.0**-20 * abs(z)
    )
    worst = (abs(got.astype(np.float64) - want) / bound).max()
    assert worst <= 1.0, f"{worst:.3g} times the allowed error"
    return got


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 20, 40), (3, 40, 24)),
        ((2, 3, 20, 40), (40, 24)),
        ((2, 1, 20, 40), (3, 40, 24)),
        ((20, 40), (3, 40, 24)),
        ((40,), (3, 40, 24)),
    ],
    ids=str,
)
@pytest.mark.parametrize("columns", ["", "a", "b", "ab"])
def test_batches(left: tuple[int, ...], right: tuple[int, ...], columns: str) -> None:
    a, b = array(*left), array(*right, seed=1)
    a = (
        np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
        if "a" in columns and a.ndim > 1
        else a
    )
    b = np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2) if "b" in columns else b
    check(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "gelu_erf"])
def test_bias_activation_and_source(activation: str | None) -> None:
    a, b = array(70, 40), array(40, 90, seed=1)
    check(a, b, activation=activation, bias=array(90, seed=2))
    check(
        a,
        b,
        activation=activation,
        bias=array(90, dtype=np.float32, seed=2),
        alpha=0.5,
        out_dtype="float32",
    )
    check(a, b, activation=activation, source=array(70, 90, seed=3), beta=-2.0, alpha=3)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((70, 40), (40, 90)),
        ((1, 40), (40, 24)),
        ((2, 3, 20, 40), (40, 24)),
        ((2, 20, 40), (2, 40, 24)),
        ((20, 0), (0, 24)),
        ((2, 20, 0), (0, 24)),
    ],
    ids=str,
)
def test_a_bias_of_rows(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b, column = array(*left), array(*right, seed=1), array(left[-2], 3, seed=2)
    check(a, b, bias=column[:, 1:2], activation="relu", source=array(right[-1], seed=3))


@pytest.mark.parametrize(
    "settings", [{"swap": "ab"}, {"split_k": 2}, {"schedule": "pingpong", "bm": 64}]
)
def test_a_bias_of_rows_in_every_form_of_the_kernel(settings: dict[str, Any]) -> None:
    a, b, bias = array(150, 130), array(130, 150, seed=1), array(150, 1, seed=2)
    got = tp.ops.matmul(a, b, bias=bias, out_dtype="float32", **settings)
    want = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
    assert np.allclose(got, want, atol=1e-3)


def test_a_batch_with_everything() -> None:
    a, b = array(2, 3, 20, 40), array(2, 3, 40, 24, seed=1)
    check(
        a, b, bias=array(24, seed=2), source=array(3, 20, 24, seed=3), alpha=0.5, activation="gelu"
    )
    check(a, b, source=array(20, 1, seed=3))


def test_accumulation_in_place() -> None:
    a, b, c = array(70, 40), array(40, 90, seed=1), array(70, 90, seed=2)
    want = check(a, b, source=c.copy(), alpha=0.5)
    assert tp.ops.matmul(a, b, out=c, source=c, alpha=0.5) is c
    assert np.array_equal(c, want)


def test_a_source_scaled_by_zero_is_not_read() -> None:
    a, b = array(20, 40), array(40, 24, seed=1)
    assert np.array_equal(
        tp.ops.matmul(a, b, source=np.full((20, 24), np.nan, BF16), beta=0), tp.ops.matmul(a, b)
    )


def test_without_products_the_epilogue_remains() -> None:
    check(
        array(20, 0),
        array(0, 24),
        bias=array(24, seed=2),
        source=array(20, 24, seed=3),
        beta=2.0,
        activation="silu",
    )


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("shape", [(70, 90, 40), (33, 17, 21)], ids=str)
def test_tf32(orders: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = array(m, k, dtype=np.float32), array(k, n, dtype=np.float32, seed=1)
    got = check(np.asarray(a, order=orders[0]), np.asarray(b, order=orders[1]), precision="tf32")  # type: ignore[call-overload]
    assert got.dtype == np.float32
    assert not np.allclose(got, a @ b, rtol=1e-6, atol=0)  # 10 bits of mantissa
