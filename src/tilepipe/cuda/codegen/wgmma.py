"""wgmma as loops of instructions over K, on matrix descriptors (`matrices`) and registers."""

from __future__ import annotations

from tilepipe.cuda.codegen.addresses import counter, place
from tilepipe.cuda.codegen.context import Context, emit, require_rule
from tilepipe.cuda.codegen.liveness import holds
from tilepipe.cuda.codegen.matrices import WGMMA, accumulates, operand
from tilepipe.cuda.codegen.registers import registers
from tilepipe.cuda.ptx.wgmma import Instruction
from tilepipe.ir import ops
from tilepipe.ir.expressions import Const
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.hardware.mma import broken_wgmma_rule, operand_dtype
from tilepipe.ir.hardware.operand_tiles import mma_k
from tilepipe.ir.memory import SmemBuffer, Tile
from tilepipe.ir.program import walk


def _rows_offset(buffer: SmemBuffer, rows: int) -> int:
    """The bytes from one row of a tile to the row `rows`, a multiple of 64, after it."""
    p = place(buffer)
    return rows * p.line if buffer.order == "row" else rows // p.panel * p.panel_bytes


@emit.register
def _(op: ops.Wgmma, ctx: Context) -> None:
    acc, a, b = op.acc, op.a, op.b
    require_rule(broken_wgmma_rule(acc, a, b), op, "wgmma")
    blocks, steps = acc.rows // 64, b.cols // mma_k(b.buffer.dtype)
    adds = isinstance(op.accumulate, Const) and bool(op.accumulate.value)
    instruction = Instruction(
        b.rows,
        operand_dtype(a),
        b.buffer.dtype,
        a_in_registers=isinstance(a, Fragment),
        transposed_a=isinstance(a, Tile) and a.buffer.order == "col",
        transposed_b=b.buffer.order == "col",
        scale_d=not adds,
    )
    function = ctx.module.add_snippet(instruction.snippet())
    array = registers(ctx, acc)
    k = counter(ctx, "k", steps)
    with ctx.out.block():
        scale_d = "" if adds else f", {accumulates(ctx, op.accumulate, k.name, steps)}"
        source = operand(ctx, a, "a_start", WGMMA) if isinstance(a, Tile) else None
        other = operand(ctx, b, "b_start", WGMMA)
        with ctx.out.loop(k.name, steps):
            right = other.descriptor(ctx, k, steps)
            for i in range(blocks):
                if isinstance(a, Tile):
                    assert source is not None
                    left = source.descriptor(ctx, k, steps, _rows_offset(a.buffer, 64 * i))
                else:
                    block = f"{registers(ctx, a)}[{i}]"
                    left = ", ".join(
                        f"{block}[{f'4 * {k.name}' if steps > 1 else '0'} + {q}]" for q in range(4)
                    )
                ctx.out(f"{function}({array}[{i}], {left}, {right}{scale_d});")


def _keep(ctx: Context) -> None:
    """Prints `keep` for the registers of wgmma's operands, which stops the compiler from moving
    their uses: wgmma reads and writes them while other code runs. Fragments of closed blocks, such
    as the body of a loop after the loop, have no name here, and no later code uses them. Nor are
    those kept that hold nothing at this place: others may have their registers.
    """
    around = (*(block for block, _ in ctx.enclosing), ctx.block)
    visible = {
        op.fragment for block in around for op in block.ops if isinstance(op, ops.FragmentDefine)
    }
    body = ctx.role.body if ctx.role is not None else ctx.kernel.setup
    used = {
        x: None
        for op in walk(body)
        if isinstance(op, ops.Wgmma)
        for x in (op.acc, op.a)
        if isinstance(x, Fragment)
    }
    path = [*ctx.enclosing[1:], (ctx.block, ctx.position)]  # the first is around the function
    for f in used:
        if ctx.names.find(f) is not None and f in visible and holds(f, path):
            ctx.out(f"{ctx.use('keep')}({registers(ctx, f)});")


@emit.register
def _(op: ops.WgmmaFence, ctx: Context) -> None:
    _keep(ctx)
    ctx.out(f"{ctx.use('wgmma_fence')}();")


def _computes_before(op: ops.WgmmaWait, ctx: Context) -> bool:
    """True if fragments are written between a wait, or MMAs, and this wait in the same block."""
    before = ctx.block.ops[: ctx.block.ops.index(op)]
    for other in reversed(before):
        if isinstance(other, ops.FragmentSet):
            return True
        if isinstance(other, ops.Wgmma | ops.WgmmaWait):
            return False
    return False


@emit.register
def _(op: ops.WgmmaWait, ctx: Context) -> None:
    if _computes_before(op, ctx):
        ctx.out(f"{ctx.use('no_earlier')}();")
    ctx.out(f"{ctx.use('wgmma_wait')}<{op.pending}>();")
    _keep(ctx)
