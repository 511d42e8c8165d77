"""Which configuration of the gradients of attention for which problem."""

from __future__ import annotations

import math

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import KEYS, BackwardConfig

BAND = 4  # heads that are dealt out together under a causal mask
TOGETHER = (1, 2, 4, 8, 16, 32, 64)  # heads that are dealt out together in a fixed order


def choose_sm90(causal: bool, in_turns: bool, s_kv: int, chip: tp.Chip) -> BackwardConfig:
    """One head after the other where all tiles take the same time. Under a causal mask the tiles
    of keys that most queries see go first, of a few heads whose Q and dO stay in L2. Of 1, 2, 4, 8
    and 16 heads on an H200, 4 were the fastest by 1 to 3 % at 4×4096; at 2×8192 2 and 4 were
    alike, and 1 slower by 8 %; at 16384 the number had no effect. All this was measured with the
    kernel's former order of products (docs/performance.md), and not again.

    In turns a CTA is late by one hand-over for each tile of keys whose turn is before its own. As
    many heads go together as the GPU has room for: then an SM that has been late takes a tile of
    the same place in the order, and is not late again. The number is part of what is compiled, so
    it is the nearest of `TOGETHER`: all lengths of keys take a kernel of these few.
    """
    if in_turns:
        room = chip.sms * KEYS / max(s_kv, 1)
        return BackwardConfig(group=min(TOGETHER, key=lambda n: abs(math.log(n / room))))
    return BackwardConfig(group=BAND if causal else 1)
