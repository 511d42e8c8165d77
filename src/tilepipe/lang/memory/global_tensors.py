"""Tensor arguments inside a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import MulticastMask
from tilepipe.lang.asynchronous.commits import Mbar
from tilepipe.lang.memory.elements import ElementRef, element_indices
from tilepipe.lang.memory.places import Place
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.missing_members import missing
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import (
    Value,
)


class Destination(Protocol):
    """The target of a TMA load: a tile, and the barrier that its bytes are credited to."""

    @property
    def smem(self) -> SmemTile:
        """The tile."""

    @property
    def mbar(self) -> Mbar:
        """The barrier."""


class GlobalTensor(Place):
    """A tensor argument inside a kernel: `a.shape[i]` is traced; `a.dtype`, `a.rank`, `a.order`,
    `a.box` are static.

    `a[i, j]` addresses one element for `ctx.load` and `ctx.store`.
    """

    def __init__(self, tracer: Tracer, param: memory.TensorParam) -> None:
        self._tracer = tracer
        self._param = param
        self.dtype = param.dtype
        self.rank = param.rank
        self.order = param.order
        self.box = param.box
        self.swizzle = param.swizzle
        root = tracer.scope
        self.shape = tuple(
            Value(tracer, exprs.Param(dtypes.int32, nonneg=True, name=param.name, axis=i), root)
            for i in range(param.rank)
        )

    if not TYPE_CHECKING:  # a type checker knows the members
        __getattr__ = missing("a tensor argument", "a", other_names.TENSOR)

    @property
    def param(self) -> memory.TensorParam:
        """The operand.

        Raises:
            TraceError: it belongs to another trace.
        """
        self._tracer.require_running()
        return self._param

    def __iter__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is not iterated: loop over `ctx.range({self.param.name}.shape[0])` and index"
            " it",
            caller(),
        )

    def __len__(self) -> NoReturn:
        raise TraceError(
            f"len() of {self!r} is not known while tracing: `{self.param.name}.shape[0]` is, when"
            " the kernel runs",
            caller(),
        )

    def async_copy(
        self, dst: Destination, coords: Sequence[object], multicast: MulticastMask | None = None
    ) -> None:
        """`ctx.tma_load(tensor, coords, dst.smem, dst.mbar, multicast)`: starts a TMA copy of the
        box at `coords` (elements, outermost first) to `dst`, a `TMADestination`.
        """
        from tilepipe.lang.context.context import Context

        if not hasattr(dst, "smem") or not hasattr(dst, "mbar"):
            raise TraceError(
                "async_copy takes a TMADestination, as get_k(...) and get_v(...) return; got"
                f" {dst!r}",
                caller(),
            )
        Context(self._tracer).tma_load(self, coords, dst.smem, dst.mbar, multicast)

    @property
    def _element(self) -> str:
        return f"{self._param.name}[{', '.join('ijklm'[: self.rank])}]"

    @property
    def _reading(self) -> str:
        return (
            f"`ctx.load({self._element})` reads an element, `ctx.load_global` a fragment, and"
            " `ctx.tma_load` a tile"
        )

    @property
    def _writing(self) -> str:
        return (
            f"`ctx.store({self._element}, x)` writes an element, `ctx.store_global` a fragment, and"
            " `ctx.tma_store` a tile"
        )

    def __getitem__(self, index: object) -> ElementRef:
        indices = element_indices(self._tracer, self, self.dtype, self.rank, index)
        return ElementRef(self._tracer, memory.Element(self.param, indices), self.dtype, None)

    def __repr__(self) -> str:
        return f"<tensor '{self._param.name}' {self.rank}-d {self.dtype}>"
