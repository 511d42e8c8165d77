"""Handles of the stages of a ProducerConsumerPipeline, and the context managers that acquire
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tilepipe.errors import HandleError
from tilepipe.ir.location import caller
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr
from tilepipe.pipelines.barriers.mbarriers import (
    MbarPtr,
    SharedMemBarrier,
)

if TYPE_CHECKING:
    from types import TracebackType

    from tilepipe.pipelines.rings.producer_consumer import ProducerConsumerPipeline

H = TypeVar("H", bound=Handle)


class StageHandle(Handle):
    """One acquired stage of a ring.

    `index()`: the stage, as it was when acquired. `mbar()`: the barrier this side signals.
    """

    def __init__(self, pipe: ProducerConsumerPipeline, stage: Value, side: str) -> None:
        self.pipe = pipe
        self.side = side
        self._stage = stage
        refuse_second_acquire(pipe, side)
        array = pipe._full if side == "producer" else pipe._empty
        super().__init__(
            pipe._tracer, f"{side} stage of '{pipe.name}'", array, to_expr(pipe._tracer, stage)
        )

    def index(self) -> Value:
        """The stage, 0..num_stages-1."""
        self.check_held()
        return self._stage

    def mbar(self) -> MbarPtr:
        """The barrier this side signals when it is done with the stage."""
        self.check_held()
        index = to_expr(self._tracer, self._stage)
        array = self.pipe._full if self.side == "producer" else self.pipe._empty
        return SharedMemBarrier(self._tracer, array, index, self)

    def _end(self, shared: bool = True) -> None:
        """Ends the handle: records its arrivals in the ledger and steps the cursor."""
        self._tracer.flush_branch()  # a `when` just before the release may hold arrivals
        array = self.array
        signals = self.signals
        self.mark_released()
        t = self._tracer
        if array is not None and signals is not None:
            t.ledger.record(array, self.role.role, self.acquired_at, signals, shared)
        state = self.pipe._producer if self.side == "producer" else self.pipe._consumer
        state.step()


def refuse_second_acquire(pipe: ProducerConsumerPipeline, side: str) -> None:
    """Raises HandleError where this side already holds a stage: the cursor steps at the release, so
    a second acquire would return the same stage.
    """
    scope: Scope | None = pipe._tracer.scope
    while scope is not None:
        for held in scope.handles:
            if isinstance(held, StageHandle) and held.pipe is pipe and held.side == side:
                raise HandleError(
                    f"{held.describe()} is still held: a second acquire would wait for the same"
                    " stage and signal it twice."
                    " Release the first before acquiring the next.",
                    caller(),
                )
        scope = scope.parent


class ProducerStage(StageHandle):
    """A stage to fill. `release()` only steps: the body announces the contents by an arrival on
    `mbar()`.
    """

    def __init__(self, pipe: ProducerConsumerPipeline, stage: Value) -> None:
        super().__init__(pipe, stage, "producer")

    def release(self) -> None:
        """Steps to the next stage.

        Raises:
            HandleError: nothing has arrived on the stage's barrier and no count was given: the
                consumer would wait forever.
        """
        check_announced(self)
        self._end()


def check_announced(handle: StageHandle) -> None:
    """Raises HandleError when a producer stage is released without an arrival on its full
    barrier.
    """
    handle._tracer.flush_branch()
    account = handle._tracer.ledger.accounts.get(handle.pipe._full)
    if (
        handle.released_at is None
        and handle.signals is None
        and account is not None
        and account.typed is None
    ):
        raise HandleError(
            f"{handle.describe()} is released, but nothing has arrived on its full barrier: the"
            " consumer would wait for"
            f" '{handle.pipe._full.name}' forever. Call expect_bytes(n) on the stage before its"
            " TMA loads (it is the arrival), or"
            " mbar().arrive().",
            caller(),
        )


class ConsumerStage(StageHandle):
    """A stage to use. `release()` arrives on `mbar()`, unless the body has, and steps."""

    def __init__(self, pipe: ProducerConsumerPipeline, stage: Value) -> None:
        super().__init__(pipe, stage, "consumer")

    def arrive(self) -> None:
        """Arrives on the stage's empty barrier, by every active thread."""
        self.mbar().arrive()

    def release(self) -> None:
        """Arrives by every active thread where the body has not, and steps."""
        if self.must_signal():
            self.arrive()
        self._end()

    def release_without_signal(self) -> None:
        """Steps only: the body has arrived, or another thread will."""
        self._end()


class StageContext(Handle, Generic[H]):
    """A context manager for one stage. It is an error to obtain one and never enter it: it would
    neither wait nor step.
    """

    how_to_release = "Enter it: `with ... as stage:`."

    def __init__(self, tracer: Tracer, what: str, acquire: object, release: object) -> None:
        super().__init__(tracer, what)
        self._acquire = acquire
        self._release = release
        self._stage: H | None = None

    def __enter__(self) -> H:
        self.mark_released()
        self._stage = self._acquire()  # type: ignore[operator]
        return self._stage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._release(self._stage)  # type: ignore[operator]


class ProduceContext(StageContext[ProducerStage]):
    """Waits for the consumer on entry, steps on exit."""


class ConsumeContext(StageContext[ConsumerStage]):
    """Waits for the producer on entry, arrives and steps on exit."""


class ExplicitConsumeContext(StageContext[ConsumerStage]):
    """Waits for the producer on entry, only steps on exit."""
