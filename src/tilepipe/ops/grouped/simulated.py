"""grouped_matmul of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

import numpy as np

import tilepipe as tp
from tilepipe.ir.arrays import array_dtype
from tilepipe.kernels.gemm_grouped import reference, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped_blockwise import sm90 as gemm_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise import sm90 as gemm_k_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.ops.arrays import acceptable, padded, padded_copy, require_arrays, stored, tma_order
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.grouped.call import Config, checked, config
from tilepipe.ops.grouped.public import NAME, GroupedCall


def grouped_matmul(call: GroupedCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.grouped_matmul` of NumPy arrays, with all its options."""
    scales = {"scale_a": call.scale_a, "scale_b": call.scale_b}
    require_arrays(NAME, "a and b", ("offsets", call.offsets), **scales, out=call.out)
    found, dtype = checked(call)
    cfg = config(call.settings, array_dtype(call.a), found.form)
    # the kernel refuses arrays that share memory with C; C is new, so none does
    c = padded(found.shape, dtype)
    if call.out is not None and found.form != "k":
        c[...] = call.out
    if not found.empty:
        _bind(call, c, cfg).run(seed=seed, progress=progress)
    elif found.k == 0 and found.form != "k":
        for group, start, end in reference.rows_of(c, call.offsets):
            (c[group] if found.form == "padded" else c)[start:end] = 0
    return stored(call.out, c)


def _bind(call: GroupedCall[Array], c: Array, cfg: Config) -> tp.Program:
    offsets = np.ascontiguousarray(call.offsets)
    if isinstance(cfg, KGroupedGemmConfig):
        return gemm_k_grouped.bind(_by_rows(call.a.T).T, _by_rows(call.b).T, c, offsets, cfg)
    a, b = _by_rows(call.a), call.b.swapaxes(-1, -2)
    if isinstance(cfg, GroupedGemmConfig):
        return gemm_grouped.bind(a, acceptable(b), c, offsets, cfg)
    assert call.scale_a is not None
    assert call.scale_b is not None
    a_scales = _by_rows(call.scale_a.swapaxes(-1, -2))
    if isinstance(cfg, KGroupedBlockwiseGemmConfig):
        columns = _by_rows(call.scale_b)
        return gemm_k_grouped_blockwise.bind(a, _by_rows(b), a_scales, columns, c, offsets, cfg)
    b_scales = np.ascontiguousarray(call.scale_b.swapaxes(1, 2))
    return gemm_grouped_blockwise.bind(a, _by_rows(b), a_scales, b_scales, c, offsets, cfg)


def _by_rows(x: Array) -> Array:
    """`x` itself where TMA takes it in row order, else a copy."""
    return x if tma_order(x.shape, x.strides, x.dtype.itemsize) == "row" else padded_copy(x)
