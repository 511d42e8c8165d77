"""grouped_matmul of CUDA tensors: plans, as those of matmul, and the operator
`tilepipe::grouped_matmul`, which PyTorch's compiler sees.

It has no gradient.
"""

from __future__ import annotations

import ast
from operator import itemgetter
from typing import Any

import torch

from tilepipe.cuda.runtime.driver import current
from tilepipe.errors import BindError
from tilepipe.kernels.gemm_grouped import config as grouped_gemm_config
from tilepipe.kernels.gemm_grouped import sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.sm90 import GroupedProblem
from tilepipe.lang.arguments.arrays import array_dtype, array_order
from tilepipe.ops.grouped.validation import NAME, Extents, config, extents
from tilepipe.ops.matmul import validation as options
from tilepipe.ops.matmul.plan import View, operand, output
from tilepipe.ops.torch.checks import check_tensor, hopper, tilepipe_dtype, torch_dtype
from tilepipe.ops.torch.observers import autocast, is_tracing, wants_gradient, watched
from tilepipe.ops.torch.plans import Items, Operands, ProductPlan, Products, span

SCHEMA = (
    "(Tensor a, Tensor b, Tensor offsets, ScalarType? out_dtype=None, str settings='()') -> Tensor"
)
_PLACES = ("a", "b", "offsets", "c")  # what `order` of a plan picks from


def grouped_matmul(
    a: Any, b: Any, offsets: Any, out: Any, out_dtype: object, settings: dict[str, Any]
) -> Any:
    """`ops.grouped_matmul` of PyTorch tensors, with all its options."""
    if wants_gradient(*(x for x in (a, b, out) if isinstance(x, torch.Tensor))):
        raise BindError(
            f"{NAME} has no gradient, and an operand requires one; detach it, or call it under"
            " torch.no_grad()"
        )
    items = tuple(sorted(settings.items()))
    if not is_tracing() and not watched(a, b, offsets, out):
        return run((a, b, offsets), out, out_dtype, items)
    if out is None and torch.is_autocast_enabled("cuda"):
        a, b = autocast(a), autocast(b)
    found, dtype = _checked((a, b, offsets), out, out_dtype)
    c = operator(a, b, offsets, dtype, repr(items))
    return c if out is None else out.copy_(torch.where(_in_groups(found, offsets), c, out))


def _checked(operands: Operands, out: Any, out_dtype: object) -> tuple[Extents, Any]:
    """The extents, and the torch dtype of the result; what can be said of tensors without data is
    checked.
    """
    for name, x in zip(("a", "b", "offsets", "out"), (*operands, out), strict=True):
        if x is not None or name != "out":
            check_tensor(name, x, operands[0], NAME)
    found = extents(*operands)
    asked = operands[0].dtype if out_dtype is None else torch_dtype(out_dtype, NAME)
    if out is not None:
        if out_dtype is not None and out.dtype != asked:
            raise BindError(
                f"{NAME}: out is {out.dtype} and out_dtype {asked}; give one of them, or both alike"
            )
        if tuple(out.shape) != (found.m, found.n):
            raise BindError(
                f"{NAME}: out must have shape {(found.m, found.n)}, it has {tuple(out.shape)}"
            )
        asked = out.dtype
    options.check_output(tilepipe_dtype(asked), NAME)
    return found, asked


def prepare(operands: Operands, out: Any, out_dtype: object, items: Items) -> ProductPlan:
    """Makes the plan for these operands (a, b, offsets): checks them, chooses a configuration,
    compiles and loads the kernel.
    """
    found, dtype = _checked(operands, out, out_dtype)
    a, b, offsets = operands
    inputs, shape = array_dtype(a), (found.m, found.n)
    given = config(dict(items), inputs)
    ordinal, spans = a.get_device(), tuple(span(x) for x in (*operands, out))
    if found.empty:
        return ProductPlan(None, tuple, ordinal, (None,) * 3, None, shape, dtype, a.device, spans)
    chip = hopper(ordinal, NAME)
    make_c, written = output(
        torch.empty(shape, dtype=dtype, device=a.device) if out is None else out, shape
    )
    forms = [
        operand(a, lambda x: x, order="row"),
        operand(b, lambda x: x.transpose(1, 2)),
        operand(offsets, lambda x: x, matrix=False),
    ]
    left, right, ends = (x for _, x in forms)
    cfg = given
    if not items:
        problem = GroupedProblem(
            found.m,
            found.n,
            found.k,
            found.groups,
            inputs,
            tilepipe_dtype(dtype),
            array_order(right),
        )
        cfg = grouped_gemm_config.best(problem, chip)
    with current(ordinal):  # a thread that has called nothing of CUDA has no context
        launcher = gemm_grouped.bind(
            View(left), View(right), View(written), View(ends), cfg
        ).launcher()
    order = itemgetter(*(_PLACES.index(name) for name in launcher.tensors))
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


def _launch(plan: ProductPlan, operands: Operands, out: Any) -> Any:
    if plan.launcher is None:
        return _without_product(plan, operands, out)
    return plan.launch(operands, out, keeps=True)  # rows of no group keep what they hold


def _without_product(plan: ProductPlan, operands: Operands, out: Any) -> Any:
    """Where an extent is 0: sums over nothing are 0."""
    if out is None:
        return torch.zeros(plan.shape, dtype=plan.dtype, device=plan.device)
    found = extents(*operands)
    if found.groups and out.numel():
        out.masked_fill_(_in_groups(found, operands[2]), 0)
    return out


def _in_groups(found: Extents, offsets: Any) -> Any:
    """Which rows are in a group, (m, 1): those below the largest offset."""
    rows = torch.arange(found.m, device=offsets.device)
    last = offsets.max() if found.groups else torch.zeros((), device=offsets.device)
    return (rows < last)[:, None]


_products = Products(prepare, _launch)
run, forget = _products.run, _products.forget


def kernel(a: Any, b: Any, offsets: Any, out_dtype: Any = None, settings: str = "()") -> Any:
    """The operator on CUDA tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return run((a, b, offsets), None, out_dtype, ast.literal_eval(settings))


def _fake(a: Any, b: Any, offsets: Any, out_dtype: Any = None, settings: str = "()") -> Any:
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


_library = torch.library.Library("tilepipe", "FRAGMENT")
_library.define(f"{NAME}{SCHEMA}", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl(NAME, kernel, "CUDA")
torch.library.register_fake(f"tilepipe::{NAME}", _fake, lib=_library)
operator = torch.ops.tilepipe.grouped_matmul.default
