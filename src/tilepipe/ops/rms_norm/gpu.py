"""rms_norm of CUDA tensors: its prepared launches, and the operator `tilepipe::rms_norm`, which
PyTorch's compiler and autograd see.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.chip import Chip
from tilepipe.kernels.rms_norm import sm90
from tilepipe.ops.calls import Shape
from tilepipe.ops.rms_norm import simulated
from tilepipe.ops.rms_norm.call import checked, config
from tilepipe.ops.rms_norm.public import NAME, NormCall
from tilepipe.ops.rows.operators import Context, keep_norm, rms_norm_gradients
from tilepipe.ops.rows.programs import remembered
from tilepipe.ops.torch import products
from tilepipe.ops.torch.dispatcher import (
    is_tracing,
    library,
    observed,
    register,
    settings_of,
    settings_text,
    wants_gradient,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import simulation, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors

Call = NormCall[torch.Tensor]
SCHEMA = (
    "(Tensor x, Tensor? weight=None, float eps=1e-06, ScalarType? out_dtype=None, str"
    " settings='()') -> Tensor"
)


def rms_norm(call: Call) -> torch.Tensor:
    """`ops.rms_norm` of PyTorch tensors, with all its options."""
    differentiate = wants_gradient(call.x, call.weight, call.out)
    if differentiate and call.out is not None:
        raise BindError(
            f"{NAME}: out= has no gradient, and an operand requires one; omit out=, or call"
            " it under torch.no_grad()"
        )
    plain = not is_tracing() and not observed(call.x, call.x, call.weight, call.out)
    if plain and not differentiate:
        return plans.run(call)
    _checked_tensors(call)
    dtype = None if call.out is None else call.out.dtype
    y = operator(call.x, call.weight, float(call.eps), dtype, settings_text(call.settings))
    return y if call.out is None else call.out.copy_(y)


def _checked_tensors(call: Call) -> Shape:
    """(rows, columns), of tensors that may be without data."""
    named = {"x": call.x, "weight": call.weight, "out": call.out}
    given = {name: x for name, x in named.items() if x is not None or name == "out"}
    check_tensors(NAME, given, optional=1)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    return (facts(call.x), facts(call.weight), facts(call.out)), (call.eps, call.settings or None)


def _prepare(call: Call) -> ProductPlan:
    rows, columns = _checked_tensors(call)
    cfg = config(call.settings)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        x, weight = views["x"], views.get("weight")
        tuned = cfg or remembered(NAME, views, chip)
        return sm90.bind(x, weight, written, tuned, eps=call.eps)

    operands = [
        Operand(("x",), call.x, lambda x: x.reshape(rows, columns), order="row"),
        Operand(("weight",), call.weight, matrix=False),
    ]
    return products.prepare(
        NAME,
        operands,
        call.out,
        tuple(call.x.shape),
        call.x.dtype if call.out is None else call.out.dtype,
        bind,
        empty=0 in (rows, columns),
        written_shape=(rows, columns),
        accumulates=0,
        written_name="y",
    )


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        return plan.launch((call.x, call.weight), call.out)
    return plan.new_result() if call.out is None else call.out


_simulate = simulation(NAME, lambda call: call.x, _checked_tensors, simulated.rms_norm)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    out = None if out_dtype in (None, x.dtype) else torch.empty_like(x, dtype=out_dtype)
    return plans.run(NormCall(x, weight, eps, out, settings_of(settings)))


def _fake(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float = 1e-6,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    return x.new_empty(x.shape, dtype=x.dtype if out_dtype is None else out_dtype)


operator = register(NAME, SCHEMA, kernel, _fake)


def _setup(ctx: Context, inputs: tuple[object, ...], output: object) -> None:
    x, weight, eps, out_dtype = inputs[:4]
    if out_dtype not in (None, getattr(x, "dtype", None)):
        raise BindError(f"tilepipe::{NAME} with another out_dtype has no gradient")
    keep_norm(ctx, x, weight, None, eps)  # type: ignore[arg-type]


def _backward(ctx: Context, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return (*rms_norm_gradients(ctx, dy), None, None, None)


torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
