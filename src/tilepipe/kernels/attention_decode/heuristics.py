"""Which configuration of attention over a cache for which problem."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention_decode.config import (
    MOST_KEYS,
    SLACK,
    SMEM_OF_CTA,
    DecodeConfig,
    padded,
)
from tilepipe.kernels.attention_decode.fits import fixed_bytes
from tilepipe.kernels.attention_decode.validation import Extents

# Bytes of K and V in the rings of an SM, of one CTA and of two. More were not faster on an H200.
RING_BYTES = {1: 96 * 1024, 2: 128 * 1024}
TWO = 128  # elements of a head, padded, up to which an SM has two CTAs


def choose_sm90(found: Extents, chip: tp.Chip) -> DecodeConfig:
    """Two CTAs of an SM where there are sequences and heads for them; one where these would mostly
    share: bringing parts together takes 3 µs at the end. With a cache of 8 bits two, since one
    widens while the other multiplies. One of heads above 128, whose sums take the registers.
    """
    width = padded(found.d)
    many = found.narrow or 2 * found.batch * found.kv_heads >= 3 * chip.sms
    ctas = 2 if many and width <= TWO else 1
    bn = min(DecodeConfig().bn, MOST_KEYS[ctas][width])
    room = (chip.smem_per_cta + SMEM_OF_CTA) // ctas - SMEM_OF_CTA - SLACK
    ring = min(RING_BYTES[ctas] // ctas, room - fixed_bytes(found, bn))
    return DecodeConfig(bn, ring // (2 * bn * width * found.cache_dtype.nbytes), ctas)
