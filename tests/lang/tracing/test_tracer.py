"""Which block, role and kernel a value belongs to; who executes what: lanes, elected lanes, warps,
one-lane ops; branches in pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, in_role, kinds, refused, role_from_text

CLOSED = ("which has ended", "not defined outside", "ctx.var")


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("loop", "for i in ctx.range(3):\n    pass\nctx.print('{}', i)"),
        ("loop", "for i in ctx.range(3):\n    x = i + 1\nctx.print('{}', x)"),
        ("loop", "for i in ctx.range(3):\n    v = ctx.var(0)\nv.set(1)"),
        ("loop", "for i in ctx.range(3):\n    v = ctx.var(0)\nv.get()"),
        ("loop", "for i in ctx.range(3):\n    v = ctx.var(0)\nctx.print('{}', v + 1)"),
        (
            "loop",
            "for i in ctx.range(3):\n    x = ctx.select(i > 1, 1, 2)\nctx.when(x == 1).__enter__()",
        ),
        ("loop", "for t in tp.StaticScheduler(ctx, (2, 2)):\n    pass\nctx.print('{}', t.m)"),
        (
            "branch",
            (
                "with ctx.when(ctx.block_id == 0):\n"
                "    x = ctx.let(ctx.block_id * 2)\n"
                "ctx.print('{}', x)"
            ),
        ),
        (
            "branch",
            (
                "with ctx.when(ctx.block_id == 0):\n"
                "    x = ctx.block_id * 2\n"
                "with ctx.otherwise():\n"
                "    ctx.print('{}', x)"
            ),
        ),
        ("elect", "with ctx.elect_one():\n    x = ctx.block_id + 1\nctx.print('{}', x)"),
        ("per_warp", "with ctx.per_warp() as w:\n    pass\nctx.print('{}', w)"),
        ("loop", "for i in ctx.range(3):\n    f = ctx.accumulator((64, 8))\nf.fill(0)"),
    ],
)
def test_use_after_the_block(what: str, text: str) -> None:
    with refused(tp.TraceError, f"created inside the {what} at <cell ", *CLOSED):
        role_from_text(text, warps="warpgroups=1")


TWO_ROLES = """
kept = {{}}
@ctx.role('first', {size})
def first():
    kept['x'] = {made}
@ctx.role('second', {size})
def second():
    x = kept['x']
    {used}
