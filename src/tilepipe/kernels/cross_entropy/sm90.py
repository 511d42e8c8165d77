"""The cross entropy of rows of logits, for Hopper and, the same, for Blackwell.

    lse[i] = log Σ exp x[i],  loss[i] = lse[i] - x[i, labels[i]], 0 where labels[i] is ignored

Each logit is read once, as in `softmax.sm90`; the logit of the label by a load of its own. The
backward pass reads logits and lse, and writes (exp(x - lse) - one-hot) · dloss, where it may
overwrite the logits. x (m, n) bfloat16, float16 or float32; labels int32 or int64; lse, loss and
dloss float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tilepipe as tp
from tilepipe.kernels.common.validation import Array
from tilepipe.kernels.rows import heuristics, validation
from tilepipe.kernels.rows.config import WARPGROUP, RowConfig
from tilepipe.kernels.rows.exponentials import LOG2_E, largest_and_sum
from tilepipe.kernels.rows.team import RowTeam, grid

NAME = "cross_entropy"
LN_2 = 0.6931471805599453


class Labels:
    """What the rows of a warpgroup have of their labels, in shared memory: a lane for each row
    loads it, and all threads of the row read it.
    """

    def __init__(self, ctx: tp.Context, cfg: RowConfig, dtypes: tuple[str, ...]) -> None:
        """In set-up code. `dtypes`: of the values of a row."""
        self.ctx, self.rows, self.layout = ctx, cfg.rows, f"rows:{cfg.threads}"
        self.tiles = [
            ctx.smem((cfg.warpgroups * cfg.rows, 1), dtype, swizzle=0, name=f"of_label_{i}")[0]
            for i, dtype in enumerate(dtypes)
        ]

    def load(
        self, labels: tp.GlobalTensor, row: tp.Value, made: Callable[..., Sequence[tp.Scalar]]
    ) -> list[tp.Fragment]:
        """Fragments (rows, 1) of what `made(row, label)` makes of each row."""
        ctx, group = self.ctx, self.ctx.warpgroup_rank * self.rows
        thread = ctx.thread % WARPGROUP
        with ctx.when(thread < self.rows):
            place = ctx.min(row + thread, labels.shape[0] - 1)
            for tile, x in zip(self.tiles, made(place, ctx.load(labels[place])), strict=True):
                ctx.store(tile[group + thread, 0], x)
        ctx.sync_warpgroup()
        found = []
        for tile in self.tiles:
            f = ctx.fragment(shape=(self.rows, 1), dtype=tile.dtype, layout=self.layout)
            f.load(tile.rows(group, self.rows))
            found.append(f)
        return found


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster)
def cross_entropy(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    labels: tp.GlobalTensor,
    loss: tp.GlobalTensor,
    lse: tp.GlobalTensor,
    ignored: tp.Value,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """loss = log Σ exp x - x[label], row by row. A label that is no column, and not `ignored`,
    makes the loss infinite.
    """
    team = RowTeam.allocate(ctx, cfg, columns, values=2)
    of_labels = Labels(ctx, cfg, ("float32", "float32"))

    @ctx.role("rows", warpgroups=cfg.warpgroups)
    def rows() -> None:
        row = team.row()
        loaded = team.load(x, row)

        def chosen(i: tp.Value, label: tp.Value) -> Sequence[tp.Scalar]:
            there = (label >= 0) & (label < columns)
            logit = ctx.load(x[i, ctx.select(there, label, 0).to("int32")]).to("float32")
            kept = ctx.select(label == ignored, 0.0, 1.0)
            return ctx.select(there, logit, float("-inf")), kept

        logit, kept = of_labels.load(labels, row, chosen)
        values = team.inside(x, loaded.to("float32"), float("-inf"))
        _, _, largest, total = largest_and_sum(team, values)
        logs = ctx.fragment(largest + total.apply("log2") * LN_2)
        with ctx.when(team.member == 0):
            ctx.store_global(lse, (row,), logs)
            ctx.store_global(loss, (row,), ctx.select(kept > 0, logs - logit, 0.0))
        ctx.launch_dependents()


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster)
def cross_entropy_backward(
    ctx: tp.Context,
    x: tp.GlobalTensor,
    labels: tp.GlobalTensor,
    lse: tp.GlobalTensor,
    dloss: tp.GlobalTensor,
    dx: tp.GlobalTensor | None,
    ignored: tp.Value,
    *,
    columns: int,
    cfg: RowConfig,
) -> None:
    """dx = (exp(x - lse) - one-hot) · dloss, in x itself where dx is None; zero in rows whose label
    is `ignored`.
    """
    team = RowTeam.allocate(ctx, cfg, columns)
    of_labels = Labels(ctx, cfg, ("int32", "float32"))

    @ctx.role("rows", warpgroups=cfg.warpgroups)
    def rows() -> None:
        row = team.row()
        loaded = team.load(x, row)

        def chosen(i: tp.Value, label: tp.Value) -> Sequence[tp.Scalar]:
            return label.to("int32"), ctx.select(label == ignored, 0.0, 1.0)

        label, kept = of_labels.load(labels, row, chosen)
        shape = cfg.rows, 1
        logs, scale = (ctx.load_global(v, (row,), shape, layout=team.layout) for v in (lse, dloss))
        p = ((loaded.to("float32") - logs) * LOG2_E).apply("exp2")
        hot = ctx.select(team.columns() == label, p - 1.0, p)
        team.store(x if dx is None else dx, row, ctx.select(kept > 0, hot * scale, 0.0))
        ctx.launch_dependents()


def bind(
    x: Array,
    labels: Array,
    loss: Array,
    lse: Array,
    cfg: RowConfig | None = None,
    *,
    ignore_index: int = -100,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for logits x (m, n), labels, loss and lse (m,). cfg: chosen for n unless given.
    chip: whose limits hold; that of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, rows that do not fit in registers.
    """
    validation.check_rows(NAME, {"x": x}, {})
    validation.check_values(NAME, x, validation.LABELS, labels=labels)
    validation.check_values(NAME, x, (tp.float32,), loss=loss, lse=lse)
    cfg = validation.checked(NAME, cfg, heuristics.cross_entropy, x)
    return cross_entropy.bind(
        x, labels, loss, lse, int(ignore_index), chip=chip, columns=x.shape[1], cfg=cfg
    )


def bind_backward(
    x: Array,
    labels: Array,
    lse: Array,
    dloss: Array,
    dx: Array | None,
    cfg: RowConfig | None = None,
    *,
    ignore_index: int = -100,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for the gradient dx of logits x (m, n), with lse of the forward pass and dloss
    (m,). dx None: x is overwritten.

    Raises:
        BindError: as `bind`.
    """
    matrices = {"x": x} if dx is None else {"x": x, "dx": dx}
    validation.check_rows(NAME, matrices, {})
    validation.check_values(NAME, x, validation.LABELS, labels=labels)
    validation.check_values(NAME, x, (tp.float32,), lse=lse, dloss=dloss)
    cfg = validation.checked(NAME, cfg, heuristics.cross_entropy, x)
    return cross_entropy_backward.bind(
        x, labels, lse, dloss, dx, int(ignore_index), chip=chip, columns=x.shape[1], cfg=cfg
    )
