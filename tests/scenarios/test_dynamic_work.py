"""Work that clusters share out while they run: C6, and what goes wrong with it, in a protocol
written out by hand.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import Array, at, faults, refuses, refuted, total, verified
from tilepipe.lang.values.variables import Var

ONE_CLUSTER = tp.Chip(name="one", sms=4, clusters=((2, 1), (4, 1)))  # of CTAs that take 200 KB


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel(grid=lambda clusters, size: clusters * size, cluster=lambda size: size)
def shared_out(
    ctx: tp.Context, out: Any, *, clusters: int, size: int, stages: int, room: int, plant: str
) -> None:
    """out[cluster, rank] = 1 for each cluster of the grid, by whichever one runs in its place.
    `plant`: the mistake in it.
    """
    if room:
        ctx.smem((room, 256), "float32", name="room")
    typed = {"count": 32 + 32 * size - 1}.get(plant)
    work = tp.ProducerConsumerPipeline.allocate(ctx, stages, consumer_arrivals=typed, name="work")
    throttle = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="throttle")
    responses = ctx.smem((stages, 4), tp.int32, swizzle=0, name="responses")[0]

    def in_leader() -> Any:
        return ctx.when(ctx.cta_rank == 0) if size > 1 else nullcontext()

    def ask() -> None:
        with work.produce() as stage:
            stage.mbar().arrive_and_expect_bytes(16, ctx.lane, ctx.lane < size)  # <arm>
            with ctx.elect_one():
                response = responses.rows(stage.index(), 1)
                ctx.clc_try_cancel(response, stage.mbar(), multicast=size > 1)  # <ask>

    def hear(now: Var, more: Var) -> None:
        with work.consume_explicit() as stage:
            valid, cluster = ctx.clc_query(responses.rows(stage.index(), 1))  # <query>
            now.set(cluster)
            more.set(valid)
            if "no fence" not in plant:
                ctx.fence_proxy_async()
            stage.mbar().arrive_cluster(0, relaxed="relaxed" in plant)  # <hand back>

    def signal() -> None:
        with in_leader():
            throttle.producer_signal_and_step()  # <signal>

    @ctx.role("schedule", warps=1)
    def schedule() -> None:
        with in_leader():
            now, more = ctx.var(ctx.cluster_id), ctx.var(True)
            for _ in ctx.loop_while(more):
                throttle.consumer_signal_and_step()  # <throttle>
                ask()
                hear(now, more)
            if plant == "asks again":
                ask()
            if plant != "no drain":
                work.drain_producer()  # <drain>

    @ctx.role("use", warps=1)
    def use() -> None:
        with ctx.when(ctx.cta_rank == 0) if plant == "odd CTA sits out" else nullcontext():
            now, more = ctx.var(ctx.cluster_id), ctx.var(True)
            for _ in ctx.loop_while(more):
                mine = ctx.let(now.get(), "mine")
                if plant == "eager":
                    hear(now, more)
                signal()
                with ctx.elect_one():
                    ctx.store(out[mine, ctx.cta_rank], 1)
                if plant == "no wait":
                    ctx.clc_query(responses.rows(work.consumer_stage(), 1))  # <no wait>
                if plant != "eager":
                    hear(now, more)
                if plant == "stops early":
                    more.set(False)


def bind(
    plant: str = "", clusters: int = 6, size: int = 2, stages: int = 2, room: int = 200
) -> tuple[tp.Program, Array]:
    out = np.zeros((clusters, size), np.int32)
    program = shared_out.bind(
        out, clusters=clusters, size=size, stages=stages, room=room, plant=plant, chip=ONE_CLUSTER
    )
    return program, out


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 200])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_c6_one_scheduler_warp_which_is_also_a_consumer(size: int, stages: int, room: int) -> None:
    for seed in range(5):
        program, out = bind("", 7, size, stages, room)
        assert {a.name: a.count for a in program.kernel.barriers}["work.empty"] == 32 + 32 * size
        run = program.run(seed=seed)
        assert out.all()
        assert not run.advice
        leaders = range(0, 7 * size, size)
        assert sum(total(run, "work.full", cta) for cta in leaders) == 7, (
            "one request for each cluster that was worked for"
        )
        assert [total(run, "work.empty", cta) for cta in leaders] == [
            total(run, "work.full", cta) for cta in leaders
        ]


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize(("size", "clusters"), [(1, 5), (2, 4)])
def test_c6_in_every_order(size: int, clusters: int, stages: int) -> None:
    """Refused requests included, and every way for the clusters that run to share out those that
    have not started.
    """
    verdict = verified(bind("", clusters, size, stages)[0])
    assert verdict.method == "explored"
    assert verdict.traces > 1


def test_a_cluster_does_the_work_of_all_that_have_not_started() -> None:
    program, out = bind(clusters=5)
    run = program.run()
    assert out.all()
    assert [total(run, "work.full", cta) for cta in range(0, 10, 2)] == [5, 0, 0, 0, 0]
    assert run.completions["work.full"][2:] == [[]] * 8, "cancelled: they never ran"


# -- mistakes --------------------------------------------------------------------------


def test_a_role_that_stops_early() -> None:
    """Roles disagree on whether there is more work."""
    words = (
        "deadlock",
        "role 'schedule'",
        "throttle.full",
        where("throttle"),
        where("signal"),
        "role 'use'",
        "has returned",
    )
    faults(
        bind("stops early", size=1)[0], tp.DeadlockError, *words, "trip counts of the roles differ"
    )


@pytest.mark.slow
def test_a_cta_that_does_not_listen() -> None:
    words = (
        (
            "CTA 1 (rank 1 in its cluster) exits while role 'schedule' of CTA 0 can still "
            "arrive on work.full"
        ),
        where("arm"),
    )
    faults(bind("odd CTA sits out", clusters=1)[0], tp.ExitError, *words)
    unordered = (
        "race on responses of CTA",
        where("ask"),
        "must wait for that phase, and hand the response back",
    )
    faults(bind("odd CTA sits out")[0], tp.RaceError, *unordered, seeds=[0])


@pytest.mark.parametrize("size", [1, 2])
def test_fetching_before_the_throttle_is_told(size: int) -> None:
    """The scheduler waits until the load warp has begun a tile, and the load warp for the tile
    after it.
    """
    words = (
        "deadlock",
        "role 'use'",
        "role 'schedule'",
        "work.full",
        "throttle.full",
        where("throttle"),
        where("signal"),
        "cycle:",
    )
    faults(bind("eager", size=size)[0], tp.DeadlockError, *words)


@pytest.mark.parametrize("size", [1, 2])
def test_no_proxy_fence_between_a_response_and_the_next_request(size: int) -> None:
    words = (
        "race between proxies on responses",
        "clc_query",
        "clc_try_cancel",
        where("query"),
        where("ask"),
        "ctx.fence_proxy_async()",
    )
    faults(bind("no fence", clusters=20, size=size)[0], tp.RaceError, *words)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2])
def test_a_response_is_handed_back_by_a_relaxed_arrive(stages: int) -> None:
    """The read is fenced, and that is all there is to hand over (PTX ISA, the example of
    clusterlaunchcontrol.try_cancel).
    """
    verified(bind("relaxed", 4, 2, stages)[0])


def test_a_relaxed_arrive_hands_over_fenced_reads_only() -> None:
    words = ("responses of CTA", "clc_query", "clc_try_cancel", where("query"), where("ask"))
    faults(bind("relaxed, no fence", clusters=20, size=2)[0], tp.RaceError, *words, seeds=(0, 1))


def test_a_count_that_leaves_a_thread_out() -> None:
    refuses(
        lambda: bind("count"),
        tp.CountError,
        "'work.empty' is given a count of 95, but each phase gets 96 arrivals",
        "role 'schedule'",
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_reading_a_response_before_the_wait(size: int) -> None:
    faults(
        bind("no wait", size=size)[0],
        tp.TilepipeError,
        where("no wait"),
        "responses",
        "clc_query",
        seeds=range(6),
    )
    kinds = set()
    for seed in range(6):
        with pytest.raises((tp.RaceError, tp.PoisonError)) as caught:
            bind("no wait", size=size)[0].run(seed=seed)
        kinds.add(caught.type)
    assert tp.RaceError in kinds
    refuted(
        bind("no wait", size=size)[0], tp.TilepipeError, where("no wait"), "responses", "clc_query"
    )


@pytest.mark.slow
def test_asking_again_after_a_refusal() -> None:
    words = (
        "asks for another cluster although it has seen a request",
        where("ask"),
        "undefined",
        "stop at the first",
    )
    faults(bind("asks again")[0], tp.SimFault, *words)


@pytest.mark.slow
def test_leaving_without_a_drain() -> None:
    words = (
        "exits while role 'use' of CTA",
        "can still arrive on work.empty",
        where("hand back"),
    )
    faults(bind("no drain")[0], tp.ExitError, *words, seeds=range(12))
