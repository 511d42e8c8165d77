"""StagedPipeline: a ring of K or V tiles whose stages have parts, each with its own barriers.

A stage holds one tile of `num_qk_stages` parts along the depth. Each part has a full and an empty
barrier, so that an MMA starts when the first part has landed, and the load of a part when the MMA
has read it. One step of the state is a whole stage. Storage is all full barriers, [stage][part],
then all empty ones.
"""

from __future__ import annotations

from typing import Self

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory
from tilepipe.ir.location import Loc, caller
from tilepipe.lang.arguments.annotations import Index, Name, Predicate
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.context.context import Context
from tilepipe.lang.tracing.scopes import RoleState
from tilepipe.lang.values.scalars import Value, require_integer, require_uniform, to_expr
from tilepipe.pipelines.barriers.arrays import Barriers, SMemArray, array_of
from tilepipe.pipelines.barriers.mbarriers import MbarPtr, SharedMemBarrier, open_barriers
from tilepipe.pipelines.barriers.pairs import commit
from tilepipe.pipelines.rings.ring import BarrierRing, wait_for
from tilepipe.pipelines.state import PipelineState


class StagedPipeline(BarrierRing):
    """`num_kv_stages` stages of `num_qk_stages` parts each (API page TMAProducerPipeline, field
    `pipeline`).

    `KPipeline`, `VPipeline` and `KVPipeline` are this class; V has one part.

    Attributes:
        mbar: the 2 · num_stages barriers: the array, or the pointer to the first.
        state: the position in the ring. It starts at phase 0, as a consumer's; that of
            `copy(phase=1)` starts as a producer's.
        num_stages: num_kv_stages · num_qk_stages.
        full, empty: pointers to the two halves of `mbar`.
    """

    def __init__(
        self,
        mbar: Barriers,
        num_kv_stages: int,
        num_qk_stages: int = 1,
        *,
        phase: int = 0,
        name: Name = "kv",
    ) -> None:
        """Wraps 2 · num_kv_stages · num_qk_stages barriers, which `init_mbars` initialises: an
        array of so many, or those from a pointer on.

        Raises:
            TraceError: a number of stages below 1, an array of another size, or barriers that
                another pipeline has.
        """
        require_positive(num_kv_stages=num_kv_stages, num_qk_stages=num_qk_stages)
        self.num_kv_stages = num_kv_stages
        self.num_qk_stages = num_qk_stages
        need = 2 * num_kv_stages * num_qk_stages
        storage, start, have = array_of(
            mbar, need if isinstance(mbar, SharedMemBarrier) else None, f"'{name}'"
        )
        if have != need:
            raise TraceError(
                f"'{name}' needs 2 × {num_kv_stages} stages × {num_qk_stages} parts = {need}"
                f" barriers (full and empty), the array has {have}",
                caller(),
            )
        self.num_stages = num_kv_stages * num_qk_stages
        self._take(storage, start, self.num_stages, name)
        self.mbar = mbar
        self.state = PipelineState(
            self._tracer, num_kv_stages, phase, f"{name}_{'producer' if phase else 'consumer'}"
        )
        self._phase = phase
        self._other: Self | None = None
        # which view, K's or V's, has drained the ring in a role, and where
        self._drained: dict[RoleState, tuple[bool, Loc]] = {}

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        num_kv_stages: int,
        num_qk_stages: int = 1,
        *,
        producer_arrivals: int | None = None,
        consumer_arrivals: int | None = None,
        name: Name = "kv",
    ) -> Self:
        """Barriers, initialisation and pipeline in one call. Arrival counts are derived from the
        kernel unless given: each role signals a part once a phase, at whichever of its lines.

        Raises:
            CountError: (when the kernel is finished) a given count contradicts the arrivals that
                the roles make, or none can be derived.
        """
        require_positive(num_kv_stages=num_kv_stages, num_qk_stages=num_qk_stages)
        pipe = cls(
            SMemArray(ctx, SharedMemBarrier, 2 * num_kv_stages * num_qk_stages, name),
            num_kv_stages,
            num_qk_stages,
            name=name,
        )
        pipe.init_mbars(producer_arrivals, consumer_arrivals)
        return pipe

    def init_mbars(
        self, producer_arrive_count: int | None = None, consumer_arrive_count: int | None = None
    ) -> None:
        """Initialises each full barrier with the one, each empty barrier with the other count; None
        derives it. In set-up code.
        """
        open_barriers(self._tracer, self._full, "producer", producer_arrive_count, flat=True)
        open_barriers(self._tracer, self._empty, "consumer", consumer_arrive_count, flat=True)

    def num_mbars(self) -> int:
        """Barriers: 2 · num_stages."""
        return 2 * self.num_stages

    def copy(self, phase: int | None = None) -> Self:
        """The same barriers with a separate state, at the position of this one's. With `phase` it
        is at the start of the ring: a producer's with 1, a consumer's with 0.
        """
        made = type(self)(
            self.mbar,
            self.num_kv_stages,
            self.num_qk_stages,
            phase=self._phase if phase is None else phase,
            name=self.name,
        )
        if phase is None:
            made.state = self.state.copy()
        return made

    def other_side(self) -> Self:
        """The same barriers with the state of the other side, at the start of the ring; always the
        same one, for two views of a side that step one place.
        """
        if self._other is None:
            self._other = self.copy(phase=1 - self._phase)
        return self._other

    # -- barriers ----------------------------------------------------------------------

    def producer_mbar(self, idx: Index | None = None, *, qk_stage: int = 0) -> MbarPtr:
        """The full barrier of part `qk_stage` of stage `idx` (the present one): what loads
        signal.
        """
        return self._mbar(self._full, self.state.index() if idx is None else idx, qk_stage)

    def consumer_mbar(self, idx: Index | None = None, *, qk_stage: int = 0) -> MbarPtr:
        """The empty barrier of part `qk_stage` of stage `idx` (the present one): what MMAs
        signal.
        """
        return self._mbar(self._empty, self.state.index() if idx is None else idx, qk_stage)

    def _mbar(self, array: memory.BarrierArray, idx: object, qk_stage: int) -> MbarPtr:
        index = require_uniform(
            require_integer(to_expr(self._tracer, idx), "a stage"), "a stage", exprs.Vary.WARP
        )
        if isinstance(index, exprs.Const) and not 0 <= index.value < self.num_kv_stages:
            raise TraceError(
                f"stage {index.value} of '{self.name}', which has {self.num_kv_stages}", caller()
            )
        return SharedMemBarrier(
            self._tracer,
            array,
            to_expr(self._tracer, self._part(Value(self._tracer, index), qk_stage)),
        )

    def _part(self, index: Value, qk_stage: int | None) -> Value:
        q = self.checked_part(self.num_qk_stages - 1 if qk_stage is None else qk_stage)
        return index if self.num_qk_stages == 1 else index * self.num_qk_stages + q

    def checked_part(self, qk_stage: int) -> int:
        """The number of a part.

        Raises:
            TraceError: it is no Python integer, or there is no such part.
        """
        if type(qk_stage) is not int or not 0 <= qk_stage < self.num_qk_stages:
            raise TraceError(
                f"qk_stage={qk_stage!r}: a stage of '{self.name}' has {self.num_qk_stages} parts, 0"
                f" to {self.num_qk_stages - 1}, chosen while tracing: loop over them with a Python"
                " range",
                caller(),
            )
        return qk_stage

    # -- waiting -----------------------------------------------------------------------

    def producer_acquire(self, *, qk_stage: int | None = None) -> None:
        """The PRODUCER waits until part `qk_stage` (the last) of its stage has been freed; passes
        at once on the first lap.

        Raises:
            TraceError: the state is a consumer's, so the first lap would wait for a release of
                tiles that have never been loaded.
        """
        if not self._phase:
            raise TraceError(
                "producer_acquire with a state that starts at phase 0: the first lap of"
                f" '{self.name}' would wait for a release of tiles that have never been loaded. A"
                " producer starts at phase 1: take `pipe.copy(phase=1)`, or a TMAProducerPipeline.",
                caller(),
            )
        self._wait(self._empty, qk_stage)

    def consumer_wait(self, *, qk_stage: int | None = None) -> None:
        """The CONSUMER waits until part `qk_stage` (the last) of its stage has landed.

        Raises:
            TraceError: the state is a producer's, so that the first lap would read tiles that have
                not landed.
        """
        if self._phase:
            raise TraceError(
                f"consumer_wait with a state that starts at phase 1: the first lap of '{self.name}'"
                " would pass before anything has landed. A consumer starts at phase 0: take"
                " `pipe.copy(phase=0)`, or a TMAConsumerPipeline.",
                caller(),
            )
        self._wait(self._full, qk_stage)

    def _wait(self, array: memory.BarrierArray, qk_stage: int | None) -> None:
        stage, phase = self.state.read()
        wait_for(self._tracer, array, self._part(stage, qk_stage), phase)

    def drain_producer(self) -> None:
        """Waits until every part of every stage has been freed. The producer calls it last, so that
        no arrival reaches this CTA's shared memory after the CTA has exited.
        """
        for _ in Context(self._tracer).range(self.num_kv_stages):
            for q in range(self.num_qk_stages):
                self.producer_acquire(qk_stage=q)
            self.state.step()

    # -- releasing ---------------------------------------------------------------------

    def consumer_release(self, *, qk_stage: int | None = None, e: Predicate | None = None) -> None:
        """Frees part `qk_stage` (the last) once the MMAs issued so far have read it (`commit`);
        steps when it is the last.
        """
        q = self.checked_part(self.num_qk_stages - 1 if qk_stage is None else qk_stage)
        commit(self.consumer_mbar(qk_stage=q), e)
        if q == self.num_qk_stages - 1:
            self.state.step()

    def consumer_release_at(self, idx: Index | None, e: Predicate | None = None) -> None:
        """Frees the last part of stage `idx`, which is not the present one, and does not step: for
        a tile that is released later than the next ones are waited for.
        """
        commit(self.consumer_mbar(idx, qk_stage=self.num_qk_stages - 1), e)


# The API page's names for it.
KPipeline = StagedPipeline
VPipeline = StagedPipeline
KVPipeline = StagedPipeline
