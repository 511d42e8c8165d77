"""matmul of CUDA tensors where nothing but the result is wanted: no autograd, no dispatcher. A call
that finds its plan allocates the result, takes the addresses and launches.
"""

from __future__ import annotations

import torch

import tilepipe as tp
from tilepipe.ir.arrays import array_dtype, byte_strides
from tilepipe.ir.chip import Chip
from tilepipe.ir.dtypes import DType
from tilepipe.kernels.gemm import heuristics, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.ops.arrays import tma_order
from tilepipe.ops.matmul import simulated
from tilepipe.ops.matmul.call import MatmulCall, checked, config, without_early
from tilepipe.ops.matmul.shapes import Product
from tilepipe.ops.torch import device, products, workspaces
from tilepipe.ops.torch.plan_cache import MISALIGNED, Key, PlanCache, facts
from tilepipe.ops.torch.products import Operand, ProductPlan, Views
from tilepipe.ops.torch.simulated import simulate
from tilepipe.ops.torch.tensors import TensorView, check_tensors, torch_dtype

Call = MatmulCall[torch.Tensor]
_SOURCE = 3  # of the operands


def checked_tensors(call: Call) -> tuple[Product, DType]:
    """The shapes of a product of tensors and the dtype of its result.

    Raises:
        BindError: as `ops.matmul`.
    """
    named = {"a": call.a, "b": call.b, "out": call.out, "bias": call.bias, "source": call.source}
    check_tensors(call.operation, named, optional=3)
    return checked(call, tuple(call.a.stride()))


def _key(call: Call) -> Key:
    """What the plan of a call depends on. Written out, for it is made in every call."""
    a, b = call.a, call.b
    a_address, b_address = a.data_ptr(), b.data_ptr()
    low = (a_address | b_address) & MISALIGNED and (a_address & MISALIGNED, b_address & MISALIGNED)
    others = (
        None
        if call.bias is None and call.source is None and call.out is None
        else (facts(call.bias), facts(call.source), facts(call.out))
    )
    tensors = (
        a.shape,
        a.stride(),
        a.dtype,
        a.get_device(),
        b.shape,
        b.stride(),
        b.dtype,
        b.get_device(),
        low,
        others,
    )
    return tensors, (
        call.activation,
        call.alpha,
        call.beta,
        call.out_dtype,
        call.precision,
        call.settings or None,
    )


def _prepare(call: Call) -> ProductPlan:
    shapes, dtype = checked_tensors(call)
    source = call.source if call.source_scale else None

    def bind(views: Views, written: TensorView, chip: Chip) -> tp.Program:
        a, b, bias, addend = views["a"], views["b"], views.get("bias"), views.get("source")
        cfg = _config(call, shapes, a, b, addend, dtype, chip)
        if b.data_ptr() != call.b.data_ptr():  # a copy, which the kernel before writes
            cfg = cfg.changed(early="none")
        alpha, beta = float(call.alpha), call.source_scale
        meeting = workspaces.to_bind(written.shape, cfg, written.device)
        return gemm.bind(
            a,
            b,
            written,
            cfg,
            bias=bias,
            source=addend,
            alpha=alpha,
            beta=beta,
            workspace=meeting,
        )

    expand = torch.Tensor.expand
    operands = [
        Operand(("a",), call.a, lambda x: shapes.left(x, expand)),
        Operand(("b",), call.b, lambda x: shapes.right(x, expand).transpose(-1, -2)),
        Operand(("bias",), call.bias, lambda x: shapes.added(x, expand), matrix=False),
        Operand(("source",), source, lambda x: shapes.like_output(x, expand)),
    ]
    return products.prepare(
        call.operation,
        operands,
        call.out,
        shapes.result,
        torch_dtype(dtype),
        bind,
        empty=0 in shapes.output or shapes.k == 0,
        written_shape=shapes.output,
        accumulates=_SOURCE,
    )


def _config(
    call: Call,
    shapes: Product,
    a: TensorView,
    b: TensorView,
    source: TensorView | None,
    dtype: DType,
    chip: Chip,
) -> GemmConfig:
    inputs = array_dtype(a)
    if without_early(call.settings):
        return config(call.settings, call.activation, inputs)
    m, n = shapes.output[-2:]
    addends = call.bias is not None or bool(call.source_scale)
    chosen = heuristics.choose(
        m,
        n,
        shapes.k,
        inputs,
        dtype,
        batch=1 if len(shapes.output) == 2 else shapes.matrices,
        a_order=_order(a),
        b_order=_order(b),
        extras=addends or call.activation is not None,
        source=source is not None and _order(source) == "row",
        chip=chip,
    )
    given = dict(call.settings)  # none of the tile
    if call.activation is not None:
        given["activation"] = call.activation
    return chosen.changed(**given) if given else chosen


def _order(x: TensorView) -> str:
    return tma_order(x.shape, byte_strides(x), array_dtype(x).nbytes) or "row"


def _launch(plan: ProductPlan, call: Call) -> torch.Tensor:
    if plan.launcher is not None:
        return plan.launch((call.a, call.b, call.bias, call.source), call.out)
    c = plan.new_result() if call.out is None else call.out
    if c.numel():
        c.copy_(_without_product(call))
    return c


def _without_product(call: Call) -> torch.Tensor:
    """What remains where k is 0, computed in float32."""
    shapes, expand = checked_tensors(call)[0], torch.Tensor.expand
    z = torch.zeros(shapes.output, dtype=torch.float32, device=call.a.device)
    if call.source is not None and call.source_scale:
        z = z + call.source_scale * shapes.like_output(call.source, expand).float()
    if call.bias is not None:
        z = z + shapes.added(call.bias, expand).float()
    return activate(z, call.activation).reshape(shapes.result)


def activate(z: torch.Tensor, activation: str | None) -> torch.Tensor:
    """The kernel's activations, by PyTorch's functions."""
    if activation in ("gelu", "gelu_erf"):
        form = "tanh" if activation == "gelu" else "none"
        return torch.nn.functional.gelu(z, approximate=form)
    return z if activation is None else getattr(torch.nn.functional, activation)(z)


def _simulate(call: Call) -> torch.Tensor | None:
    """The result, where the tensors are on the CPU."""
    if not device.simulates(call.a):
        return None
    checked_tensors(call)
    found: torch.Tensor = simulate(call.operation, call, simulated.matmul)
    return found


plans: PlanCache[Call, ProductPlan, torch.Tensor] = PlanCache(_key, _prepare, _launch, _simulate)
run = plans.run
