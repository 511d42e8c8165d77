"""RolePipeline: one side of a ring between two roles whose stages have any number of barriers on
each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from tilepipe.errors import TraceError
from tilepipe.ir import memory
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import CtaGroup, Name, PositiveInt, Predicate, Several
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.context.context import Context
from tilepipe.lang.values.scalars import to_expr
from tilepipe.pipelines.barriers.arrays import SMemArray
from tilepipe.pipelines.barriers.mbarriers import MbarPtr, SharedMemBarrier, open_barriers
from tilepipe.pipelines.barriers.pairs import commit, umma_arrive_leader_cta
from tilepipe.pipelines.rings.ring import wait_for
from tilepipe.pipelines.state import PipelineState

Arrays = Annotated[
    Sequence[SMemArray[SharedMemBarrier]],
    Several("SMemArray", "a tuple of arrays of barriers, one for each sub-stage"),
]


class RolePipeline:
    """A producer's or a consumer's side (`ProducerPipeline`, `ConsumerPipeline`).

    The producer: `acquire(sub)` for the consumer barriers it needs, then `commit()`, which arrives
    and steps, or `commit_mma()` and `step()`. The consumer: `wait(sub)`, then `release(sub)`, which
    arrives and steps, or `release_no_step(sub)` and `step()`.

    Attributes:
        producer_mbars, consumer_mbars: an array of num_stages barriers for each sub-stage: what the
            producer, the consumer signals.
        state: the place in the ring; a producer's starts at phase 1.
    """

    KIND: ClassVar[bool | None] = None  # True: a producer's, False: a consumer's

    def __init__(
        self,
        producer_mbars: Arrays,
        consumer_mbars: Arrays,
        *,
        is_producer: bool | None = None,
        cta_group: CtaGroup = 1,
        name: Name = "roles",
    ) -> None:
        """Over arrays of one length, that of the ring.

        Raises:
            TraceError: no arrays, or of different lengths.
        """
        self.is_producer = self.KIND is not False if is_producer is None else is_producer
        if self.KIND is not None and self.is_producer is not self.KIND:
            raise TraceError(
                f"{type(self).__name__} is given is_producer={is_producer!r}", caller()
            )
        lengths = {len(array) for array in (*producer_mbars, *consumer_mbars)}
        if not producer_mbars or not consumer_mbars or len(lengths) != 1:
            raise TraceError(
                f"'{name}': each side has an array of barriers for each of its sub-stages, all as"
                f" long as the ring; got {[len(x) for x in producer_mbars]} and"
                f" {[len(x) for x in consumer_mbars]}",
                caller(),
            )
        self.producer_mbars, self.consumer_mbars = tuple(producer_mbars), tuple(consumer_mbars)
        self.num_stages = lengths.pop()
        self.cta_group = cta_group
        self.name = name
        self._tracer = self.producer_mbars[0]._tracer
        side = "producer" if self.is_producer else "consumer"
        self.state = PipelineState(
            self._tracer, self.num_stages, int(self.is_producer), f"{name}_{side}"
        )

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        num_stages: PositiveInt,
        *,
        producer_sub_stages: int = 1,
        consumer_sub_stages: int = 1,
        producer_arrivals: int | None = None,
        consumer_arrivals: int | None = None,
        cta_group: CtaGroup = 1,
        is_producer: bool | None = None,
        name: Name = "roles",
    ) -> Self:
        """Barriers, initialisation and this side; `other()` is the opposite one. The count of each
        sub-stage is derived from the kernel unless given, so sub-stages of one side may have
        different ones.
        """
        require_positive(
            num_stages=num_stages,
            producer_sub_stages=producer_sub_stages,
            consumer_sub_stages=consumer_sub_stages,
        )

        def side(word: str, which: str, subs: int, count: int | None) -> Arrays:
            names = [f"{name}.{word}" + (f"{sub}" if subs > 1 else "") for sub in range(subs)]
            arrays = [SMemArray(ctx, SharedMemBarrier, num_stages, array) for array in names]
            for array in arrays:
                open_barriers(ctx.tracer, array.segments[0], which, count, flat=True)
            return arrays

        full = side("full", "producer", producer_sub_stages, producer_arrivals)
        empty = side("empty", "consumer", consumer_sub_stages, consumer_arrivals)
        return cls(full, empty, is_producer=is_producer, cta_group=cta_group, name=name)

    def producer(self) -> ProducerPipeline:
        """The producer's side of the same barriers, with a separate state."""
        return ProducerPipeline(
            self.producer_mbars, self.consumer_mbars, cta_group=self.cta_group, name=self.name
        )

    def consumer(self) -> ConsumerPipeline:
        """The consumer's side of the same barriers, with a separate state."""
        return ConsumerPipeline(
            self.producer_mbars, self.consumer_mbars, cta_group=self.cta_group, name=self.name
        )

    # -- barriers ----------------------------------------------------------------------

    def producer_mbar(self, sub: int = 0) -> MbarPtr:
        """The barrier of the present stage that the producer signals."""
        return self._mbar(self.producer_mbars, sub)

    def consumer_mbar(self, sub: int = 0) -> MbarPtr:
        """The barrier of the present stage that the consumer signals."""
        return self._mbar(self.consumer_mbars, sub)

    def _mbar(self, arrays: Arrays, sub: int) -> MbarPtr:
        return SharedMemBarrier(
            self._tracer, self._array(arrays, sub), to_expr(self._tracer, self.state.index())
        )

    def _array(self, arrays: Arrays, sub: int) -> memory.BarrierArray:
        if type(sub) is not int or not 0 <= sub < len(arrays):
            raise TraceError(
                f"sub-stage {sub!r} of '{self.name}', whose stages have {len(arrays)} on that side",
                caller(),
            )
        return arrays[sub].segments[0]

    def _wait(self, arrays: Arrays, sub: int) -> None:
        array = self._array(arrays, sub)
        wait_for(self._tracer, array, *self.state.read())

    def _side(self, what: str, producer: bool) -> None:
        if self.is_producer is not producer:
            mine, other = ("producer", "consumer") if self.is_producer else ("consumer", "producer")
            raise TraceError(
                f"{what} is the {other}'s; this is the {mine}'s side of '{self.name}': take"
                f" `pipe.{other}()`",
                caller(),
            )

    # -- the producer ------------------------------------------------------------------

    def acquire(self, sub: int = 0) -> None:
        """The producer waits until the consumer has released sub-stage `sub`; passes at once on the
        first lap.
        """
        self._side("acquire", True)
        self._wait(self.consumer_mbars, sub)

    def commit(self, sub: int = 0) -> None:
        """Every active thread of the producer arrives; steps."""
        self._side("commit", True)
        self.producer_mbar(sub).arrive()
        self.state.step()

    def commit_mma(self, sub: int = 0, e: Predicate | None = None) -> None:
        """One arrival when the MMAs issued so far are done (`barriers.pairs.commit`), in both CTAs
        of a pair. Does not step.
        """
        self._side("commit_mma", True)
        commit(self.producer_mbar(sub), e)

    # -- the consumer ------------------------------------------------------------------

    def wait(self, sub: int = 0) -> None:
        """The consumer waits until the producer has committed sub-stage `sub`."""
        self._side("wait", False)
        self._wait(self.producer_mbars, sub)

    def release(self, sub: int = 0) -> None:
        """`release_no_step`, and `step`."""
        self.release_no_step(sub)
        self.state.step()

    def release_no_step(self, sub: int = 0) -> None:
        """Every active thread of the consumer arrives: in a pair of CTAs on the even one's
        barrier.
        """
        self._side("release", False)
        mbar = self.consumer_mbar(sub)
        if self.cta_group == 2:
            umma_arrive_leader_cta(mbar)
        else:
            mbar.arrive()

    def step(self) -> None:
        """The next stage."""
        self.state.step()


class ProducerPipeline(RolePipeline):
    """The producer's side of a `RolePipeline`."""

    KIND = True


class ConsumerPipeline(RolePipeline):
    """The consumer's side of a `RolePipeline`."""

    KIND = False
