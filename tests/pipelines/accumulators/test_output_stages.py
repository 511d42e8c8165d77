"""Accumulators of an OutputTilePipeline are released once, by whoever acquired them, in the block
that did.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.support.accumulators import Parts, gemm, in_epilogue, in_mma_warp
from tests.support.tracing import refused

PRODUCER, CONSUMER = (
    "the producer stage of 'outputs' acquired at test_output_stages.py:",
    "the consumer stage of 'outputs' acquired at",
)


def acquired_twice(p: Parts) -> None:
    first, second = p.outputs.acquire_mma_linear(), p.outputs.acquire_mma_linear()
    first.release()
    second.release()


def released_twice(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    stage.release()
    stage.release()


def flat_released_twice(p: Parts) -> None:
    stage = p.outputs.acquire_for_mma()
    p.outputs.release_from_mma(stage)
    p.outputs.release_from_mma(stage)


def used_after_release(p: Parts) -> None:
    stage = p.outputs.acquire_for_mma()
    p.outputs.release_from_mma(stage)
    p.accumulator(stage)


def accumulator_kept(p: Parts) -> None:
    with p.outputs.producer() as stage:
        kept = p.accumulator(stage)
    p.multiply(kept)


def barrier_kept(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    kept = stage.mbar()
    stage.release()
    with p.ctx.elect_one():
        tp.mma_arrive(kept)


def released_by_one_lane(p: Parts) -> None:
    stage = p.outputs.acquire_for_mma()
    with p.ctx.elect_one():
        p.outputs.release_from_mma(stage)


def released_in_a_loop(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    for _ in p.ctx.range(p.steps):
        stage.release()


def committed_twice(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    with p.ctx.elect_one():
        tp.mma_arrive(stage.mbar())
        tp.mma_arrive(stage.mbar())
    stage.release()


def committed_in_a_loop(p: Parts) -> None:
    with p.outputs.producer() as stage:
        for _ in p.ctx.range(p.out.shape[0]):
            with p.ctx.elect_one():
                tp.mma_arrive(stage.pipeline.producer_mbar(stage.index))


FILL_MISTAKES: list[tuple[Any, tuple[str, ...]]] = [
    (
        lambda p: p.outputs.acquire_for_mma(),
        (PRODUCER, "still held when the loop block ends", "Call release() on every path"),
    ),
    (lambda p: p.outputs.acquire_mma_linear(), (PRODUCER, "still held when the loop block ends")),
    (
        lambda p: p.outputs.producer(),
        ("producer view of 'outputs'", "still held", "Enter it: `with ... as stage:`"),
    ),
    (acquired_twice, (PRODUCER, "still held", "wait for the same stage", "Release the first")),
    (released_twice, (PRODUCER, "released twice", "One acquire, one release")),
    (flat_released_twice, (PRODUCER, "released twice")),
    (
        used_after_release,
        (PRODUCER, "used after its release at test_output_stages.py:", "other side"),
    ),
    (
        accumulator_kept,
        (PRODUCER, "written by an MMA after its release at test_output_stages.py:"),
    ),
    (barrier_kept, (PRODUCER, "signalled or waited on after its release")),
    (released_by_one_lane, (PRODUCER, "released in a nested elect block", "never or twice")),
    (released_in_a_loop, (PRODUCER, "released in a nested loop block")),
    (committed_twice, (PRODUCER, "signalled twice", "One stage is one phase")),
    (
        committed_in_a_loop,
        (PRODUCER, "signalled inside a loop", "once an iteration, not once a stage"),
    ),
    (
        lambda p: p.outputs.release_from_mma(p.outputs.acquire_for_epilogue()),
        ("release_from_mma takes the stage that acquire_for_mma gave",),
    ),
]


@pytest.mark.parametrize(
    ("each", "words"), FILL_MISTAKES, ids=[words[-1] for _, words in FILL_MISTAKES]
)
def test_an_accumulator_is_filled_and_released_once(each: Any, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, *words):
        gemm(mma=in_mma_warp(each))


def taken_twice(p: Parts, tile: Any) -> None:
    stage = p.outputs.acquire_epilogue_linear()
    stage.release()
    stage.release()


def flat_taken_twice(p: Parts, tile: Any) -> None:
    p.outputs.acquire_for_epilogue()
    p.outputs.release_from_epilogue()
    p.outputs.release_from_epilogue()


def read_after_release(p: Parts, tile: Any) -> None:
    with p.outputs.consumer() as stage:
        kept = p.accumulator(stage)
    kept.load()


def freed_by_one_lane(p: Parts, tile: Any) -> None:
    p.outputs.acquire_for_epilogue()
    with p.ctx.elect_one():
        p.outputs.release_from_epilogue()


def freed_twice(p: Parts, tile: Any) -> None:
    with p.outputs.consumer() as stage:
        tp.AccumBarrier(p.group).arrive(stage.pipeline, stage.index)
        tp.AccumBarrier(p.group).arrive(stage.pipeline, stage.index)


def freed_on_some_paths(p: Parts, tile: Any) -> None:
    with p.outputs.consumer() as stage, p.ctx.when(tile > 0):
        tp.AccumBarrier(p.group).arrive(stage.pipeline, stage.index)


TAKE_MISTAKES: list[tuple[Any, tuple[str, ...]]] = [
    (
        lambda p, tile: p.outputs.acquire_for_epilogue(),
        (CONSUMER, "still held when the loop block ends"),
    ),
    (
        lambda p, tile: p.outputs.acquire_epilogue_linear(),
        (CONSUMER, "still held when the loop block ends"),
    ),
    (
        lambda p, tile: p.outputs.consumer(),
        ("consumer view of 'outputs'", "still held", "Enter it"),
    ),
    (taken_twice, (CONSUMER, "released twice")),
    (flat_taken_twice, ("role 'epilogue' holds no accumulator of 'outputs'",)),
    (
        lambda p, tile: p.outputs.release_from_epilogue(),
        ("role 'epilogue' holds no accumulator of 'outputs'",),
    ),
    (read_after_release, (CONSUMER, "loaded after its release")),
    (freed_by_one_lane, (CONSUMER, "released in a nested elect block")),
    (freed_twice, (CONSUMER, "signalled twice: it already arrives")),
    (freed_on_some_paths, (CONSUMER, "signalled on some paths only")),
]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("each", "words"), TAKE_MISTAKES, ids=[words[-1] for _, words in TAKE_MISTAKES]
)
def test_an_accumulator_is_taken_and_released_once(
    each: Any, words: tuple[str, ...], group: int
) -> None:
    with refused(tp.HandleError, *words):
        gemm(epilogue=in_epilogue(each), group=group)


@pytest.mark.parametrize("group", [1, 2])
def test_the_arrival_must_be_for_the_whole_kernel_s_group(group: int) -> None:
    def other(p: Parts, tile: Any) -> None:
        with p.outputs.consumer() as stage:
            tp.AccumBarrier(3 - p.group).arrive(stage.pipeline, stage.index)

    with refused(
        tp.TraceError,
        f"AccumBarrier({3 - group}) in a kernel of cta_group {group}",
        f"Make it AccumBarrier({group})",
    ):
        gemm(epilogue=in_epilogue(other), group=group)
