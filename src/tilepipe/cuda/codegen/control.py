"""Blocks of ops; values, variables, cursors, loops, branches and debugging ops."""

from __future__ import annotations

import json

from tilepipe.cuda.codegen import election, stamps
from tilepipe.cuda.codegen.arithmetic import value
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import operand, text
from tilepipe.cuda.codegen.fragments import assign_array, declare_array, layout_of
from tilepipe.cuda.codegen.inlining import reads_through
from tilepipe.cuda.codegen.instrument import instrumented, withheld
from tilepipe.cuda.codegen.names import register_type
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.def_use import is_idle
from tilepipe.ir.expressions import Const, Expr, Param, Vary
from tilepipe.ir.facts import Scope
from tilepipe.ir.program import walk

_FORMATS = {"i64": "%lld", "u64": "%llu", "u32": "%u", "u8": "%u", "float": "%g", "double": "%g"}


def block(ctx: Context, b: ops.Block) -> None:
    """Prints the ops of a block, each with its source line, except those with no effect."""
    ctx.enclosing.append((ctx.block, ctx.position))
    ctx.block = b
    for i, op in enumerate(b.ops):
        if is_idle(op, ctx.module.needed):
            continue
        ctx.position = i
        ctx.out.at(op.loc)
        if ctx.diverged and op.facts.together is Scope.WARP and op.facts.feature is not None:
            raise CompileError(
                f"{type(op).__name__} is executed by all lanes of a warp together, not inside a"
                " block that only some of them execute",
                op.loc,
            )
        with stamps.noted(op, ctx), instrumented(op, ctx):
            emit(op, ctx)
    ctx.block, ctx.position = ctx.enclosing.pop()


@emit.register
def _(op: ops.Let, ctx: Context) -> None:
    if op.local in ctx.inline or isinstance(op.expr, Const | Param):
        ctx.inlined[op.local] = op.expr
        return
    name = ctx.bind(op.local)
    if op.expr.shape:
        layout = layout_of(ctx, op.expr, op)
        declare_array(ctx, name, op.expr.dtype, op.expr.shape, layout)
        assign_array(ctx, name, op.expr.shape, op.expr, layout)
        ctx.layouts[op.local] = layout
    else:
        ctx.out(f"const {register_type(op.local.dtype)} {name} = {text(ctx, op.expr)};")


@emit.register
def _(op: ops.Define, ctx: Context) -> None:
    ctx.out(f"{register_type(op.var.dtype)} {ctx.bind(op.var)} = {text(ctx, op.init)};")


@emit.register
def _(op: ops.Assign, ctx: Context) -> None:
    ctx.out(f"{ctx.name(op.var, c_type=register_type(op.var.dtype))} = {text(ctx, op.value)};")


@emit.register
def _(op: ops.Read, ctx: Context) -> None:
    source = ctx.name(op.var, c_type=register_type(op.var.dtype))
    if ctx.role is not None and reads_through(ctx.block, ctx.position):
        ctx.names.put(op.local, source)
        return
    ctx.out(f"const {register_type(op.local.dtype)} {ctx.bind(op.local)} = {source};")


@emit.register
def _(op: ops.CursorDefine, ctx: Context) -> None:
    c = op.cursor
    # An array of one barrier takes no index, and a role that only signals reads no phase.
    unused = "[[maybe_unused]] " if c.stages == 1 else ""
    ctx.out(f"{unused}i32 {ctx.bind(c, '_stage')} = 0;")
    ctx.out(f"{unused}u32 {ctx.bind(c, '_phase')} = {c.start_phase & 1};")


def _cursor(ctx: Context, op: ops.CursorRead | ops.CursorStep) -> tuple[str, str]:
    return ctx.name(op.cursor, "_stage"), ctx.name(op.cursor, "_phase", c_type="u32")


@emit.register
def _(op: ops.CursorRead, ctx: Context) -> None:
    stage, phase = _cursor(ctx, op)
    ctx.bits.add(op.phase)
    if ctx.role is not None and reads_through(ctx.block, ctx.position):
        ctx.names.put(op.stage, stage)
        ctx.names.put(op.phase, phase)
    else:
        ctx.out(f"const i32 {ctx.bind(op.stage)} = {stage};")
        ctx.out(f"const u32 {ctx.bind(op.phase)} = {phase};")


@emit.register
def _(op: ops.CursorStep, ctx: Context) -> None:
    stage, phase = _cursor(ctx, op)
    stages = op.cursor.stages
    n = value(op.n)
    if n == 0:
        return
    if n == 1 and stages == 1:
        ctx.out(f"{phase} ^= 1;")
    elif n == 1:
        with ctx.out.block(f"if (++{stage} == {stages})"):
            ctx.out(f"{stage} = 0;")
            ctx.out(f"{phase} ^= 1;")
    else:
        ctx.out(f"{stage} += {text(ctx, op.n)};")
        ctx.out(f"{phase} ^= ({stage} / {stages}) & 1;")
        ctx.out(f"{stage} %= {stages};")


