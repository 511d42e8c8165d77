"""A random block mask as a setting: `block_mask=128x64:50`, blocks of 128 queries and 64 keys, half
of which are computed.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.kernels.attention.block_mask import BlockSize, check_block_size
from tilepipe.kernels.attention.validation import Extents
from tilepipe.registry.instances import Size

_TEXT = re.compile(r"(\d+)x(\d+):(\d+)", re.ASCII)


class RandomBlocks(NamedTuple):
    """Queries and keys of a block, and how many of a hundred blocks are computed."""

    block: BlockSize
    percent: int

    def drawn(self, found: Extents, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """A block mask (batch, heads, blocks of queries, blocks of keys)."""
        counts = (-(-n // x) for n, x in zip((found.s_q, found.s_kv), self.block, strict=True))
        return rng.random((found.batch, found.heads, *counts)) * 100 < self.percent

    def enlarged(self, size: Size) -> Size:
        """A size of checked instances with more keys, so that as many tiles are walked, and half
        as many again, as without a block mask.
        """
        s_kv = size.extents["s_kv"]
        assert isinstance(s_kv, int)
        factor = 150 / max(self.percent, 10)
        return replace(size, extents={**size.extents, "s_kv": math.ceil(s_kv * factor)})


def parsed(text: Any) -> RandomBlocks | None:
    """The block mask that a setting states; None for the empty text.

    Raises:
        BindError: something else, or blocks that no tile fits.
    """
    if not text:
        return None
    match = _TEXT.fullmatch(str(text))
    if match is None or int(match[3]) > 100:
        raise BindError(
            "setting block_mask has the queries and the keys of a block, and how many of a hundred"
            f" blocks are computed, at random, such as 128x128:50; got {text!r}"
        )
    queries, keys, percent = map(int, match.groups())
    return RandomBlocks(check_block_size((queries, keys)), percent)
