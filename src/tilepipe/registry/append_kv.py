"""What the commands know of the kernel that writes new keys and values to a cache."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.append_kv import sm90
from tilepipe.kernels.append_kv.config import AppendConfig
from tilepipe.kernels.append_kv.reference import appended, compare
from tilepipe.kernels.append_kv.validation import CACHES, NAME, NEW
from tilepipe.kernels.attention_decode.reference import CacheArrays
from tilepipe.registry.caches import checked_dtype, checked_page, lengths_of
from tilepipe.registry.instances import SMS, Size, Sizes
from tilepipe.registry.products import check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec

_CONFIGS = Configs({"sm90": AppendConfig})
_EXTENTS: dict[str, Setting] = {"batch": 4, "tokens": 1, "kv_heads": 2, "s": 256, "d": 128}
_OTHERS: dict[str, Setting] = {"lengths": "", "page": 0, "dtype": "bfloat16", "cache": ""}


@dataclass(frozen=True)
class Problem:
    """What settings state.

    Attributes:
        s: keys that the cache has room for, of each sequence. page: keys of a page; 0: it has none.
        new: dtype of the new keys and values. cache: of the cache.
    """

    batch: int
    tokens: int
    kv_heads: int
    s: int
    d: int
    page: int
    new: tp.DType
    cache: tp.DType

    @property
    def narrow(self) -> bool:
        """True if the cache has 8 bits, and descales."""
        return self.cache.nbytes == 1

    @property
    def room(self) -> int:
        """Keys of a sequence that there is a place for: those of whole pages."""
        return self.s if not self.page else -(-self.s // self.page) * self.page


def problem(settings: Mapping[str, Any]) -> Problem:
    """The problem that settings state.

    Raises:
        BindError: an extent or a dtype that there is none of, or more than a run can hold.
    """
    batch, tokens, kv_heads, s, d = (settings[name] for name in _EXTENTS)
    check_sizes(settings, _EXTENTS, batch * tokens * kv_heads * d, batch * s * kv_heads * d)
    new = checked_dtype("dtype", settings["dtype"], NEW)
    of_cache = settings["cache"] or (new if new in CACHES else "bfloat16")
    cache = checked_dtype("cache", of_cache, CACHES)
    return Problem(batch, tokens, kv_heads, s, d, checked_page(settings), new, cache)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    return {}, "there is nothing to choose"


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    found, rng = problem(settings), np.random.default_rng(seed)
    lengths = lengths_of(settings, seed, beyond=True)
    cache = _empty(rng, found)
    k, v = (_drawn(rng, found) for _ in range(2))
    want = appended(cache, k, v, lengths, found.room)
    program = sm90.bind(
        cache.k,
        cache.v,
        k,
        v,
        lengths,
        block_table=cache.table,
        k_descale=cache.k_scales,
        v_descale=cache.v_scales,
        chip=chip,
    )
    verify = functools.partial(compare, cache, want)
    return Case(program, cache.k, verify, found.batch * found.tokens)


def _empty(rng: np.random.Generator, found: Problem) -> CacheArrays:
    """A cache of NaN, its pages in random order, of 8 bits with descales."""
    shape, table = (found.batch, found.room, found.kv_heads, found.d), None
    if found.page:
        pages = found.batch * found.room // found.page
        shape = pages, found.page, found.kv_heads, found.d
        table = rng.permutation(pages).astype(np.int32).reshape(found.batch, -1)
    k, v = (np.full(shape, np.nan, found.cache.numpy) for _ in range(2))
    if not found.narrow:
        return CacheArrays(k, v, table)
    scales = (rng.uniform(0.005, 0.02, (found.batch, found.kv_heads)) for _ in range(2))
    return CacheArrays(k, v, table, *(x.astype(np.float32) for x in scales))


def _drawn(rng: np.random.Generator, found: Problem) -> npt.NDArray[Any]:
    shape = found.batch, found.tokens, found.kv_heads, found.d
    drawn: npt.NDArray[Any] = rng.standard_normal(shape, dtype=np.float32).astype(found.new.numpy)
    return drawn


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Sequences whose new tokens are all that they have, or stand behind others; and some among
    them of which tokens have no place, since the sequence has fewer keys, or none.
    """
    tokens = settings["tokens"]
    most = tokens + 2 * max(settings["page"], 8) - 1
    found = Sizes()
    for lengths in ([tokens, most], [0, tokens - 1, tokens + 3, most, most - 1]):
        text = ",".join(map(str, lengths))
        extents: dict[str, Setting] = {"batch": len(lengths), "s": most, "lengths": text}
        found[f"sequences of {', '.join(map(str, lengths[:-1]))} and {lengths[-1]} keys"] = Size(
            extents, SMS
        )
    return found


APPEND_KV = KernelSpec(
    NAME,
    "new keys and values of each sequence, rounded and written to its cache, with pages or without",
    _CONFIGS,
    _EXTENTS | _OTHERS,
    frozenset({"batch", "s", "lengths"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.append_kv",
)
