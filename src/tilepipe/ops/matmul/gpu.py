"""matmul of PyTorch tensors: straight to the kernel where nothing in PyTorch observes it, else
through `tilepipe::matmul`, the operator that its dispatcher, compiler and autograd see.

The operator takes what the kernel takes: a (m, k) or (batch, m, k), b (k, n) or (batch, k, n),
where one may be a matrix for the whole batch; bias (n,) or (m, 1), source of the result's shape.
`ops.matmul` brings its arguments into that form with view operations, which PyTorch differentiates
by itself. Importing this module registers the operator, as `torch.ops.tilepipe.matmul`.
"""

from __future__ import annotations

from typing import TypeAlias

import torch

from tilepipe.errors import BindError
from tilepipe.ops.matmul.call import NAME, MatmulCall, check_epilogue, without_early
from tilepipe.ops.matmul.plan import activate, checked_tensors, run
from tilepipe.ops.matmul.shapes import product
from tilepipe.ops.torch.dispatcher import (
    autocast,
    autocasts,
    is_tracing,
    library,
    observed,
    recorder,
    register,
    settings_of,
    settings_text,
    wants_gradient,
)
from tilepipe.ops.torch.simulated import with_options as with_options
from tilepipe.ops.torch.tensors import torch_dtype

OPERATOR = "tilepipe::matmul"
SCHEMA = (
    "(Tensor a, Tensor b, Tensor? bias=None, Tensor? source=None, str? activation=None, float"
    " alpha=1.0, float? beta=None, ScalarType? out_dtype=None, str? precision=None, str"
    " settings='()', str operation='matmul') -> Tensor"
)
INPUTS = 11  # arguments of the schema: backward returns as many gradients
Gradient: TypeAlias = torch.Tensor | None
Inputs = tuple[  # of the schema
    torch.Tensor,
    torch.Tensor,
    torch.Tensor | None,
    torch.Tensor | None,
    str | None,
    float,
    float | None,
    torch.dtype | None,
    str | None,
    str,
    str,
]
Call = MatmulCall[torch.Tensor]
_expand = torch.Tensor.expand


def kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    source: torch.Tensor | None = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    settings: str = "()",
    operation: str = NAME,
) -> torch.Tensor:
    """The operator on tensors.

    Args:
        settings: the items of the configuration's fields as a Python literal.
        operation: the name of the operation that was called, for messages.
    """
    call = MatmulCall(
        a,
        b,
        None,
        bias,
        activation,
        source,
        alpha,
        beta,
        out_dtype,
        precision,
        settings_of(settings),
        operation,
    )
    return run(call)


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    source: torch.Tensor | None = None,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    settings: str = "()",
    operation: str = NAME,
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if not {a.dim(), b.dim()} <= {2, 3}:
        raise BindError(
            f"{OPERATOR} takes matrices or batches of them, (m, k) or (batch, m, k) each; got"
            f" {a.dim()}-D and {b.dim()}-D"
        )
    torch._check(
        a.shape[-1] == b.shape[-2],
        lambda: f"{OPERATOR}: a has {a.shape[-1]} columns and b {b.shape[-2]} rows",
    )
    if a.dim() == b.dim() == 3:
        torch._check(
            a.shape[0] == b.shape[0],
            lambda: f"{OPERATOR}: batches of {a.shape[0]} and {b.shape[0]}",
        )
    batch = a.shape[:-2] or b.shape[:-2]
    return a.new_empty(
        (*batch, a.shape[-2], b.shape[-1]), dtype=a.dtype if out_dtype is None else out_dtype
    )


operator = register("matmul", SCHEMA, kernel, _fake)


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """What the forward pass keeps for the gradients.

    Attributes:
        scales: alpha and beta. dtypes: of bias and source, None where there is none.
        row_bias: the bias is (m, 1), one value a row of the product.
    """

    saved_tensors: tuple[torch.Tensor, torch.Tensor]
    needs_input_grad: tuple[bool, ...]
    scales: tuple[float, float]
    dtypes: tuple[torch.dtype | None, torch.dtype | None]
    row_bias: bool
    precision: str | None
    operation: str


def _setup(ctx: Context, inputs: Inputs, output: object) -> None:
    """Keeps what the gradients need. The activation has no derivative here: `ops.matmul` applies it
    outside of the operator when a gradient is needed, so that PyTorch saves its input instead of
    multiplying again.
    """
    a, b, bias, source, activation, alpha, beta, _, precision, _, operation = inputs
    if activation is not None:
        raise BindError(
            f'{OPERATOR} with activation="{activation}" has no gradient; tilepipe.ops.matmul has'
            " one"
        )
    call = MatmulCall(a, b, None, bias, None, source, alpha, beta, None, precision, (), operation)
    _keep(ctx, call)


def _keep(ctx: Context, call: MatmulCall[torch.Tensor]) -> None:
    ctx.save_for_backward(call.a, call.b)
    ctx.scales = call.alpha, 1.0 if call.beta is None else call.beta
    bias, source = call.bias, call.source
    ctx.dtypes = None if bias is None else bias.dtype, None if source is None else source.dtype
    ctx.row_bias = bias is not None and bias.dim() == 2
    ctx.precision, ctx.operation = call.precision, call.operation


