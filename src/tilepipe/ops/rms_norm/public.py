"""rms_norm(x, weight): rows divided by their root mean square; on the GPU for CUDA tensors, on the
simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module

NAME = "rms_norm"


@dataclass
class NormCall(Generic[ArrayT]):
    """x / √(mean x² + eps) · weight; `ops.rms_norm` says what each may be."""

    x: ArrayT
    weight: ArrayT | None
    eps: float
    out: ArrayT | None
    settings: Settings


def rms_norm(
    x: ArrayT,
    weight: ArrayT | None = None,
    *,
    eps: float = 1e-6,
    out: ArrayT | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """x / √(mean x² + eps) · weight along the last dimension, computed in float32 and rounded once,
    as `torch.nn.functional.rms_norm` has it. PyTorch's autograd differentiates it, if rows have at
    most 65536 elements, of float32 32768.

    Args:
        x: (..., n), bfloat16, float16 or float32: a CUDA tensor of PyTorch; or a tensor on the CPU,
            or a NumPy array, which run on the simulated GPU. n at most 262144, of float32
            131072.
            Read where it lies if the rows are contiguous and multiples of 16 bytes apart; copied
            first if not.
        weight: (n,), of any of these dtypes. None: 1.
        eps: added to the mean.
        out: where to write the result, of x's shape and any of these dtypes, on its device; it may
            be x itself.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `RowConfig`; those not given have their defaults. None given: chosen
            for n.

    Returns:
        `out`, or a new C-contiguous array or tensor of x's shape and dtype.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, rows that
            are too long, `out` beside an operand that requires a gradient. UnavailableError: the
            device is no Hopper GPU.
    """
    call = NormCall(x, weight, eps, out, tuple(sorted(settings.items())))
    if isinstance(x, np.ndarray):
        from tilepipe.ops.rms_norm import simulated

        return simulated.rms_norm(call, seed, progress)
    tensors = gpu_module("tilepipe.ops.rms_norm.gpu", NAME, seed, progress, "x", x)
    if seed or progress is not None:
        return tensors.with_options(tensors.rms_norm, call, seed, progress)
    result: ArrayT = tensors.rms_norm(call)
    return result
