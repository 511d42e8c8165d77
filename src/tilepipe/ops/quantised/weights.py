"""`prepare_weights` of NumPy arrays and of PyTorch's tensors."""

from __future__ import annotations

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ir.host_tensors import is_tensor
from tilepipe.kernels.gemm_quantised.layout import pack
from tilepipe.ops.calls import ArrayT

NAME = "prepare_weights"


def prepared(weights: ArrayT, bits: int) -> ArrayT:
    """The words of weights (n, k), on the device of `weights`.

    Raises:
        BindError: neither an array nor a tensor, or weights that cannot be packed.
    """
    if is_tensor(weights):
        import torch

        if weights.is_floating_point() or weights.is_complex():  # NumPy has not all of these dtypes
            raise BindError(
                f"{NAME}: weights must be a matrix (n, k) of integers; they are"
                f" {str(weights.dtype).removeprefix('torch.')} of shape {tuple(weights.shape)}"
            )
        words = torch.from_numpy(pack(weights.detach().cpu().numpy(), bits, who=NAME))
        found: ArrayT = words.to(weights.device)
        return found
    if not isinstance(weights, np.ndarray):
        raise BindError(
            f"{NAME}: weights must be a NumPy array or a tensor of PyTorch, got"
            f" {type(weights).__name__}"
        )
    return pack(weights, bits, who=NAME)
