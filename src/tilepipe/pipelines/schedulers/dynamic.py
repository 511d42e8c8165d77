"""Tile schedulers that deal out tiles while the kernel runs: by cluster launch control, or by an
atomic counter.

Both have one scheduler warp: that of CTA 0 of a cluster requests the cluster's next tile. The
responses go to a ring in each CTA. Every role that iterates the schedule reads each response, and
every thread of the role then arrives on the empty barrier of CTA 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.location import caller
from tilepipe.ir.ops import RESPONSE_BYTES
from tilepipe.ir.program import Requirement
from tilepipe.lang.arguments.annotations import Index, Name
from tilepipe.lang.context.context import Context
from tilepipe.lang.control.loops import while_loop
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.tracing.scopes import Scope
from tilepipe.lang.values.scalars import Value, to_expr, traced_value
from tilepipe.lang.values.variables import Var
from tilepipe.pipelines.rings.producer_consumer import (
    ConsumerStage,
    ProducerConsumerPipeline,
    ProducerStage,
)
from tilepipe.pipelines.schedulers.static import GROUP, TileOrder, WorkTile

STAGES = 2


class DynamicScheduler(TileOrder):
    """Base class of the dynamic schedulers.

    `for tile in scheduler:` is a traced loop in every role that handles tiles. The first tile of
    cluster c is tile c of the order. At the end of an iteration the role waits for the response to
    the next request, which was made meanwhile, and leaves the loop where there is no more tile.

    Attributes:
        ring: the responses. Arrivals for a response: one on `full` of each CTA; on `empty` of CTA 0
            one by every thread that iterates the schedule, in all CTAs of the cluster. The counts
            are derived.
        throttle: `throttle_signal()` produces, `schedule()` consumes: a request is made only when
            the cluster has begun the tile before, so that no cluster takes tiles early that another
            could compute.
    """

    needs_role = True
    # whether the arrival that frees a response in CTA 0 need not release writes of this CTA
    _hands_back_relaxed = False

    def __init__(
        self,
        ctx: Context,
        tiles: tuple[object, ...],
        *,
        cluster: tuple[int, int] | None,
        raster: str,
        group: int,
        stages: int,
        name: Name,
    ) -> None:
        super().__init__(ctx, tiles, cluster=cluster, raster=raster, group=group)
        self.ring = ProducerConsumerPipeline.allocate(ctx, stages, name=name)
        self.throttle = ProducerConsumerPipeline.allocate(ctx, stages, name=f"{name}_throttle")
        self._iterated: set[str] = set()
        self._throttled: list[Scope] = []

    def __iter__(self) -> Iterator[WorkTile]:
        return iter(_Steps(self, self._tile))

    def throttle_signal(self) -> None:
        """Signals that the cluster begins a tile, so that the next may be requested. Called once
        for each tile, by the first role that needs it (the load warp): in CTA 0 of the cluster
        every thread of the role arrives, in the others none.
        """
        scope = self._ctx.tracer.scope
        if scope in self._throttled:
            raise TraceError(
                "throttle_signal() is called twice for one tile: each call permits one more"
                " request, and the role would wait for requests that are not made. Call it once,"
                " before the loads of the tile",
                caller(),
            )
        self._throttled.append(scope)
        with self._in_leader():
            self.throttle.producer_signal_and_step()

    def share(self, rank: Index, of: int) -> NoReturn:
        """Always refused: only a `StaticScheduler` has it."""
        self._static("share", "which cluster computes a tile is known only when it takes the tile")

    def ahead(self) -> NoReturn:
        """Always refused: only a `StaticScheduler` has it."""
        self._static("ahead", "the next tile is known only when this one ends")

    def _static(self, name: str, why: str) -> NoReturn:
        raise TraceError(
            f"a {type(self).__name__} has no {name}(): {why}. Take a StaticScheduler, or `for tile"
            " in work:`",
            caller(),
        )

    def schedule(self) -> None:
        """The whole body of the scheduler role, one warp: for each tile of the cluster it requests
        the next one. It is active in CTA 0 of the cluster only, and ends when all responses have
        been read in all CTAs.

            if scheduler.needs_role:

                @ctx.role("schedule", warps=1)
                def schedule(): scheduler.schedule()
        """
        role = self._ctx.tracer.role.role
        if role.warps != 1:
            raise TraceError(
                f"the role that runs schedule() is one warp; '{role.name}' has {role.warps}",
                caller(),
            )
        with self._in_leader():
            for _ in _Steps(self, lambda index: None):
                self.throttle.consumer_signal_and_step()
                with self.ring.produce() as stage:
                    self._request(stage)
            self.ring.drain_producer()

    def _in_leader(self) -> AbstractContextManager[None]:
        ctx = self._ctx
        return ctx.when(ctx.cta_rank == 0) if ctx.cluster_size > 1 else nullcontext()

    def _hand_back(self, stage: ConsumerStage) -> None:
        if self._ctx.cluster_size > 1:
            stage.mbar().arrive_cluster(0, relaxed=self._hands_back_relaxed)
        else:
            stage.arrive()

    def _read(self, stage: ConsumerStage) -> tuple[Value, Value | None]:
        """(the next tile's place in the order, whether there is one; None: if that place is below
        the number of tiles).
        """
        raise NotImplementedError

    def _request(self, stage: ProducerStage) -> None:
        """Requests a tile: the response is written to a free stage in every CTA, and signals its
        full barrier.
        """
        raise NotImplementedError


T = TypeVar("T")


@dataclass(eq=False)
class _Steps(Generic[T]):
    """The steps of a dynamic schedule in one role; yields `make(index)`, with the step's index in
    the order.
    """

    _scheduler: DynamicScheduler
    _make: Callable[[Value], T]

    def __iter__(self) -> Iterator[T]:
        scheduler, ctx, t = self._scheduler, self._scheduler._ctx, self._scheduler._ctx.tracer
        if t.role.name in scheduler._iterated:
            raise TraceError(
                f"role '{t.role.name}' iterates a dynamic schedule twice: the second loop would"
                " wait for responses that the first has read",
                caller(),
            )
        scheduler._iterated.add(t.role.name)
        total = ctx.let(scheduler._total, "steps")
        now = Var(t, ctx.cluster_id, None, "work")
        more = Var(t, ctx.cluster_id < total, None, "more_work")

        def begin() -> T:
            index = t.local("work_now", dtypes.int32, nonneg=True)
            t.emit(ops.Read(caller(), index, now.variable))
            return self._make(traced_value(t, index))

        def end() -> None:
            with scheduler.ring.consume_explicit() as stage:
                index, valid = scheduler._read(stage)
                now.set(index)
                more.set(index < total if valid is None else valid & (index < total))
                scheduler._hand_back(stage)

        return while_loop(t, more, begin, end)


class ClcScheduler(DynamicScheduler):
    """Tiles by cluster launch control (Blackwell): the grid has a cluster for each step of the
    order; a cluster that runs takes over those that have not started, one at a time (PTX ISA,
    clusterlaunchcontrol). So CTAs start where an SM is free, as in an ordinary launch, and none
    pays for its set-up twice.

    Args: those of `TileOrder`. stages: responses in the ring.

    Raises (when bound):
        BindError: the grid has fewer clusters than there are steps.
    """

    def __init__(
        self,
        ctx: Context,
        tiles: tuple[object, ...],
        *,
        cluster: tuple[int, int] | None = None,
        raster: str = "grouped",
        group: int = GROUP,
        stages: int = STAGES,
    ) -> None:
        super().__init__(
            ctx, tiles, cluster=cluster, raster=raster, group=group, stages=stages, name="work"
        )
        self._responses = ctx.smem((stages, 4), dtypes.int32, swizzle=0, name="responses")[0]
        t = ctx.tracer
        enough = to_expr(t, ctx.num_clusters >= self._total)
        message = (
            "ClcScheduler gives every cluster of the grid its own tiles first: {} clusters for"
            " {} steps of tiles would leave some out"
        )
        t.kernel.requirements.append(
            Requirement(
                caller(), enough, message, (to_expr(t, ctx.num_clusters), to_expr(t, self._total))
            )
        )

    # The threads have read the response, and have fenced the read against the next one, a write of
    # the async proxy. No other access is published: in its example of try_cancel the PTX ISA has
    # fence.proxy.async and a relaxed arrival. `.release.cluster` would be a fence of the whole GPU
    # (MEMBAR.ALL.GPU) by every thread, for every tile.
    _hands_back_relaxed = True

    def _read(self, stage: ConsumerStage) -> tuple[Value, Value | None]:
        valid, cluster = self._ctx.clc_query(self._responses.rows(stage.index(), 1))
        self._ctx.fence_proxy_async()  # the next response is written by the async proxy
        return cluster, valid

    def _request(self, stage: ProducerStage) -> None:
        ctx, size = self._ctx, self._ctx.cluster_size
        if size > 1:
            mbar = stage.mbar()
            with ctx.when(ctx.lane < size):  # arming publishes nothing
                mbar._expect(mbar._at(ctx.lane), RESPONSE_BYTES, arrive=True, sem="relaxed")
        with ctx.elect_one():
            if size == 1:
                stage.mbar().expect_bytes(RESPONSE_BYTES)
            ctx.clc_try_cancel(
                self._responses.rows(stage.index(), 1), stage.mbar(), multicast=size > 1
            )


class AtomicScheduler(DynamicScheduler):
    """Tiles by a counter in global memory, for a persistent grid on any GPU: cluster c begins with
    tile c, and each further tile is the number that the counter gives.

    Args: those of `TileOrder`, and counter: int32, one element, of this kernel alone. It must be 0
        when the kernel starts; the
            kernel leaves it at 0.
        stages: responses in the ring.

    Raises (when run with a NumPy counter):
        BindError: the counter is not 0.
    """

    def __init__(
        self,
        ctx: Context,
        counter: GlobalTensor,
        tiles: tuple[object, ...],
        *,
        cluster: tuple[int, int] | None = None,
        raster: str = "grouped",
        group: int = GROUP,
        stages: int = STAGES,
    ) -> None:
        if (
            not isinstance(counter, GlobalTensor)
            or counter.dtype is not dtypes.int32
            or counter.rank != 1
        ):
            raise TraceError(
                "the counter of an AtomicScheduler is an int32 tensor of one element, got"
                f" {counter!r}",
                caller(),
            )
        if any(
            requirement.holds is counter.param for requirement in ctx.tracer.kernel.requirements
        ):
            raise TraceError(
                f"another AtomicScheduler of this kernel draws from '{counter.param.name}': give"
                " each a counter",
                caller(),
            )
        super().__init__(
            ctx, tiles, cluster=cluster, raster=raster, group=group, stages=stages, name="work"
        )
        self._counter = counter
        self._answers = ctx.smem((1, stages), dtypes.int32, swizzle=0, name="answers")[0]
        message = (
            f"the counter '{counter.param.name}' of an AtomicScheduler holds {{}}; it must be 0"
            " when the kernel starts, or tiles are lost"
        )
        ctx.tracer.kernel.requirements.append(Requirement(caller(), counter.param, message))

    def _read(self, stage: ConsumerStage) -> tuple[Value, Value | None]:
        return self._ctx.load(self._answers[0, stage.index()]), None

    def _request(self, stage: ProducerStage) -> None:
        ctx, at = self._ctx, stage.index()
        with ctx.elect_one():
            ticket = ctx.atomic_add(self._counter[0], 1)
            # each tile takes one ticket, so this is the last: set the counter back to 0
            with ctx.when(ticket == self._total - 1):
                ctx.atomic_add(self._counter[0], -self._total)
            for cta in range(ctx.cluster_size):
                answers = self._answers.on(cta) if ctx.cluster_size > 1 else self._answers
                ctx.store(answers[0, at], ticket + ctx.num_clusters)
                if ctx.cluster_size > 1:
                    stage.mbar().arrive_cluster(cta)
                else:
                    stage.mbar().arrive()
