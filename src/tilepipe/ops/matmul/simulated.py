"""matmul of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.reference import activated
from tilepipe.ops.arrays import acceptable, padded, require_arrays, stored
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.matmul.call import MatmulCall, checked, config
from tilepipe.ops.matmul.shapes import Product


def matmul(call: MatmulCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.matmul` of NumPy arrays, with all its options."""
    require_arrays(call.operation, "a and b", out=call.out, source=call.source, bias=call.bias)
    shapes, dtype = checked(call, call.a.strides)
    cfg = config(call.settings, call.activation, array_dtype(call.a))
    c = padded(shapes.output, dtype)
    if 0 not in shapes.output and shapes.k:
        # The kernel refuses arrays that share memory with C; C is new, so none does.
        left = acceptable(shapes.left(call.a, np.broadcast_to))
        right = acceptable(shapes.right(call.b, np.broadcast_to).swapaxes(-1, -2))
        source = bias = None
        if call.source is not None and call.source_scale:
            source = acceptable(shapes.like_output(call.source, np.broadcast_to))
        if call.bias is not None:
            bias = np.ascontiguousarray(shapes.added(call.bias, np.broadcast_to))
        alpha, beta = float(call.alpha), call.source_scale
        program = gemm.bind(left, right, c, cfg, bias=bias, source=source, alpha=alpha, beta=beta)
        program.run(seed=seed, progress=progress)
    elif 0 not in shapes.output:
        c = _without_product(call, shapes, dtype)
    return stored(call.out, c.reshape(shapes.result))


def _without_product(call: MatmulCall[Array], shapes: Product, dtype: DType) -> Array:
    """What remains where k is 0, computed in float32."""
    z = np.zeros(shapes.output, np.float32)
    if call.source is not None and call.source_scale:
        source = shapes.like_output(call.source, np.broadcast_to)
        z += np.float32(call.source_scale) * source.astype(np.float32)
    if call.bias is not None:
        z += shapes.added(call.bias, np.broadcast_to).astype(np.float32)
    made: Array = activated(z, call.activation).astype(dtype.numpy)
    return made
