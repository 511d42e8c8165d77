"""attention of CUDA tensors: its prepared launches, and the operator `tilepipe::attention`, which
PyTorch's dispatcher and compiler see.

Where a tensor requires a gradient, the operator keeps the logarithms, from which
`tilepipe::attention_backward` computes it. Options that this does not know of are refused, so that
nothing is lost in silence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tilepipe.errors import BindError
from tilepipe.kernels.attention import sm90_bind as attention_kernel
from tilepipe.kernels.attention.block_mask import (
    bind_lists,
    lists_shape,
)
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.validation import NAME, Extents
from tilepipe.kernels.attention.values import bind_turn, turned_shape
from tilepipe.kernels.attention_backward.config import DEPTHS
from tilepipe.ops.attention import simulated
from tilepipe.ops.attention.call import (
    AttentionCall,
    checked,
    config,
    heads_third,
    lse_shape,
    result_shape,
)
from tilepipe.ops.attention.descales import spread
from tilepipe.ops.attention.inputs import SCHEMA, Inputs, inputs_of
from tilepipe.ops.attention_backward.gpu import (
    kernel as backward_kernel,
    operator as backward_operator,
)
from tilepipe.ops.calls import Shape
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch import counters, device
from tilepipe.ops.torch.attentions import (
    NO_LSE,
    Results,
    descale_tensors,
    simulation_of_both,
)
from tilepipe.ops.torch.dispatcher import (
    autocast,
    is_tracing,
    library,
    observed,
    register,
    wants_gradient,
)
from tilepipe.ops.torch.plan_cache import PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.simulated import with_options as with_options
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
Options = tuple[bool, float | None, str, str]  # causal, scale, align, layout
E4M3 = torch.float8_e4m3fn
_NO_WINDOW = tuple(itertools.product((None, -1), repeat=2))  # bounds that bound nothing


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
        launcher: called with the addresses of what `pick` takes of the tensors by the names of the
            kernel's arguments; None: there is nothing to multiply.
        shape, stride, dtype, device: of a new result. lse: shape of the logarithms. spans: bytes
            that q, k, v and out take. dynamic: True if CTAs draw their tiles from a counter.
        lists: what lists the tiles of keys under a block mask, before `launcher`.
        turning: where the kernel takes v as `values.turned` gives it.
    """

    launcher: Launcher | None
    pick: Callable[[dict[str, torch.Tensor | None]], tuple[torch.Tensor, ...]]
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


def attention(call: Call) -> torch.Tensor | Results:
    """`ops.attention` of PyTorch tensors, with all its options."""
    call = spread(call, _tensor_of_heads(call.q))
    others = call.slopes, call.sinks, call.out, *_descales(call)
    both = call.return_lse
    differentiate = wants_gradient(call.q, call.k, call.v, *others)
    if differentiate:
        _cast(call)
        lacking = _without_gradient(call)
        if lacking is not None:
            _checked_tensors(call)  # what is wrong with the call itself is said first
            raise _no_gradient(lacking)
        call.return_lse = True
    if is_tracing() or observed(call.q, call.k, call.v, *others):
        result, lse = _dispatched(call)
    elif differentiate:
        result, lse = Recorded.apply(call.q, call.k, call.v, call)
    else:
        result, lse = plans.run(call)
    return (result, lse) if both else result


def _descales(call: Call) -> tuple[torch.Tensor | None, ...]:
    """The descales of a call, of which `spread` has made tensors."""
    return descale_tensors(call.q_descale, call.k_descale, call.v_descale)


def _tensor_of_heads(q: object) -> Callable[[Any, tuple[int, int]], torch.Tensor]:
    """As `spread` takes it. A number is written on the device in the current stream, and is no part
    of a plan's key: it may change with each call.
    """

    def made(x: Any, wanted: tuple[int, int]) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            return x.expand(wanted).contiguous()
        device = q.device if isinstance(q, torch.Tensor) else None
        return torch.full(wanted, x, dtype=torch.float32, device=device)

    return made


