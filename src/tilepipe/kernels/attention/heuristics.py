"""Which configuration of attention for which problem."""

from __future__ import annotations

from dataclasses import replace

from tilepipe.kernels.attention.block_mask import check_keys_of_blocks
from tilepipe.kernels.attention.config import (
    NARROW_STEP,
    ROWS,
    SM100_PART,
    AttentionConfig,
    Sm100AttentionConfig,
    has_whole_spans,
)
from tilepipe.kernels.attention.validation import Extents

SPAN = 64  # elements of 16 bits that the swizzle spans
# Keys of a tile for heads of up to so many elements: Q, and two stages of K and of V, in 227 KB.
LARGE = {192: 96, 256: 64}
# Warpgroups, and keys of a tile, for heads of 8 bits of up to so many elements: where the tensor
# cores add up all keys, and where tiles of keys are promoted.
NARROW_TILES = {
    False: {64: (3, 128), 128: (2, 192), 192: (2, 128), 256: (2, 96)},
    True: {64: (3, 96), 128: (2, 128), 256: (2, 64)},
}
# Bytes of the K and V of heads that are dealt out together: of an L2 of 50 MB, which also holds Q
# and the output.
BAND_BYTES = 1 << 25
MOST_IN_BAND = 16
# Keys whose products take as long as what each tile of keys costs beside its own: fitted to
# measured times of 512 to 4096 keys.
BETWEEN = 24


def choose_sm90(
    found: Extents,
    sides: tuple[bool, bool],
    s_kv: int | None = None,
    *,
    changes: int = 0,
    block: tuple[int, int] | None = None,
    accumulate: str | None = None,
) -> AttentionConfig:
    """The configuration that was fastest on an H200, of those measured
    (docs/performance/attention.md), for d and d_v of 64 or 128; smaller heads have that of the next
    of these. For larger ones, which were not measured, as many keys as registers and shared memory
    hold.

    d = 64: three warpgroups, since a fourth of the time goes into exponentials that the others'
    MMAs hide. d = 128: two, with tiles of 128 keys, and the queries of the next tile loaded ahead;
    or with 160 keys, where shared memory holds no second tile of queries, if the last tile of keys
    is full enough. Tiles of queries go to CTAs as these become free. Under a mask the longest come
    first, in bands of heads whose K and V stay in L2.

    Args:
        sides: whether queries see only some keys on the left, and on the right, as under a causal
            mask, which makes tiles differ in length.
        s_kv: the most keys that a sequence has, unless those of `found`.
        changes: how many changes are made to scores before the softmax: softcap, slopes, function.
        block: queries and keys of a block of a block mask, which tiles divide.
        accumulate: as of `AttentionConfig`, of operands of 8 bits; unless given "promote" where
            registers hold its sums.

    Raises:
        BindError: no tile of operands of 8 bits divides the blocks.
    """
    on_left, causal = sides
    d, d_v, packed = found.d, found.d_v, found.sequences > 0
    keys = found.s_kv if s_kv is None else s_kv
    widest, whole = max(d, d_v), has_whole_spans(found.dtype, d, d_v)
    if found.narrow:
        promotes = widest <= 128 if accumulate is None else accumulate == "promote"
        cfg = _narrow(widest, causal, changes > 0 or on_left, promotes)
        if block is not None:
            check_keys_of_blocks(block, found)
            most = next(n for n in (cfg.consumers, 2, 1) if block[0] % (ROWS * n) == 0)
            bn = next(n for n in range(cfg.bn, 0, -NARROW_STEP) if block[1] % n == 0)
            cfg = replace(cfg, consumers=most, bn=bn)
        group = _band(found, keys) if causal else 1
        return replace(cfg, group=group, store="tile" if whole else "registers")
    # What changes scores, and two more loops, take registers that fewer keys leave.
    tight = changes > 0 or on_left
    if widest > 128:
        cfg = AttentionConfig(bn=LARGE[-(-widest // 64) * 64] - (16 if tight else 0))
    else:
        cfg = _measured(widest, causal, keys, 0 if block is None else block[1])
    if block is not None:
        most = next(n for n in (cfg.consumers, 2, 1) if block[0] % (ROWS * n) == 0)
        cfg = replace(cfg, consumers=most)
    if widest <= 128:
        # NVRTC 13.0, which needs more registers than later ones, spills with 128 keys there.
        few = 112 if changes > 1 and on_left else 128
        if changes and cfg.consumers == 3:
            few = 80
        # Parts of a K tile, and a tile of the output, have whole spans of the swizzle.
        cfg = replace(
            cfg,
            bn=min(cfg.bn, few) if tight else cfg.bn,
            qk_stages=cfg.qk_stages if d > SPAN else 1,
            store=cfg.store if whole else "registers",
        )
    if block is not None:
        cfg = replace(cfg, bn=next(n for n in range(cfg.bn, 0, -16) if block[1] % n == 0))
    if causal:
        cfg = replace(cfg, group=_band(found, keys))
    differ = causal or packed or block is not None
    return replace(cfg, schedule="dynamic") if differ else cfg


def _measured(d: int, causal: bool, keys: int, block_k: int) -> AttentionConfig:
    if d <= 64 and causal and keys <= 2048:
        # Of three warpgroups' tiles, 192 queries, a diagonal cuts more.
        return AttentionConfig(q_stages=2, schedule="dynamic")
    if d <= 64:
        store = "registers" if causal else "tile"
        return AttentionConfig(q_stages=2, consumers=3, schedule="dynamic", store=store)
    few = AttentionConfig(q_stages=2, schedule="dynamic", store="tile")
    many = AttentionConfig(bn=160, qk_stages=1 if causal else 2, schedule="dynamic", store="tile")
    able = [cfg for cfg in (few, many) if block_k % cfg.bn == 0] or [few]
    if causal:
        return able[0] if keys <= 8192 else able[-1]
    return min(able, key=lambda cfg: -(-keys // cfg.bn) * (cfg.bn + BETWEEN))


def _narrow(widest: int, causal: bool, tight: bool, promotes: bool) -> AttentionConfig:
    """Of operands of 8 bits, with heads of up to `widest` elements. `tight`: of what takes more
    registers. Warpgroups issue their MMAs as it comes, which was faster than in turns wherever two
    warpgroups were measured.
    """
    consumers, bn = next(x for d, x in NARROW_TILES[promotes].items() if widest <= d)
    if widest <= 64 and promotes and not causal:
        consumers, bn = 2, 192  # 7 % faster there than three warpgroups with 96 keys
    return AttentionConfig(
        bn=bn - (32 if tight else 0),
        consumers=consumers,
        order="free",
        q_stages=2,
        schedule="dynamic",
        accumulate="promote" if promotes else "fast",
    )


def _band(found: Extents, keys: int) -> int:
    """How many heads are dealt out together: a power of two, so that few kernels are compiled."""
    nbytes = max(keys, 1) * (found.d + found.d_v) * found.dtype.nbytes
    heads = max(BAND_BYTES // nbytes, 1)
    return min(1 << int(heads).bit_length() - 1, MOST_IN_BAND) * found.group


def choose_sm100(d: int) -> Sm100AttentionConfig:
    """What shared memory has room for beside the queries: 192 KB in K and V of 128, 160 KB of 64
    elements.
    """
    return Sm100AttentionConfig(stages=2 if d > SM100_PART else 4)
