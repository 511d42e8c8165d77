"""Prepared launches of one operation, found again by what a kernel depends on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch

from tilepipe.ir.hardware.tma import ALIGNMENT
from tilepipe.ops.torch import device

LIMIT = 4096  # plans of one operation that are kept; the oldest is dropped first
MISALIGNED = ALIGNMENT - 1  # bits of an address


class Plan(Protocol):
    """A prepared launch, for one device."""

    @property
    def ordinal(self) -> int:
        """The device."""


Key = tuple[object, tuple[object, ...]]
"""What the plan of a call depends on: `facts` of its tensors; its options, as the caller gave them.
"""
CallT = TypeVar("CallT")
PlanT = TypeVar("PlanT", bound=Plan)
ResultT = TypeVar("ResultT")


@dataclass
class PlanCache(Generic[CallT, PlanT, ResultT]):
    """The plans of one operation, each made by the first call of its kind; safe from several
    threads.

    Attributes:
        key: what the plan of a call depends on; keeps no tensor alive. `as_written` is made of the
            options.
        prepare: checks a call, chooses a configuration, compiles and loads the kernel.
        launch: of a plan on its device, which is the current one.
        simulate: the result of a call whose tensors are on the CPU; None for any other call.
    """

    key: Callable[[CallT], Key]
    prepare: Callable[[CallT], PlanT]
    launch: Callable[[PlanT, CallT], ResultT]
    simulate: Callable[[CallT], ResultT | None]
    plans: dict[object, PlanT] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, call: CallT) -> ResultT:
        """Launches the plan of a call in the current stream of its device, or simulates it.

        Raises:
            BindError, UnavailableError: what `prepare` raises, at the first call of its kind.
        """
        try:
            tensors, options = self.key(call)
            key = tensors, as_written(options)
            plan = self.plans.get(key)
        except (TypeError, AttributeError, RuntimeError):
            self.prepare(call)  # which says what is wrong with an argument that has no key
            raise
        if plan is None:
            simulated = self.simulate(call)
            if simulated is not None:
                return simulated
            with device.capture_kept():
                plan = self._remember(key, self.prepare(call))
        if plan.ordinal != device.current_device():
            with torch.cuda.device(plan.ordinal):
                return self.launch(plan, call)
        return self.launch(plan, call)

    def _remember(self, key: object, plan: PlanT) -> PlanT:
        """The plan for `key`: this one, unless another thread was faster."""
        with self._lock:
            kept = self.plans.setdefault(key, plan)
            if len(self.plans) > LIMIT:
                del self.plans[next(iter(self.plans))]
        return kept

    def forget(self) -> None:
        """Drops every plan: the next call of each kind prepares again."""
        with self._lock:
            self.plans.clear()


def as_written(options: tuple[object, ...]) -> object:
    """Options as a part of a key: what they are, and how Python writes them. For True equals 1, and
    a call with 1 must not find what one with True prepared: nobody has asked whether it may be 1.
    The rule is that of `by_type`, which takes ten times as long, and every call asks.
    """
    return options, repr(options)


def facts(x: torch.Tensor | None) -> object:
    """What a kernel for a tensor, which may be None, depends on; no reference to it."""
    return (
        None
        if x is None
        else (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & MISALIGNED)
    )
