"""Which configuration of the gradients of attention for which problem."""

from __future__ import annotations

import math

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import KEYS, BackwardConfig

BAND = 4  # heads that are dealt out together under a causal mask
TOGETHER = (1, 2, 4, 8, 16, 32, 64)  # heads that are dealt out together in a fixed order


def choose_sm90(
    causal: bool, in_turns: bool, shared: bool, heads: int, s_kv: int, chip: tp.Chip
) -> BackwardConfig:
    """For `s_kv` keys of `heads` heads of K and V, those of all the batch, on a chip. Figures are
    of an H200 (docs/performance/attention.md, "In a fixed order").

    In any order, one head after the other where all tiles take the same time. Under a causal mask
    the tiles of keys that most queries see go first, of a few heads whose Q and dO stay in L2: of
    1, 2, 4, 8 and 16 heads, 4 were the fastest by 1 to 3 % at 4×4096.

    In turns a CTA is late by one hand-over for each tile of keys whose turn is before its own. As
    many heads go together as the GPU has room for, under a causal mask for twice: then an SM that
    has been late takes a tile of the same place in the order, and is not late again. The number is
    part of what is compiled, so it is the nearest of `TOGETHER`: all lengths of keys take a kernel
    of these few. Bands that alternate are two at least.

    Args:
        in_turns: whether parts of dQ are added in a fixed order.
        shared: whether heads of Q share one of K and V. They are then walked beside each other, so
            that no CTA comes to a head before those whose turn is first.
    """
    if not in_turns:
        return BackwardConfig(group=BAND if causal else 1)
    room = (1 + causal) * chip.sms * KEYS / max(s_kv, 1)
    alternate = causal and not shared
    able = [n for n in TOGETHER if n == 1 or not alternate or n < heads]  # two bands alternate
    group = min(able, key=lambda n: abs(math.log(n / room)))
    return BackwardConfig(group, "alternate" if alternate else "queries" if causal else "heads")
