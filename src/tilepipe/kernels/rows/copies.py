"""A copy of a matrix whose rows begin anywhere: into rows that TMA can read, and back."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array, mapped

LANES, WARPS = 32, 8
TOGETHER = 16  # elements that a thread loads before it stores the first


def _grid(x: tp.TensorMap, together: int) -> int:
    return -(-x.shape[0] // WARPS) * -(-x.shape[1] // (LANES * together))


@tp.kernel(grid=_grid)
def copy_rows(ctx: tp.Context, x: tp.GlobalTensor, y: tp.GlobalTensor, *, together: int) -> None:
    """y[i, j] = x[i, j]. A CTA takes a part of a row for each warp, and a thread `together`
    elements, which it reads one by one, as no wider access is aligned in every row. So many reads
    are on their way that memory is busy all the same.
    """

    @ctx.role("copy", warps=WARPS)
    def copy() -> None:
        rows, columns = x.shape
        width = LANES * together
        blocks = ctx.ceil_div(columns, width)
        row = ctx.let(ctx.block_id // blocks * WARPS + ctx.warp, "row")
        first = ctx.let(ctx.block_id % blocks * width + ctx.lane, "first")
        with ctx.when(row < rows):
            loaded = [
                ctx.load(x[row, ctx.min(first + i * LANES, columns - 1)]) for i in range(together)
            ]
            for i, value in enumerate(loaded):
                with ctx.when(first + i * LANES < columns):
                    ctx.store(y[row, first + i * LANES], value)
        ctx.launch_dependents()


def bind(
    x: Array, y: Array, *, together: int = TOGETHER, chip: tp.Chip | None = None
) -> tp.Program:
    """The program that copies x (m, n) to y (m, n).

    Raises:
        BindError: they are not matrices of one shape and dtype, contiguous along n.
    """
    maps = [mapped("copy_rows", name, z) for name, z in (("x", x), ("y", y))]
    kinds = [f"{'×'.join(map(str, z.shape))} {z.dtype}" for z in maps]
    if kinds[0] != kinds[1] or len(x.shape) != 2:
        raise tp.BindError(
            f"copy_rows: x is {kinds[0]} and y {kinds[1]}; need matrices of one shape and dtype"
        )
    return copy_rows.bind(*maps, chip=chip, together=together)
