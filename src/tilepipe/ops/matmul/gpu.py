"""matmul of PyTorch tensors: straight to the kernel where nothing in PyTorch observes it, else
through its dispatcher.
"""

from __future__ import annotations

import torch

from tilepipe.errors import BindError
from tilepipe.ops.matmul.call import MatmulCall
from tilepipe.ops.matmul.operator import Recorded, matmul as operator
from tilepipe.ops.matmul.plan import activate, checked_tensors, run
from tilepipe.ops.matmul.shapes import product
from tilepipe.ops.matmul.validation import check_epilogue
from tilepipe.ops.torch.observers import autocast, is_tracing, observed, wants_gradient
from tilepipe.ops.torch.operators import settings_text
from tilepipe.ops.torch.tensors import torch_dtype

Call = MatmulCall[torch.Tensor]
_expand = torch.Tensor.expand


def matmul(call: Call) -> torch.Tensor:
    """`ops.matmul` of PyTorch tensors, with all its options."""
    if is_tracing() or observed(call.a, call.b, call.out, call.bias, call.source):
        return _dispatched(call)
    if wants_gradient(call.a, call.b, call.out, call.bias, call.source):
        return _recorded(call)
    return run(call)


def _recorded(call: Call) -> torch.Tensor:
    """For autograd alone. PyTorch applies the activation, and so saves its input instead of
    multiplying again.
    """
    _refuse_out(call)
    check_epilogue(call)
    shapes, source = product(tuple(call.a.shape), tuple(call.b.shape), tuple(call.a.stride())), None
    if call.source is not None:
        checked_tensors(call)
        source = shapes.like_output(call.source, _expand)
    a, b = shapes.left(call.a, _expand), shapes.right(call.b, _expand)
    c = Recorded.apply(a, b, call.bias, source, call)
    return activate(
        c if shapes.output == shapes.result else c.reshape(shapes.result), call.activation
    )


def _dispatched(call: Call) -> torch.Tensor:
    if call.precision is None and call.out is None and torch.is_autocast_enabled("cuda"):
        call.a, call.b = autocast(call.a), autocast(call.b)
        call.bias, call.source = autocast(call.bias), autocast(call.source)
    shapes, dtype = checked_tensors(call)
    differentiate = wants_gradient(call.a, call.b, call.out, call.bias, call.source)
    if differentiate:
        _refuse_out(call)
    c = operator(
        shapes.left(call.a, _expand),
        shapes.right(call.b, _expand),
        call.bias,
        None if call.source is None else shapes.like_output(call.source, _expand),
        None if differentiate else call.activation,
        float(call.alpha),
        None if call.beta is None else float(call.beta),
        torch_dtype(dtype),
        call.precision,
        settings_text(call.settings),
    )
    if shapes.output != shapes.result:
        c = c.reshape(shapes.result)
    if differentiate:
        c = activate(c, call.activation)
    return c if call.out is None else call.out.copy_(c)


def _refuse_out(call: Call) -> None:
    if call.out is not None:
        raise BindError(
            "matmul: out= has no gradient, and an operand requires one; leave out= away, or call"
            " it under torch.no_grad()"
        )
