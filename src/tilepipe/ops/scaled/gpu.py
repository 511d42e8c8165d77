"""scaled_matmul of CUDA tensors: its prepared launches, and the operator `tilepipe::scaled_matmul`,
which PyTorch's compiler sees. It has no gradient, as `torch.nn.functional.scaled_mm` has none.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir import dtypes
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.ir.host_tensors import require_simulated
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm import heuristics as gemm_heuristics, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import SPAN, Problem
from tilepipe.kernels.gemm_block_scaled.layout import KINDS
from tilepipe.kernels.gemm_blockwise import (
    heuristics as blockwise_heuristics,
    sm90 as gemm_blockwise,
)
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.ops.calls import check_shape, configured, result_dtype
from tilepipe.ops.scaled import simulated
from tilepipe.ops.scaled.call import ArrayKind, Recipe, recipe
from tilepipe.ops.scaled.public import NAME, ScaledCall
from tilepipe.ops.torch import device, products, workspaces
from tilepipe.ops.torch.dispatcher import (
    is_tracing,
    observed,
    refuse_gradient,
    register,
    settings_of,
    settings_text,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import (
    simulate,
    simulation,
    with_options as with_options,
)
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = ScaledCall[torch.Tensor]
SCHEMA = (
    "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, ScalarType?"
    " out_dtype=None, str settings='()') -> Tensor"
)
ONLY_SIMULATED = (
    f"{NAME} of {', '.join(KINDS)} needs the tensor cores of Blackwell (tcgen05.mma with scale"
    " factors), and has run on no GPU yet: NumPy arrays and tensors on the CPU are simulated. On"
    " Hopper scale whole tensors, rows, or blocks of 128, with float32 scales"
)


def scaled_matmul(call: Call) -> torch.Tensor:
    """`ops.scaled_matmul` of PyTorch tensors, with all its options."""
    if isinstance(call.scale_a, tuple | list) or isinstance(call.scale_b, tuple | list):
        if not device.simulates(call.a):
            raise UnavailableError(ONLY_SIMULATED)
        require_simulated(f"{NAME}: a")
        paired: torch.Tensor = simulate(NAME, call, simulated.scaled_matmul)
        return paired
    operands = call.a, call.b, call.scale_a, call.scale_b, call.bias
    refuse_gradient(NAME, *operands, call.out)
    if not is_tracing() and not observed(*operands, call.out):
        return plans.run(call)
    dtype = _checked_tensors(call)
    c = operator(*operands, torch_dtype(dtype), settings_text(call.settings))
    return c if call.out is None else call.out.copy_(c)


def _checked_tensors(call: Call) -> DType:
    """The dtype of the result, of tensors that may be without data."""
    named = {
        "a": call.a,
        "b": call.b,
        "scale_a": call.scale_a,
        "scale_b": call.scale_b,
        "bias": call.bias,
        "out": call.out,
    }
    check_tensors(NAME, named, optional=2)
    return result_dtype(NAME, call.out, call.out_dtype, dtypes.bfloat16)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    return (
        facts(call.a),
        facts(call.b),
        facts(call.scale_a),
        facts(call.scale_b),
        facts(call.bias),
        facts(call.out),
    ), (call.out_dtype, call.settings or None)


def _prepare(call: Call) -> ProductPlan:
    dtype = _checked_tensors(call)
    found = recipe(*(ArrayKind.of(x) for x in (call.a, call.b, call.scale_a, call.scale_b)))
    if found.block_scaled:
        raise UnavailableError(ONLY_SIMULATED)
    found.check_bias(None if call.bias is None else ArrayKind.of(call.bias), dtype.name)
    found.check_settings(call.settings)
    shape = found.m, found.n
    check_shape(NAME, "out", call.out, shape)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, b, scale_a, scale_b = (views[name] for name in ("a", "b", "a_scale", "b_scale"))
        cfg = _config(found, call, array_dtype(a), dtype, chip)
        if isinstance(cfg, BlockwiseGemmConfig):
            return gemm_blockwise.bind(a, b, scale_a, scale_b, written, cfg)
        meeting = workspaces.to_bind(written.shape, cfg, written.device)
        bias = views.get("bias")
        return gemm.bind(
            a, b, written, cfg, bias=bias, a_scale=scale_a, b_scale=scale_b, workspace=meeting
        )

    return products.prepare(
        NAME,
        _operands(found, call),
        call.out,
        shape,
        torch_dtype(dtype),
        bind,
        empty=0 in (*shape, found.k),
    )


def _operands(found: Recipe, call: Call) -> list[Operand]:
    blocks = found.name == "block"
    scales = _transposed if blocks else _flat
    return [
        Operand(("a",), call.a),
        Operand(("b",), call.b, _transposed),
        Operand(("a_scale", "a_scales"), call.scale_a, scales, matrix=blocks),
        Operand(("b_scale", "b_scales"), call.scale_b, scales, matrix=False),
        Operand(("bias",), call.bias, matrix=False),
    ]


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)


def _config(
    found: Recipe, call: Call, inputs: DType, wanted: DType, chip: Chip
) -> GemmConfig | BlockwiseGemmConfig:
    m, n, k = found.m, found.n, found.k
    if found.name == "block":
        if call.settings:
            return configured(BlockwiseGemmConfig, {}, call.settings)
        problem = Problem(m, n, k, dtype=inputs, out_dtype=wanted, scales="block")
        return tuned.choose(blockwise_heuristics.TUNABLE, problem, chip)
    if call.settings:
        return configured(GemmConfig, {"bk": SPAN}, call.settings)
    extras = call.bias is not None
    return gemm_heuristics.choose(
        m, n, k, inputs, wanted, scales=found.name, extras=extras, chip=chip
    )


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        operands = call.a, call.b, call.scale_a, call.scale_b, call.bias
        return plan.launch(operands, call.out)
    c = plan.new_result() if call.out is None else call.out
    return c.zero_() if call.bias is None else c.copy_(call.bias.expand(plan.shape))


_simulate = simulation(NAME, lambda call: call.a, _checked_tensors, simulated.scaled_matmul)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return plans.run(
        ScaledCall(a, b, scale_a, scale_b, None, bias, out_dtype, settings_of(settings))
    )


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if (a.dim(), b.dim()) != (2, 2):
        raise BindError(
            f"{NAME} multiplies matrices, a (m, k) and b (k, n); got {a.dim()}-D and {b.dim()}-D"
        )
    torch._check(
        a.shape[1] == b.shape[0],
        lambda: f"{NAME}: a has {a.shape[1]} columns and b {b.shape[0]} rows",
    )
    return a.new_empty(
        (a.shape[0], b.shape[1]), dtype=torch.bfloat16 if out_dtype is None else out_dtype
    )


operator = register(NAME, SCHEMA, kernel, _fake)
