"""Fragments to and from shared memory: stmatrix for 16-bit tiles, ordinary accesses for the others."""

from __future__ import annotations

from tilepipe.cuda.addresses import Step, walk_tile, whole_address
from tilepipe.cuda.arithmetic import add, div, index, mod, mul, special
from tilepipe.cuda.c_types import is_packed, memory_type, small_float
from tilepipe.cuda.context import Context
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import text
from tilepipe.cuda.fragments import element_register, packed, registers
from tilepipe.cuda.registers import At, Index, loop_index
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.exprs import Expr, Local, Shape, const
from tilepipe.ir.geometry import broken_stmatrix_rule, is_multiple
from tilepipe.ir.memory import Tile

_WIDE = 110  # characters after which a call goes on several lines


def _rows_of_warp(ctx: Context) -> tuple[Expr, int]:
    """(first row of this warp in the tile, rows of the tile for each 64 of the fragment)."""
    return (const(0), 16) if ctx.per_warp else (mul(special("warp_in_group"), 16), 64)


def _counter(ctx: Context, name: str) -> Local:
    """A loop variable as an expression."""
    local = index(ctx.temporary(name))
    ctx.names.put(local, local.name)
    return local


def _check(ctx: Context, t: Tile, shape: Shape, op: ops.Op) -> None:
    wanted = (shape[0] // 64 * (16 if ctx.per_warp else 64), shape[1])
    if (t.rows, t.cols) != wanted:
        note = " (16 rows of this warp for each 64)" if ctx.per_warp else ""
        raise CompileError(
            f"a {shape[0]}×{shape[1]} fragment meets a {t.rows}×{t.cols} tile of '{t.buffer.name}'; it takes {wanted[0]}×{wanted[1]}{note}",
            op.loc,
        )
    if t.cta is not None:
        raise CompileError("a fragment goes to and from this CTA's shared memory only", op.loc)


def _address(ctx: Context, t: Tile, row: Expr, col: Expr, rows: list[Step], cols: list[Step]) -> str:
    """Declares what is common to all addresses; returns the address given the loop variables."""
    base, rest = walk_tile(ctx, t, row, col, rows, cols)
    if rest is None:
        return base
    ctx.out(f"const u32 {ctx.temporary('at')} = {base};")
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
        if op.dst.buffer.dtype in (dtypes.float16, dtypes.bfloat16) and op.value.shape[1] > 1:
            _store_matrices(ctx, op)
        else:
            _store_elements(ctx, op)


def _store_matrices(ctx: Context, op: ops.FragmentStore) -> None:
    """stmatrix: four 8×8 matrices, the warp's 16 rows of 16 columns, an instruction; each lane gives the address of
    one line.
    """
    broken = broken_stmatrix_rule(op.dst)
    if broken is not None:
        raise CompileError(broken, op.loc)
    dtype, by_row = op.dst.buffer.dtype, op.dst.buffer.order == "row"
    blocks, (pairs, rest) = op.value.shape[0] // 64, divmod(op.value.shape[1], 16)
    first, step = _rows_of_warp(ctx)
    lane = special("lane")
    if by_row:
        row, col = add(first, mod(lane, 16)), mul(div(lane, 16), 8)
    else:
        row, col = add(first, mul(mod(div(lane, 8), 2), 8)), add(mul(div(lane, 16), 8), mod(lane, 8))
    suffix = "" if by_row else "_trans"
    row_steps = [Step(_counter(ctx, "i"), step, blocks)]
    i = loop_index(ctx, "i", blocks)
    if pairs:
        j = loop_index(ctx, "j", pairs)
        address = _address(ctx, op.dst, row, col, row_steps, [Step(_counter(ctx, "j"), 16, pairs)])
        with ctx.out.loop(str(i), blocks), ctx.out.loop(str(j), pairs):
            values = [packed(ctx, dtype, op.value, str(i), j * 4 + q) for q in range(4)]
            _call(ctx, f"stmatrix_x4{suffix}", [address, *values])
    if rest:  # the last eight columns: lanes 0-15 give the addresses, the others' are ignored
        last = const(16 * pairs) if by_row else add(mod(lane, 8), 16 * pairs)
        address = whole_address(ctx, op.dst, add(op.dst.row, row), add(op.dst.col, last), row_steps, [])
        with ctx.out.loop(str(i), blocks):
            values = [packed(ctx, dtype, op.value, str(i), Index(4 * pairs + q)) for q in range(2)]
            _call(ctx, f"stmatrix_x2{suffix}", [address, *values])


def _walk(ctx: Context, t: Tile, shape: Shape) -> tuple[list[str], Index, str, Index]:
    """Addresses of the two columns of a lane's pairs in an element-by-element walk, and the loop variables i, h, j."""
    first, step = _rows_of_warp(ctx)
    lane = special("lane")
    row, col = add(first, div(lane, 4)), mul(mod(lane, 4), 2) if shape[1] > 1 else const(0)
    blocks, columns = shape[0] // 64, max(shape[1] // 8, 1)
    rows = [Step(_counter(ctx, "i"), step, blocks), Step(_counter(ctx, "h"), 8, 2)]
    cols = [Step(_counter(ctx, "j"), 8, columns)]
    addresses = [_address(ctx, t, row, col, rows, cols)]
    if shape[1] > 1 and _pairs_together(t):
        addresses.append(f"{addresses[0]} + {t.buffer.dtype.nbytes}")
    elif shape[1] > 1:
        addresses.append(whole_address(ctx, t, add(t.row, row), add(t.col, add(col, 1)), rows, cols))
    return addresses, loop_index(ctx, "i", blocks), ctx.temporary("h"), loop_index(ctx, "j", columns)


def _pairs_together(t: Tile) -> bool:
    """Whether columns 2 j and 2 j + 1 of a rectangle surely are neighbours at a multiple of two elements: no swizzle comes
    between them, and one access takes both.
    """
    b = t.buffer
    return b.order == "row" and is_multiple(t.col, 2) and b.cols % 2 == 0


def _store_elements(ctx: Context, op: ops.FragmentStore) -> None:
    buffer, shape = op.dst.buffer, op.value.shape
    small, c_type = small_float(buffer.dtype), memory_type(buffer.dtype)
    addresses, i, h, j = _walk(ctx, op.dst, shape)

    def converted(register: Index) -> str:
        x = text(ctx, op.value, At(str(i), register, h))
        return x if small is None else f"{ctx.use(f'{small}_from')}({x})"

    with ctx.out.loop(str(i), shape[0] // 64), ctx.out.loop(h, 2), ctx.out.loop(str(j), max(shape[1] // 8, 1)):
        values = [converted(element_register(j, h) + low) for low in range(len(addresses))]
        if c_type == "float" and len(values) == 2 and _pairs_together(op.dst):
            _call(ctx, "store_float2", [addresses[0], *values])
            return
        for address, x in zip(addresses, values, strict=True):
            ctx.out(f"{ctx.use(f'store_{c_type}')}({address}, {x});")


@emit.register
def _(op: ops.FragmentLoad, ctx: Context) -> None:
    f, buffer = op.dst, op.src.buffer
    _check(ctx, op.src, (f.rows, f.cols), op)
    name = registers(ctx, f)
    small, c_type = small_float(buffer.dtype), memory_type(buffer.dtype)
    with ctx.out.block():
        addresses, i, h, j = _walk(ctx, op.src, (f.rows, f.cols))
        with ctx.out.loop(str(i), f.rows // 64), ctx.out.loop(h, 2), ctx.out.loop(str(j), max(f.cols // 8, 1)):
            values = [f"{ctx.use(f'load_{c_type}')}({a})" for a in addresses]
            if small is not None:
                values = [f"{ctx.use(f'from_{small}')}({v})" for v in values]
            if f.cols == 1:
                ctx.out(f"{name}[{i}][{h}] = {values[0]};")
            elif is_packed(f.dtype, f.cols):
                pair = j * 2 + Index(0, ((h, 1),))
                ctx.out(f"{name}[{i}][{pair}] = {ctx.use(f'pack_{small_float(f.dtype)}')}({', '.join(values)});")
            else:
                for low, x in enumerate(values):
                    ctx.out(f"{name}[{i}][{element_register(j, h) + low}] = {x};")
