"""grouped_matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.kernels.gemm_grouped import reference
from tilepipe.kernels.gemm_grouped import sm90 as gemm_grouped
from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.grouped.validation import NAME, config, extents
from tilepipe.ops.matmul.shapes import tma_order
from tilepipe.ops.matmul.simulated import acceptable, check_array, output_dtype, padded

Array = npt.NDArray[Any]


def grouped_matmul(
    a: Array, b: Array, offsets: Any, *, out: Any, out_dtype: object, seed: int, progress: Callable[[int, int], None] | None,
    settings: Mapping[str, Any],
) -> Array:  # fmt: skip
    """`ops.grouped_matmul` of NumPy arrays, with all its options."""
    if not isinstance(offsets, np.ndarray):
        raise BindError(
            f"{NAME}: offsets must be a NumPy array as a and b are, got {type(offsets).__name__}"
        )
    m, n, k, groups = extents(a, b, offsets)
    wanted = output_dtype(out, out_dtype, array_dtype(a), NAME)
    check_array("out", out, (m, n), exact=True, who=NAME)
    cfg = config(settings, array_dtype(a))
    # the kernel refuses arrays that share memory with C; C is new, so none does
    c = padded((m, n), wanted)
    if out is not None:
        c[...] = out
    if k == 0:
        for start, end in reference.bounds(offsets, m):
            c[start:end] = 0
    elif 0 not in (m, n, groups):
        gemm_grouped.bind(
            _by_rows(a), acceptable(b.swapaxes(1, 2)), c, np.ascontiguousarray(offsets), cfg
        ).run(seed=seed, progress=progress)
    if out is None:
        return np.ascontiguousarray(c)
    out[...] = c
    result: Array = out
    return result


def _by_rows(x: Array) -> Array:
    """`x` itself if TMA takes it in row order, else a padded copy."""
    if tma_order(x.shape, x.strides, x.dtype.itemsize) == "row":
        return x
    copy = padded(x.shape, array_dtype(x))
    copy[...] = x
    return copy
