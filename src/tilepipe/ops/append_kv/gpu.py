"""append_kv of CUDA tensors: its prepared launches, and the operator `tilepipe::append_kv`, which
PyTorch's dispatcher and compiler see. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import torch

from tilepipe.kernels.append_kv import sm90 as append_kernel
from tilepipe.kernels.append_kv.validation import NAME, Extents
from tilepipe.ops.append_kv import simulated
from tilepipe.ops.append_kv.call import OTHERS, AppendCall, checked
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.torch import device
from tilepipe.ops.torch.attentions import descale_parts, descale_tensors
from tilepipe.ops.torch.dispatcher import (
    is_tracing,
    observed,
    refuse_gradient,
    register,
)
from tilepipe.ops.torch.plan_cache import Key, PlanCache, facts
from tilepipe.ops.torch.products import data_ptr
from tilepipe.ops.torch.simulated import simulate, with_options as with_options
from tilepipe.ops.torch.tensors import TensorView, check_tensors, note_written, refuse_overlap, span

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Call = AppendCall[torch.Tensor]
SCHEMA = (
    "(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, Tensor cache_seqlens,"
    " Tensor? block_table=None, Tensor? k_descale=None, Tensor? v_descale=None,"
    " float? k_factor=None, float? v_factor=None) -> ()"
)
_NAMES = "k_cache", "v_cache", "k", "v", *OTHERS
# what `pick` of a plan takes
_PLACES = "k_cache", "v_cache", "k", "v", "lengths", "table", "k_scale", "v_scale"


class Plan(NamedTuple):
    """One prepared launch.

    Attributes:
        launcher: called with the addresses that `pick` takes of those of `_PLACES`; None: there is
            nothing to write.
        spans: bytes that each of `_NAMES` takes; 0: it is no tensor.
    """

    launcher: Launcher | None
    pick: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    spans: tuple[int, ...]


def append_kv(call: Call) -> None:
    """`ops.append_kv` of PyTorch tensors, with all its options."""
    others = call.v_cache, call.k, call.v, *descale_tensors(call.k_descale, call.v_descale)
    refuse_gradient(NAME, call.k_cache, *others)
    if not is_tracing() and not observed(call.k_cache, *others):
        plans.run(call)
        return
    _checked_tensors(call)
    numbers = (None if isinstance(x, torch.Tensor) else x for x in (call.k_descale, call.v_descale))
    operator(
        *(call.k_cache, call.v_cache, call.k, call.v, call.cache_seqlens, call.block_table),
        *descale_tensors(call.k_descale, call.v_descale),
        *(None if x is None else float(x) for x in numbers),
    )


def _checked_tensors(call: Call) -> Extents:
    named: dict[str, object] = {"k_cache": call.k_cache, "v_cache": call.v_cache}
    named |= {"k": call.k, "v": call.v}
    if not isinstance(call.cache_seqlens, int | None):  # of which `checked` says what to pass
        named["cache_seqlens"] = call.cache_seqlens
    extra = {"block_table": call.block_table}
    numbers = {"k_descale": call.k_descale, "v_descale": call.v_descale}
    extra |= {name: x for name, x in numbers.items() if not isinstance(x, int | float)}
    check_tensors(NAME, named | {name: x for name, x in extra.items() if x is not None})
    return checked(call)


def _key(call: Call) -> Key:
    """The key of a call's plan: all that the plan depends on."""
    scales, numbers = descale_parts(call.k_descale, call.v_descale)
    return (
        facts(call.k_cache),
        facts(call.v_cache),
        facts(call.k),
        facts(call.v),
        facts(call.cache_seqlens),
        facts(call.block_table),
        facts(scales[0]),
        facts(scales[1]),
    ), numbers


def _prepare(call: Call) -> Plan:
    found = _checked_tensors(call)
    ordinal = call.k.get_device()
    sides = call.k_cache, call.v_cache, call.k, call.v
    others = (getattr(call, name) for name in OTHERS)
    spans = tuple(span(x if isinstance(x, torch.Tensor) else None) for x in (*sides, *others))
    if found.empty:
        return Plan(None, tuple, ordinal, spans)
    chip = device.hopper(ordinal, NAME)
    k_cache, v_cache, k, v = map(TensorView, sides)
    table = None if call.block_table is None else TensorView(call.block_table)
    k_descale, v_descale = (
        TensorView(x) if isinstance(x, torch.Tensor) else x
        for x in (call.k_descale, call.v_descale)
    )
    with device.context(ordinal):
        launcher = append_kernel.bind(
            k_cache,
            v_cache,
            k,
            v,
            TensorView(call.cache_seqlens),
            block_table=table,
            k_descale=k_descale,
            v_descale=v_descale,
            chip=chip,
        ).launcher()
    pick = itemgetter(*[_PLACES.index(x) for x in launcher.tensors])
    return Plan(launcher, pick, ordinal, spans)


def _launch(plan: Plan, call: Call) -> bool:
    if plan.launcher is None:
        return True
    sides = call.k_cache, call.v_cache, call.k, call.v
    optional = call.block_table, call.k_descale, call.v_descale
    given = (*sides, call.cache_seqlens, *optional)
    named = [x for x in zip(_NAMES, given, plan.spans) if x[2]]  # noqa: B905
    for i, (name, cache, nbytes) in enumerate(named[:2]):
        refuse_overlap(NAME, cache, nbytes, named[i + 1 :], name, ("v_cache",))
    places = (
        *map(data_ptr, (*sides, call.cache_seqlens)),
        *(x.data_ptr() if isinstance(x, torch.Tensor) else 0 for x in optional),
    )
    plan.launcher(plan.pick(places), device.raw_stream(plan.ordinal))
    note_written(call.k_cache)
    note_written(call.v_cache)
    return True


def _simulate(call: Call) -> bool | None:
    """Runs a call whose tensors are on the CPU; None of others."""
    if not device.simulates(call.k):
        return None
    _checked_tensors(call)

    def run(arrays: AppendCall[Array], seed: int, progress: Progress | None) -> Array:
        simulated.append_kv(arrays, seed, progress)
        return arrays.k_cache

    simulate(NAME, call, run)
    note_written(call.k_cache)
    note_written(call.v_cache)
    return True


plans: PlanCache[Call, Plan, bool] = PlanCache(_key, _prepare, _launch, _simulate)


def kernel(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    k_factor: float | None = None,
    v_factor: float | None = None,
) -> None:
    """The operator on tensors. `k_factor`, `v_factor`: descales that are numbers."""
    descales = (
        k_factor if k_descale is None else k_descale,
        v_factor if v_descale is None else v_descale,
    )
    plans.run(AppendCall(k_cache, v_cache, k, v, cache_seqlens, block_table, *descales))


def _fake(*given: object, **named: object) -> None:
    """It has no results."""


operator = register(NAME, SCHEMA, kernel, _fake)
