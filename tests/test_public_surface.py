"""The public names, and what importing them costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import tilepipe as tp
from tilepipe import cuda, testing
from tilepipe.cuda.runtime.launching import Launcher
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

ERRORS = """
BarrierError BindError CompileError CountError DeadlockError ExitError ExportError HandleError
HangError KernelAssertError LaunchError LimitError MemberError NotModelledError PoisonError PtxError
RaceError SimFault
TilepipeError TraceError UnavailableError UnfinishedError
"""
DTYPES = (
    "bfloat16 boolean float16 float32 float4_e2m1 float8_e4m3 float8_e5m2 float8_e8m0 int32 "
    "int64 int8 uint32 uint8 DType"
)
LANGUAGE = (
    "B200 Chip ElementRef Fragment FragmentValue H200 Context dtype GlobalTensor KernelFunction"
    " NamedBarrier Program Scalar SmemTile SmemTileArray TensorMap Value Var kernel load_exported"
    " tensor_map FOURS_ORDER"
)
PIPELINES = """
AheadTile AheadTiles AtomicScheduler BlockwiseFP8TilePayload ClcScheduler ConsumeContext
ConsumerStage ConsumerTiles
ExplicitConsumeContext GroupedScheduler GroupedTile InputConsumer InputConsumerStage
InputProducer InputProducerStage InputTilePipeline MbarPtr MmaConsumer
MmaConsumerStage OperandTilePayload OrderedBarrier
PipelineState ProduceContext ProducerAhead ProducerConsumerPipeline ProducerStage ProducerTiles
SMemArray SMemPtr SMemTileArray2D SMemTileArray2DRowMajor SharedMemBarrier StandardTilePayload
StaticScheduler TileOperand TilePayload WorkTile
"""
ATTENTION = """
ConsumerPipeline FA4Config KConsumerPipeline KPipeline KProducerPipeline KVPipeline KVTiles
ProducerPipeline RolePipeline StagedPipeline TMAConsumerPipeline TMADestination
TMAProducerPipeline TileLayout VConsumerPipeline VPipeline VProducerPipeline tile_layout_k_major
tile_layout_mn_major
"""
BLACKWELL = """
AccumBarrier BlockScaledTilePayload BlockScaledTmem BlockwiseFP8Accumulator EpilogueKContext
EpilogueKStage EpilogueStage EpilogueWarp EpilogueWarpContext MmaKStage MmaOp MmaStage MmaWarp
MmaWarpContext OutputConsumer OutputKPipeline OutputPipelineConfig OutputProducer OutputStage
OutputTilePipeline PerKConsumerStage SMemTileArrayWithLayout ScaleFactorLayout TmemAddress
TmemAllocation TmemDeallocBarrier TmemFragments TmemScales TmemStage TmemTensor elect_one_cta
mma_arrive mma_arrive_multicast scale_factor_k_major umma_arrive_leader_cta
"""
SUBPACKAGES = {
    "host_arguments",
    "bench",
    "check",
    "cli",
    "cuda",
    "errors",
    "export",
    "files",
    "ir",
    "kernels",
    "lang",
    "ops",
    "pipelines",
    "program",
    "ptx",
}
SUBPACKAGES |= {"description", "markup"}
SUBPACKAGES |= {"machine", "registry", "sim", "public_members", "testing", "timeline", "trace"}


def test_public_names() -> None:
    public = {name for name in dir(tp) if not name.startswith("_")} - SUBPACKAGES
    assert public == set(
        f"{ERRORS} {DTYPES} {LANGUAGE} {PIPELINES} {ATTENTION} {BLACKWELL}".split()
    )


@pytest.mark.slow
def test_check_ops_and_testing_are_there_without_an_import_of_theirs() -> None:
    code = """
import sys
import tilepipe as tp
assert not {"tilepipe.check", "tilepipe.ops", "tilepipe.testing"} & set(sys.modules)
print(tp.check.Bounds(traces=3).traces, tp.check.Reductions().hashing)
print(tp.check.replay_with_steps.__name__, tp.testing.run.__name__, tp.ops.matmul.__name__)
assert tp.check is sys.modules["tilepipe.check"] and "check" in vars(tp)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("3 True\nreplay_with_steps run matmul\n", "")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tilepipe' has no attribute 'tesor_map'"):
        tp.tesor_map  # type: ignore[attr-defined]  # noqa: B018


def members(x: object) -> set[str]:
    return {name for name in dir(x) if not name.startswith("_")}


