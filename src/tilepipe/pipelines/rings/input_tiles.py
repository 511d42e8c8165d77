"""InputTilePipeline: synchronisation of input tiles (a ProducerConsumerPipeline) over any payload
of tile arrays.

`k_group_size` consecutive K tiles share one pair of barriers: a stage is a group, expect_bytes is
called once for all its tiles, and the MMA commits once. Barriers: 2 * num_group_stages; tile slots:
num_group_stages * k_group_size.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    CtaGroup,
    Extent,
    Index,
    Name,
    PositiveInt,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.tensor_memory.tcgen05 import use_group
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray
from tilepipe.pipelines.barriers.mbarriers import MbarPtr, SharedMemBarrier
from tilepipe.pipelines.rings.input_stages import InputConsumerStage, InputProducerStage, InputStage
from tilepipe.pipelines.rings.input_views import InputConsumer, InputProducer
from tilepipe.pipelines.rings.payloads import TilePayload
from tilepipe.pipelines.rings.producer_consumer import ProducerConsumerPipeline


class InputTilePipeline:
    """Input tiles between a TMA producer and an MMA consumer (seed page InputTilePipeline).

    Attributes:
        pipeline: the barriers and cursors.
        payload: the tile arrays.
        stage_bytes: bytes of one stage, for `expect_bytes`; in a pair, of both CTAs.
        cta_group: 2 where a pair of CTAs shares an MMA. Each CTA loads its part of the tiles; the
            bytes of both count on the full barrier of the even CTA, whose MMA warp waits for them.
    """

    Pipeline = ProducerConsumerPipeline
    BarrierArray = SMemArray

    def __init__(
        self,
        barriers: Barriers,
        payload: TilePayload,
        num_group_stages: int | None = None,
        k_group_size: PositiveInt = 1,
        *,
        cta_group: CtaGroup = 1,
        name: Name = "inputs",
    ) -> None:
        """Over 2 * num_group_stages barriers (an array, or a pointer to the first), which
        `init_barriers` initialises, and an allocated payload.
        """
        if not isinstance(k_group_size, int) or k_group_size < 1:
            raise TraceError(f"k_group_size is at least 1, got {k_group_size!r}", caller())
        if cta_group != 1:
            use_group(barriers._tracer, cta_group)
        self.pipeline = ProducerConsumerPipeline(barriers, num_group_stages, name=name)
        self.payload = payload
        self.num_group_stages = self.pipeline.num_stages
        self.k_group_size = k_group_size
        self.cta_group = cta_group
        self.name = name

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        payload: TilePayload,
        *,
        num_group_stages: int,
        k_group_size: PositiveInt = 1,
        cta_group: CtaGroup = 1,
        producer_arrivals: int | None = None,
        consumer_arrivals: int | None = None,
        name: Name = "inputs",
    ) -> InputTilePipeline:
        """Shared memory for tiles and barriers, `init_barriers`, and the pipeline. Arrival counts
        are derived unless given.
        """
        if not isinstance(num_group_stages, int) or num_group_stages < 1:
            raise TraceError(f"num_group_stages is at least 1, got {num_group_stages!r}", caller())
        if not isinstance(k_group_size, int) or k_group_size < 1:
            raise TraceError(f"k_group_size is at least 1, got {k_group_size!r}", caller())
        barriers = SMemArray(ctx, SharedMemBarrier, 2 * num_group_stages, name)
        allocated = payload.allocate(ctx, num_group_stages * k_group_size, name)
        pipe = cls(
            barriers, allocated, num_group_stages, k_group_size, cta_group=cta_group, name=name
        )
        pipe.pipeline.init_mbars(producer_arrivals, consumer_arrivals)
        return pipe

    @staticmethod
    def init_barriers(
        storage_ptr: Barriers,
        producer_arv_count: int,
        consumer_arv_count: int,
        *,
        num_group_stages: int | None = None,
        name: Name = "inputs",
    ) -> None:
        """Initialises the barriers of `storage_ptr`: the first half, full, with the producer's
        count; the second, empty, with the consumer's. Of a pointer, 2 · num_group_stages barriers
        from there on, or all.
        """
        ProducerConsumerPipeline(storage_ptr, num_group_stages, name=name).init_mbars(
            producer_arv_count, consumer_arv_count
        )

    @property
    def stage_bytes(self) -> int:
        """Bytes of all tiles of one stage."""
        return self.payload.tile_bytes * self.k_group_size * self.cta_group

    def copy(self) -> InputTilePipeline:
        """The same barriers and tiles with separate cursors, at the positions of this
        pipeline's.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.pipeline = self.pipeline.copy()
        return other

    # -- flat form ---------------------------------------------------------------------

    def try_acquire_producer(self) -> Value:
        """Whether the next producer stage is free; give the result to `wait_consumer_if_needed`.

        (The page's example passes it to `wait_producer_if_needed`, which would make the producer
        wait for itself.)
        """
        return self.pipeline.try_wait_consumer()

    def try_acquire_consumer(self) -> Value:
        """Whether the next consumer stage is filled; give the result to `wait_producer_if_needed`
        (the page's example crosses the two).
        """
        return self.pipeline.try_wait_producer()

    def wait_producer_if_needed(self, already_ready: object) -> None:
        """The CONSUMER waits for the producer, unless `already_ready` (from
        `try_acquire_consumer`).
        """
        self.pipeline.wait_producer_if_needed(already_ready)

    def wait_consumer_if_needed(self, already_ready: object) -> None:
        """The PRODUCER waits for the consumer, unless `already_ready` (from
        `try_acquire_producer`).
        """
        self.pipeline.wait_consumer_if_needed(already_ready)

    def producer_stage(self) -> Value:
        """The producer's stage, 0..num_group_stages-1."""
        return self.pipeline.producer_stage()

    def consumer_stage(self) -> Value:
        """The consumer's stage, 0..num_group_stages-1."""
        return self.pipeline.consumer_stage()

    def producer_advance(self, n: Extent) -> None:
        """Skips `n` stages that other threads of the role fill."""
        self.pipeline.producer_advance(n)

    def consumer_advance(self, n: Extent) -> None:
        """Skips `n` stages that other warpgroups of the role use."""
        self.pipeline.consumer_advance(n)

    def producer_mbar(self, stage: Index) -> MbarPtr:
        """full[stage]."""
        return self.pipeline.producer_mbar(stage)

    def consumer_mbar(self, stage: Index) -> MbarPtr:
        """empty[stage]."""
        return self.pipeline.consumer_mbar(stage)

    def drain_producer(self) -> None:
        """Waits until the consumer has freed every stage; see
        `ProducerConsumerPipeline.drain_producer`.
        """
        self.pipeline.drain_producer()

    # -- stages and views --------------------------------------------------------------

    def acquire_producer(self) -> InputProducerStage:
        """Waits for a free stage; the handle must be released exactly once."""
        return InputProducerStage(self, self.pipeline._wait_empty())

    def acquire_consumer(self) -> InputConsumerStage:
        """Waits for a filled stage; the handle must be released exactly once."""
        return InputConsumerStage(self, self.pipeline._wait_full())

    def producer(self) -> InputProducer:
        """The load warp's view."""
        return InputProducer(self)

    def consumer(self, *, lag: int = 0, shared: bool = True) -> InputConsumer:
        """The MMA warps' view: `with inputs.consumer(lag=1) as consumer:`.

        Args:
            lag: wgmma groups left running when a stage is released; the stage `lag` before it is
                freed then. Leaving the view waits for all of them and frees the rest.
            shared: every warpgroup of the role takes every stage; False: they take turns.
        """
        return InputConsumer(self, lag, shared)


InputStage.PipelineType = InputTilePipeline
