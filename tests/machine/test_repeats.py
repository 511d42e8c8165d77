"""Clusters that repeat what one before them did: nothing that a run says or writes may show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.sm90_bind import bind as attention
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind as gemm
from tilepipe.kernels.rms_norm.sm90 import bind as rms_norm
from tilepipe.machine import repeats
from tilepipe.machine.machine import Machine
from tilepipe.machine.repeats import Record, Repeats

Array = npt.NDArray[Any]


class Spy:
    """Counts clusters that were repeated, and those that turned out to differ."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repeated = self.differed = 0
        self.patch = monkeypatch
        original = repeats._repeat

        def repeat(m: Machine, record: Record) -> None:
            self.differed += 1
            original(m, record)
            self.differed -= 1
            self.repeated += 1

        monkeypatch.setattr(repeats, "_repeat", repeat)

    def without(self) -> None:
        """From now on every cluster is simulated step by step."""
        self.patch.setattr(Repeats, "repeat", lambda self, m: None)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def normal(*shape: int) -> Array:
    found: Array = np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)
    return found


def multiplied(m: int, n: int, k: int, **settings: Any) -> tuple[tp.Program, Array]:
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    chip = settings.pop("chip", None)
    return gemm(normal(m, k), normal(n, k), c, GemmConfig(**settings), chip=chip), c


def attended(heads: int, causal: bool = False, **settings: Any) -> tuple[tp.Program, Array]:
    q = normal(1, 512, heads, 64)
    o = np.zeros_like(q)
    cfg = AttentionConfig(**settings) if settings else None
    return attention(q, q, q, o, cfg=cfg, causal=causal), o


def normalised(rows: int) -> tuple[tp.Program, Array]:
    x, weight = normal(rows, 256), normal(256)
    y = np.zeros_like(x)
    return rms_norm(x, weight, y), y


