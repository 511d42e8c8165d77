"""Loads and stores of fragments of layout "rows:T" in global memory: accesses to vectors of 16
bytes where they are aligned and inside the tensor, which the printed code tests, else to elements.

A thread whose columns of a row are all inside, at an aligned address, loads its vectors one after
another without a test in between, so that all of them are in flight together. Nothing outside the
tensor is touched: a row outside counts as having 0 columns.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from tilepipe.cuda.codegen.addresses import index_term, inner_axes
from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.expressions import from_memory, operand, text, to_memory
from tilepipe.cuda.codegen.fragments import packed
from tilepipe.cuda.codegen.names import is_packed, memory_type
from tilepipe.cuda.codegen.registers import (
    Index,
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

_PAIRS = VECTOR // 2


@dataclass(frozen=True, slots=True)
class _Walk:
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


def _walk(
    ctx: Context,
    tensor: TensorParam,
    coords: tuple[Expr, ...],
    shape: Shape,
    layout: str,
    op: ops.Op,
) -> _Walk:
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
        ctx.out(f"const i32 {row} = {_sum(operand(ctx, coords[row_axis], 12), group)};")
        terms.append(index_term(ctx, tensor, row_axis, row))
    if col_axis is not None:
        first = f"{VECTOR} * ({thread_of_row(ctx, layout)})"
        ctx.out(f"const i32 {col} = {_sum(operand(ctx, coords[col_axis], 12), first)};")
        terms.append(index_term(ctx, tensor, col_axis, col))
    at = ctx.temporary("at")
    offset = f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]
    ctx.out(
        f"{memory_type(tensor.dtype)}* const {at} = {ctx.argument('data', tensor.name)} + {offset};"
    )
    return _Walk(
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


def _sum(base: str, step: str) -> str:
    return step if base == "0" else base if step == "0" else f"{base} + {step}"


def _line(ctx: Context, w: _Walk) -> tuple[str, str]:
    """Declares, inside the loop over rows, and returns (pointer to the thread's first element of
    the row, number of columns of the row). For a fragment of one column the second result is the
    condition that the row is inside.
    """
    step = str(w.loops.i * w.groups)
    here, line = list(w.inside), w.at
    if w.row_axis is not None:
        here.append(f"{ctx.use('inside')}({_sum(w.row, step)}, {w.stop})")
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


def _place(ctx: Context, w: _Walk, line: str, low: int = 0) -> str:
    assert w.col_axis is not None
    return _sum(line, index_term(ctx, w.tensor, w.col_axis, str(w.column(low))))


def _whole(ctx: Context, w: _Walk, line: str, end: str) -> str:
    """The C++ of whether all of a thread's columns of a row are inside, at an aligned address."""
    test, last = ctx.use("inside"), VECTOR * w.threads * (w.loops.vectors - 1) + VECTOR - 1
    return (
        f"{ctx.use('aligned')}({line}) && {test}({w.col}, {end}) && {test}({w.col} + {last}, {end})"
    )


def _one_vector(ctx: Context, w: _Walk, line: str, end: str) -> str:
    """The C++ of whether the present vector is aligned and inside."""
    test, last = ctx.use("inside"), str(w.column(VECTOR - 1))
    first = f"{test}({_sum(w.col, str(w.column()))}, {end})"
    return f"{ctx.use('aligned')}({line}) && {first} && {test}({_sum(w.col, last)}, {end})"


def _type(tensor: TensorParam) -> str:
    return "float" if tensor.dtype is dtypes.float32 else "u16"


def load_rows(ctx: Context, op: ops.FragmentLoadGlobal) -> None:
    """Prints a load of a fragment."""
    f, tensor = op.dst, op.tensor
    shape, name = (f.rows, f.cols), registers(ctx, f)
    zero = "0.0f" if tensor.dtype is dtypes.float32 else "0"
    with ctx.out.block():
        w = _walk(ctx, tensor, op.coords, shape, f.layout, op)
        with w.loops.rows(ctx):
            line, end = _line(ctx, w)
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
                place = ", ".join([_place(ctx, w, line), *into])
                ctx.out(f"{ctx.use(f'load_vector_{_type(tensor)}')}({place});")

            def elements() -> None:
                values = [
                    f"{ctx.use('inside')}({_sum(w.col, str(w.column(low)))}, {end})"
                    f" ? *({_place(ctx, w, line, low)}) : {zero}"
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
                ctx.out.block(f"if ({_whole(ctx, w, line, end)})", "} else {"),
                w.loops.columns(ctx),
            ):
                vector()
            ctx.out.depth += 1
            with w.loops.columns(ctx):
                with ctx.out.block(f"if ({_one_vector(ctx, w, line, end)})", "} else {"):
                    vector()
                ctx.out.depth += 1
                elements()
                ctx.out.depth -= 1
                ctx.out("}")
            ctx.out.depth -= 1
            ctx.out("}")


