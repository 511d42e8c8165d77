"""OutputTilePipeline: synchronisation of accumulators in tensor memory between the MMA warp and the
epilogue.
"""

from __future__ import annotations

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARP, WARPGROUP
from tilepipe.lang.arguments.annotations import MulticastMask, Name, PositiveInt
from tilepipe.lang.context.context import Context
from tilepipe.lang.context.synchronisation import NamedBarrier
from tilepipe.pipelines.accumulators.output_stages import (
    AccumulatorRing,
    EpilogueStage,
    MmaStage,
    OutputConsumer,
    OutputPipelineConfig,
    OutputProducer,
    OutputStage,
    RawOutputStage,
)
from tilepipe.pipelines.accumulators.per_k import EpilogueKContext, OutputKPipeline
from tilepipe.pipelines.accumulators.tensor_memory import TmemAllocation, TmemDeallocBarrier
from tilepipe.pipelines.accumulators.warp_contexts import EpilogueWarpContext, MmaWarpContext
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray
from tilepipe.pipelines.barriers.mbarriers import SharedMemBarrier
from tilepipe.pipelines.barriers.pairs import pair_mask
from tilepipe.pipelines.rings.input_tiles import InputTilePipeline
from tilepipe.pipelines.rings.producer_consumer import ProducerConsumerPipeline


