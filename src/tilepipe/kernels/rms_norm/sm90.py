"""The root mean square norm of rows, for Hopper and, the same, for Blackwell.

    y[i, j] = x[i, j] / √(mean of x[i]² + eps) · weight[j]

A CTA takes a few rows and ends. Its threads load the rows at once by vectors of 16 bytes, keep them
in registers while their squares are summed, and store them scaled: each element is read once
and written once. All is computed in float32 and rounded once. x (m, n), y alike, weight (n,) or
none: bfloat16, float16 or float32, in any mix; any strides, vectors where they are multiples of
16 bytes.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.rms_norm.config import RmsNormConfig
from tilepipe.kernels.rms_norm.heuristics import best
from tilepipe.kernels.rms_norm.validation import NAME, check_arguments, check_width


@tp.kernel(grid=lambda x, cfg: -(-x.shape[0] // cfg.cta_rows))
def rms_norm(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    weight: tp.GlobalTensor | None,
    y: tp.GlobalTensor,
    eps: tp.Value,
    *,
    width: int,
    pieces: int,
    cfg: RmsNormConfig,
) -> None:
    """y = x / √(mean x² + eps) · weight, row by row; `width`: columns of a fragment, which is
    scaled and stored in so many `pieces`.
    """

    @ctx.role("rows", warpgroups=cfg.warpgroups)
    def rows() -> None:
        layout = f"rows:{cfg.threads}"
        row = ctx.block_id * cfg.cta_rows + ctx.warpgroup_rank * cfg.rows
        loaded = ctx.load_global(x, (row, 0), (cfg.rows, width), layout=layout)
        piece, weights = width // pieces, None
        if weight is not None and pieces == 1:  # in flight together with the rows
            weights = ctx.load_global(weight, (0,), (1, width), layout=layout)
        values = loaded.to("float32")
        mean = (values * values).sum() / x.shape[1].to("float32")
        factor = ctx.fragment((mean + eps).apply("rsqrt"))
        for start in range(0, width, piece):
            if weight is not None and pieces > 1:
                weights = ctx.load_global(weight, (start,), (1, piece), layout=layout)
            scaled = loaded.cols(start, piece).to("float32") * factor
            ctx.store_global(
                y, (row, start), scaled if weights is None else scaled * weights.to("float32")
            )
        ctx.launch_dependents()


def bind(
    x: Array,
    weight: Array | None,
    y: Array,
    cfg: RmsNormConfig | None = None,
    *,
    eps: float = 1e-6,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for x and y (m, n) and weight (n,), which share no memory.

    Args:
        cfg: chosen for n unless given.
        chip: whose limits hold; that of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, rows that do not fit in registers.
    """
    if cfg is not None:
        check_config(NAME, cfg, RmsNormConfig, "an RmsNormConfig")
    check_arguments(x, weight, y)
    columns = x.shape[1]
    nbytes = tp.tensor_map(x).dtype.nbytes
    wide = 0 if weight is None else tp.tensor_map(weight).dtype.nbytes
    if cfg is None:
        cfg = best(columns, max(nbytes, wide))
    check_width(columns, nbytes, cfg)
    # 64 registers for the weights beside as many for a row
    pieces = 2 if cfg.width(columns) // cfg.threads * wide > 256 else 1
    width = pieces * cfg.width(-(-columns // pieces))
    return rms_norm.bind(x, weight, y, float(eps), chip=chip, width=width, pieces=pieces, cfg=cfg)
