"""The grid under dynamic work: atomic adds, cluster launch control, residency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults
from tilepipe.sim import runtime as support


def where(mark: str) -> str:
    return at(__file__, mark)


# of the CTAs here, which take 200 KB each
ONE_A_SM = tp.Chip(name="three", sms=3, clusters=((2, 1),))
SEEDS = range(40)


@tp.kernel(grid=lambda clusters: clusters)
def tickets(
    ctx: tp.Context, counter: Any, who: Any, spare: Any, *, clusters: int, slow: int, room: int
) -> None:
    """who[ticket] = the CTA that drew it; CTA 0 makes `slow` more atomic adds before each draw."""
    if room:
        ctx.smem((room, 256), "float32", name="room")
    drawn = ctx.smem((1, 4), tp.int32, swizzle=0, name="drawn")[0]

    @ctx.role("draw", warps=1)
    def draw() -> None:
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            with ctx.elect_one():
                with ctx.when(ctx.block_id == 0):
                    for _ in ctx.range(slow):
                        ctx.atomic_add(spare[0], 1)
                ctx.store(drawn[0, 0], ctx.atomic_add(counter[0], 1))
            ctx.syncwarp()
            ticket = ctx.load(drawn[0, 0])
            with ctx.when(ticket < who.shape[0]), ctx.elect_one():
                ctx.store(who[ticket], ctx.block_id)
            more.set(ticket < who.shape[0])
            ctx.syncwarp()


def drawn(seed: int, n: int = 12, clusters: int = 3, slow: int = 0, room: int = 200) -> list[int]:
    """Who drew each ticket."""
    counter, who, spare = np.zeros(1, np.int32), np.full(n, -1, np.int32), np.zeros(1, np.int32)
    tickets.bind(counter, who, spare, clusters=clusters, slow=slow, room=room, chip=ONE_A_SM).run(
        seed=seed
    )
    assert counter[0] == n + clusters
    return who.tolist()


@pytest.mark.slow
def test_each_ticket_is_drawn_once_and_a_seed_gives_the_same_run() -> None:
    assert all(-1 not in drawn(seed) for seed in SEEDS)
    assert [drawn(seed) for seed in (3, 4)] == [drawn(seed) for seed in (3, 4)]


def test_at_seed_0_tickets_follow_simulated_time() -> None:
    assert drawn(0) == [0, 1, 2] * 4
    shares = [drawn(0, 30, slow=4).count(cta) for cta in range(3)]
    assert shares[0] < 5 < 12 < shares[1] <= shares[2] + 1, shares


@pytest.mark.slow
def test_every_distribution_can_occur() -> None:
    """One CTA may draw all tickets, and one none, as on hardware where nothing says who is fast."""
    found = [drawn(seed) for seed in SEEDS]
    drew = {tuple(sorted(set(who))) for who in found}
    assert {(0,), (1,), (2,), (0, 1, 2)} <= drew
    assert len({tuple(sorted(map(who.count, range(3)))) for who in found}) > 4


def test_ctas_that_find_no_room_start_when_one_ends() -> None:
    """Three are resident, and draw until nothing is left; the other two then draw one ticket each
    that is too high.
    """
    assert set(drawn(0, 12, clusters=5)) == {0, 1, 2}
    assert set(drawn(0, 12, clusters=5, room=0)) == {0, 1, 2, 3, 4}


@tp.kernel(grid=3)
def wrapped(ctx: tp.Context, total: Any, old: Any, *, by: int) -> None:
    """Each CTA adds `by`."""

    @ctx.role("add", warps=1)
    def add() -> None:
        with ctx.elect_one():
            ctx.store(old[ctx.block_id], ctx.atomic_add(total[0], by))


@pytest.mark.parametrize(
    ("dtype", "by"), [(np.int32, 2**31 - 1), (np.int32, -(2**31) + 1), (np.uint32, 2**32 - 3)]
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sums_wrap(dtype: type[np.generic], by: int, seed: int) -> None:
    total, old = np.zeros(1, dtype), np.zeros(3, dtype)
    wrapped.bind(total, old, by=by).run(seed=seed)
    steps = [np.array(k * by, np.int64).astype(dtype) for k in range(4)]
    assert total[0] == steps[3]
    assert sorted(old.tolist()) == sorted(int(x) for x in steps[:3])


# -- order of accesses -----------------------------------------------------------------


@tp.kernel(grid=lambda ctas: ctas)
def mixed(ctx: tp.Context, x: Any, out: Any, *, ctas: int, plain: str) -> None:
    """CTA 0 adds, then another CTA (or another warp) stores to, or loads, the same element."""

    @ctx.role("first", warps=1)
    def first() -> None:
        with ctx.when(ctx.block_id == 0), ctx.elect_one():
            ctx.atomic_add(x[0], 1)  # <add>

    @ctx.role("second", warps=1)
    def second() -> None:
        with ctx.when(ctx.block_id == ctas - 1), ctx.elect_one():
            if plain == "store":
                ctx.store(x[0], 7)
            elif plain == "load":
                ctx.store(out[0], ctx.load(x[0]))
            else:
                ctx.atomic_add(x[0], 1)


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize("plain", ["store", "load"])
def test_an_atomic_add_and_an_ordinary_access_race(ctas: int, plain: str) -> None:
    program = mixed.bind(np.zeros(1, np.int32), np.zeros(1, np.int32), ctas=ctas, plain=plain)
    if plain == "load":  # beside the add, a load with an order would do
        remedy = f'is an ordinary one: write order="acquire" and scope="{("cta", "gpu")[ctas - 1]}"'
    else:
        remedy = "Nothing in this kernel orders CTAs" if ctas == 2 else "must arrive"
    faults(program, tp.RaceError, "race on tensor 'x'", "atomic_add", plain, remedy)


@pytest.mark.parametrize("ctas", [1, 2])
def test_atomic_adds_do_not_race(ctas: int) -> None:
    for seed in range(6):
        x = np.zeros(1, np.int32)
        mixed.bind(x, np.zeros(1, np.int32), ctas=ctas, plain="add").run(seed=seed)
        assert x[0] == 2


@tp.kernel(grid=3)
def after_all(ctx: tp.Context, x: Any, out: Any) -> None:
    """Each CTA adds, and then loads what the others may still add to."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ctx.atomic_add(x[0], 1)
            ctx.store(out[ctx.block_id], ctx.load(x[0]))


