"""Which configuration of attention for which problem."""

from __future__ import annotations

from tilepipe.kernels.attention.config import SM100_PART, AttentionConfig, Sm100AttentionConfig


def choose_sm90(d: int, causal: bool, s_kv: int) -> AttentionConfig:
    """The configuration that was fastest on an H200, of those measured (docs/performance.md): for d
    of 64 or 128.

    d = 64: three warpgroups, since a fourth of the time goes into exponentials that the others'
    MMAs hide. d = 128: two, with as many keys as registers, or shared memory beside an output tile,
    hold. Causal masks: single tiles, which the hardware deals out as CTAs end; heads in bands, so
    that long tiles come first and K and V are still shared in L2.
    """
    if not causal:
        return (
            AttentionConfig(consumers=3)
            if d == 64
            else AttentionConfig(bn=160, qk_stages=2, store="tile")
        )
    if d == 64:
        return AttentionConfig(consumers=3, schedule="single", group=8)
    if s_kv <= 8192:
        return AttentionConfig(schedule="single", store="tile", group=8)
    return AttentionConfig(bn=160, schedule="single", store="tile", group=4)


def choose_sm100(d: int) -> Sm100AttentionConfig:
    """What shared memory has room for beside the queries: 192 KB in K and V of 128, 160 KB of 64
    elements.
    """
    return Sm100AttentionConfig(stages=2 if d > SM100_PART else 4)
