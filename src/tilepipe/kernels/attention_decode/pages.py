"""What the page numbers in a table may be, where the host sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.common.validation import Array


def check_pages(
    kernel: str, table: Any, lengths: Any, cache: Array, before: int | None = None
) -> None:
    """Asserts that the pages which sequences need are in the cache. Only NumPy arrays are read; a
    GPU's are as the kernel finds them.

    Args:
        table, lengths: None, or arrays of checked shapes: pages of each sequence, and its keys.
        before: only so many keys before the end of a sequence are seen; None: all.

    Raises:
        BindError: the number of a page is out of range.
    """
    if not isinstance(table, np.ndarray) or not isinstance(lengths, np.ndarray | None):
        return
    pages, page = cache.shape[:2]
    room = table.shape[1] * page
    # as the kernel has it: a length is cut to what there is room for
    ends = np.full(table.shape[0], room) if lengths is None else np.clip(lengths, 0, room)
    firsts = np.arange(table.shape[1]) * page
    needed = firsts < ends[:, None]
    if before is not None:
        needed &= firsts + page > ends[:, None] - before
    for b, i in np.argwhere(needed & ((table < 0) | (table >= pages)))[:1]:
        raise tp.BindError(
            f"{kernel}: block_table[{b}, {i}] is {table[b, i]}, and the cache has the pages 0 to"
            f" {pages - 1}; of sequence {b}, with {ends[b]} keys in pages of {page}, the"
            f" entries {np.flatnonzero(needed[b])[0]} to {-(-int(ends[b]) // page) - 1} are needed"
        )
