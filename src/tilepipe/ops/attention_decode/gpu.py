"""attention_decode of CUDA tensors: its prepared launches, and the operator
`tilepipe::attention_decode`, which PyTorch's dispatcher and compiler see. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tilepipe.errors import BindError
from tilepipe.kernels.attention_decode import sm90 as decode_kernel
from tilepipe.kernels.attention_decode.validation import NAME, Extents
from tilepipe.ops.attention_decode import simulated
from tilepipe.ops.attention_decode.call import DecodeCall, checked, config
from tilepipe.ops.attention_decode.inputs import SCHEMA, Inputs, inputs_of
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch import counters, device
from tilepipe.ops.torch.attentions import (
    NO_LSE,
    Asked,
    Results,
    both_of,
    descale_parts,
    descale_tensors,
    simulation_of_both,
)
from tilepipe.ops.torch.dispatcher import (
    autocast_beside,
    is_tracing,
    library,
    no_gradient,
    observed,
    refuse_gradient,
    register,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.simulated import with_options as with_options
from tilepipe.ops.torch.tensors import (
    TensorView,
    check_tensors,
    note_written,
    refuse_overlap,
    span,
)

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Call = DecodeCall[torch.Tensor]
# what `pick` of a plan takes
_PLACES = (
    *("q", "k", "v", "out", "lse", "lengths", "table", "k_scale", "v_scale"),
    *("parts", "part_stats", "tickets"),
)


class Plan(NamedTuple):
    """One prepared launch.

    Attributes:
        launcher: called with the addresses that `pick` takes of those of `_PLACES`; None: there is
            nothing to multiply.
        lse: shape of the logarithms. spans: bytes that q, the cache and out take.
        workspace: float32 numbers in it: O of the parts, then, from `statistics` on, their largest
            scores and totals. tickets: how many there are.
    """

    launcher: Launcher | None
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    device: torch.device
    lse: tuple[int, ...]
    spans: tuple[int, ...]
    workspace: int = 0
    statistics: int = 0
    tickets: int = 0


def attention_decode(call: Call) -> torch.Tensor | Results:
    """`ops.attention_decode` of PyTorch tensors, with all its options."""
    others = call.v_cache, call.out, *descale_tensors(call.k_descale, call.v_descale)
    refuse_gradient(NAME, call.q, call.k_cache, *others)
    if not is_tracing() and not observed(call.q, call.k_cache, *others):
        result, lse = plans.run(call)
    else:
        if call.out is None and isinstance(call.k_cache, torch.Tensor):
            call.q = autocast_beside(call.k_cache, call.q)
        _checked_tensors(call)
        result, lse = operator(*inputs_of(call))
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


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    scales, numbers = descale_parts(call.k_descale, call.v_descale)
    return (
        facts(call.q),
        facts(call.k_cache),
        facts(call.v_cache),
        facts(call.cache_seqlens),
        facts(call.block_table),
        facts(call.out),
        facts(scales[0]),
        facts(scales[1]),
    ), (
        *numbers,
        call.causal,
        call.window,
        call.scale,
        call.return_lse,
        call.settings or None,
    )


def _prepare(call: Call) -> Plan:
    found = _checked_tensors(call)
    q, ordinal = call.q, call.q.get_device()
    like = torch.empty_like(q) if call.out is None else call.out
    of_lse = (found.batch, found.heads, found.tokens) if call.return_lse else NO_LSE
    spans = tuple(span(x) for x in (q, call.k_cache, call.v_cache, like))
    if found.empty:
        return Plan(None, tuple, ordinal, q.device, of_lse, spans)
    chip = device.hopper(ordinal, NAME)
    lse = torch.empty(of_lse, dtype=torch.float32, device=q.device) if call.return_lse else None
    cfg = config(found, call, chip)
    shapes = decode_kernel.workspace_shapes(found, cfg, chip)
    parts, part_stats = (
        torch.empty(shape, dtype=torch.float32, device=q.device) for shape in shapes[:2]
    )
    q_view, k_view, v_view, out_view = map(TensorView, (q, call.k_cache, call.v_cache, like))
    views = {"q": q_view, "k_cache": k_view, "v_cache": v_view, "out": out_view}
    for name, view in views.items():
        check_in_place(NAME, name, view, written=name == "out")
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
            workspace=(TensorView(parts), TensorView(part_stats), TensorView(tickets)),
        ).launcher()
    return Plan(
        launcher,
        itemgetter(*[_PLACES.index(x) for x in launcher.tensors]),
        ordinal,
        q.device,
        of_lse,
        spans,
        parts.numel() + part_stats.numel(),
        parts.numel(),
        shapes[2][0],
    )


def _launch(plan: Plan, call: Call) -> Asked:
    q, out = call.q, call.out
    lse = None
    if call.return_lse:
        lse = torch.empty(plan.lse, dtype=torch.float32, device=plan.device)
    if out is None:
        result = torch.empty_like(q)
    else:
        read = zip(("q", "k_cache", "v_cache"), (q, call.k_cache, call.v_cache), plan.spans)  # noqa: B905
        refuse_overlap(NAME, out, plan.spans[-1], read)
        result = out
    if plan.launcher is None:
        return result.zero_(), lse if lse is None else lse.fill_(-torch.inf)
    stream = device.raw_stream(plan.ordinal)
    workspace = torch.empty(plan.workspace, dtype=torch.float32, device=plan.device)
    tickets = counters.zeros(plan.ordinal, stream, plan.tickets)
    optional = call.cache_seqlens, call.block_table, call.k_descale, call.v_descale
    places = (
        *map(data_ptr, (q, call.k_cache, call.v_cache, result)),
        0 if lse is None else lse.data_ptr(),
        *(x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in optional),
        workspace.data_ptr(),
        workspace.data_ptr() + plan.statistics * workspace.element_size(),
        tickets.data_ptr(),
    )
    plan.launcher(plan.pick(places), stream)
    if out is not None:
        note_written(out)
    return result, lse


plans: PlanCache[Call, Plan, Asked] = PlanCache(
    _key,
    _prepare,
    _launch,
    simulation_of_both(NAME, _checked_tensors, simulated.attention_decode),
)


def kernel(*given: Any, **named: Any) -> Results:
    """The operator on tensors: of `Inputs`."""
    return both_of(plans.run(Inputs(*given, **named).call))


def _fake(*given: Any, **named: Any) -> Results:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    x = Inputs(*given, **named)
    ranks = [y.dim() for y in (x.q, x.k_cache, x.v_cache)]
    if ranks != [4, 4, 4]:
        raise BindError(
            f"tilepipe::{NAME} takes tensors of 4 dimensions; got {ranks[0]}, {ranks[1]} and"
            f" {ranks[2]}"
        )
    batch, tokens, heads, _ = x.q.shape
    of_lse = (batch, heads, tokens) if x.return_lse else NO_LSE
    return torch.empty_like(x.q), x.q.new_empty(of_lse, dtype=torch.float32)


def _setup(ctx: object, inputs: tuple[object, ...], output: object) -> None:
    raise no_gradient(f"tilepipe::{NAME}")


def _backward(ctx: object, *grads: object) -> tuple[None, ...]:
    return (None,) * len(Inputs._fields)  # never reached: `_setup` has refused


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
