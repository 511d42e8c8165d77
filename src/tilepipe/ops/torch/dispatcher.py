"""The operators `tilepipe::NAME`, as PyTorch's dispatcher, compiler and autograd see them, and
whether a call must go through them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain
from tilepipe.ops.calls import Settings

# A plain Library costs half of torch.library.custom_op for each call: no checks of aliasing, no
# wrappers.
library = torch.library.Library("tilepipe", "FRAGMENT")

_PLAIN = (torch.Tensor, torch.nn.Parameter)
is_tracing = torch.compiler.is_dynamo_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._are_functorch_transforms_active
_jit_trace = torch._C._get_tracing_state


def register(
    name: str, schema: str, kernel: Callable[..., object], fake: Callable[..., object]
) -> torch._ops.OpOverload:
    """Registers an operator.

    Args:
        schema: its parameters and results. kernel: its work on tensors, those on the CPU
            simulated.
        fake: shapes and dtypes of its results, for tensors without data.
    """
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for device in ("CUDA", "CPU"):
        library.impl(name, kernel, device)
    torch.library.register_fake(f"tilepipe::{name}", fake, lib=library)
    return getattr(torch.ops.tilepipe, name).default


def settings_text(settings: Settings) -> str:
    """Settings as an argument of an operator: a Python literal, which scalars of NumPy are not."""
    return repr(tuple((name, plain(value)) for name, value in settings))


@functools.lru_cache(maxsize=256)
def settings_of(text: str) -> Settings:
    """The settings that `settings_text` has written."""
    found: Settings = ast.literal_eval(text)
    return found


def observed(a: torch.Tensor, b: torch.Tensor, *others: torch.Tensor | None) -> bool:
    """True if anything but autograd observes a call: autocast, a mode, a transform, a subclass; or
    the tensors have no data (meta) or data of the other sign (negative views). `others` may be
    None.
    """
    if (
        _dispatch_modes()
        or _function_modes()
        or _transforms()
        or _jit_trace() is not None
        or forward_ad._current_level >= 0
    ):
        return True
    if type(a) not in _PLAIN or type(b) not in _PLAIN:
        return True
    if torch.is_autocast_enabled("cpu" if a.is_cpu else "cuda"):
        return True
    if a.is_meta or a.is_neg() or b.is_neg():
        return True
    # a loop: the generator of `any` would cost the call a third of a microsecond
    for x in others:  # noqa: SIM110
        if x is not None and (type(x) not in _PLAIN or x.is_neg()):
            return True
    return False


def recorder(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` of a call that is not `observed`, without what it does for transforms of
    functions: a tenth of the host's time for a forward pass of attention.
    """
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply
    return apply


def wants_gradient(*tensors: torch.Tensor | None) -> bool:
    """True if autograd records what is done to these tensors, any of which may be None."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and isinstance(x, torch.Tensor) and x.requires_grad:
                return True
    return False


def refuse_gradient(operation: str, *operands: object) -> None:
    """Raises BindError where autograd would record an operation that has no gradient."""
    if torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in operands
    ):
        raise no_gradient(operation)


def no_gradient(operation: str) -> BindError:
    """What to raise of an operand that requires a gradient."""
    return BindError(
        f"{operation} has no gradient, and an operand requires one; detach it, or call it under"
        " torch.no_grad()"
    )


def autocasts(x: torch.Tensor) -> bool:
    """True if torch.autocast is enabled for the device of a tensor."""
    return bool(torch.is_autocast_enabled(_autocast_device(x)))


def autocast(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """`x` in `dtype`, unless given that which torch.autocast has for its device, as torch.matmul
    has it; what is no floating-point tensor, or float64, as it is.
    """
    return (
        x.to(torch.get_autocast_dtype(_autocast_device(x)) if dtype is None else dtype)
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
        else x
    )


def autocast_beside(stored: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`x` as `autocast`, where that is enabled, beside a cache, which is stored for many calls and
    never copied: `x` has its dtype if that has 16 bits.
    """
    if not isinstance(x, torch.Tensor) or not autocasts(x):
        return x
    narrow = stored.dtype in (torch.bfloat16, torch.float16)
    return autocast(x, stored.dtype if narrow else None)


def _autocast_device(x: object) -> str:
    return "cpu" if isinstance(x, torch.Tensor) and x.is_cpu else "cuda"
