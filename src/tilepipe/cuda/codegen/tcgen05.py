"""tcgen05.mma as a loop of instructions along K, and copies to tensor memory, commits and fences of
tcgen05. One thread issues them.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.addresses import barrier, box, counter
from tilepipe.cuda.codegen.arithmetic import add, div, mod, mul
from tilepipe.cuda.codegen.context import Context, emit, require_rule
from tilepipe.cuda.codegen.expressions import operand as bracketed, text
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.codegen.matrices import TCGEN05, MatrixFormat, accumulates, operand
from tilepipe.cuda.ptx.tcgen05 import MmaShape, ScaledShape
from tilepipe.cuda.ptx.wrappers import Snippet
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.hardware.block_scales import broken_scaled_mma_rule, broken_scales_copy_rule
from tilepipe.ir.hardware.mma import broken_copy_rule, broken_tcgen05_rule, operand_dtype
from tilepipe.ir.hardware.operand_tiles import MATRIX_ROW, MMA_K_BYTES, mma_k
from tilepipe.ir.hardware.tensor_memory import (
    PIECE_BYTES,
    SCALE_LANES,
    SCALES_A_COLUMN,
    Scaling,
    pieces,
    scaling_of,
)
from tilepipe.ir.memory import Tile, TmemScales

_TMEM_K = MMA_K_BYTES // 4  # 32-bit columns of A in tensor memory that one step along K takes


def of_group(ctx: Context, name: str, cta_group: int) -> str:
    """Includes the wrapper of an instruction for one CTA or for a pair; returns its name."""
    return ctx.use(f"{name}_pair" if cta_group == 2 else name)


def address(ctx: Context, x: Expr, name: str) -> str:
    """The identifier of an address in tensor memory. An expression is declared under `name`."""
    code = text(ctx, x)
    if code.isidentifier():
        return code
    at = ctx.temporary(name)
    ctx.out(f"const u32 {at} = {code};")
    return at


@emit.register
@withheld(ops.Tcgen05Mma)
def _(op: ops.Tcgen05Mma, ctx: Context) -> None:
    if op.sfa is not None and op.sfb is not None:
        _scaled_mma(op, ctx, op.sfa, op.sfb)
        return
    acc, a, b = op.acc, op.a, op.b
    require_rule(broken_tcgen05_rule(acc, a, b, op.cta_group), op, "tcgen05.mma")
    transposed_a = isinstance(a, Tile) and a.buffer.order == "col"
    shape = MmaShape(
        acc.rows * op.cta_group,
        acc.cols,
        operand_dtype(a),
        b.buffer.dtype,
        transposed_a,
        b.buffer.order == "col",
    )
    constant = ctx.module.add_snippet(shape.snippet())
    function = of_group(
        ctx, f"tcgen05_mma_{shape.kind}{'' if isinstance(a, Tile) else '_tmem_a'}", op.cta_group
    )
    steps = b.cols // mma_k(b.buffer.dtype)
    k = counter(ctx, "k", steps)
    with ctx.out.block():
        adds = accumulates(ctx, op.accumulate, k.name, steps)
        into = address(ctx, acc.address, "acc")
        if isinstance(a, Tile):
            left = operand(ctx, a, "a_start", TCGEN05).descriptor(ctx, k, steps)
        else:
            left = address(ctx, a.address, "a_columns") + (
                f" + {k.name} * {_TMEM_K}" if steps > 1 else ""
            )
        other = operand(ctx, b, "b_start", TCGEN05)
        with ctx.out.loop(k.name, steps):
            ctx.out(
                f"{function}({into}, {left}, {other.descriptor(ctx, k, steps)}, {constant},"
                f" {adds});"
            )


def _scaled_mma(op: ops.Tcgen05Mma, ctx: Context, sfa: TmemScales, sfb: TmemScales) -> None:
    """Prints an instruction for each 32 bytes of K. Its scale factors are `vector` bytes of a
    column, which the IDs in the instruction descriptor select.
    """
    acc, a, b = op.acc, op.a, op.b
    require_rule(broken_scaled_mma_rule(acc, a, b, sfa, sfb, op.cta_group), op, "tcgen05.mma")
    assert isinstance(a, Tile)
    scaling = scaling_of(a.buffer.dtype, b.buffer.dtype, sfa.dtype)
    assert scaling is not None
    shape = ScaledShape(
        acc.rows * op.cta_group, acc.cols, a.buffer.dtype, b.buffer.dtype, scaling, sfa.dtype
    )
    constant = ctx.module.add_snippet(shape.snippet())
    function = of_group(ctx, f"tcgen05_mma_{scaling.kind}", op.cta_group)
    steps = b.cols // scaling.k
    k = counter(ctx, "k", steps)
    with ctx.out.block():
        adds = accumulates(ctx, op.accumulate, k.name, steps)
        into = address(ctx, acc.address, "acc")
        left, right = operand(ctx, a, "a_start", TCGEN05), operand(ctx, b, "b_start", TCGEN05)
        at = [
            address(ctx, add(s.address, div(s.first, SCALE_LANES)), name)
            for s, name in ((sfa, "sfa"), (sfb, "sfb"))
        ]
        with ctx.out.loop(k.name, steps):
            matrices = f"{left.descriptor(ctx, k, steps)}, {right.descriptor(ctx, k, steps)}"
            scales = ", ".join(
                _scales_of_step(ctx, s, start, scaling, k, steps)
                for s, start in zip((sfa, sfb), at, strict=True)
            )
            ctx.out(
                f"{function}({into}, {matrices}, {constant}{_scale_ids(ctx, scaling, k, steps)},"
                f" {scales}, {adds});"
            )


def _scales_of_step(
    ctx: Context, s: TmemScales, start: str, scaling: Scaling, k: Local, steps: int
) -> str:
    """The address of the scale factors of step k along K."""
    a_column = SCALES_A_COLUMN // scaling.vector  # steps whose factors share a column
    return (
        start
        if steps <= a_column
        else f"{start} + {bracketed(ctx, mul(div(k, a_column), s.stride), 12)}"
    )


def _scale_ids(ctx: Context, scaling: Scaling, k: Local, steps: int) -> str:
    """The code that step k adds to the instruction descriptor: the number of the first byte of its
    scale factors in their column.
    """
    a_column = SCALES_A_COLUMN // scaling.vector
    if steps == 1 or a_column == 1:
        return ""
    first = mul(mod(k, a_column) if steps > a_column else k, scaling.vector)
    return f" | {ctx.use('scale_ids')}({text(ctx, first)})"


@emit.register
@withheld(ops.TmemCopy)
def _(op: ops.TmemCopy, ctx: Context) -> None:
    if isinstance(op.dst, TmemScales):
        _copy_scales(op, ctx, op.dst)
        return
    require_rule(broken_copy_rule(op.dst, op.src), op)
    function = of_group(
        ctx,
        "tmem_copy_128x128b" if op.src.rows == 128 else "tmem_copy_32x128b_warpx4",
        op.cta_group,
    )
    with ctx.out.block():
        source = operand(ctx, op.src, "start", TCGEN05)
        ctx.out(f"{function}({text(ctx, op.dst.address)}, {source.constant} | {source.start});")


def _copy_scales(op: ops.TmemCopy, ctx: Context, dst: TmemScales) -> None:
    """Prints the copy of scale factors to tensor memory, piece by piece."""
    require_rule(broken_scales_copy_rule(dst, op.src), op)
    function = of_group(ctx, "tmem_copy_32x128b_warpx4", op.cta_group)
    lines = MatrixFormat(0, 0, 8 * MATRIX_ROW, 0, 0, 0)
    constant = ctx.module.add_snippet(
        Snippet(
            "scale_format",
            "// tcgen05 descriptor of rows of 16 bytes\n"
            f"constexpr u64 scale_format = {lines.bits(TCGEN05):#018x}ull;",
        )
    )
    with ctx.out.block():
        into = address(ctx, dst.address, "scales")
        ctx.out(
            f"const u32 {(start := ctx.temporary('start'))} ="
            f" {ctx.use('matrix_start')}({box(ctx, op.src)});"
        )
        for column, piece in pieces(dst):
            to = f" + {column}" if column else ""
            source = f"{start} + {piece * PIECE_BYTES >> 4}" if piece else start
            ctx.out(f"{function}({into}{to}, {constant} | {f'({source})' if piece else source});")


@emit.register
@withheld(ops.Tcgen05Commit)
def _(op: ops.Tcgen05Commit, ctx: Context) -> None:
    if op.mask is None:
        ctx.out(f"{of_group(ctx, 'tcgen05_commit', op.cta_group)}({barrier(ctx, op.bar)});")
        return
    ctx.out(
        f"{of_group(ctx, 'tcgen05_commit_multicast', op.cta_group)}({barrier(ctx, op.bar)},"
        f" {text(ctx, op.mask)});"
    )
