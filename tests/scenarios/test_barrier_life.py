"""The life of an mbarrier: init, arrive, expect, wait, invalidate (G1-G10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuses, refuted, verified, zeros
from tilepipe.machine.barriers.state import Mbarrier


def where(mark: str) -> str:
    return at(__file__, mark)


def two_waiters(extra_role: bool) -> tp.Program:
    @tp.kernel()
    def crossed(ctx: tp.Context) -> None:
        b0 = tp.SharedMemBarrier.allocate(ctx, 1, "b0")
        b1 = tp.SharedMemBarrier.allocate(ctx, 1, "b1")
        if extra_role:

            @ctx.role("early", warps=1)
            def early() -> None:
                ctx.syncwarp()

        @ctx.role("left", warps=1)
        def left() -> None:
            b0.wait(0)  # <left waits>
            with ctx.elect_one():
                b1.arrive()  # <left arrives>

        @ctx.role("right", warps=1)
        def right() -> None:
            b1.wait(0)  # <right waits>
            with ctx.elect_one():
                b0.arrive()  # <right arrives>

    return crossed.bind()


@pytest.mark.parametrize(
    ("extra_role", "blocked"), [(False, "2 of 2 agents"), (True, "2 of 3 agents")], ids=["G1", "G3"]
)
def test_two_roles_wait_for_each_other(extra_role: bool, blocked: str) -> None:
    cycle = ("cycle: role 'left' -> role 'right' -> role 'left'",)
    lines = [where(m) for m in ("left waits", "right waits", "left arrives", "right arrives")]
    faults(
        two_waiters(extra_role),
        tp.DeadlockError,
        blocked,
        "b0",
        "b1",
        "1 of 1 arrivals",
        *cycle,
        *lines,
    )


def test_nobody_arrives_at_all() -> None:
    @tp.kernel()
    def silent(ctx: tp.Context) -> None:
        bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 2, "b")
        for i in range(2):
            bars[i].init(1)

        @ctx.role("left", warps=1)
        def left() -> None:
            bars[0].wait(0)  # <silent left>

        @ctx.role("right", warps=2)
        def right() -> None:
            bars[1].wait(0)  # <silent right>

    words = (
        "role 'left'",
        "role 'right'",
        "b[0]",
        "b[1]",
        "nothing in the kernel arrives on it",
        "1 of 1 arrivals",
    )
    faults(silent.bind(), tp.DeadlockError, *words, where("silent left"), where("silent right"))


def test_g4_two_arrives_on_a_count_of_one() -> None:
    @tp.kernel()
    def twice(ctx: tp.Context) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "ready")

        @ctx.role("solo", warps=1)
        def solo() -> None:
            with ctx.elect_one():
                bar.arrive()
                bar.arrive()
            bar.wait(0)  # <lapped wait>

    faults(
        twice.bind(),
        tp.BarrierError,
        "ver-arrival",
        "role 'solo'",
        "ready",
        "phase 0",
        "count of 1",
        where("lapped wait"),
    )


def test_g5_each_side_arrives_once_on_the_others_barrier_of_two() -> None:
    @tp.kernel()
    def under(ctx: tp.Context) -> None:
        mine = tp.SharedMemBarrier.allocate(ctx, 2, "left_ready")
        yours = tp.SharedMemBarrier.allocate(ctx, 2, "right_ready")

        @ctx.role("left", warps=1)
        def left() -> None:
            with ctx.elect_one():
                yours.arrive()
            mine.wait(0)  # <G5 left>

        @ctx.role("right", warps=1)
        def right() -> None:
            with ctx.elect_one():
                mine.arrive()  # <G5 right arrives>
            yours.wait(0)  # <G5 right>

    words = (
        "left_ready",
        "right_ready",
        "1 of 2 arrivals",
        "count is too high",
        "arrived in this phase: 1 by role 'right'",
    )
    faults(
        under.bind(),
        tp.DeadlockError,
        *words,
        where("G5 left"),
        where("G5 right"),
        where("G5 right arrives"),
    )


@pytest.mark.parametrize("delay", [0, 1, 5], ids="delay={}".format)
def test_g6_a_wait_for_a_phase_that_will_complete(delay: int) -> None:
    out = np.zeros(4, np.int32)

    @tp.kernel()
    def handshake(ctx: tp.Context, out: Any) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "ready")
        back = tp.SharedMemBarrier.allocate(ctx, 1, "back")

        @ctx.role("waiter", warps=1)
        def waiter() -> None:
            for i in ctx.range(4):
                bar.wait(i % 2)
                with ctx.elect_one():
                    ctx.store(out[i], i + 1)
                    back.arrive()

        @ctx.role("arriver", warps=1)
        def arriver() -> None:
            for i in ctx.range(4):
                for _ in range(delay):
                    ctx.syncwarp()
                with ctx.elect_one():
                    bar.arrive()
                back.wait(i % 2)

    for run in clean(handshake.bind(out)):
        assert run.completions == {"ready": [[4]], "back": [[4]]}
        assert out.tolist() == [1, 2, 3, 4]
        out[:] = 0


def test_g7_only_a_copy_in_flight_will_signal() -> None:
    a, out = matrix(8, 16), zeros(8)

    @tp.kernel()
    def copy(ctx: tp.Context, a: Any, out: Any) -> None:
        tile = ctx.smem((8, 16), a.dtype, name="tile")
        full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

        @ctx.role("solo", warps=1)
        def solo() -> None:
            with ctx.elect_one():
                full.expect_bytes(tile[0].nbytes)
                ctx.tma_load(a, (0, 0), tile[0], full)
            full.wait(0)
            with ctx.when(ctx.lane < 8):
                ctx.store(out[ctx.lane], ctx.load(tile[0][ctx.lane, 3]).to("float32"))

    for run in clean(copy.bind(tp.tensor_map(a, box=(8, 16)), out)):
        assert run.completions == {"full": [[1]]}
        np.testing.assert_array_equal(out, a[:, 3].astype(np.float32))
        out[:] = 0


def test_g8_an_arrive_of_two_on_a_count_of_one() -> None:
    @tp.kernel()
    def heavy(ctx: tp.Context) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "ready")

        @ctx.role("solo", warps=1)
        def solo() -> None:
            with ctx.elect_one():
                bar.arrive_cluster(0, 2)  # <arrive two>
            bar.wait(0)

    words = (
        "over-arrival on ready",
        "role 'solo'",
        "arrives 2 time(s)",
        "only 1 of 1 arrivals",
        "phase 0",
    )
    faults(heavy.bind(), tp.BarrierError, *words, where("arrive two"))


def test_g8_thirty_two_lanes_on_a_count_of_one() -> None:
    @tp.kernel()
    def lanes(ctx: tp.Context) -> None:
        bar = tp.SharedMemBarrier.allocate(ctx, 1, "ready")

        @ctx.role("solo", warps=1)
        def solo() -> None:
            bar.arrive()  # <arrive all>
            bar.wait(0)

    words = ("over-arrival on ready", "role 'solo'", "arrives 32 time(s)", "only 1 of 1")
    faults(lanes.bind(), tp.BarrierError, *words, where("arrive all"))


def life(ctx: tp.Context, steps: str) -> None:
    """A role that performs single-letter steps: i(nit), x (inval), a(rrive), e(xpect), w(ait for
    phase 0).
    """
    bar = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, "bar")[0]
    assert isinstance(bar, tp.SharedMemBarrier)

    @ctx.role("solo", warps=1)
    def solo() -> None:
        for step in steps:
            if step == "w":
                bar.wait(0)  # <life w>
                continue
            with ctx.elect_one():
                if step == "i":
                    bar.init(1)  # <life i>
                elif step == "x":
                    bar.inval()  # <life x>
                elif step == "a":
                    bar.arrive()  # <life a>
                else:
                    bar.expect_bytes(0)  # <life e>


@pytest.mark.parametrize(
    ("steps", "culprit", "words"),
    [
        ("ii", "i", ("initialised again without having been invalidated", "mbar_init")),
        ("iawi", "i", ("initialised again without having been invalidated",)),
        ("w", "w", ("before it was initialised", "mbar_wait")),
        ("a", "a", ("before it was initialised", "mbar_arrive")),
        ("e", "e", ("before it was initialised", "mbar_expect")),
        ("ixw", "w", ("after it was invalidated", "mbar_wait")),
        ("ixa", "a", ("after it was invalidated", "mbar_arrive")),
        ("ixe", "e", ("after it was invalidated", "mbar_expect")),
        ("x", "x", ("before it was initialised", "mbar_inval")),
        ("ixx", "x", ("after it was invalidated", "mbar_inval")),
    ],
)
def test_g9_g10_life_cycle(steps: str, culprit: str, words: tuple[str, ...]) -> None:
    @tp.kernel()
    def cycle(ctx: tp.Context, *, steps: str) -> None:
        life(ctx, steps)

    faults(cycle.bind(steps=steps), tp.BarrierError, "bar", *words, where(f"life {culprit}"))


@pytest.mark.parametrize(
    ("steps", "completions"), [("iaw", 1), ("iew", 1), ("iawxiaw", 2), ("ixix", 0)]
)
def test_g9_g10_life_cycle_kept(steps: str, completions: int) -> None:
    @tp.kernel()
    def cycle(ctx: tp.Context, *, steps: str) -> None:
        life(ctx, steps)

    for run in clean(cycle.bind(steps=steps)):
        assert run.completions["bar"] == [[completions]]


@pytest.mark.parametrize("count", [0, 2**20])
def test_a_count_outside_an_mbarriers_range(count: int) -> None:
    @tp.kernel()
    def bad(ctx: tp.Context) -> None:
        tp.SharedMemBarrier.allocate(ctx, count, "bar")

    refuses(bad.bind, tp.TraceError, "1..1048575", str(count))


@tp.kernel()
def born_again(ctx: tp.Context, a: Any, out: Any, *, fence: str, first: bool) -> None:
    """A barrier is initialised in a role and given to TMA: for the first time, or after it was
    invalidated.
    """
    tile = ctx.smem((1, 32), "float32", name="tile")[0]
    bar = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, "bar")[0]
    ready = tp.SharedMemBarrier.allocate(ctx, 1, "ready")
    if not first:
        bar.init(1)

    @ctx.role("owner", warps=1)
    def owner() -> None:
        if not first:
            with ctx.elect_one():
                bar.expect_bytes_only(0)
                bar.arrive()
            bar.wait(0)
            ctx.syncwarp()
        with ctx.elect_one():
            if not first:
                bar.inval()
            bar.init(1)  # <init in a role>
            if fence == "init":
                ctx.fence_barrier_init()
            elif fence:
                ctx.fence_proxy_async(fence)
            ready.arrive()

    @ctx.role("load", warps=1)
    def load() -> None:
        ready.wait(0)
        if fence == "":
            ctx.fence_barrier_init()  # by a thread that did not initialise it
        with ctx.elect_one():
            bar.expect_bytes(tile.nbytes)
            ctx.tma_load(a, (0, 0), tile, bar)  # <copy>
        bar.wait(0)
        ctx.store(out[ctx.lane], ctx.load(tile[0, ctx.lane]))


def reborn(fence: str, first: bool = False) -> tp.Program:
    a = np.arange(32, dtype=np.float32).reshape(1, 32)
    return born_again.bind(
        tp.tensor_map(a, box=(1, 32)), np.zeros(32, np.float32), fence=fence, first=first
    )


@pytest.mark.parametrize("fence", ["", "global"])
def test_a_barrier_born_again_is_given_to_tma_without_a_fence(fence: str) -> None:
    """Without the mend (`in_role` of `Mbarrier` always False, as `never_in_role` makes it) it is
    verified.
    """
    words = (
        "gives bar to tma_load a -> tile[0]",
        "which was initialised again",
        "ctx.fence_barrier_init() (or ctx.fence_proxy_async())",
    )
    faults(
        reborn(fence),
        tp.BarrierError,
        *words,
        "role 'load'",
        where("init in a role"),
        where("copy"),
    )


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("fence", ["init", "shared", "cluster", "all"])
def test_a_barrier_born_in_a_role_and_fenced(fence: str, first: bool) -> None:
    verified(reborn(fence, first))
    verified(reborn(fence, first), rules="strict")


def test_the_first_initialisation_may_do_without() -> None:
    program = reborn("", first=True)
    (advice,) = program.run().advice
    for word in (
        "mbarrier-init fence",
        "gives bar to tma_load",
        where("init in a role"),
        where("copy"),
        "ctx.fence_barrier_init()",
    ):
        assert word in advice
    assert program.check().ok
    refuted(
        program, tp.BarrierError, "strict rules, mbarrier-init fence", where("copy"), rules="strict"
    )


def never_in_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts back the hole that a barrier initialised in a role is as good as one of set-up."""
    monkeypatch.setattr(Mbarrier, "in_role", property(lambda self: False, lambda self, value: None))


def test_the_hole_of_a_barrier_born_again_is_seen_by_these_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_in_role(monkeypatch)
    assert reborn("").check().ok
