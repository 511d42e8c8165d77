"""MmaWarpContext and EpilogueWarpContext: the life of tensor memory in two roles, as contexts and
by handles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.pipelines.accumulators.test_tensor_memory import fill_all, parts_of, take_all
from tests.scenarios.support import matrix, zeros
from tests.support.accumulators import K, M, Parts, epilogue, gemm, mma, right
from tests.support.tracing import refused
from tilepipe.ir import ops
from tilepipe.ir.program import walk


def by_context(p: Parts) -> None:
    with tp.MmaWarpContext(p.outputs.tmem, *parts_of(p)), p.ctx.when(tp.elect_one_cta(p.ctx)):
        fill_all(p)


def by_handle(p: Parts) -> None:
    held = tp.MmaWarp.create(p.outputs.tmem, *parts_of(p))
    with p.ctx.when(tp.elect_one_cta(p.ctx)):
        fill_all(p)
    held.release()


def taken_by_context(p: Parts) -> None:
    with tp.EpilogueWarpContext(p.outputs.tmem, *parts_of(p)):
        take_all(p)


def taken_by_handle(p: Parts) -> None:
    held = tp.EpilogueWarp.create(p.outputs.tmem, *parts_of(p))
    take_all(p)
    held.release()


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("take", [epilogue, taken_by_context, taken_by_handle])
@pytest.mark.parametrize("fill", [mma, by_context, by_handle])
def test_both_forms(fill: Any, take: Any, group: int) -> None:
    for run in right([1], mma=fill, epilogue=take, group=group, tiles=3):
        assert run.completions["tmem_dealloc"] == [[1]] * group


def traffic(program: tp.Program, role: int) -> list[str]:
    """What concerns the life of tensor memory in a role, in program order."""
    kinds = {
        ops.TmemAlloc: "alloc",
        ops.TmemRelinquish: "relinquish",
        ops.TmemDealloc: "dealloc",
        ops.NamedArrive: "announce",
        ops.NamedSync: "meet",
        ops.Load: "read address",
    }
    found = []
    for op in walk(program.kernel.roles[role].body):
        if isinstance(op, ops.MbarWait | ops.MbarArrive) and op.bar.array.name == "tmem_dealloc":
            found.append(
                ("wait" if isinstance(op, ops.MbarWait) else "signal")
                + (" peer" if op.bar.cta is not None else "")
            )
        elif type(op) in kinds:
            found.append(kinds[type(op)])
    return found


@pytest.mark.parametrize(
    ("fill", "take"),
    [(mma, epilogue), (by_context, taken_by_context), (by_handle, taken_by_handle)],
)
def test_their_order(fill: Any, take: Any) -> None:
    for group in (1, 2):
        program, _, _ = gemm(mma=fill, epilogue=take, group=group)
        assert traffic(program, 1) == [
            "alloc",
            "read address",
            "relinquish",
            "announce",
            "wait",
            "dealloc",
        ]
        assert traffic(program, 2) == [
            "meet",
            "read address",
            *["signal peer"][: group - 1],
            "signal",
        ]


def test_what_stands_beside_them() -> None:
    """The warp is together before it reads what alloc wrote; fences stand before the epilogue's
    signal and behind the wait for it (PTX ISA, tcgen05.dealloc is ordered like any other access).
    """
    program, _, _ = gemm(group=2)
    mma_ops, epilogue_ops = (list(walk(program.kernel.roles[i].body)) for i in (1, 2))
    kinds = [type(op) for op in mma_ops]
    alloc = kinds.index(ops.TmemAlloc)
    assert kinds[alloc : alloc + 3] == [ops.TmemAlloc, ops.SyncWarp, ops.Load]
    waits = [
        i
        for i, op in enumerate(mma_ops)
        if isinstance(op, ops.MbarWait) and op.bar.array.name == "tmem_dealloc"
    ]
    assert [kinds[i : i + 3] for i in waits] == [
        [ops.MbarWait, ops.Tcgen05FenceAfter, ops.TmemDealloc]
    ]
    signals = [
        i
        for i, op in enumerate(epilogue_ops)
        if isinstance(op, ops.MbarArrive) and op.bar.array.name == "tmem_dealloc"
    ]
    assert len(signals) == 2
    assert type(epilogue_ops[signals[0] - 1]) is ops.Tcgen05FenceBefore


def test_who_meets_when_the_address_is_announced() -> None:
    """The MMA warp, which only arrives, and the epilogue's threads."""
    program, _, _ = gemm()
    barriers = {
        op.bar.name: op.bar.threads
        for role in program.kernel.roles
        for op in walk(role.body)
        if isinstance(op, ops.NamedSync)
    }
    assert barriers == {"outputs_tmem_published": 32 + 128}