class OutputTilePipeline(AccumulatorRing):
    """Accumulators in tensor memory between an MMA warp and the epilogue's warps (API page
    OutputTilePipeline).

    Attributes:
        pipeline: the barriers and cursors. tmem: the tensor memory.
        mma_complete_mask: the CTAs in which a finished accumulator is announced: both of a pair.
        config: the shape of the ring.
    """

    Pipeline = ProducerConsumerPipeline
    BarrierArray = SMemArray
    Tmem = TmemAllocation
    Stage = OutputStage

    def __init__(
        self,
        barriers_ptr: Barriers,
        tmem: TmemAllocation,
        mma_complete_mask: MulticastMask | None = None,
        *,
        config: OutputPipelineConfig,
        name: Name = "outputs",
    ) -> None:
        """Over 2 · num_stages barriers (an array, or a pointer to the first), which `init_barriers`
        initialises, and columns for all stages.
        """
        if tmem.cta_group != config.cta_group:
            raise TraceError(
                f"the tensor memory has cta_group {tmem.cta_group}, the pipeline"
                f" {config.cta_group}",
                caller(),
            )
        if tmem.columns < config.num_stages * config.stage_stride_cols:
            raise TraceError(
                f"{config.num_stages} stages × {config.stage_stride_cols} columns do not fit the"
                f" {tmem.columns} of '{tmem.name}'",
                caller(),
            )
        self.pipeline = ProducerConsumerPipeline(barriers_ptr, config.num_stages, name=name)
        self.tmem = tmem
        self.config = config
        self.name = name
        ctx = self._ctx = tmem._ctx
        given = (
            mma_complete_mask
            if mma_complete_mask is not None or config.cta_group == 1
            else pair_mask(ctx)
        )
        self.mma_complete_mask = None if given is None else ctx._value(given)
        self._lifetime: tuple[TmemDeallocBarrier, NamedBarrier] | None = None

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        config: OutputPipelineConfig,
        *,
        producer_arrivals: int | None = None,
        consumer_arrivals: int | None = None,
        epilogue_threads: int = WARPGROUP,
        tmem: TmemAllocation | None = None,
        name: Name = "outputs",
    ) -> OutputTilePipeline:
        """Tensor memory, barriers, `init_barriers`, the pipeline, and the barriers of `mma_warp`
        and `epilogue_warp`. Arrival counts are derived unless given. `tmem`: an allocation whose
        first columns are the ring's, where a kernel has more in it.
        """
        if not isinstance(config, OutputPipelineConfig):
            raise TraceError(
                f"an output pipeline takes an OutputPipelineConfig, got {config!r}", caller()
            )
        barriers = SMemArray(ctx, SharedMemBarrier, 2 * config.num_stages, name)
        own = tmem or TmemAllocation(ctx, config.columns, cta_group=config.cta_group)
        pipe = cls(barriers, own, config=config, name=name)
        pipe.pipeline.init_mbars(producer_arrivals, consumer_arrivals)
        published = ctx.named_barrier(WARP + epilogue_threads, f"{name}_tmem_published")
        pipe._lifetime = TmemDeallocBarrier(ctx, config.cta_group), published
        return pipe

    @staticmethod
    def init_barriers(
        storage_ptr: Barriers,
        producer_arv_count: int,
        consumer_arv_count: int,
        *,
        num_stages: PositiveInt | None = None,
        name: Name = "outputs",
    ) -> None:
        """Initialises the barriers of `storage_ptr`: the first half, full, with the producer's
        count; the second, empty, with the consumer's. Of a pointer, 2 · num_stages barriers from
        there on, or all.
        """
        ProducerConsumerPipeline(storage_ptr, num_stages, name=name).init_mbars(
            producer_arv_count, consumer_arv_count
        )

    def get_pipeline(self) -> ProducerConsumerPipeline:
        """The barriers and cursors."""
        return self.pipeline

    # -- flat form ---------------------------------------------------------------------

    def acquire_for_mma(self) -> OutputStage:
        """Waits until the epilogue has freed the next accumulator; give it to
        `release_from_mma`.
        """
        return OutputStage(self.acquire_mma_linear())

    def release_from_mma(self, stage: OutputStage | RawOutputStage) -> None:
        """Announces the accumulator when its MMAs are done (`mma_arrive`, in a pair
        `mma_arrive_multicast`), unless the body has; steps.

        Of a stage that `OutputStage.from_raw` made nothing is known of what the body has signalled:
        it is announced in any case.

        Raises:
            HandleError: neither, or a raw stage of another pipeline.
        """
        if isinstance(stage, RawOutputStage):
            if stage.pipeline._full is not self.pipeline._full:
                raise HandleError(
                    f"release_from_mma of '{self.name}' is given a stage of"
                    f" '{stage.pipeline.name}', whose barriers are others",
                    caller(),
                )
            MmaStage(self, self._ctx._value(stage.index)).release()
            return
        handle = stage._handle if isinstance(stage, OutputStage) else None
        if (
            not isinstance(handle, MmaStage)
            or handle.outputs.pipeline._full is not self.pipeline._full
        ):
            raise HandleError(
                "release_from_mma takes the stage that acquire_for_mma gave, or one of"
                " OutputStage.from_raw",
                caller(),
            )
        handle.release()

    def acquire_for_epilogue(self) -> OutputStage:
        """Waits until the MMAs of the next accumulator are done; end it with
        `release_from_epilogue()`.
        """
        return OutputStage(self.acquire_epilogue_linear())

    def release_from_epilogue(self) -> None:
        """Frees the accumulator that the epilogue holds, unless the body has
        (`AccumBarrier.arrive`); steps.
        """
        for handle in self._ctx.tracer.scope.held():
            if isinstance(handle, EpilogueStage) and handle.outputs is self:
                return handle.release()
        raise HandleError(
            f"role '{self._ctx.tracer.role.name}' holds no accumulator of '{self.name}'", caller()
        )

    # -- stages and views --------------------------------------------------------------

    def producer(self) -> OutputProducer:
        """The MMA warp's view: `with outputs.producer() as stage:` is one accumulator."""
        return self.view(OutputProducer, "producer view", self.acquire_mma_linear)

    def consumer(self) -> OutputConsumer:
        """The epilogue's view: `with outputs.consumer() as stage:` is one accumulator."""
        return self.view(OutputConsumer, "consumer view", self.acquire_epilogue_linear)

    def per_k(self) -> OutputKPipeline:
        """The view of kernels that hand over each step of K, see `accumulators.per_k`."""
        return OutputKPipeline(self)

    def per_k_epilogue(
        self, input_pipeline: InputTilePipeline | ProducerConsumerPipeline
    ) -> EpilogueKContext:
        """`with outputs.per_k_epilogue(inputs) as stage:` one step of K in the epilogue, which also
        uses a part of the input stage.

        `input_pipeline`: the input tiles; or, as on the page, their ProducerConsumerPipeline alone,
        and `stage.tile()` is refused.
        """
        return EpilogueKContext(self, input_pipeline)

    def mma_warp(self) -> MmaWarpContext:
        """`with outputs.mma_warp():` the life of the tensor memory, in the MMA warp: allocates it,
        announces it, and frees it when the epilogue is done.
        """
        return MmaWarpContext(self.tmem, *self._made_by_allocate())

    def epilogue_warp(self) -> EpilogueWarpContext:
        """`with outputs.epilogue_warp():` the epilogue's part of it: waits until it is announced,
        and says when it is done.
        """
        return EpilogueWarpContext(self.tmem, *self._made_by_allocate())

    def _made_by_allocate(self) -> tuple[TmemDeallocBarrier, NamedBarrier]:
        if self._lifetime is None:
            raise TraceError(
                f"'{self.name}' was not made by OutputTilePipeline.allocate: build MmaWarpContext"
                " and EpilogueWarpContext yourself",
                caller(),
            )
        return self._lifetime
