"""Pairs of CTAs that share an MMA: who leads, whose barriers are signalled, whose bytes count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.accumulators import M, Parts, gemm, who_arrives
from tests.support.ring_kernels import counts_of, laps
from tests.support.tracing import of_kind, refused
from tilepipe.ir import ops
from tilepipe.ir.program import walk
from tilepipe.ir.static_evaluation import evaluate, thread_env
from tilepipe.pipelines.barriers import pairs

Body = Callable[[tp.Context, Any, tp.OutputTilePipeline], None]


def in_cluster(body: Body, cluster: int, group: int, **role: int) -> tuple[tp.Program, Any]:
    """A kernel of one cluster whose role does `body(ctx, out, outputs)`; out: an integer of each
    CTA.
    """
    out = np.full(cluster, -1, np.int32)

    @tp.kernel(grid=cluster, cluster=cluster)
    def k(ctx: tp.Context, out: Any) -> None:
        config = tp.OutputPipelineConfig(2, 16, group)
        outputs = tp.OutputTilePipeline.allocate(
            ctx, config, producer_arrivals=1, consumer_arrivals=128 * group
        )

        @ctx.role("one", **(role or {"warps": 1}))
        def one() -> None:
            body(ctx, out, outputs)

    return k.bind(out), out


def by_rank(value: Callable[[tp.Context], Any], cluster: int) -> list[int]:
    """What `value(ctx)` is in each CTA of a cluster of pairs."""

    def body(ctx: tp.Context, out: Any, outputs: Any) -> None:
        with ctx.elect_one():
            ctx.store(out[ctx.cta_rank], value(ctx))

    program, out = in_cluster(body, cluster, 2)
    program.run()
    return out.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_the_even_cta_leads(cluster: int) -> None:
    assert by_rank(pairs.leader_cta, cluster) == [rank & ~1 for rank in range(cluster)]
    assert by_rank(pairs.pair_mask, cluster) == [0b11 << (rank & ~1) for rank in range(cluster)]
    for group in (1, 2):

        def mark(ctx: tp.Context, out: Any, outputs: Any) -> None:
            with ctx.when(tp.elect_one_cta(ctx)), ctx.elect_one():
                ctx.store(out[ctx.cta_rank], 7)

        program, out = in_cluster(mark, cluster, group)
        program.run()
        assert out.tolist() == [7, 7 if group == 1 else -1] * (cluster // 2)


def test_every_cta_is_elected_where_there_are_no_pairs() -> None:
    """Also in a kernel without tensor memory."""
    out = np.zeros(2, np.int32)

    @tp.kernel(grid=2, cluster=2)
    def k(ctx: tp.Context, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.when(tp.elect_one_cta(ctx)), ctx.elect_one():
                ctx.store(out[ctx.cta_rank], 1)

    k.bind(out).run()
    assert out.tolist() == [1, 1]


@pytest.mark.parametrize("group", [0, 1, 2])
def test_elected_cta_is_a_block(group: int) -> None:
    """For a pair the even CTA executes it; otherwise every CTA."""

    def body(ctx: tp.Context, out: Any, outputs: Any) -> None:
        with pairs.elected_cta(ctx, group), ctx.elect_one():
            ctx.store(out[ctx.cta_rank], 7)

    program, out = in_cluster(body, 4, 2)
    program.run()
    assert out.tolist() == ([7, -1, 7, -1] if group == 2 else [7] * 4)


# -- arrivals --------------------------------------------------------------------------


def everybody(act: Callable[[tp.Context, Any], None]) -> Body:
    def body(ctx: tp.Context, out: Any, outputs: Any) -> None:
        act(ctx, outputs)
        ctx.cluster_arrive()
        ctx.cluster_wait()

    return body


def arrivals_by_rank(
    body: Body, cluster: int = 4, group: int = 2, **role: int
) -> dict[tuple[str, int], list[int]]:
    """(barrier, its CTA) -> arrivals from each CTA."""
    program, _ = in_cluster(body, cluster, group, **role)
    found: dict[tuple[str, int], list[int]] = {}
    for (name, at, _, source), n in who_arrives(program).items():
        found.setdefault((name, at), [0] * cluster)[source] += n
    return found


def test_umma_arrive_leader_cta() -> None:
    """Every thread arrives once, on the even CTA's barrier."""
    body = everybody(
        lambda ctx, outputs: tp.umma_arrive_leader_cta(outputs.pipeline.consumer_mbar(0))
    )
    assert arrivals_by_rank(body, warpgroups=1) == {
        ("outputs.empty", 0): [128, 128, 0, 0],
        ("outputs.empty", 2): [0, 0, 128, 128],
    }


