"""attention of CUDA tensors: plans, and the operator `tilepipe::attention`, which PyTorch's
dispatcher and compiler see.

It has no gradient: a tensor that requires one is refused, so that nothing is lost in silence.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch

from tilepipe.cuda.runtime.driver import current
from tilepipe.errors import BindError
from tilepipe.kernels.attention import sm90 as attention_kernel
from tilepipe.kernels.attention.validation import NAME
from tilepipe.ops.attention.validation import check, config, heads_third
from tilepipe.ops.matmul.plan import View
from tilepipe.ops.torch.checks import check_tensor, hopper
from tilepipe.ops.torch.observers import autocast, is_tracing, wants_gradient, watched
from tilepipe.ops.torch.plans import Plans, current_device, facts, raw_stream, span

SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, bool causal=False, float? scale=None, bool return_lse=False,"
    " str layout='bshd', str settings='()')"
    " -> (Tensor, Tensor)"
)
MAX_WORK: Any = 100_000  # of np.shares_memory: a millisecond at most
_PLACES = ("q", "k", "v", "out", "lse")  # what `order` of a plan picks from

# causal, scale, return_lse, layout, settings as items
Options = tuple[bool, float | None, bool, str, tuple[tuple[str, Any], ...]]


class Plan(NamedTuple):
    """One prepared attention.

    Attributes:
        launcher: called with the addresses that `order` picks of (q, k, v, out, lse); None: there
            is nothing to multiply.
        shape, stride, dtype, device: of a new result. lse: shape of the logarithms. spans: bytes
            that q, k, v and out take.
    """

    launcher: Callable[[tuple[int, ...], int], None] | None
    order: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    device: Any
    lse: tuple[int, int, int]
    spans: tuple[int, ...]


_plans: Plans[Plan] = Plans()
forget = _plans.forget


def attention(q: Any, k: Any, v: Any, out: Any, options: Options) -> Any:
    """`ops.attention` of PyTorch tensors, with all its options."""
    if not all(isinstance(x, torch.Tensor) for x in (q, k, v, q if out is None else out)):
        _check(q, k, v, out, options)
    if wants_gradient(q, k, v, out):
        raise BindError(
            f"{NAME} has no gradient, and a tensor requires one; call it under torch.no_grad(),"
            " or detach q, k and v"
        )
    if not is_tracing() and not watched(q, k, v, out):
        result, lse = run(q, k, v, out, options)
    else:
        result, lse = _dispatched(q, k, v, out, options)
    return (result, lse) if options[2] else result


def _dispatched(q: Any, k: Any, v: Any, out: Any, options: Options) -> tuple[Any, Any]:
    if out is None and torch.is_autocast_enabled("cuda"):
        q, k, v = (autocast(x) for x in (q, k, v))
    _check(q, k, v, out, options)
    causal, scale, return_lse, layout, items = options
    result, lse = operator(
        q, k, v, causal, None if scale is None else float(scale), return_lse, layout, repr(items)
    )
    return (result if out is None else out.copy_(result)), lse


def run(q: Any, k: Any, v: Any, out: Any, options: Options) -> tuple[Any, Any]:
    """(out, lse), eager: the plan for these tensors, launched in the current stream of their
    device; lse is empty unless it is wanted.

    Raises:
        BindError, UnavailableError: as `ops.attention`; of all but overlaps at the first call of
            its kind.
    """
    try:
        key = (facts(q), facts(k), facts(v), facts(out), options)
        plan = _plans.get(key)
    except (TypeError, AttributeError, RuntimeError):
        _check(q, k, v, out, options)
        raise
    if plan is None:
        plan = _plans.remember(key, prepare(q, k, v, out, options))
    if plan.ordinal != current_device():
        with torch.cuda.device(plan.ordinal):
            return _launch(plan, q, k, v, out)
    return _launch(plan, q, k, v, out)


def _check(q: Any, k: Any, v: Any, out: Any, options: Options) -> Any:
    for name, x in (("q", q), ("k", k), ("v", v), ("out", out)):
        if x is not None or name != "out":
            check_tensor(name, x, q, NAME, "q")
    causal, scale, _, layout, items = options
    return check(q, k, v, out, causal, scale, layout, dict(items))


def prepare(q: Any, k: Any, v: Any, out: Any, options: Options) -> Plan:
    """Makes the plan for these tensors: checks them, chooses a configuration, compiles and loads
    the kernel.

    Raises:
        BindError, UnavailableError: as `ops.attention`.
    """
    found = _check(q, k, v, out, options)
    causal, scale, return_lse, layout, items = options
    ordinal = q.get_device()
    like = torch.empty_like(q) if out is None else out
    lse_shape = (found.batch, found.heads, found.s_q) if return_lse else (0, 0, 0)
    spans = tuple(span(x) for x in (q, k, v, out))
    parts = ordinal, tuple(like.shape), tuple(like.stride()), q.dtype, q.device, lse_shape, spans
    if found.empty:
        return Plan(None, tuple, *parts)
    hopper(ordinal, NAME)
    lse = torch.empty(lse_shape, dtype=torch.float32, device=q.device) if return_lse else None
    q_view, k_view, v_view, out_view = (heads_third(View(x), layout) for x in (q, k, v, like))
    lse_view = None if lse is None else View(lse)
    chosen = config(found, causal, dict(items))
    with current(ordinal):  # a thread that has called nothing of CUDA has no context
        launcher = attention_kernel.bind(
            q_view, k_view, v_view, out_view, lse_view, chosen, causal=causal, scale=scale
        ).launcher()
    return Plan(launcher, itemgetter(*(_PLACES.index(name) for name in launcher.tensors)), *parts)


def _launch(plan: Plan, q: Any, k: Any, v: Any, out: Any) -> tuple[Any, Any]:
    lse = torch.empty(plan.lse, dtype=torch.float32, device=plan.device)
    if out is None:
        result = torch.empty_strided(plan.shape, plan.stride, dtype=plan.dtype, device=plan.device)
    else:
        _refuse_overlap(plan, q, k, v, out)
        result = out
    if plan.launcher is None:
        result.zero_()
        lse.fill_(-torch.inf)
        return result, lse
    places = q.data_ptr(), k.data_ptr(), v.data_ptr(), result.data_ptr(), lse.data_ptr()
    plan.launcher(plan.order(places), raw_stream(plan.ordinal))
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return result, lse


def _refuse_overlap(plan: Plan, q: Any, k: Any, v: Any, out: Any) -> None:
    first = out.data_ptr()
    last = first + plan.spans[3]
    for name, x, size in zip("qkv", (q, k, v), plan.spans, strict=False):
        start = x.data_ptr()
        if start < last and first < start + size and _same_elements(x, out):
            raise BindError(
                f"{NAME}: out shares memory with {name}, which is still read while out is"
                " written; give it memory of its own"
            )


def _same_elements(x: Any, y: Any) -> bool:
    """Whether tensors whose ranges overlap have elements in common; those beside each other in the
    same rows have none.
    """
    try:
        return bool(np.shares_memory(_described(x), _described(y), max_work=MAX_WORK))
    except np.exceptions.TooHardError:  # strides that make it a puzzle: taken for shared
        return True


def _described(x: Any) -> Any:
    """An array of the same addresses, which may be a GPU's: nothing is read there."""
    size = x.element_size()
    strides = tuple(stride * size for stride in x.stride())
    described = {
        "shape": tuple(x.shape),
        "strides": strides,
        "typestr": f"|V{size}",
        "data": (x.data_ptr(), True),
        "version": 3,
    }
    return np.asarray(_Interface(described))


