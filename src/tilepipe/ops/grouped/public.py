"""grouped_matmul(a, b, offsets): products of matrices in groups; on the GPU for CUDA tensors, on
the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import require_int
from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module
from tilepipe.ops.matmul.call import MatmulCall
from tilepipe.ops.matmul.public import multiplied

NAME = "grouped_matmul"


@dataclass
class GroupedCall(Generic[ArrayT]):
    """Products of groups of rows of a, or of k; `ops.grouped_matmul` says what each may be.
    `offsets`: of padded groups, their rows.
    """

    a: ArrayT
    b: ArrayT
    offsets: ArrayT
    scale_a: ArrayT | None
    scale_b: ArrayT | None
    expected_rows: int | None
    out: ArrayT | None
    out_dtype: object
    settings: Settings


def grouped_matmul(
    a: ArrayT,
    b: ArrayT,
    offsets: ArrayT | None = None,
    *,
    offs: ArrayT | None = None,
    rows: ArrayT | None = None,
    scale_a: ArrayT | None = None,
    scale_b: ArrayT | None = None,
    expected_rows: int | None = None,
    out: ArrayT | None = None,
    out_dtype: object = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """The products of a mixture of experts, as `torch.nn.functional.grouped_mm` has them,
    accumulated in float32 and rounded once. The dimensions of a and b say what the groups are of:

    | a | b | offsets are of | result |
    |---|---|---|---|
    | (m, k) | (groups, k, n) | rows of a | (m, n): a[start:end] @ b[g] |
    | (m, k) | (k, n) | k | (groups, m, n): a[:, start:end] @ b[start:end] |
    | (groups, m, k) | (k, n) | columns of b | (m, n): a[g] @ b[:, start:end] |
    | (groups, m, k) | (groups, k, n) | nothing: none are given | (groups, m, n): a[g] @ b[g] |
    | (groups, m, k) | (groups, k, n) | the same, with `rows` | its first rows[g] rows of each g |

    PyTorch's autograd differentiates the first four: the gradient of the weights of the first is a
    product of the second kind.

    Args:
        a, b: both bfloat16, both float16, or both float8_e4m3fn, with scales, in all but the
            third and fourth form; two CUDA tensors of PyTorch; or two tensors on the CPU,
            or two NumPy arrays, which run on the simulated GPU. Read where they lie if the
            dimension along which groups begin is not the contiguous one, each matrix of a batch is
            row- or column-major (weights (groups, n, k) are passed transposed), and the other
            strides are multiples of 16 bytes; copied first if not.
        offsets: int32 (groups,): the end of each group, the row after its last, on the device of a.
            Only the kernel reads it: nothing waits for the host, and a CUDA graph may be replayed
            with other offsets. An offset below the one before it makes an empty group, one above
            the extent counts as the extent. A group of k that is empty has a result of zeros.
        offs: PyTorch's name for it; one of the two is given.
        rows: int32 (groups,), on the device of a: how many rows of each matrix of a count, which
            only the kernel reads; none where it is below 0, all where it is above m.
        scale_a, scale_b: float32, of float8_e4m3fn: for each 1×128 of a, (m, ⌈k/128⌉) or (groups,
            m, ⌈k/128⌉), and for each 128×128 of b, (groups, ⌈k/128⌉, ⌈n/128⌉), as of
            `ops.scaled_matmul`; with groups of k for each 128×1 of b, (⌈k/128⌉, n), and offsets
            below k are rounded down to multiples of 128, since a block has one scale. A scale_a
            whose columns are contiguous, 16 bytes apart, is not copied, nor the transposed view of
            a contiguous (groups, ⌈n/128⌉, ⌈k/128⌉).
        expected_rows: with `rows`, about how many rows a group has: for the choice of settings, of
            which m is the most; rounded up by a quarter at most. The result does not depend on it.
        out: where to write the result, its shape, dtype and device. Rows, or columns, that are in
            no group keep what they hold.
        out_dtype: bfloat16, float16 or float32; unless given that of the operands, of fp8 bfloat16.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `GroupedGemmConfig`, with groups of k `KGroupedGemmConfig`, without
            offsets and rows `GemmConfig`, of fp8 `BlockwiseGemmConfig`, or, with groups of k,
            `KGroupedBlockwiseGemmConfig`. None given: chosen for CUDA tensors, else the defaults.

    Returns:
        `out`, or a new C-contiguous array or tensor, with groups of columns a transposed one. Its
        rows, or columns, in no group are zeros where it is simulated, and undefined on the GPU.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, `out`
            beside an operand that requires a gradient; of fp8 and with `rows` any such operand:
            there is none. UnavailableError: the device is no Hopper
            GPU.
    """
    if offs is not None and offsets is not None:
        raise BindError(f"{NAME}: offs is another name of offsets; give one of them")
    ends = offsets if offs is None else offs
    # What is no array is refused below.
    dimensions = getattr(a, "ndim", None), getattr(b, "ndim", None)
    items = tuple(sorted(settings.items()))
    if rows is not None:
        if ends is not None:
            raise BindError(f"{NAME}: rows are those of padded groups, which have no offsets")
        if dimensions != (3, 3):
            raise BindError(
                f"{NAME}: rows= says how many rows count of each matrix of a (groups, m, k), times"
                f" b (groups, k, n); a has {dimensions[0]} dimensions and b {dimensions[1]}"
            )
        ends = rows
    elif expected_rows is not None:
        raise BindError(f"{NAME}: expected_rows goes with rows, which are not given")
    elif dimensions == (3, 3):
        from tilepipe.ops.grouped.call import check_batches

        check_batches(a, b, ends, (scale_a, scale_b), items)
        none = None, None, None  # bias, activation, source
        alike = MatmulCall(a, b, out, *none, 1.0, None, out_dtype, None, items, NAME)
        product: ArrayT = multiplied(alike, seed, progress)
        return product
    if ends is None:
        raise BindError(
            f"{NAME}: offsets, the end of each group, are not given; only a (groups, m, k) and b"
            " (groups, k, n) have none"
        )
    if dimensions == (3, 2):
        from tilepipe.ops.grouped.call import check_columns

        if scale_a is not None or scale_b is not None:
            raise BindError(f"{NAME}: groups of columns of b have no scales")
        check_columns(a, b, ends, out)
        c = grouped_matmul(
            b.swapaxes(0, 1),
            a.swapaxes(1, 2),
            ends,
            expected_rows=None,
            out=None if out is None else out.swapaxes(0, 1),
            out_dtype=out_dtype,
            seed=seed,
            progress=progress,
            **settings,
        )
        return c.swapaxes(0, 1) if out is None else out
    expected = None if expected_rows is None else require_int(expected_rows, "expected_rows=", 1)
    call = GroupedCall(a, b, ends, scale_a, scale_b, expected, out, out_dtype, items)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        from tilepipe.ops.grouped import simulated

        return simulated.grouped_matmul(call, seed, progress)
    tensors = gpu_module("tilepipe.ops.grouped.gpu", NAME, seed, progress, "ab", a, b)
    if seed or progress is not None:
        return tensors.with_options(tensors.grouped_matmul, call, seed, progress)
    result: ArrayT = tensors.grouped_matmul(call)
    return result
