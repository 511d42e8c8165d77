"""Fragments: arrays of registers, elementwise loops over them, row reductions, and their way to and from shared memory.

Register r of row block i of an (m, n) fragment is row 64 i + 16 w + 8 (r / 2 % 2) + l / 4 and column 8 (r / 4) + 2 (l % 4) + r % 2 for lane l of
warp w of the warpgroup (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma, matrix D).
"""

from __future__ import annotations

from tilepipe.cuda.addresses import Step, walk_tile, whole_address
from tilepipe.cuda.arithmetic import add, div, index, mod, mul, special
from tilepipe.cuda.context import Context
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import At, literal, text
from tilepipe.cuda.types import is_packed, memory_type, register_type, small_float
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir import exprs as e
from tilepipe.ir.dtypes import DType
from tilepipe.ir.exprs import Expr, Local, const
from tilepipe.ir.memory import Fragment, SmemBuffer, Tile


def declare_array(ctx: Context, name: str, dtype: DType, rows: int, cols: int, packed: bool = False) -> None:
    """Declares the registers of a fragment, or of a fragment-shaped value."""
    c_type = "u32" if packed else register_type(dtype)
    per_block = 2 if cols == 1 else cols // (4 if packed else 2)
    ctx.out(f"{c_type} {name}[{rows // 64}][{per_block}];")


def _index(ctx: Context, name: str, trips: int) -> str:
    """A loop index, or 0 where the loop runs once."""
    return "0" if trips == 1 else ctx.temporary(name)


