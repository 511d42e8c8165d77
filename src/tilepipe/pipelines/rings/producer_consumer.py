"""ProducerConsumerPipeline: a ring of stages, each with a full and an empty mbarrier; the handles
of its stages, and the context managers that acquire them.

The producer waits for `empty[s]`, fills stage s and signals `full[s]`; the consumer waits for
`full[s]`, uses the stage and signals `empty[s]`. The producer starts a phase ahead, so that its
first lap does not block. Storage is all full barriers, then all empty ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory, ops
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Extent, Index, Name, PositiveInt
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.arrivals import count_arrivals
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tracing import barrier_tests
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, require_uniform, to_expr, unary
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray, array_of
from tilepipe.pipelines.barriers.mbarriers import (
    BARRIER_BYTES,
    MbarPtr,
    SharedMemBarrier,
    open_barriers,
)
from tilepipe.pipelines.rings.ring import BarrierRing, wait_for
from tilepipe.pipelines.state import PipelineState


class ProducerConsumerPipeline(BarrierRing):
    """`num_stages` stages between producer and consumer warps (API page ProducerConsumerPipeline).

    `full`, `empty`: pointers to the barriers that the producer and the consumer, respectively,
    signal, `full[s]` and `empty[s]`. Every role has its own cursors; `copy()` gives a second
    set at the same positions. `p2 = p` is the same pipeline.
    """

    def __init__(
        self, ptr: Barriers, num_stages: PositiveInt | None = None, *, name: Name = "pipeline"
    ) -> None:
        """Wraps 2 * num_stages barriers, which `init_mbars` initialises: `ptr`, or those from the
        pointer `ptr` on.

        Raises:
            TraceError: another number of barriers, or barriers that another pipeline has.
        """
        if num_stages is not None and (type(num_stages) is not int or num_stages < 1):
            raise TraceError(f"a pipeline has at least one stage, got {num_stages!r}", caller())
        storage, start, have = array_of(
            ptr, None if num_stages is None else 2 * num_stages, f"a pipeline '{name}'"
        )
        stages = have // 2 if num_stages is None else num_stages
        if have != 2 * stages:
            raise TraceError(
                f"a pipeline of {stages} stages needs {2 * stages} barriers, the array has {have}",
                caller(),
            )
        self.num_stages = stages
        self._take(storage, start, stages, name)
        self._producer = PipelineState(self._tracer, stages, 1, f"{name}_producer")
        self._consumer = PipelineState(self._tracer, stages, 0, f"{name}_consumer")

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        num_stages: PositiveInt,
        *,
        producer_arrivals: int | None = None,
        consumer_arrivals: int | None = None,
        name: Name = "pipeline",
    ) -> ProducerConsumerPipeline:
        """Shared memory, barriers and pipeline in one call. Arrival counts are derived from the
        kernel unless given.

        Raises:
            CountError: (at the end of the trace) a given count contradicts the arrivals that the
                roles make, or none can be derived.
        """
        if not isinstance(num_stages, int) or num_stages < 1:
            raise TraceError(f"a pipeline has at least one stage, got {num_stages!r}", caller())
        pipe = cls(SMemArray(ctx, SharedMemBarrier, 2 * num_stages, name), name=name)
        pipe.init_mbars(producer_arrivals, consumer_arrivals)
        return pipe

    def init_mbars(
        self, producer_arrive_count: int | None, consumer_arrive_count: int | None
    ) -> None:
        """Initialises full[i] with `producer_arrive_count` and empty[i] with
        `consumer_arrive_count`; None derives it.

        In set-up code one lane is elected, and the fence and the CTA or cluster barrier follow
        before roles start.
        """
        open_barriers(self._tracer, self._full, "producer", producer_arrive_count)
        open_barriers(self._tracer, self._empty, "consumer", consumer_arrive_count)

    @staticmethod
    def smem_bytes_for(num_stages: PositiveInt) -> int:
        """Shared memory of the barriers of `num_stages` stages, bytes."""
        return 2 * num_stages * BARRIER_BYTES

    def smem_bytes(self: ProducerConsumerPipeline | int) -> int:
        """Shared memory of the barriers, bytes: `pipe.smem_bytes()`, or, as the API page's static
        method, before there is a pipeline: `ProducerConsumerPipeline.smem_bytes(num_stages)`.
        """
        return ProducerConsumerPipeline.smem_bytes_for(
            self if isinstance(self, int) else self.num_stages
        )

    def copy(self) -> Self:
        """The same barriers with separate cursors, at the present positions of this pipeline's in
        this role.
        """
        other = copy.copy(self)
        other._producer, other._consumer = self._producer.copy(), self._consumer.copy()
        return other

    # -- cursors and barriers ----------------------------------------------------------

    def producer_stage(self) -> Value:
        """The stage the producer is at, 0..num_stages-1."""
        return self._producer.index()

    def consumer_stage(self) -> Value:
        """The stage the consumer is at, 0..num_stages-1."""
        return self._consumer.index()

    def producer_mbar(self, stage: Index) -> MbarPtr:
        """full[stage]: what the producer signals."""
        return self._mbar(self._full, stage)

    def consumer_mbar(self, stage: Index) -> MbarPtr:
        """empty[stage]: what the consumer signals."""
        return self._mbar(self._empty, stage)

    def _mbar(self, array: memory.BarrierArray, stage: object) -> MbarPtr:
        index = require_uniform(to_expr(self._tracer, stage), "a stage", exprs.Vary.WARP)
        if isinstance(index, exprs.Const) and not 0 <= index.value < self.num_stages:
            raise TraceError(
                f"stage {index.value} of '{self.name}', which has {self.num_stages}", caller()
            )
        return SharedMemBarrier(self._tracer, array, index)

    def producer_step(self) -> None:
        """Steps the producer to its next stage, without barrier traffic."""
        self._producer.step()

    def consumer_step(self) -> None:
        """Steps the consumer to its next stage, without barrier traffic."""
        self._consumer.step()

    def producer_advance(self, n: Extent) -> None:
        """Skips `n` stages (n >= 0, may be traced) that other threads of the role fill, without
        barrier traffic.
        """
        self._producer.advance(n)

    def consumer_advance(self, n: Extent) -> None:
        """Skips `n` stages (n >= 0, may be traced) that other warpgroups of the role use, as in
        ping-pong, without barrier traffic.
        """
        self._consumer.advance(n)

    # -- waiting -----------------------------------------------------------------------

    def wait_producer(self) -> None:
        """The CONSUMER waits until the producer has filled its stage."""
        self._wait_full()

    def wait_consumer(self) -> None:
        """The PRODUCER waits until the consumer has freed its stage; passes at once on the first
        lap.
        """
        self._wait_empty()

    def _wait_full(self) -> Value:
        stage, phase = self._consumer.read()
        wait_for(self._tracer, self._full, stage, phase)
        return stage

    def _wait_empty(self) -> Value:
        stage, phase = self._producer.read()
        wait_for(self._tracer, self._empty, stage, phase)
        return stage

    def try_wait_producer(self) -> Value:
        """Whether the producer has filled the consumer's stage; for `wait_producer_if_needed`."""
        return self._try(self._full, self._consumer)

    def try_wait_consumer(self) -> Value:
        """Whether the consumer has freed the producer's stage; for `wait_consumer_if_needed`."""
        return self._try(self._empty, self._producer)

    def _try(self, array: memory.BarrierArray, state: PipelineState) -> Value:
        t = self._tracer
        stage, phase = state.read()
        return barrier_tests.emit_test(
            t, memory.BarrierRef(array, to_expr(t, stage)), to_expr(t, phase)
        )

    def wait_producer_if_needed(self, already_ready: object) -> None:
        """The CONSUMER waits, unless `already_ready` (from `try_wait_producer`)."""
        with self._unless(already_ready):
            self._wait_full()

    def wait_consumer_if_needed(self, already_ready: object) -> None:
        """The PRODUCER waits, unless `already_ready` (from `try_wait_consumer`)."""
        with self._unless(already_ready):
            self._wait_empty()

    @contextmanager
    def _unless(self, ready: object) -> Iterator[None]:
        t = self._tracer
        block = ops.Block()
        cond = to_expr(t, unary(t, "not", ready))
        if cond.dtype is not dtypes.boolean:
            raise TraceError("already_ready is the result of a try_wait or try_acquire", caller())
        with t.open("branch", block, active=t.scope.active) as scope:
            scope.on_data = True
            scope.splits, scope.on_test = cond.vary, t.depends_on_test(cond)
            yield
        t.emit(ops.If(caller(), cond, block, ops.Block()))

    # -- combined ----------------------------------------------------------------------

    def producer_signal_and_step(self) -> None:
        """Waits for the consumer, arrives on full by every active thread, steps."""
        self._signal_and_step(self._wait_empty(), self._full)
        self._producer.step()

    def consumer_signal_and_step(self) -> None:
        """Waits for the producer, arrives on empty by every active thread, steps."""
        self._signal_and_step(self._wait_full(), self._empty)
        self._consumer.step()

    def _signal_and_step(self, stage: Value, array: memory.BarrierArray) -> None:
        t = self._tracer
        arrivals = count_arrivals(t.role.role, t.kernel.cluster_size, t.scope.active, 1, None)
        t.ledger.record(array, t.role.role, caller(), arrivals)
        t.emit(
            ops.MbarArrive(caller(), memory.BarrierRef(array, to_expr(t, stage)), exprs.const(1))
        )

    def drain_producer(self) -> None:
        """Waits until the consumer has freed every stage: num_stages times wait and step. Call it
        after the last stage, so that no arrival reaches this CTA's shared memory after the CTA has
        exited.
        """
        for _ in Context(self._tracer).range(self.num_stages):
            self._wait_empty()
            self._producer.step()

    # -- stages ------------------------------------------------------------------------

    def acquire_producer(self) -> ProducerStage:
        """Waits for a free stage; the handle must be released exactly once."""
        return ProducerStage(self, self._wait_empty())

    def acquire_consumer(self) -> ConsumerStage:
        """Waits for a filled stage; the handle must be released exactly once."""
        return ConsumerStage(self, self._wait_full())

    def produce(self) -> ProduceContext:
        """`with pipe.produce() as stage:` waits on entry, steps on exit."""
        return ProduceContext(
            self._tracer, "produce() context", self.acquire_producer, ProducerStage.release
        )

    def consume(self) -> ConsumeContext:
        """`with pipe.consume() as stage:` waits on entry; arrives (by every active thread) and
        steps on exit.
        """
        return ConsumeContext(
            self._tracer, "consume() context", self.acquire_consumer, ConsumerStage.release
        )

    def consume_explicit(self) -> ExplicitConsumeContext:
        """`with pipe.consume_explicit() as stage:` waits on entry, only steps on exit: the body
        arrives.
        """
        return ExplicitConsumeContext(
            self._tracer,
            "consume_explicit() context",
            self.acquire_consumer,
            ConsumerStage.release_without_signal,
        )


