"""Tests of barriers: asked by whole warps, and of a warpgroup nothing but a wait depends on the
answer.

The holes come back with `monkeypatch.setattr(answers, "require_whole_warp", lambda tracer: None)`
(lanes that test apart), `monkeypatch.setattr(answers, "refuse_divergent_effects", lambda role:
None)` (warps of a warpgroup).
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe.lang.tracing import barrier_tests as answers

BEFORE = """
bars = tp.SMemArray(ctx, tp.SharedMemBarrier, 2, "bars")
bars[0].init(1)
bars[1].init(1)
ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, producer_arrivals=32, consumer_arrivals=128,
    name="ring")
word = ctx.smem((1, 32), "int32", swizzle=0, name="word")[0]
"""


def role(text: str, size: str = "warps=1", out: int = 128) -> tp.Program:
    lines = textwrap.indent(textwrap.dedent(text).strip(), "    ")
    other = (
        "@ctx.role('other', warps=1)\n"
        "def other():\n"
        "    with ctx.elect_one():\n"
        "        bars[0].arrive()\n"
    )
    return from_text(f"{BEFORE}\n{other}@ctx.role('asks', {size})\ndef asks():\n{lines}").bind(
        np.zeros(out, np.int32)
    )


LANES = {
    "elect_one": "with ctx.elect_one():",
    "one lane": "with ctx.when(ctx.lane == 0):",
    "lanes": "with ctx.when(ctx.lane < 16):",
    "data of a lane": "with ctx.when(ctx.load(out[ctx.lane]) > 0):",
}
TESTS = ("bars[0].try_wait(0)", "ring.try_wait_producer()", "ring.try_wait_consumer()")


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("under", LANES.values(), ids=LANES)
@pytest.mark.parametrize("size", ["warps=1", "warps=2", "warpgroups=1"])
def test_lanes_do_not_test_apart(under: str, test: str, size: str) -> None:
    kind = "elect" if "elect" in under else "branch"
    words = (
        f"a test of a barrier under the {kind} block at <cell",
        "one result",
        "may hang",
        "Test outside that block",
        test,
    )
    with refused(tp.TraceError, *words):
        role(f"{under}\n    {test}", size)


@pytest.mark.parametrize(
    "test",
    [
        "inputs.try_acquire_producer()",
        "inputs.try_acquire_consumer()",
        "inputs.producer().try_acquire()",
    ],
)
def test_nor_by_the_views_of_a_pipeline(test: str) -> None:
    text = f"""
    payload = tp.StandardTilePayload(a_type="float32", b_type="float32", a_shape=(8, 8),
        b_shape=(8, 8))
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2, producer_arrivals=1,
        consumer_arrivals=32)
    @ctx.role("asks", warps=1)
    def asks():
        with ctx.elect_one():
            {test}
    """
    with refused(tp.TraceError, "a test of a barrier under the elect block"):
        from_text(text).bind(np.zeros(4, np.int32))


def test_an_answer_of_the_warp_may_be_used_by_a_lane() -> None:
    text = """
    ready = bars[0].try_wait(0)
    with ctx.elect_one(), ctx.when(~ready):
        bars[0].wait(0)
    ctx.store(out[ctx.lane], 1)
    """
    assert role(text).check().ok


def test_without_the_refusal_lanes_print_answers_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hole: no vote is printed under a lane condition."""
    text = (
        "with ctx.when(ctx.lane < 16):\n"
        "    with ctx.when(bars[0].try_wait(0)):\n"
        "        ctx.store(out[ctx.lane], 1)"
    )
    monkeypatch.setattr(answers, "require_whole_warp", lambda tracer: None)
    assert "__all_sync" not in role(text).source()
    monkeypatch.undo()
    assert (
        "__all_sync"
        in role("ctx.store(out[ctx.lane], ctx.select(bars[0].try_wait(0), 1, 0))").source()
    )


