"""The configurations of the shipped kernels that a snapshot holds, and that tests run: settings,
under names of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Settings = dict[str, Any]

_CLUSTERS = [
    (1, 1, 1),
    (2, 1, 1),
    (1, 2, 1),
    (2, 2, 1),
    (4, 1, 1),
    (4, 2, 1),
    (2, 1, 2),
    (2, 2, 2),
    (4, 1, 2),
    (4, 2, 2),
]
_MNK: Settings = {"m": 512, "n": 512, "k": 512}
_ALL_CLUSTERS: dict[str, Settings] = {
    f"cluster {m}x{n} group {group} {scheduler}": {
        "cluster": m,
        "cluster_n": n,
        "cta_group": group,
        "scheduler": scheduler,
        "bn": 64 if m < 4 else 128,
    }
    for m, n, group in _CLUSTERS
    for scheduler in ("clc", "static")
}

GEMM_SM90: dict[str, Settings] = {
    "default": {},
    "one consumer": {"consumers": 1},
    "short tiles": {"consumers": 1, "bm": 64},
    "tall tiles": {"bm": 256, "stages": 3},
    "wide tiles": {"bn": 256},
    "two wgmma wide": {"bn": 320, "stages": 3},
    "long k": {"bk": 128, "stages": 2},
    "k groups": {"k_group_size": 2, "stages": 2},
    "three k tiles": {"k_group_size": 3, "stages": 2, "consumers": 1},
    "one store slot": {"store_slots": 1},
    "by rows": {"stages": 2, "raster": "rows"},
    "cluster": {"cluster": 2},
    "cluster of four": {"cluster": 4, "bn": 256, "raster": "columns"},
    "cluster along n": {"cluster_n": 2},
    "four along n": {"cluster_n": 4, "group": 3},
    "cluster and k groups": {"cluster": 2, "k_group_size": 2, "stages": 2, "consumers": 1},
    "ping-pong": {"schedule": "pingpong", "bm": 64, "bn": 256},
    "tall ping-pong": {"schedule": "pingpong", "bm": 128, "bn": 128, "stages": 3},
    "ping-pong in clusters": {"schedule": "pingpong", "bm": 64, "bn": 128, "cluster": 2},
    "ping-pong along n": {"schedule": "pingpong", "bm": 64, "bn": 192, "cluster_n": 2},
    "half of k": {"split_k": 2},
    "a quarter of k": {"split_k": 4, "bm": 64, "consumers": 1},
    "an eighth of k": {"split_k": 8, "bm": 64, "consumers": 1},
    "a fifth of k, eight columns each": {"split_k": 5, "bm": 64, "bn": 40, "consumers": 1},
    "a third of k transposed": {"split_k": 3, "swap": "ab", "bn": 72},
    "two parts of k": {"k_parts": 2},
    "three parts of k transposed, in clusters": {
        "k_parts": 3,
        "swap": "ab",
        "bm": 64,
        "bn": 104,
        "consumers": 1,
        "cluster": 2,
    },
    "four parts of k along n, gelu": {
        "k_parts": 4,
        "bn": 80,
        "cluster_n": 2,
        "activation": "gelu",
    },
    "rows that four cannot divide": {"cluster": 4, "bn": 104, "swap": "ab"},
    "promoted": {"accumulate": "promote"},
    "three consumers": {"consumers": 3, "bm": 192},
    "three of three": {"consumers": 3, "bm": 192, "bn": 160, "cluster": 2, "stages": 3},
    "three of two wgmma each": {"consumers": 3, "bm": 192, "bn": 208, "stages": 3},
    "192 rows each": {"bm": 384, "bn": 112, "stages": 2},
    "slices that share slots": {"bn": 152, "stages": 3},
    "transposed slices that share slots": {"bn": 104, "swap": "ab", "stages": 3},
    "transposed": {"swap": "ab"},
    "narrow transposed": {"swap": "ab", "bn": 16, "cluster": 2},
    "half of k transposed": {"swap": "ab", "bn": 32, "split_k": 2},
    "wide cluster": {"bn": 256, "cluster": 2},
    "columns first, float16 out": {
        "bn": 256,
        "cluster": 2,
        "a_order": "col",
        "b_order": "col",
        "out_dtype": "float16",
    },
    "A columns first, float32 out": {
        "bn": 128,
        "a_order": "col",
        "dtype": "float16",
        "out_dtype": "float32",
    },
    "B columns first, float16": {
        "bn": 256,
        "bm": 64,
        "consumers": 1,
        "b_order": "col",
        "dtype": "float16",
        "out_dtype": "float16",
    },
    "gelu": {"activation": "gelu"},
    "relu": {"activation": "relu"},
    "silu": {"activation": "silu"},
    "weights early": {"early": "b"},
    "weights early, in turns": {"early": "b", "schedule": "pingpong", "bm": 64, "bn": 256},
    "weights early, transposed, in clusters": {"early": "b", "swap": "ab", "cluster": 2},
    "bias of columns": {"bias": "column"},
    "bias of rows and a source, transposed": {"bias": "row", "source": True, "swap": "ab"},
    "source by TMA": {"source": True, "source_slots": 2},
    "source by TMA, ping-pong": {
        "source": True,
        "source_slots": 2,
        "schedule": "pingpong",
        "bm": 64,
        "bn": 256,
    },
    "gelu transposed": {"swap": "ab", "activation": "gelu"},
    "gelu, half of k": {"split_k": 2, "activation": "gelu"},
    "tf32": {"dtype": "float32", "out_dtype": "float32"},
    "e4m3": {"dtype": "float8_e4m3"},
    "e5m2, float32 out": {"dtype": "float8_e5m2", "out_dtype": "float32"},
    "e4m3 promoted": {"dtype": "float8_e4m3", "accumulate": "promote", "bk": 128},
    "e4m3 ping-pong": {
        "dtype": "float8_e4m3",
        "schedule": "pingpong",
        "bm": 64,
        "bn": 128,
        "bk": 128,
    },
}
_GEMM_SM100: dict[str, Settings] = {
    "default": {},
    "static": {"scheduler": "static"},
    "64 rows": {"bm": 64},
    "64 rows, narrow": {"bm": 64, "bn": 16},
    "narrow": {"bn": 16},
    "48 columns": {"bn": 48},
    "wide": {"bn": 256},
    "wide, one accumulator": {"bn": 256, "accumulators": 1, "stages": 3},
    "long k": {"bk": 128, "stages": 2},
    "short k": {"bk": 32, "stages": 7},
    "k groups": {"k_group_size": 2, "stages": 2},
    "three k tiles": {"k_group_size": 3, "stages": 2, "bn": 64},
    "k groups of a pair": {"k_group_size": 2, "stages": 2, "cluster": 2, "cta_group": 2},
    "one accumulator": {"accumulators": 1},
    "four accumulators": {"accumulators": 4},
    "three accumulators": {"accumulators": 3, "bn": 96},
    "wide pair": {"cta_group": 2, "cluster": 2, "bn": 256},
    "narrow pair": {"cta_group": 2, "cluster": 2, "bn": 32},
    "pair, one accumulator": {"cta_group": 2, "cluster": 2, "accumulators": 1},
    "by rows": {"raster": "rows", "scheduler": "static"},
    "by columns": {"raster": "columns", "group": 2},
    "one store slot": {"store_slots": 1},
    "four store slots": {"store_slots": 4},
    "64 rows, float32 out": {"bm": 64, "out_dtype": "float32"},
    "columns first": {"a_order": "col", "b_order": "col"},
    "pair, B columns first": {"cta_group": 2, "cluster": 2, "b_order": "col"},
    "float16": {"dtype": "float16", "out_dtype": "float16"},
    "e4m3": {"dtype": "float8_e4m3", "out_dtype": "float32"},
    "e5m2 of a pair": {"dtype": "float8_e5m2", "cta_group": 2, "cluster": 2},
    "gelu": {"activation": "gelu"},
    "silu of a pair": {"activation": "silu", "cta_group": 2, "cluster": 2},
    "half of k": {"split_k": 2},
    "a quarter of k, float32 out": {"split_k": 4, "out_dtype": "float32", "scheduler": "static"},
    "an eighth of k, gelu": {"split_k": 8, "activation": "gelu"},
    "half of k of a pair": {"split_k": 2, "cta_group": 2, "cluster": 2},
    "half of k, multicast": {"split_k": 2, "cluster": 2, "cluster_n": 2, "bm": 64},
    "half of k, e4m3, k groups": {
        "split_k": 2,
        "dtype": "float8_e4m3",
        "k_group_size": 2,
        "stages": 2,
        "bn": 64,
    },
    **_ALL_CLUSTERS,
}
BLOCKWISE_SM90: dict[str, Settings] = {
    "default": {},
    "one consumer": {"bm": 64, "consumers": 1, "bn": 64},
    "cluster": {"cluster": 2},
    "cluster along n": {"cluster_n": 2},
    "two scales of B": {"bn": 160},
    "scales of B anywhere": {"bn": 112, "cluster_n": 2},
    "three scales of B": {"bn": 176, "stages": 4},
    "two blocks of B": {"bn": 256, "splits": 2, "stages": 3, "store_slots": 1},
    "narrow": {"bn": 48, "stages": 3},
    "tall": {"bm": 256, "stages": 3, "store_slots": 4},
    "192 columns": {"bn": 192, "stages": 4},
    "three consumers": {"consumers": 3, "bm": 192, "stages": 4},
    "unrolled": {"bn": 96, "unroll": 3},
    "turns along k": {"bm": 64, "bn": 64, "takes": "k", "stages": 3},
    "turns along k in clusters": {"bm": 128, "bn": 48, "takes": "k", "stages": 2, "cluster": 2},
    "float32 out": {"out_dtype": "float32"},
    "float16 out": {"out_dtype": "float16"},
}
_BLOCK_SCALED_SHAPES: dict[str, Settings] = {
    "default": {},
    "64 columns": {"bn": 64},
    "192 columns": {"bn": 192, "stages": 2},
    "192 columns, one accumulator": {"bn": 192, "accumulators": 1, "stages": 3},
    "256 columns": {"bn": 256, "accumulators": 1, "stages": 2},
    "k groups": {"k_group_size": 2, "stages": 2, "bn": 64},
    "one accumulator": {"accumulators": 1},
    "wide pair": {"cta_group": 2, "cluster": 2, "bn": 256, "accumulators": 1},
    "narrow pair": {"cta_group": 2, "cluster": 2, "bn": 64},
    "static, by columns": {"raster": "columns", "group": 2, "scheduler": "static"},
    "four store slots": {"store_slots": 4},
    "multicast": {"cluster": 2, "cluster_n": 2, "stages": 3},
    "float32 out": {"out_dtype": "float32"},
    "gelu": {"activation": "gelu"},
}
_BLOCK_SCALED: dict[str, Settings] = {
    f"{kind} {name}": {
        "kind": kind,
        **({} if "bk" in settings or kind == "mxfp8" else {"bk": 256}),
        **settings,
    }
    for kind in ("mxfp8", "mxfp4", "nvfp4")
    for name, settings in _BLOCK_SCALED_SHAPES.items()
}
_ALONE: Settings = {"threads": 128, "warpgroups": 1, "parts": 1, "cluster": 1}
_ROW_KERNELS = "rms_norm.sm90", "layer_norm.sm90", "softmax.sm90", "cross_entropy.sm90"
ROWS: dict[str, Settings] = {
    f"{name}{', backward' if backward else ''}": settings | {"backward": backward}
    for name, settings in {
        "default": {},
        "parts": _ALONE | {"threads": 32, "warpgroups": 2, "parts": 4},
        "cluster": _ALONE | {"threads": 32, "parts": 4, "cluster": 2},
        "eight threads": _ALONE | {"threads": 8},
    }.items()
    for backward in (False, True)
}
GATED: dict[str, Settings] = {
    "default": {},
    "one consumer": {"consumers": 1, "bm": 64, "bn": 64},
    "wide tiles": {"bn": 256},
    "tall tiles": {"bm": 256, "stages": 3},
    "k groups": {"k_group_size": 2, "stages": 2},
    "cluster": {"cluster": 2, "bn": 256},
    "cluster along n": {"cluster_n": 2},
    "ping-pong": {"schedule": "pingpong"},
    "three consumers": {"consumers": 3, "bm": 192},
    "gelu": {"activation": "gelu", "bn": 256},
    "relu, columns first, float32 out": {
        "activation": "relu",
        "a_order": "col",
        "b_order": "col",
        "out_dtype": "float32",
    },
    "gelu by erf": {"activation": "gelu_erf", "schedule": "pingpong", "bn": 192, "store_slots": 1},
    "bilinear, float16": {"activation": "none", "dtype": "float16", "out_dtype": "float16"},
}
GROUPED: dict[str, Settings] = {
    "default": {},
    "one consumer": {"bm": 64, "consumers": 1, "bn": 64},
    "wide": {"bn": 256, "stages": 3},
    "tall": {"bm": 256, "stages": 3, "store_slots": 1},
    "three consumers": {"bm": 192, "consumers": 3},
    "cluster": {"cluster": 2},
    "cluster along n": {"cluster_n": 2, "bn": 64},
    "four along m": {"bm": 64, "consumers": 1, "bn": 64, "cluster": 4},
    "ping-pong": {"schedule": "pingpong"},
    "ping-pong of 64 rows": {"schedule": "pingpong", "bm": 64, "bn": 96, "store_slots": 3},
    "ping-pong cluster": {"schedule": "pingpong", "cluster": 2, "bn": 64},
    "rows first": {"raster": "rows", "bm": 64, "consumers": 1, "bn": 48},
    "columns first": {"raster": "columns", "bm": 64, "consumers": 1, "bn": 48},
    "narrow bands": {"group": 1, "bm": 64, "consumers": 1, "bn": 48, "cluster_n": 2},
    "float16": {"dtype": "float16", "out_dtype": "float16"},
    "float32 out, B columns first": {"out_dtype": "float32", "b_order": "col"},
}
K_GROUPED: dict[str, Settings] = {
    "default": {},
    "one consumer": {"bm": 64, "consumers": 1, "bn": 64},
    "wide": {"bn": 256, "stages": 3},
    "tall": {"bm": 256, "stages": 3, "store_slots": 1},
    "three consumers": {"bm": 192, "consumers": 3},
    "cluster": {"cluster": 2},
    "cluster along n": {"cluster_n": 2, "raster": "rows"},
    "narrow, columns first": {"bm": 64, "consumers": 1, "bn": 64, "bk": 32, "raster": "columns"},
    "float16 in, float32 out": {"dtype": "float16", "out_dtype": "float32", "group": 1},
}
K_GROUPED_BLOCKWISE: dict[str, Settings] = {
    "default": {},
    "one consumer": {"bm": 64, "consumers": 1, "bn": 64},
    "cluster": {"cluster": 2},
    "cluster along n": {"cluster_n": 2, "bn": 96},
    "narrow": {"bn": 48, "stages": 3, "raster": "rows"},
    "float32 out": {"out_dtype": "float32", "raster": "columns", "store_slots": 1},
    "tall tiles": {"bm": 256, "bn": 112, "stages": 3, "cluster_n": 2},
    "scales read late": {"bm": 256, "stages": 3},
    "three consumers": {"bm": 192, "consumers": 3, "stages": 4, "cluster_n": 2},
}
QUANTISED: dict[str, Settings] = {
    "default": {},
    "one consumer": {"consumers": 1, "bm": 64, "bn": 16, "k_group_size": 4},
    "three consumers": {"consumers": 3, "bm": 192, "bn": 32, "k_group_size": 1, "stages": 4},
    "tall": {"bm": 256, "bn": 32, "activation": "gelu"},
    "shared K": {"split_k": 2, "bn": 32, "store_slots": 1},
    "four share K": {"split_k": 4, "consumers": 1, "bm": 64, "bn": 32},
    "groups of 64": {"group": 64, "bn": 32},
    "groups of 32, float16": {"group": 32, "bn": 16, "dtype": "float16"},
    "groups of 256, float32 out": {"group": 256, "out_dtype": "float32", "bn": 32},
    "8 bits": {"bits": 8, "bn": 32},
    "8 bits, groups of 32, float16": {
        "bits": 8,
        "group": 32,
        "bn": 16,
        "dtype": "float16",
        "out_dtype": "float16",
        "activation": "silu",
    },
}
_ATTENTION_SM90: dict[str, Settings] = {
    f"d {d}{' causal' if causal else ''} {order} {store} {schedule}": {
        "d": d,
        "causal": causal,
        "order": order,
        "store": store,
        "schedule": schedule,
    }
    for d in (64, 128)
    for causal in (False, True)
    for order, store, schedule in (
        ("turns", "registers", "persistent"),
        ("free", "tile", "persistent"),
        ("turns", "tile", "single"),
        ("free", "registers", "single"),
        ("turns", "tile", "dynamic"),
    )
} | {
    "default": {},
    "one consumer": {"bn": 64, "consumers": 1, "lse": False},
    "three consumers": {"bn": 64, "consumers": 3, "order": "free", "dtype": "float16"},
    "two stages of Q": {"bn": 32, "stages": 3, "qk_stages": 2, "group": 2},
    "packed": {"lengths": "70:97,0:20,130:160,33:0", "d": 64, "bn": 32},
    "packed causal tile": {
        "lengths": "70:97,130:160,1,0",
        "bn": 64,
        "causal": True,
        "store": "tile",
        "schedule": "single",
        "group": 2,
    },
    "block mask": {"block_mask": "128x64:50", "d": 64},
    "block mask window tile": {
        "block_mask": "64x128:50",
        "bn": 64,
        "causal": True,
        "left": 200,
        "store": "tile",
        "schedule": "persistent",
    },
}
DECODE: dict[str, Settings] = {
    "default": {},
    "d 64": {"d": 64, "kv_heads": 2},
    "d 80, float16, no lse": {"d": 80, "dtype": "float16", "lse": False},
    "three tokens": {"tokens": 3, "heads": 8, "kv_heads": 2},
    "three tokens, all keys": {"tokens": 3, "causal": False},
    "64 rows, one CTA of an SM": {"tokens": 4, "heads": 16, "ctas": 1, "stages": 6},
    "two CTAs of an SM": {"ctas": 2, "stages": 2},
    "32 keys": {"bn": 32, "stages": 4},
    "pages of 8": {"page": 8, "tokens": 2},
    "pages of 16": {"page": 16},
    "pages of a tile": {"page": 64, "d": 64},
    "pages of 256": {"page": 256},
    "a window": {"left": 100, "tokens": 2, "page": 16},
    "a window, all keys after it": {"left": 65, "tokens": 3, "causal": False, "d": 64},
    "of 8 bits": {"cache": "float8_e4m3"},
    "of 8 bits, float16, d 80": {"cache": "float8_e4m3", "dtype": "float16", "d": 80},
    "of 8 bits, d 64, a window": {
        "cache": "float8_e4m3",
        "d": 64,
        "left": 100,
        "tokens": 3,
        "page": 16,
        "stages": 2,
    },
    "d 192": {"d": 192},
    "d 256": {"d": 256, "tokens": 2},
    "of 8 bits, d 192": {"cache": "float8_e4m3", "d": 192},
    "17 rows": {"heads": 17},
    "of 8 bits, 64 rows": {"cache": "float8_e4m3", "tokens": 4, "heads": 16, "d": 64},
    "of 8 bits, 128 keys": {"cache": "float8_e4m3", "bn": 128, "ctas": 1, "stages": 2},
    "columns": {"queries": "columns"},
    "columns, three tokens, d 80": {
        "queries": "columns",
        "tokens": 3,
        "heads": 8,
        "kv_heads": 2,
        "dtype": "float16",
        "d": 80,
    },
    "columns, a window over pages, d 192": {
        "queries": "columns",
        "d": 192,
        "page": 16,
        "left": 100,
    },
}
APPEND: dict[str, Settings] = {
    "default": {},
    "two tokens, pages": {"tokens": 2, "page": 8},
    "more heads than a CTA takes": {"kv_heads": 9, "d": 256},
    "short heads": {"kv_heads": 1, "d": 8, "dtype": "float16"},
    "heads of no power of two, from float32": {"kv_heads": 3, "d": 80, "dtype": "float32"},
    "of 8 bits": {"cache": "float8_e4m3"},
    "of 8 bits, pages, from float32": {
        "cache": "float8_e4m3",
        "dtype": "float32",
        "page": 16,
        "tokens": 3,
    },
}
_ATTENTION_SM100: dict[str, Settings] = {
    "default": {},
    "causal": {"causal": True},
    "d 64": {"d": 64},
    "d 64 causal": {"d": 64, "causal": True},
    "float16, no lse": {"dtype": "float16", "lse": False},
    "d 64, 32 keys": {"d": 64, "bn": 32},
    "96 keys": {"bn": 96, "stages": 2},
    "six stages": {"d": 64, "bn": 64, "stages": 6, "causal": True},
}


_ATTENTION_BACKWARD: dict[str, Settings] = {
    "default": {},
    "d 64 causal in turns": {"d": 64, "causal": True, "deterministic": True, "walk": "queries"},
    "causal in turns, bands alternate": {"causal": True, "deterministic": True}
    | {"kv_heads": 2, "walk": "alternate"},
}


class Config(Protocol):
    """A kernel's configuration, whatever the tree that it comes from."""

    def names(self) -> Iterable[str]:
        """The names of its fields."""


