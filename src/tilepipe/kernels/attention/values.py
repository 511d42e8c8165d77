"""V for attention on operands of 8 bits: transposed, with its keys in the order in which weights
become an operand in registers.

wgmma reads a B of 8 bits only where K, here the keys, is contiguous. Weights are packed as they
stand in registers (`Fragment.pack`), which gives the keys of each 16 another order; those of V are
in the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.validation import Array, mapped

UNIT = len(tp.FOURS_ORDER)  # keys that are in an order of their own
KEYS = 128  # of V that a CTA turns
WARPS = 4


def turned_shape(batch: int, s_kv: int, kv_heads: int, d_v: int) -> tuple[int, int, int, int]:
    """The shape of turned values: (batch, kv_heads, d_v, s_kv up to a multiple of 16)."""
    return batch, kv_heads, d_v, -(-s_kv // UNIT) * UNIT


def turned(v: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """v (batch, s_kv, kv_heads, d_v) as the kernel takes it, in NumPy: transposed, key p of each 16
    the one with the number `tp.FOURS_ORDER[p]`, zeros after the last.
    """
    batch, s_kv, kv_heads, d_v = v.shape
    out = np.zeros(turned_shape(*v.shape), v.dtype)
    out[..., :s_kv] = v.transpose(0, 2, 3, 1)
    keys = out.reshape(batch, kv_heads, d_v, -1, UNIT)[..., list(tp.FOURS_ORDER)]
    return np.ascontiguousarray(keys.reshape(out.shape))


def _columns(d_v: int) -> int:
    """Columns of V that a CTA turns: its threads have one each, and a part of the keys."""
    return 32 if d_v <= 32 else 64 if d_v <= 64 else 128


def _grid(v: tp.TensorMap, columns: int) -> int:
    batch, kv_heads, s_kv, d_v = v.shape
    return batch * kv_heads * -(-s_kv // KEYS) * -(-d_v // columns)


@tp.kernel(grid=_grid)
def turn(ctx: tp.Context, v: tp.GlobalTensor, out: tp.GlobalTensor, *, columns: int) -> None:
    """v (batch, kv_heads, s_kv, d_v) uint8 -> out (batch, kv_heads, d_v, ⌈s_kv / 16⌉ · 4) uint32,
    whose words have four keys each: see `turned`.
    """
    tile = ctx.smem((KEYS, columns), v.dtype, swizzle=0, name="tile")[0]
    words = ctx.smem((columns, KEYS // 4), out.dtype, name="words")[0]
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("turn", warps=WARPS)
    def role() -> None:
        _, kv_heads, s_kv, d_v = v.shape
        parts, blocks = ctx.ceil_div(d_v, columns), ctx.ceil_div(s_kv, KEYS)
        column = ctx.let(ctx.block_id % parts * columns, "column")
        key = ctx.let(ctx.block_id // parts % blocks * KEYS, "key")
        head = ctx.let(ctx.block_id // parts // blocks % kv_heads, "head")
        batch = ctx.let(ctx.block_id // parts // blocks // kv_heads, "batch")
        with ctx.elect_one("role"):
            loaded.expect_bytes(tile.nbytes)
            ctx.tma_load(v, (batch, head, key, column), tile, loaded)  # zeros after the last key
        loaded.wait(0)
        thread = ctx.warp * 32 + ctx.lane
        mine = ctx.let(thread % columns, "mine")
        count = KEYS * columns // (32 * WARPS)  # of the thread's keys
        first = ctx.let(thread // columns * count, "first")
        for word in range(count // 4):
            made: Any = 0
            for place in range(4):
                at = word // 4 * UNIT + tp.FOURS_ORDER[word % 4 * 4 + place]
                byte = ctx.load(tile[first + at, mine]).to("uint32")
                made = byte if place == 0 else made | byte << 8 * place
            ctx.store(words[mine, first // 4 + word], made)
        ctx.fence_proxy_async()
        ctx.sync_role()
        with ctx.elect_one("role"):
            ctx.tma_store(out, (batch, head, column, key // 4), words)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def bind_turn(v: Array, out: Array, *, chip: tp.Chip | None = None) -> tp.Program:
    """The program for v (batch, s_kv, kv_heads, d_v) uint8 and out `turned_shape` of it, as words:
    (batch, kv_heads, d_v, ⌈s_kv / 16⌉ · 4) uint32 or int32; d_v contiguous in v, words in out.
    """
    columns = _columns(v.shape[3])
    box = (1, 1, KEYS, columns)
    return turn.bind(
        mapped("attention", "v", v.swapaxes(1, 2), box, "row", given=v, swizzle=0),
        mapped("attention", "turned v", out, (1, 1, columns, KEYS // 4), "row"),
        chip=chip,
        columns=columns,
    )
