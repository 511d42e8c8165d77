"""grouped_matmul of CUDA tensors: its prepared launches, and the operator
`tilepipe::grouped_matmul`, which PyTorch's compiler and autograd see. With b (groups, k, n) its
groups are of rows of a, with b (k, n) of k, with a (groups, m, k) they are padded; the other forms
of `ops.grouped_matmul` are views of the first, and `ops.matmul`.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype, array_order
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped import heuristics, sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.kernels.gemm_grouped_blockwise import (
    heuristics as blockwise_heuristics,
    sm90 as gemm_grouped_blockwise,
)
from tilepipe.kernels.gemm_grouped_blockwise.heuristics import GroupedBlockwiseProblem
from tilepipe.kernels.gemm_k_grouped import heuristics as k_heuristics, sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.heuristics import KGroupedProblem
from tilepipe.kernels.gemm_k_grouped_blockwise import (
    heuristics as k_blockwise_heuristics,
    sm90 as gemm_k_grouped_blockwise,
)
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.ops.grouped import simulated
from tilepipe.ops.grouped.call import FP8, Config, Extents, checked, config, form_of
from tilepipe.ops.grouped.public import NAME, GroupedCall
from tilepipe.ops.torch import products
from tilepipe.ops.torch.dispatcher import (
    autocast,
    autocasts,
    is_tracing,
    library,
    no_gradient,
    observed,
    register,
    settings_of,
    settings_text,
    wants_gradient,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import simulation, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = GroupedCall[torch.Tensor]
SCHEMA = (
    "(Tensor a, Tensor b, Tensor offsets, ScalarType? out_dtype=None, str settings='()', Tensor?"
    " scale_a=None, Tensor? scale_b=None, SymInt? expected_rows=None) -> Tensor"
)
OTHERS = 6  # arguments of the schema after a and b: none of them has a gradient


def grouped_matmul(call: Call) -> torch.Tensor:
    """`ops.grouped_matmul` of PyTorch tensors, with all its options."""
    differentiate = wants_gradient(call.a, call.b, call.out, call.scale_a, call.scale_b)
    if differentiate and not _differentiable(call.a, call.scale_a):
        raise no_gradient(_WITHOUT_GRADIENT)
    if differentiate and call.out is not None:
        raise BindError(
            f"{NAME}: out= has no gradient, and an operand requires one; omit out=, or call"
            " it under torch.no_grad()"
        )
    others = call.offsets, call.out, call.scale_a, call.scale_b
    if not (differentiate or is_tracing()) and not observed(call.a, call.b, *others):
        return plans.run(call)
    if call.scale_a is None and call.out is None and autocasts(call.a):
        call.a, call.b = autocast(call.a), autocast(call.b)
    found, dtype = _checked_tensors(call)
    c = operator(
        call.a,
        call.b,
        call.offsets,
        torch_dtype(dtype),
        settings_text(call.settings),
        call.scale_a,
        call.scale_b,
        call.expected_rows,
    )
    if call.out is None:
        return c
    return call.out.copy_(
        c if found.form == "k" else torch.where(_in_groups(found, call.offsets), c, call.out)
    )


_WITHOUT_GRADIENT = f"{NAME} of fp8, and of padded groups,"


def _differentiable(a: torch.Tensor, scale_a: torch.Tensor | None) -> bool:
    return a.dim() == 2 and scale_a is None


def _checked_tensors(call: Call) -> tuple[Extents, DType]:
    """The extents and the dtype of the result, of tensors that may be without data."""
    named = {
        "a": call.a,
        "b": call.b,
        "rows" if getattr(call.a, "ndim", 0) == 3 else "offsets": call.offsets,
        "scale_a": call.scale_a,
        "scale_b": call.scale_b,
        "out": call.out,
    }
    check_tensors(NAME, named, optional=3)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    rows = _about(call), type(call.expected_rows)
    return (
        facts(call.a),
        facts(call.b),
        facts(call.offsets),
        facts(call.scale_a),
        facts(call.scale_b),
        facts(call.out),
    ), (*rows, call.out_dtype, call.settings or None)


def _about(call: Call) -> int | None:
    """`expected_rows`, rounded up to a number of three leading bits, and at most all rows. Calls
    with ever other numbers then need four plans each time that these double, not one for each.
    """
    rows = call.expected_rows
    if rows is None:
        return None
    step = 1 << max((rows - 1).bit_length() - 3, 0)
    most: int = call.a.shape[-2]
    return min(-(-rows // step) * step, most)


def _prepare(call: Call) -> ProductPlan:
    found, dtype = _checked_tensors(call)
    inputs = array_dtype(call.a)
    given = config(call.settings, inputs, found.form)

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, b, offsets = (views[name] for name in ("a", "b", "offsets"))
        cfg = given
        if not call.settings:
            cfg = _chosen(found, _about(call), inputs, dtype, array_order(b), chip)
        if isinstance(cfg, KGroupedBlockwiseGemmConfig):
            scales = views["a_scales"], views["b_scales"]
            return gemm_k_grouped_blockwise.bind(a, b, *scales, written, offsets, cfg)
        if isinstance(cfg, KGroupedGemmConfig):
            left, right = a.swapaxes(0, 1), b.swapaxes(0, 1)
            return gemm_k_grouped.bind(left, right, written, offsets, cfg)
        if isinstance(cfg, BlockwiseGemmConfig):
            scales = views["a_scales"], views["b_scales"]
            return gemm_grouped_blockwise.bind(a, b, *scales, written, offsets, cfg)
        return gemm_grouped.bind(a, b, written, offsets, cfg)

    return products.prepare(
        NAME,
        _operands(call, found.form, inputs),
        call.out,
        found.shape,
        torch_dtype(dtype),
        bind,
        empty=found.empty,
    )


def _operands(call: Call, form: str, inputs: DType) -> list[Operand]:
    b_scales = Operand(("b_scales",), call.scale_b, _turned, matrix=False)
    if form == "k" and inputs is FP8:
        b_scales = b_scales._replace(form=products.as_it_is, matrix=True, order="row")
    if form == "k" and inputs is not FP8:  # both are (k, ...) by rows, so that a copy is, too
        left = Operand(("a",), call.a, _turned, order="row")
        right = Operand(("b",), call.b, order="row")
    else:
        left = Operand(("a",), call.a, order="row")
        right = Operand(("b",), call.b, _turned, order="row" if inputs is FP8 else None)
    return [
        left,
        right,
        Operand(("offsets",), call.offsets, matrix=False),
        Operand(("a_scales",), call.scale_a, _turned, order="row"),
        b_scales,
    ]


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2)


def _chosen(
    found: Extents, expected: int | None, inputs: DType, wanted: DType, b_order: str, chip: Chip
) -> Config:
    m, n, k, groups, form = found
    if form == "k" and inputs is FP8:
        of_blocks = KGroupedBlockwiseProblem(m, n, k, groups, wanted)
        return tuned.choose(k_blockwise_heuristics.TUNABLE, of_blocks, chip)
    if form == "k":
        of_k = KGroupedProblem(m, n, k, groups, inputs, wanted)
        return tuned.choose(k_heuristics.TUNABLE, of_k, chip)
    rows = m
    if form == "padded":
        rows = groups * (m if expected is None else expected)
    if inputs is FP8:
        blocks = GroupedBlockwiseProblem(rows, n, k, groups, wanted)
        return tuned.choose(blockwise_heuristics.TUNABLE, blocks, chip)
    problem = GroupedProblem(rows, n, k, groups, inputs, wanted, b_order)
    return tuned.choose(heuristics.TUNABLE, problem, chip)


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    form = form_of(call.a, call.b)
    if plan.launcher is not None:
        operands = call.a, call.b, call.offsets, call.scale_a, call.scale_b
        # rows of no group keep what they hold
        return plan.launch(operands, call.out, keeps=form != "k")
    if call.out is None:
        return torch.zeros(plan.shape, dtype=plan.dtype, device=plan.device)
    found, _ = checked(call)
    if form == "k":
        call.out.zero_()
    elif found.groups and call.out.numel():
        call.out.masked_fill_(_in_groups(found, call.offsets), 0)  # sums over nothing
    return call.out


def _in_groups(found: Extents, offsets: torch.Tensor) -> torch.Tensor:
    """Which rows are in a group, (m, 1), of padded groups (groups, m, 1)."""
    if found.form == "padded":
        return (torch.arange(found.m, device=offsets.device) < offsets[:, None])[..., None]
    return _below_last(found.m, offsets)


def _below_last(rows: int, offsets: torch.Tensor) -> torch.Tensor:
    """Which of so many rows are in a group, (rows, 1): those below the largest offset."""
    last = offsets.max() if offsets.shape[0] else torch.zeros((), device=offsets.device)
    return (torch.arange(rows, device=offsets.device) < last)[:, None]


_simulate = simulation(NAME, lambda call: call.a, _checked_tensors, simulated.grouped_matmul)
plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    expected_rows: int | None = None,
) -> torch.Tensor:
    """The operator on tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    given = settings_of(settings)
    return plans.run(
        GroupedCall(a, b, offsets, scale_a, scale_b, expected_rows, None, out_dtype, given)
    )


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    offsets: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    settings: str = "()",
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    expected_rows: int | None = None,
) -> torch.Tensor:
    """The shape and dtype of the result, for tensors without data."""
    if (a.dim(), b.dim(), offsets.dim()) not in ((2, 3, 1), (3, 3, 1), (2, 2, 1)):
        raise BindError(
            f"{NAME} takes a (m, k) or (groups, m, k), b (groups, k, n), or a (m, k), b (k, n);"
            f" offsets (groups,); got {a.dim()}-D, {b.dim()}-D and {offsets.dim()}-D"
        )
    torch._check(
        a.shape[-1] == b.shape[-2],
        lambda: f"{NAME}: a has {a.shape[-1]} columns and b {b.shape[-2]} rows",
    )
    batch = () if form_of(a, b) == "rows" else offsets.shape
    default = a.dtype if scale_a is None else torch.bfloat16
    return a.new_empty(
        (*batch, a.shape[-2], b.shape[-1]), dtype=default if out_dtype is None else out_dtype
    )


