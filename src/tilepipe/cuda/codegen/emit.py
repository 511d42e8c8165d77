"""Printing of one op. The other modules of this package register a function here for each class of
`ir.ops`.
"""

from __future__ import annotations

from functools import singledispatch

from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.instrument import instrumented
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.def_use import is_idle


@singledispatch
def emit(op: ops.Op, ctx: Context) -> None:
    """Prints an op at the end of the function of `ctx`.

    Raises:
        CompileError: the op has no CUDA form, or none for these operands.
    """
    raise CompileError(f"{type(op).__name__} has no CUDA form", op.loc)


def block(ctx: Context, b: ops.Block) -> None:
    """Prints the ops of a block, each with its source line, except those with no effect."""
    ctx.enclosing.append((ctx.block, ctx.position))
    ctx.block = b
    for i, op in enumerate(b.ops):
        if is_idle(op, ctx.module.needed):
            continue
        ctx.position = i
        ctx.out.at(op.loc)
        with instrumented(op, ctx):
            emit(op, ctx)
    ctx.block, ctx.position = ctx.enclosing.pop()
