"""`prepare_weights` of NumPy arrays and of PyTorch's tensors."""

from __future__ import annotations

import sys

import numpy as np

from tilepipe.errors import BindError
from tilepipe.kernels.gemm_quantised.layout import pack
from tilepipe.ops.calls import ArrayT


def prepared(weights: ArrayT, bits: int) -> ArrayT:
    """The words of weights (n, k), on the device of `weights`.

    Raises:
        BindError: neither an array nor a tensor, or weights that cannot be packed.
    """
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(weights, torch.Tensor):
            words = torch.from_numpy(pack(weights.detach().cpu().numpy(), bits))
            found: ArrayT = words.to(weights.device)
            return found
        if not isinstance(weights, np.ndarray):
            raise BindError(
                "weights must be a NumPy array or a tensor of PyTorch, got"
                f" {type(weights).__name__}"
            )
        return pack(weights, bits)
    except BindError as error:
        raise BindError(f"prepare_weights: {error}") from None
