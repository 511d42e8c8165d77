"""Which configuration of attention over a cache for which problem."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention_decode.config import (
    MOST_COLUMNS,
    SLACK,
    SMEM_OF_CTA,
    DecodeConfig,
    Form,
    padded,
)
from tilepipe.kernels.attention_decode.fits import fixed_bytes, most_keys
from tilepipe.kernels.attention_decode.validation import Extents

# Bytes of K and V in the rings of an SM, of one CTA and of two. More were not faster on an H200.
RING_BYTES = {1: 96 * 1024, 2: 128 * 1024}
NARROW_RING_BYTES = {1: 160 * 1024, 2: 128 * 1024}  # of a cache of 8 bits, queries as columns
TWO = 128  # elements of a head, padded, up to which an SM has two CTAs
MOST_WAVES = 4
LEAST_TILES = 48  # of a share, in a full cache, for which a CTA more is worth its beginning


def choose_sm90(found: Extents, chip: tp.Chip) -> DecodeConfig:
    """The configuration for a problem.

    An SM has two CTAs where there are items (heads of the cache of all sequences) for them, and one
    where CTAs would share most items, since bringing parts together takes time at the end. It has
    two, too, where a cache of 8 bits has more queries than columns: one widens while the other
    multiplies. It has one for heads above 128 elements, whose sums take the registers. A single
    CTA that widens a cache of 8 bits takes tiles twice as large, where there are keys enough: its
    warps then wait for each other half as often. Queries of a cache of 16 bits are rows where CTAs
    share most items: rows are brought together faster. There are as many waves, rounded, as each
    place of a CTA has items, up to `MOST_WAVES`, and as long as a share has `LEAST_TILES` tiles.
    """
    items, width = found.batch * found.kv_heads, padded(found.d)
    narrow_columns = found.narrow and found.rows <= MOST_COLUMNS
    many = 2 * items >= 3 * chip.sms or (found.narrow and not narrow_columns)
    ctas = 2 if many and width <= TWO else 1
    queries = "columns" if found.narrow or 4 * items >= 3 * chip.sms else "rows"
    bn = DecodeConfig().bn
    if narrow_columns and ctas == 1 and items * found.capacity >= 2 * bn * chip.sms:
        bn *= 2
    cfg = DecodeConfig(bn, ctas=ctas, queries=queries)
    cfg = cfg.changed(bn=min(bn, most_keys(found, cfg)))
    bn = cfg.bn
    room = (chip.smem_per_cta + SMEM_OF_CTA) // ctas - SMEM_OF_CTA - SLACK
    rings = NARROW_RING_BYTES if narrow_columns else RING_BYTES
    ring = min(rings[ctas] // ctas, room - fixed_bytes(found, cfg))
    line = Form.of(found.rows, found.d, found.narrow, cfg).width * found.cache_dtype.nbytes
    places = ctas * chip.sms
    tiles = items * -(-found.capacity // bn) // places
    waves = max(min((2 * items + places) // (2 * places), tiles // LEAST_TILES, MOST_WAVES), 1)
    return cfg.changed(stages=ring // (2 * bn * line), waves=waves)
