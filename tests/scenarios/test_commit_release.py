"""What a tcgen05.commit hands on: that MMAs and copies of its thread are done, and, by the letter
of the PTX ISA, no ordinary store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuted, verified, zeros
from tilepipe.machine.units import tcgen05

M, N, K = 128, 32, 64


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def noted(ctx: tp.Context, a: Any, b: Any, c: Any, log: Any, *, to: str, arrives: bool) -> None:
    """The lane that issues an MMA also stores a number, to shared or global memory; the epilogue
    reads it behind the commit's barrier.
    """
    a_tile, b_tile = (
        ctx.smem((M, K), a.dtype, name="a_tile")[0],
        ctx.smem((N, K), b.dtype, name="b_tile")[0],
    )
    words = ctx.smem((1, 4), "int32", swizzle=0, name="word")
    word, seen = words[0], words.view((1, 4), name="seen")[0] if to == "a view" else None
    full, done = (
        tp.SharedMemBarrier.allocate(ctx, 1, "full"),
        tp.SharedMemBarrier.allocate(ctx, 1, "done"),
    )
    also = tp.SharedMemBarrier.allocate(ctx, 1, "also")
    placed, over = tp.SharedMemBarrier.allocate(ctx, 32, "placed"), tp.TmemDeallocBarrier(ctx)
    tmem = tp.TmemAllocation(ctx, 32)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        tmem.allocate()
        placed.arrive()
        with ctx.elect_one():
            full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
            ctx.tma_load(a, (0, 0), a_tile, full)
            ctx.tma_load(b, (0, 0), b_tile, full)
        full.wait(0)
        with ctx.elect_one():
            ctx.store(log[0] if to == "global" else word[0, 0], 7)  # <note>
            ctx.mma(tmem.tensor((M, N)), a_tile, b_tile, accumulate=False)
            ctx.mma_commit(done)
            if arrives:
                also.arrive()
        over.complete_dealloc(tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        placed.wait(0)
        tmem.from_shared()
        done.wait(0)
        ctx.tcgen05_fence_after()
        if arrives:
            also.wait(0)
        if seen is not None:
            with ctx.elect_one("warpgroup"):
                ctx.store(seen[0, 0], 8)  # <overwrite>
        x: Any = 7
        if to != "a view":
            x = ctx.load(word[0, 0] if to == "shared" else log[0])  # <read>
        part = tmem.tensor((M, N)).load()
        ctx.tmem_wait_load()
        ctx.store_global(c, (0, 0), part * x)
        over.signal_complete()


def bind(to: str = "shared", arrives: bool = False) -> tuple[tp.Program, np.ndarray, np.ndarray]:
    a, b, c = matrix(M, K, 1), matrix(N, K, 2), zeros(M, N)
    program = noted.bind(
        tp.tensor_map(a, box=(M, K)),
        tp.tensor_map(b, box=(N, K)),
        c,
        np.zeros(4, np.int32),
        to=to,
        arrives=arrives,
    )
    return program, c, 7 * (a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["shared", "global"])
def test_a_commit_alone_says_that_a_store_is_over(to: str) -> None:
    """Practice goes by it, with advice; strict does not. Without the mend
    (`not_published_by_commits` always 0) nothing is said.
    """
    program, c, want = bind(to)
    run = program.run()
    assert (c == want).all()
    (advice,) = run.advice
    words = (
        "commit as a release",
        "only a tcgen05.commit orders load",
        "(role 'epilogue') after the ordinary write of",
        "by role 'mma' at",
        where("note"),
        where("read"),
        "a commit waits for MMAs and copies, not for stores",
        "also arrive on a barrier",
    )
    assert not [word for word in words if word not in advice], advice
    verdict = program.check()
    assert verdict.ok
    assert verdict.advice == run.advice
    faults(
        program,
        tp.RaceError,
        "strict rules, commit as a release",
        where("note"),
        where("read"),
        rules="strict",
    )


def test_a_commit_alone_before_a_write_through_another_view() -> None:
    program, _, _ = bind("a view")
    (advice,) = program.run().advice
    words = (
        "only a tcgen05.commit orders store seen",
        "after the ordinary write of word by role 'mma'",
        where("note"),
        where("overwrite"),
    )
    assert not [word for word in words if word not in advice], advice
    faults(program, tp.RaceError, "strict rules, commit as a release", *words, rules="strict")


@pytest.mark.parametrize("to", ["shared", "global", "a view"])
def test_an_arrive_says_so(to: str) -> None:
    program, c, want = bind(to, arrives=True)
    verified(program)
    verified(program, rules="strict")
    for run in clean(program):
        assert run.advice == []
        assert (c == want).all()


def test_the_hole_is_seen_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcgen05, "not_published_by_commits", lambda m: 0)
    verified(bind()[0], rules="strict")
    monkeypatch.undo()
    refuted(bind()[0], tp.RaceError, "commit as a release", rules="strict")
