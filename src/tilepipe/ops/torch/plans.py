"""Plans of calls on CUDA tensors, remembered by what a kernel depends on: the operations of `ops`
share this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch

from tilepipe.ir.rules.tma import ALIGNMENT

LIMIT = 4096  # plans of one operation that are remembered; the oldest is dropped first
MISALIGNED = ALIGNMENT - 1  # bits of an address

PlanT = TypeVar("PlanT")
Launcher = Callable[[tuple[int, ...], int], None]
Prepare = Callable[[Any], Any]
Operands = tuple[Any, ...]
Items = tuple[tuple[str, Any], ...]  # of settings


def _stream(ordinal: int) -> int:
    return int(torch.cuda.current_stream(ordinal).cuda_stream)


# What PyTorch's own generated code calls; a tenth of the cost of the public way.
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream)
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


class Plans(dict[object, PlanT]):
    """Plans by key: `get` finds one, `remember` adds one; safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def remember(self, key: object, plan: PlanT) -> PlanT:
        """The plan that stands for `key`: this one, unless another thread was faster."""
        with self._lock:
            kept = self.setdefault(key, plan)
            if len(self) > LIMIT:
                del self[next(iter(self))]
        return kept

    def forget(self) -> None:
        """Drops every plan: the next call of each kind prepares again."""
        with self._lock:
            self.clear()


def facts(x: Any) -> object:
    """What a kernel for a tensor, which may be None, depends on; no reference to it."""
    return (
        None
        if x is None
        else (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & MISALIGNED)
    )


def span(x: Any) -> int:
    """Bytes from the first to the last element of a tensor, or of None."""
    if x is None or not x.numel():
        return 0
    return int(
        sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride(), strict=True)) + 1
    ) * int(x.element_size())


class ProductPlan(NamedTuple):
    """One prepared product of matrices.

    Attributes:
        launcher: called with the addresses that `order` picks of the operands and C; None: nothing
            to multiply.
        forms: how each operand is brought into a form that the kernel takes; None: it is.
        c: the result as the kernel writes it is made by this and copied to its place; None: written
            in place.
        spans: bytes from the first to the last element of each operand, and of out.
    """

    launcher: Launcher | None
    order: Callable[[tuple[int, ...]], tuple[int, ...]]
    ordinal: int
    forms: tuple[Prepare | None, ...]
    c: Callable[[], Any] | None
    shape: tuple[int, int]
    dtype: Any
    device: Any
    spans: tuple[int, ...]

    def launch(self, operands: Operands, out: Any, *, keeps: bool = False) -> Any:
        """The product, in `out` where one is given. `keeps`: elements that the kernel does not
        write keep what `out` held.
        """
        assert self.launcher is not None
        c = torch.empty(self.shape, dtype=self.dtype, device=self.device) if out is None else out
        if self.c is not None:
            written = self.c()
        elif out is not None and self._overlaps(operands, out):
            written = torch.empty_strided(
                out.shape, out.stride(), dtype=out.dtype, device=out.device
            )
        else:
            written = c
        if keeps and written is not c and out is not None:
            written.copy_(out)
        taken = [
            x if form is None else form(x) for form, x in zip(self.forms, operands, strict=True)
        ]
        places = (*(0 if x is None else x.data_ptr() for x in taken), written.data_ptr())
        self.launcher(self.order(places), raw_stream(self.ordinal))
        if written is not c:
            c.copy_(written)
        elif out is not None and not out.is_inference():
            torch.autograd.graph.increment_version(out)
        return c

    def _overlaps(self, operands: Operands, out: Any) -> bool:
        """Whether `out` may share memory with an operand that is read where it lies."""
        first = out.data_ptr()
        last = first + self.spans[-1]
        read = [
            (x.data_ptr(), n)
            for x, form, n in zip(operands, self.forms, self.spans, strict=False)
            if x is not None and form is None
        ]
        return any(start < last and first < start + size for start, size in read)


class Products:
    """The plans of one operation, made at the first call of each kind."""

    def __init__(
        self,
        prepare: Callable[[Operands, Any, object, Items], ProductPlan],
        launch: Callable[[ProductPlan, Operands, Any], Any],
    ) -> None:
        """`prepare`: of (operands, out, out_dtype, settings). `launch`: of (plan, operands, out),
        on the current device.
        """
        self._prepare = prepare
        self._launch = launch
        self._plans: Plans[ProductPlan] = Plans()
        self.forget = self._plans.forget

    def run(self, operands: Operands, out: Any, out_dtype: object, items: Items) -> Any:
        """The plan for these tensors, launched in the current stream of their device.

        Raises:
            BindError, UnavailableError: what the operation raises, at the first call of its kind.
        """
        try:
            key = (*map(facts, operands), facts(out), out_dtype, items)
            plan = self._plans.get(key)
        except (TypeError, AttributeError, RuntimeError):
            self._prepare(operands, out, out_dtype, items)
            raise
        if plan is None:
            plan = self._plans.remember(key, self._prepare(operands, out, out_dtype, items))
        if plan.ordinal != current_device():
            with torch.cuda.device(plan.ordinal):
                return self._launch(plan, operands, out)
        return self._launch(plan, operands, out)
