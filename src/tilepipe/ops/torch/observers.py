"""Who, in PyTorch, watches what happens to tensors: only where nobody does may its dispatcher be
left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

_PLAIN = (torch.Tensor, torch.nn.Parameter)
is_tracing = torch.compiler.is_dynamo_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._are_functorch_transforms_active
_jit_trace = torch._C._get_tracing_state


def watched(a: Any, b: Any, *others: Any) -> bool:
    """Whether anything but autograd watches: autocast, a mode, a transform, a subclass; or the
    tensors have no data (meta) or data of the other sign (negative views). `others` may be None.
    """
    if (
        _dispatch_modes()
        or _function_modes()
        or _transforms()
        or _jit_trace() is not None
        or forward_ad._current_level >= 0
    ):
        return True
    if type(a) not in _PLAIN or type(b) not in _PLAIN or torch.is_autocast_enabled("cuda"):
        return True
    if a.is_meta or a.is_neg() or b.is_neg():
        return True
    return any(x is not None and (type(x) not in _PLAIN or x.is_neg()) for x in others)


def wants_gradient(*tensors: Any) -> bool:
    """Whether autograd records what is done to these tensors, any of which may be None."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def autocast(x: Any) -> Any:
    """`x` in the dtype of torch.autocast, as torch.matmul has it; what is no floating-point tensor
    as it is.
    """
    return (
        x.to(torch.get_autocast_dtype("cuda"))
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
    )
