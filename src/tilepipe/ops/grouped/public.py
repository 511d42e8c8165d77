"""grouped_matmul(a, b, offsets): rows of a, group by group, times the group's matrix of b; on the
GPU for CUDA tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module

NAME = "grouped_matmul"


@dataclass
class GroupedCall(Generic[ArrayT]):
    """a[start:end] @ b[g] for the rows of each group; `ops.grouped_matmul` says what each may
    be.
    """

    a: ArrayT
    b: ArrayT
    offsets: ArrayT
    out: ArrayT | None
    out_dtype: object
    settings: Settings


def grouped_matmul(
    a: ArrayT,
    b: ArrayT,
    offsets: ArrayT,
    *,
    out: ArrayT | None = None,
    out_dtype: object = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """a[start:end] @ b[g] for the rows [start, end) of each group g, accumulated in float32 and
    rounded once: the products of a mixture of experts, as `torch.nn.functional.grouped_mm` has
    them.

    Args:
        a: (m, k), its rows sorted by group. b: (groups, k, n). Both bfloat16 or both float16; two
            CUDA tensors of PyTorch; or two tensors on the CPU, or two NumPy arrays, which run on
            the simulated GPU. Read where
            they lie if a is row-major, each matrix of b row- or column-major (weights (groups, n,
            k) are passed transposed), and the other strides are multiples of 16 bytes; copied first
            if not.
        offsets: int32 (groups,): the end of each group, the row after its last, on the device of a.
            Only the kernel reads it: nothing waits for the host, and a CUDA graph may be replayed
            with other offsets. An offset below the one before it makes an empty group, one above m
            counts as m.
        out: where to write the result (m, n), its dtype and device. Rows that are in no group keep
            what they hold.
        out_dtype: bfloat16, float16 or float32; that of the operands unless given.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `GroupedGemmConfig`. None given: chosen for CUDA tensors, else the
            defaults.

    Returns:
        `out`, or a new C-contiguous array or tensor (m, n). Its rows in no group are zeros
        where it is simulated, and undefined on the GPU.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, an operand
            that requires a gradient: there is none. UnavailableError: the device is no Hopper GPU.
    """
    call = GroupedCall(a, b, offsets, out, out_dtype, tuple(sorted(settings.items())))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        from tilepipe.ops.grouped import simulated

        return simulated.grouped_matmul(call, seed, progress)
    tensors = gpu_module("tilepipe.ops.grouped.gpu", NAME, seed, progress, "ab", a, b)
    if seed or progress is not None:
        return tensors.with_options(tensors.grouped_matmul, call, seed, progress)
    result: ArrayT = tensors.grouped_matmul(call)
    return result
