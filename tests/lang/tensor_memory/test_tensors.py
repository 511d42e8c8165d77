"""Where the stages of an accumulator ring lie in tensor memory, and what their halves hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import faults
from tests.support.accumulators import M, Parts, epilogue, gemm, in_epilogue, in_mma_warp, right
from tests.support.tracing import refused


def addresses(
    note: Callable[
        [tp.Context, tp.TmemAllocation, tp.TmemAllocation, Callable[[int, Any], None]], None
    ],
) -> list[int]:
    """Eight addresses that `note(ctx, first, second, store)` stores; `first` has 64 columns,
    `second` 32 behind them.
    """
    out = np.zeros(8, np.uint32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        first, second = (
            tp.TmemAllocation(ctx, 64, name="first"),
            tp.TmemAllocation(ctx, 32, name="second"),
        )

        @ctx.role("one", warps=1)
        def one() -> None:
            first.allocate()
            second.allocate()
            with ctx.elect_one():
                note(ctx, first, second, lambda i, address: ctx.store(out[i], address))
            first.deallocate()
            second.deallocate()

    k.bind(out).run()
    return out.tolist()


def test_where_stages_lie() -> None:
    def note(ctx: tp.Context, first: Any, second: Any, store: Any) -> None:
        store(0, first.addr)
        store(1, second.addr)
        store(2, tp.TmemStage(first, 0, 24).offset())
        store(3, tp.TmemStage(first, 2, 24).offset())
        store(4, tp.TmemStage(second, ctx.let(3, "index"), 8).offset())
        store(5, tp.TmemStage(second.addr, 1, 16).offset())
        store(6, tp.TmemStage.from_offset(second.addr + 5, 7).offset())
        store(7, first.tensor((128, 16), col=40).cols(8, 8).offset())

    assert addresses(note) == [0, 64, 0, 48, 64 + 24, 64 + 16, 64 + 5, 48]


@pytest.mark.parametrize(
    ("take", "said"),
    [
        (
            lambda first: first.tensor((128, 32), col=40),
            ["columns [40, 72)", "'first'", "64 columns"],
        ),
        (lambda first: first.tensor((128, 8), col=-8), ["columns [-8, 0)"]),
        (
            lambda first: tp.TmemStage(first, 0, 24).tensor((128, 32)),
            ["column 32", "a stage of 24 columns", "stage_stride_cols"],
        ),
        (
            lambda first: tp.TmemStage(first, 1, 16).load_lower(16, col=8),
            ["column 24", "a stage of 16 columns"],
        ),
        (
            lambda first: tp.TmemStage(first, 1, 16).load_upper(8, col=-8),
            ["begins at column -8 of a stage"],
        ),
    ],
)
def test_what_leaves_its_columns_is_refused(take: Callable[[Any], Any], said: list[str]) -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        first = tp.TmemAllocation(ctx, 64, name="first")

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            first.from_shared()
            take(first)

    with refused(tp.TraceError, *said):
        k.bind()


def test_elements_of_16_bits_take_half_a_column() -> None:
    def note(ctx: tp.Context, first: Any, second: Any, store: Any) -> None:
        store(0, second.tensor((128, 32), "bfloat16").cols(16, 8).offset())
        store(1, tp.TmemStage(second, 1, 16).tensor((64, 16), "float16").cols(8, 8).offset())
        store(2, second.tensor((128, 32), "float32").cols(16, 8).offset())

    assert addresses(note)[:3] == [64 + 8, 64 + 16 + 4, 64 + 16]


def halves_of(rows: int) -> Callable[[Parts, Any], None]:
    """Stores both halves of an accumulator one below the other: row 16 w + r of the upper one is
    lane 32 w + r.
    """

    def take(p: Parts, tile: Any) -> None:
        with p.outputs.consumer() as stage:
            halves = [tp.TmemFragments.load(stage.tmem, rows, 16, col) for col in (0, 16)]
            assert all((half.lower is None) == (rows == 64) for half in halves)
        for i, half in enumerate(halves):
            p.ctx.store_global(p.out, (tile * rows, 16 * i), half.upper)
            if half.lower is not None:
                p.ctx.store_global(p.out, (tile * rows + 64, 16 * i), half.lower)

    return take


def test_halves_of_128_rows() -> None:
    program, out, want = gemm(epilogue=in_epilogue(halves_of(128)))
    program.run(seed=2)
    lanes = want.reshape(-1, 4, 2, 16, 32)  # tile, warp, half, row, column
    assert np.array_equal(out.reshape(-1, 2, 4, 16, 32), lanes.transpose(0, 2, 1, 3, 4))


def fill_64(p: Parts) -> None:
    """The upper 64 rows of each tile alone."""
    with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
        for k in p.ctx.range(p.steps):
            with consumer.acquire() as tiles, p.ctx.elect_one():
                a_tile, b_tile = tiles.tile()
                p.ctx.mma(
                    stage.tmem.tensor((64, p.n)), a_tile.rows(0, 64), b_tile, accumulate=k > 0
                )
                p.ctx.mma_commit(tiles.mbar())


def test_64_rows_have_one_half() -> None:
    program, out, want = gemm(
        mma=in_mma_warp(fill_64), epilogue=in_epilogue(halves_of(64)), tiles=3
    )
    program.run(seed=2)
    assert np.array_equal(out[: 3 * 64], want.reshape(3, 128, 32)[:, :64].reshape(-1, 32))


def test_halves_die_with_their_stage() -> None:
    def kept(p: Parts, tile: Any) -> None:
        with p.outputs.consumer() as stage:
            place = stage.tmem
        place.load_upper(16)

    with refused(tp.HandleError, "the consumer stage of 'outputs'", "loaded after its release"):
        gemm(epilogue=in_epilogue(kept))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda t: t.tensor((32, 16)),
            (
                "64 or 128 rows and a multiple of 8 columns, at most 512 columns of 32 bits; "
                "got 32×16 float32"
            ),
        ),
        (lambda t: t.tensor((128, 12)), "got 128×12 float32"),
        (lambda t: t.tensor((128, 520)), "got 128×520 float32"),
        (
            lambda t: t.tensor((128, 16), "float8_e4m3"),
            "float32, bfloat16 and float16 here, not of float8_e4m3",
        ),
        (lambda t: t.tensor([128, 16]), "(rows, cols), two static integers"),
        (lambda t: t.tensor((128, 16)).cols(8, 16), "columns [8, 8 + 16) of a matrix of 16"),
        (lambda t: t.tensor((128, 16)).cols(4, 8), "need multiples of 8 inside it"),
    ],
)
def test_matrices_that_tensor_memory_does_not_hold(make: Any, words: str) -> None:
    def role(p: Parts) -> None:
        p.outputs.tmem.allocate()
        make(p.outputs.tmem)

    with refused(tp.TraceError, words):
        gemm(mma=role)


def test_past_the_end_of_the_allocation() -> None:
    """32 columns are allocated; a second stage of 32 is not among them."""

    def small(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        made = tp.OutputTilePipeline.allocate(ctx, config)
        made.tmem.columns = 32
        return made

    faults(
        gemm(outputs=small)[0],
        tp.SimFault,
        "columns 32..63 of tensor memory",
        "columns 0..31 by role 'mma'",
    )


def test_the_accumulator_is_as_wide_as_the_product() -> None:
    def narrow(p: Parts, tile: Any) -> None:
        with p.outputs.consumer() as stage:
            stage.tmem.tensor((M, p.n)).cols(p.n, 8)

    with refused(tp.TraceError, "columns [32, 32 + 8) of a matrix of 32"):
        gemm(epilogue=in_epilogue(narrow))
    right(epilogue=epilogue, seeds=[9])