@pytest.mark.parametrize("group", [1, 2])
def test_accum_barrier(group: int) -> None:
    body = everybody(lambda ctx, outputs: tp.AccumBarrier(group).arrive(outputs.pipeline, 0))
    alone = {
        ("outputs.empty", rank): [128 * (rank == source) for source in range(2)]
        for rank in range(2)
    }
    both = {("outputs.empty", 0): [128, 128]}
    assert arrivals_by_rank(body, 2, group, warpgroups=1) == (both if group == 2 else alone)


def commits(
    commit: Callable[[tp.Context, tp.MbarPtr], None], count: int, told: int
) -> dict[tuple[str, int], list[int]]:
    """Arrivals in a cluster of two pairs, each of which commits in its even CTA; the CTAs of the
    mask `told` wait for them.
    """

    @tp.kernel(grid=4, cluster=4)
    def k(ctx: tp.Context) -> None:
        tp.TmemAllocation(ctx, 32, cta_group=2)
        done = tp.SharedMemBarrier.allocate(ctx, count, name="done")

        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.when(tp.elect_one_cta(ctx)), ctx.elect_one():
                commit(ctx, done)
            with ctx.when((told >> ctx.cta_rank) & 1 == 1):
                done.wait(0)

    found: dict[tuple[str, int], list[int]] = {}
    for (name, at, _, source), n in who_arrives(k.bind(), seed=2).items():
        found.setdefault((name, at), [0] * 4)[source] += n
    return found


def test_a_commit_without_a_mask() -> None:
    found = commits(lambda ctx, done: tp.mma_arrive(done), 1, 0b0101)
    assert found == {("done", 0): [1, 0, 0, 0], ("done", 2): [0, 0, 1, 0]}


@pytest.mark.parametrize("mask", [0b0101, 0b1000, 0b1111, 0b0110])
def test_a_commit_with_a_mask(mask: int) -> None:
    """By each even CTA, on the copies of all CTAs of the mask."""
    found = commits(lambda ctx, done: tp.mma_arrive_multicast(done, mask), 2, mask)
    assert found == {("done", rank): [1, 0, 1, 0] for rank in range(4) if mask >> rank & 1}


def test_a_commit_with_the_mask_of_the_pair() -> None:
    found = commits(
        lambda ctx, done: tp.mma_arrive_multicast(done, pairs.pair_mask(ctx)), 1, 0b1111
    )
    assert found == {
        ("done", rank): [int(source == rank & ~1) for source in range(4)] for rank in range(4)
    }


# -- input pipelines of pairs ----------------------------------------------------------


def test_the_bytes_of_both_ctas_count_on_the_even_one_s_barrier() -> None:
    program, out, want = gemm(group=2)
    sizes: dict[str, int] = {}

    def look(p: Parts) -> None:
        sizes["one"], sizes["both"] = p.inputs.payload.tile_bytes, p.inputs.stage_bytes

    gemm(group=2, setup=look)
    assert sizes == {"one": (M + 16) * 32, "both": 2 * (M + 16) * 32}
    arrivals = who_arrives(program, seed=3)
    assert np.array_equal(out, want)
    assert {key: n for key, n in arrivals.items() if key[0] == "inputs.full"} == {
        ("inputs.full", 0, "load", 0): 10
    }
    assert {key: n for key, n in arrivals.items() if key[0] == "inputs.empty"} == {
        ("inputs.empty", rank, "mma", 0): 10 for rank in range(2)
    }
    run = program.run()
    assert run.completions["inputs.full"] == [laps(10, 3), [0, 0, 0]]
    assert run.completions["inputs.empty"] == [laps(10, 3)] * 2


