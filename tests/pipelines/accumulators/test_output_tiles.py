"""OutputTilePipeline: its members, both forms of acquire and release, whose barriers complete, and
parts that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.accumulators import (
    M,
    Parts,
    epilogue,
    gemm,
    in_epilogue,
    in_mma_warp,
    mma,
    right,
    who_arrives,
)
from tests.support.ring_kernels import counts_of, laps
from tests.support.tracing import refused

# -- the forms -------------------------------------------------------------------------


def fill_flat(p: Parts) -> None:
    stage = p.outputs.acquire_for_mma()
    assert isinstance(stage, p.outputs.Stage)
    p.multiply(p.accumulator(stage))
    p.outputs.release_from_mma(stage)


def fill_linear(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    p.multiply(stage.tmem().tensor((M, p.n)))
    stage.release()


def fill_and_commit(p: Parts) -> None:
    """As the page's example under `acquire_mma_linear`: a commit by hand, then release, which only
    steps.
    """
    stage = p.outputs.acquire_mma_linear()
    p.multiply(tp.TmemStage.from_offset(stage.tmem_offset()).tensor((M, p.n)))
    with p.ctx.elect_one():
        p.ctx.mma_commit(stage.mbar(), mask=p.outputs.mma_complete_mask)
    stage.release()


def fill_per_k(p: Parts) -> None:
    stage = p.outputs.per_k().acquire_k_stage_linear()
    p.multiply(stage.tmem().tensor((M, p.n)))
    stage.release()


def fill_raw(p: Parts) -> None:
    """By the parts of a stage: its pipeline, its number, its address."""
    held = p.outputs.acquire_mma_linear()
    stage = tp.OutputStage.from_raw(p.outputs.pipeline, held.index(), held.tmem_offset())
    p.multiply(p.accumulator(stage))
    with p.ctx.elect_one():
        p.ctx.mma_commit(
            stage.pipeline.producer_mbar(stage.index), mask=p.outputs.mma_complete_mask
        )
    held.release()


def fill_and_commit_in_a_branch(p: Parts) -> None:
    """The branch ends with the block that releases."""
    held = p.outputs.acquire_mma_linear()
    acc = held.tmem().tensor((M, p.n))
    with p.inputs.consumer() as consumer:
        for k in p.ctx.range(p.steps):
            with consumer.acquire() as tiles, p.ctx.when(p.ctx.lane == 5):
                p.ctx.mma(acc, *tiles.tile(), accumulate=k > 0)
                p.ctx.mma_commit(tiles.mbar(), mask=p.release_mask())
    with p.ctx.when(p.ctx.lane == 5):
        p.ctx.mma_commit(held.mbar(), mask=p.outputs.mma_complete_mask)
    held.release()


def take_flat(p: Parts, tile: Any) -> None:
    stage = p.outputs.acquire_for_epilogue()
    part = p.accumulator(stage).load()
    p.outputs.release_from_epilogue()
    p.ctx.store_global(p.out, (p.row(tile), 0), part)


def take_linear(p: Parts, tile: Any) -> None:
    stage = p.outputs.acquire_epilogue_linear()
    part = stage.tmem().tensor((M, p.n)).load()
    stage.release()
    p.ctx.store_global(p.out, (p.row(tile), 0), part)


def take_in_a_branch(p: Parts, tile: Any) -> None:
    """The warps arrive in two branches, behind which stands the release."""
    held = p.outputs.acquire_epilogue_linear()
    part = held.tmem().tensor((M, p.n)).load()
    p.ctx.tmem_wait_load()
    p.ctx.tcgen05_fence_before()
    barrier = held.mbar() if p.group == 1 else held.mbar().on(0)
    with p.ctx.when(p.ctx.warp < 2):
        barrier.arrive()
    with p.ctx.otherwise():
        barrier.arrive()
    held.release()
    p.ctx.store_global(p.out, (p.row(tile), 0), part)


def take_early(p: Parts, tile: Any) -> None:
    """Frees the accumulator before it stores; leaving only steps."""
    with p.outputs.consumer() as stage:
        part = p.accumulator(stage).load()
        tp.AccumBarrier(p.group).arrive(stage.pipeline, stage.index)
        p.ctx.store_global(p.out, (p.row(tile), 0), part)


FILLS: dict[str, Any] = {
    "view": mma,
    "flat": in_mma_warp(fill_flat),
    "linear": in_mma_warp(fill_linear),
    "committed by hand": in_mma_warp(fill_and_commit),
    "per_k, linear": in_mma_warp(fill_per_k),
    "raw": in_mma_warp(fill_raw),
    "committed in a branch": in_mma_warp(fill_and_commit_in_a_branch),
}
TAKES: dict[str, Any] = {
    "view": epilogue,
    "flat": in_epilogue(take_flat),
    "linear": in_epilogue(take_linear),
    "freed by hand": in_epilogue(take_early),
    "freed in branches": in_epilogue(take_in_a_branch),
}


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("fill", "take"), [*((f, "view") for f in FILLS), *(("view", t) for t in TAKES if t != "view")]
)
def test_every_form_hands_over_one_phase_a_tile(fill: str, take: str, group: int) -> None:
    for run in right([0, 2], mma=FILLS[fill], epilogue=TAKES[take], group=group):
        want = laps(5, 2)
        assert run.completions["outputs.full"] == [want] * group
        # of a pair, only the even CTA's MMAs wait
        assert run.completions["outputs.empty"] == [want, [0, 0]][:group]
        assert run.completions["tmem_dealloc"] == [[1]] * group


@pytest.mark.parametrize("tiles", [1, 2, 5])
@pytest.mark.parametrize(("stages", "n"), [(1, 32), (2, 32), (3, 16), (2, 256), (1, 256), (5, 64)])
def test_rings_of_accumulators(stages: int, n: int, tiles: int) -> None:
    for run in right([7], stages=stages, n=n, tiles=tiles):
        assert (
            run.completions["outputs.full"]
            == run.completions["outputs.empty"]
            == [laps(tiles, stages)]
        )


@pytest.mark.parametrize("group", [1, 2])
def test_who_arrives(group: int) -> None:
    """On full: one commit, in a pair in both CTAs; on empty: all epilogue threads, in a pair on the
    even CTA's.
    """
    tiles = 5
    program, out, want = gemm(group=group, tiles=tiles)
    assert counts_of(program) == {
        "inputs.full": 1,
        "inputs.empty": 1,
        "outputs.full": 1,
        "outputs.empty": 128 * group,
        "tmem_dealloc": 128 * group,
    }
    arrivals = who_arrives(program)
    assert np.array_equal(out, want)
    found = {key: n for key, n in arrivals.items() if key[0].startswith("outputs")}
    full = {("outputs.full", rank, "mma", 0): tiles for rank in range(group)}
    empty = {("outputs.empty", 0, "epilogue", rank): 128 * tiles for rank in range(group)}
    assert found == full | empty


# -- members ---------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 2])
def test_members(group: int) -> None:
    def look(p: Parts) -> None:
        o = p.outputs
        assert (o.cta_group, o.num_stages, o.stage_stride_cols) == (group, 2, 32)
        assert (o.Pipeline, o.BarrierArray) == (tp.ProducerConsumerPipeline, tp.SMemArray)
        assert (o.Tmem, o.Stage) == (tp.TmemAllocation, tp.OutputStage)
        assert isinstance(o.pipeline, o.Pipeline)
        assert isinstance(o.tmem, o.Tmem)
        assert o.get_pipeline() is o.pipeline
        assert o.pipeline.num_stages == o.num_stages
        assert (o.tmem.columns, o.tmem.cta_group) == (64, group)
        assert (o.mma_complete_mask is None) == (group == 1)

    gemm(setup=look, group=group)


@pytest.mark.parametrize("group", [1, 2])
def test_a_copy_has_cursors_of_its_own(group: int) -> None:
    """The roles may each work with their own object over the same barriers and columns."""

    def copied(p: Parts) -> Parts:
        other = p.outputs.copy()
        assert (other.tmem, other.config, other.name) == (
            p.outputs.tmem,
            p.outputs.config,
            p.outputs.name,
        )
        assert other.pipeline is not p.outputs.pipeline
        assert (other.pipeline.full, other.pipeline.empty) == (
            p.outputs.pipeline.full,
            p.outputs.pipeline.empty,
        )
        return replace(p, outputs=other)

    for run in right(
        [1], mma=lambda p: mma(copied(p)), epilogue=lambda p: epilogue(copied(p)), group=group
    ):
        assert run.completions["outputs.full"] == [laps(5, 2)] * group


def test_the_mask_of_a_pair() -> None:
    """Both CTAs of the pair, wherever it is in the cluster; or what is given."""

    @tp.kernel(grid=6, cluster=6)
    def masks(ctx: tp.Context, out: Any, given: Any) -> None:
        config = tp.OutputPipelineConfig(1, 32, 2)
        outputs = tp.OutputTilePipeline.allocate(ctx, config)
        storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 2, "other")
        other = tp.OutputTilePipeline(
            storage, outputs.tmem, 3 << ctx.cta_rank, config=config, name="other"
        )

        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                ctx.store(out[ctx.cta_rank], outputs.mma_complete_mask)
                ctx.store(given[ctx.cta_rank], other.mma_complete_mask)

    out, given = np.zeros(6, np.int32), np.zeros(6, np.int32)
    masks.bind(out, given).run()
    assert out.tolist() == [0b11, 0b11, 0b1100, 0b1100, 0b110000, 0b110000]
    assert given.tolist() == [3 << rank for rank in range(6)]


def test_a_stage_has_its_number_its_place_and_the_barriers() -> None:
    """`index` and `tmem.offset()` of the stages of five tiles, on both sides; the ring lies behind
    32 columns of somebody else.
    """

    @tp.kernel()
    def look(ctx: tp.Context, filled: Any, taken: Any) -> None:
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 24))
        before = tp.TmemAllocation(ctx, 64, name="before")

        def note(stage: Any, seen: Any, i: Any) -> None:
            assert stage.pipeline is outputs.pipeline
            with ctx.elect_one("role"):
                ctx.store(seen[i, 0], stage.index)
                ctx.store(seen[i, 1], stage.tmem.offset())

        @ctx.role("mma", warps=1)
        def mma() -> None:
            before.allocate()
            with outputs.mma_warp():
                for i in ctx.range(5):
                    with outputs.producer() as stage:
                        note(stage, filled, i)
            before.deallocate()

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.epilogue_warp():
                for i in ctx.range(5):
                    with outputs.consumer() as stage:
                        note(stage, taken, i)

    filled, taken = np.zeros((5, 2), np.uint32), np.zeros((5, 2), np.uint32)
    look.bind(filled, taken).run(seed=4)
    assert filled.tolist() == [[i % 2, 64 + i % 2 * 24] for i in range(5)]
    assert np.array_equal(filled, taken)


@pytest.mark.parametrize(
    ("shape", "columns"),
    [((1, 8), 32), ((2, 16), 32), ((2, 24), 64), ((3, 128), 512), ((2, 256), 512)],
)
def test_columns_of_a_config(shape: tuple[int, int], columns: int) -> None:
    assert tp.OutputPipelineConfig(*shape).columns == columns


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 16), "num_stages of an OutputPipelineConfig is at least 1, got 0"),
        (
            (2.0, 16),
            "num_stages of an OutputPipelineConfig is an int, 1 or more, known while",
        ),
        ((True, 16), "an int, 1 or more, known while tracing; got True"),
        ((2, 0), "stage_stride_cols of an OutputPipelineConfig is at least 1, got 0"),
        ((2, 12), "stage_stride_cols is a multiple of 8 columns, got 12"),
        ((3, 256), "3 stages × 256 columns = 768, but tensor memory has 512"),
        ((2, 16, 3), "cta_group is 1, or 2 for a pair of CTAs; got 3"),
        ((2, 16, True), "cta_group is 1, or 2 for a pair of CTAs; got True"),
    ],
)
def test_configs_that_no_kernel_can_have(arguments: tuple[Any, ...], words: str) -> None:
    with refused(tp.TraceError, words):
        tp.OutputPipelineConfig(*arguments)


def by_hand(
    barriers: int = 4, columns: int = 64, group: int = 1, counts: tuple[int, int] | None = None
) -> Callable[..., Any]:
    """OutputTilePipeline's constructor, over parts made by hand."""

    def make(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        storage = tp.SMemArray(ctx, tp.SharedMemBarrier, barriers, "outputs")
        if counts is not None:
            tp.OutputTilePipeline.init_barriers(storage, *counts)
        made = tp.OutputTilePipeline(
            storage, tp.TmemAllocation(ctx, columns, cta_group=group), config=config
        )
        made._lifetime = tp.TmemDeallocBarrier(ctx, group), ctx.named_barrier(160, "published")
        return made

    return make


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"columns": 32}, "2 stages × 32 columns do not fit the 32 of 'tmem'"),
        ({"columns": 48}, "a power of two from 32 to 512; got 48"),
        ({"barriers": 3}, "a pipeline of 2 stages needs 4 barriers, the array has 3"),
        ({"barriers": 6}, "a pipeline of 2 stages needs 4 barriers, the array has 6"),
        ({"group": 2}, "a cluster of 1 has no pairs"),
    ],
)
def test_parts_that_do_not_fit(parts: dict[str, Any], words: str) -> None:
    with refused(tp.TraceError, words):
        gemm(outputs=by_hand(**parts))


