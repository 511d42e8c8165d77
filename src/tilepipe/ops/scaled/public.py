"""scaled_matmul(a, b, scale_a, scale_b): a product of small floats and their scales, on the GPU for
CUDA tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module

NAME = "scaled_matmul"


@dataclass
class ScaledCall(Generic[ArrayT]):
    """(scale_a · a) @ (scale_b · b) + bias; `ops.scaled_matmul` says what each may be.

    Attributes:
        scale_a, scale_b: of parts of the operand, or the pair of these and of the whole operand.
    """

    a: ArrayT
    b: ArrayT
    scale_a: ArrayT | tuple[ArrayT, object]
    scale_b: ArrayT | tuple[ArrayT, object]
    out: ArrayT | None
    bias: ArrayT | None
    out_dtype: object
    settings: Settings


def scaled_matmul(
    a: ArrayT,
    b: ArrayT,
    scale_a: ArrayT | tuple[ArrayT, object],
    scale_b: ArrayT | tuple[ArrayT, object],
    *,
    out: ArrayT | None = None,
    bias: ArrayT | None = None,
    out_dtype: object = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """(scale_a · a) @ (scale_b · b) + bias, accumulated in float32 and rounded once.

    Their shapes and dtypes say what the scales belong to:

    | scales | a (m, k) and b (k, n) | scale_a | scale_b |
    |---|---|---|---|
    | tensor | fp8, in any mix | float32, one element | float32, one element |
    | row | the same | float32 (m, 1) or (m,) | float32 (1, n) or (n,) |
    | block | float8_e4m3fn | float32 (m, ⌈k/128⌉) | float32 (⌈k/128⌉, ⌈n/128⌉) |
    | mxfp8 | fp8, in any mix | float8_e8m0fnu (m, k/32) | float8_e8m0fnu (k/32, n) |
    | mxfp4 | fp4 | float8_e8m0fnu (m, k/32) | float8_e8m0fnu (k/32, n) |
    | nvfp4 | fp4 | float8_e4m3fn (m, k/16) | float8_e4m3fn (k/16, n) |

    fp8: float8_e4m3fn, float8_e5m2. The last three are multiplied by the tensor cores of Blackwell
    and simulated only. fp4: NumPy's
    float4_e2m1fn, or packed along k, two to a byte and the first in its low half: uint8 (m, k/2)
    and (k/2, n). Their scales may also be in the tensor cores' layout
    (`kernels.gemm_block_scaled.layout.to_blocked` of (m, k blocks) and of (n, k blocks)), with 4
    dimensions or 1; and a pair (scales, one float32), as NVFP4 has it for the whole tensor.

    Args:
        a, b: two CUDA tensors of PyTorch, which run on their device in its current stream; or two
            tensors on the CPU, or two NumPy arrays, which run on the simulated GPU. Read where they
            lie if k is contiguous in both (b is then a transposed view, as `scaled_mm` of PyTorch
            wants it) and the other stride is a multiple of 16 bytes; copied first if not.
        scale_a, scale_b: any layout; a NaN makes its products NaN. With blocks, a column-major
            scale_a whose columns are 16 bytes apart is not copied.
        out: where to write the result, its shape, dtype and device. bias: (n,), added to each row,
            or (m, 1), added to each column, of the result's dtype or float32; not with "block".
        out_dtype: bfloat16 (unless given), float16 or float32.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `GemmConfig`, of "block" `BlockwiseGemmConfig`, of mx and nv
            `BlockScaledGemmConfig`. None given: chosen for CUDA tensors, else the defaults.

    Returns:
        `out`, or a new C-contiguous array or tensor (m, n). With k = 0, zeros and the bias.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, an operand
            that requires a gradient: there is none. UnavailableError: the device is no Hopper GPU,
            or the scales are for Blackwell.
    """
    items = tuple(sorted(settings.items()))
    call = ScaledCall(a, b, scale_a, scale_b, out, bias, out_dtype, items)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        from tilepipe.ops.scaled import simulated

        return simulated.scaled_matmul(call, seed, progress)
    tensors = gpu_module("tilepipe.ops.scaled.gpu", NAME, seed, progress, "ab", a, b)
    if seed or progress is not None:
        return tensors.with_options(tensors.scaled_matmul, call, seed, progress)
    result: ArrayT = tensors.scaled_matmul(call)
    return result
