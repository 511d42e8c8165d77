"""wgmma as loops of instructions, and the matrix descriptors that they take.

Descriptor (PTX ISA, "Matrix Descriptor Format" of wgmma): bits 0-13 start address / 16, 16-29 leading-dimension
offset / 16, 32-45 stride-dimension offset / 16, 62-63 swizzle (1: 128 bytes, 2: 64, 3: 32). With tiles stored as
`ir.layout` says:

- contiguous along K: eight lines of a panel make one swizzle atom and the next eight rows follow it (stride offset);
  the leading offset is not used. One instruction takes 32 bytes of the line; past the line comes the next panel.
- contiguous along M or N (16-bit elements only): a line holds one panel's worth of M or N. The next eight K follow (stride
  offset), the next panel of M or N is a whole panel away (leading offset). 16 elements of K are 16 lines.

A step is the K of one instruction: 8 elements of float32, 16 of 16 bits, 32 of 8 bits. Which rectangles can be described at all is
`ir.geometry`'s to say, which types and shapes can be multiplied `ir.mma`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilepipe.cuda.addresses import box, place
from tilepipe.cuda.arithmetic import add, div, index, mod, mul, value
from tilepipe.cuda.context import Context, Module
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import operand, text
from tilepipe.cuda.fragments import registers
from tilepipe.cuda.wgmma_ptx import Instruction
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.exprs import Const, Expr, Local, const
from tilepipe.ir.geometry import MMA_K_BYTES, mma_k
from tilepipe.ir.memory import Fragment, SmemBuffer, Tile
from tilepipe.ir.mma import broken_mma_rule, operand_dtype
from tilepipe.ir.program import walk

_SWIZZLE_BITS = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """How wgmma finds a matrix in a buffer's tile, bytes.

    Attributes:
        swizzle: bytes; leading, stride: the descriptor's offsets.
        k_in_panel: of steps of K that stay in a panel, from one to the next; panel_steps: how many they are (0: all of
            them); panel_bytes: from panel to panel of K.
    """

    swizzle: int
    leading: int
    stride: int
    k_in_panel: int
    panel_steps: int
    panel_bytes: int

    @property
    def bits(self) -> int:
        """The descriptor without its start address."""
        return (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | _SWIZZLE_BITS[self.swizzle] << 62


def matrix_format(buffer: SmemBuffer) -> MatrixFormat:
    """The descriptor format of a buffer whose tiles are (m, k) or (n, k)."""
    p = place(buffer)
    if buffer.order == "row":
        return MatrixFormat(buffer.swizzle, 0, 8 * p.line, MMA_K_BYTES, p.line // MMA_K_BYTES, p.panel_bytes)
    return MatrixFormat(buffer.swizzle, p.panel_bytes, 8 * p.line, mma_k(buffer.dtype) * p.line, 0, 0)


def _format_name(module: Module, buffer: SmemBuffer) -> str:
    """The file's constant for a buffer's descriptors; added to the file when first used."""
    key = (buffer, "format")
    name = module.names.of(key, f"{buffer.name}_format")
    if key not in module.memory:
        f = matrix_format(buffer)
        what = f"wgmma descriptor: {f.swizzle}-byte swizzle, stride {f.stride}"
        what += f", leading {f.leading}" if f.leading else ""
        module.memory[key] = [f"constexpr u64 {name} = {f.bits:#018x}ull;  // {what}"]
    return name


@dataclass(frozen=True, slots=True)
class _Operand:
    """A matrix in shared memory while its wgmma is printed.

    Attributes:
        format: of its descriptors; constant: their constant part. start: identifier of the encoded start address.
        skipped: steps of K between the start address and the rectangle.
    """

    format: MatrixFormat
    constant: str
    start: str
    skipped: int

    def descriptor(self, ctx: Context, step: Local, steps: int, further: int = 0) -> str:
        """The descriptor of step `step` of `steps` along K, `further` bytes on."""
        f = self.format
        terms = [self.start, str(further >> 4)] if further else [self.start]
        if steps > 1 and f.panel_steps == 1:
            terms.append(operand(ctx, mul(step, f.panel_bytes >> 4), 12))
        elif steps > 1 and (f.panel_steps == 0 or self.skipped + steps <= f.panel_steps):
            terms.append(operand(ctx, mul(step, f.k_in_panel >> 4), 12))
        elif steps > 1:
            at = add(step, self.skipped)
            terms.append(operand(ctx, mul(div(at, f.panel_steps), f.panel_bytes >> 4), 12))
            terms.append(operand(ctx, mul(mod(at, f.panel_steps), f.k_in_panel >> 4), 12))
        return f"{self.constant} | ({' + '.join(terms)})" if len(terms) > 1 else f"{self.constant} | {terms[0]}"


def _operand(ctx: Context, t: Tile, name: str) -> _Operand:
    """Declares the encoded start address of a tile's rectangle; where the rectangle starts inside a panel and goes on in
    the next, that of the panel.
    """
    constant, matrix, k = _format_name(ctx.module, t.buffer), matrix_format(t.buffer), mma_k(t.buffer.dtype)
    inside, skipped = value(t.col), 0
    if inside is not None and matrix.panel_steps and inside // k % matrix.panel_steps + t.cols // k > matrix.panel_steps:
        skipped = inside // k % matrix.panel_steps
        t = replace(t, col=const(inside - skipped * k))
    start_name = ctx.temporary(name)
    ctx.out(f"const u32 {start_name} = {ctx.use('matrix_start')}({box(ctx, t)});")
    return _Operand(matrix, constant, start_name, skipped)


def _rows_offset(buffer: SmemBuffer, rows: int) -> int:
    """Bytes from one row of a tile to the one `rows` further down, a multiple of 64."""
    p = place(buffer)
    return rows * p.line if buffer.order == "row" else rows // p.panel * p.panel_bytes


@emit.register
def _(op: ops.Wgmma, ctx: Context) -> None:
    acc, a, b = op.acc, op.a, op.b
    broken = broken_mma_rule(acc, a, b)
    if broken is not None:
        raise CompileError(f"wgmma: {broken}", op.loc)
    blocks, steps = acc.rows // 64, b.cols // mma_k(b.buffer.dtype)
    adds = isinstance(op.accumulate, Const) and bool(op.accumulate.value)
    function = ctx.module.add_snippet(_instruction(op, scale_d=not adds).snippet())
    array = registers(ctx, acc)
    k_name = ctx.temporary("k") if steps > 1 else "0"
    k = index(k_name)
    ctx.names.put(k, k_name)
    with ctx.out.block():
        scale_d = "" if adds else f", {_scale_d(ctx, op.accumulate, k_name, steps)}"
        source = _operand(ctx, a, "a_start") if isinstance(a, Tile) else None
        other = _operand(ctx, b, "b_start")
        with ctx.out.loop(k_name, steps):
            right = other.descriptor(ctx, k, steps)
            for i in range(blocks):
                if isinstance(a, Tile):
                    assert source is not None
                    left = source.descriptor(ctx, k, steps, _rows_offset(a.buffer, 64 * i))
                else:
                    block = f"{registers(ctx, a)}[{i}]"
                    left = ", ".join(f"{block}[{f'4 * {k_name}' if steps > 1 else '0'} + {q}]" for q in range(4))
                ctx.out(f"{function}({array}[{i}], {left}, {right}{scale_d});")


def _scale_d(ctx: Context, accumulate: Expr, k_name: str, steps: int) -> str:
    """Whether a step along K adds to the accumulator: all but the first do, the first where `accumulate` holds."""
    if isinstance(accumulate, Const):
        return f"{k_name} > 0" if steps > 1 else "0"
    first = ctx.temporary("accumulate")
    ctx.out(f"const bool {first} = {text(ctx, accumulate)};")
    return f"{k_name} > 0 || {first}" if steps > 1 else first


def _keep(ctx: Context) -> None:
    """Holds the registers of wgmma's operands in place: it reads and writes them while other code runs."""
    body = ctx.role.body if ctx.role is not None else ctx.kernel.setup
    used = {x: None for op in walk(body) if isinstance(op, ops.Wgmma) for x in (op.acc, op.a) if isinstance(x, Fragment)}
    for f in used:
        if ctx.names.find(f) is not None:
            ctx.out(f"{ctx.use('keep')}({registers(ctx, f)});")


@emit.register
def _(op: ops.WgmmaFence, ctx: Context) -> None:
    _keep(ctx)
    ctx.out(f"{ctx.use('wgmma_fence')}();")


@emit.register
def _(op: ops.WgmmaCommit, ctx: Context) -> None:
    ctx.out(f"{ctx.use('wgmma_commit')}();")


@emit.register
def _(op: ops.WgmmaWait, ctx: Context) -> None:
    ctx.out(f"{ctx.use('wgmma_wait')}<{op.pending}>();")
    _keep(ctx)


def _instruction(op: ops.Wgmma, scale_d: bool) -> Instruction:
    a, b = op.a, op.b
    transposed_a = isinstance(a, Tile) and a.buffer.order == "col"
    return Instruction(b.rows, operand_dtype(a), b.buffer.dtype, isinstance(a, Fragment), transposed_a, b.buffer.order == "col", scale_d)
