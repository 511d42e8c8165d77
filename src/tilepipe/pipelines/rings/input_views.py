"""Views of an InputTilePipeline: the load warp's, and the MMA warps' with a lag."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.rings.input_stages import (
    ConsumerTiles,
    InputConsumerStage,
    InputProducerStage,
    ProducerTiles,
)
from tilepipe.pipelines.rings.lag import LagQueue

if TYPE_CHECKING:
    from tilepipe.pipelines.rings.input_tiles import InputTilePipeline


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
                f"lag={lag!r}: the stages still being read are held, so lag must be at least 0"
                f" and less than the {inputs.num_group_stages}"
                f" stages of '{inputs.name}'",
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
