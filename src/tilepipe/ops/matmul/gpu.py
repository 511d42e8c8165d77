"""matmul of PyTorch tensors: straight to the kernel where PyTorch need not know, else through its
dispatcher.
"""

from __future__ import annotations

from typing import Any

import torch

from tilepipe.errors import BindError
from tilepipe.ops.matmul.eager import run
from tilepipe.ops.matmul.operator import Recorded
from tilepipe.ops.matmul.operator import matmul as operator
from tilepipe.ops.matmul.plan import activate
from tilepipe.ops.matmul.shapes import product
from tilepipe.ops.matmul.validation import check_epilogue
from tilepipe.ops.torch.checks import check
from tilepipe.ops.torch.observers import autocast, is_tracing, wants_gradient, watched

_expand = torch.Tensor.expand


def matmul(
    a: Any, b: Any, out: Any, bias: Any, activation: str | None, source: Any, alpha: float, beta: float | None, out_dtype: object,
    precision: str | None, settings: dict[str, Any],
) -> Any:  # fmt: skip
    """`ops.matmul` of PyTorch tensors, with all its options."""
    if is_tracing() or watched(a, b, out, bias, source):
        return _dispatched(
            a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, settings
        )
    items = tuple(sorted(settings.items())) if settings else ()
    if wants_gradient(a, b, out, bias, source):
        return _recorded(
            a, b, out, bias, activation, source, (None, alpha, beta, out_dtype, precision, items)
        )
    return run(a, b, out, bias, source, (activation, alpha, beta, out_dtype, precision, items))


def _recorded(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    activation: str | None,
    source: Any,
    options: tuple[Any, ...],
) -> Any:
    """For autograd alone. PyTorch applies the activation, and so saves its input instead of
    multiplying again.
    """
    _refuse_out(out)
    _, alpha, beta, out_dtype, precision, items = options
    check_epilogue(activation, alpha, beta, source=source is not None)
    shapes = product(tuple(a.shape), tuple(b.shape), tuple(a.stride()))
    if source is not None:
        check(a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, dict(items))
        source = shapes.like_output(source, _expand)
    c = Recorded.apply(shapes.left(a, _expand), shapes.right(b, _expand), bias, source, options)
    return activate(c if shapes.output == shapes.result else c.reshape(shapes.result), activation)


def _dispatched(
    a: Any, b: Any, out: Any, bias: Any, activation: str | None, source: Any, alpha: float, beta: float | None, out_dtype: object,
    precision: str | None, settings: dict[str, Any],
) -> Any:  # fmt: skip
    if precision is None and out is None and torch.is_autocast_enabled("cuda"):
        a, b, bias, source = (autocast(x) for x in (a, b, bias, source))
    shapes, dtype = check(
        a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, settings
    )
    differentiate = wants_gradient(a, b, out, bias, source)
    if differentiate:
        _refuse_out(out)
    c = operator(
        shapes.left(a, _expand),
        shapes.right(b, _expand),
        bias,
        None if source is None else shapes.like_output(source, _expand),
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


def _refuse_out(out: Any) -> None:
    if out is not None:
        raise BindError(
            "matmul: out= has no gradient, and an operand requires one; leave out= away, or call"
            " it under torch.no_grad()"
        )
