"""attention_decode of CUDA tensors: its prepared launches, and the operator
`tilepipe::attention_decode`, which PyTorch's dispatcher and compiler see. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import torch

from tilepipe.cuda.runtime.launching import Launcher
from tilepipe.errors import BindError
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention_decode import sm90 as decode_kernel
from tilepipe.kernels.attention_decode.validation import NAME, Extents
from tilepipe.ops.attention_decode import simulated
from tilepipe.ops.attention_decode.call import DecodeCall, checked, config
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch import counters, device
from tilepipe.ops.torch.dispatcher import (
    is_tracing,
    library,
    no_gradient,
    observed,
    refuse_gradient,
    register,
    settings_of,
    settings_text,
)
from tilepipe.ops.torch.plan_cache import PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.simulated import is_simulated, simulate, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, refuse_overlap, span

Call = DecodeCall[torch.Tensor]
Results = tuple[torch.Tensor, torch.Tensor]
SCHEMA = (
    "(Tensor q, Tensor k_cache, Tensor v_cache, Tensor? cache_seqlens=None,"
    " Tensor? block_table=None, bool causal=True, int? left=None, float? scale=None,"
    " Tensor? k_descale=None, Tensor? v_descale=None, float? k_factor=None, float? v_factor=None,"
    " bool return_lse=False, str settings='()') -> (Tensor, Tensor)"
)
# what `pick` of a plan takes
_PLACES = (
    *("q", "k", "v", "out", "lse", "lengths", "table", "k_scale", "v_scale"),
    *("parts", "part_lse", "tickets"),
)


class Plan(NamedTuple):
    """One prepared launch.

    Attributes:
        launcher: called with the addresses that `pick` takes of those of `_PLACES`; None: there is
            nothing to multiply.
        lse: shape of the logarithms. spans: bytes that q, the cache and out take.
        workspace: float32 numbers in it: O of the parts, then, from `logarithms` on, their
            logarithms. tickets: how many there are.
    """

    launcher: Launcher | None
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    device: torch.device
    lse: tuple[int, ...]
    spans: tuple[int, ...]
    workspace: int = 0
    logarithms: int = 0
    tickets: int = 0


def attention_decode(call: Call) -> torch.Tensor | Results:
    """`ops.attention_decode` of PyTorch tensors, with all its options."""
    refuse_gradient(NAME, call.q, call.k_cache, call.v_cache, call.out)
    if not is_tracing() and not observed(call.q, call.k_cache, call.v_cache, call.out):
        result, lse = plans.run(call)
    else:
        _checked_tensors(call)
        given = call.k_descale, call.v_descale
        descales = (x if isinstance(x, torch.Tensor) else None for x in given)
        factors = (None if x is None or isinstance(x, torch.Tensor) else float(x) for x in given)
        result, lse = operator(
            call.q,
            call.k_cache,
            call.v_cache,
            call.cache_seqlens,
            call.block_table,
            call.causal,
            Window.of(call.causal, call.window).left,
            None if call.scale is None else float(call.scale),
            *descales,
            *factors,
            call.return_lse,
            settings_text(call.settings),
        )
        result = result if call.out is None else call.out.copy_(result)
    return (result, lse) if call.return_lse else result


def _checked_tensors(call: Call) -> Extents:
    if isinstance(call.cache_seqlens, int):
        checked(call)  # which says what to pass
    extra = {"cache_seqlens": call.cache_seqlens, "block_table": call.block_table}
    numbers = {"k_descale": call.k_descale, "v_descale": call.v_descale}
    extra |= {name: x for name, x in numbers.items() if not isinstance(x, int | float)}
    given = {name: x for name, x in extra.items() if x is not None}
    named = {"q": call.q, "k_cache": call.k_cache, "v_cache": call.v_cache}
    check_tensors(NAME, {**named, **given, "out": call.out}, optional=1)
    return checked(call)


def _key(call: Call) -> object:
    """The key of a call's plan: all that the plan depends on."""
    return (
        facts(call.q),
        facts(call.k_cache),
        facts(call.v_cache),
        facts(call.cache_seqlens),
        facts(call.block_table),
        facts(call.out),
        *(facts(x) if isinstance(x, torch.Tensor) else x for x in (call.k_descale, call.v_descale)),
        call.causal,
        call.window,
        call.scale,
        call.return_lse,
        call.settings,
    )


