"""The root mean square norm of rows, for Hopper and, the same, for Blackwell.

    y[i, j] = x[i, j] / √(mean of x[i]² + eps) · weight[j]

A CTA takes a few rows and ends. Its threads load the rows at once by vectors of 16 bytes, keep them
in registers while their squares are summed, and store them scaled: each element is read once
and written once. Long rows are shared by warpgroups, and by the CTAs of a cluster. All is computed
in float32 and rounded once. x (m, n), y alike, weight (n,) or none: bfloat16, float16 or float32,
in any mix; any strides, vectors where they are multiples of 16 bytes.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array
from tilepipe.kernels.rows import heuristics, validation
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.team import RowTeam, grid, standing_grid

NAME = "rms_norm"


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def rms_norm(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    weight: tp.GlobalTensor | None,
    y: tp.GlobalTensor,
    eps: tp.Value,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """y = x / √(mean x² + eps) · weight, row by row."""
    team = RowTeam.allocate(ctx, cfg, columns)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        loaded = team.load(x, row)
        # in flight together with the rows
        weights = None if weight is None else team.load_columns(weight)
        values = loaded.to("float32")
        (squares,) = team.sums(values * values)
        factor = ctx.fragment((squares / columns + eps).apply("rsqrt"))
        scaled = values * factor
        team.store(y, row, scaled if weights is None else scaled * weights.to("float32"))
        ctx.launch_dependents()


@tp.kernel(grid=standing_grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def rms_norm_backward(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    weight: tp.GlobalTensor | None,
    dy: tp.GlobalTensor,
    dx: tp.GlobalTensor,
    parts: tp.GlobalTensor | None,
    eps: tp.Value,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """The gradients, with n = x / √(mean x² + eps) and g = dy · weight: dx = (g - n · mean(g n)) /
    √(mean x² + eps); of the weight Σ dy n, of which a row of `parts` has the sum over the rows that
    one group of threads has taken.

    A CTA stays, and takes one row after another. What the forward pass computed of a row is
    computed again: x is read anyway.
    """
    team = RowTeam.allocate(ctx, cfg, columns, values=2, turns=2)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        weights = None if weight is None else team.load_columns(weight)
        dweight = team.fragment()
        for turn, row, (x_row, dy_row) in team.each(x.shape[0], x, dy):
            values, g = x_row.to("float32"), dy_row.to("float32")
            scaled = g if weights is None else g * weights.to("float32")
            squares, products = team.sums(values * values, scaled * values, turn=turn % 2)
            r = ctx.fragment((squares / columns + eps).apply("rsqrt"))
            share = ctx.fragment(products / columns * r * r * r)
            if parts is not None:
                dweight += g * (values * r)
            team.store(dx, row, scaled * r - values * share)
        if parts is not None:
            ctx.store_global(parts, (0, team.row(), team.column), dweight)
        ctx.launch_dependents()


def bind(
    x: Array,
    weight: Array | None,
    y: Array,
    cfg: RowConfig | None = None,
    *,
    eps: float = 1e-6,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for x and y (m, n) and weight (n,).

    Args:
        cfg: chosen for n unless given.
        chip: whose limits hold; that of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, rows that do not fit in registers.
    """
    validation.check_rows(NAME, {"x": x, "y": y}, {"weight": weight})
    cfg = validation.checked(NAME, cfg, heuristics.norm, x, weight)
    return rms_norm.bind(x, weight, y, float(eps), chip=chip, columns=x.shape[1], cfg=cfg)


def bind_backward(
    x: Array,
    weight: Array | None,
    dy: Array,
    dx: Array,
    parts: Array | None,
    cfg: RowConfig | None = None,
    *,
    eps: float = 1e-6,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for the gradients: x, dy and dx (m, n), weight (n,); parts (1, p, n) float32, p
    of `rows.team.part_rows`, whose sums by `rows.column_sums` are the weight's gradient. dx
    may be dy or x itself.

    Raises:
        BindError: as `bind`.
    """
    validation.check_rows(NAME, {"x": x, "dy": dy, "dx": dx}, {"weight": weight})
    cfg = validation.checked(
        NAME, cfg, heuristics.norm_backward, x, weight, most_columns=validation.MOST_BACKWARD
    )
    validation.check_parts(NAME, parts, 1, x, cfg)
    columns = x.shape[1]
    return rms_norm_backward.bind(
        x, weight, dy, dx, parts, float(eps), chip=chip, columns=columns, cfg=cfg
    )
