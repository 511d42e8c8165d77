"""The layer norm of rows, for Hopper and, the same, for Blackwell.

    y[i, j] = (x[i, j] - mean of x[i]) / √(variance of x[i] + eps) · weight[j] + bias[j]

A CTA takes a few rows and ends, as in `rms_norm.sm90`. Each thread makes means and sums of squared
differences from them of its own elements, in one pass over its registers; those of threads, and
those of groups that share a row, are joined as by Chan, Golub, LeVeque (1979). x (m, n), y alike,
weight and bias (n,) or none: bfloat16, float16 or float32, in any mix.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array
from tilepipe.kernels.rows import heuristics, validation
from tilepipe.kernels.rows.config import VECTOR, RowConfig
from tilepipe.kernels.rows.team import RowTeam, grid, standing_grid

NAME = "layer_norm"


def moments(
    team: RowTeam, x: tp.GlobalTensor, row: tp.Fragment, columns: int, turn: tp.Scalar = 0
) -> tuple[tp.Fragment, tp.FragmentValue]:
    """The mean and the variance of rows."""
    ctx, width, members = team.ctx, team.width, team.cfg.members
    count: tp.Scalar = float(width)
    if team.ragged:  # the columns of this member that are inside
        count = ctx.max(ctx.min(columns - team.column, width), 1).to("float32")
    n, means, spreads = _of_slots(team, x, row)
    mean = ctx.fragment((means * n).sum() / count)
    squares = (spreads + (means - mean) * (means - mean) * n).sum()
    if members == 1:
        return mean, squares / columns
    theirs, sums = team.exchange(mean, squares, turn=turn)
    counts: tp.FragmentValue | float = float(width)
    if team.ragged:
        first = ctx.row_index(members, layout=theirs.layout) * width
        counts = (columns - first).maximum(0).minimum(width).to("float32")
    whole = (theirs * counts / columns).sum(axis=None)
    spread = (sums + (theirs - whole) * (theirs - whole) * counts).sum(axis=None)
    return team.joined(whole), team.joined(spread) / columns


def _of_slots(
    team: RowTeam, x: tp.GlobalTensor, row: tp.Fragment
) -> tuple[tp.FragmentValue | float, tp.Fragment, tp.Fragment]:
    """(how many, their mean, the squares of their differences from it) of the elements that each of
    a thread's 8 slots has: one of each of its vectors. All is known as soon as the vectors are read
    once, and what is left to reduce among threads is 8 columns a thread.

    Differences from the first element of a slot are added up: it is one of few, so that what
    cancels is no more than their number times the result.
    """
    ctx, step = team.ctx, VECTOR * team.cfg.threads
    strips = [row.cols(i, step).to("float32") for i in range(0, team.width, step)]
    first = ctx.fragment(strips[0])
    n: tp.FragmentValue | float = float(len(strips))
    sums, squares = (ctx.fragment(first * 0.0) for _ in range(2))
    inside = team.columns() < x.shape[1] if team.ragged else None
    if inside is not None:
        n = ctx.fragment(ctx.select(inside.cols(0, step), 1.0, 0.0) + first * 0.0)
    for i, strip in enumerate(strips[1:], 1):
        apart = strip - first
        if inside is not None:
            there = inside.cols(i * step, step)
            apart = ctx.select(there, apart, 0.0)
            n += ctx.select(there, 1.0, 0.0)
        sums += apart
        squares += apart * apart
    share = 1.0 / n if isinstance(n, float) else 1.0 / n.maximum(1.0)
    means = ctx.fragment(first + sums * share)
    spreads = ctx.fragment((squares - sums * sums * share).maximum(0.0))
    return n, means, spreads


def _counts(team: RowTeam, columns: int) -> list[float]:
    """The columns of each member that are inside."""
    width = team.width
    return [float(min(max(columns - i * width, 0), width)) for i in range(team.cfg.members)]


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def layer_norm(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    weight: tp.GlobalTensor | None,
    bias: tp.GlobalTensor | None,
    y: tp.GlobalTensor,
    eps: tp.Value,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """y = (x - mean) / √(variance + eps) · weight + bias, row by row."""
    team = RowTeam.allocate(ctx, cfg, columns, values=2)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        loaded = team.load(x, row)
        mean, variance = moments(team, x, loaded, columns)
        factor = ctx.fragment((variance + eps).apply("rsqrt"))
        # Loaded before, or at once, they would take as many registers again for each as the rows.
        for start, count in team.pieces():
            scale, shift = (
                None if v is None else team.load_columns(v, start, count) for v in (weight, bias)
            )
            result = (loaded.cols(start, count).to("float32") - mean) * factor
            result = result if scale is None else result * scale.to("float32")
            result = result if shift is None else result + shift.to("float32")
            team.store(y, row, result, start)
        ctx.launch_dependents()


@tp.kernel(grid=standing_grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
def layer_norm_backward(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    weight: tp.GlobalTensor | None,
    dy: tp.GlobalTensor,
    dx: tp.GlobalTensor,
    parts: tp.GlobalTensor | None,
    eps: tp.Value,
    *,
    columns: int,
    biased: bool,
    cfg: RowConfig,
) -> None:
    """The gradients, with n = (x - mean) / √(variance + eps) and g = dy · weight: dx = (g - mean g
    - n · mean(g n)) / √(variance + eps); of the weight Σ dy n and of the bias Σ dy, of which
    parts[0] and parts[1] have sums over some of the rows, as in `rms_norm.sm90`.
    """
    # the moments and the sums are exchanged in turns of their own
    first = RowTeam.allocate(ctx, cfg, columns, values=2, turns=2)
    second = RowTeam.allocate(ctx, cfg, columns, values=2, turns=2)

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        weights = None if weight is None else first.load_columns(weight)
        dweight, dbias = first.fragment(), first.fragment()
        for turn, row, (x_row, dy_row) in first.each(x.shape[0], x, dy):
            mean, variance = moments(first, x, x_row, columns, turn % 2)
            r = ctx.fragment((variance + eps).apply("rsqrt"))
            normed, g = (x_row.to("float32") - mean) * r, dy_row.to("float32")
            scaled = g if weights is None else g * weights.to("float32")
            # dy is zero outside
            sums, products = second.sums(scaled, scaled * normed, turn=turn % 2)
            if parts is not None:
                dweight += g * normed
                if biased:
                    dbias += g
            shift, share = ctx.fragment(sums / columns), ctx.fragment(products / columns)
            first.store(dx, row, (scaled - shift - normed * share) * r)
        if parts is not None:
            ctx.store_global(parts, (0, first.row(), first.column), dweight)
            if biased:
                ctx.store_global(parts, (1, first.row(), first.column), dbias)
        ctx.launch_dependents()


def bind(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    y: Array,
    cfg: RowConfig | None = None,
    *,
    eps: float = 1e-5,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for x and y (m, n), weight and bias (n,). cfg: chosen for n unless given. chip:
    whose limits hold; that of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, rows that do not fit in registers.
    """
    validation.check_rows(NAME, {"x": x, "y": y}, {"weight": weight, "bias": bias})
    cfg = validation.checked(NAME, cfg, heuristics.layer_norm, x, weight, bias)
    return layer_norm.bind(x, weight, bias, y, float(eps), chip=chip, columns=x.shape[1], cfg=cfg)


def bind_backward(
    x: Array,
    weight: Array | None,
    dy: Array,
    dx: Array,
    parts: Array | None,
    cfg: RowConfig | None = None,
    *,
    eps: float = 1e-5,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for the gradients: x, dy and dx (m, n), weight (n,); parts (1, p, n) or, with a
    bias, (2, p, n) float32, p of `rows.team.part_rows`, whose sums by `rows.column_sums` are the
    gradients of weight and bias.

    Raises:
        BindError: as `bind`.
    """
    validation.check_rows(NAME, {"x": x, "dy": dy, "dx": dx}, {"weight": weight})
    cfg = validation.checked(
        NAME, cfg, heuristics.layer_norm_backward, x, weight, most_columns=validation.MOST_BACKWARD
    )
    biased = parts is not None and parts.shape[0] == 2
    validation.check_parts(NAME, parts, 2 if biased else 1, x, cfg)
    return layer_norm_backward.bind(
        x, weight, dy, dx, parts, float(eps),
        chip=chip, columns=x.shape[1], biased=biased, cfg=cfg,
    )  # fmt: skip