def _backward(ctx: Context, grad: torch.Tensor) -> tuple[Gradient, ...]:
    """dA = alpha · dC · Bᵀ, dB = alpha · Aᵀ · dC, dbias = sum over rows of dC, over columns
    and the batch where it is (m, 1), dsource = beta · dC; made of operators that have gradients
    themselves. dA and dB are laid out as A and B, so that a transposed weight gets a gradient in
    its own layout.
    """
    a, b = ctx.saved_tensors
    beta = ctx.scales[1]
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
            da = _times(left, right.transpose(-1, -2), a, ctx)
        if need_b:
            left, right = (a, g) if b.dim() >= a.dim() else (a.flatten(0, 1), g.flatten(0, 1))
            db = _times(left.transpose(-1, -2), right, b, ctx)
    if need_bias:
        summed = [i for i in range(grad.dim()) if i != grad.dim() - (2 if ctx.row_bias else 1)]
        dbias = grad.sum(summed, dtype=torch.float32).to(bias_dtype)
        dbias = dbias.unsqueeze(-1) if ctx.row_bias else dbias
    if need_source:
        dsource = (grad if beta == 1 else grad * beta).to(source_dtype)
    return (da, db, dbias, dsource, *(None,) * (INPUTS - 4))


def _rows_side_by_side(x: torch.Tensor) -> torch.Tensor:
    """(batch, m, k) as (m, batch · k): what a product sums over for a matrix that the whole batch
    shares.
    """
    return x.transpose(0, 1).flatten(1)


def _times(x: torch.Tensor, y: torch.Tensor, like: torch.Tensor, ctx: Context) -> torch.Tensor:
    """alpha · x @ y, column-major where `like` is."""
    alpha, given = ctx.scales[0], {"precision": ctx.precision, "operation": ctx.operation}
    columns = like.stride(-1) != 1 and like.stride(-2) == 1 and y.dim() == x.dim()
    if columns:
        x, y = y.transpose(-1, -2), x.transpose(-1, -2)
    if is_tracing() or observed(x, y) or wants_gradient(x, y):
        z = operator(x, y, alpha=alpha, **given)
    else:
        none = None, None, None, None
        call = MatmulCall(x, y, *none, alpha, None, None, ctx.precision, (), ctx.operation)
        z = run(call)
    return z.transpose(-1, -2) if columns else z


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The operator under eager autograd and nothing else: a third of the dispatcher's cost."""

    @staticmethod
    def forward(
        ctx: Context,
        a: torch.Tensor,
        b: torch.Tensor,
        bias: torch.Tensor | None,
        source: torch.Tensor | None,
        given: MatmulCall[torch.Tensor],
    ) -> torch.Tensor:
        """Multiplies, without an activation. `given`: the call, whose other arguments count."""
        call = MatmulCall(
            a,
            b,
            None,
            bias,
            None,
            source,
            given.alpha,
            given.beta,
            given.out_dtype,
            given.precision,
            given.settings,
            given.operation,
        )
        _keep(ctx, call)
        return run(call)

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> tuple[Gradient, ...]:
        """The gradients of a, b, bias and source."""
        return (*_backward(ctx, grad)[:4], None)


_record = recorder(Recorded)

torch.library.register_autograd(OPERATOR, _backward, setup_context=_setup, lib=library)


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
    plain = call.bias is None and call.source is None and call.activation is None
    if plain and call.a.dim() == call.b.dim() == 2:
        return _record(call.a, call.b, None, None, call)
    check_epilogue(call)
    a_shape, b_shape = tuple(call.a.shape), tuple(call.b.shape)
    shapes = product(call.operation, a_shape, b_shape, tuple(call.a.stride()))
    bias, source = call.bias, call.source
    row_bias = isinstance(bias, torch.Tensor) and bias.dim() == 2
    if source is not None or row_bias:
        checked_tensors(call)
    if source is not None:
        source = shapes.like_output(source, _expand)
    if bias is not None and row_bias:
        bias = shapes.added(bias, _expand)
    a, b = shapes.left(call.a, _expand), shapes.right(call.b, _expand)
    c = _record(a, b, bias, source, call)
    return activate(
        c if shapes.output == shapes.result else c.reshape(shapes.result), call.activation
    )


def _dispatched(call: Call) -> torch.Tensor:
    if call.precision is None and call.out is None and autocasts(call.a):
        weights, call.a, call.b = call.b, autocast(call.a), autocast(call.b)
        if call.b is not weights:
            call.settings = without_early(call.settings)
        call.bias, call.source = autocast(call.bias), autocast(call.source)
    shapes, dtype = checked_tensors(call)
    differentiate = wants_gradient(call.a, call.b, call.out, call.bias, call.source)
    if differentiate:
        _refuse_out(call)
    c = operator(
        shapes.left(call.a, _expand),
        shapes.right(call.b, _expand),
        None if call.bias is None else shapes.added(call.bias, _expand),
        None if call.source is None else shapes.like_output(call.source, _expand),
        None if differentiate else call.activation,
        float(call.alpha),
        None if call.beta is None else float(call.beta),
        torch_dtype(dtype),
        call.precision,
        settings_text(call.settings),
        call.operation,
    )
    if shapes.output != shapes.result:
        c = c.reshape(shapes.result)
    if differentiate:
        c = activate(c, call.activation)
    return c if call.out is None else call.out.copy_(c)


def _refuse_out(call: Call) -> None:
    if call.out is not None:
        raise BindError(
            f"{call.operation}: out= has no gradient, and an operand requires one; omit out=,"
            " or call it under torch.no_grad()"
        )
