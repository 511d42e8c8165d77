"""A kernel as text: one op a line, with source lines at the right. Deterministic: same kernel, same
text.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.ir import expressions as e, ops
from tilepipe.ir.expressions import Expr
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import (
    BarrierRef,
    Element,
    NamedBarrier,
    ScalarParam,
    SmemBuffer,
    TensorParam,
    Tile,
    Tmem,
    TmemScales,
)
from tilepipe.ir.program import Kernel

# operator -> its symbol in Python
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_COLUMN = 96  # where the source line starts


def expr(x: Expr, outer: bool = False) -> str:
    """An expression in Python's notation; `outer` puts brackets round an operator."""
    match x:
        case e.Const():
            return str(x.value)
        case e.Param():
            return x.name if x.axis < 0 else f"{x.name}.shape[{x.axis}]"
        case e.Special() | e.Local():
            return x.name
        case e.Iota():
            return "rows" if x.shape[1] == 1 else "columns"
        case e.Unary():
            return f"{x.op}({expr(x.a)})"
        case e.Binary(op=op) if op in INFIX:
            text = f"{expr(x.a, True)} {INFIX[op]} {expr(x.b, True)}"
            return f"({text})" if outer else text
        case e.Binary():
            return f"{x.op}({expr(x.a)}, {expr(x.b)})"
        case e.Select():
            return f"select({expr(x.cond)}, {expr(x.a)}, {expr(x.b)})"
        case e.Cast():
            return f"{x.dtype}({expr(x.a)})"
        case e.Bitcast():
            return f"bits({expr(x.a)}, {x.dtype})"
        case e.Interleave():
            return f"interleave({expr(x.a)}, {expr(x.b)})"
        case e.FragmentRead():
            whole = x.shape[1] == x.fragment.cols
            return (
                x.fragment.name if whole else f"{x.fragment.name}[:, {x.col}:{x.col + x.shape[1]}]"
            )
    raise AssertionError(f"no text for {type(x).__name__}")


def barrier(ref: BarrierRef) -> str:
    """`inputs.full[stage]`, or the name alone where there is one barrier, with `@cta` for a
    peer's.
    """
    cta = "" if ref.cta is None else f" @cta {expr(ref.cta)}"
    index = f"[{expr(ref.index)}]" if ref.array.size > 1 else ""
    return f"{ref.array.name}{index}{cta}"


def tile(t: Tile) -> str:
    """`a_tiles[stage] rows 64..127 columns 0..31`; a whole extent is left out."""
    text = f"{t.buffer.name}[{expr(t.index)}]"
    if t.rows != t.buffer.rows:
        text += f" rows {_span(t.row, t.rows)}"
    if t.cols != t.buffer.cols:
        text += f" columns {_span(t.col, t.cols)}"
    return text if t.cta is None else f"{text} @cta {expr(t.cta)}"


def _span(start: Expr, n: int) -> str:
    """`64..127`, or `first .. +64` where the start is not a number."""
    if isinstance(start, e.Const):
        first = int(start.value)
        return f"{first}..{first + n - 1}" if n > 1 else str(first)
    return f"{expr(start)} .. +{n}"


def tmem(t: Tmem) -> str:
    """`tmem[address] 128×256 float32`."""
    return f"tmem[{expr(t.address)}] {t.rows}×{t.cols} {t.dtype}"


def scales(s: TmemScales) -> str:
    """`tmem[address] scales 128×4 float8_e8m0`."""
    part = f" from row {expr(s.first)}" if not isinstance(s.first, e.Const) or s.first.value else ""
    return f"tmem[{expr(s.address)}] scales {s.rows}×{s.blocks} {s.dtype}{part}"


def mma(op: ops.Wgmma | ops.Tcgen05Mma) -> str:
    """`acc += a_tiles[0] · b_tiles[0]ᵀ`, with `=` where it overwrites; `acc = ... (+= where k > 0)`
    where that is traced.
    """
    always = isinstance(op.accumulate, e.Const)
    sign = "+=" if isinstance(op.accumulate, e.Const) and op.accumulate.value else "="
    where = "" if always else f" (+= where {expr(op.accumulate)})"
    left, right = operand(op.a), tile(op.b)
    if isinstance(op, ops.Tcgen05Mma) and op.sfa is not None and op.sfb is not None:
        left, right = f"({left} × {scales(op.sfa)})", f"({right} × {scales(op.sfb)})"
    return f"{operand(op.acc)} {sign} {left} · {right}ᵀ{where}"


def operand(x: object) -> str:
    """An operand of an op."""
    match x:
        case Expr():
            return expr(x)
        case BarrierRef():
            return barrier(x)
        case Tile():
            return tile(x)
        case Tmem():
            return tmem(x)
        case TmemScales():
            return scales(x)
        case Fragment() | TensorParam() | NamedBarrier():
            return x.name
        case ops.Partials():
            return x.buffer.name
        case Element():
            base = tile(x.base) if isinstance(x.base, Tile) else x.base.name
            return f"{base}({', '.join(expr(i) for i in x.index)})"
        case tuple():
            return f"({', '.join(operand(i) for i in x)})"
    return str(x)


def parameter(p: TensorParam | ScalarParam) -> str:
    """`2-d bfloat16, row order, box 128×64, swizzle 128`."""
    if isinstance(p, ScalarParam):
        return str(p.dtype)
    text = f"{p.rank}-d {p.dtype}, {p.order} order"
    if p.box is None:
        return text
    ragged = ", ragged" if p.ragged else ""
    return f"{text}, box {'×'.join(map(str, p.box))}, swizzle {p.swizzle}{ragged}"


