"""What a program calls on the host, with a valid call of each, and which of the bad values are good
for which parameter.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilepipe as tp
from tests.support.arguments.values import VALUES
from tests.support.arguments.wanted import CONDITIONS, INTEGERS
from tilepipe import check, testing
from tilepipe.kernels.append_kv import sm90 as append_kv
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention_decode import sm90 as attention_decode
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.gemm import sm90 as gemm
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

NUMBERS = {"-1", "0", "3", "2**31", "2**34", "2**70", "1.5", "2.0", "np.int64(3)", "np.float32(2)"}
# arrays, too
TOLERANCES = NUMBERS | {"True", "np.True_", "()", "[]", "array", "huge tuple", "floats", "nan"}
WHOLE = {"-1", "0", "3", "2**31", "2**34", "2**70", "np.int64(3)"}
FUNCTION = {"None", "function", "class"}


@dataclass(frozen=True)
class Call:
    """A valid call: `make()` gives the function and its arguments by name; `good`: parameter -> the
    values that may be taken.

    A parameter that is not in `good` takes none of the list.
    """

    make: Callable[[], tuple[Callable[..., Any], dict[str, Any]]]
    good: dict[str, set[str]] = field(default_factory=dict)


@tp.kernel(grid=lambda out: out.shape[0])
def one(ctx: tp.Context, out: Any, n: Any, *, count: int = 1) -> None:
    """out[block] = n"""

    @ctx.role("one", warps=1)
    def role() -> None:
        with ctx.elect_one():
            ctx.store(out[ctx.block_id], n + count)


def program() -> tp.Program:
    return one.bind(np.zeros(2, np.int32), 3)


@functools.cache
def fault() -> Any:
    @tp.kernel()
    def wrong(ctx: tp.Context, out: Any) -> None:
        tile = ctx.smem((8, 8), "int32", swizzle=0)[0]

        @ctx.role("one", warps=1)
        def role() -> None:
            ctx.store(out[0], ctx.load(tile[0, 0]))

    made = wrong.bind(np.zeros(1, np.int32))
    return made, made.check().faults[0]


def matrices(*shapes: tuple[int, ...], dtype: Any = np.float16) -> list[Any]:
    return [np.zeros(shape, dtype) for shape in shapes]


def _gemm() -> Any:
    a, b, c = matrices((64, 32), (64, 32), (64, 64))
    return lambda **named: gemm.bind(a, b, c, **named), {
        "cfg": GemmConfig(bm=64, bn=64, bk=32, consumers=1),
        "bias": None,
        "a_scale": None,
        "b_scale": None,
        "source": None,
        "alpha": 1.0,
        "beta": 0.0,
        "chip": None,
    }


def _gemm_arrays() -> Any:
    a, b, c = matrices((64, 32), (64, 32), (64, 64))
    return functools.partial(gemm.bind, cfg=GemmConfig(bm=64, bn=64, bk=32, consumers=1)), {
        "a": a,
        "b": b,
        "c": c,
    }


def _attention() -> Any:
    q, k, v, out = matrices((1, 64, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64), (1, 64, 1, 64))
    return attention.bind, {
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


def _decode() -> Any:
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


def _gated() -> Any:
    a, gate, up, c = matrices((64, 32), (64, 32), (64, 32), (64, 64))
    return gemm_gated.bind, {"a": a, "gate": gate, "up": up, "c": c, "cfg": GatedGemmConfig()}


def _quantised() -> Any:
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


def _grouped() -> Any:
    a, b, c = matrices((64, 32), (2, 64, 32), (64, 64))
    return gemm_grouped.bind, {
        "a": a,
        "b": b,
        "c": c,
        "offsets": np.array([32, 64], np.int32),
        "cfg": GroupedGemmConfig(),
    }


def _grouped_blockwise() -> Any:
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


def _k_grouped_blockwise() -> Any:
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


def _k_grouped() -> Any:
    a, b, c = matrices((64, 64), (64, 64), (2, 64, 64))
    return gemm_k_grouped.bind, {
        "a": a.T,
        "b": b.T,
        "c": c,
        "offsets": np.array([32, 64], np.int32),
        "cfg": KGroupedGemmConfig(),
    }


def _matmul() -> Any:
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


def _ops_attention() -> Any:
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


def _ops_attention_backward() -> Any:
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


def _ops_decode() -> Any:
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


def _append() -> Any:
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


def _ops_append() -> Any:
    _, given = _append()
    return tp.ops.append_kv, given | {"seed": 0, "progress": None}


def _ops_gated() -> Any:
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


def _ops_prepare() -> Any:
    return tp.ops.prepare_weights, {"weights": np.zeros((8, 16), np.int8), "bits": 4}


def _ops_quantised() -> Any:
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


def _ops_grouped() -> Any:
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


def _ops_rms_norm() -> Any:
    (x,) = matrices((8, 16))
    return tp.ops.rms_norm, {
        "x": x,
        "weight": None,
        "eps": 1e-6,
        "out": None,
        "seed": 0,
        "progress": None,
    }


def _ops_layer_norm() -> Any:
    (x,) = matrices((8, 16))
    given = {"x": x, "weight": None, "bias": None, "eps": 1e-6, "seed": 0, "progress": None}
    return tp.ops.layer_norm, given


def _ops_softmax() -> Any:
    (x,) = matrices((8, 16))
    return tp.ops.softmax, {"x": x, "seed": 0, "progress": None}


def _ops_cross_entropy() -> Any:
    (x,) = matrices((8, 16))
    labels = np.zeros(8, np.int32)
    given = {"x": x, "labels": labels, "ignore_index": -100, "seed": 0, "progress": None}
    return tp.ops.cross_entropy, given


def _ops_scaled() -> Any:
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


@functools.cache
def exported_to() -> str:
    """A directory for exported kernels, while the process lasts."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return made.name


