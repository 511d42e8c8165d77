"""matmul(a, b): `a @ b` through the GEMM kernel, on the GPU for CUDA tensors, on the simulator for
NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

import numpy as np

from tilepipe.host_arguments import plain
from tilepipe.ops.calls import ArrayT, Progress, Setting, gpu_module
from tilepipe.ops.matmul import simulated
from tilepipe.ops.matmul.call import MatmulCall


def matmul(
    a: ArrayT,
    b: ArrayT,
    *,
    out: ArrayT | None = None,
    bias: ArrayT | None = None,
    activation: str | None = None,
    source: ArrayT | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    out_dtype: object = None,
    precision: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """activation(alpha · (a @ b) + beta · source + bias), accumulated in float32 and rounded once.

    Args:
        a, b: two CUDA tensors of PyTorch, which run on their device in its current stream; or two
            tensors on the CPU, or two NumPy arrays, which run on the simulated GPU. Both bfloat16,
            both float16, or both
            float32 with `precision="tf32"`. Shapes as `@` has them: (m, k) @ (k, n), a 1-D operand
            is a row or a column, the dimensions before the last two are a batch and broadcast. Any
            layout: a matrix that is contiguous along one of its dimensions and whose other stride
            is a multiple of 16 bytes is read where it lies, so a transposed view costs nothing;
            what TMA cannot take is copied first, with rows padded to 16 bytes.
        out: where to write the result: its shape, dtype (also that of `out_dtype`, if given) and
            device; any layout. What the kernel cannot write in place, or what overlaps an operand,
            goes through a temporary.
        bias: (n,), added to each row of the product, or (m, 1), added to each column, the same for
            the whole batch: of the operands' dtype, the result's, or float32.
        activation: None or "none", "relu", "gelu" (its tanh form), "silu" or "gelu_erf" (GELU
            itself).
        source: added to the product, as `input` of `torch.addmm`: of the result's dtype, of a shape
            that broadcasts to the result's. It may be `out`, which then accumulates.
        alpha, beta: scales of the product and of `source`; beta is 1 unless given, and with 0
            `source` is not read.
        out_dtype: bfloat16, float16 or float32; that of the operands unless given. A name, or a
            dtype of tilepipe, NumPy or PyTorch.
        precision: "tf32": multiply float32 with 10 bits of mantissa.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `GemmConfig` (bm, bn, bk, stages, ...), the others at its defaults. None
            given: for CUDA tensors `gemm.heuristics.choose` picks for the shape; the defaults
            are simulated.

    Returns:
        `out`, or a new C-contiguous array or tensor. With m, n or k = 0 what NumPy and PyTorch
        return.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, float32 without `precision`,
            unknown settings, `out` with an operand that requires a gradient. UnavailableError: the
            device is no Hopper GPU, or a package is missing. LimitError: settings that need more
            shared memory than there is.

    CUDA tensors: safe in CUDA graphs (call once before capturing: the first call of a shape
    compiles), from several threads, under `torch.compile` and autograd; see docs/reference/ops.md.
    """
    call = MatmulCall(
        a,
        b,
        out,
        bias,
        None if isinstance(activation, str) and activation == "none" else activation,
        source,
        alpha if type(alpha) is float else plain(alpha),
        beta if beta is None else plain(beta),
        out_dtype,
        precision,
        tuple(sorted(settings.items())) if settings else (),
    )
    result: ArrayT = multiplied(call, seed, progress)
    return result


def multiplied(call: MatmulCall[ArrayT], seed: int, progress: Progress | None) -> ArrayT:
    """The result of a call, of `ops.matmul` or of another operation that is such a product."""
    a, b = call.a, call.b
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return simulated.matmul(call, seed, progress)
    where = "tilepipe.ops.matmul.gpu"
    tensors = gpu_module(where, call.operation, seed, progress, "ab", a, b)
    if seed or progress is not None:
        return tensors.with_options(tensors.matmul, call, seed, progress)
    result: ArrayT = tensors.matmul(call)
    return result
