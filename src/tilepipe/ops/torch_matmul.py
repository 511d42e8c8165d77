"""matmul of PyTorch tensors: straight to the kernel where PyTorch need not know, else through its dispatcher."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from tilepipe.errors import BindError
from tilepipe.ops.torch_checks import check
from tilepipe.ops.torch_eager import run
from tilepipe.ops.torch_op import matmul as operator
from tilepipe.ops.torch_plan import activate

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_is_tracing = torch.compiler.is_dynamo_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforms = torch._C._are_functorch_transforms_active
_jit_trace = torch._C._get_tracing_state


def matmul(
    a: Any, b: Any, out: Any, bias: Any, activation: str | None, source: Any, alpha: float, beta: float | None, out_dtype: object,
    precision: str | None, settings: dict[str, Any],
) -> Any:  # fmt: skip
    """`ops.matmul` of PyTorch tensors, with all its options."""
    if _is_tracing() or _seen_by_pytorch(a, b, out, bias, source):
        return _dispatched(a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, settings)
    items = tuple(sorted(settings.items())) if settings else ()
    return run(a, b, out, bias, source, (activation, alpha, beta, out_dtype, precision, items))


def _seen_by_pytorch(a: Any, b: Any, out: Any, bias: Any, source: Any) -> bool:
    """Whether anything watches what happens to these tensors: autograd, autocast, a mode, a transform, a subclass;
    or the tensors have no data (meta) or data of the other sign (negative views).
    """
    if _dispatch_modes() or _function_modes() or _transforms() or _jit_trace() is not None or forward_ad._current_level >= 0:
        return True
    if type(a) not in _PLAIN or type(b) not in _PLAIN or torch.is_autocast_enabled("cuda"):
        return True
    if a.is_meta or a.is_neg() or b.is_neg():
        return True
    if bias is None and source is None and out is None:
        return bool(torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))
    tensors = [x for x in (a, b, out, bias, source) if x is not None]
    return any(type(x) not in _PLAIN or x.is_neg() for x in tensors) or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


def _dispatched(
    a: Any, b: Any, out: Any, bias: Any, activation: str | None, source: Any, alpha: float, beta: float | None, out_dtype: object,
    precision: str | None, settings: dict[str, Any],
) -> Any:  # fmt: skip
    if precision is None and out is None and torch.is_autocast_enabled("cuda"):
        a, b, bias, source = (_autocast(x) for x in (a, b, bias, source))
    shapes, dtype = check(a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, settings)
    tensors = [x for x in (a, b, out, bias, source) if x is not None]
    differentiate = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if differentiate and out is not None:
        raise BindError("matmul: out= has no gradient, and an operand requires one; leave out= away, or call it under torch.no_grad()")
    expand = torch.Tensor.expand
    c = operator(
        shapes.left(a, expand),
        shapes.right(b, expand),
        bias,
        None if source is None else shapes.like_output(source, expand),
        None if differentiate else activation,
        float(alpha),
        None if beta is None else float(beta),
        dtype,
        precision,
        repr(tuple((name, settings[name]) for name in sorted(settings))),
    )
    if shapes.output != shapes.result:
        c = c.reshape(shapes.result)
    if differentiate:
        c = activate(c, activation)
    return c if out is None else out.copy_(c)


def _autocast(x: Any) -> Any:
    """`x` in the dtype of torch.autocast, as torch.matmul has it."""
    return x.to(torch.get_autocast_dtype("cuda")) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
