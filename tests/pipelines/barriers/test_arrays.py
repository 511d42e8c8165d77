"""Pointers to barriers, and places that are copied: what the pages write and Python objects must
mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import PAYLOAD, laps, one_role
from tests.support.tracing import evaluated, from_text, refused
from tilepipe import cuda

ELECT = "with ctx.elect_one():\n    "
# what a role does with a ring of three, which phases it completes
BARRIERS: dict[str, tuple[str, dict[str, list[list[int]]]]] = {
    "full[1].arrive": (
        f"{ELECT}pipe.full[1].arrive()",
        {"pipe.full": [[0, 1, 0]], "pipe.empty": [[0, 0, 0]]},
    ),
    "empty[2].arrive": (
        f"{ELECT}pipe.empty[2].arrive()",
        {"pipe.full": [[0, 0, 0]], "pipe.empty": [[0, 0, 1]]},
    ),
    "full is a pointer": (
        f"{ELECT}pipe.full.arrive()",
        {"pipe.full": [[1, 0, 0]], "pipe.empty": [[0, 0, 0]]},
    ),
    "a sum": (
        f"{ELECT}(pipe.full + 2).arrive()",
        {"pipe.full": [[0, 0, 1]], "pipe.empty": [[0, 0, 0]]},
    ),
    "an index of an index": (
        f"{ELECT}pipe.full[1][1].arrive()",
        {"pipe.full": [[0, 0, 1]], "pipe.empty": [[0, 0, 0]]},
    ),
    "a traced index": (
        f"for i in ctx.range(2):\n    {ELECT}    pipe.full[i + 1].arrive()",
        {"pipe.full": [[0, 1, 1]], "pipe.empty": [[0, 0, 0]]},
    ),
    "expect_bytes, wait": (
        (
            f"{ELECT}pipe.full[1].expect_bytes(32)\n"
            "    pipe.full[1].complete_transaction(None, 32)\n"
            "pipe.full[1].wait(0)"
        ),
        {"pipe.full": [[0, 1, 0]], "pipe.empty": [[0, 0, 0]]},
    ),
}


@pytest.mark.parametrize("use", BARRIERS)
def test_the_barriers_of_a_pipeline(use: str) -> None:
    text, completions = BARRIERS[use]
    assert one_role(text).run().completions == completions


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pipe.full[3].arrive()", "barrier 3 of 'pipe.full', which has 3"),
        ("(pipe.empty + 1)[-2].arrive()", "barrier -1 of 'pipe.empty', which has 3"),
        ("pipe.full[ctx.lane].arrive()", "the index of a barrier"),
    ],
)
def test_no_such_barrier(text: str, words: str) -> None:
    with refused(tp.TraceError, words):
        one_role(text)


def test_pointers_compare() -> None:
    found: list[bool] = []
    from_text(
        "pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1,"
        " consumer_arrivals=1)\n"
        "full = pipe.full\nfound.extend([full[1] == pipe.producer_mbar(1), full == pipe.empty,"
        " full[0] == full, full[1] == full])\n"
        "ctx.role('one', warps=1)(lambda: None)",
        found=found,
    ).bind(np.zeros(4, np.int32))
    assert found == [True, False, True, False]


TWO_RINGS = """
storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 10, 'storage')
tp.InputTilePipeline.init_barriers({first}, 1, 32, num_group_stages=3, name='inputs')
inputs = tp.InputTilePipeline({first}, PAYLOAD.allocate(ctx, 3, 'inputs'), 3, name='inputs')
ring = tp.ProducerConsumerPipeline(storage[6], name='ring')
ring.init_mbars(32, 32)
@ctx.role('load', warps=1)
def load():
    for i in ctx.range(5):
        with inputs.producer().acquire() as stage, ctx.elect_one():
            stage.expect_bytes(0)
        ring.producer_signal_and_step()
@ctx.role('use', warps=1)
def use():
    for i in ctx.range(5):
        stage = inputs.acquire_consumer()
        stage.release()
        ring.consumer_signal_and_step()