operator = register(NAME, SCHEMA, kernel, _fake)


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """What the forward pass keeps for the gradients: a, b and the offsets."""

    saved_tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    needs_input_grad: tuple[bool, ...]


def _setup(ctx: Context, inputs: tuple[torch.Tensor, ...], output: object) -> None:
    if not _differentiable(inputs[0], inputs[5]):
        raise no_gradient(_WITHOUT_GRADIENT)
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Context, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """With groups of rows of a: dA[start:end] = dC[start:end] · B[g]ᵀ, and dB[g] = A[start:end]ᵀ ·
    dC[start:end], whose groups are of k. With groups of k: dA[:, start:end] = dC[g] ·
    B[start:end]ᵀ, and dB[start:end] = A[:, start:end]ᵀ · dC[g]. Made of operators that have
    gradients themselves; dB is laid out as B, so that a transposed weight gets a gradient in its
    own layout.
    """
    a, b, offsets = ctx.saved_tensors
    da = db = None
    need_a, need_b = ctx.needs_input_grad[:2]
    g = grad.to(a.dtype)
    if b.dim() == 2:
        if need_a:
            da = _of_rows(b, _turned(g), offsets).t()
        if need_b:
            db = _of_rows(a.t(), g, offsets)
        return da, db, *(None,) * OTHERS
    if need_a:
        da = _of_rows(g, _turned(b), offsets)
    if need_b:
        turned = b.stride(-1) != 1 and b.stride(-2) == 1
        left, right = (g, a) if turned else (a, g)
        db = _times(left.t(), right, offsets)
        db = _turned(db) if turned else db
    return da, db, *(None,) * OTHERS


def _of_rows(x: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """x[start:end] @ b[g] for each group of rows, and zeros for rows of no group."""
    if _recorded(x, b, offsets):
        return torch.where(_below_last(x.shape[0], offsets), operator(x, b, offsets), 0)
    out = torch.zeros((x.shape[0], b.shape[2]), dtype=x.dtype, device=x.device)
    return plans.run(GroupedCall(x, b, offsets, None, None, None, out, None, ()))


def _times(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """x[:, start:end] @ y[start:end] for each group of k."""
    if _recorded(x, y, offsets):
        return operator(x, y, offsets)
    return plans.run(GroupedCall(x, y, offsets, None, None, None, None, None, ()))


def _recorded(x: torch.Tensor, y: torch.Tensor, offsets: torch.Tensor) -> bool:
    """True if anything but the result of a product is wanted."""
    return is_tracing() or observed(x, y, offsets) or wants_gradient(x, y)


torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
