"""Which configuration of attention for which problem."""

from __future__ import annotations

from dataclasses import replace

from tilepipe.kernels.attention.config import SM100_PART, AttentionConfig, Sm100AttentionConfig

SPAN = 64  # elements of 16 bits that the swizzle spans
# Keys of a tile for heads of up to so many elements: Q, and two stages of K and of V, in 227 KB.
LARGE = {192: 96, 256: 64}


def choose_sm90(
    d: int, d_v: int, causal: bool, s_kv: int, *, changed: bool = False, packed: bool = False
) -> AttentionConfig:
    """The configuration that was fastest on an H200, of those measured (docs/performance.md), for d
    and d_v of 64 or 128; smaller heads have that of the next of these. For larger ones, which were
    not measured, as many keys as registers and shared memory hold.

    d = 64: three warpgroups, since a fourth of the time goes into exponentials that the others'
    MMAs hide. d = 128: two, with as many keys as registers, or shared memory beside an output tile,
    hold. Causal masks: single tiles, which the hardware deals out as CTAs end; heads in bands, so
    that long tiles come first and K and V are still shared in L2.

    Args:
        causal: whether a bound on the right, as of a causal mask, makes tiles differ in length.
        changed: whether scores are changed before the softmax, which takes registers.
        packed: whether sequences are packed: their lengths make tiles differ as a mask does.
    """
    if packed:
        found = choose_sm90(d, d_v, causal, s_kv, changed=changed)
        bn = min(found.bn, 128) if changed else found.bn  # the place of a sequence takes registers
        return replace(found, schedule="single", bn=bn)
    widest = max(d, d_v)
    if widest > 128:
        bn = LARGE[-(-widest // 64) * 64] - (16 if changed else 0)
        return (
            AttentionConfig(bn=bn, schedule="single", group=4) if causal else AttentionConfig(bn=bn)
        )
    found = _measured(widest, causal, s_kv)
    fewer = (48 if found.consumers == 3 else 16) if changed else 0
    # Parts of a K tile, and a tile of the output, have whole spans of the swizzle.
    return replace(
        found,
        bn=found.bn - fewer,
        qk_stages=found.qk_stages if d > SPAN else 1,
        store=found.store if d_v % SPAN == 0 else "registers",
    )


def _measured(d: int, causal: bool, s_kv: int) -> AttentionConfig:
    if not causal:
        return (
            AttentionConfig(consumers=3)
            if d <= 64
            else AttentionConfig(bn=160, qk_stages=2, store="tile")
        )
    if d <= 64:
        return AttentionConfig(consumers=3, schedule="single", group=8)
    if s_kv <= 8192:
        return AttentionConfig(schedule="single", store="tile", group=8)
    return AttentionConfig(bn=160, schedule="single", store="tile", group=4)


def choose_sm100(d: int) -> Sm100AttentionConfig:
    """What shared memory has room for beside the queries: 192 KB in K and V of 128, 160 KB of 64
    elements.
    """
    return Sm100AttentionConfig(stages=2 if d > SM100_PART else 4)