THREE: dict[str, Any] = {"consumers": 3, "schedule": "single"}  # blocks of 192 rows, of 512
CASES: dict[str, tuple[Any, int, int]] = {
    "GEMM": (lambda: multiplied(512, 512, 256), 15, 0),
    "one warpgroup": (lambda: multiplied(256, 256, 128, consumers=1), 3, 0),
    "beyond the edges": (lambda: multiplied(200, 264, 72), 5, 0),
    "multicast in clusters": (lambda: multiplied(512, 256, 128, cluster=2), 3, 0),
    "ping-pong": (lambda: multiplied(512, 256, 128, schedule="pingpong"), 7, 0),
    # 3 CTAs, of which the last has one tile less
    "unequal work": (lambda: multiplied(512, 256, 128, chip=replace(tp.H200, sms=3)), 1, 1),
    "attention": (lambda: attended(4, **THREE), 11, 0),
    # rows further down have more to do; each of three blocks of rows has four heads
    "causal attention": (lambda: attended(4, causal=True, group=4, **THREE), 9, 2),
    # with one head, all of eight blocks differ; after two no more are tried
    "no two alike": (
        lambda: attended(1, causal=True, bn=64, consumers=1, schedule="single"),
        0,
        2,
    ),
    "rows": (lambda: normalised(64), 7, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_repeated_cluster_shows_nowhere(name: str, spy: Spy) -> None:
    make, repeated, differed = CASES[name]
    program, out = make()
    run = program.run()
    assert (spy.repeated, spy.differed) == (repeated, differed)
    again, expected = make()
    spy.without()
    assert run == again.run()
    assert out.tobytes() == expected.tobytes()
    assert spy.repeated == repeated


# -- faults of a later cluster ---------------------------------------------------------


@tp.kernel(grid=4)
def faulty(ctx: tp.Context, a: Any, out: Any, *, fault: str) -> None:
    """Each CTA multiplies a tile of 64 rows by itself and stores the product. In the last but one,
    something is wrong.
    """
    tiles = ctx.smem((64, 64), a.dtype, count=3, name="tile")
    slot = ctx.smem((64, 64), out.dtype, name="slot")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    wrong = ctx.block_id == 2

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        row = ctx.block_id * 64
        with ctx.elect_one("warpgroup"):
            boxes = ctx.select(wrong, 3, 2) if fault == "deadlock" else 2
            full.expect_bytes(boxes * tiles[0].nbytes)
            ctx.tma_load(a, (row, 0), tiles[0], full)
            column = ctx.select(wrong, 4, 0) if fault == "misaligned" else 0
            ctx.tma_load(a, (row, column), tiles[1], full)
        full.wait(0)
        acc = ctx.accumulator((64, 64))
        other = ctx.select(wrong, 2, 1) if fault == "poison" else 1
        ctx.mma(acc, tiles[0], tiles[other], accumulate=False)
        ctx.wgmma_commit()
        if fault == "registers":
            with ctx.when(wrong):
                ctx.fragment(acc * 2)
        ctx.wgmma_wait(0)
        if fault == "assertion":
            ctx.assert_(ctx.block_id != 2, "there is no third CTA")  # noqa: PT009
        if fault == "overflow":
            ctx.let(ctx.block_id * 1_200_000_000, "much")
        if fault == "division":
            ctx.let(100 // ctx.select(wrong, 0, 1).to("uint32"), "quotient")
        ctx.store(slot, acc)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store(out, (ctx.select(wrong, 0, row) if fault == "race" else row, 0), slot)
            if fault == "twice":
                ctx.tma_store(out, (ctx.select(wrong, row, row + 256), 0), slot)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)
        if fault == "one more":
            with ctx.when(wrong):
                full.wait(1)


FAULTS: dict[str, type[tp.TilepipeError]] = {
    "misaligned": tp.SimFault,
    "deadlock": tp.DeadlockError,
    "registers": tp.RaceError,
    "assertion": tp.KernelAssertError,
    "overflow": tp.SimFault,
    "division": tp.SimFault,
    "race": tp.RaceError,
    "twice": tp.RaceError,
    "poison": tp.PoisonError,
    "one more": tp.DeadlockError,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_later_cluster_is_found(fault: str, spy: Spy) -> None:
    a, out = normal(256, 128), np.zeros((512, 64), ml_dtypes.bfloat16)
    arrays = tp.tensor_map(a, box=(64, 64)), tp.tensor_map(out, box=(64, 64))
    program = faulty.bind(*arrays, fault=fault)
    with pytest.raises(FAULTS[fault]) as found:
        program.run()
    assert (spy.repeated, spy.differed) == (1, 1)
    spy.without()
    with pytest.raises(FAULTS[fault]) as expected:
        program.run()
    assert str(found.value) == str(expected.value)
    assert "of CTA 2" in str(found.value) or fault in ("misaligned", "overflow", "division")


def test_without_a_fault_all_but_the_first_are_repeated(spy: Spy) -> None:
    a, out = normal(256, 128), np.zeros((256, 64), ml_dtypes.bfloat16)
    arrays = tp.tensor_map(a, box=(64, 64)), tp.tensor_map(out, box=(64, 64))
    faulty.bind(*arrays, fault="none").run()
    assert (spy.repeated, spy.differed) == (3, 0)


@tp.kernel(grid=3)
def half_quiet(ctx: tp.Context, out: Any) -> None:
    """One of two roles asks the machine for nothing."""

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        ones = ctx.fragment(shape=(64, 64))
        ones.fill(1)
        ctx.store_global(out, (ctx.block_id * 64, 0), ones)

    @ctx.role("quiet", warps=1)
    def quiet() -> None:
        ctx.assert_(ctx.block_id < 3)  # noqa: PT009


def test_a_role_without_requests_does_not_stand_in_the_way(spy: Spy) -> None:
    out = np.zeros((192, 64), np.float32)
    half_quiet.bind(out).run()
    assert (out == 1).all()
    assert (spy.repeated, spy.differed) == (2, 0)


def test_no_cluster_is_repeated_with_another_seed_or_a_timeline(spy: Spy) -> None:
    program, _ = multiplied(256, 256, 128)
    program.run(seed=1)
    program.run(timeline=True)
    assert (spy.repeated, spy.differed) == (0, 0)


@pytest.mark.parametrize("limit", ["_MOST_STEPS", "_MOST_ORDERED"])
def test_a_record_that_grows_too_long_is_dropped(
    limit: str, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, limit, 3)
    program, _ = multiplied(256, 256, 128)
    program.run()
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def added(ctx: tp.Context, x: Any, out: Any) -> None:
    """Each CTA adds its rows of x to those of out; the last executes one op more than the
    others, after that.
    """
    tile = ctx.smem((8, 64), x.dtype, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("work", warps=1)
    def work() -> None:
        row = ctx.block_id * 8
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(x, (row, 0), tile, full)
        full.wait(0)
        with ctx.elect_one():
            ctx.tma_store(out, (row, 0), tile, reduce="add")
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)
        with ctx.when(ctx.block_id == 2):
            ctx.syncwarp()


def test_what_is_added_to_a_tensor_is_added_once(spy: Spy) -> None:
    x, out = np.ones((24, 64), np.float32), np.ones((24, 64), np.float32)
    added.bind(tp.tensor_map(x, box=(8, 64)), tp.tensor_map(out, box=(8, 64))).run()
    np.testing.assert_array_equal(out, np.full((24, 64), 2, np.float32))
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def doubled(ctx: tp.Context, x: Any) -> None:
    """Each CTA doubles its rows of x; the last executes one op more than the others, after that."""

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        rows = ctx.load_global(x, (ctx.block_id * 64, 0), (64, 64))
        ctx.store_global(x, (ctx.block_id * 64, 0), rows * 2)
        with ctx.when(ctx.block_id == 2):
            ctx.syncwarp()


def test_a_tensor_that_is_read_and_written_is_changed_once(spy: Spy) -> None:
    x = np.ones((192, 64), np.float32)
    doubled.bind(x).run()
    np.testing.assert_array_equal(x, np.full((192, 64), 2, np.float32))
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def printing(ctx: tp.Context) -> None:
    """Each CTA prints its number; the last executes one op more than the others."""

    @ctx.role("work", warps=1)
    def work() -> None:
        ctx.print("CTA {}", ctx.block_id)
        with ctx.when(ctx.block_id == 2):
            ctx.syncwarp()


def test_each_cluster_prints_once(spy: Spy) -> None:
    run = printing.bind().run()
    assert run.printed == ["CTA 0", "CTA 1", "CTA 2"]
    assert (spy.repeated, spy.differed) == (0, 0)