# -- mistakes --------------------------------------------------------------------------


def created_in_a_branch(p: Parts) -> None:
    held = tp.MmaWarp.create(p.outputs.tmem, *parts_of(p))
    with p.ctx.when(p.ctx.block_id == 0):
        held.release()


def released_twice(p: Parts) -> None:
    held = tp.MmaWarp.create(p.outputs.tmem, *parts_of(p))
    held.release()
    held.release()


def used_behind(p: Parts) -> None:
    with p.outputs.mma_warp():
        stage = p.outputs.tmem
    stage.tensor((M, 16))


FILL_MISTAKES: list[tuple[Any, tuple[str, ...]]] = [
    (
        lambda p: p.outputs.mma_warp(),
        ("mma_warp() of 'tmem'", "still held", "with outputs.mma_warp():", "release()"),
    ),
    (
        lambda p: tp.MmaWarp.create(p.outputs.tmem, *parts_of(p)),
        ("MmaWarpContext of 'tmem'", "still held", "call release()"),
    ),
    (
        lambda p: tp.MmaWarpContext(p.outputs.tmem, *parts_of(p)),
        ("mma_warp() of 'tmem'", "still held"),
    ),
    (created_in_a_branch, ("MmaWarpContext of 'tmem'", "released in a nested branch block")),
    (released_twice, ("MmaWarpContext of 'tmem'", "released twice")),
    (used_behind, ("tensor memory 'tmem'", "used after its release")),
]


@pytest.mark.parametrize(
    ("role", "words"), FILL_MISTAKES, ids=[words[-1] for _, words in FILL_MISTAKES]
)
def test_mistakes_of_the_mma_warp(role: Any, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, *words):
        gemm(mma=role)


TAKE_MISTAKES: list[tuple[Any, tuple[str, ...]]] = [
    (
        lambda p: p.outputs.epilogue_warp(),
        ("epilogue_warp() of 'tmem'", "still held", "with outputs.epilogue_warp():"),
    ),
    (
        lambda p: tp.EpilogueWarp.create(p.outputs.tmem, *parts_of(p)),
        ("EpilogueWarpContext of 'tmem'", "still held", "call release()"),
    ),
]


@pytest.mark.parametrize(
    ("role", "words"), TAKE_MISTAKES, ids=[words[-1] for _, words in TAKE_MISTAKES]
)
def test_mistakes_of_the_epilogue(role: Any, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, *words):
        gemm(epilogue=role)


@pytest.mark.parametrize("view", ["mma_warp", "epilogue_warp"])
def test_they_need_the_parts_that_allocate_makes(view: str) -> None:
    def bare(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, "outputs")
        tp.OutputTilePipeline.init_barriers(storage, 1, 128)
        return tp.OutputTilePipeline(storage, tp.TmemAllocation(ctx, config.columns), config=config)

    words = (
        "'outputs' was not made by OutputTilePipeline.allocate",
        "build MmaWarpContext and EpilogueWarpContext yourself",
    )
    with refused(tp.TraceError, *words):
        gemm(outputs=bare, load=lambda p: getattr(p.outputs, view)())