def _without_gradient(call: Call) -> str | None:
    """The option or the heads of a call that the gradients do not know of; None: there are none."""
    q, v = getattr(call.q, "shape", ()), getattr(call.v, "shape", ())
    if call.score is not None:
        return "a score function"
    if call.out is not None:
        return "out="
    if call.window is not None and call.window not in _NO_WINDOW:
        return "window="
    if call.softcap != 0:
        return "softcap="
    if call.slopes is not None:
        return "slopes="
    if call.sinks is not None:
        return "sinks="
    if call.cu_seqlens_q is not None or call.cu_seqlens_k is not None:
        return "packed sequences (cu_seqlens_q=)"
    if call.block_mask is not None:
        return "block_mask="
    if getattr(call.q, "dtype", None) is E4M3:
        return "operands of float8_e4m3"
    wide = max(*q[-1:], *v[-1:], 0)
    return f"heads of {wide} elements, above {DEPTHS[-1]}" if wide > DEPTHS[-1] else None


def _no_gradient(what: str) -> BindError:
    return BindError(
        f"{NAME}: there is no gradient with {what}, and an operand requires one. Leave it out,"
        " detach the operands, or call it under torch.no_grad()"
    )


def _cast(call: Call) -> None:
    """Casts q, k and v as torch.autocast asks, where it is enabled."""
    given = isinstance(call.q, torch.Tensor) and call.out is None
    if given and call.q.dtype != E4M3 and torch.is_autocast_enabled("cuda"):
        call.q, call.k, call.v = autocast(call.q), autocast(call.k), autocast(call.v)


def _dispatched(call: Call) -> Results:
    _cast(call)
    _checked_tensors(call)
    if call.score is not None:
        raise BindError(
            f"{NAME}: a score function is traced into a kernel of its own, which PyTorch's"
            " dispatcher cannot carry: call it outside of torch.compile, modes and subclasses"
        )
    result, lse = operator(*inputs_of(call))
    return (result if call.out is None else _copied(result, call.out, call.cu_seqlens_q)), lse


def _copied(result: torch.Tensor, out: torch.Tensor, bounds: torch.Tensor | None) -> torch.Tensor:
    """`out` with `result` in it; rows that are in no packed sequence keep what they have."""
    if bounds is None:
        return out.copy_(result)
    return out.copy_(torch.where(_in_sequences(bounds, out), result, out))


def _in_sequences(bounds: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """(total_q, 1, 1): which rows of `out` are in a packed sequence."""
    row = torch.arange(out.shape[0], device=out.device)
    return ((row >= bounds[0]) & (row < bounds[-1]))[:, None, None]


def _checked_tensors(call: Call) -> Extents:
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


def _key(call: Call) -> object:
    """The key of a call's plan: all that the plan depends on."""
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
        call.out_dtype,
        # settings depend on its magnitude alone
        None if call.max_seqlen_k is None else (call.max_seqlen_k - 1).bit_length(),
        facts(call.block_mask),
        call.block_size,
        call.align,
        call.causal,
        call.window,
        call.scale,
        call.softcap,
        call.score,
        call.return_lse,
        call.layout,
        call.settings,
    )


def _prepare(call: Call) -> Plan:
    found = _checked_tensors(call)
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
        check_in_place(NAME, name, TensorView(x))
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
    pick = itemgetter(*launcher.tensors)
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


def _launch(plan: Plan, call: Call) -> Results:
    q, k, v, out = call.q, call.k, call.v, call.out
    lse = torch.empty(plan.lse, dtype=torch.float32, device=plan.device)
    if out is None:
        result = torch.empty_strided(plan.shape, plan.stride, dtype=plan.dtype, device=plan.device)
    else:
        refuse_overlap(NAME, out, plan.spans[-1], zip("qkv", (q, k, v), plan.spans, strict=False))
        result = out
    if plan.launcher is None:
        _no_keys(result, call)
        lse.fill_(-torch.inf)
        if call.sinks is not None and call.return_lse:
            lse.copy_(call.sinks[:, None].expand_as(lse))
        return result, lse
    stream = device.raw_stream(plan.ordinal)
    lists = None
    if plan.lists is not None and call.block_mask is not None:
        lists = plan.lists.write(call.block_mask, stream)
    if plan.turning is not None:
        v = plan.turning.write(v, stream)
    q_scales, k_scales, v_scales = _descales(call)
    tensors = {
        "q": q,
        "k": k,
        "v": v,
        "out": result,
        "lse": lse,
        "slopes": call.slopes,
        "sinks": call.sinks,
        "q_bounds": call.cu_seqlens_q,
        "k_bounds": call.cu_seqlens_k,
        "key_lists": lists,
        "counter": counters.counter(plan.ordinal, stream) if plan.dynamic else None,
        "q_scales": q_scales,
        "k_scales": k_scales,
        "v_scales": v_scales,
    }
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
    result.masked_fill_(_in_sequences(bounds, result), 0)


