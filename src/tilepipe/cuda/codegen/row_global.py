"""Loads of fragments of layout "rows:T" from global memory, and the walk over it that stores share
(`row_stores`): accesses to vectors of 16 bytes where they are aligned and inside the tensor, which
the printed code tests, else to elements.

A thread whose columns of a row are all inside, at an aligned address, loads its vectors one after
another without a test in between, so that all of them are in flight together. Nothing outside the
tensor is touched: a row outside counts as having 0 columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.codegen.addresses import index_term, inner_axes
from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.expressions import from_memory, operand, text
from tilepipe.cuda.codegen.indices import Index, term
from tilepipe.cuda.codegen.names import is_packed, memory_type
from tilepipe.cuda.codegen.registers import (
    RowLoops,
    element,
    group_of_thread,
    groups_of,
    registers,
    thread_of_row,
)
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, Shape
from tilepipe.ir.fragment import VECTOR, row_threads
from tilepipe.ir.memory import TensorParam


@dataclass(frozen=True, slots=True)
class Walk:
    """The accesses of one thread.

    Attributes:
        row_axis, col_axis: the dimensions of the tensor along the fragment's rows and columns; None
            where the fragment has one row or column.
        row, col: C++ of the thread's first row and column in the tensor.
        at: identifier of the pointer to that element.
        stop: C++ of the row of the tensor before which a thread's accesses end; empty without a
            `row_axis`.
        inside: C++ conditions that the leading indices are inside the tensor.
        vectors: the columns are contiguous, and a vector of them is one access or two.
    """

    tensor: TensorParam
    loops: RowLoops
    groups: int
    threads: int
    row_axis: int | None
    col_axis: int | None
    row: str
    col: str
    at: str
    stop: str
    inside: list[str]
    vectors: bool

    def column(self, low: int = 0) -> Index:
        """A column of the present vector, counted from the thread's first."""
        return self.loops.v * (VECTOR * self.threads) + low


def walk(
    ctx: Context,
    tensor: TensorParam,
    coords: tuple[Expr, ...],
    shape: Shape,
    layout: str,
    op: ops.Op,
) -> Walk:
    """Declares the values that all accesses of a thread share."""
    inner = inner_axes(tensor, coords, shape, op)
    row_axis = None if shape[0] == 1 and shape[1] > 1 else tensor.rank - inner
    col_axis = None if shape[1] == 1 else tensor.rank - 1
    leading = range(tensor.rank - inner)
    test = ctx.use("inside")
    inside = [
        f"{test}({text(ctx, coords[axis])}, {ctx.argument('shape', tensor.name, axis)})"
        for axis in leading
    ]
    terms = [index_term(ctx, tensor, axis, operand(ctx, coords[axis], 12)) for axis in leading]
    row, col, stop = ctx.temporary("row"), ctx.temporary("col"), ""
    if row_axis is not None:
        stop = last_row(ctx, op, tensor, row_axis, coords[row_axis], shape[0])
        group = "0" if shape[0] == 1 else group_of_thread(ctx, layout)
        ctx.out(f"const i32 {row} = {added(operand(ctx, coords[row_axis], 12), group)};")
        terms.append(index_term(ctx, tensor, row_axis, row))
    if col_axis is not None:
        first = str(term(thread_of_row(ctx, layout), VECTOR))
        ctx.out(f"const i32 {col} = {added(operand(ctx, coords[col_axis], 12), first)};")
        terms.append(index_term(ctx, tensor, col_axis, col))
    at = ctx.temporary("at")
    offset = f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]
    ctx.out(
        f"{memory_type(tensor.dtype)}* const {at} = {ctx.argument('data', tensor.name)} + {offset};"
    )
    return Walk(
        tensor,
        RowLoops.over(ctx, shape, layout),
        groups_of(ctx, layout),
        row_threads(layout),
        row_axis,
        col_axis,
        row,
        col,
        at,
        stop,
        inside,
        col_axis == tensor.contiguous_axis
        and (tensor.dtype.bits == 16 or tensor.dtype is dtypes.float32),
    )


def last_row(
    ctx: Context, op: ops.Op, tensor: TensorParam, axis: int, first: Expr, rows: int
) -> str:
    """The C++ of the row of a tensor before which the accesses of an op end: its extent, or, where
    the op has `rows`, at most so many after the coordinate `first`.
    """
    extent = ctx.argument("shape", tensor.name, axis)
    wanted = None
    if isinstance(op, ops.FragmentStoreGlobal | ops.FragmentReduceGlobal):
        wanted = op.rows
    if wanted is None:
        return extent
    stop = ctx.temporary("stop")
    count = f"max(min({text(ctx, wanted)}, {rows}), 0)"
    ctx.out(f"const i32 {stop} = max(min({operand(ctx, first, 12)} + {count}, {extent}), 0);")
    return stop