class _Interface:
    def __init__(self, described: dict[str, Any]) -> None:
        self.__array_interface__ = described


def kernel(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, return_lse: bool = False, layout: str = "bshd",
    settings: str = "()",
) -> tuple[Any, Any]:  # fmt: skip
    """The operator on CUDA tensors. `settings`: the items of the configuration's fields as a Python
    literal.
    """
    return run(q, k, v, None, (causal, scale, return_lse, layout, _items(settings)))


_items = functools.lru_cache(maxsize=256)(ast.literal_eval)


def _fake(
    q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None, return_lse: bool = False, layout: str = "bshd",
    settings: str = "()",
) -> tuple[Any, Any]:  # fmt: skip
    """Shapes, strides and dtypes of the results, for tensors without data."""
    if {q.dim(), k.dim(), v.dim()} != {4}:
        raise BindError(
            f"tilepipe::{NAME} takes tensors of 4 dimensions; got {q.dim()}, {k.dim()} and"
            f" {v.dim()}"
        )
    torch._check(
        q.shape[3] == k.shape[3],
        lambda: f"tilepipe::{NAME}: q has a d of {q.shape[3]} and k of {k.shape[3]}",
    )
    batch, s_q, heads, _ = q.shape if layout == "bshd" else (q.shape[0], q.shape[2], q.shape[1], 0)
    return torch.empty_like(q), q.new_empty(
        (batch, heads, s_q) if return_lse else (0, 0, 0), dtype=torch.float32
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    raise BindError(
        f"tilepipe::{NAME} has no gradient, and a tensor requires one; call it under"
        " torch.no_grad(), or detach q, k and v"
    )


def _backward(ctx: Any, *grads: Any) -> tuple[None, ...]:
    return (None,) * 8  # never reached: `_setup` has refused


_library = torch.library.Library("tilepipe", "FRAGMENT")
_library.define(f"{NAME}{SCHEMA}", tags=(torch.Tag.pt2_compliant_tag,))
_library.impl(NAME, kernel, "CUDA")
torch.library.register_fake(f"tilepipe::{NAME}", _fake, lib=_library)
torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=_library)
operator = torch.ops.tilepipe.attention.default
