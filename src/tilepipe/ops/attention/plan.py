"""The prepared launches of attention on CUDA tensors, each kept for calls of its kind."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import torch

from tilepipe.kernels.attention import sm90_bind as attention_kernel
from tilepipe.kernels.attention.block_mask import bind_lists, lists_shape
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.validation import NAME, Extents
from tilepipe.kernels.attention.values import bind_turn, turned_shape
from tilepipe.ops.attention import simulated
from tilepipe.ops.attention.call import (
    AttentionCall,
    checked,
    config,
    heads_third,
    lse_shape,
    result_shape,
)
from tilepipe.ops.calls import Shape
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch import counters, device
from tilepipe.ops.torch.attentions import (
    NO_LSE,
    Asked,
    descale_tensors,
    simulation_of_both,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.tensors import (
    TensorView,
    check_tensors,
    note_written,
    refuse_overlap,
    span,
    torch_dtype,
)

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Call = AttentionCall[torch.Tensor]
# what `pick` of a plan takes
_PLACES = (
    *("q", "k", "v", "out", "lse", "slopes", "sinks", "q_bounds", "k_bounds"),
    *("key_lists", "counter", "q_scales", "k_scales", "v_scales"),
)


class Turning(NamedTuple):
    """The launch that turns v of 8 bits before the attention.

    Attributes:
        launcher: called with the addresses of v and of the result, in the order of `places`.
        shape: of the result, of the dtype of v.
    """

    launcher: Launcher
    places: tuple[int, ...]
    shape: Shape

    def write(self, v: torch.Tensor, stream: int) -> torch.Tensor:
        """The turned values, which are there for launches after this one."""
        made = torch.empty(self.shape, dtype=v.dtype, device=v.device)
        addresses = v.data_ptr(), made.data_ptr()
        self.launcher(tuple(addresses[i] for i in self.places), stream)
        return made


class Plan(NamedTuple):
    """One prepared attention.

    Attributes:
        launcher: called with the addresses of what `pick` takes of the tensors at `_PLACES`; None:
            there is nothing to multiply.
        shape, stride, dtype, device: of a new result. lse: shape of the logarithms. spans: bytes
            that q, k, v and out take. dynamic: True if CTAs draw their tiles from a counter.
        lists: what lists the tiles of keys under a block mask, before `launcher`.
        turning: where the kernel takes v as `values.turned` gives it.
    """

    launcher: Launcher | None
    pick: Callable[[tuple[torch.Tensor | None, ...]], tuple[torch.Tensor, ...]]
    ordinal: int
    shape: Shape
    stride: Shape
    dtype: torch.dtype
    device: torch.device
    lse: Shape
    spans: tuple[int, ...]
    dynamic: bool = False
    lists: Lists | None = None
    turning: Turning | None = None


class Lists(NamedTuple):
    """The launch that turns a block mask into lists of tiles of keys.

    Attributes:
        launcher: called with the addresses of mask and lists, in the order of `places`.
        shape: of the lists, int32.
    """

    launcher: Launcher
    places: tuple[int, ...]
    shape: Shape

    def write(self, mask: torch.Tensor, stream: int) -> torch.Tensor:
        """New lists of a mask, which are there for launches after this one."""
        lists = torch.empty(self.shape, dtype=torch.int32, device=mask.device)
        addresses = mask.data_ptr(), lists.data_ptr()
        self.launcher(tuple(addresses[i] for i in self.places), stream)
        return lists


def descales(call: Call) -> tuple[torch.Tensor | None, ...]:
    """The descales of a call, of which `spread` has made tensors."""
    return descale_tensors(call.q_descale, call.k_descale, call.v_descale)


def in_sequences(bounds: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """(total_q, 1, 1): which rows of `out` are in a packed sequence."""
    row = torch.arange(out.shape[0], device=out.device)
    return ((row >= bounds[0]) & (row < bounds[-1]))[:, None, None]


def checked_tensors(call: Call) -> Extents:
    """The extents of a call, whose operands are tensors on one device.

    Raises:
        BindError: as the operation.
    """
    extra = {
        "slopes": call.slopes,
        "sinks": call.sinks,
        "cu_seqlens_q": call.cu_seqlens_q,
        "cu_seqlens_k": call.cu_seqlens_k,
        "block_mask": call.block_mask,
        "q_descale": call.q_descale,
        "k_descale": call.k_descale,
        "v_descale": call.v_descale,
    }
    given = {name: x for name, x in extra.items() if x is not None}
    named = {"q": call.q, "k": call.k, "v": call.v, **given, "out": call.out}
    check_tensors(NAME, named, optional=1)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    longest = call.max_seqlen_k
    return (
        facts(call.q),
        facts(call.k),
        facts(call.v),
        facts(call.out),
        facts(call.slopes),
        facts(call.sinks),
        facts(call.cu_seqlens_q),
        facts(call.cu_seqlens_k),
        facts(call.q_descale),
        facts(call.k_descale),
        facts(call.v_descale),
        facts(call.block_mask),
    ), (
        call.out_dtype,
        # settings depend on its magnitude alone
        None if longest is None else (type(longest), (longest - 1).bit_length()),
        None if call.block_mask is None else call.block_size,
        call.align,
        call.causal,
        call.window,
        call.scale,
        call.softcap,
        call.score,
        call.return_lse,
        call.layout,
        call.settings or None,
    )


def _prepare(call: Call) -> Plan:
    found = checked_tensors(call)
    q, out = call.q, call.out
    ordinal = q.get_device()
    like = _new(q, found, call.layout) if out is None else out
    of_lse = lse_shape(found) if call.return_lse else NO_LSE
    spans = tuple(span(x) for x in (q, call.k, call.v, out))
    parts = ordinal, tuple(like.shape), tuple(like.stride()), like.dtype, q.device, of_lse, spans
    if found.empty:
        return Plan(None, tuple, *parts)
    chip = device.hopper(ordinal, NAME)
    for name, x in {"q": q, "k": call.k, "v": call.v, "out": like}.items():
        check_in_place(NAME, name, TensorView(x), written=name == "out")
    lse = None
    if call.return_lse:
        lse = TensorView(torch.empty(of_lse, dtype=torch.float32, device=q.device))
    views = (heads_third(TensorView(x), call.layout) for x in (q, call.k, call.v, like))
    q_view, k_view, v_view, out_view = views
    slopes, sinks, q_bounds, k_bounds, q_scales, k_scales, v_scales = (
        None if x is None else TensorView(x)
        for x in (
            call.slopes, call.sinks, call.cu_seqlens_q, call.cu_seqlens_k, call.q_descale,
            call.k_descale, call.v_descale,
        )
    )  # fmt: skip
    cfg = config(found, call, chip)
    counter = lists = key_lists = turning = None
    with device.context(ordinal):
        if call.block_mask is not None:
            lists, key_lists = _lists(call.block_mask, found, call, cfg)
        if found.narrow:
            turning, v_view = _turning(call)
        if cfg.schedule == "dynamic":
            counter = TensorView(counters.counter(ordinal, device.raw_stream(ordinal)))
        launcher = attention_kernel.bind(
            q_view,
            k_view,
            v_view,
            out_view,
            lse,
            cfg,
            causal=call.causal,
            window=call.window,
            scale=found.scale,
            softcap=call.softcap,
            slopes=slopes,
            sinks=sinks,
            score=call.score,
            align=call.align,
            cu_seqlens_q=q_bounds,
            cu_seqlens_k=k_bounds,
            key_lists=key_lists,
            counter=counter,
            q_scales=q_scales,
            k_scales=k_scales,
            v_scales=v_scales,
        ).launcher()
    pick = itemgetter(*[_PLACES.index(name) for name in launcher.tensors])
    return Plan(launcher, pick, *parts, dynamic=counter is not None, lists=lists, turning=turning)


def _lists(
    mask: torch.Tensor, found: Extents, call: Call, cfg: AttentionConfig
) -> tuple[Lists, TensorView]:
    """What lists the tiles of keys under a mask, and lists for `bind` to look at."""
    shape = lists_shape(TensorView(mask), found, cfg)
    view = TensorView(torch.empty(shape, dtype=torch.int32, device=mask.device))
    program = bind_lists(TensorView(mask), view, found, call.seen, cfg, call.block_size)
    launcher = program.launcher()
    places = tuple(("mask", "lists").index(name) for name in launcher.tensors)
    return Lists(launcher, places, shape), view


def _turning(call: Call) -> tuple[Turning, TensorView]:
    """How v of 8 bits is turned, and what the kernel is bound to in its place."""
    v = heads_third(TensorView(call.v.view(torch.uint8)), call.layout)
    batch, s_kv, kv_heads, d_v = v.shape
    made = call.v.new_empty(turned_shape(batch, s_kv, kv_heads, d_v))
    launcher = bind_turn(v, TensorView(made.view(torch.uint32))).launcher()
    places = tuple(("v", "out").index(name) for name in launcher.tensors)
    return Turning(launcher, places, tuple(made.shape)), TensorView(made)


def _new(q: torch.Tensor, found: Extents, layout: str) -> torch.Tensor:
    """A new result: laid out as q, or contiguous where the heads of v have another size."""
    dtype = torch_dtype(found.out_dtype)
    if found.d == found.d_v:
        return torch.empty_like(q, dtype=dtype)
    return q.new_empty(result_shape(found, layout), dtype=dtype)


def _launch(plan: Plan, call: Call) -> Asked:
    q, k, v, out = call.q, call.k, call.v, call.out
    lse = None
    if call.return_lse:
        lse = torch.empty(plan.lse, dtype=torch.float32, device=plan.device)
    if out is None:
        result = torch.empty_strided(plan.shape, plan.stride, dtype=plan.dtype, device=plan.device)
    else:
        refuse_overlap(NAME, out, plan.spans[-1], zip("qkv", (q, k, v), plan.spans, strict=False))
        result = out
    if plan.launcher is None:
        _no_keys(result, call)
        if lse is not None:
            lse.fill_(-torch.inf)
            if call.sinks is not None:
                lse.copy_(call.sinks[:, None].expand_as(lse))
        return result, lse
    stream = device.raw_stream(plan.ordinal)
    lists = None
    if plan.lists is not None and call.block_mask is not None:
        lists = plan.lists.write(call.block_mask, stream)
    if plan.turning is not None:
        v = plan.turning.write(v, stream)
    tensors = (
        q,
        k,
        v,
        result,
        lse,
        call.slopes,
        call.sinks,
        call.cu_seqlens_q,
        call.cu_seqlens_k,
        lists,
        counters.counter(plan.ordinal, stream) if plan.dynamic else None,
        call.q_descale,
        call.k_descale,
        call.v_descale,
    )
    plan.launcher(tuple(map(data_ptr, plan.pick(tensors))), stream)
    if out is not None:
        note_written(out)
    return result, lse


def _no_keys(result: torch.Tensor, call: Call) -> None:
    """Writes 0 where no query sees a key: everywhere, or in the rows that sequences have."""
    bounds = call.cu_seqlens_q
    if bounds is None:
        result.zero_()
        return
    result.masked_fill_(in_sequences(bounds, result), 0)


plans: PlanCache[Call, Plan, Asked] = PlanCache(
    _key, _prepare, _launch, simulation_of_both(NAME, checked_tensors, simulated.attention)
)
