"""matmul(a, b): `a @ b` through the GEMM kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.tma import ALIGNMENT
from tilepipe.kernels import gemm
from tilepipe.lang.tensor_map import array_dtype

Array = npt.NDArray[Any]
INPUTS = (dtypes.bfloat16, dtypes.float16)
OUTPUTS = (dtypes.bfloat16, dtypes.float16, dtypes.float32)


def matmul(
    a: Array,
    b: Array,
    *,
    out_dtype: object = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Array:
    """a (m, k) @ b (k, n) on the simulated GPU, accumulated in float32.

    Args:
        a, b: 2-D NumPy arrays, both bfloat16 (ml_dtypes) or both float16, in any layout and size. What TMA cannot
            take is copied first: an array that is contiguous in neither dimension, and one whose row stride is not a
            multiple of 16 bytes (its rows are padded).
        out_dtype: bfloat16, float16 or float32; that of the inputs unless given.
        seed: which interleaving the simulator runs.
        settings: fields of `GemmConfig` (bm, bn, bk, stages, k_group_size, consumers, cluster, raster).

    Returns:
        a new C-contiguous array (m, n). With m, n or k = 0, what NumPy returns: zeros.

    Raises:
        BindError: not 2-D, shapes that do not multiply, dtypes, unknown settings. float32 is refused: computing it in
            tf32 unasked would be taken for a bug.
    """
    dtype = _check(a, b)
    out = dtype if out_dtype is None else dtypes.dtype(out_dtype)
    if out not in OUTPUTS:
        raise BindError(f"matmul returns {', '.join(t.name for t in OUTPUTS)}, not {out}")
    config = _config(settings)
    (m, k), n = a.shape, b.shape[1]
    if 0 in (m, n, k):
        return np.zeros((m, n), out.numpy)
    c = padded((m, n), out)
    gemm.bind(acceptable(a), acceptable(b.T), c, config).run(seed=seed, progress=progress)
    return np.ascontiguousarray(c)


def _check(a: Array, b: Array) -> DType:
    for name, x in (("a", a), ("b", b)):
        if not isinstance(x, np.ndarray):
            raise BindError(f"matmul: {name} must be a NumPy array, got {type(x).__name__}")
        if x.ndim != 2:
            raise BindError(f"matmul: {name} must be 2-D, its shape is {x.shape}")
    if a.shape[1] != b.shape[0]:
        raise BindError(
            f"matmul: a is {a.shape[0]}×{a.shape[1]} and b is {b.shape[0]}×{b.shape[1]}; {a.shape[1]} columns against {b.shape[0]} rows"
        )
    types = array_dtype(a), array_dtype(b)
    if types[0] is not types[1]:
        raise BindError(f"matmul: a is {types[0]} and b is {types[1]}; convert one with .astype()")
    if types[0] is dtypes.float32:
        raise BindError(
            "matmul of float32 would run on tensor cores in tf32, with 10 bits of mantissa, and is not done unasked;"
            " convert to bfloat16 or float16 yourself"
        )
    if types[0] not in INPUTS:
        raise BindError(f"matmul takes {', '.join(t.name for t in INPUTS)}, got {types[0]}")
    return types[0]


def _config(settings: dict[str, Any]) -> gemm.GemmConfig:
    known = [f.name for f in fields(gemm.GemmConfig)]
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise BindError(f"matmul does not know the setting {', '.join(unknown)}; it has {', '.join(known)}")
    return gemm.GemmConfig(**settings)


def acceptable(x: Array) -> Array:
    """`x` itself if TMA can take it (one of two dimensions contiguous, the other stride a positive multiple of 16
    bytes), else a padded copy.
    """
    size = x.dtype.itemsize
    for inner, outer in ((1, 0), (0, 1)):
        contiguous = x.strides[inner] == size or x.shape[inner] == 1
        stride = x.strides[outer]
        if contiguous and (x.shape[outer] == 1 or (stride > 0 and stride % ALIGNMENT == 0 and stride >= x.shape[inner] * size)):
            return x
    copy = padded(x.shape, array_dtype(x))
    copy[...] = x
    return copy


def padded(shape: tuple[int, ...], dtype: DType) -> Array:
    """Zeros of (rows, cols), row-major, with a row stride that is a multiple of 16 bytes."""
    rows, cols = shape
    unit = ALIGNMENT // dtype.nbytes
    whole: Array = np.zeros((rows, -(-cols // unit) * unit), dtype.numpy)
    return whole[:, :cols]
