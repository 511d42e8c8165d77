"""What the commands know of attention over a cache: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention_decode import sm90
from tilepipe.kernels.attention_decode.choice import TUNABLE, DecodeProblem
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.reference import compare_decode, random_cache
from tilepipe.kernels.attention_decode.shares import CHUNK, share_size
from tilepipe.kernels.attention_decode.validation import (
    INPUTS,
    NAME,
    NARROW,
    Extents,
    head_rule,
)
from tilepipe.registry.caches import checked_dtype, checked_page, lengths_of
from tilepipe.registry.instances import SMS, Size, Sizes, steps_of
from tilepipe.registry.products import check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": DecodeConfig})
_EXTENTS: dict[str, Setting] = {
    "batch": 2,
    "tokens": 1,
    "heads": 4,
    "kv_heads": 1,
    "s": 1024,
    "d": 128,
}
_OTHERS: dict[str, Setting] = {
    "lengths": "",
    "page": 0,
    "causal": True,
    "left": -1,
    "lse": True,
    "dtype": "bfloat16",
    "cache": "",
}


def extents(settings: Mapping[str, Any]) -> Extents:
    """The extents that settings state.

    Raises:
        BindError: an extent, a number of heads or a dtype that there is none of, or more than a run
            can hold.
    """
    batch, tokens, heads, kv_heads, s, d = (settings[name] for name in _EXTENTS)
    check_sizes(settings, _EXTENTS, batch * tokens * heads * d, batch * s * kv_heads * d)
    dtype = checked_dtype("dtype", settings["dtype"], INPUTS)
    of_cache = tp.dtype(settings["cache"] or dtype)
    narrow = of_cache is NARROW
    if not narrow and of_cache is not dtype:
        raise BindError(
            f"setting cache is the dtype of K and V where it is not that of q: {NARROW}, got"
            f" {settings['cache']!r}"
        )
    unit, most = head_rule(narrow)
    if d % unit or d > most:
        raise BindError(f"setting d must be a multiple of {unit} up to {most}, got {d}")
    if heads % kv_heads:
        raise BindError(
            f"setting heads={heads} must be a multiple of kv_heads={kv_heads}: heads share the"
            " cache"
        )
    page = checked_page(settings)
    lengths_of(settings)
    scale = 1 / float(np.sqrt(d))
    seen = Window.of(settings["causal"], (settings["left"], None), kernel=NAME)
    return Extents(batch, tokens, heads, kv_heads, d, s, page, dtype, scale, narrow, seen)


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    return chosen(TUNABLE, problem(settings), chip)


def problem(settings: Mapping[str, Any]) -> DecodeProblem:
    """What the configuration depends on, of what settings state. Raises BindError as `extents`."""
    return DecodeProblem.of(extents(settings))


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    found, cfg, rng = extents(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    lengths = lengths_of(settings, seed)
    seen = {"causal": settings["causal"], "window": (settings["left"], None)}
    shape = (found.batch, found.tokens, found.heads, found.d)
    q = rng.standard_normal(shape, dtype=np.float32).astype(found.dtype.numpy)
    of_cache = found.capacity, found.kv_heads, found.d, found.cache_dtype, found.page
    cache = random_cache(rng, lengths, *of_cache)
    out = np.zeros_like(q)
    of_lse = (found.batch, found.heads, found.tokens)
    lse = np.zeros(of_lse, np.float32) if settings["lse"] else None
    program = sm90.bind(
        q,
        cache.k,
        cache.v,
        out,
        lse,
        cfg,
        cache_seqlens=lengths,
        block_table=cache.table,
        k_descale=cache.k_scales,
        v_descale=cache.v_scales,
        chip=chip,
        **seen,
    )
    verify = functools.partial(compare_decode, out, q, cache, lengths, lse=lse, **seen)
    return Case(program, out, verify, found.batch * found.kv_heads)


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Two sequences, the first of which several CTAs share, among empty ones: of few tiles a CTA,
    and of so many that the ring goes round more than twice, with more sequences than are looked at
    together. Waves are more CTAs of a kernel that is the same to the letter, and six that share an
    item take their tickets in hundreds of orders: the first instance has two where there are more,
    the second one. With a window, which leaves few tiles of each, as many sequences as it takes,
    all of them longer than it.
    """
    cfg = _CONFIGS.config(settings)
    found = Sizes()
    cases = zip(steps_of(cfg.stages), (1, CHUNK - 1), (min(cfg.waves, 2), 1), strict=True)
    for steps, empty, waves in cases:
        ctas = SMS * cfg.ctas * waves
        tiles = max(ctas * steps - (empty == 1), 4)
        first = tiles - max(tiles // 3, 1)
        keys = [first * cfg.bn - 3, (tiles - first) * cfg.bn]
        said = f"sequences of {keys[0]} and {keys[1]} keys"
        if settings["left"] >= 0:
            seen = -(-(settings["tokens"] + settings["left"]) // cfg.bn)
            keys = [(seen + 2) * cfg.bn] * -(-tiles // seen)
            said = f"{len(keys)} sequences of {keys[0]} keys"
        lengths = next(
            lengths
            for before in range(empty, -1, -1)
            for lengths in [[0] * before + keys + [0] * (empty - before)]
            if before == 0 or _cut(lengths, settings, cfg, ctas)
        )
        extents: dict[str, Setting] = {
            "batch": len(lengths),
            "s": max(lengths),
            "lengths": ",".join(map(str, lengths)),
            "waves": waves,
        }
        name = f"{ctas} CTAs, {said}, {empty} of none"
        found[name] = Size(extents, SMS)
    return found


def _cut(lengths: list[int], settings: Mapping[str, Any], cfg: DecodeConfig, ctas: int) -> bool:
    """True if the first share ends within a sequence."""
    bn, before = cfg.bn, settings["tokens"] + settings["left"]

    def count(keys: int) -> int:
        skipped = max(keys - before, 0) // bn if settings["left"] >= 0 else 0
        return max(-(-keys // bn), 1) - skipped

    tiles = [count(keys) for keys in lengths for _ in range(settings["kv_heads"])]
    return share_size(sum(tiles), ctas) not in np.cumsum(tiles)


ATTENTION_DECODE = KernelSpec(
    "attention_decode",
    "attention of a few query tokens over a cache of K and V, with pages or without, whose CTAs"
    " share the keys of all sequences equally",
    _CONFIGS,
    _EXTENTS | _OTHERS,
    frozenset({"batch", "s", "lengths"}),
    _make,
    _choose,
    _sizes,
    zero=("tickets",),
    bench="tilepipe.bench.attention_decode",
    tuning=Tuning(TUNABLE, problem, ("batch", "s")),
)
