"""SharedMemBarrier, SMemArray, tile arrays and PipelineState, member by member."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import evaluated, from_text, in_role, of_kind, refused, role_from_text
from tilepipe.ir import ops

BAR = "bar = tp.SharedMemBarrier.allocate(ctx, {count}, name='bar')"


def bar(text: str, count: int = 1, warps: str = "warps=1") -> tp.Program:
    return role_from_text(text, warps=warps, before=BAR.format(count=count))


@pytest.mark.parametrize(
    ("text", "count", "completed"),
    [
        ("bar.wait(1)", 1, 0),
        ("with ctx.elect_one():\n    bar.arrive()\nbar.wait(0)", 1, 1),
        ("bar.arrive()\nbar.wait()", 32, 1),
        ("with ctx.when(ctx.lane < 5):\n    bar.arrive()\nbar.wait(0)", 5, 1),
        (
            (
                "for i in ctx.range(5):\n"
                "    with ctx.elect_one():\n"
                "        bar.arrive()\n"
                "    bar.wait(i & 1)"
            ),
            1,
            5,
        ),
        (
            (
                "for i in ctx.range(5):\n"
                "    with ctx.elect_one():\n"
                "        bar.arrive()\n"
                "    bar.wait(i)"
            ),
            1,
            5,
        ),
        ("with ctx.elect_one():\n    bar.expect_bytes(0)\nbar.wait(0)", 1, 1),
        ("with ctx.elect_one():\n    bar.expect_bytes_relaxed(0)\nbar.wait_relaxed(0)", 1, 1),
        (
            (
                "with ctx.elect_one():\n"
                "    bar.expect_bytes(32)\n"
                "    bar.complete_transaction(None, 32)\n"
                "bar.wait_acquire(0)"
            ),
            1,
            1,
        ),
        (
            (
                "with ctx.elect_one():\n"
                "    bar.expect_bytes_only(32)\n"
                "    bar.arrive()\n"
                "    bar.complete_transaction(None, 32)\n"
                "bar.wait(0, ticks=1000)"
            ),
            1,
            1,
        ),
        (
            (
                "with ctx.elect_one():\n"
                "    bar.expect_bytes(32)\n"
                "    bar.complete_transaction(0, 32, ctx.num_clusters == 1)\n"
                "bar.wait(0)"
            ),
            1,
            1,
        ),
        ("with ctx.elect_one():\n    bar.arrive_cluster(ctx.cta_rank, 3)\nbar.wait(0)", 3, 1),
        ("bar.arrive_and_expect_bytes(0, 0, ctx.lane == 7)\nbar.wait(0)", 1, 1),
        ("with ctx.elect_one():\n    bar.unsafe_ptr().arrive()\nbar.wait(0)", 1, 1),
        ("with ctx.elect_one():\n    bar.inval()\n    bar.init(2)", 1, 0),
    ],
)
def test_phases(text: str, count: int, completed: int) -> None:
    assert bar(text, count).run().completions == {"bar": [[completed]]}


@pytest.mark.parametrize("parity", [0, 1])
def test_try_wait_passes_where_wait_would(parity: int) -> None:
    def body(ctx: tp.Context) -> Any:
        return ctx.select(BARS[0].try_wait(parity), 1, 0)

    BARS: list[Any] = []

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        BARS.append(tp.SharedMemBarrier.allocate(ctx, 1))

        @ctx.role("one", warps=1)
        def one() -> None:
            x = body(ctx)
            with ctx.elect_one():
                ctx.store(out[0], x)

    out = np.zeros(1, np.int32)
    k.bind(out).run()
    assert out[0] == parity  # a fresh barrier: phase 0 runs, "phase 1" is complete


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            "bar.wait(0)",
            tp.DeadlockError,
            ("role 'one'", "bar", "1 of 1 arrivals", "nothing in the kernel arrives on it"),
        ),
        ("bar.arrive()", tp.BarrierError, ("over-arrival on bar", "role 'one'", "phase 0")),
        (
            "with ctx.elect_one():\n    bar.expect_bytes(16)\nbar.wait(0)",
            tp.DeadlockError,
            ("16 bytes", "0 delivered"),
        ),
        (
            "with ctx.elect_one():\n    bar.arrive()\n    bar.arrive()\nbar.wait(0)",
            tp.BarrierError,
            ("bar", "role 'one'"),
        ),
        ("with ctx.elect_one():\n    bar.init(1)", tp.BarrierError, ("initialised again",)),
        (
            "with ctx.elect_one():\n    bar.inval()\nbar.wait(1)",
            tp.BarrierError,
            ("after it was invalidated",),
        ),
    ],
)
def test_misuse(text: str, error: type[tp.TilepipeError], words: tuple[str, ...]) -> None:
    with refused(error, *words):
        bar(text).run()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bar.arrive()", ("belongs in a role",)),
        ("bar.init(0)", ("count is 1..1048575", "got 0")),
        ("bar.init(2**20)", ("1..1048575", "1048576")),
        ("tp.SharedMemBarrier.allocate(ctx, 0)", ("1..1048575", "got 0")),
        ("bars[4]", ("barrier 4 of an array of 4",)),
        ("bars[-1]", ("barrier -1",)),
        ("tp.SMemArray(ctx, tp.SharedMemBarrier, 0)", ("at least one element", "got 0")),
        (
            "tp.ProducerConsumerPipeline(tp.SMemArray(ctx, tp.SharedMemBarrier, 5), 2)",
            ("2 stages needs 4 barriers", "the array has 5"),
        ),
        ("tp.ProducerConsumerPipeline.allocate(ctx, 0)", ("at least one stage", "got 0")),
        (
            "tp.ProducerConsumerPipeline.allocate(ctx, 2, producer_arrivals=0)",
            ("producer_arrivals", "1..1048575", "got 0"),
        ),
        (
            "tp.ProducerConsumerPipeline.allocate(ctx, 2, consumer_arrivals=1.5)",
            ("consumer_arrivals", "1.5"),
        ),
        ("tp.PipelineState(ctx, 0)", ("at least one stage",)),
        ("tp.PipelineState(ctx, 2, phase=2)", ("start phase is 0 or 1",)),
    ],
)
def test_refused_in_set_up(text: str, words: tuple[str, ...]) -> None:
    before = (
        BAR.format(count=1)
        + "\nbars = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 4)\n"
    )
    with refused(tp.TraceError, *words):
        role_from_text("pass", before=before + text)


def test_expect_bytes_range() -> None:
    for value in ("-1", "2**20"):
        with refused(tp.TraceError, "expect_bytes", "below 2^20"):
            bar(f"with ctx.elect_one():\n    bar.expect_bytes({value})")


def test_set_up_elects_a_lane_and_fences() -> None:
    program = bar("pass")
    assert [type(op) for op in program.kernel.setup.ops] == [ops.Elect, ops.SetupBarrier]
    assert of_kind(program, ops.MbarInit) == []


def test_an_array_counts_elements() -> None:
    found: list[Any] = []
    before = """
    bars = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 6)
    ints = tp.SMemArray(ctx, 'int32', 6)
    tiles = tp.SMemTileArray2D(ctx, 'bfloat16', 64, 32, 3)
    rows = tp.SMemTileArray2DRowMajor(ctx, 'float32', 1, 64, 2)
    found.extend([len(bars), bars.storage_size, len(ints), ints.storage_size, len(tiles),
        tiles.tile_bytes, tiles.buffer.swizzle])
    found.extend([len(rows), rows.tile_bytes, rows.buffer.swizzle, isinstance(bars[1], tp.MbarPtr),
        isinstance(ints[0], tp.SMemPtr)])
    """
    role_from_text("pass", before=before, found=found)
    assert found == [6, 48, 6, 24, 3, 64 * 32 * 2, 64, 2, 256, 0, True, True]


def test_an_element_of_a_barrier_array_by_a_traced_index() -> None:
    text = (
        "for i in ctx.range(4):\n"
        "    with ctx.elect_one():\n"
        "        bars[i].arrive()\n"
        "    bars[i].wait(0)"
    )
    before = (
        "bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, name='bars')\n"
        "for i in range(4):\n"
        "    bars[i].init(1)"
    )
    assert role_from_text(text, before=before).run().completions == {"bars": [[1, 1, 1, 1]]}


def test_scalars_in_shared_memory() -> None:
    out = np.zeros(32, np.int32)
    text = """
    ints = tp.SMemArray(ctx, 'int32', 32)
    @ctx.role('one', warps=1)
    def one():
        ctx.store(ints[ctx.lane], ctx.lane * 2)
        ctx.syncwarp()
        ctx.store(out[ctx.lane], ctx.load(ints[31 - ctx.lane]))
    """
    from_text(text).bind(out).run()
    assert out.tolist() == [2 * (31 - lane) for lane in range(32)]


# -- PipelineState ---------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("steps", [0, 1, 4, 11])
def test_a_state_walks_the_ring(stages: int, start: int, steps: int) -> None:
    """index and phase after `steps` steps one at a time, and in one go; `next` returns the
    state.
    """

    def body(ctx: tp.Context) -> Any:
        one, many, chained = (tp.PipelineState(ctx, stages, start) for _ in range(3))
        for _ in ctx.range(steps):
            one.step()
        many.advance(ctx.block_id + steps)
        for _ in range(steps):
            assert chained.next() is chained
        total: Any = 0
        for state in (one, many, chained):
            total = total * 100 + state.index() * 10 + state.phase()
        return total

    want = steps % stages * 10 + ((steps // stages) & 1 ^ start)
    assert evaluated(body) == want * 10101


def test_an_alias_is_the_same_state_and_a_copy_is_not() -> None:
    def body(ctx: tp.Context) -> Any:
        state = tp.PipelineState(ctx, 4)
        alias, copy = state, state.copy()
        alias.step()
        return state.index() * 10 + copy.index()

    assert evaluated(body) == 10


def test_each_role_has_a_state_of_its_own() -> None:
    out = np.zeros(2, np.int32)
    text = """
    state = tp.PipelineState(ctx, 8)
    def body(role, steps):
        for i in ctx.range(steps):
            state.step()
        with ctx.elect_one():
            ctx.store(out[role], state.index())
    ctx.role('a', warps=1)(lambda: body(0, 3))
    ctx.role('b', warps=1)(lambda: body(1, 5))
    """
    from_text(text).bind(out).run()
    assert out.tolist() == [3, 5]


def test_a_read_keeps_its_stage_after_the_step() -> None:
    def body(ctx: tp.Context) -> Any:
        state = tp.PipelineState(ctx, 4)
        before = state.index()
        state.step()
        return before * 10 + state.index()

    assert evaluated(body) == 1


def test_in_role_helper_runs_grids() -> None:
    out = np.zeros(8, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.elect_one():
            ctx.store(out[ctx.block_id], ctx.cluster_id * 10 + ctx.cta_rank)

    in_role(body, out, grid=8, cluster=2).run()
    assert out.tolist() == [b // 2 * 10 + b % 2 for b in range(8)]


def test_a_barrier_used_before_the_array_is_divided() -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        array = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, name="array")
        early = array[1]
        early.init(1)
        tp.ProducerConsumerPipeline(array, 2)

    with pytest.raises(
        tp.TraceError,
        match=r"a barrier of this array was used at test_mbarriers\.py:.*before a pipeline divides",
    ):
        k.bind()
