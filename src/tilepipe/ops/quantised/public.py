"""quantised_matmul(a, weights, scales): a product with weights of 4 or 8 bits; on the GPU for CUDA
tensors, on the simulator for NumPy arrays and for tensors on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from tilepipe.ops.calls import ArrayT, Progress, Setting, Settings, gpu_module

NAME = "quantised_matmul"


@dataclass
class QuantisedCall(Generic[ArrayT]):
    """activation(a @ (scales · weights)ᵀ); `ops.quantised_matmul` says what each may be."""

    a: ArrayT
    weights: ArrayT
    scales: ArrayT
    group: int
    activation: str
    out: ArrayT | None
    out_dtype: object
    settings: Settings


def prepare_weights(weights: ArrayT, *, bits: int = 4) -> ArrayT:
    """Weights (n, k) in the order in which `quantised_matmul` reads them; done once, on the host.

    Args:
        weights: integers, -8 to 7 where bits is 4, -128 to 127 where it is 8: a NumPy array, or a
            tensor of PyTorch on any device.
        bits: 4 or 8.

    Returns:
        int32 words (⌈k / 128⌉, n, 4 · bits), on the device of `weights`.

    Raises:
        BindError: no matrix of integers, or one that does not fit into so many bits.
    """
    from tilepipe.ops.quantised.weights import prepared

    words: ArrayT = prepared(weights, bits)
    return words


def quantised_matmul(
    a: ArrayT,
    weights: ArrayT,
    scales: ArrayT,
    *,
    group: int = 128,
    activation: str = "none",
    out: ArrayT | None = None,
    out_dtype: object = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Setting,
) -> ArrayT:
    """activation(a @ (scales · weights)ᵀ), accumulated in float32 and rounded once. The weights
    become 16-bit numbers on the way to the tensor cores; of few rows of `a`, reading them is what
    takes time.

    Args:
        a: (m, k), bfloat16 or float16: a CUDA tensor of PyTorch, or a tensor on the CPU or NumPy
            array, which run on the simulated GPU. Read where it lies if k is contiguous and the
            other stride a multiple of 16 bytes; copied first if not. The same holds for the others.
        weights: what `prepare_weights` made of weights (n, k) of 4 or 8 bits.
        scales: float32 (⌈k / group⌉, n): what the weights of a group are multiplied by.
        group: neighbours along k that share a scale: 32, 64, or a multiple of 128.
        activation: "none", "relu", "gelu" (the tanh form), "silu", "gelu_erf" (GELU itself).
        out: where to write the result (m, n), its dtype and device.
        out_dtype: bfloat16, float16 or float32; that of a unless given.
        seed, progress: of the simulator, see `Program.run`; not on a GPU.
        settings: fields of `QuantisedGemmConfig`. None given: chosen for CUDA tensors, else the
            defaults.

    Returns:
        `out`, or a new C-contiguous array or tensor (m, n).

    Raises:
        BindError: shapes, dtypes or devices that do not fit together, unknown settings, an operand
            that requires a gradient: there is none. UnavailableError: the device is no Hopper GPU.
    """
    items = tuple(sorted(settings.items()))
    call = QuantisedCall(a, weights, scales, group, activation, out, out_dtype, items)
    if (
        isinstance(a, np.ndarray)
        and isinstance(weights, np.ndarray)
        and isinstance(scales, np.ndarray)
    ):
        from tilepipe.ops.quantised import simulated

        return simulated.quantised_matmul(call, seed, progress)
    tensors = gpu_module(
        "tilepipe.ops.quantised.gpu",
        NAME,
        seed,
        progress,
        ("a", "weights", "scales"),
        a,
        weights,
        scales,
    )
    if seed or progress is not None:
        return tensors.with_options(tensors.quantised_matmul, call, seed, progress)
    result: ArrayT = tensors.quantised_matmul(call)
    return result
