"""attention of CUDA tensors: the operator `tilepipe::attention`, which PyTorch's dispatcher and
compiler see, and calls that need neither.

Where a tensor requires a gradient, the operator keeps the logarithms, from which
`tilepipe::attention_backward` computes it. Options that this does not know of are refused, so that
nothing is lost in silence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from tilepipe.errors import BindError
from tilepipe.kernels.attention.validation import NAME
from tilepipe.kernels.attention_backward.config import DEPTHS
from tilepipe.ops.attention.descales import spread
from tilepipe.ops.attention.inputs import SCHEMA, Inputs, inputs_of
from tilepipe.ops.attention.plan import Call, checked_tensors, descales, in_sequences, plans
from tilepipe.ops.attention_backward.gpu import (
    Gradients,
    kernel as backward_kernel,
    operator as backward_operator,
)
from tilepipe.ops.torch.attentions import NO_LSE, Results, both_of
from tilepipe.ops.torch.dispatcher import (
    autocast,
    autocasts,
    is_tracing,
    library,
    observed,
    recorder,
    register,
    wants_gradient,
)
from tilepipe.ops.torch.simulated import with_options as with_options

Options = tuple[bool, float | None, str, str]  # causal, scale, align, layout
E4M3 = torch.float8_e4m3fn
_OTHERS = (None,) * (len(Inputs._fields) - 3)  # the gradients of what has none
_NO_WINDOW = tuple(itertools.product((None, -1), repeat=2))  # bounds that bound nothing


def attention(call: Call) -> torch.Tensor | Results:
    """`ops.attention` of PyTorch tensors, with all its options."""
    call = spread(call, _tensor_of_heads(call.q))
    others = call.slopes, call.sinks, call.out, *descales(call)
    both = call.return_lse
    differentiate = wants_gradient(call.q, call.k, call.v, *others)
    if differentiate:
        _cast(call)
        lacking = _without_gradient(call)
        if lacking is not None:
            checked_tensors(call)  # what is wrong with the call itself is said first
            raise _no_gradient(lacking)
        call.return_lse = True
    if is_tracing() or observed(call.q, call.k, call.v, *others):
        result, lse = _dispatched(call)
    elif differentiate:
        result, lse = _record(call.q, call.k, call.v, call)
    else:
        result, lse = plans.run(call)
    return (result, lse) if both else result


def _tensor_of_heads(q: object) -> Callable[[Any, tuple[int, int]], torch.Tensor]:
    """As `spread` takes it. A number is written on the device in the current stream, and is no part
    of a plan's key: it may change with each call.
    """

    def made(x: Any, wanted: tuple[int, int]) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            return x.expand(wanted).contiguous()
        device = q.device if isinstance(q, torch.Tensor) else None
        return torch.full(wanted, x, dtype=torch.float32, device=device)

    return made


def _without_gradient(call: Call) -> str | None:
    """The option or the heads of a call that the gradients do not know of; None: there are none."""
    q, v = getattr(call.q, "shape", ()), getattr(call.v, "shape", ())
    if call.score is not None:
        return "a score function"
    if call.out is not None:
        return "out="
    if call.window is not None and call.window not in _NO_WINDOW:
        return "window="
    if call.softcap != 0:
        return "softcap="
    if call.slopes is not None:
        return "slopes="
    if call.sinks is not None:
        return "sinks="
    if call.cu_seqlens_q is not None or call.cu_seqlens_k is not None:
        return "packed sequences (cu_seqlens_q=)"
    if call.block_mask is not None:
        return "block_mask="
    if getattr(call.q, "dtype", None) is E4M3:
        return "operands of float8_e4m3"
    wide = max(*q[-1:], *v[-1:], 0)
    return f"heads of {wide} elements, above {DEPTHS[-1]}" if wide > DEPTHS[-1] else None


def _no_gradient(what: str) -> BindError:
    return BindError(
        f"{NAME}: there is no gradient with {what}, and an operand requires one. Leave it out,"
        " detach the operands, or call it under torch.no_grad()"
    )


def _cast(call: Call) -> None:
    """Casts q, k and v as torch.autocast asks, where it is enabled."""
    given = isinstance(call.q, torch.Tensor) and call.out is None
    if given and call.q.dtype != E4M3 and autocasts(call.q):
        call.q, call.k, call.v = autocast(call.q), autocast(call.k), autocast(call.v)


def _dispatched(call: Call) -> Results:
    _cast(call)
    checked_tensors(call)
    if call.score is not None:
        raise BindError(
            f"{NAME}: a score function is traced into a kernel of its own, which PyTorch's"
            " dispatcher cannot carry: call it outside of torch.compile, modes and subclasses"
        )
    result, lse = operator(*inputs_of(call))
    return (result if call.out is None else _copied(result, call.out, call.cu_seqlens_q)), lse


def _copied(result: torch.Tensor, out: torch.Tensor, bounds: torch.Tensor | None) -> torch.Tensor:
    """`out` with `result` in it; rows that are in no packed sequence keep what they have."""
    if bounds is None:
        return out.copy_(result)
    return out.copy_(torch.where(in_sequences(bounds, out), result, out))


def kernel(*given: Any, **named: Any) -> Results:
    """The operator on tensors: of `Inputs`."""
    return both_of(plans.run(Inputs(*given, **named).call))


def _fake(*given: Any, **named: Any) -> Results:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    x = Inputs(*given, **named)
    q, k, v = x.q, x.k, x.v
    rank = 4 if x.cu_seqlens_q is None else 3
    if {q.dim(), k.dim(), v.dim()} != {rank}:
        raise BindError(
            f"tilepipe::{NAME} takes tensors of {rank} dimensions; got {q.dim()}, {k.dim()} and"
            f" {v.dim()}"
        )
    torch._check(
        q.shape[-1] == k.shape[-1],
        lambda: f"tilepipe::{NAME}: q has a d of {q.shape[-1]} and k of {k.shape[-1]}",
    )
    *batch, s_q, heads, _ = q.shape
    if x.layout != "bshd":
        s_q, heads = heads, s_q
    same = v.shape[-1] == q.shape[-1]
    dtype = q.dtype if q.dtype != E4M3 else x.out_dtype or torch.bfloat16
    shape = (*q.shape[:-1], v.shape[-1])
    result = torch.empty_like(q, dtype=dtype) if same else q.new_empty(shape, dtype=dtype)
    return result, q.new_empty(
        (*batch, heads, s_q) if x.return_lse else NO_LSE, dtype=torch.float32
    )


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """What the forward pass keeps for the gradients."""

    saved_tensors: tuple[torch.Tensor, ...]
    options: Options


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The operator under eager autograd and nothing else, without the dispatcher's cost."""

    @staticmethod
    def forward(
        ctx: Context, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: Call
    ) -> Results:
        """The result and its logarithms, of the call that has q, k and v."""
        found = both_of(plans.run(given))
        _keep(ctx, (q, k, v, *found), (given.causal, given.scale, given.align, given.layout))
        return found

    @staticmethod
    def backward(
        ctx: Context, dout: torch.Tensor | None, dlse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of q, k and v."""
        return (*_gradients(ctx, dout, dlse), None)


_record = recorder(Recorded)


def _keep(ctx: Context, tensors: tuple[torch.Tensor, ...], options: Options) -> None:
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)
    ctx.options = options


def _setup(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    x = Inputs(*inputs)
    lacking = _without_gradient(x.call)
    if lacking is not None:
        raise _no_gradient(lacking)
    if not x.return_lse:
        raise BindError(
            f"tilepipe::{NAME}: the gradients need the logarithms: call tilepipe.ops.{NAME}, or"
            " pass return_lse=True"
        )
    _keep(ctx, (x.q, x.k, x.v, *output), (x.causal, x.scale, x.align, x.layout))


def _backward(
    ctx: Context, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    return (*_gradients(ctx, dout, dlse), *_OTHERS)


def _gradients(
    ctx: Context, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    """Those of q, k and v."""
    if dout is None and dlse is None:
        return None, None, None
    q, k, v, out, lse = ctx.saved_tensors
    causal, scale, align, layout = ctx.options
    dout = torch.zeros_like(out) if dout is None else dout
    # As an operator where somebody looks on, or differentiates again, which it refuses.
    looked_at = torch.is_grad_enabled() or is_tracing() or observed(q, k, v, out, dout, dlse)
    gradients = backward_operator if looked_at else backward_kernel
    found: Gradients = gradients(
        dout, q, k, v, out, lse, dlse,
        causal, scale, align, torch.are_deterministic_algorithms_enabled(), layout,
    )  # fmt: skip
    return found


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
