"""Which configuration of the gradients of attention for which problem."""

from __future__ import annotations

from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward.config import BackwardConfig

# Bytes of what is read and written for heads that are dealt out together: of an L2 of 50 MB.
BAND_BYTES = 1 << 25
MOST_IN_BAND = 8


def choose_sm90(found: Extents, causal: bool) -> BackwardConfig:
    """One head after the other where all tiles take the same time; under a causal mask bands of
    heads, the tiles of each that take longest first.
    """
    if not causal:
        return BackwardConfig()
    each = found.group * found.s_q * (found.d + found.d_v) * (found.dtype.nbytes + 2)
    heads = max(BAND_BYTES // max(each, 1), 1)
    return BackwardConfig(group=min(1 << int(heads).bit_length() - 1, MOST_IN_BAND))
