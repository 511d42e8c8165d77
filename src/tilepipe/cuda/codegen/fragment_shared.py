"""Loads and stores of fragments in shared memory: ldmatrix and stmatrix for 16-bit tiles of this
CTA, ordinary accesses for other tiles and for tiles of another CTA.
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.cuda.codegen.addresses import Step, counter, walk_tile, whole_address
from tilepipe.cuda.codegen.arithmetic import add, div, mod, mul
from tilepipe.cuda.codegen.context import Context, emit, require_rule
from tilepipe.cuda.codegen.expressions import from_memory, text, to_memory
from tilepipe.cuda.codegen.fragments import layout_of, only_first_lanes, packed
from tilepipe.cuda.codegen.indices import Index
from tilepipe.cuda.codegen.names import is_packed, memory_type
from tilepipe.cuda.codegen.registers import (
    ROWS,
    At,
    Loops,
    RowLoops,
    element,
    groups_of,
    loop_index,
    registers,
)
from tilepipe.cuda.codegen.row_stores import row_writers
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, Shape, const, special
from tilepipe.ir.fragment import FOURS, WARP, Fragment, row_threads
from tilepipe.ir.hardware.operand_tiles import (
    MATRIX_ROW,
    broken_stmatrix_rule,
    is_multiple,
    takes_stmatrix,
)
from tilepipe.ir.memory import Tile

_WIDE = 110  # characters beyond which a call is printed on several lines


def _rows_of_warp(ctx: Context, layout: str) -> tuple[Expr, int]:
    """The (first row of this warp in the tile, rows from one row block of the warp to the next)."""
    rows = ROWS[layout]
    return (
        (const(0), 16) if ctx.per_warp else (mul(special("warp_in_group"), rows.warp), rows.block)
    )


def _check(ctx: Context, t: Tile, shape: Shape, op: ops.Op) -> None:
    if shape[1] == 1 and (t.rows, t.cols) == shape:
        return
    wanted = (shape[0] // 64 * (16 if ctx.per_warp else 64) or 1, shape[1])
    turned = isinstance(op, ops.FragmentLoad) and shape[1] == 1 and (t.cols, t.rows) == wanted
    if (t.rows, t.cols) != wanted and not turned:
        note = " (16 rows of this warp for each 64)" if ctx.per_warp else ""
        raise CompileError(
            f"a {shape[0]}×{shape[1]} fragment meets a {t.rows}×{t.cols} tile of '{t.buffer.name}';"
            f" it takes {wanted[0]}×{wanted[1]}{note}",
            op.loc,
        )


def _address(
    ctx: Context,
    t: Tile,
    row: Expr,
    col: Expr,
    rows: list[Step],
    cols: list[Step],
    name: str = "at",
) -> str:
    """Declares the common part of all addresses, under this name; returns the address inside the
    loops.
    """
    base, rest = walk_tile(ctx, t, row, col, rows, cols, name)
    if rest is None:
        return base
    ctx.out(f"const u32 {ctx.temporary(name)} = {base};")
    return rest


def _call(ctx: Context, function: str, operands: list[str]) -> None:
    line = f"{ctx.use(function)}({', '.join(operands)});"
    if len(line) + 4 * ctx.out.depth <= _WIDE:
        ctx.out(line)
        return
    ctx.out(f"{function}({operands[0]},")
    ctx.out.depth += 1
    for x in operands[1:-1]:
        ctx.out(f"{x},")
    ctx.out(f"{operands[-1]});")
    ctx.out.depth -= 1


@emit.register
def _(op: ops.FragmentStore, ctx: Context) -> None:
    _check(ctx, op.dst, op.value.shape, op)
    with ctx.out.block():
        if row_threads(layout := layout_of(ctx, op.value, op)):
            _store_row_values(ctx, op, layout)
        elif takes_stmatrix(op.dst, op.value.shape):
            _store_matrices(ctx, op)
        else:
            _store_elements(ctx, op)


def _store_matrices(ctx: Context, op: ops.FragmentStore) -> None:
    """Stores with stmatrix."""
    require_rule(broken_stmatrix_rule(op.dst), op)
    dtype, layout = op.dst.buffer.dtype, layout_of(ctx, op.value, op)
    _move_matrices(
        ctx,
        "stmatrix",
        op.dst,
        op.value.shape,
        layout,
        lambda block, pair: packed(ctx, dtype, op.value, block, pair),
    )


def _takes_ldmatrix(t: Tile, f: Fragment) -> bool:
    """Whether a fragment is loaded by ldmatrix: it reads what stmatrix could have written (PTX ISA,
    ldmatrix), as pairs of 16 bits. Ordinary loads take tiles whose lines are elsewhere, and convert
    to a wider fragment.
    """
    if f.layout == FOURS:
        return True
    pairs = is_packed(f.dtype, f.cols)
    return pairs and takes_stmatrix(t, (f.rows, f.cols)) and broken_stmatrix_rule(t) is None


def _load_matrices(ctx: Context, op: ops.FragmentLoad) -> None:
    """Loads with ldmatrix."""
    f, name = op.dst, registers(ctx, op.dst)
    shape = f.rows, f.cols
    if f.layout == FOURS:
        _move_matrices(
            ctx, "ldmatrix", op.src, shape, "wgmma", lambda block, word: f"{name}[{block}][{word}]"
        )
        return
    _move_matrices(
        ctx,
        "ldmatrix",
        op.src,
        shape,
        f.layout,
        lambda block, pair: element(name, f.dtype, shape, At(block, pair * 2, ""), f.layout)[0],
    )


def _move_matrices(
    ctx: Context,
    instruction: str,
    t: Tile,
    shape: Shape,
    layout: str,
    register: Callable[[str, Index], str],
) -> None:
    """Moves a fragment with ldmatrix or stmatrix. One instruction moves four 8×8 matrices: 16
    columns of the 16 rows of a warp.

    Lane l gives the address of line l % 8 of matrix l / 8, and the matrices are the registers in
    their order: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. In a row-major tile a line
    is a row of 8 columns, so lane l points at row l % 16 and column 8 (l / 16). In a column-major
    tile, which takes .trans, a line is a column of 8 rows.

    Args:
        register: (row block, pair of columns) -> the C++ of the register with both.
    """
    by_row = t.buffer.order == "row"
    width = MATRIX_ROW // t.buffer.dtype.nbytes  # columns of a matrix
    blocks, (pairs, rest) = shape[0] // 64, divmod(shape[1], 2 * width)
    first, step = _rows_of_warp(ctx, layout)
    lane = special("lane")
    if by_row:
        row, col = add(first, mod(lane, 16)), mul(div(lane, 16), width)
    else:
        row, col = (
            add(first, mul(mod(div(lane, 8), 2), 8)),
            add(mul(div(lane, 16), 8), mod(lane, 8)),
        )
    suffix = "" if by_row else "_trans"
    row_steps = [Step(counter(ctx, "i"), step, blocks)]
    i = loop_index(ctx, "i", blocks)
    if pairs:
        j = loop_index(ctx, "j", pairs)
        address = _address(ctx, t, row, col, row_steps, [Step(counter(ctx, "j"), 2 * width, pairs)])
        with ctx.out.loop(str(i), blocks), ctx.out.loop(str(j), pairs):
            values = [register(str(i), j * 4 + q) for q in range(4)]
            _call(ctx, f"{instruction}_x4{suffix}", [address, *values])
    if rest:  # the last eight columns: x2 takes the addresses of lanes 0-15 and ignores the others
        last = const(2 * width * pairs) if by_row else add(mod(lane, 8), 16 * pairs)
        address = whole_address(ctx, t, add(t.row, row), add(t.col, last), row_steps, [])
        with ctx.out.loop(str(i), blocks):
            values = [register(str(i), Index(4 * pairs + q)) for q in range(2)]
            _call(ctx, f"{instruction}_x2{suffix}", [address, *values])


def _walk(ctx: Context, t: Tile, shape: Shape, layout: str) -> tuple[list[str], Loops]:
    """The addresses of the two columns of a lane's pair, or one address where an access takes both;
    and the loops.
    """
    first, step = _rows_of_warp(ctx, layout)
    lane, loops = special("lane"), Loops.over(ctx, shape)
    row = add(first, div(lane, 4)) if shape[0] > 1 else const(0)
    col = mul(mod(lane, 4), 2) if shape[1] > 1 else const(0)
    rows = [Step(counter(ctx, "i"), step, loops.blocks), Step(counter(ctx, "h"), 8, loops.halves)]
    cols = [Step(counter(ctx, "j"), 8, loops.pairs)]
    if t.rows == 1 and shape[1] == 1:  # the tile is a row that runs along the fragment's rows
        return [_address(ctx, t, const(0), row, [], rows)], loops
    addresses = [_address(ctx, t, row, col, rows, cols)]
    if shape[1] > 1 and not _pairs_together(t):
        addresses.append(_address(ctx, t, row, add(col, 1), rows, cols, "next"))
    return addresses, loops


def _pairs_together(t: Tile) -> bool:
    """True if one access takes columns 2 j and 2 j + 1 of a rectangle: they are neighbours at a
    multiple of two elements, and no small floats of 8 bits. The swizzle, which moves 16-byte
    chunks, does not separate them.
    """
    b = t.buffer
    return (
        b.order == "row"
        and is_multiple(t.col, 2)
        and b.cols % 2 == 0
        and (b.dtype.bits == 16 or b.dtype is dtypes.float32 or _integer_pair(b.dtype))
    )


def _integer_pair(t: DType) -> bool:
    """True if two integers of this dtype make one access, of 16 or 64 bits."""
    return t.is_integer and t.bits in (8, 32)


def _store_elements(ctx: Context, op: ops.FragmentStore) -> None:
    buffer, shape, remote = op.dst.buffer, op.value.shape, "" if op.dst.cta is None else "_remote"
    c_type = memory_type(buffer.dtype)
    addresses, loops = _walk(ctx, op.dst, shape, layout_of(ctx, op.value, op))

    def converted(low: int) -> str:
        return to_memory(ctx, buffer.dtype, text(ctx, op.value, loops.at(low)))

    # Of a fragment of one row, all warps hold copies: four lanes of one warp write it.
    with only_first_lanes(ctx, shape), loops.rows(ctx), loops.columns(ctx):
        if shape[1] == 1 or len(addresses) == 2:
            for low, address in enumerate(addresses):
                ctx.out(f"{ctx.use(f'store_{c_type}{remote}')}({address}, {converted(low)});")
        elif c_type == "float":
            _call(ctx, f"store_float2{remote}", [addresses[0], converted(0), converted(1)])
        elif buffer.dtype.is_integer:
            function = "store_u32x2" if buffer.dtype.bits == 32 else "store_bytes"
            _call(ctx, f"{function}{remote}", [addresses[0], converted(0), converted(1)])
        else:
            pair = packed(ctx, buffer.dtype, op.value, str(loops.i), loops.pair)
            _call(ctx, f"store_u32{remote}", [addresses[0], pair])


def _walk_row_values(ctx: Context, t: Tile, shape: Shape, layout: str) -> tuple[str, RowLoops]:
    """The address of a thread's row of a fragment (m, 1) of layout "rows:T", and the loops."""
    threads, groups = row_threads(layout), groups_of(ctx, layout)
    loops = RowLoops.over(ctx, shape, layout)
    assert ctx.role is not None
    within = div(special("lane"), threads) if threads < WARP else const(0)
    if ctx.role.is_warpgroup:
        warp = special("warp_in_group")
        within = add(mul(warp, max(WARP // threads, 1)), within) if threads <= WARP else within
        within = div(warp, threads // WARP) if threads > WARP else within
    row = within if groups > 1 and shape[0] > 1 else const(0)
    steps = [Step(counter(ctx, "i"), groups, loops.blocks)]
    return _address(ctx, t, row, const(0), steps, []), loops


def _store_row_values(ctx: Context, op: ops.FragmentStore, layout: str) -> None:
    buffer, shape, remote = op.dst.buffer, op.value.shape, "" if op.dst.cta is None else "_remote"
    function = ctx.use(f"store_{memory_type(buffer.dtype)}{remote}")
    address, loops = _walk_row_values(ctx, op.dst, shape, layout)
    with row_writers(ctx, shape, layout), loops.rows(ctx):
        value = to_memory(ctx, buffer.dtype, text(ctx, op.value, loops.at()))
        ctx.out(f"{function}({address}, {value});")


def _load_row_values(ctx: Context, op: ops.FragmentLoad) -> None:
    f, buffer, remote = op.dst, op.src.buffer, "" if op.src.cta is None else "_remote"
    shape, name = (f.rows, f.cols), registers(ctx, f)
    function = ctx.use(f"load_{memory_type(buffer.dtype)}{remote}")
    with ctx.out.block():
        address, loops = _walk_row_values(ctx, op.src, shape, f.layout)
        with loops.rows(ctx):
            into = element(name, f.dtype, shape, loops.at(), f.layout)[0]
            ctx.out(f"{into} = {from_memory(ctx, buffer.dtype, f'{function}({address})')};")


@emit.register
def _(op: ops.FragmentLoad, ctx: Context) -> None:
    if row_threads(op.dst.layout):
        _check(ctx, op.src, (op.dst.rows, op.dst.cols), op)
        _load_row_values(ctx, op)
        return
    f, buffer, remote = op.dst, op.src.buffer, "" if op.src.cta is None else "_remote"
    shape = (f.rows, f.cols)
    _check(ctx, op.src, shape, op)
    name = registers(ctx, f)
    c_type = memory_type(buffer.dtype)
    with ctx.out.block():
        if _takes_ldmatrix(op.src, f):
            _load_matrices(ctx, op)
            return
        addresses, loops = _walk(ctx, op.src, shape, f.layout)
        with loops.rows(ctx), loops.columns(ctx):
            into = [
                element(name, f.dtype, shape, loops.at(low), f.layout)[0]
                for low in range(1 if f.cols == 1 else 2)
            ]
            if len(into) == 2 and len(addresses) == 1:
                if c_type == "float":
                    ctx.out(
                        f"{ctx.use(f'load_float2{remote}')}({addresses[0]}, {into[0]}, {into[1]});"
                    )
                elif buffer.dtype.is_integer:
                    pair = ctx.temporary("pair")
                    if buffer.dtype.bits == 32:
                        load = ctx.use(f"load_u32x2{remote}")
                        values = [f"{pair}[0]", f"{pair}[1]"]
                        ctx.out(f"u32 {pair}[2];")
                        ctx.out(f"{load}({addresses[0]}, {', '.join(values)});")
                    else:
                        values = [pair, f"{pair} >> 8"]
                        ctx.out(
                            f"const u16 {pair} = {ctx.use(f'load_u16{remote}')}({addresses[0]});"
                        )
                    for register, x in zip(into, values, strict=True):
                        ctx.out(f"{register} = static_cast<{c_type}>({x});")
                else:  # a pair in memory is laid out like a pair in a register
                    ctx.out(f"{into[0]} = {ctx.use(f'load_u32{remote}')}({addresses[0]});")
                return
            values = [f"{ctx.use(f'load_{c_type}{remote}')}({a})" for a in addresses]
            if is_packed(f.dtype, f.cols):
                ctx.out(f"{into[0]} = {ctx.use('join')}({', '.join(values)});")
                return
            for register, x in zip(into, values, strict=True):
                ctx.out(f"{register} = {from_memory(ctx, buffer.dtype, x)};")
