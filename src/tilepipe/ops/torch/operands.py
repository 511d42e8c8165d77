"""How operands and results are brought into a form that the kernels read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from tilepipe.ops.layouts import kernel_takes, padded_shape, tma_order
from tilepipe.ops.torch.plan_cache import MISALIGNED
from tilepipe.ops.torch.tensors import byte_strides
from tilepipe.ops.types import Shape

Form = Callable[[torch.Tensor], torch.Tensor]


def as_it_is(x: torch.Tensor) -> torch.Tensor:
    """The form of an operand that has the kernel's shape."""
    return x


class Operand(NamedTuple):
    """An operand of a call, and what the kernel wants of it.

    Attributes:
        names: of the kernel's argument, in any of the operation's kernels.
        x: None: not given. form: makes the kernel's shape of it, a view where there is one.
        matrix: read by TMA; else by ordinary loads, and contiguous. order: the only one taken.
    """

    names: tuple[str, ...]
    x: torch.Tensor | None
    form: Form = as_it_is
    matrix: bool = True
    order: str | None = None

    def prepared(self) -> tuple[Form | None, torch.Tensor | None]:
        """How such an operand is brought into its form, None where it is read where it lies; and
        this one in it.
        """
        if self.x is None:
            return None, None
        ready = self._ready(self.x)
        if ready.data_ptr() == self.x.data_ptr():
            return None, ready
        return self._replace(x=None)._ready, ready  # which keeps no tensor alive

    def _ready(self, x: torch.Tensor) -> torch.Tensor:
        y = self.form(x)
        taken = (
            kernel_takes(tuple(y.shape), byte_strides(y), y.element_size())
            if self.matrix
            else y.is_contiguous()
        )
        taken = taken and (self.order is None or order_of(y) == self.order)
        return y if taken and y.data_ptr() & MISALIGNED == 0 else _padded_copy(y)


def order_of(x: torch.Tensor) -> str | None:
    """The memory order in which TMA takes a tensor; None: it needs a copy."""
    return tma_order(tuple(x.shape), byte_strides(x), x.element_size())


def result(
    out: torch.Tensor, shape: Shape
) -> tuple[Callable[[], torch.Tensor] | None, torch.Tensor]:
    """How to make the tensor, of `shape`, that the kernel writes where it cannot write `out` itself;
    and one to bind to.
    """
    try:
        written = out.view(shape)
    except RuntimeError:  # a batch that is no single dimension
        written = None
    if written is not None and written.data_ptr() & MISALIGNED == 0 and order_of(written) == "row":
        return None, written
    make = _maker(shape, out.dtype, out.device)
    return make, make()


def _maker(shape: Shape, dtype: torch.dtype, device: torch.device) -> Callable[[], torch.Tensor]:
    size = torch.empty(0, dtype=dtype, device="meta").element_size()
    whole = padded_shape(shape, size)
    return lambda: torch.empty(whole, dtype=dtype, device=device)[..., : shape[-1]]


def _padded_copy(x: torch.Tensor) -> torch.Tensor:
    """A row-major copy with rows padded to 16 bytes."""
    return _maker(tuple(x.shape), x.dtype, x.device)().copy_(x)
