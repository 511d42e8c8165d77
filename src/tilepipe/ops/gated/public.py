"""gated_matmul(a, gate, up): activation(a @ gate) * (a @ up) in one kernel; on the GPU for CUDA
tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module

NAME = "gated_matmul"


@dataclass
class GatedCall(Generic[ArrayT]):
    """activation(a @ gate) * (a @ up); `ops.gated_matmul` says what each may be."""

    a: ArrayT
    gate: ArrayT
    up: ArrayT
    activation: str
    out: ArrayT | None
    out_dtype: object
    settings: Settings


def gated_matmul(
    a: ArrayT,
    gate: ArrayT,
    up: ArrayT,
    *,
    activation: str = "silu",
    out: ArrayT | None = None,
    out_dtype: object = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """activation(a @ gate) * (a @ up), both products accumulated in float32 and the result rounded
    once: the first half of a SwiGLU or GeGLU layer, of which neither product is written to memory.

    Args:
        a: (m, k). gate, up: (k, n). All bfloat16 or all float16; CUDA tensors of PyTorch; or
            tensors on the CPU, or NumPy arrays, which run on the simulated GPU. Read where they lie
            if each is row- or column-major, gate and up alike (weights (n, k) are passed
            transposed), and the other strides are multiples of 16 bytes; copied first if not.
        activation: "silu" (SwiGLU), "gelu" (GeGLU, the tanh form), "gelu_erf" (GeGLU itself),
            "relu" (ReGLU), "none" (bilinear).
        out: where to write the result (m, n), its dtype and device.
        out_dtype: bfloat16, float16 or float32; that of the operands unless given.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `GatedGemmConfig`. None given: chosen for CUDA tensors, else the
            defaults.

    Returns:
        `out`, or a new C-contiguous array or tensor (m, n).

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, an operand
            that requires a gradient: there is none. UnavailableError: the device is no Hopper GPU.
    """
    call = GatedCall(a, gate, up, activation, out, out_dtype, tuple(sorted(settings.items())))
    if isinstance(a, np.ndarray) and isinstance(gate, np.ndarray) and isinstance(up, np.ndarray):
        from tilepipe.ops.gated import simulated

        return simulated.gated_matmul(call, seed, progress)
    tensors = gpu_module(
        "tilepipe.ops.gated.gpu", NAME, seed, progress, ("a", "gate", "up"), a, gate, up
    )
    if seed or progress is not None:
        return tensors.with_options(tensors.gated_matmul, call, seed, progress)
    result: ArrayT = tensors.gated_matmul(call)
    return result
