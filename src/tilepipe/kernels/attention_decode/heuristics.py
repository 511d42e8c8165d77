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
    """Two CTAs of an SM where there are sequences and heads for them; one where these would mostly
    share: bringing parts together takes 3 µs at the end. With a cache of 8 bits and more queries
    than columns two, since one widens while the other multiplies; one with large tiles, if it is
    one, since nothing goes on while its warps wait for each other. One of heads above 128, whose
    sums take the registers. Queries of a cache of 16 bits are rows where CTAs share most items:
    rows are brought together faster. As many waves as there are items for each place of a CTA.
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
