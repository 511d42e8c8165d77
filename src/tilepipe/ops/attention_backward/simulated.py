"""attention_backward of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.kernels.attention_backward.sm90_bind import Workspace
from tilepipe.kernels.attention_backward.validation import NAME
from tilepipe.ops.arrays import require_arrays
from tilepipe.ops.attention_backward.call import BackwardCall, checked, steps
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.in_place import check_in_place


def attention_backward(
    call: BackwardCall[Array], seed: int, progress: Progress | None
) -> tuple[Array, Array, Array]:
    """`ops.attention_backward` of NumPy arrays."""
    given = call.given
    require_arrays(NAME, ", ".join(given), *((name, x) for name, x in given.items()))
    found = checked(call)
    dq, dk, dv = (np.zeros_like(x) for x in (call.q, call.k, call.v))
    if not found.empty:
        for name in ("q", "k", "v", "dout"):
            check_in_place(NAME, name, given[name])
        space = Workspace.of(found, call.deterministic, np.zeros)
        arrays = given | {"dq": dq, "dk": dk, "dv": dv} | vars(space)
        for bind in steps(call, found):
            bind(arrays, None).run(seed=seed, progress=progress)
    return dq, dk, dv