def added(base: str, step: str) -> str:
    """The C++ of a sum of two terms, without a term that is 0."""
    return step if base == "0" else base if step == "0" else f"{base} + {step}"


def line_of(ctx: Context, w: Walk) -> tuple[str, str]:
    """Declares, inside the loop over rows, and returns (pointer to the thread's first element of
    the row, number of columns of the row). For a fragment of one column the second result is the
    condition that the row is inside.
    """
    step = str(w.loops.i * w.groups)
    here, line = list(w.inside), w.at
    if w.row_axis is not None:
        here.append(f"{ctx.use('inside')}({added(w.row, step)}, {w.stop})")
        if step != "0":
            line = ctx.temporary("line")
            offset = index_term(ctx, w.tensor, w.row_axis, step)
            ctx.out(f"{memory_type(w.tensor.dtype)}* const {line} = {w.at} + {offset};")
    condition = " && ".join(here)
    if w.col_axis is None:
        return line, condition
    extent = ctx.argument("shape", w.tensor.name, w.col_axis)
    if not condition:
        return line, extent
    end = ctx.temporary("end")
    ctx.out(f"const i32 {end} = {condition} ? {extent} : 0;")
    return line, end


def place_of(ctx: Context, w: Walk, line: str, low: int = 0) -> str:
    """The C++ of the address of a column of the present vector."""
    assert w.col_axis is not None
    return added(line, index_term(ctx, w.tensor, w.col_axis, str(w.column(low))))


def all_inside(ctx: Context, w: Walk, line: str, end: str) -> str:
    """The C++ of whether all of a thread's columns of a row are inside, at an aligned address."""
    test, last = ctx.use("inside"), VECTOR * w.threads * (w.loops.vectors - 1) + VECTOR - 1
    return (
        f"{ctx.use('aligned')}({line}) && {test}({w.col}, {end}) && {test}({w.col} + {last}, {end})"
    )


def vector_inside(ctx: Context, w: Walk, line: str, end: str) -> str:
    """The C++ of whether the present vector is aligned and inside."""
    test, last = ctx.use("inside"), str(w.column(VECTOR - 1))
    first = f"{test}({added(w.col, str(w.column()))}, {end})"
    return f"{ctx.use('aligned')}({line}) && {first} && {test}({added(w.col, last)}, {end})"


def kind_of(tensor: TensorParam) -> str:
    """The C++ type of an element of a vector."""
    return "float" if tensor.dtype is dtypes.float32 else "u16"


def load_rows(ctx: Context, op: ops.FragmentLoadGlobal) -> None:
    """Prints a load of a fragment."""
    f, tensor = op.dst, op.tensor
    shape, name = (f.rows, f.cols), registers(ctx, f)
    zero = "0.0f" if tensor.dtype is dtypes.float32 else "0"
    with ctx.out.block():
        w = walk(ctx, tensor, op.coords, shape, f.layout, op)
        with w.loops.rows(ctx):
            line, end = line_of(ctx, w)
            if w.col_axis is None:
                into = element(name, f.dtype, shape, w.loops.at(), f.layout)[0]
                value = f"{end} ? *{line} : {zero}"
                ctx.out(f"{into} = {from_memory(ctx, tensor.dtype, value)};")
                return

            def vector() -> None:
                pairs = is_packed(f.dtype, f.cols)
                into = [
                    element(name, f.dtype, shape, w.loops.at(low), f.layout)[0]
                    for low in range(0, VECTOR, 2 if pairs else 1)
                ]
                place = ", ".join([place_of(ctx, w, line), *into])
                ctx.out(f"{ctx.use(f'load_vector_{kind_of(tensor)}')}({place});")

            def elements() -> None:
                values = [
                    f"{ctx.use('inside')}({added(w.col, str(w.column(low)))}, {end})"
                    f" ? *({place_of(ctx, w, line, low)}) : {zero}"
                    for low in range(VECTOR)
                ]
                for low in range(0, VECTOR, 2 if is_packed(f.dtype, f.cols) else 1):
                    into = element(name, f.dtype, shape, w.loops.at(low), f.layout)[0]
                    if is_packed(f.dtype, f.cols):
                        ctx.out(f"{into} = {ctx.use('join')}({values[low]}, {values[low + 1]});")
                    else:
                        ctx.out(f"{into} = {from_memory(ctx, tensor.dtype, values[low])};")

            if not w.vectors:
                with w.loops.columns(ctx):
                    elements()
                return
            with (
                ctx.out.block(f"if ({all_inside(ctx, w, line, end)})", "} else {"),
                w.loops.columns(ctx),
            ):
                vector()
            ctx.out.depth += 1
            with w.loops.columns(ctx):
                with ctx.out.block(f"if ({vector_inside(ctx, w, line, end)})", "} else {"):
                    vector()
                ctx.out.depth += 1
                elements()
                ctx.out.depth -= 1
                ctx.out("}")
            ctx.out.depth -= 1
            ctx.out("}")