_OP = {"out": {"None"}, "out_dtype": {"None"}, "seed": WHOLE - {"-1"}, "progress": FUNCTION}
_CONFIGS: dict[str, Any] = {
    "GemmConfig": GemmConfig,
    "AttentionConfig": AttentionConfig,
    "GroupedGemmConfig": GroupedGemmConfig,
    "KGroupedGemmConfig": KGroupedGemmConfig,
    "KGroupedBlockwiseGemmConfig": KGroupedBlockwiseGemmConfig,
    "BlockwiseGemmConfig": BlockwiseGemmConfig,
}


def _fields(config: Any) -> dict[str, Any]:
    made = config()
    return {x.name: getattr(made, x.name) for x in dataclasses.fields(made) if x.init}


CALLS: dict[str, Call] = {
    "kernel": Call(
        lambda: (
            lambda function, **given: tp.kernel(**given)(function).bind(np.zeros(2, np.int32), 3),
            {"function": one.function, "grid": 2, "cluster": 1},
        ),
        {"grid": {"3", "np.int64(3)", "huge tuple"}, "cluster": INTEGERS},
    ),
    "KernelFunction.bind": Call(
        lambda: (
            lambda out, n, **given: one.bind(out, n, **given),
            {"out": np.zeros(2, np.int32), "n": 3, "count": 1, "chip": None},
        ),
        {"n": NUMBERS | {"nan"}, "count": NUMBERS | CONDITIONS, "chip": {"None"}},
    ),
    "Program.run": Call(
        lambda: (
            program().run,
            {
                "seed": 0,
                "rules": "practice",
                "progress": None,
                "on_event": None,
                "timeline": False,
            },
        ),
        {
            "seed": WHOLE - {"-1"},
            "progress": FUNCTION,
            "on_event": FUNCTION,
            "timeline": WHOLE - {"-1", "0"} | CONDITIONS,
        },
    ),
    "Program.check": Call(
        lambda: (
            program().check,
            {
                "explore": False,
                "bounds": None,
                "reductions": None,
                "rules": "practice",
                "instance": "",
                "progress": None,
            },
        ),
        {
            "explore": CONDITIONS,
            "bounds": {"None"},
            "reductions": {"None"},
            "progress": FUNCTION,
            "instance": {"text", "markup", "empty text", "two lines"},
        },
    ),
    "Program.replay": Call(lambda: (fault()[0].replay, {"fault": fault()[1], "rules": "practice"})),
    "Program.source": Call(lambda: (program().source, {"arch": None}), {"arch": {"None"}}),
    "Program.ptx": Call(lambda: (program().ptx, {"arch": None}), {"arch": {"None"}}),
    "Program.compile": Call(
        lambda: (program().compile, {"arch": None, "emit": "cuda"}), {"arch": {"None"}}
    ),
    "Program.export": Call(
        lambda: (
            functools.partial(program().export, exported_to()),  # any text is a directory's
            {"name": None, "extents": None, "zero": (), "arch": None},
        ),
        {
            "name": {"None", "text"},
            "extents": {"None", "{}"},
            "zero": {"()", "[]"},
            "arch": {"None"},
        },
    ),
    "Program.launch": Call(
        lambda: (
            program().launch,
            {"stream": None, "debug": False, "perturb": None, "timeout_ms": 2000},
        ),
        {
            "stream": set(VALUES),
            "debug": CONDITIONS,
            "perturb": WHOLE | {"None"},
            "timeout_ms": NUMBERS - {"-1", "0"},
        },
    ),
    "Program.record": Call(
        lambda: (program().record, {"stream": None, "ctas": 4, "room": 4096, "launches": 2}),
        {
            "stream": set(VALUES),
            "ctas": WHOLE - {"-1", "0"},
            "room": WHOLE - {"-1", "0"},
            "launches": WHOLE - {"-1", "0"},
        },
    ),
    "Program.sensitivity": Call(
        lambda: (
            program().sensitivity,
            {"bounds": check.Bounds(), "rules": "practice", "progress": None, "instance": ""},
        ),
        {"progress": FUNCTION, "instance": {"text", "markup", "empty text", "two lines"}},
    ),
    "dtype": Call(lambda: (tp.dtype, {"spec": "bfloat16"})),
    "tensor_map": Call(
        lambda: (
            tp.tensor_map,
            {
                "array": np.zeros((64, 64), np.float16),
                "box": (8, 64),
                "swizzle": 128,
                "order": "row",
                "dtype": None,
                "ragged": False,
            },
        ),
        {
            "array": {"array"},
            "box": {"None"},
            "swizzle": {"None", "0"},
            "order": {"None"},
            "dtype": {"None"},
            "ragged": CONDITIONS,
        },
    ),
    "Bounds": Call(
        lambda: (check.Bounds, {"traces": 1, "seconds": 1.0, "steps": 1}),
        {"traces": WHOLE - {"-1", "0"}, "steps": WHOLE - {"-1", "0"}, "seconds": NUMBERS - {"-1"}},
    ),
    "Reductions": Call(
        lambda: (check.Reductions, {"partial_order": True, "hashing": True, "symmetry": True}),
        dict.fromkeys(("partial_order", "hashing", "symmetry"), CONDITIONS),
    ),
    "together": Call(lambda: (check.combine, {"verdicts": [program().check()]})),
    "testing.run": Call(
        lambda: (
            testing.run,
            {
                "program": program(),
                "expect": None,
                "seeds": range(1),
                "rtol": None,
                "atol": 0.0,
                "rules": "practice",
            },
        ),
        {
            "expect": {"None", "{}"},
            "seeds": {"bytes"},
            "rtol": TOLERANCES | {"None"},
            "atol": TOLERANCES | {"None"},
        },
    ),
    "testing.check": Call(
        lambda: (
            testing.check,
            {
                "program": program(),
                "explore": False,
                "bounds": None,
                "reductions": None,
                "rules": "practice",
            },
        ),
        {"explore": CONDITIONS, "bounds": {"None"}, "reductions": {"None"}},
    ),
    "testing.compare": Call(
        lambda: (
            testing.compare,
            {
                "got": np.zeros((4, 4), np.float32),
                "want": np.zeros((4, 4)),
                "rtol": None,
                "atol": 0.0,
            },
        ),
        {"got": {"array"}, "want": {"array"}, "rtol": TOLERANCES | {"None"}, "atol": TOLERANCES},
    ),
    "gemm.bind": Call(
        _gemm,
        {name: {"None"} for name in ("bias", "a_scale", "b_scale", "source", "chip")}
        | {"alpha": NUMBERS | {"nan"}, "beta": {"0"}},
    ),
    "gemm.bind of arrays": Call(_gemm_arrays),
    "attention.bind": Call(
        _attention,
        {
            "lse": {"None"},
            "cfg": {"None"},
            "causal": CONDITIONS,
            "window": {"None"},
            "scale": NUMBERS - {"-1", "0"} | {"None"},
            "softcap": NUMBERS - {"-1", "2**70"},
            "slopes": {"None"},
            "sinks": {"None"},
            "score": FUNCTION,
            "cu_seqlens_q": {"None"},
            "cu_seqlens_k": {"None"},
            "key_lists": {"None"},
        },
    ),
    "attention_decode.bind": Call(
        _decode,
        {
            "lse": {"None"},
            "cfg": {"None"},
            "cache_seqlens": {"None"},
            "block_table": {"None"},
            "window": {"None"},
            "k_descale": {"None"},
            "v_descale": {"None"},
            "causal": CONDITIONS,
            "scale": NUMBERS - {"-1", "0"} | {"None"},
        },
    ),
    "gemm_gated.bind": Call(_gated),
    "gemm_quantised.bind": Call(_quantised),
    "gemm_grouped.bind": Call(_grouped),
    "gemm_grouped_blockwise.bind": Call(_grouped_blockwise),
    "gemm_k_grouped_blockwise.bind": Call(_k_grouped_blockwise),
    "gemm_k_grouped.bind": Call(_k_grouped),
    "ops.matmul": Call(
        _matmul,
        _OP
        | {
            "bias": {"None"},
            "activation": {"None"},
            "source": {"None"},
            "alpha": NUMBERS | {"nan"},
            "beta": {"None", "0"},
            "precision": {"None"},
            "stages": {"3", "np.int64(3)"},
        },
    ),
    "ops.attention": Call(
        _ops_attention,
        _OP
        | {
            "causal": CONDITIONS,
            "window": {"None"},
            "scale": NUMBERS - {"-1", "0"} | {"None"},
            "softcap": NUMBERS - {"-1", "2**70"},
            "slopes": {"None"},
            "sinks": {"None"},
            "score": FUNCTION,
            "cu_seqlens_q": {"None"},
            "cu_seqlens_k": {"None"},
            "max_seqlen_q": {"None"},
            "max_seqlen_k": {"None"},
            "block_mask": {"None"},
            "block_size": {"None"},
            "q_descale": {"None"},
            "k_descale": {"None"},
            "v_descale": {"None"},
            "return_lse": CONDITIONS,
        },
    ),
    "ops.attention_backward": Call(
        _ops_attention_backward,
        {
            "dlse": {"None"},
            "causal": CONDITIONS,
            "scale": NUMBERS - {"-1", "0"} | {"None"},
            "deterministic": CONDITIONS,
            "seed": _OP["seed"],
            "progress": FUNCTION,
        },
    ),
    "append_kv.bind": Call(
        _append, {"block_table": {"None"}, "k_descale": {"None"}, "v_descale": {"None"}}
    ),
    "ops.append_kv": Call(
        _ops_append,
        _OP | {"block_table": {"None"}, "k_descale": {"None"}, "v_descale": {"None"}},
    ),
    "ops.attention_decode": Call(
        _ops_decode,
        _OP
        | {
            "window": {"None"},
            "k_descale": {"None"},
            "v_descale": {"None"},
            "cache_seqlens": {"None"},
            "block_table": {"None"},
            "causal": CONDITIONS,
            "scale": NUMBERS - {"-1", "0"} | {"None"},
            "return_lse": CONDITIONS,
        },
    ),
    "ops.gated_matmul": Call(_ops_gated, _OP),
    "ops.prepare_weights": Call(_ops_prepare),
    "ops.quantised_matmul": Call(_ops_quantised, _OP),
    "ops.grouped_matmul": Call(
        _ops_grouped,
        _OP | {name: {"None"} for name in ("offs", "rows", "scale_a", "scale_b", "expected_rows")},
    ),
    "ops.rms_norm": Call(
        _ops_rms_norm, _OP | {"x": {"array"}, "weight": {"None"}, "eps": NUMBERS - {"-1"}}
    ),
    "ops.layer_norm": Call(
        _ops_layer_norm,
        _OP | {"x": {"array"}, "weight": {"None"}, "bias": {"None"}, "eps": NUMBERS - {"-1"}},
    ),
    "ops.softmax": Call(_ops_softmax, _OP | {"x": {"array"}}),
    "ops.cross_entropy": Call(
        _ops_cross_entropy, _OP | {"x": {"array"}, "ignore_index": INTEGERS | {"-1"}}
    ),
    "ops.scaled_matmul": Call(_ops_scaled, _OP | {"bias": {"None"}}),
    "Chip.resident_clusters": Call(
        lambda: (tp.H200.resident_clusters, {"size": 2}), {"size": INTEGERS}
    ),
    "DType.bytes_of": Call(lambda: (tp.float16.bytes_of, {"elements": 2}), {"elements": WHOLE}),
    **{
        name: Call(
            functools.partial(lambda config: (config, _fields(config)), config),
            {"*": {"3", "np.int64(3)"}, "source_slots": {"0", "3", "np.int64(3)"}},
        )
        for name, config in _CONFIGS.items()
    },
}
