"""What the pages are built on, member by member: each test fails when that member does nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import counts_of, laps
from tests.support.tracing import from_text, refused, role_from_text
from tilepipe.ir import ops
from tilepipe.ir.program import walk
from tilepipe.pipelines.barriers.mbarriers import BARRIER_BYTES

ONE = "with ctx.elect_one():\n    "
# what a role does with `bar`, the barrier's count, phases that it completes
PHASES: dict[str, tuple[str, int, int]] = {
    "arrive": ("for i in ctx.range(3):\n    bar.arrive()\n    bar.wait(i)", 32, 3),
    "arrive_cluster": (f"{ONE}bar.arrive_cluster(ctx.cta_rank, 5)", 5, 1),
    "expect_bytes": (f"{ONE}bar.expect_bytes(32)\n    bar.complete_transaction(None, 32)", 1, 1),
    "expect_bytes_relaxed": (
        f"{ONE}bar.expect_bytes_relaxed(32)\n    bar.complete_transaction(None, 32)",
        1,
        1,
    ),
    "arrive_and_expect_bytes": (
        "bar.arrive_and_expect_bytes(32, 0, ctx.lane == 7)\n"
        + ONE
        + "bar.complete_transaction(0, 32)",
        1,
        1,
    ),
    "complete_transaction": (
        (
            f"{ONE}bar.expect_bytes(48)\n"
            "    bar.complete_transaction(None, 40)\n"
            "    bar.complete_transaction(0, 8)"
        ),
        1,
        1,
    ),
    "complete_transaction, where a lane says so": (
        (
            f"{ONE}bar.expect_bytes(32)\n"
            "ctx.syncwarp()\n"
            "bar.complete_transaction(None, 32, ctx.lane == 5)"
        ),
        1,
        1,
    ),
    "expect_bytes, too few": (
        f"{ONE}bar.expect_bytes(32)\n    bar.complete_transaction(None, 16)",
        1,
        0,
    ),
    "expect_bytes_relaxed, too few": (
        f"{ONE}bar.expect_bytes_relaxed(32)\n    bar.complete_transaction(None, 16)",
        1,
        0,
    ),
    "arrive_and_expect_bytes, too few": (
        f"{ONE}bar.arrive_and_expect_bytes(32, 0)\n    bar.complete_transaction(0, 16)",
        1,
        0,
    ),
    "unsafe_ptr": (f"{ONE}bar.unsafe_ptr().arrive()", 1, 1),
}


def barrier(text: str, count: int = 1) -> tp.Program:
    return role_from_text(
        text, before=f"bar = tp.SharedMemBarrier.allocate(ctx, {count}, name='bar')"
    )


@pytest.mark.parametrize("member", PHASES)
def test_phases_of_a_barrier(member: str) -> None:
    text, count, completed = PHASES[member]
    assert barrier(text, count).run().completions == {"bar": [[completed]]}


# what CTA 0 of a pair does with the barrier of CTA 1, which nobody else touches
REMOTE: dict[str, str] = {
    "arrive_cluster": f"{ONE}bar.arrive_cluster(1)",
    "arrive_and_expect_bytes": (
        f"{ONE}bar.arrive_and_expect_bytes(32, 1)\n    bar.complete_transaction(1, 32)"
    ),
    "arrive_and_expect_bytes, where a lane says so": (
        f"bar.arrive_and_expect_bytes(32, 1, ctx.lane == 3)\n{ONE}bar.complete_transaction(1, 32)"
    ),
}


@pytest.mark.parametrize("member", REMOTE)
def test_a_barrier_of_a_peer(member: str) -> None:
    """The copy in CTA 1 completes a phase, the one in CTA 0 none."""
    body = "\n".join(f"        {line}" for line in REMOTE[member].splitlines())
    text = f"""bar = tp.SharedMemBarrier.allocate(ctx, 1, name='bar')
@ctx.role('one', warps=1)
def one():
    with ctx.when(ctx.cta_rank == 0):
{body}
    with ctx.otherwise():
        bar.wait(0)
    ctx.cluster_arrive()
    ctx.cluster_wait()
