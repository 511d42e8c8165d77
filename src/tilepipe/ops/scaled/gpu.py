"""scaled_matmul of CUDA tensors: plans, as those of matmul, and the operator
`tilepipe::scaled_matmul`, which PyTorch's compiler sees.

It has no gradient, as `torch.nn.functional.scaled_mm` has none.
"""

from __future__ import annotations

import ast
from operator import itemgetter
from typing import Any

import torch

from tilepipe.cuda.runtime.driver import current
from tilepipe.errors import BindError, UnavailableError
from tilepipe.ir.chip import Chip
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.heuristics import SPAN, Problem
from tilepipe.kernels.gemm_block_scaled.layout import KINDS
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise_fp8_choice
from tilepipe.kernels.gemm_blockwise import sm90 as gemm_blockwise
from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.matmul import validation as options
from tilepipe.ops.matmul.plan import View, operand, output
from tilepipe.ops.scaled.recipes import NAME, Array, Recipe, recipe
from tilepipe.ops.torch.checks import check_tensor, hopper, tilepipe_dtype, torch_dtype
from tilepipe.ops.torch.observers import is_tracing, wants_gradient, watched
from tilepipe.ops.torch.plans import Items, Operands, Prepare, ProductPlan, Products, span

SCHEMA = "(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, ScalarType? out_dtype=None, str settings='()') -> Tensor"
ONLY_SIMULATED = (
    f"{NAME} of {', '.join(KINDS)} needs the tensor cores of Blackwell (tcgen05.mma with scale"
    " factors), and has run on no GPU yet: it"
    " takes NumPy arrays, which are simulated. On Hopper scale whole tensors, rows, or blocks of"
    " 128, with float32 scales"
)
# by the kernels' names
_PLACES = {
    "a": 0,
    "b": 1,
    "a_scale": 2,
    "a_scales": 2,
    "b_scale": 3,
    "b_scales": 3,
    "bias": 4,
    "c": 5,
}


def scaled_matmul(
    a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any, bias: Any, out_dtype: object, settings: dict[str, Any]
) -> Any:  # fmt: skip
    """`ops.scaled_matmul` of PyTorch tensors, with all its options."""
    if any(isinstance(x, tuple | list) for x in (scale_a, scale_b)):
        raise UnavailableError(ONLY_SIMULATED)
    operands = a, b, scale_a, scale_b, bias
    if wants_gradient(*(x for x in (*operands, out) if isinstance(x, torch.Tensor))):
        raise BindError(
            f"{NAME} has no gradient, and an operand requires one; detach it, or call it under"
            " torch.no_grad()"
        )
    items = tuple(sorted(settings.items()))
    if not is_tracing() and not watched(a, b, scale_a, scale_b, bias, out):
        return run(operands, out, out_dtype, items)
    dtype = _checked(operands, out, out_dtype)
    c = operator(*operands, dtype, repr(items))
    return c if out is None else out.copy_(c)


def _checked(operands: Operands, out: Any, out_dtype: object) -> Any:
    """The torch dtype of the result; what can be said of tensors without data is checked."""
    for name, x in zip(
        ("a", "b", "scale_a", "scale_b", "bias", "out"), (*operands, out), strict=True
    ):
        if x is not None or name not in ("bias", "out"):
            check_tensor(name, x, operands[0], NAME)
    asked = torch.bfloat16 if out_dtype is None else torch_dtype(out_dtype, NAME)
    if out is not None:
        if out_dtype is not None and out.dtype != asked:
            raise BindError(
                f"{NAME}: out is {out.dtype} and out_dtype {asked}; give one of them, or both alike"
            )
        asked = out.dtype
    options.check_output(tilepipe_dtype(asked), NAME)
    return asked