def test_a_load_after_the_adds_of_several_clusters_is_a_race() -> None:
    faults(
        after_all.bind(np.zeros(1, np.int32), np.zeros(3, np.int32)),
        tp.RaceError,
        "race on tensor 'x'",
        "load x[0]",
        seeds=range(8),
    )


@tp.kernel(grid=2)
def interleaved(ctx: tp.Context, counter: Any, a: Any) -> None:
    """Between draws a CTA writes to its own row, first one warp and then, told by a barrier, the
    other.
    """
    told = tp.SharedMemBarrier.allocate(ctx, 32, "told")

    @ctx.role("first", warps=1)
    def first() -> None:
        with ctx.elect_one():
            ctx.atomic_add(counter[0], 1)
        ctx.store(a[ctx.block_id, ctx.lane], ctx.lane)
        with ctx.elect_one():
            ctx.atomic_add(counter[0], 1)
        told.arrive()

    @ctx.role("second", warps=1)
    def second() -> None:
        with ctx.elect_one():
            ctx.atomic_add(counter[0], 1)
        told.wait(0)
        ctx.store(a[ctx.block_id, 31 - ctx.lane], ctx.lane)


def test_clusters_that_run_together_keep_their_own_accesses() -> None:
    for seed in range(10):
        counter, a = np.zeros(1, np.int32), np.zeros((2, 32), np.int32)
        interleaved.bind(counter, a).run(seed=seed)
        assert counter[0] == 6
        assert (a == 31 - np.arange(32)).all()


# -- cluster launch control ------------------------------------------------------------


@tp.kernel(grid=2)
def unheard(ctx: tp.Context) -> None:
    """A request whose response nobody waits for."""
    response = ctx.smem((1, 4), tp.int32, swizzle=0, name="response")[0]
    heard = tp.SharedMemBarrier.allocate(ctx, 1, "heard")

    @ctx.role("ask", warps=1)
    def ask() -> None:
        with ctx.elect_one():
            heard.expect_bytes(16)
            ctx.clc_try_cancel(response, heard)  # <unheard>


def test_leaving_before_a_response_has_arrived() -> None:
    words = (
        "exits while a response can still arrive in response",
        where("unheard"),
        "Every CTA of the cluster must read every response",
    )
    faults(unheard.bind(), tp.ExitError, *words)


@tp.kernel(grid=2)
def misread(ctx: tp.Context, out: Any) -> None:
    """What a response says to ordinary code: whether, and which."""
    response = ctx.smem((1, 4), tp.int32, swizzle=0, name="response")[0]
    heard = tp.SharedMemBarrier.allocate(ctx, 1, "heard")

    @ctx.role("ask", warps=1)
    def ask() -> None:
        with ctx.elect_one():
            heard.expect_bytes(16)
            ctx.clc_try_cancel(response, heard)
        heard.wait(0)
        valid, cluster = ctx.clc_query(response)
        with ctx.elect_one():
            ctx.store(out[ctx.block_id, 0], 1)
            with ctx.when(valid):
                ctx.store(out[cluster, 1], ctx.block_id + 1)


def test_what_a_response_says() -> None:
    """Two clusters of which both, or one, find room."""
    seen = set()
    for seed in range(20):
        out = np.zeros((2, 2), np.int32)
        misread.bind(out).run(seed=seed)
        seen.add(tuple(map(tuple, out.tolist())))
    both, first, second = ((1, 0), (1, 0)), ((1, 0), (0, 1)), ((0, 2), (1, 0))
    assert seen == {both, first, second}


@pytest.mark.slow
def test_a_loop_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    @tp.kernel(grid=2)
    def counts(ctx: tp.Context, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            for block in ctx.range(2):
                n, more = ctx.var(0), ctx.var(True)
                for _ in ctx.loop_while(more):  # <endless>
                    n += 1
                    more.set((n < 100) | (ctx.load(out[0]) != 0))
                with ctx.elect_one():
                    ctx.store(out[2 + 2 * block + ctx.block_id], n.get())

    monkeypatch.setattr(support, "MAX_TURNS", 100)
    out = np.zeros(6, np.int32)
    counts.bind(out).run(seed=1)
    assert out.tolist() == [0, 0, 100, 100, 100, 100], "in each loop anew"
    out[0] = 1
    faults(
        counts.bind(out),
        tp.SimFault,
        "has run 100 times and its variable still holds",
        "role 'one' of CTA",
        where("endless"),
    )
