"""tcgen05.mma as a loop of instructions along K, copies to tensor memory, commits and fences. One thread issues them."""

from __future__ import annotations

from tilepipe.cuda.addresses import barrier
from tilepipe.cuda.arithmetic import index
from tilepipe.cuda.context import Context
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import text
from tilepipe.cuda.matrices import TCGEN05, accumulates, operand
from tilepipe.cuda.tcgen05_ptx import MmaShape
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.exprs import Expr
from tilepipe.ir.geometry import MMA_K_BYTES, mma_k
from tilepipe.ir.memory import Tile
from tilepipe.ir.tcgen05 import broken_copy_rule, broken_mma_rule, operand_dtype

_TMEM_K = MMA_K_BYTES // 4  # columns of 32 bits that A in tensor memory moves by in a step


def of_group(ctx: Context, name: str, cta_group: int) -> str:
    """The wrapper of an instruction, for one CTA or for a pair; its name."""
    return ctx.use(f"{name}_pair" if cta_group == 2 else name)


def address(ctx: Context, x: Expr, name: str) -> str:
    """The identifier of an address in tensor memory; declared where it is not one yet."""
    code = text(ctx, x)
    if code.isidentifier():
        return code
    at = ctx.temporary(name)
    ctx.out(f"const u32 {at} = {code};")
    return at


@emit.register
def _(op: ops.Tcgen05Mma, ctx: Context) -> None:
    acc, a, b = op.acc, op.a, op.b
    broken = broken_mma_rule(acc, a, b, op.cta_group)
    if broken is not None:
        raise CompileError(f"tcgen05.mma: {broken}", op.loc)
    transposed_a = isinstance(a, Tile) and a.buffer.order == "col"
    shape = MmaShape(acc.rows * op.cta_group, acc.cols, operand_dtype(a), b.buffer.dtype, transposed_a, b.buffer.order == "col")
    constant = ctx.module.add_snippet(shape.snippet())
    function = of_group(ctx, f"tcgen05_mma_{shape.kind}{'' if isinstance(a, Tile) else '_tmem_a'}", op.cta_group)
    steps = b.cols // mma_k(b.buffer.dtype)
    k_name = ctx.temporary("k") if steps > 1 else "0"
    k = index(k_name)
    ctx.names.put(k, k_name)
    with ctx.out.block():
        adds = accumulates(ctx, op.accumulate, k_name, steps)
        into = address(ctx, acc.address, "acc")
        if isinstance(a, Tile):
            left = operand(ctx, a, "a_start", TCGEN05).descriptor(ctx, k, steps)
        else:
            left = address(ctx, a.address, "a_columns") + (f" + {k_name} * {_TMEM_K}" if steps > 1 else "")
        other = operand(ctx, b, "b_start", TCGEN05)
        with ctx.out.loop(k_name, steps):
            ctx.out(f"{function}({into}, {left}, {other.descriptor(ctx, k, steps)}, {constant}, {adds});")


@emit.register
def _(op: ops.TmemCopy, ctx: Context) -> None:
    broken = broken_copy_rule(op.dst, op.src)
    if broken is not None:
        raise CompileError(broken, op.loc)
    function = of_group(ctx, "tmem_copy_128x128b" if op.src.rows == 128 else "tmem_copy_32x128b_warpx4", op.cta_group)
    with ctx.out.block():
        source = operand(ctx, op.src, "start", TCGEN05)
        ctx.out(f"{function}({text(ctx, op.dst.address)}, {source.constant} | {source.start});")


@emit.register
def _(op: ops.Tcgen05Commit, ctx: Context) -> None:
    if op.mask is None:
        ctx.out(f"{of_group(ctx, 'tcgen05_commit', op.cta_group)}({barrier(ctx, op.bar)});")
        return
    ctx.out(f"{of_group(ctx, 'tcgen05_commit_multicast', op.cta_group)}({barrier(ctx, op.bar)}, {text(ctx, op.mask)});")


@emit.register
def _(op: ops.Tcgen05FenceBefore, ctx: Context) -> None:
    ctx.out(f"{ctx.use('tcgen05_fence_before')}();")


@emit.register
def _(op: ops.Tcgen05FenceAfter, ctx: Context) -> None:
    ctx.out(f"{ctx.use('tcgen05_fence_after')}();")