"""


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("ctx.lane + 1", "ctx.print('{}', x)"),
        ("ctx.var(0)", "x.set(1)"),
        ("ctx.var(0)", "x.get()"),
        ("ctx.accumulator((64, 8))", "x.fill(0)"),
        ("ctx.fragment(shape=(64, 8)) + 1", "ctx.fragment(x)"),
    ],
)
def test_use_in_another_role(made: str, used: str) -> None:
    with refused(tp.TraceError, "created in role 'first', which has ended", used):
        from_text(TWO_ROLES.format(size="warpgroups=1", made=made, used=used)).bind(
            np.zeros(4, np.int32)
        )


def test_use_in_another_kernel() -> None:
    kept: dict[str, Any] = {}
    role_from_text("kept['x'] = ctx.lane", kept=kept)
    with refused(
        tp.TraceError, "uses the ctx of kernel 'k'", "kernel 'k' (<cell", "is being traced"
    ):
        role_from_text("ctx.print('{}', kept['x'])", kept=kept)


def test_values_of_set_up_code_and_shapes_hold_everywhere() -> None:
    out = np.zeros(64, np.int32)
    text = """
    n = out.shape[0] // 2
    @ctx.role('first', warps=1)
    def first():
        with ctx.elect_one():
            ctx.store(out[0], n)
    @ctx.role('second', warps=1)
    def second():
        for i in ctx.range(1):
            with ctx.elect_one():
                ctx.store(out[1], n + i + ctx.cluster_id)
    """
    from_text(text).bind(out).run()
    assert out[:2].tolist() == [32, 32]


# -- lanes -----------------------------------------------------------------------------

PIPE = (
    "pipe = tp.ProducerConsumerPipeline.allocate(ctx, 2, producer_arrivals=1, "
    "consumer_arrivals=1)\n"
    "state = tp.PipelineState(ctx, 2)"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "with ctx.when(ctx.lane == 0):\n    state.step()",
            ("'state'", "lane condition", "would not step"),
        ),
        ("with ctx.elect_one():\n    state.step()", ("'state'", "lane condition")),
        (
            "with ctx.elect_one():\n    pipe.consumer_step()",
            ("'pipeline_consumer'", "lane condition"),
        ),
        ("with ctx.elect_one():\n    with pipe.consume():\n        pass", ("lane condition",)),
        ("state.advance(ctx.lane)", ("number of steps", "varies by lane")),
        ("state.advance(-1)", ("steps forward", "advance(-1)")),
        ("pipe.producer_mbar(ctx.lane)", ("a stage", "varies by lane")),
        ("pipe.producer_mbar(2)", ("stage 2 of 'pipeline', which has 2",)),
        ("pipe.consumer_mbar(-1)", ("stage -1 of 'pipeline'",)),
        ("pipe.producer_mbar(0).wait(ctx.lane)", ("phase of a wait", "varies by lane")),
        (
            "pipe.producer_mbar(0).expect_bytes(16)",
            ("expect_bytes must be executed by one lane", "role 'one'", "ctx.elect_one()"),
        ),
        (
            "ctx.tma_store_commit()",
            ("tma_store_commit must be executed by one lane", "ctx.elect_one()"),
        ),
        ("ctx.tma_store_wait(0)", ("tma_store_wait must be executed by one lane",)),
        (
            "with ctx.when(ctx.lane < 2):\n    ctx.tma_store_commit()",
            ("tma_store_commit must be executed by one lane",),
        ),
        ("with ctx.elect_one(), ctx.elect_one():\n    pass", ("elected already",)),
        ("with ctx.elect_one('block'):\n    pass", ('"warp", "warpgroup" or "role"', "'block'")),
        (
            "with ctx.elect_one('warpgroup'):\n    pass",
            ("needs a role of warpgroups", "'one' is one of warps"),
        ),
        ("with ctx.per_warp():\n    pass", ("needs a role of warpgroups", "'one'")),
        ("ctx.sync_warpgroup()", ("needs a role of warpgroups", "'one'")),
        (
            "with ctx.elect_one():\n    ctx.sync_role()",
            ("all threads of the role", "elect block at"),
        ),
        ("ctx.accumulator((64, 8))", ("registers of a warpgroup", "role 'one' needs warpgroups=")),
    ],
)
def test_lane_rules_of_a_warp(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(text, before=PIPE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("with ctx.per_warp(), ctx.per_warp():\n    pass", ("per_warp inside",)),
        ("with ctx.elect_one(), ctx.per_warp():\n    pass", ("per_warp inside",)),
        (
            "with ctx.per_warp():\n    ctx.sync_warpgroup()",
            ("all 128 threads of a warpgroup", "per_warp block at"),
        ),
        (
            "with ctx.elect_one():\n    ctx.tma_store_commit()",
            ("one lane", 'ctx.elect_one("role")', '"warpgroup"'),
        ),
        ("with ctx.per_warp():\n    ctx.tma_store_commit()", ("one lane",)),
        ("with ctx.elect_one('warpgroup'):\n    ctx.wgmma_wait(9)", ("0..7, got 9",)),
        ("with ctx.elect_one():\n    state.step()", ("lane condition",)),
    ],
)
def test_lane_rules_of_a_warpgroup(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        role_from_text(text, warps="warpgroups=2", before=PIPE)


@pytest.mark.parametrize(
    ("warps", "text"),
    [
        ("warps=1", "with ctx.elect_one():\n    ctx.tma_store_commit()"),
        ("warps=1", "with ctx.when(ctx.lane == 3):\n    ctx.tma_store_commit()"),
        ("warps=4", "with ctx.elect_one('role'):\n    ctx.tma_store_commit()"),
        ("warps=4", "with ctx.when(ctx.thread == 40):\n    ctx.tma_store_commit()"),
        ("warps=4", "with ctx.when(ctx.warp == 2), ctx.elect_one():\n    ctx.tma_store_commit()"),
        ("warpgroups=2", "with ctx.elect_one('warpgroup'):\n    ctx.tma_store_commit()"),
        ("warpgroups=2", "with ctx.elect_one('role'):\n    ctx.tma_store_commit()"),
        ("warpgroups=1", "with ctx.per_warp(), ctx.elect_one():\n    ctx.tma_store_commit()"),
        ("warps=2", "with ctx.when(ctx.warp == 1):\n    state.step()"),
        ("warps=1", "with ctx.when(out.shape[0] > 3):\n    state.step()"),
    ],
)
def test_one_lane_is_known_however_it_is_said(warps: str, text: str) -> None:
    program = role_from_text(text, warps=warps, before=PIPE)
    assert {"TmaStoreCommit", "CursorStep"} & set(kinds(program))


@pytest.mark.parametrize(
    ("size", "scope", "want"),
    [
        ({"warps": 1}, "warp", [0]),
        ({"warps": 3}, "warp", [0, 32, 64]),
        ({"warps": 3}, "role", [0]),
        ({"warpgroups": 2}, "warp", [0, 32, 64, 96, 128, 160, 192, 224]),
        ({"warpgroups": 2}, "warpgroup", [0, 128]),
        ({"warpgroups": 2}, "role", [0]),
    ],
)
def test_who_is_elected(size: dict[str, int], scope: str, want: list[int]) -> None:
    out = np.zeros(256, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.elect_one(scope):
            ctx.store(out[ctx.thread], 1)

    in_role(body, out, **{"warps": 0, **size}).run()
    elected = np.flatnonzero(out)
    assert (elected // 32 * 32).tolist() == want
    assert len(set(elected % 32)) == 1  # of each warp the same lane, whichever it is


def test_per_warp_numbers_the_warps_of_a_warpgroup() -> None:
    out = np.zeros(256, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.per_warp() as w:
            ctx.store(out[ctx.thread], w * 100 + ctx.warpgroup_rank * 1000 + ctx.lane)

    in_role(body, out, warpgroups=2).run()
    assert out.tolist() == [t // 32 % 4 * 100 + t // 128 * 1000 + t % 32 for t in range(256)]


# -- branches --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 5, 32])
def test_when_and_otherwise_split_the_lanes(limit: int) -> None:
    out = np.zeros(32, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.when(ctx.lane < limit):
            ctx.store(out[ctx.lane], 1)
        with ctx.otherwise():
            ctx.store(out[ctx.lane], 2)

    in_role(body, out).run()
    assert out.tolist() == [1 if lane < limit else 2 for lane in range(32)]


@pytest.mark.parametrize(
    "text",
    [
        "with ctx.otherwise():\n    pass",
        "with ctx.when(ctx.lane == 0):\n    pass\nctx.syncwarp()\nwith ctx.otherwise():\n    pass",
        (
            "with ctx.when(ctx.lane == 0):\n"
            "    pass\n"
            "with ctx.otherwise():\n"
            "    pass\n"
            "with ctx.otherwise():\n"
            "    pass"
        ),
        "with ctx.when(ctx.lane == 0):\n    with ctx.otherwise():\n        pass",
        (
            "for i in ctx.range(2):\n"
            "    with ctx.when(ctx.lane == 0):\n"
            "        pass\n"
            "with ctx.otherwise():\n"
            "    pass"
        ),
    ],
)
def test_otherwise_belongs_to_the_when_before_it(text: str) -> None:
    with refused(tp.TraceError, "ctx.otherwise() must follow its ctx.when(...) block directly"):
        role_from_text(text)


def test_nested_branches() -> None:
    out = np.zeros(32, np.int32)

    def body(ctx: tp.Context, out: Any) -> None:
        with ctx.when(ctx.lane < 16):
            with ctx.when(ctx.lane < 8):
                ctx.store(out[ctx.lane], 1)
            with ctx.otherwise():
                ctx.store(out[ctx.lane], 2)
        with ctx.otherwise():
            ctx.store(out[ctx.lane], 3)

    in_role(body, out).run()
    assert out.tolist() == [1] * 8 + [2] * 8 + [3] * 16


def test_assert_and_print() -> None:
    program = role_from_text(
        "ctx.assert_(ctx.num_clusters == 1)\nctx.print('n = {}', ctx.num_clusters)"
    )
    assert set(program.run().printed) == {"n = 1"}
    with refused(tp.KernelAssertError, "two clusters", "role 'one'"):
        role_from_text("ctx.assert_(ctx.num_clusters == 2, 'two clusters')").run()


def test_ctx_has_no_meaning_after_the_trace() -> None:
    kept = []

    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        kept.append(ctx)
        ctx.role("one", warps=1)(lambda: None)

    program = k.bind()
    before = str(program)
    with pytest.raises(
        tp.TraceError,
        match=r"this uses the ctx of kernel 'k' \(test_tracer.py:\d+\), or something made from "
        r"it, while kernel 'k' has been traced",
    ):
        kept[0].smem((8, 8), tp.float32)
    assert str(program) == before