@pytest.mark.parametrize("view", ["mma_warp", "epilogue_warp"])
def test_an_error_in_the_body_is_the_one_that_is_reported(view: str) -> None:
    """Leaving by an exception releases nothing, so it does not hide the error."""

    def failing(p: Parts) -> None:
        with getattr(p.outputs, view)():
            raise ZeroDivisionError("the body's own")

    roles: dict[str, Any] = {"mma" if view == "mma_warp" else "epilogue": failing}
    with pytest.raises(ZeroDivisionError, match="the body's own"):
        gemm(**roles)


# -- with several tiles of K a stage ---------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("k_group_size", [2, 3])
def test_groups_of_k_tiles(k_group_size: int, group: int, seed: int) -> None:
    """The two contexts around stages that hold several tiles of K: one commit and one release a
    group.
    """
    tiles, groups, n = 3, 3, 32
    rows = tiles * group * M
    a_host, b_host = (
        matrix(rows, groups * k_group_size * K),
        matrix(n, groups * k_group_size * K, seed=1),
    )
    out = zeros(rows, n)
    payload = tp.StandardTilePayload(
        a_type="bfloat16", b_type="bfloat16", a_shape=(M, K), b_shape=(n // group, K)
    )

    @tp.kernel(grid=group, cluster=group)
    def grouped(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(
            ctx, payload, num_group_stages=2, k_group_size=k_group_size, cta_group=group
        )
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, n, group))

        @ctx.role("load", warps=1)
        def load() -> None:
            with inputs.producer() as producer:
                for tile in ctx.range(tiles):
                    for step in ctx.range(groups):
                        with producer.acquire() as stage, ctx.elect_one():
                            stage.expect_bytes(inputs.stage_bytes)
                            for j in range(k_group_size):
                                a_tile, b_tile = stage.tile(j)
                                k = (step * k_group_size + j) * K
                                ctx.tma_load(
                                    a,
                                    ((tile * group + ctx.cta_rank) * M, k),
                                    a_tile,
                                    stage.barrier(),
                                )
                                ctx.tma_load(
                                    b, (ctx.cta_rank * (n // group), k), b_tile, stage.barrier()
                                )
                producer.drain()

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp(), inputs.consumer() as consumer, ctx.when(tp.elect_one_cta(ctx)):
                for _ in ctx.range(tiles):
                    with outputs.producer() as held:
                        for step in ctx.range(groups):
                            with consumer.acquire() as stage, ctx.elect_one():
                                for j in range(k_group_size):
                                    a_tile, b_tile = stage.tile(j)
                                    ctx.mma(
                                        held.tmem.tensor((M, n)),
                                        a_tile,
                                        b_tile,
                                        accumulate=True if j else step > 0,
                                    )

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.epilogue_warp():
                for tile in ctx.range(tiles):
                    with outputs.consumer() as held:
                        part = held.tmem.tensor((M, n)).load()
                    ctx.store_global(out, ((tile * group + ctx.cta_rank) * M, 0), part)

    program = grouped.bind(
        tp.tensor_map(a_host, box=(M, K)), tp.tensor_map(b_host, box=(n // group, K)), out
    )
    run = program.run(seed=seed)
    assert np.array_equal(out, a_host.astype(np.float32) @ b_host.astype(np.float32).T)
    assert sum(run.completions["inputs.empty"][0]) == tiles * groups
    assert run.completions["inputs.empty"] == [run.completions["inputs.empty"][0]] * group


def test_an_epilogue_of_more_threads_than_were_said() -> None:
    @tp.kernel()
    def wide(ctx: tp.Context, *, threads: int) -> None:
        config = tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=32)
        outputs = tp.OutputTilePipeline.allocate(ctx, config, epilogue_threads=threads)

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp():
                pass

        @ctx.role("epilogue", warpgroups=2)
        def epilogue() -> None:
            with outputs.epilogue_warp():
                pass

    words = (
        "256 threads of role 'epilogue' synchronise with the MMA warp, but the barrier is for 128",
        "epilogue_threads=256",
    )
    with refused(tp.TraceError, *words):
        wide.bind(threads=128)
    wide.bind(threads=256).run(seed=1)