def tile_families(families: dict[str, Settings], config: Config) -> dict[str, Settings]:
    """The families that set fields of a kernel's configuration alone: any problem has them."""
    fields = set(config.names()) - {"activation"}
    return {name: settings for name, settings in families.items() if settings.keys() <= fields}


_OF_CACHE: Settings = {"batch": 3, "s": 700, "lengths": "690,130,0"}
_TO_CACHE: Settings = {"batch": 4, "s": 40, "lengths": "1,0,40,17"}
FAMILIES: dict[str, dict[str, Settings]] = {
    "gemm.sm90": {name: _MNK | s for name, s in GEMM_SM90.items()},
    "gemm.sm100": {name: _MNK | s for name, s in _GEMM_SM100.items()},
    "blockwise.sm90": {name: _MNK | s for name, s in BLOCKWISE_SM90.items()},
    "blockwise.sm100": {name: _MNK | s for name, s in {"default": {}, **_ALL_CLUSTERS}.items()},
    "block_scaled.sm100": {
        name: _MNK | s for name, s in {**_BLOCK_SCALED, **_ALL_CLUSTERS}.items()
    },
    "gated.sm90": {name: {"m": 264, "n": 200, "k": 208} | s for name, s in GATED.items()},
    **{
        kernel: {name: {"m": 5, "n": 100} | x for name, x in ROWS.items()}
        for kernel in _ROW_KERNELS
    },
    "grouped.sm90": {
        name: {"m": 420, "n": 136, "k": 200, "experts": 5} | s for name, s in GROUPED.items()
    },
    "grouped_blockwise.sm90": {
        name: {"m": 420, "n": 136, "k": 208, "experts": 5} | s
        for name, s in {**BLOCKWISE_SM90, "padded": {"form": "padded"}}.items()
    },
    "k_grouped_blockwise.sm90": {
        name: {"m": 136, "n": 200, "k": 1008, "experts": 4} | s
        for name, s in K_GROUPED_BLOCKWISE.items()
    },
    "k_grouped.sm90": {
        name: {"m": 136, "n": 200, "k": 420, "experts": 5} | s for name, s in K_GROUPED.items()
    },
    "stream_k.sm90": {"default": {"m": 264, "n": 200, "k": 208}},
    "quantised.sm90": {n: {"m": 40, "n": 200, "k": 392} | s for n, s in QUANTISED.items()},
    "attention.sm90": _ATTENTION_SM90,
    "attention_backward.sm90": _ATTENTION_BACKWARD,
    "attention.sm100": _ATTENTION_SM100,
    "attention_decode.sm90": {name: _OF_CACHE | s for name, s in DECODE.items()},
    "append_kv.sm90": {name: _TO_CACHE | s for name, s in APPEND.items()},
}

