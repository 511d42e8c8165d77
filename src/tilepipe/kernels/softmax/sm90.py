"""The softmax of rows, for Hopper and, the same, for Blackwell.

    y[i, j] = exp(x[i, j] - max of x[i]) / Σ exp(x[i] - max of x[i])

A CTA takes a few rows and ends, as in `rms_norm.sm90`: each element is read once and written once.
Warpgroups that share a row exchange the maximum and the sum of their part at once: each sum is
scaled to the maximum of all. x (m, n), y alike: bfloat16, float16 or float32.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array
from tilepipe.kernels.rows import heuristics, validation
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.exponentials import LOG2_E, largest_and_sum
from tilepipe.kernels.rows.team import RowTeam, grid

NAME = "softmax"


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def softmax(
    ctx: tp.Context, x: tp.GlobalTensor, y: tp.GlobalTensor, *, columns: int, cfg: RowConfig
) -> None:
    """y = exp(x - max x) / Σ exp(x - max x), row by row."""
    team = RowTeam.allocate(ctx, cfg, columns, values=2)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        mine, exponentials, largest, total = largest_and_sum(team, x, team.load(x, row))
        factor = ctx.fragment(((mine - largest) * LOG2_E).apply("exp2") / total)
        team.store(y, row, exponentials * factor)
        ctx.launch_dependents()


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def softmax_backward(
    ctx: tp.Context,
    y: tp.GlobalTensor,
    dy: tp.GlobalTensor,
    x: tp.GlobalTensor,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """The gradient, in `x`: y · (dy - Σ y dy), row by row."""
    team = RowTeam.allocate(ctx, cfg, columns)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        probabilities, gradients = team.load(y, row), team.load(dy, row)
        p, g = probabilities.to("float32"), gradients.to("float32")
        (product,) = team.sums(p * g)
        team.store(x, row, p * (g - product))
        ctx.launch_dependents()


def bind(
    x: Array, y: Array, cfg: RowConfig | None = None, *, chip: tp.Chip | None = None
) -> tp.Program:
    """The program for x and y (m, n). cfg: chosen for n unless given. chip: whose limits hold; that
    of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, rows that do not fit in registers.
    """
    validation.check_rows(NAME, {"x": x, "y": y}, {})
    cfg = validation.checked(NAME, cfg, heuristics.softmax, x)
    return softmax.bind(x, y, chip=chip, columns=x.shape[1], cfg=cfg)


def bind_backward(
    y: Array, dy: Array, dx: Array, cfg: RowConfig | None = None, *, chip: tp.Chip | None = None
) -> tp.Program:
    """The program for the gradient dx of y = softmax(x); all (m, n).

    Raises:
        BindError: as `bind`.
    """
    validation.check_rows(NAME, {"y": y, "dy": dy, "dx": dx}, {})
    cfg = validation.checked(
        NAME, cfg, heuristics.softmax_backward, y, most_columns=validation.MOST_TWICE
    )
    return softmax_backward.bind(y, dy, dx, chip=chip, columns=y.shape[1], cfg=cfg)
