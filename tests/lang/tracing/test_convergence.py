"""What whole warps and warpgroups execute may not stand where their threads are split; what is
elected is one definition.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused, role_from_text

GROUP = "warpgroups=1"
TILE = "s = ctx.smem((64, 64), 'bfloat16')"
ACC = "acc = ctx.accumulator((64, 64))\n"


@pytest.mark.parametrize(
    "block",
    ["ctx.elect_one()", "ctx.when(ctx.lane == 0)", "ctx.when(ctx.warp == 0)", "ctx.per_warp()"],
)
@pytest.mark.parametrize(
    "op",
    [
        "ctx.sync_warpgroup()",
        "ctx.sync_role()",
        "ctx.cluster_arrive()",
        "ctx.cluster_wait()",
        "ctx.wgmma_wait(0)",
        "ctx.wgmma_commit()",
        "ctx.mma(acc, s[0], s[0])",
    ],
)
def test_ops_of_a_warpgroup_need_all_of_it(block: str, op: str) -> None:
    with refused(tp.TraceError, "together", "block at", "only some of them", "Move it out"):
        role_from_text(f"{ACC}with {block}:\n    {op}", warps=GROUP, before=TILE)


@pytest.mark.parametrize(
    "block", ["ctx.elect_one()", "ctx.when(ctx.lane == 0)", "ctx.when(ctx.warp == 0)"]
)
@pytest.mark.parametrize("op", ["acc.fill(2)", "acc.sum()", "ctx.store(s[0], acc)"])
def test_fragments_need_their_warpgroup(block: str, op: str) -> None:
    with refused(tp.TraceError, "together", "block at"):
        role_from_text(f"{ACC}acc.fill(0)\nwith {block}:\n    {op}", warps=GROUP, before=TILE)


def test_a_branch_that_all_threads_share_splits_nothing() -> None:
    text = (
        f"{ACC}with ctx.when(ctx.warpgroup_rank == 0):\n    acc.fill(1)\n    ctx.sync_warpgroup()"
    )
    assert "named_sync" in str(role_from_text(text, warps=GROUP, before=TILE))


@pytest.mark.parametrize(
    ("block", "by"),
    [
        ("ctx.elect_one()", "lane"),
        ("ctx.when(ctx.lane < 3)", "lane"),
        ("ctx.when(ctx.warp == 1)", "warp"),
    ],
)
def test_a_variable_of_all_threads_is_not_set_by_some(block: str, by: str) -> None:
    with refused(tp.TraceError, "variable 'v'", "only some of them", f"varies by {by}"):
        role_from_text(f"v = ctx.var(0)\nwith {block}:\n    v.set(5)", warps=GROUP)


def test_a_variable_of_the_block_is() -> None:
    assert "v := 5" in str(
        role_from_text("with ctx.elect_one():\n    v = ctx.var(0)\n    v.set(5)", warps=GROUP)
    )


def test_a_variable_that_varies_is_set_lane_by_lane() -> None:
    @tp.kernel()
    def k(ctx, out):  # type: ignore[no-untyped-def]
        @ctx.role("r", warps=1)  # type: ignore[untyped-decorator]
        def r() -> None:
            v = ctx.var(ctx.lane * 0)
            with ctx.when(ctx.lane < 3):
                v.set(7)
            ctx.store(out[ctx.lane], v)

    out = np.full(32, -1, np.int32)
    k.bind(out).run()
    assert out.tolist() == [7] * 3 + [0] * 29


@pytest.mark.parametrize("op", ["b.wait(0)", "state.step()"])
@pytest.mark.parametrize("block", ["ctx.when(ctx.warp == 0)", "ctx.per_warp()"])
def test_warps_of_a_warpgroup_wait_and_step_together(op: str, block: str) -> None:
    before = "b = tp.SharedMemBarrier.allocate(ctx)\nstate = tp.PipelineState(ctx, 2)"
    with refused(tp.TraceError, "role of their own", "block at"):
        role_from_text(f"with {block}:\n    {op}", warps=GROUP, before=before)


def test_warps_of_a_role_of_warps_wait_apart() -> None:
    before = "b = tp.SharedMemBarrier.allocate(ctx, 32)"
    program = role_from_text(
        "with ctx.when(ctx.warp == 0):\n"
        "    b.wait(0)\n"
        "with ctx.when(ctx.warp == 1):\n"
        "    b.arrive()",
        warps="warps=2",
        before=before,
    )
    assert program.run().completions["barrier"] == [[1]]


def test_a_step_under_a_condition_on_data_by_lane() -> None:
    before = "state = tp.PipelineState(ctx, 2)\nt = ctx.smem((8, 64), 'int32')"
    with refused(tp.TraceError, "stepped under a lane condition"):
        role_from_text(
            "with ctx.when(ctx.load(t[0][0, ctx.lane]) > 0):\n    state.step()", before=before
        )


def test_elect_takes_the_lowest_active_lane() -> None:
    before = "b = tp.SharedMemBarrier.allocate(ctx, 1)"
    text = "with ctx.when(ctx.lane >= 4), ctx.elect_one():\n    b.arrive()\nb.wait(0)"
    assert role_from_text(text, before=before).run().completions["barrier"] == [[1]]


@pytest.mark.parametrize("scope", ["warpgroup", "role"])
def test_nobody_is_elected_where_the_first_warp_is_kept_out(scope: str) -> None:
    with refused(tp.TraceError, "first warp", "no lane would be elected"):
        role_from_text(
            f"with ctx.when(ctx.warp == 1), ctx.elect_one('{scope}'):\n    ctx.print('x')",
            warps=GROUP,
        )


def test_syncwarp_of_lanes_that_data_choose() -> None:
    with refused(tp.TraceError, "syncwarp", "depends on data"):
        role_from_text(
            "with ctx.when(ctx.load(t[0][0, ctx.lane]) > 0):\n    ctx.syncwarp()",
            before="t = ctx.smem((8, 64), 'int32')",
        )


def test_a_warp_of_its_own_may_loop_by_its_number() -> None:
    @tp.kernel()
    def k(ctx, out):  # type: ignore[no-untyped-def]
        @ctx.role("r", warps=4)  # type: ignore[untyped-decorator]
        def r() -> None:
            for i in ctx.range(ctx.warp, 10, 4):
                with ctx.elect_one():
                    ctx.store(out[i], ctx.warp)

    out = np.full(10, -1, np.int32)
    k.bind(out).run()
    assert out.tolist() == [i % 4 for i in range(10)]


def test_a_named_barrier_across_roles() -> None:
    @tp.kernel()
    def k(ctx, out):  # type: ignore[no-untyped-def]
        ready = ctx.named_barrier(64, "ready")
        box = tp.SMemArray(ctx, "int32", 1, "box")

        @ctx.role("give", warps=1)  # type: ignore[untyped-decorator]
        def give() -> None:
            with ctx.elect_one():
                ctx.store(box[0], 42)
            ctx.syncwarp()
            ready.arrive()

        @ctx.role("take", warps=1)  # type: ignore[untyped-decorator]
        def take() -> None:
            ready.sync()
            with ctx.elect_one():
                ctx.store(out[0], ctx.load(box[0]))

    out = np.zeros(1, np.int32)
    for seed in range(4):
        out[0] = 0
        k.bind(out).run(seed=seed)
        assert out[0] == 42


@pytest.mark.parametrize("threads", [0, 31, 40, 1.5])
def test_a_named_barrier_counts_whole_warps(threads: object) -> None:
    with refused(tp.TraceError, "whole warps", "multiple of 32"):
        role_from_text("ctx.print('x')", before=f"ctx.named_barrier({threads})")


def test_a_named_barrier_is_not_split() -> None:
    with refused(tp.TraceError, "barrier.sync()", "elect block at"):
        role_from_text("with ctx.elect_one():\n    b.sync()", before="b = ctx.named_barrier(32)")


@pytest.mark.parametrize(
    ("warps", "words"),
    [
        (
            "warpgroups=1",
            ("of 4 warps", 'ctx.elect_one("role"):` or `with ctx.elect_one("warpgroup"):`.'),
        ),
        (
            "warpgroups=2",
            ("of 8 warps", 'ctx.elect_one("warpgroup"):` with coordinates that depend on'),
        ),
        ("warps=3", ("of 3 warps", 'under `with ctx.elect_one("role"):`.')),
    ],
)
def test_a_lane_of_each_warp_is_not_one_lane(warps: str, words: tuple[str, ...]) -> None:
    text = "with ctx.elect_one('warp'):\n    ctx.tma_store_wait(0, read=True)"
    one = "tma_store_wait must be executed by one lane, but the elect_one block at"
    with refused(tp.TraceError, one, "elects one of each", "Elect one of them all", *words):
        role_from_text(text, warps=warps)
