"""Allocation of tensor memory, and accesses to it by warpgroups.

Warp w of a warpgroup can access lanes 32 w to 32 w + 31 (PTX ISA, "Access restrictions" of
tcgen05.ld), and does so 16 lanes at a time: row block 0 of a fragment of 128 rows is lanes 0-15 of
these 32, row block 1 is lanes 16-31. A fragment of 64 rows has the first 16 of the 32 lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.cuda.codegen.addresses import element
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import operand, text
from tilepipe.cuda.codegen.fragments import assign, declare_array, layout_of
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.codegen.names import is_packed
from tilepipe.cuda.codegen.registers import loop_index, registers
from tilepipe.cuda.codegen.tcgen05 import of_group
from tilepipe.cuda.ptx.tcgen05 import TmemAccess, most_groups, pieces, registers_a_group
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Expr, FragmentRead, const
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tmem
from tilepipe.ir.program import walk

_DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


@emit.register
def _(op: ops.TmemAlloc, ctx: Context) -> None:
    ctx.out(
        f"{of_group(ctx, 'tmem_alloc', op.cta_group)}({element(ctx, op.dst, const(0), const(0))},"
        f" {op.columns});"
    )


@emit.register
def _(op: ops.TmemRelinquish, ctx: Context) -> None:
    ctx.out(f"{of_group(ctx, 'tmem_relinquish', op.cta_group)}();")


@emit.register
def _(op: ops.TmemDealloc, ctx: Context) -> None:
    ctx.out(
        f"{of_group(ctx, 'tmem_dealloc', op.cta_group)}({text(ctx, op.address)}, {op.columns});"
    )


def _check(ctx: Context, t: Tmem, shape: tuple[int, ...], layout: str, op: ops.Op) -> None:
    if t.dtype not in _DTYPES:
        raise CompileError(
            f"tcgen05.ld and .st move float32, float16 and bfloat16 here, not {t.dtype}", op.loc
        )
    if shape != (t.rows, t.cols) or t.rows not in (64, 128) or t.cols % 8:
        raise CompileError(
            f"a fragment {'×'.join(map(str, shape))} meets {t.rows}×{t.cols} of tensor memory;"
            " both must have 64 or 128 rows and the same number of columns, a multiple of 8",
            op.loc,
        )
    if t.rows == 128 and layout != "tmem":
        raise CompileError(
            "each warp reaches 32 consecutive lanes of tensor memory: a fragment of 128 rows must"
            f' have layout "tmem", not "{layout}"',
            op.loc,
        )


def _accesses(ctx: Context, verb: str, t: Tmem, array: str, first: int = 0) -> None:
    """Prints the accesses that move a matrix from or to an array of registers. Each row block
    starts at register `first`.
    """
    register = "u32" if is_packed(t.dtype, t.cols) else "float"
    each, most = registers_a_group(register), most_groups(register)
    blocks, at = t.rows // 64, ctx.temporary("at")
    # An address is lane << 16 | column: `<< 21` moves by 32 lanes, `<< 20` by 16.
    ctx.out(
        f"const u32 {at} = {operand(ctx, t.address, 12)} + ({ctx.special('warp_in_group')} << 21);"
    )
    i = loop_index(ctx, "i", blocks)
    with ctx.out.loop(str(i), blocks):
        for group, count in pieces(t.cols // 8, most):
            access = TmemAccess(verb, count, register)
            function = ctx.module.add_snippet(access.snippet())
            place = f" + {first + group * each}" if first + group * each else ""
            lanes = f" + ({i} << 20)" if blocks > 1 else ""
            columns = f" + {group * 8 * t.dtype.nbytes // 4}" if group else ""
            held, where = f"{array}[{i}]{place}", f"{at}{lanes}{columns}"
            ctx.out(
                f"{function}({held}, {where});" if verb == "ld" else f"{function}({where}, {held});"
            )


@emit.register
@withheld(ops.TmemLoad, by_warp=True)
def _(op: ops.TmemLoad, ctx: Context) -> None:
    f = op.dst
    _check(ctx, op.src, (f.rows, f.cols), f.layout, op)
    if f.dtype is not op.src.dtype:
        raise CompileError(
            f"fragment {f.named} is {f.dtype}, the tensor memory that it loads {op.src.dtype}",
            op.loc,
        )
    with ctx.out.block():
        _accesses(ctx, "ld", op.src, registers(ctx, f))


@emit.register
@withheld(ops.TmemStore, by_warp=True)
def _(op: ops.TmemStore, ctx: Context) -> None:
    _check(ctx, op.dst, op.value.shape, layout_of(ctx, op.value, op), op)
    with ctx.out.block():
        _accesses(ctx, "st", op.dst, *_held(ctx, op.value, op.dst))


def _held(ctx: Context, value: Expr, t: Tmem) -> tuple[str, int]:
    """The (array, first register of each row block) of a value in the dtype of tensor memory. A
    value that is not a fragment is first computed into an array.
    """
    packed = is_packed(t.dtype, t.cols)
    if isinstance(value, FragmentRead) and value.dtype is t.dtype:
        return registers(ctx, value.fragment), value.col // (4 if packed else 2)
    stored = Fragment(ctx.temporary("stored"), t.dtype, t.rows, t.cols)
    ctx.names.put(stored, stored.name)
    declare_array(ctx, stored.name, t.dtype, (t.rows, t.cols), stored.layout, packed)
    assign(ctx, stored, stored.name, value, 0, t.cols)
    return stored.name, 0


@emit.register
def _(op: ops.TmemWaitLoad, ctx: Context) -> None:
    ctx.out(f"{ctx.use('tmem_wait_load')}();")
    for f in _loaded(ctx):
        ctx.out(f"{ctx.use('keep')}({registers(ctx, f)});")


def _loaded(ctx: Context) -> list[Fragment]:
    """The fragments that may have been loaded since the last wait, the previous iteration of a loop
    included, and that have a name here. The compiler must not move a use of them before this wait.
    """
    found: list[Fragment] = []
    path = [*ctx.enclosing, (ctx.block, ctx.position)]
    for depth in reversed(range(len(path))):
        block, position = path[depth]
        waits = [i for i, op in enumerate(block.ops[:position]) if isinstance(op, ops.TmemWaitLoad)]
        first = waits[-1] + 1 if waits else 0
        found = _named_loads(block.ops[first:position], block.ops[:position]) + found
        if waits:
            break
        around = (
            path[depth - 1][0].ops[path[depth - 1][1]] if depth and path[depth - 1][0].ops else None
        )
        if isinstance(around, ops.For | ops.While):
            found = _named_loads(block.ops[position + 1 :]) + found
    return list(dict.fromkeys(found))


def _named_loads(some: list[ops.Op], named_by: Sequence[ops.Op] = ()) -> list[Fragment]:
    """The fragments that ops load, without those that the ops define and `named_by` does not."""
    inside = list(walk(ops.Block(some)))
    named = {op.fragment for op in named_by if isinstance(op, ops.FragmentDefine)}
    hidden = {op.fragment for op in inside if isinstance(op, ops.FragmentDefine)} - named
    return [op.dst for op in inside if isinstance(op, ops.TmemLoad) and op.dst not in hidden]


@emit.register
def _(op: ops.TmemWaitStore, ctx: Context) -> None:
    ctx.out(f"{ctx.use('tmem_wait_store')}();")
