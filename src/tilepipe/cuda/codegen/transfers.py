"""Ordinary loads and stores of single elements, TMA copies, and cluster launch control."""

from __future__ import annotations

from tilepipe.cuda.codegen.addresses import barrier, box, counter, element, place
from tilepipe.cuda.codegen.arithmetic import add, div, mul
from tilepipe.cuda.codegen.context import Context, emit, require_rule
from tilepipe.cuda.codegen.expressions import from_memory, operand, text, to_memory
from tilepipe.cuda.codegen.instrument import load, withheld
from tilepipe.cuda.codegen.names import memory_type, register_type
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, const
from tilepipe.ir.hardware.operand_tiles import broken_tma_rule
from tilepipe.ir.hardware.tma import RAGGED_WRAP
from tilepipe.ir.memory import Element, TensorParam, Tile


def global_element(ctx: Context, tensor: TensorParam, where: tuple[Expr, ...]) -> str:
    """The code of an element of a tensor, such as `a_data[i * a_stride_0 + j]`. The products have
    64 bits because strides have.
    """
    terms = []
    for axis, i in enumerate(where):
        if axis == tensor.contiguous_axis:
            terms.append(operand(ctx, i, 12))
        else:
            terms.append(f"{operand(ctx, i, 13)} * {ctx.argument('stride', tensor.name, axis)}")
    return f"{ctx.argument('data', tensor.name)}[{' + '.join(terms)}]"


def _shared(ctx: Context, e: Element, t: Tile) -> str:
    row, col = e.index if len(e.index) == 2 else (const(0), e.index[0])
    return element(ctx, t, row, col)


@emit.register
def _(op: ops.Load, ctx: Context) -> None:
    match op.src.base:
        case Tile() as t:
            dtype = t.buffer.dtype
            remote = "" if t.cta is None else "_remote"
            code = f"{ctx.use(f'load_{memory_type(dtype)}{remote}')}({_shared(ctx, op.src, t)})"
        case TensorParam() as tensor:
            dtype = tensor.dtype
            code = global_element(ctx, tensor, op.src.index)
    code = load(ctx, code, op.src)
    code = from_memory(ctx, dtype, code)
    if dtype is dtypes.boolean:
        code += " != 0"
    ctx.out(f"const {register_type(dtype)} {ctx.bind(op.result)} = {code};")


@emit.register
@withheld(ops.Store)
def _(op: ops.Store, ctx: Context) -> None:
    dtype = op.dst.base.buffer.dtype if isinstance(op.dst.base, Tile) else op.dst.base.dtype
    value = to_memory(ctx, dtype, text(ctx, op.value))
    match op.dst.base:
        case Tile() as t:
            remote = "" if t.cta is None else "_remote"
            ctx.out(
                f"{ctx.use(f'store_{memory_type(dtype)}{remote}')}({_shared(ctx, op.dst, t)},"
                f" {value});"
            )
        case TensorParam() as tensor:
            ctx.out(f"{global_element(ctx, tensor, op.dst.index)} = {value};")


