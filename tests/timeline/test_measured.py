"""Timelines from the notes of a timed build, without a GPU: a reader of PTX runs it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.timeline.kernels import copying, recorded
from tests.timeline.timed import stamps, timed
from tilepipe.ir.stamps import WarpStamps
from tilepipe.registry.catalog import find
from tilepipe.timeline import Event, Timeline
from tilepipe.timeline.clocks import Clocks

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")


def gemm(**settings: Any) -> tp.Program:
    spec = find("gemm")
    config, _ = spec.configure({"m": 256, "n": 256, "k": 512, "stages": 3, **settings}, None)
    return spec.make(config, 0).program


def facts(e: Event) -> tuple[object, ...]:
    """What an event is, without its times."""
    by = None if e.wait is None else e.wait.released_by
    who = None if by is None else (by.cta, by.role, by.part, by.op, by.at)
    on = None if e.wait is None else (e.wait.on, e.wait.own)
    return e.cta, e.role, e.part, e.kind, e.op, e.what, e.at, e.about, e.nbytes, on, who


@pytest.mark.slow
def test_it_has_the_events_of_the_simulator() -> None:
    program = copying()
    notes, simulated = timed(program), recorded(program)
    assert Counter(map(facts, notes.events)) == Counter(map(facts, simulated.events))
    assert {(p.cta, p.barrier, p.stage, p.ring, p.fills, p.number) for p in notes.phases} == {
        (p.cta, p.barrier, p.stage, p.ring, p.fills, p.number) for p in simulated.phases
    }
    assert (notes.simulated_us, notes.grid, notes.ctas) == (None, 2, 2)
    assert notes.measured is not None
    assert notes.measured.clock_ghz == pytest.approx(program.launch_args.chip.clock_ghz, rel=1e-3)
    assert notes.measured.lost == 0


@pytest.mark.slow
def test_what_a_wait_saw_and_what_is_estimated() -> None:
    found = timed(copying())
    (first, second), waits = of(found, "load", "copy"), of(found, "store", "wait")
    full = [w for w in waits if w.wait is not None and w.wait.on == "ring.full"]
    assert [first.end_us, second.end_us] == [w.end_us for w in full]
    assert not first.estimated
    assert [f.steps[0][1] for f in found.occupancy()] == [1, 1]


def of(found: Timeline, role: str, kind: str) -> list[Event]:
    return [e for e in found.events if (e.cta, e.role, e.kind) == (0, role, kind)]


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [2, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_gemm_computes_the_same_and_notes_every_copy_and_mma(cluster: int) -> None:
    program = gemm(cluster=cluster)
    c = program.launch_args.args["c"].array  # type: ignore[union-attr]
    program.ptx().run()
    right = c.copy()
    c[...] = 0
    notes = timed(program, ctas=cluster)
    assert np.array_equal(c, right)
    simulated = recorded(program, cluster)
    units = [Counter((e.role, e.part, e.op, e.what) for e in t.events if e.wait is None)
             for t in (notes, simulated)]  # fmt: skip
    assert units[0] == units[1]
    wanted = {("mma", "inputs.full"), ("load", "inputs.empty")}
    waits = {(e.role, e.wait.on) for e in notes.events if e.wait is not None}
    assert wanted <= waits
    for e in notes.events:
        by = None if e.wait is None else e.wait.released_by
        if by is not None and e.wait is not None and e.wait.on == "inputs.full":
            assert (by.role, by.op) == ("load", "tma_load")
            assert e.begin_us < by.time_us <= e.end_us
    # of a cluster, each CTA's copies fill the rings of both
    crossing = {by.cta != e.cta for e in notes.events if e.wait and (by := e.wait.released_by)}
    assert crossing == ({False} if cluster == 1 else {False, True})
    fills = [p for p in notes.phases if p.fills]
    assert len(fills) == cluster * len([p for p in simulated.phases if p.fills and p.cta == 0])


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("attention", "heads=1 kv_heads=1 s_q=128 s_kv=384 d=64"),
        ("gemm_blockwise", "m=128 n=256 k=512"),
        ("gemm", "m=256 n=128 k=256 bm=64 schedule=pingpong"),
    ],
)
def test_what_notes_imply_is_what_the_simulator_has(name: str, settings: str) -> None:
    spec = find(name)
    config, _ = spec.configure(spec.parse(settings.split()), None)
    one, two = (spec.make(config, 0).program for _ in range(2))
    ctas = min(one.launch_args.grid, 2)
    notes, simulated = (
        Counter((e.cta, e.role, e.part, e.op, e.what, e.nbytes) for e in t.events if not e.wait)
        for t in (timed(one, ctas, room=1024), recorded(two, ctas))
    )
    assert notes == simulated


@pytest.mark.slow
def test_what_has_no_room_is_counted() -> None:
    program = copying(columns=4)
    whole, part = timed(program), timed(program, room=10)
    assert part.measured is not None
    assert part.measured.lost > 0
    assert len(part.events) < len(whole.events)
    firsts = [facts(e) for e in of(part, "load", "copy")]
    assert firsts == [facts(e) for e in of(whole, "load", "copy")][: len(firsts)]


def test_of_the_readings_of_a_clock_the_most_advanced_counts() -> None:
    # the GPU's clock has steps of 1 µs, the SM's runs at 2 GHz and was 0 at 5,000 ns
    now = 1_795_862_986_627_424_000  # ns, whose last digits a float does not have

    def warp(number: int, began: int, ended: int) -> WarpStamps:
        first, last = (now + (5_000 + cycles // 2) // 1_000 * 1_000 for cycles in (began, ended))
        return WarpStamps(0, number, 0, first, last, began, ended, (), 0)

    warps = [warp(0, 100, 8_100), warp(1, 1_990, 9_990), warp(2, 500, 8_500)]
    clocks = Clocks.of(warps, 1.5)
    assert clocks.cycles_per_ns == pytest.approx(2.0)
    # the first reading was 5,000 ns when it was 5,050 ns
    assert clocks.ns(0, 1_990) == pytest.approx(995 - 50)
    short = Clocks.of([warp(0, 100, 300)], 1.5)
    assert short.cycles_per_ns == 1.5


@pytest.mark.slow
def test_no_stamp_is_lost_or_out_of_order_on_the_way_through_registers() -> None:
    @tp.kernel(grid=1)
    def many(ctx: Any, out: Any) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, count=1, name="bar")

        @ctx.role("all", warps=2)  # type: ignore[untyped-decorator]
        def everything() -> None:
            def arrive(times: int) -> None:
                for _ in range(times):
                    with ctx.elect_one():
                        bar.arrive()

            arrive(50)  # more than a warp keeps, in a straight line
            for i in ctx.range(20):
                with ctx.when(i % 3 == 0):
                    arrive(2)
                with ctx.otherwise():
                    arrive(9)
                arrive(1)
            arrive(3)

    program = many.bind(np.zeros(1, np.float32))
    wanted = list(range(50))
    for i in range(20):
        wanted += [*((50, 51) if i % 3 == 0 else range(52, 61)), 61]
    wanted += [62, 63, 64]
    for warp in stamps(program, ctas=1, room=512):
        assert [s.point for s in warp.stamps] == wanted
        cycles = [s.cycles for s in warp.stamps]
        assert cycles == sorted(cycles)
    (short, _) = stamps(program, ctas=1, room=100)
    assert [s.point for s in short.stamps] == wanted[:100]
    assert short.lost == len(wanted) - 100
