"""Block-scaled numbers: quantised as the formats say, packed, and laid out as the tensor cores read
their scales.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_block_scaled.layout import KINDS, blocked_shape, from_blocked, to_blocked
from tilepipe.kernels.gemm_block_scaled.reference import (
    E2M1,
    E4M3,
    E8M0,
    MX_ELEMENTS,
    compare,
    dequantize,
    pack_fp4,
    quantize_mx,
    quantize_nvfp4,
    unpack_fp4,
)


def uneven(rows: int, k: int, seed: int = 0) -> Any:
    """Numbers whose blocks of 16 are of very different size."""
    rng = np.random.default_rng(seed)
    sizes = np.exp2(rng.integers(-20, 20, (rows, -(-k // 16)))).repeat(16, 1)[:, :k]
    return (rng.standard_normal((rows, k)) * sizes).astype(np.float32)


@pytest.mark.parametrize(
    ("numbers", "dtype", "scale", "values"),
    [
        # floor(log2 7) − emax: 2 − 8, 2 − 15, 2 − 2
        ([7.0, -1.0], "float8_e4m3", -6, [448.0, -64.0]),
        ([7.0, -1.0], "float8_e5m2", -13, [57344.0, -8192.0]),
        ([7.0, -1.0], "float4_e2m1", 0, [6.0, -1.0]),  # 7 saturates
        ([8.0, 5.0], "float4_e2m1", 1, [4.0, 2.0]),  # 2.5 rounds to even
        ([0.0, 0.0], "float8_e4m3", -127, [0.0, 0.0]),
        ([2.0**-126, 0.0], "float8_e4m3", -127, [2.0, 0.0]),  # the scale would be 2^-134
        ([3e38, 1e30], "float4_e2m1", 125, [6.0, 0.0]),
    ],
)
def test_mx_of_one_block(numbers: list[float], dtype: str, scale: int, values: list[float]) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, : len(numbers)] = numbers
    got, scales = quantize_mx(x, dtype)
    assert scales.shape == (1, 1)
    assert scales.dtype == E8M0
    assert int(scales.view(np.uint8)[0, 0]) == scale + 127
    plain = unpack_fp4(got) if dtype == "float4_e2m1" else got
    assert plain[0, : len(values)].astype(float).tolist() == values
    assert not plain[0, len(values) :].astype(float).any()


@pytest.mark.parametrize("dtype", MX_ELEMENTS)
def test_mx_is_near_and_its_scales_are_the_spec_s(dtype: str) -> None:
    x = uneven(37, 96)
    values, scales = quantize_mx(x, dtype)
    _, exponent, largest = MX_ELEMENTS[dtype]
    blocks = np.abs(x.astype(np.float64).reshape(37, 3, 32)).max(-1)
    assert (scales.astype(np.float64) == np.exp2(np.floor(np.log2(blocks)) - exponent)).all()
    # 512 saturates to 448, 65536 to 57344, 8 to 6
    step = {"float8_e4m3": 0.125, "float8_e5m2": 0.125, "float4_e2m1": 0.25}[dtype]
    wide = np.repeat(scales.astype(np.float64), 32, 1)
    smallest = {"float8_e4m3": 2.0**-10, "float8_e5m2": 2.0**-17, "float4_e2m1": 0.25}[dtype] * wide
    assert (np.abs(dequantize(values, scales) - x) <= np.maximum(np.abs(x) * step, smallest)).all()
    assert (np.abs(dequantize(values, np.ones_like(scales))) <= largest).all()


@pytest.mark.parametrize("dtype", MX_ELEMENTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_mx_of_what_is_no_number(dtype: str, bad: float) -> None:
    x = np.ones((2, 64), np.float32)
    x[1, 40] = bad
    values, scales = quantize_mx(x, dtype)
    assert scales.view(np.uint8).tolist() == [
        [int(scales.view(np.uint8)[0, 0])] * 2,
        [int(scales.view(np.uint8)[0, 0]), 255],
    ]
    got = dequantize(values, scales)
    assert np.isnan(got[1, 32:]).all()
    assert (got[0] == 1).all()
    assert (got[1, :32] == 1).all()


def test_nvfp4_uses_the_whole_range() -> None:
    x = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    x[3, 16:32] = 0
    packed, scales, whole = quantize_nvfp4(x)
    assert (packed.shape, scales.shape) == ((40, 32), (40, 4))
    assert packed.dtype == np.uint8
    assert scales.dtype == E4M3
    assert float(scales.astype(np.float64).max()) == 448
    assert whole == pytest.approx(np.abs(x).max() / (6 * 448))
    got = dequantize(packed, scales, whole)
    blocks = np.repeat(np.abs(x.reshape(40, 4, 16)).max(-1), 16, 1)
    # half a step, and 1/16 of the scale
    assert (np.abs(got - x) <= np.maximum(np.abs(x) * 0.25, blocks / 6 * 0.25) * 1.07).all()
    assert not got[3, 16:32].any()


def test_nvfp4_of_what_is_no_number_and_of_zeros() -> None:
    x = np.ones((2, 32), np.float32)
    x[0, 3], x[1, 20] = np.nan, np.inf
    packed, scales, whole = quantize_nvfp4(x)
    got = dequantize(packed, scales, whole)
    assert np.isnan(got[0, :16]).all()
    assert np.isnan(got[1, 16:]).all()
    assert np.allclose(got[0, 16:], 1)
    packed, scales, whole = quantize_nvfp4(np.zeros((1, 16), np.float32))
    assert not packed.any()
    assert (float(scales[0, 0]), float(whole)) == (0.0, 1.0)
    tiny = np.zeros((1, 32), np.float32)
    tiny[0, 0], tiny[0, 16] = 1, 1e-9  # its scale would be below what e4m3 has
    assert not dequantize(*quantize_nvfp4(tiny))[0, 16:].any()


def test_packing() -> None:
    values = np.array([[0.5, -6.0, 1.5, 0.0]], np.float32).astype(E2M1)
    assert pack_fp4(values).tolist() == [[0xF1, 0x03]]
    every = np.arange(16, dtype=np.uint8).reshape(2, 8).view(E2M1)
    assert (unpack_fp4(pack_fp4(every)).view(np.uint8) == every.view(np.uint8)).all()
    with pytest.raises(tp.BindError, match=r"an even k is needed, the shape is \(2, 3\)"):
        pack_fp4(every[:, :3])


@pytest.mark.parametrize(
    ("rows", "cols"), [(1, 1), (32, 4), (128, 4), (129, 5), (300, 9), (256, 8)]
)
def test_layout(rows: int, cols: int) -> None:
    """Each scale is where the formula says, and all other bytes are 0."""
    scales = np.random.default_rng(rows).integers(1, 255, (rows, cols)).astype(np.uint8)
    blocked = to_blocked(scales)
    assert blocked.shape == blocked_shape(rows, cols)
    flat = blocked.reshape(-1)
    pieces = blocked.shape[1]
    for r in range(rows):
        for k in range(cols):
            at = (r // 128 * pieces + k // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4
            assert flat[at] == scales[r, k]
    assert np.count_nonzero(flat) == rows * cols
    assert (from_blocked(flat, rows, cols) == scales).all()


def test_layout_is_that_of_any_byte() -> None:
    for dtype in (E8M0, E4M3):
        scales = np.full((3, 2), 0.5, dtype)
        assert to_blocked(scales).dtype == dtype
        assert (from_blocked(to_blocked(scales), 3, 2) == scales).all()
    with pytest.raises(tp.BindError, match="a matrix of scales of one byte"):
        to_blocked(np.zeros((3, 2), np.float32))
    with pytest.raises(tp.BindError, match=re.escape("have shape (1, 1, 32, 16); got (3, 2)")):
        from_blocked(np.zeros((3, 2), np.uint8), 3, 2)


def test_compare_sees_a_wrong_scale() -> None:
    a, b = uneven(20, 64), uneven(12, 64, 1)
    (qa, sa), (qb, sb) = quantize_mx(a), quantize_mx(b, "float8_e5m2")
    c = (dequantize(qa, sa) @ dequantize(qb, sb).T).astype(np.float32)
    assert compare(c, qa, sa, qb, sb).ok
    assert compare(0.5 * c, qa, sa, qb, sb, scale=0.5).ok
    wrong = sb.copy()
    wrong.view(np.uint8)[2, 1] += 1
    assert not compare(c, qa, sa, qb, wrong).ok


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: quantize_mx(np.zeros((2, 40), np.float32)),
            "k is a multiple of 32, the shape is (2, 40)",
        ),
        (
            lambda: quantize_nvfp4(np.zeros((2, 40), np.float32)),
            "k is a multiple of 16, the shape is (2, 40)",
        ),
        (
            lambda: quantize_mx(np.zeros((2, 32), np.float32), "bfloat16"),
            "makes float8_e4m3, float8_e5m2, float4_e2m1; got 'bfloat16'",
        ),
    ],
)
def test_what_cannot_be_quantised(call: Any, words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        call()


def test_kinds() -> None:
    assert {name: (kind.block, kind.scales_of(100)) for name, kind in KINDS.items()} == {
        "mxfp8": (32, 4),
        "mxfp4": (32, 4),
        "nvfp4": (16, 7),
    }