# What is compiled unless --all is given: a few of each kernel, with everything that a kernel has in
# some of them.
COMPILED: dict[str, tuple[str, ...]] = {
    "gemm.sm90": (
        "default",
        "wide cluster",
        "ping-pong in clusters",
        "a quarter of k",
        "e4m3 promoted",
        "transposed",
    ),
    "gemm.sm100": ("default", "wide pair", "half of k", "cluster 2x2 group 1 static"),
    "blockwise.sm90": ("default", "two blocks of B"),
    "blockwise.sm100": ("default", "cluster 2x1 group 2 clc"),
    "block_scaled.sm100": ("mxfp8 default", "nvfp4 narrow pair"),
    "gated.sm90": ("default", "cluster"),
    **dict.fromkeys(_ROW_KERNELS, ("default", "default, backward", "cluster, backward")),
    "grouped.sm90": ("default", "ping-pong cluster"),
    "grouped_blockwise.sm90": ("default", "padded"),
    "k_grouped_blockwise.sm90": ("default", "cluster"),
    "k_grouped.sm90": ("default", "cluster"),
    "stream_k.sm90": ("default",),
    "quantised.sm90": ("default", "8 bits"),
    "attention.sm90": ("default", "d 64 causal free tile persistent"),
    "attention_backward.sm90": (
        "default",
        "d 64 causal in turns",
        "causal in turns, bands alternate",
    ),
    "attention.sm100": ("default", "d 64 causal"),
    "attention_decode.sm90": (
        *("default", "columns", "of 8 bits", "two CTAs of an SM", "pages of 16", "three tokens"),
    ),
    "append_kv.sm90": ("default", "of 8 bits, pages, from float32"),
}