def assign_array(ctx: Context, name: str, shape: e.Shape, value: Expr, col: int = 0) -> None:
    """array[...] = value, elementwise, from column `col`."""
    blocks, cols = shape[0] // 64, shape[1]
    i = _index(ctx, "i", blocks)
    if cols == 1:
        h = ctx.temporary("h")
        with ctx.out.loop(i, blocks), ctx.out.loop(h, 2):
            ctx.out(f"{name}[{i}][{h}] = {text(ctx, value, At(i, '', h))};")
        return
    r = ctx.temporary("r")
    with ctx.out.loop(i, blocks), ctx.out.loop(r, cols // 2):
        at = f"{r} + {col // 2}" if col else r
        ctx.out(f"{name}[{i}][{at}] = {text(ctx, value, At(i, r, f'{r} / 2 % 2'))};")


def _packed(ctx: Context, dtype: DType, value: Expr, block: str, pair: str) -> str:
    """Registers 2 pair and 2 pair + 1 of a value, as one register of two 16-bit floats."""
    while isinstance(value, e.Cast) and value.dtype is dtype:
        value = value.a  # packing rounds
    if isinstance(value, e.FragmentRead) and is_packed(value.fragment.dtype, value.fragment.cols) and value.dtype is dtype:
        return f"{ctx.names.find(value.fragment)}[{block}][{pair}{f' + {value.col // 4}' if value.col else ''}]"
    half = f"{pair} % 2" if pair.isidentifier() else f"({pair}) % 2"
    first = f"2 * {pair}" if pair.isidentifier() else f"2 * ({pair})"
    low, high = (text(ctx, value, At(block, x, half)) for x in (first, f"{first} + 1"))
    return f"{ctx.use(f'pack_{small_float(dtype)}')}({low}, {high})"


@emit.register
def _(op: ops.FragmentDefine, ctx: Context) -> None:
    f = op.fragment
    declare_array(ctx, ctx.names.of(f, f.name), f.dtype, f.rows, f.cols, is_packed(f.dtype, f.cols))


def _registers(ctx: Context, f: Fragment) -> str:
    name = ctx.names.find(f)
    if name is None:
        raise CompileError(f"fragment '{f.name}' is used in a role that did not create it", f.loc)
    return name


@emit.register
def _(op: ops.FragmentSet, ctx: Context) -> None:
    f = op.fragment
    name = _registers(ctx, f)
    shape = (f.rows, op.value.shape[1]) if op.value.shape else (f.rows, f.cols)
    if op.value.shape and op.value.shape[1] == 1 and f.cols > 1 and op.col == 0:
        shape = (f.rows, f.cols)  # one value a row, broadcast
    if not is_packed(f.dtype, f.cols):
        assign_array(ctx, name, shape, op.value, op.col)
        return
    blocks = shape[0] // 64
    i, q = _index(ctx, "i", blocks), ctx.temporary("q")
    with ctx.out.loop(i, blocks), ctx.out.loop(q, shape[1] // 4):
        at = f"{q} + {op.col // 4}" if op.col else q
        ctx.out(f"{name}[{i}][{at}] = {_packed(ctx, f.dtype, op.value, i, q)};")


@emit.register
def _(op: ops.FragmentReduce, ctx: Context) -> None:
    name = _registers(ctx, op.dst)
    rows, cols = op.value.shape
    blocks = rows // 64
    i, h = _index(ctx, "i", blocks), ctx.temporary("h")
    if register_type(op.value.dtype) != "float" or op.op not in ("add", "max"):
        raise CompileError(f"a row reduction is add or max of floats, not {op.op} of {op.value.dtype}", op.loc)
    with ctx.out.loop(i, blocks), ctx.out.loop(h, 2):
        if cols == 1:
            ctx.out(f"{name}[{i}][{h}] = {text(ctx, op.value, At(i, '', h))};")
            return
        x, j = ctx.temporary("x"), ctx.temporary("j")
        start = "0.0f" if op.op == "add" else literal(float("-inf"), dtypes.float32)
        ctx.out(f"float {x} = {start};")
        with ctx.out.loop(j, cols // 8):
            block = "" if cols == 8 else f"4 * {j} + "
            for low in ("", " + 1"):
                element = text(ctx, op.value, At(i, f"{block}2 * {h}{low}", h))
                ctx.out(f"{x} += {element};" if op.op == "add" else f"{x} = fmaxf({x}, {element});")
        ctx.out(f"{name}[{i}][{h}] = {ctx.use(f'row_{op.op}')}({x});")


# -- to and from shared memory ----------------------------------------------------------------------------------------


def _rows_of_warp(ctx: Context) -> tuple[Expr, int]:
    """(first row of this warp in the tile, rows of the tile for each 64 of the fragment)."""
    return (const(0), 16) if ctx.per_warp else (mul(special("warp_in_group"), 16), 64)


def _counter(ctx: Context, name: str) -> Local:
    local = index(ctx.temporary(name))
    ctx.names.put(local, local.name)
    return local


def _check_extent(ctx: Context, t: Tile, shape: e.Shape, op: ops.Op) -> None:
    per_block = 16 if ctx.per_warp else 64
    wanted = (shape[0] // 64 * per_block, shape[1])
    if (t.rows, t.cols) != wanted:
        raise CompileError(
            f"a {shape[0]}×{shape[1]} fragment meets a {t.rows}×{t.cols} tile of '{t.buffer.name}'; it takes {wanted[0]}×{wanted[1]}"
            f"{' (16 rows a warp for each 64)' if ctx.per_warp else ''}",
            op.loc,
        )


@emit.register
def _(op: ops.FragmentStore, ctx: Context) -> None:
    _check_extent(ctx, op.dst, op.value.shape, op)
    if op.dst.cta is not None:
        raise CompileError("a fragment is stored to this CTA's shared memory only", op.loc)
    with ctx.out.block():
        if op.dst.buffer.dtype in (dtypes.float16, dtypes.bfloat16) and op.value.shape[1] > 1:
            _store_matrices(ctx, op)
        else:
            _store_elements(ctx, op)


def _store_matrices(ctx: Context, op: ops.FragmentStore) -> None:
    """stmatrix: four 8×8 matrices, 16 rows and 16 columns of the warp, an instruction; each lane gives the address of one line."""
    dtype, by_row = op.dst.buffer.dtype, op.dst.buffer.order == "row"
    blocks, cols = op.value.shape[0] // 64, op.value.shape[1]
    first, step = _rows_of_warp(ctx)
    lane = special("lane")
    if by_row:
        row, col = add(first, mod(lane, 16)), mul(div(lane, 16), 8)
    else:
        row, col = add(first, mul(mod(div(lane, 8), 2), 8)), add(mul(div(lane, 16), 8), mod(lane, 8))
    pairs, rest = divmod(cols, 16)
    i, j = _counter(ctx, "i"), _counter(ctx, "j")
    row_steps, col_steps = [Step(i, step, blocks)], [Step(j, 16, pairs + (rest > 0))]
    address = _address(ctx, op.dst, row, col, row_steps, col_steps)
    block, suffix = _index(ctx, "i", blocks), "" if by_row else "_trans"
    with ctx.out.loop(block, blocks):
        if pairs:
            at_pair = _index(ctx, "j", pairs)
            with ctx.out.loop(at_pair, pairs):
                values = [_packed(ctx, dtype, op.value, block, _plus(at_pair, 4, q)) for q in range(4)]
                where = address if pairs > 1 or col_steps[0].trips == 1 else _at(ctx, address, j, 0)
                ctx.out(f"{ctx.use(f'stmatrix_x4{suffix}')}({where}, {', '.join(values)});")
        if rest:
            values = [_packed(ctx, dtype, op.value, block, str(4 * pairs + q)) for q in range(2)]
            where = _at(ctx, address, j, pairs) if pairs else address
            ctx.out(f"{ctx.use(f'stmatrix_x2{suffix}')}({where}, {', '.join(values)});")


def _plus(name: str, factor: int, offset: int) -> str:
    """`4 * j + 2`, or its value when j is 0."""
    if name == "0":
        return str(offset)
    return f"{factor} * {name} + {offset}" if offset else f"{factor} * {name}"


def _at(ctx: Context, address: str, counter: Local, value: int) -> str:
    """The address where a loop index has one value: declared, so that the expression stays as it is."""
    ctx.out(f"constexpr int {counter.name} = {value};")
    return address


def _address(ctx: Context, t: Tile, row: Expr, col: Expr, rows: list[Step], cols: list[Step]) -> str:
    """Declares what is common to all addresses; returns the address given the loop indices."""
    base, rest = walk_tile(ctx, t, row, col, rows, cols)
    if rest is None:
        return base
    ctx.out(f"const u32 {ctx.temporary('at')} = {base};")
    return rest


def _element_steps(ctx: Context, shape: e.Shape) -> tuple[Expr, Expr, list[Step], list[Step]]:
    """How a warp's lanes walk a tile element by element: first row and column of a lane, row steps, column steps."""
    first, step = _rows_of_warp(ctx)
    lane = special("lane")
    row = add(first, div(lane, 4))
    col = const(0) if shape[1] == 1 else mul(mod(lane, 4), 2)
    i, h, j = _counter(ctx, "i"), _counter(ctx, "h"), _counter(ctx, "j")
    return row, col, [Step(i, step, shape[0] // 64), Step(h, 8, 2)], [Step(j, 8, max(shape[1] // 8, 1))]


def _pair_bytes(buffer: SmemBuffer) -> int:
    """From one column to the next, in bytes; the swizzle does not come between the two columns of a pair."""
    return buffer.dtype.nbytes if buffer.order == "row" else 0


def _store_elements(ctx: Context, op: ops.FragmentStore) -> None:
    buffer = op.dst.buffer
    blocks, cols = op.value.shape[0] // 64, op.value.shape[1]
    small, c_type = small_float(buffer.dtype), memory_type(buffer.dtype)
    row, col, rows, columns = _element_steps(ctx, op.value.shape)
    by_pair = buffer.order == "row" and cols > 1
    addresses = [_address(ctx, op.dst, row, col, rows, columns)]
    if not by_pair and cols > 1:
        addresses.append(_whole(ctx, op.dst, row, add(col, 1), rows, columns))
    i, h, j = _index(ctx, "i", blocks), ctx.temporary("h"), _index(ctx, "j", columns[0].trips)

    def converted(register: str) -> str:
        x = text(ctx, op.value, At(i, register, h))
        return x if small is None else f"{ctx.use(f'{small}_from')}({x})"

    with ctx.out.loop(i, blocks), ctx.out.loop(h, 2), ctx.out.loop(j, columns[0].trips):
        first = f"2 * {h}" if j == "0" else f"4 * {j} + 2 * {h}"
        store = ctx.use(f"store_{c_type}")
        if cols == 1:
            ctx.out(f"{store}({addresses[0]}, {converted('')});")  # the four lanes of a row write the same value
        elif by_pair and c_type == "float":
            ctx.out(f"{ctx.use('store_float2')}({addresses[0]}, {converted(first)}, {converted(f'{first} + 1')});")
        else:
            seconds = f"{addresses[0]} + {_pair_bytes(buffer)}" if by_pair else addresses[1]
            ctx.out(f"{store}({addresses[0]}, {converted(first)});")
            ctx.out(f"{store}({seconds}, {converted(f'{first} + 1')});")


def _whole(ctx: Context, t: Tile, row: Expr, col: Expr, rows: list[Step], cols: list[Step]) -> str:
    """The address of the second column of a pair in a column-major tile, computed in full."""
    return whole_address(ctx, t, add(t.row, row), add(t.col, col), rows, cols)


@emit.register
def _(op: ops.FragmentLoad, ctx: Context) -> None:
    f, buffer = op.dst, op.src.buffer
    _check_extent(ctx, op.src, (f.rows, f.cols), op)
    name = _registers(ctx, f)
    small, c_type = small_float(buffer.dtype), memory_type(buffer.dtype)
    load = ctx.use(f"load_{c_type}")
    with ctx.out.block():
        row, col, rows, columns = _element_steps(ctx, (f.rows, f.cols))
        first = _address(ctx, op.src, row, col, rows, columns)
        by_row = buffer.order == "row"
        second = f"{first} + {_pair_bytes(buffer)}" if by_row else _whole(ctx, op.src, row, add(col, 1), rows, columns)
        i, h, j = _index(ctx, "i", f.rows // 64), ctx.temporary("h"), _index(ctx, "j", columns[0].trips)
        with ctx.out.loop(i, f.rows // 64), ctx.out.loop(h, 2), ctx.out.loop(j, columns[0].trips):
            pair = h if j == "0" else f"2 * {j} + {h}"
            values = [f"{load}({a})" for a in (first, second)]
            if small is not None:
                values = [f"{ctx.use(f'from_{small}')}({v})" for v in values]
            if f.cols == 1:
                ctx.out(f"{name}[{i}][{h}] = {values[0]};")
            elif is_packed(f.dtype, f.cols):
                ctx.out(f"{name}[{i}][{pair}] = {ctx.use(f'pack_{small_float(f.dtype)}')}({', '.join(values)});")
            else:
                ctx.out(f"{name}[{i}][2 * ({pair})] = {values[0]};")
                ctx.out(f"{name}[{i}][2 * ({pair}) + 1] = {values[1]};")