def buffer(b: SmemBuffer) -> str:
    """`4 × 128×64 bfloat16, row order, swizzle 128`."""
    return f"{b.count} × {b.rows}×{b.cols} {b.dtype}, {b.order} order, swizzle {b.swizzle}"


def ids(n: NamedBarrier) -> str:
    """The hardware barriers of a named one: `1`, or `1..2`."""
    return f"{n.id}..{n.id + n.per_warpgroup - 1}" if n.per_warpgroup > 1 else str(n.id)


def statement(op: ops.Op) -> str:
    """The text of an op without its body."""
    match op:
        case ops.Let():
            return f"{op.local.name} = {expr(op.expr)}"
        case ops.Read():
            return f"{op.local.name} = {op.var.name}"
        case ops.Define():
            return f"var {op.var.name}: {op.var.dtype} = {expr(op.init)}"
        case ops.Assign():
            return f"{op.var.name} := {expr(op.value)}"
        case ops.CursorDefine():
            return (
                f"cursor {op.cursor.name}: {op.cursor.stages} stages, from phase"
                f" {op.cursor.start_phase}"
            )
        case ops.CursorRead():
            return f"{op.stage.name}, {op.phase.name} = {op.cursor.name}"
        case ops.CursorStep():
            return f"step {op.cursor.name} by {expr(op.n)}"
        case ops.For():
            unrolled = f", unroll={op.unroll}" if op.unroll > 1 else ""
            bounds = ", ".join(map(expr, (op.start, op.stop, op.step)))
            return f"for {op.index.name} in range({bounds}{unrolled}):"
        case ops.While():
            return f"while {op.var.name}:"
        case ops.If():
            return f"when {expr(op.cond)}:"
        case ops.Elect():
            return f"elect one of {op.scope}:"
        case ops.PerWarp():
            return f"per warp {op.index.name}:"
        case ops.Atomic():
            return _atomic(op)
        case ops.StrongLoad():
            return f"{op.result.name} = {op.name}.{op.scope} {operand(op.src)}"
        case ops.StrongStore():
            return f"{op.name}.{op.scope} {operand(op.dst)} = {expr(op.value)}"
        case ops.Fence():
            return f"fence.{op.order}.{op.scope}"
        case ops.Wgmma():
            return f"wgmma {mma(op)}"
        case ops.Tcgen05Mma():
            return f"tcgen05_mma {mma(op)}" + (" by the pair" if op.cta_group == 2 else "")
        case ops.FragmentDefine():
            f = op.fragment
            return f"fragment {f.name}: {f.rows}×{f.cols} {f.dtype}"
    usual = {ops.MbarExpect: ("sem", "release"), ops.FenceProxyAsync: ("space", "shared")}.get(
        type(op), ("", "")
    )
    values = [(f, getattr(op, f)) for f in op.given]
    given = [(f, v) for f, v in values if v is not None and (f, v) != usual]
    if not op.bound:
        return " ".join([op.kind, *(f"{f}={operand(v)}" for f, v in given)])
    names = ", ".join(getattr(op, name).name for name in op.bound)
    return " ".join([f"{names} = {op.kind}", *(operand(v) for _, v in given)])


def _atomic(op: ops.Atomic) -> str:
    """`old = atomic_add.relaxed.gpu x[0], 1`; of a compare-and-swap the expected value first."""
    values = ", ".join(expr(x) for x in (op.compare, op.value) if x is not None)
    return f"{op.result.name} = {op.name}.{op.order}.{op.scope} {operand(op.dst)}, {values}"


def _block(block: ops.Block, depth: int) -> Iterator[str]:
    if not block.ops:
        yield "    " * depth + "pass"
    for op in block.ops:
        text = "    " * depth + statement(op)
        yield f"{text:<{_COLUMN}}  # {op.loc.short}"
        for name in op.blocks:
            body: ops.Block = getattr(op, name)
            if name == "orelse":
                if not body.ops:
                    continue
                yield "    " * depth + "otherwise:"
            yield from _block(body, depth + 1)


def block_text(block: ops.Block) -> str:
    """The text of a block: its ops, one a line."""
    return "\n".join(_block(block, 0))


def text(kernel: Kernel) -> str:
    """The text of a whole kernel."""
    return "\n".join(_lines(kernel)) + "\n"


def _lines(k: Kernel) -> Iterator[str]:
    cluster = "" if k.cluster_size == 1 else f", cluster {'×'.join(map(str, k.cluster))}"
    yield f"kernel {k.name}: {k.threads} threads{cluster}, {k.smem_bytes:,} bytes of shared memory"
    for p in k.params:
        yield f"  param {p.name}: {parameter(p)}"
    for b in sorted(k.buffers, key=lambda b: b.offset):
        yield f"  smem {b.offset:>7} {b.name}: {buffer(b)}"
    for a in k.barriers:
        count = "counts given by the program" if a.count is None else f"count {a.count}"
        yield f"  smem {a.offset:>7} {a.name}: {a.size} mbarriers, {count}"
    for n in k.named_barriers:
        yield f"  named barrier {ids(n)} {n.name}: {n.threads} threads"
    yield "set-up (all warps):"
    yield from _block(k.setup, 1)
    for role in sorted(k.roles, key=lambda r: r.first_warp):
        registers = "" if role.registers is None else f", {role.registers} registers"
        yield (
            f"role {role.name}: warps"
            f" {role.first_warp}..{role.first_warp + role.warps - 1}{registers}"
        )
        yield from _block(role.body, 1)
