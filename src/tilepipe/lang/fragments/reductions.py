"""Reductions of fragments: of rows, of columns, of all elements, and of a condition over what a
warp holds.
"""

from __future__ import annotations

from typing import Generic, Literal, Protocol, TypeVar, overload

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, fragment as registers, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.fragment import WARP, row_threads, warps_apart
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Axis
from tilepipe.lang.fragments.layouts import partials, partials_of_rows
from tilepipe.lang.tracing.convergence import agent_vary
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, traced_value


class Place(Protocol):
    """A fragment, as a reduction needs it to write its result."""

    def operand(self) -> registers.Fragment: ...
    def written(self) -> None: ...


F = TypeVar("F", bound=Place)


class FragmentReductions(Generic[F]):
    """The reductions of a fragment expression. `F`: the class of their results."""

    _tracer: Tracer

    @property
    def layout(self) -> str:
        """The layout of the value."""
        raise NotImplementedError

    def ir(self) -> Expr:
        """The expression."""
        raise NotImplementedError

    def _require_together(self, what: str) -> None:
        """Raises TraceError unless all threads that hold the value execute this block."""
        raise NotImplementedError

    def _vector(self, shape: tuple[int, int], dtype: DType, name: str) -> F:
        """Creates a fragment of the layout of the value."""
        raise NotImplementedError

    @overload
    def sum(self, axis: Axis = 1) -> F: ...
    @overload
    def sum(self, axis: None) -> Value: ...
    def sum(self, axis: Axis | None = 1) -> F | Value:
        """The sum of each row, as a new (rows, 1) fragment of the same dtype; with `axis=0` of each
        column, as a new (1, cols) fragment; with `axis=None` of all elements, as a scalar that is
        the same in all threads of the warpgroup, or of the warp in a role of warps. Of 16-bit
        floats it is a float32 sum, rounded once.

        Raises:
            TraceError: the value has a dtype that threads do not reduce, or no such axis; some
                threads of the warpgroup do not execute it, or `axis` is not 1 under per_warp.
        """
        return self._reduce("add", axis)

    @overload
    def max(self, axis: Axis = 1) -> F: ...
    @overload
    def max(self, axis: None) -> Value: ...
    def max(self, axis: Axis | None = 1) -> F | Value:
        """The maximum, as `sum` gives the sum. A NaN gives way to a number, and NaNs alone give
        -inf; -0 is less than +0 (PTX ISA, max).
        """
        return self._reduce("max", axis)

    @overload
    def min(self, axis: Axis = 1) -> F: ...
    @overload
    def min(self, axis: None) -> Value: ...
    def min(self, axis: Axis | None = 1) -> F | Value:
        """The minimum, as `sum` gives the sum. A NaN gives way to a number, and NaNs alone give
        inf; -0 is less than +0 (PTX ISA, min).
        """
        return self._reduce("min", axis)

    def argmax(self) -> tuple[F, F]:
        """The maximum of each row, as `max` gives it, and the number of the first column that has
        it: two new (rows, 1) fragments, the second int32. A NaN counts as -inf; 0 and -0 are equal.

        Raises:
            TraceError: the value has one column, or a dtype that threads do not reduce.
        """
        return self._find("max")

    def argmin(self) -> tuple[F, F]:
        """The minimum of each row, as `min` gives it, and the number of the first column that has
        it: two new (rows, 1) fragments, the second int32. A NaN counts as inf; 0 and -0 are equal.

        Raises:
            TraceError: the value has one column, or a dtype that threads do not reduce.
        """
        return self._find("min")

    def cumsum(self) -> F:
        """The sum of each row up to and with each column, as a new fragment (rows, cols) of the
        same dtype. Sums of 16-bit floats are float32, and each is rounded once.

        Raises:
            TraceError: the value has one column or a dtype that threads do not add; or, in layout
                "rows:T", more than a warp holds a row.
        """
        self._require_together("cumsum()")
        x = self.ir()
        _require_reducible(x.dtype)
        (rows, cols), threads = x.shape, row_threads(self.layout)
        if cols == 1:
            raise TraceError(
                f"cumsum() adds along columns, and a value of {rows}×1 has one", caller()
            )
        if threads > registers.WARP:
            raise TraceError(
                f'cumsum() goes along the lanes of one warp, and in layout "{self.layout}" a row is'
                f" held by {threads // registers.WARP} warps: use at most"
                f' "rows:{registers.WARP}"',
                caller(),
            )
        if rows == 1 and self._tracer.scope.inside("per_warp"):
            raise TraceError(
                "one value a column is the same in all warps: move cumsum() of it out of per_warp",
                caller(),
            )
        result = self._vector((rows, cols), x.dtype, "sums")
        self._tracer.emit(ops.FragmentScan(caller(), result.operand(), x))
        result.written()
        return result

    def any(self) -> Value:
        """True if a condition holds for any element that the warp holds, under `per_warp`: the same
        in all its lanes, so that `ctx.when` may use it.

        Raises:
            TraceError: outside per_warp, or the expression is no condition.
        """
        self._require_together("any()")
        x = self.ir()
        if x.dtype is not dtypes.boolean:
            raise TraceError(
                f"any() is of a condition, such as `(f > 0).any()`; this value is {x.dtype}",
                caller(),
            )
        if not self._tracer.scope.inside("per_warp"):
            raise TraceError(
                "any() asks the lanes of one warp: put it, and what depends on it, under `with"
                " ctx.per_warp():`",
                caller(),
            )
        result = self._tracer.local("any", dtypes.boolean)
        self._tracer.emit(ops.FragmentAny(caller(), result, x))
        return traced_value(self._tracer, result)

    def _reduce(self, op: ops.Combination, axis: int | None) -> F | Value:
        if axis == 1:
            x = self._rows("a reduction of a fragment")
            result = self._vector((x.shape[0], 1), x.dtype, "row")
            shared = partials_of_rows(self._tracer, self.layout, x.shape)
            self._tracer.emit(ops.FragmentReduce(caller(), result.operand(), x, op, shared))
            result.written()
            return result
        return self._reduce_columns(op) if axis == 0 else self._reduce_all(op)

    def _reduce_columns(self, op: ops.Combination) -> F:
        x = self._whole("a reduction of columns")
        rows, cols = x.shape
        if cols == 1:
            raise TraceError(
                f"a value of {rows}×1 holds one value a row: it has no columns that `axis=0` would"
                " keep apart. For a scalar of all rows take `axis=None`.",
                caller(),
            )
        if rows == 1 and not row_threads(self.layout):
            raise TraceError(
                f"a value of {rows}×{cols} already holds one value a column: there is nothing to"
                " reduce along `axis=0`",
                caller(),
            )
        result = self._vector((1, cols), x.dtype, "column")
        shared = None if rows == 1 else self._shared(rows, 1, cols)
        self._tracer.emit(
            ops.FragmentReduceColumns(caller(), result.operand(), x, op, self.layout, shared)
        )
        result.written()
        return result

    def _reduce_all(self, op: ops.Combination) -> Value:
        x = self._whole("a reduction of all elements")
        layout, shared = self.layout, self._shared(x.shape[0], x.shape[1], 1)
        result = self._tracer.local("all", x.dtype, agent_vary(self._tracer))
        self._tracer.emit(ops.FragmentReduceAll(caller(), result, x, op, layout, shared))
        return traced_value(self._tracer, result)

    def _whole(self, what: str) -> Expr:
        """The expression, after the checks of a reduction among warps."""
        self._require_together(what)
        if self._tracer.scope.inside("per_warp"):
            raise TraceError(
                f"{what} needs the rows of all warps: move it out of per_warp, under which a warp"
                " reduces each of its own rows (`axis=1`)",
                caller(),
            )
        x = self.ir()
        _require_reducible(x.dtype)
        return x

    def _shared(self, rows: int, cols: int, words: int) -> ops.Partials | None:
        """Shared memory, of so many words for each warp that holds other elements of a (rows, cols)
        than the rest; None where there is one.
        """
        warps = self._tracer.role.role.agent_threads // WARP
        apart = len(warps_apart(self.layout, warps, rows, cols))
        return partials(self._tracer, words * apart) if apart > 1 else None

    def _find(self, op: Literal["max", "min"]) -> tuple[F, F]:
        x = self._rows(f"arg{op}()")
        rows, cols = x.shape
        if cols == 1:
            raise TraceError(
                f"arg{op}() names a column of each row, and a value of {rows}×1 has one column",
                caller(),
            )
        best = self._vector((rows, 1), x.dtype, "best")
        columns = self._vector((rows, 1), dtypes.int32, "column")
        shared = partials_of_rows(self._tracer, self.layout, x.shape, words=2)
        self._tracer.emit(
            ops.FragmentFind(caller(), best.operand(), columns.operand(), x, op, shared)
        )
        best.written()
        columns.written()
        return best, columns

    def _rows(self, what: str) -> Expr:
        """The expression, after the checks of a reduction along rows."""
        self._require_together(what)
        x = self.ir()
        _require_reducible(x.dtype)
        if x.shape[0] == 1 and not row_threads(self.layout):
            raise TraceError(
                f"a reduction goes along rows, and a value of {x.shape[0]}×{x.shape[1]} holds one"
                " value a column: its rows are shared by all. Combine it with a fragment of m rows"
                " first.",
                caller(),
            )
        return x


def _require_reducible(t: DType) -> None:
    if (t.is_float and t.bits <= 32) or t in (dtypes.int32, dtypes.uint32):
        return
    instead = "float32" if t.is_float else "int32"
    what = "a condition" if t is dtypes.boolean else str(t)
    raise TraceError(
        f"a reduction takes floats of up to 32 bits, int32 and uint32, not {what}: convert the"
        f" value first, `f.to('{instead}')`",
        caller(),
    )
