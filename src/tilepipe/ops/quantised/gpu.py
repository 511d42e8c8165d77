"""quantised_matmul of CUDA tensors: its prepared launches, and the operator
`tilepipe::quantised_matmul`, which PyTorch's compiler sees. It has no gradient.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm_quantised import sm90 as gemm_quantised
from tilepipe.kernels.gemm_quantised.heuristics import TUNABLE, QuantisedProblem
from tilepipe.ops.quantised import simulated
from tilepipe.ops.quantised.call import Extents, checked, config
from tilepipe.ops.quantised.public import NAME, QuantisedCall
from tilepipe.ops.torch import products
from tilepipe.ops.torch.dispatcher import (
    autocast,
    autocasts,
    is_tracing,
    observed,
    refuse_gradient,
    register,
    settings_of,
    settings_text,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import simulation, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = QuantisedCall[torch.Tensor]
SCHEMA = (
    "(Tensor a, Tensor weights, Tensor scales, int group=128, str activation='none',"
    " ScalarType? out_dtype=None, str settings='()') -> Tensor"
)


def quantised_matmul(call: Call) -> torch.Tensor:
    """`ops.quantised_matmul` of PyTorch tensors, with all its options."""
    refuse_gradient(NAME, call.a, call.scales, call.out)
    if not is_tracing() and not observed(call.a, call.weights, call.scales, call.out):
        return plans.run(call)
    if call.out is None and isinstance(call.a, torch.Tensor) and autocasts(call.a):
        call.a = autocast(call.a)
    _, dtype = _checked_tensors(call)
    text = settings_text(call.settings)
    c = operator(
        call.a, call.weights, call.scales, call.group, call.activation, torch_dtype(dtype), text
    )
    return c if call.out is None else call.out.copy_(c)


def _checked_tensors(call: Call) -> tuple[Extents, DType]:
    """The extents and the dtype of the result, of tensors that may be without data."""
    named = {"a": call.a, "weights": call.weights, "scales": call.scales, "out": call.out}
    check_tensors(NAME, named, optional=1)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    options = call.group, call.activation, call.out_dtype, call.settings or None
    return (facts(call.a), facts(call.weights), facts(call.scales), facts(call.out)), options


def _prepare(call: Call) -> ProductPlan:
    found, dtype = _checked_tensors(call)
    given = config(call.settings, call.activation)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, words, scales = (views[name] for name in ("a", "words", "scales"))
        cfg = given
        if not call.settings:
            cfg = tuned.choose(TUNABLE, QuantisedProblem(*found), chip).changed(
                activation=call.activation
            )
        return gemm_quantised.bind(a, words, scales, written, cfg, group=call.group)

    operands = [
        Operand(("a",), call.a, order="row"),
        Operand(("words",), call.weights, order="row"),
        Operand(("scales",), call.scales, order="row"),
    ]
    shape = found.m, found.n
    return products.prepare(
        NAME, operands, call.out, shape, torch_dtype(dtype), bind, empty=found.empty
    )


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        return plan.launch((call.a, call.weights, call.scales), call.out)
    if call.out is None:
        return torch.zeros(plan.shape, dtype=plan.dtype, device=plan.device)
    return call.out.zero_()  # sums over nothing


_simulate = simulation(NAME, lambda call: call.a, _checked_tensors, simulated.quantised_matmul)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    a: torch.Tensor,
    weights: torch.Tensor,
    scales: torch.Tensor,
    group: int = 128,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    items = settings_of(settings)
    return plans.run(QuantisedCall(a, weights, scales, group, activation, None, out_dtype, items))


def _fake(
    a: torch.Tensor,
    weights: torch.Tensor,
    scales: torch.Tensor,
    group: int = 128,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if (a.dim(), weights.dim(), scales.dim()) != (2, 3, 2):
        raise BindError(
            f"{NAME} takes a (m, k), weights (k blocks, n, words) and scales (groups, n); got"
            f" {a.dim()}-D, {weights.dim()}-D and {scales.dim()}-D"
        )
    dtype = a.dtype if out_dtype is None else out_dtype
    return a.new_empty((a.shape[0], weights.shape[1]), dtype=dtype)


operator = register(NAME, SCHEMA, kernel, _fake)