def _prepare(call: Call) -> Plan:
    found = _checked_tensors(call)
    q, ordinal = call.q, call.q.get_device()
    like = torch.empty_like(q) if call.out is None else call.out
    of_lse = (found.batch, found.heads, found.tokens) if call.return_lse else (0, 0, 0)
    spans = tuple(span(x) for x in (q, call.k_cache, call.v_cache, like))
    if found.empty:
        return Plan(None, tuple, ordinal, q.device, of_lse, spans)
    chip = device.hopper(ordinal, NAME)
    lse = torch.empty(of_lse, dtype=torch.float32, device=q.device) if call.return_lse else None
    cfg = config(found, call, chip)
    shapes = decode_kernel.workspace_shapes(found, cfg, chip)
    parts, part_lse = (
        torch.empty(shape, dtype=torch.float32, device=q.device) for shape in shapes[:2]
    )
    q_view, k_view, v_view, out_view = map(TensorView, (q, call.k_cache, call.v_cache, like))
    views = {"q": q_view, "k_cache": k_view, "v_cache": v_view, "out": out_view}
    for name, view in views.items():
        check_in_place(NAME, name, view)
    lse_view, lengths, table = (
        None if x is None else TensorView(x) for x in (lse, call.cache_seqlens, call.block_table)
    )
    k_descale, v_descale = (
        TensorView(x) if isinstance(x, torch.Tensor) else x
        for x in (call.k_descale, call.v_descale)
    )
    with device.context(ordinal):
        tickets = counters.zeros(ordinal, device.raw_stream(ordinal), shapes[2][0])
        launcher = decode_kernel.bind(
            q_view,
            k_view,
            v_view,
            out_view,
            lse_view,
            cfg,
            cache_seqlens=lengths,
            block_table=table,
            causal=call.causal,
            window=call.window,
            scale=call.scale,
            k_descale=k_descale,
            v_descale=v_descale,
            workspace=(TensorView(parts), TensorView(part_lse), TensorView(tickets)),
        ).launcher()
    return Plan(
        launcher,
        itemgetter(*[_PLACES.index(x) for x in launcher.tensors]),
        ordinal,
        q.device,
        of_lse,
        spans,
        parts.numel() + part_lse.numel(),
        parts.numel(),
        shapes[2][0],
    )


def _launch(plan: Plan, call: Call) -> Results:
    q, out = call.q, call.out
    lse = torch.empty(plan.lse, dtype=torch.float32, device=plan.device)
    if out is None:
        result = torch.empty_like(q)
    else:
        read = zip(("q", "k_cache", "v_cache"), (q, call.k_cache, call.v_cache), plan.spans)  # noqa: B905
        refuse_overlap(NAME, out, plan.spans[-1], read)
        result = out
    if plan.launcher is None:
        return result.zero_(), lse.fill_(-torch.inf)
    stream = device.raw_stream(plan.ordinal)
    workspace = torch.empty(plan.workspace, dtype=torch.float32, device=plan.device)
    tickets = counters.zeros(plan.ordinal, stream, plan.tickets)
    optional = call.cache_seqlens, call.block_table, call.k_descale, call.v_descale
    places = (
        *map(data_ptr, (q, call.k_cache, call.v_cache, result, lse)),
        *(x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in optional),
        workspace.data_ptr(),
        workspace.data_ptr() + plan.logarithms * workspace.element_size(),
        tickets.data_ptr(),
    )
    plan.launcher(plan.pick(places), stream)
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)
    return result, lse


def _simulate(call: Call) -> Results | None:
    """The result, where the tensors are on the CPU."""
    if not is_simulated(call.q):
        return None
    _checked_tensors(call)
    found = simulate(NAME, call, simulated.attention_decode)
    if call.return_lse:
        result, lse = found
        return result, lse
    return found, torch.empty((0, 0, 0), dtype=torch.float32)


plans: PlanCache[Call, Plan, Results] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    causal: bool = True,
    left: int | None = None,
    scale: float | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    k_factor: float | None = None,
    v_factor: float | None = None,
    return_lse: bool = False,
    settings: str = "()",
) -> Results:
    """The operator on tensors. `left`: of the window. `k_factor`, `v_factor`: descales that are
    numbers. `settings`: the items of the configuration's fields as a Python literal.
    """
    return plans.run(
        DecodeCall(
            q, k_cache, v_cache, cache_seqlens, block_table, causal, (left, None), scale,
            k_factor if k_descale is None else k_descale,
            v_factor if v_descale is None else v_descale,
            None, return_lse, settings_of(settings),
        )
    )  # fmt: skip


def _fake(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    causal: bool = True,
    left: int | None = None,
    scale: float | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    k_factor: float | None = None,
    v_factor: float | None = None,
    return_lse: bool = False,
    settings: str = "()",
) -> Results:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    if {q.dim(), k_cache.dim(), v_cache.dim()} != {4}:
        raise BindError(
            f"tilepipe::{NAME} takes tensors of 4 dimensions; got {q.dim()}, {k_cache.dim()} and"
            f" {v_cache.dim()}"
        )
    batch, tokens, heads, _ = q.shape
    of_lse = (batch, heads, tokens) if return_lse else (0, 0, 0)
    return torch.empty_like(q), q.new_empty(of_lse, dtype=torch.float32)


def _setup(ctx: object, inputs: tuple[object, ...], output: object) -> None:
    raise no_gradient(f"tilepipe::{NAME}")


def _backward(ctx: object, *grads: object) -> tuple[None, ...]:
    return (None,) * 14  # never reached: `_setup` has refused


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
