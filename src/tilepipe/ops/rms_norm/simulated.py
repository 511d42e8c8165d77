"""rms_norm of NumPy arrays: the kernel on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.kernels.rms_norm import sm90 as kernel
from tilepipe.ops.arrays import require_arrays, stored
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.rms_norm.call import checked, config
from tilepipe.ops.rms_norm.public import NAME, NormCall


def rms_norm(call: NormCall[Array], seed: int, progress: Progress | None) -> Array:
    """`ops.rms_norm` of NumPy arrays, with all its options."""
    require_arrays(NAME, "x and weight", ("x", call.x), weight=call.weight, out=call.out)
    rows, columns = checked(call)
    cfg = config(call.settings)
    dtype = call.x.dtype if call.out is None else call.out.dtype
    y = np.zeros((rows, columns), dtype)
    if rows and columns:
        x = np.ascontiguousarray(call.x).reshape(rows, columns)
        weight = None if call.weight is None else np.ascontiguousarray(call.weight)
        program = kernel.bind(x, weight, y, cfg, eps=call.eps)
        program.run(seed=seed, progress=progress)
    return stored(call.out, y.reshape(call.x.shape))
