"""What the commands know of attention: settings, random cases, checked instances."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.attention import sm90_bind as hopper, sm100 as blackwell
from tilepipe.kernels.attention.block_mask import bind_lists, check_block_mask, lists_shape
from tilepipe.kernels.attention.choice import TUNABLE, AttentionProblem
from tilepipe.kernels.attention.config import (
    SM100_ROWS as ROWS,
    SM100_TILES as TILES,
    AttentionConfig,
    Sm100AttentionConfig,
)
from tilepipe.kernels.attention.heuristics import choose_sm100
from tilepipe.kernels.attention.packed_reference import bounds_of, compare_packed
from tilepipe.kernels.attention.reference import AttentionOptions, compare_attention
from tilepipe.kernels.attention.scores import ScoreChanges
from tilepipe.kernels.attention.validation import INPUTS, LARGEST_HEAD, NARROW, Extents
from tilepipe.kernels.attention.values import turned
from tilepipe.registry import block_masks
from tilepipe.registry.instances import (
    SMS,
    Size,
    Sizes,
    attention_sizes,
    drawn_attention_sizes,
    tiles_of_ring,
)
from tilepipe.registry.lengths import parsed
from tilepipe.registry.products import check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": AttentionConfig, "sm100": Sm100AttentionConfig})
_EXTENTS: dict[str, Setting] = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 1,
    "s_q": 512,
    "s_kv": 512,
    "d": 128,
}
_OTHERS: dict[str, Setting] = {
    "lengths": "",
    "block_mask": "",
    "d_v": 0,
    "causal": False,
    "left": -1,
    "right": -1,
    "align": "last",
    "softcap": 0,
    "slopes": False,
    "sinks": False,
    "lse": True,
    "dtype": "bfloat16",
    "scales": False,
}


def extents(settings: Mapping[str, Any]) -> Extents:
    """The extents that settings state; with `lengths`, of all packed sequences.

    Raises:
        BindError: an extent, a number of heads or a dtype that no attention has, or more than a run
            can hold.
    """
    batch, heads, kv_heads, s_q, s_kv, d = (settings[name] for name in _EXTENTS)
    lengths = parsed(settings["lengths"])
    if lengths:
        if batch != 1:
            raise BindError(
                f"setting lengths packs the sequences of one batch; batch={batch} goes without it"
            )
        s_q, s_kv = (sum(each) for each in zip(*lengths, strict=True))
    check_sizes(settings, _EXTENTS, batch * s_q * heads * d, batch * s_kv * kv_heads * d)
    dtype = tp.dtype(settings["dtype"])
    allowed = [t.name for t in (*INPUTS, *([] if lengths else [NARROW]))]
    if dtype.name not in allowed:
        raise BindError(
            f"setting dtype must be {' or '.join(allowed)}"
            f"{' of packed sequences' if lengths else ''}, got {dtype}"
        )
    if settings["scales"] and dtype is not NARROW:
        raise BindError(f"setting scales is of dtype={NARROW}: what q, k and v stand for")
    d_v = settings["d_v"] or d
    for name, width, unit in (("d", d, 16 if dtype is NARROW else 8), ("d_v", d_v, 8)):
        if width % unit or not 0 < width <= LARGEST_HEAD:
            raise BindError(
                f"setting {name} must be a multiple of {unit} up to {LARGEST_HEAD}, got {width}"
            )
    if heads % kv_heads:
        raise BindError(
            f"setting heads={heads} must be a multiple of kv_heads={kv_heads}: heads share keys and"
            " values"
        )
    scale = 1 / np.sqrt(d)
    return Extents(batch, s_q, s_kv, heads, kv_heads, d, d_v, dtype, scale, len(lengths))


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    if settings["arch"] == "sm90":
        return chosen(TUNABLE, problem(settings), chip)
    found = extents(settings)
    _CONFIGS.of(settings["arch"])
    return choose_sm100(found.d).as_dict(), "the defaults"


def problem(settings: Mapping[str, Any]) -> AttentionProblem:
    """What the configuration on Hopper depends on, of what settings state.

    Raises:
        BindError: as `extents`.
    """
    sides = options(settings).seen.sides
    changes = ScoreChanges(settings["softcap"] != 0, settings["slopes"]).count
    packed = parsed(settings["lengths"])
    longest = max(keys for _, keys in packed) if packed else None
    blocks = block_masks.parsed(settings["block_mask"])
    block = None if blocks is None else blocks.block
    return AttentionProblem.of(extents(settings), sides, longest, changes=changes, block=block)


def options(
    settings: Mapping[str, Any], rng: np.random.Generator | None = None
) -> AttentionOptions:
    """The options that settings state; slopes, sinks and scales are drawn by `rng`."""
    heads = settings["heads"]
    rng = rng or np.random.default_rng(0)
    slopes, sinks = (
        drawn.astype(np.float32) if settings[name] else None
        for name, drawn in (("slopes", rng.random(heads)), ("sinks", rng.standard_normal(heads)))
    )
    window = (settings["left"], settings["right"])
    cap, align = float(settings["softcap"]), settings["align"]
    of_heads = settings["batch"], settings["kv_heads"]
    found = AttentionOptions(settings["causal"], window, None, cap, slopes, sinks, align=align)
    if not settings["scales"]:
        return found
    q, k, v = (rng.uniform(0.5, 2, of_heads).astype(np.float32) for _ in range(3))
    return replace(found, q_scales=q, k_scales=k, v_scales=v)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    found, cfg, rng = extents(settings), _CONFIGS.config(settings), np.random.default_rng(seed)
    batch = () if found.sequences else (found.batch,)
    keys = *batch, found.s_kv, found.kv_heads
    q, k, v = (
        rng.standard_normal(shape, dtype=np.float32).astype(found.dtype.numpy)
        for shape in (
            (*batch, found.s_q, found.heads, found.d),
            (*keys, found.d),
            (*keys, found.d_v),
        )
    )
    out = np.zeros((*q.shape[:-1], found.d_v), found.out_dtype.numpy)
    lse = np.zeros((*batch, found.heads, found.s_q), np.float32) if settings["lse"] else None
    bounds = [bounds_of(list(x)) for x in zip(*parsed(settings["lengths"]), strict=True)]
    asked = options(settings, rng)
    blocks, lists = block_masks.parsed(settings["block_mask"]), None
    if blocks is not None:
        mask = blocks.drawn(found, rng)
        asked = replace(asked, block_mask=mask, block_size=blocks.block)
    if isinstance(cfg, AttentionConfig):
        if blocks is not None:
            check_block_mask(mask, blocks.block, found)
            lists = np.empty(lists_shape(mask, found, cfg), np.int32)
            bind_lists(mask, lists, found, asked.seen, cfg, blocks.block).run()
        program, rows = (
            hopper.bind(
                q,
                k,
                turned(v) if found.narrow else v,
                out,
                lse,
                cfg,
                causal=asked.causal,
                window=asked.window,
                softcap=asked.softcap,
                slopes=asked.slopes,
                sinks=asked.sinks,
                align=asked.align,
                q_scales=asked.q_scales,
                k_scales=asked.k_scales,
                v_scales=asked.v_scales,
                cu_seqlens_q=bounds[0] if bounds else None,
                cu_seqlens_k=bounds[1] if bounds else None,
                key_lists=lists,
                chip=chip,
            ),
            cfg.bm,
        )
    else:
        _refuse_on_blackwell(settings)
        program, rows = (
            blackwell.bind(q, k, v, out, lse, cfg, causal=asked.causal, chip=chip),
            ROWS * TILES,
        )
    tiles = found.batch * found.heads * -(-found.s_q // rows)
    if not bounds:
        verify = functools.partial(compare_attention, out, q, k, v, **vars(asked), lse=lse)
        return Case(program, out, verify, tiles)
    of_all = functools.partial(compare_packed, out, q, k, v, *bounds, **vars(asked), lse=lse)
    tiles = found.heads * int(np.sum(-(-np.diff(bounds[0]) // rows)))
    return Case(program, out, of_all, tiles)


def _refuse_on_blackwell(settings: Mapping[str, Any]) -> None:
    given = [name for name in ("left", "right") if settings[name] != -1]
    given += ["align"] if settings["align"] != "last" else []
    given += [
        name
        for name in ("lengths", "block_mask", "softcap", "slopes", "sinks", "scales")
        if settings[name]
    ]
    given += [f"dtype={NARROW}"] if tp.dtype(settings["dtype"]) is NARROW else []
    if given:
        raise BindError(f"attention on Blackwell has no {', '.join(given)}: use arch=sm90")


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    found, text = _unmasked_sizes(settings), settings["block_mask"]
    blocks = block_masks.parsed(text)
    if blocks is None:
        return found
    return {f"{n}, block_mask={text}": blocks.enlarged(size) for n, size in found.items()}


def _unmasked_sizes(settings: Mapping[str, Any]) -> Sizes:
    cfg, heads = _CONFIGS.config(settings), settings["batch"] * settings["heads"]
    schedule = cfg.schedule if isinstance(cfg, AttentionConfig) else "single"
    rows = cfg.bm if isinstance(cfg, AttentionConfig) else ROWS * TILES
    if settings["lengths"]:
        return {f"lengths={settings['lengths']}, on {SMS} SMs": Size({}, SMS)}
    cut = options(settings).seen.sides != (False, False)
    if isinstance(cfg, AttentionConfig) and schedule == "dynamic":
        return drawn_attention_sizes(rows, cfg.bn, cfg.stages, heads, queries=cfg.q_tiles, cut=cut)
    ragged = not isinstance(cfg, AttentionConfig)  # such tiles have a loop of their own there
    each = 1
    if isinstance(cfg, AttentionConfig) and schedule == "persistent":
        each = tiles_of_ring(cfg.q_tiles)
    return attention_sizes(
        rows,
        cfg.bn,
        cfg.stages,
        heads,
        each=each,
        causal=cut,
        ragged=ragged,
    )


ATTENTION = KernelSpec(
    "attention",
    "softmax(scale · Q · Kᵀ) · V of each head, causal or full, heads of K and V shared or not:"
    " wgmma, or tcgen05.mma (arch=sm100; never run on a GPU)",
    _CONFIGS,
    _EXTENTS | _OTHERS,
    frozenset({"s_q", "s_kv"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.attention",
    tuning=Tuning(TUNABLE, problem, ("s_q", "s_kv"), "lengths"),
)
