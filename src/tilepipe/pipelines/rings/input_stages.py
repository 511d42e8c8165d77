"""Stages of an InputTilePipeline: what its producer fills, and what its consumer uses."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    NonNegativeInt,
    TransactionBytes,
)
from tilepipe.lang.asynchronous.commits import Commit, arrival_op
from tilepipe.lang.asynchronous.wgmma import mma_commit, wgmma_wait
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.values.scalars import Value
from tilepipe.pipelines.barriers.mbarriers import MbarPtr
from tilepipe.pipelines.barriers.pairs import (
    commit_by_one_lane,
    elected_cta,
    leader_cta,
    pair_mask,
    require_both_signalled,
)
from tilepipe.pipelines.rings.lag import LagQueue
from tilepipe.pipelines.rings.payloads import TilePayload
from tilepipe.pipelines.rings.stages import StageHandle, check_announced

if TYPE_CHECKING:
    from tilepipe.pipelines.rings.input_tiles import InputTilePipeline


class InputStage(StageHandle):
    """One acquired stage of an input pipeline.

    Attributes:
        PipelineType: what `pipeline_ptr` is. inputs: the pipeline.
    """

    PipelineType: ClassVar[type[InputTilePipeline]]

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
            f" consumers wait; got {barrier!r} for stage"
            f" {stage!r}. Pass `inputs.producer_mbar(stage)`, or leave it out.",
            caller(),
        )


class InputConsumerStage(InputStage):
    """A stage to use. `release()` steps; Where the body has neither committed nor arrived on
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
                " paths, or in other iterations, it would be"
                " signalled never or twice. Commit in the block that acquired it.",
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


class _Entered:
    """`with` support for stages that are acquired before they are entered: entering does nothing,
    leaving releases.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.release()

    def release(self) -> None:
        """Ends the stage."""
        raise AssertionError


class ProducerTiles(_Entered, InputProducerStage):
    """`with producer.acquire() as tiles:` an InputProducerStage that releases itself (seed page
    ProducerTiles).
    """

    how_to_release = (
        "It was obtained and never entered: use it as `with producer.acquire() as tiles:`."
    )

    def release(self) -> None:
        InputProducerStage.release(self)


class ConsumerTiles(_Entered, InputConsumerStage):
    """`with consumer.acquire() as tiles:` an InputConsumerStage that releases itself."""

    how_to_release = (
        "It was obtained and never entered: use it as `with consumer.acquire() as tiles:`."
    )

    def release(self) -> None:
        InputConsumerStage.release(self)
