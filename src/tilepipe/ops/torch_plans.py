"""Plans of calls on CUDA tensors, remembered by what a kernel depends on: the operations of `ops` share this."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tilepipe.ir.tma import ALIGNMENT

LIMIT = 4096  # plans of one operation that are remembered; the oldest is dropped first
MISALIGNED = ALIGNMENT - 1  # bits of an address

PlanT = TypeVar("PlanT")


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
    return None if x is None else (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() & MISALIGNED)


def span(x: Any) -> int:
    """Bytes from the first to the last element of a tensor, or of None."""
    if x is None or not x.numel():
        return 0
    return int(sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride(), strict=True)) + 1) * int(x.element_size())