def _copies(
    ctx: Context, op: ops.TmaLoad | ops.TmaStore | ops.TmaReduce, t: Tile
) -> tuple[int, str, str, list[str]]:
    """The (number of copies, loop index, shared address, coordinates innermost first) of a TMA
    copy, which is one instruction for each panel of the box.
    """
    tensor = op.tensor
    if tensor.box is None or len(op.coords) != tensor.rank:
        raise CompileError(
            f"'{tensor.name}' is {tensor.rank}-d with box {tensor.box}: a TMA copy needs a box"
            f" and {tensor.rank} coordinates, got {len(op.coords)}",
            op.loc,
        )
    require_rule(broken_tma_rule(t), op)
    p = place(t.buffer)
    axis = tensor.contiguous_axis
    extent = tensor.box[axis]
    copies = -(-extent // p.panel)
    panel = counter(ctx, "p")
    coords = list(op.coords)
    address = box(ctx, t)
    if copies > 1:
        coords[axis] = add(coords[axis], mul(panel, p.panel))
        address += f" + {panel.name} * {p.panel_bytes}"
    coords[axis] = div(coords[axis], tensor.dtype.per_byte)  # for 4 bits, the map has bytes
    if axis != tensor.rank - 1:
        coords[-2], coords[-1] = coords[-1], coords[-2]
    return copies, panel.name, address, [text(ctx, c) for c in reversed(coords)]


@emit.register
@withheld(ops.TmaLoad)
def _(op: ops.TmaLoad, ctx: Context) -> None:
    copies, name, address, coords = _copies(ctx, op, op.dst)
    map_ = ctx.argument("map", op.tensor.name)
    if op.tensor.ragged:
        coords[1:2] = _ragged(ctx, op.tensor, op.lines, coords[1])
    rank = len(coords)
    with ctx.out.loop(name, copies):
        head = [address, map_, barrier(ctx, op.bar)]
        function = "tma_load" if op.multicast is None else "tma_load_multicast"
        function += "" if op.bar.cta is None else "_pair"
        function += "" if op.l2 is None else "_hinted"
        if op.multicast is not None:
            head.append(text(ctx, op.multicast))
        if op.l2 is not None:
            head.append(f"{ctx.use(op.l2)}()")
        ctx.out(f"{ctx.use(f'{function}_{rank}d')}({', '.join([*head, *coords])});")


@emit.register
@withheld(ops.TmaStore, ops.TmaReduce)
def _(op: ops.TmaStore | ops.TmaReduce, ctx: Context) -> None:
    copies, name, address, coords = _copies(ctx, op, op.src)
    if op.tensor.ragged:
        coords[1:2] = _ragged(ctx, op.tensor, op.rows, coords[1])
    stem = "tma_store" if isinstance(op, ops.TmaStore) else f"tma_reduce_{op.operation}"
    function = ctx.use(f"{stem}_{len(coords)}d")
    with ctx.out.loop(name, copies):
        ctx.out(
            f"{function}({', '.join([ctx.argument('map', op.tensor.name), address, *coords])});"
        )


def _ragged(ctx: Context, tensor: TensorParam, lines: Expr | None, row: str) -> list[str]:
    """The coordinates for `row` in a ragged map, innermost first (`cuda.runtime.tensormap`).
    With them all but the first `lines` rows of the tile lie outside the map, and TMA clips them, or
    reads zeros. Rows are columns of a column-major tile.
    """
    assert tensor.box is not None
    axis = tensor.lines_axis
    extent = tensor.box[axis]
    wanted = str(extent) if lines is None else f"min({text(ctx, lines)}, {extent})"
    rows, first = ctx.fresh("rows"), row if row.isalnum() else f"({row})"
    ctx.out(
        f"const i32 {rows} = max(min({wanted},"
        f" {ctx.argument('shape', tensor.name, axis)} - {first}), 0);"
    )
    if tensor.loaded:
        return [f"{RAGGED_WRAP} - {rows}", f"{first} + {rows}", str(RAGGED_WRAP)]
    return [f"{extent} - {rows}", f"{first} + {rows}"]


@emit.register
def _(op: ops.TmaStoreWait, ctx: Context) -> None:
    ctx.out(f"{ctx.use('bulk_wait_read' if op.read else 'bulk_wait')}<{op.pending}>();")


@emit.register
@withheld(ops.ClcTryCancel)
def _(op: ops.ClcTryCancel, ctx: Context) -> None:
    function = "clc_try_cancel_multicast" if op.multicast else "clc_try_cancel"
    ctx.out(f"{ctx.use(function)}({box(ctx, op.dst)}, {barrier(ctx, op.bar)});")


@emit.register
def _(op: ops.ClcQuery, ctx: Context) -> None:
    first = ctx.names.of((op, "first"), "first_cta")
    size = ctx.kernel.cluster_size
    code = f"{ctx.use('clc_first_cta')}({box(ctx, op.src)})"
    if ctx.module.debug:
        code = f"{ctx.use('debug_aborted')}() ? ~0u : {code}"
    ctx.out(f"const u32 {first} = {code};")
    ctx.out(f"const bool {ctx.bind(op.valid)} = {first} != ~0u;")
    ctx.out(f"const i32 {ctx.bind(op.cluster)} = {first}{f' / {size}' if size > 1 else ''};")