plans: PlanCache[Call, Plan, Results] = PlanCache(
    _key, _prepare, _launch, simulation_of_both(NAME, _checked_tensors, simulated.attention)
)


def kernel(*given: Any, **named: Any) -> Results:
    """The operator on tensors: of `Inputs`."""
    return plans.run(Inputs(*given, **named).call)


def _fake(*given: Any, **named: Any) -> Results:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    x = Inputs(*given, **named)
    q, k, v = x.q, x.k, x.v
    rank = 4 if x.cu_seqlens_q is None else 3
    if {q.dim(), k.dim(), v.dim()} != {rank}:
        raise BindError(
            f"tilepipe::{NAME} takes tensors of {rank} dimensions; got {q.dim()}, {k.dim()} and"
            f" {v.dim()}"
        )
    torch._check(
        q.shape[-1] == k.shape[-1],
        lambda: f"tilepipe::{NAME}: q has a d of {q.shape[-1]} and k of {k.shape[-1]}",
    )
    *batch, s_q, heads, _ = q.shape
    if x.layout != "bshd":
        s_q, heads = heads, s_q
    same = v.shape[-1] == q.shape[-1]
    dtype = q.dtype if q.dtype != E4M3 else x.out_dtype or torch.bfloat16
    shape = (*q.shape[:-1], v.shape[-1])
    result = torch.empty_like(q, dtype=dtype) if same else q.new_empty(shape, dtype=dtype)
    return result, q.new_empty(
        (*batch, heads, s_q) if x.return_lse else NO_LSE, dtype=torch.float32
    )


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """What the forward pass keeps for the gradients."""

    saved_tensors: tuple[torch.Tensor, ...]
    options: Options


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """The operator under eager autograd and nothing else, without the dispatcher's cost."""

    @staticmethod
    def forward(
        ctx: Context, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: Call
    ) -> Results:
        """The result and its logarithms, of the call that has q, k and v."""
        found = plans.run(given)
        _keep(ctx, (q, k, v, *found), (given.causal, given.scale, given.align, given.layout))
        return found

    @staticmethod
    def backward(
        ctx: Context, dout: torch.Tensor | None, dlse: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of q, k and v."""
        return (*_backward(ctx, dout, dlse)[:3], None)


def _keep(ctx: Context, tensors: tuple[torch.Tensor, ...], options: Options) -> None:
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)
    ctx.options = options


def _setup(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    x = Inputs(*inputs)
    lacking = _without_gradient(x.call)
    if lacking is not None:
        raise _no_gradient(lacking)
    if not x.return_lse:
        raise BindError(
            f"tilepipe::{NAME}: the gradients need the logarithms: call tilepipe.ops.{NAME}, or"
            " pass return_lse=True"
        )
    _keep(ctx, (x.q, x.k, x.v, *output), (x.causal, x.scale, x.align, x.layout))


def _backward(
    ctx: Context, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    rest = (None,) * (len(Inputs._fields) - 3)
    if dout is None and dlse is None:
        return None, None, None, *rest
    q, k, v, out, lse = ctx.saved_tensors
    causal, scale, align, layout = ctx.options
    dout = torch.zeros_like(out) if dout is None else dout
    # As an operator where somebody looks on, or differentiates again, which it refuses.
    looked_at = torch.is_grad_enabled() or is_tracing() or observed(q, k, v, out, dout, dlse)
    gradients = backward_operator if looked_at else backward_kernel
    grads = gradients(
        dout, q, k, v, out, lse, dlse,
        causal, scale, align, torch.are_deterministic_algorithms_enabled(), layout,
    )  # fmt: skip
    return *grads, *rest


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(f"tilepipe::{NAME}", _backward, setup_context=_setup, lib=library)
