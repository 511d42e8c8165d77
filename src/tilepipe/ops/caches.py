"""What the operations on a cache of keys and values answer to arguments of other libraries'."""

from __future__ import annotations

_ROTATE = "rotate q and the new keys before the call"
_PAGES = "write block_table=, which has a row of pages for each sequence"
_HEADS_OUTER = (
    "the cache is (batch, s, kv_heads, d) or (pages, page_size, kv_heads, d), with any strides of"
    " the outer dimensions: of one with the heads outside, pass cache.swapaxes(1, 2)"
)

# of FlashAttention, FlashInfer and vLLM, and what there is instead
ELSEWHERE = {
    "page_table": "write block_table=",
    "block_tables": "write block_table=",
    "slot_mapping": "write block_table= and cache_seqlens=, by which each token finds its slot",
    "kv_indices": _PAGES,
    "kv_indptr": _PAGES,
    "layout": _HEADS_OUTER,
    "kv_layout": _HEADS_OUTER,
    "rotary_cos": _ROTATE,
    "rotary_sin": _ROTATE,
    "cache_batch_idx": "pass block_table=, whose rows may name any parts of the cache",
    "cache_leftpad": "sequences begin at the first key of the cache",
    "kv_scale": "write k_descale= and v_descale=, of shape (batch, kv_heads)",
    "k_scale": "write k_descale=",
    "v_scale": "write v_descale=",
}
