"""layer_norm, softmax and cross_entropy of rows; on the GPU for CUDA tensors, on the simulator for
NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, gpu_module

_MODULE = "tilepipe.ops.rows.operators"


def _run(
    name: str,
    arguments: tuple[Any, ...],
    settings: dict[str, Setting],
    seed: int,
    progress: Progress | None,
) -> Any:
    """The operation on NumPy arrays or on tensors, as its first argument is."""
    items, x = tuple(sorted(settings.items())), arguments[0]
    if isinstance(x, np.ndarray):
        from tilepipe.ops.rows import simulated

        return getattr(simulated, name)(*arguments, items, seed, progress)
    tensors = gpu_module(_MODULE, name, seed, progress, ("x",), x)
    if seed or progress is not None:
        return tensors.with_options(
            lambda given: getattr(tensors, name)(*given, items), arguments, seed, progress
        )
    return getattr(tensors, name)(*arguments, items)


def layer_norm(
    x: ArrayT,
    weight: ArrayT | None = None,
    bias: ArrayT | None = None,
    *,
    eps: float = 1e-5,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """(x - mean) / √(variance + eps) · weight + bias along the last dimension, computed in float32
    and rounded once, as `torch.nn.functional.layer_norm` has it. PyTorch's autograd differentiates
    it, if rows have at most 65536 elements, of float32 32768.

    Args:
        x: (..., n), bfloat16, float16 or float32: a CUDA tensor of PyTorch; or a tensor on the CPU,
            or a NumPy array, which run on the simulated GPU. n at most 262144, of float32 131072.
        weight, bias: (n,), of any of these dtypes. None: 1 and 0.
        eps: added to the variance.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `RowConfig`; those not given have their defaults. None given: chosen for
            n.

    Returns:
        A new array or tensor of x's shape and dtype.

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, rows that
            are too long. UnavailableError: the device is no Hopper GPU.
    """
    found: ArrayT = _run("layer_norm", (x, weight, bias, eps), settings, seed, progress)
    return found


def softmax(
    x: ArrayT, *, seed: int = 0, progress: Progress | None = None, **settings: Setting
) -> ArrayT:
    """exp(x) / Σ exp(x) along the last dimension, computed in float32 and rounded once. PyTorch's
    autograd differentiates it, if rows have at most 131072 elements, of float32 65536.

    Args:
        x, seed, progress, settings: as of `layer_norm`.

    Returns:
        A new array or tensor of x's shape and dtype.

    Raises:
        BindError, UnavailableError: as `layer_norm`.
    """
    found: ArrayT = _run("softmax", (x,), settings, seed, progress)
    return found


def cross_entropy(
    x: ArrayT,
    labels: ArrayT,
    *,
    ignore_index: int = -100,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> tuple[ArrayT, ArrayT]:
    """The cross entropy of each row of logits, log Σ exp(x) - x[label], and log Σ exp(x). PyTorch's
    autograd differentiates the first.

    Args:
        x: logits (..., n), as x of `layer_norm`.
        labels: (...), int32 or int64: a column of each row, or `ignore_index`, where the loss and
            its gradient are 0. Any other number makes the loss infinite.
        seed, progress, settings: as of `layer_norm`.

    Returns:
        (loss, lse), float32, of the shape of `labels`.

    Raises:
        BindError, UnavailableError: as `layer_norm`.
    """
    found: tuple[ArrayT, ArrayT] = _run(
        "cross_entropy", (x, labels, ignore_index), settings, seed, progress
    )
    return found
