"""The operations on rows as operators of PyTorch, with their gradients: what its dispatcher,
compiler and autograd see. Importing this module registers them.
"""

from __future__ import annotations

from typing import TypeAlias

import torch

from tilepipe.errors import BindError
from tilepipe.ops.calls import Settings, check_shape
from tilepipe.ops.rows import programs
from tilepipe.ops.rows.launches import partial_sums, run
from tilepipe.ops.torch import device
from tilepipe.ops.torch.dispatcher import library, register, settings_of, settings_text
from tilepipe.ops.torch.simulated import with_options as with_options

Tensor: TypeAlias = torch.Tensor
Optional: TypeAlias = torch.Tensor | None


def _matrix(name: str, x: Tensor) -> Tensor:
    """x as a matrix whose rows are contiguous: where it lies, if they are."""
    rows = x.reshape(programs.matrix_shape(name, tuple(x.shape)))
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def _vector(v: Optional) -> Optional:
    return None if v is None else v.contiguous()


# -- norms -----------------------------------------------------------------------------


def layer_norm(
    x: Tensor, weight: Optional, bias: Optional, eps: float, settings: Settings
) -> Tensor:
    """`ops.layer_norm` of tensors."""
    programs.checked_eps("layer_norm", eps)
    programs.matrix_shape("layer_norm", tuple(x.shape))
    check_shape("layer_norm", "weight", weight, tuple(x.shape[-1:]))
    check_shape("layer_norm", "bias", bias, tuple(x.shape[-1:]))
    programs.config("layer_norm", settings)
    found: Tensor = layer_norm_operator(x, weight, bias, float(eps), settings_text(settings))
    return found


def _layer_norm(
    x: Tensor,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    settings: str = "()",
) -> Tensor:
    rows = _matrix("layer_norm", x)
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        run(
            "layer_norm", eps, programs.layer_norm(eps), settings_of(settings),
            x=rows, weight=_vector(weight), bias=_vector(bias), y=y,
        )  # fmt: skip
    return y.reshape(x.shape)


def _like_first(x: Tensor, *others: object) -> Tensor:
    return x.new_empty(x.shape)


def _norm_backward(
    name: str, dy: Tensor, x: Tensor, weight: Optional, eps: float, sums: int
) -> tuple[Tensor, Tensor]:
    """dx, and (sums, n) of the gradients of weight and bias; `sums`: 0, 1 or 2."""
    rows, gradients = _matrix(name, x), _matrix(name, dy.to(x.dtype))
    dx = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    dtype = x.dtype if weight is None else weight.dtype
    n = rows.shape[1]
    out = torch.zeros((sums, n), dtype=dtype, device=x.device)
    if not dx.numel():
        return dx.reshape(x.shape), out
    parts: Optional = None
    settings: Settings = ()
    if sums:
        problem = programs.problem_of(True, rows, weight)
        ordinal = None if device.simulates(x) else x.get_device()
        height, settings = partial_sums(name, problem, ordinal)
        parts = torch.empty((sums, height, n), dtype=torch.float32, device=x.device)
    bind = programs.norm_backward(name, eps)
    given = {"x": rows, "weight": _vector(weight), "dy": gradients, "dx": dx, "parts": parts}
    run(f"{name}_backward", eps, bind, settings, **given)
    if sums:
        run("column_sums", None, programs.sums, (), parts=parts, out=out)
    return dx.reshape(x.shape), out


def _rms_norm_backward(
    dy: Tensor, x: Tensor, weight: Optional, eps: float, sums: int
) -> tuple[Tensor, Tensor]:
    return _norm_backward("rms_norm", dy, x, weight, eps, sums)


def _layer_norm_backward(
    dy: Tensor, x: Tensor, weight: Optional, eps: float, sums: int
) -> tuple[Tensor, Tensor]:
    return _norm_backward("layer_norm", dy, x, weight, eps, sums)