H = TypeVar("H")


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

    def release(self) -> None:
        """Ends the stage."""
        raise NotImplementedError

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
    for held in pipe._tracer.scope.held():
        if isinstance(held, StageHandle) and held.pipe is pipe and held.side == side:
            raise HandleError(
                f"{held.describe()} is still held: a second acquire would wait for the same stage"
                " and signal it twice. Release the first before acquiring the next.",
                caller(),
            )


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
            f" consumer would wait for '{handle.pipe._full.name}' forever. Where TMA loads fill"
            " the stage, call expect_bytes(n) on it before them: it is the arrival. Where ctx.store"
            " fills it, call mbar().arrive() after the stores.",
            caller(),
        )


class ConsumerStage(StageHandle):
    """A stage the consumer has acquired. `release()` advances to the next stage, after arriving on
    `mbar()` unless the body already did.
    """

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

    def __init__(
        self, tracer: Tracer, what: str, acquire: Callable[[], H], release: Callable[[H], None]
    ) -> None:
        super().__init__(tracer, what)
        self._acquire = acquire
        self._release = release

    def __enter__(self) -> H:
        self.mark_released()
        self._stage = self._acquire()
        return self._stage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._release(self._stage)


class ProduceContext(StageContext[ProducerStage]):
    """Waits for the consumer on entry, steps on exit."""


class ConsumeContext(StageContext[ConsumerStage]):
    """Waits for the producer on entry, arrives and steps on exit."""


class ExplicitConsumeContext(StageContext[ConsumerStage]):
    """Waits for the producer on entry, only steps on exit."""
