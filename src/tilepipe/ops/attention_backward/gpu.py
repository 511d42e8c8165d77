"""attention_backward of PyTorch tensors: its prepared launches, and the operator
`tilepipe::attention_backward`, which PyTorch's dispatcher and compiler see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

import torch

from tilepipe.errors import BindError
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward.sm90_bind import Workspace
from tilepipe.kernels.attention_backward.validation import NAME
from tilepipe.ops.attention_backward import simulated
from tilepipe.ops.attention_backward.call import BackwardCall, checked, steps
from tilepipe.ops.in_place import check_in_place
from tilepipe.ops.torch import device
from tilepipe.ops.torch.dispatcher import (
    is_tracing,
    library,
    observed,
    refuse_gradient,
    register,
)
from tilepipe.ops.torch.plan_cache import MISALIGNED, Key, PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.simulated import simulate, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Tensor: TypeAlias = torch.Tensor
Call = BackwardCall[torch.Tensor]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SCHEMA = (
    "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? dlse=None,"
    " bool causal=False, float? scale=None, str align='last', bool deterministic=False,"
    " str layout='bshd') -> (Tensor, Tensor, Tensor)"
)
_PARTS = tuple(field.name for field in fields(Workspace))
# what `pick` of a launch takes
_PLACES = (*("q", "k", "v", "out", "dout", "lse", "dlse", "dq", "dk", "dv"), *_PARTS)
PART = 512  # bytes of which each part of the workspace begins at a multiple, as PyTorch's tensors
Addresses = tuple[int, ...]


class Plan(NamedTuple):
    """The prepared launches of one call.

    Attributes:
        launches: each a launcher, and what takes the addresses for it of those of `_PLACES`; none
            where there is nothing to multiply.
        copied: whether dout, and dlse, must be copied before the kernels can read them.
        workspace: its bytes. parts: where in it those of `_PARTS` begin.
    """

    launches: tuple[tuple[Launcher, Callable[[Addresses], Addresses]], ...]
    ordinal: int
    device: torch.device
    copied: tuple[bool, bool]
    workspace: int = 0
    parts: tuple[int, ...] = ()


def attention_backward(call: Call) -> Gradients:
    """`ops.attention_backward` of tensors."""
    given = call.dout, call.q, call.k, call.v, call.out, call.lse, call.dlse
    refuse_gradient(NAME, *given)
    if not is_tracing() and not observed(*given):
        return plans.run(call)
    _checked_tensors(call)
    scale = None if call.scale is None else float(call.scale)
    found: Gradients = operator(
        *given, call.causal, scale, call.align, call.deterministic, call.layout
    )
    return found


def _checked_tensors(call: Call) -> Extents:
    check_tensors(NAME, call.given)
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    options = call.causal, call.scale, call.align, call.deterministic, call.layout
    return (
        facts(call.q),
        facts(call.k),
        facts(call.v),
        facts(call.out),
        facts(call.dout),
        facts(call.lse),
        facts(call.dlse),
    ), options


def _prepare(call: Call) -> Plan:
    found = _checked_tensors(call)
    ordinal, place = call.q.get_device(), call.q.device
    copied = _copied(call)
    if found.empty:
        return Plan((), ordinal, place, copied)
    chip = device.hopper(ordinal, NAME)
    for name in ("q", "k", "v"):
        check_in_place(NAME, name, TensorView(call.given[name]))
    call = _laid_out(call, copied)

    def empty(shape: tuple[int, ...], dtype: str) -> Tensor:
        return torch.empty(shape, dtype=getattr(torch, dtype), device=place)

    space = vars(Workspace.of(found, call.deterministic, empty))
    sizes = [0 if (x := space[name]) is None else x.untyped_storage().nbytes() for name in _PARTS]
    parts = list(accumulate((-(-size // PART) * PART for size in sizes), initial=0))
    tensors = call.given | space
    tensors |= {f"d{name}": torch.empty_like(tensors[name]) for name in ("q", "k", "v")}
    views = {name: TensorView(x) for name, x in tensors.items() if x is not None}
    launches = []
    with device.context(ordinal):
        for bind in steps(call, found):
            launcher = bind(views, chip).launcher()
            pick = itemgetter(*[_PLACES.index(name) for name in launcher.tensors])
            launches.append((launcher, pick))
    return Plan(tuple(launches), ordinal, place, copied, parts[-1], tuple(parts[:-1]))


def _launch(plan: Plan, call: Call) -> Gradients:
    q, k, v = call.q, call.k, call.v
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if not plan.launches:
        return dq.zero_(), dk.zero_(), dv.zero_()
    if any(plan.copied):
        call = _laid_out(call, plan.copied)
    workspace = torch.empty(plan.workspace, dtype=torch.uint8, device=plan.device)
    first, dlse = workspace.data_ptr(), call.dlse
    places = (
        *map(data_ptr, (q, k, v, call.out, call.dout, call.lse)),
        0 if dlse is None else dlse.data_ptr(),
        *map(data_ptr, (dq, dk, dv)),
        *[first + part for part in plan.parts],
    )
    stream = device.raw_stream(plan.ordinal)
    for launcher, pick in plan.launches:
        launcher(pick(places), stream)
    return dq, dk, dv


def _copied(call: Call) -> tuple[bool, bool]:
    """Whether dout and dlse lie so that the kernels cannot read them: the gradient of a sum is one
    number, expanded.
    """
    dout, dlse = call.dout, call.dlse
    unit = 16 // dout.element_size()
    outer = zip(dout.stride()[:-1], dout.shape[:-1], strict=True)
    taken = dout.stride(-1) == 1 and all(s > 0 and s % unit == 0 for s, n in outer if n > 1)
    taken = taken and dout.data_ptr() & MISALIGNED == 0
    return not taken, dlse is not None and not dlse.is_contiguous()


def _laid_out(call: Call, copied: tuple[bool, bool]) -> Call:
    """The call with copies of dout and dlse, as asked, that the kernels can read."""
    dout, dlse = call.dout, call.dlse
    if copied[0]:
        dout = torch.empty_like(call.out).copy_(dout)
    if copied[1] and dlse is not None:
        dlse = dlse.contiguous()
    return replace(call, dout=dout, dlse=dlse)


def _simulated(call: Call) -> Gradients | None:
    """The gradients of tensors on the CPU; None of others."""
    if not device.simulates(call.q):
        return None
    _checked_tensors(call)
    call = _laid_out(call, _copied(call))
    found: Gradients = simulate(NAME, call, simulated.attention_backward, reads_out=True)
    return found


plans: PlanCache[Call, Plan, Gradients] = PlanCache(_key, _prepare, _launch, _simulated)


def kernel(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    deterministic: bool = False,
    layout: str = "bshd",
) -> Gradients:
    """The operator on tensors."""
    return plans.run(
        BackwardCall(dout, q, k, v, out, lse, dlse, causal, scale, align, deterministic, layout)
    )


def _fake(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    dlse: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    deterministic: bool = False,
    layout: str = "bshd",
) -> Gradients:
    """Shapes, strides and dtypes of the results, for tensors without data."""
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep_nothing(ctx: object, inputs: tuple[object, ...], output: object) -> None:
    """A gradient may be computed with create_graph=True, as long as nobody differentiates it."""


def _second(ctx: object, *grads: object) -> NoReturn:
    raise BindError(
        f"{NAME}: the gradients of attention have no gradients themselves, and a loss that contains"
        " them is being differentiated: detach them, or compute attention by"
        " torch.nn.functional.scaled_dot_product_attention with its math backend"
    )


operator = register(NAME, SCHEMA, kernel, _fake)
torch.library.register_autograd(
    f"tilepipe::{NAME}", _second, setup_context=_keep_nothing, lib=library
)
