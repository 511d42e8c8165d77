"""InputTilePipeline: synchronisation of input tiles (a ProducerConsumerPipeline) over any payload
of tile arrays; its stages, and the views of the load warp and of the MMA warps.

`k_group_size` consecutive K tiles share one pair of barriers: a stage is a group, expect_bytes is
called once for all its tiles, and the MMA commits once. Barriers: 2 * num_group_stages; tile slots:
num_group_stages * k_group_size.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    CtaGroup,
    Extent,
    Index,
    Name,
    NonNegativeInt,
    PositiveInt,
    TransactionBytes,
)
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.asynchronous.commits import Commit, arrival_op
from tilepipe.lang.asynchronous.wgmma import mma_commit, wgmma_wait
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.linear import Entered
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.tcgen05 import use_group
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray
from tilepipe.pipelines.barriers.mbarriers import MbarPtr, SharedMemBarrier
from tilepipe.pipelines.barriers.pairs import elected_cta, leader_cta, pair_mask
from tilepipe.pipelines.rings.lag import LagQueue
from tilepipe.pipelines.rings.payloads import TilePayload
from tilepipe.pipelines.rings.producer_consumer import (
    ProducerConsumerPipeline,
    StageHandle,
    check_announced,
)
from tilepipe.pipelines.rings.ring import OverRing
from tilepipe.pipelines.rings.stage_commits import commit_by_one_lane, require_both_signalled


class InputTilePipeline(OverRing[ProducerConsumerPipeline]):
    """Input tiles between a TMA producer and an MMA consumer (API page InputTilePipeline).

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
        require_positive(k_group_size=k_group_size)
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
        require_positive(num_group_stages=num_group_stages, k_group_size=k_group_size)
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

    # -- flat form ---------------------------------------------------------------------

    def try_acquire_producer(self) -> Value:
        """Whether the next producer stage is free; give the result to `wait_consumer_if_needed`.

        (The page's example passes it to `wait_producer_if_needed`, which would make the producer
        wait for itself.)
        """
        return self.pipeline.try_wait_consumer()

    def try_acquire_consumer(self) -> Value:
        """Whether the next consumer stage is filled; give the result to `wait_producer_if_needed`
        (the API page's example crosses the two).
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


class InputStage(StageHandle):
    """One acquired stage of an input pipeline.

    Attributes:
        PipelineType: what `pipeline_ptr` is. inputs: the pipeline.
    """

    PipelineType = InputTilePipeline

    def __init__(self, inputs: InputTilePipeline, stage: Value, side: str) -> None:
        self.inputs = inputs
        super().__init__(inputs.pipeline, stage, side)

    @property
    def pipeline_ptr(self) -> InputTilePipeline:
        """The pipeline."""
        return self.inputs

    def payload(self) -> TilePayload:
        """The tile payload."""
        self.check_held()
        return self.inputs.payload

    def stage(self) -> Value:
        """The stage, 0..num_group_stages-1, as it was when acquired."""
        return self.index()

    def tile(self, k_idx: NonNegativeInt = 0) -> tuple[SmemTile, ...]:
        """Tile `k_idx` of the group, one of each operand: `payload().get_tile(stage(), k_idx)`."""
        if not isinstance(k_idx, int) or not 0 <= k_idx < self.inputs.k_group_size:
            raise TraceError(
                f"tile {k_idx!r} of a stage of {self.inputs.k_group_size} (k_group_size)", caller()
            )
        return self.payload().get_tile(
            self.stage(), k_idx, k_group_size=self.inputs.k_group_size, owner=self
        )


class InputProducerStage(InputStage):
    """A stage to fill: `expect_bytes(n)`, then TMA loads into `tile(j)` on `barrier()`, then
    `release()`.
    """

    def __init__(
        self, inputs: InputTilePipeline, stage: Value, barrier: MbarPtr | None = None
    ) -> None:
        """`stage`: a stage that has been waited for. `barrier`: its full barrier; may be left out.

        Raises:
            TraceError: another barrier than full[stage].
        """
        if barrier is not None:
            require_full_barrier(inputs, stage, barrier)
        super().__init__(inputs, stage, "producer")

    def barrier(self) -> MbarPtr:
        """full[stage]: where TMA credits its bytes; in a pair that of the even CTA."""
        return (
            self.mbar()
            if self.inputs.cta_group == 1
            else self.mbar().on(leader_cta(Context(self._tracer)))
        )

    def expect_bytes(self, num_bytes: TransactionBytes) -> None:
        """Arms the stage: the one arrival of its phase, and the bytes that complete it. One lane;
        in a pair the even CTA's.
        """
        with elected_cta(Context(self._tracer), self.inputs.cta_group):
            self.mbar().expect_bytes(num_bytes)

    def release(self) -> None:
        """Steps to the next stage; the phase completes by the expected bytes."""
        check_announced(self)
        self._end()


def require_full_barrier(inputs: InputTilePipeline, stage: Value, barrier: object) -> None:
    """Raises TraceError unless `barrier` is full[stage] of the pipeline, the one that the consumers
    of the stage wait for.
    """
    if barrier != inputs.producer_mbar(stage):
        raise TraceError(
            f"the barrier of a producer stage is full[stage] of '{inputs.name}', on which its"
            f" consumers wait; got {barrier!r} for stage {stage!r}. Pass"
            " `inputs.producer_mbar(stage)`, or leave it out.",
            caller(),
        )


class InputConsumerStage(InputStage):
    """A stage to use. `release()` steps. Where the body has neither committed nor arrived on
    `mbar()`, the release signals too: by a commit of the MMAs that read the stage if any did, else
    by an arrive of the role's threads.
    """

    def __init__(
        self,
        inputs: InputTilePipeline,
        stage: Value,
        queue: LagQueue | None = None,
        shared: bool = True,
    ) -> None:
        super().__init__(inputs, stage, "consumer")
        self._queue = queue
        self._shared = shared
        self._commit: Commit | None = None

    def bind_commit(self, commit: Commit) -> None:
        """Takes over a `mma_commit` on this stage's barrier: the arrival is made when the group
        retires.
        """
        if self._commit is not None:
            raise HandleError(
                f"{self.describe()} is committed twice: first at {self._commit.loc.short}; its"
                " phase would complete twice",
                commit.loc,
            )
        scope = self._tracer.scope
        if scope is not self.home:
            raise HandleError(
                f"{self.describe()} is committed in a nested {scope.kind} block: on the other"
                " paths, or in other iterations, it would be signalled never or twice. Commit in"
                " the block that acquired it.",
                commit.loc,
            )
        self._commit = commit

    def release(self) -> None:
        """Steps, and signals the stage free unless the body has."""
        if self.must_signal():
            # tcgen05 in a pair: the loads of both CTAs wait for these MMAs
            if self.read_by_mma and self._tracer.kernel.cta_group:
                commit_by_one_lane(
                    self, pair_mask(Context(self._tracer)) if self.inputs.cta_group == 2 else None
                )
            elif self.read_by_mma:
                mma_commit(self._tracer, self.mbar(), None)
            else:
                self.mbar().arrive()
        self.release_without_signal()

    def release_without_signal(self) -> None:
        """Steps without an arrival. An arrival that the body has bound by `mma_commit` is still
        made when its group retires.
        """
        if self.inputs.cta_group == 2:
            require_both_signalled(self)
        self._end(self._shared)
        if self._commit is None:
            return
        # explicit arrivals have already published the ordinary accesses
        published = self.touched and not self._signalled
        if self._queue is not None:
            self._queue.push(self._commit, self._stage, published)
        else:
            wgmma_wait(self._tracer, 0)
            self._tracer.emit(arrival_op(self._commit, published=published))


class ProducerTiles(InputProducerStage, Entered):
    """`with producer.acquire() as tiles:` an InputProducerStage that releases itself (API page
    ProducerTiles).
    """

    how_to_release = (
        "It was obtained and never entered: use it as `with producer.acquire() as tiles:`."
    )


class ConsumerTiles(InputConsumerStage, Entered):
    """`with consumer.acquire() as tiles:` an InputConsumerStage that releases itself."""

    how_to_release = (
        "It was obtained and never entered: use it as `with consumer.acquire() as tiles:`."
    )


class InputProducer:
    """The load warp's view of an input pipeline. Leaving it does not drain: call `drain()` after
    the last stage.
    """

    def __init__(self, inputs: InputTilePipeline) -> None:
        self._inputs = inputs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def acquire(self) -> ProducerTiles:
        """Waits for a free stage."""
        return ProducerTiles(self._inputs, self._inputs.pipeline._wait_empty())

    def acquire_stage(self) -> InputProducerStage:
        """Waits for a free stage; to be released by hand."""
        return self._inputs.acquire_producer()

    def try_acquire(self) -> Value:
        """Whether the next stage is free; for `acquire_if_needed`."""
        return self._inputs.try_acquire_producer()

    def acquire_if_needed(self, ready: object) -> ProducerTiles:
        """Waits for a free stage unless `ready`."""
        self._inputs.wait_consumer_if_needed(ready)
        return ProducerTiles(self._inputs, self._inputs.producer_stage())

    def drain(self) -> None:
        """Waits until the consumer has freed every stage, so that no arrival can reach this CTA
        after it has exited.
        """
        self._inputs.drain_producer()


class InputConsumer:
    """The MMA warps' view of an input pipeline."""

    def __init__(self, inputs: InputTilePipeline, lag: int, shared: bool) -> None:
        if not isinstance(lag, int) or not 0 <= lag < inputs.num_group_stages:
            raise TraceError(
                f"lag={lag!r}: the stages still being read are held, so lag must be at least 0 and"
                f" less than the {inputs.num_group_stages} stages of '{inputs.name}'",
                caller(),
            )
        self._inputs = inputs
        self._lag = lag
        self._shared = shared
        self._queue: LagQueue | None = None

    def __enter__(self) -> Self:
        if self._lag:
            self._queue = LagQueue(self._inputs.pipeline, self._lag)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()

    def flush(self) -> None:
        """Waits for all MMAs in flight and frees their stages; leaving the view does it too."""
        self._inputs.pipeline._tracer.require_running()
        if self._queue is not None:
            self._queue.flush()

    def acquire(self) -> ConsumerTiles:
        """Waits for a filled stage."""
        return ConsumerTiles(
            self._inputs, self._inputs.pipeline._wait_full(), self._entered(), self._shared
        )

    def acquire_stage(self) -> InputConsumerStage:
        """Waits for a filled stage; to be released by hand."""
        return InputConsumerStage(
            self._inputs, self._inputs.pipeline._wait_full(), self._entered(), self._shared
        )

    def try_acquire(self) -> Value:
        """Whether the next stage is filled; for `acquire_if_needed`."""
        return self._inputs.try_acquire_consumer()

    def acquire_if_needed(self, ready: object) -> ConsumerTiles:
        """Waits for a filled stage unless `ready`."""
        self._inputs.wait_producer_if_needed(ready)
        return ConsumerTiles(
            self._inputs, self._inputs.consumer_stage(), self._entered(), self._shared
        )

    def _entered(self) -> LagQueue | None:
        if self._lag and self._queue is None:
            raise TraceError(
                "a consumer with a lag is used as `with inputs.consumer(lag=...) as consumer:`;"
                " leaving it frees the last stages",
                caller(),
            )
        return self._queue
