"""The cross entropy of rows of logits, for Hopper and, the same, for Blackwell.

    lse[i] = log Σ exp x[i],  loss[i] = lse[i] - x[i, labels[i]], 0 where labels[i] is ignored

Each logit is read once, as in `softmax.sm90`; the logit of the label by a load of its own. The
backward pass reads logits and lse, and writes (exp(x - lse) - one-hot) · dloss, where it may
overwrite the logits. x (m, n) bfloat16, float16 or float32; labels int32 or int64; lse, loss and
dloss float32.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.validation import Array
from tilepipe.kernels.rows import heuristics, validation
from tilepipe.kernels.rows.config import WARP, RowConfig
from tilepipe.kernels.rows.exponentials import LOG2_E, largest_and_sum
from tilepipe.kernels.rows.team import RowTeam, grid

NAME = "cross_entropy"
LN_2 = 0.6931471805599453


class Labels:
    """What the rows of a group have of their labels: a lane for each row loads it, and gives it to
    all threads of the row through shared memory.
    """

    def __init__(self, team: RowTeam, dtypes: tuple[str, ...]) -> None:
        """In set-up code. `dtypes`: of the values of a row."""
        self.team, self.rows = team, team.cfg.rows
        shape = team.cfg.groups * self.rows, 1
        self.tiles = [
            team.ctx.smem(shape, dtype, swizzle=0, name=f"of_label_{i}")[0]
            for i, dtype in enumerate(dtypes)
        ]

    def load(self, labels: tp.GlobalTensor, row: tp.Value) -> tuple[tp.Value, tp.Value]:
        """(row, label), of another row in each lane."""
        ctx = self.team.ctx
        place = ctx.let(ctx.min(row + ctx.lane % self.rows, labels.shape[0] - 1), "place")
        return place, ctx.load(labels[place])

    def shared(self, *values: tp.Scalar) -> list[tp.Fragment]:
        """Fragments (rows, 1) of values that the lanes have of their rows."""
        ctx, team = self.team.ctx, self.team
        first, thread = team.group * self.rows, ctx.thread % team.cfg.group
        with ctx.when(thread < self.rows):
            for tile, x in zip(self.tiles, values, strict=True):
                ctx.store(tile[first + thread, 0], x)
        if team.cfg.group == WARP:
            ctx.syncwarp()
        else:
            ctx.sync_warpgroup()
        found = []
        for tile in self.tiles:
            f = team.fragment(tile.dtype, cols=1)
            f.load(tile.rows(first, self.rows))
            found.append(f)
        return found


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
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
    of_labels = Labels(team, ("float32", "float32"))

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        place, label = of_labels.load(labels, row)
        loaded = team.load(x, row)
        # The logit is needed last: it is on its way while the rows are reduced.
        there = (label >= 0) & (label < columns)
        logit = ctx.load(x[place, ctx.select(there, label, 0).to("int32")]).to("float32")
        _, _, largest, total = largest_and_sum(team, x, loaded)
        of_total = ctx.fragment(total.apply("log2") * LN_2)
        chosen, kept = of_labels.shared(
            ctx.select(there, logit, float("-inf")), ctx.select(label == ignored, 0.0, 1.0)
        )
        with ctx.when(team.member == 0):
            ctx.store_global(lse, (row,), largest + of_total)
            # a float32 of a large logit has no room for the logarithm: the difference comes first
            apart = largest - chosen + of_total
            ctx.store_global(loss, (row,), ctx.select(kept > 0, apart, 0.0))
        ctx.launch_dependents()


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster, ctas_per_sm=lambda cfg: cfg.ctas)
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
    of_labels = Labels(team, ("int32", "float32"))

    @ctx.role("rows", **cfg.role)
    def rows() -> None:
        row = team.row()
        _, label = of_labels.load(labels, row)
        loaded = team.load(x, row)
        chosen, kept = of_labels.shared(label.to("int32"), ctx.select(label == ignored, 0.0, 1.0))
        shape = cfg.rows, 1
        logs, scale = (ctx.load_global(v, (row,), shape, layout=team.layout) for v in (lse, dloss))
        p = ((loaded.to("float32") - logs) * LOG2_E).apply("exp2")
        hot = ctx.select(team.columns() == chosen, p - 1.0, p)
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
