"""Loads and stores of fragments in global memory: predicated ordinary accesses, of two columns at a
time where their alignment is known.

The printed code declares a pointer to the lane's first element, and loops over rows and columns
from there. It touches nothing outside the tensor: a row outside counts as having 0 columns. Where
two columns are one access, the code tests once for each row whether all its columns are inside, and
then does not predicate the accesses of that row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tilepipe.cuda.codegen.addresses import index_term, inner_axes
from tilepipe.cuda.codegen.arithmetic import add, div, mod, mul
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import from_memory, operand, text, to_memory
from tilepipe.cuda.codegen.fragments import layout_of, only_first_lanes, packed
from tilepipe.cuda.codegen.indices import Index
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.codegen.names import is_packed, memory_type, small_float
from tilepipe.cuda.codegen.registers import ROWS, Loops, Rows, element, registers
from tilepipe.cuda.codegen.row_global import last_row, load_rows
from tilepipe.cuda.codegen.row_stores import store_rows
from tilepipe.cuda.ptx import strong_accesses
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, Shape, special
from tilepipe.ir.fragment import row_threads
from tilepipe.ir.hardware.operand_tiles import is_multiple
from tilepipe.ir.memory import TensorParam


@dataclass(frozen=True, slots=True)
class Walk:
    """The accesses of one lane.

    Attributes:
        rows: the steps between the rows of the fragment's layout.
        row_axis, col_axis: the dimensions of the tensor along the fragment's rows and columns; None
            where the fragment has one row or column.
        row, col: identifiers of the lane's first row and column in the tensor.
        at: identifier of the pointer to that element.
        stop: C++ of the row of the tensor before which a lane's accesses end; empty without a
            `row_axis`.
        inside: C++ condition that the leading indices are inside the tensor; empty where there are
            none.
        pairs: two neighbouring columns are one aligned access.
    """

    tensor: TensorParam
    loops: Loops
    rows: Rows
    row_axis: int | None
    col_axis: int | None
    row: str
    col: str
    at: str
    stop: str
    inside: str
    pairs: bool


def _test(ctx: Context, tensor: TensorParam, axis: int, index: str) -> str:
    return f"{ctx.use('inside')}({index}, {ctx.argument('shape', tensor.name, axis)})"


def _walk(
    ctx: Context,
    tensor: TensorParam,
    coords: tuple[Expr, ...],
    shape: Shape,
    layout: str,
    op: ops.Op,
) -> Walk:
    """Declares the values that all accesses of a lane share."""
    rows = ROWS[layout]
    inner = inner_axes(tensor, coords, shape, op)
    row_axis = None if shape[0] == 1 else tensor.rank - inner
    col_axis = None if shape[1] == 1 else tensor.rank - 1
    lane = special("lane")
    leading = range(tensor.rank - inner)
    terms = [index_term(ctx, tensor, axis, operand(ctx, coords[axis], 12)) for axis in leading]
    test = " && ".join(_test(ctx, tensor, axis, text(ctx, coords[axis])) for axis in leading)
    row, col, stop = ctx.temporary("row"), ctx.temporary("col"), ""
    if row_axis is not None:
        stop = last_row(ctx, op, tensor, row_axis, coords[row_axis], shape[0])
        first = add(coords[row_axis], add(mul(special("warp_in_group"), rows.warp), div(lane, 4)))
        ctx.out(f"const i32 {row} = {text(ctx, first)};")
        terms.append(index_term(ctx, tensor, row_axis, row))
    if col_axis is not None:
        ctx.out(f"const i32 {col} = {text(ctx, add(coords[col_axis], mul(mod(lane, 4), 2)))};")
        terms.append(index_term(ctx, tensor, col_axis, col))
    at, offset = ctx.temporary("at"), f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]
    ctx.out(
        f"{memory_type(tensor.dtype)}* const {at} = {ctx.argument('data', tensor.name)} + {offset};"
    )
    # A tensor with a box has strides and an address that are multiples of 16 bytes
    # (cuTensorMapEncodeTiled), so an even column of it is aligned for an access to two.
    pairs = (
        col_axis is not None
        and col_axis == tensor.contiguous_axis
        and tensor.box is not None
        and (tensor.dtype.bits == 16 or tensor.dtype is dtypes.float32)
        and is_multiple(coords[col_axis], 2)
    )
    loops = Loops.over(ctx, shape)
    return Walk(tensor, loops, rows, row_axis, col_axis, row, col, at, stop, test, pairs)


def _sum(base: str, step: Index) -> str:
    code = str(step)
    return base if code == "0" else f"{base} + {code}"


def _line(ctx: Context, w: Walk) -> tuple[str, str]:
    """Declares, inside the loops over rows, and returns (pointer to the lane's first element of the
    row, number of columns of the row). For a fragment of one column the second result is the
    condition that the row is inside.
    """
    step = w.loops.i * w.rows.block + w.loops.h * 8
    here = [w.inside] if w.inside else []
    line = w.at
    if w.row_axis is not None:
        here.append(f"{ctx.use('inside')}({_sum(w.row, step)}, {w.stop})")
        offset = index_term(ctx, w.tensor, w.row_axis, str(step))
        line = ctx.temporary("line")
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


def _accesses(ctx: Context, w: Walk, line: str, end: str) -> list[tuple[str, str]]:
    """The (element in memory, condition that it is inside) of each column of a pair, inside all
    loops.
    """
    if w.col_axis is None:
        return [(f"*{line}", end)]
    steps = [w.loops.j * 8 + low for low in range(2)]
    test = ctx.use("inside")
    return [
        (
            f"{line}[{index_term(ctx, w.tensor, w.col_axis, str(s))}]",
            f"{test}({_sum(w.col, s)}, {end})",
        )
        for s in steps
    ]


def _columns(ctx: Context, w: Walk, end: str, body: Callable[[bool], None]) -> None:
    """Prints the loop over columns around `body(whole)`, inside the loops over rows. Where pairs of
    columns are one access, prints it twice: for a row whose columns are all inside, with a single
    test, and for any other row.
    """
    if not w.pairs or w.row_axis is None or w.loops.pairs == 1:
        with w.loops.columns(ctx):
            body(False)
        return
    test, last = ctx.use("inside"), 8 * (w.loops.pairs - 1) + 1
    with (
        ctx.out.block(
            f"if ({test}({w.col}, {end}) && {test}({w.col} + {last}, {end}))", "} else {"
        ),
        w.loops.columns(ctx),
    ):
        body(True)
    ctx.out.depth += 1
    with w.loops.columns(ctx):
        body(False)
    ctx.out.depth -= 1
    ctx.out("}")


@emit.register
@withheld(ops.FragmentLoadGlobal)
def _(op: ops.FragmentLoadGlobal, ctx: Context) -> None:
    f, tensor = op.dst, op.tensor
    if row_threads(f.layout):
        load_rows(ctx, op)
        return
    shape = (f.rows, f.cols)
    name = registers(ctx, f)
    with ctx.out.block():
        w = _walk(ctx, tensor, op.coords, shape, f.layout, op)
        with w.loops.rows(ctx):
            line, end = _line(ctx, w)

            def body(whole: bool) -> None:
                into = [
                    element(name, f.dtype, shape, w.loops.at(low), f.layout)[0]
                    for low in range(1 if f.cols == 1 else 2)
                ]
                if w.pairs:  # a pair of 16 bits in memory is a pair in a register
                    first, step = _sum(line, w.loops.j * 8), _sum(w.col, w.loops.j * 8)
                    wide = tensor.dtype is dtypes.float32
                    function = f"load_{'whole_' if whole else ''}pair_{'float' if wide else 'u16'}"
                    operands = [first] if whole else [first, step, end]
                    operands += into if wide else []
                    call = f"{ctx.use(function)}({', '.join(operands)});"
                    ctx.out(call if wide else f"{into[0]} = {call}")
                    return
                zero = "0.0f" if tensor.dtype is dtypes.float32 else "0"
                values = [
                    f"{condition} ? {x} : {zero}" for x, condition in _accesses(ctx, w, line, end)
                ]
                if is_packed(f.dtype, f.cols):
                    ctx.out(f"{into[0]} = {ctx.use('join')}({', '.join(values)});")
                    return
                for register, x in zip(into, values, strict=True):
                    ctx.out(f"{register} = {from_memory(ctx, tensor.dtype, x)};")

            _columns(ctx, w, end, body)


@contextmanager
def _rows_written(
    ctx: Context, op: ops.FragmentStoreGlobal | ops.FragmentReduceGlobal
) -> Iterator[tuple[Walk, str, str]]:
    """Prints the loops over the rows that a lane writes, around a body; gives what `_line` does."""
    shape = op.value.shape
    with ctx.out.block():
        w = _walk(ctx, op.tensor, op.coords, shape, layout_of(ctx, op.value, op), op)
        # Of a fragment of one column, the four lanes of a row hold copies: one of them stores.
        one_of_four = (
            ctx.out.block(f"if ({ctx.special('lane')} % 4 == 0)")
            if shape[1] == 1
            else nullcontext()
        )
        with only_first_lanes(ctx, shape), one_of_four, w.loops.rows(ctx):
            yield w, *_line(ctx, w)


@emit.register
@withheld(ops.FragmentStoreGlobal)
def _(op: ops.FragmentStoreGlobal, ctx: Context) -> None:
    tensor = op.tensor
    if row_threads(layout := layout_of(ctx, op.value, op)):
        store_rows(ctx, op, layout)
        return
    with _rows_written(ctx, op) as (w, line, end):

        def body(whole: bool) -> None:
            if w.pairs:
                first, step = _sum(line, w.loops.j * 8), _sum(w.col, w.loops.j * 8)
                wide = tensor.dtype is dtypes.float32
                function = f"store_{'whole_' if whole else ''}pair_{'float' if wide else 'u16'}"
                if wide:
                    values = [text(ctx, op.value, w.loops.at(low)) for low in range(2)]
                else:
                    values = [packed(ctx, tensor.dtype, op.value, str(w.loops.i), w.loops.pair)]
                operands = [first, *values] if whole else [first, *values, step, end]
                ctx.out(f"{ctx.use(function)}({', '.join(operands)});")
                return
            for low, (place, condition) in enumerate(_accesses(ctx, w, line, end)):
                x = to_memory(ctx, tensor.dtype, text(ctx, op.value, w.loops.at(low)))
                ctx.out(f"if ({condition}) {place} = {x};")

        _columns(ctx, w, end, body)


@emit.register
@withheld(ops.FragmentReduceGlobal)
def _(op: ops.FragmentReduceGlobal, ctx: Context) -> None:
    if row_threads(layout := layout_of(ctx, op.value, op)):
        store_rows(ctx, op, layout)
        return
    dtype = op.tensor.dtype
    kind = small_float(dtype) or memory_type(dtype)
    pair = strong_accesses.add_pair(kind)
    one = strong_accesses.Atomic(op.operation, kind, "relaxed", "gpu", returns=False).snippet()
    with _rows_written(ctx, op) as (w, line, end):

        def body(whole: bool) -> None:
            if w.pairs:
                if dtype is dtypes.float32:
                    values = [text(ctx, op.value, w.loops.at(low)) for low in range(2)]
                else:
                    values = [packed(ctx, dtype, op.value, str(w.loops.i), w.loops.pair)]
                first, step = _sum(line, w.loops.j * 8), _sum(w.col, w.loops.j * 8)
                both = "" if whole else f"if ({ctx.use('inside')}({step} + 1, {end})) "
                add_pair = ctx.module.add_snippet(pair)
                ctx.out(f"{both}{add_pair}({', '.join([first, *values])});")
                if not whole:  # of an odd number of columns, the last
                    x = to_memory(ctx, dtype, text(ctx, op.value, w.loops.at(0)))
                    last = f"if ({step} == {end} - 1)"
                    ctx.out(f"{last} {ctx.module.add_snippet(one)}({first}, {x});")
                return
            for low, (place, condition) in enumerate(_accesses(ctx, w, line, end)):
                x = to_memory(ctx, dtype, text(ctx, op.value, w.loops.at(low)))
                ctx.out(f"if ({condition}) {ctx.module.add_snippet(one)}(&{place}, {x});")

        _columns(ctx, w, end, body)
