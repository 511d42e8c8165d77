"""gated_matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

from tilepipe.ir.arrays import array_dtype
from tilepipe.kernels.gemm_gated import sm90 as gemm_gated
from tilepipe.ops.arrays import acceptable, padded, padded_copy, require_arrays, stored, tma_order
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.gated.call import checked, config
from tilepipe.ops.gated.public import NAME, GatedCall


def gated_matmul(call: GatedCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.gated_matmul` of NumPy arrays, with all its options."""
    require_arrays(NAME, "a, gate and up", out=call.out)
    found, dtype = checked(call)
    cfg = config(call.settings, call.activation, array_dtype(call.a))
    # the kernel refuses arrays that share memory with C; C is new, so none does
    c = padded((found.m, found.n), dtype)
    if not found.empty:
        gate, up = (acceptable(x.swapaxes(0, 1)) for x in (call.gate, call.up))
        orders = {tma_order(x.shape, x.strides, x.dtype.itemsize) for x in (gate, up)}
        if len(orders) > 1:  # one MMA reads both
            gate, up = padded_copy(gate), padded_copy(up)
        gemm_gated.bind(acceptable(call.a), gate, up, c, cfg).run(seed=seed, progress=progress)
    return stored(call.out, c)
