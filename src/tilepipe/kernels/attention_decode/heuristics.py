"""Which configuration of attention over a cache for which problem."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention_decode.config import DecodeConfig, padded
from tilepipe.kernels.attention_decode.validation import Extents

# Bytes of K and V in the rings of an SM, of one CTA and of two. More were not faster on an H200.
RING_BYTES = {1: 96 * 1024, 2: 128 * 1024}


def choose_sm90(found: Extents, chip: tp.Chip) -> DecodeConfig:
    """Two CTAs of an SM where there are sequences and heads for them; one where these would mostly
    share: bringing parts together takes 3 µs at the end.
    """
    ctas = 2 if 2 * found.batch * found.kv_heads >= 3 * chip.sms else 1
    cfg = DecodeConfig(ctas=ctas)
    stage = 2 * cfg.bn * padded(found.d) * found.dtype.nbytes
    return cfg.changed(stages=RING_BYTES[ctas] // ctas // stage)
