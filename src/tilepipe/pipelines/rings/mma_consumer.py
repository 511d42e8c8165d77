"""The consumer of a ring whose stages MMAs read, over any slots: its releases are bound to the
MMAs, with a lag.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import NonNegativeInt
from tilepipe.lang.asynchronous.commits import Commit, arrival_op
from tilepipe.lang.asynchronous.wgmma import mma_commit, wgmma_wait
from tilepipe.lang.handles.linear import Entered
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.rings.lag import LagQueue
from tilepipe.pipelines.rings.producer_consumer import ConsumerStage, ProducerConsumerPipeline


class MmaConsumerStage(ConsumerStage, Entered):
    """A filled stage, as `MmaConsumer.acquire` gives it: leaving it commits the wgmmas that the
    body has issued, unless it has committed or arrived, and steps. The arrival is made when they
    are over.
    """

    how_to_release = (
        "It was obtained and never entered: use it as `with consumer.acquire() as stage:`."
    )

    def __init__(
        self, pipe: ProducerConsumerPipeline, stage: Value, queue: LagQueue | None, shared: bool
    ) -> None:
        super().__init__(pipe, stage)
        self._queue = queue
        self._shared = shared
        self._commit: Commit | None = None

    def bind_commit(self, commit: Commit) -> None:
        """Takes over a `mma_commit` on this stage's barrier: the arrival is made when the group
        retires.
        """
        if self._commit is not None or self._tracer.scope is not self.home:
            raise HandleError(
                f"{self.describe()} is committed once, in the block that acquired it: in another"
                " block, or a second time, its phase would complete never or twice",
                commit.loc,
            )
        self._commit = commit

    def release(self) -> None:
        """Steps, and signals the stage free, unless the body has: when its MMAs are over, or at
        once where it has issued none.
        """
        if self.must_signal():
            if self._tracer.scope.group_open:
                mma_commit(self._tracer, self.mbar(), None)
            else:
                self.arrive()
        self._end(self._shared)
        if self._commit is None:
            return
        if self._queue is not None:
            # what the body has read by ordinary loads of slots of its own is not known here
            self._queue.push(self._commit, self._stage, True)
        else:
            wgmma_wait(self._tracer, 0)
            self._tracer.emit(arrival_op(self._commit))


class MmaConsumer:
    """`with tp.MmaConsumer(ring, lag=1) as consumer:` the MMA warpgroups' view of a ring of stages
    whose slots are anything: what `inputs.consumer(lag=1)` is to an InputTilePipeline.
    """

    def __init__(
        self, ring: ProducerConsumerPipeline, *, lag: NonNegativeInt = 0, shared: bool = True
    ) -> None:
        """
        Args:
            lag: wgmma groups left running when a stage is released; the stage `lag` before it is
                freed then. Leaving the view waits for all of them and frees the rest.
            shared: every warpgroup of the role takes every stage; False: they take turns.

        Raises:
            TraceError: a lag that leaves no stage to fill.
        """
        if not isinstance(lag, int) or not 0 <= lag < ring.num_stages:
            raise TraceError(
                f"lag={lag!r}: the stages still being read are held, so lag must be at least 0 and"
                f" less than the {ring.num_stages} stages of '{ring.name}'",
                caller(),
            )
        self._ring, self._lag, self._shared = ring, lag, shared
        self._queue: LagQueue | None = None

    def __enter__(self) -> Self:
        if self._lag:
            self._queue = LagQueue(self._ring, self._lag)
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
        self._ring._tracer.require_running()
        if self._queue is not None:
            self._queue.flush()

    def acquire(self) -> MmaConsumerStage:
        """Waits for a filled stage."""
        if self._lag and self._queue is None:
            raise TraceError(
                "a consumer with a lag is used as `with tp.MmaConsumer(ring, lag=...) as"
                " consumer:`; leaving it frees the last stages",
                caller(),
            )
        return MmaConsumerStage(self._ring, self._ring._wait_full(), self._queue, self._shared)
