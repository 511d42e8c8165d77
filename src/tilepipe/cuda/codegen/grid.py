"""Ops that reach beyond the cluster: atomic adds, cluster launch control, and the wait for the
previous kernel.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.addresses import barrier, box
from tilepipe.cuda.codegen.c_types import memory_type
from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.emit import emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.instrument import withheld
from tilepipe.cuda.codegen.transfers import global_element
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.memory import TensorParam


@emit.register
def _(op: ops.AtomicAdd, ctx: Context) -> None:
    tensor = op.dst.base
    if not isinstance(tensor, TensorParam):
        raise CompileError("an atomic add to shared memory has no CUDA form here", op.loc)
    c_type = memory_type(tensor.dtype)
    target = global_element(ctx, tensor, op.dst.index)
    code = f"{ctx.use(f'atomic_add_{c_type}')}(&{target}, {text(ctx, op.value)})"
    if ctx.module.debug:
        code = f"{ctx.use('debug_aborted')}() ? 0 : {code}"
    ctx.out(f"const {c_type} {ctx.bind(op.result)} = {code};")


@emit.register
@withheld(ops.ClcTryCancel)
def _(op: ops.ClcTryCancel, ctx: Context) -> None:
    function = "clc_try_cancel_multicast" if op.multicast else "clc_try_cancel"
    ctx.out(f"{ctx.use(function)}({box(ctx, op.dst)}, {barrier(ctx, op.bar)});")


@emit.register
def _(op: ops.ClcQuery, ctx: Context) -> None:
    first = ctx.names.of((op, "first"), "first_cta")
    size = ctx.kernel.cluster_size
    code = f"{ctx.use('clc_first_cta')}({box(ctx, op.src)})"
    if ctx.module.debug:
        code = f"{ctx.use('debug_aborted')}() ? ~0u : {code}"
    ctx.out(f"const u32 {first} = {code};")
    ctx.out(f"const bool {ctx.bind(op.valid)} = {first} != ~0u;")
    ctx.out(f"const i32 {ctx.bind(op.cluster)} = {first}{f' / {size}' if size > 1 else ''};")


@emit.register
def _(op: ops.GridDependencyWait, ctx: Context) -> None:
    ctx.out(f"{ctx.use('grid_dependency_wait')}();")