@emit.register
def _(op: ops.For, ctx: Context) -> None:
    index = ctx.bind(op.index)
    step = value(op.step)
    advance = f"++{index}" if step == 1 else f"{index} += {text(ctx, op.step)}"
    if op.unroll > 1:
        ctx.out(f"#pragma unroll {op.unroll}")
    head = f"for ({register_type(op.index.dtype)} {index} = {text(ctx, op.start)}; "
    with ctx.out.block(f"{head}{index} < {operand(ctx, op.stop, 11)}; {advance})"):
        block(ctx, op.body)


@emit.register
def _(op: ops.While, ctx: Context) -> None:
    # A launch that has been given up leaves the loop, whatever value the condition has.
    unless = f" && !{ctx.use('debug_aborted')}()" if ctx.module.debug else ""
    with ctx.out.block(f"while ({ctx.name(op.var, c_type='bool')}{unless})"):
        block(ctx, op.body)


@emit.register
def _(op: ops.If, ctx: Context) -> None:
    branches = bool(op.then.ops), bool(op.orelse.ops)
    if branches == (False, False):
        return
    by_lane = op.cond.vary is Vary.LANE
    condition, first = text(ctx, op.cond), op.then
    if not op.then.ops:
        condition, first = f"!{operand(ctx, op.cond, 14)}", op.orelse
    mask, rest = _masks(ctx, op, condition) if by_lane else (None, None)
    with (
        ctx.lanes(by_lane, mask),
        ctx.out.block(f"if ({condition})", "} else {" if all(branches) else "}"),
    ):
        block(ctx, first)
    if all(branches):
        unnoted = stamps.other_branch_unnoted(ctx, op)
        with ctx.lanes(by_lane, rest), ctx.without_stamps(unnoted):
            ctx.out.depth += 1
            block(ctx, op.orelse)
            ctx.out.depth -= 1
            ctx.out("}")


def _needs_mask(body: ops.Block) -> bool:
    """True if a block contains an op that needs the mask of the lanes that execute it."""
    return any(op.facts.active_lanes for op in walk(body))


def _masks(ctx: Context, op: ops.If, condition: str) -> tuple[str | None, str | None]:
    """The masks of the lanes of the branch printed first and of the other branch. The mask is
    declared only where an op inside needs it.
    """
    if not _needs_mask(op.then) and not _needs_mask(op.orelse):
        return None, None
    mask, all_here = ctx.names.of((op, "lanes"), "lanes"), ctx.mask or "0xffffffff"
    ctx.out(f"const u32 {mask} = __ballot_sync({all_here}, {condition});")
    return mask, f"{all_here} & ~{mask}"


@emit.register
def _(op: ops.Elect, ctx: Context) -> None:
    condition = election.condition(ctx, op)
    mask = f"1u << {ctx.special('lane')}" if _needs_mask(op.body) else None
    with ctx.out.block(f"if ({condition})"), ctx.lanes(True, mask, elected=True):
        block(ctx, op.body)


@emit.register
def _(op: ops.PerWarp, ctx: Context) -> None:
    if op.index in ctx.module.needed:
        ctx.names.put(op.index, ctx.special("warp_in_group"))
    with ctx.lanes(per_warp=True):
        block(ctx, op.body)


def _format(ctx: Context, form: str, args: tuple[Expr, ...]) -> str:
    """The arguments of the printf call for a format with `{}`."""
    pieces = form.replace("%", "%%").split("{}")
    if len(pieces) != len(args) + 1:
        raise CompileError(
            f"format {form!r} has {len(pieces) - 1} '{{}}' for {len(args)} arguments"
        )
    line = pieces[0]
    for a, rest in zip(args, pieces[1:], strict=True):
        line += _FORMATS.get(register_type(a.dtype), "%d") + rest
    values = "".join(f", {text(ctx, a)}" for a in args)
    return f"{json.dumps(line + chr(10), ensure_ascii=False)}{values}"


@emit.register
@withheld(ops.Print)
def _(op: ops.Print, ctx: Context) -> None:
    call = f"printf({_format(ctx, op.format, op.args)});"
    if ctx.diverged or any(a.vary is Vary.LANE for a in op.args):
        ctx.out(call)
        return
    # All lanes, and all warps where the values are uniform, would print the same line, so one lane
    # prints it.
    whole_group = ctx.role is not None and ctx.role.is_warpgroup and not ctx.per_warp
    uniform = whole_group and all(a.vary is Vary.UNIFORM for a in op.args)
    first = f"{ctx.special('warp_in_group')} == 0 && " if uniform else ""
    with ctx.out.block(f"if ({first}{ctx.special('lane')} == 0)"):
        ctx.out(call)


@emit.register
@withheld(ops.Assert)
def _(op: ops.Assert, ctx: Context) -> None:
    with ctx.out.block(f"if (!{operand(ctx, op.cond, 14)})"):
        message = json.dumps(
            f"{op.loc.short}: {op.message}".replace("%", "%%") + "\n", ensure_ascii=False
        )
        ctx.out(f"printf({message});")
        ctx.out("__trap();")