"""
    kernel = from_text(text)
    kernel._grid = kernel._cluster = 2
    assert kernel.bind(np.zeros(4, np.int32)).run().completions == {"bar": [[0], [1]]}


@pytest.mark.parametrize("relaxed", [False, True])
def test_how_an_arrival_on_a_peers_copy_is_ordered(relaxed: bool) -> None:
    program = barrier(f"{ONE}bar.arrive_cluster(0, relaxed={relaxed})")
    (arrive,) = (op for op in walk(program.kernel.roles[0].body) if isinstance(op, ops.MbarArrive))
    assert arrive.sem == ("relaxed" if relaxed else "release")


def test_one_barrier_is_eight_bytes() -> None:
    program = barrier(f"{ONE}bar.arrive()", 1)
    (array,) = program.kernel.barriers
    (arrive,) = (op for op in walk(program.kernel.roles[0].body) if isinstance(op, ops.MbarArrive))
    assert (array.size, BARRIER_BYTES, arrive.bar.array) == (1, 8, array)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_init_sets_the_count(count: int) -> None:
    """Two arrivals complete two phases, one, or none."""
    text = (
        "bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, 'bars')\nbars[0].init({})\nbar = bars[0]"
    )
    arrivals = "for i in ctx.range(2):\n    with ctx.elect_one():\n        bar.arrive()"
    assert role_from_text(arrivals, before=text.format(count)).run().completions == {
        "bars": [[2 // count]]
    }


@pytest.mark.parametrize("member", ["wait", "wait_acquire", "wait_relaxed"])
def test_a_wait_blocks_until_the_phase_is_complete(member: str) -> None:
    """Who waits reads what was written before the arrival; parity 1 of a fresh barrier passes,
    parity 0 of a lonely one never does.
    """
    out = np.zeros(32, np.int32)
    text = f"""
    bar = tp.SharedMemBarrier.allocate(ctx, 32, name='bar')
    words = tp.SMemArray(ctx, 'int32', 32, name='words')
    @ctx.role('write', warps=1)
    def write():
        bar.{member}(1)
        ctx.store(words[ctx.lane], ctx.lane + 1)
        bar.arrive()
    @ctx.role('read', warps=1)
    def read():
        bar.{member}(0)
        ctx.store(out[ctx.lane], ctx.load(words[31 - ctx.lane]))
    """
    for seed in range(3):
        out[:] = 0
        run = from_text(text).bind(out).run(seed=seed)
        assert out.tolist() == list(range(32, 0, -1))
        assert [role.waits for role in run.roles] == [1, 1]
    with refused(
        tp.DeadlockError,
        "role 'one'",
        f"bar.{member}(0)",
        "1 of 1 arrivals",
        "nothing in the kernel arrives on it",
    ):
        barrier(f"bar.{member}(0)").run()


@pytest.mark.slow
def test_one_barrier_is_initialised() -> None:
    """That of the pointer, and not the next; a count is at least 1."""
    text = "bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 3, 'bars')\nbars[1].init({})"
    role_from_text(f"{ONE}bars[1].arrive()", before=text.format(1)).run()
    for other in (0, 2):
        with refused(tp.BarrierError, f"bars[{other}]", "before it was initialised"):
            role_from_text(f"{ONE}bars[{other}].arrive()", before=text.format(1)).run()
    with refused(tp.TraceError, "an mbarrier's count is 1..1048575, got 0"):
        role_from_text("pass", before=text.format(0))


def test_an_element_is_a_pointer() -> None:
    """Its operations act on that element: of barriers and of numbers."""
    out = np.zeros(4, np.int32)
    text = """
    bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 3, name='bars')
    for i in range(3):
        bars[i].init(1)
    numbers = tp.SMemArray(ctx, 'int32', 4, name='numbers')
    assert isinstance(bars[2], tp.MbarPtr) and isinstance(numbers[2], tp.SMemPtr)
    @ctx.role('one', warps=1)
    def one():
        with ctx.elect_one():
            for i in range(4):
                ctx.store(numbers[i], 10 * i)
            for i in range(4):
                ctx.store(out[3 - i], ctx.load(numbers[i]))
            bars[2].arrive()
    """
    assert from_text(text).bind(out).run().completions == {"bars": [[0, 0, 1]]}
    assert out.tolist() == [30, 20, 10, 0]


def test_arrays_lie_one_after_the_other() -> None:
    """An array is a range of shared memory of its own, `storage_size` bytes long."""
    text = (
        "a, b, c = (tp.SMemArray(ctx, tp.SharedMemBarrier, n, name=f'bars{n}') for n in (3, "
        "2, 4))\n"
        "found.extend([a.storage_size, b.storage_size, c.storage_size])"
    )
    found: list[int] = []
    arrays = role_from_text("pass", before=text, found=found).kernel.barriers
    assert found == [24, 16, 32]
    assert [(later.offset or 0) - (first.offset or 0) for first, later in pairwise(arrays)] == [
        24,
        16,
    ]
    words = role_from_text(
        "pass", before="tp.SMemArray(ctx, 'int32', 32, name='words')"
    ).kernel.buffers
    assert [(w.rows, w.cols, w.nbytes) for w in words] == [(1, 32, 128)]


@pytest.mark.parametrize(
    ("order", "swizzle", "at"), [("row", 0, 8 * 2 + 3), ("col", 0, 8 * 3 + 2), ("row", 32, None)]
)
def test_tiles_with_a_layout(order: str, swizzle: int, at: int | None) -> None:
    """`order` and `swizzle` say where an element lies; what is stored is read back whatever they
    are.
    """
    text = f"""
    tiles = tp.SMemTileArray2D(ctx, 'int32', 8, 8, 2, order={order!r}, swizzle={swizzle})
    found.extend([tiles.buffer.order, tiles.buffer.swizzle, tiles.tile_bytes])
    @ctx.role('one', warps=1)
    def one():
        for tile in range(2):
            for half in range(2):
                r, c = ctx.lane // 8 + 4 * half, ctx.lane % 8
                ctx.store(tiles.tile(tile)[r, c], 100 * tile + 10 * r + c)
        ctx.syncwarp()
        ctx.store(out[ctx.lane], ctx.load(tiles.tile(1)[7 - ctx.lane % 8, ctx.lane // 8]))
    """
    out, found = np.zeros(32, np.int32), list[Any]()
    program = from_text(text, found=found).bind(out)
    program.run()
    lanes = np.arange(32)
    assert np.array_equal(out, 100 + 10 * (7 - lanes % 8) + lanes // 8)
    assert found == [order, swizzle, 256]
    if at is not None:
        assert program.kernel.buffers[0].order == order


class Vectors(tp.TilePayload):
    """A payload of one's own: rows of 32 numbers."""

    tiles: Any = None

    def allocate(self, ctx: tp.Context, num_pipeline_stages: int, name: str) -> Self:
        self.tiles = tp.SMemTileArray2DRowMajor(ctx, "int32", 1, 32, num_pipeline_stages, name=name)
        return self

    def get_tile(self, stage: Any, k_idx: int = 0, *, k_group_size: int, owner: Any = None) -> Any:
        return (self.tiles.tile(stage * k_group_size + k_idx, owner),)

    @property
    def tile_bytes(self) -> int:
        return 128


def test_a_payload_of_ones_own() -> None:
    with pytest.raises(TypeError, match="abstract"):
        tp.TilePayload()  # type: ignore[abstract]
    out = np.zeros((5, 32), np.int32)
    text = """
    inputs = tp.InputTilePipeline.allocate(ctx, Vectors(), num_group_stages=2)
    @ctx.role('fill', warps=1)
    def fill():
        for i in ctx.range(5):
            with inputs.producer().acquire() as stage:
                ctx.store(stage.tile()[0][0, ctx.lane], i * 100 + ctx.lane)
                stage.barrier().arrive()
    @ctx.role('use', warps=1)
    def use():
        for i in ctx.range(5):
            with inputs.consumer().acquire() as stage:
                ctx.store(out[i, ctx.lane], ctx.load(stage.tile()[0][0, 31 - ctx.lane]))
    """
    program = from_text(text, Vectors=Vectors).bind(out)
    assert program.run(seed=1).completions == {
        "inputs.full": [laps(5, 2)],
        "inputs.empty": [laps(5, 2)],
    }
    assert counts_of(program) == {"inputs.full": 32, "inputs.empty": 32}
    assert np.array_equal(out, 100 * np.arange(5)[:, None] + 31 - np.arange(32))


def test_a_standard_payload() -> None:
    """Its types, shapes and number of tiles are those of its arrays; tile k of stage s is number s
    * k_group_size + k.
    """
    payload = tp.StandardTilePayload(
        a_type="bfloat16", b_type="float16", a_shape=(64, 32), b_shape=(16, 32)
    )
    found: list[Any] = []
    text = """
    held = payload.allocate(ctx, 6, 'inputs')
    found.extend([held.a_type, held.b_type, held.a_shape, held.b_shape, len(held.a_tiles),
        len(held.b_tiles), held.tile_bytes])
    @ctx.role('one', warps=1)
    def one():
        a, b = held.get_tile(1, 2, k_group_size=3)
        found.extend([(a.shape, str(a.dtype)), (b.shape, str(b.dtype))])
        one = held.get_a_tile(1, 2, k_group_size=3), held.get_b_tile(1, 2, k_group_size=3)
        assert [(x.ir('read').buffer.name, x.ir('read').index.value) for x in one] == [('inputs_a',
            5), ('inputs_b', 5)]
        with ctx.elect_one():
            ctx.store(a[1, 2], 7)
            ctx.store(b[3, 4], 8)
    """
    program = from_text(text, payload=payload, found=found).bind(np.zeros(4, np.int32))
    assert found[:7] == ["bfloat16", "float16", (64, 32), (16, 32), 6, 6, 2 * 32 * (64 + 16)]
    assert found[7:] == [((64, 32), "bfloat16"), ((16, 32), "float16")]
    assert [(b.count, b.rows, b.cols, str(b.dtype)) for b in program.kernel.buffers] == [
        (6, 64, 32, "bfloat16"),
        (6, 16, 32, "float16"),
    ]
    assert "inputs_a[5](1, 2)" in str(program)
    assert "inputs_b[5](3, 4)" in str(program)


def test_a_payload_with_scales() -> None:
    """The third tile holds the scales of A's rows, unswizzled; the bytes of a stage include
    them.
    """
    payload = tp.BlockwiseFP8TilePayload(
        a_type="float8_e4m3",
        b_type="float8_e4m3",
        a_shape=(64, 128),
        b_shape=(32, 128),
        a_scales_type="float32",
        a_scales_shape=(1, 64),
    )
    found: list[Any] = []
    text = """
    held = payload.allocate(ctx, 4, 'inputs')
    scales = held.a_scales_tiles
    found.extend([held.a_scales_type, held.a_scales_shape, len(scales), scales.buffer.swizzle,
        held.tile_bytes, len(held.a_tiles)])
    @ctx.role('one', warps=1)
    def one():
        a, b, s = held.get_tile(1, 1, k_group_size=2)
        found.extend([a.shape, b.shape, s.shape, str(s.dtype)])
        for x in (a, b, s, held.get_a_tile(1, 1, k_group_size=2), held.get_a_scales_tile(1, 1,
            k_group_size=2)):
            assert x.ir('read').index.value == 3
        with ctx.elect_one():
            ctx.store(s[0, 5], 0.5)
    """
    program = from_text(text, payload=payload, found=found).bind(np.zeros(4, np.int32))
    assert found[:6] == ["float32", (1, 64), 4, 0, 128 * (64 + 32) + 4 * 64, 4]
    assert found[6:] == [(64, 128), (32, 128), (1, 64), "float32"]
    assert "inputs_a_scales[3](0, 5)" in str(program)
