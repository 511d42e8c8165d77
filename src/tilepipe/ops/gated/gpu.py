"""gated_matmul of CUDA tensors: its prepared launches, and the operator `tilepipe::gated_matmul`,
which PyTorch's compiler sees. It has no gradient.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype, array_order
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_gated import sm90 as gemm_gated
from tilepipe.kernels.gemm_gated.heuristics import TUNABLE
from tilepipe.ops.gated import simulated
from tilepipe.ops.gated.call import Extents, checked, config
from tilepipe.ops.gated.public import NAME, GatedCall
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
from tilepipe.ops.torch.products import Operand, ProductPlan, Views, order_of
from tilepipe.ops.torch.simulated import simulation, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = GatedCall[torch.Tensor]
SCHEMA = (
    "(Tensor a, Tensor gate, Tensor up, str activation='silu', ScalarType? out_dtype=None,"
    " str settings='()') -> Tensor"
)


def gated_matmul(call: Call) -> torch.Tensor:
    """`ops.gated_matmul` of PyTorch tensors, with all its options."""
    refuse_gradient(NAME, call.a, call.gate, call.out)
    refuse_gradient(NAME, call.up)
    if not is_tracing() and not observed(call.a, call.gate, call.up, call.out):
        return plans.run(call)
    if call.out is None and autocasts(call.a):
        call.a, call.gate, call.up = (autocast(x) for x in (call.a, call.gate, call.up))
    _, dtype = _checked_tensors(call)
    text = settings_text(call.settings)
    c = operator(call.a, call.gate, call.up, call.activation, torch_dtype(dtype), text)
    return c if call.out is None else call.out.copy_(c)


def _checked_tensors(call: Call) -> tuple[Extents, DType]:
    """The extents and the dtype of the result, of tensors that may be without data."""
    named = {"a": call.a, "gate": call.gate, "up": call.up, "out": call.out}
    check_tensors(NAME, named, optional=1)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    return (facts(call.a), facts(call.gate), facts(call.up), facts(call.out)), (
        call.activation,
        call.out_dtype,
        call.settings or None,
    )


def _prepare(call: Call) -> ProductPlan:
    found, dtype = _checked_tensors(call)
    inputs = array_dtype(call.a)
    given = config(call.settings, call.activation, inputs)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, gate, up = (views[name] for name in ("a", "gate", "up"))
        cfg = given
        if not call.settings:
            orders = array_order(a), array_order(gate)
            problem = Problem(*found, 1, inputs, dtype, *orders)
            cfg = tuned.choose(TUNABLE, problem, chip).changed(activation=call.activation)
        return gemm_gated.bind(a, gate, up, written, cfg)

    # One MMA reads gate and up, so both are copied where they are not alike.
    orders = {order_of(x.t()) for x in (call.gate, call.up)}
    order = None if len(orders) == 1 and None not in orders else "row"
    operands = [
        Operand(("a",), call.a),
        Operand(("gate",), call.gate, torch.t, order=order),
        Operand(("up",), call.up, torch.t, order=order),
    ]
    shape = found.m, found.n
    return products.prepare(
        NAME, operands, call.out, shape, torch_dtype(dtype), bind, empty=found.empty
    )


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        return plan.launch((call.a, call.gate, call.up), call.out)
    if call.out is None:
        return torch.zeros(plan.shape, dtype=plan.dtype, device=plan.device)
    return call.out.zero_()  # sums over nothing


_simulate = simulation(NAME, lambda call: call.a, _checked_tensors, simulated.gated_matmul)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    a: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str = "silu",
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return plans.run(GatedCall(a, gate, up, activation, None, out_dtype, settings_of(settings)))


def _fake(
    a: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str = "silu",
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if (a.dim(), gate.dim(), up.dim()) != (2, 2, 2):
        raise BindError(
            f"{NAME} takes a (m, k), gate and up (k, n); got {a.dim()}-D, {gate.dim()}-D and"
            f" {up.dim()}-D"
        )
    torch._check(
        a.shape[1] == gate.shape[0],
        lambda: f"{NAME}: a has {a.shape[1]} columns and gate {gate.shape[0]} rows",
    )
    dtype = a.dtype if out_dtype is None else out_dtype
    return a.new_empty((a.shape[0], gate.shape[1]), dtype=dtype)


operator = register(NAME, SCHEMA, kernel, _fake)