def row_writers(ctx: Context, shape: Shape, layout: str) -> AbstractContextManager[None]:
    """A body that only the threads execute that write: of a fragment of one column the first of
    each row, of one row the first group.
    """
    tests = []
    if shape[1] == 1:
        tests.append(f"{thread_of_row(ctx, layout)} == 0")
    if shape[0] == 1 and groups_of(ctx, layout) > 1:
        tests.append(f"{group_of_thread(ctx, layout)} == 0")
    return ctx.out.block(f"if ({' && '.join(tests)})") if tests else nullcontext()


def store_rows(ctx: Context, op: ops.FragmentStoreGlobal, layout: str) -> None:
    """Prints a store of a fragment-shaped value."""
    tensor, shape = op.tensor, op.value.shape
    with ctx.out.block():
        w = _walk(ctx, tensor, op.coords, shape, layout, op)
        with row_writers(ctx, shape, layout), w.loops.rows(ctx):
            line, end = _line(ctx, w)
            if w.col_axis is None:
                x = to_memory(ctx, tensor.dtype, text(ctx, op.value, w.loops.at()))
                ctx.out(f"if ({end}) *{line} = {x};")
                return
            if not w.vectors:
                with w.loops.columns(ctx):
                    _store_elements(ctx, op, w, line, end)
                return
            whole = ctx.temporary("whole")
            ctx.out(f"const bool {whole} = {_whole(ctx, w, line, end)};")
            with w.loops.columns(ctx):
                _store_vector(ctx, op, w, line, end, whole)


def _store_elements(
    ctx: Context, op: ops.FragmentStoreGlobal, w: _Walk, line: str, end: str
) -> None:
    for low in range(VECTOR):
        x = to_memory(ctx, w.tensor.dtype, text(ctx, op.value, w.loops.at(low)))
        inside = f"{ctx.use('inside')}({_sum(w.col, str(w.column(low)))}, {end})"
        ctx.out(f"if ({inside}) *({_place(ctx, w, line, low)}) = {x};")


def _store_vector(
    ctx: Context, op: ops.FragmentStoreGlobal, w: _Walk, line: str, end: str, whole: str
) -> None:
    """Computes a vector, and stores it by one access or two, or, at an edge, by elements."""
    wide, tensor = w.tensor.dtype is dtypes.float32, w.tensor
    out = ctx.temporary("out")
    if wide:
        values = [text(ctx, op.value, w.loops.at(low)) for low in range(VECTOR)]
    else:
        pair = w.loops.v * _PAIRS
        values = [
            packed(ctx, tensor.dtype, op.value, str(w.loops.i), pair + q, by_rows=True)
            for q in range(_PAIRS)
        ]
    with ctx.out.block():
        ctx.out(f"const {'float' if wide else 'u32'} {out}[{len(values)}] = {{")
        ctx.out.depth += 1
        for x in values:
            ctx.out(f"{x},")
        ctx.out.depth -= 1
        ctx.out("};")
        all_of = ", ".join(f"{out}[{i}]" for i in range(len(values)))
        function = ctx.use(f"store_vector_{_type(tensor)}")
        with ctx.out.block(f"if ({whole} || ({_one_vector(ctx, w, line, end)}))", "} else {"):
            ctx.out(f"{function}({_place(ctx, w, line)}, {all_of});")
        ctx.out.depth += 1
        for low in range(VECTOR):
            inside = f"{ctx.use('inside')}({_sum(w.col, str(w.column(low)))}, {end})"
            x = (
                f"{out}[{low}]"
                if wide
                else f"static_cast<u16>({out}[{low // 2}] >> {low % 2 * 16})"
            )
            ctx.out(f"if ({inside}) *({_place(ctx, w, line, low)}) = {x};")
        ctx.out.depth -= 1
        ctx.out("}")
