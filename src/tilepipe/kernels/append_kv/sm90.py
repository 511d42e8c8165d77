"""New keys and values of each sequence are written to its cache, which `attention_decode` reads.

A CTA takes some heads of a token of a sequence. It finds the place from the length of the sequence
and, with pages, from the table, both in GPU memory, and writes the rows there, rounded to the dtype
of the cache. A token whose place is outside of the cache is left out.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.append_kv.validation import NAME, check_append
from tilepipe.kernels.attention_decode.validation import of_descale
from tilepipe.kernels.common.validation import Array, mapped, unboxed

THREADS = 128  # of a CTA
VECTOR = 8  # elements of a row that a thread holds beside each other
WARP = 32


def grid(k: tp.TensorMap, threads: int) -> int:
    """A CTA for as many heads as its threads hold, of each token of each sequence."""
    batch, tokens, heads, _ = k.shape
    return batch * tokens * -(-heads // (THREADS // threads))


@tp.kernel(grid=grid)
def append_kv(
    ctx: tp.Context,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    k_cache: tp.GlobalTensor,
    v_cache: tp.GlobalTensor,
    lengths: tp.GlobalTensor,
    table: tp.GlobalTensor | None,
    k_scale: tp.GlobalTensor | None,
    v_scale: tp.GlobalTensor | None,
    k_factor: tp.Value,
    v_factor: tp.Value,
    *,
    threads: int,
    width: int,
    page: int,
) -> None:
    """k, v (batch, tokens, heads, d); k_cache, v_cache (batch, s, heads, d), or with a table
    (batch, pages of a sequence) (pages, page, heads, d); lengths (batch,), new tokens included.

    Args:
        k_scale, v_scale: (batch, heads), what elements are divided by, as they are by the factors;
            0 makes zeros.
        threads: that share a row. width: of a row, elements of them all.
    """
    layout, height = f"rows:{threads}", THREADS // threads  # rows beside each other

    @ctx.role("append", warpgroups=1)
    def append() -> None:
        ctx.launch_dependents()
        tokens, parts = k.shape[1], ctx.ceil_div(k.shape[2], height)
        head = ctx.let(ctx.block_id % parts * height, "head")
        token = ctx.let(ctx.block_id // parts % tokens, "token")
        batch = ctx.let(ctx.block_id // parts // tokens, "batch")
        length = ctx.let(ctx.load(lengths[batch]), "length")
        # a length below 0 is 0: the lowest int32 less the tokens would overflow
        place = ctx.let(ctx.max(length, 0) - tokens + token, "place")
        capacity = k_cache.shape[1] if table is None else table.shape[1] * page
        with ctx.when((place >= 0) & (place < capacity)):
            outer, row = batch, place
            if table is not None:
                outer = ctx.let(ctx.load(table[batch, place // page]), "page")
                row = ctx.let(place % page, "row")
            of_token, of_cache = (batch, token, head, 0), (outer, row, head, 0)
            sides = (k, k_cache, k_scale, k_factor), (v, v_cache, v_scale, v_factor)
            loaded = [
                ctx.load_global(source, of_token, (height, width), layout=layout)
                for source, *_ in sides
            ]
            for x, (_, target, scales, factor) in zip(loaded, sides, strict=True):
                value = x.to("float32")
                if target.dtype.nbytes == 1:
                    value = ctx.select(factor == 0, 0.0, value / factor)
                if scales is not None:
                    of_head = ctx.load_global(scales, (batch, head), (height, 1), layout=layout)
                    value = ctx.select(of_head == 0, 0.0, value / of_head)
                ctx.store_global(target, of_cache, value)


def bind(
    k_cache: Array,
    v_cache: Array,
    k: Array,
    v: Array,
    cache_seqlens: Array,
    *,
    block_table: Array | None = None,
    k_descale: Array | float | None = None,
    v_descale: Array | float | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program that writes k, v (batch, tokens, kv_heads, d) to the caches (batch, s, kv_heads,
    d): token i of sequence b becomes key cache_seqlens[b] - tokens + i, where there is such a
    place.

    Args:
        cache_seqlens: int32 (batch,), the keys of each sequence, with the new ones.
        block_table: int32 (batch, most): the caches have pages, (pages, page_size, kv_heads, d),
            as of `attention_decode`.
        k_descale, v_descale: float32 (batch, kv_heads), or a number, of caches of float8_e4m3:
            what elements are divided by; 1 unless given.
        chip: that of the arrays unless given.

    Raises:
        BindError: shapes or dtypes that do not fit together, or nothing to write.
    """
    found = check_append(
        k_cache, v_cache, k, v, cache_seqlens, block_table=block_table,
        k_descale=k_descale, v_descale=v_descale,
    )  # fmt: skip
    k_scales, k_factor = of_descale("k_descale", k_descale, NAME)
    v_scales, v_factor = of_descale("v_descale", v_descale, NAME)
    threads = min(1 << (-(-found.d // VECTOR) - 1).bit_length(), WARP)
    sides = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache}
    return append_kv.bind(
        *(mapped(NAME, name, x, order="row") for name, x in sides.items()),
        unboxed(NAME, "cache_seqlens", cache_seqlens),
        unboxed(NAME, "block_table", block_table),
        k_scales,
        v_scales,
        k_factor,
        v_factor,
        chip=chip,
        threads=threads,
        width=-(-found.d // (threads * VECTOR)) * threads * VECTOR,
        page=found.page,
    )