def test_which_barrier_the_copies_signal() -> None:
    """`barrier()` is the leader's in each pair; without pairs it is this CTA's."""
    program, _, _ = gemm(group=2)
    loads = of_kind(program, ops.TmaLoad)
    assert len(loads) == 2
    for op in loads:
        ranks: Any = evaluate(op.bar.cta, thread_env(program.kernel.roles[0], 4))
        assert np.broadcast_to(ranks, (4, 1, 32))[:, 0, 0].tolist() == [0, 0, 2, 2]
    single, _, _ = gemm(group=1)
    assert [op.bar.cta for op in of_kind(single, ops.TmaLoad)] == [None, None]


def test_the_even_cta_alone_expects_bytes() -> None:
    def expects(group: int) -> list[bool]:
        """Whether each expect stands under a condition on the CTA's rank."""
        program, _, _ = gemm(group=group)
        body = program.kernel.roles[0].body
        guarded = [
            op
            for branch in walk(body)
            if isinstance(branch, ops.If)
            for op in walk(branch.then)
            if isinstance(op, ops.MbarExpect)
        ]
        return [
            any(op is g for g in guarded) for op in walk(body) if isinstance(op, ops.MbarExpect)
        ]

    assert expects(1) == [False]
    assert expects(2) == [True]


@pytest.mark.parametrize("k_group_size", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2])
def test_stage_bytes(group: int, k_group_size: int) -> None:
    payload = tp.StandardTilePayload(
        a_type="bfloat16", b_type="float16", a_shape=(64, 32), b_shape=(16, 32)
    )
    found = []

    @tp.kernel(grid=2, cluster=2)
    def k(ctx: tp.Context) -> None:
        inputs = tp.InputTilePipeline.allocate(
            ctx, payload, num_group_stages=2, k_group_size=k_group_size, cta_group=group
        )
        found.append((inputs.stage_bytes, inputs.cta_group))

        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.syncwarp()

    k.bind()
    assert found == [((64 + 16) * 32 * 2 * k_group_size * group, group)]


@pytest.mark.parametrize("group", [1, 2])
def test_counts(group: int) -> None:
    assert counts_of(gemm(group=group)[0])["inputs.empty"] == 1


# -- refused ---------------------------------------------------------------------------


def test_no_pairs_in_an_odd_cluster() -> None:
    for cluster in (1, 3):
        with refused(
            tp.TraceError,
            "cta_group=2 pairs CTAs 2 i and 2 i + 1",
            f"a cluster of {cluster} has no pairs",
        ):
            in_cluster(lambda ctx, out, outputs: None, cluster, 2)


def test_one_group_in_a_kernel() -> None:
    @tp.kernel(grid=2, cluster=2)
    def k(ctx: tp.Context) -> None:
        tp.TmemAllocation(ctx, 32, cta_group=2)
        tp.TmemAllocation(ctx, 32, cta_group=1)

    with refused(
        tp.TraceError,
        "all tcgen05 instructions of a kernel have one cta_group; this is 1, others have 2",
    ):
        k.bind()


@pytest.mark.parametrize("what", ["mma", "tmem_copy"])
def test_the_odd_cta_issues_nothing(what: str) -> None:
    def build(guard: Any) -> tp.Program:
        @tp.kernel(grid=2, cluster=2)
        def k(ctx: tp.Context) -> None:
            tmem = tp.TmemAllocation(ctx, 64, cta_group=2)
            a_tile = ctx.smem((128, 16), "bfloat16", name="a")[0]
            scales = ctx.smem((128, 16), "uint8", swizzle=0, name="scales")[0]

            @ctx.role("one", warps=1)
            def one() -> None:
                tmem.allocate()
                with ctx.when(guard(ctx)), ctx.elect_one():
                    if what == "mma":
                        ctx.mma(
                            tmem.tensor((128, 32)), a_tile, a_tile.rows(0, 16), accumulate=False
                        )
                    else:
                        ctx.tmem_copy(tmem.tensor((128, 8), "bfloat16"), scales)
                tmem.deallocate()

        return k.bind()

    for guard in (lambda ctx: ctx.cta_rank == 1, lambda ctx: ctx.cta_rank >= 0):
        with refused(
            tp.TraceError,
            f"{what}: of a pair of CTAs (cta_group 2) the even one",
            "tp.elect_one_cta(ctx)",
        ):
            build(guard)
    if what == "mma":
        assert build(tp.elect_one_cta) is not None
