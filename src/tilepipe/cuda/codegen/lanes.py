"""The ops by which the lanes of a warp learn of each other's values, which all lanes execute."""

from __future__ import annotations

from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.names import register_type
from tilepipe.ir import ops
from tilepipe.ir.chip import BLACKWELL, generation
from tilepipe.ir.expressions import Local

_ALL = "0xffffffff"


def _bind(ctx: Context, result: Local, call: str) -> None:
    ctx.out(f"const {register_type(result.dtype)} {ctx.bind(result)} = {call};")


@emit.register
def _(op: ops.Shuffle, ctx: Context) -> None:
    # PTX ISA, shfl.sync
    function = "__shfl_xor_sync" if op.xor else "__shfl_sync"
    _bind(ctx, op.result, f"{function}({_ALL}, {text(ctx, op.value)}, {text(ctx, op.lane)})")


@emit.register
def _(op: ops.Vote, ctx: Context) -> None:
    # PTX ISA, vote.sync
    _bind(ctx, op.result, f"__{op.mode}_sync({_ALL}, {text(ctx, op.cond)})")


@emit.register
def _(op: ops.ReduceLanes, ctx: Context) -> None:
    # PTX ISA, redux.sync: .f32 requires sm_100a
    value, t = text(ctx, op.value), op.result.dtype
    if t.is_float:
        if generation(ctx.module.arch) == BLACKWELL:
            call = f"{ctx.use(f'redux_{op.op}')}({value})"
        else:
            call = f"{ctx.use(f'{op.op}_lanes')}({value}, 1, 32)"
        _bind(ctx, op.result, call)
    elif op.op in ("and", "or", "xor") and t.kind == "int":  # .b32
        call = f"__reduce_{op.op}_sync({_ALL}, static_cast<u32>({value}))"
        _bind(ctx, op.result, f"static_cast<i32>({call})")
    else:
        _bind(ctx, op.result, f"__reduce_{op.op}_sync({_ALL}, {value})")
