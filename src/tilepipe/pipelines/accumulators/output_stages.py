"""A ring of accumulators in tensor memory: its shape, the handles of acquired accumulators, the
stages that views return, and the arrival that frees one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tilepipe.errors import TraceError
from tilepipe.ir.hardware import tensor_memory
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import CtaGroup, Index, PositiveInt
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.context.context import Context
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.accumulators.tensor_memory import TmemAllocation, TmemStage
from tilepipe.pipelines.barriers.pairs import umma_arrive_leader_cta
from tilepipe.pipelines.rings.producer_consumer import (
    ProducerConsumerPipeline,
    StageContext,
    StageHandle,
)
from tilepipe.pipelines.rings.ring import OverRing
from tilepipe.pipelines.rings.stage_commits import commit_by_one_lane, require_both_signalled


@dataclass(frozen=True)
class OutputPipelineConfig:
    """The shape of an accumulator ring (the parameter `opc` of the page).

    Attributes:
        num_stages: accumulators. stage_stride_cols: 32-bit columns from one to the next.
        cta_group: CTAs that share an MMA: 1, or 2 for pairs.
    """

    num_stages: PositiveInt
    stage_stride_cols: int
    cta_group: CtaGroup = 1

    def __post_init__(self) -> None:
        require_positive(
            " of an OutputPipelineConfig",
            num_stages=self.num_stages,
            stage_stride_cols=self.stage_stride_cols,
        )
        if self.stage_stride_cols % 8:
            raise TraceError(
                f"stage_stride_cols is a multiple of 8 columns, got {self.stage_stride_cols}",
                caller(),
            )
        if type(self.cta_group) is not int or self.cta_group not in (1, 2):
            raise TraceError(
                f"cta_group is 1, or 2 for a pair of CTAs; got {self.cta_group!r}", caller()
            )
        used = self.num_stages * self.stage_stride_cols
        if used > tensor_memory.COLUMNS:
            raise TraceError(
                f"{self.num_stages} stages × {self.stage_stride_cols} columns = {used}, but tensor"
                f" memory has {tensor_memory.COLUMNS}",
                caller(),
            )

    @property
    def columns(self) -> int:
        """Columns to allocate: the power of two, at least 32, that holds the ring."""
        return max(
            tensor_memory.MIN_COLUMNS,
            1 << (self.num_stages * self.stage_stride_cols - 1).bit_length(),
        )


V = TypeVar("V", bound="StageContext[OutputStage]")


@dataclass(frozen=True)
class AccumBarrier:
    """The arrival by which epilogue threads free an accumulator: on their own CTA's barrier, or in
    a pair on the even CTA's.
    """

    cta_group: CtaGroup = 1

    def arrive(self, pipeline: ProducerConsumerPipeline, stage: Index) -> None:
        """Waits for the loads from tensor memory, fences, and arrives on empty[stage]. Every
        epilogue thread calls it after its last load from the stage, so that MMAs run while the tile
        is stored.

        Raises:
            TraceError: the kernel has another cta_group.
        """
        ctx = Context(pipeline._tracer)
        group = pipeline._tracer.kernel.cta_group
        if self.cta_group != group:
            raise TraceError(
                f"AccumBarrier({self.cta_group}) in a kernel of cta_group {group}: the MMAs wait"
                " for the epilogue of"
                f" {'both CTAs on the even one' if group == 2 else 'their own CTA'}. Make it"
                f" AccumBarrier({group}).",
                caller(),
            )
        ctx.tmem_wait_load()
        ctx.tcgen05_fence_before()
        mbar = pipeline.consumer_mbar(stage)
        if self.cta_group == 2:
            umma_arrive_leader_cta(mbar)
        else:
            mbar.arrive()


class AccumulatorRing(OverRing[ProducerConsumerPipeline]):
    """A ring of accumulators in tensor memory; an `OutputTilePipeline`."""

    tmem: TmemAllocation
    config: OutputPipelineConfig
    mma_complete_mask: Value | None
    name: str
    _ctx: Context

    @property
    def cta_group(self) -> int:
        """The number of CTAs that share an MMA."""
        return self.config.cta_group

    @property
    def num_stages(self) -> int:
        """The number of accumulators."""
        return self.config.num_stages

    @property
    def stage_stride_cols(self) -> int:
        """32-bit columns from one accumulator to the next."""
        return self.config.stage_stride_cols

    def acquire_mma_linear(self) -> MmaStage:
        """Waits until the epilogue has freed the next accumulator; the handle must be released
        exactly once.
        """
        stage = self.pipeline._wait_empty()
        self._ctx.tcgen05_fence_after()
        return MmaStage(self, stage)

    def acquire_epilogue_linear(self) -> EpilogueStage:
        """Waits until the MMAs of the next accumulator are done; the handle must be released
        exactly once.
        """
        stage = self.pipeline._wait_full()
        self._ctx.tcgen05_fence_after()
        return EpilogueStage(self, stage)

    def view(self, kind: type[V], what: str, acquire: Callable[[], AccumulatorStage]) -> V:
        """A context manager for one accumulator."""
        return kind(
            self._ctx.tracer,
            f"{what} of '{self.name}'",
            lambda: OutputStage(acquire()),
            lambda stage: stage._handle.release(),
        )


class AccumulatorStage(StageHandle):
    """An acquired accumulator."""

    def __init__(self, outputs: AccumulatorRing, stage: Value, side: str) -> None:
        self.outputs = outputs
        super().__init__(outputs.pipeline, stage, side)

    def tmem(self) -> TmemStage:
        """Its stage of tensor memory."""
        self.check_held()
        return TmemStage(self.outputs.tmem, self._stage, self.outputs.stage_stride_cols, self)

    def tmem_offset(self) -> Value:
        """Its address in tensor memory, a uint32."""
        return self.tmem().offset()


class MmaStage(AccumulatorStage):
    """An accumulator to fill. `mbar()` is full[index]."""

    def __init__(self, outputs: AccumulatorRing, stage: Value) -> None:
        super().__init__(outputs, stage, "producer")

    def release(self) -> None:
        """Announces the accumulator when its MMAs are done, unless the body has committed to
        `mbar()`; steps.
        """
        if self.must_signal():
            commit_by_one_lane(
                self, self.outputs.mma_complete_mask if self.outputs.cta_group == 2 else None
            )
        if self.outputs.cta_group == 2:
            require_both_signalled(self)
        self._end()


class EpilogueStage(AccumulatorStage):
    """An accumulator to read."""

    def __init__(self, outputs: AccumulatorRing, stage: Value) -> None:
        super().__init__(outputs, stage, "consumer")

    def release(self) -> None:
        """Frees the accumulator, unless the body has (`AccumBarrier.arrive`); steps."""
        if self.must_signal():
            AccumBarrier(self.outputs.cta_group).arrive(self.pipe, self._stage)
        self._end()


class OutputStage:
    """One accumulator, as the views return it.

    Attributes:
        index: its number in the ring.
        tmem: its stage of tensor memory.
        pipeline: for its barriers (the API page's original has a snapshot here: never step it).
    """

    def __init__(self, handle: AccumulatorStage) -> None:
        self._handle = handle
        self.pipeline = handle.pipe

    @classmethod
    def from_raw(
        cls, pipeline: ProducerConsumerPipeline, index: Index, tmem_offset: object
    ) -> RawOutputStage:
        """A stage made of its parts, which is not tracked as a handle."""
        Context(pipeline._tracer)._value(index)  # raises if it belongs to another kernel
        return RawOutputStage(
            pipeline,
            index,
            TmemStage.from_offset(Context(pipeline._tracer)._value(tmem_offset), index),
        )

    @property
    def index(self) -> Value:
        """Its number in the ring."""
        return self._handle.index()

    @property
    def tmem(self) -> TmemStage:
        """Its stage of tensor memory."""
        return self._handle.tmem()


@dataclass(frozen=True, eq=False)
class RawOutputStage:
    """The result of `OutputStage.from_raw`."""

    pipeline: ProducerConsumerPipeline
    index: object
    tmem: TmemStage


class OutputProducer(StageContext[OutputStage]):
    """`with outputs.producer() as stage:` waits until the epilogue has freed an accumulator;
    leaving announces it and steps.
    """


class OutputConsumer(StageContext[OutputStage]):
    """`with outputs.consumer() as stage:` waits until the MMAs of an accumulator have finished;
    leaving frees it, unless the body has, and steps.
    """
