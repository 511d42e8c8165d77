"""Block-scaled numbers in NumPy: quantising, packing, and the product in float64.

MX: OCP Microscaling Formats (MX) 1.0, section 6.3: the shared scale is 2 ^ (floor(log2 of the
largest magnitude) − the largest exponent of the element type); elements saturate. NVFP4: blocks of
16 with scales of float8_e4m3, and one float32 scale for the whole matrix.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.gemm_block_scaled.layout import KINDS

Array = npt.NDArray[Any]
E2M1, E4M3, E8M0 = (
    np.dtype(ml_dtypes.float4_e2m1fn),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e8m0fnu),
)
# Element types of MX by name: NumPy's dtype, exponent of the largest power of two, largest number.
MX_ELEMENTS: dict[str, tuple[np.dtype[Any], int, float]] = {
    "float8_e4m3": (E4M3, 8, 448.0),
    "float8_e5m2": (np.dtype(ml_dtypes.float8_e5m2), 15, 57344.0),
    "float4_e2m1": (E2M1, 2, 6.0),
}
E8M0_BIAS, E8M0_NAN = 127, 255
LARGEST_E2M1, LARGEST_E4M3 = 6.0, 448.0


def quantize_mx(x: Array, dtype: str = "float8_e4m3") -> tuple[Array, Array]:
    """x (rows, k) as MX numbers of "float8_e4m3", "float8_e5m2" or "float4_e2m1": values, and
    scales (rows, k / 32) of float8_e8m0. fp4 values are packed, `pack_fp4`.

    A block that holds a NaN or an infinity gets the scale NaN, so that every product with it is
    NaN. A block of zeros has the smallest scale. Exponents that e8m0 does not have become the
    nearest that it has.

    Raises:
        BindError: another dtype, or k is no multiple of 32.
    """
    if dtype not in MX_ELEMENTS:
        raise tp.BindError(f"quantize_mx makes {', '.join(MX_ELEMENTS)}; got {dtype!r}")
    numpy, exponent, largest = MX_ELEMENTS[dtype]
    blocks = _blocks(x, KINDS["mxfp8"].block)
    finite, highest = _largest(blocks)
    shared = np.clip(np.frexp(highest)[1] - 1 - exponent, -E8M0_BIAS, E8M0_BIAS)
    shared[highest == 0] = -E8M0_BIAS
    values = (
        np.clip(
            np.ldexp(np.where(finite[..., None], blocks, 0), -shared[..., None]), -largest, largest
        )
        .reshape(x.shape)
        .astype(numpy)
    )
    scales = np.where(finite, shared + E8M0_BIAS, E8M0_NAN).astype(np.uint8).view(E8M0)
    return pack_fp4(values) if numpy == E2M1 else values, scales


def quantize_nvfp4(x: Array) -> tuple[Array, Array, np.float32]:
    """x (rows, k) as NVFP4: values packed as `pack_fp4` does, scales (rows, k / 16) of float8_e4m3,
    and the float32 scale of all.

    The latter makes the largest scale of a block 448. A block that holds a NaN or an infinity gets
    the scale NaN; a block whose scale rounds to 0 becomes zeros.

    Raises:
        BindError: k is no multiple of 16.
    """
    blocks = _blocks(x, KINDS["nvfp4"].block)
    finite, highest = _largest(blocks)
    whole = np.float32(highest.max(initial=0) / (LARGEST_E2M1 * LARGEST_E4M3)) or np.float32(1)
    scales = (highest / (LARGEST_E2M1 * np.float64(whole))).clip(max=LARGEST_E4M3).astype(E4M3)
    divisor = scales.astype(np.float64) * np.float64(whole)
    small = (
        np.where((finite & (divisor > 0))[..., None], blocks, 0)
        / np.where(divisor > 0, divisor, 1)[..., None]
    )
    scales[~finite] = np.nan
    return (
        pack_fp4(small.clip(-LARGEST_E2M1, LARGEST_E2M1).reshape(x.shape).astype(E2M1)),
        scales,
        whole,
    )


def pack_fp4(values: Array) -> Array:
    """Numbers of float4_e2m1 (rows, k) as bytes (rows, k / 2): of each two neighbours the first is
    in the lower half.

    Raises:
        BindError: k is odd.
    """
    if values.ndim != 2 or values.shape[1] % 2:
        raise tp.BindError(
            f"two neighbours along k make a byte: an even k is needed, the shape is {values.shape}"
        )
    codes = np.ascontiguousarray(values).view(np.uint8) & 0xF
    packed: Array = codes[:, ::2] | codes[:, 1::2] << 4
    return packed


def unpack_fp4(packed: Array) -> Array:
    """The reverse of `pack_fp4`."""
    codes = np.stack((packed & 0xF, packed >> 4), -1).reshape(packed.shape[0], -1).astype(np.uint8)
    return codes.view(E2M1)


def dequantize(values: Array, scales: Array, scale: Any = 1.0) -> npt.NDArray[np.float64]:
    """Values (rows, k), or packed fp4 (rows, k / 2), times their scales (rows, blocks of K) and the
    scale of all, in float64.
    """
    numbers = unpack_fp4(values) if values.dtype == np.uint8 else values
    rows, k = numbers.shape
    wide = np.repeat(scales.astype(np.float64), -(-k // max(scales.shape[1], 1)), axis=1)[:, :k]
    return numbers.astype(np.float64) * wide.reshape(rows, k) * np.float64(scale)


def compare(
    c: Array, a: Array, a_scales: Array, b: Array, b_scales: Array, scale: Any = 1.0
) -> tp.testing.Comparison:
    """C (m, n) beside the float64 product of A (m, k) and B (n, k) times their scales and `scale`:
    the bound of float32 sums.
    """
    return tp.testing.compare_matmul(c, dequantize(a, a_scales, scale), dequantize(b, b_scales).T)


def _blocks(x: Array, block: int) -> npt.NDArray[np.float64]:
    if x.ndim != 2 or x.shape[1] % block:
        raise tp.BindError(
            f"a scale is of {block} elements along k: need a matrix whose k is a multiple of"
            f" {block}, the shape is {x.shape}"
        )
    return x.astype(np.float64).reshape(x.shape[0], -1, block)


def _largest(blocks: npt.NDArray[np.float64]) -> tuple[Array, Array]:
    """For each block, whether all of it is finite, and its largest magnitude (0 where it is
    not).
    """
    finite: Array = np.asarray(np.isfinite(blocks).all(-1))
    return finite, np.where(
        finite, np.abs(np.where(finite[..., None], blocks, 0)).max(-1, initial=0), 0
    )
