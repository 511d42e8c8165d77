"""What attention over a cache takes: dtypes, shapes, memory orders and the scale, each mistake one
sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.host_arguments import require_bool
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention_decode.config import ROWS, DecodeConfig, Form
from tilepipe.kernels.attention_decode.pages import check_pages
from tilepipe.kernels.attention_decode.pairs import PAIR, taken_for
from tilepipe.kernels.common.validation import (
    LARGEST_SCALE,
    Array,
    check_array,
    check_descale_values,
    check_scale,
    check_score_factor,
    dtype_of,
    mapped,
)

NAME = "attention_decode"
INPUTS: tuple[tp.DType, ...] = (tp.bfloat16, tp.float16)
NARROW = tp.float8_e4m3  # what else the cache may be
# Elements of a head, with a cache of 16 bits and of 8: O, S and P are in registers at once, beside
# what is widened.
LARGEST_HEAD, LARGEST_NARROW = 256, 192


@dataclass(frozen=True)
class Extents:
    """What `check_decode` found: extents, and the dtype of q and out.

    Attributes:
        capacity: keys that the cache has room for, of each sequence. page: of a page; 0: the cache
            has none.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        narrow: whether the cache is of float8_e4m3, not of the dtype of q.
        window: which keys a token sees. It has no default, since torch.compile (PyTorch 2.11) makes
            no dataclass that has an object for a default, even where the field is given.
    """

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    d: int
    capacity: int
    page: int
    dtype: tp.DType
    scale: float
    narrow: bool
    window: Window

    @property
    def cache_dtype(self) -> tp.DType:
        """The dtype of keys and values."""
        return NARROW if self.narrow else self.dtype

    @property
    def group(self) -> int:
        """Query heads that share one head of K and V."""
        return self.heads // self.kv_heads

    @property
    def empty(self) -> bool:
        """True if there is no query, or no key for any."""
        return 0 in (self.batch, self.tokens, self.heads, self.capacity)

    @property
    def rows(self) -> int:
        """Queries of a sequence and a head of K and V."""
        return self.group * self.tokens


def check_decode(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    out: Array | None = None,
    lse: Array | None = None,
    *,
    cache_seqlens: Array | None = None,
    block_table: Array | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: Array | float | None = None,
    v_descale: Array | float | None = None,
    empty: bool = False,
) -> Extents:
    """The extents of q, out (batch, tokens, heads, d), k_cache, v_cache (batch, s, kv_heads, d), or
    with a block_table (batch, pages of a sequence) int32 (pages, page_size, kv_heads, d),
    cache_seqlens (batch,) int32, lse (batch, heads, tokens) float32, k_descale, v_descale (batch,
    kv_heads) float32 or numbers.

    Args:
        empty: whether there may be no query, or no key.

    Raises:
        BindError: something is no array, has another dtype, the shapes do not fit together, or the
            scale is no positive number.
    """
    arrays = {"q": q, "k_cache": k_cache, "v_cache": v_cache} | (
        {} if out is None else {"out": out}
    )
    dtype, narrow = _dtypes(arrays)
    paged = block_table is not None
    for name, x in arrays.items():
        said = "batch, tokens, heads, d"
        if name.endswith("cache"):
            said = "pages, page_size, kv_heads, d" if paged else "batch, s, kv_heads, d"
        if len(x.shape) != 4:
            raise tp.BindError(
                f"{NAME}: {name} has 4 dimensions ({said}), it has shape {tuple(x.shape)}"
            )
    (batch, tokens, heads, d), (outer, rows, kv_heads, k_d) = q.shape, k_cache.shape
    if tuple(v_cache.shape) != tuple(k_cache.shape):
        raise tp.BindError(
            f"{NAME}: k_cache and v_cache have one shape; they have {tuple(k_cache.shape)} and"
            f" {tuple(v_cache.shape)}"
        )
    unit, most = head_rule(narrow)
    if d != k_d or d % unit or not 0 < d <= most:
        raise tp.BindError(
            f"{NAME}: heads of q and of the cache have the same d, a multiple of {unit} up to"
            f" {most}{f' of a cache of {NARROW}' * narrow}; they have {d} and {k_d}"
        )
    if heads != kv_heads and (not kv_heads or heads % kv_heads):
        raise tp.BindError(
            f"{NAME}: q has {heads} heads and the cache {kv_heads}; heads of q must be a multiple"
            " of those of the cache, which they share"
        )
    _check_rows(tokens, heads, kv_heads)
    check_ints(NAME, "cache_seqlens", cache_seqlens, (batch,), "the keys of each sequence")
    if block_table is None:
        if outer != batch:
            raise tp.BindError(
                f"{NAME}: q has {batch} sequences and the cache {outer}; pass block_table= where"
                " the cache has pages"
            )
        capacity, page = rows, 0
    else:
        most, page = check_table(NAME, block_table, batch, k_cache), rows
        capacity = most * rows if outer else 0
    seen = _window(causal, window)
    for name, factor in {"k_descale": k_descale, "v_descale": v_descale}.items():
        check_descale(NAME, name, factor, narrow, (batch, kv_heads))
    if capacity or not outer:
        before = None if seen.left is None else tokens + seen.left
        check_pages(NAME, block_table, cache_seqlens, k_cache, before)
    result, of_lse = (batch, tokens, heads, d), (batch, heads, tokens)
    if out is not None and tuple(out.shape) != result:
        raise tp.BindError(
            f"{NAME}: out must have the shape of q, {result}; it has {tuple(out.shape)}"
        )
    if lse is not None:
        check_array(NAME, "lse", lse, 3, (tp.float32,))
        if tuple(lse.shape) != of_lse:
            raise tp.BindError(
                f"{NAME}: lse must have shape {of_lse}, (batch, heads, tokens); it has"
                f" {tuple(lse.shape)}"
            )
    used = check_scale(NAME, scale, d)
    if k_descale is not None:
        number = float(k_descale) if isinstance(k_descale, int | float) else k_descale
        check_score_factor(NAME, used, {"k_descale": number})
    found = Extents(batch, tokens, heads, kv_heads, d, capacity, page, dtype, used, narrow, seen)
    if found.empty and not empty:
        raise tp.BindError(
            f"{NAME}: q {tuple(q.shape)} or the cache {tuple(k_cache.shape)} has no elements, so"
            " there is nothing to launch; ops.attention_decode returns the result"
        )
    return found


def check_table(kernel: str, block_table: Array, batch: int, cache: Array) -> int:
    """How many pages a sequence may have.

    Raises:
        BindError: it is no table of `batch` sequences, or pages have a size that there is none of.
    """
    table = tuple(getattr(block_table, "shape", ()))
    most = table[1] if len(table) == 2 else -1
    check_ints(kernel, "block_table", block_table, (batch, most), "the pages of each sequence")
    outer, page = cache.shape[:2]
    if most and outer and page and (page < 8 or page & (page - 1)):
        raise tp.BindError(
            f"{kernel}: a page has a power of two of keys, 8 at least: dimension 1 of the cache"
            f" {tuple(cache.shape)}; it has {page}"
        )
    return most


def head_rule(narrow: bool) -> tuple[int, int]:
    """What the elements of a head are a multiple of, and how many there are at most."""
    return (16, LARGEST_NARROW) if narrow else (8, LARGEST_HEAD)


def _check_rows(tokens: int, heads: int, kv_heads: int) -> None:
    rows = tokens * (heads // max(kv_heads, 1))
    if rows > ROWS:
        raise tp.BindError(
            f"{NAME}: the query heads that share a head of the cache, times the query tokens, are"
            f" at most {ROWS} rows; {heads} / {kv_heads} · {tokens} = {rows}. For more tokens there"
            " is ops.attention"
        )


def _window(causal: bool, window: object) -> Window:
    seen = Window.of(require_bool(causal, f"{NAME}: causal"), window, kernel=NAME)
    if seen.right not in (None, 0):
        raise tp.BindError(
            f"{NAME}: window's right is None or -1 (no bound) or 0 (no key after a token's own"
            f" place), got {seen.right}: the cache ends with the last token"
        )
    return seen


def check_descale(
    kernel: str, name: str, x: Array | float | None, narrow: bool, shape: tuple[int, int]
) -> None:
    """Raises BindError for what is no descale of a cache of 8 bits, if it is one; None is none."""
    if x is None:
        return
    if not narrow:
        raise tp.BindError(f"{kernel}: {name} is of a cache of {NARROW}; one of 16 bits needs none")
    if isinstance(x, int | float):
        if isinstance(x, bool) or not 0 <= x <= LARGEST_SCALE:
            raise tp.BindError(
                f"{kernel}: {name} is float32 of shape (batch, kv_heads), or a number from 0 to"
                f" 2^100; got {x}"
            )
        return
    check_array(kernel, name, x)
    dtype = str(x.dtype).removeprefix("torch.")
    if dtype != "float32" or tuple(x.shape) != shape:
        raise tp.BindError(
            f"{kernel}: {name} is float32 of shape {shape}, (batch, kv_heads), or a number; it is"
            f" {dtype} of {tuple(x.shape)}"
        )
    check_descale_values(kernel, name, x)


def _dtypes(arrays: dict[str, Array]) -> tuple[tp.DType, bool]:
    """The dtype of q and out; whether the cache is narrow."""
    found = {}
    for name, x in arrays.items():
        check_array(NAME, name, x)
        found[name] = dtype_of(NAME, name, x)
    first, of_cache = found["q"], found["k_cache"]
    narrow = of_cache is NARROW
    wanted = {name: of_cache if narrow and "cache" in name else first for name in found}
    if first not in INPUTS or found != wanted:
        said = ", ".join(f"{name} {dtype}" for name, dtype in found.items())
        raise tp.BindError(
            f"{NAME} takes {' or '.join(t.name for t in INPUTS)}, the same for"
            f" {', '.join(found)}, or for both of the cache {NARROW}; got {said}"
        )
    return first, narrow


def check_ints(kernel: str, name: str, x: Array | None, shape: tuple[int, ...], what: str) -> None:
    """Raises BindError for what is no int32 array of a shape, in which -1 is any extent; None is
    none.
    """
    if x is None:
        return
    if isinstance(x, int) and len(shape) == 1:
        raise tp.BindError(
            f"{kernel}: {name} is int32 of shape ({shape[0]},), which only the kernel reads; of"
            f" sequences that are all {x} long, torch.full(({shape[0]},), {x}, dtype=torch.int32,"
            " device=...), or np.full of NumPy"
        )
    check_array(kernel, name, x)
    dtype = str(x.dtype).removeprefix("torch.")
    if dtype != "int32" or tuple(x.shape) != shape:
        wanted = f"({', '.join(str(n) if n >= 0 else 'most pages' for n in shape)}"
        wanted += ",)" if len(shape) == 1 else ")"
        raise tp.BindError(
            f"{kernel}: {name} is int32 of shape {wanted}, {what}; it is {dtype} of"
            f" {tuple(x.shape)}"
        )


def by_group(x: Any, axis: int, kv_heads: int) -> Any:
    """The view of an array in which dimension `axis`, heads, is two: heads of the cache, and those
    that share one.
    """
    shape = tuple(x.shape)
    return x.reshape((*shape[:axis], kv_heads, shape[axis] // kv_heads, *shape[axis + 1 :]))


def of_queries(name: str, x: Array, found: Extents) -> tp.TensorMap:
    """q or out as (batch, tokens, kv_heads, group, d), of words of two elements with a narrow
    cache.
    """
    words = taken_for(x, tp.uint32) if found.narrow else x
    # A box says that neighbours are aligned, so that they go by one access.
    box = (1, 1, 1, 1, 4 if found.narrow else 8)
    view = by_group(words, 2, found.kv_heads)
    return mapped(NAME, name, view, box, order="row", given=x, swizzle=0)


def of_cache(name: str, x: Array, found: Extents, cfg: DecodeConfig) -> tp.TensorMap:
    """The cache as (batch or pages, kv_heads, s or page_size, d), of V turned: (..., d, s); a
    narrow one as pairs, of V turned where queries are columns.
    """
    rows = min(cfg.bn, found.page) if found.page else cfg.bn
    form = Form.of(found.rows, found.d, found.narrow, cfg)
    line = form.width // 2 if found.narrow else form.width
    view = (taken_for(x, PAIR) if found.narrow else x).swapaxes(1, 2)
    if name.startswith("v") and (form.columns or not found.narrow):
        return mapped(NAME, name, view.swapaxes(2, 3), (1, 1, line, rows), order="col", given=x)
    return mapped(NAME, name, view, (1, 1, rows, line), order="row", given=x)


def of_output(out: Array, found: Extents, cfg: DecodeConfig) -> tp.TensorMap:
    """out as `of_queries`; where queries are columns, the last two dimensions the other way
    round.
    """
    if not Form.of(found.rows, found.d, found.narrow, cfg).columns:
        return of_queries("out", out, found)
    words = taken_for(out, tp.uint32) if found.narrow else out
    view = by_group(words, 2, found.kv_heads).swapaxes(3, 4)
    return mapped(NAME, "out", view, order="col", given=out)


def of_lse(lse: Any, found: Extents) -> Any:
    """lse as (batch, kv_heads, tokens, group): a view."""
    return by_group(lse, 1, found.kv_heads).swapaxes(2, 3)


def of_descale(
    name: str, x: Array | float | None, kernel: str = NAME
) -> tuple[tp.TensorMap | None, float]:
    """A checked descale as an array, or None, and a number."""
    if x is None or isinstance(x, int | float):
        return None, 1.0 if x is None else float(x)
    return mapped(kernel, name, x), 1.0