def test_public_members() -> None:
    assert members(tp.Program) - {"kernel", "launch_args"} == {
        "check",
        "compile",
        "describe",
        "export",
        "grid_function",
        "launch",
        "record",
        "launcher",
        "ptx",
        "replay",
        "run",
        "sensitivity",
        "source",
    }
    assert members(tp.KernelFunction) == {"bind", "forget"}
    assert members(tp.OrderedBarrier) == {"pass_on", "turn", "wait"}
    schedulers = tp.StaticScheduler, tp.ClcScheduler, tp.AtomicScheduler
    assert all(
        members(x) == {"ahead", "needs_role", "schedule", "share", "throttle_signal"}
        for x in schedulers
    )
    assert set(tp.ops.__all__) == {
        "gated_matmul",
        "grouped_matmul",
        "append_kv",
        "attention",
        "attention_backward",
        "attention_decode",
        "matmul",
        "prepare_weights",
        "quantised_matmul",
        "rms_norm",
        "layer_norm",
        "softmax",
        "cross_entropy",
        "scaled_matmul",
    }
    assert (
        " ".join(testing.__all__)
        == "CheckFailed Comparison NoDevice WrongResult check compare compare_matmul perturb run"
    )
    assert set(cuda.__all__) == {"Compiled", "compile", "source"}
    assert members(Launcher) == {"launch_packed", "pack"}


def test_options_of_a_launch_and_of_matmul() -> None:
    def names(function: object) -> str:
        assert callable(function)
        found = inspect.signature(function).parameters
        return " ".join(name for name in found if name != "unnamed")  # which are refused

    assert names(tp.Program.launch) == "self stream debug perturb timeout_ms"
    assert names(testing.check) == "program more explore bounds reductions rules"
    assert names(testing.run) == "program expect seeds rtol atol rules"
    assert names(testing.perturb) == "program seeds device timeout_ms"
    assert (
        names(tp.ops.matmul)
        == "a b out bias activation source alpha beta out_dtype precision seed progress settings"
    )
    assert (
        names(tp.ops.attention)
        == "q k v causal window scale softcap slopes sinks score align block_mask block_size"
        " cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k q_descale k_descale v_descale out"
        " out_dtype return_lse layout seed progress settings"
    )
    assert (
        names(tp.ops.attention_decode)
        == "q k_cache v_cache cache_seqlens block_table causal window scale k_descale v_descale"
        " out return_lse seed progress settings"
    )
    assert (
        names(tp.ops.append_kv)
        == "k_cache v_cache k v cache_seqlens block_table k_descale v_descale seed progress unknown"
    )
    assert names(gemm.bind) == "a b c cfg bias a_scale b_scale source alpha beta workspace chip"
    assert names(GemmConfig) == (
        "bm bn bk stages k_group_size consumers schedule swap cluster cluster_n split_k raster"
        " group store_slots accumulate activation source_slots early k_parts"
    )


def test_every_fault_is_a_tilepipe_error() -> None:
    assert all(issubclass(getattr(tp, name), tp.TilepipeError) for name in ERRORS.split())


def test_every_public_class_says_what_it_is() -> None:
    bare = [
        name
        for name in f"{LANGUAGE} {PIPELINES} {ATTENTION} {BLACKWELL}".split()
        if name not in ("B200", "H200") and not (getattr(tp, name).__doc__ or "").strip()
    ]
    assert bare == []


# What `import tilepipe` brings in beside the standard library: of tilepipe these parts alone, so
# that it costs a fraction of a second. A kernel is traced with `lang`, `pipelines` and `ir`; what
# runs, checks, compiles, measures or prints it is imported when it is asked for.
IMPORTED = """
_version errors export host_arguments ir lang pipelines program public_members
"""
# Of the standard library: each costs milliseconds, and few want it.
HEAVY = {
    "asyncio",
    "concurrent",
    "email",
    "hashlib",
    "http",
    "json",
    "logging",
    "multiprocessing",
    "pathlib",
    "random",
    "socket",
    "sqlite3",
    "ssl",
}
HEAVY |= {"subprocess", "tempfile", "unittest", "xml"}


def imported() -> set[str]:
    """The modules that `import tilepipe` adds to those that numpy and ml_dtypes bring."""
    code = (
        "import sys; import numpy, ml_dtypes; old = set(sys.modules); import tilepipe; "
        "print(*sorted(set(sys.modules) - old))"
    )
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


@pytest.mark.slow
def test_what_an_import_imports() -> None:
    """Counted, not timed: how long it takes depends on the machine (`benchmarks/tracing.py`
    measures that).
    """
    found = imported()
    tops = {name.split(".")[0] for name in found}
    # of numpy parts that it imports when they are used
    assert tops - sys.stdlib_module_names <= {"tilepipe", "numpy"}
    assert tops & HEAVY == set()
    parts = {name.split(".")[1] for name in found if name.startswith("tilepipe.")}
    assert parts == set(IMPORTED.split())