"""


@pytest.mark.parametrize("first", ["storage[0]", "storage.ptr"])
def test_two_pipelines_in_one_array(first: str) -> None:
    """A constructor and `init_barriers` take a pointer: the barriers from there on, as many as the
    stages need, or all that are left.
    """
    program = from_text(TWO_RINGS.format(first=first), PAYLOAD=PAYLOAD).bind(np.zeros(4, np.int32))
    assert [(a.name, a.size, a.count) for a in program.kernel.barriers] == [
        ("inputs.full", 3, 1),
        ("inputs.empty", 3, 32),
        ("ring.full", 2, 32),
        ("ring.empty", 2, 32),
    ]
    offsets = [a.offset for a in program.kernel.barriers]
    assert [x - offsets[0] for x in offsets] == [0, 24, 48, 64]
    run = program.run(seed=1)
    assert run.completions == {
        name: [laps(5, n)]
        for name, n in (
            ("inputs.full", 3),
            ("inputs.empty", 3),
            ("ring.full", 2),
            ("ring.empty", 2),
        )
    }
    assert program.check().ok


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tp.ProducerConsumerPipeline(storage[1], 2)", ("needs 4 barriers", "the array has 3")),
        ("tp.ProducerConsumerPipeline(storage[3], 2)", ("needs 4 barriers", "the array has 1")),
        (
            "tp.ProducerConsumerPipeline(storage[1])",
            ("a pipeline of 1 stages needs 2 barriers, the array has 3",),
        ),
        (
            (
                "tp.ProducerConsumerPipeline(storage, 2, name='a')\n"
                "tp.ProducerConsumerPipeline(storage[1], 1, name='b')"
            ),
            (
                (
                    "barriers 1 to 2 of an array of 4, which is divided into 'a.full': 0 to "
                    "1, 'a.empty': 2 to 3"
                ),
                "that no other has",
            ),
        ),
        (
            "tp.ProducerConsumerPipeline(tp.SharedMemBarrier.allocate(ctx).on(0), 1)",
            ("takes an array of barriers or a pointer into one",),
        ),
        ("tp.ProducerConsumerPipeline(4, 1)", ("takes an array of barriers", "got 4")),
        (
            "tp.ProducerConsumerPipeline(tp.SMemArray(ctx, 'int32', 4), 2)",
            ("takes an array of barriers",),
        ),
        (
            "storage[0].init(1)\ntp.ProducerConsumerPipeline(storage, 2)",
            ("a barrier of this array was used at", "use it afterwards"),
        ),
        ("tp.StagedPipeline(storage[1], 2)", ("'kv' needs 4 barriers", "the array has 3")),
    ],
)
def test_pointers_that_do_not_fit(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        from_text(f"storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, 'storage')\n{text}").bind(
            np.zeros(4, np.int32)
        )


# -- copies ----------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 3, 4, 7])
def test_a_copy_is_at_the_same_place(steps: int, start: int) -> None:
    """Stage and phase are those of the original when it was copied, and move apart afterwards."""

    def body(ctx: tp.Context) -> Any:
        state = tp.PipelineState(ctx, 3, start)
        for _ in ctx.range(steps):
            state.step()
        copy = state.copy()
        before = copy.index() * 10 + copy.phase()
        copy.step()
        copy.step()
        return (
            before * 10000
            + (copy.index() * 10 + copy.phase()) * 100
            + state.index() * 10
            + state.phase()
        )

    def place(n: int) -> int:
        return n % 3 * 10 + (n // 3 & 1 ^ start)

    assert evaluated(body) == place(steps) * 10000 + place(steps + 2) * 100 + place(steps)


def test_a_copy_in_a_loop() -> None:
    with refused(tp.TraceError, "is copied in a loop", "make it before the loop"):
        one_role("for i in ctx.range(3):\n    pipe.copy()")


CFG = tp.FA4Config(
    qkv_dtype=tp.bfloat16, depth=128, BM=64, BN=32, num_kv_stages=3, num_qk_stages=2, chip=tp.H200
)
COPIED: dict[str, tuple[str, str, str]] = {  # how it is made, its step, its stage
    "ProducerConsumerPipeline": (
        (
            "x = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1, "
            "consumer_arrivals=1)"
        ),
        "consumer_step()",
        "consumer_stage()",
    ),
    "InputTilePipeline": (
        (
            "x = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, "
            "producer_arrivals=1, consumer_arrivals=1)"
        ),
        "pipeline.producer_step()",
        "producer_stage()",
    ),
    "StagedPipeline": (
        "x = tp.StagedPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1)",
        "state.step()",
        "state.index()",
    ),
    "TMAProducerPipeline": (
        "x = tp.KProducerPipeline(tp.KPipeline.allocate(ctx, 3, 2, producer_arrivals=1,"
        " consumer_arrivals=1),"
        " tp.tile_layout_k_major('bfloat16', 32, 64).allocate(ctx, 6, 'k'), CFG)",
        "commit_step()",
        "pipeline.state.index()",
    ),
}


@pytest.mark.parametrize("kind", COPIED)
def test_every_pipeline_is_copied_with_its_place(kind: str) -> None:
    made, step, stage = COPIED[kind]
    out = np.full(4, -1, np.int32)
    text = f"""
    {made}
    @ctx.role('one', warps=1)
    def one():
        x.{step}
        x.{step}
        mine = x.copy()
        x.{step}
        assert type(mine) is type(x)
        with ctx.elect_one():
            ctx.store(out[0], mine.{stage})
            ctx.store(out[1], x.{stage})
        mine.{step}
        with ctx.elect_one():
            ctx.store(out[2], mine.{stage})
            ctx.store(out[3], x.{stage})
    """
    from_text(text, PAYLOAD=PAYLOAD, CFG=CFG).bind(out).run()
    assert out.tolist() == [2, 0, 0, 0]


def test_a_copy_for_the_other_side_starts_the_ring() -> None:
    out = np.full(2, -1, np.int32)
    text = """
    x = tp.StagedPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1)
    @ctx.role('one', warps=1)
    def one():
        x.state.step()
        mine = x.copy(phase=1)
        with ctx.elect_one():
            ctx.store(out[0], mine.state.index() * 10 + mine.state.phase())
    """
    from_text(text).bind(out).run()
    assert out.tolist() == [1, -1]


@tp.kernel()
def halves(ctx: tp.Context, a: Any, out: Any) -> None:
    """out[i] = a[i] + 1 through a ring of three; the last two rows by copies of the pipeline, made
    when it is at its second lap.
    """
    pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, name="ring")
    slots = ctx.smem((1, 32), tp.float32, count=3, swizzle=0, name="slots")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        def put(ring: tp.ProducerConsumerPipeline, i: Any) -> None:
            with ring.produce() as stage:
                ctx.store(slots[stage.index()][0, ctx.lane], ctx.load(a[i, ctx.lane]))
                stage.mbar().arrive()

        for i in ctx.range(4):
            put(pipe, i)
        rest = pipe.copy()
        for i in ctx.range(4, 7):
            put(rest, i)

    @ctx.role("use", warps=1)
    def use() -> None:
        def take(ring: tp.ProducerConsumerPipeline, i: Any) -> None:
            with ring.consume() as stage:
                ctx.store(out[i, ctx.lane], ctx.load(slots[stage.index()][0, ctx.lane]) + 1)

        for i in ctx.range(5):
            take(pipe, i)
        rest = pipe.copy()
        for i in ctx.range(5, 7):
            take(rest, i)


@pytest.mark.slow
def test_a_copied_pipeline_goes_on_where_the_original_was() -> None:
    a = np.arange(7 * 32, dtype=np.float32).reshape(7, 32)
    for seed in range(3):
        out = np.zeros_like(a)
        program = halves.bind(a, out)
        assert program.run(seed=seed).completions == {
            "ring.full": [[3, 2, 2]],
            "ring.empty": [[3, 2, 2]],
        }
        assert np.array_equal(out, a + 1)
    assert program.check().ok
    assert cuda.compile(program.kernel, arch="sm_90a").spill_bytes == 0