# Problems that are run: small ones.
_SMALL: Settings = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}
_SMALL_SM100: Settings = {"bm": 128, "bn": 32, "bk": 32, "stages": 2}
_RAGGED: Settings = {"m": 264, "n": 296, "k": 200}
RUN: dict[str, dict[str, Settings]] = {
    **{
        kernel: {name: {"m": 5, "n": 100} | ROWS[name] for name in ("default", "cluster, backward")}
        for kernel in _ROW_KERNELS
    },
    "gemm.sm90": {
        "default": _RAGGED,
        "ping-pong in clusters": _RAGGED | GEMM_SM90["ping-pong in clusters"],
        "a quarter of k": _RAGGED | GEMM_SM90["a quarter of k"],
        "e4m3 promoted": {"m": 264, "n": 296, "k": 208} | GEMM_SM90["e4m3 promoted"],
    },
    "gemm.sm100": {
        "default": _RAGGED,
        "wide pair": _RAGGED | _GEMM_SM100["wide pair"],
        "half of k of a pair": _RAGGED | _GEMM_SM100["half of k of a pair"],
        "multicast static": _RAGGED | {"cluster": 2, "cluster_n": 2, "scheduler": "static"},
    },
    "blockwise.sm90": {
        "default": {"m": 264, "n": 296, "k": 272},
        "cluster": {"m": 264, "n": 296, "k": 272, "cluster": 2},
    },
    "blockwise.sm100": {
        "default": {"m": 264, "n": 296, "k": 272},
        "pairs": {"m": 264, "n": 296, "k": 272, "cta_group": 2, "cluster": 2},
    },
    "block_scaled.sm100": {
        "mxfp8": {"m": 264, "n": 200, "k": 352},
        "nvfp4 pairs": {
            "m": 264,
            "n": 200,
            "k": 352,
            "kind": "nvfp4",
            "bk": 256,
            "bn": 64,
            "cta_group": 2,
            "cluster": 2,
        },
    },
    "gated.sm90": {"default": {"m": 264, "n": 200, "k": 208}},
    "stream_k.sm90": {"default": {"m": 264, "n": 200, "k": 208}},
    "quantised.sm90": {"default": {"m": 40, "n": 200, "k": 392}},
    "grouped.sm90": {"default": {"m": 420, "n": 136, "k": 200, "experts": 5}},
    "grouped_blockwise.sm90": {
        "default": {"m": 420, "n": 136, "k": 208, "experts": 5},
        "padded": {"m": 130, "n": 136, "k": 208, "experts": 4, "form": "padded"},
    },
    "k_grouped_blockwise.sm90": {"default": {"m": 136, "n": 200, "k": 1008, "experts": 4}},
    "k_grouped.sm90": {"default": {"m": 136, "n": 200, "k": 420, "experts": 5}},
    "attention.sm90": {
        "default": {"s_q": 200, "s_kv": 300},
        "causal": {
            "s_q": 200,
            "s_kv": 300,
            "d": 64,
            "causal": True,
            "store": "tile",
            "order": "free",
        },
    },
    "attention_backward.sm90": {
        "default": {"s_q": 200, "s_kv": 300},
        "causal in turns": {"s_q": 200, "s_kv": 300, "d": 64, "causal": True}
        | {"deterministic": True, "walk": "queries"},
        "bands alternate": {"s_q": 200, "s_kv": 300, "d": 64, "causal": True}
        | {"deterministic": True, "kv_heads": 2, "walk": "alternate"},
    },
    "attention.sm100": {
        "default": {"s_q": 200, "s_kv": 300},
        "causal": {"s_q": 200, "s_kv": 300, "d": 64, "causal": True},
    },
    "attention_decode.sm90": {
        "default": _OF_CACHE,
        "columns": _OF_CACHE | DECODE["columns"],
        "of 8 bits": _OF_CACHE | DECODE["of 8 bits"],
        "pages of 16": _OF_CACHE | {"page": 16, "tokens": 2},
    },
    "append_kv.sm90": {
        name: _TO_CACHE | APPEND[name] for name in ("default", "of 8 bits, pages, from float32")
    },
}

# Kernels whose mutants are sampled: (settings, one of how many).
MUTATED: dict[str, tuple[str, Settings, int]] = {
    "gemm one consumer": ("gemm.sm90", _SMALL, 12),
    "gemm cluster": ("gemm.sm90", _SMALL | {"cluster": 2}, 25),
    "gemm.sm100 static": ("gemm.sm100", _SMALL_SM100 | {"scheduler": "static"}, 25),
}

# Kernels that are checked while they are timed.
SMALLEST: dict[str, Settings] = {"gemm.sm90": _SMALL, "gemm.sm100": _SMALL_SM100}
