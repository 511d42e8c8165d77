"""grouped_matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.ir.arrays import array_dtype
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.ops.arrays import acceptable, padded, padded_copy, require_arrays, stored, tma_order
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.grouped.call import checked, config
from tilepipe.ops.grouped.public import NAME, GroupedCall


def grouped_matmul(call: GroupedCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.grouped_matmul` of NumPy arrays, with all its options."""
    require_arrays(NAME, "a and b", ("offsets", call.offsets), out=call.out)
    found, dtype = checked(call)
    cfg = config(call.settings, array_dtype(call.a))
    # the kernel refuses arrays that share memory with C; C is new, so none does
    c = padded((found.m, found.n), dtype)
    if call.out is not None:
        c[...] = call.out
    if found.k == 0:
        for start, end in reference.bounds(call.offsets, found.m):
            c[start:end] = 0
    elif not found.empty:
        a = call.a
        rows = a if tma_order(a.shape, a.strides, a.dtype.itemsize) == "row" else padded_copy(a)
        weights, offsets = acceptable(call.b.swapaxes(1, 2)), np.ascontiguousarray(call.offsets)
        gemm_grouped.bind(rows, weights, c, offsets, cfg).run(seed=seed, progress=progress)
    return stored(call.out, c)