def _fake_norm_backward(
    dy: Tensor, x: Tensor, weight: Optional, eps: float, sums: int
) -> tuple[Tensor, Tensor]:
    dtype = x.dtype if weight is None else weight.dtype
    return x.new_empty(x.shape), x.new_empty((sums, x.shape[-1]), dtype=dtype)


_BACKWARD = "(Tensor dy, Tensor x, Tensor? weight, float eps, int sums) -> (Tensor, Tensor)"
layer_norm_operator = register(
    "layer_norm",
    "(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, str settings='()')"
    " -> Tensor",
    _layer_norm,
    _like_first,
)
rms_norm_backward = register(
    "rms_norm_backward", _BACKWARD, _rms_norm_backward, _fake_norm_backward
)
layer_norm_backward = register(
    "layer_norm_backward", _BACKWARD, _layer_norm_backward, _fake_norm_backward
)


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """What a forward pass keeps for the gradients."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]
    eps: float
    bias: torch.dtype | None
    ignore_index: int


def keep_norm(ctx: Context, x: Tensor, weight: Optional, bias: Optional, eps: float) -> None:
    """Keeps what the gradients of a norm need: x is read again, its statistics computed again."""
    ctx.save_for_backward(x, weight)
    ctx.eps, ctx.bias = eps, None if bias is None else bias.dtype


def _setup_layer_norm(ctx: Context, inputs: tuple[object, ...], output: object) -> None:
    x, weight, bias, eps = inputs[:4]
    keep_norm(ctx, x, weight, bias, eps)  # type: ignore[arg-type]


def _grad_layer_norm(ctx: Context, dy: Tensor) -> tuple[Optional, ...]:
    x, weight = ctx.saved_tensors
    needs_weight, needs_bias = (*ctx.needs_input_grad, False, False)[1:3]
    sums = 2 if needs_bias else 1 if needs_weight else 0
    dx, out = layer_norm_backward(dy, x, weight, ctx.eps, sums)
    dbias = out[1].to(ctx.bias) if needs_bias else None
    return dx, out[0] if needs_weight else None, dbias, None, None


def rms_norm_gradients(ctx: Context, dy: Tensor) -> tuple[Optional, Optional]:
    """The gradients of x and weight, of what `keep_norm` has kept."""
    x, weight = ctx.saved_tensors
    needed = (*ctx.needs_input_grad, False)[1]
    dx, out = rms_norm_backward(dy, x, weight, ctx.eps, int(needed))
    return dx, out[0] if needed else None


# -- softmax ---------------------------------------------------------------------------


def softmax(x: Tensor, settings: Settings) -> Tensor:
    """`ops.softmax` of tensors."""
    programs.matrix_shape("softmax", tuple(x.shape))
    programs.config("softmax", settings)
    found: Tensor = softmax_operator(x, settings_text(settings))
    return found


def _softmax(x: Tensor, settings: str = "()") -> Tensor:
    rows = _matrix("softmax", x)
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        run("softmax", None, programs.softmax, settings_of(settings), x=rows, y=y)
    return y.reshape(x.shape)


def _softmax_backward(dy: Tensor, y: Tensor) -> Tensor:
    rows, gradients = _matrix("softmax", y), _matrix("softmax", dy.to(y.dtype))
    dx = torch.empty(rows.shape, dtype=y.dtype, device=y.device)
    if dx.numel():
        run("softmax_backward", None, programs.softmax_backward, (), y=rows, dy=gradients, x=dx)
    return dx.reshape(y.shape)


softmax_operator = register(
    "softmax", "(Tensor x, str settings='()') -> Tensor", _softmax, _like_first
)
softmax_backward = register(
    "softmax_backward", "(Tensor dy, Tensor y) -> Tensor", _softmax_backward, _like_first
)


def _setup_softmax(ctx: Context, inputs: tuple[object, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _grad_softmax(ctx: Context, dy: Tensor) -> tuple[Optional, ...]:
    return softmax_backward(dy, ctx.saved_tensors[0]), None


# -- cross entropy ---------------------------------------------------------------------


def cross_entropy(
    x: Tensor, labels: Tensor, ignore_index: int, settings: Settings
) -> tuple[Tensor, Tensor]:
    """`ops.cross_entropy` of tensors."""
    if not programs.matrix_shape("cross_entropy", tuple(x.shape))[1]:
        raise BindError("cross_entropy: x has no columns")
    check_shape("cross_entropy", "labels", labels, tuple(x.shape[:-1]))
    programs.config("cross_entropy", settings)
    ignored, text = programs.checked_label("cross_entropy", ignore_index), settings_text(settings)
    loss, lse = cross_entropy_operator(x, labels, ignored, text)
    return loss, lse


def _cross_entropy(
    x: Tensor, labels: Tensor, ignore_index: int = -100, settings: str = "()"
) -> tuple[Tensor, Tensor]:
    rows = _matrix("cross_entropy", x)
    loss, lse = (torch.empty(len(rows), dtype=torch.float32, device=x.device) for _ in range(2))
    if len(rows):
        run(
            "cross_entropy", ignore_index, programs.cross_entropy(ignore_index),
            settings_of(settings),
            x=rows, labels=labels.reshape(-1).contiguous(), loss=loss, lse=lse,
        )  # fmt: skip
    return loss.reshape(labels.shape), lse.reshape(labels.shape)


def _fake_cross_entropy(
    x: Tensor, labels: Tensor, ignore_index: int = -100, settings: str = "()"
) -> tuple[Tensor, Tensor]:
    shape = labels.shape
    return (
        x.new_empty(shape, dtype=torch.float32),
        x.new_empty(shape, dtype=torch.float32),
    )


def _cross_entropy_backward(
    dloss: Tensor, x: Tensor, labels: Tensor, lse: Tensor, ignore_index: int
) -> Tensor:
    rows = _matrix("cross_entropy", x)
    dx = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if dx.numel():
        run(
            "cross_entropy_backward", ignore_index,
            programs.cross_entropy_backward(ignore_index), (),
            x=rows, labels=labels.reshape(-1).contiguous(), lse=lse.reshape(-1).contiguous(),
            dloss=dloss.float().reshape(-1).contiguous(), dx=dx,
        )  # fmt: skip
    return dx.reshape(x.shape)


def _fake_cross_entropy_backward(dloss: Tensor, x: Tensor, *others: object) -> Tensor:
    return x.new_empty(x.shape)


cross_entropy_operator = register(
    "cross_entropy",
    "(Tensor x, Tensor labels, int ignore_index=-100, str settings='()') -> (Tensor, Tensor)",
    _cross_entropy,
    _fake_cross_entropy,
)
cross_entropy_backward = register(
    "cross_entropy_backward",
    "(Tensor dloss, Tensor x, Tensor labels, Tensor lse, int ignore_index) -> Tensor",
    _cross_entropy_backward,
    _fake_cross_entropy_backward,
)


def _setup_cross_entropy(
    ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]
) -> None:
    x, labels, ignore_index = inputs[:3]
    ctx.save_for_backward(x, labels, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.ignore_index = ignore_index  # type: ignore[assignment]


def _grad_cross_entropy(ctx: Context, dloss: Tensor, _: Optional) -> tuple[Optional, ...]:
    x, labels, lse = ctx.saved_tensors
    dx = cross_entropy_backward(dloss, x, labels, lse, ctx.ignore_index)
    return dx, None, None, None


for _name, _grad, _setup in (
    ("layer_norm", _grad_layer_norm, _setup_layer_norm),
    ("softmax", _grad_softmax, _setup_softmax),
    ("cross_entropy", _grad_cross_entropy, _setup_cross_entropy),
):
    torch.library.register_autograd(f"tilepipe::{_name}", _grad, setup_context=_setup, lib=library)
