"""What a run records, of kernels whose times are known."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.timeline.kernels import COPY, LATENCY, copying, recorded
from tilepipe.errors import BindError, DeadlockError
from tilepipe.registry.catalog import find
from tilepipe.timeline import Event, Release, Timeline, Wait

LOADED = COPY + LATENCY  # cycles from the issue of a copy to its end, with the TMA unit free


def cycles(program: tp.Program, us: float) -> float:
    return us * program.launch_args.chip.clock_ghz * 1e3


def of(found: Timeline, cta: int, role: str, kind: str) -> list[Event]:
    return [e for e in found.events if (e.cta, e.role, e.kind) == (cta, role, kind)]


def test_waits_and_who_released_them() -> None:
    program = copying()
    found = recorded(program)
    assert (found.name, found.grid, found.ctas) == ("copy", 2, 2)
    for cta in (0, 1):
        first, second = of(found, cta, "load", "copy")
        out, _ = of(found, cta, "store", "copy")
        (empty,) = of(found, cta, "load", "wait")
        full, stored, full_again, stored_again = of(found, cta, "store", "wait")
        times = [cycles(program, t) for e in (first, out) for t in (e.begin_us, e.end_us)]
        assert times == pytest.approx([0, LOADED, LOADED, 2 * LOADED])
        assert (first.nbytes, first.about, first.stage) == (512, "ring.full", None)
        assert [cycles(program, t) for t in second.unit_us] == pytest.approx(
            [2 * LOADED, 2 * LOADED + COPY]
        )
        # the store warp waits for the copy, then for its own store
        assert [cycles(program, x) for x in (full.begin_us, full.end_us)] == pytest.approx(
            [0, LOADED]
        )
        assert full.wait is not None
        assert (full.wait.on, full.wait.phase, full.wait.own) == ("ring.full", 0, False)
        assert full.wait.released_by == Release(
            cta, "load", "", "tma_load", first.what, first.at, first.end_us
        )
        assert stored.wait is not None
        assert (stored.wait.on, stored.wait.phase, stored.wait.own) == ("tma_store", None, True)
        assert stored.end_us == out.end_us
        assert stored.wait.released_by is not None
        assert stored.wait.released_by.at == out.at
        # the load warp waits for the stage until the store warp arrives, which it does then
        assert (empty.begin_us, empty.end_us) == (0.0, stored.end_us)
        assert empty.wait is not None
        assert (empty.wait.on, empty.wait.phase) == ("ring.empty", 0)
        by = empty.wait.released_by
        assert by is not None
        assert (by.role, by.op, by.time_us) == ("store", "mbar_arrive", stored.end_us)
        assert re.fullmatch(r"kernels\.py:\d+", by.at)
        assert (full_again.begin_us, full_again.end_us) == (stored.end_us, second.end_us)
        assert stored_again.begin_us == second.end_us


def test_phases_complete_when_waits_end() -> None:
    found = recorded(copying(rows=1))
    full = [p for p in found.phases if p.barrier == "ring.full"]
    assert [(p.number, p.fills, p.ring, p.stages) for p in full] == [
        (0, True, "ring", 1),
        (1, True, "ring", 1),
    ]
    assert [p.time_us for p in full] == [e.end_us for e in of(found, 0, "load", "copy")]


@pytest.mark.parametrize("seed", [0, 5])
def test_a_timeline_changes_nothing(seed: int) -> None:
    without, alongside = copying().run(seed=seed), copying().run(seed=seed, timeline=True)
    assert without.timeline is None
    assert (without.simulated_us, without.steps) == (alongside.simulated_us, alongside.steps)


def test_the_waits_of_an_agent_do_not_overlap_and_leave_no_time_out() -> None:
    """Only waits move an agent's time, so they follow each other without gaps."""
    spec = find("gemm")
    config, _ = spec.configure({"m": 256, "n": 256, "k": 512}, None)
    found = recorded(spec.make(config, 0).program, seed=3)
    agents = {(e.cta, e.role, e.part) for e in found.events}
    assert {role for _, role, _ in agents} == {"load", "mma"}
    for agent in agents:
        waits = [e for e in found.events if (e.cta, e.role, e.part) == agent and e.kind == "wait"]
        assert waits[0].begin_us == 0
        assert all(a.end_us == b.begin_us for a, b in itertools.pairwise(waits))
        assert all(
            e.wait is not None
            and e.wait.released_by is not None
            and e.wait.released_by.time_us == e.end_us
            for e in waits
        )


