"""Tile pipelines for warp-specialised GPU kernels.

A kernel is traced once into a program that runs on a simulated GPU, is checked, and compiles to
CUDA:

    @tp.kernel(grid=1)
    def k(ctx, a, b): ...

    program = k.bind(tp.tensor_map(a, box=(64, 64)), tp.tensor_map(b, box=(64, 64)))
    program.run()
"""

import importlib as _importlib
import sys as _sys
import typing as _typing

from tilepipe._version import __version__ as __version__
from tilepipe.errors import (
    BarrierError as BarrierError,
    BindError as BindError,
    CompileError as CompileError,
    CountError as CountError,
    DeadlockError as DeadlockError,
    ExitError as ExitError,
    ExportError as ExportError,
    HandleError as HandleError,
    HangError as HangError,
    KernelAssertError as KernelAssertError,
    LaunchError as LaunchError,
    LimitError as LimitError,
    MemberError as MemberError,
    NotModelledError as NotModelledError,
    PoisonError as PoisonError,
    PtxError as PtxError,
    RaceError as RaceError,
    SimFault as SimFault,
    TilepipeError as TilepipeError,
    TraceError as TraceError,
    UnavailableError as UnavailableError,
    UnfinishedError as UnfinishedError,
)
from tilepipe.export import load_exported as load_exported
from tilepipe.ir.chip import B200 as B200, H200 as H200, Chip as Chip
from tilepipe.ir.dtypes import (
    DType as DType,
    bfloat16 as bfloat16,
    boolean as boolean,
    dtype as dtype,
    float4_e2m1 as float4_e2m1,
    float8_e4m3 as float8_e4m3,
    float8_e5m2 as float8_e5m2,
    float8_e8m0 as float8_e8m0,
    float16 as float16,
    float32 as float32,
    int8 as int8,
    int32 as int32,
    int64 as int64,
    uint8 as uint8,
    uint32 as uint32,
)
from tilepipe.ir.fragment import FOURS_ORDER as FOURS_ORDER
from tilepipe.lang.arguments.tensor_map import TensorMap as TensorMap, tensor_map as tensor_map
from tilepipe.lang.context.context import Context as Context
from tilepipe.lang.context.synchronisation import NamedBarrier as NamedBarrier
from tilepipe.lang.fragments.fragment import Fragment as Fragment, FragmentValue as FragmentValue
from tilepipe.lang.memory.elements import ElementRef as ElementRef
from tilepipe.lang.memory.global_tensors import GlobalTensor as GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile as SmemTile, SmemTileArray as SmemTileArray
from tilepipe.lang.tensor_memory.addresses import TmemAddress as TmemAddress
from tilepipe.lang.tensor_memory.tensors import TmemScales as TmemScales, TmemTensor as TmemTensor
from tilepipe.lang.tracing.missing_members import of_ctx as _of_ctx
from tilepipe.lang.values.scalars import Value as Value
from tilepipe.lang.values.variables import Scalar as Scalar, Var as Var
from tilepipe.pipelines.accumulators.block_scaled import BlockScaledTmem as BlockScaledTmem
from tilepipe.pipelines.accumulators.mma_op import MmaOp as MmaOp
from tilepipe.pipelines.accumulators.output_stages import (
    AccumBarrier as AccumBarrier,
    EpilogueStage as EpilogueStage,
    MmaStage as MmaStage,
    OutputConsumer as OutputConsumer,
    OutputPipelineConfig as OutputPipelineConfig,
    OutputProducer as OutputProducer,
    OutputStage as OutputStage,
)
from tilepipe.pipelines.accumulators.output_tiles import OutputTilePipeline as OutputTilePipeline
from tilepipe.pipelines.accumulators.per_k import (
    BlockwiseFP8Accumulator as BlockwiseFP8Accumulator,
    EpilogueKContext as EpilogueKContext,
    EpilogueKStage as EpilogueKStage,
    MmaKStage as MmaKStage,
    OutputKPipeline as OutputKPipeline,
    PerKConsumerStage as PerKConsumerStage,
)
from tilepipe.pipelines.accumulators.tensor_memory import (
    TmemAllocation as TmemAllocation,
    TmemDeallocBarrier as TmemDeallocBarrier,
    TmemFragments as TmemFragments,
    TmemStage as TmemStage,
)
from tilepipe.pipelines.accumulators.warp_contexts import (
    EpilogueWarp as EpilogueWarp,
    EpilogueWarpContext as EpilogueWarpContext,
    MmaWarp as MmaWarp,
    MmaWarpContext as MmaWarpContext,
)
from tilepipe.pipelines.attention.fa4_config import FA4Config as FA4Config
from tilepipe.pipelines.attention.staged import (
    KPipeline as KPipeline,
    KVPipeline as KVPipeline,
    StagedPipeline as StagedPipeline,
    VPipeline as VPipeline,
)
from tilepipe.pipelines.attention.tile_layouts import (
    KVTiles as KVTiles,
    TileLayout as TileLayout,
    TMADestination as TMADestination,
    tile_layout_k_major as tile_layout_k_major,
    tile_layout_mn_major as tile_layout_mn_major,
)
from tilepipe.pipelines.attention.tma import (
    KConsumerPipeline as KConsumerPipeline,
    KProducerPipeline as KProducerPipeline,
    TMAConsumerPipeline as TMAConsumerPipeline,
    TMAProducerPipeline as TMAProducerPipeline,
    VConsumerPipeline as VConsumerPipeline,
    VProducerPipeline as VProducerPipeline,
)
from tilepipe.pipelines.barriers.arrays import SMemArray as SMemArray, SMemPtr as SMemPtr
from tilepipe.pipelines.barriers.mbarriers import (
    MbarPtr as MbarPtr,
    SharedMemBarrier as SharedMemBarrier,
)
from tilepipe.pipelines.barriers.ordered import OrderedBarrier as OrderedBarrier
from tilepipe.pipelines.barriers.pairs import (
    elect_one_cta as elect_one_cta,
    mma_arrive as mma_arrive,
    mma_arrive_multicast as mma_arrive_multicast,
    umma_arrive_leader_cta as umma_arrive_leader_cta,
)
from tilepipe.pipelines.rings.ahead import (
    AheadTiles as AheadTiles,
    ProducerAhead as ProducerAhead,
)
from tilepipe.pipelines.rings.input_tiles import (
    ConsumerTiles as ConsumerTiles,
    InputConsumer as InputConsumer,
    InputConsumerStage as InputConsumerStage,
    InputProducer as InputProducer,
    InputProducerStage as InputProducerStage,
    InputTilePipeline as InputTilePipeline,
    ProducerTiles as ProducerTiles,
)
from tilepipe.pipelines.rings.mma_consumer import (
    MmaConsumer as MmaConsumer,
    MmaConsumerStage as MmaConsumerStage,
)
from tilepipe.pipelines.rings.operand_payload import (
    OperandTilePayload as OperandTilePayload,
    TileOperand as TileOperand,
)
from tilepipe.pipelines.rings.payloads import (
    BlockScaledTilePayload as BlockScaledTilePayload,
    BlockwiseFP8TilePayload as BlockwiseFP8TilePayload,
    StandardTilePayload as StandardTilePayload,
    TilePayload as TilePayload,
)
from tilepipe.pipelines.rings.producer_consumer import (
    ConsumeContext as ConsumeContext,
    ConsumerStage as ConsumerStage,
    ExplicitConsumeContext as ExplicitConsumeContext,
    ProduceContext as ProduceContext,
    ProducerConsumerPipeline as ProducerConsumerPipeline,
    ProducerStage as ProducerStage,
)
from tilepipe.pipelines.rings.role_pipeline import (
    ConsumerPipeline as ConsumerPipeline,
    ProducerPipeline as ProducerPipeline,
    RolePipeline as RolePipeline,
)
from tilepipe.pipelines.rings.tile_arrays import (
    ScaleFactorLayout as ScaleFactorLayout,
    SMemTileArray2D as SMemTileArray2D,
    SMemTileArray2DRowMajor as SMemTileArray2DRowMajor,
    SMemTileArrayWithLayout as SMemTileArrayWithLayout,
    scale_factor_k_major as scale_factor_k_major,
)
from tilepipe.pipelines.schedulers.dynamic import (
    AtomicScheduler as AtomicScheduler,
    ClcScheduler as ClcScheduler,
)
from tilepipe.pipelines.schedulers.grouped import (
    GroupedScheduler as GroupedScheduler,
    GroupedTile as GroupedTile,
)
from tilepipe.pipelines.schedulers.static import (
    AheadTile as AheadTile,
    StaticScheduler as StaticScheduler,
    WorkTile as WorkTile,
)
from tilepipe.pipelines.state import PipelineState as PipelineState
from tilepipe.program import KernelFunction as KernelFunction, Program as Program, kernel as kernel
from tilepipe.public_members import check_arguments as _check_arguments

_check_arguments(globals())

# `tp.check`, `tp.ops` and `tp.testing` are imported where they are first named: `import tilepipe`
# does not pay for them. A type checker sees plain imports, so that a misspelt name of this module
# stays an error.
if _typing.TYPE_CHECKING:
    from tilepipe import check as check, ops as ops, testing as testing
else:

    def __getattr__(name):
        if name in ("check", "ops", "testing"):
            return _importlib.import_module(f"tilepipe.{name}")
        hint = "" if name.startswith("_") else _of_ctx(name)
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}{hint}",
            name=name,
            obj=_sys.modules[__name__],
        )
