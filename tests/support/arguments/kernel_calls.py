"""Valid calls of shipped kernels and operations: the function, and its arguments by name."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.kernels.append_kv import sm90 as append_kv
from tilepipe.kernels.attention import sm90_bind as attention_kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention_decode import sm90 as attention_decode
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.gemm import sm90 as gemm_kernel
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_gated import sm90 as gemm_gated
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_grouped import sm90 as gemm_grouped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped_blockwise.sm90 import bind as bind_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped import sm90 as gemm_k_grouped
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.sm90 import bind as bind_k_grouped_blockwise
from tilepipe.kernels.gemm_quantised import sm90 as gemm_quantised
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import pack


def matrices(*shapes: tuple[int, ...], dtype: Any = np.float16) -> list[Any]:
    return [np.zeros(shape, dtype) for shape in shapes]


def gemm() -> Any:
    a, b, c = matrices((64, 32), (64, 32), (64, 64))
    return lambda **named: gemm_kernel.bind(a, b, c, **named), {
        "cfg": GemmConfig(bm=64, bn=64, bk=32, consumers=1),
        "bias": None,
        "a_scale": None,
        "b_scale": None,
        "source": None,
        "alpha": 1.0,
        "beta": 0.0,
        "chip": None,
    }


def gemm_arrays() -> Any:
    a, b, c = matrices((64, 32), (64, 32), (64, 64))
    return functools.partial(gemm_kernel.bind, cfg=GemmConfig(bm=64, bn=64, bk=32, consumers=1)), {
        "a": a,
        "b": b,
        "c": c,
    }


def attention() -> Any:
    q, k, v, out = matrices((1, 64, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64))
    return attention_kernel.bind, {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "lse": None,
        "cfg": AttentionConfig(),
        "causal": False,
        "window": None,
        "scale": None,
        "softcap": 0.0,
        "slopes": None,
        "sinks": None,
        "score": None,
        "align": "last",
        "cu_seqlens_q": None,
        "cu_seqlens_k": None,
        "key_lists": None,
    }


def decode() -> Any:
    q, k, v, out = matrices((1, 1, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64), (1, 1, 1, 64))
    return attention_decode.bind, {
        "q": q,
        "k_cache": k,
        "v_cache": v,
        "out": out,
        "lse": None,
        "cfg": DecodeConfig(),
        "cache_seqlens": None,
        "block_table": None,
        "causal": True,
        "window": None,
        "scale": None,
        "k_descale": None,
        "v_descale": None,
    }


def gated() -> Any:
    a, gate, up, c = matrices((64, 32), (64, 32), (64, 32), (64, 64))
    return gemm_gated.bind, {"a": a, "gate": gate, "up": up, "c": c, "cfg": GatedGemmConfig()}


def quantised() -> Any:
    a, c = matrices((64, 128), (64, 128))
    scales = np.ones((1, 128), np.float32)
    return gemm_quantised.bind, {
        "a": a,
        "words": pack(np.zeros((128, 128), np.int8)),
        "scales": scales,
        "c": c,
        "cfg": QuantisedGemmConfig(),
        "group": 128,
    }


def grouped() -> Any:
    a, b, c = matrices((64, 32), (2, 64, 32), (64, 64))
    return gemm_grouped.bind, {
        "a": a,
        "b": b,
        "c": c,
        "offsets": np.array([32, 64], np.int32),
        "cfg": GroupedGemmConfig(),
    }


def grouped_blockwise() -> Any:
    fp8 = tp.float8_e4m3.numpy
    return bind_grouped_blockwise, {
        "a": np.zeros((64, 128), fp8),
        "b": np.zeros((2, 64, 128), fp8),
        "a_scales": np.ones((1, 64), np.float32),
        "b_scales": np.ones((2, 1, 1), np.float32),
        "c": np.zeros((64, 64), np.float16),
        "offsets": np.array([32, 64], np.int32),
        "cfg": BlockwiseGemmConfig(),
    }


def k_grouped_blockwise() -> Any:
    fp8 = tp.float8_e4m3.numpy
    return bind_k_grouped_blockwise, {
        "a": np.zeros((64, 256), fp8),
        "b": np.zeros((64, 256), fp8),
        "a_scales": np.ones((2, 64), np.float32),
        "b_scales": np.ones((2, 64), np.float32),
        "c": np.zeros((2, 64, 64), np.float16),
        "offsets": np.array([128, 256], np.int32),
        "cfg": KGroupedBlockwiseGemmConfig(),
    }


def k_grouped() -> Any:
    a, b, c = matrices((64, 64), (64, 64), (2, 64, 64))
    return gemm_k_grouped.bind, {
        "a": a.T,
        "b": b.T,
        "c": c,
        "offsets": np.array([32, 64], np.int32),
        "cfg": KGroupedGemmConfig(),
    }


def matmul() -> Any:
    a, b = matrices((8, 16), (16, 8))
    return tp.ops.matmul, {
        "a": a,
        "b": b,
        "out": None,
        "bias": None,
        "activation": None,
        "source": None,
        "alpha": 1.0,
        "beta": None,
        "out_dtype": None,
        "precision": None,
        "seed": 0,
        "progress": None,
        "stages": 2,
    }


def ops_attention() -> Any:
    q, k, v = matrices((1, 8, 1, 64), (1, 8, 1, 64), (1, 8, 1, 64))
    return tp.ops.attention, {
        "q": q,
        "k": k,
        "v": v,
        "causal": False,
        "window": None,
        "scale": None,
        "softcap": 0.0,
        "slopes": None,
        "sinks": None,
        "score": None,
        "align": "last",
        "cu_seqlens_q": None,
        "cu_seqlens_k": None,
        "max_seqlen_q": None,
        "max_seqlen_k": None,
        "block_mask": None,
        "block_size": None,
        "q_descale": None,
        "k_descale": None,
        "v_descale": None,
        "out": None,
        "out_dtype": None,
        "return_lse": False,
        "layout": "bshd",
        "seed": 0,
        "progress": None,
    }


def ops_attention_backward() -> Any:
    dout, q, k, v, out = matrices(*[(1, 8, 1, 64)] * 5)
    return tp.ops.attention_backward, {
        "dout": dout,
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "lse": np.zeros((1, 1, 8), np.float32),
        "dlse": None,
        "causal": False,
        "scale": None,
        "align": "last",
        "deterministic": False,
        "layout": "bshd",
        "seed": 0,
        "progress": None,
    }


def ops_decode() -> Any:
    q, k, v = matrices((1, 1, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64))
    return tp.ops.attention_decode, {
        "q": q,
        "k_cache": k,
        "v_cache": v,
        "cache_seqlens": None,
        "block_table": None,
        "causal": True,
        "window": None,
        "scale": None,
        "k_descale": None,
        "v_descale": None,
        "out": None,
        "return_lse": False,
        "seed": 0,
        "progress": None,
    }


def append() -> Any:
    cache, other, k, v = matrices((1, 8, 1, 8), (1, 8, 1, 8), (1, 1, 1, 8), (1, 1, 1, 8))
    return append_kv.bind, {
        "k_cache": cache,
        "v_cache": other,
        "k": k,
        "v": v,
        "cache_seqlens": np.ones(1, np.int32),
        "block_table": None,
        "k_descale": None,
        "v_descale": None,
    }


def ops_append() -> Any:
    _, given = append()
    return tp.ops.append_kv, given | {"seed": 0, "progress": None}


def ops_gated() -> Any:
    a, gate, up = matrices((8, 16), (16, 8), (16, 8))
    return tp.ops.gated_matmul, {
        "a": a,
        "gate": gate,
        "up": up,
        "activation": "silu",
        "out": None,
        "out_dtype": None,
        "seed": 0,
        "progress": None,
    }


def ops_prepare() -> Any:
    return tp.ops.prepare_weights, {"weights": np.zeros((8, 16), np.int8), "bits": 4}


def ops_quantised() -> Any:
    (a,) = matrices((8, 16))
    return tp.ops.quantised_matmul, {
        "a": a,
        "weights": pack(np.zeros((8, 16), np.int8)),
        "scales": np.ones((1, 8), np.float32),
        "group": 128,
        "activation": "none",
        "out": None,
        "out_dtype": None,
        "seed": 0,
        "progress": None,
    }


def ops_grouped() -> Any:
    a, b = matrices((8, 16), (1, 16, 8))
    offsets = np.array([8], np.int32)
    return tp.ops.grouped_matmul, {
        "a": a,
        "b": b,
        "offsets": offsets,
        "offs": None,
        "rows": None,
        "scale_a": None,
        "scale_b": None,
        "expected_rows": None,
        "out": None,
        "out_dtype": None,
        "seed": 0,
        "progress": None,
    }


def ops_rms_norm() -> Any:
    (x,) = matrices((8, 16))
    return tp.ops.rms_norm, {
        "x": x,
        "weight": None,
        "eps": 1e-6,
        "out": None,
        "seed": 0,
        "progress": None,
    }


def ops_layer_norm() -> Any:
    (x,) = matrices((8, 16))
    given = {"x": x, "weight": None, "bias": None, "eps": 1e-6, "seed": 0, "progress": None}
    return tp.ops.layer_norm, given


def ops_softmax() -> Any:
    (x,) = matrices((8, 16))
    return tp.ops.softmax, {"x": x, "seed": 0, "progress": None}


def ops_cross_entropy() -> Any:
    (x,) = matrices((8, 16))
    labels = np.zeros(8, np.int32)
    given = {"x": x, "labels": labels, "ignore_index": -100, "seed": 0, "progress": None}
    return tp.ops.cross_entropy, given


def ops_scaled() -> Any:
    a, b = matrices((8, 16), (16, 8), dtype=tp.float8_e4m3.numpy)
    scale = np.ones(1, np.float32)
    return tp.ops.scaled_matmul, {
        "a": a,
        "b": b,
        "scale_a": scale,
        "scale_b": scale,
        "out": None,
        "bias": None,
        "out_dtype": None,
        "seed": 0,
        "progress": None,
    }
