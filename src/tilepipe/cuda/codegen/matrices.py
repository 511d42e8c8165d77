"""Matrix descriptors of wgmma and tcgen05, and the steps of an MMA along K.

A descriptor holds (PTX ISA, "Matrix Descriptor Format" of wgmma, "Shared memory descriptor" of
tcgen05) in bits 0-13 the start address / 16, in 16-29 the leading-dimension offset / 16, in 32-45
the stride-dimension offset / 16, and in the upper bits the swizzle, whose
codes depend on the instruction: `Encoding`. For tiles laid out as `ir.layout` defines:

- Contiguous along K: eight lines of a panel make one swizzle atom and the next eight rows follow it
  (stride offset); the leading offset is not used. One instruction takes 32 bytes of the line; the
  K after the end of the line is in the next panel.
- Contiguous along M or N (16-bit elements only): a line holds one panel's worth of M or N. The next
  eight K follow it (stride offset), the next panel of M or N is a whole panel away (leading
  offset). 16 elements of K are 16 lines.

A step moves by the K of one instruction: 8 elements of 32 bits, 16 of 16 bits, 32 of 8 bits. It
adds to the start address before the swizzle, which the hardware applies to the sum. `ir.hardware`
decides which rectangles have a descriptor and which types and shapes can be multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tilepipe.cuda.codegen.addresses import box, place
from tilepipe.cuda.codegen.arithmetic import add, div, mod, mul, value
from tilepipe.cuda.codegen.context import Context, Module
from tilepipe.cuda.codegen.expressions import operand as bracketed, text
from tilepipe.ir.expressions import Const, Expr, Local, const
from tilepipe.ir.hardware.operand_tiles import MMA_K_BYTES, mma_k
from tilepipe.ir.memory import SmemBuffer, Tile


@dataclass(frozen=True, slots=True)
class Encoding:
    """The bits of a descriptor that depend on the instruction which reads it.

    Attributes:
        reader: the instruction, such as `wgmma`.
        swizzles: by the swizzle in bytes, its bits and those that are always set.
    """

    reader: str
    swizzles: Mapping[int, int]


WGMMA = Encoding("wgmma", MappingProxyType({128: 1 << 62, 64: 2 << 62, 32: 3 << 62}))
TCGEN05 = Encoding(
    "tcgen05",
    MappingProxyType({n: 1 << 46 | code << 61 for n, code in {128: 2, 64: 4, 32: 6, 0: 0}.items()}),
)


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """The layout of a matrix in a buffer's tile, in bytes.

    Attributes:
        swizzle: the swizzle.
        leading, stride: the offsets that the descriptor holds.
        k_in_panel: distance from one step along K to the next in the same panel.
        panel_steps: the number of steps along K in a panel; 0 means all of them.
        panel_bytes: distance from one panel along K to the next.
    """

    swizzle: int
    leading: int
    stride: int
    k_in_panel: int
    panel_steps: int
    panel_bytes: int

    def bits(self, encoding: Encoding) -> int:
        """The descriptor without its start address."""
        return (
            (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | encoding.swizzles[self.swizzle]
        )


def matrix_format(buffer: SmemBuffer) -> MatrixFormat:
    """The descriptor format of a buffer whose tiles are (m, k) or (n, k)."""
    p = place(buffer)
    if buffer.order == "row":
        return MatrixFormat(
            buffer.swizzle, 0, 8 * p.line, MMA_K_BYTES, p.line // MMA_K_BYTES, p.panel_bytes
        )
    return MatrixFormat(
        buffer.swizzle, p.panel_bytes, 8 * p.line, mma_k(buffer.dtype) * p.line, 0, 0
    )


def format_name(module: Module, buffer: SmemBuffer, encoding: Encoding) -> str:
    """The name of the constant part of a buffer's descriptors, which is added to the file on its
    first use.
    """
    key = (buffer, "format")
    name = module.names.of(key, f"{buffer.name}_format")
    if key not in module.memory:
        f = matrix_format(buffer)
        comment = f"{encoding.reader} descriptor: {f.swizzle}-byte swizzle, stride {f.stride}"
        comment += f", leading {f.leading}" if f.leading else ""
        module.memory[key] = [f"constexpr u64 {name} = {f.bits(encoding):#018x}ull;  // {comment}"]
    return name


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix in shared memory while its MMA is printed.

    Attributes:
        format: the format of its descriptors.
        constant: identifier of their constant part.
        start: identifier of the encoded start address.
        skipped: steps along K from the start address to the rectangle.
    """

    format: MatrixFormat
    constant: str
    start: str
    skipped: int

    def descriptor(self, ctx: Context, step: Local, steps: int, further: int = 0) -> str:
        """The descriptor of step `step` of `steps` along K, `further` bytes after the matrix."""
        f = self.format
        terms = [self.start, str(further >> 4)] if further else [self.start]
        if steps > 1 and f.panel_steps == 1:
            terms.append(bracketed(ctx, mul(step, f.panel_bytes >> 4), 12))
        elif steps > 1 and (f.panel_steps == 0 or self.skipped + steps <= f.panel_steps):
            terms.append(bracketed(ctx, mul(step, f.k_in_panel >> 4), 12))
        elif steps > 1:
            at = add(step, self.skipped)
            terms.append(bracketed(ctx, mul(div(at, f.panel_steps), f.panel_bytes >> 4), 12))
            terms.append(bracketed(ctx, mul(mod(at, f.panel_steps), f.k_in_panel >> 4), 12))
        return (
            f"{self.constant} | ({' + '.join(terms)})"
            if len(terms) > 1
            else f"{self.constant} | {terms[0]}"
        )


def operand(ctx: Context, t: Tile, name: str, encoding: Encoding) -> Operand:
    """Declares the encoded start address of a tile's rectangle. Where the rectangle starts inside a
    panel and continues in the next, it is the address of the panel.
    """
    constant, matrix, k = (
        format_name(ctx.module, t.buffer, encoding),
        matrix_format(t.buffer),
        mma_k(t.buffer.dtype),
    )
    inside, skipped = value(t.col), 0
    if (
        inside is not None
        and matrix.panel_steps
        and inside // k % matrix.panel_steps + t.cols // k > matrix.panel_steps
    ):
        skipped = inside // k % matrix.panel_steps
        t = replace(t, col=const(inside - skipped * k))
    start_name = ctx.temporary(name)
    ctx.out(f"const u32 {start_name} = {ctx.use('matrix_start')}({box(ctx, t)});")
    return Operand(matrix, constant, start_name, skipped)


def accumulates(ctx: Context, accumulate: Expr, k_name: str, steps: int) -> str:
    """The C++ condition that a step along K adds to the accumulator: every step but the first does,
    and the first does where `accumulate` holds.
    """
    if isinstance(accumulate, Const):
        if accumulate.value:
            return "1"
        return f"{k_name} > 0" if steps > 1 else "0"
    first = ctx.temporary("accumulate")
    ctx.out(f"const bool {first} = {text(ctx, accumulate)};")
    return f"{k_name} > 0 || {first}" if steps > 1 else first
