"""Strong accesses to global memory, atomic operations, and the fence between CTAs."""

from __future__ import annotations

from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import from_memory, text, to_memory
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.codegen.names import memory_type, register_type, small_float
from tilepipe.cuda.codegen.transfers import global_element
from tilepipe.cuda.ptx import strong_accesses as wrappers
from tilepipe.ir import ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.memory import Element, TensorParam

_ATOM_ALONE = ("exchange", "cas")


def _kind(dtype: DType) -> str:
    return small_float(dtype) or memory_type(dtype)


def _element(ctx: Context, element: Element) -> tuple[DType, str]:
    """The dtype and the address of an element of a tensor."""
    assert isinstance(element.base, TensorParam)
    return element.base.dtype, f"&{global_element(ctx, element.base, element.index)}"


@emit.register
def _(op: ops.StrongLoad, ctx: Context) -> None:
    dtype, address = _element(ctx, op.src)
    function = ctx.module.add_snippet(wrappers.load(_kind(dtype), op.order, op.scope))
    _bind(ctx, op, dtype, f"{function}({address})")


@emit.register
@withheld(ops.StrongStore)
def _(op: ops.StrongStore, ctx: Context) -> None:
    dtype, address = _element(ctx, op.dst)
    function = ctx.module.add_snippet(wrappers.store(_kind(dtype), op.order, op.scope))
    ctx.out(f"{function}({address}, {to_memory(ctx, dtype, text(ctx, op.value))});")


@emit.register
def _(op: ops.Atomic, ctx: Context) -> None:
    dtype, address = _element(ctx, op.dst)
    reduces = op in ctx.module.reductions
    # red has no form that acquires, none that exchanges
    red = reduces and op.order in ("relaxed", "release") and op.operation not in _ATOM_ALONE
    form = wrappers.Atomic(op.operation, _kind(dtype), op.order, op.scope, returns=not red)
    function = ctx.module.add_snippet(form.snippet())
    values = (to_memory(ctx, dtype, text(ctx, x)) for x in (op.compare, op.value) if x is not None)
    code = f"{function}({', '.join([address, *values])})"
    if reduces:
        guard = f"if (!{ctx.use('debug_aborted')}()) " if ctx.module.debug else ""
        ctx.out(f"{guard}{code};")
    else:
        _bind(ctx, op, dtype, code)


@emit.register
def _(op: ops.Fence, ctx: Context) -> None:
    ctx.out(f"{ctx.module.add_snippet(wrappers.fence(op.order, op.scope))}();")


def _bind(ctx: Context, op: ops.StrongLoad | ops.Atomic, dtype: DType, code: str) -> None:
    """Names what an access has found; 0 once a launch has been given up."""
    if ctx.module.debug:
        code = f"{ctx.use('debug_aborted')}() ? 0 : {code}"
    ctx.out(
        f"const {register_type(dtype)} {ctx.bind(op.result)} = {from_memory(ctx, dtype, code)};"
    )
