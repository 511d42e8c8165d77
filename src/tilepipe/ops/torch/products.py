"""Prepared products of matrices: a loaded kernel for one combination of shapes, strides, dtypes and
options, and how to copy the operands that it cannot read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import torch

import tilepipe as tp
from tilepipe.ir.chip import Chip
from tilepipe.ops.arrays import kernel_takes, padded_shape, tma_order
from tilepipe.ops.calls import Shape
from tilepipe.ops.torch import copies, device
from tilepipe.ops.torch.plan_cache import MISALIGNED
from tilepipe.ops.torch.tensors import TensorView, byte_strides, note_written, span
from tilepipe.ops.torch.workspaces import NAMES, Workspace

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Form = Callable[[torch.Tensor], torch.Tensor]
Operands = tuple[torch.Tensor | None, ...]
Views = dict[str, TensorView]  # by the first of the operand's names
data_ptr = torch.Tensor.data_ptr


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
        if taken and y.data_ptr() & MISALIGNED == 0:
            return y
        if self.matrix:
            return _padded_copy(y, self.order)
        return y.clone(memory_format=torch.contiguous_format)


def order_of(x: torch.Tensor) -> str | None:
    """The memory order in which TMA takes a tensor; None: it needs a copy."""
    return tma_order(tuple(x.shape), byte_strides(x), x.element_size())


def result(
    out: torch.Tensor, shape: Shape
) -> tuple[Callable[[], torch.Tensor] | None, torch.Tensor]:
    """How to make the tensor, of `shape`, that the kernel writes where it cannot write `out`
    itself; and one to bind to.
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


def _padded_copy(x: torch.Tensor, order: str | None) -> torch.Tensor:
    """A copy with lines padded to 16 bytes, row-major, or in the tensor's own order where `order`
    is None and the kernel reads that, too: a copy that transposes takes several times as long.
    """
    by_columns = x.stride(-2) == 1 and x.stride(-1) >= x.shape[-2] and x.element_size() == 2
    if order is None and by_columns and x.stride(-1) != 1:
        return _padded_copy(x.transpose(-1, -2), "row").transpose(-1, -2)
    return copies.copy(_maker(tuple(x.shape), x.dtype, x.device)(), x)


class ProductPlan(NamedTuple):
    """One prepared product.

    Attributes:
        launcher: called with the addresses of what `pick` takes of (*operands, result), and of the
            workspace, if there is one; None: there is nothing to multiply.
        forms: how each operand is brought into a form that the kernel reads, None where it is read
            where it lies; None where that holds for all.
        make_result: makes what the kernel writes, which is then copied to its place; None: it
            writes in place.
        shape, dtype, device: of a new result.
        spans: bytes from the first to the last element of each operand, and of out.
        accumulates: the operand that may be `out` itself: a CTA reads a tile of it before it writes
            that tile.
        workspace: what each launch takes of one; None: nothing.
    """

    launcher: Launcher | None
    pick: Callable[[Operands], tuple[torch.Tensor, ...]]
    ordinal: int
    forms: tuple[Form | None, ...] | None
    make_result: Callable[[], torch.Tensor] | None
    shape: Shape
    dtype: torch.dtype
    device: torch.device
    spans: tuple[int, ...]
    accumulates: int | None
    workspace: Workspace | None = None

    def launch(
        self, operands: Operands, out: torch.Tensor | None, *, keeps: bool = False
    ) -> torch.Tensor:
        """The product, in `out` where one is given. `keeps`: elements that the kernel does not
        write keep what `out` held.
        """
        assert self.launcher is not None
        c = torch.empty(self.shape, dtype=self.dtype, device=self.device) if out is None else out
        if self.make_result is not None:
            written = self.make_result()
        elif out is not None and self._overlaps(operands, out):
            written = torch.empty_strided(
                out.shape, out.stride(), dtype=out.dtype, device=out.device
            )
        else:
            written = c
        if keeps and written is not c and out is not None:
            written.copy_(out)
        if self.forms is not None:
            pairs = zip(operands, self.forms, strict=True)
            operands = tuple([x if x is None or form is None else form(x) for x, form in pairs])
        stream = device.raw_stream(self.ordinal)
        taken: Operands = (*operands, written)
        if self.workspace is not None:  # whose memory is held until the launch is on the stream
            taken += self.workspace.take(self.device, self.ordinal, stream)
        self.launcher(tuple(map(data_ptr, self.pick(taken))), stream)
        if written is not c:
            copies.copy(c, written.reshape(self.shape))
        if out is not None:
            note_written(out)
        return c

    def new_result(self) -> torch.Tensor:
        """A new tensor for the result."""
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)

    def _overlaps(self, operands: Operands, out: torch.Tensor) -> bool:
        """True if `out` may share memory with an operand that is read where it lies."""
        first = out.data_ptr()
        last = first + self.spans[-1]
        for i, x in enumerate(operands):
            if x is None or (self.forms is not None and self.forms[i] is not None):
                continue
            start = x.data_ptr()
            if start < last and first < start + self.spans[i]:
                same = start == first and x.shape == out.shape and x.stride() == out.stride()
                if not (same and i == self.accumulates):
                    return True
        return False


def prepare(
    operation: str,
    operands: Sequence[Operand],
    out: torch.Tensor | None,
    shape: Shape,
    dtype: torch.dtype,
    bind: Callable[[Views, TensorView, Chip], tp.Program],
    *,
    empty: bool,
    written_shape: Shape | None = None,
    accumulates: int | None = None,
    written_name: str = "c",
) -> ProductPlan:
    """Makes the plan of a product: compiles and loads the kernel.

    Args:
        operands: the first is on the device. shape, dtype: of the result.
        bind: the kernel, for views of the operands that are given, in their forms, of what it
            writes, and the chip.
        empty: there is nothing to multiply. written_shape: of the kernel's result, unless `shape`.
        accumulates: as of the plan. written_name: of the kernel's argument that it writes.

    Raises:
        BindError, UnavailableError: as the operation.
    """
    a = operands[0].x
    assert a is not None
    ordinal = a.get_device()
    spans = tuple(span(x) for x in (*[operand.x for operand in operands], out))
    if empty:
        return ProductPlan(None, tuple, ordinal, None, None, shape, dtype, a.device, spans, None)
    chip = device.hopper(ordinal, operation)
    like = torch.empty(shape, dtype=dtype, device=a.device) if out is None else out
    make_result, written = result(like, shape if written_shape is None else written_shape)
    prepared = [operand.prepared() for operand in operands]
    named = zip(operands, prepared, strict=True)
    views = {operand.names[0]: TensorView(x) for operand, (_, x) in named if x is not None}
    with device.context(ordinal):
        launcher = bind(views, TensorView(written), chip).launcher()
    places = {name: i for i, operand in enumerate(operands) for name in operand.names}
    places[written_name] = len(operands)
    places |= {name: len(operands) + 1 + i for i, name in enumerate(NAMES)}
    forms = tuple(form for form, _ in prepared)
    return ProductPlan(
        launcher,
        itemgetter(*[places[name] for name in launcher.tensors]),
        ordinal,
        forms if any(form is not None for form in forms) else None,
        make_result,
        shape,
        dtype,
        a.device,
        spans,
        accumulates,
        Workspace.of(launcher),
    )
