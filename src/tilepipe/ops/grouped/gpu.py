"""grouped_matmul of CUDA tensors: its prepared launches, and the operator
`tilepipe::grouped_matmul`, which PyTorch's compiler sees. It has no gradient.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype, array_order
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm_grouped import heuristics, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.ops.grouped import simulated
from tilepipe.ops.grouped.call import Extents, checked, config
from tilepipe.ops.grouped.public import NAME, GroupedCall
from tilepipe.ops.torch import products
from tilepipe.ops.torch.dispatcher import (
    autocast,
    is_tracing,
    observed,
    refuse_gradient,
    register,
    settings_of,
    settings_text,
)
from tilepipe.ops.torch.plan_cache import PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import simulation, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = GroupedCall[torch.Tensor]
SCHEMA = (
    "(Tensor a, Tensor b, Tensor offsets, ScalarType? out_dtype=None, str settings='()') -> Tensor"
)


def grouped_matmul(call: Call) -> torch.Tensor:
    """`ops.grouped_matmul` of PyTorch tensors, with all its options."""
    refuse_gradient(NAME, call.a, call.b, call.out)
    if not is_tracing() and not observed(call.a, call.b, call.offsets, call.out):
        return plans.run(call)
    if call.out is None and torch.is_autocast_enabled("cuda"):
        call.a, call.b = autocast(call.a), autocast(call.b)
    found, dtype = _checked_tensors(call)
    text = settings_text(call.settings)
    c = operator(call.a, call.b, call.offsets, torch_dtype(dtype), text)
    if call.out is None:
        return c
    return call.out.copy_(torch.where(_in_groups(found, call.offsets), c, call.out))


def _checked_tensors(call: Call) -> tuple[Extents, DType]:
    """The extents and the dtype of the result, of tensors that may be without data."""
    named = {"a": call.a, "b": call.b, "offsets": call.offsets, "out": call.out}
    check_tensors(NAME, named, optional=1)
    return checked(call)


def _key(call: Call) -> object:
    """The key of a call's plan: all that the plan depends on."""
    return (
        facts(call.a),
        facts(call.b),
        facts(call.offsets),
        facts(call.out),
        call.out_dtype,
        call.settings,
    )


def _prepare(call: Call) -> ProductPlan:
    found, dtype = _checked_tensors(call)
    inputs = array_dtype(call.a)
    given = config(call.settings, inputs)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, b, offsets = (views[name] for name in ("a", "b", "offsets"))
        cfg = given
        if not call.settings:
            problem = GroupedProblem(*found, inputs, dtype, array_order(b))
            cfg = heuristics.best(problem, chip)
        return gemm_grouped.bind(a, b, written, offsets, cfg)

    operands = [
        Operand(("a",), call.a, order="row"),
        Operand(("b",), call.b, lambda x: x.transpose(1, 2)),
        Operand(("offsets",), call.offsets, matrix=False),
    ]
    shape = found.m, found.n
    return products.prepare(
        NAME, operands, call.out, shape, torch_dtype(dtype), bind, empty=found.empty
    )


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        # rows of no group keep what they hold
        return plan.launch((call.a, call.b, call.offsets), call.out, keeps=True)
    if call.out is None:
        return torch.zeros(plan.shape, dtype=plan.dtype, device=plan.device)
    found, _ = checked(call)
    if found.groups and call.out.numel():
        call.out.masked_fill_(_in_groups(found, call.offsets), 0)  # sums over nothing
    return call.out


def _in_groups(found: Extents, offsets: torch.Tensor) -> torch.Tensor:
    """Which rows are in a group, (m, 1): those below the largest offset."""
    rows = torch.arange(found.m, device=offsets.device)
    last = offsets.max() if found.groups else torch.zeros((), device=offsets.device)
    return (rows < last)[:, None]


_simulate = simulation(NAME, lambda call: call.a, _checked_tensors, simulated.grouped_matmul)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return plans.run(GroupedCall(a, b, offsets, None, out_dtype, settings_of(settings)))


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if (a.dim(), b.dim(), offsets.dim()) != (2, 3, 1):
        raise BindError(
            f"{NAME} takes a (m, k), b (groups, k, n), offsets (groups,); got {a.dim()}-D,"
            f" {b.dim()}-D and {offsets.dim()}-D"
        )
    torch._check(
        a.shape[1] == b.shape[1],
        lambda: f"{NAME}: a has {a.shape[1]} columns and b {b.shape[1]} rows",
    )
    return a.new_empty((a.shape[0], b.shape[2]), dtype=a.dtype if out_dtype is None else out_dtype)


operator = register(NAME, SCHEMA, kernel, _fake)
