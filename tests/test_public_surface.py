"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import tilepipe as tp

ERRORS = """BarrierError BindError CompileError CountError DeadlockError ExitError HandleError HangError KernelAssertError
LaunchError LimitError PoisonError
RaceError SimFault TilepipeError TraceError UnavailableError"""
DTYPES = "bfloat16 boolean float16 float32 float8_e4m3 float8_e5m2 int32 int64 int8 uint32 uint8 DType"
LANGUAGE = "Chip H200 Context dtype KernelFunction Program TensorMap kernel tensor_map"
PIPELINES = """ConsumeContext ConsumerStage ConsumerTiles ExplicitConsumeContext InputConsumer InputConsumerStage InputProducer
InputProducerStage InputTilePipeline MbarPtr OrderedBarrier PipelineState ProduceContext ProducerConsumerPipeline ProducerStage
ProducerTiles SMemArray
SMemPtr SMemTileArray2D SMemTileArray2DRowMajor SharedMemBarrier StandardTilePayload StaticScheduler TilePayload WorkTile"""
SUBPACKAGES = {"bench", "check", "cli", "cuda", "errors", "ir", "kernels", "lang", "ops", "pipelines", "program", "sim", "testing", "trace"}


def test_public_names() -> None:
    public = {name for name in dir(tp) if not name.startswith("_")} - SUBPACKAGES
    assert public == set(f"{ERRORS} {DTYPES} {LANGUAGE} {PIPELINES}".split())


def test_every_fault_is_a_tilepipe_error() -> None:
    assert all(issubclass(getattr(tp, name), tp.TilepipeError) for name in ERRORS.split())


def test_every_public_class_says_what_it_is() -> None:
    bare = [name for name in f"{LANGUAGE} {PIPELINES}".split() if name not in ("H200",) and not (getattr(tp, name).__doc__ or "").strip()]
    assert bare == []


def test_import_takes_no_gpu_library() -> None:
    code = (
        "import sys; import tilepipe; "
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'cuda', 'triton', 'typer', 'rich', 'pytest', 'hypothesis'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_import_time() -> None:
    """0.3 s is what is promised; the best of three, so that a busy machine does not decide."""
    code = "import time; t = time.perf_counter(); import tilepipe; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(3)]
    assert min(map(float, runs)) < 0.3
