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
    if not pages and lengths is None:  # all keys of a cache that has none
        return
    room = table.shape[1] * page
    # as the kernel has it: a length is cut to what there is room for
    ends = np.full(table.shape[0], room) if lengths is None else np.clip(lengths, 0, room)
    firsts = np.arange(table.shape[1]) * page
    needed = firsts < ends[:, None]
    if before is not None:
        needed &= firsts + page > ends[:, None] - before
    for b, i in np.argwhere(needed & ((table < 0) | (table >= pages)))[:1]:
        raise tp.BindError(
            f"{kernel}: block_table[{b}, {i}] is {table[b, i]}, and the cache has {_there(pages)};"
            f" of sequence {b}, with {ends[b]} keys in pages of {page}, the entries"
            f" {np.flatnonzero(needed[b])[0]} to {-(-int(ends[b]) // page) - 1} are needed"
        )


def check_places(kernel: str, table: Any, lengths: Any, cache: Array, tokens: int) -> None:
    """Asserts that the pages to which the last tokens of sequences are written are in the cache,
    and that no two have one place. Tokens that have none are not written: those before the first
    key, and those beyond the room of the table. Only NumPy arrays are read.

    Args:
        table, lengths: None, or arrays of checked shapes: pages of each sequence, and its keys.

    Raises:
        BindError: the number of a page is out of range, or a page is named twice, and two tokens
            would be written to the same of its keys.
    """
    if not isinstance(table, np.ndarray) or not isinstance(lengths, np.ndarray):
        return
    pages, page = cache.shape[:2]
    keys = np.maximum(lengths, 0).astype(np.int64)[:, None] - tokens + np.arange(tokens)
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    for b, token in np.argwhere((keys >= 0) & (keys < table.shape[1] * page)).tolist():
        key = int(keys[b, token])
        entry, row = divmod(key, page)
        place = int(table[b, entry]), row
        if not 0 <= place[0] < pages:
            raise tp.BindError(
                f"{kernel}: block_table[{b}, {entry}] is {place[0]}, and the cache has"
                f" {_there(pages)}; key {key} of sequence {b} is to be written there"
            )
        if place in seen:
            other, first = seen[place]
            who = f"sequences {other} and {b}" if other != b else f"two tokens of sequence {b}"
            raise tp.BindError(
                f"{kernel}: block_table: {who} both write key {row} of page {place[0]}, which is"
                f" block_table[{other}, {first}] and block_table[{b}, {entry}]; give each a page"
                " of its own there"
            )
        seen[place] = b, entry


def _there(pages: int) -> str:
    return f"the pages 0 to {pages - 1}" if pages else "no pages"
