"""Single elements of shared and global memory, and their ordinary loads and stores."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import caller
from tilepipe.lang.handles.linear import Handle, View
from tilepipe.lang.memory.places import Place
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.operators import foreign
from tilepipe.lang.values.scalars import (
    to_expr,
)


class ElementRef(View, Place):
    """A reference to one element, for `ctx.load` and `ctx.store`. It is no value: operators,
    comparisons and conditions are errors.
    """

    _kind = "element"

    def __init__(
        self, tracer: Tracer, ir: memory.Element, dtype: DType, owner: Handle | None
    ) -> None:
        super().__init__(tracer, owner)
        self._ir = ir
        self.dtype = dtype

    @property
    def ir(self) -> memory.Element:
        """The operand.

        Raises:
            HandleError: the stage it belongs to has been released.
            TraceError: the block or role in which it was made has closed, or it belongs to another
                trace.
        """
        self._check_usable()
        return self._ir

    @property
    def _written(self) -> str:
        """The element, as a kernel writes it."""
        base = self._ir.base
        indices = ", ".join("ijklm"[: len(self._ir.index)])
        return f"{base.name if isinstance(base, memory.TensorParam) else 'tile'}[{indices}]"

    @property
    def _reading(self) -> str:
        return f"`ctx.load({self._written})` reads it"

    @property
    def _writing(self) -> str:
        a = self._written
        shared = not isinstance(self._ir.base, memory.TensorParam)
        atomic = "" if shared else f", or `ctx.atomic_add({a}, x)` where other threads add to it"
        return (
            f"`ctx.store({a}, x)` writes it, `ctx.store({a}, ctx.load({a}) + x)` adds to it{atomic}"
        )

    def __eq__(self, other: object) -> NoReturn:
        raise foreign(self)

    def __ne__(self, other: object) -> NoReturn:
        raise foreign(self)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise foreign(self)

    def __repr__(self) -> str:
        base = self._ir.base
        name = base.name if isinstance(base, memory.TensorParam) else base.buffer.name
        return f"<element of '{name}' {self.dtype}>"

    def _touch(self) -> memory.Element:
        """The operand of an ordinary load or store, which its stage has then to publish."""
        if self._owner is not None:
            self._owner.touched = True
        return self.ir


def element_indices(
    tracer: Tracer, base: object, dtype: DType, rank: int, index: object
) -> tuple[Expr, ...]:
    """The indices of `base[i, j]`, one for each of `rank` dimensions.

    Raises:
        TraceError: a dtype that registers do not hold, or an index that is missing or no integer.
    """
    broken = dtypes.broken_register_rule(dtype)
    if broken is not None:
        raise TraceError(f"an element of {base!r}: {broken}", caller())
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) != rank:
        raise TraceError(f"{base!r} takes {rank} indices, got {len(parts)}", caller())
    indices = tuple(to_expr(tracer, p) for p in parts)
    for x in indices:
        if not x.dtype.is_integer:
            raise TraceError(f"an index must be an integer, got {x.dtype}", caller())
    return indices
