"""wgmma: shared-memory matrix descriptors and one wrapper for each instruction shape a kernel uses.

Descriptor (PTX ISA, "Matrix Descriptor Format" of wgmma): bits 0-13 start address / 16, 16-29 leading-dimension
offset / 16, 32-45 stride-dimension offset / 16, 62-63 swizzle (1: 128 bytes, 2: 64, 3: 32). With tiles stored as
`ir.layout` says:

- contiguous along K: eight lines of a panel make one swizzle atom and the next eight rows follow it (stride offset);
  the leading offset is not used. 16 elements of K are 32 bytes within the line; past the line comes the next panel.
- contiguous along M or N: a line holds one panel's worth of M or N. The next eight K follow (stride offset), the next
  panel of M or N is a whole panel away (leading offset). 16 elements of K are 16 lines.

Which rectangles can be described at all is `ir.geometry`'s to say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilepipe.cuda.addresses import box, place
from tilepipe.cuda.arithmetic import add, div, index, mod, mul, value
from tilepipe.cuda.context import Context, Module
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import operand
from tilepipe.cuda.fragments import registers
from tilepipe.cuda.ptx import FUNCTION, Snippet
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.exprs import Local, const
from tilepipe.ir.geometry import MMA_K as K
from tilepipe.ir.geometry import broken_wgmma_rule
from tilepipe.ir.memory import Fragment, SmemBuffer, Tile
from tilepipe.ir.program import walk

_TYPES = {dtypes.bfloat16: "bf16", dtypes.float16: "f16"}
_SWIZZLE_BITS = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True, slots=True)
class MatrixFormat:
    """How wgmma finds a matrix in a buffer's tile, bytes.

    Attributes:
        swizzle: bytes; leading, stride: the descriptor's offsets.
        k_in_panel: of 16-element steps of K that stay in a panel, from one to the next; panel_steps: how many they are
            (0: all of them); panel_bytes: from panel to panel of K.
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
        return MatrixFormat(buffer.swizzle, 0, 8 * p.line, 2 * K, p.line // (2 * K), p.panel_bytes)
    return MatrixFormat(buffer.swizzle, p.panel_bytes, 8 * p.line, K * p.line, 0, 0)


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
        skipped: 16-element steps of K between the start address and the rectangle.
    """

    format: MatrixFormat
    constant: str
    start: str
    skipped: int

    def descriptor(self, ctx: Context, step: Local, steps: int, further: int = 0) -> str:
        """The descriptor of 16-element step `step` of `steps` along K, `further` bytes on."""
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


def _operand(ctx: Context, t: Tile, name: str, op: ops.Wgmma) -> _Operand:
    """Declares the encoded start address of a tile's rectangle; where the rectangle starts inside a panel and goes on in
    the next, that of the panel.
    """
    if t.cta is not None:
        raise CompileError(f"wgmma reads this CTA's shared memory, not a peer's copy of '{t.buffer.name}'", op.loc)
    broken = broken_wgmma_rule(t)
    if broken is not None:
        raise CompileError(broken, op.loc)
    constant, matrix = _format_name(ctx.module, t.buffer), matrix_format(t.buffer)
    inside, skipped = value(t.col), 0
    if inside is not None and matrix.panel_steps and inside // K % matrix.panel_steps + t.cols // K > matrix.panel_steps:
        skipped = inside // K % matrix.panel_steps
        t = replace(t, col=const(inside - skipped * K))
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
    depth = a.cols
    in_registers = isinstance(a, Fragment)
    _check(op, depth)
    blocks, steps = acc.rows // 64, depth // K
    dtype = b.buffer.dtype
    transposed_a = isinstance(a, Tile) and a.buffer.order == "col"
    function = ctx.module.add_snippet(wrapper(b.rows, _TYPES[dtype], in_registers, transposed_a, b.buffer.order == "col"))
    array = registers(ctx, acc)
    k_name = ctx.temporary("k") if steps > 1 else "0"
    k = index(k_name)
    ctx.names.put(k, k_name)
    with ctx.out.block():
        source = _operand(ctx, a, "a_start", op) if isinstance(a, Tile) else None
        other = _operand(ctx, b, "b_start", op)
        with ctx.out.loop(k_name, steps):
            right = other.descriptor(ctx, k, steps)
            for i in range(blocks):
                if isinstance(a, Tile):
                    assert source is not None
                    left = source.descriptor(ctx, k, steps, _rows_offset(a.buffer, 64 * i))
                else:
                    block = f"{registers(ctx, a)}[{i}]"
                    left = ", ".join(f"{block}[{f'4 * {k_name}' if steps > 1 else '0'} + {q}]" for q in range(4))
                ctx.out(f"{function}({array}[{i}], {left}, {right});")


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


def _check(op: ops.Wgmma, depth: int) -> None:
    """Raises CompileError where no instruction has this shape."""
    acc, a, b = op.acc, op.a, op.b
    dtype = a.dtype if isinstance(a, Fragment) else a.buffer.dtype
    shape = f"({acc.rows}, {acc.cols}) += ({a.rows}, {a.cols}) · ({b.rows}, {b.cols})ᵀ"
    if (acc.rows, acc.cols, depth) != (a.rows, b.rows, b.cols):
        raise CompileError(f"wgmma: shapes {shape} do not fit", op.loc)
    if acc.rows % 64 or b.rows % 8 or b.rows > 256 or depth % K:
        raise CompileError(f"wgmma {shape}: rows of A go by 64, rows of B by 8 up to 256, K by {K}", op.loc)
    if dtype is not b.buffer.dtype or dtype not in _TYPES or acc.dtype is not dtypes.float32:
        raise CompileError(
            f"wgmma of {dtype} and {b.buffer.dtype} into {acc.dtype} is not printed; A and B are both bfloat16 or both float16, the"
            " accumulator float32",
            op.loc,
        )


def wrapper(n: int, dtype: str, a_in_registers: bool, transposed_a: bool, transposed_b: bool) -> Snippet:
    """The device function for one instruction shape, m = 64 and k = 16.

    `transposed_a`, `transposed_b`: the operand is contiguous along M or N.
    """
    name = f"wgmma_m64n{n}k{K}_{dtype}"
    name += "_ra" if a_in_registers else "_ta" if transposed_a else ""
    name += "_tb" if transposed_b else ""
    count = n // 2
    results = _wrap([f"%{i}" for i in range(count)])
    places = [f"%{count + i}" for i in range(5)]
    if a_in_registers:
        a, inputs, signature = (
            f"{{{', '.join(places[:4])}}}",
            [f'"r"(a{i})' for i in range(4)],
            "u32 a0, u32 a1, u32 a2, u32 a3",
        )
        b, flags = places[4], f"{int(transposed_b)}"
    else:
        a, inputs, signature = places[0], ['"l"(a)'], "u64 a"
        b, flags = places[1], f"{int(transposed_a)}, {int(transposed_b)}"
    inputs.append('"l"(b)')
    lines = ["// wgmma.mma_async: d += a · b", f"{FUNCTION} void {name}(float (&d)[{count}], {signature}, u64 b) {{", "    asm volatile("]
    lines.append('        "{ .reg .pred p; setp.ne.b32 p, 1, 0; "')
    lines.append(f'        "wgmma.mma_async.sync.aligned.m64n{n}k{K}.f32.{dtype}.{dtype} {{"')
    lines += [f'        "{row}"' for row in results]
    lines.append(f'        "}}, {a}, {b}, p, 1, 1, {flags}; }}"')
    outputs = _wrap([f'"+f"(d[{i}])' for i in range(count)])
    lines += [f"        {': ' if i == 0 else '  '}{row}" for i, row in enumerate(outputs)]
    lines += [f"        : {', '.join(inputs)});", "}"]
    return Snippet(name, "\n".join(lines))


def _wrap(items: list[str], width: int = 8) -> list[str]:
    """Comma-separated items, `width` to a line."""
    rows = [", ".join(items[i : i + width]) for i in range(0, len(items), width)]
    return [f"{row}," for row in rows[:-1]] + rows[-1:]