def test_the_first_ctas_and_calls_of_on_event() -> None:
    calls: list[str] = []

    def note(agent: Any, site: Any, start: float, end: float) -> None:
        calls.append(f"{agent.cta.block_id} {site.kind}")

    found = recorded(copying(rows=3), 2, on_event=note)
    assert (found.ctas, {e.cta for e in found.events}) == (2, {0, 1})
    assert len([call for call in calls if call == "2 tma_load"]) == 2
    only: list[str] = []
    copying(rows=3).run(on_event=lambda agent, site, start, end: only.append(site.kind))
    assert sorted(only) == sorted(call.split()[1] for call in calls)


def test_a_named_barrier_and_who_comes_last() -> None:
    @tp.kernel(grid=1)
    def meets(ctx: Any, a: Any, out: Any) -> None:
        tile = ctx.smem((16, 16), a.dtype, name="tile")
        full = tp.SharedMemBarrier.allocate(ctx, count=1, name="landed")
        met = ctx.named_barrier(64, "met")

        @ctx.role("late", warps=1)  # type: ignore[untyped-decorator]
        def late() -> None:
            with ctx.elect_one():
                full.expect_bytes(tile.tile_bytes)
                ctx.tma_load(a, (0, 0), tile[0], full)
            full.wait(0)
            met.sync()

        @ctx.role("early", warps=1)  # type: ignore[untyped-decorator]
        def early() -> None:
            met.sync()
            ctx.store(out[ctx.lane], 1)

    a = np.ones((16, 16), np.float16)
    program = meets.bind(tp.tensor_map(a, box=(16, 16)), np.zeros(32, np.int32))
    (wait,) = of(recorded(program), 0, "early", "wait")
    assert cycles(program, wait.end_us) == pytest.approx(LOADED)
    assert wait.wait is not None
    assert (wait.wait.on, wait.about, wait.wait.phase) == ("met", "met", 0)
    assert wait.wait.released_by is not None
    assert wait.wait.released_by.role == "late"


@pytest.mark.parametrize("bad", [0, -1, 1.5, "yes", None])
def test_what_is_no_number_of_ctas(bad: Any) -> None:
    with pytest.raises(BindError, match=r"timeline= is True, for all CTAs, or how many of them"):
        copying().run(timeline=bad)


@pytest.mark.slow
def test_what_led_to_a_deadlock() -> None:
    program = stuck()
    with pytest.raises(DeadlockError) as error:
        program.run(timeline=True)
    found = error.value.timeline
    assert isinstance(found, Timeline)
    assert found.fault is not None
    assert found.fault.message == str(error.value)
    (last,) = [e for e in found.events if e.stuck]
    assert (last.role, last.about) == ("store", "ring.full")
    assert last.wait == Wait("ring.full", 2, None)
    assert last.begin_us < last.end_us == max(e.end_us for e in found.events)
    with pytest.raises(DeadlockError) as error:
        program.run()
    assert error.value.timeline is None
    launch = program.ptx()
    with pytest.raises(DeadlockError) as error:
        launch.run(timeline=True)
    assert isinstance(error.value.timeline, Timeline)
    assert [e.part for e in error.value.timeline.events if e.stuck] == ["warp 1"]


def stuck() -> tp.Program:
    """The store warp waits for one tile more than the load warp brings."""

    @tp.kernel(grid=1)
    def short(ctx: Any, a: Any, out: Any) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring")
        tiles = ctx.smem((16, 16), a.dtype, count=1, name="tiles")

        @ctx.role("load", warps=1)  # type: ignore[untyped-decorator]
        def load() -> None:
            for j in ctx.range(2):
                with ring.produce() as stage, ctx.elect_one():
                    stage.mbar().expect_bytes(tiles.tile_bytes)
                    ctx.tma_load(a, (0, j * 16), tiles[0], stage.mbar())

        @ctx.role("store", warps=1)  # type: ignore[untyped-decorator]
        def store() -> None:
            for j in ctx.range(3):
                with ring.consume_explicit() as stage, ctx.elect_one():
                    ctx.tma_store(out, (0, j * 16), tiles[0])
                    ctx.tma_store_commit()
                    ctx.tma_store_wait(0, read=True)
                    stage.mbar().arrive()

    a = np.ones((16, 48), np.float16)
    return short.bind(*(tp.tensor_map(x, box=(16, 16)) for x in (a, np.zeros_like(a))))