def prepare(operands: Operands, out: Any, out_dtype: object, items: Items) -> ProductPlan:
    """Makes the plan for a, b, scale_a, scale_b and bias: checks them, chooses a configuration,
    compiles and loads the kernel.
    """
    dtype = _checked(operands, out, out_dtype)
    a, b, scale_a, scale_b, bias = operands
    found = recipe(*(Array.of(x) for x in (a, b, scale_a, scale_b)))
    if found.block_scaled:
        raise UnavailableError(ONLY_SIMULATED)
    found.check_bias(None if bias is None else Array.of(bias), str(dtype).removeprefix("torch."))
    found.check_settings(dict(items))
    shape, ordinal = (found.m, found.n), a.get_device()
    if out is not None and tuple(out.shape) != shape:
        raise BindError(f"{NAME}: out must have shape {shape}, it has {tuple(out.shape)}")
    spans = tuple(span(x) for x in (*operands, out))
    if 0 in (found.m, found.n, found.k):
        return ProductPlan(
            None, tuple, ordinal, (None,) * len(operands), None, shape, dtype, a.device, spans
        )
    chip = hopper(ordinal, NAME)
    result = torch.empty(shape, dtype=dtype, device=a.device) if out is None else out
    make_c, written = output(result, shape)
    forms = _forms(found, operands)
    config = _config(found, array_dtype(a), tilepipe_dtype(dtype), bias is not None, chip, items)
    views = [None if x is None else View(x) for _, x in forms]
    with current(ordinal):  # a thread that has called nothing of CUDA has no context
        launcher = _bind(found, views, View(written), config).launcher()
    order = itemgetter(*(_PLACES[name] for name in launcher.tensors))
    return ProductPlan(
        launcher,
        order,
        ordinal,
        tuple(form for form, _ in forms),
        make_c,
        shape,
        dtype,
        a.device,
        spans,
    )


def _forms(found: Recipe, operands: Operands) -> list[tuple[Prepare | None, Any]]:
    a, b, scale_a, scale_b, bias = operands
    blocks = found.name == "block"
    return [
        operand(a, lambda x: x),
        operand(b, lambda x: x.transpose(0, 1)),
        operand(
            scale_a,
            (lambda x: x.transpose(0, 1)) if blocks else (lambda x: x.reshape(-1)),
            matrix=blocks,
        ),
        operand(
            scale_b,
            (lambda x: x.transpose(0, 1)) if blocks else (lambda x: x.reshape(-1)),
            matrix=False,
        ),
        operand(bias, lambda x: x, matrix=False),
    ]


def _config(found: Recipe, inputs: Any, wanted: Any, extras: bool, chip: Chip, items: Items) -> Any:
    blocks = found.name == "block"
    if items:
        return found.config(**({} if blocks else {"bk": SPAN}) | dict(items))
    if blocks:
        return blockwise_fp8_choice.best(
            Problem(found.m, found.n, found.k, dtype=inputs, out_dtype=wanted, scales="block"), chip
        )
    return gemm.choose(
        found.m, found.n, found.k, inputs, wanted, scales=found.name, extras=extras, chip=chip
    )


def _bind(found: Recipe, views: list[Any], c: Any, config: Any) -> Any:
    a, b, scale_a, scale_b, bias = views
    if found.name == "block":
        return gemm_blockwise.bind(a, b, scale_a, scale_b, c, config)
    return gemm.bind(a, b, c, config, bias=bias, a_scale=scale_a, b_scale=scale_b)


def _launch(plan: ProductPlan, operands: Operands, out: Any) -> Any:
    if plan.launcher is not None:
        return plan.launch(operands, out)
    c = torch.empty(plan.shape, dtype=plan.dtype, device=plan.device) if out is None else out
    return c.zero_() if operands[4] is None else c.copy_(operands[4].expand(plan.shape))


_products = Products(prepare, _launch)
run, forget = _products.run, _products.forget


def kernel(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Any = None, settings: str = "()"
) -> Any:  # fmt: skip
    """The operator on CUDA tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return run((a, b, scale_a, scale_b, bias), None, out_dtype, ast.literal_eval(settings))


def _fake(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    settings: str = "()",
) -> Any:
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


_library = torch.library.Library("tilepipe", "FRAGMENT")
_library.define(f"{NAME}{SCHEMA}", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl(NAME, kernel, "CUDA")
torch.library.register_fake(f"tilepipe::{NAME}", _fake, lib=_library)
operator = torch.ops.tilepipe.scaled_matmul.default
