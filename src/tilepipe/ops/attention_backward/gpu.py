"""attention_backward of PyTorch tensors, and the operator `tilepipe::attention_backward`, which
PyTorch's dispatcher and compiler see.
"""

from __future__ import annotations

from typing import NoReturn, TypeAlias

import torch

from tilepipe.errors import BindError
from tilepipe.kernels.attention_backward.sm90_bind import Workspace
from tilepipe.kernels.attention_backward.validation import NAME
from tilepipe.ops.attention_backward.call import BackwardCall, checked, steps
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch.dispatcher import library, refuse_gradient, register
from tilepipe.ops.torch.launches import run
from tilepipe.ops.torch.simulated import with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors

Tensor: TypeAlias = torch.Tensor
Call = BackwardCall[torch.Tensor]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SCHEMA = (
    "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? dlse=None,"
    " bool causal=False, float? scale=None, str align='last', bool deterministic=False,"
    " str layout='bshd') -> (Tensor, Tensor, Tensor)"
)


def attention_backward(call: Call) -> Gradients:
    """`ops.attention_backward` of tensors."""
    given = call.given
    refuse_gradient(NAME, *given.values())
    check_tensors(NAME, given)
    checked(call)
    scale = None if call.scale is None else float(call.scale)
    found: Gradients = operator(
        call.dout, call.q, call.k, call.v, call.out, call.lse, call.dlse,
        call.causal, scale, call.align, call.deterministic, call.layout,
    )  # fmt: skip
    return found


def kernel(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    deterministic: bool = False,
    layout: str = "bshd",
) -> Gradients:
    """The operator on tensors."""
    dout, dlse = _laid_out(dout, out), None if dlse is None else dlse.contiguous()
    call = BackwardCall(dout, q, k, v, out, lse, dlse, causal, scale, align, deterministic, layout)
    found = checked(call)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if found.empty:
        return dq.zero_(), dk.zero_(), dv.zero_()

    for name, x in (("q", q), ("k", k), ("v", v)):
        check_in_place(NAME, name, TensorView(x))

    def empty(shape: tuple[int, ...], dtype: str) -> Tensor:
        return torch.empty(shape, dtype=getattr(torch, dtype), device=q.device)

    space = Workspace.of(found, deterministic, empty)
    tensors = call.given | {"dq": dq, "dk": dk, "dv": dv} | vars(space)
    options = causal, found.scale, align, layout
    for step in steps(call, found):
        taken = {name: tensors[name] for name in step.takes if tensors.get(name) is not None}
        run(step.name, options, step.bind, **taken)
    return dq, dk, dv


def _laid_out(dout: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """A gradient in memory that TMA takes: that of a sum is one number, expanded."""
    unit = 16 // dout.element_size()
    outer = zip(dout.stride()[:-1], dout.shape[:-1], strict=True)
    taken = dout.stride(-1) == 1 and all(s > 0 and s % unit == 0 for s, n in outer if n > 1)
    if taken and dout.data_ptr() % 16 == 0 and dout.dtype is out.dtype:
        return dout
    return torch.empty_like(out).copy_(dout)


def _fake(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    deterministic: bool = False,
    layout: str = "bshd",
) -> Gradients:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep_nothing(ctx: object, inputs: tuple[object, ...], output: object) -> None:
    """A gradient may be computed with create_graph=True, as long as nobody differentiates it."""


def _second(ctx: object, *grads: object) -> NoReturn:
    raise BindError(
        f"{NAME}: the gradients of attention have no gradients themselves, and a loss that contains"
        " them is being differentiated: detach them, or compute attention by"
        " torch.nn.functional.scaled_dot_product_attention with its math backend"
    )


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(
    f"tilepipe::{NAME}", _second, setup_context=_keep_nothing, lib=library
)
