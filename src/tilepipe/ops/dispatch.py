"""Which device a call runs on, by the kind of its arrays."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ops.types import Progress


def gpu_module(
    name: str,
    operation: str,
    seed: int,
    progress: Progress | None,
    parameters: str,
    *operands: object,
) -> Any:
    """The module that runs an operation on PyTorch tensors, imported when it is first needed.

    Args:
        parameters: a letter for each operand, for the message.

    Raises:
        BindError: no operand is a tensor, or an option of the simulator is given.
    """
    torch = sys.modules.get("torch")
    for x in operands:
        if torch is not None and isinstance(x, torch.Tensor):
            break
    else:
        named = zip(parameters, operands, strict=True)
        letter, x = next((n, x) for n, x in named if not isinstance(x, np.ndarray))
        raise BindError(
            f"{operation}: {letter} must be a NumPy array or a CUDA tensor of PyTorch, got"
            f" {type(x).__name__}"
        )
    if seed or progress is not None:
        raise BindError(
            f"{operation}: seed and progress belong to the simulator, which runs NumPy arrays; a"
            " CUDA tensor runs on its GPU"
        )
    # found here without the microsecond that an import statement takes
    return sys.modules.get(name) or importlib.import_module(name)
