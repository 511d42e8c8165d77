"""The kernels before and behind that of the gradients of attention: `prepare` computes statistics
of rows and sets sums to 0, `finish` rounds the sums to dQ.
"""

from __future__ import annotations

import math

import tilepipe as tp

ROWS = 64  # queries of a CTA
VECTOR = 8  # elements of a thread


def _grid(delta: tp.TensorMap) -> int:
    batch, heads, s_q = delta.shape
    return batch * heads * -(-s_q // ROWS)


def _place(ctx: tp.Context, delta: tp.GlobalTensor) -> tuple[tp.Value, tp.Value, tp.Value]:
    """The (batch, head, first query) of this CTA."""
    blocks, heads = ctx.ceil_div(delta.shape[2], ROWS), delta.shape[1]
    head = ctx.let(ctx.block_id // blocks, "head")
    row = ctx.let(ctx.block_id % blocks * ROWS, "row")
    return ctx.let(head // heads, "batch"), ctx.let(head % heads, "head"), row


@tp.kernel(grid=_grid)
def prepare(
    ctx: tp.Context,
    out: tp.GlobalTensor,
    dout: tp.GlobalTensor,
    lse: tp.GlobalTensor,
    dlse: tp.GlobalTensor | None,
    lse_2: tp.GlobalTensor,
    delta: tp.GlobalTensor,
    sums: tp.GlobalTensor,
    turns: tp.GlobalTensor | None,
    *,
    depth: int,
    queries: int,
) -> None:
    """delta = Σ out · dout - dlse of each row, and lse_2 = lse in base 2; of a row that sees no key
    0 and infinity, so that its weights are 0; sums = 0, and turns = 0, one for each tile of
    `queries` rows, which are 64 at least.

    out, dout (batch, heads, s_q, d_v); lse, dlse, lse_2, delta (batch, heads, s_q); sums (batch,
    heads, s_q, d) float32; turns (batch, heads, tiles) int32.
    """
    layout = f"rows:{depth // VECTOR}"

    @ctx.role("rows", warpgroups=1)
    def rows() -> None:
        batch, head, row = place = _place(ctx, delta)
        x = ctx.load_global(out, (*place, 0), (ROWS, depth), layout=layout)
        dx = ctx.load_global(dout, (*place, 0), (ROWS, depth), layout=layout)
        given = ctx.load_global(lse, place, (ROWS, 1), layout=layout)
        nothing = ctx.fragment(shape=(ROWS, depth), layout=layout)
        nothing.fill(0)
        ctx.store_global(sums, (*place, 0), nothing)
        if turns is not None:
            tile = ctx.let(ctx.ceil_div(row, queries), "tile")  # at most one begins in these rows
            begin = tile * queries
            begins = (begin < row + ROWS) & (begin < delta.shape[2])
            with ctx.when(begins), ctx.elect_one("role"):
                ctx.store(turns[batch, head, tile], 0)
        found: tp.FragmentValue = (x.to("float32") * dx.to("float32")).sum()
        if dlse is not None:
            found = found - ctx.load_global(dlse, place, (ROWS, 1), layout=layout)
        # A row that sees no key has no weights, and what its dlse says, be it NaN, is not asked.
        ctx.store_global(delta, place, ctx.select(given == -math.inf, 0.0, found))
        base_2 = ctx.select(given == -math.inf, math.inf, given * math.log2(math.e))
        ctx.store_global(lse_2, place, base_2)


@tp.kernel(grid=_grid)
def finish(
    ctx: tp.Context,
    delta: tp.GlobalTensor,
    sums: tp.GlobalTensor,
    dq: tp.GlobalTensor,
    scale: tp.Value,
    *,
    depth: int,
) -> None:
    """dq = scale · sums, both (batch, heads, s_q, d). `delta` is there for its extents."""
    layout = f"rows:{depth // VECTOR}"

    @ctx.role("rows", warpgroups=1)
    def rows() -> None:
        place = (*_place(ctx, delta), 0)
        found = ctx.load_global(sums, place, (ROWS, depth), layout=layout)
        ctx.store_global(dq, place, found * scale)
