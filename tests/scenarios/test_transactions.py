"""Transaction bytes, copies in flight, and MMAs in flight (G11-G15)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuses, zeros


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def one_copy(ctx: tp.Context, a: Any, out: Any, *, expect: int, wait: bool) -> None:
    tile = ctx.smem((8, 16), a.dtype, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            full.expect_bytes(expect)  # <expect>
            ctx.tma_load(a, (0, 0), tile[0], full)  # <copy>

    @ctx.role("use", warps=1)
    def use() -> None:
        if wait:
            full.wait(0)  # <wait full>
        with ctx.when(ctx.lane < 8):
            ctx.store(out[ctx.lane], ctx.load(tile[0][ctx.lane, 3]).to("float32"))  # <read tile>
        if not wait:
            full.wait(0)


def bind_one_copy(expect: int = 256, wait: bool = True) -> tp.Program:
    return one_copy.bind(
        tp.tensor_map(matrix(8, 16), box=(8, 16)), zeros(8), expect=expect, wait=wait
    )


def test_g11_expecting_16_bytes_too_many_never_completes() -> None:
    words = (
        "full",
        "272 expected, 256 delivered",
        "16 too large",
        "role 'use'",
        "256 bytes, landed",
    )
    faults(bind_one_copy(272), tp.DeadlockError, *words, where("wait full"), where("copy"))


def test_g11_expecting_16_bytes_too_few_completes_early() -> None:
    words = ("full", "phase 0", "240 bytes expected", "256 delivered", "16 too many")
    faults(bind_one_copy(240), tp.BarrierError, *words, where("copy"))


def test_g11_too_few_bytes_for_two_copies_complete_before_the_second_lands() -> None:
    @tp.kernel()
    def halves(ctx: tp.Context, a: Any) -> None:
        tile = ctx.smem((8, 16), a.dtype, count=2, name="tile")
        full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

        @ctx.role("load", warps=1)
        def load() -> None:
            with ctx.elect_one():
                full.expect_bytes(256)
                for j in range(2):
                    ctx.tma_load(a, (0, 16 * j), tile[j], full)  # <each half>
            full.wait(0)

    words = (
        "full",
        "phase 0 completes while 256 bytes",
        "256 bytes expected, 256 delivered",
        "still to come",
    )
    program = halves.bind(tp.tensor_map(matrix(8, 32), box=(8, 16)))
    faults(program, tp.BarrierError, *words, where("each half"), seeds=[0])
    # where the first copy lands before the second is issued, the second falls into the next phase,
    # for which nobody waits
    faults(program, tp.SimFault, "tile[1]", where("each half"), seeds=range(8))


@pytest.mark.parametrize("copies", [1, 2, 5])
@pytest.mark.parametrize("announced", ["at once", "one by one"])
def test_g12_copies_on_one_barrier_sum_their_bytes(copies: int, announced: str) -> None:
    a, out = matrix(8, 16 * copies), zeros(8)

    @tp.kernel()
    def several(ctx: tp.Context, a: Any, out: Any) -> None:
        tile = ctx.smem((8, 16), a.dtype, count=copies, name="tile")
        full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

        @ctx.role("load", warps=1)
        def load() -> None:
            with ctx.elect_one():
                if announced == "one by one":
                    for _ in range(copies - 1):
                        full.expect_bytes_only(256)
                for j in range(copies - 1):
                    ctx.tma_load(a, (0, 16 * j), tile[j], full)
                full.expect_bytes(256 if announced == "one by one" else 256 * copies)
                ctx.tma_load(a, (0, 16 * (copies - 1)), tile[copies - 1], full)

        @ctx.role("use", warps=1)
        def use() -> None:
            full.wait(0)
            with ctx.when(ctx.lane < 8):
                ctx.store(
                    out[ctx.lane],
                    sum(ctx.load(tile[j][ctx.lane, 1]).to("float32") for j in range(copies)),
                )

    for run in clean(several.bind(tp.tensor_map(a, box=(8, 16)), out)):
        assert run.completions == {"full": [[1]]}
        assert run.roles[0].bytes_loaded == 256 * copies
        np.testing.assert_array_equal(out, a[:, 1::16].astype(np.float32).sum(axis=1))
        out[:] = 0


def test_g13_the_tile_is_read_before_the_wait() -> None:
    program = bind_one_copy(wait=False)
    words = ("race on tile", "role 'load'", "role 'use'", "wait", where("copy"), where("read tile"))
    faults(program, tp.RaceError, *words, seeds=range(12))


@tp.kernel()
def interleaved(ctx: tp.Context, a: Any, out: Any, *, waited: int, read: int) -> None:
    tile = ctx.smem((8, 16), a.dtype, count=2, name="tile")
    bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 2, "full")
    for j in range(2):
        bars[j].init(1)

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            for j in range(2):
                bars[j].expect_bytes(256)
            for j in range(2):
                ctx.tma_load(a, (0, 16 * j), tile[j], bars[j])  # <interleaved copy>

    @ctx.role("use", warps=1)
    def use() -> None:
        bars[waited].wait(0)
        with ctx.when(ctx.lane < 8):
            value = ctx.load(tile[read][ctx.lane, 0])  # <interleaved read>
            ctx.store(out[ctx.lane], value.to("float32"))
        bars[1 - waited].wait(0)


@pytest.mark.slow
@pytest.mark.parametrize("waited", [0, 1])
def test_g14_waiting_for_one_copy_and_reading_the_other(waited: int) -> None:
    program = interleaved.bind(
        tp.tensor_map(matrix(8, 32), box=(8, 16)), zeros(8), waited=waited, read=1 - waited
    )
    words = (f"tile[{1 - waited}]", "role 'use'", where("interleaved read"))
    faults(program, tp.SimFault, *words, seeds=range(8))
    racing = ("race on tile", "role 'load'", where("interleaved copy"))
    faults(program, tp.RaceError, *words, *racing, seeds=[0] if waited else [])


@pytest.mark.parametrize("waited", [0, 1])
def test_g14_waiting_for_the_copy_that_is_read(waited: int) -> None:
    a, out = matrix(8, 32), zeros(8)
    for run in clean(
        interleaved.bind(tp.tensor_map(a, box=(8, 16)), out, waited=waited, read=waited)
    ):
        assert run.completions == {"full": [[1, 1]]}
        np.testing.assert_array_equal(out, a[:, 16 * waited].astype(np.float32))
        out[:] = 0


@tp.kernel()
def mmas_in_flight(ctx: tp.Context, a: Any, b: Any, out: Any, *, slots: int, pending: int) -> None:
    """One warpgroup loads, multiplies, and lets `pending` MMAs run on before it loads into the next
    slot.
    """
    a_tiles = ctx.smem((64, 16), a.dtype, count=slots, name="a_tiles")
    b_tiles = ctx.smem((8, 16), b.dtype, count=slots, name="b_tiles")
    c_tile = ctx.smem((64, 8), "float32", swizzle=0, name="c_tile")
    bars = tp.SMemArray(ctx, tp.SharedMemBarrier, slots, "full")
    for i in range(slots):
        bars[i].init(1)
    state = tp.PipelineState(ctx, slots)

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        for k in ctx.range(a.shape[1] // 16):
            slot, phase = state.index(), state.phase()
            bar = bars[slot]
            assert isinstance(bar, tp.SharedMemBarrier)
            with ctx.elect_one("warpgroup"):
                bar.expect_bytes(72 * 32)
                ctx.tma_load(a, (0, 16 * k), a_tiles[slot], bar)  # <load a>
                ctx.tma_load(b, (0, 16 * k), b_tiles[slot], bar)
            bar.wait(phase)
            ctx.mma(acc, a_tiles[slot], b_tiles[slot])  # <mma>
            ctx.wgmma_commit()
            ctx.wgmma_wait(pending)
            ctx.sync_warpgroup()
            state.step()
        ctx.wgmma_wait(0)
        ctx.store(c_tile[0], acc)
        ctx.sync_warpgroup()
        for j in range(8):
            with ctx.when(ctx.thread < 64):
                ctx.store(out[ctx.thread, j], ctx.load(c_tile[0][ctx.thread, j]))


def bind_mmas(slots: int, pending: int) -> tuple[tp.Program, Any, Any]:
    a, b, out = matrix(64, 96, 1), matrix(8, 96, 2), zeros(64, 8)
    program = mmas_in_flight.bind(
        tp.tensor_map(a, box=(64, 16)),
        tp.tensor_map(b, box=(8, 16)),
        out,
        slots=slots,
        pending=pending,
    )
    return program, out, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize(("slots", "pending"), [(2, 2), (1, 1), (3, 3), (3, 4)])
def test_g15_too_few_buffers_for_the_mmas_in_flight(slots: int, pending: int) -> None:
    program, _, _ = bind_mmas(slots, pending)
    words = (
        "race on a_tiles",
        "role 'mma'",
        "group has been waited for",
        "ctx.wgmma_wait",
        where("load a"),
        where("mma"),
    )
    faults(program, tp.RaceError, *words, seeds=[0, 1])


@pytest.mark.parametrize(("slots", "pending"), [(3, 2), (2, 1), (1, 0), (4, 2)])
def test_g15_enough_buffers(slots: int, pending: int) -> None:
    program, out, want = bind_mmas(slots, pending)
    for run in clean(program):
        assert sum(run.completions["full"][0]) == 6
        np.testing.assert_array_equal(out, want)
        out[:] = 0


def test_g15_a_lag_that_would_hold_every_stage_is_refused() -> None:
    @tp.kernel()
    def held(ctx: tp.Context, a: Any, b: Any) -> None:
        payload = tp.StandardTilePayload(
            a_type=a.dtype, b_type=b.dtype, a_shape=(64, 16), b_shape=(8, 16)
        )
        inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2)

        @ctx.role("mma", warpgroups=1)
        def mma() -> None:
            inputs.consumer(lag=2)  # <lag of two>

    a, b = matrix(64, 16), matrix(8, 16)
    maps = tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16))
    refuses(
        lambda: held.bind(*maps),
        tp.TraceError,
        "lag=2",
        "less than the 2 stages",
        "inputs",
        where("lag of two"),
    )
