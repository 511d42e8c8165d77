"""Which configuration of the gradients of attention for which problem."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import KEYS, BackwardConfig

BAND = 4  # heads that are dealt out together under a causal mask


def choose_sm90(causal: bool, in_turns: bool, s_kv: int, chip: tp.Chip) -> BackwardConfig:
    """One head after the other where all tiles take the same time. Under a causal mask the tiles
    of keys that most queries see go first, of a few heads whose Q and dO stay in L2: of 1, 2, 4, 8
    and 16 heads on an H200, 4 were the fastest, by up to 9 %.

    In turns a CTA is late by one hand-over for each tile of keys whose turn is before its own. As
    many heads go together as the GPU has room for: then an SM that has been late takes a tile of
    the same place in the order, and is not late again.
    """
    if in_turns:
        return BackwardConfig(group=max(1, round(chip.sms * KEYS / max(s_kv, 1))))
    return BackwardConfig(group=BAND if causal else 1)
