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
from tests.support.arguments import kernel_calls as of
from tests.support.arguments.values import VALUES
from tests.support.arguments.wanted import CONDITIONS, INTEGERS
from tilepipe import check, testing
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig

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
            {"name": None, "extents": None, "zero": (), "arch": None, "replace": True},
        ),
        {
            "name": {"None", "text"},
            "extents": {"None", "{}"},
            "zero": {"()", "[]"},
            "arch": {"None"},
            "replace": CONDITIONS,
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
        of.gemm,
        {name: {"None"} for name in ("bias", "a_scale", "b_scale", "source", "chip")}
        | {"alpha": NUMBERS | {"nan"}, "beta": {"0"}},
    ),
    "gemm.bind of arrays": Call(of.gemm_arrays),
    "attention.bind": Call(
        of.attention,
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
        of.decode,
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
    "gemm_gated.bind": Call(of.gated),
    "gemm_quantised.bind": Call(of.quantised),
    "gemm_grouped.bind": Call(of.grouped),
    "gemm_grouped_blockwise.bind": Call(of.grouped_blockwise),
    "gemm_k_grouped_blockwise.bind": Call(of.k_grouped_blockwise),
    "gemm_k_grouped.bind": Call(of.k_grouped),
    "ops.matmul": Call(
        of.matmul,
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
        of.ops_attention,
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
        of.ops_attention_backward,
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
        of.append,
        {"block_table": {"None"}, "k_descale": {"None"}, "v_descale": {"None"}},
    ),
    "ops.append_kv": Call(
        of.ops_append,
        _OP | {"block_table": {"None"}, "k_descale": {"None"}, "v_descale": {"None"}},
    ),
    "ops.attention_decode": Call(
        of.ops_decode,
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
    "ops.gated_matmul": Call(of.ops_gated, _OP),
    "ops.prepare_weights": Call(of.ops_prepare),
    "ops.quantised_matmul": Call(of.ops_quantised, _OP),
    "ops.grouped_matmul": Call(
        of.ops_grouped,
        _OP | {name: {"None"} for name in ("offs", "rows", "scale_a", "scale_b", "expected_rows")},
    ),
    "ops.rms_norm": Call(
        of.ops_rms_norm,
        _OP | {"x": {"array"}, "weight": {"None"}, "eps": NUMBERS - {"-1"}},
    ),
    "ops.layer_norm": Call(
        of.ops_layer_norm,
        _OP | {"x": {"array"}, "weight": {"None"}, "bias": {"None"}, "eps": NUMBERS - {"-1"}},
    ),
    "ops.softmax": Call(of.ops_softmax, _OP | {"x": {"array"}}),
    "ops.cross_entropy": Call(
        of.ops_cross_entropy,
        _OP | {"x": {"array"}, "ignore_index": INTEGERS | {"-1"}},
    ),
    "ops.scaled_matmul": Call(of.ops_scaled, _OP | {"bias": {"None"}}),
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