def test_tensor_memory_of_another_group() -> None:
    def one_of_two(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, "outputs")
        return tp.OutputTilePipeline(
            storage, tp.TmemAllocation(ctx, 64), config=replace(config, cta_group=2)
        )

    with refused(tp.TraceError, "the tensor memory has cta_group 1, the pipeline 2"):
        gemm(outputs=one_of_two)
    with refused(
        tp.TraceError,
        "all tcgen05 instructions of a kernel have one cta_group; this is 1, others have 2",
    ):
        gemm(outputs=one_of_two, group=2)
    with refused(tp.TraceError, "takes an OutputPipelineConfig, got (2, 16)"):
        gemm(outputs=lambda ctx, config: tp.OutputTilePipeline.allocate(ctx, (2, 16)))  # type: ignore[arg-type]
    with refused(tp.TraceError, "shared memory is allocated in set-up code"):
        gemm(load=lambda p: [tp.OutputTilePipeline.allocate(p.ctx, p.outputs.config)])


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2])
def test_init_barriers_with_the_counts_of_the_rule(group: int) -> None:
    right(outputs=by_hand(group=group, counts=(1, 128 * group)), group=group)


@pytest.mark.parametrize(
    ("group", "counts", "words"),
    [
        (
            1,
            (2, 128),
            ("'outputs.full' is given a count of 2", "gets 1 arrivals", "role 'mma'", "never pass"),
        ),
        (
            1,
            (1, 4),
            (
                "'outputs.empty' is given a count of 4",
                "gets 128 arrivals",
                "role 'epilogue'",
                "before all have arrived",
            ),
        ),
        (
            2,
            (1, 128),
            (
                "'outputs.empty' is given a count of 128",
                "gets 256 arrivals",
                "before all have arrived",
            ),
        ),
        (2, (2, 256), ("'outputs.full' is given a count of 2", "gets 1 arrivals")),
    ],
)
def test_typed_counts_that_contradict(
    group: int, counts: tuple[int, int], words: tuple[str, ...]
) -> None:
    with refused(tp.CountError, *words):
        gemm(outputs=by_hand(group=group, counts=counts), group=group)
    with refused(tp.CountError, *words):
        gemm(
            outputs=lambda ctx, config: tp.OutputTilePipeline.allocate(
                ctx, config, producer_arrivals=counts[0], consumer_arrivals=counts[1]
            ),
            group=group,
        )


def test_an_epilogue_of_two_warpgroups() -> None:
    """256 threads free an accumulator: the count follows, and so does the barrier that announces
    the address.
    """

    @tp.kernel()
    def two(ctx: tp.Context) -> None:
        outputs = tp.OutputTilePipeline.allocate(
            ctx, tp.OutputPipelineConfig(2, 32), epilogue_threads=256
        )

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp():
                for _ in ctx.range(3):
                    with outputs.producer():
                        pass

        @ctx.role("epilogue", warpgroups=2)
        def epilogue() -> None:
            with outputs.epilogue_warp():
                for _ in ctx.range(3):
                    with outputs.consumer():
                        pass

    program = two.bind()
    assert counts_of(program) == {"outputs.full": 1, "outputs.empty": 256, "tmem_dealloc": 256}
    assert program.run(seed=1).completions["outputs.empty"] == [[2, 1]]
