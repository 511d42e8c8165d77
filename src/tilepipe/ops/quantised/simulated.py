"""quantised_matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

from tilepipe.kernels.gemm_quantised import sm90 as gemm_quantised
from tilepipe.ops.arrays import padded, padded_copy, require_arrays, stored, tma_order
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.quantised.call import checked, config
from tilepipe.ops.quantised.public import NAME, QuantisedCall


def quantised_matmul(call: QuantisedCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.quantised_matmul` of NumPy arrays, with all its options."""
    require_arrays(NAME, "a, weights and scales", out=call.out)
    found, dtype = checked(call)
    cfg = config(call.settings, call.activation)
    c = padded((found.m, found.n), dtype)
    if not found.empty:
        a, words, scales = (_rows(x) for x in (call.a, call.weights, call.scales))
        program = gemm_quantised.bind(a, words, scales, c, cfg, group=call.group)
        program.run(seed=seed, progress=progress)
    return stored(call.out, c)


def _rows(x: Array) -> Array:
    """`x` where TMA takes it row by row, else a padded copy."""
    return x if tma_order(x.shape, x.strides, x.dtype.itemsize) == "row" else padded_copy(x)
