"""matmul of CUDA tensors where nothing but the result is wanted: no autograd, no dispatcher. A call
that finds its plan allocates the result, takes the addresses and launches.
"""

from __future__ import annotations

from typing import Any

import torch

from tilepipe.lang.arguments.arrays import array_dtype
from tilepipe.ops.matmul import validation as options_
from tilepipe.ops.matmul.plan import Options, Plan, prepare
from tilepipe.ops.torch.checks import check
from tilepipe.ops.torch.plans import MISALIGNED, Plans, current_device, facts, raw_stream

_plans: Plans[Plan] = Plans()
forget = _plans.forget


def run(a: Any, b: Any, out: Any, bias: Any, source: Any, options: Options) -> Any:
    """matmul, eager and without autograd: the plan for these tensors, launched in the current
    stream of their device.

    Args:
        options: (activation, alpha, beta, out_dtype, precision, settings as a tuple of items).

    Raises:
        BindError, UnavailableError: as `ops.matmul`, at the first call of its kind.
    """
    try:
        low = (a.data_ptr() | b.data_ptr()) & MISALIGNED and (
            a.data_ptr() & MISALIGNED,
            b.data_ptr() & MISALIGNED,
        )
        others = (
            None
            if bias is None and source is None and out is None
            else (facts(bias), facts(source), facts(out))
        )
        key = (
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
            options,
        )
        plan = _plans.get(key)
    except (TypeError, AttributeError, RuntimeError):
        activation, alpha, beta, out_dtype, precision, items = options
        check(a, b, out, bias, activation, source, alpha, beta, out_dtype, precision, dict(items))
        options_.config(dict(items), activation, array_dtype(a))
        raise
    if plan is None:
        plan = _plans.remember(key, prepare(a, b, out, bias, source, options))
    if plan.ordinal != current_device():
        with torch.cuda.device(plan.ordinal):
            return _launch(plan, a, b, out, bias, source)
    return _launch(plan, a, b, out, bias, source)


def _launch(plan: Plan, a: Any, b: Any, out: Any, bias: Any, source: Any) -> Any:
    c = torch.empty(plan.shape, dtype=plan.dtype, device=plan.device) if out is None else out
    if plan.launcher is None:
        if c.numel():
            c.copy_(plan.otherwise(bias, source))
        return c
    if plan.c is not None:
        written = plan.c()
    elif out is not None and _overlap(plan, a, b, out, bias, source):
        written = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=out.device)
    else:
        written = c
    a = a if plan.a is None else plan.a(a)
    b = b if plan.b is None else plan.b(b)
    bias = bias if plan.bias is None else plan.bias(bias)
    source = source if plan.source is None else plan.source(source)
    places = (
        a.data_ptr(), b.data_ptr(), written.data_ptr(), 0 if bias is None else bias.data_ptr(), 0 if source is None else source.data_ptr(),
    )  # fmt: skip
    plan.launcher(plan.order(places), raw_stream(plan.ordinal))
    if written is not c:
        c.copy_(written.reshape(plan.shape))
    elif out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return c


def _overlap(plan: Plan, a: Any, b: Any, out: Any, bias: Any, source: Any) -> bool:
    """Whether `out` may share memory with an operand that is read where it lies. The source may be
    `out` itself: a CTA reads a tile of it before it writes that tile.
    """
    first = out.data_ptr()
    last = first + plan.spans[4]
    for i, (x, copied) in enumerate(
        ((a, plan.a), (b, plan.b), (bias, plan.bias), (source, plan.source))
    ):
        if x is None or copied is not None:
            continue
        start = x.data_ptr()
        itself = i == 3 and start == first and x.shape == out.shape and x.stride() == out.stride()
        if start < last and first < start + plan.spans[i] and not itself:
            return True
    return False
