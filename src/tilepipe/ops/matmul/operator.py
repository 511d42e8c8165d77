"""`tilepipe::matmul`, the operator that PyTorch's dispatcher, compiler and autograd see.

It takes what the kernel takes: a (m, k) or (batch, m, k), b (k, n) or (batch, k, n), where one may
be a matrix for the whole batch; bias (n,), source of the result's shape. `ops.matmul` brings its
arguments into that form with view operations, which PyTorch differentiates by itself. Importing
this module registers the operator, as `torch.ops.tilepipe.matmul`.
"""

from __future__ import annotations

import ast
import functools
from typing import Any

import torch

from tilepipe.errors import BindError
from tilepipe.ops.matmul.eager import run
from tilepipe.ops.matmul.plan import Options
from tilepipe.ops.torch.observers import is_tracing, wants_gradient, watched

NAME = "tilepipe::matmul"
SCHEMA = (
    "(Tensor a, Tensor b, Tensor? bias=None, Tensor? source=None, str? activation=None, float"
    " alpha=1.0, float? beta=None,"
    " ScalarType? out_dtype=None, str? precision=None, str settings='()') -> Tensor"
)
INPUTS = 10  # arguments of the schema: backward returns as many gradients

# A plain Library costs half of torch.library.custom_op for each call: no checks of aliasing, no
# wrappers.
_library = torch.library.Library("tilepipe", "DEF")
_library.define(f"matmul{SCHEMA}", tags=(torch.Tag.pt2_compliant_tag,))


def kernel(
    a: Any, b: Any, bias: Any = None, source: Any = None, activation: str | None = None, alpha: float = 1.0, beta: float | None = None,
    out_dtype: Any = None, precision: str | None = None, settings: str = "()",
) -> Any:  # fmt: skip
    """The operator on CUDA tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return run(
        a, b, None, bias, source, (activation, alpha, beta, out_dtype, precision, _items(settings))
    )


_items = functools.lru_cache(maxsize=256)(ast.literal_eval)
_library.impl("matmul", kernel, "CUDA")
matmul = torch.ops.tilepipe.matmul.default


def _fake(
    a: Any, b: Any, bias: Any = None, source: Any = None, activation: str | None = None, alpha: float = 1.0, beta: float | None = None,
    out_dtype: Any = None, precision: str | None = None, settings: str = "()",
) -> Any:  # fmt: skip
    """The shape and dtype of the result, for tensors without data."""
    if not {a.dim(), b.dim()} <= {2, 3}:
        raise BindError(
            f"{NAME} takes matrices or batches of them, (m, k) or (batch, m, k) each; got"
            f" {a.dim()}-D and {b.dim()}-D"
        )
    torch._check(
        a.shape[-1] == b.shape[-2],
        lambda: f"{NAME}: a has {a.shape[-1]} columns and b {b.shape[-2]} rows",
    )
    if a.dim() == b.dim() == 3:
        torch._check(
            a.shape[0] == b.shape[0], lambda: f"{NAME}: batches of {a.shape[0]} and {b.shape[0]}"
        )
    batch = a.shape[:-2] or b.shape[:-2]
    return a.new_empty(
        (*batch, a.shape[-2], b.shape[-1]), dtype=a.dtype if out_dtype is None else out_dtype
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Saves the operands. The activation has no derivative here: `ops.matmul` applies it outside of
    the operator when a gradient is needed, so that PyTorch saves its input instead of multiplying
    again.
    """
    a, b, bias, source, activation, alpha, beta, _, precision, _ = inputs
    if activation is not None:
        raise BindError(
            f'{NAME} with activation="{activation}" has no gradient; tilepipe.ops.matmul has one'
        )
    ctx.save_for_backward(a, b)
    ctx.scales = alpha, 1.0 if beta is None else beta
    ctx.dtypes = tuple(None if x is None else x.dtype for x in (bias, source))
    ctx.precision = precision


def _backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
    """dA = alpha · dC · Bᵀ, dB = alpha · Aᵀ · dC, dbias = sum over rows of dC, dsource = beta · dC;
    made of operators that have gradients themselves. dA and dB are laid out as A and B, so that a
    transposed weight gets a gradient in its own layout.
    """
    a, b = ctx.saved_tensors
    alpha, beta = ctx.scales
    bias_dtype, source_dtype = ctx.dtypes
    da = db = dbias = dsource = None
    # without defaults at the end
    need_a, need_b, need_bias, need_source = (*ctx.needs_input_grad, False, False)[:4]
    if need_a or need_b:
        g = grad.to(a.dtype)
        if need_a:
            left, right = (
                (g, b) if a.dim() >= b.dim() else (_rows_side_by_side(g), _rows_side_by_side(b))
            )
            da = _times(left, right.transpose(-1, -2), a, alpha, ctx.precision)
        if need_b:
            left, right = (a, g) if b.dim() >= a.dim() else (a.flatten(0, 1), g.flatten(0, 1))
            db = _times(left.transpose(-1, -2), right, b, alpha, ctx.precision)
    if need_bias:
        dbias = grad.sum(tuple(range(grad.dim() - 1)), dtype=torch.float32).to(bias_dtype)
    if need_source:
        dsource = (grad if beta == 1 else grad * beta).to(source_dtype)
    return (da, db, dbias, dsource, *(None,) * (INPUTS - 4))


def _rows_side_by_side(x: Any) -> Any:
    """(batch, m, k) as (m, batch · k): what a product sums over for a matrix that the whole batch
    shares.
    """
    return x.transpose(0, 1).flatten(1)


def _times(x: Any, y: Any, like: Any, alpha: float, precision: str | None) -> Any:
    """alpha · x @ y, column-major where `like` is."""
    columns = like.stride(-1) != 1 and like.stride(-2) == 1 and y.dim() == x.dim()
    if columns:
        x, y = y.transpose(-1, -2), x.transpose(-1, -2)
    if is_tracing() or watched(x, y) or wants_gradient(x, y):
        z = matmul(x, y, alpha=alpha, precision=precision)
    else:
        z = run(x, y, None, None, None, (None, alpha, None, None, precision, ()))
    return z.transpose(-1, -2) if columns else z


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The operator under eager autograd and nothing else: a third of the dispatcher's cost."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, bias: Any, source: Any, options: Options) -> Any:
        """Multiplies, as `torch_eager.run`; without an activation."""
        _, alpha, beta, _, precision, _ = options
        _setup(ctx, (a, b, bias, source, None, alpha, beta, None, precision, None), None)
        return run(a, b, None, bias, source, options)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        """The gradients of a, b, bias and source."""
        return (*_backward(ctx, grad)[:4], None)


torch.library.register_fake(NAME, _fake, lib=_library)
torch.library.register_autograd(NAME, _backward, setup_context=_setup, lib=_library)