APART = {
    "an arrive": "with ctx.when(ready):\n    bars[1].arrive()",
    "on the other side": (
        "with ctx.when(ready):\n    bars[0].wait(0)\nwith ctx.otherwise():\n    bars[1].arrive()"
    ),
    "a store": "with ctx.when(ready):\n    ctx.store(out[ctx.thread], 1)",
    "a value that is stored": "ctx.store(out[ctx.thread], ctx.select(ready, 1, 0))",
    "by way of names": (
        "x = ctx.let(ctx.select(ready, 1, 0))\ny = ctx.let(x + 1)\nctx.store(out[ctx.thread], y)"
    ),
    "by way of a variable": (
        "v = ctx.var(ctx.warp * 0)\n"
        "with ctx.when(ready):\n"
        "    v.set(1)\n"
        "ctx.store(out[ctx.thread], v.get())"
    ),
    "a fence": "with ctx.when(ready):\n    ctx.fence_proxy_async()",
}


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_warps_of_a_warpgroup_do_not_act_apart(text: str) -> None:
    with refused(
        tp.TraceError,
        "result of a test",
        "in warpgroup role 'asks'",
        "has its own result",
        "wait_producer_if_needed",
    ):
        role(f"ready = bars[0].try_wait(0)\n{text}", "warpgroups=1")
    assert "try" in str(role(f"ready = bars[0].try_wait(0)\n{text}"))  # a role of warps may


TOGETHER = {
    "sync": "with ctx.when(ready):\n    ctx.sync_warpgroup()",
    "a fragment": "f = ctx.fragment(shape=(64, 8))\nwith ctx.when(ready):\n    f.fill(0)",
    "a step": "with ctx.when(ready):\n    ring.consumer_step()",
    "a bound": "for _ in ctx.range(ctx.select(ready, 1, 2)):\n    bars[1].wait(1)",
    "a loop": "more = ctx.var(ready)\nfor _ in ctx.loop_while(more):\n    more.set(False)",
    "an accumulator": "f = ctx.fragment(shape=(64, 8))\nf.set(ctx.select(ready, 1.0, 2.0))",
}


@pytest.mark.parametrize("text", TOGETHER.values(), ids=TOGETHER)
def test_a_warpgroup_does_nothing_together_behind_an_answer(text: str) -> None:
    with refused(tp.TraceError, "in warpgroup role 'asks'", "has its own result"):
        role(f"ready = bars[0].try_wait(0)\n{text}", "warpgroups=1")


@pytest.mark.parametrize(
    "guard",
    [
        "with ctx.when(~ready):\n    bars[0].wait(0)",
        "with ctx.when(ready):\n    pass\nwith ctx.otherwise():\n    bars[0].wait(0)",
        (
            "with ctx.when(~ready):\n"
            "    again = bars[0].try_wait(0)\n"
            "    with ctx.when(~again):\n"
            "        bars[0].wait(0)"
        ),
    ],
)
def test_a_warpgroup_may_wait_behind_an_answer(guard: str) -> None:
    program = role(
        "ready = bars[0].try_wait(0)\n"
        f"{guard}\n"
        "ctx.sync_warpgroup()\n"
        "ctx.store(out[ctx.thread], 1)",
        "warpgroups=1",
    )
    assert program.check().ok
    assert "__all_sync" in program.source()


LOOPS = {
    "carried round a loop": """
        v = ctx.var(ctx.warp * 0 > 0)
        for i in ctx.range(2):
            with ctx.when(v.get()):
                ctx.store(out[ctx.thread], 1)
                bars[1].arrive()
            v.set(bars[0].try_wait(0))
        """,
    "two names on": """
        v, w = ctx.var(ctx.warp * 0), ctx.var(ctx.warp * 0)
        for i in ctx.range(3):
            ctx.store(out[ctx.thread], w.get())
            w.set(v.get() + 1)
            v.set(ctx.select(bars[0].try_wait(0), 1, 0))
        """,
    "what a branch sets": """
        v, w = ctx.var(ctx.warp * 0 > 0), ctx.var(ctx.warp * 0)
        for i in ctx.range(3):
            ctx.store(out[ctx.thread], w.get())
            with ctx.when(v.get()):
                w.set(1)
            v.set(bars[0].try_wait(0))
        """,
    "an outer loop": """
        v = ctx.var(ctx.warp * 0 > 0)
        for i in ctx.range(2):
            for j in ctx.range(2):
                with ctx.when(v.get()):
                    ctx.store(out[ctx.thread], 1)
            v.set(bars[0].try_wait(0))
        """,
}


