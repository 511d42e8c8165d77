"""Block masks on the host: what attention asks of them, and the program that lists which tiles of
keys each tile of queries walks.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.host_arguments import plain_int, shown
from tilepipe.kernels.attention.config import NARROW_STEP, ROWS, AttentionConfig
from tilepipe.kernels.attention.key_lists import HEAD, list_keys
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import NAME, Extents
from tilepipe.kernels.common.validation import Array, check_array, unboxed

BLOCK_STEP = (ROWS, 16)  # a block has a multiple of so many queries, and keys: the least of a tile
BLOCK_SIZE = (128, 128)  # FlexAttention's

BlockSize = tuple[int, int]


def check_block_mask(mask: Any, size: object, found: Extents) -> BlockSize | None:
    """The queries and keys of a block; None: there is no block mask.

    Raises:
        BindError: no boolean array of (batch or 1, heads or 1, blocks of queries, blocks of keys),
            blocks that no tile fits, or a block mask of packed sequences.
    """
    block = check_block_size(size)
    if mask is None:
        return None
    if not hasattr(mask, "dtype") and hasattr(mask, "to_dense"):
        raise tp.BindError(
            f"{NAME}: block_mask is a boolean array, true where a block is computed; of a"
            " BlockMask of FlexAttention pass block_mask=mask.to_dense().bool(), and what it masks"
            " within blocks as causal=, window= or a score function"
        )
    if found.sequences:
        raise tp.BindError(
            f"{NAME}: block_mask is of batches, whose sequences have one length; packed sequences"
            " have none"
        )
    check_keys_of_blocks(block, found)
    check_array(NAME, "block_mask", mask)
    dtype, shape = str(mask.dtype).removeprefix("torch."), tuple(mask.shape)
    blocks = -(-found.s_q // block[0]), -(-found.s_kv // block[1])
    outer = {1, found.batch}, {1, found.heads}
    fits = len(shape) == 4 and all(n in some for n, some in zip(shape, outer, strict=False))
    if dtype == "bool" and fits and shape[2:] == blocks:
        return block
    dense = shape[-2:] == (found.s_q, found.s_kv) and shape[-2:] != blocks
    if dense or dtype != "bool":
        why = "A mask of single scores is written as causal=, window= or a score function"
    else:
        why = f"There are ceil({found.s_q} / {block[0]}) = {blocks[0]} blocks of queries and"
        why += f" ceil({found.s_kv} / {block[1]}) = {blocks[1]} of keys"
    raise tp.BindError(
        f"{NAME}: block_mask is boolean of shape (batch or 1, heads or 1, blocks of queries, blocks"
        f" of keys), here ({_either(found.batch)}, {_either(found.heads)}, {blocks[0]},"
        f" {blocks[1]}) for block_size={block}; it is {dtype} of {shape}. {why}"
    )


def _either(count: int) -> str:
    return "1" if count == 1 else f"1 or {count}"


def check_block_size(size: object) -> BlockSize:
    """(queries, keys) of a block.

    Raises:
        BindError: no such pair, or blocks that no tile fits.
    """
    pair = size if isinstance(size, tuple | list) else ()
    numbers = tuple(plain_int(x) for x in pair)
    wanted = zip(numbers, BLOCK_STEP, strict=False)
    if len(numbers) != 2 or any(x is None or x <= 0 or x % step for x, step in wanted):
        raise tp.BindError(
            f"{NAME}: block_size is a pair (queries, keys) of multiples of {BLOCK_STEP[0]} and"
            f" {BLOCK_STEP[1]}; got {shown(size)}"
        )
    queries, keys = numbers
    assert queries is not None
    assert keys is not None
    return queries, keys


def asked_block(size: object, mask: object) -> BlockSize:
    """Queries and keys of a block as a caller asks: `BLOCK_SIZE` where `size` is None.

    Raises:
        BindError: as `check_block_size`, or a size without a mask.
    """
    if size is not None and mask is None:
        raise tp.BindError(
            f"{NAME}: block_size={shown(size)} is of a block mask: pass block_mask= too,"
            " or leave it out"
        )
    return BLOCK_SIZE if size is None else check_block_size(size)


def check_keys_of_blocks(block: BlockSize, found: Extents) -> None:
    """Raises BindError for blocks of keys that no tile of operands of 8 bits divides."""
    if found.narrow and block[1] % NARROW_STEP:
        raise tp.BindError(
            f"{NAME}: of {found.dtype} a block has a multiple of {NARROW_STEP} keys, as one MMA"
            f" takes them; {block[1]} of block_size={block} is none"
        )


def check_fits(cfg: AttentionConfig, block: BlockSize) -> None:
    """Tiles of `cfg` divide blocks.

    Raises:
        BindError: they do not.
    """
    for tile, whole, said in (
        (cfg.bm, block[0], f"queries, 64 · consumers={cfg.consumers}"),
        (cfg.bn, block[1], "keys, bn"),
    ):
        if whole % tile:
            raise tp.BindError(
                f"{NAME}: a tile has {tile} {said}, and does not divide blocks of {whole}"
                f" (block_size={block}): leave the setting out, or choose one that divides"
            )


def lists_shape(mask: Array, found: Extents, cfg: AttentionConfig) -> tuple[int, int, int, int]:
    """The shape of the lists that `bind_lists` writes, int32."""
    batch, heads = mask.shape[:2]
    return batch, heads, -(-found.s_q // cfg.bm), HEAD + -(-found.s_kv // cfg.bn)


def check_lists(lists: Array | None, found: Extents, cfg: AttentionConfig) -> None:
    """What `bind` of attention asks of lists.

    Raises:
        BindError: no int32 array of the shape that `lists_shape` gives, or beside packed sequences.
    """
    if lists is None:
        return
    if found.sequences:
        raise tp.BindError(f"{NAME}: key_lists are of batches; packed sequences have none")
    check_array(NAME, "key_lists", lists, 4, (tp.int32,))
    batch, heads, *rest = lists.shape
    want = lists_shape(lists, found, cfg)
    if tuple(rest) != want[2:] or batch not in {1, found.batch} or heads not in {1, found.heads}:
        raise tp.BindError(
            f"{NAME}: key_lists have the shape (batch or 1, heads or 1, tiles of queries, {HEAD} +"
            f" tiles of keys), here ({_either(found.batch)}, {_either(found.heads)}, {want[2]},"
            f" {want[3]}) of tiles of {cfg.bm} queries and {cfg.bn} keys; they have"
            f" {tuple(lists.shape)}"
        )


def bind_lists(
    mask: Array,
    lists: Array,
    found: Extents,
    seen: Window,
    cfg: AttentionConfig,
    block: BlockSize,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program that writes `lists`, int32 of `lists_shape`, for a checked block mask. Attention
    with the same window and configuration reads them.

    Raises:
        BindError: tiles of `cfg` that do not divide blocks.
    """
    check_fits(cfg, block)
    return list_keys.bind(
        unboxed(NAME, "block_mask", mask),
        lists,
        found.s_q,
        found.s_kv,
        *seen.bounds,
        chip=chip,
        bm=cfg.bm,
        bn=cfg.bn,
        block=block,
        sides=seen.sides,
        from_first=seen.from_first,
    )
