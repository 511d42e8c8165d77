"""Tile pipelines for warp-specialised GPU kernels.

A kernel is traced once into a program that runs on a simulated GPU, is checked, and compiles to
CUDA:

    @tp.kernel(grid=1)
    def k(ctx, a, b): ...

    program = k.bind(tp.tensor_map(a, box=(64, 64)), tp.tensor_map(b, box=(64, 64)))
    program.run()
"""

import sys as _sys
import typing as _typing

from tilepipe._version import __version__ as __version__
from tilepipe.errors import BarrierError as BarrierError
from tilepipe.errors import BindError as BindError
from tilepipe.errors import CompileError as CompileError
from tilepipe.errors import CountError as CountError
from tilepipe.errors import DeadlockError as DeadlockError
from tilepipe.errors import ExitError as ExitError
from tilepipe.errors import HandleError as HandleError
from tilepipe.errors import HangError as HangError
from tilepipe.errors import KernelAssertError as KernelAssertError
from tilepipe.errors import LaunchError as LaunchError
from tilepipe.errors import LimitError as LimitError
from tilepipe.errors import NotModelledError as NotModelledError
from tilepipe.errors import PoisonError as PoisonError
from tilepipe.errors import RaceError as RaceError
from tilepipe.errors import SimFault as SimFault
from tilepipe.errors import TilepipeError as TilepipeError
from tilepipe.errors import TraceError as TraceError
from tilepipe.errors import UnavailableError as UnavailableError
from tilepipe.ir.chip import B200 as B200
from tilepipe.ir.chip import H200 as H200
from tilepipe.ir.chip import Chip as Chip
from tilepipe.ir.dtypes import DType as DType
from tilepipe.ir.dtypes import bfloat16 as bfloat16
from tilepipe.ir.dtypes import boolean as boolean
from tilepipe.ir.dtypes import dtype as dtype
from tilepipe.ir.dtypes import float4_e2m1 as float4_e2m1
from tilepipe.ir.dtypes import float8_e4m3 as float8_e4m3
from tilepipe.ir.dtypes import float8_e5m2 as float8_e5m2
from tilepipe.ir.dtypes import float8_e8m0 as float8_e8m0
from tilepipe.ir.dtypes import float16 as float16
from tilepipe.ir.dtypes import float32 as float32
from tilepipe.ir.dtypes import int8 as int8
from tilepipe.ir.dtypes import int32 as int32
from tilepipe.ir.dtypes import int64 as int64
from tilepipe.ir.dtypes import uint8 as uint8
from tilepipe.ir.dtypes import uint32 as uint32
from tilepipe.lang.arguments.tensor_map import TensorMap as TensorMap
from tilepipe.lang.arguments.tensor_map import tensor_map as tensor_map
from tilepipe.lang.context.context import Context as Context
from tilepipe.lang.context.named_barriers import NamedBarrier as NamedBarrier
from tilepipe.lang.fragments.fragment import Fragment as Fragment
from tilepipe.lang.fragments.fragment import FragmentValue as FragmentValue
from tilepipe.lang.memory.elements import ElementRef as ElementRef
from tilepipe.lang.memory.global_tensors import GlobalTensor as GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile as SmemTile
from tilepipe.lang.memory.shared_tiles import SmemTileArray as SmemTileArray
from tilepipe.lang.tensor_memory.addresses import TmemAddress as TmemAddress
from tilepipe.lang.tensor_memory.scales import TmemScales as TmemScales
from tilepipe.lang.tensor_memory.tensors import TmemTensor as TmemTensor
from tilepipe.lang.values.scalars import Value as Value
from tilepipe.lang.values.variables import Scalar as Scalar
from tilepipe.lang.values.variables import Var as Var
from tilepipe.pipelines.accumulators.block_scaled import BlockScaledTmem as BlockScaledTmem
from tilepipe.pipelines.accumulators.mma_op import MmaOp as MmaOp
from tilepipe.pipelines.accumulators.output_config import (
    OutputPipelineConfig as OutputPipelineConfig,
)
from tilepipe.pipelines.accumulators.output_stages import AccumBarrier as AccumBarrier
from tilepipe.pipelines.accumulators.output_stages import EpilogueStage as EpilogueStage
from tilepipe.pipelines.accumulators.output_stages import MmaStage as MmaStage
from tilepipe.pipelines.accumulators.output_stages import OutputConsumer as OutputConsumer
from tilepipe.pipelines.accumulators.output_stages import OutputProducer as OutputProducer
from tilepipe.pipelines.accumulators.output_stages import OutputStage as OutputStage
from tilepipe.pipelines.accumulators.output_tiles import OutputTilePipeline as OutputTilePipeline
from tilepipe.pipelines.accumulators.per_k import BlockwiseFP8Accumulator as BlockwiseFP8Accumulator
from tilepipe.pipelines.accumulators.per_k import EpilogueKContext as EpilogueKContext
from tilepipe.pipelines.accumulators.per_k import EpilogueKStage as EpilogueKStage
from tilepipe.pipelines.accumulators.per_k import MmaKStage as MmaKStage
from tilepipe.pipelines.accumulators.per_k import OutputKPipeline as OutputKPipeline
from tilepipe.pipelines.accumulators.per_k import PerKConsumerStage as PerKConsumerStage
from tilepipe.pipelines.accumulators.tensor_memory import TmemAllocation as TmemAllocation
from tilepipe.pipelines.accumulators.tensor_memory import TmemDeallocBarrier as TmemDeallocBarrier
from tilepipe.pipelines.accumulators.tensor_memory import TmemFragments as TmemFragments
from tilepipe.pipelines.accumulators.tensor_memory import TmemStage as TmemStage
from tilepipe.pipelines.accumulators.warp_contexts import EpilogueWarp as EpilogueWarp
from tilepipe.pipelines.accumulators.warp_contexts import EpilogueWarpContext as EpilogueWarpContext
from tilepipe.pipelines.accumulators.warp_contexts import MmaWarp as MmaWarp
from tilepipe.pipelines.accumulators.warp_contexts import MmaWarpContext as MmaWarpContext
from tilepipe.pipelines.attention.fa4_config import FA4Config as FA4Config
from tilepipe.pipelines.attention.kv_tiles import KVTiles as KVTiles
from tilepipe.pipelines.attention.kv_tiles import TMADestination as TMADestination
from tilepipe.pipelines.attention.staged import KPipeline as KPipeline
from tilepipe.pipelines.attention.staged import KVPipeline as KVPipeline
from tilepipe.pipelines.attention.staged import StagedPipeline as StagedPipeline
from tilepipe.pipelines.attention.staged import VPipeline as VPipeline
from tilepipe.pipelines.attention.tile_layouts import TileLayout as TileLayout
from tilepipe.pipelines.attention.tile_layouts import tile_layout_k_major as tile_layout_k_major
from tilepipe.pipelines.attention.tile_layouts import tile_layout_mn_major as tile_layout_mn_major
from tilepipe.pipelines.attention.tma import KConsumerPipeline as KConsumerPipeline
from tilepipe.pipelines.attention.tma import KProducerPipeline as KProducerPipeline
from tilepipe.pipelines.attention.tma import TMAConsumerPipeline as TMAConsumerPipeline
from tilepipe.pipelines.attention.tma import TMAProducerPipeline as TMAProducerPipeline
from tilepipe.pipelines.attention.tma import VConsumerPipeline as VConsumerPipeline
from tilepipe.pipelines.attention.tma import VProducerPipeline as VProducerPipeline
from tilepipe.pipelines.barriers.arrays import SMemArray as SMemArray
from tilepipe.pipelines.barriers.arrays import SMemPtr as SMemPtr
from tilepipe.pipelines.barriers.mbarriers import MbarPtr as MbarPtr
from tilepipe.pipelines.barriers.mbarriers import SharedMemBarrier as SharedMemBarrier
from tilepipe.pipelines.barriers.ordered import OrderedBarrier as OrderedBarrier
from tilepipe.pipelines.barriers.pairs import elect_one_cta as elect_one_cta
from tilepipe.pipelines.barriers.pairs import mma_arrive as mma_arrive
from tilepipe.pipelines.barriers.pairs import mma_arrive_multicast as mma_arrive_multicast
from tilepipe.pipelines.barriers.pairs import umma_arrive_leader_cta as umma_arrive_leader_cta
from tilepipe.pipelines.rings.input_tiles import ConsumerTiles as ConsumerTiles
from tilepipe.pipelines.rings.input_tiles import InputConsumer as InputConsumer
from tilepipe.pipelines.rings.input_tiles import InputConsumerStage as InputConsumerStage
from tilepipe.pipelines.rings.input_tiles import InputProducer as InputProducer
from tilepipe.pipelines.rings.input_tiles import InputProducerStage as InputProducerStage
from tilepipe.pipelines.rings.input_tiles import InputTilePipeline as InputTilePipeline
from tilepipe.pipelines.rings.input_tiles import ProducerTiles as ProducerTiles
from tilepipe.pipelines.rings.payloads import BlockScaledTilePayload as BlockScaledTilePayload
from tilepipe.pipelines.rings.payloads import BlockwiseFP8TilePayload as BlockwiseFP8TilePayload
from tilepipe.pipelines.rings.payloads import StandardTilePayload as StandardTilePayload
from tilepipe.pipelines.rings.payloads import TilePayload as TilePayload
from tilepipe.pipelines.rings.producer_consumer import ConsumeContext as ConsumeContext
from tilepipe.pipelines.rings.producer_consumer import ConsumerStage as ConsumerStage
from tilepipe.pipelines.rings.producer_consumer import (
    ExplicitConsumeContext as ExplicitConsumeContext,
)
from tilepipe.pipelines.rings.producer_consumer import ProduceContext as ProduceContext
from tilepipe.pipelines.rings.producer_consumer import (
    ProducerConsumerPipeline as ProducerConsumerPipeline,
)
from tilepipe.pipelines.rings.producer_consumer import ProducerStage as ProducerStage
from tilepipe.pipelines.rings.role_pipeline import ConsumerPipeline as ConsumerPipeline
from tilepipe.pipelines.rings.role_pipeline import ProducerPipeline as ProducerPipeline
from tilepipe.pipelines.rings.role_pipeline import RolePipeline as RolePipeline
from tilepipe.pipelines.rings.scale_tiles import ScaleFactorLayout as ScaleFactorLayout
from tilepipe.pipelines.rings.scale_tiles import SMemTileArrayWithLayout as SMemTileArrayWithLayout
from tilepipe.pipelines.rings.scale_tiles import scale_factor_k_major as scale_factor_k_major
from tilepipe.pipelines.rings.state import PipelineState as PipelineState
from tilepipe.pipelines.rings.tile_arrays import SMemTileArray2D as SMemTileArray2D
from tilepipe.pipelines.rings.tile_arrays import SMemTileArray2DRowMajor as SMemTileArray2DRowMajor
from tilepipe.pipelines.schedulers.dynamic import AtomicScheduler as AtomicScheduler
from tilepipe.pipelines.schedulers.dynamic import ClcScheduler as ClcScheduler
from tilepipe.pipelines.schedulers.grouped import GroupedScheduler as GroupedScheduler
from tilepipe.pipelines.schedulers.grouped import GroupedTile as GroupedTile
from tilepipe.pipelines.schedulers.static import AheadTile as AheadTile
from tilepipe.pipelines.schedulers.static import StaticScheduler as StaticScheduler
from tilepipe.pipelines.schedulers.static import WorkTile as WorkTile
from tilepipe.program import KernelFunction as KernelFunction
from tilepipe.program import Program as Program
from tilepipe.program import kernel as kernel
from tilepipe.public_members import check_arguments as _check_arguments

_check_arguments(globals())

from tilepipe import ops as ops  # noqa: E402  # its kernels use the names above

# `tp.check` and `tp.testing` are imported where they are first named: `import tilepipe` does not
# pay for them. A type checker sees plain imports, so that a misspelt name of this module stays an
# error.
if _typing.TYPE_CHECKING:
    from tilepipe import check as check
    from tilepipe import testing as testing
else:

    def __getattr__(name):
        if name in ("check", "testing"):
            from importlib import import_module

            return import_module(f"tilepipe.{name}")
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=_sys.modules[__name__]
        )