@pytest.mark.parametrize("text", LOOPS.values(), ids=LOOPS)
def test_nor_on_an_answer_of_the_iteration_before(text: str) -> None:
    with refused(
        tp.TraceError,
        "Store",
        "the result of a test, in warpgroup role 'asks'",
        "only waits may depend on a result",
        "<cell",
    ):
        role(text, "warpgroups=1")


def test_without_the_refusal_the_warps_have_one_answer_in_common(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hole: out of bounds on a GPU where one warp is told no and the next yes."""
    text = """
    v = ctx.var(ctx.warp * 0)
    for i in ctx.range(2):
        with ctx.elect_one():
            ctx.store(word[0, ctx.warp], v.get())
        ctx.sync_warpgroup()
        with ctx.when(ctx.load(word[0, 0]) != ctx.load(word[0, 1])):
            ctx.store(out[999], 1)
        ctx.sync_warpgroup()
        v.set(ctx.select(bars[0].try_wait(0), 1, 0))
    """
    monkeypatch.setattr(answers, "refuse_divergent_effects", lambda role: None)
    assert role(text, "warpgroups=1").check().ok
    monkeypatch.undo()
    with refused(tp.TraceError, "Store with the result of a test"):
        role(text, "warpgroups=1")


def test_only_waits_depend_on_an_answer_of_per_warp() -> None:
    """Its block is simulated for one warp after the other, in the order of their numbers."""
    text = "with ctx.per_warp() as w:\n    ready = bars[0].try_wait(0)\n"
    with refused(tp.TraceError, "Store in the branch", "in warpgroup role 'asks'"):
        role(
            f"{text}    with ctx.when(ready):\n        ctx.store(out[ctx.thread], 1)",
            "warpgroups=1",
        )
    waits = (
        "v = ctx.var(ctx.warp * 0 > 0)\n"
        f"{text}    v.set(ready)\n"
        "with ctx.when(~v.get()):\n"
        "    bars[0].wait(0)\n"
    )
    assert role(f"{waits}ctx.store(out[ctx.thread], 1)", "warpgroups=1").check().ok
    seen = f"""{text}    with ctx.elect_one():
        ctx.store(word[0, w], ctx.select(ready, 1, 0))
ctx.sync_warpgroup()
with ctx.when((ctx.load(word[0, 0]) == 1) & (ctx.load(word[0, 1]) == 0)):
    ctx.store(out[999], 1)
"""
    with refused(tp.TraceError, "Store with the result of a test"):
        role(seen, "warpgroups=1")


DRAW = "with ctx.per_warp() as w, ctx.elect_one():\n    t = ctx.atomic_add(out[0], 1)\n"
USES = {
    "a branch": f"{DRAW}    with ctx.when((w == 3) & (t == 0)):\n        ctx.store(out[999], 1)",
    "a store": f"{DRAW}    ctx.store(word[0, w], t)",
    "a variable": "v = ctx.var(ctx.lane * 0)\n" + DRAW + "    v.set(t)",
    "a place": f"{DRAW}    ctx.store(out[t + 1], 1)",
}


@pytest.mark.parametrize("text", USES.values(), ids=USES)
def test_what_the_warps_of_a_warpgroup_draw_is_not_used(text: str) -> None:
    words = (
        "atomic_add under per_warp, in warpgroup role 'asks'",
        "is used at <cell",
        "in any order",
        "`warps=1`",
        'elect_one("warpgroup")',
    )
    with refused(tp.TraceError, *words):
        role(text, "warpgroups=1")


def test_without_the_refusal_the_warps_draw_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole: out of bounds on a GPU where warp 3 draws first."""
    monkeypatch.setattr(answers, "refuse_per_warp_atomics", lambda role: None)
    assert role(USES["a branch"], "warpgroups=1").check().ok


def test_draws_that_may_be_used() -> None:
    assert role(DRAW, "warpgroups=1").check().ok
    once = 'with ctx.elect_one("warpgroup"):\n    ctx.store(out[1], ctx.atomic_add(out[0], 1))'
    assert role(once, "warpgroups=1").check().ok
    assert (
        role("with ctx.elect_one():\n    ctx.store(out[1], ctx.atomic_add(out[0], 1))").check().ok
    )
