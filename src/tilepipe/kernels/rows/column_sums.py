"""The sums of columns that backward kernels leave in parts: the gradients of weights."""

from __future__ import annotations

import tilepipe as tp

LANES = 32
WARPS = 16
UNROLLED = 8  # rows whose loads are in flight together


def _grid(parts: tp.TensorMap) -> int:
    return parts.shape[0] * -(-parts.shape[2] // LANES)


@tp.kernel(grid=_grid)
def column_sums(ctx: tp.Context, parts: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out[k, j] = Σ parts[k, i, j] over i, always in the same order. parts (k, m, n) float32."""
    tile = ctx.smem((WARPS, LANES), "float32", swizzle=0, name="sums")[0]

    @ctx.role("sum", warps=WARPS)
    def sum_() -> None:
        ctx.grid_dependency_wait()
        _, rows, columns = parts.shape
        blocks = ctx.ceil_div(columns, LANES)
        which, column = ctx.block_id // blocks, ctx.block_id % blocks * LANES + ctx.lane
        place = ctx.let(ctx.min(column, columns - 1), "place")
        total = ctx.var(ctx.lane.to("float32") * 0.0)
        for row in ctx.range(ctx.warp, rows, WARPS * UNROLLED):
            loaded = []
            for i in range(UNROLLED):
                at = ctx.min(row + i * WARPS, rows - 1)
                loaded.append(ctx.load(parts[which, at, place]))
            for i, x in enumerate(loaded):
                total += ctx.select(row + i * WARPS < rows, x, 0.0)
        ctx.store(tile[ctx.warp, ctx.lane], total.get())
        ctx.sync_role()
        with ctx.when((ctx.warp == 0) & (column < columns)):
            whole = ctx.load(tile[0, ctx.lane])
            for i in range(1, WARPS):
                whole = whole + ctx.load(tile[i, ctx.lane])
            ctx.store(out[which, column], whole.to(out.dtype))
